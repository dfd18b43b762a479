"""The distance of finite networks to their mean-field limit falls as theory says, in width and in step."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Relu, Tanh
from unlazy.data import Dataset
from unlazy.flows import Descent, RungeKutta
from unlazy.networks import Constant, MeanFieldStack, Normal, Uniform
from unlazy.probes import TrainedNeurons
from unlazy.theory.coupling import (
    Coefficients,
    against_first_width,
    against_step,
    against_width,
    distance,
    draw_first,
    fitted_exponent,
    movement,
)

TIMES = [1.0, 2.0]


def dataset(n):
    x = jnp.linspace(-1, 1, n)[:, None]
    return Dataset(x, jnp.cos(3 * x[:, 0]))


DATA = dataset(12)


def stack(width):
    # Amplitudes with a mean: without one the limit does not move.
    laws = (Uniform(1.0, mean=(1.0, -1.0)), Uniform(1.0, mean=1.0))
    return MeanFieldStack(
        (width, width),
        1,
        ranks=2,
        train="a",
        features=Normal(2.0),
        amplitude=laws,
        activation=Tanh(),
        key=jax.random.key(0),
    )


def test_the_exponent_in_width_is_minus_one_half():
    """16 repetitions know each root mean square to 18 %, and the slope over a factor of 16 to 0.08."""
    study = against_width(stack(4096), DATA, [16, 32, 64, 128, 256], [0.5, 1.0], Descent(rate=0.1), repetitions=16)
    assert study.distances.shape == (5, 16)
    assert np.all(study.distances > 0)
    assert abs(study.exponent + 0.5) < 0.16


def infinite(width=32):
    return MeanFieldStack(
        (math.inf, width),
        1,
        ranks=2,
        train="a",
        features=(Normal(), Normal(0.5)),
        activation=(Relu(), Tanh()),
        amplitude=(Constant((1.0, -1.0)), Uniform(1.0, mean=1.0)),
        key=jax.random.key(0),
    )


def test_the_exponent_against_an_infinite_first_block_is_minus_one_half():
    """12 repetitions know each root mean square to 20 %, and the slope over a factor of 16 to 0.1; two of those."""
    flow = RungeKutta(rtol=1e-5, atol=1e-7)
    study = against_first_width(infinite(), dataset(3), [64, 1024], [0.5, 1.0], flow, repetitions=12)
    assert study.distances.shape == (2, 12)
    assert abs(study.exponent + 0.5) < 0.2


def test_neurons_of_an_infinite_block_are_coupled_to_its_law():
    """With 50,000 neurons the drawn network is the limit to within a few of 50,000^-1/2 = 0.0045, neuron by neuron."""
    flow = RungeKutta(rtol=1e-6, atol=1e-8)
    study = against_first_width(infinite(4), dataset(2), [50_000], [1.0], flow)
    assert 0 < study.distances[0, 0] < 0.02
    assert np.isnan(study.exponent)  # one size has none
    drawn = draw_first(infinite(), 50, key=jax.random.key(1))
    close(drawn.blocks[0].a, np.tile([1.0, -1.0], (50, 1)))
    with pytest.raises(UserError, match="first block of infinite width"):
        draw_first(stack(8), 4, key=jax.random.key(1))
    with pytest.raises(UserError, match="Coefficients exist for a first block"):
        Descent(rate=0.1, coordinates="weights")(stack(8), DATA, [0.1], [Coefficients()])


def test_runs_without_neurons_cannot_be_compared():
    run = Descent(rate=0.5)(stack(8), DATA, [0.0, 0.5])
    with pytest.raises(UserError, match="TrainedNeurons"):
        distance(run, run)
    seen = Descent(rate=0.5)(stack(8), DATA, [0.0, 0.5], [TrainedNeurons()])
    rows = seen.observed["trained-neurons"]
    assert movement(seen) == max(float(np.abs(part[1] - part[0]).max()) for part in rows.values()) > 0


def test_the_exponent_in_step_is_one_with_all_samples():
    study = against_step(stack(64), DATA, [0.25, 0.125, 0.0625, 0.03125], TIMES)
    assert abs(study.exponent - 1) < 0.1


def test_the_exponent_in_step_is_one_half_with_minibatches():
    """One sample a step, a small part of an epoch; 24 repetitions know the slope over a factor of 16 to 0.08."""
    steps = [2.0**-k for k in range(4, 9)]
    short = against_step(stack(16), dataset(2000), [2 * step for step in steps], [1.0], batch=1, repetitions=24)
    assert abs(short.exponent - 0.5) < 0.16
    # Over whole epochs what single samples do cancels, and the error is that of the step again.
    assert against_step(stack(16), DATA, steps, [3.0], batch=1, repetitions=24).exponent > 0.75


def test_the_distance_is_the_largest_difference():
    wide = stack(8)
    probes = {"neurons": TrainedNeurons()}
    reference, run = (Descent(rate=0.5)(one, DATA, TIMES, probes) for one in (wide, wide.narrowed((4, 4), 2)))
    differences = [
        np.abs(np.asarray(a) - np.asarray(b)[:, 2:6]).max()
        for a, b in zip(run.observed["neurons"].values(), reference.observed["neurons"].values(), strict=True)
    ]
    assert distance(run, reference, 2) == max(differences) > 0
    at_start = Descent(rate=0.5)(wide.narrowed((4, 4), 2), DATA, [0.0], probes)
    assert distance(at_start, Descent(rate=0.5)(wide, DATA, [0.0], probes), 2) == 0
    with pytest.raises(UserError, match="fewer than 8 neurons from 2 on"):
        distance(reference, reference, 2)
    with pytest.raises(UserError, match="same times"):
        distance(at_start, reference, 2)


def test_the_fit_finds_a_power():
    x = np.asarray([1.0, 2.0, 4.0])
    close(fitted_exponent(x, 3 * x[:, None] ** -0.5), -0.5)


def test_the_reference_must_be_wider():
    with pytest.raises(UserError, match="wider reference"):
        against_width(stack(64), DATA, [16, 32], TIMES, repetitions=3)
