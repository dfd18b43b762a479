"""Conversion of user input: seeds to random keys; lists, NumPy arrays and pandas frames to JAX arrays."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from unlazy._errors import UserError, article, short
from unlazy._types import Number, PRNGKey


def as_key(key: Any) -> PRNGKey:
    """Convert a seed or a key to a typed key of JAX.

    Parameters
    ----------
    key
        A whole number from 0 to 2^32 - 1, a typed key (`jax.random.key`), or an old-style key of two numbers
        (`jax.random.PRNGKey`).

    Returns
    -------
    PRNGKey
        A typed key.
    """
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        if not 0 <= key < 2**32:
            raise UserError(f"key = {key} is out of range: give a whole number from 0 to {2**32 - 1}.")
        return jax.random.key(int(key))
    if isinstance(key, jax.Array | np.ndarray):
        if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
            return key
        if key.dtype == np.uint32 and key.shape == (2,):
            return jax.random.wrap_key_data(jnp.asarray(key))
        if jnp.issubdtype(key.dtype, jnp.integer) and key.shape == () and not isinstance(key, Tracer):
            return as_key(int(key))
        raise UserError(f"key is an array of shape {key.shape} and type {key.dtype}: give an integer such as key=0.")
    raise UserError(f"key = {short(key)} is not a key: give an integer such as key=0, or jax.random.key(0).")


def as_floats(what: str, value: Any) -> Array:
    """Convert user input to an array of floating-point numbers.

    Parameters
    ----------
    what
        What it is, for messages: "x of data set 'mine'".
    value
        Arrays of JAX, NumPy or PyTorch, nested lists, or frames and series of pandas; integers become floats.
    """
    if not isinstance(value, jax.Array):
        value = _as_numpy(what, value)
    kind = np.dtype(value.dtype).kind if value.dtype != jnp.bfloat16 else "f"
    if kind == "f":
        if value.dtype.itemsize < 4:
            raise UserError(
                f"{what} is of type {value.dtype}, and flows compute in float32 and float64: convert it by "
                "astype('float32')."
            )
        return in_precision(what, value, value.dtype if value.dtype.itemsize <= 8 else float)
    if kind in "iub":
        return jnp.asarray(value, jnp.result_type(float))
    raise UserError(
        f"{what} holds {_described(value)}, where numbers were expected: encode them as real numbers first."
    )


def in_precision(what: str, values: Array | np.ndarray, dtype: Any) -> Array:
    """Convert floating-point numbers to another precision; refuse numbers that it would make 0 or infinite.

    Parameters
    ----------
    what
        What they are, for messages.
    values, dtype
        The numbers, and the type of the precision.
    """
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    limits = jnp.finfo(dtype)
    if dtype.itemsize < values.dtype.itemsize and values.size and not isinstance(values, Tracer):
        largest = float(np.max(np.abs(np.asarray(values))))
        if 0 < largest < float(limits.tiny) or float(limits.max) < largest < np.inf:
            raise UserError(
                f"{what} has numbers of the size {largest:.3g}, and {limits.dtype} holds {limits.tiny:.2g} to "
                f"{limits.max:.2g}: rescale them, or use float64."
            )
    return jnp.asarray(values, dtype)


def like(number: Number, array: Array) -> Any:
    """Return a number in the precision of an array that it is combined with; Python's numbers adapt by themselves.

    Parameters
    ----------
    number
        A Python number, or an array without axes.
    array
        The array.
    """
    return number if type(number) in (float, int) else jnp.asarray(number, array.dtype)


def _as_numpy(what: str, value: Any) -> np.ndarray:
    pandas, torch = sys.modules.get("pandas"), sys.modules.get("torch")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        text = [name for name in value.columns if not pandas.api.types.is_numeric_dtype(value[name].dtype)]
        if text:
            raise UserError(f"{what}: the column {short(text[0])} does not hold numbers: drop it, or encode it first.")
        return value.to_numpy(dtype=float, na_value=np.nan)
    if pandas is not None and isinstance(value, pandas.Series) and pandas.api.types.is_numeric_dtype(value.dtype):
        return value.to_numpy(dtype=float, na_value=np.nan)
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, str | bytes | dict | set) or value is None:
        raise UserError(
            f"{what} is {article(type(value).__name__)}, where an array of numbers was expected: give one, or a list."
        )
    if np.ma.is_masked(value):
        raise UserError(f"{what} has masked entries: drop those samples, or fill the entries with numbers.")
    try:
        made = np.asarray(value)
        return made if made.dtype.isnative else made.astype(made.dtype.newbyteorder("="))
    except ValueError:
        raise UserError(f"{what} has rows of unequal length: every sample needs as many entries.") from None
    except Exception as error:
        raise UserError(f"{what} cannot be converted to an array ({type(error).__name__}): give numbers.") from error


def _described(value: Any) -> str:
    text = [str(one) for one in value.flat if isinstance(one, str | bytes)] if value.dtype.kind in "USO" else []
    if text:
        return f"text ({short(text[0])})"
    return {"c": "complex numbers", "M": "dates", "m": "durations"}.get(value.dtype.kind, "Python objects")


def plain_leaf(leaf: Any) -> np.ndarray:
    """Return a leaf of a tree as an array of NumPy; of random keys, their data."""
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def leaf_like(leaf: Any, values: np.ndarray) -> Any:
    """Undo `plain_leaf`: return values as an array of the type of ``leaf``, which may be random keys."""
    return jax.random.wrap_key_data(jnp.asarray(values)) if _is_key(leaf) else jnp.asarray(values, leaf.dtype)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
