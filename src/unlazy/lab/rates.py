"""Whether the best learning rate depends on the width."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unlazy._checked import checked
from unlazy._errors import UserError, short
from unlazy._plain import finite_or_none
from unlazy._slopes import Slope, fit_slope
from unlazy._terminal import Progress
from unlazy._types import PRNGKey
from unlazy.data import DataLike, Dataset, as_dataset
from unlazy.flows import Descent
from unlazy.lab.answers import Saved
from unlazy.lab.models import Flows, Make, checked_widths, over_widths, part_of, train
from unlazy.networks import Network, with_fields
from unlazy.probes import TrainLoss

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class RateTransfer(Saved):
    """The loss after a number of steps for several learning rates and widths.

    Attributes
    ----------
    rates, widths
        The learning rates and widths.
    losses
        The final training losses by width, rate and seed; infinite where training diverged.
    best
        The best rate of each width and seed, with the power of the width that was fitted to it.
    settings
        How the model was trained, for the record.
    """

    rates: tuple[float, ...]
    widths: tuple[int, ...]
    losses: np.ndarray
    best: Slope
    settings: dict[str, Any]

    @property
    def _at_ends(self) -> list[int]:
        places = np.argmin(_medians(self.losses), axis=1)
        return [width for width, at in zip(self.widths, places, strict=True) if at in (0, len(self.rates) - 1)]

    @property
    def verdict(self) -> str:
        """The verdict: "TRANSFERS", "DOES NOT TRANSFER" or "UNDECIDED"."""
        if self._at_ends or np.isnan(self.best.exponent):
            return "UNDECIDED"
        if self.best.grows or self.best.vanishes:
            return "DOES NOT TRANSFER"
        return "TRANSFERS" if self.best.stays else "UNDECIDED"

    @property
    def reason(self) -> str:
        """What the verdict rests on, in a sentence."""
        if np.isinf(_medians(self.losses).min(axis=1)).any():
            return "At some width training diverged at all rates: give smaller ones."
        if self._at_ends:
            at = ", ".join(map(str, self._at_ends))
            return f"The best rate is the smallest or the largest one at width {at}: give more rates."
        return f"The best rate is {self.best}."

    def table(self) -> tuple[list[str], list[tuple[str, ...]]]:
        """Return the head and the rows of a table: the median loss at each rate and width; a star marks the least."""
        medians = _medians(self.losses).T  # a row for each rate
        least = medians.argmin(axis=0)
        rows = [
            (f"{rate:.3g}", *(f"{loss:.3g}{'*' if least[k] == at else ''}" for k, loss in enumerate(losses)))
            for at, (rate, losses) in enumerate(zip(self.rates, medians, strict=True))
        ]
        return ["rate", *(f"width {width}" for width in self.widths)], rows

    def plot(self) -> Figure:
        """Draw the loss against the rate, a curve for each width, with its minimum marked."""
        from unlazy.figures import ORDERED, canvas, fit
        from unlazy.figures.style import seed_names

        figure, (axes,) = canvas()
        for index, (width, row) in enumerate(zip(self.widths, self.losses, strict=True)):
            colour, middle = ORDERED[index % len(ORDERED)], _medians(row)
            shown = np.where(np.isfinite(middle), middle, np.nan)
            axes.plot(self.rates, shown, color=colour, label=f"width {width}")
            names = seed_names(f"width {width}", row.T)
            axes.plot(self.rates, np.where(np.isfinite(row), row, np.nan), ".", color=colour, alpha=0.4, label=names)
            if not np.isfinite(middle).all():
                failed = np.asarray(self.rates)[~np.isfinite(middle)]
                place = {"transform": axes.get_xaxis_transform(), "color": colour}
                axes.plot(failed, np.full(failed.size, 0.97 - 0.04 * index), "x", label=f"_{width}, diverged", **place)
            least = int(np.argmin(middle))
            axes.plot(self.rates[least], middle[least], "*", color=colour, markersize=13, label=f"_best at {width}")
        axes.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="training loss")
        if not np.isfinite(_medians(self.losses)).all():
            axes.plot([], [], "kx", label="diverged")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))  # hides no dots
        power = "" if np.isnan(self.best.exponent) else f" (best $\\propto m^{{{self.best.exponent:.2f}}}$)"
        axes.set_title(f"Learning rate: {self.verdict}{power}")
        return fit(figure)

    def to_dict(self) -> dict[str, Any]:
        losses = [[list(map(finite_or_none, one)) for one in row] for row in self.losses]
        answer = {"kind": "rate transfer", "answer": self.verdict, "reason": self.reason, "settings": self.settings}
        measured = {"rates": list(self.rates), "widths": list(self.widths), "losses": losses, "best": self.best.plain()}
        return answer | measured

    def __repr__(self) -> str:
        head, rows = self.table()
        sizes = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, sizes)).rstrip() for row in (head, *rows)]
        return "\n".join([f"{self.verdict}. {self.reason}", *lines])


@checked
def rate_transfer(
    make: Make,
    data: DataLike,
    widths: Sequence[int] = (64, 128, 256, 512),
    rates: Sequence[float] = tuple(2.0**-k for k in range(8, -1, -1)),
    *,
    flow: Flows = None,
    steps: int = 100,
    seeds: int = 3,
    key: PRNGKey | int = 0,
    progress: Progress | None = None,
    saved: Path | str | None = None,
) -> RateTransfer:
    """Train a model at several widths and learning rates, and say whether the best rate depends on the width.

    The best rate of a seed is the minimum of a parabola in the logarithms through the best rate of the list and its
    neighbours.

    Parameters
    ----------
    make, data, widths, seeds, key, progress, saved
        As in `diagnose_widths`; a flow that ``make`` returns must be a `Descent`.
    rates
        At least three increasing learning rates, each a constant factor larger than the one before.
    flow
        The `Descent` that trains the model, or a function from the width to it. Its rate is replaced by each of
        ``rates``.
    steps
        Number of steps.
    """
    data, widths, found = as_dataset(data), checked_widths(widths), tuple(float(rate) for rate in rates)
    if len(found) < 3 or min(found) <= 0 or list(found) != sorted(set(found)):
        raise UserError(f"rates = {short(list(rates))}: give at least three increasing positive rates.")
    if steps < 1:
        raise UserError(f"steps = {steps} is too small: choose at least 1.")

    def measure(networks: list[Network], chosen: Any, samples: Dataset, part: Progress) -> list[list[float]]:
        if not isinstance(chosen, Descent):
            raise UserError(f"Learning rates are those of Descent: give one instead of {type(chosen).__name__}.")
        row = []
        for rate in found:
            one = with_fields(chosen, rate=np.asarray(rate))  # an array: nothing is compiled again
            share = part_of(part, len(row), len(found))
            runs = train(one, networks, samples, [0.0, steps * rate], [TrainLoss()], share)
            row.append([_final(run.observed["train-loss"], run.status.ok) for run in runs])
        return row

    losses, _, chosen, interrupted = over_widths(
        measure, make, data, widths, flow, seeds, key, progress, saved, "rates", steps, found
    )
    if interrupted:
        raise KeyboardInterrupt(interrupted)
    settings = {"data": data.name, "flow": repr(chosen), "steps": steps, "seeds": seeds}
    array = np.asarray(losses, float)
    best = np.array([[_lowest(np.log(found), array[w, :, s]) for s in range(seeds)] for w in range(len(widths))])
    return RateTransfer(found, widths, array, fit_slope(widths, best), settings | {"widths": list(widths)})


def _final(observed: np.ndarray, fine: bool) -> float:
    return float(observed[-1]) if fine and len(observed) == 2 and np.isfinite(observed[-1]) else np.inf


def _medians(losses: np.ndarray) -> np.ndarray:
    """Return the medians over seeds, along the last axis; infinite where half of them are."""
    return np.sort(losses, axis=-1)[..., losses.shape[-1] // 2]


def _lowest(logs: np.ndarray, losses: np.ndarray) -> float:
    """Return the rate at the minimum of a parabola through the smallest loss and its neighbours, in logarithms."""
    at = int(np.argmin(losses))
    if not np.isfinite(losses[at]):
        return np.nan
    around = slice(at - 1, at + 2)
    if 0 < at < len(logs) - 1 and np.isfinite(losses[around]).all() and (losses[around] > 0).all():
        a, b, _ = np.polyfit(logs[around] - logs[at], np.log(losses[around]), 2)
        if a > 0:
            return float(np.exp(logs[at] - b / (2 * a)))
    return float(np.exp(logs[at]))
