"""Figure 2: low rank against full rank at equal steps, and plain SGD against momentum."""

from dataclasses import replace

import numpy as np
import xarray as xr

from unlazy.figures import band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import even_steps, label_axes, median_range, plural
from unlazy.papers.aiad2026 import authors
from unlazy.papers.aiad2026.setting import STAGNATION, Setting, epochs_of, low_rank, sgd, trained
from unlazy.papers.outcomes import Judgement, certain, increases, near, together
from unlazy.papers.references import Reference

_RANK, _BATCH = 10, 4
_SCALES: dict[Scale, Setting] = {
    "quick": Setting(width=256, rank=_RANK, n=500, batch=_BATCH, epochs=100, observed=41, seeds=2),
    "paper": Setting(width=1024, rank=_RANK, n=5000, batch=_BATCH, epochs=250, observed=51, seeds=2),
}
_MOMENTA = (0.0, 0.3, 0.6, 0.7)
_PRINTED = 1024  # the paper's width
_ENDS = (-6, -5)  # exponents of ten of the MSEs that section 1 gives for low and for full rank
_TWICE = 2.0

FULL = "full rank"


def label(momentum: float | None) -> str:
    """Return the label of the run with a momentum; None is full rank with plain SGD."""
    if momentum is None:
        return FULL
    return f"low rank, momentum {momentum:g}" if momentum else "low rank, plain SGD"


class LowAgainstFull(Panel):
    """Figure 2: training loss of low rank under four momenta, and of full rank."""

    key = "aiad2026/fig2"
    title = "Figure 2: low rank against full rank, and momenta"
    may_diverge = True
    scales = by_scale(_SCALES, lambda s: f"width {s.width}, n = {s.n:,}, {s.epochs} epochs, {plural(s.seeds)}")
    caption = (
        f"Mean squared error on y = cos(2πx), minimised by SGD with batches of {_BATCH}, gradients clipped to norm 1 "
        "and the rate 0.01, which falls to 0.005, 0.001, 0.0005 and 0.0001 whenever the mean loss of ten epochs is not "
        "below that of the ten before (at least 20 epochs apart). Three blocks with frozen random features and rank "
        f"{_RANK} with four momenta (v ← ηv + g), and the same frozen network with as many channels as neurons, which "
        "is what the authors' public code calls full rank. All settings are those of that code. There, low rank is "
        "trained for 250 epochs and full rank for 1,000 (the figure shows 800); here all are trained for the same "
        "number, and compared at the last epoch. A seed that diverges counts as an infinite loss. All start uniform in "
        "±1/√fan-in. Thick lines are medians over seeds."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _SCALES[scale]
        return {
            label(momentum): s.recipe(
                f"fig2 {label(momentum)}",
                seeds,
                even_steps(s.epochs * s.epoch, s.observed),
                sgd(s.batch, momentum or 0.0) | {"schedule": STAGNATION},
                data=s.cosine,
                network=low_rank(s.blocks, s.width, s.width if momentum is None else s.rank),
                probes=["train-loss"],
            )
            for momentum in (*_MOMENTA, None)
        }

    def claims(self, results: Results) -> list[Claim]:
        low, full = results[label(0.0)], results[FULL]
        counts = [trained(option(run, "network")) for run in (low, full)]
        fewer, printed = 1 - counts[0] / counts[1], option(low, "network.widths.0") == _PRINTED
        ratio = np.median(_end(low)) / np.median(_end(full))
        between = ""
        if not (_diverged(low).any() or _diverged(full).any()):
            later = epochs_of(low) >= 1
            along = (np.median(low["train-loss"].values, axis=0) / np.median(full["train-loss"].values, axis=0))[later]
            between = f"; from the first epoch on between {along.min():.2g} and {along.max():.2g} times"
        ends = {momentum: _end(results[label(momentum)]) for momentum in _MOMENTA}
        errors = f"MSE {median_range(_end(low))} against {median_range(_end(full))}"
        comparable = Claim(
            text="after as many steps, low rank ends at a loss that is not above that of full rank",
            paper="comparable or better training loss",
            measured=f"{errors}: {ratio:.2g} times{between}",
            judged=_below(_end(low), _end(full), paired=False),
        )
        found = [
            Claim(
                text="low rank trains 99 % fewer parameters than full rank, to the nearest per cent"
                if printed
                else f"low rank trains at least 95 % fewer parameters than full rank (99 % requires width {_PRINTED})",
                paper="low-rank uses 99% fewer parameters",
                measured=f"{counts[0]:,} against {counts[1]:,} parameters: {fewer:.2%} fewer",
                judged=certain(round(100 * fewer) >= (99 if printed else 95), "number of parameters"),
                weaker=not printed,
            ),
            comparable,
            replace(
                comparable,
                text=f"after as many steps, low rank ends below {_TWICE:g} times the loss of full rank",
                judged=_below(_end(low), _TWICE * _end(full), paired=False),
                weaker=True,
            ),
            Claim(
                text="low rank: plain SGD ends at a lower loss than SGD with each of the momenta",
                paper="vanilla SGD performs best",
                measured=", ".join(
                    f"η = {momentum:g}: {median_range(loss)}{_diverged_in_words(results[label(momentum)])}"
                    for momentum, loss in ends.items()
                ),
                judged=together(_below(ends[0.0], loss, paired=True) for momentum, loss in ends.items() if momentum),
            ),
        ]
        return [*found, _orders(low, full, errors)] if printed else found

    def references(self, results: Results) -> list[Reference]:
        runs = {momentum: results[label(momentum)] for momentum in (*_MOMENTA, None)}
        same = option(runs[0.0], "network.widths") == authors.WIDTHS and option(runs[0.0], "data.n") == authors.SAMPLES
        why = "" if same else "the authors have three blocks of 1,024 neurons and 5,000 samples: only measured"
        return authors.figure_2({one: (epochs_of(run), run["train-loss"].values) for one, run in runs.items()}, why)

    def draw(self, results: Results) -> Figure:
        figure, (axes,) = canvas(1, 6.8, 4.2)
        for index, (name, run) in enumerate(results.items()):
            losses, lost = run["train-loss"].values, _diverged(run)
            # A seed that diverges leaves the figure, but not the median of the others.
            shown = np.where(np.isfinite(losses), losses, np.nan) if lost.all() else losses[~lost]
            band(axes, epochs_of(run), shown, index, name + _diverged_in_words(run))
        some = next(iter(results.values()))
        axes.set_yscale("log")
        axes.set_ylim(top=3 * float(some["train-loss"].values[:, 0].max()))  # what diverges leaves the figure
        label_axes(axes, "epoch", f"aiad2026, cos(2πx), width {option(some, 'network.widths.0')}: MSE", legend=8)
        return figure


def _below(first: np.ndarray, second: np.ndarray, paired: bool) -> Judgement:
    """Judge that losses ``first`` are lower; a run that diverges in every seed is worse than one that never does."""
    lost = [np.isinf(one) for one in (first, second)]
    if lost[0].all() != lost[1].all() and not (lost[0].any() and lost[1].any()):
        agree = second.size if lost[1].all() else 0
        return replace(certain(agree > 0, "one of the two diverges in every seed"), agree=agree, seeds=second.size)
    return increases(first, second, paired=paired, log=True)


def _orders(low: xr.Dataset, full: xr.Dataset, errors: str) -> Claim:
    """Compare with the two MSEs of section 1, to the nearest power of ten."""
    ends = [np.log10(np.minimum(_end(run), 1e300)) for run in (low, full)]
    return Claim(
        text="low rank ends at an MSE of 1e-6 and full rank at 1e-5, to the nearest power of ten",
        paper="MSE ~ 1e-6, compared to approximately 1e-5 for full rank networks",
        measured=f"{errors}, after {epochs_of(low)[-1]:,.0f} epochs",
        judged=together(near(end, exponent, 0.5) for end, exponent in zip(ends, _ENDS, strict=True)),
    )


def _diverged(run: xr.Dataset) -> np.ndarray:
    """Return which seeds diverged."""
    return np.atleast_1d(np.asarray(run.attrs["status"])) == "diverged"


def _diverged_in_words(run: xr.Dataset) -> str:
    lost = _diverged(run)
    return f" ({lost.sum()} of {plural(lost.size)} diverged)" if lost.any() else ""


def _end(run: xr.Dataset) -> np.ndarray:
    """Return the MSE at the end of each seed, infinite where it diverged."""
    return np.where(_diverged(run), np.inf, run["train-loss"].values[:, -1])
