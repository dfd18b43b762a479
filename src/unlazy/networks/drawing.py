"""How the blocks of a mean-field stack are drawn from its options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from unlazy._errors import UserError
from unlazy._memory import must_fit
from unlazy._types import PRNGKey
from unlazy.activations import Activation, Relu, as_activation
from unlazy.networks._base import with_fields
from unlazy.networks.blocks import AbstractBlock, Block
from unlazy.networks.laws import Constant, Eye, Law, Normal, Sphere, Tied, Uniform
from unlazy.networks.limits import Limit, SphericalLimit

T = TypeVar("T")
_OPTIONS = ("train", "activation", "features", "bias", "amplitude", "offset")


def draw_blocks(
    widths: Sequence[float],
    ends: tuple[int, int | tuple[int, ...], int | None],
    parameterisation: str,
    options: tuple[Any, ...],
    *,
    skip: bool,
    key: PRNGKey,
) -> tuple[AbstractBlock, ...]:
    """Draw the blocks of a stack with ``ends`` = (inputs, ranks, outputs).

    Options are in the order of `_OPTIONS`: each is one value for all blocks, a tuple, or None for the default.
    """
    count, mean_field = len(widths), parameterisation == "mean-field"
    laws = (Normal(), Uniform(1.0), Constant()) if mean_field else (Uniform(), Uniform(), Uniform())
    defaults: dict[str, Any] = dict(zip(("features", "amplitude", "offset"), laws, strict=True))
    given = zip(_OPTIONS, options, strict=True)
    each: dict[str, tuple[Any, ...]] = {
        name: _each_of(defaults.get(name) if value is None else value, count, name) for name, value in given
    }
    each["activation"] = tuple(map(as_activation, each["activation"]))
    sizes = [ends[0], *_checked_ranks(widths, ends[1]), ends[2] or 1]
    blocks: list[AbstractBlock] = []
    for level, one in enumerate(jax.random.split(key, count)):
        own = {name: values[level] for name, values in each.items()}
        inputs, rank = sizes[level : level + 2]
        made = _draw_block(widths[level], inputs, rank, level, mean_field=mean_field, key=one, **own)
        across = skip and 0 < level < count - 1 and sizes[level] == sizes[level + 1] and isinstance(made, Block)
        blocks.append(with_fields(made, skip=True) if across else made)
    return tuple(blocks)


def _draw_block(
    width: float,
    inputs: int,
    rank: int,
    level: int,
    *,
    mean_field: bool,
    train: str,
    activation: Activation,
    features: Law,
    bias: Law | bool,
    amplitude: Law,
    offset: Law,
    key: PRNGKey,
) -> AbstractBlock:
    """Check the options of block ``level`` (from 0), and draw its parameters."""
    letters = "".join(letter for letter in "awbc" if letter in train)
    if set(train) - set("awbc"):
        raise UserError(f"train = '{train}' has other letters than a, w, b and c: name what is trained, such as 'ac'.")
    if not math.isinf(width):
        m, own = int(width), bias is True  # a bias without a law of its own is the weight of one more input, always 1
        _check(f"Block {level + 1}", m, inputs, rank, letters, bias, amplitude, mean_field)
        feature_key, bias_key, amplitude_key, offset_key = jax.random.split(key, 4)
        drawn = features.draw(m, inputs + own, inputs, key=feature_key)
        w, b = (drawn[:, :inputs], drawn[:, inputs]) if own else (drawn, None)
        if isinstance(bias, Law):
            b = bias.draw(m, 1, inputs, key=bias_key)[:, 0]
        a = None if isinstance(amplitude, Tied | Eye) else amplitude.draw(m, rank, m, key=amplitude_key)
        c = offset.draw(1, rank, m, key=offset_key)[0]
        return Block(a, w, b, c, activation, letters, mean_field, skip=False, tied=isinstance(amplitude, Tied))
    first = level == 0 and mean_field
    if isinstance(amplitude, Tied):
        plain = bias is False and offset == Constant() and isinstance(activation, Relu)
        return _sphere(inputs, letters, features, fits=first and rank == 1 and plain)
    if not first or set(letters) & set("wb"):
        raise UserError(
            "Only the first block can be infinite, in the mean-field parameterisation and with frozen features: "
            "widths = [inf, 1024] and train = 'ac'."
        )
    weight_spread, bias_spread = _spread(features), _spread(features if bias is True else bias or Constant())
    means = amplitude.column_means(rank, 1)
    if weight_spread is None or bias_spread is None or means is None:
        raise UserError(
            "A block of infinite width needs features (and a bias) N(0, spread²) and amplitudes of known mean, "
            f"not {features}, {bias} and {amplitude}."
        )
    mean, c = jnp.asarray(means, jnp.result_type(float)), offset.draw(1, rank, 1, key=key)[0]
    return Limit(mean, c, activation, weight_spread, bias_spread, letters, inputs)


def _check(
    where: str, m: int, inputs: int, rank: int, letters: str, bias: Law | bool, amplitude: Law, mean_field: bool
) -> None:
    """Refuse a block of finite width that cannot be drawn or trained."""
    tied, plain = isinstance(amplitude, Tied), isinstance(amplitude, Eye)
    if tied and rank != 1:
        raise UserError(f"{where} has {rank} channels, but |w_j| makes one: set its rank to 1.")
    if plain and (rank != m or mean_field):
        raise UserError(
            f"{where} would have a channel for each neuron, which needs rank = width (not {rank} and {m}) and "
            "parameterisation = 'standard'."
        )
    if "a" in letters and (tied or plain):
        raise UserError(f"The amplitudes of {where.lower()} are {amplitude}, which cannot be trained: drop the a.")
    if "b" in letters and bias is False:
        raise UserError(f"{where} has no bias to train: drop the b, or give it one.")
    must_fit(
        2.0 * m * (inputs + (0 if tied or plain else rank)) * jnp.result_type(float).itemsize,
        f"{where} of {m:,} neurons",
        "take fewer, or float32",
    )


def _sphere(inputs: int, letters: str, features: Law, *, fits: bool) -> SphericalLimit:
    # Only the mean square length matters, and lengths of all neurons grow by one factor.
    spread = _spread(features)
    radius = features.radius if isinstance(features, Sphere) else None if spread is None else spread * math.sqrt(inputs)
    if not (fits and letters in ("w", "") and radius):
        raise UserError(
            "A tied block of infinite width must be the first one, of rank 1, with ReLU and without bias or offset, "
            "with w = sphere or normal, of which only w may be trained."
        )
    return SphericalLimit(jnp.asarray(radius, jnp.result_type(float)), inputs, letters)


def _spread(law: Law) -> float | None:
    """Standard deviation of a centred Gaussian law; 0 is a Gaussian too."""
    if isinstance(law, Normal) and law.mean == 0:
        return law.spread
    return 0.0 if law == Constant() else None


def _each_of(value: T | tuple[T, ...], count: int, what: str) -> tuple[T, ...]:
    """One value for all blocks, or one for each."""
    if not isinstance(value, tuple | list):
        return (value,) * count
    if len(value) != count:
        raise UserError(f"{len(value)} values of {what} were given for {count} blocks: give one, or one for each.")
    return tuple(value)


def _checked_ranks(widths: Sequence[float], ranks: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the ranks between blocks; refuse widths that do not make a stack."""
    whole = [width for width in widths if not math.isinf(width)]
    if len(widths) < 2 or any(width < 1 or width != int(width) for width in whole):
        raise UserError(f"A stack needs at least two blocks, each of a whole number of neurons, not {list(widths)}.")
    return _each_of(ranks, len(widths) - 1, "ranks")
