"""Asks theorems about a recipe.

A stored result keeps what probes saw but not the networks, and theorems look at both ends of a run. So a recipe is run
anew, with the probes that the theorems need beside its own. Of it only what the theorems said is kept, for reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import msgspec

from unlazy import theory
from unlazy._errors import UserError
from unlazy.flows import Status
from unlazy.lab.recipe import Recipe, bring_to_life
from unlazy.lab.runner import Told
from unlazy.lab.store import Store, provenance, reason, written_whole
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


def certify(recipe: Recipe, theorems: Sequence[Theorem], tell: Told | None = None) -> list[Certificate]:
    """Run a recipe, seed by seed, and ask the theorems about each run."""
    with jax.enable_x64(True):  # as in `Lab.run`
        return _certify(recipe, theorems, tell)


def _certify(recipe: Recipe, theorems: Sequence[Theorem], tell: Told | None) -> list[Certificate]:
    experiment, found = bring_to_life(recipe), []
    for index, (network, data, key) in enumerate(
        zip(experiment.networks, experiment.data, experiment.keys, strict=True)
    ):
        probes = dict(experiment.probes)
        for name, probe in theory.needs(network, data, list(theorems)).items():
            if probe not in probes.values():
                probes[name if name not in probes else f"theory-{name}"] = probe

        def listen(share: float, clock: float, index: int = index) -> None:
            if tell is not None:
                tell(recipe, (index + share) / recipe.seeds, f"t = {clock:g}")

        run = experiment.flow(network, data, experiment.times, probes, key=key, progress=listen)
        if run.status is Status.interrupted:
            raise KeyboardInterrupt(f"'{recipe.name}' was interrupted; certify keeps nothing and starts over.")
        if not run.times.size:
            raise UserError(f"'{recipe.name}' failed before its first look: {run.status.value}")
        found += [Certificate(theorem, recipe.seed + index, theorem.check(run)) for theorem in theorems]
    return found


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        old = [one for one in _read(path).findings if one["theorem"] not in asked] if path.exists() else []
        findings = sorted(old + new, key=lambda one: (one["theorem"], one["seed"]))
        whole = Kept(name=recipe.name, recipe=recipe.json(), findings=findings, made_by=provenance())
        with written_whole(path) as temporary:
            temporary.write_bytes(msgspec.json.format(msgspec.json.encode(whole)))
    except OSError as error:
        raise UserError(
            f"What the theorems said cannot be written to '{path}' ({reason(error)}): choose another --out."
        ) from None
    return path


def kept(folder: Path) -> list[Kept]:
    """Read all that theorems have said of recipes in ``folder``."""
    return [_read(path) for path in sorted((folder / "certificates").glob("*.json"))]


def _read(path: Path) -> Kept:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (msgspec.DecodeError, OSError) as error:
        raise UserError(f"'{path}' is cut short ({type(error).__name__}): delete it and certify again.") from None
