"""Fitted exponents, and the rules by which they are judged, on made-up measurements."""

import json

import numpy as np
import pytest
from scipy import stats

from unlazy.lab import Answer, Diagnosis, fit_slope
from unlazy.lab.answers import judged, judged_once
from unlazy.lab.layer_checks import judge_layer
from unlazy.lab.rates import RateTransfer

WIDTHS = (64, 128, 256, 512)


def powers(exponent, size=1.0, noise=0.01, widths=WIDTHS):
    """Values size · m^exponent at three seeds, with noise of a given relative size."""
    spread = noise * np.random.default_rng(0).standard_normal((len(widths), 3))
    return fit_slope(widths, size * np.asarray(widths, float)[:, None] ** exponent * np.exp(spread))


def test_a_slope_is_that_of_scipy():
    rng = np.random.default_rng(1)
    values = np.exp(rng.normal(size=(4, 3)))
    found = fit_slope(WIDTHS, values)
    x, y = np.repeat(np.log(WIDTHS), 3), np.log(values).ravel()
    other = stats.linregress(x, y)
    half = stats.t.ppf(0.975, x.size - 2) * other.stderr
    assert found.exponent == pytest.approx(other.slope, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((other.slope - half, other.slope + half), rel=1e-10)


def test_a_slope_needs_two_widths_and_positive_numbers():
    assert np.isnan(fit_slope([64], np.ones((1, 3))).exponent)
    assert np.isnan(fit_slope([64, 128], np.array([[1.0], [0.0]])).exponent)
    assert np.isnan(fit_slope([64, 128], np.array([[1.0], [np.nan]])).exponent)
    two = fit_slope([64, 128], np.array([[1.0], [2.0]]))
    assert two.exponent == pytest.approx(1.0)
    assert not any((two.grows, two.vanishes, two.stays, two.persists))  # two points fit any line


@pytest.mark.parametrize(
    ("exponent", "true"),
    [
        (0.0, {"stays", "persists"}),
        (0.5, {"grows", "persists"}),
        (-0.5, {"vanishes"}),
        (0.2, {"stays", "persists"}),
        (-0.3, {"vanishes"}),
    ],
)
def test_what_slopes_do(exponent, true):
    slope = powers(exponent)
    assert {name for name in ("grows", "vanishes", "stays", "persists") if getattr(slope, name)} == true


def test_a_curve_that_bends_is_not_trusted():
    """A change that saturates at 1, and behind that vanishes like m^(-1/2), looks like a small power at first."""
    widths = np.asarray(WIDTHS, float)
    noise = np.exp(0.01 * np.random.default_rng(0).standard_normal((4, 3)))
    bent = fit_slope(WIDTHS, ((1 + widths / 400) ** -0.5)[:, None] * noise)
    assert -0.25 < bent.low < bent.high < 0
    assert bent.late == pytest.approx((-0.25, -0.25), abs=0.1)
    steeper = fit_slope(WIDTHS, ((1 + (widths / 300) ** 2) ** -0.25)[:, None] * noise)
    assert steeper.late[1] < -0.25
    assert not steeper.persists
    assert not steeper.vanishes
    one_seed = fit_slope(WIDTHS, widths[:, None] ** -0.5)
    assert one_seed.vanishes  # the error of the last exponent is not known, and nothing contradicts


def measured(**changes):
    """What a lazy network measures, with changes; underscores stand for blanks, and a double one for the colon."""
    found = {
        "initial outputs": powers(0),
        "first output change": powers(0, 0.1),
        "output change": powers(0),
        "kernel drift": powers(-0.5),
        "linearisation error": powers(-0.5),
        "loss": powers(0, 0.01),
        "h: initial size": powers(0),
        "h: first change": powers(-0.5),
        "h: feature change": powers(-0.5),
        "h: pairs": fit_slope(WIDTHS, np.zeros((4, 3))),
        "h: pairs at the start": fit_slope(WIDTHS, np.zeros((4, 3))),
    }
    return found | {name.replace("__", ": ").replace("_", " "): value for name, value in changes.items()}


def flat(value):
    return fit_slope(WIDTHS, np.full((4, 3), value))


ROUNDING = powers(0, 1e-6)
ALONG_A_LINE = fit_slope(WIDTHS, np.full((4, 3), 0.8))
SOME_NAN = fit_slope(WIDTHS, np.array([[1.0] * 3, [1.0] * 3, [1.0] * 3, [1.0, np.nan, 1.0]]))
WIDE = fit_slope(WIDTHS, np.exp(np.random.default_rng(3).normal(size=(4, 3))))


@pytest.mark.parametrize(
    ("changes", "answer", "layer"),
    [
        ({}, Answer.LAZY, Answer.LAZY),
        ({"kernel_drift": powers(0), "linearisation_error": powers(0)}, Answer.FEATURE_LEARNING, Answer.LAZY),
        ({"kernel_drift": powers(0.5), "linearisation_error": powers(0)}, Answer.FEATURE_LEARNING, Answer.LAZY),
        ({"h__feature_change": powers(0)}, Answer.LAZY, Answer.FEATURE_LEARNING),
        ({"kernel_drift": powers(0)}, Answer.UNDECIDED, Answer.LAZY),
        ({"kernel_drift": WIDE, "linearisation_error": WIDE}, Answer.UNDECIDED, Answer.LAZY),
        ({"h__feature_change": WIDE}, Answer.LAZY, Answer.UNDECIDED),
        ({"h__pairs": ALONG_A_LINE}, Answer.CONDENSED, Answer.CONDENSED),
        ({"h__pairs": ALONG_A_LINE, "h__pairs_at_the_start": ALONG_A_LINE}, Answer.LAZY, Answer.LAZY),
        ({"initial_outputs": powers(0.5)}, Answer.UNSTABLE, Answer.LAZY),
        ({"first_output_change": powers(1)}, Answer.UNSTABLE, Answer.LAZY),
        ({"h__initial_size": powers(0.5)}, Answer.UNSTABLE, Answer.UNSTABLE),
        ({"h__first_change": powers(0.5)}, Answer.UNSTABLE, Answer.UNSTABLE),
        ({"h__feature_change": powers(0.5)}, Answer.UNSTABLE, Answer.UNSTABLE),
        ({"output_change": SOME_NAN}, Answer.UNSTABLE, Answer.LAZY),
        ({"linearisation_error": SOME_NAN}, Answer.UNDECIDED, Answer.LAZY),
        ({"linearisation_error": SOME_NAN, "kernel_drift": powers(0)}, Answer.FEATURE_LEARNING, Answer.LAZY),
        ({"output_change": powers(-0.5)}, Answer.TRIVIAL, Answer.LAZY),
        ({"output_change": powers(-0.5), "h__pairs": ALONG_A_LINE}, Answer.TRIVIAL, Answer.CONDENSED),
        ({"output_change": powers(0, 1e-3)}, Answer.UNDECIDED, Answer.LAZY),
        ({"kernel_drift": ROUNDING, "linearisation_error": ROUNDING}, Answer.LAZY, Answer.LAZY),
        ({"kernel_drift": flat(0.0), "linearisation_error": ROUNDING}, Answer.LAZY, Answer.LAZY),
        ({"kernel_drift": ROUNDING, "linearisation_error": powers(0)}, Answer.UNDECIDED, Answer.LAZY),
        ({"h__feature_change": flat(0.0)}, Answer.LAZY, Answer.LAZY),
        ({"h__pairs": flat(0.35), "h__pairs_at_the_start": flat(0.2)}, Answer.LAZY, Answer.LAZY),  # two dimensions
        ({"h__pairs": flat(0.6), "h__pairs_at_the_start": flat(0.2)}, Answer.CONDENSED, Answer.CONDENSED),
        ({"h__feature_change": powers(0.5), "h__initial_size": powers(-0.5)}, Answer.LAZY, Answer.FEATURE_LEARNING),
    ],
)
def test_the_rules(changes, answer, layer):
    found = judged(measured(**changes), {})
    assert (found.answer, found.layers["h"].answer) == (answer, layer), found


def test_one_width_is_undecided_and_says_why():
    one = {name: fit_slope([64], slope.values[:1]) for name, slope in measured().items()}
    found = judged(one, {})
    assert found.answer is found.layers["h"].answer is Answer.UNDECIDED
    assert "only one width" in found.whole.reason
    assert "three widths" in found.whole.advice


def test_runs_that_diverged_are_counted_by_width():
    assert "1 at 512" in judged(measured(output_change=SOME_NAN), {}).whole.reason


@pytest.mark.parametrize("lasting", ["kernel drift", "linearisation error"])
def test_measurements_that_disagree_are_named(lasting):
    whole = judged(measured(**{lasting.replace(" ", "_"): powers(0)}), {}).whole
    assert whole.answer is Answer.UNDECIDED
    assert whole.reason.endswith(f"vanishes and the {lasting} does not.")
    assert "narrow the interval" not in whole.advice
    unclear = judged(measured(**{lasting.replace(" ", "_"): WIDE}), {}).whole
    assert "narrow the interval" in unclear.advice


def test_a_layer_whose_change_is_no_number_says_why():
    diverged = judged(measured(h__feature_change=SOME_NAN, output_change=SOME_NAN), {}).layers["h"]
    assert diverged.answer is Answer.UNDECIDED
    assert diverged.reason == "Training diverged (runs by width: 1 at 512), so that its change is not known."
    from_zero = judged(measured(h__feature_change=flat(np.inf)), {}).layers["h"]
    assert from_zero.answer is Answer.UNDECIDED
    assert "are 0 at the start" in from_zero.reason
    usual = {"kernel drift": 0.05, "linearisation error": 0.05, "output change": 0.9, "h: feature change": np.inf}
    once = judged_once(usual, {}).layers["h"]
    assert (once.answer, once.reason) == (Answer.UNDECIDED, from_zero.reason)


def crosses(axes):
    """Abscissae of the crosses that mark what is not a number, line by line."""
    return [list(line.get_xdata()) for line in axes.lines if line.get_marker() == "x" and len(line.get_xdata())]


def test_figures_show_what_diverged():
    figure = judged(measured(kernel_drift=SOME_NAN), {}).plot()
    drift, outputs, *_, shares = figure.axes
    assert crosses(drift) == [[512]]
    assert crosses(outputs) == []
    assert drift.get_xlim()[0] < WIDTHS[0]
    assert drift.get_xlim()[1] > WIDTHS[-1]
    assert "m^" not in shares.get_legend().get_texts()[0].get_text()  # shares are not powers of the width
    rates, values = losses(0.0)
    values[-1, -2:] = np.inf
    slope = fit_slope(WIDTHS, np.ones((4, 3)))
    (axes,) = RateTransfer(tuple(rates), WIDTHS, values, slope, {}).plot().axes
    assert crosses(axes) == [list(rates[-2:])]
    assert [text.get_text() for text in axes.get_legend().get_texts()][-1] == "diverged"


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, Answer.LAZY),
        ({"kernel drift": 0.8}, Answer.FEATURE_LEARNING),
        ({"linearisation error": 0.8}, Answer.FEATURE_LEARNING),
        ({"kernel drift": 0.3}, Answer.UNDECIDED),
        ({"kernel drift": np.nan}, Answer.UNSTABLE),
        ({"output change": 0.001}, Answer.TRIVIAL),
        ({"h: pairs": 0.8}, Answer.CONDENSED),
    ],
)
def test_the_rules_for_two_checkpoints(changes, answer):
    usual = {"kernel drift": 0.05, "linearisation error": 0.05, "output change": 0.9, "h: feature change": 0.05}
    usual |= {"h: pairs": 0.0, "h: pairs at the start": 0.0}
    assert judged_once(usual | changes, {}).answer is answer


def test_a_diagnosis_is_written_drawn_and_shown(tmp_path):
    found = judged(measured(linearisation_error=SOME_NAN), {"model": "MLP"})
    assert isinstance(found, Diagnosis)
    stored = json.loads(found.save(tmp_path / "one.json").read_text())
    assert stored["kind"] == "diagnosis"
    assert stored["answer"] == "UNDECIDED"
    assert stored["layers"]["h"]["measured"]["feature change"]["exponent"] == pytest.approx(-0.5, abs=0.02)
    assert "h: LAZY" in repr(found)
    assert len(found.plot().axes) == 5
    assert "UNDECIDED" in found.plot().get_suptitle()
    found.save(tmp_path / "two.json")
    for suffix in (".json", ".svg"):  # the same measurements give the same files
        assert (tmp_path / "two").with_suffix(suffix).read_bytes() == (tmp_path / "one").with_suffix(
            suffix
        ).read_bytes()


@pytest.mark.parametrize(
    ("forward", "update", "adam", "fault"),
    [
        (0, 0, False, ""),
        (0, 1, False, "learning rate"),
        (0, -0.5, True, "learning rate"),
        (0.5, 0, False, "initialisation"),
        (-0.5, 0, True, "initialisation"),
        (0.5, 1, False, "forward multiplier"),
        (-0.5, -1, False, "forward multiplier"),
        (0.5, 0.5, True, "forward multiplier"),
        (0.5, -1, False, "initialisation and learning rate"),
    ],
)
def test_what_is_off_in_a_layer(forward, update, adam, fault):
    slopes = {"forward": powers(forward - 0.5), "update": powers(update + 1)}
    assert judge_layer(slopes, {"forward": -0.5, "update": 1.0}, adam).fault == fault


def test_weight_decay_and_noise():
    slopes = {"forward": powers(0), "update": powers(0), "decay": powers(-1)}
    found = judge_layer(slopes, {"forward": 0.0, "update": 0.0, "decay": 0.0}, False)
    assert found.fault == "weight decay"
    assert "m^1.0" in found.hint
    noisy = judge_layer({"forward": WIDE, "update": powers(0)}, {"forward": 0.0, "update": 0.0}, False)
    assert not noisy.fault
    assert not noisy.decided


def losses(shift):
    """Parabolas in the logarithm of the rate, whose minimum moves like m^shift."""
    rates = 2.0 ** -np.arange(8, -1, -1.0)
    best = 2.0**-4 * (np.asarray(WIDTHS) / 181.0) ** shift
    curves = np.exp(0.1 * np.log(rates[None] / best[:, None]) ** 2)
    return rates, np.stack([curves] * 3, axis=-1)


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [(0.0, "TRANSFERS"), (-0.5, "DOES NOT TRANSFER"), (1.0, "DOES NOT TRANSFER"), (3, "UNDECIDED")],
)
def test_the_verdict_on_rates(shift, verdict):
    from unlazy.lab.rates import _lowest

    rates, values = losses(shift)
    best = np.array([[_lowest(np.log(rates), values[w, :, s]) for s in range(3)] for w in range(4)])
    noise = np.exp(1e-3 * np.random.default_rng(0).standard_normal(best.shape))
    found = RateTransfer(tuple(rates), WIDTHS, values, fit_slope(WIDTHS, best * noise), {})
    assert found.verdict == verdict, found
    if verdict != "UNDECIDED":
        assert found.best.exponent == pytest.approx(shift, abs=0.02)
    assert json.dumps(found.to_dict())
    assert found.plot().axes
    first, *lines = repr(found).splitlines()
    assert first.startswith(f"{verdict}. ")
    assert len({line.index(line.split()[1]) for line in lines[1:]}) == 1  # columns are straight
    head, rows = found.table()
    assert head == ["rate", *(f"width {width}" for width in WIDTHS)]
    marked = [[cell.endswith("*") for cell in row[1:]] for row in rows]
    assert np.array_equal(np.argmax(marked, axis=0), np.argmin(np.median(values, axis=-1), axis=1))
