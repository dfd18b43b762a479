"""Experiment 2: with a good embedding, a shallow network needs fewer samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from unlazy.figures import band, bars, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, grid
from unlazy.papers._curves import quadratic_times
from unlazy.papers.chen2022._shared import AGREE, distance, sizes_of


@dataclass(frozen=True)
class _Sizes:
    widths: tuple[int, int]
    samples: tuple[int, ...]
    end: float
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(widths=(512, 2048), samples=(100, 200, 300), end=10_000.0, seeds=3),
    "paper": _Sizes(widths=(2048, 8192), samples=(100, 200, 400, 600), end=50_000.0, seeds=5),
}
_MODELS = {"augmented": "quadratic", "plain": "identity"}  # and the embedding of each
_BOTTOM = 1e-14  # of the loss axis: below is rounding
_SETTING = (
    "f(x) = (1/m) Σ c_i relu(h_i(x)), d = 30, without an embedding (plain, h_i = w_i·x/√d) or on the quadratic one "
    "(augmented, h_i = xᵀW_i x/d). Targets come from an augmented network of five neurons, inputs from N(0, I). Errors "
    "are means of ½ (f - y)², the test error over 500 fresh samples, along gradient flow; one unit of t is one of the "
    "paper's GD steps (step size 1, loss averaged over samples)"
)
_AXES = ("network.embedding", "network.width", "data.n")  # what tells runs apart


def _settings(widths: Sequence[int], sizes: _Sizes) -> str:
    numbers = f"n = {sizes.samples[0]} to {sizes.samples[-1]}, t = {sizes.end:,.0f}, {sizes.seeds} seeds"
    return f"m = {' and '.join(map(str, widths))}, {numbers}"


def recipe(scale: Scale, model: str, width: int, n: int, seeds: int | None) -> Recipe:
    """Give the recipe of one curve; teacher and test set depend on the seed only, training samples on seed and n."""
    sizes = _SCALES[scale]
    return Recipe(
        name=f"chen2022 embedding {model} m={width} n={n}",
        data={"kind": "quadratic-teacher", "n": n, "d": 30, "n_test": 500},
        network={
            "kind": "two-layer",
            "width": width,
            "activation": "relu",
            "scaling": "mean-field",
            "embedding": _MODELS[model],
        },
        # Gram coordinates also where weights are fewer: there gates are averaged over a step, which halves the steps.
        flow={"kind": "gradient-flow", "tolerance": 1e-3, "coordinates": "gram"},
        times=quadratic_times(sizes.end),
        probes=["train-loss", "test-loss"],
        seeds=seeds or sizes.seeds,
        dtype="float32",  # the chatter of ReLU gates is far above its rounding
    )


def _recipes(scale: Scale, widths: Sequence[int], seeds: int | None) -> dict[str, Recipe]:
    return {
        f"{model} m={m} n={n}": recipe(scale, model, m, n, seeds)
        for m in widths
        for n in _SCALES[scale].samples
        for model in _MODELS
    }


class AgainstSamples(Panel):
    """Figure 2: test error after training against n, with and without the quadratic embedding."""

    key = "chen2022/fig2"
    title = "Figure 2: test error with and without quadratic embedding"
    scales = by_scale(_SCALES, lambda s: _settings(s.widths[1:], s))
    caption = (
        f"Test error at the end of training: {_SETTING}. Points are means over seeds, bars their standard "
        "deviation, as in the paper; faint dots are the seeds. The paper does not list its n: these are our choice."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Both models for every n at the larger width."""
        return _recipes(scale, _SCALES[scale].widths[1:], seeds)

    def claims(self, results: Results) -> list[Claim]:
        """The augmented network has the lower test error at every n."""
        (width,), samples = sizes_of(results)
        return [_lower(results, (width,), samples)]

    def draw(self, results: Results) -> Figure:
        """Test error against n, a line for each model."""
        figure, (axes,) = canvas()
        (width,), samples = sizes_of(results)
        runs = grid(results, *_AXES)
        for index, model in enumerate(_MODELS):
            ends = np.stack([_end(runs[_MODELS[model], width, n]) for n in samples], axis=1)
            bars(axes, samples, ends, index, f"{model} shallow network")
        axes.set(ylim=(0, None), xlabel="n", ylabel="test error, mean of ½ (f - y)²")
        axes.set_title(f"chen2022, experiment 2: quadratic teacher, d = 30, m = {width}", fontsize=10)
        axes.legend()
        return figure


class AgainstSteps(Panel):
    """Figure 6: training loss and test error against t for both models, at two widths, a column for each n."""

    key = "chen2022/fig6"
    title = "Figure 6: learning curves with and without quadratic embedding"
    scales = by_scale(_SCALES, lambda s: _settings(s.widths, s))
    caption = (
        f"Training loss and test error along training: {_SETTING}. Lines are medians over seeds, thin ones the "
        "seeds; the paper draws means. Its n are not listed: these are our choice."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Both models for every n at both widths; figure 2 shares those of the larger one."""
        return _recipes(scale, _SCALES[scale].widths, seeds)

    def claims(self, results: Results) -> list[Claim]:
        """Both widths give the same curves, and at both the augmented network has the lower test error."""
        widths, samples = sizes_of(results)
        runs = grid(results, *_AXES)
        curves = {(model, n): [runs[_MODELS[model], m, n] for m in widths] for model in _MODELS for n in samples}
        alike = [
            Claim(
                text=f"{what} at m = {widths[0]} and m = {widths[1]} differ by less than {AGREE:.0%} of their {size} "
                "(median over seeds and times)",
                paper="the difference between the two choices of m is negligible",
                measured=", ".join(f"{model} n = {n}: {share:.1%}" for (model, n), share in shares.items()),
                holds=max(shares.values()) < AGREE,
            )
            for what, size, shares in (
                ("test errors", "height", {key: _apart(*runs) for key, runs in curves.items()}),
                ("training log-losses", "fall", {key: distance(*runs) for key, runs in curves.items()}),
            )
        ]
        return [*alike, _lower(results, widths, samples)]

    def draw(self, results: Results) -> Figure:
        """Training losses above test errors, a column for each n; colour tells the model and dashes the width."""
        widths, samples = sizes_of(results)
        figure, axes = canvas(len(samples), 3.2 * len(samples), 5.8, rows=2)
        figure.suptitle("chen2022, experiment 2: quadratic teacher, d = 30", fontsize=10)
        above, below, runs = axes[: len(samples)], axes[len(samples) :], grid(results, *_AXES)
        for column, n in enumerate(samples):
            for index, model in enumerate(_MODELS):
                for dash, m in enumerate(widths):
                    run, label = runs[_MODELS[model], m, n], f"{model}, m = {m}"
                    band(above[column], run["time"].values, run["train-loss"].values, index, label, dash=dash)
                    band(below[column], run["time"].values, run["test-loss"].values, index, label, dash=dash)
            above[column].set(yscale="log", ylim=(_BOTTOM, None))
            above[column].set_title(f"n = {n}", fontsize=10)
            below[column].set_xlabel("t (GD steps of size 1)")
        top = max(one.get_ylim()[1] for one in below)
        for one in below:
            one.set_ylim(0, top)  # one height for all n, so that columns can be compared
        above[0].set_ylabel("training loss, mean of ½ (f - y)²")
        below[0].set_ylabel("test error, mean of ½ (f - y)²")
        below[0].legend(fontsize=8, loc="lower left")
        return figure


def _end(run: xr.Dataset) -> np.ndarray:
    """Test error at the last time, seed by seed."""
    return run["test-loss"].values[:, -1]


def _lower(results: Results, widths: Sequence[int], samples: Sequence[int]) -> Claim:
    """Compare the models on equal teachers, samples and tests, seed by seed: no spread between seeds can hide it."""
    runs = grid(results, *_AXES)
    pairs = [(m, n, *(_end(runs[_MODELS[model], m, n]) for model in _MODELS)) for m in widths for n in samples]
    several = len(widths) > 1
    return Claim(
        text="for every n and every seed the augmented network ends with the lower test error",
        paper="the augmented shallow NN achieves lower test error given the same number of training samples",
        measured=", ".join(
            (f"m = {m} " if several else "") + f"n = {n}: {augmented.mean():.3g} < {plain.mean():.3g} (means)"
            for m, n, augmented, plain in pairs
        ),
        holds=all(bool(np.all(augmented < plain)) for _, _, augmented, plain in pairs),
    )


def _apart(one: xr.Dataset, other: xr.Dataset) -> float:
    """Median relative difference of two test errors, over seeds and times."""
    a, b = one["test-loss"].values, other["test-loss"].values
    return float(np.median(np.abs(a - b) / a))
