"""The decay of the loss along a run, compared with a guaranteed rate."""

from typing import NamedTuple

import numpy as np

from unlazy.theory.theorem import Finding, Verdict

LITTLE = 0.01  # a guaranteed decrease by less than this fraction over the whole run says nothing


class Fall(NamedTuple):
    """A loss curve from t = 0 on.

    Attributes
    ----------
    times, losses
        The times, the first of which is 0, and the losses there. The first loss is exact: no time has passed.
    resolution
        Error of the root of the loss at later times.
    rounding
        Root of the smallest loss that is not rounding error alone. Lower losses do not count as measured.
    """

    times: np.ndarray
    losses: np.ndarray
    resolution: float
    rounding: float = 0.0

    def measured(self) -> float:
        """Return the mean rate log(L^0 / L^t) / t, t being the last time at which the loss is above rounding."""
        last = max(1, int(np.flatnonzero(self._above_rounding())[-1]))
        loss = max(self.losses[last], self.rounding**2, np.finfo(float).tiny)
        return float(np.log(self.losses[0] / loss) / self.times[last])

    def against(self, rate: float, stepwise: bool, if_fails: str = "") -> Finding:
        """Check L^t <= L^s e^(-rate (t - s)).

        It fails if the loss exceeds the bound by more than the error of the run. If even a constant loss would not, the
        run cannot contradict the theorem, and the verdict is VACUOUS. The slowest rate is that over all pairs of times
        at which the loss is above rounding and between which the run either could have contradicted the theorem or has
        the guaranteed rate.

        Parameters
        ----------
        rate
            The guaranteed rate.
        stepwise
            Whether to check it between any two times, or only from s = 0.
        if_fails
            A sentence to add to the reasons if it fails.
        """
        t, roots, seen = self.times, np.sqrt(self.losses), self._above_rounding()
        since, until = np.triu_indices(t.size, 1)
        if not stepwise:
            since, until = since[since == 0], until[since == 0]
        span, kept = t[until] - t[since], np.exp(-rate * (t[until] - t[since]) / 2)
        slack = self.resolution * np.where(since == 0, 1.0, 1.0 + kept)
        holds = bool(np.all(roots[until] <= roots[since] * kept + slack))
        could_fail = roots[since] * (1 - kept) > slack
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.log(self.losses[since] / self.losses[until]) / span
        known = seen[since] & seen[until]
        counted = known & (could_fail | (each >= rate))
        measured, promised = self.measured(), -np.expm1(-rate * t[-1])
        numbers = {
            "guaranteed rate": rate,
            "measured rate": measured,
            "promised fall": promised,
            "slack in √L": self.resolution,
        }
        if holds and not could_fail.any():
            why = (
                f"The root of the loss, {roots[0]:.2g} at the start, is known only up to {self.resolution:.2g}: the "
                f"guaranteed rate of {rate:.3g} cannot be checked at this accuracy (the mean rate is {measured:.3g})."
            )
            return Finding(Verdict.VACUOUS, why, None, numbers)
        # If only the first loss is above rounding, the loss has fallen at least to that level.
        slowest = float(each[counted].min()) if counted.any() else measured
        numbers["slowest rate"] = slowest
        why = f"The loss falls at a rate of {slowest:.3g} or more (mean {measured:.3g}); {rate:.3g} is guaranteed."
        if np.any(known & ~counted):
            why += " Between some of the times, the loss is not known accurately enough to measure a rate."
        little = f"That is a decrease by {promised:.2%} over the whole run, which says nothing."
        weak = promised < LITTLE
        return Finding.judge(holds, why, slowest / rate, numbers, vacuous=weak, if_vacuous=little, if_fails=if_fails)

    def _above_rounding(self) -> np.ndarray:
        """Mark the losses that count as measured; the first does."""
        above = np.sqrt(self.losses) > self.rounding
        above[0] = True
        return above
