"""Probes as users give them: objects, names or functions, alone, in a list or with names of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unlazy._errors import UserError
from unlazy._observation import Observe
from unlazy._registry import kebab, resolve


def named(probes: Any) -> dict[str, Observe]:
    """Resolve probes that are given by name, and name those that come without one by their class.

    ``TrainLoss()`` and ``"train-loss"`` are both called ``train-loss``.
    """
    if isinstance(probes, Mapping):
        return {name: _probe(probe) for name, probe in probes.items()}
    if callable(probes) or isinstance(probes, str):
        probes = [probes]
    listed = [_probe(probe) for probe in probes]
    names = [_called(given, probe) for given, probe in zip(probes, listed, strict=True)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UserError(f"Two probes would both be called '{min(twice)}': give a dictionary with a name for each.")
    return dict(zip(names, listed, strict=True))


def _probe(given: Any) -> Observe:
    if isinstance(given, str):
        return resolve("probe", given)
    if isinstance(given, type) or not callable(given):
        name = getattr(given, "__name__", repr(given))
        raise UserError(f"Probes are objects, names or functions, and {name} is neither: write probes=[{name}()].")
    return given


def _called(given: Any, probe: Observe) -> str:
    if isinstance(given, str):
        return kebab(given.rpartition(":")[2])
    return kebab(getattr(probe, "__name__", type(probe).__name__)).strip("<>")
