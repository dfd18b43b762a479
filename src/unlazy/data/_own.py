"""Data of a user's own as a `Dataset`: what functions return, class numbers, and which files a maker reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError, article, short, suggest
from unlazy._inputs import as_floats
from unlazy.data._base import Dataset

Maker = TypeVar("Maker", bound=Callable[..., Any])
_PARTS = ("x", "y", "x_test", "y_test", "weight", "held_out", "name")


def as_dataset(value: Any, name: str = "data") -> Dataset:
    """Make a data set of what a function of a user's own returns.

    Parameters
    ----------
    value
        A `Dataset`, a tuple ``(x, y)`` or ``(x, y, x_test, y_test)``, or a dictionary of arrays with these names.
    name
        What the data set is called, where it does not say so itself.
    """
    if isinstance(value, Dataset):
        return value
    if isinstance(value, tuple) and len(value) in (2, 4):
        return Dataset(*value, name=name)
    if isinstance(value, Mapping):
        for part in value:
            if part not in _PARTS:
                raise UserError(f"'{name}' gives data with a part '{part}'. {suggest(str(part), _PARTS)}")
        if not {"x", "y"} <= set(value):
            raise UserError(f"'{name}' gives data without x or y: give both, the inputs and the targets.")
        return Dataset(**{"name": name, **value})
    got = f"a tuple of {len(value)}" if isinstance(value, tuple) else article(type(value).__name__)
    raise UserError(
        f"'{name}' gives {got}, where data were wanted: return (x, y), (x, y, x_test, y_test), a dictionary of "
        "arrays with these names, or a Dataset."
    )


def one_hot(labels: Any, classes: int | None = None) -> Float[Array, "n classes"]:
    """Write class numbers as rows with a single 1, as the cross-entropy wants them.

    Parameters
    ----------
    labels
        Whole numbers from 0 on, of shape (n,); lists, NumPy arrays and series of pandas are taken.
    classes
        Number of classes; one more than the largest label if left out.
    """
    values = np.asarray(as_floats("The labels", labels), float)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)) or np.any(values != np.round(values)):
        raise UserError(f"Labels are whole numbers of shape (n,), not {short(labels)} of shape {values.shape}.")
    classes = int(values.max()) + 1 if classes is None else classes
    if values.min() < 0 or values.max() >= classes:
        raise UserError(
            f"Labels run from {values.min():g} to {values.max():g}, where 0 to {classes - 1} were wanted: "
            "number the classes from 0 on, or give more classes."
        )
    return jnp.asarray(values[:, None] == np.arange(classes), jnp.result_type(float))


def reads(*options: str, files: Callable[..., Iterable[Path]] | None = None) -> Callable[[Maker], Maker]:
    """Declare, as a decorator, which files a maker of data reads, so that stored results know when these change.

    Parameters
    ----------
    options
        Names of the maker's options that are paths of files.
    files
        A function of the maker's options that gives the files, where no option names them. It must not download.
    """

    def declared(maker: Maker) -> Maker:
        def found(given: Mapping[str, Any]) -> list[Path]:
            named = [Path(given[option]).expanduser() for option in options if given.get(option)]
            return [*named, *(files(**given) if files else ())]

        maker.files_read = found  # type: ignore[attr-defined]
        return maker

    return declared
