"""Contracts that every probe found in the room must keep, made as its class is made without options."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy import probes
from unlazy._catalogue import members
from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Descent
from unlazy.losses import Squared
from unlazy.networks import Constant, MeanFieldStack, RandomLayers, Tied, TwoLayer
from unlazy.probes import Probe

MEMBERS = members(probes, Probe)
PROBES = {name: member() for name, member in MEMBERS.items()}
contract = pytest.mark.parametrize("probe", PROBES.values(), ids=PROBES.keys())
WIDTH, LOSS = 8, Squared()


@pytest.fixture(scope="module")
def data():
    keys = jax.random.split(jax.random.key(0), 3)
    x, x_test, held = (jax.random.normal(key, (size, 3)) for key, size in zip(keys, (6, 4, 6), strict=True))
    held_out = Dataset(held, jnp.sign(held[:, 0]))
    return Dataset(x, jnp.sign(x[:, 0]), x_test, jnp.sign(x_test[:, 0]), held_out=held_out)


@pytest.fixture(scope="module")
def runs(data):
    """Short runs at which all probes look together that are made for such a network; the flow does frozen work once."""
    networks = [
        TwoLayer(WIDTH, 3, embedding=RandomLayers((5,)), key=jax.random.key(1)),
        MeanFieldStack((6, WIDTH), 3, ranks=2, key=jax.random.key(1)),
        MeanFieldStack(
            (6, WIDTH),
            3,
            ranks=1,
            train=("w", "wb"),
            bias=(False, Constant(0.5)),
            amplitude=(Tied(), Constant(1.0)),
            clip=(0.1, 0.2, 0.3),
            key=jax.random.key(1),
        ),
    ]
    return [
        Descent(rate=0.5)(
            network, data, [0.0, 2.0], {name: one for name, one in PROBES.items() if fits(one, network, data)}
        )
        for network in networks
    ]


def fits(probe, network, data):
    """Whether a probe is made for such a network; if not, it says so."""
    try:
        eqx.filter_eval_shape(probe, network, network, data, LOSS)
    except UserError:
        return False
    return True


@pytest.fixture
def run(probe, runs, data):
    """The last run that suits the probe."""
    return [run for run in runs if fits(probe, run.start, data)][-1]


def look(probe, now, start, data):
    return eqx.filter_jit(probe)(now, start, data, LOSS)


def same(one, other, rel=1e-9, abs=1e-11):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        close(a, b, rel=rel, abs=abs)


def test_the_room_is_found():
    wanted = {"train-loss", "test-loss", "test-error", "feature-movement", "weight-movement", "kernel", "active-share"}
    wanted |= {"importance", "pruning", "transfer"}
    assert wanted <= set(MEMBERS)


@contract
def test_by_hand_is_the_same_as_inside_a_flow(probe, run, data):
    name = next(name for name, one in PROBES.items() if one is probe)
    seen = jax.tree.map(lambda values: values[-1], run.seen[name])
    same(look(probe, run.final, run.start, data), seen)
    first = jax.tree.map(lambda values: values[0], run.seen[name])
    same(look(probe, run.start, run.start, data), first)


@contract
def test_what_is_seen_are_finite_floats(probe, run, data):
    leaves = jax.tree.leaves(look(probe, run.final, run.start, data))
    assert leaves, "a probe that sees nothing"
    for leaf in leaves:
        assert leaf.dtype == jnp.float64
        assert np.all(np.isfinite(leaf))


@contract
def test_precision_is_kept(probe, run, data):
    ends = (run.final, run.start)
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, ends)
    leaves = jax.tree.leaves(look(probe, *single, data.astype("float32")))
    assert all(leaf.dtype == jnp.float32 for leaf in leaves)


@contract
def test_what_neurons_are_called_does_not_matter(probe, run, data):
    order = jnp.asarray([3, 1, 7, 0, 6, 2, 5, 4])
    layer = next(layer for layer, h in run.final.hidden(data.x).items() if h.shape[1] == WIDTH)
    permuted = [network.permute(layer, order) for network in (run.final, run.start)]

    def reordered(leaf):  # what belongs to a neuron goes where its neuron goes; what belongs to pairs has an order
        return jnp.take(leaf, order, axis=leaf.shape.index(WIDTH)) if leaf.shape.count(WIDTH) == 1 else leaf

    same(look(probe, *permuted, data), jax.tree.map(reordered, look(probe, run.final, run.start, data)))


@contract
def test_probes_work_under_vmap(probe, run, data):
    now, start = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *pair)
        for pair in ((run.final, run.start), (run.start, run.start))
    )
    together = eqx.filter_jit(lambda n, s: eqx.filter_vmap(lambda a, b: probe(a, b, data, LOSS))(n, s))(now, start)
    for index, network in enumerate((run.final, run.start)):
        same(jax.tree.map(lambda leaf, i=index: leaf[i], together), look(probe, network, run.start, data))


@contract
def test_order_of_samples_does_not_matter_to_what_is_averaged(probe, run, data):
    back = jnp.asarray([5, 4, 3, 2, 1, 0])
    turned = eqx.tree_at(lambda d: (d.x, d.y), data, (data.x[back], data.y[back]))
    here, there = (look(probe, run.final, run.start, d) for d in (data, turned))
    for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
        if a.ndim == 0:
            close(b, a, rel=1e-9, abs=1e-11)


@contract
def test_equal_probes_are_the_same_to_the_compiler(probe):
    again = type(probe)()
    assert again == probe
    assert hash(again) == hash(probe)
    assert not jax.tree.leaves(probe)
