"""The numbers of chen2022 against quadrature, Monte Carlo, differential equations and brute force."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from close import close
from unlazy._errors import UserError
from unlazy.activations import Custom, Erf, LeakyRelu, Linear, Relu, Sigmoid, Softplus, Tanh
from unlazy.networks import Identity, Infinite, Quadratic, RandomLayers, TwoLayer
from unlazy.papers.chen2022.theorems import (
    NeuronsStartActive,
    SmallLossAtStart,
    best_interval,
    concentration,
    concentration_bound,
    features_needed,
    gram,
    kappa,
    limit_gram,
    middle_mass,
    printed_kappa,
    printed_middle_mass,
    requirements,
    start_size,
    width_for_loss,
    width_for_share,
)
from unlazy.papers.chen2022.theorems.start import Start
from unlazy.theory import Verdict

INTERVAL = Tanh().interval(-0.4, 0.6)


def test_kappa_is_attained_by_the_worst_case_of_the_proof():
    """Eq. 48 and 50 with equality: L' = -A L η, η' = -C_1 √(A L η). Lemma 1 is then an equality, at any time."""
    smallest, largest, c, share, loss = 0.3, 1.7, 40.0, 0.8, 0.5
    a = 2 * c**2 * smallest * INTERVAL.slope**2
    c1 = largest / math.sqrt(smallest) * 3 / (INTERVAL.right - INTERVAL.left)

    def velocity(t, state):
        value, eta = state
        return [-a * value * eta, -c1 * math.sqrt(a * value * eta)]

    path = integrate.solve_ivp(velocity, (0, 2e-3), [loss, share], rtol=1e-10, atol=1e-12)
    final, eta = path.y[:, -1]
    assert 0.1 < eta < 0.75
    fallen = (share**1.5 - eta**1.5) * c / (math.sqrt(loss) - math.sqrt(final))
    close(fallen, kappa(smallest, largest, INTERVAL), rel=1e-6)
    assert printed_kappa(smallest, largest, INTERVAL) < 0.8 * fallen  # printed, the lemma would be violated


def test_the_printed_kappa_grows_with_the_interval_and_the_true_one_falls():
    short, long = (Linear().interval(-r, r) for r in (0.1, 10.0))
    assert printed_kappa(1, 1, short) < kappa(1, 1, short)
    assert printed_kappa(1, 1, long) > kappa(1, 1, long)
    close(kappa(1, 1, short) / kappa(1, 1, long), 100.0)


def test_the_third_line_of_eq_43_is_no_inequality():
    """|Σ_b u_b G_ab|² <= Σ_b |u_b G_ab|²: 4 <= 2 for u = G_a = (1, 1). Cauchy-Schwarz gives the line after it."""
    u = row = np.ones(2)
    assert np.sum(u * row) ** 2 > np.sum((u * row) ** 2)
    assert np.sum(u * row) ** 2 <= np.sum(u**2) * np.sum(row**2)


@pytest.mark.parametrize("variance", [0.01, 0.3, 2.0, 50.0])
def test_the_middle_mass_is_a_gaussian_integral(variance):
    interval = Relu().interval(0.0, 3.0)
    density = stats.norm(scale=math.sqrt(variance)).pdf
    close(middle_mass(interval, variance), integrate.quad(density, *interval.middle)[0], rel=1e-9)


def test_the_middle_mass_is_least_at_an_end():
    """It rises and then falls with the variance, so a range of variances needs two values only."""
    variances = np.geomspace(1e-3, 1e3, 2001)
    for interval in (INTERVAL, Relu().interval(0.0, 2.0), Relu().interval(2.0, 3.0), Erf().interval(-0.1, 0.9)):
        mass = middle_mass(interval, variances)
        turns = np.flatnonzero(np.diff(np.sign(np.diff(mass[mass > 1e-12]))) > 0)
        assert not turns.size


def test_the_printed_mass_can_exceed_the_true_one():
    interval = Relu().interval(2.0, 3.0)
    printed, true = printed_middle_mass(interval, 2.0, 2.0) / 2, middle_mass(interval, 2.0) / 2
    close([printed, true], [0.0157, 0.00994], rel=1e-2)  # K of Lemma 3, and the half mass that it should lie below


@pytest.mark.parametrize("sigma", [Tanh(), Relu(), Sigmoid(), Softplus(), LeakyRelu(0.2)], ids=str)
@pytest.mark.parametrize("variance", [1e-3, 4.0])
def test_moments_are_below_those_of_a_gaussian_of_this_size(sigma, variance):
    size = float(start_size(sigma, variance))
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    values = np.abs(np.asarray(sigma(jnp.asarray(math.sqrt(variance) * nodes)))) / size
    for k in range(1, 9):
        moment = np.sum(weights * values ** (2 * k)) / math.sqrt(2 * math.pi)
        assert moment <= math.prod(range(2 * k - 1, 0, -2)) * (1 + 1e-9)


def test_eq_62_forgets_the_value_at_zero():
    """|σ(h)| <= L_σ |h| is false for the sigmoid, whose outputs stay near ½ as inputs vanish."""
    assert float(Sigmoid()(jnp.zeros(()))) / (Sigmoid().lipschitz * math.sqrt(1e-6)) > 1000
    close(start_size(Sigmoid(), 1e-6), 0.5, rel=1e-3)


def starts(sigma, matrix, c, m, draws, seed=0):
    """f(x_a) of random starts, (draws, n), and the pre-activations' share in an interval."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(matrix)
    h = rng.normal(size=(draws, m, len(matrix))) @ root.T
    signs = rng.choice([-c, c], size=(draws, m, 1))
    return np.mean(signs * np.asarray(sigma(jnp.asarray(h))), axis=1), h


@pytest.mark.parametrize("sigma", [Tanh(), Sigmoid()], ids=str)
def test_at_the_width_of_theorem_1_its_two_events_happen(sigma):
    """The start loss is at most |y|² and the share above K, for all but a part δ of the draws."""
    matrix = np.array([[0.02, 0.004], [0.004, 0.03]])
    y, c, delta = np.array([0.3, -0.2]), 1.0, 0.1
    interval = best_interval(sigma, 0.02, 0.03)
    smallest, largest = np.linalg.eigvalsh(matrix)
    needed = requirements(smallest, largest, (0.02, 0.03), sigma, y, c, delta, interval)
    # Lemma 2 is asked at this c, not at the larger one of the theorem.
    size = float(start_size(sigma, 0.03)) / ((math.sqrt(2) - 1) * np.linalg.norm(y))
    width = math.ceil(max(2 * 2 * (c * size) ** 2 * math.log(8 / delta), math.log(4 / delta) / (2 * needed.share**2)))
    assert needed.width >= width
    f, h = starts(sigma, matrix, c, width, draws=400)
    left, right = interval.middle
    share = np.mean((h > left) & (h < right), axis=1).min(axis=1)
    good = (0.5 * np.sum((f - y) ** 2, axis=1) <= y @ y) & (share > needed.share)
    assert np.mean(good) >= 1 - delta


def test_lemmas_2_and_3_hold_at_their_widths_for_all_but_a_part_of_the_draws():
    """Networks of exactly the required width; what is concluded of each is compared with NumPy."""
    x = jnp.array([[0.2, 0.0], [0.05, 0.24]])
    variances, y, c, delta, draws = np.mean(np.square(x), axis=1), np.array([0.3, -0.2]), 1.0, 0.1, 100
    interval = best_interval(Tanh(), variances.min(), variances.max())
    share = 0.5 * middle_mass(interval, variances).min()
    spread, size = float(start_size(Tanh(), variances.max())), float(np.linalg.norm(y))
    for lemma, needed in (
        (SmallLossAtStart(delta), width_for_loss(spread, c, size, 2, delta)),
        (NeuronsStartActive(delta), width_for_share(share, 2, delta)),
    ):
        width, held = math.ceil(needed), []
        for seed in range(draws):
            network = TwoLayer(width, 2, readout=c, key=jax.random.key(seed))
            start = Start(network, x, y, variances)
            found = lemma.conclude((start, interval) if isinstance(lemma, NeuronsStartActive) else start)
            h = np.asarray(x) @ np.asarray(network.w).T / math.sqrt(2)
            held.append(found.verdict is Verdict.HOLDS)
            if isinstance(lemma, SmallLossAtStart):
                f = np.mean(np.asarray(network.a) * np.tanh(h), axis=1)
                close(found.numbers["L^0"], 0.5 * np.sum((f - y) ** 2))
            else:
                left, right = interval.middle
                close(found.numbers["η̃^0"], np.mean((h > left) & (h < right), axis=1).min())
                close(found.numbers["K"], share)
        assert np.mean(held) >= 1 - delta


def test_lemma_2_fails_on_an_unlucky_start():
    network = TwoLayer(4, 1, readout=10.0, key=jax.random.key(0))
    network = eqx.tree_at(lambda one: one.a, network, jnp.sign(network.w[:, 0]) * 10.0)
    found = SmallLossAtStart().conclude(Start(network, jnp.array([[1.0]]), np.array([-0.1]), np.ones(1)))
    assert found.verdict is Verdict.FAILS
    assert "at most 0.05" in found.why


def test_eq_64_lacks_a_factor_n():
    """With its width, whatever n is, the outputs at the start are too large once n is; here by a factor of 10."""
    n, delta = 200, 0.05
    y = np.full(n, 1 / math.sqrt(n))
    # Eq. 65 with the constants of `start_size`: 2 ĉ² L² G_max log(2n/δ) / |y|².
    printed = math.ceil(2 * math.log(2 * n / delta) / (y @ y))
    f, _ = starts(Linear(), np.eye(n), 1.0, printed, draws=50)
    assert np.mean(0.5 * np.sum((f - y) ** 2, axis=1) <= y @ y) == 0
    assert np.mean(np.sum(f**2, axis=1)) > 8 * (y @ y)


def test_eq_66_drops_the_cross_term():
    """|f| = |y| with opposite signs: the loss is 2 |y|², not |y|²; (√2 - 1) |y| is what gives |y|²."""
    y = np.array([1.0])
    assert 0.5 * np.sum((-y - y) ** 2) == 2 * (y @ y)
    close(0.5 * np.sum((-(math.sqrt(2) - 1) * y - y) ** 2), y @ y)


def test_requirements_follow_the_proof():
    """ĉ keeps half of K^(3/2); the random version allows a factor 2 on every eigenvalue and variance."""
    y = np.array([0.1, 0.2, -0.3])
    interval = Tanh().interval(-0.8, 0.8)
    fixed = requirements(0.5, 2.0, (0.9, 1.1), Tanh(), y, 50.0, 0.05, interval)
    close(fixed.share, 0.5 * middle_mass(interval, 1.1))
    lost = kappa(0.5, 2.0, interval) * np.linalg.norm(y) / fixed.c
    close(fixed.share**1.5 - lost, 0.5 * fixed.share**1.5)
    close(fixed.rate, 2 * 50.0**2 * 0.5 * interval.slope**2 * (0.5 * fixed.share**1.5) ** (2 / 3))
    loose = requirements(0.5, 2.0, (0.9, 1.1), Tanh(), y, 50.0, 0.05, interval, random=True)
    close(loose.share, 0.5 * middle_mass(interval, 2.2))
    close(loose.c, 2 * kappa(0.25, 4.0, interval) * np.linalg.norm(y) / loose.share**1.5)
    close(loose.rate, 2 * 50.0**2 * 0.25 * interval.slope**2 * 2 ** (-2 / 3) * loose.share)
    assert loose.c > fixed.c
    assert loose.width > fixed.width


def test_requirements_grow_where_they_should():
    def needed(**changes):
        given = {"smallest": 0.5, "largest": 2.0, "y": np.ones(3), "c": 1.0, "delta": 0.05} | changes
        return requirements(variances=(0.5, 1.0), activation=Tanh(), interval=INTERVAL, **given)

    assert needed(y=2 * np.ones(3)).c == pytest.approx(2 * needed().c)
    assert needed(smallest=0.05).c == pytest.approx(10 * needed().c)
    assert needed(delta=0.001).width > needed().width
    assert needed(c=1e9).width > needed().width
    close(needed(y=2 * np.ones(3)).width, needed().width)  # what ĉ must be for |y| and what m must be for it cancel


@pytest.mark.parametrize("sigma", [Tanh(), Relu(), Softplus()], ids=str)
@pytest.mark.parametrize("variance", [1e-4, 2.0])
def test_the_best_interval_asks_for_the_least(sigma, variance):
    def needed(interval):
        given = (0.5, 1.0, (variance, variance), sigma, np.ones(1), 1.0, 0.05)
        return requirements(*given, interval).c

    best = needed(best_interval(sigma, variance, variance))
    rng = np.random.default_rng(3)
    scale = max(1.0, math.sqrt(variance))
    for _ in range(40):
        left, right = np.sort(rng.uniform(-4, 4, 2)) * scale
        slope = sigma.slope_on(left, right)
        if slope > 1e-6 and middle_mass(sigma.interval(left, right), variance) > 1e-9:
            assert needed(sigma.interval(left, right)) > 0.97 * best  # the grid's own width


def test_an_activation_without_slope_has_no_best_interval():
    with pytest.raises(UserError, match="no interval inside"):
        best_interval(Custom(jnp.zeros_like), 1.0, 1.0)


# ---------------------------------------------------------------- Gram matrices and their concentration


@pytest.fixture(scope="module")
def x():
    return jax.random.normal(jax.random.key(5), (4, 6))


def test_gram_matrices_of_fixed_embeddings(x):
    for embedding, wanted in (
        (Identity(), np.asarray(x @ x.T) / 6),
        (Quadratic(), np.asarray(x @ x.T) ** 2 / 36),
    ):
        network = TwoLayer(4, 6, embedding=embedding, key=jax.random.key(0))
        close(gram(network, x), wanted)
        assert limit_gram(network, x) is None


@pytest.mark.parametrize("depth", [1, 3])
def test_random_features_approach_their_limit_layer_by_layer(x, depth):
    network = TwoLayer(4, 6, embedding=RandomLayers((1000,) * depth), key=jax.random.key(1))
    infinite = TwoLayer(4, 6, embedding=Infinite(depth), key=jax.random.key(1))
    limit = limit_gram(network, x)
    close(limit, gram(infinite, x))
    close(limit, limit_gram(infinite, x))
    close(gram(network, x), limit, abs=5 * depth / math.sqrt(1000))
    assert np.max(np.abs(gram(network, x) - limit)) > 1e-4


def test_an_entry_of_the_limit_is_a_double_integral(x):
    network = TwoLayer(4, 6, embedding=RandomLayers((2,)), key=jax.random.key(1))
    (p, c), (_, q) = np.asarray(x[:2] @ x[:2].T) / 6
    root = np.linalg.cholesky([[p, c], [c, q]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    u, v = np.meshgrid(nodes, nodes, indexing="ij")
    value = np.tanh(root[0, 0] * u) * np.tanh(root[1, 0] * u + root[1, 1] * v)
    close(limit_gram(network, x)[0, 1], weights @ value @ weights / (2 * math.pi), rel=1e-6)


@pytest.mark.parametrize("sigma", [Tanh(), Relu()], ids=str)
def test_the_concentration_bound_is_kept(x, sigma):
    sizes = start_size(sigma, np.mean(np.asarray(x) ** 2, axis=1))
    limit = np.asarray(Infinite(1, sigma).kernel(x, x))
    for features in (16, 256):
        bound = concentration_bound(sizes, features, 0.1)
        z = np.random.default_rng(0).normal(size=(200, features, 6))
        phi = np.asarray(sigma(jnp.asarray(z @ np.asarray(x).T / math.sqrt(6))))
        distance = np.linalg.norm(np.swapaxes(phi, 1, 2) @ phi / features - limit, 2, axis=(1, 2))
        assert np.mean(distance <= bound) >= 0.9
        close(features_needed(sizes, bound, 0.1), features, rel=1e-9)


def test_the_distance_falls_like_one_over_root_d(x):
    features = [16, 64, 256, 1024]
    distance = concentration(x, Relu(), features, draws=40, key=jax.random.key(0))
    slope = np.polyfit(np.log(features), np.log(distance), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.06)  # 40 draws of a few degrees of freedom: 10 % in each of four points


def test_the_moments_behind_the_bernstein_bound():
    """(2k-1)!! <= (k!/2) 3 2^(k-2) for all k >= 2."""
    for k in range(2, 60):
        assert math.prod(range(2 * k - 1, 0, -2)) <= math.factorial(k) / 2 * 3 * 2 ** (k - 2)
