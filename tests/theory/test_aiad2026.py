"""Theory of aiad2026: formulas against SciPy's integrators and quadrature, NumPy written out, and made-up curves."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from close import close
from unlazy._errors import UserError
from unlazy.activations import LeakyRelu, Relu, Sigmoid, Tanh
from unlazy.data import Dataset
from unlazy.flows import Descent, RungeKutta, velocity
from unlazy.losses import Squared
from unlazy.networks import Constant, MeanFieldStack, Normal, TwoLayer, Uniform, split_trained, with_fields
from unlazy.networks.limits import kernel_of
from unlazy.papers.aiad2026 import theorems as aiad
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.papers.aiad2026.theorems.limit_point import loss_speed, without_cancellation
from unlazy.papers.aiad2026.theorems.one_spike import closed_under_flips, mixing, symmetry_chance
from unlazy.papers.aiad2026.theorems.problems import (
    few_points,
    fitted,
    independent_laws,
    odd_channels,
    one_spike,
    two_spikes,
)
from unlazy.papers.aiad2026.theorems.setting import integrated
from unlazy.papers.chen2022.theorems.decay import slope_floor
from unlazy.probes import TrainedNeurons, TrainLoss
from unlazy.theory import Verdict, read_all
from unlazy.theory.coupling import distance


def limit_kernel(x, z, bias=1.0, spread=1.0):
    """E[relu(w x + b) relu(w z + b)] for Gaussian w and b, written out (Cho and Saul 2009)."""
    q, p = spread**2 * x**2 + bias**2, spread**2 * z**2 + bias**2
    rho = np.clip((spread**2 * np.multiply.outer(x, z) + bias**2) / np.sqrt(np.multiply.outer(q, p)), -1, 1)
    angle = np.arccos(rho)
    return np.sqrt(np.multiply.outer(q, p)) * (np.sin(angle) + (np.pi - angle) * rho) / (2 * np.pi)


def concluded(theorem, run):
    """What a theorem concludes of a run, whether or not its hypotheses are met."""
    return theorem.conclude(read_all(theorem.read(run))[1])


# ---------------------------------------------------------------- integrals over time


def test_integrals_over_observations_know_their_error():
    times = np.sort(np.concatenate([[0.0, 3.0], np.random.default_rng(0).uniform(0, 3, 20)]))
    found, error = integrated(times, np.stack([np.exp(-times), np.sin(4 * times)], axis=1))
    off = np.abs(found - np.stack([1 - np.exp(-times), (1 - np.cos(4 * times)) / 4], axis=1)).max()
    assert off < error < 0.05
    close(integrated(np.linspace(0, 1, 5), np.linspace(0, 1, 5) ** 3)[0][-1], 0.25, rel=1e-12)


# ---------------------------------------------------------------- eq. 10 and 16


def test_the_run_with_an_infinite_first_block_is_equations_2_and_3_by_scipy():
    """Γ' = π d B and w_2' = -E[d φ_2], with K_μ0 written out: the mean-field ODEs (corrected) of an infinite layer."""
    run = few_points()
    x, y = np.array([-1.0, 0.2, 0.9]), np.array([0.6, -0.4, 0.5])
    points = np.array([-1.0, 0.2, 0.9, -0.4, 1.7])
    kernel = limit_kernel(points, x, 1.5, 1.5)
    second = run.start.blocks[1]
    mix, w0 = np.asarray(second.w), np.asarray(second.a)[:, 0]
    start = np.outer(np.sqrt((2.25 * points**2 + 2.25) / (2 * np.pi)), [1.0, -0.5])

    def ode(_, state):
        gamma, w = state[:6].reshape(3, 2), state[6:]
        h = (start[:3] - kernel[:3] @ gamma) @ mix.T
        d = np.tanh(h) @ w / 24 - y
        signal = ((1 - np.tanh(h) ** 2) * w) @ mix / 24
        return np.concatenate([(d[:, None] * signal / 3).ravel(), -np.tanh(h).T @ d / 3])

    end = integrate.solve_ivp(ode, (0, 4), np.concatenate([np.zeros(6), w0]), rtol=1e-10, atol=1e-12).y[:, -1]
    close(run.observed["channel-drive"]["channels"][-1], start - kernel @ end[:6].reshape(3, 2), rel=1e-7, abs=1e-8)
    found = aiad.KernelBumps().check(run)
    assert found.verdict is Verdict.HOLDS
    assert found.numbers["largest difference"] < 1e-9  # solver tolerance
    without = found.numbers["largest difference without pi, as printed in section 3.2"]
    close(without, 2 * found.numbers["movement of channels"], rel=1e-6)  # π = 1/3: three times the bumps


def test_eq_16_holds_with_an_empirical_kernel_and_needs_observations():
    assert aiad.KernelBumps().check(few_points(first=24)).verdict is Verdict.HOLDS
    far = few_points(first=24, observations=4)
    found = aiad.KernelBumps().check(far)
    assert found.verdict is not Verdict.FAILS
    assert found.numbers.get("slack", 1.0) > 1e-6  # four observations know an integral badly, and say so


def test_eq_16_sees_a_wrong_kernel():
    """The check can fail: with another network's features the same run does not fit."""
    run = dataclasses.replace(few_points(first=24))
    first, second = run.start.blocks
    run.__dict__["start"] = with_fields(run.start, blocks=(with_fields(first, w=1.01 * first.w), second))
    assert concluded(aiad.KernelBumps(), run).verdict is Verdict.FAILS


def test_eq_10_at_any_depth_and_number_of_outputs():
    x = jnp.array([[0.3, -0.2], [-0.5, 0.8], [0.9, 0.4]])
    network = MeanFieldStack(
        (6, 5, 4), 2, 2, ranks=3, train=("ac", "wab", "a"), activation=Tanh(), key=jax.random.key(4)
    )
    run = Descent(rate=0.1)(network, Dataset(x, jnp.ones((3, 2)), x + 0.1, jnp.ones((3, 2))), [0.0])
    found = aiad.ChannelsMove().check(run)
    assert found.verdict is Verdict.HOLDS
    assert found.numbers["largest speed"] > 1e-3


def test_k_between_the_two_points_is_neither_positive_nor_fast_decaying():
    """Section 3.2: K(-δ, δ) is 0 for ReLU without bias, negative for tanh, and falls as 4/(3πδ) for ReLU with bias."""

    def kernel(activation, bias, delta):
        network = MeanFieldStack(
            (math.inf, 2), 1, ranks=1, train="a", bias=bias, activation=activation, key=jax.random.key(0)
        )
        return float(kernel_of(network.blocks[0], jnp.array([[-delta]]), jnp.array([[delta]]))[0, 0])

    assert abs(kernel(Relu(), False, 2.0)) < 1e-12
    assert kernel(Tanh(), False, 2.0) < -0.5
    for delta in (30.0, 60.0):
        close(delta * kernel(Relu(), True, delta), 4 / (3 * np.pi), rel=5e-3)


# ---------------------------------------------------------------- one spike


@pytest.mark.parametrize("density", [lambda u: 0.5 * (abs(u) < 1), lambda u: np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)])
def test_lemma_h_1_by_quadrature(density):
    half, whole = (integrate.quad(lambda u: abs(u) * density(u), low, 8, points=[-1.0, 1.0])[0] for low in (0, -8))
    close(half, whole / 2, rel=1e-9)  # E[U 1{U > 0}], as U = |U| there
    half, whole = (integrate.quad(lambda u: u**2 * density(u), low, 8, points=[-1.0, 1.0])[0] for low in (0, -8))
    close(half, whole / 2, rel=1e-9)


def test_symmetry_is_told_from_asymmetry():
    rng = np.random.default_rng(1)
    chances = [symmetry_chance(rng.uniform(-1, 1, (300, 3))) for _ in range(200)]
    assert np.mean(np.array(chances) < 1e-3) < 0.02  # at level 1e-3, 4 of 200 would come by chance once in 1e4 tries
    assert symmetry_chance(rng.uniform(-0.7, 1.3, (300, 3))) < 1e-6
    assert closed_under_flips(np.array([[1.0, 2.0], [-1.0, 2.0], [1.0, -2.0], [-1.0, -2.0]]))
    assert not closed_under_flips(np.array([[1.0, 2.0], [-1.0, -2.0]]))
    biased = concluded(aiad.HalfSpaceMoments(), one_spike(mixing="biased"))
    assert biased.verdict is Verdict.FAILS


def test_the_one_spike_system_is_equations_11_to_13_with_k():
    run = one_spike()
    rows = mixing(run.start)
    kernel = float(limit_kernel(np.array([0.8]), np.array([0.8]))[0, 0])

    def ode(_, state):
        f, w = state[:3], state[3:]
        h = rows @ f
        d = np.maximum(h, 0) @ w / len(rows) - 2.0
        return np.concatenate([-kernel * d * ((w * (h > 0)) @ rows) / len(rows), -d * np.maximum(h, 0)])

    a0 = 0.7 * np.sqrt(1.64 / (2 * np.pi))
    begin = np.concatenate([[a0, 0, 0], np.full(len(rows), 0.5)])
    end = integrate.solve_ivp(ode, (0, 4), begin, rtol=1e-9, atol=1e-12).y[:, -1]
    found = aiad.spike(run)
    close(found.a[0], a0, rel=1e-12)
    close(found.a[-1], end[0], rel=1e-6)
    close(found.signal[-1], (end[3:] * (rows[:, 0] > 0)) @ rows[:, 0] / len(rows), rel=1e-6)
    close(found.by_eq_11, found.a, rel=1e-6)
    assert abs(found.by_printed_eq_11[-1] - found.a[-1]) > 0.1  # eq. 11 lacks K(x*, x*)


def test_a_drawn_second_layer_stays_near_the_manifold():
    """Five standard errors, times the growth of a: none of ten draws is further off, and they are not on it."""
    for seed in range(10):
        found = aiad.OneSparse().check(one_spike(mixing="drawn", width=128, seed=seed))
        assert found.verdict is Verdict.HOLDS, found
        assert found.numbers["largest B_k of the others"] > 1e-4
    wrong = concluded(aiad.OneSparse(), one_spike(mixing="biased"))
    assert wrong.verdict is Verdict.FAILS


def test_lemma_h_2_without_weights_has_no_signal_at_first():
    """B_j(t) > 0 is stated for w_2^0 >= 0; for w_2^0 = 0 it is 0 at t = 0."""
    found = aiad.spike(one_spike(weight=0.0))
    assert found.signal[0] == 0 < found.signal[-1]


# ---------------------------------------------------------------- two spikes


def test_the_speed_of_the_log_ratio_is_its_derivative_along_the_flow():
    run = two_spikes(coupling=1.2)
    for one in aiad.leads(run):
        slope = np.gradient(one.log_ratio, run.times, edge_order=2)
        close(one.speed, slope, abs=2e-3)
        assert np.all(one.speed >= (1 - one.ratio) * one.leading + one.remainder - 1e-12)


def test_theorem_3_1_by_hand_at_one_time():
    run = two_spikes()
    network, y = run.start, np.array([1.0, -1.0])
    x = np.array([-1.0, 1.0])
    features = np.maximum(np.outer(x, [-1.0, 1.0]) + 1.05, 0)
    kernel, f = features @ features.T / 2, features @ np.array([[1.0, 0.25], [0.25, 1.0]]) / 2
    mix, w = np.asarray(network.blocks[1].w), np.asarray(network.blocks[1].a)[:, 0]
    h = f @ mix.T - 4
    d = np.log1p(np.exp(h)) @ w / len(w) - y
    b = ((w / (1 + np.exp(-h))) @ mix) / len(w)
    first, second = aiad.leads(run)
    assert (first.leader, second.leader) == (0, 1)
    for one, p, a, o in ((first, 0, 0, 1), (second, 1, 1, 0)):
        q = 1 - p
        close(one.ratio[0], abs(b[p, o] * f[p, a] / (f[p, o] * b[p, a])), rel=1e-9)
        close(one.leading[0], kernel[p, p] / 2 * abs(d[p]) * abs(b[p, a] / f[p, a]), rel=1e-9)
        close(one.remainder[0], -kernel[p, q] / 2 * d[q] * (b[q, a] / f[p, a] - b[q, o] / f[p, o]), rel=1e-9)
    # Signs flip at x_1: the output is too high there, and what is sent back has the other sign than the channel.
    assert d[0] < 0 < d[1]
    assert b[0, 0] * f[0, 0] > 0 > b[1, 1] * f[1, 1]
    # E of eq. 5 is not one number for both channels.
    assert abs(d[1] * (b[1, 0] - b[1, 1])) > 0.1 * abs(d[1] * b[1, 0])


def test_a_positive_kernel_between_the_points_can_work_against_the_leader():
    """Theorem 3.1 says that, K being positive, the other point "contributes with a favorable sign". Not so."""
    run = two_spikes(coupling=1.2)
    assert kernel_of(run.start.blocks[0], run.data.x, run.data.x)[0, 1] > 0.4
    found = aiad.LeadGrows().check(run)
    assert found.verdict is Verdict.VACUOUS
    assert found.numbers["largest remainder at x_0"] < -0.1
    assert found.numbers["guaranteed at x_0"] < 0 < found.numbers["guaranteed without the remainder at x_0"]
    assert found.numbers["largest excess over what is printed as equal at x_0"] > 0.1


def test_the_interval_is_the_longest_stretch():
    kept = np.array([1, 1, 0, 1, 1, 1, 1, 0, 1], bool)
    nothing = np.zeros(9)
    made_up = aiad.Lead(0, 0, kept, nothing, nothing, nothing, nothing, nothing, np.zeros(9, bool))
    assert made_up.interval() == slice(3, 7)
    broken = np.zeros(9, bool)
    broken[5] = True  # a channel changed sign there
    assert made_up._replace(broken=broken).interval() in (slice(3, 5), slice(5, 7), slice(0, 2))
    assert made_up._replace(kept=np.zeros(9, bool)).interval() == slice(0, 0)
    assert made_up._replace(kept=np.ones(9, bool)).interval() == slice(0, 9)


# ---------------------------------------------------------------- limit points


def test_assumptions_c_1_to_c_6_do_not_make_limits_global():
    """Channels odd in x and w_2 even in L stay so: at x = 0 nothing is ever learned, and the loss ends at y²/6."""
    run = odd_channels()
    hypotheses = aiad.LimitsAreGlobal().check(run).hypotheses
    assert [one.what for one in hypotheses if not one.met] == [hypotheses[-1].what]
    assert hypotheses[-1].what.startswith("B(x) not 0 at any data point")
    close(float(Squared()(run.final(run.data.x), run.data.y)), 0.5**2 / 6, rel=1e-4)
    assert concluded(aiad.LimitsAreGlobal(), run).verdict is not Verdict.HOLDS


@pytest.mark.parametrize("shuffled", [False, True])
def test_independent_laws_do_not_make_limits_global_either(shuffled):
    """Centred w_1 and L, independent of all else: C.1 to C.6 are met, and the limit is the best constant, Var(Y)/2."""
    run = independent_laws(shuffled=shuffled)
    hypotheses = aiad.LimitsAreGlobal().check(run).hypotheses
    assert [one.what for one in hypotheses if not one.met] == [hypotheses[-1].what]
    assert hypotheses[-1].found < 1e-12  # 0 up to rounding, at every point
    y = np.asarray(run.data.y)
    close(float(Squared()(run.final(run.data.x), run.data.y)), np.var(y) / 2, rel=1e-6)
    close(np.asarray(run.final(run.data.x)), np.full(5, y.mean()), rel=1e-4)


def test_signals_are_compared_with_what_they_are_without_cancellation():
    """|B_k| <= sup|φ'| E[|L_k||w_2|], written out; the bound is attained where all terms have one sign."""
    run = fitted()
    setting = read_all(aiad.LimitsAreGlobal().read(run))[1]
    block = run.final.blocks[1]
    direct = np.mean(np.abs(np.asarray(block.w)) * np.abs(np.asarray(block.a)), axis=0)
    close(without_cancellation(setting.base), np.linalg.norm(direct), rel=1e-12)
    assert setting.signals.max() <= np.linalg.norm(direct)


def test_with_noisy_labels_the_excess_loss_vanishes():
    """Two labels at one point: the loss ends at their variance, which the printed theorem calls impossible."""
    run = fitted(noise=0.2)
    found = aiad.LimitsAreGlobal().check(run)
    assert found.verdict is Verdict.HOLDS, found.why
    noise = 2 * 0.2**2 / 2 / 4
    close(float(Squared()(run.final(run.data.x), run.data.y)), noise, rel=1e-3)
    close(found.numbers["loss of the noise, subtracted"], noise, rel=1e-12)
    assert found.numbers["loss at the end"] < 1e-3 * noise
    assert "noise" not in aiad.LimitsAreGlobal().check(fitted()).why


def test_hypotheses_that_no_run_can_miss_say_so():
    always = [one.what for one in aiad.LimitsAreGlobal().check(fitted()).hypotheses if "always true" in one.what]
    assert [what[:3] for what in always] == ["C.1", "C.2", "C.3"]


def test_the_fall_of_the_loss_is_that_of_the_flow():
    run = fitted()
    trained, frozen = split_trained(run.start)
    speed = velocity(trained, frozen, run.data, Squared())

    def loss(leaves):
        return Squared()(eqx.combine(leaves, frozen)(run.data.x), run.data.y)

    close(loss_speed(run.start, run), -jax.jvp(loss, (trained,), (speed,))[1], rel=1e-9)


def test_theorem_2_2_on_an_infinite_first_block_and_its_silences():
    found = aiad.LimitsAreGlobal().check(fitted(first=math.inf))
    assert found.verdict is Verdict.HOLDS
    assert found.numbers["loss at the end"] < 1e-8
    early = aiad.LimitsAreGlobal().check(fitted(until=0.5))
    assert early.verdict is Verdict.SILENT
    assert "C.6" in early.why
    silent = aiad.LimitsAreGlobal().check(fitted(activation=Relu(), until=0.5))
    assert "C.1: |phi'| bounded away from 0" in silent.why


def test_c_1_excludes_what_the_paper_names():
    """Section 2.4: sigmoid and tanh have φ' bounded away from zero. They do not."""
    assert slope_floor(Tanh()) == slope_floor(Sigmoid()) == slope_floor(Relu()) == 0
    assert slope_floor(LeakyRelu(0.3)) == pytest.approx(0.3)


def test_subgaussian_norms():
    """E|z|^m of a Gaussian by its Gamma function; a constant has its norm at m = 1."""
    close(aiad.subgaussian(np.full(5, 3.0)), 3.0)
    drawn = np.random.default_rng(3).normal(size=400_000)
    m = np.arange(1, 5)
    exact = np.array([math.gamma((k + 1) / 2) * 2 ** (k / 2) / math.sqrt(math.pi) for k in m]) ** (1 / m) / np.sqrt(m)
    close(aiad.subgaussian(drawn, moments=4), exact.max(), rel=5e-3)


# ---------------------------------------------------------------- distance to the limit


def test_the_bound_is_the_printed_one_and_does_not_overflow():
    small = aiad.Constants(k=1.0, rank=2, narrow=100, wide=400, time=0.5, step=0.01)
    direct = math.exp(1.5 * 3) * (0.1 + 0.1) * math.sqrt(math.log(3 * 1.5 * 400**2 / 0.05 + math.e))
    close(small.log_bound(0.05), math.log(direct), rel=1e-12)
    twice = math.exp(2 * 1.5 * 3) * (0.1 + 0.1) * math.sqrt(math.log(3 * 1.5 * 400**2 / 0.05 + math.e))
    close(small.log_bound(0.05, twice=True), math.log(twice), rel=1e-12)
    typical = aiad.Constants(k=1.0, rank=100, narrow=1000, wide=1000, time=10.0, step=0.001)
    assert typical.log_bound(0.05) > 1000  # "e^1000, roughly" is e^1108 in section G.6
    assert np.isfinite(aiad.Constants(3.0, 100, 1000, 1000, 1e3, 1e-3).log_bound(0.05))


def test_the_constant_is_the_largest_of_what_it_bounds():
    run = few_points(first=24)
    first = run.start.blocks[0]
    features = np.maximum(np.asarray(run.data.x) @ np.asarray(first.w).T + np.asarray(first.b), 0)
    close(aiad.constants(run).k, features.max(), rel=1e-12)  # ReLU features are the largest here
    assert (aiad.constants(run).rank, aiad.constants(run).narrow, aiad.constants(run).step) == (2, 24, 0.0)


def test_steps_add_to_the_distance():
    run = few_points(first=24)
    probes = [TrainedNeurons(), TrainLoss()]
    walked = Descent(rate=0.25)(run.start, run.data, [0.0, 2.0], probes)
    found = aiad.measure(walked)
    exact = RungeKutta(rtol=1e-8, atol=1e-10)(run.start, run.data, [0.0, 2.0], probes)
    close(found.by_step, distance(walked, exact), rel=1e-3)
    assert found.by_step > 1e-4
    verdict = aiad.NearItsLimit().check(walked)
    assert verdict.verdict is Verdict.VACUOUS
    assert verdict.numbers["orders of magnitude above the movement"] > 10


def test_bad_options_get_a_sentence():
    with pytest.raises(UserError, match="share between 0 and 1, not to 2"):
        aiad.LimitsAreGlobal(tolerance=2.0)
    for theorem in (aiad.NearItsLimit, aiad.LossNearItsLimit, aiad.HalfSpaceMoments):
        with pytest.raises(UserError, match="delta = 0 is not a probability between 0 and 1"):
            theorem(delta=0)


def test_runs_that_a_theorem_is_not_about_get_a_sentence():
    run = few_points()
    unseen = dataclasses.replace(run, probes={}, observed={})
    with pytest.raises(UserError, match=r"add probes=\[ChannelDrive\(\)\]"):
        aiad.leads(unseen)
    with pytest.raises(UserError, match="Not met: two blocks of finite width"):
        aiad.constants(run)
    deeper = MeanFieldStack((4, 4, 4), 1, train="a", key=jax.random.key(0))
    with pytest.raises(UserError, match="Not met: two blocks without offsets c"):
        aiad.spike(Descent(rate=0.1)(deeper, run.data, [0.0]))


def test_the_drive_is_what_backpropagation_gives():
    """Σ_p K(x, x_p) dL/df(x_p) B(x_p) against the gradient by amplitudes: dL/dA_jk = (1/m) Σ_p φ_j(x_p) dL/df B_k."""
    network = MeanFieldStack((7, 5), 1, ranks=2, train="a", amplitude=Uniform(1.0, mean=1.0), key=jax.random.key(2))
    data = Dataset(jnp.array([[0.4], [-0.7]]), jnp.array([1.0, -1.0]), weight=jnp.array([1.0, 3.0]))
    seen = ChannelDrive().of(network, network, data, Squared())
    slope = network.gradient(data, Squared())[1].blocks[0].a
    features = np.asarray(network.blocks[0].column(data.x.T))
    force = np.asarray(seen["signals"]) * np.asarray(seen["slope"])[:, None]
    close(slope, features @ force / 7, rel=1e-10, abs=1e-14)
    two = TwoLayer(4, 1, key=jax.random.key(0))
    with pytest.raises(UserError, match="Channels are those of a MeanFieldStack"):
        ChannelDrive().of(two, two, data, Squared())


def test_lemma_d_1_needs_the_slope_of_the_second_activation():
    """One first-layer neuron with φ_1 = K, and one above it with φ_2(h) = K h: with one K alone it is violated."""
    k = 2.0
    network = MeanFieldStack(
        (1, 1), 1, ranks=1, train="a", bias=(Constant(k), False), activation=(Relu(), LeakyRelu(0.0)),
        features=(Constant(0.0), Constant(1.0)), amplitude=Constant(1.0), key=jax.random.key(0),
    )  # fmt: skip
    first, second = network.blocks
    moved = with_fields(network, blocks=(with_fields(first, a=3.0 * first.a), second))  # Δw = 2
    x = jnp.zeros((1, 1))
    change = abs(float(moved.preactivations(x, 2)[0, 0] - network.preactivations(x, 2)[0, 0]))
    close(change, k * 2.0)  # |ΔH| = K |L| Δw: the lemma is sharp
    assert k * change > k * 2.0  # so φ_2(h) = K h, which is K-Lipschitz, moves by K² |L| Δw


def test_centred_starts_never_meet_c_5():
    network = MeanFieldStack(
        (math.inf, 64), 1, ranks=2, train="a", bias=(True, False), activation=(Relu(), LeakyRelu(0.3)),
        features=Normal(), amplitude=(Normal(), Constant(1.0)), key=jax.random.key(0),
    )  # fmt: skip
    data = Dataset(jnp.array([[0.0], [1.0]]), jnp.array([1.0, -1.0]))
    run = RungeKutta()(network, data, [0.0])
    found = aiad.LimitsAreGlobal().check(run)
    assert "C.5" in found.why
