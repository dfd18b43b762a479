"""ren2023's learner: its limit of infinite width, and clipping, against autodiff, Monte Carlo and single samples."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

from close import close
from unlazy._errors import UserError
from unlazy.activations import Tanh
from unlazy.data import Dataset
from unlazy.flows import Descent, Exponential, Linearised, RungeKutta, velocity
from unlazy.losses import Squared
from unlazy.networks import Constant, MeanFieldStack, Normal, Sphere, Tied, split_trained, with_fields
from unlazy.networks.limits import slopes, sphere_mean
from unlazy.papers.ren2023.data import spherical_quadrature
from unlazy.papers.ren2023.probes import FirstLayer, SecondLayer
from unlazy.probes import TrainLoss

KEY = jax.random.key(7)
D = 4
TIGHT = (0.05, 0.04, 0.1)
LOOSE = (math.inf,) * 3


def learner(width=6, d=D, *, above=5, radius=0.8, clip=None, key=KEY, spread=0.5, bias=0.3, **options):
    return MeanFieldStack(
        (width, above),
        d,
        ranks=1,
        train=("w", "wb"),
        features=(Sphere(radius), Normal(spread)),
        bias=(False, Constant(bias)),
        amplitude=(Tied(), Constant(1.0)),
        clip=clip,
        key=key,
        **options,
    )


def samples(n=9, d=D, weight=None, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return Dataset(jnp.asarray(x), jnp.asarray(np.maximum(1 - np.linalg.norm(x, axis=1), 0)), weight=weight)


def directions(network, data, loss=None):
    return velocity(*split_trained(network), data, loss or Squared())


def projected(pull, radius):
    return pull * min(1.0, radius / np.linalg.norm(pull)) if np.linalg.norm(pull) > 0 else pull


def brute_force(network, data, clip, shares):
    """Eq. 4 as it is printed: a loop over samples and neurons."""
    first, second = network.blocks
    v, w, b = np.asarray(first.w), np.asarray(second.w)[:, 0], np.asarray(second.b)
    moves = [np.zeros_like(v), np.zeros_like(w), np.zeros_like(b)]
    for x, y, share in zip(np.asarray(data.x), np.asarray(data.y), shares, strict=True):
        lengths = np.linalg.norm(v, axis=1)
        value = np.mean(lengths * np.maximum(v @ x, 0))
        gates = (w * value + b > 0).astype(float)
        residual = y - np.mean(np.maximum(w * value + b, 0))
        signal = residual * np.mean(gates * w)
        for i, one in enumerate(v):
            active = float(one @ x > 0)
            pull = signal * (one / lengths[i] * max(one @ x, 0) + lengths[i] * active * x)
            moves[0][i] += share * projected(pull, clip[0])
        for j in range(len(w)):
            moves[1][j] += share * projected(np.array([residual * gates[j] * value]), clip[1])[0]
            moves[2][j] += share * projected(np.array([residual * gates[j]]), clip[2])[0]
    return moves


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("clip", [TIGHT, LOOSE, (0.05, math.inf, math.inf), (math.inf, 0.04, math.inf)])
def test_clipping_is_equation_4(clip, weighted):
    weight = jnp.asarray(np.random.default_rng(1).uniform(0.1, 2.0, 9)) if weighted else None
    data = samples(weight=weight)
    shares = np.full(9, 1 / 9) if weight is None else np.asarray(weight / weight.sum())
    network = learner(clip=clip)
    moved = directions(network, data)
    wanted = brute_force(network, data, clip, shares)
    close(moved.blocks[0].w, wanted[0], rel=1e-10, abs=1e-14)
    close(moved.blocks[1].w[:, 0], wanted[1], rel=1e-10, abs=1e-14)
    close(moved.blocks[1].b, wanted[2], rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("width", [6, math.inf])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_without_effect_it_is_the_gradient(width, reduction):
    data, loss = samples(weight=jnp.linspace(0.5, 1.5, 9)), Squared(reduction)
    clipped, plain = (directions(learner(width, clip=clip), data, loss) for clip in (LOOSE, None))
    for one, other in zip(jax.tree.leaves(clipped), jax.tree.leaves(plain), strict=True):
        close(one, other, rel=1e-9, abs=1e-14)


def test_only_some_parameters_may_be_trained():
    network = MeanFieldStack(
        (6, 5), D, ranks=1, train=("", "w"), features=(Sphere(), Normal()), bias=(False, Constant(0.3)),
        amplitude=(Tied(), Constant(1.0)), clip=TIGHT, key=KEY,
    )  # fmt: skip
    moved = directions(network, samples())
    assert moved.blocks[0].w is None
    assert moved.blocks[1].b is None
    assert np.any(np.asarray(moved.blocks[1].w) != 0)


# ---------------------------------------------------------------- infinite width


@pytest.mark.parametrize("d", [1, 2, 3, 10, 100, 1000])
def test_the_mean_of_a_rectified_coordinate(d):
    """Lemma 3.1's C_Γ/√d against the density of a coordinate, and its limit 1/√(2π d)."""
    if d == 1:
        assert sphere_mean(1) == pytest.approx(0.5, rel=1e-12)
        return
    # z = cos θ, with density sin^(d-2) θ / B(1/2, (d-1)/2).
    area = special.beta(0.5, (d - 1) / 2)
    wanted, _ = integrate.quad(lambda t: math.cos(t) * math.sin(t) ** (d - 2) / area, 0, math.pi / 2)
    assert sphere_mean(d) == pytest.approx(wanted, rel=1e-8)
    if d >= 100:
        assert sphere_mean(d) * math.sqrt(2 * math.pi * d) == pytest.approx(1, abs=1 / d)


@pytest.mark.parametrize("d", [2, 3, 10, 100])
def test_nodes_of_slopes_integrate_what_a_clip_makes(d):
    area = special.beta(0.5, (d - 1) / 2)
    z, weight = slopes(d)
    for bound in (0.7, 1.05, 5.0):  # always active, active for some, never

        def kept(s, bound=bound):
            return np.minimum(1.0, bound / np.sqrt(1 + 3 * s**2))

        wanted, _ = integrate.quad(
            lambda t: math.cos(t) * kept(math.cos(t)) * math.sin(t) ** (d - 2) / area, 0, math.pi / 2, limit=200
        )
        # A kink between 16 nodes costs about the square of their distance.
        assert sphere_mean(d) * float(weight @ kept(z)) == pytest.approx(wanted, rel=2e-3)
    close(slopes(1)[0], np.ones(16))


@pytest.mark.parametrize("clip", [None, (0.3, 0.2, 0.4), (0.02, math.inf, math.inf)])
def test_the_limit_is_that_of_many_neurons(clip):
    """Section 3: directions stay, and every neuron's length changes as ρ does, whatever is clipped."""
    d, n = 3, 4000
    data = samples(n, d)
    r = np.linalg.norm(data.x, axis=1)
    rays = Dataset(jnp.zeros((n, d)).at[:, 0].set(jnp.asarray(r)), data.y)
    finite, infinite = (learner(width, d, clip=clip) for width in (1500, math.inf))
    close(finite.blocks[1].w, infinite.blocks[1].w)  # the same key gives the same second layer
    # 1500 neurons leave an error of about 3 % in F, and 4000 samples one of 1 or 2 % in means.
    close(finite(data.x)[:50], infinite(rays.x)[:50], abs=0.05)
    near, far = directions(finite, data), directions(infinite, rays)
    v = np.asarray(finite.blocks[0].w)
    outward = np.sum(np.asarray(near.blocks[0].w) * v, axis=1) / np.linalg.norm(v, axis=1)
    assert np.mean(outward) == pytest.approx(float(far.blocks[0].radius), rel=0.05)
    close(near.blocks[1].w, far.blocks[1].w, abs=0.02)
    close(near.blocks[1].b, far.blocks[1].b, abs=0.02)


def test_alpha_follows_the_equation_of_section_3():
    """α' = (4 C_Γ/√d) E[S |x|] α."""
    d, data = 10, spherical_quadrature(10)
    network = learner(math.inf, d, spread=0.0, bias=0.4)
    network = eqx.tree_at(lambda n: n.blocks[1].w, network, -0.7 * jnp.ones((5, 1)))  # falls off, so all means exist
    r, share = np.asarray(data.x)[:, 0], np.asarray(data.weight)
    f = np.asarray(network(data.x))
    signal = (np.asarray(data.y) - f) * -0.7 * (f > 0)
    alpha = float(network.blocks[0].slope)
    wanted = 4 * sphere_mean(d) * float(share @ (signal * r)) * alpha
    moved = directions(network, data)
    gained = 2 * sphere_mean(d) * float(network.blocks[0].radius) * float(moved.blocks[0].radius)
    assert gained == pytest.approx(wanted, rel=1e-9)


def test_a_gaussian_law_has_the_sphere_of_its_mean_square():
    one = MeanFieldStack(
        (math.inf, 5), 9, ranks=1, train=("w", "wb"), features=(Normal(0.5), Normal()), bias=(False, Constant(0.3)),
        amplitude=(Tied(), Constant(1.0)), key=KEY,
    )  # fmt: skip
    assert float(one.blocks[0].radius) == pytest.approx(1.5)


def test_vectors_and_their_lengths_are_the_same_to_the_limit():
    data, network = samples(), learner(math.inf)
    prepared, x, _ = network.prepare(data)
    assert x.known.shape == (9,)
    close(prepared(x), network(data.x), rel=1e-12)
    run = RungeKutta()(network, data, [0.0, 1.0], [TrainLoss()])
    assert run.status.ok
    assert run.observed["train-loss"][1] < run.observed["train-loss"][0]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip": (1.0, -1.0, 1.0)}, "not in range: give a number above 0"),
        ({"clip": (1.0, 1.0, 0.0)}, "not in range: give a number above 0"),
        ({"clip": TIGHT, "activation": Tanh()}, r"learner of its eq\. 1"),
        ({"width": math.inf, "activation": Tanh()}, "tied block of infinite width"),
        ({"width": math.inf, "offset": Constant(1.0)}, "tied block of infinite width"),
    ],
)
def test_bad_options_get_a_sentence(options, message):
    with pytest.raises(UserError, match=message):
        learner(**options)


def test_flows_that_solve_the_gradient_flow_refuse_what_clips():
    network, data = learner(clip=TIGHT), samples()
    for flow in (Exponential(), Linearised(), Descent(clip_sample=1.0)):
        with pytest.raises(UserError, match="made with clip="):
            flow(network, data, [1.0])


def test_both_flow_and_descent_follow_the_clipped_direction():
    network, data = learner(clip=TIGHT), samples()
    flow = RungeKutta(rtol=1e-8, atol=1e-10)(network, data, [1.0])
    steps = Descent(rate=1e-3)(network, data, [1.0])
    plain = RungeKutta(rtol=1e-8, atol=1e-10)(with_fields(network, clip=None), data, [1.0])
    apart, other = (
        max(
            float(jnp.max(jnp.abs(a - b)))
            for a, b in zip(jax.tree.leaves(flow.final), jax.tree.leaves(run.final), strict=True)
        )
        for run in (steps, plain)
    )
    assert apart < 1e-3  # Euler's error is of the order of its step
    assert other > 10 * apart


def test_a_finite_network_is_drawn_from_an_infinite_one():
    """Definition A.1: with m neurons F is off by about √((π - 1)/m), and the second layer is the same."""
    infinite, x = learner(math.inf), samples(200).x
    finite = infinite.sampled(20_000, key=KEY)
    close(finite(x), infinite(x), abs=0.03)
    close(finite.blocks[1].w, infinite.blocks[1].w)
    assert finite.rates().blocks[0].w == 20_000.0
    with pytest.raises(UserError, match="Give 1 to 2 widths"):
        finite.sampled(5, 5, 5, key=KEY)


def test_a_network_of_several_outputs_is_drawn_neuron_by_neuron():
    """Definitions A.1 and A.2: (a_1, ..., a_D, w) stay together, and many of them give the same function."""
    wide = MeanFieldStack((7, 5), 3, ranks=2, train="aw", bias=False, activation=Tanh(), features=Normal(), key=KEY)
    x = samples(20, 3).x
    drawn = wide.sampled(200_000, 100_000, key=KEY)
    close(drawn(x), wide(x), abs=0.02)  # 1/√m is 0.003, of sums of a few terms
    for before, now in zip(wide.blocks, wide.sampled(4, 3, key=KEY).blocks, strict=True):
        rows = [int(np.flatnonzero((np.asarray(before.w) == w).all(axis=1))[0]) for w in np.asarray(now.w)]
        close(now.a, before.a[np.array(rows)])
    part = wide.sampled(4, key=KEY)
    assert [block.width for block in part.blocks] == [4, 5]
    standard = MeanFieldStack((7, 5), 3, ranks=2, parameterisation="standard", key=KEY)
    with pytest.raises(UserError, match="no mean-field neurons"):
        standard.sampled(4, key=KEY)


def test_the_flow_is_equation_12():
    """App. A: both blocks train (a, w); every neuron sees the others through means only."""
    d, rank, (m1, m2) = 3, 2, (5, 4)
    data = samples(8, d)
    network = MeanFieldStack(
        (m1, m2), d, ranks=rank, train="aw", bias=False, activation=Tanh(), features=Normal(), key=KEY
    )
    (v1, w1), (a2, w2) = (tuple(np.asarray(leaf) for leaf in (block.a, block.w)) for block in network.blocks)
    x, y = np.asarray(data.x), np.asarray(data.y)
    h1 = x @ w1.T
    value = np.tanh(h1) @ v1 / m1
    h2 = value @ w2.T
    residual = y - np.tanh(h2) @ a2[:, 0] / m2
    gate1, gate2 = 1 - np.tanh(h1) ** 2, 1 - np.tanh(h2) ** 2
    weighed = residual[:, None] * gate2 * a2[:, 0]  # (n, m2)
    sent = weighed @ w2 / m2  # what is sent back to F, a mean over the second layer
    moved = directions(network, data)
    close(moved.blocks[1].a, np.tanh(h2).T @ residual[:, None] / 8, rel=1e-9, abs=1e-13)
    close(moved.blocks[1].w, weighed.T @ value / 8, rel=1e-9, abs=1e-13)
    close(moved.blocks[0].a, np.tanh(h1).T @ sent / 8, rel=1e-9, abs=1e-13)
    close(moved.blocks[0].w, (gate1 * (sent @ v1.T)).T @ x / 8, rel=1e-9, abs=1e-13)


def test_the_limit_is_the_three_equations_of_section_3():
    """(ρ, w, b) against SciPy, from formulas written out: along the plateau, the fall and what follows."""
    d, data = 10, spherical_quadrature(10)
    network = learner(math.inf, d, above=1, radius=d**-0.5, spread=0.0, bias=0.1)
    network = eqx.tree_at(lambda n: n.blocks[1].w, network, -0.01 * jnp.ones((1, 1)))
    r, y, share = (np.asarray(part) for part in (jnp.linalg.norm(data.x, axis=1), data.y, data.weight))
    gain = sphere_mean(d)

    def speed(_, state):
        rho, w, b = state
        value = gain * rho**2 * r
        active = w * value + b > 0
        residual = share * (y - np.maximum(w * value + b, 0)) * active
        return [2 * gain * rho * w * (residual @ r), residual @ value, residual.sum()]

    times = [20.0, 100.0, 300.0]
    wanted = integrate.solve_ivp(speed, (0, 300), [d**-0.5, -0.01, 0.1], t_eval=times, rtol=1e-9, atol=1e-12).y
    run = RungeKutta(rtol=1e-9, atol=1e-12)(network, data, times, [FirstLayer(), SecondLayer(), TrainLoss()])
    close(run.observed["first-layer"]["alpha"], gain * wanted[0] ** 2, rel=1e-5)
    close(run.observed["second-layer"]["weight"], wanted[1], rel=1e-5)
    close(run.observed["second-layer"]["bias"], wanted[2], rel=1e-5)
    assert run.observed["train-loss"][-1] < 0.2 * run.observed["train-loss"][0]
