"""Contracts that every registered network must keep, on the examples that it gives of itself."""

import pytest

from network_examples import NETWORKS, of_kind
from unlazy._registry import members
from unlazy.testing.networks import NETWORK_CHECKS


def test_members_are_found():
    assert {"two-layer", "two-layer-limit", "tangent-model", "mean-field-stack", "conv-net"} == set(members("network"))


@pytest.mark.parametrize("kind", members("network"))
def test_every_example_is_checked(kind):
    assert len(of_kind(kind)) == sum(kind == one for one, _ in NETWORKS) > 0


@pytest.mark.parametrize("check", NETWORK_CHECKS.values(), ids=NETWORK_CHECKS)
@pytest.mark.parametrize(("kind", "index"), NETWORKS, ids=[f"{kind}-{index}" for kind, index in NETWORKS])
def test_contract(check, kind, index):
    check(*of_kind(kind)[index])
