"""Probes of ren2023's learner, against formulas written out in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.losses import Squared
from unlazy.networks import Constant, MeanFieldStack, Normal, Sphere, Tied, TwoLayer
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.data import spherical, spherical_quadrature
from unlazy.papers.ren2023.probes import (
    ClipActivity,
    ErrorByDegree,
    FirstLayer,
    LimitDistance,
    LossDecomposition,
    RadialProfile,
    SecondLayer,
)

D = 4
LOSS = Squared()
KEY = jax.random.key(5)


def learner(width=60, *, spread=0.05, mean=-1.0, clip=None, key=KEY):
    return MeanFieldStack(
        (width, 5), D, ranks=1, train=("w", "wb"), features=(Sphere(1.3), Normal(spread, mean=mean)),
        bias=(False, Constant(0.8)), amplitude=(Tied(), Constant(1.0)), clip=clip, key=key,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return spherical(300, D, tail=0.3, key=jax.random.key(1))


def parts(network, data):
    w, second = np.asarray(network.blocks[0].w), network.blocks[1]
    x, r = np.asarray(data.x), np.linalg.norm(data.x, axis=1)
    value = np.maximum(x @ w.T, 0) @ np.linalg.norm(w, axis=1) / len(w)
    alpha = sphere_mean(D) * np.mean(np.sum(w**2, axis=1))
    v, b = np.asarray(second.w)[:, 0], np.asarray(second.b)
    share = np.asarray(data.weight) / np.sum(data.weight)

    def top(f):
        return np.maximum(f[:, None] * v + b, 0).mean(axis=1)

    return w, v, b, r, value, alpha, share, top


def look(probe, network, data, start=None):
    return probe.of(network, network if start is None else start, data, LOSS)


def test_the_second_layer(data):
    network = learner()
    _, v, b, *_ = parts(network, data)
    seen = look(SecondLayer(), network, data)
    close(seen["neurons"], np.stack([v, b], axis=1))
    close(seen["weight"], v.mean())
    close(seen["square"], np.mean(v**2))
    close(seen["largest"], v.max())
    close(seen["spread"], max(abs(one - other) for one in v for other in v))  # biases are all alike


def test_the_first_layer(data):
    start = learner()
    moved = eqx.tree_at(lambda n: n.blocks[0].w, start, start.blocks[0].w * jnp.linspace(0.5, 1.5, 60)[:, None] + 0.1)
    w, *_, r, value, alpha, share, _ = parts(moved, data)
    seen = look(FirstLayer(reach=0.8), moved, data, start)
    before = np.asarray(start.blocks[0].w)
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (w, before)]
    square = np.sum(w**2, axis=1)
    error = value / alpha - r
    close(seen["alpha"], alpha)
    close(seen["rho"], np.sqrt(np.mean(square)))
    close(seen["tangential"], np.max(np.linalg.norm(unit[0] - unit[1], axis=1)), rel=1e-9)
    close(seen["radial"], np.max(np.abs(square / square.mean() - 1)))
    close(seen["sphere"], np.max(np.abs(error / r)), rel=1e-9)
    close(seen["sphere_rms"], np.sqrt(share @ (error / r) ** 2), rel=1e-9)
    close(seen["l2"], np.sqrt(share @ np.where(r <= 0.8, error**2, 0)), rel=1e-9)


def harmonics(values, t, weight):
    """The mean squares of a function on the circle of each degree 0 to 2, and of all, by Fourier sums."""
    parts = [np.abs(values @ (weight * np.exp(1j * k * t))) ** 2 * (1 if k == 0 else 2) for k in range(3)]
    return [*parts, values**2 @ weight]


def test_the_error_by_degree_on_the_circle_and_on_the_sphere(data):
    """d = 2 by Fourier sums; d = 3 by quadrature of F against degree 1 and 2 harmonics written out."""
    for d in (2, 3):
        network = MeanFieldStack(
            (6, 2), d, ranks=1, train=("w", "wb"), features=(Sphere(1.0), Normal(0.1, mean=-1.0)),
            bias=(False, Constant(0.8)), amplitude=(Tied(), Constant(1.0)), key=KEY,
        )  # fmt: skip
        network = eqx.tree_at(lambda n: n.blocks[0].w, network, network.blocks[0].w * jnp.arange(1.0, 7.0)[:, None])
        w = np.asarray(network.blocks[0].w)
        seen = look(ErrorByDegree(), network, spherical(5, d, key=KEY))
        alpha = sphere_mean(d) * np.mean(np.sum(w**2, axis=1))
        if d == 2:
            angle = np.linspace(0, 2 * np.pi, 200_000, endpoint=False)
            u, weight = np.stack([np.cos(angle), np.sin(angle)], axis=1), np.full(angle.size, 1 / angle.size)
        else:
            angle = np.linspace(0, 2 * np.pi, 1000, endpoint=False)
            z, share = np.polynomial.legendre.leggauss(1000)
            ring = np.sqrt(1 - z**2)
            u = np.stack([np.outer(ring, np.cos(angle)), np.outer(ring, np.sin(angle)), np.outer(z, np.ones(1000))], -1)
            u, weight = u.reshape(-1, 3), np.repeat(share / 2000, 1000)
        error = np.maximum(u @ w.T, 0) @ np.linalg.norm(w, axis=1) / len(w) / alpha - 1
        if d == 2:
            zero, one, two, total = harmonics(error, angle, weight)
        else:
            zero, one = (error @ weight) ** 2, 3 * np.sum((u.T @ (weight * error)) ** 2)
            tensor = np.einsum("n,ni,nj->ij", weight * error, u, u) - (error @ weight) * np.eye(3) / 3
            two, total = 7.5 * np.sum(tensor**2), error**2 @ weight
        close(seen["degree0"], zero, abs=1e-6)
        close(seen["degree1"], one, rel=1e-5)
        close(seen["degree2"], two, rel=1e-4)
        close(seen["total"], total, rel=1e-5)
        close(seen["rest"], total - zero - one - two, rel=1e-3)


def test_the_error_by_degree_of_many_random_neurons():
    """On average (1/(4 d s²), N/(d+1)², 1/(2 d s²) - 1)/m_1; 0 at infinite width."""
    mean = {}
    for seed in range(40):
        seen = look(ErrorByDegree(), learner(200, key=jax.random.key(seed)), spherical_quadrature(D))
        mean = {name: mean.get(name, 0) + 5 * float(value) for name, value in seen.items()}
    s = sphere_mean(D)
    assert mean["degree1"] == pytest.approx(1 / (4 * D * s**2), rel=0.3)
    assert mean["degree2"] == pytest.approx((D + 2) * (D - 1) / 2 / (D + 1) ** 2, rel=0.2)
    assert mean["total"] == pytest.approx(1 / (2 * D * s**2) - 1, rel=0.2)
    assert all(
        float(one) == 0 for one in look(ErrorByDegree(), learner(float("inf")), spherical_quadrature(D)).values()
    )


def test_f_against_its_limit(data):
    network = learner()
    *_, r, value, alpha, share, top = parts(network, data)
    seen = look(LimitDistance(), network, data)
    rms = np.sqrt(share @ (top(value) - top(alpha * r)) ** 2)
    close(seen["rms"], rms, rel=1e-9)
    close(seen["relative"], rms / np.sqrt(share @ np.asarray(data.y) ** 2), rel=1e-9)


def test_the_parts_of_the_loss_add_up(data):
    network = learner()
    _, v, b, r, value, alpha, share, top = parts(network, data)
    seen = look(LossDecomposition(), network, data)
    y, f, ideal = np.asarray(data.y), top(value), top(alpha * r)
    close(seen["fit"], 0.5 * share @ (y - ideal) ** 2, rel=1e-9)
    close(seen["apart"], 0.5 * share @ (ideal - f) ** 2, rel=1e-9)
    close(seen["cross"], share @ ((y - ideal) * (ideal - f)), rel=1e-9, abs=1e-14)
    close(seen["fit"] + seen["apart"] + seen["cross"], LOSS(network(data.x), data.y, data.weight), rel=1e-9)
    active = np.min(value[:, None] * v + b, axis=1) > 0
    inside = r < r[~active].min()
    close(seen["error"], 0.5 * v.mean() ** 2 * share @ np.where(inside, (alpha * r - value) ** 2, 0), rel=1e-9)


def test_the_decomposition_is_exact_where_all_neurons_are_active():
    """In a small ball f - f̃ = w̄_2 (F - F̃), so that L_2 is the error itself; L_3 is chance, and vanishes with n."""
    network = learner(width=400, mean=-0.1)
    off = []
    for n in (300, 30_000):
        data = spherical(n, D, law="ball", key=jax.random.key(3))
        seen = look(LossDecomposition(), network, data)
        close(seen["error"], seen["apart"], rel=1e-9)
        off.append(float(seen["gradient"]))
    assert off[1] < 0.05
    assert off[1] < off[0] / 3  # it falls as 1/√n


def test_a_symmetric_first_layer_leaves_nothing_apart():
    data = spherical_quadrature(D)
    infinite = learner(float("inf"))
    assert float(look(LimitDistance(), infinite, data)["rms"]) == 0
    seen = look(FirstLayer(), infinite, data)
    assert float(seen["alpha"]) == pytest.approx(1.3**2 * sphere_mean(D))
    assert float(seen["sphere"]) < 1e-12
    with pytest.raises(UserError, match="infinite width has no error"):
        look(LossDecomposition(), infinite, data)


@pytest.mark.parametrize("width", [60, float("inf")])
def test_which_clips_are_active(width, data):
    idle = look(ClipActivity(), learner(width, clip=(1e9, 1e9, 1e9)), data)
    busy = look(ClipActivity(), learner(width, clip=(1e-9, 1e-9, 1e-9)), data)
    for name in ("v1", "v2", "r2"):
        assert float(idle[name]) == 0
        assert 0 < float(idle[f"{name}_largest"]) < 1
        assert float(busy[name]) > 0.2
        close(busy[f"{name}_largest"], 1e18 * np.asarray(idle[f"{name}_largest"]), rel=1e-9)


def test_activity_at_infinite_width_is_that_of_many_neurons():
    """P(√(1 + 3 z²) |u| ρ r > R) over directions, against 4000 of them that see the same signal."""
    data = spherical(300, D, law="ball", key=jax.random.key(4))
    rays = spherical_quadrature(D, "ball")
    for bound in (0.02, 0.1):
        clip = (bound, 1.0, 1.0)
        many = look(ClipActivity(), learner(4000, clip=clip), data)
        infinite, exact = (look(ClipActivity(), learner(float("inf"), clip=clip), one) for one in (data, rays))
        close(infinite["v1"], many["v1"], abs=0.02)
        close(exact["v1"], infinite["v1"], abs=0.02)
        close(infinite["v1_largest"], many["v1_largest"], rel=0.1)


def test_activity_of_the_bias_clip_is_counted_by_mass(data):
    network = learner(clip=(1.0, 1.0, 0.1))
    *_, value, _, share, top = parts(network, data)
    _, v, b, *_ = parts(network, data)
    told = np.abs(top(value) - np.asarray(data.y))[:, None] * (value[:, None] * v + b > 0)
    close(look(ClipActivity(), network, data)["r2"], share @ np.mean(told > 0.1, axis=1), rel=1e-9)


def test_the_profile_is_f_along_rays(data):
    network = learner()
    seen = look(RadialProfile(0.5, 1.5, 3, directions=6, seed=2), network, data)
    u = np.asarray(jax.random.normal(jax.random.key(2), (6, D)))
    u = u / np.linalg.norm(u, axis=1, keepdims=True)
    values = np.stack([np.asarray(network(jnp.asarray(r * u))) for r in (0.5, 1.0, 1.5)], axis=1)
    close(seen["mean"], values.mean(axis=0), rel=1e-9)
    close(seen["smallest"], values.min(axis=0), rel=1e-9)
    close(seen["largest"], values.max(axis=0), rel=1e-9)
    close(seen["radius"], [0.5, 1.0, 1.5])
    with pytest.raises(UserError, match="Rays need 0 <= low < high"):
        look(RadialProfile(1.0, 0.5), network, data)


def test_other_networks_are_refused(data):
    with pytest.raises(UserError, match="applies to the learner of ren2023"):
        look(SecondLayer(), TwoLayer(4, D, key=KEY), data)
    with pytest.raises(UserError, match="has no clips"):
        look(ClipActivity(), learner(), data)
