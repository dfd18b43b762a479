"""Theory: theorems as objects that look at your run and say whether they speak about it, and whether they hold.

One file or folder a paper; `theorems` finds them all, and the contracts in the tests run each on its own example and
counterexample. `abc` tells the regime of a parameterisation of width, `coupling` how far a finite network is from its
mean-field limit.
"""

from unlazy import _registry
from unlazy._registry import kebab
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network
from unlazy.probes import Probe
from unlazy.theory import abc, coupling
from unlazy.theory._base import Finding, Hypothesis, Theorem, Verdict, through


def theorems() -> dict[str, Theorem]:
    """Give every theorem by key, of unlazy and of plug-ins, each as its class is made without options."""
    found: list[Theorem] = choose()
    return {theorem.key: theorem for theorem in found}


def choose(name: str | None = None) -> list[Theorem]:
    """Give theorems by name.

    Parameters
    ----------
    name
        A theorem ("chen2022/theorem-1"), a paper ("chen2022") for all of its theorems, or one of your own as
        "package.module:Name"; all there are if left out.
    """
    return sorted(_registry.choose("theorem", name), key=lambda theorem: theorem.key)


def needs(network: Network, data: Dataset, chosen: list[Theorem] | None = None) -> dict[str, Probe]:
    """Give the probes through which theorems (all by default) have to look at a run, each with a name of its own."""
    wanted: dict[str, Probe] = {}
    for theorem in choose() if chosen is None else chosen:
        for probe in theorem.needs(network, data):
            if probe not in wanted.values():
                name = kebab(type(probe).__name__)
                taken = sum(label.partition("-for-")[0] == name for label in wanted)
                wanted[f"{name}-for-{theorem.key.replace('/', '-')}" if taken else name] = probe
    return wanted


def check(run: Trajectory) -> dict[str, Finding]:
    """Ask every theorem about ``run``."""
    return {key: theorem.check(run) for key, theorem in theorems().items()}


__all__ = [
    "Finding",
    "Hypothesis",
    "Theorem",
    "Verdict",
    "abc",
    "check",
    "choose",
    "coupling",
    "needs",
    "theorems",
    "through",
]
