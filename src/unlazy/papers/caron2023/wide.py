"""Wide networks: how fast they approach their limit, and what still moves in them.

The limit m → ∞ (`TwoLayerLimit`) has the heavy nodes of a network with the same seed, and starts from the same
function. Therefore the two differ only in the NTG, at the start by Σ_j c_j (A_j - Θ*). Here A_j is the NTG of one node,
and c_j is the difference of variances: λ_{m,j} - (1-γ) λ̃_j for heavy nodes, λ_{m,j} for all others. The mean square is
C_0 Σ_j c_j² (`node_variance`), about C_0 γ²/m, so that the distance between outputs falls as m^-½.

With γ = 1 each weight moves by O(m^-½). The NTG of a smooth activation changes by O(1/m), as terms of first order have
the sign of a_j and cancel on average. With ReLU they do not cancel: whether an open gate closes depends on the signal
that passes through it, whereas no signal passes through a closed gate. So the NTG changes by O(m^-½).
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from unlazy.activations import Relu
from unlazy.figures import ORDERED, band
from unlazy.lab import Recipe, draw_data
from unlazy.networks import Scaling, Zipf, asymmetrical
from unlazy.networks.node_kernels import heavy_variances
from unlazy.papers._base import Axes, Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option, recipe_of
from unlazy.papers._curves import dots, label_axes, listed, mean_sd, plural, quadratic_times, titled_canvas
from unlazy.papers.caron2023 import comparison
from unlazy.papers.caron2023.comparison import FLOW, WEIGHTS, Setting, label, setting_of
from unlazy.papers.caron2023.theorems import node_variance
from unlazy.papers.outcomes import between, increases, ordered, power_law, together

_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(n=20, d=10, end=2000.0, widths=(128, 512, 2048), seeds=8),
    "paper": Sizes(n=40, d=20, end=8000.0, widths=(128, 512, 2048, 8192), seeds=10),
}
_BOTH: tuple[Setting, ...] = ((1.0, 0.5), (0.5, 0.5))
_SETTINGS: dict[Scale, tuple[Setting, ...]] = {"quick": _BOTH[1:], "paper": _BOTH}  # of the distance to the limit
_TIMES = 9
_WITHIN = 0.1  # of an exponent
_SHARE = 0.2  # relative difference up to which two numbers count as equal
_BOUND = -0.25  # exponent of (Σ_j λ_j^(3/2))^(1/2) for γ = 1, the bound of Theorem 4.1 (d)
_PROBES: list[Any] = ["train-loss", "train-outputs", "test-outputs", "weight-movement", "kernel-matrix"]
_FIRST = "the paper gives the limit of the NTG at t = 0 only"
_IFF = "feature learning arises if and only if γ < 1"
_MEASURES = {
    "largest": "largest |w_tj - w_0j|",
    "weighted": "(Σ_j λ_j |w_tj - w_0j|²)^½",
    "kernel": "‖Θ_t - Θ_0‖_F / ‖Θ_0‖_F",
}
GAUSSIAN = "gaussian"


def recipe(s: Sizes, setting: Setting, seeds: int | None, width: int | None = None, start: Any = None) -> Recipe:
    """Return the recipe of a network of some width or, without a width, of the limit.

    The light part of the limit has a ``start``: "gaussian", or the width of the network from whose function it starts.
    """
    network: dict[str, Any] = comparison.network(width or 0, setting)
    if width is None:
        del network["width"]
        network |= {"kind": "two-layer-limit", "start": start}
    what = f"limit from {start}" if width is None else f"m = {width}"
    return Recipe(
        name=f"caron2023 wide {label(setting)} {what}",
        data={"kind": "sphere-sine", "n": s.n, "d": s.d, "noise": 0.1, "n_test": s.n},
        network=network,
        # The error of the outputs has to stay below the distance of the widest networks from their limit.
        flow=FLOW | {"tolerance": 1e-3},
        times=quadratic_times(s.end, _TIMES),
        probes=_PROBES,
        seeds=seeds or s.seeds,
    )


def _finite(results: Results, setting: Setting) -> dict[int, xr.Dataset]:
    """Return the networks of one setting by width, in its order."""
    return dict(sorted(_by(results, setting, "network.width").items()))


def _limits(results: Results, setting: Setting) -> dict[Any, xr.Dataset]:
    """Return the limits of one setting by their start."""
    return _by(results, setting, "network.start")


def _by(results: Results, setting: Setting, entry: str) -> dict[Any, xr.Dataset]:
    """Return the runs of one setting by an entry of their recipes; those without it are left out."""
    found = {option(run, entry, None): run for run in results.values() if setting_of(run) == setting}
    return {value: run for value, run in found.items() if value is not None}


def _settings(results: Results) -> list[Setting]:
    return list(dict.fromkeys(map(setting_of, results.values())))


def _scaling(run: xr.Dataset) -> Scaling:
    gamma, alpha = setting_of(run)
    return asymmetrical(gamma, Zipf(alpha))


def output_distance(run: xr.Dataset, limit: xr.Dataset) -> np.ndarray:
    """Largest root mean square difference of the outputs on training and test inputs, over all times, by seed."""
    apart = [run[name].values - limit[name].values for name in ("train-outputs", "test-outputs")]
    return np.sqrt(np.mean(np.square(np.concatenate(apart, axis=2)), axis=2)).max(axis=1)


def kernel_distance(run: xr.Dataset, limit: xr.Dataset, time: int = 0) -> np.ndarray:
    """‖Θ_m - Θ_∞‖_F at one of the times, by default the first, by seed."""
    return np.linalg.norm((run["kernel-matrix"].values - limit["kernel-matrix"].values)[:, time], axis=(1, 2))


def over_widths(results: Results, setting: Setting, distance: Callable[..., np.ndarray]) -> np.ndarray:
    """Return the distance of each network from the limit that starts from its function: (widths, seeds)."""
    limits = _limits(results, setting)
    return np.stack([distance(run, limits[m]) for m, run in _finite(results, setting).items()])


def heavy_distance(run: xr.Dataset, limit: xr.Dataset) -> np.ndarray:
    """Largest (Σ_j μ_j (|Δw_j| - |Δw_j|_∞)²)^½ over all times, with the variances μ_j of the heavy nodes, by seed."""
    kept, _ = heavy_variances(_scaling(run))
    apart = run[WEIGHTS].values[:, :, : len(kept)] - limit[WEIGHTS].values
    return np.sqrt(np.square(apart) @ kept).max(axis=1)


def predicted_kernel_distance(run: xr.Dataset) -> np.ndarray:
    """(C_0 Σ_j c_j²)^½, the root mean square of `kernel_distance` at the start, by seed."""
    scaling = _scaling(run)
    apart, (kept, _) = scaling.nodes(option(run, "network.width")) ** 2, heavy_variances(scaling)
    apart[: len(kept)] -= kept
    sets = comparison.training_sets(run)
    return np.sqrt([node_variance(Relu(), jnp.asarray(x)) * (apart @ apart) for x, _ in sets])


def test_risk(run: xr.Dataset) -> np.ndarray:
    """Mean of (f - y)² over the test set at the end, by seed; the data are drawn again from the recipe."""
    targets = np.stack([np.asarray(data.y_test, float) for data in draw_data(recipe_of(run))])
    return np.mean(np.square(run["test-outputs"].values[:, -1] - targets), axis=1)


class TowardsLimit(Panel):
    """Distance of networks to their limit against width."""

    key = "caron2023/limit"
    title = "Distance to the limit of infinite width"
    scales = by_scale(
        _SCALES,
        lambda s: f"m = {s.widths[0]} to {s.widths[-1]:,}, n = {s.n}, d = {s.d}, t = {s.end:,.0f}, {plural(s.seeds)}",
    )
    caption = (
        "Networks of growing width and their limit m → ∞, in which the heavy nodes, those of the largest variances, "
        "learn features, and the light nodes form a kernel machine with the mean neural tangent Gram matrix (NTG) Θ*. "
        "First: training risk; the limit starts from a Gaussian process. Others: distance of each network from the "
        "limit that has its heavy nodes and starts from its function, for the outputs (the largest root mean square "
        "difference on training and test inputs at any time), for the NTG at the start (with the prediction "
        "(C_0 Σ c_j²)^½), and for the movement of the heavy nodes. Small dots are seeds, large dots their root mean "
        "squares; dashed lines fall as m^-½. ReLU, Zipf weights, inputs on the sphere, noise 0.1. The paper has no "
        "such figure."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All widths, the limit from the function of each, and the limit from a Gaussian process."""
        s, found = _SCALES[scale], {}
        for setting in _SETTINGS[scale]:
            name = label(setting)
            for m in s.widths:
                found[f"{name}, m = {m}"] = recipe(s, setting, seeds, m)
                found[f"{name}, limit from m = {m}"] = recipe(s, setting, seeds, start=m)
            found[f"{name}, limit"] = recipe(s, setting, seeds, start=GAUSSIAN)
        return found

    def claims(self, results: Results) -> list[Claim]:
        """Distances fall as m^-½; the NTG is as far away as predicted; Gaussian starts give the same risk."""
        return [claim for setting in _settings(results) for claim in self._of(results, setting)]

    def _of(self, results: Results, setting: Setting) -> list[Claim]:
        finite, limit, name = _finite(results, setting), _limits(results, setting)[GAUSSIAN], label(setting)
        widths, last = np.array(list(finite), float), max(finite)
        outputs = over_widths(results, setting, output_distance)
        start = over_widths(results, setting, kernel_distance)
        ratio = np.mean(start**2 / np.stack([predicted_kernel_distance(run) for run in finite.values()]) ** 2, axis=0)
        ends = over_widths(results, setting, lambda *runs: kernel_distance(*runs, time=-1))
        risks = {
            which: np.log(risk(finite[last]) / risk(limit))
            for which, risk in (("training", comparison.end_risk), ("test", test_risk))
        }
        found = [
            Claim(
                text=f"{name}: at the start ‖Θ_m - Θ_∞‖_F² is C_0 Σ c_j² on average, within {_SHARE:.0%}",
                paper="Prop. 3.3: Θ_m → γΘ* + (1-γ) Σ λ̃_j A_j almost surely; eq. 12 for the variance",
                measured=f"ratio {mean_sd(ratio)}, mean over {plural(len(finite), 'width')}",
                judged=between(ratio, 1 - _SHARE, 1 + _SHARE),
            ),
            _power(f"{name}: the outputs approach those of the limit as m^-½", _FIRST, widths, outputs, -0.5),
            Claim(
                text=f"{name}: at the end ‖Θ_m - Θ_∞‖_F falls with each step in width",
                paper=_FIRST,
                measured=_law(widths, ends),
                judged=ordered(list(ends[::-1]), log=True),
            ),
            *(
                Claim(
                    text=f"{name}: started from a Gaussian process, the limit ends with the {which} risk of networks "
                    f"of width {last:,}: logarithms differ by at most {_SHARE} on average",
                    paper=_FIRST,
                    measured=f"difference of logarithms {mean_sd(apart)}",
                    judged=between(apart, -_SHARE, _SHARE),
                    hindsight=which == "test",  # the training risk is exponentially sensitive to small eigenvalues
                )
                for which, apart in risks.items()
            ),
        ]
        if setting[0] < 1:
            heavy = over_widths(results, setting, heavy_distance)
            text = f"{name}: the movement of the heavy nodes approaches that in the limit as m^-½"
            found.append(_power(text, _FIRST, widths, heavy, -0.5))
        return found

    def draw(self, results: Results) -> Figure:
        figure, (risk, *others) = titled_canvas("caron2023: distance to the limit of infinite width", 4, 13.0, 3.4)
        settings = _settings(results)
        shown = settings[-1]
        widths = np.array(list(_finite(results, shown)), float)
        for index, (m, run) in enumerate(_finite(results, shown).items()):
            band(risk, run["time"].values, run["train-loss"].values, index + 1, f"m = {m:,}")
        limit = _limits(results, shown)[GAUSSIAN]
        band(risk, limit["time"].values, limit["train-loss"].values, 0, "limit")
        label_axes(risk, "t", f"training risk, {label(shown)}", 7, yscale="log")
        shown_distances = {
            "outputs": output_distance,
            "NTG at the start": kernel_distance,
            "heavy nodes": heavy_distance,
        }
        for axes, (title, distance) in zip(others, shown_distances.items(), strict=True):
            for index, setting in enumerate(settings, 1):
                if distance is heavy_distance and setting[0] == 1:
                    continue
                found = over_widths(results, setting, distance)
                dots(axes, widths, found, index, label(setting))
                if distance is kernel_distance:
                    expected = [
                        np.sqrt(np.mean(predicted_kernel_distance(run) ** 2))
                        for run in _finite(results, setting).values()
                    ]
                    axes.plot(widths, expected, color=ORDERED[index], linewidth=1, label="predicted")
                else:
                    _guide(axes, widths, found, -0.5, index)
            _ticks(axes, widths)
            label_axes(axes, "width m", f"distance from the limit: {title}", 7)
        return figure


class AgainstWidth(Panel):
    """What moves in a network, against its width, with equal and with unequal nodes."""

    key = "caron2023/width"
    title = "Feature learning if and only if γ < 1, against width"
    scales = TowardsLimit.scales
    caption = (
        "At the end of training: the largest movement of a weight vector, the movement weighted by node variances, "
        "and the change of the neural tangent Gram matrix (NTG), against the width. Small dots are seeds, large dots "
        "their root mean squares. Dashed: m^-½ through the widest networks with γ = 1. Solid: the limit m → ∞ with the "
        "heavy nodes and the start of the widest network. ReLU, Zipf weights, inputs on the sphere, noise 0.1. The "
        "paper states the result without such a figure."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All widths for both settings, and the limit for γ < 1; those of `TowardsLimit` are the same runs."""
        s = _SCALES[scale]
        found = {f"{label(one)}, m = {m}": recipe(s, one, seeds, m) for one in _BOTH for m in s.widths}
        rich, last = _BOTH[1], s.widths[-1]
        return found | {f"{label(rich)}, limit from m = {last}": recipe(s, rich, seeds, start=last)}

    def claims(self, results: Results) -> list[Claim]:
        """With γ = 1 all three measures fall as m^-½; with γ < 1 they do not, and tend to those of the limit."""
        lazy, rich = (_finite(results, setting) for setting in _BOTH)
        (limit,) = _limits(results, _BOTH[1]).values()
        widths, last = np.array(list(lazy), float), max(lazy)
        found = []
        for name, words in _MEASURES.items():
            small, large = (np.stack([moved(run)[name] for run in runs.values()]) for runs in (lazy, rich))
            final = moved(limit)[name]
            apart = np.log(large[-1] / final)
            found += [
                _power(f"γ = 1: {words} falls as m^-½", _IFF, widths, small, -0.5, hindsight=name == "kernel"),
                _power(f"{label(_BOTH[1])}: {words} does not depend on the width", _IFF, widths, large, 0.0),
                Claim(
                    text=f"{label(_BOTH[1])}: at m = {last:,} {words} equals that of the limit: logarithms differ by "
                    f"at most {_SHARE} on average",
                    paper=f"{_IFF}; λ_mj → (1-γ) λ̃_j",
                    measured=listed({f"m = {last:,}": large[-1], "limit": final, "log ratio": apart}),
                    judged=between(apart, -_SHARE, _SHARE),
                ),
                Claim(
                    text=f"{words} is larger with γ < 1 than with γ = 1, at every width",
                    paper=_IFF,
                    measured=listed({f"m = {m:,}": large[k] / small[k] for k, m in enumerate(lazy)}),
                    judged=together(increases(a, b, log=True) for a, b in zip(small, large, strict=True)),
                ),
            ]
        kernels = np.stack([moved(run)["kernel"] for run in lazy.values()])
        slopes = np.polyfit(np.log(widths), np.log(kernels), 1)[0]
        bound = Claim(
            text=f"γ = 1: the change of the NTG falls with the width at least as fast as m^{_BOUND}",
            paper="Theorem 4.1 (d): bounded by a factor (Σ_j λ_mj^(3/2))^(1/2), which is m^(-1/4) for γ = 1",
            measured=f"exponent {mean_sd(slopes)}",
            judged=increases(slopes, np.full(slopes.size, _BOUND)),
        )
        return [*found, bound]

    def draw(self, results: Results) -> Figure:
        figure, every = titled_canvas("caron2023: what moves, against width", 3, 11.0, 3.4)
        (limit,) = _limits(results, _BOTH[1]).values()
        for axes, (name, words) in zip(every, _MEASURES.items(), strict=True):
            for index, setting in enumerate(_BOTH):
                runs = _finite(results, setting)
                widths = np.array(list(runs), float)
                found = np.stack([moved(run)[name] for run in runs.values()])
                dots(axes, widths, found, index + 1, label(setting))
                if setting[0] == 1:
                    _guide(axes, widths, found, -0.5, index + 1)
                _ticks(axes, widths)
            final = float(np.sqrt(np.mean(moved(limit)[name] ** 2)))
            axes.axhline(final, color=ORDERED[2], linewidth=1, label="limit")
            label_axes(axes, "width m", words, 7)
        return figure


def moved(run: xr.Dataset) -> Mapping[str, np.ndarray]:
    """Return how much has moved at the end, by seed, for each of `_MEASURES`."""
    every, theta = run[WEIGHTS].values[:, -1], run["kernel-matrix"].values
    scaling, width = _scaling(run), option(run, "network.width", None)
    weights = heavy_variances(scaling)[0] if width is None else scaling.nodes(width) ** 2
    change, first = (np.linalg.norm(one, axis=(1, 2)) for one in (theta[:, -1] - theta[:, 0], theta[:, 0]))
    return {
        "largest": every.max(axis=1),
        "weighted": np.sqrt(np.square(every) @ weights),
        "kernel": change / first,
    }


def _power(
    text: str, paper: str, widths: np.ndarray, values: np.ndarray, expected: float, hindsight: bool = False
) -> Claim:
    """Claim that values are a power of the width with the expected exponent."""
    judged = power_law(widths, values, expected, _WITHIN)
    words = f"{text}: exponent {expected:g} within {_WITHIN}"
    return Claim(words, paper, _law(widths, values), judged, hindsight=hindsight)


def _law(widths: np.ndarray, values: np.ndarray) -> str:
    """Write fitted exponents over seeds, those between neighbouring widths, and the values at both ends."""
    logs = np.log(values)
    every = np.polyfit(np.log(widths), logs, 1)[0]
    local = np.diff(logs.mean(axis=1)) / np.diff(np.log(widths))
    steps = ", ".join(f"{one:.2f}" for one in local)
    return (
        f"exponent {mean_sd(every)} (between widths: {steps}); {mean_sd(values[0])} at m = {widths[0]:,.0f}, "
        f"{mean_sd(values[-1])} at m = {widths[-1]:,.0f}"
    )


def _guide(axes: Axes, widths: np.ndarray, values: np.ndarray, power: float, index: int) -> None:
    """Draw a power law through the last root mean square."""
    last = np.sqrt(np.mean(np.square(values[-1])))
    axes.plot(widths, last * (widths / widths[-1]) ** power, "--", color=ORDERED[index], linewidth=1)


def _ticks(axes: Axes, widths: np.ndarray) -> None:
    axes.set_xticks(widths, [f"{m:,.0f}" for m in widths])
    axes.yaxis.minorticks_on()
    axes.tick_params(which="both", labelsize=7)
