"""The public contracts hold for every member of the small kinds, and notice what is wrong."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

from unlazy._registry import members
from unlazy.activations import Custom, Tanh
from unlazy.data import Dataset
from unlazy.flows import (
    Adam,
    ByLayer,
    Constant,
    Cosine,
    Momentum,
    OnStagnation,
    Optimiser,
    Piecewise,
    Plain,
    Schedule,
    StepDecay,
    Transform,
)
from unlazy.losses import Loss, Squared
from unlazy.networks import (
    Asymmetrical,
    Embedding,
    Given,
    Identity,
    Infinite,
    Law,
    Quadratic,
    RandomLayers,
    RandomPatches,
    Scaling,
    Zipf,
    laws,
    mean_field,
    multilayer_mean_field,
    ntk,
)
from unlazy.testing import (
    check_activation,
    check_data,
    check_embedding,
    check_law,
    check_loss,
    check_optimiser,
    check_scaling,
    check_schedule,
)

ROWS = tuple((float(i), 1.0, -1.0) for i in range(64))
LAWS = {
    "normal": laws.Normal(mean=(1.0, 0.0, -1.0)),
    "uniform": laws.Uniform(),
    "sphere": laws.Sphere(2.0),
    "constant": laws.Constant((1.0, 2.0, 3.0)),
    "grid": laws.Grid(),
    "given": Given(ROWS),
}
EMBEDDINGS = {
    "identity": Identity(),
    "quadratic": Quadratic(),
    "random-layers": RandomLayers((6, 5)),
    "random-patches": RandomPatches(3, 2),
    "infinite": Infinite(2),
}
SCALINGS = {
    "mean-field": mean_field,
    "ntk": ntk,
    "multilayer-mean-field": multilayer_mean_field,
    "scaling": Scaling(node=-0.75, rate=0.5),
    "asymmetrical": Scaling(node=Asymmetrical(0.5, Zipf(0.7))),
}
OPTIMISERS = {
    "plain": Plain(),
    "momentum": Momentum(),
    "adam": Adam(),
    "transform": Transform(optax.scale_by_lion()),
}
SCHEDULES = {
    "constant": Constant(),
    "step-decay": StepDecay(0.9, 10),
    "cosine": Cosine(100),
    "on-stagnation": OnStagnation(),
    "piecewise": Piecewise((1.0, 0.5, 2.0), (10, 20)),
    "by-layer": ByLayer(("w",), (Cosine(10),), StepDecay(0.9, 10)),
}
UNDRAWN = {"tied", "eye"}  # amplitudes that are not parameters


def test_no_member_is_forgotten():
    assert set(members("law")) == set(LAWS) | UNDRAWN
    assert set(members("embedding")) == set(EMBEDDINGS)
    assert set(members("scaling")) == set(SCALINGS)
    assert set(members("optimiser")) == set(OPTIMISERS)
    assert set(members("schedule")) == set(SCHEDULES)


CASES = [
    *((check_law, one) for one in LAWS.values()),
    *((check_embedding, one) for one in EMBEDDINGS.values()),
    *((check_scaling, one) for one in SCALINGS.values()),
    *((check_optimiser, one) for one in OPTIMISERS.values()),
    *((check_schedule, one) for one in SCHEDULES.values()),
]


@pytest.mark.parametrize(("check", "member"), CASES, ids=lambda one: getattr(one, "__name__", type(one).__name__))
def test_our_own_keep_the_contract(check, member):
    check(member)


# ---------------------------------------------------------------- contracts can fail


class Half(Tanh):
    """Its derivative is half of what it should be."""

    def derivative(self, h):
        return 0.5 * (1 - jnp.tanh(h) ** 2)


class Shared(Squared):
    """A cost that looks at all samples."""

    def cost(self, f, y):
        return jnp.broadcast_to(jnp.mean((f - y) ** 2), f.shape[:1]) * jnp.arange(1.0, 1 + f.shape[0], dtype=f.dtype)


class Biased(Law):
    """Its means are not those that it tells."""

    def draw(self, rows, columns, fan_in, *, key):
        return 1 + jax.random.normal(key, (rows, columns))

    def column_means(self, columns, fan_in):
        return [0.0] * columns


class Vanishing(Scaling):
    """Nothing is left at width 1024."""

    def nodes(self, m):
        return super().nodes(m) * (m < 1000)


class Other(Identity):
    """A kernel that is not that of its features."""

    def kernel(self, x, z):
        return 2 * super().kernel(x, z)


class Uphill(Optimiser):
    """Steps in the wrong direction."""

    def transform(self):
        return optax.scale(-1.0)


class Negative(Schedule):
    """Below 0."""

    def __call__(self, step):
        return -jnp.ones_like(step, dtype=float)


def restless(n=3, *, key):
    """Other data each time."""
    restless.calls += 1
    return Dataset(jnp.full((n, 2), float(restless.calls)), jnp.ones(n))


def deaf(*, key):
    """The same for every key."""
    return [[1.0], [2.0]], [1.0, 2.0]


restless.calls = 0
WRONG = [
    (check_activation, Half(), "derivative is not that of the values"),
    (check_activation, Custom(jnp.abs), "not"),
    (check_loss, Shared(), "depends on the order|slope 0"),
    (check_law, Biased(), "away from column_means"),
    (check_scaling, Vanishing(node=-1.0), "At width 1024 all node scales are 0"),
    (check_embedding, Other(), "kernel is not that of the features"),
    (check_optimiser, Uphill(), "is the sign right"),
    (check_schedule, Negative(), "finite and >= 0"),
    (check_data, restless, "same bits"),
    (check_data, deaf, "Another key must give other data"),
]


@pytest.mark.parametrize(("check", "member", "sentence"), WRONG, ids=lambda one: getattr(one, "__name__", None))
def test_a_contract_notices(check, member, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check(member)


def test_bases_are_what_they_say():
    for base in (Law, Embedding, Loss, Optimiser, Schedule):
        assert issubclass(base, eqx.Module)
