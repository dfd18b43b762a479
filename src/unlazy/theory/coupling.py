"""The distance of finite networks from their mean-field limit, against width and step size (aiad2026 Theorem 2.3).

Networks of all widths are coupled: a narrow network consists of neurons of a wide one, which represents the limit, so
that single neurons can be compared. The first block can also be infinite: the path of any of its neurons is then given
by eq. 14, w_1(t) = w_1(0) - Σ_p Γ_p(t) φ_1(x_p).

The distance is D_T(W, W̃) of Appendix G.2: the largest difference of any trained parameter of any shared neuron at any
of the times. With a reference of width N, sampling errors fall as √(1/n - 1/N), not as 1/√n.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy._types import PRNGKey
from unlazy.data import Dataset
from unlazy.flows import Descent, Flow, RungeKutta, Trajectory
from unlazy.losses import Loss, Squared
from unlazy.networks import Block, Limit, MeanFieldStack, with_fields
from unlazy.probes import Observation, Probe, TrainedNeurons
from unlazy.theory.theorem import through


class Study(NamedTuple):
    """Distances D_T for several widths or steps.

    Attributes
    ----------
    sizes
        The widths or steps.
    distances
        D_T, one row per size and one column per repetition.
    exponent
        Exponent of the power law through the root mean squares of the rows.
    """

    sizes: np.ndarray
    distances: np.ndarray
    exponent: float


def distance(run: Trajectory, reference: Trajectory, first: int = 0) -> float:
    """Compute D_T between two runs.

    Parameters
    ----------
    run, reference
        Two runs with the probe `TrainedNeurons` at the same times.
    first
        Neuron j of ``run`` is neuron ``first`` + j of ``reference``.
    """
    if len(run.times) != len(reference.times) or not np.allclose(run.times, reference.times, rtol=1e-9, atol=1e-12):
        raise UserError("The runs were observed at different times: run both with the same times.")
    here, there = neurons_of(run), neurons_of(reference)
    largest = 0.0
    for block, rows in here.items():
        part = there[block][:, first : first + rows.shape[1]]
        if part.shape != rows.shape:
            raise UserError(
                f"{block} of the reference has fewer than {rows.shape[1]} neurons from {first} on: use a wider one."
            )
        largest = max(largest, float(np.max(np.abs(rows - part))))
    return largest


def neurons_of(run: Trajectory) -> dict[str, np.ndarray]:
    """Return the trained parameters of each neuron, by block, at every observed time.

    Parameters
    ----------
    run
        A run with the probe `TrainedNeurons`.
    """
    seen = through(run, TrainedNeurons())
    if seen is None:
        raise UserError("Networks are compared neuron by neuron: give both runs probes=[TrainedNeurons()].")
    return {name: np.asarray(rows, float) for name, rows in seen.items()}


def movement(run: Trajectory) -> float:
    """Return the largest change of any trained parameter of any neuron since the first time.

    Parameters
    ----------
    run
        A run with the probe `TrainedNeurons`.
    """
    return max(float(np.max(np.abs(rows - rows[:1]))) for rows in neurons_of(run).values())


def fitted_exponent(x: np.ndarray, distances: np.ndarray) -> float:
    """Fit the slope of log D against log x, with D the root mean square over repetitions; NaN for a single size.

    Parameters
    ----------
    x
        Sizes.
    distances
        Distances, one row per size and one column per repetition.
    """
    if len(x) < 2:
        return float("nan")
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
    """Train a wide network and parts of it, with n neurons in every block, and measure D_T for each n.

    The exponent is that of n, fitted as D = C (1/n - 1/N)^p: expect -1/2. The standard deviation of a distance is about
    as large as the distance, so that about 30 repetitions are needed to determine the exponent to 0.05.

    Parameters
    ----------
    wide, data
        The wide network, which represents the limit, and the data set.
    widths, times
        The widths n, and the times at which neurons are compared.
    flow
        The flow; `RungeKutta` with rtol = 1e-6 if omitted.
    repetitions
        Number of repetitions for each size. Repetition i takes neurons i n to (i + 1) n.
    """
    flow = RungeKutta(rtol=1e-6, atol=1e-8) if flow is None else flow
    full = min(rows.shape[0] for rows in wide.trained_rows().values())
    if not widths or max(widths) * repetitions > full or max(widths) >= full:
        raise UserError(
            f"A reference of {full} neurons is not much wider than {repetitions} x {max(widths, default=0)}: use a "
            "wider reference, or fewer repetitions."
        )
    (reference,) = _runs(flow, [wide], data, times)
    rows = []
    for n in widths:
        parts = [wide.narrowed([n] * wide.depth, n * i) for i in range(repetitions)]
        runs = _runs(flow, parts, data, times)
        rows.append([distance(run, reference, n * i) for i, run in enumerate(runs)])
    study = _study(widths, rows)
    return study._replace(exponent=-fitted_exponent(1 / study.sizes - 1 / full, study.distances))


def against_step(
    network: MeanFieldStack,
    data: Dataset,
    steps: Sequence[float],
    times: Sequence[float],
    loss: Loss | None = None,
    batch: int | None = None,
    repetitions: int = 1,
) -> Study:
    """Train by descent with several step sizes, and measure D_T to the gradient flow.

    With all samples in each step the exponent is 1. With minibatches it is 1/2, as long as the run is much shorter than
    an epoch: a whole epoch uses every sample once, and the effects of its batches cancel.

    Parameters
    ----------
    network
        The network.
    data, times, repetitions
        As for `against_width`.
    steps
        The step sizes, each of which must divide all times.
    loss
        The loss; `Squared()` if omitted.
    batch
        Size of minibatches, which repetition i draws with key i; all samples if omitted.
    """
    loss = Squared() if loss is None else loss
    (reference,) = _runs(RungeKutta(loss=loss, rtol=1e-8, atol=1e-10), [network], data, times)
    rows = []
    for step in steps:
        runs = _runs(Descent(loss=loss, rate=step, batch=batch), [network] * repetitions, data, times)
        rows.append([distance(run, reference) for run in runs])
    return _study(steps, rows)


class Coefficients(Probe):
    """Γ of a first block of infinite width, in Gram coordinates: (channels, n)."""

    def __call__(self, obs: Observation) -> Array:
        """Return the coefficients."""
        now = obs.network.restore()
        first = now.blocks[0] if isinstance(now, MeanFieldStack) else None
        if not isinstance(first, Limit) or first.coefficients is None:
            raise UserError('Coefficients exist for a first block of infinite width only: use coordinates = "gram".')
        return first.coefficients


def draw_first(limit: MeanFieldStack, width: int, *, key: PRNGKey) -> MeanFieldStack:
    """Replace an infinitely wide first block by neurons drawn from its law.

    Their amplitudes are the mean of its law, which is all that matters in the limit.

    Parameters
    ----------
    limit
        A network whose first block is infinitely wide.
    width
        Number of neurons of the new first block.
    key
        Random key.
    """
    first = limit.blocks[0]
    if not isinstance(first, Limit) or width < 1:
        raise UserError("Neurons are drawn from a first block of infinite width: use widths = [inf, 64].")
    w_key, b_key = jax.random.split(key)
    dtype = first.mean.dtype
    w = first.weight_spread * jax.random.normal(w_key, (width, first.inputs), dtype)
    b = first.bias_spread * jax.random.normal(b_key, (width,), dtype)
    a = jnp.broadcast_to(first.mean, (width, first.mean.shape[0]))
    block = Block(a, w, b, first.c, first.activation, first.train, True, False, False)
    if first.points is not None and first.coefficients is not None:  # what training has added to its amplitudes
        block = with_fields(block, a=a - block.column(first.points.T) @ first.coefficients.T)
    return with_fields(limit, blocks=(block, *limit.blocks[1:]))


def against_first_width(
    limit: MeanFieldStack,
    data: Dataset,
    widths: Sequence[int],
    times: Sequence[float],
    flow: RungeKutta | None = None,
    repetitions: int = 1,
) -> Study:
    """Train networks drawn from one with an infinite first block, and measure D_T to it; expect n^(-1/2).

    Every neuron is compared with its own path in the limit. With unbounded features, the largest difference D_T also
    grows like √log n, with the range of n draws.

    Parameters
    ----------
    limit
        A network whose first block is infinitely wide.
    widths
        The widths n of the first block.
    data, times, repetitions
        As for `against_width`.
    flow
        The flow; `RungeKutta` with rtol = 1e-8 if omitted.
    """
    flow = RungeKutta(rtol=1e-8, atol=1e-10) if flow is None else flow
    (reference,) = _runs(with_fields(flow, coordinates="gram"), [limit], data, times, coefficients=Coefficients())
    gamma = np.asarray(reference.observed["coefficients"], float)  # (times, D, n)
    above = neurons_of(reference)

    def apart(network: MeanFieldStack, run: Trajectory) -> float:
        first = network.blocks[0]
        assert isinstance(first, Block)
        assert first.a is not None
        features = np.asarray(first.column(data.x.T), float)  # (neurons, n)
        paths = np.asarray(first.a, float)[None] - np.einsum("jp,tkp->tjk", features, gamma)
        return float(max(np.max(np.abs(now - above.get(name, paths))) for name, now in neurons_of(run).items()))

    rows = []
    for n in widths:
        drawn = [draw_first(limit, n, key=jax.random.fold_in(jax.random.key(i), n)) for i in range(repetitions)]
        runs = _runs(with_fields(flow, coordinates="weights"), drawn, data, times)
        rows.append(list(map(apart, drawn, runs)))
    return _study(widths, rows)


def _study(sizes: Sequence[float], rows: list[list[float]]) -> Study:
    x, distances = np.asarray(sizes, float), np.asarray(rows)
    return Study(x, distances, fitted_exponent(x, distances))


def _runs(
    flow: Flow, networks: list[MeanFieldStack], data: Dataset, times: Sequence[float], **more: Probe
) -> list[Trajectory]:
    """Train networks of one shape together, run i with key i."""
    runs = flow.over_seeds(networks, data, times, {"neurons": TrainedNeurons(), **more})
    for run in runs:
        if not run.status.ok:
            raise UserError(f"A run of this study did not reach its end. {run.status.value}")
    return runs
