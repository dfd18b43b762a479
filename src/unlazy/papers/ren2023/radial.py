"""The heavy-tailed, spherically symmetric input law of ren2023, its samples and its quadrature.

Section 2 of ren2023 takes from Safran, Eldan and Shamir the density (√d αβ)^d φ²(√d αβ x) with
φ(x) = (R_d / |x|)^(d/2) J_{d/2}(2π R_d |x|) and R_d = Γ(d/2 + 1)^(1/d) / √π, the radius of the ball of volume 1.
Only the product αβ enters; it is called ``scale`` here. The radius r = |x| then has the density (Lemma B.1)

    p(r) = (d / r) J_ν(c r)²,    ν = d/2,    c = 2π R_d αβ √d,

which oscillates, and falls like d / (π c r²): the mean of |x| is infinite. Most formulas below are in u = c r.

These functions share their arguments:

d, scale
    Dimension of the inputs, and the paper's αβ.
r, reach, low, high
    Radii above 0, in formulas r and R; ``high`` may be infinite.
n, n_test
    Numbers of samples, for training and for testing.
key
    Random key or seed.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special

from unlazy._errors import UserError
from unlazy._types import Inputs, KeyLike, Outputs, PRNGKey
from unlazy.data import checks
from unlazy.data._base import Dataset, draw_twice, generator

Radii = float | list[float] | np.ndarray | Array

_FAR = 1e6  # beyond this u, J² + Y² is its large-argument expansion to 1e-12 for ν <= 500 (SciPy's Y_ν gives up at 1e9)


def _rate(d: int, scale: float) -> float:
    """Return c = 2π R_d αβ √d, after checking that the law exists for this dimension and scale."""
    checks.count("d", d)
    checks.positive("scale", scale)
    return 2 * math.sqrt(math.pi * d) * scale * math.exp(math.lgamma(d / 2 + 1) / d)


def _arguments(r: Radii, c: float) -> np.ndarray:
    radius = np.asarray(r, float)
    if not np.all((radius > 0) & np.isfinite(radius)):
        raise UserError(f"Radii from {np.min(radius):g} to {np.max(radius):g} were given: give finite ones above 0.")
    return np.asarray(c * radius)


def radial_density(r: Radii, d: int, scale: float = 1.0) -> Float[np.ndarray, "..."]:
    """Compute the density p(r) = (d / r) J_{d/2}(c r)² of the radius (ren2023, Lemma B.1)."""
    u = _arguments(r, _rate(d, scale))
    return np.asarray(d / np.asarray(r, float) * special.jv(d / 2, u) ** 2)


def radial_cdf(r: Radii, d: int, scale: float = 1.0) -> Float[np.ndarray, "..."]:
    """Compute the probability that the radius is below r, exact to rounding.

    F = J_ν² + 2 Σ_{k>=1} J_{ν+k}² at u = c r. For u > ν that sum is long and its complement is short, because the
    squares of all integer orders sum to 1 and those of all half-integer orders to Si(2u)/π.
    """
    u = _arguments(r, _rate(d, scale))
    near = u <= d / 2
    below = np.empty_like(u)
    below[near] = _cdf_by_high_orders(u[near], d / 2)
    below[~near] = _cdf_by_low_orders(u[~near], d)
    return below


def _cdf_by_high_orders(u: np.ndarray, nu: float) -> np.ndarray:
    total, term, order = special.jv(nu, u) ** 2, np.ones_like(u), nu
    while np.max(term, initial=0.0) > 1e-18:
        order += 1
        term = 2 * special.jv(order, u) ** 2
        total = total + term
    return total


def _cdf_by_low_orders(u: np.ndarray, d: int) -> np.ndarray:
    """Sum over the orders below ν by J_{k+1} = (2k/u) J_k - J_{k-1}, which is stable for k < u."""
    if d % 2 == 0:
        order, low, high = 1.0, special.j0(u), special.j1(u)
        missing = low**2
    else:
        size = np.sqrt(2 / (np.pi * u))
        order, low, high = 0.5, size * np.cos(u), size * np.sin(u)
        missing = 1 - 2 / np.pi * special.sici(2 * u)[0]
    while order < d / 2:
        missing = missing + 2 * high**2
        low, high = high, 2 * order / u * high - low
        order += 1
    return 1 - (missing + high**2)


def truncated_moment(power: float, reach: float, d: int, scale: float = 1.0) -> float:
    """Compute E[|x|^p; |x| <= R] = d c^-p ∫_0^(cR) u^(p-1) J_{d/2}(u)² du, by panels that end at R.

    The ``power`` p is 0 or more.
    """
    c = _rate(d, scale)
    end = float(_arguments(reach, c))
    u, width = gauss_legendre(_grid(0.0, end, min(np.pi, c / 16, end)), 8)
    return float(d / c**power * np.sum(width * u ** (power - 1) * special.jv(d / 2, u) ** 2))


def truncated_mean_bounds(reach: float, d: int, scale: float = 1.0) -> tuple[float, float]:
    """Compute bounds of E[|x|; |x| <= R] that are logarithms of R: Lemma B.2 (c) of ren2023, with constants.

    Let ν = d/2, J_ν = M cos θ and Y_ν = M sin θ, so θ' = 2/(π u M²) and J_ν² du = (π/2) u M⁴ cos²θ dθ. As u M² and M²
    decrease (ν >= ½), the integral over an interval of length π in θ is at least half of ∫ M² du over the next one. The
    first begins at u = 0 and ends at j, the first zero of J_ν, and M² >= 2/(π u) (Watson, 13.74), so that

        E[|x|; |x| <= R] >= (d/(π c)) log(c R/j),    j <= ν + 1.855758 ν^(1/3) + 1.033151 ν^(-1/3)  (Qu and Wong, 1999).

    For the upper bound, J_ν increases up to ν, and J_ν² <= M² <= (2/π)/√(u² - ν²) beyond, so that E[|x|; |x| <= R] is
    at most (d/c) (ν J_ν(ν)² + (2/π) arcosh(c R/ν)).
    """
    c, nu = _rate(d, scale), d / 2
    end = float(_arguments(reach, c))
    zero = nu + 1.855758 * nu ** (1 / 3) + 1.033151 * nu ** (-1 / 3)
    lower = d / (math.pi * c) * max(math.log(end / zero), 0.0)
    upper = d / c * (nu * float(special.jv(nu, nu)) ** 2 + 2 / math.pi * math.acosh(max(end / nu, 1.0)))
    return lower, upper


def density_bound(low: float, high: float, d: int, scale: float = 1.0) -> float:
    """Bound P(low <= |x| <= high) by (2 d/(π c)) (1/low - 1/high) / √(1 - (d/(2 c low))²), for c low > d/2.

    The density (d/r) J² is at most (2 d/π)/(r √(c² r² - ν²)) (Watson, 13.74): Lemma B.1 of ren2023 with a constant.
    """
    c = _rate(d, scale)
    share = d / (2 * c * low)
    if share >= 1:
        return 1.0
    return min(2 * d / (math.pi * c) * (1 / low - 1 / high) / math.sqrt(1 - share**2), 1.0)


def sample_radii(n: int, d: int, scale: float = 1.0, *, key: KeyLike) -> Float[np.ndarray, " n"]:
    """Draw n radii exactly, by rejection sampling.

    For u > ν, J_ν(u)² <= (2/π) / √(u² - ν²) (Watson, 13.74), so that u = ν / cos θ with θ ~ U(0, π/2) is an envelope of
    mass 2. For u < ν the density increases (for d = 1 it falls from 2/π), so a constant is an envelope. A proposal
    costs one Bessel function, and 1 in 2.3 (d = 1) to 1 in 5.2 (d = 1000) is accepted. The key seeds a NumPy generator,
    so this does not run under ``jit``.
    """
    c = _rate(d, scale)
    checks.count("n", n, 0)
    nu = d / 2
    height = 2 / np.pi if d == 1 else 2 * special.jv(nu, nu) ** 2
    mass = 2 + nu * height
    rng = generator(key)
    kept, have = [np.empty(0)], 0
    while have < n:
        batch = int(1.1 * mass * (n - have)) + 16
        right = rng.random(batch) * mass < 2
        place, chance = 1 - rng.random(batch), rng.random(batch)  # place in (0, 1]: u is never infinite
        u = np.where(right, nu / np.sin(np.pi / 2 * place), nu * place)
        # u p(u) = d J², against u times the envelope: (2d/π) / √(u² - ν²) is (4/π) / tan θ on the right.
        square = d * special.jv(nu, u) ** 2
        envelope = np.where(right, 4 / np.pi * np.tan(np.pi / 2 * place), height * u)
        kept.append(u[chance * envelope < square])
        have += kept[-1].size
    return np.concatenate(kept)[:n] / c


def heavy_tailed(n: int, d: int, scale: float = 1.0, n_test: int = 0, *, key: KeyLike) -> Dataset:
    """Draw inputs from the heavy-tailed law of ren2023, with its target y = relu(1 - |x|).

    Radii are drawn exactly by `sample_radii`, directions uniformly.

    Parameters
    ----------
    n, n_test
        Numbers of training and of test samples.
    d
        Dimension of the inputs.
    scale
        The paper's αβ, for which it gives no value. At 1 the bulk of |x| begins near 1/3, and the target is not 0 at
        about 79 % of the inputs (d = 100).
    key
        Random key or seed.
    """
    dtype = jnp.result_type(float)

    def draw(count: int, key: PRNGKey) -> tuple[Inputs, Outputs]:
        radius_key, direction_key = jax.random.split(key)
        r = sample_radii(count, d, scale, key=radius_key)
        direction = generator(direction_key).standard_normal((count, d))
        x = (r / np.linalg.norm(direction, axis=1))[:, None] * direction
        return jnp.asarray(x, dtype), jnp.asarray(np.maximum(1 - r, 0), dtype)

    return draw_twice(draw, n, n_test, name=f"heavy-tailed, d = {d}", key=key)


def radial_quadrature(d: int, scale: float = 1.0, order: int = 8, bulk: float = 2.0, far: float = 1e9) -> Dataset:
    """Return nodes r of shape (N, 1), targets relu(1 - r) and weights ω with Σ ω g(r) = E g(|x|) and Σ ω = 1.

    Up to r = ``bulk`` and over the first 64 oscillations, Gauss-Legendre panels of ``order`` nodes resolve every
    oscillation of J_ν², with a panel edge at the target's kink r = 1. Over 16 more oscillations a smooth step replaces
    J_ν² by its average (J_ν² + Y_ν²) / 2, which leaves no boundary term. From there panels in 1/u, each twice as long
    as the one before, extend to r = ``far``, and a last one to infinity. At order 8 the mass, and the mean of a g that
    is smooth between 0, 1 and infinity, have errors of about 1e-9; a kink of g at r = a elsewhere adds up to 2e-5 a. At
    most 4096 oscillations are resolved: if ``scale`` is so large that r = 1 lies beyond them, their average is used.

    Parameters
    ----------
    d, scale
        Dimension of the inputs, and the paper's αβ.
    order
        Number of nodes of each panel.
    bulk
        Radius up to which every oscillation is resolved.
    far
        Radius up to which panels double their length.
    """
    c = _rate(d, scale)
    checks.count("order", order, 2)
    checks.positive("bulk", bulk)
    checks.positive("far", far)
    nu = d / 2
    start = float(np.clip(bulk * c, nu + 64 * np.pi, nu + 4096 * np.pi))
    stop = start + 16 * np.pi

    fine = min(bulk * c, stop)
    near = np.unique([*_grid(0.0, fine, min(np.pi, c / 16, fine)), *_grid(fine, stop, np.pi), min(c, stop)])
    u, width = gauss_legendre(near, order)
    step = special.betainc(8, 8, np.clip((u - start) / (stop - start), 0, 1))
    average = _average_square(nu, np.maximum(u, start))  # Y_ν overflows far left of ν, where step = 0
    weight = width * d / u * ((1 - step) * special.jv(nu, u) ** 2 + step * average)

    doublings = math.ceil(math.log2(max(far * c, 2 * stop) / stop))
    edges = np.unique([0.0, *(1 / (stop * 2.0 ** np.arange(doublings + 1))), 1 / max(c, stop)])
    s, width = gauss_legendre(edges, order)  # s = 1/u, du = u² ds
    u = np.concatenate([u, 1 / s[::-1]])
    weight = np.concatenate([weight, (width * d / s * _average_square(nu, 1 / s))[::-1]])

    kept = weight > 1e-20
    r, dtype = u[kept] / c, jnp.result_type(float)
    return Dataset(
        jnp.asarray(r[:, None], dtype),
        jnp.asarray(np.maximum(1 - r, 0), dtype),
        weight=jnp.asarray(weight[kept], dtype),
        name=f"radial quadrature, d = {d}",
    )


def _grid(start: float, stop: float, width: float) -> np.ndarray:
    """Return the edges of equal panels no wider than ``width``."""
    return np.linspace(start, stop, max(1, math.ceil((stop - start) / width)) + 1)


def gauss_legendre(edges: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the Gauss-Legendre rule on each panel between neighbouring edges."""
    node, weight = np.polynomial.legendre.leggauss(order)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + node)).ravel(), (half * weight).ravel()


def _average_square(nu: float, u: np.ndarray) -> np.ndarray:
    """Compute J_ν² without its oscillation: (J_ν² + Y_ν²) / 2, which tends to 1 / (π u)."""
    near = np.minimum(u, _FAR)
    exact = (special.jv(nu, near) ** 2 + special.yv(nu, near) ** 2) / 2
    return np.where(u > _FAR, (1 + (4 * nu**2 - 1) / (8 * u**2)) / (np.pi * u), exact)
