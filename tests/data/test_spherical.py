"""Spherically symmetric laws: table, samples, weights and quadratures against SciPy, exact sampling and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from unlazy._errors import UserError
from unlazy.flows import Descent, Flow
from unlazy.lab import build
from unlazy.losses import Squared
from unlazy.networks import TwoLayer
from unlazy.papers.ren2023.data import SphericalSource, quantile, spherical, spherical_quadrature, survival
from unlazy.papers.ren2023.radial import radial_quadrature, sample_radii
from unlazy.probes import TrainLoss

LAWS = ["heavy-tailed", "gaussian", "ball"]


def norms(x):
    return np.linalg.norm(np.asarray(x, float), axis=1)


@pytest.mark.parametrize("d", [1, 2, 5, 100, 1000])
@pytest.mark.parametrize("law", LAWS)
def test_quantiles_undo_the_distribution_function(law, d):
    beyond = np.concatenate([np.linspace(0.001, 0.999, 400), np.logspace(-11, -3, 60)])
    r = np.asarray(quantile(jnp.asarray(beyond), law, d, 0.8))
    r = np.maximum(r, 1e-300)
    # Inside a cell radii are spread evenly; a cell holds a few thousandths of the mass at most.
    np.testing.assert_allclose(survival(r, law, d, 0.8), beyond, rtol=0.02, atol=1e-3)


def test_survival_of_light_laws_is_scipys():
    r = np.array([0.3, 0.9, 1.2])
    np.testing.assert_allclose(survival(r, "gaussian", 7, 0.8), stats.chi(7, scale=0.8 / np.sqrt(7)).sf(r), rtol=1e-10)
    np.testing.assert_allclose(survival(r, "ball", 7, 1.1), np.maximum(1 - (r / 1.1) ** 7, 0), atol=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_samples_follow_their_law(law, key):
    data = spherical(4000, 6, law, 0.9, stratified=False, key=key)
    assert stats.kstest(norms(data.x), lambda r: 1 - survival(r, law, 6, 0.9)).pvalue > 1e-3
    direction = np.asarray(data.x) / norms(data.x)[:, None]
    assert np.all(np.abs(direction.mean(0)) < 5 / np.sqrt(6 * 4000))


def test_samples_agree_with_exact_ones(key):
    table = norms(spherical(4000, 100, stratified=False, key=key).x)
    assert stats.ks_2samp(table, sample_radii(4000, 100, key=key)).pvalue > 1e-3


def test_strata_leave_hardly_any_chance(key):
    """The mean of the target over 256 strata is off by less than 1/256, over independent samples by 2 % or so."""
    wanted = float(radial_quadrature(50).weight @ radial_quadrature(50).y)
    found = [float(jnp.mean(spherical(256, 50, key=k).y)) for k in jax.random.split(key, 20)]
    loose = [float(jnp.mean(spherical(256, 50, stratified=False, key=k).y)) for k in jax.random.split(key, 20)]
    assert abs(np.mean(found) - wanted) < 2e-3
    assert np.std(found) < 2e-3 < np.std(loose)


def test_weighted_tails_are_unbiased_and_see_farther(key):
    """E min(|x|, 1e5) = ∫ P(|x| > r) dr: the tail carries a good part of it, and weighting finds it."""
    grid = np.geomspace(1e-3, 1e5, 20_000)
    wanted = np.trapezoid(survival(grid, "heavy-tailed", 20), grid)
    keys = jax.random.split(key, 40)

    def mean(tail, k):
        data = spherical(2000, 20, stratified=False, tail=tail, key=k)
        weight = np.ones(2000) if data.weight is None else np.asarray(data.weight)
        return float(weight @ np.minimum(norms(data.x), 1e5) / 2000)

    plain, weighted = (np.array([mean(tail, k) for k in keys]) for tail in (0.0, 0.5))
    assert abs(weighted.mean() - wanted) < 5 * weighted.std() / np.sqrt(40)
    assert weighted.std() < plain.std() / 3
    data = spherical(5000, 20, tail=0.5, key=key)
    assert norms(data.x).max() > 1e6
    assert float(jnp.mean(data.weight)) == pytest.approx(1, abs=0.1)


def test_truncation_is_the_law_given_the_ball(key):
    data = spherical(4000, 10, truncate=1.5, stratified=False, key=key)
    r, end = norms(data.x), survival(1.5, "heavy-tailed", 10)
    assert r.max() < 1.5 * (1 + 1e-3)
    assert stats.kstest(r, lambda s: (1 - survival(s, "heavy-tailed", 10)) / (1 - end)).pvalue > 1e-3


def test_a_target_on_a_subspace(key):
    data = spherical(50, 8, subspace=3, key=key)
    np.testing.assert_allclose(data.y, np.maximum(1 - norms(data.x[:, :3]), 0), rtol=1e-12)
    with pytest.raises(UserError, match="d = 8 is too small"):
        spherical(5, 8, subspace=9, key=key)


@pytest.mark.parametrize("d", [1, 3, 10, 100])
@pytest.mark.parametrize("law", LAWS)
def test_quadratures_have_mass_one_and_know_the_unit_ball(law, d):
    data = spherical_quadrature(d, law, 1.2)
    r, weight = norms(data.x), np.asarray(data.weight)
    assert weight.sum() == pytest.approx(1, abs=1e-6)
    assert weight @ (r < 1) == pytest.approx(1 - float(survival(1.0, law, d, 1.2)), abs=1e-6)
    assert data.x.shape[1] == d


def test_quadrature_of_a_gaussian_against_scipy():
    data = spherical_quadrature(9, "gaussian", 1.1)
    law = stats.chi(9, scale=1.1 / 3)
    wanted = law.expect(lambda r: np.exp(-r))
    assert float(data.weight @ jnp.exp(-jnp.linalg.norm(data.x, axis=1))) == pytest.approx(wanted, rel=1e-7)
    ball = spherical_quadrature(9, "ball", 0.7)
    assert float(ball.weight @ jnp.linalg.norm(ball.x, axis=1)) == pytest.approx(0.7 * 9 / 10, rel=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tail": 1.0}, "tail = 1.0 is not in range"),
        ({"tail": -0.1}, "tail = -0.1 is not in range"),
        ({"truncate": 0.0}, "truncate = 0.0 is not in range"),
        ({"truncate": 1e-4}, "too few to draw from"),
    ],
)
def test_bad_options_get_a_sentence(options, message, key):
    with pytest.raises(UserError, match=message):
        SphericalSource(5, **options).draw(4, key=key)


# ---------------------------------------------------------------- fresh samples


def test_descent_on_fresh_samples_sees_new_ones_each_step(key):
    """One step of descent is the gradient on the batch that its key gives, and steps differ."""
    source, data = SphericalSource(4), spherical(6, 4, key=key)
    network = TwoLayer(8, 4, key=key)
    flow = Descent(rate=0.1, batch=5, source=source)
    one = flow(network, data, [0.1], [TrainLoss()], key=jax.random.key(3))
    batch = source.draw(5, key=jax.random.fold_in(jax.random.key(3), 0))
    plain = Descent(rate=0.1, coordinates="weights")
    by_hand = plain(network, batch, [0.1])
    np.testing.assert_allclose(one.final.w, by_hand.final.w, rtol=1e-10, atol=1e-13)
    two = flow(network, data, [0.2], key=jax.random.key(3))
    again = plain(by_hand.final, source.draw(5, key=jax.random.fold_in(jax.random.key(3), 1)), [0.1])
    np.testing.assert_allclose(two.final.w, again.final.w, rtol=1e-10, atol=1e-13)
    same = flow.extend(one, [0.2])
    np.testing.assert_array_equal(same.final.w, two.final.w)


def test_fresh_samples_come_in_batches_and_in_weights(key):
    network, data = TwoLayer(8, 4, key=key), spherical(6, 4, key=key)
    with pytest.raises(UserError, match="number of samples per step"):
        Descent(source=SphericalSource(4))(network, data, [1.0])
    with pytest.raises(UserError, match="fresh samples need"):
        Descent(source=SphericalSource(4), batch=3, coordinates="gram")(network, data, [1.0])
    single = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if getattr(leaf, "dtype", None) == jnp.float64 else leaf, network
    )
    run = Descent(rate=0.1, batch=5, source=SphericalSource(4))(single, data.astype("float32"), [0.3])
    assert run.final.w.dtype == jnp.float32


def test_a_recipe_can_name_a_source():
    flow = build(
        {"kind": "descent", "batch": 4, "source": {"kind": "spherical-source", "d": 5, "law": "ball"}}, Flow, "flow"
    )
    assert flow.source == SphericalSource(5, "ball")
    assert flow.loss == Squared()
