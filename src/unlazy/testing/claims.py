"""Checks for theorems and panels."""

import re

import msgspec

from unlazy.data import Dataset
from unlazy.lab import Recipe, instantiate
from unlazy.networks import Network, TangentModel
from unlazy.papers import Panel
from unlazy.theory import Finding, Theorem, Verdict


def check_theorem(theorem: Theorem) -> None:
    """Check that a theorem has valid metadata, holds on its example and does not hold on its counterexample.

    Parameters
    ----------
    theorem
        An instance; its ``example()`` and ``counterexample()`` are run.
    """
    metadata_is_complete(theorem)
    findings_are_as_promised(theorem, theorem.check(theorem.example()), theorem.check(theorem.counterexample()))


def metadata_is_complete(theorem: Theorem) -> None:
    """Check that the key, source and statement have the form that listings and reports need."""
    shape = r"[a-z]+[0-9]{4}/[a-z0-9.-]+"
    assert re.fullmatch(shape, theorem.key), f"The key '{theorem.key}' is not like 'author2024/theorem-1'."
    assert theorem.source, f"{theorem.key} does not name its source."
    statement = theorem.statement
    assert statement.endswith("."), f"The statement of {theorem.key} is a sentence."
    assert len(statement) <= 100, f"The statement of {theorem.key} has {len(statement)} characters; 100 fit in lists."


def findings_are_as_promised(theorem: Theorem, example: Finding, counterexample: Finding) -> None:
    """Check the findings: a feasible theorem holds on its example; any other says what it would need."""
    key = theorem.key
    assert example.hypotheses, f"{key} lists no hypotheses."
    if theorem.feasible:
        assert example.verdict is Verdict.HOLDS, f"{key} does not hold on its example: {example.why}"
        assert example.margin is not None, f"{key} holds without a margin."
        assert example.margin >= 1 - 1e-6, f"{key} holds with the margin {example.margin}, below 1."
        assert example.numbers, f"{key} holds without numbers."
        assert all(one.met for one in example.hypotheses), f"{key} holds though a hypothesis is not met."
    else:
        assert example.verdict is Verdict.SILENT, f"{key} is not feasible, but applies to its example: {example.why}"
        missed = [(one.found, one.needed) for one in example.hypotheses if not one.met]
        stated = any(found is not None and needed is not None and needed > found for found, needed in missed)
        assert stated, f"{key} does not state what it would need."
    assert counterexample.verdict is not Verdict.HOLDS, f"{key} holds on its counterexample: {counterexample.why}"
    for why in (example.why, counterexample.why):
        assert re.match(r"[^a-z].*\.$", why, re.DOTALL), f"{key} gives no sentence: '{why}'"
    assert re.search(r"[0-9]", example.why), f"{key} gives no numbers: '{example.why}'"


def needs_are_probes(theorem: Theorem, network: Network, data: Dataset) -> None:
    """Check that the needed probes can be called, are the same each time, and are none for an unknown network."""
    needs = list(theorem.needs(network, data))
    assert all(callable(probe) for probe in needs), f"{theorem.key} needs something that is not a probe."
    assert needs == list(theorem.needs(network, data)), f"{theorem.key} needs other probes when it is asked again."
    assert not theorem.needs(TangentModel(network), data), f"{theorem.key} needs probes of a network it cannot know."


def check_panel(panel: Panel, build: bool = True) -> None:
    """Check that a panel has valid metadata, and that its recipes at both scales can be built.

    Parameters
    ----------
    panel
        An instance.
    build
        Whether data and networks of the quick recipes are drawn as well, for the first seed of each.
    """
    assert re.fullmatch(r"[\w.-]+/[a-z0-9][a-z0-9.-]*", panel.key), f"The key '{panel.key}' is not like 'paper/fig1'."
    for field in ("title", "caption"):
        text = getattr(panel, field)
        assert re.fullmatch(r"\S(.*\S)?", text, re.DOTALL), f"The {field} of {panel.key} is empty or padded."
    assert set(panel.scales) == {"quick", "paper"}, f"The scales of {panel.key} are {set(panel.scales)}."
    assert all(panel.scales.values()), f"{panel.key} does not say what is run at each scale."
    for scale in ("quick", "paper"):
        recipes = panel.recipes(scale)
        assert recipes, f"{panel.key} runs nothing at {scale} scale."
        assert all(isinstance(one, Recipe) for one in recipes.values()), f"{panel.key} must return Recipe objects."
        seven = panel.recipes(scale, seeds=7)
        assert {one.seeds for one in seven.values()} == {7}, f"{panel.key} ignores the number of seeds."
        for label, recipe in recipes.items() if build and scale == "quick" else ():
            made = instantiate(msgspec.structs.replace(recipe, seeds=1))
            assert made.networks, f"The recipe '{label}' of {panel.key} makes no network."
