"""Judgements over seeds, against SciPy's tests and by hand."""

import numpy as np
import pytest
import scipy.stats

from unlazy.papers import outcomes
from unlazy.papers.outcomes import LEVEL, Outcome, at_least, at_most, certain, increases, near, ordered, together

RNG = np.random.default_rng(5)


def by_p(p):
    return Outcome.HOLDS if p < LEVEL else Outcome.FAILS if p > 1 - LEVEL else Outcome.UNDECIDED


@pytest.mark.parametrize("shift", [-3.0, -0.4, 0.0, 0.4, 3.0])
@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_the_paired_test_is_that_of_scipy(shift, seeds):
    a = RNG.normal(size=seeds)
    b = a + shift + 0.3 * RNG.normal(size=seeds)
    p = scipy.stats.ttest_rel(b, a, alternative="greater").pvalue
    found = increases(a, b)
    assert found.outcome is by_p(p)
    assert float(found.test.rpartition("= ")[2]) == pytest.approx(p, rel=0.1)
    assert (found.agree, found.seeds) == (np.sum(b > a), seeds)


@pytest.mark.parametrize("shift", [-5.0, 0.0, 0.5, 5.0])
def test_the_unpaired_test_is_welchs(shift):
    a, b = RNG.normal(size=6), shift + 2 * RNG.normal(size=9)
    p = scipy.stats.ttest_ind(b, a, equal_var=False, alternative="greater").pvalue
    found = increases(a, b, paired=False)
    assert found.outcome is by_p(p)
    assert float(found.test.rpartition("= ")[2]) == pytest.approx(p, rel=0.1)


def test_pairing_sees_a_small_shift_of_widely_spread_seeds():
    a = np.array([1.0, 10.0, 100.0, 1000.0])
    b = a + np.array([1.0, 1.1, 0.9, 1.0])
    assert increases(a, b).outcome is Outcome.HOLDS
    assert increases(a, b, paired=False).outcome is Outcome.UNDECIDED


def test_logarithms_compare_ratios():
    a = np.array([1e-9, 1e-5, 1e-1])
    assert increases(a, 2 * a).outcome is Outcome.UNDECIDED
    assert increases(a, 2 * a, log=True).outcome is Outcome.HOLDS


def test_one_seed_decides_nothing():
    found = increases(np.array([1.0]), np.array([2.0]))
    assert found.outcome is Outcome.UNDECIDED
    assert found.counted == "the only seed agrees"


def test_differences_below_the_error_of_the_run_decide_nothing():
    a = np.array([1.0, 1.1, 0.9])
    assert increases(a, a + 0.01).outcome is Outcome.HOLDS
    assert increases(a, a + 0.01, error=0.02).outcome is Outcome.UNDECIDED


def test_without_spread_the_sign_decides():
    same = np.ones(3)
    assert increases(same, same + 1).outcome is Outcome.HOLDS
    assert increases(same, same - 1).outcome is Outcome.FAILS
    assert increases(same, same).outcome is Outcome.UNDECIDED


def test_values_that_are_not_finite_decide_nothing():
    assert increases(np.array([1.0, np.nan]), np.array([2.0, 3.0])).outcome is Outcome.UNDECIDED
    assert increases(np.array([0.0, 1.0]), np.array([2.0, 3.0]), log=True).outcome is Outcome.UNDECIDED


def test_pairs_need_equal_numbers():
    with pytest.raises(ValueError, match="got 2 and 3"):
        increases(np.ones(2), np.ones(3))


def test_an_order_is_as_good_as_its_worst_step():
    a, noise = np.array([1.0, 1.2, 0.8]), np.array([0.01, -0.02, 0.01])
    good = ordered([a, a + 1 + noise, a + 2])
    assert good.outcome is Outcome.HOLDS
    assert (good.agree, good.seeds) == (3, 3)
    assert ordered([a, a + 1 + noise, a + 1 + 2 * noise]).outcome is Outcome.UNDECIDED
    back = ordered([a, a + 1 + noise, a])
    assert back.outcome is Outcome.FAILS
    assert back.agree == 0


def test_thresholds_are_checked_on_every_seed():
    values = np.array([0.5, 0.9])
    assert at_most(values, 1.0).outcome is Outcome.HOLDS
    assert at_most(values, 0.7).outcome is Outcome.UNDECIDED
    assert at_most(values, 0.7).counted == "1 of 2 seeds agree"
    assert at_most(values, 0.1).outcome is Outcome.FAILS
    assert at_least(values, 0.4).outcome is Outcome.HOLDS
    assert at_least(values, 0.7).outcome is Outcome.UNDECIDED
    assert at_least(values, 1.0).outcome is Outcome.FAILS
    assert near(values, 0.7, 0.25).outcome is Outcome.HOLDS
    assert near(values, 0.7, 0.1).outcome is Outcome.FAILS


def test_bounds_that_nothing_could_break_are_vacuous():
    values = np.array([0.5, 0.9])
    assert at_most(values, np.inf).outcome is Outcome.VACUOUS
    assert at_most(values, 1e4).outcome is Outcome.VACUOUS
    assert at_most(values, 100.0).outcome is Outcome.HOLDS
    assert at_most(0 * values, 100.0, loose=np.inf).outcome is Outcome.HOLDS
    assert at_least(values, 1e-5).outcome is Outcome.VACUOUS
    assert at_least(values, 0.0).outcome is Outcome.VACUOUS
    assert at_least(-values, 0.0).outcome is Outcome.FAILS


def test_a_claim_of_several_statements_is_as_good_as_the_worst():
    good, bad, empty, open_ = certain(True), certain(False), outcomes.vacuous("no"), outcomes.undecided("no")
    assert together([good, good]).outcome is Outcome.HOLDS
    assert together([good, empty]).outcome is Outcome.VACUOUS
    assert together([good, empty, open_]).outcome is Outcome.UNDECIDED
    assert together([open_, empty, bad, good]).outcome is Outcome.FAILS
    counted = together([at_most(np.ones(4), 2.0), at_most(np.array([1.0, 1, 1, 3]), 2.0)])
    assert counted.counted == "3 of 4 seeds agree"


def test_without_seeds_nothing_is_decided():
    none = np.array([])
    for found in (at_most(none, 1.0), at_least(none, 1.0), near(none, 0.0, 1.0)):
        assert found.outcome is Outcome.UNDECIDED
