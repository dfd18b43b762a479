"""Contracts that every registered network must keep, on the examples that it gives of itself."""

import jax
import pytest

from unlazy._registry import members
from unlazy.testing._networks import NETWORK_CHECKS

MEMBERS = members("network")
EXAMPLES = [
    pytest.param(network, data, id=f"{name}-{index}")
    for name, member in MEMBERS.items()
    for index, (network, data) in enumerate(member.examples(key=jax.random.key(1)))
]


def test_members_are_found():
    assert {"two-layer", "tangent-model", "mean-field-stack", "conv-net"} == set(MEMBERS)


@pytest.mark.parametrize("check", NETWORK_CHECKS.values(), ids=NETWORK_CHECKS)
@pytest.mark.parametrize(("network", "data"), EXAMPLES)
def test_contract(check, network, data):
    check(network, data)
