"""Small runs of the learner of ren2023: examples and counterexamples of its theorems."""

import functools
from typing import Any

import jax
import numpy as np

from unlazy.flows import Descent, RungeKutta, Trajectory
from unlazy.networks import Constant, Law, MeanFieldStack, Normal, Sphere, Tied
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.data import spherical, spherical_quadrature
from unlazy.papers.ren2023.probes import (
    ClipActivity,
    FirstLayer,
    LayerSpeeds,
    LimitDistance,
    LossDecomposition,
    SecondLayer,
)
from unlazy.papers.ren2023.radial import heavy_tailed
from unlazy.papers.ren2023.theorems.setting import FIT
from unlazy.probes import TrainLoss

_D = 5  # dimension of all problems


def _learner(widths: tuple[float, float], first: Law, second: Law, bias: float | Law, **options: Any) -> MeanFieldStack:
    """Make the learner with w_1, w_2 and b_2 from three laws; a number is a constant law."""
    fixed: dict[str, Any] = {"ranks": 1, "features": (first, second), "amplitude": (Tied(), Constant(1.0))}
    fixed["bias"] = (False, Constant(bias) if isinstance(bias, float) else bias)
    return MeanFieldStack(widths, _D, **({"train": ("w", "wb"), "key": jax.random.key(0)} | fixed | options))


@functools.lru_cache(maxsize=8)
def at_start(*, law: str = "heavy-tailed", even_features: bool = True) -> Trajectory:
    """Return a learner of 400 neurons before training, on 2000 inputs.

    The ``law`` of the inputs is "heavy-tailed", "gaussian", or "subspace" for a target that depends on two coordinates
    only. Unless ``even_features``, first-layer neurons have a preferred direction.
    """
    if law == "heavy-tailed":
        data = heavy_tailed(2000, _D, key=jax.random.key(4))
    else:
        kind, subspace = ("gaussian", None) if law == "gaussian" else ("heavy-tailed", 2)
        data = spherical(2000, _D, kind, stratified=False, subspace=subspace, key=jax.random.key(5))
    features = Sphere(1.0) if even_features else Normal(0.3, mean=(0.5,) * _D)
    network = _learner((400, 4), features, Normal(0.1), bias=0.5)
    return Descent(rate=1e-3)(network, data, [0.0])


@functools.lru_cache(maxsize=4)
def first_stage(
    *, clip: tuple[float, float, float] | None = (10.0, 100.0, 2.0), spread: float = 1e-4, uneven: float = 0.0
) -> Trajectory:
    """Train through stage 1: from w_2 of both signs down to -0.2, with many samples in the tail so that clips matter.

    ``clip`` are R_v1, R_v2 and R_r2, ``spread`` and ``uneven`` the standard deviations of w_2 and of b_2. The default
    spread is so small that d δ_2 is far below 1/R_v2, which the paper's order of substages requires.
    """
    data = spherical(400, _D, tail=0.5, key=jax.random.key(6))
    network = _learner((64, 6), Sphere(0.5), Normal(spread), Normal(uneven, mean=0.3) if uneven else 0.3, clip=clip)
    times = np.concatenate([[0.0], np.geomspace(1e-5, 20.0, 60)])
    probes = (*FIT, LayerSpeeds()) if clip is None else (*FIT, LayerSpeeds(), ClipActivity())
    return RungeKutta(rtol=1e-5, atol=1e-9)(network, data, times, list(probes))


@functools.lru_cache(maxsize=8)
def second_stage(*, train: tuple[str, str] = ("w", "wb"), weight: float = -0.2, until: float = 200.0) -> Trajectory:
    """Train through stage 2, until the loss is small.

    ``train`` are the trained parameters of both layers, ``weight`` is the mean of w_2 at the start, ``until`` the end.
    """
    data = spherical(400, _D, truncate=20.0, key=jax.random.key(8))
    network = _learner((64, 6), Sphere(0.7), Normal(0.02, mean=weight), bias=0.35, train=train, key=jax.random.key(1))
    return RungeKutta(rtol=1e-5, atol=1e-8)(network, data, np.linspace(0.0, until, 31), list(FIT))


@functools.lru_cache(maxsize=2)
def decomposed(*, spread: float = 0.0) -> Trajectory:
    """Return a learner close to the target, so wide that the error of its first layer is a few percent.

    The standard deviation of w_2 is ``spread``.
    """
    data = spherical(16_000, _D, truncate=4.0, key=jax.random.key(9))  # sampling error of gradients: a few percent
    weights = Normal(spread, mean=-0.5 / sphere_mean(_D))  # w̄_2 α = -0.5 with |w_1| = 1
    network = _learner((128, 4), Sphere(1.0), weights, bias=0.6, key=jax.random.key(2))
    probes = [LossDecomposition(), SecondLayer(), TrainLoss(), LimitDistance(), FirstLayer(reach=float("inf"))]
    return Descent(rate=1e-3)(network, data, [0.0], probes)


@functools.lru_cache(maxsize=8)
def infinite_stage(*, weight: float = -0.2, bias: float = 0.35, until: float = 30.0) -> Trajectory:
    """Train a learner of infinite width through the beginning of stage 2, to the time ``until``.

    At the start ``weight`` is the mean of w_2, whose standard deviation is at most a tenth of it, and ``bias`` is b_2.
    """
    first, second = Sphere(0.7), Normal(min(0.02, abs(weight) / 10), mean=weight)
    network = _learner((float("inf"), 6), first, second, bias=bias, key=jax.random.key(1))
    nodes, times = spherical_quadrature(_D), np.linspace(0.0, until, 121)
    return RungeKutta(rtol=1e-7, atol=1e-10)(network, nodes, times, [*FIT, LayerSpeeds()])
