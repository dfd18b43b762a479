"""The heavy-tailed radial law: density, distribution function, sampler and quadrature against each other and SciPy."""

import jax
import numpy as np
import pytest
from scipy import integrate, special, stats

from unlazy._errors import UserError
from unlazy.papers.ren2023.radial import heavy_tailed, radial_cdf, radial_density, radial_quadrature, sample_radii

DIMENSIONS = [1, 2, 3, 4, 7, 10, 33, 100, 101, 1000]


def mean(g, data):
    return float(np.sum(np.asarray(data.weight, float) * g(np.asarray(data.x, float)[:, 0])))


def panels(g, edges, order=20):
    """Gauss-Legendre on each panel: written out here, so that the quadrature is not tested against itself."""
    node, weight = np.polynomial.legendre.leggauss(order)
    half = np.diff(edges)[:, None] / 2
    return float(np.sum(half * weight * g((edges[:-1, None] + half * (1 + node)).ravel()).reshape(len(half), order)))


def test_density_is_the_one_of_the_paper():
    # ren2023, section 2: the density of x in R^d times the surface of the sphere of radius r, d = 6, αβ = 0.7.
    d, scale, r = 6, 0.7, np.array([0.2, 0.5, 1.3])
    stretch, ball = np.sqrt(d) * scale, special.gamma(d / 2 + 1) ** (1 / d) / np.sqrt(np.pi)
    phi = (ball / (stretch * r)) ** (d / 2) * special.jv(d / 2, 2 * np.pi * ball * stretch * r)
    surface = 2 * np.pi ** (d / 2) / special.gamma(d / 2) * r ** (d - 1)
    assert np.allclose(radial_density(r, d, scale), stretch**d * phi**2 * surface, rtol=1e-10)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_distribution_function_is_the_integral_of_the_density(d):
    edges = np.linspace(1e-9, 3.0, 80 + 8 * d)
    for stop in (30 + d, len(edges)):
        area = panels(lambda r: radial_density(r, d), edges[:stop])
        assert abs(area - radial_cdf(edges[stop - 1], d)) < 1e-8


@pytest.mark.parametrize("d", DIMENSIONS)
def test_distribution_function_rises_from_0_to_1(d):
    r = np.logspace(-3, 7, 2000)
    below = radial_cdf(r, d)
    assert np.all(np.diff(below) > -1e-12)
    assert below[0] < 2e-3
    # The tail P(|x| > r) tends to d / (π c r), which is below 1 / r for scale 1.
    assert 0 < 1 - below[-1] < 1e-7


def test_probability_of_the_unit_ball():
    assert float(radial_cdf(1.0, 100)) == pytest.approx(0.793, abs=0.002)


@pytest.mark.parametrize("scale", [1.0, 0.4])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_samples_follow_the_distribution_function(d, scale, key):
    radii = sample_radii(4000, d, scale, key=key)
    # Twenty seeded tests: a right sampler fails one of them at this level once in fifty choices of the seed.
    assert stats.kstest(radii, lambda r: radial_cdf(r, d, scale)).pvalue > 1e-3


@pytest.mark.parametrize("d", [1, 100])
def test_many_samples_still_do(d, key):
    radii = sample_radii(100_000, d, key=key)
    assert stats.kstest(radii, lambda r: radial_cdf(r, d)).pvalue > 1e-3


@pytest.mark.parametrize("d", DIMENSIONS)
def test_quadrature_has_mass_one_and_knows_the_unit_ball(d):
    data = radial_quadrature(d)
    assert abs(mean(np.ones_like, data) - 1) < 1e-6
    assert abs(mean(lambda r: r < 1, data) - radial_cdf(1.0, d)) < 1e-6
    assert np.max(data.x) > 1e6
    assert np.min(data.weight) > 0


@pytest.mark.parametrize("scale", [1e-4, 0.1, 10.0, 1e3])
@pytest.mark.parametrize("d", [1, 10, 1000])
def test_quadrature_at_other_scales(d, scale):
    data = radial_quadrature(d, scale)
    assert abs(mean(np.ones_like, data) - 1) < 1e-6
    assert abs(mean(lambda r: r < 1, data) - radial_cdf(1.0, d, scale)) < 1e-6


@pytest.mark.parametrize("d", DIMENSIONS)
def test_quadrature_of_the_target(d):
    # E relu(1 - |x|) = ∫_0^1 F(r) dr.
    data = radial_quadrature(d)
    wanted = panels(lambda r: radial_cdf(r, d), np.linspace(1e-12, 1.0, 40 + d // 2))
    assert abs(np.asarray(data.weight) @ np.asarray(data.y) - wanted) < 1e-6


@pytest.mark.parametrize("d", [1, 2, 5, 100])
def test_quadrature_of_bounded_functions_up_to_infinity(d):
    # E g(|x|) = ∫ g'(r) (1 - F(r)) dr from 0, with g = r / (1 + r) and t = g(r); and g = min(r, R) for far kinks.
    data = radial_quadrature(d)
    edges = np.concatenate([np.linspace(1e-12, 0.9, 60), 1 - 0.1 * 0.8 ** np.arange(1, 80), [1 - 1e-15]])
    wanted = panels(lambda t: 1 - radial_cdf(t / (1 - t), d), edges, order=40)
    assert abs(mean(lambda r: r / (1 + r), data) - wanted) < 1e-6
    for far in (10.0, 1e3, 1e6):
        steps = np.concatenate([np.linspace(1e-12, 1.0, 60), np.logspace(0, np.log10(far), 400)[1:]])
        wanted = panels(lambda r: 1 - radial_cdf(r, d), steps)
        assert mean(lambda r, far=far: np.minimum(r, far), data) == pytest.approx(wanted, rel=2e-4)


@pytest.mark.parametrize("d", [3, 50])
def test_quadrature_agrees_with_samples(d, key):
    n = 100_000
    sampled = np.exp(-sample_radii(n, d, key=key))
    assert abs(sampled.mean() - mean(lambda r: np.exp(-r), radial_quadrature(d))) < 5 * sampled.std() / np.sqrt(n)


def test_quadrature_against_scipy():
    wanted, _ = integrate.quad(lambda r: float(radial_density(r, 4)) / (1 + r**4), 1e-12, 40, limit=1000)
    assert abs(mean(lambda r: 1 / (1 + r**4), radial_quadrature(4)) - wanted) < 1e-6  # beyond 40: below 1e-8


@pytest.mark.parametrize("d", [1, 2, 20])
def test_heavy_tailed_directions_are_uniform(d, key):
    n = 4000
    data = heavy_tailed(n, d, n_test=10, key=key)
    radius = np.linalg.norm(data.x, axis=1)
    assert np.allclose(data.y, np.maximum(1 - radius, 0), atol=1e-5)
    direction = np.asarray(data.x) / radius[:, None]
    assert np.all(np.abs(direction.mean(0)) < 5 / np.sqrt(d * n))
    assert np.allclose(d * direction.T @ direction / n, np.eye(d), atol=5 * np.sqrt(2 / n))
    assert data.x_test.shape == (10, d)


def test_single_precision(key):
    with jax.enable_x64(False):
        samples, nodes = heavy_tailed(50, 1000, key=key), radial_quadrature(1000)
        samples.check()
        nodes.check()
        assert samples.x.dtype == nodes.weight.dtype == np.float32
        assert abs(mean(np.ones_like, nodes) - 1) < 1e-6


@pytest.mark.parametrize("r", [0.0, -1.0, [1.0, -2.0], float("nan"), float("inf")])
@pytest.mark.parametrize("function", [radial_density, radial_cdf])
def test_a_radius_must_be_above_zero(function, r):
    with pytest.raises(UserError, match="finite ones above 0"):
        function(r, 3)


@pytest.mark.parametrize(
    "function", [lambda d: radial_density(1.0, d), lambda d: radial_cdf(1.0, d), radial_quadrature]
)
def test_a_dimension_must_be_at_least_one(function):
    with pytest.raises(UserError, match="d = 0 is too small"):
        function(0)


def test_shapes_are_kept():
    assert radial_cdf(1.0, 3).shape == radial_density(1.0, 3).shape == ()
    assert radial_cdf(np.ones((2, 3)), 3).shape == radial_density(np.ones((2, 3)), 3).shape == (2, 3)
