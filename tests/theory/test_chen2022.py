"""Theorems of chen2022 on runs: what they say, in which units, when they are silent, and that they can fail.

Runs are expensive to compile, so most of these are one run with other networks, data or looks put into it.
"""

import copy
import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy import theory
from unlazy._errors import UserError
from unlazy._registry import kebab
from unlazy.activations import Cubic, Custom, LeakyRelu, Linear, Relu, Sigmoid, Tanh
from unlazy.data import Dataset, random_labels
from unlazy.flows import Descent
from unlazy.losses import CrossEntropy, Squared
from unlazy.networks import RandomLayers, Scaling, TangentModel, TwoLayer, ntk, with_fields
from unlazy.papers.chen2022.theorems import (
    ActiveNeuronsStay,
    EmbeddingConcentrates,
    FeaturesMustMove,
    FixedEmbedding,
    LossFalls,
    RandomEmbedding,
    ShallowIndependentInputs,
    SlopesBoundedBelow,
    ThreeLayers,
    printed_kappa,
)
from unlazy.papers.chen2022.theorems.decay import slope_floor
from unlazy.papers.chen2022.theorems.setting import small_inputs
from unlazy.probes import ActiveShare, TrainLoss
from unlazy.theory import Verdict

SUM = Squared("sum")
AXES = jnp.eye(4, 8)


@pytest.fixture(scope="module")
def example():
    """One run of gradient flow that all of them hold on, with all that they need."""

    def needs(network, data):
        return theory.needs(network, data, theory.choose("chen2022")).values()

    return small_inputs(needs)


@pytest.fixture(scope="module")
def data():
    return random_labels(4, 8, key=jax.random.key(3))


@pytest.fixture(scope="module")
def imagined(example):
    """The run with other networks on its way, one a look, as the probes that theorems need would see them."""

    def made(networks, data, times, loss=SUM, probes=None):
        start, *_ = networks
        probes = {} if probes is None else {kebab(type(one).__name__): one for one in probes}
        looks = [{name: probe.of(now, start, data, loss) for name, probe in probes.items()} for now in networks]
        seen = jax.tree.map(lambda *values: np.stack(values), *looks) if probes else {}
        run = dataclasses.replace(example, data=data, loss=loss, times=np.asarray(times), probes=probes, observed=seen)
        vars(run).update(start=start, final=networks[-1])
        return run

    return made


def with_ends(run, **changes):
    """The same run with other networks at its ends, or something else changed."""
    other = copy.copy(run)
    vars(other).update({"start": run.start, "final": run.final} | changes)
    return other


def seen(run, name, change):
    return with_ends(run, observed=run.observed | {name: jax.tree.map(change, run.observed[name])})


def needs(theorem, start, data):
    return list(theorem.needs(start, data))


def silent(theorem, run):
    finding = theorem.check(run)
    assert finding.verdict is Verdict.SILENT, finding
    return finding.why


# ---------------------------------------------------------------- eq. 15


def test_features_must_move_notices_a_function_that_changed_without_them(example):
    # A read-out ten times as large at the end changes f while the features stay where they are.
    cheat = with_ends(example, final=eqx.tree_at(lambda n: n.a, example.start, 10 * example.start.a))
    finding = FeaturesMustMove().check(cheat)
    assert finding.verdict is Verdict.FAILS
    assert finding.margin == 0


def test_features_must_move_is_silent_without_its_hypotheses(example):
    start = eqx.tree_at(lambda n: n.a, example.start, example.start.a * jnp.linspace(1, 2, example.start.width))
    assert "±c" in silent(FeaturesMustMove(), with_ends(example, start=start))


def test_features_need_not_move_where_nothing_changed(example):
    assert FeaturesMustMove().check(with_ends(example, final=example.start)).verdict is Verdict.VACUOUS


# ---------------------------------------------------------------- eq. 14 and 16


def test_eq_14_holds_and_can_fail(example):
    finding = LossFalls().check(example)
    assert finding.verdict is Verdict.HOLDS
    assert finding.margin >= 1
    assert "eig_min(G)" in finding.why
    slower = seen(example, "decay-rate", lambda rate: rate / (1.01 * finding.margin))
    assert LossFalls().check(slower).verdict is Verdict.FAILS


def test_the_rate_of_a_linear_network_is_exact(imagined):
    """For σ(h) = h and orthogonal inputs of one size the residual is e^(-ĉ² g t) times its start: the margin is 1.

    All h_i(x_a) move by c_i (f - f^0)(x_a) / ĉ², so that the way is known in closed form.
    """
    c, size, times = 0.7, 3.0, np.array([0.0, 2.0, 4.0])
    data = Dataset(size * AXES, jnp.array([0.3, -0.1, 0.2, 0.4]))
    start = TwoLayer(64, 8, activation=Linear(), readout=c, key=jax.random.key(0))
    residual = np.asarray(start(data.x) - data.y)

    def at(time):
        change = residual * np.expm1(-(c**2) * size**2 / 8 * time) @ np.asarray(AXES)
        return with_fields(start, w=start.w + jnp.asarray(np.outer(start.a, change) / c**2 * np.sqrt(8) / size))

    probes = needs(SlopesBoundedBelow(), start, data) + needs(LossFalls(), start, data)
    run = imagined([at(time) for time in times], data, times, probes=probes)
    finding = SlopesBoundedBelow().check(run)
    assert finding.verdict is Verdict.HOLDS
    close([finding.margin, LossFalls().check(run).margin], [1.0, 1.0], rel=1e-9)
    close(finding.numbers["guaranteed rate"], 2 * c**2 * size**2 / 8, rel=1e-12)
    slower = seen(run, "train-loss", lambda loss: loss * np.array([1, 1.1, 1.2]))
    assert SlopesBoundedBelow().check(slower).verdict is Verdict.FAILS
    early = SlopesBoundedBelow().check(with_ends(run, times=1e-4 * times))
    assert early.verdict is Verdict.VACUOUS
    assert "says nothing" in early.why


@pytest.mark.parametrize(
    ("sigma", "floor"), [(Linear(), 1), (LeakyRelu(0.3), 0.3), (Relu(), 0), (Cubic(), 0), (Tanh(), 0), (Sigmoid(), 0)]
)
def test_which_slopes_are_bounded_below(sigma, floor):
    assert slope_floor(sigma) == pytest.approx(floor)


# ---------------------------------------------------------------- Lemma 1


def test_lemma_1_holds_and_can_fail(example):
    finding = ActiveNeuronsStay().check(example)
    assert finding.verdict is Verdict.HOLDS
    assert finding.numbers["guaranteed rate"] < finding.numbers["measured rate"]
    gone = seen(example, "active-share", lambda share: 0 * share)
    failed = ActiveNeuronsStay().check(gone)
    assert failed.verdict is Verdict.FAILS
    assert failed.margin == 0
    assert "less than the guaranteed" in failed.why


def test_lemma_1_as_printed_is_violated(imagined):
    """One tiny input, linear neurons, a short interval: all neurons leave it, where the print promises most of them.

    Linear neurons all move alike, h_i by c_i δ, until the mean of c_i h_i is the target: the end is known beforehand.
    """
    data = Dataset(0.01 * math.sqrt(8) * AXES[:1], jnp.array([0.3]))
    start = TwoLayer(64, 8, activation=Linear(), key=jax.random.key(0))
    miss = float((data.y - start(data.x))[0])
    final = with_fields(start, w=start.w + jnp.outer(start.a, miss / 0.01 * AXES[0]))
    close(final(data.x), data.y, rel=1e-12)
    run = imagined([start, final], data, [0.0, 1e5], probes=[TrainLoss(), ActiveShare(-0.1, 0.1)])
    finding = ActiveNeuronsStay((-0.1, 0.1)).check(run)
    assert finding.verdict is Verdict.VACUOUS
    assert finding.numbers["measured share"] == 0
    used = printed_kappa(1.0, 1.0, Linear().interval(-0.1, 0.1))
    close(used, finding.numbers["printed kappa"])
    promised = (1 - used * math.sqrt(0.5) * abs(miss)) ** (2 / 3)
    assert promised > 0.85


def test_lemma_1_says_which_c_would_keep_the_neurons(imagined, data):
    """At this ĉ the share is guaranteed to stay above 2^(-2/3) of its start, however far the loss falls."""

    def finding(readout):
        start = TwoLayer(64, 8, readout=readout, symmetrised=True, key=jax.random.key(0))
        run = imagined([start, start], data, [0.0, 1.0], probes=needs(ActiveNeuronsStay(), start, data))
        return ActiveNeuronsStay().check(seen(run, "train-loss", lambda loss: loss * np.array([1.0, 0.0])))

    low = finding(1.0)
    assert low.verdict is Verdict.VACUOUS
    enough = low.numbers["c that keeps half"]
    assert f"and {enough:.3g} would guarantee" in low.why
    high = finding(enough)
    assert high.verdict is Verdict.HOLDS
    close(
        high.numbers["guaranteed share"] ** 1.5 * 2, high.numbers["share in the middle at the start"] ** 1.5, rel=1e-9
    )


# ---------------------------------------------------------------- units


def moved(network):
    return with_fields(network, w=network.w + 0.3 * jnp.sin(7 * network.w))


@pytest.mark.parametrize(("loss", "speed"), [(Squared("mean"), 1 / 4), (Squared("sum", half=False), 2.0)], ids=str)
def test_another_loss_is_another_clock(imagined, data, loss, speed):
    """The mean makes time n times as slow, the missing half twice as fast: rates change, margins do not."""
    start = TwoLayer(64, 8, readout=30.0, key=jax.random.key(0))
    times = np.array([0.0, 1.0])
    wanted = needs(LossFalls(), start, data) + needs(ActiveNeuronsStay(), start, data)
    one = imagined([start, moved(start)], data, times, probes=wanted)
    other = imagined([start, moved(start)], data, times / speed, loss, wanted)
    for theorem in (LossFalls(), ActiveNeuronsStay()):
        here, there = theorem.check(one), theorem.check(other)
        assert here.verdict is there.verdict
        close(there.margin, here.margin, rel=1e-9)
        for rate in ("guaranteed rate", "measured rate"):
            close(there.numbers[rate], speed * here.numbers[rate], rel=1e-9)


@pytest.mark.parametrize("scaling", [ntk, Scaling(node=-0.75, rate=0.3)], ids=["ntk", "between"])
def test_any_even_scaling_is_the_papers_model_at_another_speed(imagined, data, scaling):
    """Node scales m^node, rate m^rate: ĉ = m^(1 + node) |a| and time m^(1 - rate) times as slow."""
    m, key = 64, jax.random.key(0)
    start = TwoLayer(m, 8, readout=30.0, key=key)
    other = TwoLayer(m, 8, scaling=scaling, readout=30.0 / m ** (1 + scaling.node), key=key)
    wanted = needs(LossFalls(), start, data) + needs(ActiveNeuronsStay(), start, data)
    runs = [imagined([one, moved(one)], data, [0.0, 1.0], probes=wanted) for one in (start, other)]
    here, there = map(LossFalls().check, runs)
    close(there.margin, here.margin, rel=1e-9)
    close(there.numbers["measured rate"], here.numbers["measured rate"] / m ** (1 - scaling.rate), rel=1e-9)
    assert ActiveNeuronsStay().check(runs[1]).numbers["c"] == pytest.approx(30.0)


def test_single_precision_is_enough_to_speak(example):
    def single(tree):
        return jax.tree.map(lambda leaf: leaf.astype("float32") if eqx.is_inexact_array(leaf) else leaf, tree)

    rough = dataclasses.replace(
        example,
        data=example.data.astype("float32"),
        observed=jax.tree.map(lambda values: values.astype("float32"), example.observed),
        stats=example.stats | {"error": 1e-5},
    )
    vars(rough).update(start=single(example.start), final=single(example.final))
    for theorem in (FixedEmbedding(), LossFalls(), ActiveNeuronsStay(), FeaturesMustMove()):
        finding = theorem.check(rough)
        assert finding.verdict is Verdict.HOLDS, finding
        close(finding.margin, theorem.check(example).margin, rel=1e-2)


# ---------------------------------------------------------------- when they are silent


def test_more_points_than_inputs_silence_them(imagined):
    data = Dataset(jnp.sin(jnp.arange(72.0).reshape(9, 8) ** 2), jnp.ones(9))
    start = TwoLayer(64, 8, key=jax.random.key(0))
    plain = imagined([start, start], data, [0.0, 1.0])
    for theorem in (LossFalls(), ActiveNeuronsStay(), FixedEmbedding(), ShallowIndependentInputs()):
        assert "eig_min(G) > 0" in silent(theorem, plain)
    assert "n <= d (found 9, needed 8)" in silent(ShallowIndependentInputs(), plain)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"train_readout": True}, "frozen read-outs"),
        ({"scaling": Scaling(node=-1.0, feature=-1.0, rate=1.0, feature_rate=1.0)}, "covariance G at the start"),
        ({"symmetrised": True}, "independent neurons"),
        ({"readout": 1e-3}, "read-outs ĉ (found 0.001, needed"),
        ({"activation": Cubic()}, "a Lipschitz activation"),
    ],
)
def test_theorem_1_names_what_is_not_met(imagined, data, options, words):
    start = TwoLayer(64, 8, key=jax.random.key(0), **options)
    assert words in silent(FixedEmbedding(), imagined([start, start], data, [0.0, 1.0]))


def test_what_is_no_flow_of_the_papers_model(imagined, example, data):
    start = TwoLayer(64, 8, key=jax.random.key(0))
    weighted = Dataset(data.x, data.y, weight=jnp.arange(1.0, 5.0))
    assert "equal weights of all samples" in silent(LossFalls(), imagined([start, start], weighted, [0.0, 1.0]))
    assert "squared loss" in silent(LossFalls(), dataclasses.replace(example, loss=CrossEntropy()))
    steps = Descent(rate=0.1, loss=SUM)(start, data, [0.0, 0.1])
    assert "gradient flow, followed with error control" in silent(LossFalls(), steps)
    several = Dataset(data.x, jnp.stack([data.y, data.y], axis=1))
    wide = TwoLayer(64, 8, 2, key=jax.random.key(0))
    assert "one output" in silent(LossFalls(), imagined([wide, wide], several, [0.0, 1.0]))
    tangent = TangentModel(start)
    for theorem in theory.choose("chen2022"):
        silent(theorem, imagined([tangent, tangent], data, [0.0, 1.0]))
    assert "after t = 0" in silent(FixedEmbedding(), imagined([start], data, [0.0]))
    zero = Dataset(data.x, 0 * data.y)
    assert "not all 0" in silent(FixedEmbedding(), imagined([start, start], zero, [0.0, 1.0]))
    large = with_fields(start, w=2 * start.w)
    assert "weights of variance 1" in silent(FixedEmbedding(), imagined([large, large], data, [0.0, 1.0]))


def test_what_has_no_slope_or_no_loss_is_no_error(imagined, data):
    """Neither a constant activation, nor an input of 0, nor a loss of 0 is more than a reason to be silent."""
    flat = TwoLayer(64, 8, activation=Custom(jnp.zeros_like), key=jax.random.key(0))
    assert not needs(ActiveNeuronsStay(), flat, data)
    for theorem in (ActiveNeuronsStay(), FixedEmbedding()):
        assert "an interval on which |σ'|" in silent(theorem, imagined([flat, flat], data, [0.0, 1.0]))
    start = TwoLayer(64, 8, key=jax.random.key(0))
    nothing = Dataset(0 * data.x, data.y)
    assert "eig_min(G) > 0" in silent(FixedEmbedding(), imagined([start, start], nothing, [0.0, 1.0]))
    assert needs(ActiveNeuronsStay(), start, nothing)
    fitted = Dataset(data.x, start(data.x))
    assert "a loss above 0" in silent(ActiveNeuronsStay(), imagined([start, start], fitted, [0.0, 1.0]))


def test_a_failure_probability_is_one():
    for theorem in (FixedEmbedding, ShallowIndependentInputs, RandomEmbedding, ThreeLayers, EmbeddingConcentrates):
        with pytest.raises(UserError, match="is not a probability between 0 and 1"):
            theorem(delta=1.5)


# ---------------------------------------------------------------- Theorems 1-3


@pytest.mark.parametrize("theorem", [FixedEmbedding(), ShallowIndependentInputs()], ids=lambda one: one.key)
def test_guarantees_can_fail(theorem, example):
    assert theorem.check(example).verdict is Verdict.HOLDS
    finding = theorem.check(seen(example, "train-loss", lambda loss: 0 * loss + loss[0]))
    assert finding.verdict is Verdict.FAILS
    assert finding.margin == 0
    assert "with a probability of at most 0.05" in finding.why


def test_a_loss_below_the_runs_own_error_is_not_held_against_a_theorem(example):
    """What is left is the solver's error or rounding, and it does not fall."""
    floor = seen(example, "train-loss", lambda loss: np.maximum(loss * np.array([1, 1e-3, 0, 0]), 1e-24))
    finding = FixedEmbedding().check(floor)
    assert finding.verdict is Verdict.HOLDS
    assert finding.margin > 1


def test_a_smaller_delta_needs_a_wider_network(example):
    width = {delta: FixedEmbedding(delta).check(example).numbers["width needed"] for delta in (0.5, 0.05)}
    assert width[0.05] > width[0.5]
    assert "width m (found 4096, needed" in silent(FixedEmbedding(1e-300), example)


def test_random_features_are_held_against_their_limit(imagined):
    data = Dataset(AXES, jnp.ones(4))
    few = TwoLayer(64, 8, embedding=RandomLayers((8,), Relu()), key=jax.random.key(0))
    run = imagined([few, few], data, [0.0, 1.0])
    (features,) = [one for one in ThreeLayers().check(run).hypotheses if one.what == "features D"]
    assert (features.met, features.found) == (False, 8)
    assert features.needed > 100
    assert EmbeddingConcentrates().check(run).verdict is Verdict.VACUOUS
    far = RandomEmbedding().check(run).hypotheses
    (distance,) = [one for one in far if one.what.startswith("|G - Ḡ|")]
    assert distance.met == (distance.found <= distance.needed)


def test_random_features_are_asked_for(imagined, data):
    plain = TwoLayer(64, 8, key=jax.random.key(0))
    run = imagined([plain], data, [0.0])
    assert "random features" in silent(RandomEmbedding(), run)
    assert "one frozen random layer" in silent(ThreeLayers(), run)
    assert "one frozen random layer" in silent(EmbeddingConcentrates(), run)


def test_corollary_1_as_printed_asks_for_too_little(imagined):
    """Linearly independent inputs, but |f| < ĉ = 1 for tanh, whatever the weights: a target of 2 leaves a loss of ½."""
    data = Dataset(AXES[:1], jnp.array([2.0]))
    start = TwoLayer(64, 8, key=jax.random.key(0))
    best = with_fields(start, w=1e3 * jnp.outer(start.a, AXES[0]))
    run = imagined([start, best], data, [0.0, 1e4], probes=[TrainLoss()])
    close(run.observed["train-loss"][-1], 0.5, rel=1e-6)
    assert "read-outs ĉ (found 1, needed" in silent(ShallowIndependentInputs(), run)
