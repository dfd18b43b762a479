"""Identities of ren2023 that are exact for any finite learner and any data: Lemmas D.3 to D.5, D.11 to D.14 and D.18.

All concern the unclipped flow of the learner ``network`` on the samples ``data``. Expectations are over the data, with
their weights; S(x) = (f* - f) E[σ'(h_2) w_2].
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._types import Inputs, Scalar
from unlazy.data import Dataset
from unlazy.networks import Block, MeanFieldStack
from unlazy.networks.blocks import lengths
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.probes import all_active, apply_first, learner, loss_parts, second, slope, weights_of


class _Parts(NamedTuple):
    """The quantities that the identities share; one column per sample."""

    share: Float[Array, " n"]
    residual: Float[Array, " n"]  # f* - f
    value: Float[Array, " n"]  # F
    hidden: Float[Array, "k n"]  # h_2
    gates: Float[Array, "k n"]  # σ'(h_2)
    signal: Float[Array, " n"]  # S


def _parts(network: MeanFieldStack, data: Dataset) -> _Parts:
    block = second(network)
    value = apply_first(network, data.x)
    h = block.hidden(value[None])
    gates = block.activation.derivative(h)
    residual = data.y - network(data.x)
    signal = residual * (block.w[:, 0] @ gates) / block.width
    return _Parts(weights_of(data), residual, value, h, gates, signal)


def _first(network: MeanFieldStack) -> Block:
    block = network.blocks[0]
    if not isinstance(block, Block):
        raise UserError("This identity is about single first-layer neurons, not about their limit: use a finite width.")
    return block


def alpha_speed(network: MeanFieldStack, data: Dataset) -> Scalar:
    """Compute α' = (4 C_Γ/√d) E[S F] (Lemma D.3)."""
    parts = _parts(learner(network), data)
    return 4 * sphere_mean(network.inputs) * (parts.share @ (parts.signal * parts.value))


def value_speed(network: MeanFieldStack, data: Dataset, x: Inputs) -> Float[Array, " n"]:
    """Compute the speed of F at inputs x (Lemma D.4).

    d/dt F(x) = 4 E[S(x') E_w σ(w·x') σ(w·x)] + E[S(x') E_w |w|² σ'(w·x') σ'(w·x) x'·(I - w̄w̄^T) x].
    """
    _, radial, tangential = _pulls(network, data)
    first = _first(network)
    h = first.hidden(x.T)
    gates = first.activation.derivative(h)
    lengthening = 4 * (radial @ first.activation(h)) / first.width
    turning = jnp.sum(lengths(first.w)[:, None] * gates * (tangential @ x.T), axis=0) / first.width
    return lengthening + turning


def _pulls(network: MeanFieldStack, data: Dataset) -> tuple[_Parts, Float[Array, " m"], Float[Array, "m d"]]:
    """Compute E[S σ(w·x)] of each neuron, and |w| (I - w̄w̄^T) E[S σ'(w·x) x]."""
    parts, first = _parts(learner(network), data), _first(network)
    h, length = first.hidden(data.x.T), lengths(first.w)
    weighed = parts.share * parts.signal
    radial = first.activation(h) @ weighed
    mean = (first.activation.derivative(h) * weighed[None]) @ data.x
    unit = first.w / length[:, None]
    return parts, radial, length[:, None] * (mean - jnp.sum(mean * unit, axis=1, keepdims=True) * unit)


def loss_speed(network: MeanFieldStack, data: Dataset) -> dict[str, Scalar]:
    """Compute dL/dt = -E‖∇‖² for L = ½ E(f* - f)² (Lemma D.5).

    It is the sum of four parts, all negative: those of w_2, of b_2, and of the first layer, radially and tangentially.
    """
    parts, radial, tangential = _pulls(network, data)
    weighed = parts.share * parts.residual
    weight, bias = (parts.gates @ (weighed * part) for part in (parts.value, jnp.ones_like(parts.value)))
    return {
        "w_2": -jnp.mean(jnp.square(weight)),
        "b_2": -jnp.mean(jnp.square(bias)),
        "radial": -4 * jnp.mean(jnp.square(radial)),
        "tangential": -jnp.mean(jnp.sum(jnp.square(tangential), axis=1)),
    }


class ShapeSpeeds(NamedTuple):
    """How fast F̄ = F/α and its error e = E[(F̄ - |x|)²; X_1] change, by the parts of the loss in eq. 6.

    Attributes
    ----------
    fit, error, rest
        The speed of F̄ at the unit vector in the direction of each sample, along the gradient flow of L_1, of
        (w̄_2²/2) E[(F̃ - F)²; X_1], and of the rest of L.
    fit_error, error_error, rest_error
        The speed of e along the same three flows.
    signal
        (w̄_2² α²/2) E|∇e|² over neurons, the speed at which e falls along the second of them (Lemma D.12).
    bound
        4 w̄_2² (α/s) (1 + s) (1 + s F̄) √(e E[|x|²; X_1]) in each direction, s = C_Γ/√d, which bounds |error| (D.13).
    growth
        The speed of F/α in each direction along the flow of L_1 if α were held fixed.
    """

    fit: Float[Array, " n"]
    error: Float[Array, " n"]
    rest: Float[Array, " n"]
    fit_error: Scalar
    error_error: Scalar
    rest_error: Scalar
    signal: Scalar
    bound: Float[Array, " n"]
    growth: Float[Array, " n"]


def shape_speeds(network: MeanFieldStack, data: Dataset) -> ShapeSpeeds:
    """Compute how F̄ changes (Lemmas D.11 to D.13), exactly and on any data.

    The flow of L_1 multiplies all first-layer neurons by a common factor, which does not change F̄. For the same reason
    the speed of e along the flow of the error is -(w̄_2² α²/2) E|∇e|². The constants follow from |∇F(x)| <= 2 |w| |x|
    and ∇α = 2 s w of each neuron, in the metric of the mean-field flow. The learner has finite width.
    """
    here = learner(network)
    parts, w = loss_parts(here, data)
    share, r, s, m = weights_of(data), lengths(data.x), sphere_mean(here.inputs), w.shape[0]
    inside, mean = all_active(here, data), jnp.mean(second(here).w)
    unit = data.x / jnp.where(r > 0, r, 1)[:, None]

    def first_layer(weights: Float[Array, "m d"]) -> tuple[Float[Array, " n"], Scalar]:
        moved = eqx.tree_at(lambda one: one.blocks[0].w, here, weights)
        return apply_first(moved, unit), slope(moved)

    def shape(weights: Float[Array, "m d"]) -> tuple[Float[Array, " n"], Scalar]:
        value, alpha = first_layer(weights)
        bar = value / alpha
        return bar, share @ jnp.where(inside, jnp.square((bar - 1) * r), 0)

    rows = m * jax.jacrev(parts)(w)
    whole = rows[0] + rows[1] + rows[2]
    (fit, fit_error), (error, error_error), (rest, rest_error) = (
        jax.jvp(shape, (w,), (-row,))[1] for row in (rows[0], rows[3], whole - rows[0] - rows[3])
    )
    alpha, (bar, e) = slope(here), shape(w)
    steep = m * jax.grad(lambda weights: shape(weights)[1])(w)
    signal = 0.5 * jnp.square(mean * alpha) * jnp.sum(jnp.square(steep)) / m
    reach = share @ jnp.where(inside, jnp.square(r), 0)
    bound = 4 * jnp.square(mean) * alpha / s * (1 + s) * (1 + s * bar) * jnp.sqrt(e * reach)
    moved, _ = jax.jvp(first_layer, (w,), (-rows[0],))[1]
    return ShapeSpeeds(fit, error, rest, fit_error, error_error, rest_error, signal, bound, moved / alpha)


def spread_speed(network: MeanFieldStack, data: Dataset) -> Float[Array, "k k"]:
    """Compute ½ d/dt |(v_2, r_2) - (v_2', r_2')|² = E[(f* - f) (h - h') (σ'(h) - σ'(h'))] of all pairs (Lemma D.14)."""
    parts = _parts(learner(network), data)
    across = (parts.hidden * (parts.share * parts.residual)[None]) @ parts.gates.T
    own = jnp.diag(across)
    return own[:, None] + own[None, :] - across - across.T


def conserved(network: MeanFieldStack) -> Scalar:
    """Compute α - (2 C_Γ/√d) E w_2², which the unclipped flow conserves exactly.

    For any data and widths α' is (4 C_Γ/√d) E[S F] (Lemma D.3), and d/dt E w_2² is 2 E[S F]. Lemma D.18 has w̄_2² in
    place of E w_2², which is conserved only up to the spread of the second layer.
    """
    here = learner(network)
    return slope(here) - 2 * sphere_mean(here.inputs) * jnp.mean(jnp.square(second(here).w))
