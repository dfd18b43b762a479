"""Rates of a loss: measured wherever they are known, and a theorem that holds has a margin of 1 at least."""

import jax
import numpy as np
import pytest

from close import close
from unlazy import theory
from unlazy.activations import LeakyRelu, Relu
from unlazy.data import random_labels
from unlazy.flows import GradientFlow, Stabilised
from unlazy.losses import Squared
from unlazy.networks import TwoLayer, Zipf, asymmetrical
from unlazy.papers.caron2023.theorems import EigenvalueImpliesDecay
from unlazy.papers.chen2022.theorems import ActiveNeuronsStay, SlopesBoundedBelow
from unlazy.theory import Verdict
from unlazy.theory.decay import Fall
from unlazy.theory.hypotheses import relative_error, rounding

TIMES = np.linspace(0.0, 10.0, 11)


def fall(rate=1.0, resolution=1e-3, rounding=1e-12, losses=None):
    return Fall(TIMES, np.exp(-rate * TIMES) if losses is None else np.asarray(losses, float), resolution, rounding)


both_ways = pytest.mark.parametrize("stepwise", [False, True])


@both_ways
def test_a_rate_is_what_it_is(stepwise):
    found = fall().against(0.5, stepwise)
    assert found.verdict is Verdict.HOLDS
    close(found.margin, 2.0)
    close(found.numbers["slowest rate"], 1.0)
    close(found.numbers["measured rate"], 1.0)


@both_ways
@pytest.mark.parametrize("resolution", [1e-8, 1e-4, 1e-2, 0.1])
def test_rates_do_not_depend_on_the_error_of_the_run(stepwise, resolution):
    """Fast at first and slow later, where the loss is below the error of some of these runs."""
    losses = np.exp(-2 * np.minimum(TIMES, 4.0) - 0.8 * np.maximum(TIMES - 4.0, 0.0))
    found = fall(losses=losses, resolution=resolution).against(0.5, stepwise)
    assert found.verdict is Verdict.HOLDS
    close(found.numbers["slowest rate"], 0.8 if stepwise else 1.28)
    close(found.numbers["measured rate"], 1.28)


@both_ways
@pytest.mark.parametrize("resolution", [0.95, 2.0, 100.0])
def test_an_error_beyond_which_nothing_could_fail_makes_it_vacuous(stepwise, resolution):
    found = fall(resolution=resolution).against(0.5, stepwise)
    assert found.verdict is Verdict.VACUOUS
    assert found.margin is None
    assert "cannot be checked at this accuracy (the mean rate is 1)" in found.why


@both_ways
def test_a_loss_that_falls_too_slowly_fails(stepwise):
    found = fall(rate=0.4).against(0.5, stepwise, "Bad luck.")
    assert found.verdict is Verdict.FAILS
    close(found.margin, 0.8)
    assert found.why.endswith("Bad luck.")
    assert fall(rate=0.0).against(0.5, stepwise).verdict is Verdict.FAILS


def test_a_slow_stretch_fails_between_times_only():
    losses = np.exp(-np.where(TIMES < 4, TIMES, np.maximum(4.0, TIMES - 1)))  # from 4 to 5 it stands still
    assert fall(losses=losses).against(0.5, stepwise=False).verdict is Verdict.HOLDS
    assert fall(losses=losses).against(0.5, stepwise=True).verdict is Verdict.FAILS
    unsure = fall(losses=losses, resolution=0.06).against(0.5, stepwise=True)
    assert unsure.verdict is Verdict.HOLDS
    assert unsure.margin >= 1
    assert "Between some of the times, the loss is not known accurately enough" in unsure.why


@both_ways
def test_rounding_is_no_rate(stepwise):
    losses = np.maximum(np.exp(-4 * TIMES), 1e-9)
    found = fall(losses=losses, rounding=1e-4).against(0.5, stepwise)
    close(found.numbers["slowest rate"], 4.0)
    close(found.numbers["measured rate"], 4.0)


@both_ways
def test_a_loss_of_zero_has_fallen_at_least_to_rounding(stepwise):
    found = fall(losses=[1.0] + [0.0] * 10).against(0.5, stepwise)
    assert found.verdict is Verdict.HOLDS
    close(found.numbers["measured rate"], 24 * np.log(10))
    assert 1 <= found.margin < np.inf


def test_a_promise_of_next_to_nothing_says_nothing():
    found = fall(rate=1e-3, resolution=1e-9).against(5e-4, stepwise=False)
    assert found.verdict is Verdict.VACUOUS
    assert "a decrease by 0.50% over the whole run" in found.why


# ---------------------------------------------------------------- runs with kinks


def leaky(tolerance, method="auto"):
    data = random_labels(n=5, d=20, key=jax.random.key(0))
    network = TwoLayer(256, inputs=20, activation=LeakyRelu(0.3), key=jax.random.key(1))
    probes = theory.needs(network, data, [SlopesBoundedBelow(), ActiveNeuronsStay()])
    flow = GradientFlow(loss=Squared("sum"), tolerance=tolerance, method=method)
    return flow(network, data, np.linspace(0.0, 60.0, 13), probes)


def test_rates_of_leaky_relu_are_measured():
    """True is a mean rate of 0.38 and 0.33 at the slowest (tolerance 1e-5); both were given as 0 at any tolerance."""
    for tolerance, within in ((1e-2, 0.17), (1e-3, 0.06), (1e-4, 0.05)):
        run = leaky(tolerance)
        found = SlopesBoundedBelow().check(run)
        assert found.verdict is Verdict.HOLDS
        close(found.numbers["guaranteed rate"], 0.0642, rel=1e-3)
        close(found.numbers["slowest rate"], 0.335, rel=within)
        close(found.numbers["measured rate"], 0.381, rel=within)
        assert found.margin > 4
        close(ActiveNeuronsStay().check(run).numbers["measured rate"], found.numbers["measured rate"], rel=1e-12)


def test_errors_at_kinks_do_not_add_up():
    """The root of the loss is wrong by less than it is said to be, and that falls with the tolerance."""
    fine, *coarse = (leaky(tolerance) for tolerance in (1e-5, 1e-4, 1e-3, 1e-2))
    roots = [np.sqrt(np.asarray(run.observed["train-loss"], float)) for run in (fine, *coarse)]
    claimed = [relative_error(run, rounding(run)) * roots[0][0] for run in (fine, *coarse)]
    for root, most in zip(roots[1:], claimed[1:], strict=True):
        assert np.max(np.abs(root - roots[0])) < most
    assert claimed[0] < 0.35 * claimed[1] < 0.35**2 * claimed[2]


def test_errors_of_smooth_flows_add_up():
    run = theory.choose("chen2022/eq-14")[0].example()  # tanh
    close(relative_error(run, 0.0), 10 * run.stats["error"])


def test_lemma_d_1_on_relu_has_the_margin_of_the_loss():
    data = random_labels(n=5, d=20, key=jax.random.key(0))
    x = data.x / np.linalg.norm(data.x, axis=1).max()
    network = TwoLayer(512, 20, activation=Relu(), scaling=asymmetrical(0.5, Zipf(0.5)), key=jax.random.key(1))
    flow = Stabilised(loss=Squared("sum"), tolerance=1e-3)
    lemma = EigenvalueImpliesDecay()
    scaled = type(data)(x, data.y, name="in the unit ball")
    run = flow(network, scaled, np.linspace(0.0, 400.0, 9), theory.needs(network, scaled, [lemma]))
    found = lemma.check(run)
    assert found.verdict is Verdict.HOLDS
    assert found.numbers["measured rate"] >= found.numbers["slowest rate"] > found.numbers["guaranteed rate"] > 0
    close(found.margin, min(found.numbers["margin of the loss"], found.numbers["margin of the weights"]))
    assert found.margin >= 1
    run.stats["error"] = 1e3  # a run that is known to nothing
    unknown = lemma.check(run)
    assert unknown.verdict is Verdict.VACUOUS
    assert "cannot be checked at this accuracy" in unknown.why
