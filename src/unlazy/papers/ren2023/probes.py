"""Probes of the learner of ren2023: the slope α and shape of its first layer, its second layer, and active clips.

They apply to the two-block stack of eq. 1 (tied amplitudes |w| in block 1, rank 1), of finite or infinite width. With
α = C_Γ/√d E|w_1|² (eq. 5), F̃(x) = α |x| and f̃ is f with F̃ in place of F. The pull of a sample on a neuron is its term
in the neuron's velocity, the vector that eq. 4 clips.
"""

from collections.abc import Callable
from typing import Annotated, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from unlazy._checked import MAY_BE_INFINITE
from unlazy._errors import UserError
from unlazy._types import Inputs, Scalar
from unlazy.data import Dataset
from unlazy.flows import velocity
from unlazy.networks import Block, MeanFieldStack, Network, clipping, split_trained
from unlazy.networks.blocks import lengths
from unlazy.networks.limits import SphericalLimit, sphere_mean
from unlazy.probes import Observation, Probe

Values = dict[str, Float[Array, "..."]]


def learner(network: Network) -> MeanFieldStack:
    """Return the network if it is the learner of ren2023 eq. 1, and raise an error otherwise."""
    there = network.restore()
    if not (isinstance(there, MeanFieldStack) and there.scalar and clipping.is_learner(there.blocks)):
        raise UserError(
            f"This probe applies to the learner of ren2023 eq. 1 only, not to this {type(there).__name__}: omit the "
            "probe, or use a MeanFieldStack of two blocks with tied amplitudes and rank 1 in the first."
        )
    return there


learner.registered = False  # pyright: ignore[reportFunctionMemberAccess]  # it checks networks and does not make any


def second(network: MeanFieldStack) -> Block:
    """Return the second layer."""
    return cast(Block, network.blocks[1])


def neurons(network: MeanFieldStack) -> Float[Array, "m 2"]:
    """Return (w_2, b_2) of every second-layer neuron."""
    block = second(network)
    b = jnp.zeros(block.width, block.w.dtype) if block.b is None else block.b
    return jnp.stack([block.w[:, 0], b], axis=1)


def slope(network: MeanFieldStack) -> Scalar:
    """Compute α = C_Γ/√d E|w_1|²."""
    first = network.blocks[0]
    if isinstance(first, SphericalLimit):
        return first.slope
    return sphere_mean(network.inputs) * jnp.mean(jnp.sum(jnp.square(cast(Block, first).w), axis=1))


def apply_second(network: MeanFieldStack, values: Float[Array, " n"]) -> Float[Array, " n"]:
    """Compute E σ(w_2 F + b_2) for given values of F."""
    return network.blocks[1](values[None])[0]


def apply_first(network: MeanFieldStack, x: Inputs) -> Float[Array, " n"]:
    """Compute F(x)."""
    return network.blocks[0](x.T)[0]


def weights_of(data: Dataset) -> Float[Array, " n"]:
    """Return the share of each sample in an expectation."""
    each = jnp.ones(data.n, data.x.dtype) if data.weight is None else data.weight
    return each / jnp.sum(each)


class SecondLayer(Probe):
    """(w_2, b_2) of every neuron, their mean (w̄_2, b̄_2), E w_2², the largest w_2, and the spread δ_2.

    δ_2 is the largest distance between two neurons (ren2023 section 4).
    """

    def __call__(self, obs: Observation) -> Values:
        rows = neurons(learner(obs.network))
        apart = rows[:, None] - rows[None]
        return {
            "neurons": rows,
            "weight": jnp.mean(rows[:, 0]),
            "bias": jnp.mean(rows[:, 1]),
            "square": jnp.mean(jnp.square(rows[:, 0])),
            "largest": jnp.max(rows[:, 0]),
            "spread": jnp.max(jnp.sqrt(jnp.sum(jnp.square(apart), axis=2))),
        }


class LayerSpeeds(Probe):
    """Speeds along the flow, clipped or not: (w_2, b_2)' of every neuron, α', and the largest |w_1'|.

    They are those of gradient flow on the data of the run, whichever method trains the network. At infinite width
    ``first`` is |ρ'|.
    """

    def __call__(self, obs: Observation) -> Values:
        trained, frozen = split_trained(learner(obs.network))

        def quantities(leaves: MeanFieldStack) -> tuple[Array, Array, Array]:
            network = eqx.combine(leaves, frozen)
            first = network.blocks[0]
            weights = first.radius[None] if isinstance(first, SphericalLimit) else cast(Block, first).w
            return neurons(network), slope(network), weights

        speeds = jax.jvp(quantities, (trained,), (velocity(trained, frozen, obs.data, obs.loss),))[1]
        rows, alpha, first = speeds
        return {"neurons": rows, "alpha": alpha, "first": jnp.max(lengths(jnp.atleast_2d(first)))}


class FirstLayer(Probe):
    """α, ρ, and how far the first layer is from α |x|.

    - ``rho``: ρ, the root of the mean square length of first-layer neurons; α = C_Γ/√d ρ²;
    - ``tangential``: the largest |v̄(t) - v̄(0)| of a direction; ``radial``: the largest deviation of |v|² from its mean,
      as a share of it (Lemma 4.2 (a));
    - ``sphere`` and ``sphere_rms``: the largest value and the root mean square of |F/α - 1| in the directions of the
      data;
    - ``l2``: the root of E[(F/α - |x|)²] over |x| <= ``reach`` (Lemma 4.3 (a)).

    Parameters
    ----------
    reach
        The radius up to which ``l2`` counts samples.
    """

    reach: Annotated[float, MAY_BE_INFINITE] = eqx.field(static=True, default=1.0)

    def __call__(self, obs: Observation) -> Values:
        here, before = learner(obs.network), learner(obs.start)
        alpha = slope(here)
        r = lengths(obs.data.x)
        error = apply_first(here, obs.data.x) / alpha - r  # F is homogeneous: on the sphere it is this over r
        relative = error / jnp.where(r > 0, r, 1)
        share = weights_of(obs.data)
        moved, uneven = jnp.zeros_like(alpha), jnp.zeros_like(alpha)
        first, origin = here.blocks[0], before.blocks[0]
        if isinstance(first, Block) and isinstance(origin, Block):
            square = jnp.square(lengths(first.w))
            uneven = jnp.max(jnp.abs(square / jnp.mean(square) - 1))
            moved = jnp.max(lengths(_directions(first.w) - _directions(origin.w)))
        return {
            "alpha": alpha,
            "rho": jnp.sqrt(alpha / sphere_mean(here.inputs)),
            "tangential": moved,
            "radial": uneven,
            "sphere": jnp.max(jnp.abs(relative)),
            "sphere_rms": jnp.sqrt(share @ jnp.square(relative)),
            "l2": jnp.sqrt(share @ jnp.where(r <= self.reach, jnp.square(error), 0)),
        }


def _directions(w: Float[Array, "m d"]) -> Float[Array, "m d"]:
    length = lengths(w)
    return w / jnp.where(length > 0, length, 1)[:, None]


class ErrorByDegree(Probe):
    """The mean square of F/α - 1 over the sphere, by degree of spherical harmonics.

    - ``degree0``, ``degree1``, ``degree2``: its parts of these degrees; degree 0 vanishes by the definition of α;
    - ``rest``: that of all higher degrees, which are even, as relu(z) = (z + |z|)/2; ``total``: the sum.

    All are exact, without samples, and 0 at infinite width. With c_j = |w_j|²/(m_1 α), unit vectors u_j = w_j/|w_j|,
    s = C_Γ/√d and t = u_i·u_j, they are sums of c_i c_j k(t) over pairs, where k is t/(4d) for degree 1,
    N s²/(d+1)² P(t) for degree 2, with N = (d+2)(d-1)/2 and P(t) = (d t² - 1)/(d - 1), and (√(1-t²) + (π - arccos t) t)
    /(2π d) for the whole of F/α. Independent neurons of equal length have on average 1/(4 d s² m_1) in degree 1,
    N/((d+1)² m_1) in degree 2 and (1/(2 d s²) - 1)/m_1 in total. The error of eq. 6 is (w̄_2 α)²/2 E[|x|²; X_1] times
    the total if directions do not depend on |x|.
    """

    def __call__(self, obs: Observation) -> Values:
        here = learner(obs.network)
        first, d, mean = here.blocks[0], here.inputs, sphere_mean(here.inputs)
        names = ("degree0", "degree1", "degree2", "rest", "total")
        if not isinstance(first, Block):
            return {name: jnp.zeros_like(slope(here)) for name in names}
        share = jnp.square(lengths(first.w)) / (first.width * slope(here))  # c_j
        unit = _directions(first.w)
        t = jnp.clip(unit @ unit.T, -1, 1)
        harmonics = (d + 2) * (d - 1) / 2  # N, the number of harmonics of degree 2
        zonal = (d * jnp.square(t) - 1) / max(d - 1, 1)
        whole = (jnp.sqrt(1 - jnp.square(t)) + (jnp.pi - jnp.arccos(t)) * t) / (2 * jnp.pi * d)
        one, two = t / (4 * d), harmonics * (mean / (d + 1)) ** 2 * zonal
        rest = whole - mean**2 - one - two
        parts = [jnp.square(mean * jnp.sum(share) - 1), *(share @ part @ share for part in (one, two, rest))]
        return dict(zip(names, [*parts, jnp.sum(jnp.stack(parts))], strict=True))


class LimitDistance(Probe):
    """How far f is from f̃: the root mean square of f - f̃ over the data, and relative to that of the targets."""

    def __call__(self, obs: Observation) -> Values:
        here, share = learner(obs.network), weights_of(obs.data)
        value, limit = apply_first(here, obs.data.x), slope(here) * lengths(obs.data.x)
        apart = apply_second(here, value) - apply_second(here, limit)
        rms = jnp.sqrt(share @ jnp.square(apart))
        scale = jnp.sqrt(share @ jnp.square(obs.data.y))
        return {"rms": rms, "relative": rms / jnp.where(scale > 0, scale, 1)}


class LossDecomposition(Probe):
    """ren2023 eq. 6: L = L_1 + L_2 + L_3 is about L_1 + (w̄_2²/2) E[(F̃ - F)²], in value and in gradient.

    - ``fit``: L_1 = ½ E(f* - f̃)²; ``apart``: L_2 = ½ E(f̃ - f)²; ``cross``: L_3 = E(f* - f̃)(f̃ - f);
    - ``error``: (w̄_2²/2) E[(F̃ - F)²] over X_1, the largest ball in which all second-layer neurons are active (Lemma
      D.9): over all x it is infinite under the paper's law;
    - ``value``: |L - L_1 - error| / L; ``gradient``: |∇L - ∇(L_1 + error)| / |∇L| in the first-layer weights.
    """

    def __call__(self, obs: Observation) -> Values:
        here = learner(obs.network)
        parts, w = loss_parts(here, obs.data)
        fit, apart, cross, error = parts(w)
        whole = fit + apart + cross
        rows = jax.jacrev(parts)(w)
        true = rows[0] + rows[1] + rows[2]
        size = jnp.sqrt(jnp.sum(jnp.square(true)))
        off = jnp.sqrt(jnp.sum(jnp.square(true - rows[0] - rows[3])))
        tiny = jnp.finfo(whole.dtype).tiny
        return {
            "fit": fit,
            "apart": apart,
            "cross": cross,
            "error": error,
            "value": jnp.abs(whole - fit - error) / jnp.maximum(whole, tiny),
            "gradient": off / jnp.maximum(size, tiny),
        }


def loss_parts(
    here: MeanFieldStack, data: Dataset
) -> tuple[Callable[[Float[Array, "m d"]], Float[Array, " 4"]], Float[Array, "m d"]]:
    """Return L_1, L_2, L_3 and the error of `LossDecomposition` as a function of w_1, and w_1 of a finite learner."""
    first = here.blocks[0]
    if not isinstance(first, Block):
        raise UserError("A first layer of infinite width has no error: remove this probe, or use a finite width.")
    share, r = weights_of(data), lengths(data.x)
    mean, inside = jnp.mean(second(here).w[:, 0]), all_active(here, data)

    def parts(w: Float[Array, "m d"]) -> Float[Array, " 4"]:
        moved = eqx.tree_at(lambda one: one.blocks[0].w, here, w)
        value, limit = apply_first(moved, data.x), slope(moved) * r
        f, ideal = apply_second(moved, value), apply_second(moved, limit)
        fit, apart = (0.5 * (share @ jnp.square(part)) for part in (data.y - ideal, ideal - f))
        cross = share @ ((data.y - ideal) * (ideal - f))
        error = 0.5 * jnp.square(mean) * (share @ jnp.where(inside, jnp.square(limit - value), 0))
        return jnp.stack([fit, apart, cross, error])

    return parts, first.w


def all_active(here: MeanFieldStack, data: Dataset) -> Bool[Array, " n"]:
    """Return which samples lie in X_1, the largest ball in which all second-layer neurons are active (Lemma D.9)."""
    r = lengths(data.x)
    least = jnp.min(second(here).hidden(apply_first(here, data.x)[None]), axis=0)
    return r < jnp.min(jnp.where(least > 0, jnp.inf, r))


class ClipActivity(Probe):
    """Which clips of ren2023 eq. 4 are active, for each of v1, v2 and r2.

    ``v1``, ``v2`` and ``r2`` are the shares of (sample, neuron) pairs whose pull is clipped, weighted by the law of the
    inputs. ``v1_largest``, ``v2_largest`` and ``r2_largest`` are the longest pull divided by its bound: below 1 the
    clip has no effect. Both are also exact for infinitely many neurons.
    """

    def __call__(self, obs: Observation) -> Values:
        here = learner(obs.network)
        if here.clip is None:
            raise UserError("This network has no clips: set `clip`, or remove this probe.")
        first = cast(Block | SphericalLimit, here.blocks[0])
        f = here(obs.data.x)
        share = clipping.shares(obs.loss, obs.data.weight, f)
        share = share / jnp.sum(share)
        found = clipping.pulls(first, second(here), obs.data.x.T, clipping.slope_of(obs.loss, f, obs.data.y))
        active, names = {}, ("v1", "v2", "r2")
        for name, length, bound in zip(names, (found.first, found.weight, found.bias), here.clip, strict=True):
            active[name] = share @ jnp.mean((length > bound).astype(f.dtype), axis=0)
            active[f"{name}_largest"] = jnp.max(length) / bound
        if isinstance(first, SphericalLimit):
            pull = jnp.abs(found.signal) * first.radius * first.radii(obs.data.x.T)
            active["v1"] = share @ _beyond(here.clip[0] / jnp.maximum(pull, jnp.finfo(f.dtype).tiny), first.inputs)
            active["v1_largest"] = 2 * jnp.max(pull) / here.clip[0]
        return active


def _beyond(ratio: Float[Array, " n"], d: int) -> Float[Array, " n"]:
    """Compute P(z > 0, √(1 + 3 z²) > ratio) for a coordinate z of a direction: z² has the law Beta(½, (d-1)/2)."""
    least = (jnp.square(jnp.clip(ratio, 1, 2)) - 1) / 3  # of z²
    half = jnp.asarray(0.5, ratio.dtype)
    # At least = 1 the share is 0, which betainc only approximates; and with d = 1 all z² are 1.
    share = half if d == 1 else half * jax.scipy.special.betainc((d - 1) * half, half, 1 - least)
    return jnp.where(least < 1, share, jnp.zeros_like(ratio))


class RadialProfile(Probe):
    """The function f along rays: mean, smallest and largest value over some directions, and f̃.

    Parameters
    ----------
    low, high, count
        Smallest and largest radius, and the number of radii.
    directions, seed
        Number of directions, and the seed from which they are drawn.
    """

    low: float = eqx.field(static=True, default=0.0)
    high: float = eqx.field(static=True, default=2.0)
    count: int = eqx.field(static=True, default=41)
    directions: int = eqx.field(static=True, default=32)
    seed: int = eqx.field(static=True, default=0)

    def __call__(self, obs: Observation) -> Values:
        if not (0 <= self.low < self.high < float("inf") and self.count >= 2 and self.directions >= 1):
            raise UserError(f"Rays need 0 <= low < high, count >= 2 and directions >= 1, not {self!r}.")
        here, dtype = learner(obs.network), obs.data.y.dtype
        drawn = jax.random.normal(jax.random.key(self.seed), (self.directions, here.inputs), dtype)
        ends = apply_first(here, drawn / lengths(drawn)[:, None])
        r = jnp.asarray(np.linspace(self.low, self.high, self.count), dtype)
        f = apply_second(here, jnp.outer(ends, r).reshape(-1)).reshape(self.directions, self.count)
        return {
            "radius": r,
            "mean": jnp.mean(f, axis=0),
            "smallest": jnp.min(f, axis=0),
            "largest": jnp.max(f, axis=0),
            "limit": apply_second(here, slope(here) * r),
        }
