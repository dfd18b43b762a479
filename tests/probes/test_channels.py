"""What probes see of channels, against functions whose shape is known and against autodiff."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Linear, Relu, Tanh
from unlazy.data import Dataset
from unlazy.flows import Descent
from unlazy.losses import Squared
from unlazy.networks import Constant, Given, MeanFieldStack, Normal, TwoLayer, with_fields
from unlazy.papers.aiad2026.probes import (
    BackwardSignals,
    Channels,
    ChannelSpectrum,
    LogRatios,
    ParameterHistogram,
    Preactivations,
    Spikes,
    SymmetryDefect,
    log_sizes,
    odd_share,
    sharpness,
    spectrum,
)
from unlazy.probes import TrainedNeurons

LINE = np.linspace(-1, 1, 401)
X = jnp.linspace(-1, 1, 9)[:, None]
DATA = Dataset(X, jnp.cos(3 * X[:, 0]), X[:3], X[:3, 0])
KEY = jax.random.key(4)
STACK = MeanFieldStack((6, 5, 4), 1, ranks=(3, 2), activation=Tanh(), key=KEY)


def look(probe, network=STACK, start=None):
    return probe.of(network, network if start is None else start, DATA, Squared())


def test_channels_are_the_blocks_along_a_line():
    seen = look(Channels(low=-0.5, high=1.0, count=7))
    x = np.linspace(-0.5, 1.0, 7)[:, None]
    for level, block in enumerate(STACK.blocks):
        h = np.tanh(x @ np.asarray(block.w).T + np.asarray(block.b))
        x = h @ np.asarray(block.a) / block.width + np.asarray(block.c)
        close(seen[f"block-{level + 1}"], x, rel=1e-12)


def test_signals_are_derivatives_by_channels():
    seen = look(BackwardSignals(count=5))
    x = jnp.linspace(-1, 1, 5)[:, None]

    def above(z, level):
        for block in STACK.blocks[level:]:
            z = block(z)
        return jnp.sum(z)

    for level, values in enumerate(STACK.channels(x), start=1):
        close(seen[f"block-{level}"], jax.grad(above)(values.T, level).T, rel=1e-10, abs=1e-14)
    several = MeanFieldStack((6, 5), 1, 2, ranks=3, key=KEY)
    assert look(BackwardSignals(count=5), several)["block-1"].shape == (5, 3, 2)


def test_log_ratios():
    values = np.asarray(STACK.channels(jnp.asarray([[0.3]]))[0][0])
    seen = look(LogRatios(x=0.3, block=1))
    close(seen["all"], np.log(np.abs(values[:, None] / values[None, :])), rel=1e-10, abs=1e-12)
    close(seen["largest"], np.log(np.abs(values).max() / np.abs(values).min()), rel=1e-10)
    close(seen["top_to_median"], np.log(np.abs(values).max() / np.median(np.abs(values))), rel=1e-10)
    assert np.all(np.isfinite(log_sizes(jnp.asarray([0.0, 1.0, -2.0]))))
    close(log_sizes(jnp.asarray([0.0, 1.0, -2.0]), 0.5), np.log([0.5, 1.5, 2.5]), rel=1e-12)
    with pytest.raises(UserError, match="no block 4"):
        look(LogRatios(block=4))


def test_preactivations():
    seen = look(Preactivations(block=2, neurons=3, count=5))
    inner = np.asarray(STACK.channels(jnp.linspace(-1, 1, 5)[:, None])[0])
    wanted = inner @ np.asarray(STACK.blocks[1].w).T + np.asarray(STACK.blocks[1].b)
    close(seen, wanted[:, :3], rel=1e-12)


def test_odd_energy_of_known_functions():
    values = jnp.asarray(np.stack([LINE**2, LINE, np.cos(LINE) + np.sin(LINE), 0 * LINE], axis=1))
    # On [-1, 1]: ∫ sin² = 1 - sin(2)/2 and ∫ cos² = 1 + sin(2)/2; the trapezoid rule is off by 1e-5.
    close(odd_share(values), [0.0, 1.0, (1 - math.sin(2) / 2) / 2, 0.0], abs=1e-5)


def test_the_probe_of_symmetry_tells_even_networks_from_others():
    """Pairs of neurons with w and -w make every channel even, whatever their amplitudes above."""
    features = Given(((1.0, 0.3), (-1.0, 0.3), (2.0, -0.4), (-2.0, -0.4)))
    amplitude = Given(((1.0, 0.5), (1.0, 0.5), (-0.7, 1.0), (-0.7, 1.0)))
    even = MeanFieldStack((4, 5), 1, ranks=2, features=(features, Normal()), amplitude=(amplitude, Normal()), key=KEY)
    for share in look(SymmetryDefect(), even).values():
        assert np.all(np.asarray(share) < 1e-20)
    assert np.all(np.asarray(look(SymmetryDefect())["block-1"]) > 1e-4)


def test_log_ratios_of_neurons():
    network = MeanFieldStack((8, 40), 1, ranks=3, activation=Relu(), key=KEY)
    seen = look(LogRatios(x=0.3, block=2, units="neurons", eps=1e-10), network)
    h = np.asarray(network.preactivations(jnp.asarray([[0.3]]), 2))[0]
    logs = np.log(np.maximum(h, 0) + 1e-10)
    close(seen["logs"], logs, rel=1e-9)
    close(seen["all"], logs[:, None] - logs[None], rel=1e-9, abs=1e-12)
    close(seen["largest"], logs.max() - logs.min(), rel=1e-9)
    close(seen["zeros"], np.mean(h <= 0), abs=1e-15)
    assert 0 < seen["zeros"] < 1
    assert "all" not in look(LogRatios(units="neurons", matrix=False), network)
    with pytest.raises(UserError, match="no block 3"):
        look(LogRatios(block=3, units="neurons"), network)
    with pytest.raises(UserError, match=r"eps = -1\.0 is not in range"):
        LogRatios(eps=-1.0)
    with pytest.raises(UserError, match="'channels', 'neurons'"):
        look(LogRatios(units="weights"), network)


def test_shapes_of_neurons_of_any_network():
    h = np.tanh(LINE[:, None] @ np.asarray(STACK.blocks[0].w).T + np.asarray(STACK.blocks[0].b))
    odd = (h - h[::-1]) / 2
    weight = np.ones(LINE.size)
    weight[[0, -1]] = 0.5
    close(look(SymmetryDefect(units="neurons"))["block-1"], weight @ odd**2 / (weight @ h**2), rel=1e-9)
    close(look(Spikes(units="neurons"))["location"]["block-1"], LINE[np.argmax(np.abs(h), axis=0)], abs=1e-12)
    other = TwoLayer(5, 1, activation=Tanh(), key=KEY)  # no bias: every neuron is odd
    assert np.allclose(*(np.concatenate(list(look(SymmetryDefect(units="neurons"), other).values())), 1.0))


def test_spikes_of_known_functions():
    bump = np.exp(-((LINE - 0.5) ** 2) / (2 * 0.05**2))
    values = jnp.asarray(np.stack([np.ones_like(LINE), np.cos(4 * np.pi * LINE), bump], axis=1))
    # A Gaussian bump of width s on a line of length 2: mean of f² is √π s / 2.
    close(sharpness(values), [1.0, 2.0, 2 / (math.sqrt(math.pi) * 0.05)], rel=1e-6)


def test_the_probe_of_spikes_finds_a_tent():
    """1 - 4 |x - 0.25| and a constant, out of four rectifiers."""
    features = Given(((1.0, 0.0), (1.0, -0.25), (1.0, -0.5), (0.0, 1.0)))
    amplitude = Given(((16.0, 0.0), (-32.0, 0.0), (16.0, 0.0), (0.0, 4.0)))
    tent = MeanFieldStack(
        (4, 5), 1, ranks=2, activation=Relu(), features=(features, Normal()), amplitude=(amplitude, Normal()), key=KEY
    )
    seen = look(Spikes(), tent)
    close(seen["location"]["block-1"][:1], [0.25], abs=1e-12)
    close(seen["sharpness"]["block-1"], [12.0, 1.0], rel=1e-3)  # ∫ f² = 0.5/3 on a line of length 2


def test_spectra_of_known_functions():
    values = jnp.asarray(
        np.stack(
            [0.7 + 0 * LINE, 3 * np.cos(5 * np.pi * LINE), np.sin(2 * np.pi * LINE) + np.cos(8 * np.pi * LINE)], axis=1
        )
    )
    seen = np.asarray(spectrum(values, LINE, 10))
    wanted = np.zeros((11, 3))
    wanted[0, 0], wanted[5, 1], wanted[2, 2], wanted[8, 2] = 0.7, 3.0, 1.0, 1.0
    close(seen, wanted, abs=1e-12)
    assert look(ChannelSpectrum(frequencies=6))["block-2"].shape == (7, 2)
    with pytest.raises(UserError, match="give more than"):
        look(ChannelSpectrum(frequencies=10, count=15))


def test_histograms_count_neurons():
    seen = look(ParameterHistogram(block=1, bins=10, low=-1.0, high=1.0))
    entries = np.clip(np.asarray(STACK.blocks[0].a).ravel(), -1, 1)
    close(seen["density"], np.histogram(entries, 10, (-1, 1), density=True)[0], rel=1e-12)
    close(seen["edges"], np.linspace(-1, 1, 11), abs=1e-15)
    moved = with_fields(STACK, blocks=(with_fields(STACK.blocks[0], a=5 + STACK.blocks[0].a), *STACK.blocks[1:]))
    later = look(ParameterHistogram(block=1, bins=10), moved, STACK)  # all beyond the last edge
    close(np.sum(later["density"]) * (later["edges"][1] - later["edges"][0]), 1.0, rel=1e-12)
    assert np.argmax(later["density"]) == 9
    with pytest.raises(UserError, match="no parameters 'b'"):
        look(ParameterHistogram(parameter="b"), MeanFieldStack((3, 3), 1, bias=False, key=KEY))


def test_trained_neurons():
    network = MeanFieldStack((6, 5), 1, ranks=3, train=("a", "wb"), key=KEY)
    seen = look(TrainedNeurons(neurons=4), network)
    close(seen["block-1"], network.blocks[0].a[:4])
    close(seen["block-2"], np.concatenate([network.blocks[1].w, network.blocks[1].b[:, None]], axis=1)[:4])


def test_probes_see_the_same_in_all_coordinates():
    """Also of a first block of infinite width, which is one function whatever coordinates it is trained in."""
    probes = [Channels(count=7), BackwardSignals(count=7), LogRatios(), SymmetryDefect(), ChannelSpectrum()]
    infinite = MeanFieldStack(
        (math.inf, 5), 1, ranks=2, activation=Tanh(), amplitude=(Normal(mean=(1.0, -0.5)), Normal()), key=KEY
    )
    for network in (STACK, infinite):
        runs = [Descent(rate=0.5, coordinates=c)(network, DATA, [0.0, 2.0], probes) for c in ("weights", "gram")]
        for here, there in zip(jax.tree.leaves(runs[0].observed), jax.tree.leaves(runs[1].observed), strict=True):
            close(here, there, rel=1e-6, abs=1e-8)


def test_linear_channels_of_several_inputs_are_seen_along_the_first():
    w = Given(((2.0, 7.0),))
    network = MeanFieldStack(
        (1, 1),
        2,
        ranks=1,
        activation=Linear(),
        features=(w, Constant(1.0)),
        bias=False,
        amplitude=Constant(1.0),
        key=KEY,
    )
    close(look(Channels(count=3), network)["block-1"][:, 0], [-2.0, 0.0, 2.0], abs=1e-15)


def test_other_networks_get_a_sentence():
    with pytest.raises(UserError, match="Channels are those of a MeanFieldStack, and TwoLayer has none"):
        look(Channels(), TwoLayer(4, 1, key=KEY))
    with pytest.raises(UserError, match="low < high"):
        look(Channels(low=1.0, high=0.0))
