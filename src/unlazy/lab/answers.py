"""Answers to "is my network lazy?", and the rules that lead to them.

Exponents of the width are usually multiples of 1/2, so a quantity *vanishes* with the width where the 95 % interval of
its exponent is below -1/4, *grows* where it is above 1/4, *stays* where it is between, and *persists* where it is above
-1/4; the exponent between the two largest widths must not contradict it (`unlazy.lab.Slope`). Relative changes below
1 % at all widths count as no change, whatever their exponent is: it may come from rounding errors, and the linearised
model describes the training. A quantity relative to the size at the start does not count as growing where that size
vanishes.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unlazy._files import write_with_figure
from unlazy._slopes import Slope, fit_slope

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GATHERED = 0.3  # of the pairs of neurons that were not along one line before: nearly three lines in equal shares
SMALL, LARGE = 0.1, 0.5  # of a relative change between two checkpoints
NEGLIGIBLE = 0.01  # of a relative change at all widths
TRIVIAL = 0.01  # of the initial error: a function that has changed by less was hardly trained

_PAIRS = "Fraction of pairs of neurons along one line"


class Answer(enum.Enum):
    """What a model does as it trains."""

    LAZY = "The function changes, but features and tangent kernel change less and less as the width grows."
    FEATURE_LEARNING = "Features and tangent kernel change by an amount that does not vanish as the width grows."
    CONDENSED = "The input weights of a layer's neurons gather along a few lines."
    UNSTABLE = "Sizes or first updates grow with the width, or training diverges."
    TRIVIAL = "The function changes less and less as the width grows."
    UNDECIDED = "The measurements do not decide."

    @property
    def label(self) -> str:
        """The name in words, such as "FEATURE LEARNING"."""
        return self.name.replace("_", " ")


@dataclasses.dataclass(frozen=True)
class Part:
    """The diagnosis of one layer, or of the whole model.

    Attributes
    ----------
    answer
        The regime.
    reason
        What the answer rests on, in a sentence.
    advice
        What would change the answer, or decide it.
    measured
        The quantities that were measured, against the width.
    """

    answer: Answer
    reason: str
    advice: str
    measured: dict[str, Slope]


class Saved(abc.ABC):
    """A result that can be written to a JSON file, drawn, and shown as a table."""

    @abc.abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers and strings, for JSON."""

    @abc.abstractmethod
    def plot(self) -> Figure:
        """Draw everything."""

    @abc.abstractmethod
    def table(self) -> tuple[list[str], list[tuple[str, ...]]]:
        """Return the head and the rows of a table of everything."""

    def save(self, path: Path | str) -> Path:
        """Write everything to a JSON file, and the figure as SVG beside it; `unlazy report` shows both.

        Parameters
        ----------
        path
            The file, whose folder is made where it is missing; its name should end in ``.json``.
        """
        from unlazy.figures import styled

        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        head, rows = self.table()
        drawn = io.StringIO()
        with styled("screen"):  # the same measurements give the same file
            self.plot().savefig(drawn, format="svg", metadata={"Date": None})
        figure = drawn.getvalue()[drawn.getvalue().index("<svg") :].encode()  # without its head: for pages to include
        write_with_figure(path, self.to_dict() | {"table": {"head": head, "rows": rows}}, figure)
        return path


@dataclasses.dataclass(frozen=True)
class Diagnosis(Saved):
    """The regime of a model, and of each of its layers.

    Attributes
    ----------
    whole
        The diagnosis of the whole model.
    layers
        That of each layer, by name.
    settings
        How the model was trained, for the record.
    """

    whole: Part
    layers: dict[str, Part]
    settings: dict[str, Any]

    @property
    def answer(self) -> Answer:
        """The regime of the whole model."""
        return self.whole.answer

    def plot(self) -> Figure:
        """Draw the measured quantities against the width; see `unlazy.figures.draw_widths`."""
        from unlazy.figures import draw_widths

        plots = {
            "Distance from the linearised model": _some(self.whole.measured, "kernel drift", "linearisation error"),
            "Outputs": _some(self.whole.measured, "initial outputs", "first output change", "output change"),
        }
        for quantity, title in (
            ("feature change", "Relative change of each layer"),
            ("initial size", "Size of each layer at the start"),
            ("pairs", _PAIRS),
        ):
            each = {name: part.measured[quantity] for name, part in self.layers.items() if quantity in part.measured}
            if quantity == "pairs":  # a share is not a power of the width
                each = {name: dataclasses.replace(slope, exponent=np.nan) for name, slope in each.items()}
            plots[title] = each
        shown = {title: some for title, some in plots.items() if some}
        figure = draw_widths(f"{self.settings.get('model', 'Model')}: {self.answer.label}", shown)
        for axes in figure.axes:
            if axes.get_title() == _PAIRS:  # a few pairs by chance must not look like many
                axes.set(yscale="linear", ylim=(-0.03, 1.03))
        return figure

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return a row for the whole and for each layer: name, answer, reason, advice."""
        parts = {"whole model": self.whole} | self.layers
        return [(name, part.answer.label, part.reason, part.advice) for name, part in parts.items()]

    def table(self) -> tuple[list[str], list[tuple[str, ...]]]:
        return ["", "answer", "why", "what would change it"], [*self.rows()]

    def to_dict(self) -> dict[str, Any]:
        def plain(part: Part) -> dict[str, Any]:
            measured = {name: slope.plain() for name, slope in part.measured.items()}
            return {"answer": part.answer.label, "reason": part.reason, "advice": part.advice, "measured": measured}

        layers = {name: plain(part) for name, part in self.layers.items()}
        return {"kind": "diagnosis", **plain(self.whole), "layers": layers, "settings": self.settings}

    def __repr__(self) -> str:
        lines = [f"{name}: {answer}. {reason} {advice}".rstrip() for name, answer, reason, advice in self.rows()]
        return "\n".join(lines)


def _some(measured: Mapping[str, Slope], *names: str) -> dict[str, Slope]:
    return {name: measured[name] for name in names if name in measured}


# ---------------------------------------------------------------- several widths


def judged(measured: Mapping[str, Slope], settings: dict[str, Any]) -> Diagnosis:
    """Judge a model from what was measured at several widths.

    Names are those of a quantity of the whole model, "kernel drift", or of a layer, "layer: feature change".
    """
    whole, each = _by_layer(measured)
    layers = {name: _layer(slopes) for name, slopes in each.items()}
    return Diagnosis(_whole(whole, layers), layers, settings)


def _by_layer(measured: Mapping[str, Slope]) -> tuple[dict[str, Slope], dict[str, dict[str, Slope]]]:
    """Divide measurements into those of the whole model and those of each layer."""
    whole: dict[str, Slope] = {}
    each: dict[str, dict[str, Slope]] = {}
    for name, slope in measured.items():
        layer, found, quantity = name.rpartition(": ")
        (each.setdefault(layer, {}) if found else whole)[quantity] = slope
    return whole, each


_ONE_WIDTH = "Laziness is a statement about growing width, and there is only one width."
_MORE = "Give at least three widths, each twice the one before."
_LAZIER = "A larger multiplier of the last layer, with smaller learning rates, makes it lazier."
_LESS_LAZY = "A smaller multiplier of the last layer, with larger learning rates, changes that."
_FROM_ZERO = "Its pre-activations are 0 at the start, so that its relative change is infinite."
_NO_MORE = "Its input weights have not gathered along lines, and nothing else was measured."


def _gathered(slopes: dict[str, Slope]) -> Part | None:
    pairs, start = slopes.get("pairs"), slopes.get("pairs at the start")
    if pairs is None or start is None or not pairs.last - start.last >= GATHERED * (1 - start.last) > 0:
        return None  # in few dimensions many pairs are near one line by chance
    reason = f"{100 * pairs.last:.0f} % of pairs of neurons lie along one line (at the start {100 * start.last:.0f} %)."
    return Part(Answer.CONDENSED, reason, "A larger initialisation prevents it.", slopes)


def _layer(slopes: dict[str, Slope]) -> Part:
    gathered, change = _gathered(slopes), slopes.get("feature change")
    if gathered is not None:
        return gathered
    if change is None:
        return Part(Answer.UNDECIDED, _NO_MORE, "", slopes)
    if len(change.widths) < 2:
        return Part(Answer.UNDECIDED, _ONE_WIDTH, _MORE, slopes)
    size, first = slopes["initial size"], slopes["first change"]
    if size.grows:
        advice = "Its initialisation or multiplier has to fall faster with the width."
        return Part(Answer.UNSTABLE, f"Its size at the start is {size}.", advice, slopes)
    for what, relative in (("change in the first step", first), ("relative change", change)):
        if relative.grows and not size.vanishes:
            advice = "Its learning rate has to fall faster with the width."
            return Part(Answer.UNSTABLE, f"Its {what} is {relative}.", advice, slopes)
    if np.isinf(change.values).any():
        return Part(Answer.UNDECIDED, _FROM_ZERO, "Start it from small random weights.", slopes)
    if not np.isfinite(change.values).all():
        reason = f"Training diverged (runs by width: {_failed(change)}), so that its change is not known."
        return Part(Answer.UNDECIDED, reason, "", slopes)
    reason = f"Its relative change is {change}."
    if _negligible(change) or change.vanishes:
        return Part(
            Answer.LAZY, reason, "A larger learning rate of this layer, or a smaller last layer, changes that.", slopes
        )
    if change.stays:
        advice = "A learning rate of this layer that falls with the width makes it lazy."
        return Part(Answer.FEATURE_LEARNING, reason, advice, slopes)
    if change.persists and size.vanishes:
        reason += f" Its size at the start is {size}."
        advice = "An initialisation or multiplier that falls more slowly keeps its size at the start."
        return Part(Answer.FEATURE_LEARNING, reason, advice, slopes)
    return Part(Answer.UNDECIDED, reason, "More seeds, or more and larger widths, narrow the interval.", slopes)


def _negligible(*changes: Slope) -> bool:
    return all(bool(np.max(one.values) < NEGLIGIBLE) and not one.grows for one in changes)


def _failed(slope: Slope) -> str:
    """Return how many runs failed at each width where any did."""
    failed = np.sum(~np.isfinite(slope.values), axis=1)
    return ", ".join(f"{count} at {width}" for width, count in zip(slope.widths, failed, strict=True) if count)


def _whole(slopes: dict[str, Slope], layers: Mapping[str, Part]) -> Part:
    moved, drift, error = (slopes[name] for name in ("output change", "kernel drift", "linearisation error"))
    if not np.isfinite(moved.values).all():
        first_fine = np.isfinite(moved.values[0]).all()
        advice = "The learning rate has to fall with the width." if first_fine else "Lower the learning rate."
        return Part(Answer.UNSTABLE, f"Training diverged (runs by width: {_failed(moved)}).", advice, slopes)
    if len(drift.widths) < 2:
        return Part(Answer.UNDECIDED, _ONE_WIDTH, _MORE, slopes)
    initial, first = slopes["initial outputs"], slopes["first output change"]
    if initial.grows:
        advice = "The initialisation or the multiplier of the last layer has to fall faster with the width."
        return Part(Answer.UNSTABLE, f"Outputs at the start are {initial}.", advice, slopes)
    if first.grows:
        advice = "The learning rate has to fall faster with the width."
        return Part(Answer.UNSTABLE, f"Outputs change in the first step by {first}.", advice, slopes)
    for answer in (Answer.UNSTABLE, Answer.CONDENSED):
        if answer is Answer.CONDENSED and moved.vanishes:
            advice = "A larger learning rate, or a longer training, changes that."
            return Part(Answer.TRIVIAL, f"Outputs change by {moved} of the initial error.", advice, slopes)
        for name, part in layers.items():
            if part.answer is answer:
                return Part(answer, f"Layer {name}: {part.reason}", part.advice, slopes)
    if moved.last < TRIVIAL:
        reason = f"Outputs have changed by only {100 * moved.last:.2g} % of the initial error."
        return Part(Answer.UNDECIDED, reason, "Train longer, or at a larger rate.", slopes)
    return _by_kernel(drift, error, slopes)


def _by_kernel(drift: Slope, error: Slope, slopes: dict[str, Slope]) -> Part:
    if not np.isfinite(error.values).all():
        reason = f"The linearised model diverges (runs by width: {_failed(error)}); the kernel drift is {drift}."
        if drift.persists:
            return Part(Answer.FEATURE_LEARNING, reason, _LAZIER, slopes)
        return Part(Answer.UNDECIDED, reason, "Lower the learning rate, so that both can be compared.", slopes)
    reason = f"The kernel drift is {drift}, the linearisation error {error}."
    if _negligible(drift, error) or (drift.vanishes and error.vanishes):
        return Part(Answer.LAZY, reason, _LESS_LAZY, slopes)
    if drift.persists and error.persists and not (_negligible(drift) or _negligible(error)):
        return Part(Answer.FEATURE_LEARNING, reason, _LAZIER, slopes)
    gone = [one.vanishes or _negligible(one) for one in (drift, error)]
    if gone[0] != gone[1] and (error if gone[0] else drift).persists:
        left, other = ("linearisation error", "kernel drift") if gone[0] else ("kernel drift", "linearisation error")
        reason += f" The {other} vanishes and the {left} does not."
        return Part(Answer.UNDECIDED, reason, "Larger widths, or a longer training, show which of them lasts.", slopes)
    return Part(Answer.UNDECIDED, reason, "More seeds, or more and larger widths, narrow the intervals.", slopes)


# ---------------------------------------------------------------- one width


def judged_once(measured: Mapping[str, float], settings: dict[str, Any]) -> Diagnosis:
    """Judge two checkpoints of one training: relative changes below 10 % are small, above 50 % large."""
    whole, each = _by_layer({name: fit_slope([1], np.array([[value]])) for name, value in measured.items()})
    layers = {name: _layer_once(slopes) for name, slopes in each.items()}
    return Diagnosis(_whole_once(whole, layers), layers, settings)


_OF_ONE_WIDTH = "This is one training at one width; diagnose(make, data, widths) shows how it depends on the width."


def _layer_once(slopes: dict[str, Slope]) -> Part:
    gathered = _gathered(slopes)
    if gathered is not None:
        return gathered
    if "feature change" not in slopes:
        return Part(Answer.UNDECIDED, _NO_MORE, "", slopes)
    change = slopes["feature change"].last
    if not np.isfinite(change):
        return Part(Answer.UNDECIDED, _FROM_ZERO if np.isinf(change) else "Its change is not a number.", "", slopes)
    reason = f"Its pre-activations changed by {100 * change:.2g} % of their size."
    return Part(_by_size(change), reason, "", slopes)


def _by_size(change: float) -> Answer:
    return Answer.LAZY if change < SMALL else Answer.FEATURE_LEARNING if change > LARGE else Answer.UNDECIDED


def _whole_once(slopes: dict[str, Slope], layers: Mapping[str, Part]) -> Part:
    drift, error, moved = (slopes[name].last for name in ("kernel drift", "linearisation error", "output change"))
    if not np.isfinite([drift, error, moved]).all():
        return Part(Answer.UNSTABLE, "A measurement is not finite.", "Lower the learning rate.", slopes)
    if moved < TRIVIAL:
        reason = f"Outputs changed by only {100 * moved:.2g} % of the initial error."
        return Part(Answer.TRIVIAL, reason, "A longer training, or a larger rate, changes that.", slopes)
    gathered = [name for name, part in layers.items() if part.answer is Answer.CONDENSED]
    if gathered:
        return Part(Answer.CONDENSED, f"Layer {gathered[0]}: {layers[gathered[0]].reason}", _OF_ONE_WIDTH, slopes)
    reason = f"The kernel changed by {100 * drift:.2g} %, and linearisation leaves {100 * error:.2g} % unexplained."
    return Part(_by_size(max(drift, error)), reason, _OF_ONE_WIDTH, slopes)
