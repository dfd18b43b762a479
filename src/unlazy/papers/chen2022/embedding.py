"""Experiment 2: with a good embedding, a shallow network needs fewer samples."""

import itertools
from collections.abc import Sequence

import numpy as np
import xarray as xr

from unlazy.figures import band
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale
from unlazy.papers._curves import mean_sd, titled_canvas
from unlazy.papers.chen2022 import curves
from unlazy.papers.chen2022.curves import AGREE, arranged, end_error, sizes_of
from unlazy.papers.outcomes import increases, near, together

_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(widths=(512, 2048), samples=(100, 200, 300), end=10_000.0, seeds=3),
    "paper": Sizes(widths=(2048, 8192), samples=(100, 200, 400, 600), end=50_000.0, seeds=5),
}
_MODELS = {
    "augmented": {"scaling": "mean-field", "embedding": "quadratic"},
    "plain": {"scaling": "mean-field", "embedding": "identity"},
}
_BOTTOM = 1e-14  # of the loss axis: smaller losses are rounding
_SETTING = (
    "f(x) = (1/m) Σ c_i relu(h_i(x)), d = 30, without an embedding (plain, h_i = w_i·x/√d) or on the quadratic one "
    "(augmented, h_i = xᵀW_i x/d). Targets come from an augmented network of five neurons, inputs from N(0, I). Errors "
    "are means of ½ (f - y)², the test error over 500 fresh samples. Training is by gradient flow; one unit of t is "
    "one of the paper's GD steps (step size 1, loss averaged over samples)"
)


def _settings(widths: Sequence[int], sizes: Sizes) -> str:
    numbers = f"n = {sizes.samples[0]} to {sizes.samples[-1]}, t = {sizes.end:,.0f}, {sizes.seeds} seeds"
    return f"m = {' and '.join(map(str, widths))}, {numbers}"


def _recipes(scale: Scale, widths: Sequence[int], seeds: int | None) -> dict[str, Recipe]:
    """Return the recipes of all curves at some widths; the teacher and the test set depend on the seed only."""
    sizes = _SCALES[scale]
    data = {"kind": "quadratic-teacher", "d": 30}
    # Gram coordinates even where there are fewer weights: they average gates over a step, which halves the steps.
    flow = {"kind": "gradient-flow", "tolerance": 1e-3, "coordinates": "gram"}
    probes = ["train-loss", "test-loss"]
    return curves.recipes("embedding", _MODELS, widths, sizes.samples, sizes, seeds, data, flow=flow, probes=probes)


class AgainstSamples(Panel):
    """Figure 2: test error after training against n, with and without the quadratic embedding."""

    key = "chen2022/fig2"
    title = "Figure 2: test error with and without quadratic embedding"
    scales = by_scale(_SCALES, lambda s: _settings(s.widths[1:], s))
    caption = (
        f"Test error at the end of training: {_SETTING}. Points are means over seeds, bars their standard "
        "deviation, as in the paper; faint dots are the seeds. The paper does not list its values of n: these are ours."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        return _recipes(scale, _SCALES[scale].widths[1:], seeds)

    def claims(self, results: Results) -> list[Claim]:
        return [_augmented_is_better(results)]

    def draw(self, results: Results) -> Figure:
        (width,), _ = sizes_of(results)
        lines = {model: (f"{model} shallow network", index) for index, model in enumerate(_MODELS)}
        title = f"chen2022, experiment 2: quadratic teacher, d = 30, m = {width}"
        return curves.draw_end_errors(arranged(results, _MODELS, "embedding"), lines, title)


class AgainstSteps(Panel):
    """Figure 6: training loss and test error against t for both models, at two widths, a column for each n."""

    key = "chen2022/fig6"
    title = "Figure 6: learning curves with and without quadratic embedding"
    scales = by_scale(_SCALES, lambda s: _settings(s.widths, s))
    caption = (
        f"Training loss and test error during training: {_SETTING}. Lines are medians over seeds, thin ones the "
        "seeds; the paper draws means and does not list its values of n: these are ours."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return both models for every n at both widths; figure 2 shares the runs at the larger one."""
        return _recipes(scale, _SCALES[scale].widths, seeds)

    def claims(self, results: Results) -> list[Claim]:
        widths, samples = sizes_of(results)
        runs = arranged(results, _MODELS, "embedding")
        both = {(model, n): [runs[model, m, n] for m in widths] for model in _MODELS for n in samples}
        alike = [
            Claim(
                text=f"{what} at m = {widths[0]} and m = {widths[1]} differ by less than {AGREE:.0%} of their {size} "
                "(median over times)",
                paper="the difference between the two choices of m is negligible",
                measured=", ".join(f"{model} n = {n}: {share.max():.1%}" for (model, n), share in shares.items())
                + " (largest over seeds)",
                judged=together(near(share, 0.0, AGREE) for share in shares.values()),
            )
            for what, size, shares in (
                ("test errors", "height", {key: _apart(*pair) for key, pair in both.items()}),
                ("training log-losses", "fall", {key: curves.distance(*pair) for key, pair in both.items()}),
            )
        ]
        return [*alike, _augmented_is_better(results)]

    def draw(self, results: Results) -> Figure:
        widths, samples = sizes_of(results)
        title = "chen2022, experiment 2: quadratic teacher, d = 30"
        figure, axes = titled_canvas(title, len(samples), 3.2 * len(samples), 5.8, rows=2)
        above, below, runs = axes[: len(samples)], axes[len(samples) :], arranged(results, _MODELS, "embedding")
        for n, upper, lower in zip(samples, above, below, strict=True):
            for (index, model), (dash, m) in itertools.product(enumerate(_MODELS), enumerate(widths)):
                run, label = runs[model, m, n], f"{model}, m = {m}"
                for place, probe in ((upper, "train-loss"), (lower, "test-loss")):
                    band(place, run["time"].values, run[probe].values, index, label, dash=dash)
            upper.set(yscale="log", ylim=(_BOTTOM, None))
            upper.set_title(f"n = {n}", fontsize=10)
            lower.set_xlabel(curves.STEPS)
        top = max(one.get_ylim()[1] for one in below)
        for one in below:
            one.set_ylim(0, top)  # one height for all n, so that columns can be compared
        above[0].set_ylabel("training loss, mean of ½ (f - y)²")
        below[0].set_ylabel("test error, mean of ½ (f - y)²")
        below[0].legend(fontsize=8, loc="lower left")
        return figure


def _augmented_is_better(results: Results) -> Claim:
    """Compare the models seed by seed, because they have the same teachers, samples and test sets."""
    runs = arranged(results, _MODELS, "embedding")
    widths, samples = sizes_of(results)
    pairs = [(m, n, *(end_error(runs[model, m, n]) for model in _MODELS)) for m in widths for n in samples]
    return Claim(
        text=f"for every n{' and m' if len(widths) > 1 else ''} the augmented network ends with the lower test error",
        paper="the augmented shallow NN achieves lower test error given the same number of training samples",
        measured="; ".join(
            (f"m = {m} " if len(widths) > 1 else "")
            + f"n = {n}: {mean_sd(augmented)} augmented, {mean_sd(plain)} plain"
            for m, n, augmented, plain in pairs
        ),
        judged=together(increases(augmented, plain) for _, _, augmented, plain in pairs),
    )


def _apart(one: xr.Dataset, other: xr.Dataset) -> np.ndarray:
    """Return the median relative difference of two test errors over times, seed by seed."""
    a, b = one["test-loss"].values, other["test-loss"].values
    return np.median(np.abs(a - b) / a, axis=1)
