"""Kernels and constants of caron2023 against brute force, Monte Carlo, SciPy and limits."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.special import zeta

from close import close
from unlazy._errors import UserError
from unlazy.activations import Cubic, Erf, LeakyRelu, Linear, Relu, Sigmoid, Softplus, Tanh
from unlazy.networks import FirstNodes, GivenNodes, TwoLayer, Zipf, asymmetrical, mean_field, ntk, with_fields
from unlazy.papers.caron2023.theorems import (
    distance_to_limit,
    first_kernel_step,
    first_weight_step,
    guarantee,
    limit_ntg,
    margins,
    mean_ntg,
    node_variance,
    parts,
    printed_width,
    smallest_mean_eigenvalue,
)
from unlazy.papers.caron2023.theorems.constants import Guarantee, curvature, start_moment

rng = np.random.default_rng(0)
N, D = 3, 4
X = rng.normal(size=(N, D)) / 2.5  # pre-activations of variance around 0.15
W = rng.normal(size=(400_000, D))
H = W @ X.T / math.sqrt(D)
GRAM = X @ X.T / D


def network(width=64, activation=None, scaling=None, **options):
    scaling = asymmetrical(0.3, Zipf(0.6)) if scaling is None else scaling
    return TwoLayer(width, D, activation=activation or Relu(), scaling=scaling, key=jax.random.key(1), **options)


# ---------------------------------------------------------------- at the start


@pytest.mark.parametrize("sigma", [Relu(), Erf(), Tanh(), LeakyRelu(0.2)], ids=lambda one: type(one).__name__)
def test_the_mean_and_the_variance_of_a_node_are_those_of_many(sigma):
    """E A_j and E|A_j - E A_j|² over 400,000 nodes: errors of the means are about 1e-3 of the values."""
    slopes = np.asarray(sigma.derivative(jnp.asarray(H)))
    products = slopes[:, :, None] * slopes[:, None, :]
    close(mean_ntg(sigma, jnp.asarray(X)), GRAM * products.mean(axis=0), rel=0.01, abs=2e-4)
    variance = np.sum(GRAM**2 * products.var(axis=0))
    close(node_variance(sigma, jnp.asarray(X)), variance, rel=0.02)


def test_erf_in_closed_form_is_the_quadrature():
    x = jnp.asarray(X)
    by_hand = Tanh().pair_expectation(lambda h: Erf().derivative(h) ** 2, *_pair(x))
    close(node_variance(Erf(), x), np.sum(GRAM**2 * by_hand) - np.sum(mean_ntg(Erf(), x) ** 2), rel=1e-9)
    close(mean_ntg(Erf(), x), GRAM * np.asarray(Tanh().pair_expectation(Erf().derivative, *_pair(x))), rel=1e-10)


def _pair(x):
    gram = x @ x.T / x.shape[1]
    return jnp.diagonal(gram)[:, None], jnp.diagonal(gram)[None, :], gram


def test_kappa_of_one_input_and_of_orthogonal_ones():
    """ReLU: half of the gates are open, and orthogonal inputs do not meet: Θ* = |x|²/(2d) on the diagonal."""
    x = jnp.diag(jnp.asarray([1.0, 0.5, 0.8, 0.3]))
    close(smallest_mean_eigenvalue(Relu(), x), 0.3**2 / (2 * D), rel=1e-12)
    assert smallest_mean_eigenvalue(Relu(), x[:1]) == pytest.approx(1 / (2 * D))
    parallel = jnp.stack([x[0], x[0] / 2])
    assert abs(smallest_mean_eigenvalue(Relu(), parallel)) < 1e-15


# ---------------------------------------------------------------- the NTG in parts, and its limit


def brute_force(w, weights):
    """Σ_j weight_j A_j of ReLU nodes."""
    slopes = (np.asarray(w) @ X.T > 0).astype(float)
    return GRAM * np.einsum("j,ja,jb->ab", weights, slopes, slopes)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_the_two_parts_are_sums_over_nodes(gamma):
    net = network(scaling=asymmetrical(gamma, Zipf(0.6)))
    split = parts(net, jnp.asarray(X))
    tilde = np.arange(1, 65) ** (-1 / 0.6)
    close(split.symmetric, brute_force(net.w, np.full(64, gamma / 64)), rel=1e-10, abs=1e-16)
    close(split.rest, brute_force(net.w, (1 - gamma) * tilde / tilde.sum()), rel=1e-9, abs=1e-12)
    close(split.symmetric + split.rest, net.tangent_kernel(jnp.asarray(X), jnp.asarray(X)), rel=1e-10, abs=1e-14)


def test_scalings_without_weights_are_symmetric():
    net = network(scaling=mean_field)
    split = parts(net, jnp.asarray(X))
    close(split.symmetric, net.tangent_kernel(jnp.asarray(X), jnp.asarray(X)), rel=1e-12)
    close(split.rest, np.zeros((N, N)), abs=1e-15)
    with pytest.raises(UserError, match=r"m\^-1 are not those of caron2023 eq. 1: use scaling=asymmetrical"):
        limit_ntg(net, jnp.asarray(X))


def test_the_limit_is_what_more_nodes_bring():
    """Θ_∞ of 16 nodes is the mean, over what nodes 17, 18, ... may be, of Θ of very many."""
    x, gamma, alpha, many = jnp.asarray(X), 0.4, 0.7, 20_000
    small = network(16, scaling=asymmetrical(gamma, Zipf(alpha)))
    limit = limit_ntg(small, x)
    lam = asymmetrical(gamma, Zipf(alpha)).node.variances(many)
    assert small.w is not None
    own = brute_force(small.w, lam[:16])
    # The nodes after the 16th, 20 times over: their mean, and how far they are from it.
    tails = []
    for seed in range(20):
        w = np.random.default_rng(seed).normal(size=(many - 16, D))
        tails.append(brute_force(w, lam[16:]))
    close(own + np.mean(tails, axis=0), limit.ntg, abs=5 * limit.rest / math.sqrt(20) + 2e-3 * np.abs(limit.ntg).max())
    spread = math.sqrt(np.mean([np.sum((tail - np.mean(tails, axis=0)) ** 2) for tail in tails]) * 20 / 19)
    close(spread, limit.rest, rel=0.3)  # 20 draws of a positive number


def test_without_a_random_share_the_limit_is_the_mean():
    limit = limit_ntg(network(scaling=ntk), jnp.asarray(X))
    close(limit.ntg, mean_ntg(Relu(), jnp.asarray(X)), rel=1e-12)
    assert limit.rest == 0


def test_the_distance_to_the_limit_falls_with_width():
    """Like m^-½ where γ > 0: γ²/m of the symmetric share; the rest is gone much sooner for α = 0.4."""
    x = jnp.asarray(X)
    near, far = (distance_to_limit(network(m, scaling=asymmetrical(0.5, Zipf(0.4))), x) for m in (4000, 1000))
    close(near, far / 2, rel=0.01)
    exact = 0.5 / math.sqrt(1000) * math.sqrt(node_variance(Relu(), x))
    close(far, exact, rel=0.01)


@pytest.mark.parametrize("power", [1.5, 2.0, 3.0])
def test_sums_of_powers_are_sums(power):
    assert Zipf(0.5).power_sum(power) == pytest.approx(np.sum(Zipf(0.5).first(100_000) ** power), rel=1e-8)
    assert Zipf(0.5).power_sum(1.0) == pytest.approx(1.0)
    assert FirstNodes(5).power_sum(power) == pytest.approx(np.sum(FirstNodes(5).first(9) ** power))
    assert GivenNodes((3.0, 1.0)).power_sum(power) == pytest.approx(0.75**power + 0.25**power)
    close(GivenNodes((3.0, 1.0)).normalised(3), np.array([0.75, 0.25, 0.0]))


def test_figure_5():
    assert Zipf(0.4).power_sum(2.0) == pytest.approx(zeta(5.0) / zeta(2.5) ** 2)
    assert Zipf(0.99).power_sum(2.0) < 0.001 < 0.7 < Zipf(0.3).power_sum(2.0)


# ---------------------------------------------------------------- the first step


def test_g_1_of_relu_is_that_of_the_text_and_of_a_sum():
    norms = np.linalg.norm(X, axis=1)
    printed = -(X * norms[:, None]).sum(axis=0) / (D * math.sqrt(2 * math.pi))
    close(first_weight_step(Relu(), jnp.asarray(X)), printed, rel=1e-12)
    drawn = np.mean(np.maximum(H, 0) * (H > 0), axis=0)
    close(printed, -(X.T @ drawn) / math.sqrt(D), rel=0.02, abs=1e-3)


def test_g_1_of_odd_activations_is_zero_and_of_softplus_is_not():
    for sigma in (Tanh(), Erf()):
        close(first_weight_step(sigma, jnp.asarray(X)), np.zeros(D), abs=1e-15)
    h = jnp.asarray(H)
    drawn = np.mean(np.asarray(Softplus()(h) * Softplus().derivative(h)), axis=0)
    close(first_weight_step(Softplus(), jnp.asarray(X)), -(X.T @ drawn) / math.sqrt(D), rel=0.01)


def closed_form(k, other, i):
    """g_2 of erf: the Gaussian, tilted by three factors e^(-z²), and Stein's identity for erf."""
    points = np.stack([X[k], X[other], X[i]])
    cov = points @ points.T / D
    tilted = np.linalg.solve(np.eye(3) + 2 * cov, cov)
    c = 2 / math.sqrt(math.pi)
    size = -2 * c**3 / math.sqrt(np.linalg.det(np.eye(3) + 2 * cov))
    return size * tilted[0, 2] * c / math.sqrt(1 + 2 * tilted[2, 2])


def test_g_2_of_erf_is_its_closed_form():
    step = np.zeros((N, N))
    for k, other, i in np.ndindex(N, N, N):
        step[k, other] += (X[k] @ X[i]) * closed_form(k, other, i) + (X[other] @ X[i]) * closed_form(other, k, i)
    close(first_kernel_step(Erf(), jnp.asarray(X), jnp.asarray(X)), -(X @ X.T) * step / D**2, rel=1e-9)


# ---------------------------------------------------------------- constants


def test_curvature_is_the_largest_second_derivative():
    assert curvature(Tanh()) == pytest.approx(4 / (3 * math.sqrt(3)))
    assert curvature(Softplus()) == pytest.approx(0.25)
    assert curvature(Sigmoid()) == pytest.approx(1 / (6 * math.sqrt(3)))
    assert curvature(Linear()) == 0
    assert curvature(Cubic()) == math.inf


def test_the_moment_at_the_start_is_the_largest_over_sizes():
    def density(z):
        return math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

    value, _ = dblquad(lambda z, _: math.tanh(z / 2) ** 2 * density(z), 0, 1, -9, 9)
    assert start_moment(Tanh(), 4) == pytest.approx(value, rel=1e-9)
    assert start_moment(Softplus(), 10**6) == pytest.approx(math.log(2) ** 2, rel=1e-4)


def test_theorem_4_1_is_its_printed_bounds_and_half_its_printed_width():
    """(c) and (d) as printed; the two large widths without the factor 2 that the proof does not need."""
    n, d, gamma, kappa, largest, delta = 7, 5, 0.4, 0.03, 1.3, 0.1
    lam = asymmetrical(gamma, Zipf(0.5)).node.variances(50)
    found = guarantee(Relu(), lam, gamma, kappa, n, d, largest, delta)
    size = math.sqrt(2 * largest**2 + 2 / d)
    assert found.reach == pytest.approx(2**3 * n * size / (kappa * d**0.5 * gamma * delta**0.5))
    total = np.sum(lam**1.5)
    first = 2**9 * n**2 * size / (kappa * d**1.5 * gamma * delta**2.5) * total
    second = 2**6 * n**1.5 * size**0.5 / (kappa**0.5 * d**1.25 * gamma**0.5 * delta**1.25) * math.sqrt(total)
    assert found.drift == pytest.approx(first + second)
    assert printed_width(gamma, kappa, n, d, largest, delta) == pytest.approx(2 * found.width)
    assert (found.smallest, found.rate) == pytest.approx((gamma * kappa / 4, gamma * kappa / 2))


def test_theorem_4_2_is_as_printed():
    n, d, gamma, kappa, largest, delta = 7, 5, 0.4, 0.03, 1.3, 0.1
    lam = asymmetrical(gamma, Zipf(0.5)).node.variances(50)
    found = guarantee(Tanh(), lam, gamma, kappa, n, d, largest, delta)
    bend, size = curvature(Tanh()), largest**2 + start_moment(Tanh(), d)
    far = 2**15 * n**4 * bend**2 * size / (kappa**4 * d**4 * gamma**2 * delta)
    assert found.width == pytest.approx(far)
    assert found.reach == pytest.approx(n / (kappa * d**0.5) * math.sqrt(2**7 * size / (gamma**2 * delta)))
    first = 2**7 * n**3 * bend**2 * size / (kappa**2 * d**3 * gamma**2 * delta) * np.sum(lam**2)
    second = 2**5 * n**2 * bend * size**0.5 / (kappa * d**2 * gamma * delta**0.5) * math.sqrt(np.sum(lam**2))
    assert found.drift == pytest.approx(first + second)


def test_the_smaller_widths_count_where_they_are_the_largest():
    few = guarantee(Tanh(), np.ones(1), 1.0, 1.0, 1, 10**6, 1e-9, 0.5)
    assert few.width == pytest.approx(8 * math.log(4) / 1e6)
    # 2^10 n³ M² (C² + C_1) / (κ³ d³ γ² δ) is above 2^15 n⁴ ... where κ d > 32 n: no kernel does that with |x| <= 1.
    assert guarantee(Relu(), np.ones(1), 1.0, 0.5, 1, 1, 1.0, 0.5).width > 2**42


def test_nothing_is_guaranteed_without_a_symmetric_share():
    for gamma, kappa in ((0.0, 0.1), (0.5, 0.0), (0.5, -1e-18)):
        found = guarantee(Relu(), np.ones(4) / 4, gamma, kappa, 2, 3, 1.0)
        assert found == Guarantee(math.inf, 0.0, 0.0, math.inf, math.inf)
    with pytest.raises(UserError, match="is not a probability between 0 and 1"):
        guarantee(Relu(), np.ones(4) / 4, 0.5, 0.1, 2, 3, 1.0, delta=1.0)


def test_margins_by_hand():
    promised = Guarantee(width=100.0, smallest=0.5, rate=2.0, reach=3.0, drift=4.0)
    lam, times = np.array([0.25, 0.75]), np.array([0.0, 1.0])
    movement = np.array([[0.0, 0.0], [0.5, 1.0]])
    seen = margins(promised, lam, times, [8.0, 1.0], [2.0, 1.0], movement, [0.0, 0.5], speed=0.5)
    close(seen.smallest, np.array([4.0, 2.0]))
    close(seen.loss, np.array([1.0, 8 * math.exp(-1)]))
    close(seen.weights, np.array([np.inf, min(1.5 / 0.5, 3 * math.sqrt(0.75))]))
    close(seen.drift, np.array([np.inf, 8.0]))
    assert seen.width == 100
    wanted = {"a": 2.0, "b": 8 * math.exp(-1), "c": 3 * math.sqrt(0.75), "d": 8.0}
    assert seen.least() == pytest.approx(wanted)


def test_margins_of_nothing_are_infinite_and_bad_shapes_are_named():
    nothing = Guarantee(math.inf, 0.0, 0.0, math.inf, math.inf)
    looks = (np.array([0.0, 1.0]), [1.0, 0.5], [0.0, 0.0], np.zeros((2, 3)), [0.0, 0.1])
    seen = margins(nothing, np.ones(3) / 3, *looks)
    inf = math.inf
    assert seen.least() == pytest.approx({"a": inf, "b": 2.0, "c": inf, "d": inf})  # a loss may not rise, at least
    with pytest.raises(UserError, match=r"one movement per time and node, but got shapes .* for 2 times and 2 nodes"):
        margins(nothing, np.ones(2) / 2, *looks)
    with pytest.raises(UserError, match="the first time must be 0"):
        margins(nothing, np.ones(3) / 3, looks[0] + 1, *looks[1:])


def test_a_loss_below_what_can_be_seen_is_no_breach():
    promised = Guarantee(1.0, 0.0, 100.0, 1.0, 1.0)
    looks = (np.array([0.0, 10.0]), [1.0, 1e-20], [1.0, 1.0], np.zeros((2, 1)), [0.0, 0.0])
    assert margins(promised, np.ones(1), *looks).least()["b"] < 1
    assert margins(promised, np.ones(1), *looks, resolution=2e-10).least()["b"] > 1


def test_one_output_of_several_is_cut_out_of_the_whole():
    several = network(16, outputs=3)
    x = jnp.asarray(X)
    whole = several.tangent_kernel(x, x)
    for output in range(3):
        close(several.output_kernel(x, x, output), whole[:, output, :, output], rel=1e-12)
        alone = with_fields(several, a=several.a[:, output])
        close(parts(alone, x).symmetric + parts(alone, x).rest, whole[:, output, :, output], rel=1e-9, abs=1e-13)
