"""How the loss of a run falls, held against a guaranteed rate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unlazy.theory._base import Finding, Verdict

_CLEAR = 100  # losses count as measured while √L is this many times its own error
_LITTLE = 0.01  # a guaranteed fall by less than this share over the whole run says nothing


class Fall(NamedTuple):
    """A loss curve from t = 0 on, and how well its root is known."""

    times: np.ndarray
    losses: np.ndarray
    resolution: float

    def measured(self) -> float:
        """Give the mean rate log(L^0 / L^t) / t over the part of the run on which the loss is clearly measured."""
        seen = np.flatnonzero(np.sqrt(self.losses) > _CLEAR * self.resolution)
        last = seen[-1] if seen.size and seen[-1] > 0 else 1
        return float(_rates(self.times[[0, last]], self._above_floor()[[0, last]])[0])

    def against(self, rate: float, stepwise: bool) -> Finding:
        """Check L^t <= L^s e^(-rate (t - s)): between neighbouring times, or only from s = 0."""
        t, roots = self.times, np.sqrt(self.losses)
        since = np.arange(t.size - 1) if stepwise else np.zeros(t.size - 1, int)
        span = t[1:] - t[since]
        holds = bool(np.all(roots[1:] <= roots[since] * np.exp(-rate * span / 2) + self.resolution))
        floored = self._above_floor()
        each = np.log(floored[since] / floored[1:]) / span
        clear = roots[1:] > _CLEAR * self.resolution
        slowest = float(each[clear].min() if clear.any() else each[0])
        measured, promised = self.measured(), -np.expm1(-rate * t[-1])
        numbers = {
            "guaranteed rate": rate,
            "measured rate": measured,
            "slowest rate": slowest,
            "promised fall": promised,
            "slack in √L": self.resolution,
        }
        why = f"The loss falls at a rate of {slowest:.3g} or more (mean {measured:.3g}); {rate:.3g} is guaranteed."
        verdict = Verdict.HOLDS if holds else Verdict.FAILS
        if holds and promised < _LITTLE:
            verdict = Verdict.VACUOUS
            why += f" That is a fall by {promised:.2%} over the whole run, which says nothing."
        return Finding(verdict, why, slowest / rate, numbers)

    def _above_floor(self) -> np.ndarray:
        return np.maximum(self.losses, (_CLEAR * self.resolution) ** 2)


def _rates(times: np.ndarray, losses: np.ndarray) -> np.ndarray:
    return np.log(losses[:-1] / losses[1:]) / np.diff(times)


def fall(times: np.ndarray, losses: np.ndarray, start: float, resolution: float) -> Fall:
    """Put the loss at t = 0 first, if the run was not observed then."""
    if times[0] > 0:
        times, losses = np.concatenate([[0.0], times]), np.concatenate([[start], losses])
    return Fall(times, losses, resolution)
