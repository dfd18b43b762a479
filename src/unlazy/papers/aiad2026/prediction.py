"""Figure 7: a highly oscillating target, learnt at low rank and at full rank."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import label_axes, log_steps, median_range, plural
from unlazy.papers.aiad2026 import setting
from unlazy.papers.aiad2026.probes import spectrum
from unlazy.papers.aiad2026.setting import LINE, Pair, Setting, at_epoch, curve, epochs_of, spelled, target_of, trained
from unlazy.papers.outcomes import increases, near

_SCALES: dict[Scale, Setting] = {
    "quick": setting.SMALL_CHIRP,
    "paper": Setting(blocks=5, width=1024, rank=50, n=1000, n_test=1234, batch=100, epochs=10_000, seeds=2),
}
_SHORT = 10  # "all runs" in Table 4 have this many times the epochs of Table 2 for this figure
_FLOOR, _CEILING = 1e-8, 1e-4  # the paper's band of MSEs
_EASIER = 1e-3  # the MSE that is required at quick scale
_FREQUENCIES = 60

FROZEN, TRAINED, FULL = "RF-LR", "LR only", "full rank"


def _in_words(s: Setting) -> str:
    size = f"width {s.width}, r = {s.rank}, {spelled(s.pair)}, n = {s.n:,}, {s.epochs:,} epochs, {plural(s.seeds)}"
    return size if s == _SCALES["quick"] else f"{size}, full rank {s.epochs // _SHORT:,} epochs"


def target(pair: Pair, x: np.ndarray) -> np.ndarray:
    """Return cos(f_1 π x²) - 0.8 cos(f_2 π x²)."""
    return np.cos(pair[0] * np.pi * x**2) - 0.8 * np.cos(pair[1] * np.pi * x**2)


class Prediction(Panel):
    """Figure 7: prediction against target, errors over training, and frequencies."""

    key = "aiad2026/fig7"
    title = "Figure 7: predictions of a highly oscillating target"
    scales = by_scale(_SCALES, _in_words)
    caption = (
        "Five blocks (four layers) on cos(f_1 πx²) - 0.8 cos(f_2 πx²), by Adam with batches, the rate 1e-3 falling by "
        "a factor of 0.9 every 100 epochs (8 at quick scale) and gradients clipped to norm 1 (Table 4). Left: the "
        "predictions of low rank at the end. Middle: errors on the test set over training; dotted: the epochs of Table "
        "2, a tenth of those of Table 4. The paper's caption says RF-LR (frozen features), but Table 2 says that "
        "features are trained: both are run, beside ordinary dense layers for the epochs of Table 2. Right: amplitude "
        "of cos(πqx) in the output of RF-LR over training, as a share of that in the target, by frequency q. Thick "
        "lines are medians over seeds."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return all three networks; dense layers for a tenth of the epochs."""
        s = _SCALES[scale]
        short = s.epochs // _SHORT
        runs = [(FROZEN, s), (TRAINED, s), (FULL, replace(s, epochs=short))]
        probes = ["train-loss", "test-loss", {"kind": "channel-spectrum", "frequencies": _FREQUENCIES}]
        found = {}
        for name, s in runs:
            low = setting.low_rank(s.blocks, s.width, s.rank, frozen=name != TRAINED)
            found[f"{name} {spelled(s.pair)}"] = s.recipe(
                f"chirp {spelled(s.pair)} {name.replace(',', '')}",
                seeds,
                [s.epoch * one for one in sorted({short, *log_steps(s.epochs, s.observed, first=5)})],
                setting.adam(s.n, s.batch, s.every),
                data=s.chirp,
                network=setting.full_rank(s.blocks, s.width) if name == FULL else low,
                probes=[*probes, setting.CHANNELS],
            )
        return found

    def claims(self, results: Results) -> list[Claim]:
        _, main, short = _runs(results)
        found = [_in_band(main[name], name, epoch) for epoch in (None, short) for name in (FROZEN, TRAINED)]
        return [*found, *_better(main, short), _low_first(main[FROZEN])]

    def draw(self, results: Results) -> Figure:
        pair, main, short = _runs(results)
        figure, axes = canvas(3, 14.0, 3.8)
        axes[0].plot(LINE, target(pair, LINE), color=ORDERED[0], linewidth=1.6, label="target")
        for index, name in ((1, FROZEN), (2, TRAINED)):
            prediction = main[name][f"channels.block-{setting.blocks_of(main[name])}"].values[0, :, 0]
            curve(axes[0], LINE, prediction, index, name, linestyle="--")
        axes[0].legend(fontsize=7, loc="upper right")
        label_axes(axes[0], "x", f"{spelled(pair)}: target and predictions")
        for index, (name, run) in enumerate(main.items()):
            band(axes[1], epochs_of(run)[1:], run["test-loss"].values[:, 1:], index, name)
        axes[1].axvline(short, color="0.5", linestyle=":", linewidth=1.0)
        axes[1].axhspan(_FLOOR, _CEILING, color="0.5", alpha=0.12)
        label_axes(axes[1], "epoch", "test MSE (grey: the paper's band)", legend=7, xscale="log", yscale="log")
        shares = _shares(main[FROZEN])[0][0]
        for index, q in enumerate(sorted({int(q) for q in np.linspace(2, shares.shape[1] - 1, 6).round()})):
            curve(axes[2], epochs_of(main[FROZEN])[1:], shares[1:, q], index, f"q = {q}")
        label_axes(axes[2], "epoch", "share of cos(πqx) learnt, RF-LR", legend=7, xscale="log", ylim=(0, 1.6))
        return figure


def _runs(results: Results) -> tuple[Pair, dict[str, xr.Dataset], float]:
    """Return the target, the runs by network, and the epochs of full rank, at which all are compared."""
    pair = target_of(next(iter(results.values())))
    runs = {name: results[f"{name} {spelled(pair)}"] for name in (FROZEN, TRAINED, FULL)}
    return pair, runs, float(epochs_of(runs[FULL])[-1])


def _amplitudes(values: np.ndarray) -> np.ndarray:
    """Compute the amplitudes a_q of a function on the line, as `ChannelSpectrum` does."""
    return np.asarray(spectrum(jnp.asarray(values)[:, None], LINE, _FREQUENCIES), float)[:, 0]


def _shares(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return amplitudes in the output over those in the target, (seeds, times, frequencies), and the latter alone."""
    pair = target_of(run)
    count = min(_FREQUENCIES, round(2 * pair[0])) + 1  # the frequencies of a chirp go up to its slope at 1, 2 f_1
    wanted = _amplitudes(target(pair, LINE))[:count]
    amplitudes = run[f"channel-spectrum.block-{setting.blocks_of(run)}"].values[:, :, :count, 0]
    return amplitudes / np.maximum(wanted, 1e-3), wanted


def _in_band(run: xr.Dataset, name: str, epoch: float | None) -> Claim:
    place, pair = -1 if epoch is None else at_epoch(run, epoch), target_of(run)
    train, test = run["train-loss"].values[:, place], run["test-loss"].values[:, place]
    when = "at the end" if epoch is None else f"after {epoch:,.0f} epochs, as in Table 2,"
    quick = pair == _SCALES["quick"].pair
    band = f"below {_EASIER:g}, on an easier target" if quick else f"between {_FLOOR:g} and {_CEILING:g}"
    middle, half = (np.log10(_CEILING * _FLOOR) / 2, np.log10(_CEILING / _FLOOR) / 2)
    return Claim(
        text=f"{name} on {spelled(pair)}: the training MSE {when} is {band}",
        paper="RF-LR MSEs are within 1e-8 to ~1e-4",
        measured=f"training {median_range(train)}, test {median_range(test)}, after {epochs_of(run)[place]:,.0f} "
        f"epochs with {trained(option(run, 'network')):,} trained parameters",
        judged=near(train, 0.0, _EASIER) if quick else near(np.log10(np.maximum(train, 1e-300)), middle, half),
        weaker=quick,
    )


def _better(runs: dict[str, xr.Dataset], epoch: float) -> list[Claim]:
    ends = {name: run["test-loss"].values[:, at_epoch(run, epoch)] for name, run in runs.items()}
    counts = {name: trained(option(runs[name], "network")) for name in ends}
    best = np.minimum(ends[FROZEN], ends[TRAINED])
    measured = "; ".join(
        f"{name}: {median_range(end)} with {counts[name] / counts[FULL]:.1%} of the parameters"
        for name, end in ends.items()
    )
    strict = Claim(
        text=f"RF-LR has a lower test MSE than full rank after as many epochs ({epoch:,.0f})",
        paper="on highly oscillatory functions, low-rank networks achieve significantly higher accuracy, with 95%-99% "
        "fewer parameters",
        measured=measured,
        judged=increases(ends[FROZEN], ends[FULL], log=True),
    )
    either = "so does the better of RF-LR and LR only, which has more trained parameters"
    return [strict, replace(strict, text=either, judged=increases(best, ends[FULL], log=True), weaker=True)]


def _low_first(run: xr.Dataset) -> Claim:
    shares, wanted = _shares(run)
    epochs = epochs_of(run)
    clear = np.flatnonzero(wanted > 0.3 * wanted.max())
    low, high = clear[clear <= np.median(clear)], clear[clear > np.median(clear)]

    def learnt(which: np.ndarray) -> np.ndarray:
        """Return the first observed epoch, by seed, at which half of the energy at these frequencies is learnt."""
        there = np.mean((shares[:, :, which] * wanted[which]) ** 2, axis=2) / np.mean(wanted[which] ** 2) >= 0.5
        return np.where(there.any(axis=1), epochs[np.argmax(there, axis=1)], np.inf)

    first, last = learnt(low), learnt(high)
    return Claim(
        text="RF-LR learns both halves of the target's frequencies (half of their energy), the lower half first",
        paper="lower frequencies are captured first, higher ones progressively",
        measured=f"q = {low[0]} to {low[-1]} by epoch {median_range(first)}, q = {high[0]} to {high[-1]} by epoch "
        f"{median_range(last)}",
        judged=near((first < last) & np.isfinite(last), 1.0, 0.0),
    )
