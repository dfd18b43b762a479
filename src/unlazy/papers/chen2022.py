"""Chen, Vanden-Eijnden, Bruna (2022): On feature learning in neural networks with global convergence guarantees."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from unlazy.lab import Lab, Recipe
from unlazy.papers._base import Claim, Panel, Results, Scale, check_finished
from unlazy.papers._figure import band, canvas

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

PAPER = {
    "key": "chen2022",
    "title": "On feature learning in neural networks with global convergence guarantees",
    "authors": "Zhengdao Chen, Eric Vanden-Eijnden, Joan Bruna",
    "venue": "ICLR 2022",
}


@dataclass(frozen=True)
class _Sizes:
    widths: tuple[int, int]  # of figure 5 and of figure 1
    end: float
    seeds: int


_RANDOM_LABELS: dict[Scale, _Sizes] = {
    "quick": _Sizes(widths=(512, 1024), end=20_000.0, seeds=3),
    "paper": _Sizes(widths=(4096, 8192), end=50_000.0, seeds=5),
}
_SAMPLES = (20, 40, 80, 160)
_FLOOR = 1e-6  # a decay is judged until the loss has fallen by this factor: above rounding and solver error
_STRAIGHT = 0.95  # share of the variance of log-loss that a straight line must explain to be called near-linear
_AGREE = 0.05  # two curves agree if they lie within this share of their own height: about what an eye can tell


def _times(end: float) -> list[float]:
    """Look often while the fast curves fall, less often later."""
    return [*map(float, range(0, 5000, 100)), *map(float, range(5000, int(end) + 1, 500))]


class RandomLabels(Panel):
    """Figures 1 and 5: training loss of a shallow mean-field network on random labels, for several n.

    Both figures run both widths, so that each can say whether they agree; what one has run, the other finds stored.
    """

    def __init__(self, figure: str, wider: bool) -> None:
        self.key = f"chen2022/{figure}"
        self.wider = wider
        self.demo = wider
        half = "" if wider else ", at half the width"
        self.title = f"Figure {figure.removeprefix('fig')}: training loss on random labels{half}"

    @property
    def scales(self) -> dict[Scale, str]:
        """Widths, horizon and seeds."""
        return {
            scale: f"m = {sizes.widths[self.wider]} (beside {sizes.widths[not self.wider]}), n = 20 to 160, "
            f"t = {sizes.end:,.0f}, {sizes.seeds} seeds"
            for scale, sizes in _RANDOM_LABELS.items()
        }

    @property
    def caption(self) -> str:
        """What is shown, and what was chosen."""
        return (
            "Mean training loss of f(x) = (1/m) Σ c_i tanh(w_i·x/√d), d = 20, on random labels, along gradient "
            "flow; one unit of t is one of the paper's GD steps (step size 1, loss averaged over samples). Thick "
            "lines are medians over seeds, thin ones the seeds; the paper draws means, which the slowest seed "
            "carries. The paper names n = 20 and 40 only; 80 and 160 are our choice of 'larger'."
        )

    def recipe(self, scale: Scale, width: int, n: int, seeds: int | None) -> Recipe:
        """Give the recipe of one curve; data depend on seed and n only, so widths are compared on equal data."""
        sizes = _RANDOM_LABELS[scale]
        return Recipe(
            name=f"chen2022 random labels m={width} n={n}",
            data={"kind": "random-labels", "n": n, "d": 20},
            network={"kind": "two-layer", "width": width, "activation": "tanh", "scaling": "mean-field"},
            flow={"kind": "runge-kutta", "rtol": 1e-6, "atol": 1e-8},
            times=_times(sizes.end),
            probes=["train-loss"],
            seeds=seeds or sizes.seeds,
        )

    def run(self, scale: Scale, lab: Lab, seeds: int | None = None) -> Results:
        """Run every n at both widths."""
        widths = sorted(_RANDOM_LABELS[scale].widths, reverse=self.wider)
        return {f"m={m} n={n}": lab.run(self.recipe(scale, m, n, seeds)) for m in widths for n in _SAMPLES}

    def claims(self, results: Results) -> list[Claim]:
        """Linear decay for small n, slower for larger n, and the same at both widths."""
        check_finished(results)
        shown, other = _widths(results)
        fits = {n: decay(results[f"m={shown} n={n}"]) for n in _SAMPLES}
        rates = {n: float(np.median(rate)) for n, (rate, _) in fits.items()}
        straight = {n: float(np.median(share)) for n, (_, share) in fits.items()}
        apart = {n: _distance(results[f"m={shown} n={n}"], results[f"m={other} n={n}"]) for n in _SAMPLES}
        return [
            Claim(
                text=f"n = 20 and 40: log-loss falls linearly in t (median R² over seeds >= {_STRAIGHT}, down to "
                f"{_FLOOR:g} of the start)",
                paper="the convergence happens at a nearly linear rate when n = 20 and 40",
                measured=", ".join(f"n = {n}: R² = {straight[n]:.3f}" for n in _SAMPLES),
                holds=all(rates[n] > 0 and straight[n] >= _STRAIGHT for n in (20, 40)),
            ),
            Claim(
                text="the fitted rate (median over seeds) falls as n grows",
                paper="the rate decreases as n becomes larger",
                measured=", ".join(f"n = {n}: {rates[n]:.2e}" for n in _SAMPLES),
                holds=all(rates[a] > rates[b] for a, b in pairwise(_SAMPLES)),
            ),
            Claim(
                text=f"m = {shown} and m = {other} agree: log-losses differ by less than {_AGREE:.0%} of their fall "
                "(median over seeds and times)",
                paper="Figure 5 is the same as Figure 1 except for having m = 4096: the two plots agree well",
                measured=", ".join(f"n = {n}: {apart[n]:.2%}" for n in _SAMPLES),
                holds=all(share < _AGREE for share in apart.values()),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        """Loss against t on a logarithmic axis, a line for each n."""
        figure, (axes,) = canvas()
        shown, _ = _widths(results)
        for index, n in enumerate(_SAMPLES):
            run = results[f"m={shown} n={n}"]
            band(axes, run["time"].values, run["train-loss"].values, index, f"n = {n}")
        axes.set_yscale("log")
        axes.set_ylim(bottom=1e-14)
        axes.set_xlabel("t (GD steps of size 1)")
        axes.set_ylabel("training loss, mean of ½ (f - y)²")
        axes.set_title(f"chen2022, experiment 1: random labels, d = 20, m = {shown}", fontsize=10)
        axes.legend()
        return figure


def _widths(results: Results) -> tuple[int, int]:
    shown, other = dict.fromkeys(int(label.split()[0].removeprefix("m=")) for label in results)
    return shown, other


def _window(loss: np.ndarray) -> np.ndarray:
    """Mark the decay: every time before the loss has first fallen to `_FLOOR` of its start."""
    below = np.flatnonzero(loss <= _FLOOR * loss[0])
    return np.arange(len(loss)) < max(3, below[0] if below.size else len(loss))


def decay(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Fit log-loss = const - rate t seed by seed: rates, and the share R² of its variance that the line explains.

    The fit is over evenly spaced t, so that times looked at more often do not count for more.
    """
    times = run["time"].values
    rates, shares = [], []
    for loss in run["train-loss"].values:
        inside = _window(loss)
        t = np.linspace(0.0, times[inside][-1], 200)
        log = np.interp(t, times[inside], np.log(loss[inside]))
        slope, offset = np.polyfit(t, log, 1)
        rates.append(-slope)
        spread = np.var(log)
        shares.append(1 - np.var(log - slope * t - offset) / spread if spread > 0 else 0.0)  # a standstill is no decay
    return np.array(rates), np.array(shares)


def _distance(one: xr.Dataset, other: xr.Dataset) -> float:
    """Median difference of log-losses, as a share of how far they fall while both are judged."""
    shares = []
    for a, b in zip(one["train-loss"].values, other["train-loss"].values, strict=True):
        both = _window(a) & _window(b)
        fall = np.ptp(np.log(a[both]))
        shares.append(np.median(np.abs(np.log(a[both] / b[both]))) / fall if fall > 0 else np.inf)
    return float(np.median(shares))


fig1 = RandomLabels("fig1", wider=True)
fig5 = RandomLabels("fig5", wider=False)
