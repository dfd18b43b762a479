"""Theory: theorems as objects that check on a run whether their hypotheses are met and their conclusion holds.

The theorems are in the folders of their papers, where `theorems` finds them; the tests check each on its own example
and counterexample. `theorem` defines what a theorem is, `hypotheses` has hypotheses that several papers share, and
`decay` compares the loss with a guaranteed rate. `abc` classifies parameterisations by their scaling with the width,
and `coupling` measures how far a finite network is from its mean-field limit.
"""

from unlazy import _registry
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network
from unlazy.probes import Probe
from unlazy.theory import abc, coupling
from unlazy.theory.theorem import (
    Example,
    Finding,
    Hypothesis,
    Reading,
    Theorem,
    Verdict,
    WithProbability,
    check_probability,
    read_all,
    require,
    require_type,
    through,
)


def theorems() -> dict[str, Theorem]:
    """Return every theorem by key, of unlazy and of plug-ins, with its default options."""
    return {theorem.key: theorem for theorem in choose()}


def choose(name: str | None = None) -> list[Theorem]:
    """Return theorems by name.

    Parameters
    ----------
    name
        A theorem ("chen2022/theorem-1"), a paper ("chen2022") for all of its theorems, or one of your own as
        "package.module:Name"; all if omitted.
    """
    return sorted(_registry.choose("theorem", name), key=lambda theorem: theorem.key)


def needs(network: Network, data: Dataset, chosen: list[Theorem] | None = None) -> dict[str, Probe]:
    """Return the probes that a run must have for theorems to check it, each under a name of its own.

    Parameters
    ----------
    network, data
        The network at the start of the run, and its data.
    chosen
        The theorems; all if omitted.
    """
    wanted: dict[str, Probe] = {}
    for theorem in choose() if chosen is None else chosen:
        for probe in theorem.needs(network, data):
            if probe not in wanted.values():
                name = _registry.kebab(type(probe).__name__)
                taken = sum(label.partition("-for-")[0] == name for label in wanted)
                wanted[f"{name}-for-{theorem.key.replace('/', '-')}" if taken else name] = probe
    return wanted


def check(run: Trajectory) -> dict[str, Finding]:
    """Check every theorem on a run.

    Parameters
    ----------
    run
        Any run.
    """
    return {key: theorem.check(run) for key, theorem in theorems().items()}


__all__ = [
    "Example",
    "Finding",
    "Hypothesis",
    "Reading",
    "Theorem",
    "Verdict",
    "WithProbability",
    "abc",
    "check",
    "check_probability",
    "choose",
    "coupling",
    "needs",
    "read_all",
    "require",
    "require_type",
    "theorems",
    "through",
]
