"""Numbers of the authors beside ours: the interval, against SciPy and simulation, and what is made of it."""

import msgspec
import numpy as np
import pytest
import scipy.stats

from unlazy.papers import Reference, agreement, compare
from unlazy.papers.aiad2026 import authors
from unlazy.papers.outcomes import Outcome

RNG = np.random.default_rng(7)
H, F, U = Outcome.HOLDS, Outcome.FAILS, Outcome.UNDECIDED


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(("seeds", "runs"), [(3, 1), (5, 50), (20, 4)])
def test_the_interval_covers_the_mean_of_further_runs_in_95_per_cent_of_cases(log, seeds, runs):
    inside, trials = 0, 1500
    for _ in range(trials):
        ours, theirs = RNG.normal(2.0, 0.3, seeds), RNG.normal(2.0, 0.3, runs)
        if log:
            ours, theirs = np.exp(ours), np.exp(theirs)
        authors = float(np.exp(np.log(theirs).mean()) if log else theirs.mean())
        low, high = compare("x", ours, authors, "made up", runs=runs, log=log).interval
        inside += low <= authors <= high
    assert inside / trials == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / trials) ** 0.5)


def test_the_decision_for_many_runs_is_that_of_a_t_test():
    ours = RNG.normal(size=6)
    for theirs in (-3.0, -0.5, 0.3, 2.0):
        found = compare("x", ours, theirs, "made up", runs=10**9, within=np.inf)
        p = scipy.stats.ttest_1samp(ours, theirs).pvalue
        assert found.outcome is (F if p < 0.05 else H)


@pytest.mark.parametrize(
    ("values", "authors", "options", "outcome"),
    [
        ([1.0, 1.1, 0.9], 1.05, {}, H),
        ([1.0, 1.1, 0.9], 2.0, {}, F),
        ([1.0, 1.1, 0.9], 2.0, {"why": "smaller runs"}, U),
        ([1.0, 1.1, 0.9], None, {}, U),
        ([1.0, 1.1, 0.9], float("nan"), {}, U),
        ([1.0], 1.0, {}, U),
        ([1.0, np.inf], 1.0, {}, U),
        ([1.0, 9.0], 3.0, {"log": True}, U),  # any number would do
        ([1.0, 9.0], 3.0, {}, U),
        ([1.0, 1.0, 1.0], 1.004, {}, F),
        ([1.0, 1.0, 1.0], 1.004, {"rounding": 0.005}, H),  # they print 1.00
        ([1.0, 1.1, 0.9], 1.05, {"within": 0.1}, U),
    ],
)
def test_numbers_agree_differ_or_are_undecided(values, authors, options, outcome):
    found = compare("x", np.asarray(values), authors, "made up", **options)
    assert found.outcome is outcome
    assert found.judgement.test
    assert found.agreement == {H: "agrees", F: "differs", U: "undecided"}[outcome]
    assert msgspec.json.decode(msgspec.json.encode(found), type=Reference) == found
    assert found.summary()["agreement"] == found.agreement


def test_distances_are_relative_and_in_standard_deviations():
    found = compare("x", np.array([0.9, 1.1]), 0.8, "made up")
    assert found.relative == pytest.approx(0.25)
    assert found.deviations == pytest.approx(0.2 / np.std([0.9, 1.1], ddof=1))
    assert (found.distance, found.ours_in_words) == ("+25 %, +1.4 SD", "1 ± 0.1")
    assert compare("x", np.array([7e-6]), 7e-7, "made up").distance == "10 times"
    assert compare("x", np.array([1.0]), None, "made up").distance == ""
    assert compare("x", np.array([0.997561, 0.99937]), 0.9982, "made up").ours_in_words == "0.9985 ± 0.001"
    assert compare("x", np.array([np.inf]), 1.0, "made up").ours_in_words == "not finite"


def test_a_claim_is_made_of_all_settings_of_a_quantity():
    ours = np.array([1.0, 1.1, 0.9])
    numbers = [compare("loss", ours, one, "Table 1", setting=f"m = {one}") for one in (1.0, 1.1, None)]
    other = compare("rate", ours, 5.0, "the text")
    same, differs = agreement([numbers[0], other, *numbers[1:]])
    assert (same.outcome, differs.outcome) == (H, F)
    assert same.measured.startswith("m = 1.0: 1 ± 0.1 (authors: 1, +0 %, +0 SD); m = 1.1: ")
    assert same.measured.endswith("m = None: 1 ± 0.1 (authors: not known)")
    assert (same.paper, differs.paper) == ("Table 1", "the text")
    assert agreement([numbers[2]]) == []


# ---------------------------------------------------------------- aiad2026


@pytest.mark.parametrize(
    ("factor", "end", "why", "outcome", "test"),
    [
        (1.0, 250, "", H, "95 %"),
        (2.0, 250, "", F, "95 %"),
        (1.0, 60, "", U, "theirs is at epoch 250, ours at 60"),
        (1.0, 250, "smaller", U, "smaller"),
    ],
)
def test_losses_of_figure_2_are_compared_at_the_authors_epoch(factor, end, why, outcome, test):
    epochs = np.array([0.0, end, 300.0 if end == 250 else end])
    seeds = 1 + 0.1 * np.array([-1.0, 0.0, 1.0])
    curves = {
        momentum: (epochs, np.stack([0.5 * np.ones(3), factor * theirs * seeds, np.ones(3)], axis=1))
        for momentum, theirs in authors.FIGURE_2.items()
    }
    found = authors.figure_2(curves, why)
    assert {one.outcome for one in found} == {outcome}
    assert all(test in one.judgement.test for one in found)
    assert [one.relative for one in found] == pytest.approx([factor - 1] * 5)


@pytest.mark.parametrize(("spread", "expected"), [(0.01, [H, F]), (1.0, [U, U])])
def test_few_seeds_do_not_confirm_an_accuracy(spread, expected):
    ours = {"RF-LR r = 15": 96.97 + spread * np.array([-1.0, 0.0, 1.0])}
    found = authors.table_1(ours)
    assert [one.authors for one in found] == [96.97, 95.85]  # Table 1, and the authors' own over several seeds
    assert [one.outcome for one in found] == expected
