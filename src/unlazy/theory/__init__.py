"""Theory: theorems as objects that look at your run and say whether they speak about it, and whether they hold.

One file a paper; `theorems` finds them all, and the contracts in the tests run each on its own example and
counterexample.
"""

import sys

from unlazy._catalogue import members
from unlazy.flows import Trajectory
from unlazy.theory._base import Finding, Theorem, Verdict


def theorems() -> dict[str, Theorem]:
    """Give every theorem by name, each as its class is made without options."""
    return {name: made() for name, made in members(sys.modules[__name__], Theorem).items()}


def check(run: Trajectory) -> dict[str, Finding]:
    """Ask every theorem about ``run``."""
    return {name: theorem.check(run) for name, theorem in theorems().items()}


__all__ = ["Finding", "Theorem", "Verdict", "check", "theorems"]
