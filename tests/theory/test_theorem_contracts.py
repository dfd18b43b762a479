"""Contracts that every theorem found in the room must keep, and how the room is asked."""

import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from unlazy import papers, theory
from unlazy._errors import UserError
from unlazy._registry import modules, walk
from unlazy.data import Dataset
from unlazy.flows import Descent
from unlazy.networks import Infinite, TwoLayer
from unlazy.probes import ActiveShare, TrainLoss
from unlazy.testing.claims import findings_are_as_promised, metadata_is_complete, needs_are_probes
from unlazy.theory import Example, Finding, Hypothesis, Theorem, Verdict, require, require_type, theorems

contract = pytest.mark.parametrize("theorem", theorems().values(), ids=theorems().keys())

X = jnp.array([[1.0, 0.2, 0.0], [0.0, 1.0, -0.3]])
DATA = Dataset(X, jnp.array([0.5, -0.2]))
SMALL = [
    (TwoLayer(8, 3, key=jax.random.key(0)), DATA),
    (TwoLayer(8, 3, 2, key=jax.random.key(0)), Dataset(X, jnp.eye(2))),
    (TwoLayer(8, 3, embedding=Infinite(), key=jax.random.key(0)), DATA),
]


@functools.cache
def findings(key):
    """What a theorem says of its example and of its counterexample, each run once."""
    theorem = theorems()[key]
    return theorem.check(theorem.example()), theorem.check(theorem.counterexample())


@contract
def test_holds_on_its_example_and_not_on_its_counterexample(theorem):
    findings_are_as_promised(theorem, *findings(theorem.key))


@contract
def test_metadata_is_complete(theorem):
    metadata_is_complete(theorem)


@contract
def test_needs_are_probes_and_unknown_networks_need_none(theorem):
    for network, data in SMALL:
        needs_are_probes(theorem, network, data)


@contract
def test_a_run_that_saw_nothing_gets_an_answer(theorem):
    finding = theorem.check(tiny())
    assert isinstance(finding, Finding)
    assert finding.why


def test_every_theorem_has_a_key_of_its_own():
    assert len(theorems()) == len(list(walk(modules(papers), Theorem)))
    assert {"chen2022/lemma-1", "chen2022/theorem-1", "chen2022/eq-15"} <= set(theorems())


def test_theorems_are_chosen_by_key_and_by_paper():
    assert [one.key for one in theory.choose("chen2022/lemma-4")] == ["chen2022/lemma-4"]
    assert {one.key.partition("/")[0] for one in theory.choose("chen2022")} == {"chen2022"}
    assert [one.key for one in theory.choose()] == list(theorems())
    with pytest.raises(UserError, match=r"called 'chen2022/lema-1'. Did you mean 'chen2022/lemma-1'"):
        theory.choose("chen2022/lema-1")


# ---------------------------------------------------------------- the engine, on theorems that are made up


def tiny(probes=()):
    network = TwoLayer(4, 2, key=jax.random.key(0))
    return Descent(rate=0.1)(network, Dataset(jnp.eye(2), jnp.ones(2)), [0.0, 0.1], probes)


class Far(Theorem):
    """Out of reach of any computer."""

    key: ClassVar[str] = "nobody2000/far"
    source: ClassVar[str] = "nobody"
    statement: ClassVar[str] = "It needs a width that nobody has."
    feasible: ClassVar[bool] = False
    probes: ClassVar[tuple] = (TrainLoss(),)
    example: ClassVar[Example] = Example(tiny)
    counterexample: ClassVar[Example] = Example(tiny)

    def read(self, run):
        yield Hypothesis("width m", run.start.width >= 2**42, run.start.width, 2.0**42)
        yield Hypothesis("a name", True)
        return run

    def conclude(self, setting):
        return Finding(Verdict.HOLDS, "It holds by 2.", 2.0, {"one": 1.0})


class Watching(Far):
    """Speaks of every run that was watched."""

    key: ClassVar[str] = "nobody2000/watching"
    feasible: ClassVar[bool] = True

    def needs(self, network, data):
        return [TrainLoss(), ActiveShare(-1.0, 1.0)]

    def read(self, run):
        yield Hypothesis("a name", True)
        return run


def test_a_theorem_out_of_reach_says_what_it_would_need():
    finding = Far().check(Far().example())
    findings_are_as_promised(Far(), finding, finding)
    assert finding.why == "Not met: width m (found 4, needed 4.4e+12)."
    assert [one.met for one in finding.hypotheses] == [False, True]
    assert finding.margin is None


def test_the_contract_is_not_weaker_for_the_others():
    silent = Far().check(tiny())
    with pytest.raises(AssertionError):
        findings_are_as_promised(Watching(), silent, silent)
    with pytest.raises(AssertionError):
        findings_are_as_promised(Far(), Finding(Verdict.SILENT, "No.", hypotheses=(Hypothesis("x", False),)), silent)


def test_a_run_that_was_not_watched_is_told_what_to_add():
    finding = Watching().check(tiny())
    assert finding.verdict is Verdict.SILENT
    wanted = "TrainLoss(), ActiveShare(left=-1.0, right=1.0)"
    assert finding.why == f"It needs observations of the run: add probes=[{wanted}]."
    part = Watching().check(tiny([TrainLoss(), ActiveShare(-1.0, 2.0)]))
    assert "ActiveShare(left=-1.0, right=1.0)" in part.why
    assert "TrainLoss" not in part.why


def test_a_probe_is_known_by_what_it_does_and_not_by_its_name():
    run = tiny({"mine": ActiveShare(-1.0, 1.0), "loss": TrainLoss()})
    finding = Watching().check(run)
    assert (finding.verdict, finding.margin, finding.numbers) == (Verdict.HOLDS, 2.0, {"one": 1.0})
    assert finding.hypotheses == (Hypothesis("a name", True),)
    assert theory.through(run, ActiveShare(-1.0, 1.0))["hidden"].shape == (2,)


def test_what_theorems_need_is_collected_under_names_of_its_own():
    network, data = SMALL[0]
    needs = theory.needs(network, data)
    assert {"train-loss", "active-share", "decay-rate", "mean-square-slope"} <= set(needs)
    assert needs["train-loss"] == TrainLoss()
    twice = theory.needs(network, data, [Watching(), *theory.choose("chen2022/lemma-1")])
    assert set(twice) == {"train-loss", "active-share", "active-share-for-chen2022-lemma-1"}


def test_a_run_can_ask_all_theorems():
    answers = theory.check(tiny())
    assert set(answers) == set(theorems())
    assert answers["chen2022/eq-15"].verdict is Verdict.HOLDS
    assert answers["chen2022/lemma-1"].verdict is Verdict.SILENT


def test_a_reading_that_is_met_returns_a_setting():
    class Careless(Watching):
        def read(self, run):
            yield Hypothesis("a name", True)

    with pytest.raises(TypeError, match=r"Careless.read returned no setting although all hypotheses are met"):
        Careless().check(tiny())


def test_examples_can_be_methods():
    class Method(Watching):
        def example(self):
            return tiny(self.needs(None, None))

    assert Method().check(Method().example()).verdict is Verdict.HOLDS


def test_only_networks_that_are_known_need_probes():
    class Narrow(Far):
        @staticmethod
        def knows(network):
            return isinstance(network, TwoLayer)

    assert Narrow().needs(SMALL[0][0], DATA) == (TrainLoss(),)
    assert not Narrow().needs(None, DATA)


def test_a_reading_ends_where_a_requirement_is_not_met():
    class Demanding(Watching):
        def read(self, run):
            network = yield from require_type("two layers", run.start, TwoLayer)
            yield from require(Hypothesis("narrow", network.width < 2), Hypothesis("any", True))
            raise AssertionError("not reached")

    class Other(Watching):
        def read(self, run):
            yield from require_type("a number", run.start, int)
            raise AssertionError("not reached")

    assert Demanding().check(tiny()).why == "Not met: narrow."
    assert len(Demanding().check(tiny()).hypotheses) == 3
    assert Other().check(tiny()).why == "Not met: a number."


@pytest.mark.parametrize(
    ("holds", "vacuous", "verdict", "why"),
    [
        (True, False, Verdict.HOLDS, "It is so."),
        (True, True, Verdict.VACUOUS, "It is so. Weak."),
        (False, True, Verdict.FAILS, "It is so. Bad."),
    ],
)
def test_a_conclusion_is_judged(holds, vacuous, verdict, why):
    finding = Finding.judge(holds, "It is so.", 2.0, {}, vacuous=vacuous, if_vacuous="Weak.", if_fails="Bad.")
    assert (finding.verdict, finding.why, finding.margin) == (verdict, why, 2.0)


def test_networks_in_a_run_keep_their_identity():
    run = tiny()
    assert run.start is run.start  # put together once, however many theorems read it
    assert eqx.tree_equal(run.start, TwoLayer(4, 2, key=jax.random.key(0)))
