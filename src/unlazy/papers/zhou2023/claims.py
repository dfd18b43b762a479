"""Measurements of kernels, seed by seed, and the claims that figures share."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from unlazy.papers._base import Claim, Results, option, recipe_of
from unlazy.papers.outcomes import at_least, near, together, undecided
from unlazy.papers.zhou2023.condensation import fall, kernels, layers_of, predictions
from unlazy.probes import chance, clusters, condensed, living

NEAR = 0.95  # |cos| above which two kernels have the same direction (18 degrees), as in `unlazy.probes.condensation`
NEARLY_ALL = 0.9  # how we read the paper's "nearly all kernels are condensed"
SPREAD = 0.05  # share of pairs below which a layer has not condensed; for kernels of 3 x 3 it is 3e-5 at the start
DEAD = 0.1  # kernels shorter than this share of the longest count as dead: their ReLU is inactive on all patches
PREDICTED = 0.05  # allowed distance of the share of kernels along the vector of ones from that of eq. 44

_clusters = jax.jit(clusters, static_argnames=("threshold", "signed"))
_condensed = jax.jit(condensed, static_argnames=("threshold", "floor"))


class Observed(NamedTuple):
    """Measurements of the kernels of a layer at one time, one value per seed."""

    pairs: np.ndarray  # share with |cos| > 0.95
    opposite: np.ndarray  # share of these that have opposite directions
    lines: np.ndarray  # number of effective directions
    gathered: np.ndarray  # share of living kernels in the largest clusters
    alive: np.ndarray


def observe(run: xr.Dataset, layer: str, when: int | np.ndarray = -1, lines: int = 1, floor: float = 0.0) -> Observed:
    """Measure the kernels of a layer at one of the times, or at one for each seed."""
    every = []
    for vectors in kernels(run, layer, when):
        found = _condensed(jnp.asarray(vectors), threshold=NEAR, floor=floor)
        pairs, opposite, count, alive = (float(found[name]) for name in ("pairs", "opposite", "lines", "alive"))
        every.append((pairs, opposite, count, gathered(vectors, lines, floor), alive))
    return Observed(*np.array(every).T)


def _shares(vectors: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Compute the share of living vectors along each line, to |cos| > 0.95, in decreasing order."""
    alive = living(jnp.asarray(vectors), floor)
    found = _clusters(jnp.asarray(vectors), threshold=NEAR, alive=alive)
    follows = (np.asarray(alive) > 0) & (np.abs(found.cosine) >= NEAR)
    sizes = np.bincount(np.asarray(found.leader)[follows], minlength=1)
    return np.sort(sizes)[::-1] / max(np.sum(np.asarray(alive) > 0), 1)


def gathered(vectors: np.ndarray, lines: int = 1, floor: float = 0.0) -> float:
    """Compute the share of living vectors along the ``lines`` lines with most vectors, to |cos| > 0.95."""
    return float(_shares(vectors, floor)[:lines].sum())


def count_lines(vectors: np.ndarray) -> int:
    """Count the lines along which at least two vectors, and at least 5 % of all, lie."""
    return int(np.sum(_shares(vectors) >= max(SPREAD, 2 / len(vectors)) - 1e-9))


def percent(values: np.ndarray, digits: int = 1) -> str:
    """Write the smallest and the largest share over seeds, or one number if they are equal."""
    low, high = (f"{value:.{digits}%}" for value in (np.min(values), np.max(values)))
    return low if low == high else f"{low} to {high}"


def in_words(seen: Observed) -> str:
    """Describe what is observed in one line, on average over seeds."""
    alive, count = seen.alive.mean(), f"{seen.lines.mean():.3g}"
    dead = "" if alive == 1 else f", {alive:.0%} of kernels alive"
    return f"{seen.pairs.mean():.1%} of pairs, {count} line{'' if count == '1' else 's'}{dead}"


def condense(
    results: Results,
    lines: dict[str, int],
    paper: str,
    floors: dict[str, float] | None = None,
    weaker: bool = False,
) -> Claim:
    """Claim that nearly all kernels of every layer of some runs lie along at most the given numbers of lines."""
    found: dict[str, tuple[Observed, Observed]] = {}
    for name, most in lines.items():
        for layer in layers_of(results[name]):
            before, now = (observe(results[name], layer, at, most, (floors or {}).get(name, 0.0)) for at in (0, -1))
            found[f"{name} {layer}"] = (before, now)
    most = ", ".join(f"{name}: {count}" for name, count in lines.items())
    left_out = f"; without kernels of {', '.join(floors)} shorter than {DEAD:.0%} of the longest" if floors else ""
    return Claim(
        text=f"at least {NEARLY_ALL:.0%} of the kernels of each layer lie along few lines, to |cos| > {NEAR:g} (at "
        f"most {most}{left_out}); the share of pairs with |cos| > {NEAR:g} and the number of lines are also given",
        paper=paper,
        measured="; ".join(
            f"{name}: {percent(now.gathered)} ({in_words(now)}; at the start {before.pairs.mean():.2g} of pairs)"
            for name, (before, now) in found.items()
        ),
        judged=together(at_least(now.gathered, NEARLY_ALL) for _, now in found.values()),
        weaker=weaker,
    )


def pairs_of_directions(run: xr.Dataset, wanted: dict[str, int], paper: str) -> Claim:
    """Claim that nearly all kernels of each layer lie along exactly the number of lines that the paper reports."""
    counts = {layer: np.array([count_lines(one) for one in kernels(run, layer)]) for layer in wanted}
    shares = {layer: observe(run, layer, lines=most).gathered for layer, most in wanted.items()}
    return Claim(
        text=f"at least {NEARLY_ALL:.0%} of the kernels lie along exactly these numbers of lines (pairs of opposite "
        f"directions): {', '.join(f'{layer}: {count}' for layer, count in wanted.items())}; at least two kernels and "
        f"{SPREAD:.0%} of all make a line, to |cos| > {NEAR:g}",
        paper=paper,
        measured="; ".join(
            f"{layer}: lines by seed {', '.join(map(str, counts[layer]))}, {percent(shares[layer])} of kernels along "
            f"the largest {most}"
            for layer, most in wanted.items()
        ),
        judged=together(
            one
            for layer, most in wanted.items()
            for one in (near(counts[layer], most, 0), at_least(shares[layer], NEARLY_ALL))
        ),
    )


def two_signs(results: Results, name: str, paper: str) -> Claim:
    """Claim that both directions of a line occur: many pairs along one line have opposite directions."""
    shares = {f"{name} {layer}": observe(results[name], layer) for layer in layers_of(results[name])}
    return Claim(
        text="both opposite directions occur in every layer: at least 10% of the pairs along one line have opposite "
        "directions (50% if signs are independent and fair, 18% if nine in ten agree)",
        paper=paper,
        measured="; ".join(
            f"{name}: {percent(seen.opposite)} of {percent(seen.pairs)}" for name, seen in shares.items()
        ),
        judged=together(at_least(seen.opposite, 0.1) for seen in shares.values()),
    )


def by_input(run: xr.Dataset, when: int = -1) -> np.ndarray:
    """Return the kernels of the first convolution by input channel: (seeds, inputs, outputs, m²)."""
    seen = kernels(run, "conv1", when)
    return np.swapaxes(seen.reshape(len(seen), option(run, "network.channels.0"), -1, seen.shape[2]), 1, 2)


def one_sign(results: Results, name: str, paper: str) -> Claim:
    """Claim that all kernels of one input channel have the same direction."""
    every = by_input(results[name])
    unit = every / np.linalg.norm(every, axis=3, keepdims=True)
    least = np.einsum("siad,sibd->siab", unit, unit).min(axis=(2, 3))
    return Claim(
        text=f"{name}: all kernels of one input channel have the same sign: any two have a cosine above {NEAR:g}",
        paper=paper,
        measured=f"smallest cosine by input channel: {', '.join(f'{value:.4f}' for value in least.min(axis=0))}",
        judged=at_least(least.min(axis=1), NEAR),
    )


def _with_ones(vectors: np.ndarray) -> np.ndarray:
    return vectors.sum(axis=-1) / (np.linalg.norm(vectors, axis=-1) * np.sqrt(vectors.shape[-1]))


def cosines_with_ones(run: xr.Dataset, when: int = -1) -> np.ndarray:
    """Compute the cosine of every first-layer kernel with the vector of ones: (seeds, inputs, outputs)."""
    return _with_ones(by_input(run, when))


def predicted_cosines_with_ones(run: xr.Dataset) -> np.ndarray:
    """Predict `cosines_with_ones` at the last time of a run by eq. 44, from its images and initial weights."""
    t, inputs = float(run["time"].values[-1]), by_input(run).shape[1]
    every = [found.at(t)[0][:, :-1] for found in predictions(recipe_of(run))]
    return _with_ones(np.swapaxes(np.stack([one.reshape(len(one), inputs, -1) for one in every]), 1, 2))


def along_ones(results: Results, name: str, paper: str) -> list[Claim]:
    """Claim that kernels lie along ± the vector of ones: all of them, nearly all, and as many as eq. 44 predicts."""
    run = results[name]
    cosines, predicted = np.abs(cosines_with_ones(run)), np.abs(predicted_cosines_with_ones(run))
    seen, expected = (np.mean(one > NEAR, axis=(1, 2)) for one in (cosines, predicted))
    start = np.median(np.abs(cosines_with_ones(run, 0)))
    measured = (
        f"{percent(seen)} of kernels; median |cos| {np.median(cosines):.4f} (at the start {start:.2f}), by input "
        f"channel {', '.join(f'{value:.4f}' for value in np.median(cosines, axis=(0, 2)))}"
    )
    every = Claim(
        text=f"the direction is the vector of ones: every kernel has |cos| > {NEAR:g} with it",
        paper=paper,
        measured=measured,
        judged=at_least(seen, 1.0),
    )
    nearly = f"the direction is the vector of ones: at least {NEARLY_ALL:.0%} of kernels have |cos| > {NEAR:g} with it"
    return [
        every,
        replace(every, text=nearly, judged=at_least(seen, NEARLY_ALL), weaker=True),
        Claim(
            text=f"as many kernels have |cos| > {NEAR:g} with the vector of ones as eq. 44 predicts from the same "
            f"images and initial weights, to {PREDICTED:.0%} of all kernels in each draw",
            paper="Proposition 1 (eq. 44); the paper does not compare single draws",
            measured="predicted and observed, by draw: "
            + ", ".join(f"{a:.1%} and {b:.1%}" for a, b in zip(expected, seen, strict=True)),
            judged=near(seen - expected, 0.0, PREDICTED),
        ),
    ]


def control(small: xr.Dataset, standard: xr.Dataset) -> Claim:
    """Claim that from a standard initialisation kernels do not condense at an equal relative decrease of the loss."""
    reached, falls = fall(small)[:, -1], fall(standard)
    enough = falls >= reached[:, None]
    at = np.where(enough.any(axis=1), np.argmax(enough, axis=1), falls.shape[1] - 1)
    layers = layers_of(small)
    ours = {layer: observe(small, layer).pairs for layer in layers}
    theirs = {layer: observe(standard, layer, at).pairs for layer in layers}
    size = kernels(small, layers[0]).shape[2]
    if not (enough.any(axis=1).all() and np.all(reached > 0)):
        judged = undecided("there is no equal decrease of the loss at which to compare")
    else:
        spread = [at_least(1 - theirs[layer], 1 - SPREAD) for layer in layers]
        judged = together([*spread, *(at_least(ours[layer], SPREAD) for layer in layers)])
    there = np.take_along_axis(falls, at[:, None], axis=1)
    return Claim(
        text="the same network from a standard initialisation (Glorot) does not condense: at an equal relative "
        f"decrease of the loss at most {SPREAD:.0%} of pairs have |cos| > {NEAR:g} in any layer (by chance "
        f"{chance(size, NEAR):.0e}), and more than that from small weights in every layer",
        paper="the paper has no such control",
        measured=f"relative decrease of the loss {np.median(reached):.2e} from small weights, {np.median(there):.2e} "
        "from the standard initialisation; pairs: "
        + "; ".join(f"{layer} {percent(ours[layer])} against {percent(theirs[layer], 2)}" for layer in layers),
        judged=judged,
    )
