"""Laws: the distributions of the initial parameters of a block. They are specified first and drawn later, with a key.

A law fills a matrix with a row for each neuron. Rows are drawn one after the other, so that neurons are exchangeable.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._checked import Checked
from unlazy._errors import UserError, short
from unlazy._types import NotNegative, PRNGKey

Rows = Float[Array, "m d"]


def _one_or_many(value: float | tuple[float, ...]) -> float | tuple[float, ...]:
    return tuple(float(one) for one in value) if isinstance(value, tuple | list) else float(value)


class Law(Checked):
    """How the rows of a matrix of parameters are drawn, independently of each other unless it says otherwise."""

    @abc.abstractmethod
    def draw(self, rows: int, columns: int, fan_in: int, *, key: PRNGKey) -> Rows:
        """Return the matrix; ``fan_in`` is the number of terms that each parameter's product is summed with."""

    def column_means(self, columns: int, fan_in: int) -> np.ndarray | None:
        """Mean of each column, where it is known without drawing."""
        return None


def _columns(mean: float | tuple[float, ...], columns: int) -> np.ndarray:
    if isinstance(mean, tuple) and len(mean) != columns:
        raise UserError(f"{len(mean)} means were given for {columns} columns: give one number, or one for each column.")
    return np.broadcast_to(np.asarray(mean, float), (columns,))


class Normal(Law):
    """Gaussian entries of standard deviation ``spread`` around ``mean``.

    Parameters
    ----------
    spread
        Standard deviation.
    mean
        Mean: one number, or one per column.

    Examples
    --------
    >>> Normal(mean=(1.0, -1.0))  # two channels that start apart
    """

    spread: NotNegative = eqx.field(static=True, default=1.0, converter=float)
    mean: float | tuple[float, ...] = eqx.field(static=True, default=0.0, converter=_one_or_many)

    def draw(self, rows: int, columns: int, fan_in: int, *, key: PRNGKey) -> Rows:
        return self.spread * jax.random.normal(key, (rows, columns)) + jnp.asarray(_columns(self.mean, columns))[None]

    def column_means(self, columns: int, fan_in: int) -> np.ndarray:
        return _columns(self.mean, columns)


class Uniform(Law):
    """Uniform entries in ``mean`` ± ``reach``.

    Parameters
    ----------
    reach
        Half-width of the interval; 1/√fan-in, the usual initialisation of linear layers, if omitted.
    mean
        Mean: one number, or one per column.
    """

    reach: NotNegative | None = eqx.field(static=True, default=None)
    mean: float | tuple[float, ...] = eqx.field(static=True, default=0.0, converter=_one_or_many)

    def draw(self, rows: int, columns: int, fan_in: int, *, key: PRNGKey) -> Rows:
        reach = fan_in**-0.5 if self.reach is None else self.reach
        drawn = jax.random.uniform(key, (rows, columns), minval=-1.0, maxval=1.0)
        return reach * drawn + jnp.asarray(_columns(self.mean, columns))[None]

    def column_means(self, columns: int, fan_in: int) -> np.ndarray:
        return _columns(self.mean, columns)


class Sphere(Law):
    """Rows uniform on the sphere of ``radius`` (ren2023: first-layer neurons); in one dimension ± radius.

    Parameters
    ----------
    radius
        Radius of the sphere.
    """

    radius: float = eqx.field(static=True, default=1.0, converter=float)

    def draw(self, rows: int, columns: int, fan_in: int, *, key: PRNGKey) -> Rows:
        drawn = jax.random.normal(key, (rows, columns))
        return self.radius * drawn / jnp.linalg.norm(drawn, axis=1, keepdims=True)

    def column_means(self, columns: int, fan_in: int) -> np.ndarray:
        """Zero, by symmetry."""
        return np.zeros(columns)


class Constant(Law):
    """The same ``value`` everywhere.

    Parameters
    ----------
    value
        The value: one number, or one per column.
    """

    value: float | tuple[float, ...] = eqx.field(static=True, default=0.0, converter=_one_or_many)

    def draw(self, rows: int, columns: int, fan_in: int, *, key: PRNGKey) -> Rows:
        return jnp.broadcast_to(jnp.asarray(_columns(self.value, columns)), (rows, columns))

    def column_means(self, columns: int, fan_in: int) -> np.ndarray:
        return _columns(self.value, columns)


class Grid(Law):
    """Rows spread evenly over the cube [low, high]^d, not at random (aiad2026 Remark G.1): Halton's points.

    The first n rows of a longer grid are the grid of n rows, so that a narrow network is part of a wide one.

    Parameters
    ----------
    low, high
        Ends of the sides of the cube.
    """

    low: float = eqx.field(static=True, default=-1.0, converter=float)
    high: float = eqx.field(static=True, default=1.0, converter=float)

    def __check_init__(self) -> None:
        if not self.low < self.high:
            raise UserError(f"low = {self.low:g}, high = {self.high:g}: give two numbers, the smaller first.")

    def draw(self, rows: int, columns: int, fan_in: int, *, key: PRNGKey) -> Rows:
        """Lay out the points; the key is not used."""
        from scipy.stats import qmc  # heavy, and rarely needed

        points = qmc.Halton(columns, scramble=False).random(rows + 1)[1:]  # the first is a corner
        return jnp.asarray(self.low + (self.high - self.low) * points)


class Given(Law):
    """Given rows, one per neuron; their number is the width.

    Parameters
    ----------
    rows
        The rows, all of the same length.
    """

    rows: tuple[tuple[float, ...], ...] = eqx.field(
        static=True, converter=lambda rows: tuple(tuple(float(one) for one in row) for row in rows)
    )

    def draw(self, rows: int, columns: int, fan_in: int, *, key: PRNGKey) -> Rows:
        if len(self.rows) != rows or any(len(row) != columns for row in self.rows):
            shape = (len(self.rows), len(self.rows[0]) if self.rows else 0)
            raise UserError(
                f"rows has shape {shape}, where {(rows, columns)} was expected: give a row for each neuron."
            )
        return jnp.asarray(self.rows, jnp.result_type(float))


class Tied(Law):
    """Only for amplitudes: A_j = |w_j|, always (ren2023 eq. 1). A block with it has one channel."""

    def draw(self, rows: int, columns: int, fan_in: int, *, key: PRNGKey) -> Rows:
        """Refuse: a tied amplitude is not a parameter."""
        raise UserError("Only amplitudes can be tied to the length of w: give features and biases another law.")


class Eye(Law):
    """The identity: as amplitudes A = I a channel for each neuron, as features w_j = e_j a neuron for each channel.

    Either makes an ordinary layer, without low rank. The amplitudes I are for the standard parameterisation; in the
    mean-field one an ordinary layer is a block of trained amplitudes followed by one of these features, without bias.
    """

    def draw(self, rows: int, columns: int, fan_in: int, *, key: PRNGKey) -> Rows:
        """Return the features; as amplitudes the identity is not stored."""
        if rows != columns:
            raise UserError(f"The identity is square: {rows} neurons cannot have it as features of {columns} inputs.")
        return jnp.eye(rows)


def draw_readout(
    given: float | Law | tuple[float, ...] | Array | np.ndarray, width: int, outputs: int | None, key: PRNGKey
) -> Float[Array, "m *k"]:
    """Draw read-outs ±c for a number c, or from a law; values that are given are taken as they are."""
    shape = (width,) if outputs is None else (width, outputs)
    if isinstance(given, Law):
        return given.draw(width, outputs or 1, width, key=key).reshape(shape)
    if isinstance(given, float | int) or np.ndim(given) == 0:
        return float(np.asarray(given)) * jax.random.rademacher(key, shape, jnp.result_type(float))
    values = jnp.asarray(given, jnp.result_type(float))
    if not bool(jnp.all(jnp.isfinite(values))):
        raise UserError(f"readout = {short(given)} has entries that are NaN or infinite: give finite numbers.")
    if values.shape != shape:
        raise UserError(f"readout has shape {values.shape}, where {shape} was expected: give a row for each neuron.")
    return values
