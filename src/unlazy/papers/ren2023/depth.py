"""Depth separation, shown: two-layer networks over widths beside the three-layer learner, on the same task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import DASHES, ORDERED, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers.ren2023._shared import learner


@dataclass(frozen=True)
class _Sizes:
    d: int
    shallow: tuple[int, ...]  # widths of two-layer networks
    steps: int  # of Adam, for each
    deep: tuple[int, ...]  # m_1 of the learner
    end: float
    batch: int
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    # The learner makes as many steps as the others.
    "quick": _Sizes(20, (16, 64, 256), 3000, (32, 128), 1500.0, 512, 1),
    "paper": _Sizes(50, (16, 64, 256, 1024), 6000, (32, 128, 512), 3000.0, 1024, 2),
}
_RATES = (1e-3, 3e-3, 1e-2)
_ABOVE = 8  # m_2
_STEP = 0.5
_INSIDE = 3.0  # inputs beyond are left out: with a slope at infinity every two-layer loss would be infinite
_EVALUATED = 8192


def _recipe(
    scale: Scale, name: str, network: dict[str, Any], flow: dict[str, Any], times: list[float], seeds: int | None
) -> Recipe:
    """Train a network on fresh samples of the same law."""
    s = _SCALES[scale]
    source = {"kind": "spherical-source", "d": s.d, "truncate": _INSIDE}
    return Recipe(
        name=name,
        data={"kind": "spherical", "n": _EVALUATED, "d": s.d, "truncate": _INSIDE},
        network=network,
        flow={"kind": "descent", **flow, "batch": s.batch, "source": source},
        times=times,
        probes=["train-loss"],
        seeds=seeds or s.seeds,
        dtype="float32",
    )


class DepthSeparation(Panel):
    """Loss against number of parameters."""

    key = "ren2023/depth"
    title = "Depth separation: loss against parameters, with two and three layers"
    scales = by_scale(
        _SCALES,
        lambda s: f"d = {s.d}, two layers of {', '.join(map(str, s.shallow))}, three of {', '.join(map(str, s.deep))}",
    )
    caption = (
        "L = ½ E(f* - f)² on samples never trained on, against the number of trained parameters: two-layer ReLU "
        "networks with biases, by Adam on fresh samples at the best of three rates, and the learner of eq. 1 by "
        f"its own clipped descent in as many steps. Inputs are the heavy-tailed law given |x| < {_INSIDE:g}: a "
        "two-layer ReLU network that has a slope at infinity has infinite loss under the law itself. The lower "
        "bound behind the paper's title (Safran et al., Theorem 5) speaks of errors of order d^-6, far below what "
        "is trained here: this is what training finds, and no proof."
    )

    def shallow(self, scale: Scale, width: int, rate: float, seeds: int | None) -> Recipe:
        """A two-layer network: neurons as channels, and one linear neuron that reads them."""
        steps = _SCALES[scale].steps
        network = {
            "kind": "mean-field-stack",
            "widths": [width, 1],
            "ranks": width,
            "parameterisation": "standard",
            "train": ["wb", "wb"],
            "activation": ["relu", "linear"],
            "amplitude": ["eye", {"kind": "constant", "value": 1.0}],
        }
        flow = {"rate": rate, "optimiser": "adam", "schedule": {"kind": "cosine", "steps": steps}}
        end = rate * 0.5 * steps  # what a cosine's rates sum to
        name = f"ren2023 two layers, m = {width}, rate {rate:g}"
        return _recipe(scale, name, network, flow, [0.0, 0.5 * end, 0.999 * end], seeds)

    def deep(self, scale: Scale, width: int, seeds: int | None) -> Recipe:
        """The learner of eq. 1."""
        s = _SCALES[scale]
        network, times = learner((width, _ABOVE), s.d, 1e-3, 0.1), [0.0, 0.5 * s.end, s.end]
        return _recipe(scale, f"ren2023 learner, m_1 = {width}", network, {"rate": _STEP}, times, seeds)

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All widths, the shallow ones at all rates."""
        s = _SCALES[scale]
        return {f"three layers, m_1 = {m}": self.deep(scale, m, seeds) for m in s.deep} | {
            f"two layers, m = {m}, rate {rate:g}": self.shallow(scale, m, rate, seeds)
            for m in s.shallow
            for rate in _RATES
        }

    def claims(self, results: Results) -> list[Claim]:
        """The learner is better than two-layer networks with more parameters."""
        shallow, deep = curves(results)
        best = min(shallow.values())
        size, loss = min(deep.items(), key=lambda item: item[1])
        largest = max(shallow)
        return [
            Claim(
                text="the best learner has less than half the loss of the best two-layer network, at any width or rate",
                paper="one can learn with three layers what is not approximable by any two-layer network",
                measured=f"three layers: {loss:.2g} with {size:,} parameters; two: {best:.2g}, up to {largest:,}",
                holds=loss < 0.5 * best,
            ),
            Claim(
                text="each learner beats every two-layer network with at most as many parameters",
                paper="the same",
                measured=_listed("three", deep) + "; " + _listed("two", shallow),
                holds=all(
                    loss < min((other for many, other in shallow.items() if many <= count), default=np.inf)
                    for count, loss in deep.items()
                ),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        """Two curves."""
        figure, (axes,) = canvas(1, 5.4, 3.8)
        for index, (name, curve) in enumerate(
            zip(("two layers", "three layers (eq. 1)"), curves(results), strict=True)
        ):
            counts = sorted(curve)
            line = DASHES[index]
            axes.plot(counts, [curve[n] for n in counts], marker="o", color=ORDERED[index], linestyle=line, label=name)
        axes.set(xscale="log", yscale="log")
        axes.minorticks_off()
        axes.set(xlabel="trained parameters", ylabel="loss")
        axes.legend(fontsize=8)
        return figure


def curves(results: Results) -> tuple[dict[int, float], dict[int, float]]:
    """Loss at the end by number of parameters, the median over seeds: of two layers (the best rate), and of three."""
    shallow: dict[int, float] = {}
    deep: dict[int, float] = {}
    for run in results.values():
        end = float(np.median(run["train-loss"].values[:, -1]))
        count = parameters(run)
        chosen = shallow if two_layers(run) else deep
        chosen[count] = min(end, chosen.get(count, np.inf))
    return shallow, deep


def two_layers(run: xr.Dataset) -> bool:
    """Tell a two-layer network, whose neurons are channels as they are, from the learner."""
    return option(run, "network.amplitude.0") == "eye"


def parameters(run: xr.Dataset) -> int:
    """How many numbers a stored network trains: m (d + 2) + 1 with two layers, m_1 d + 2 m_2 of the learner."""
    d, (first, above) = option(run, "data.d"), option(run, "network.widths")
    if two_layers(run):
        return int(first * (d + 2) + 1)
    return int(first * d + 2 * above)


def _listed(what: str, curve: dict[int, float]) -> str:
    return f"{what}: " + ", ".join(f"{curve[count]:.2g} ({count:,})" for count in sorted(curve))
