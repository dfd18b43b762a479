"""What the panels of caron2023 share: settings of (γ, α), networks, claims on the runs of all settings, and axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from unlazy.activations import Relu
from unlazy.figures import band, canvas
from unlazy.lab import draw_data
from unlazy.networks import Zipf, asymmetrical
from unlazy.papers._base import Axes, Claim, Figure, Results, option, recipe_of
from unlazy.papers._curves import label_axes, mean_sd
from unlazy.papers.caron2023.theorems import Margins, guarantee, margins, smallest_mean_eigenvalue

Setting = tuple[float, float]  # γ and α


def label(setting: Setting) -> str:
    """Name a setting; with γ = 1 there is no α to speak of."""
    gamma, alpha = setting
    return "γ = 1" if gamma == 1 else f"γ = {gamma:g}, α = {alpha:g}"


# From lazy to rich: (1 - γ)² Σ_j λ̃_j², the variance that eq. 12 leaves to the limiting kernel, grows.
TEXT: tuple[Setting, ...] = ((1.0, 0.5), (0.5, 0.7), (0.5, 0.5), (0.0, 0.4))
RELEASED: tuple[Setting, ...] = ((1.0, 0.5), (0.5, 0.7), (0.2, 0.5), (0.0, 0.4))

LOSS = {"kind": "squared", "reduction": "mean", "half": False}
# Kinks make fine tolerances dear. In figure 1 (one seed) risk, weights and NTG at the end change by up to 6 % from here
# to 1e-3, which is less than seeds differ, at up to nine times the work.
FLOW = {"kind": "gradient-flow", "tolerance": 1e-2, "loss": LOSS}


def network(width: int, setting: Setting, **options: Any) -> dict[str, Any]:
    """Eq. 2 with ReLU and Zipf weights (eq. 4)."""
    weights = {"kind": "zipf", "alpha": setting[1]}
    scaling = {"kind": "asymmetrical", "gamma": setting[0], "weights": weights}
    return {"kind": "two-layer", "width": width, "activation": "relu", "scaling": scaling, **options}


def setting_of(run: xr.Dataset) -> Setting:
    """Give γ and α of a stored run."""
    return option(run, "network.scaling.gamma"), option(run, "network.scaling.weights.alpha")


def by_gamma(runs: Results) -> dict[float, list[str]]:
    """Put labels of runs with equal γ together, the largest γ first."""
    found: dict[float, list[str]] = {}
    for name, run in runs.items():
        found.setdefault(setting_of(run)[0], []).append(name)
    return dict(sorted(found.items(), reverse=True))


def end_risk(run: xr.Dataset) -> np.ndarray:
    """Training risk at the end, seed by seed."""
    return run["train-loss"].values[:, -1]


def moved(run: xr.Dataset) -> np.ndarray:
    """|w_tj - w_0j| of the node j that has moved most at the end: (seeds, times)."""
    every = run["weight-movement.hidden"].values
    most = every[:, -1].argmax(axis=1)
    return np.take_along_axis(every, most[:, None, None], axis=2)[:, :, 0]


def drifted(run: xr.Dataset) -> np.ndarray:
    """‖Θ_t - Θ_0‖_2: (seeds, times)."""
    return run["kernel.drift_operator"].values


def robustness(run: xr.Dataset, what: str = "train_risk") -> np.ndarray:
    """What pruning costs, from 0 (nothing) to 1 (all at the first node), seed by seed.

    It is the area between the curve and its start, over the number of nodes pruned, as a share of its whole rise.
    """
    curve = run[f"pruning.hidden.{what}"].values
    rise = curve - curve[:, :1]
    return rise.mean(axis=1) / rise[:, -1]


def listed(values: dict[str, str]) -> str:
    """Put settings and their numbers in one line."""
    return "; ".join(f"{name}: {value}" for name, value in values.items())


Sets = list[tuple[np.ndarray, np.ndarray]]  # training inputs and targets of each seed

_LITTLE = 0.5  # γ = 1 moves little if it moves less than this share of what the next setting does
_FEW = 10  # features that are "few"
_DELTA = 0.05
_MANY = 10  # gates between the two closest inputs, from which on eig_min is not a matter of single gates
_ORDER = " (means over seeds; neighbours may change places within their spread, ±)"


def faster(runs: Results, floor: np.ndarray | None = None) -> Claim:
    """The larger γ, the lower the training risk at the end."""
    ends = {name: end_risk(run) for name, run in runs.items()}
    below = "" if floor is None else f"; equal inputs with different targets leave at least {floor.mean():.2g}"
    return Claim(
        text=f"training is faster the larger γ is: the training risk at the end grows as γ falls{_ORDER}",
        paper="the minimum eigenvalue and the training rates increase with the value of γ",
        measured=listed({name: mean_sd(end) for name, end in ends.items()}) + below,
        holds=_ordered(runs, ends, rising=True),
    )


def eigenvalues(runs: Results, gates: float | None = None) -> Claim:
    """eig_min of the NTG falls with γ; where inputs repeat (no `gates_between` them) it is 0 whatever γ is."""
    first, last = ({name: run["kernel.smallest"].values[:, when] for name, run in runs.items()} for when in (0, -1))
    seen = {name: f"{mean_sd(first[name])} to {mean_sd(last[name])}" for name in runs}
    if gates == 0:
        largest = max(float(run["kernel.largest"].max()) for run in runs.values())
        rounding = np.finfo(_dtype(runs)).eps * largest * 1e3
        return Claim(
            text=f"eig_min of the NTG is 0 up to rounding ({rounding:.1g}) for every γ, because inputs repeat",
            paper="Assumption 2.1(b) excludes equal inputs; κ_n > 0 without them",
            measured=listed(seen),
            holds=all(np.abs(value).max() <= rounding for value in (*first.values(), *last.values())),
        )
    chancy = gates is not None and gates < _MANY
    when = (
        f"at the start{_ORDER}; at the end it is only measured, as few gates, {gates:.2g} on average, tell the two "
        "closest inputs apart, and it jumps whenever one comes or goes"
        if chancy
        else f"at the start and at the end{_ORDER}"
    )
    return Claim(
        text=f"eig_min of the NTG is larger the larger γ is, {when}",
        paper="the minimum eigenvalue and the training rates increase with the value of γ",
        measured=listed(seen),
        holds=_ordered(runs, first, rising=False) and (chancy or _ordered(runs, last, rising=False)),
    )


def gates_between(sets: Sets, width: int) -> float:
    """How many of ``width`` random ReLU gates see one of the two closest inputs and not the other: m θ/π, the least."""
    return min(width * _least_angle(x) / np.pi for x, _ in sets)


def _least_angle(x: np.ndarray) -> float:
    if len(np.unique(x, axis=0)) < len(x):
        return 0.0
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -1)
    i, j = np.unravel_index(cosines.argmax(), cosines.shape)
    return float(2 * np.arcsin(np.linalg.norm(unit[i] - unit[j]) / 2))  # exact to rounding also where cos rounds to 1


def weights_move(runs: Results) -> Claim:
    """Weights move the more, the smaller γ and α are."""
    return _moves(runs, {name: moved(run)[:, -1] for name, run in runs.items()}, "the largest |w_tj - w_0j| at the end")


def kernel_moves(runs: Results) -> Claim:
    """The NTG moves the more, the smaller γ and α are."""
    return _moves(runs, {name: drifted(run)[:, -1] for name, run in runs.items()}, "‖Θ_t - Θ_0‖₂ at the end")


def _moves(runs: Results, ends: dict[str, np.ndarray], what: str) -> Claim:
    lazy, *others = (float(end.mean()) for end in ends.values())
    return Claim(
        text=f"{what} grows as γ and α fall, and with γ = 1 it is below {_LITTLE:g} of the next{_ORDER}",
        paper="when γ < 1 both the weights and the NTG change significantly; the smaller γ and α, the more feature "
        "learning arises; for γ = 1 they do not change significantly",
        measured=listed({name: mean_sd(end) for name, end in ends.items()}),
        holds=_rises([[end] for end in ends.values()]) and lazy < _LITTLE * min(others),
    )


def prunes(runs: Results, what: str = "train_risk", words: str = "training risk") -> Claim:
    """The smaller γ, the less pruning costs."""
    areas = {name: robustness(run, what) for name, run in runs.items()}
    return Claim(
        text=f"the smaller γ, the less pruning costs: area between the curve of the {words} and its start, over nodes "
        f"pruned, as a share of the whole rise{_ORDER}",
        paper="models with smaller γ values are more robust to pruning",
        measured=listed({name: mean_sd(area) for name, area in areas.items()}),
        holds=_ordered(runs, areas, rising=False),
    )


def transfers(
    runs: Results, counts: Sequence[int], classes: int = 1, what: str = "test_risk", words: str = "test risk"
) -> Claim:
    """With few features, but no fewer than there are classes to tell apart, smaller γ transfer better.

    With 1 to 10 features the order is also seen on MNIST, but not on the digits that stand in for it.
    """
    least, most = (1, _FEW) if classes == 1 else (classes, 5 * classes)
    few = (np.asarray(counts) >= least) & (np.asarray(counts) <= most)
    risks = {name: run[f"transfer.hidden.{what}"].values[:, few].mean(axis=1) for name, run in runs.items()}
    return Claim(
        text=f"with few features ({', '.join(str(k) for k in np.asarray(counts)[few])}) networks transfer better the "
        f"smaller γ is: mean {words} on held-out data{_ORDER}",
        paper="models with smaller values of γ have lower risks when a small number of features are used for the "
        "transfer",
        measured=listed({name: mean_sd(risk) for name, risk in risks.items()}),
        holds=_ordered(runs, risks, rising=False),
    )


def _ordered(runs: Results, values: dict[str, np.ndarray], rising: bool) -> bool:
    """Whether values rise (or fall) from each γ to the next smaller one; settings of equal γ are not compared."""
    sign = 1 if rising else -1
    return _rises([[sign * values[name] for name in names] for names in by_gamma(runs).values()])


def _rises(groups: list[list[np.ndarray]]) -> bool:
    """Whether means over seeds rise from group to group: between neighbours up to the spread, from end to end."""
    near = [(a, b, _deviation(a) + _deviation(b)) for one, other in pairwise(groups) for a in one for b in other]
    ends = [(a, b, 0.0) for a in groups[0] for b in groups[-1]]
    return all(a.mean() < b.mean() + slack for a, b, slack in (*near, *ends))


def _deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _dtype(runs: Results) -> str:
    return str(next(iter(runs.values())).attrs.get("dtype", "float64"))


# ---------------------------------------------------------------- Theorem 4.1 along the runs


def training_sets(run: xr.Dataset) -> Sets:
    """Draw training inputs and targets of every seed of a stored run again."""
    return [(np.asarray(data.x, float), np.asarray(data.y, float)) for data in draw_data(recipe_of(run))]


def along(run: xr.Dataset, sets: Sets, kappas: list[float]) -> list[Margins]:
    """Hold (a)-(d) of Theorem 4.1 against every seed of a run, with δ = 0.05."""
    width, (gamma, alpha) = run["weight-movement.hidden"].shape[2], setting_of(run)
    node = asymmetrical(gamma, Zipf(alpha)).node
    variances = node.variances(width)  # type: ignore[union-attr]
    found = []
    for seed, ((x, y), kappa) in enumerate(zip(sets, kappas, strict=True)):
        n, d = x.shape
        largest = float(np.abs(y).max())
        promised = guarantee(Relu(), variances, gamma, kappa, n, d, largest, _DELTA)
        seen = {name: run[name].values[seed] for name in run.data_vars if run[name].dims[:2] == ("seed", "time")}
        found.append(
            margins(
                promised,
                variances,
                run["time"].values,
                seen["train-loss"],
                seen["kernel.smallest"],
                seen["weight-movement.hidden"],
                seen["kernel.drift_operator"],
                speed=2 / n,
            )
        )
    return found


def theorem(runs: Results, parts: str = "abcd") -> Claim:
    """Parts of Theorem 4.1's (a)-(d) along every run with γ > 0, the margins of all, and the width that it would need.

    Of two inputs at angle θ, a share θ/π of m gates sees one and not the other. Where m θ is below 1 there may be none,
    and eig_min lies far below κ_n, which is the mean over infinitely many: so (a) is not claimed of tables whose rows
    nearly repeat.
    """
    sets = training_sets(next(iter(runs.values())))
    kappas = [_positive(smallest_mean_eigenvalue(Relu(), jnp.asarray(x)), x) for x, _ in sets]
    found = {name: along(run, sets, kappas) for name, run in runs.items() if setting_of(run)[0] > 0}
    least = {name: {part: min(one.least()[part] for one in every) for part in "abcd"} for name, every in found.items()}
    width = {name: float(np.median([one.width for one in every])) for name, every in found.items()}
    m = next(iter(runs.values()))["weight-movement.hidden"].shape[2]
    rest = "" if parts == "abcd" else "; (a) is only measured: m gates do not tell nearly equal inputs apart"
    return Claim(
        text=f"({parts[0]})-({parts[-1]}) of Theorem 4.1 hold along every run with γ > 0, at every look and seed "
        f"(smallest margin at least 1), though m = {m:,} is far below the width that the theorem asks for "
        f"(δ = {_DELTA:g}){rest}",
        paper="Theorem 4.1: (a) eig_min >= γκ/4, (b) L_t <= exp(-γκt/2) L_0, (c) weights and (d) NTG stay in reach",
        measured=_kappa_in_words(kappas) + listed({name: _in_words(least[name], width[name]) for name in found}),
        holds=all(one[part] >= 1 for one in least.values() for part in parts),
    )


def _kappa_in_words(kappas: list[float]) -> str:
    if not any(kappas):
        return "κ_n is 0 up to rounding, so that the theorem guarantees nothing; "
    return f"κ_n = {np.median(kappas):.2g}; "


def _positive(kappa: float, x: np.ndarray) -> float:
    """κ_n, or 0 where rounding alone could have made it."""
    return kappa if kappa > 1e2 * np.finfo(float).eps * len(x) else 0.0


def _in_words(least: dict[str, float], width: float) -> str:
    parts = ", ".join(f"({part}) {margin:.2g}" for part, margin in least.items())
    return f"{parts}, width {width:.1e}"


STEPS = "t (GD steps of size 1)"


def draw_everything(runs: Results, counts: Sequence[int], title: str) -> Figure:
    """Draw the nine axes of figures 6 to 10, in the order of the paper."""
    figure, axes = canvas(3, 11.0, 9.0, rows=3)
    draw_risk(axes[0], runs)
    draw_risk(axes[1], runs, "test-loss", "test risk")
    draw_weights(axes[2], runs)
    draw_kernel(axes[3], runs)
    draw_smallest(axes[4], runs)
    draw_pruning(axes[5], runs, "train_risk", "training risk, pruned")
    draw_pruning(axes[6], runs, "test_risk", "test risk, pruned")
    draw_transfer(axes[7], runs, counts, "train_risk", "training risk, transferred")
    draw_transfer(axes[8], runs, counts, "test_risk", "test risk, transferred")
    axes[0].legend(fontsize=7)
    figure.suptitle(title, fontsize=10)
    return figure


def draw_risk(axes: Axes, runs: Results, which: str = "train-loss", title: str = "training risk") -> None:
    """Risk against t."""
    for index, (name, run) in enumerate(runs.items()):
        band(axes, run["time"].values, run[which].values, index, name)
    label_axes(axes, STEPS, title, yscale="log")


def draw_weights(axes: Axes, runs: Results, steps: str = STEPS) -> None:
    """Movement of the weight that has moved most at the end, against t."""
    for index, (name, run) in enumerate(runs.items()):
        band(axes, run["time"].values, moved(run), index, name)
    label_axes(axes, steps, "largest |w_tj - w_0j|")


def draw_kernel(axes: Axes, runs: Results) -> None:
    """Change of the NTG against t."""
    for index, (name, run) in enumerate(runs.items()):
        band(axes, run["time"].values, drifted(run), index, name)
    label_axes(axes, STEPS, "‖Θ_t - Θ_0‖₂")


def draw_smallest(axes: Axes, runs: Results) -> None:
    """Smallest eigenvalue of the NTG against t."""
    for index, (name, run) in enumerate(runs.items()):
        band(axes, run["time"].values, run["kernel.smallest"].values, index, name)
    label_axes(axes, STEPS, "eig_min(Θ_t)")


def draw_pruning(axes: Axes, runs: Results, what: str, title: str) -> None:
    """A curve of pruned networks against the number of pruned nodes; accuracies are one minus errors."""
    for index, (name, run) in enumerate(runs.items()):
        curve = run[f"pruning.hidden.{what}"].values
        counts = _few(curve.shape[1])
        band(axes, counts, _shown(curve[:, counts], what), index, name)
    label_axes(axes, "number of pruned nodes", title)


def draw_transfer(axes: Axes, runs: Results, counts: Sequence[int], what: str, title: str) -> None:
    """A curve of transferred networks against the number of features."""
    for index, (name, run) in enumerate(runs.items()):
        curve = run[f"transfer.hidden.{what}"].values
        band(axes, np.asarray(counts), _shown(curve, what), index, name, marker=".")
    label_axes(axes, "number of features", title, xscale="log")


def _few(points: int) -> np.ndarray:
    """Give indices enough to draw a curve that is steep at its end: 200 even ones and the last 50."""
    return np.unique(np.r_[np.linspace(0, points - 1, 200).round().astype(int), np.arange(max(points - 50, 0), points)])


def _shown(curve: np.ndarray, what: str) -> np.ndarray:
    return 1 - curve if what.endswith("_error") else curve
