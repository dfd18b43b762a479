"""Depth separation in training: two-layer networks of several widths and the three-layer learner on one task."""

import itertools
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import DASHES, ORDERED, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option
from unlazy.papers.outcomes import at_least, increases, together, undecided, vacuous
from unlazy.papers.ren2023.training import learner

# Two-layer networks of the widths ``shallow`` take ``steps`` steps of Adam; learners with the m_1 of ``deep`` take as
# many steps, up to the time ``end``.
_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(d=20, shallow=(16, 64, 256), steps=3000, deep=(32, 128), end=1500.0, batch=512, seeds=1),
    "paper": Sizes(d=50, shallow=(16, 64, 256, 1024), steps=6000, deep=(32, 128, 512), end=3000.0, batch=1024, seeds=2),
}
_RATES = (1e-3, 3e-3, 1e-2)
_ABOVE = 8  # m_2
_STEP = 0.5
_INSIDE = 3.0  # larger |x| are excluded: with a slope at infinity every two-layer loss would be infinite
_EVALUATED = 8192  # samples on which losses are measured


class DepthSeparation(Panel):
    """Loss against number of parameters."""

    key = "ren2023/depth"
    title = "Depth separation: loss against parameters, with two and three layers"
    scales = by_scale(
        _SCALES,
        lambda s: f"d = {s.d}, two layers of {', '.join(map(str, s.shallow))}, three of {', '.join(map(str, s.deep))}",
    )
    caption = (
        "L = ½ E(f* - f)² on held-out samples against the number of trained parameters: two-layer ReLU networks with "
        "biases, trained by Adam on fresh samples at the best of three rates, and the learner of eq. 1, trained by its "
        f"own clipped descent in as many steps. Inputs follow the heavy-tailed law conditioned on |x| < {_INSIDE:g}: "
        "under the law itself, a two-layer ReLU network with a slope at infinity has infinite loss. The lower bound "
        "behind the paper's title (Safran et al., Theorem 5) concerns errors of order d^-6, far below those reached "
        "here: the panel shows what training finds, and proves nothing about approximation."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _SCALES[scale]
        law = {"d": s.d, "truncate": _INSIDE}

        def recipe(name: str, network: dict[str, Any], times: list[float], **flow: Any) -> Recipe:
            """Train a network on fresh samples of the same law."""
            return Recipe(
                name=f"ren2023 {name}",
                data={"kind": "spherical", "n": _EVALUATED, **law},
                network=network,
                flow={"kind": "descent", "batch": s.batch, "source": {"kind": "spherical-source", **law}, **flow},
                times=times,
                probes=["train-loss"],
                seeds=seeds or s.seeds,
                dtype="float32",
            )

        found = {}
        for m in s.deep:
            network = learner((m, _ABOVE), s.d, 1e-3, 0.1)
            times = [0.0, 0.5 * s.end, s.end]
            found[f"three layers, m_1 = {m}"] = recipe(f"learner, m_1 = {m}", network, times, rate=_STEP)
        for m, rate in itertools.product(s.shallow, _RATES):
            network = {  # neurons as channels, and one linear neuron that reads them
                "kind": "mean-field-stack",
                "widths": [m, 1],
                "ranks": m,
                "parameterisation": "standard",
                "train": ["wb", "wb"],
                "activation": ["relu", "linear"],
                "amplitude": ["eye", {"kind": "constant", "value": 1.0}],
            }
            end = rate * 0.5 * s.steps  # the sum of a cosine's rates
            flow = {"rate": rate, "optimiser": "adam", "schedule": {"kind": "cosine", "steps": s.steps}}
            name = f"two layers, m = {m}, rate {rate:g}"
            found[name] = recipe(name, network, [0.0, 0.5 * end, 0.999 * end], **flow)
        return found

    def claims(self, results: Results) -> list[Claim]:
        shallow, deep = curves(results)
        two, three = seeds_of(results)
        least = min(shallow, key=lambda count: shallow[count])
        size = min(deep, key=lambda count: deep[count])
        best, loss, largest = shallow[least], deep[size], max(shallow)
        pairs = [(few, many) for many in deep for few in shallow if few <= many]
        bound = float(option(next(iter(results.values())), "data.d")) ** -6
        far = undecided("no learner of these widths reaches the errors that the lower bound concerns")
        words = "one can learn with three layers what is not approximable by any two-layer network"
        return [
            Claim(
                text="a learner reaches a loss below d^-6, and no two-layer network does, at any width or rate",
                paper=f"{words}; strictly speaking, this requires ε = O(1/d^6)",
                measured=f"d^-6 = {bound:.2g}; three layers: {loss:.2g}; two: {best:.2g}",
                judged=at_least(two[least], bound) if np.all(three[size] <= bound) else far,
            ),
            Claim(
                text="the best learner has less than half the loss of the best two-layer network, at any width or rate",
                paper=words,
                measured=f"three layers: {loss:.2g} with {size:,} parameters; two: {best:.2g}, up to {largest:,}",
                judged=increases(2 * three[size], two[least], paired=False, log=True),
                weaker=True,
            ),
            Claim(
                text="each learner beats every two-layer network with at most as many parameters",
                paper=words,
                measured=_listed("three", deep) + "; " + _listed("two", shallow),
                judged=together([increases(three[many], two[few], paired=False, log=True) for few, many in pairs])
                if pairs
                else vacuous("every two-layer network has more parameters than every learner"),
                weaker=True,
            ),
        ]

    def draw(self, results: Results) -> Figure:
        figure, (axes,) = canvas(1, 5.4, 3.8)
        names = ("two layers", "three layers (eq. 1)")
        for colour, line, name, curve in zip(ORDERED, DASHES, names, curves(results), strict=False):
            counts, losses = zip(*sorted(curve.items()), strict=True)
            axes.plot(counts, losses, marker="o", color=colour, linestyle=line, label=name)
        axes.set(xscale="log", yscale="log")
        axes.minorticks_off()
        axes.set(xlabel="trained parameters", ylabel="loss")
        axes.legend(fontsize=8)
        return figure


def curves(results: Results) -> tuple[dict[int, float], dict[int, float]]:
    """Return the final loss (median over seeds) by number of parameters: two layers at the best rate, and three."""
    shallow, deep = ({count: float(np.median(ends)) for count, ends in one.items()} for one in seeds_of(results))
    return shallow, deep


def seeds_of(results: Results) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Return the final losses of all seeds by number of parameters: two layers at their best rate, and three."""
    two: dict[int, np.ndarray] = {}
    three: dict[int, np.ndarray] = {}
    for run in results.values():
        ends, count = run["train-loss"].values[:, -1], parameters(run)
        best = two if two_layers(run) else three
        if count not in best or np.median(ends) < np.median(best[count]):
            best[count] = ends
    return two, three


def two_layers(run: xr.Dataset) -> bool:
    """Whether a run trained a two-layer network, whose channels are its neurons, and not the learner."""
    return option(run, "network.amplitude.0") == "eye"


def parameters(run: xr.Dataset) -> int:
    """Return how many parameters a run trained: m (d + 2) + 1 with two layers, m_1 d + 2 m_2 of the learner."""
    d, (first, above) = option(run, "data.d"), option(run, "network.widths")
    return int(first * (d + 2) + 1 if two_layers(run) else first * d + 2 * above)


def _listed(what: str, curve: dict[int, float]) -> str:
    return f"{what}: " + ", ".join(f"{curve[count]:.2g} ({count:,})" for count in sorted(curve))
