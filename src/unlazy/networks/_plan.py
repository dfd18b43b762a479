"""A block of a mean-field stack as it is written down, before its parameters are drawn."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy._memory import must_fit
from unlazy._types import PRNGKey
from unlazy.activations import Activation
from unlazy.networks._block import Block, Layer, Limit
from unlazy.networks.laws import Constant, Eye, Law, Normal, Tied


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

    def draw(self, key: PRNGKey) -> Layer:
        """Draw its parameters."""
        _check_kinds(self)
        letters = "".join(letter for letter in "awbc" if letter in self.train)
        if set(self.train) - set("awbc"):
            raise UserError(f"What is trained is named by the letters a, w, b and c, not by '{self.train}'.")
        if math.isinf(self.width):
            return self._limit(letters, key)
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
        return Limit(mean, c, self.activation, None, weight_spread, bias_spread, letters, self.inputs)


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
