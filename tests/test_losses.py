"""Losses against formulas written in NumPy, and contracts that every loss found must keep."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._registry import members
from unlazy.losses import CrossEntropy, CustomLoss, Logistic, SoftmaxSquared, Squared
from unlazy.testing import check_loss


def fourth_power(f, y):
    return jnp.sum((f - y) ** 4, axis=1)


MEMBERS = {**members("loss"), "custom-loss": functools.partial(CustomLoss, fourth_power)}
contract = pytest.mark.parametrize("member", MEMBERS.values(), ids=MEMBERS.keys())
rng = np.random.default_rng(7)
F, SIGNS = rng.normal(size=(5, 3)), rng.choice([-1.0, 1.0], size=(5, 3))
ONE_HOT, WEIGHT = np.eye(3)[[0, 2, 1, 1, 0]], rng.uniform(0.1, 2.0, size=5)


def softmax(f):
    return np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)


# The cost of each sample, from the textbook.
FORMULAS = {
    "squared": (Squared, SIGNS, ((F - SIGNS) ** 2).sum(axis=1) / 2),
    "squared-without-half": (lambda **o: Squared(half=False, **o), SIGNS, ((F - SIGNS) ** 2).sum(axis=1)),
    "logistic": (Logistic, SIGNS, np.log(1 + np.exp(-SIGNS * F)).sum(axis=1)),
    "softmax-squared": (SoftmaxSquared, ONE_HOT, ((softmax(F) - ONE_HOT) ** 2).sum(axis=1) / 2),
    "softmax-squared-without-half": (
        lambda **o: SoftmaxSquared(half=False, **o),
        ONE_HOT,
        ((softmax(F) - ONE_HOT) ** 2).sum(axis=1),
    ),
    "cross-entropy": (CrossEntropy, ONE_HOT, -(ONE_HOT * np.log(softmax(F))).sum(axis=1)),
}
formula = pytest.mark.parametrize(("make", "y", "costs"), FORMULAS.values(), ids=FORMULAS.keys())


def test_the_room_is_found():
    assert {"squared", "logistic", "cross-entropy"} <= set(MEMBERS)


@formula
def test_cost_and_reductions_are_the_formulas(make, y, costs):
    f, y, weight = jnp.asarray(F), jnp.asarray(y), jnp.asarray(WEIGHT)
    close(make().cost(f, y), costs)
    close(make()(f, y), costs.mean())
    close(make(reduction="sum")(f, y), costs.sum())
    close(make(reduction="sum")(f, y, weight), WEIGHT @ costs)
    close(make(reduction="mean")(f, y, weight), WEIGHT @ costs / WEIGHT.sum())


def test_one_output_needs_no_second_axis():
    f, y = jnp.asarray(F[:, 0]), jnp.asarray(SIGNS[:, 0])
    close(Squared().cost(f, y), (F[:, 0] - SIGNS[:, 0]) ** 2 / 2)
    close(Logistic().cost(f, y), np.log(1 + np.exp(-SIGNS[:, 0] * F[:, 0])))


def test_slopes_are_the_textbook_ones():
    f = jnp.asarray(F)
    close(Squared("sum").slope(f, jnp.asarray(SIGNS)), F - SIGNS)
    close(Squared("sum", half=False).slope(f, jnp.asarray(SIGNS)), 2 * (F - SIGNS))
    close(Logistic("sum").slope(f, jnp.asarray(SIGNS)), -SIGNS / (1 + np.exp(SIGNS * F)))
    close(CrossEntropy("sum").slope(f, jnp.asarray(ONE_HOT)), softmax(F) - ONE_HOT, rel=1e-10, abs=1e-12)


def test_large_outputs_do_not_overflow():
    far = jnp.asarray([[1e4, -1e4], [-1e4, 1e4]])
    close(Logistic("sum")(far, jnp.sign(far)), 0.0)
    close(Logistic("sum")(far, -jnp.sign(far)), 4e4)
    close(CrossEntropy("sum")(far, jnp.asarray([[0.0, 1.0], [0.0, 1.0]])), 2e4)
    for loss in (Logistic(), CrossEntropy()):
        assert np.all(np.isfinite(loss.slope(far, -jnp.sign(far))))


@contract
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_every_loss_keeps_the_contract(member, reduction):
    check_loss(member(reduction=reduction), SIGNS if member is Logistic else ONE_HOT)


@contract
def test_equal_losses_are_the_same_to_the_compiler(member):
    assert member() == member()
    assert hash(member()) == hash(member())
    assert member() != member(reduction="sum")
    assert not jax.tree.leaves(member())
