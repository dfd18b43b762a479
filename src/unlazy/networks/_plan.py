"""A block of a mean-field stack as it is written down, before its parameters are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy._memory import must_fit
from unlazy._types import PRNGKey
from unlazy.activations import Activation, Relu
from unlazy.networks._block import AbstractBlock, Block, Limit
from unlazy.networks._spherical import SphericalLimit
from unlazy.networks.laws import Constant, Eye, Law, Normal, Sphere, Tied

T = TypeVar("T")


class Plan(eqx.Module):
    """One block as it was written down."""

    width: float
    inputs: int
    rank: int
    level: int
    mean_field: bool
    train: str
    activation: Activation
    features: Law
    bias: Law | bool
    amplitude: Law
    offset: Law

    def draw(self, key: PRNGKey) -> AbstractBlock:
        """Draw its parameters."""
        _check_kinds(self)
        letters = "".join(letter for letter in "awbc" if letter in self.train)
        if set(self.train) - set("awbc"):
            raise UserError(f"What is trained is named by the letters a, w, b and c, not by '{self.train}'.")
        if math.isinf(self.width):
            return self._sphere(letters) if isinstance(self.amplitude, Tied) else self._limit(letters, key)
        return self._block(letters, int(self.width), key)

    def _block(self, letters: str, m: int, key: PRNGKey) -> Block:
        d, rank, where = self.inputs, self.rank, f"Block {self.level + 1}"
        tied, plain = isinstance(self.amplitude, Tied), isinstance(self.amplitude, Eye)
        if tied and rank != 1:
            raise UserError(f"{where} has {rank} channels, but |w_j| makes one: set its rank to 1.")
        if plain and (rank != m or self.mean_field):
            raise UserError(
                f"{where} is to have a channel for each neuron: that needs rank = width (not {rank} and {m}) and "
                "parameterisation = 'standard'."
            )
        if "a" in letters and (tied or plain):
            raise UserError(
                f"The amplitudes of {where.lower()} are {self.amplitude}, which cannot be trained: drop the a."
            )
        if "b" in letters and self.bias is False:
            raise UserError(f"{where} has no bias to train: drop the b, or give it one.")
        must_fit(
            2.0 * m * (d + (0 if tied or plain else rank)) * jnp.result_type(float).itemsize,
            f"{where} of {m:,} neurons",
            "take fewer, or float32",
        )
        feature_key, bias_key, amplitude_key, offset_key = jax.random.split(key, 4)
        w, b = self._features(m, feature_key, bias_key)
        a = None if tied or plain else self.amplitude.draw(m, rank, m, key=amplitude_key)
        c = self.offset.draw(1, rank, m, key=offset_key)[0]
        return Block(a, w, b, c, self.activation, letters, self.mean_field, False, tied)

    def _features(self, m: int, key: PRNGKey, bias_key: PRNGKey) -> tuple[Array, Array | None]:
        d = self.inputs
        if isinstance(self.bias, Law):
            return self.features.draw(m, d, d, key=key), self.bias.draw(m, 1, d, key=bias_key)[:, 0]
        if not self.bias:
            return self.features.draw(m, d, d, key=key), None
        drawn = self.features.draw(m, d + 1, d, key=key)  # a bias is the weight of one more input, always 1
        return drawn[:, :d], drawn[:, d]

    def _sphere(self, letters: str) -> SphericalLimit:
        law, spread = self.features, _spread(self.features)
        # Only the mean square length matters, and lengths of all neurons grow by one factor.
        radius = law.radius if isinstance(law, Sphere) else None if spread is None else spread * math.sqrt(self.inputs)
        plain = self.bias is False and self.offset == Constant() and isinstance(self.activation, Relu)
        first = self.level == 0 and self.mean_field and self.rank == 1
        if not (first and plain and letters in ("w", "") and radius):
            raise UserError(
                "A tied block of infinite width is the first one, of rank 1, with ReLU, without bias or offset, with "
                "w = sphere or normal, and trains w or nothing."
            )
        return SphericalLimit(jnp.asarray(radius, jnp.result_type(float)), self.inputs, letters)

    def _limit(self, letters: str, key: PRNGKey) -> Limit:
        if self.level > 0 or not self.mean_field or set(letters) & set("wb"):
            raise UserError(
                "Only the first block can be infinite, in the mean-field parameterisation and with frozen features: "
                "widths = [inf, 1024] and train = 'ac'."
            )
        own = self.features if self.bias is True else self.bias or Constant()
        weight_spread, bias_spread = _spread(self.features), _spread(own)
        means = self.amplitude.column_means(self.rank, 1)
        if weight_spread is None or bias_spread is None or means is None:
            raise UserError(
                "A block of infinite width needs features (and a bias) N(0, spread²) and amplitudes of known mean, "
                f"not {self.features}, {self.bias} and {self.amplitude}."
            )
        mean, c = jnp.asarray(means, jnp.result_type(float)), self.offset.draw(1, self.rank, 1, key=key)[0]
        return Limit(mean, c, self.activation, weight_spread, bias_spread, letters, self.inputs)


def _check_kinds(plan: Plan) -> None:
    for given, wanted, example in (
        (plan.activation, Activation, "activation=Relu()"),
        (plan.features, Law, "features=Normal()"),
        (plan.bias, Law | bool, "bias=True"),
        (plan.amplitude, Law, "amplitude=Uniform(1.0)"),
        (plan.offset, Law, "offset=Constant()"),
        (plan.train, str, "train='ac'"),
    ):
        if not isinstance(given, wanted):
            raise UserError(f"{given!r} is not what a stack is made of: give an object, say {example}.")


def _spread(law: Law) -> float | None:
    """Standard deviation of a centred Gaussian law; 0 is a Gaussian too."""
    if isinstance(law, Normal) and law.mean == 0:
        return law.spread
    return 0.0 if law == Constant() else None


def each_of(value: T | tuple[T, ...], count: int, what: str) -> tuple[T, ...]:
    """One value for all blocks, or one for each."""
    if not isinstance(value, tuple | list):
        return (value,) * count
    if len(value) != count:
        raise UserError(f"{len(value)} values of {what} were given for {count} blocks: give one, or one for each.")
    return tuple(value)


def checked_ranks(
    widths: Sequence[float], inputs: int, outputs: int | None, ranks: int | tuple[int, ...]
) -> tuple[int, ...]:
    """The ranks between blocks, after refusing what is no stack."""
    whole = [width for width in widths if not math.isinf(width)]
    if len(widths) < 2 or any(width < 1 or width != int(width) for width in whole):
        raise UserError(f"A stack has at least two blocks, of a whole number of neurons each, not {list(widths)}.")
    inner = each_of(ranks, len(widths) - 1, "ranks") if not isinstance(ranks, int) else (ranks,) * (len(widths) - 1)
    if min(inputs, *inner, outputs or 1) < 1 or outputs == 0:
        raise UserError(f"A stack needs at least one input, channel and output, not {(inputs, *inner, outputs)}.")
    return inner
