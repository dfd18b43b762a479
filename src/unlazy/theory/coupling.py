"""How far a finite network is from its mean-field limit, against width and against step (aiad2026 Theorem 2.3).

Networks of all widths are coupled: a narrow one is made of neurons of a wide one, which stands for the limit, so that
single neurons can be compared. The distance is D_T(W, W̃) of Appendix G.2: the largest difference of any trained
parameter of any neuron that both have, at any of the times. Against a reference of width N sampling errors fall as
√(1/n - 1/N), not as 1/√n.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Descent, Flow, RungeKutta, Trajectory
from unlazy.losses import Loss, Squared
from unlazy.networks import MeanFieldStack
from unlazy.probes import TrainedNeurons

_NEURONS = "neurons"


class Study(NamedTuple):
    """Distances against widths or steps: one row for each of ``sizes``, one column for each repetition."""

    sizes: np.ndarray
    distances: np.ndarray
    exponent: float  # of the power law through the root mean squares of the rows


def distance(run: Trajectory, reference: Trajectory, first: int = 0) -> float:
    """D_T between two runs that looked at ``TrainedNeurons`` at the same times.

    Neuron j of ``run`` is neuron ``first`` + j of ``reference``.
    """
    if len(run.times) != len(reference.times) or not np.allclose(run.times, reference.times, rtol=1e-9, atol=1e-12):
        raise UserError("Runs are compared at the same times, and these looked at different ones.")
    here, there = run.seen[_NEURONS], reference.seen[_NEURONS]
    largest = 0.0
    for block, rows in here.items():
        part = there[block][:, first : first + rows.shape[1]]
        if part.shape != rows.shape:
            raise UserError(
                f"The reference has no {rows.shape[1]} neurons from {first} on in {block}: take a wider one."
            )
        largest = max(largest, float(np.max(np.abs(rows - part))))
    return largest


def fitted_exponent(x: np.ndarray, distances: np.ndarray) -> float:
    """Slope of log D against log x, with D the root mean square over repetitions."""
    size = np.sqrt(np.mean(np.square(distances), axis=1))
    return float(np.polyfit(np.log(x), np.log(size), 1)[0])


def against_width(
    wide: MeanFieldStack,
    data: Dataset,
    widths: Sequence[int],
    times: Sequence[float],
    flow: Flow | None = None,
    repetitions: int = 1,
) -> Study:
    """Train ``wide`` and parts of it, all blocks n neurons wide, and measure D_T for each n.

    Repetition i takes neurons i n to (i + 1) n. The exponent is that of n, fitted as D = C (1/n - 1/N)^p: expect -1/2.
    A distance scatters about as much as it is large, so that it takes some 30 repetitions to know the exponent to 0.05.
    """
    flow = RungeKutta(rtol=1e-6, atol=1e-8) if flow is None else flow
    full = _narrowest(wide)
    if not widths or max(widths) * repetitions > full or max(widths) >= full:
        raise UserError(
            f"{repetitions} x {max(widths, default=0)} neurons do not leave a reference of {full} much wider: take a "
            "wider reference, or fewer repetitions."
        )
    (reference,) = _runs(flow, [wide], data, times)
    rows = []
    for n in widths:
        parts = [wide.narrowed([n] * wide.depth, n * i) for i in range(repetitions)]
        runs = _runs(flow, parts, data, times)
        rows.append([distance(run, reference, n * i) for i, run in enumerate(runs)])
    sizes, distances = np.asarray(widths, float), np.asarray(rows)
    return Study(sizes, distances, -fitted_exponent(1 / sizes - 1 / full, distances))


def against_step(
    network: MeanFieldStack,
    data: Dataset,
    steps: Sequence[float],
    times: Sequence[float],
    loss: Loss | None = None,
    batch: int | None = None,
    repetitions: int = 1,
) -> Study:
    """Train by descent with each of ``steps``, which must divide all times, and measure D_T to the flow itself.

    With all samples a step the exponent is 1. With minibatches (repetition i draws them with key i) it is 1/2, as long
    as the run is much shorter than an epoch: a whole one sees every sample once, and what its batches did cancels.
    """
    loss = Squared() if loss is None else loss
    (reference,) = _runs(RungeKutta(loss=loss, rtol=1e-8, atol=1e-10), [network], data, times)
    rows = []
    for step in steps:
        runs = _runs(Descent(loss=loss, rate=step, batch=batch), [network] * repetitions, data, times)
        rows.append([distance(run, reference) for run in runs])
    sizes, distances = np.asarray(steps, float), np.asarray(rows)
    return Study(sizes, distances, fitted_exponent(sizes, distances))


def _runs(flow: Flow, networks: list[MeanFieldStack], data: Dataset, times: Sequence[float]) -> list[Trajectory]:
    """Train networks of one shape together, run i with key i."""
    runs = flow.over_seeds(networks, data, times, {_NEURONS: TrainedNeurons()})
    for run in runs:
        if not run.status.ok:
            raise UserError(f"A run of this study did not reach its end. {run.status.value}")
    return runs


def _narrowest(network: MeanFieldStack) -> int:
    return min(rows.shape[0] for rows in network.trained_rows().values())
