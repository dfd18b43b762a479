"""Check theorems on the stored run of a recipe; the probes that they need are evaluated on snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, NotRequired, TypedDict

import equinox as eqx
import jax
import msgspec

from unlazy import theory
from unlazy._errors import UserError, usable
from unlazy._files import write_sealed, writing
from unlazy._plain import finite_or_none, read_sealed
from unlazy.lab.claims import held
from unlazy.lab.made_by import provenance
from unlazy.lab.recipe import Recipe
from unlazy.lab.runner import Lab
from unlazy.lab.store import Store
from unlazy.probes import Probe
from unlazy.theory import Finding, Theorem


class Certificate(NamedTuple):
    """The finding of one theorem on one seed.

    Attributes
    ----------
    theorem, seed
        The theorem and the seed.
    finding
        The verdict, with its numbers and hypotheses.
    """

    theorem: Theorem
    seed: int
    finding: Finding

    def summary(self) -> Summary:
        """Return the certificate as plain values; numbers that are not finite become None, as JSON has none."""
        finding = self.finding
        return {
            "theorem": self.theorem.key,
            "seed": self.seed,
            "verdict": finding.verdict.name,
            "margin": finite_or_none(finding.margin),
            "why": finding.why,
            "numbers": {name: finite_or_none(value) for name, value in finding.numbers.items()},
            "hypotheses": [
                {
                    "what": one.what,
                    "met": bool(one.met),
                    "found": finite_or_none(one.found),
                    "needed": finite_or_none(one.needed),
                }
                for one in finding.hypotheses
            ],
        }


def certify(recipe: Recipe, theorems: Sequence[Theorem], lab: Lab) -> list[Certificate]:
    """Check theorems on every seed of a recipe.

    Parameters
    ----------
    recipe
        The recipe. Its stored results are used; the rest is computed and stored.
    theorems
        The theorems. Probes that they need are evaluated on stored snapshots.
    lab
        The lab, whose ``tell`` is called with the progress.
    """
    with jax.enable_x64(True):  # as in `Lab.run`
        lab.run(recipe)
        runs = lab.trajectories(recipe)
        more: dict[str, Probe] = {}
        for run in runs:
            for name, probe in theory.needs(run.start, run.data, list(theorems)).items():
                known = runs[0].probes | more
                if not any(type(probe) is type(one) and bool(eqx.tree_equal(probe, one)) for one in known.values()):
                    while name in known:
                        name = f"theory-{name}"
                    more[name] = probe
        if more:
            runs = lab.trajectories(recipe, more)
        return [
            Certificate(theorem, seed, theorem.check(run))
            for seed, run in zip(recipe.all_seeds, runs, strict=True)
            for theorem in theorems
        ]


class Hypothesis(TypedDict):
    """A hypothesis of a theorem, as it is stored."""

    what: str
    met: bool
    found: float | None
    needed: float | None


class Summary(TypedDict):
    """The finding of a theorem on one seed, as it is stored."""

    theorem: str
    seed: int
    verdict: Literal["HOLDS", "FAILS", "SILENT", "VACUOUS"]
    margin: float | None
    why: str
    numbers: NotRequired[dict[str, float | None]]
    hypotheses: NotRequired[list[Hypothesis]]


class StoredCertificates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Stored certificates of a recipe.

    Attributes
    ----------
    name, recipe
        The name of the recipe, and the recipe as JSON.
    findings
        A `Certificate.summary` for each theorem and seed.
    made_by
        The versions and the machine, as `provenance` returns them.
    """

    name: str
    recipe: str
    findings: list[Summary]
    made_by: dict[str, str]


def store_certificates(folder: Path, recipe: Recipe, found: Sequence[Certificate]) -> Path:
    """Store certificates of a recipe. Those of other theorems that are stored already remain.

    Parameters
    ----------
    folder
        The folder of results.
    recipe
        The recipe.
    found
        What `certify` returned.
    """
    store = Store(folder)
    path = store.folder / "certificates" / f"{store.path(recipe).stem}.json"
    new = [one.summary() for one in found]
    asked = {one["theorem"] for one in new}
    with writing("What the theorems said", path, "choose another --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with held(path.with_suffix(".claim")):  # so that two processes can add to the file
            stored = read_certificates(path).findings if path.exists() else []
            old = [one for one in stored if one["theorem"] not in asked]
            findings = sorted(old + new, key=lambda one: (one["theorem"], one["seed"]))
            whole = StoredCertificates(name=recipe.name, recipe=recipe.json(), findings=findings, made_by=provenance())
            write_sealed(path, msgspec.to_builtins(whole))
    return path


def stored_certificates(folder: Path) -> list[StoredCertificates]:
    """Read all stored certificates; files that cannot be used are left out, with a warning.

    Parameters
    ----------
    folder
        The folder of results.
    """
    return list(usable(sorted((folder / "certificates").glob("*.json")), read_certificates).values())


def read_certificates(path: Path) -> StoredCertificates:
    """Read stored certificates of one recipe, and verify their checksum, which older files do not have."""
    try:
        return msgspec.convert(read_sealed(path)[0], StoredCertificates)
    except (ValueError, OSError) as error:
        raise UserError(f"'{path}' cannot be used ({error}): delete it and certify again.") from None
