"""What several figures claim: kernels gather along few lines, in which senses, and from small weights only."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from unlazy.papers._base import Claim, Results, option
from unlazy.papers.zhou2023._settings import fall, kernels, layers_of
from unlazy.probes import chance, clusters, condensed, living

NEAR = 0.95  # |cos| above which two kernels have one direction (18 degrees), as in `unlazy.probes.condensation`
NEARLY_ALL = 0.9  # share of the kernels that the paper's "nearly all kernels are condensed" asks for at least
SPREAD = 0.05  # share of pairs below which a layer has not condensed: kernels of 3 x 3 start at 3e-5
DEAD = 0.1  # a kernel shorter than this share of the longest was left behind by its ReLU

_clusters = jax.jit(clusters, static_argnames=("threshold", "signed"))
_condensed = jax.jit(condensed, static_argnames=("threshold", "floor"))


class Seen(NamedTuple):
    """What is seen of a layer at a look, means over seeds."""

    pairs: float  # share with |cos| > 0.95
    opposite: float  # share of these that point apart
    lines: float  # number of effective directions
    gathered: float  # share of living kernels in the largest clusters
    alive: float


def look(run: xr.Dataset, layer: str, when: int = -1, lines: int = 1, floor: float = 0.0) -> Seen:
    """Judge the kernels of a layer."""
    every = []
    for vectors in kernels(run, layer, when):
        one = _condensed(jnp.asarray(vectors), threshold=NEAR, floor=floor)
        numbers = {name: float(value) for name, value in one.items()}
        share = gathered(vectors, lines, floor)
        every.append((numbers["pairs"], numbers["opposite"], numbers["lines"], share, numbers["alive"]))
    return Seen(*map(float, np.mean(every, axis=0)))


def gathered(vectors: np.ndarray, lines: int = 1, floor: float = 0.0) -> float:
    """Share of the living vectors that lie along the ``lines`` lines with most followers, to |cos| > 0.95."""
    alive = living(jnp.asarray(vectors), floor)
    found = _clusters(jnp.asarray(vectors), threshold=NEAR, alive=alive)
    follows = (np.asarray(alive) > 0) & (np.abs(found.cosine) >= NEAR)
    sizes = np.sort(np.bincount(np.asarray(found.leader)[follows], minlength=1))
    return float(sizes[-lines:].sum() / max(np.sum(np.asarray(alive) > 0), 1))


def in_words(seen: Seen) -> str:
    """Say what is seen in one line."""
    dead = "" if seen.alive == 1 else f", {seen.alive:.0%} of kernels alive"
    count = f"{seen.lines:.3g}"
    return f"{seen.pairs:.1%} of pairs, {count} line{'' if count == '1' else 's'}{dead}"


def condense(
    results: Results, lines: dict[str, int], paper: str, when: int = -1, floors: dict[str, float] | None = None
) -> Claim:
    """Nearly all kernels of every layer of the runs named lie along so many lines."""
    found: dict[str, tuple[Seen, Seen]] = {}
    for name, most in lines.items():
        floor = (floors or {}).get(name, 0.0)
        for layer in layers_of(results[name]):
            before, now = (look(results[name], layer, at, most, floor) for at in (0, when))
            found[f"{name} {layer}"] = (before, now)
    most = ", ".join(f"{name}: {count}" for name, count in lines.items())
    return Claim(
        text=f"at least {NEARLY_ALL:.0%} of the kernels of each layer lie along few lines to |cos| > {NEAR:g} (at most "
        f"{most}); measured are also the share of pairs with |cos| > {NEAR:g} and the number of lines there are",
        paper=paper,
        measured="; ".join(
            f"{name}: {now.gathered:.1%} ({in_words(now)}; at the start {before.pairs:.2g} of pairs)"
            for name, (before, now) in found.items()
        ),
        holds=all(now.gathered >= NEARLY_ALL for _, now in found.values()),
    )


def two_signs(results: Results, names: tuple[str, ...], paper: str, when: int = -1) -> Claim:
    """Cosines are two-valued: of pairs along one line, many point apart."""
    shares = {
        f"{name} {layer}": look(results[name], layer, when) for name in names for layer in layers_of(results[name])
    }
    return Claim(
        text="both opposite directions occur in every layer: among pairs along one line, 10% to 60% point apart (50% "
        "if signs are fair coins, 18% if nine in ten agree)",
        paper=paper,
        measured="; ".join(f"{name}: {seen.opposite:.1%} of {seen.pairs:.1%}" for name, seen in shares.items()),
        holds=all(0.1 <= seen.opposite <= 0.6 for seen in shares.values()),
    )


def inputs_of(run: xr.Dataset) -> int:
    """Number of input channels of the first convolution."""
    return kernels(run, "conv1").shape[1] // option(run, "network.channels.0")


def by_input(run: xr.Dataset, when: int = -1) -> np.ndarray:
    """Kernels of the first convolution by input channel: (seeds, inputs, outputs, m²)."""
    seen = kernels(run, "conv1", when)
    return np.swapaxes(seen.reshape(len(seen), -1, inputs_of(run), seen.shape[2]), 1, 2)


def one_sign(results: Results, name: str, paper: str) -> Claim:
    """All kernels of one input channel point the same way."""
    every = by_input(results[name])
    unit = every / np.linalg.norm(every, axis=3, keepdims=True)
    cosines = np.einsum("siad,sibd->siab", unit, unit)
    least = cosines.min(axis=(2, 3))
    return Claim(
        text=f"{name}: kernels of one input channel have one sign: the smallest cosine of any two is above {NEAR:g}",
        paper=paper,
        measured=f"smallest cosine by input channel: {', '.join(f'{value:.4f}' for value in least.min(axis=0))}",
        holds=bool(np.all(least > NEAR)),
    )


def to_ones(run: xr.Dataset, when: int = -1) -> np.ndarray:
    """Cosine of every kernel of the first convolution with the vector of ones: (seeds, inputs, outputs)."""
    every = by_input(run, when)
    return every.sum(axis=3) / (np.linalg.norm(every, axis=3) * np.sqrt(every.shape[3]))


def along_ones(results: Results, name: str, paper: str) -> Claim:
    """Kernels lie along the vector of ones, in either sense."""
    cosines = np.abs(to_ones(results[name]))
    start = np.median(np.abs(to_ones(results[name], 0)))
    return Claim(
        text=f"the direction is the vector of ones: {NEARLY_ALL:.0%} of kernels or more have |cos| > {NEAR:g} with it",
        paper=paper,
        measured=f"{np.mean(cosines > NEAR):.1%} of kernels; median |cos| {np.median(cosines):.4f} (at the start "
        f"{start:.2f}), by input channel {', '.join(f'{value:.4f}' for value in np.median(cosines, axis=(0, 2)))}",
        holds=bool(np.mean(cosines > NEAR) >= NEARLY_ALL),
    )


def control(results: Results, small: str, standard: str, when: int = -1) -> Claim:
    """From a standard start kernels do not condense at an equal relative decrease of the loss."""
    reached = float(np.median(fall(results[small])[:, when]))
    falls = np.median(fall(results[standard]), axis=0)
    later = np.flatnonzero(falls >= reached)
    at = int(later[0]) if later.size else len(falls) - 1
    layers = layers_of(results[small])
    ours = {layer: look(results[small], layer, when).pairs for layer in layers}
    theirs = {layer: look(results[standard], layer, at).pairs for layer in layers}
    size = kernels(results[small], layers[0]).shape[2]
    return Claim(
        text="the same network from a standard start (Glorot) does not condense: at an equal relative decrease of the "
        f"loss less than {SPREAD:.0%} of pairs have |cos| > {NEAR:g} in any layer (by chance {chance(size, NEAR):.0e}) "
        "and more do from small weights in all",
        paper="the paper has no such control",
        measured=f"loss fallen by {reached:.2e} from small weights, by {falls[at]:.2e} from the standard start; pairs: "
        + "; ".join(f"{layer} {ours[layer]:.1%} against {theirs[layer]:.2%}" for layer in layers),
        holds=bool(later.size) and reached > 0 and all(theirs[one] < SPREAD < ours[one] for one in layers),
    )
