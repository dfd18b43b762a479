"""Which runs ren2023 speaks about, what its theorems take from them, and small problems of this kind."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from scipy import stats

from unlazy.data import Dataset
from unlazy.flows import Descent, RungeKutta, Trajectory
from unlazy.networks import (
    Block,
    Constant,
    Law,
    MeanFieldStack,
    Network,
    Normal,
    Sphere,
    SphericalLimit,
    Tied,
    is_learner,
    sphere_mean,
)
from unlazy.papers.ren2023.data import spherical
from unlazy.papers.ren2023.probes import ClipActivity, FirstLayer, LossDecomposition, SecondLayer
from unlazy.papers.ren2023.radial import heavy_tailed
from unlazy.probes import Probe, TrainLoss
from unlazy.theory._base import Hypothesis, Reading

AUTHORS = "Ren, Zhou, Ge (2023)"
LAYERS: tuple[Probe, ...] = (SecondLayer(), FirstLayer())
FIT: tuple[Probe, ...] = (*LAYERS, TrainLoss())
_DELTA = 1e-3  # how often a test of symmetry may reject what is symmetric


def _layers(network: Network) -> tuple[MeanFieldStack, Block | SphericalLimit, Block] | None:
    """The learner of eq. 1 and its layers, of finite or infinite width, with all amplitudes 1 and no offsets."""
    if not (isinstance(network, MeanFieldStack) and network.scalar and is_learner(network.blocks)):
        return None
    first, second = network.blocks
    if not (isinstance(first, Block | SphericalLimit) and isinstance(second, Block)):
        return None
    offsets = [block.c for block in (first, second) if isinstance(block, Block)]
    plain = bool(np.all(np.asarray(second.a) == 1)) and not any(np.any(np.asarray(c)) for c in offsets)
    return (network, first, second) if plain else None


def is_known(network: Network) -> bool:
    """Whether it is the learner of eq. 1, of finite or infinite width."""
    return _layers(network) is not None


def is_finite(network: Network) -> bool:
    """Whether it is a learner whose first layer has single neurons."""
    found = _layers(network)
    return found is not None and isinstance(found[1], Block)


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """A run of the learner of eq. 1, with its layers as the run began."""

    run: Trajectory
    network: MeanFieldStack
    first: Block | SphericalLimit
    second: Block

    @property
    def d(self) -> int:
        """Number of inputs."""
        return self.network.inputs

    @property
    def inputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x, |x| and the targets of all samples."""
        x = np.asarray(self.run.data.x, float)
        return x, np.linalg.norm(x, axis=1), np.asarray(self.run.data.y, float)

    @property
    def neurons(self) -> np.ndarray:
        """(w_2, b_2) of every second-layer neuron."""
        b = np.zeros(self.second.width) if self.second.b is None else np.asarray(self.second.b, float)
        return np.stack([np.asarray(self.second.w, float)[:, 0], b], axis=1)

    @property
    def spread(self) -> float:
        """δ_2: the largest distance between two second-layer neurons."""
        return float(np.max(np.linalg.norm(self.neurons[:, None] - self.neurons[None], axis=2)))

    def both_trained(self) -> Hypothesis:
        """Nothing of the learner is frozen."""
        return Hypothesis("both layers trained", self.first.train == "w" and set(self.second.train) == set("wb"))

    def unclipped(self) -> Hypothesis:
        """No clips."""
        return Hypothesis("no clips", self.network.clip is None)


@dataclasses.dataclass(frozen=True, eq=False)
class Finite(Setting):
    """A run of a learner of finite width."""

    first: Block


def model(run: Trajectory) -> Reading[Setting | None]:
    """The learner of eq. 1."""
    found = _layers(run.start)
    yield Hypothesis("the learner of eq. 1", found is not None)
    return None if found is None else Setting(run, *found)


def finite_model(run: Trajectory) -> Reading[Finite | None]:
    """The learner of eq. 1, with single neurons in its first layer."""
    found = _layers(run.start)
    setting = None
    if found is not None and isinstance(found[1], Block):
        setting = Finite(run, found[0], found[1], found[2])
    yield Hypothesis("the learner of eq. 1, of finite width", setting is not None)
    return setting


def even_directions(rows: np.ndarray) -> float:
    """How likely rows are whose directions are spread evenly, by their mean: n d |mean|² is χ² with d degrees."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(length > 0, length, 1)
    n, d = rows.shape
    return float(stats.chi2(d).sf(n * d * np.sum(unit.mean(axis=0) ** 2)))


def even(rows: np.ndarray, what: str) -> Hypothesis:
    """Directions that have no preferred one, as far as numbers tell."""
    chance = even_directions(rows)
    return Hypothesis(f"{what} spread evenly over directions (chance of such a mean)", chance > _DELTA, chance, _DELTA)


def symmetric(run: Trajectory) -> Reading[None]:
    """Inputs without a preferred direction, and targets relu(1 - |x|)."""
    yield even(np.asarray(run.data.x, float), "inputs")
    yield radial_target(run)


def plain_inputs(run: Trajectory) -> Hypothesis:
    """Independent samples, which all count alike."""
    many = run.data.x.ndim == 2 and run.data.n >= 100 and run.data.x.shape[1] > 1
    return Hypothesis("at least 100 samples of equal weight", many and run.data.weight is None, run.data.n, 100)


def radial_target(run: Trajectory) -> Hypothesis:
    """Targets relu(1 - |x|)."""
    r = np.linalg.norm(np.asarray(run.data.x, float), axis=1)
    off = float(np.max(np.abs(np.asarray(run.data.y, float).ravel() - np.maximum(1 - r, 0)))) if run.data.n else 0.0
    return Hypothesis("targets relu(1 - |x|), up to rounding", off < 1e-4, off, 0.0)


def learner(
    widths: tuple[float, float], d: int, *, weights: Law, bias: float, radius: float, key: int = 0, **options: Any
) -> MeanFieldStack:
    """The learner with w_1 on a sphere, w_2 from ``weights`` and b_2 = ``bias``."""
    features = options.pop("features", Sphere(radius))
    return MeanFieldStack(
        widths,
        d,
        ranks=1,
        train=options.pop("train", ("w", "wb")),
        features=(features, weights),
        bias=(False, Constant(bias)),
        amplitude=(Tied(), Constant(1.0)),
        key=jax.random.key(key),
        **options,
    )


@functools.lru_cache(maxsize=8)
def at_start(*, n: int = 2000, d: int = 5, law: str = "heavy-tailed", even_features: bool = True) -> Trajectory:
    """A learner of 400 neurons that has not moved, on inputs of one law or another."""
    key = jax.random.key(4)
    data = heavy_tailed(n, d, key=key) if law == "heavy-tailed" else _other(n, d, law)
    features = Sphere(1.0) if even_features else Normal(0.3, mean=(0.5,) * d)
    network = learner((400, 4), d, weights=Normal(0.1), bias=0.5, radius=1.0, features=features)
    return Descent(rate=1e-3)(network, data, [0.0])


def _other(n: int, d: int, law: str) -> Dataset:
    key = jax.random.key(5)
    if law == "subspace":
        return spherical(n, d, stratified=False, subspace=2, key=key)
    return spherical(n, d, law="gaussian", stratified=False, key=key)


@functools.lru_cache(maxsize=4)
def first_stage(*, clip: tuple[float, float, float] | None = (10.0, 100.0, 2.0), spread: float = 1e-4) -> Trajectory:
    """Stage 1 in five dimensions: w_2 from either side of 0 down to 0.2, with weighted tails so that clips matter.

    The spread is so small that d δ_2 is far below 1/R_v2, as the paper's order of substages wants it.
    """
    d = 5
    data = spherical(400, d, tail=0.5, key=jax.random.key(6))
    network = learner((64, 6), d, weights=Normal(spread), bias=0.3, radius=0.5, clip=clip)
    times = np.concatenate([[0.0], np.geomspace(1e-5, 20.0, 60)])
    probes = FIT if clip is None else (*FIT, ClipActivity())
    return RungeKutta(rtol=1e-5, atol=1e-9)(network, data, times, list(probes))


@functools.lru_cache(maxsize=8)
def second_stage(*, train: tuple[str, str] = ("w", "wb"), weight: float = -0.2, until: float = 200.0) -> Trajectory:
    """Stage 2 in five dimensions, from w_2 near -0.2 on, until the loss is small."""
    d = 5
    data = spherical(400, d, truncate=20.0, key=jax.random.key(8))
    weights = Normal(0.02, mean=weight)
    network = learner((64, 6), d, weights=weights, bias=0.35, radius=0.7, train=train, key=1)
    return RungeKutta(rtol=1e-5, atol=1e-8)(network, data, np.linspace(0.0, until, 31), list(FIT))


@functools.lru_cache(maxsize=2)
def decomposed(*, spread: float = 0.0) -> Trajectory:
    """A learner near the target in five dimensions, so wide that its first layer is off by a few percent only."""
    d = 5
    data = spherical(16_000, d, truncate=4.0, key=jax.random.key(9))  # chance in gradients: a few percent
    weights = Normal(spread, mean=-0.5 / sphere_mean(d))  # w̄_2 α = -0.5 with |w_1| = 1
    network = learner((128, 4), d, weights=weights, bias=0.6, radius=1.0, key=2)
    probes = [LossDecomposition(), SecondLayer(), TrainLoss()]
    return Descent(rate=1e-3)(network, data, [0.0], probes)
