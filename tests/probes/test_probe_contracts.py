"""Contracts of every registered probe on every registered network in every coordinate system.

The probes are made without options. A probe that is not made for a network says so with a sentence.
"""

import dataclasses
import functools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from close import close
from network_examples import NETWORKS, of_kind
from unlazy._errors import UserError
from unlazy._registry import members
from unlazy.data import Dataset
from unlazy.losses import Squared
from unlazy.networks import MeanFieldStack, TangentModel, TwoLayer
from unlazy.probes import DenseTransfer, Kernel, KernelMatrix, Observation, Probe, Transfer
from unlazy.testing.members import fits, inside_is_by_hand, results_are_finite_floats, short_runs, works_under_vmap

PROBES = {name: member() for name, member in members("probe").items()}
PROBES["transfer"] = Transfer(hidden=3, steps=5)  # its default trains for thousands of steps
PROBES["dense-transfer"] = DenseTransfer(hidden=3, steps=5)
contract = pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES.keys())
# All probes are compiled four times on each network: the first two of each kind are checked quickly, the others in CI.
everywhere = pytest.mark.parametrize(
    ("kind", "index"),
    [pytest.param(*one, marks=pytest.mark.slow if one[1] > 1 else (), id=f"{one[0]}-{one[1]}") for one in NETWORKS],
)


class Mine(Probe):
    """A user's probe that reads raw inputs, evaluates on slices of them, and asks for the start."""

    def __call__(self, obs):
        x, data = obs.x, obs.data
        outputs = obs.network(data.x[-3:])
        return {
            "last": outputs,
            "handle": obs.network(x[-3:]),
            "back": obs.network(x[jnp.asarray([3, 1])]),
            "size": jnp.mean(data.x**2),
            "start": obs.at_start(KernelMatrix()) - obs.kernel(),
            "changed": obs.network(data.x) - obs.start(data.x),
            "weighed": jnp.sum(data.x.reshape(data.n, -1) @ data.x.reshape(data.n, -1).T),
        }


ALL = PROBES | {"mine": Mine()}


@functools.cache
def example(kind, index):
    network, data = of_kind(kind)[index]
    # A test set and a held-out set for all, so that every probe has what it needs.
    test = data if data.x_test is None else None
    x_test, y_test = (data.x[:4] * 0.7, data.y[:4]) if test is not None else (data.x_test, data.y_test)
    held = Dataset(data.x * 0.9, data.y)
    return network, Dataset(data.x, data.y, x_test, y_test, held_out=held, name=data.name)


@functools.cache
def on_points(kind, index):
    """The network after preparation: an infinite embedding has values on its points only."""
    return eqx.filter_jit(lambda network, data: network.prepare(data).network.restore())(*example(kind, index))


@functools.cache
def suits(name, kind, index):
    return fits(ALL[name], on_points(kind, index), example(kind, index)[1])


def test_probes_are_found():
    wanted = {"train-loss", "test-loss", "test-error", "feature-movement", "weight-movement", "kernel", "active-share"}
    assert wanted | {"importance", "pruning", "transfer"} <= set(PROBES)


@everywhere
def test_inside_a_flow_is_by_hand_and_coordinates_do_not_matter(kind, index):
    """Every probe at once: the runs and compilations are shared."""
    probes = {name: probe for name, probe in ALL.items() if suits(name, kind, index)}
    runs = short_runs(probes, *example(kind, index))
    for coordinates, run in runs.items():
        assert {"train-loss", "kernel", "weight-movement", "mine"} <= set(run.observed)
        inside_is_by_hand(run, f"{kind}-{index} in {coordinates}")
        results_are_finite_floats(run, f"{kind}-{index} in {coordinates}")
    if "gram" in runs:
        weights, gram = runs["weights"], runs["gram"]
        assert set(weights.observed) == set(gram.observed)
        for here, there in zip(jax.tree.leaves(gram.observed), jax.tree.leaves(weights.observed), strict=True):
            close(here, there, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("kind", ["two-layer", "mean-field-stack", "conv-net"])
@pytest.mark.parametrize(
    "name", ["condensation", "cosine-matrix", "alignment", "importance", "pruning", "transfer", "weight-movement"]
)
def test_probes_of_neurons_work_on_all_networks_with_neurons(kind, name):
    for index in range(len(of_kind(kind))):
        if example(kind, index)[0].layers():
            assert suits(name, kind, index), (kind, index)


@functools.cache
def unobserved_run(kind, index):
    return short_runs({}, *example(kind, index))["weights"]


def some_run(name):
    """A run that suits the probe: of the first network that it is made for."""
    for kind, index in NETWORKS:
        if suits(name, kind, index):
            return unobserved_run(kind, index)
    raise AssertionError(f"No network suits {name}.")


@contract
def test_every_probe_suits_a_network_and_works_under_vmap(probe):
    name = next(name for name, one in PROBES.items() if one is probe)
    works_under_vmap(probe, some_run(name))


@contract
def test_precision_is_kept(probe):
    run = some_run(next(name for name, one in PROBES.items() if one is probe))
    ends = (run.final, run.start)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, ends)
    look = eqx.filter_jit(lambda now, start, data: probe.of(now, start, data, Squared()))
    leaves = jax.tree.leaves(look(*single, run.data.astype("float32")))
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)


@contract
def test_equal_probes_are_the_same_to_the_compiler(probe):
    again = type(probe)(**{field.name: getattr(probe, field.name) for field in dataclasses.fields(probe)})
    assert again == probe
    assert hash(again) == hash(probe)
    assert not jax.tree.leaves(probe)


def test_the_kernel_at_the_start_is_computed_once():
    calls = []

    class Counting(TwoLayer):
        def tangent_kernel(self, x, z=None):
            calls.append(1)
            return super().tangent_kernel(x, z)

    data = example("two-layer", 0)[1]
    counted = Counting(8, 3, key=0)
    now = Observation(counted, counted, data, Squared())
    Kernel()(now)
    Kernel()(now)
    assert len(calls) == 2  # now and at the start, whatever number of probes asks


def test_an_observation_says_what_is_missing():
    network, data = example("two-layer", 0)
    bare = Observation(network, network, Dataset(data.x, data.y), Squared())
    with pytest.raises(UserError, match="has no test set"):
        _ = bare.test_outputs
    with pytest.raises(UserError, match="samples = 99 is out of range"):
        bare.kernel(99)


def table():
    """Probes against networks, as the documentation shows it."""
    kinds = list(members("network"))
    rows = ["| probe | " + " | ".join(f"`{kind}`" for kind in kinds) + " |", "|---|" + "---|" * len(kinds)]
    for name in PROBES:
        there = [any(suits(name, k, i) for k, i in NETWORKS if k == kind) for kind in kinds]
        rows.append(f"| `{name}` | " + " | ".join("yes" if one else "-" for one in there) + " |")
    return "\n".join(rows)


def test_the_documentation_shows_which_probe_suits_which_network():
    page = (Path(__file__).parents[2] / "docs" / "probes.md").read_text()
    assert table() in page, "docs/probes.md is out of date; the table is now:\n" + table()


def test_tangent_models_are_networks_with_neurons():
    network = example("two-layer", 0)[0]
    model = TangentModel(network)
    assert set(model.layers()) == {"hidden"}
    assert not MeanFieldStack((float("inf"), 4), 3, key=0).layers().get("block-1")
