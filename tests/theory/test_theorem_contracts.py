"""Contracts that every theorem found in the room must keep."""

import copy

import equinox as eqx
import jax.numpy as jnp
import pytest

from unlazy import theory
from unlazy.theory import Verdict, theorems
from unlazy.theory.chen2022 import FeaturesMustMove

contract = pytest.mark.parametrize("theorem", theorems().values(), ids=theorems().keys())


@contract
def test_holds_on_its_example(theorem):
    finding = theorem.check(theorem.example())
    assert finding.verdict is Verdict.HOLDS, finding
    assert finding.numbers
    assert theorem.source
    assert theorem.statement


@contract
def test_does_not_claim_its_counterexample(theorem):
    finding = theorem.check(theorem.counterexample())
    assert finding.verdict is not Verdict.HOLDS, finding
    assert finding.why


def test_a_run_can_ask_all_theorems():
    findings = theory.check(FeaturesMustMove().example())
    assert findings["features-must-move"].verdict is Verdict.HOLDS


def with_ends(run, **ends):
    """The same run with other networks at its ends."""
    other = copy.copy(run)
    vars(other).update(ends)
    return other


def test_features_must_move_notices_a_function_that_changed_without_them():
    run = FeaturesMustMove().example()
    # A read-out ten times as large at the end changes f while the features stay where they are.
    cheat = with_ends(run, final=eqx.tree_at(lambda n: n.a, run.start, 10 * run.start.a))
    assert FeaturesMustMove().check(cheat).verdict is Verdict.FAILS


def test_features_must_move_is_silent_without_its_hypotheses():
    run = FeaturesMustMove().example()
    start = eqx.tree_at(lambda n: n.a, run.start, run.start.a * jnp.linspace(1, 2, run.start.width))
    uneven = with_ends(run, start=start)
    finding = FeaturesMustMove().check(uneven)
    assert finding.verdict is Verdict.SILENT
    assert "±c" in finding.why
