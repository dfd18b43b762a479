"""Linearised networks whose parameters are arranged otherwise where they are trained."""

import jax
import jax.numpy as jnp
import pytest

from close import close
from unlazy.activations import Tanh
from unlazy.data import Dataset
from unlazy.flows import Descent, Linearised
from unlazy.networks import MeanFieldStack, TangentModel, with_fields

KEYS = jax.random.split(jax.random.key(4), 3)
X = jax.random.normal(KEYS[0], (6, 2))
DATA = Dataset(X, jnp.sin(X[:, 0]))
RANKS = (2, 6)  # with 6, amplitudes are a square matrix, whose shape does not tell how it lies


def linearised(rank):
    model = TangentModel(MeanFieldStack((6, 5), 2, ranks=rank, activation=Tanh(), key=KEYS[1]))
    return with_fields(model, displacement=jax.tree.map(lambda leaf: jnp.sin(leaf + 1), model.displacement))


@pytest.mark.parametrize("rank", RANKS)
def test_preparing_rearranges_the_displacement_with_the_parameters(rank):
    model = linearised(rank)
    prepared, x, _ = model.prepare(DATA)
    close(prepared(x), model(DATA.x), rel=1e-12)
    restored = prepared.restore()
    for here, there in zip(jax.tree.leaves(restored.displacement), jax.tree.leaves(model.displacement), strict=True):
        assert jnp.array_equal(here, there)


@pytest.mark.parametrize("rank", RANKS)
def test_a_linearised_stack_can_be_trained(rank):
    network = linearised(rank).centre
    exact = Linearised()(network, DATA, [1.0]).final
    steps = Descent(rate=1e-3)(TangentModel(network), DATA, [1.0]).final
    moved = jnp.abs(exact(DATA.x) - network(DATA.x)).max()
    close(steps(DATA.x), exact(DATA.x), abs=1e-2 * moved)
