"""The axes that several figures share: cosines of kernels as a heat map, losses as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, band
from unlazy.papers._curves import label_axes
from unlazy.papers.zhou2023._settings import clock, kernels
from unlazy.probes import cluster_order, cosines

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 256  # kernels in a heat map: more are finer than a page

_order = jax.jit(cluster_order)


def ordered(vectors: np.ndarray) -> np.ndarray:
    """Cosines of all pairs, clusters together; of many kernels, as many as a page can show."""
    order = np.asarray(_order(jnp.asarray(vectors)))
    some = order[np.unique(np.linspace(0, len(order) - 1, min(_SHOWN, len(order))).round().astype(int))]
    return np.asarray(cosines(jnp.asarray(vectors[some])))


def heat(axes: Axes, run: xr.Dataset, layer: str, title: str, when: int = -1) -> Any:
    """Draw D(u, v) of a layer's kernels (first seed): yellow the same direction, purple the opposite one."""
    seen = ordered(kernels(run, layer, when)[0])
    picture = axes.imshow(seen, vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
    axes.grid(visible=False)
    label_axes(axes, "kernel", title)
    return picture


def losses(axes: Axes, run: xr.Dataset, title: str) -> None:
    """Draw the training loss along the run."""
    times, name = clock(run)
    band(axes, times, run["train-loss"].values, 1, title, dash=0)
    label_axes(axes, name, title)


def orientation(axes: Axes, amplitudes: np.ndarray, cosine: np.ndarray) -> None:
    """Draw amplitude (left, a dot a kernel) and cosine with the vector of ones (right), as figure 6b does."""
    axes.plot(amplitudes, ".", color=ORDERED[2], markersize=4)
    axes.set_ylabel("amplitude", color=ORDERED[2], fontsize=8)
    axes.set_xlabel("kernel", fontsize=8)
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    other.plot(cosine, "+", color=ORDERED[1], markersize=4)
    other.set_ylim(-1.05, 1.05)
    other.set_ylabel("cosine with the vector of ones", color=ORDERED[1], fontsize=8)
    for one in (axes, other):
        one.tick_params(labelsize=7)
