"""Powers of the width: exponents fitted to measurements at several widths and seeds, with their confidence."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import stdtrit

from unlazy._plain import finite_or_none

_CONFIDENCE = 0.95
HALFWAY = 0.25  # exponents are usually multiples of 1/2: this lies halfway between 0 and 1/2


@dataclasses.dataclass(frozen=True)
class Slope:
    """value ≈ constant · width^exponent, from several seeds at each width.

    Attributes
    ----------
    widths
        The widths.
    values
        The measurements, a row for each width and a column for each seed.
    exponent
        The fitted exponent; NaN where a measurement is not a positive number, or where there is one width only.
    low, high
        Ends of the 95 % confidence interval of the exponent.
    """

    widths: tuple[int, ...]
    values: np.ndarray
    exponent: float
    low: float
    high: float

    @property
    def last(self) -> float:
        """The mean at the largest width."""
        return float(np.mean(self.values[-1]))

    @property
    def late(self) -> tuple[float, float]:
        """The exponent between the two largest widths, less and plus its standard error; NaN where there is none.

        What saturates at small widths, such as a relative change of order 1, bends a curve that is not a power there.
        The interval does not show that, so `grows`, `vanishes`, `persists` and `stays` must not contradict this.
        """
        if np.isnan(self.exponent):
            return np.nan, np.nan
        logs, seeds = np.log(self.values), self.values.shape[1]
        step = np.log(self.widths[-1] / self.widths[-2])
        late = (logs[-1].mean() - logs[-2].mean()) / step
        spread = np.sqrt(logs.var(axis=1, ddof=1).mean()) if seeds > 1 else np.inf
        error = spread * np.sqrt(2 / seeds) / step
        return float(late - error), float(late + error)

    @property
    def grows(self) -> bool:
        """Whether the interval lies above 1/4, halfway to the exponent 1/2, and `late` does not lie below."""
        return bool(self.low > HALFWAY and self.late[1] > HALFWAY)

    @property
    def vanishes(self) -> bool:
        """Whether the interval lies below -1/4, and `late` does not lie above."""
        return bool(self.high < -HALFWAY and self.late[0] < -HALFWAY)

    @property
    def persists(self) -> bool:
        """Whether the interval lies above -1/4 and `late` not below, so that the quantity does not vanish."""
        return bool(self.low > -HALFWAY and self.late[1] > -HALFWAY)

    @property
    def stays(self) -> bool:
        """Whether the interval lies within ±1/4, and `late` not outside of it."""
        return self.persists and bool(self.high < HALFWAY and self.late[0] < HALFWAY)

    def plain(self) -> dict[str, Any]:
        """Return everything as plain numbers, None where there is none, for JSON."""
        ends = {name: finite_or_none(getattr(self, name)) for name in ("exponent", "low", "high")}
        return {"widths": list(self.widths), "values": [list(map(finite_or_none, row)) for row in self.values], **ends}

    def __str__(self) -> str:
        if np.isnan(self.exponent):
            return f"{self.last:.2g}"
        return f"{self.last:.2g} ∝ m^{self.exponent:.2f} ({self.low:.2f} to {self.high:.2f})"


def fit_slope(widths: Sequence[int], values: np.ndarray) -> Slope:
    """Fit log(value) = constant + exponent · log(width) by least squares over all widths and seeds.

    The interval is that of Student's t for the residuals, which have widths x seeds - 2 degrees of freedom.

    Parameters
    ----------
    widths
        The widths.
    values
        Measurements, a row for each width and a column for each seed.
    """
    values = np.asarray(values, float).reshape(len(widths), -1)
    seeds, nothing = values.shape[1], (np.nan, np.nan, np.nan)
    if len(set(widths)) < 2 or not (np.isfinite(values).all() and (values > 0).all()):
        return Slope(tuple(widths), values, *nothing)
    x, y = np.repeat(np.log(widths), seeds), np.log(values).ravel()
    spread = np.sum((x - x.mean()) ** 2)
    exponent = float(np.sum((x - x.mean()) * (y - y.mean())) / spread)
    freedom = x.size - 2
    if freedom < 1:
        return Slope(tuple(widths), values, exponent, -np.inf, np.inf)
    residual = y - y.mean() - exponent * (x - x.mean())
    error = float(np.sqrt(np.sum(residual**2) / freedom / spread))
    half = float(stdtrit(freedom, 0.5 + _CONFIDENCE / 2)) * error
    return Slope(tuple(widths), values, exponent, exponent - half, exponent + half)
