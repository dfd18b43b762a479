"""Asks theorems about a recipe: about its stored run, with the probes that the theorems need evaluated on snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import msgspec

from unlazy import theory
from unlazy._errors import UserError
from unlazy._files import atomic_write, writing
from unlazy.lab.claims import held
from unlazy.lab.made_by import provenance
from unlazy.lab.recipe import Recipe
from unlazy.lab.runner import Lab
from unlazy.lab.store import Store
from unlazy.probes import Probe
from unlazy.theory import Finding, Theorem


class Certificate(NamedTuple):
    """What one theorem says of one seed."""

    theorem: Theorem
    seed: int
    finding: Finding

    def summary(self) -> dict[str, Any]:
        """Give it as plain values; a number that is not finite becomes None, for JSON has none."""
        finding = self.finding
        return {
            "theorem": self.theorem.key,
            "seed": self.seed,
            "verdict": finding.verdict.name,
            "margin": _finite(finding.margin),
            "why": finding.why,
            "numbers": {name: _finite(value) for name, value in finding.numbers.items()},
            "hypotheses": [
                {"what": one.what, "met": bool(one.met), "found": _finite(one.found), "needed": _finite(one.needed)}
                for one in finding.hypotheses
            ],
        }


def certify(recipe: Recipe, theorems: Sequence[Theorem], lab: Lab) -> list[Certificate]:
    """Ask theorems about every seed of a recipe.

    Parameters
    ----------
    recipe
        The recipe. What the lab has stored of it is used; the rest is computed and stored.
    theorems
        The theorems. Probes that they need are evaluated on stored snapshots.
    lab
        The lab, whose ``tell`` hears of progress.
    """
    with jax.enable_x64(True):  # as in `Lab.run`
        return _certify(recipe, theorems, lab)


def _certify(recipe: Recipe, theorems: Sequence[Theorem], lab: Lab) -> list[Certificate]:
    lab.run(recipe)
    runs = lab.trajectories(recipe)
    needed = [theory.needs(run.start, run.data, list(theorems)) for run in runs]
    if any(needed):
        more: dict[str, Probe] = {}
        for some in needed:
            for name, probe in some.items():
                known = [*runs[0].probes.values(), *more.values()]
                if not any(type(probe) is type(one) and bool(eqx.tree_equal(probe, one)) for one in known):
                    more[_free(name, {*runs[0].probes, *more})] = probe
        if more:
            runs = lab.trajectories(recipe, more)
    return [
        Certificate(theorem, recipe.seed + index, theorem.check(run))
        for index, run in enumerate(runs)
        for theorem in theorems
    ]


def _free(name: str, taken: set[str]) -> str:
    """Give a name that no other probe has."""
    while name in taken:
        name = f"theory-{name}"
    return name


def _finite(value: float | None) -> float | None:
    return None if value is None or not float("-inf") < value < float("inf") else float(value)


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What theorems said of a recipe, as it is kept: one summary a theorem and seed."""

    name: str
    recipe: str
    findings: list[dict[str, Any]]
    made_by: dict[str, str]


def keep(folder: Path, recipe: Recipe, found: Sequence[Certificate]) -> Path:
    """Keep what theorems said of ``recipe``; another call about other theorems adds to it."""
    store = Store(folder)
    path = store.folder / "certificates" / f"{store.path(recipe).stem}.json"
    new = [one.summary() for one in found]
    asked = {one["theorem"] for one in new}
    with writing("What the theorems said", path, "choose another --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with held(path.with_suffix(".claim")):  # else of two processes that add to it, one would be lost
            old = [one for one in _read(path).findings if one["theorem"] not in asked] if path.exists() else []
            findings = sorted(old + new, key=lambda one: (one["theorem"], one["seed"]))
            whole = Kept(name=recipe.name, recipe=recipe.json(), findings=findings, made_by=provenance())
            with atomic_write(path) as temporary:
                temporary.write_bytes(msgspec.json.format(msgspec.json.encode(whole)))
    return path


def kept(folder: Path) -> list[Kept]:
    """Read all that theorems have said of recipes in ``folder``."""
    return [_read(path) for path in sorted((folder / "certificates").glob("*.json"))]


def _read(path: Path) -> Kept:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (msgspec.DecodeError, OSError) as error:
        raise UserError(f"'{path}' is cut short ({type(error).__name__}): delete it and certify again.") from None
