"""The learner of ren2023 on its way: the slope α and shape of its first layer, its second layer, and what clips.

All of these look at the two-block stack of eq. 1 (tied amplitudes |w| in block 1, rank 1), of finite or infinite width.
With α = C_Γ/√d E|w_1|² (eq. 5), F̃(x) = α |x| and f̃ is f with F̃ in place of F.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._observation import Observation
from unlazy._types import Inputs, Scalar
from unlazy.data import Dataset
from unlazy.networks import (
    Block,
    MeanFieldStack,
    Network,
    SphericalLimit,
    is_learner,
    lengths,
    pulls,
    shares,
    slope_of,
    sphere_mean,
)
from unlazy.probes import Probe

Seen = dict[str, Float[Array, "..."]]


def learner(network: Network) -> MeanFieldStack:
    """The network as ren2023's learner, or a refusal."""
    there = network.restore()
    if not (isinstance(there, MeanFieldStack) and there.scalar and is_learner(there.blocks)):
        raise UserError(
            f"This probe looks at the learner of ren2023 eq. 1, and this {type(there).__name__} is none: leave it out."
        )
    return there


learner.registered = False  # pyright: ignore[reportFunctionMemberAccess]  # it refuses networks, and makes none


def second(network: MeanFieldStack) -> Block:
    """The second layer (w_2, b_2)."""
    block = network.blocks[1]
    assert isinstance(block, Block)
    return block


def slope(network: MeanFieldStack) -> Scalar:
    """α = C_Γ/√d E|w_1|²."""
    first = network.blocks[0]
    if isinstance(first, SphericalLimit):
        return first.slope
    assert isinstance(first, Block)
    return sphere_mean(first.inputs) * jnp.mean(jnp.sum(jnp.square(first.w), axis=1))


def top(network: MeanFieldStack, values: Float[Array, " n"]) -> Float[Array, " n"]:
    """E σ(w_2 F + b_2) for given values of F."""
    return network.blocks[1](values[None])[0]


def values(network: MeanFieldStack, x: Inputs) -> Float[Array, " n"]:
    """F(x)."""
    return network.blocks[0](x.T)[0]


def weights_of(data: Dataset) -> Float[Array, " n"]:
    """Shares of the samples in an expectation."""
    each = jnp.ones(data.n, data.x.dtype) if data.weight is None else data.weight
    return each / jnp.sum(each)


class SecondLayer(Probe):
    """(w_2, b_2) of every neuron, their mean (w̄_2, b̄_2), E w_2², the largest w_2, and the spread δ_2.

    δ_2 is the largest distance between two neurons (ren2023 section 4).
    """

    def __call__(self, obs: Observation) -> Seen:
        """Look at the second layer."""
        block = second(learner(obs.network))
        b = jnp.zeros(block.width, block.w.dtype) if block.b is None else block.b
        rows = jnp.stack([block.w[:, 0], b], axis=1)
        apart = rows[:, None] - rows[None]
        return {
            "neurons": rows,
            "weight": jnp.mean(rows[:, 0]),
            "bias": jnp.mean(rows[:, 1]),
            "square": jnp.mean(jnp.square(rows[:, 0])),
            "largest": jnp.max(rows[:, 0]),
            "spread": jnp.max(jnp.sqrt(jnp.sum(jnp.square(apart), axis=2))),
        }


class FirstLayer(Probe):
    """α, and how far the first layer is from α |x|.

    - ``tangential``: the largest |v̄(t) - v̄(0)| of a direction; ``radial``: the largest deviation of |v|² from its mean,
      as a share of it (Lemma 4.2 (a));
    - ``sphere`` and ``sphere_rms``: the largest and the root mean square of |F/α - 1| on the directions of the data;
    - ``l2``: the root of E[(F/α - |x|)²] over |x| <= ``reach`` (Lemma 4.3 (a)).
    """

    reach: float = eqx.field(static=True, default=1.0)

    def __call__(self, obs: Observation) -> Seen:
        """Look at the first layer."""
        here, before = learner(obs.network), learner(obs.start)
        alpha = slope(here)
        r = lengths(obs.data.x)
        error = values(here, obs.data.x) / alpha - r  # F is homogeneous: on the sphere it is this over r
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
            "tangential": moved,
            "radial": uneven,
            "sphere": jnp.max(jnp.abs(relative)),
            "sphere_rms": jnp.sqrt(share @ jnp.square(relative)),
            "l2": jnp.sqrt(share @ jnp.where(r <= self.reach, jnp.square(error), 0)),
        }


def _directions(w: Float[Array, "m d"]) -> Float[Array, "m d"]:
    length = lengths(w)
    return w / jnp.where(length > 0, length, 1)[:, None]


class LimitDistance(Probe):
    """How far f is from f̃: the root mean square of f - f̃ over the data, and relative to that of the targets."""

    def __call__(self, obs: Observation) -> Seen:
        """Compare the two functions."""
        here, share = learner(obs.network), weights_of(obs.data)
        apart = top(here, values(here, obs.data.x)) - top(here, slope(here) * lengths(obs.data.x))
        rms = jnp.sqrt(share @ jnp.square(apart))
        scale = jnp.sqrt(share @ jnp.square(obs.data.y))
        return {"rms": rms, "relative": rms / jnp.where(scale > 0, scale, 1)}


class LossDecomposition(Probe):
    """ren2023 eq. 6: L = L_1 + L_2 + L_3 is about L_1 + (w̄_2²/2) E[(F̃ - F)²], in value and in gradient.

    - ``fit``: L_1 = ½ E(f* - f̃)²; ``apart``: L_2 = ½ E(f̃ - f)²; ``cross``: L_3 = E(f* - f̃)(f̃ - f);
    - ``error``: (w̄_2²/2) E[(F̃ - F)²] over X_1, the largest ball in which all second-layer neurons are active (Lemma
      D.9): over all x it is infinite under the paper's law;
    - ``value``: |L - L_1 - error| / L; ``gradient``: |∇L - ∇(L_1 + error)| / |∇L| by the weights of the first layer.
    """

    def __call__(self, obs: Observation) -> Seen:
        """Take the loss apart."""
        here = learner(obs.network)
        first = here.blocks[0]
        if not isinstance(first, Block):
            raise UserError("A first layer of infinite width has no error to be told apart: leave this probe out.")
        block, share, r = second(here), weights_of(obs.data), lengths(obs.data.x)
        mean = jnp.mean(block.w[:, 0])
        least = jnp.min(block.hidden(values(here, obs.data.x)[None]), axis=0)
        inside = r < jnp.min(jnp.where(least > 0, jnp.inf, r))

        def parts(w: Float[Array, "m d"]) -> Float[Array, " 4"]:
            moved = eqx.tree_at(lambda one: one.blocks[0].w, here, w)
            value, limit = values(moved, obs.data.x), slope(moved) * r
            f, ideal = top(moved, value), top(moved, limit)
            fit, apart = (0.5 * (share @ jnp.square(part)) for part in (obs.data.y - ideal, ideal - f))
            cross = share @ ((obs.data.y - ideal) * (ideal - f))
            error = 0.5 * jnp.square(mean) * (share @ jnp.where(inside, jnp.square(limit - value), 0))
            return jnp.stack([fit, apart, cross, error])

        fit, apart, cross, error = parts(first.w)
        whole = fit + apart + cross
        rows = jax.jacrev(parts)(first.w)
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


class ClipActivity(Probe):
    """Which clips of ren2023 eq. 4 are active: by v1, v2 and r2, the share of (sample, neuron) pairs, and how far.

    ``v1`` and so on are shares of the law's mass; ``v1_largest`` and so on are the longest pull over its bound: below 1
    a clip does nothing. Both are exact over infinitely many neurons, too.
    """

    def __call__(self, obs: Observation) -> Seen:
        """Compare pulls with their bounds."""
        here = learner(obs.network)
        if here.clip is None:
            raise UserError("This network clips nothing: give it `clip`, or leave this probe out.")
        first = here.blocks[0]
        assert isinstance(first, Block | SphericalLimit)
        f = here(obs.data.x)
        share = shares(obs.loss, obs.data.weight, f)
        share = share / jnp.sum(share)
        found = pulls(first, second(here), obs.data.x.T, slope_of(obs.loss, f, obs.data.y))
        seen = {}
        found_of = {"v1": found.first, "v2": found.weight, "r2": found.bias}
        for (name, length), bound in zip(found_of.items(), here.clip, strict=True):
            seen[name] = share @ jnp.mean((length > bound).astype(f.dtype), axis=0)
            seen[f"{name}_largest"] = jnp.max(length) / bound
        if isinstance(first, SphericalLimit):
            pull = jnp.abs(found.signal) * first.radius * first.radii(obs.data.x.T)
            seen["v1"] = share @ _beyond(here.clip[0] / jnp.maximum(pull, jnp.finfo(f.dtype).tiny), first.dimension)
            seen["v1_largest"] = 2 * jnp.max(pull) / here.clip[0]
        return seen


def _beyond(ratio: Float[Array, " n"], d: int) -> Float[Array, " n"]:
    """P(z > 0, √(1 + 3 z²) > ratio) for a coordinate z of a direction, where z² has the law Beta(½, (d-1)/2)."""
    least = (jnp.square(jnp.clip(ratio, 1, 2)) - 1) / 3  # of z²
    half = jnp.asarray(0.5, ratio.dtype)
    # At 1 the share is 0, which betainc only comes close to; and with d = 1 all z² are 1.
    share = half if d == 1 else half * jax.scipy.special.betainc((d - 1) * half, half, 1 - least)
    return jnp.where(least < 1, share, jnp.zeros_like(ratio))


class RadialProfile(Probe):
    """The function f along rays: mean, smallest and largest value over some directions, and f̃.

    Radii go from ``low`` to ``high``; the directions are drawn once, from ``seed``.
    """

    low: float = eqx.field(static=True, default=0.0)
    high: float = eqx.field(static=True, default=2.0)
    count: int = eqx.field(static=True, default=41)
    directions: int = eqx.field(static=True, default=32)
    seed: int = eqx.field(static=True, default=0)

    def __call__(self, obs: Observation) -> Seen:
        """Look along the rays."""
        if not (0 <= self.low < self.high < float("inf") and self.count >= 2 and self.directions >= 1):
            raise UserError(f"Rays go from low >= 0 to a larger high, in 2 points or more, not {self!r}.")
        here, dtype = learner(obs.network), obs.data.y.dtype
        drawn = jax.random.normal(jax.random.key(self.seed), (self.directions, here.inputs), dtype)
        ends = values(here, drawn / lengths(drawn)[:, None])
        r = jnp.asarray(np.linspace(self.low, self.high, self.count), dtype)
        f = top(here, jnp.outer(ends, r).reshape(-1)).reshape(self.directions, self.count)
        return {
            "radius": r,
            "mean": jnp.mean(f, axis=0),
            "smallest": jnp.min(f, axis=0),
            "largest": jnp.max(f, axis=0),
            "limit": top(here, slope(here) * r),
        }
