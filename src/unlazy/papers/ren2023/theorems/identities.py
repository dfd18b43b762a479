"""Identities of ren2023 that are exact on any finite learner and any data: Lemmas D.3 to D.5, D.14 and D.18.

All are about the unclipped flow. Expectations are over the data, with their weights; S(x) = (f* - f) E[σ'(h_2) w_2].
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._types import Inputs, Scalar
from unlazy.data import Dataset
from unlazy.networks import Block, MeanFieldStack, lengths, sphere_mean
from unlazy.papers.ren2023.probes import learner, second, slope, values, weights_of


class _Seen(NamedTuple):
    """What all identities are made of; one column for each sample."""

    share: Float[Array, " n"]
    residual: Float[Array, " n"]  # f* - f
    value: Float[Array, " n"]  # F
    hidden: Float[Array, "k n"]  # h_2
    gates: Float[Array, "k n"]  # σ'(h_2)
    signal: Float[Array, " n"]  # S


def _observe(network: MeanFieldStack, data: Dataset) -> _Seen:
    block = second(network)
    value = values(network, data.x)
    h = block.hidden(value[None])
    gates = block.activation.derivative(h)
    residual = data.y - network(data.x)
    signal = residual * (block.w[:, 0] @ gates) / block.width
    return _Seen(weights_of(data), residual, value, h, gates, signal)


def _first(network: MeanFieldStack) -> Block:
    block = network.blocks[0]
    if not isinstance(block, Block):
        raise UserError("This identity is about single neurons of the first layer, not its limit: use a finite width.")
    return block


def alpha_speed(network: MeanFieldStack, data: Dataset) -> Scalar:
    """α' = (4 C_Γ/√d) E[S F] (Lemma D.3)."""
    seen = _observe(learner(network), data)
    return 4 * sphere_mean(network.inputs) * (seen.share @ (seen.signal * seen.value))


def value_speed(network: MeanFieldStack, data: Dataset, x: Inputs) -> Float[Array, " n"]:
    """d/dt F(x) = 4 E[S(x') E_w σ(w·x') σ(w·x)] + E[S(x') E_w |w|² σ'(w·x') σ'(w·x) x'·(I - w̄w̄^T) x] (Lemma D.4)."""
    _, radial, tangential = _pulls(network, data)
    first = _first(network)
    h = first.hidden(x.T)
    gates = first.activation.derivative(h)
    lengthening = 4 * (radial @ first.activation(h)) / first.width
    turning = jnp.sum(lengths(first.w)[:, None] * gates * (tangential @ x.T), axis=0) / first.width
    return lengthening + turning


def _pulls(network: MeanFieldStack, data: Dataset) -> tuple[_Seen, Float[Array, " m"], Float[Array, "m d"]]:
    """E[S σ(w·x)] of each neuron, and |w| (I - w̄w̄^T) E[S σ'(w·x) x]."""
    seen, first = _observe(learner(network), data), _first(network)
    h, length = first.hidden(data.x.T), lengths(first.w)
    weighed = seen.share * seen.signal
    radial = first.activation(h) @ weighed
    mean = (first.activation.derivative(h) * weighed[None]) @ data.x
    unit = first.w / length[:, None]
    return seen, radial, length[:, None] * (mean - jnp.sum(mean * unit, axis=1, keepdims=True) * unit)


def loss_speed(network: MeanFieldStack, data: Dataset) -> dict[str, Scalar]:
    """dL/dt = -E‖∇‖², by what moves: w_2, b_2, and the first layer radially and tangentially (Lemma D.5).

    For L = ½ E(f* - f)². Every part is negative; their sum is the speed of the loss.
    """
    seen, radial, tangential = _pulls(network, data)
    weighed = seen.share * seen.residual
    weight, bias = (seen.gates @ (weighed * part) for part in (seen.value, jnp.ones_like(seen.value)))
    return {
        "w_2": -jnp.mean(jnp.square(weight)),
        "b_2": -jnp.mean(jnp.square(bias)),
        "radial": -4 * jnp.mean(jnp.square(radial)),
        "tangential": -jnp.mean(jnp.sum(jnp.square(tangential), axis=1)),
    }


def spread_speed(network: MeanFieldStack, data: Dataset) -> Float[Array, "k k"]:
    """½ d/dt |(v_2, r_2) - (v_2', r_2')|² = E[(f* - f) (h - h') (σ'(h) - σ'(h'))] of every pair (Lemma D.14)."""
    seen = _observe(learner(network), data)
    across = (seen.hidden * (seen.share * seen.residual)[None]) @ seen.gates.T
    own = jnp.diag(across)
    return own[:, None] + own[None, :] - across - across.T


def conserved(network: MeanFieldStack) -> Scalar:
    """α - (2 C_Γ/√d) E w_2², which the unclipped flow keeps exactly.

    Lemma D.18 has w̄_2² in place of E w_2², and so keeps it up to the spread of the second layer only: α' is
    (4 C_Γ/√d) E[S F] (Lemma D.3), and d/dt E w_2² is 2 E[S F], whatever the data and the widths are.
    """
    here = learner(network)
    return slope(here) - 2 * sphere_mean(here.inputs) * jnp.mean(jnp.square(second(here).w))
