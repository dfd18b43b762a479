"""Data sets, and what their makers share: drawing, splitting and scaling."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._checked import Checked, checked
from unlazy._errors import UserError, article, short, suggest
from unlazy._inputs import as_floats, as_key, in_precision
from unlazy._memory import must_fit
from unlazy._types import Count, Inputs, KeyLike, Outputs, PRNGKey
from unlazy.data import checks

Maker = TypeVar("Maker", bound=Callable[..., Any])
_PARTS = ("x", "y", "x_test", "y_test", "weight", "held_out", "name")


class Dataset(Checked):
    """Training samples (x, y), an optional test set, optional weights ω_i and an optional held-out set.

    Weights make a data set a quadrature rule: L = Σ_i ω_i ℓ_i. That is how expectations under a known law enter
    (ren2023). The held-out set is a data set of its own; transfer experiments train on it (caron2023 section 6.2).

    Parameters
    ----------
    x
        Inputs, the sample axis first: shape (n, d), or (n, channels, height, width) for images. Arrays of JAX, NumPy or
        PyTorch, nested lists, and frames of pandas are accepted; integers become floats, and all parts get one dtype.
    y
        Targets, shape (n,) for one output and (n, k) for several. For classes see `one_hot`.
    x_test, y_test
        The test set, in the same form.
    weight
        One weight for each training sample.
    held_out
        Another data set.
    name
        Its name in messages and reports.
    """

    x: Inputs
    y: Outputs
    x_test: Float[Array, "tests ..."] | None = None
    y_test: Float[Array, "tests *k"] | None = None
    weight: Float[Array, " n"] | None = None
    held_out: Dataset | None = None
    name: str = eqx.field(static=True, default="data")

    def __init__(
        self,
        x: Any,
        y: Any,
        x_test: Any = None,
        y_test: Any = None,
        weight: Any = None,
        held_out: Dataset | None = None,
        name: str = "data",
    ) -> None:
        given = {"x": x, "y": y, "x_test": x_test, "y_test": y_test, "weight": weight}
        if x is None or y is None:
            raise UserError(f"The data set '{name}' has no training inputs or no targets: give both x and y.")
        arrays = {
            part: as_floats(f"{part} of data set '{name}'", one) for part, one in given.items() if one is not None
        }
        dtype = jnp.result_type(*arrays.values())
        for part in given:
            setattr(self, part, arrays[part].astype(dtype) if part in arrays else None)
        self.held_out, self.name = held_out, name

    def __check_init__(self) -> None:
        for what, x, y in (("training", self.x, self.y), ("test", self.x_test, self.y_test)):
            if (x is None) != (y is None):
                raise UserError(
                    f"The {what} set of '{self.name}' has inputs or targets, but not both: give both or none."
                )
            if x is None or y is None:
                continue
            if x.ndim < 2 or y.ndim not in (1, 2):
                remedy = "for one input per sample, give x[:, None]." if x.ndim == 1 else "one row per sample."
                raise UserError(
                    f"The {what} set of '{self.name}' has inputs of shape {x.shape} and targets of shape {y.shape}, "
                    f"where (n, d) and (n,) or (n, k) were expected: {remedy}"
                )
            if x.shape[0] != y.shape[0]:
                raise UserError(
                    f"The {what} set of '{self.name}' has {x.shape[0]} inputs but {y.shape[0]} targets: "
                    "the first axis of both is the sample axis."
                )
            if x.shape[0] == 0:
                raise UserError(f"The {what} set of '{self.name}' is empty: give at least one sample.")
            if x.shape[1:] != self.x.shape[1:] or y.shape[1:] != self.y.shape[1:]:
                raise UserError(
                    f"A test sample of '{self.name}' has inputs of shape {x.shape[1:]} and a target of shape "
                    f"{y.shape[1:]}, a training sample {self.x.shape[1:]} and {self.y.shape[1:]}: they must agree."
                )
        if self.weight is not None and self.weight.shape != self.x.shape[:1]:
            raise UserError(
                f"Weights of '{self.name}' have shape {self.weight.shape}; {self.x.shape[:1]} was expected."
            )

    @property
    def n(self) -> int:
        """Number of training samples."""
        return self.x.shape[0]

    @property
    def inputs(self) -> int:
        """Input dimension d (of the flattened sample)."""
        return int(np.prod(self.x.shape[1:]))

    @property
    def outputs(self) -> int | None:
        """Number of outputs k, or None where the target is a scalar."""
        return self.y.shape[1] if self.y.ndim == 2 else None

    def points(self) -> Float[Array, "p ..."]:
        """All inputs: the training inputs, then the test inputs."""
        return self.x if self.x_test is None else jnp.concatenate([self.x, self.x_test])

    def flat(self) -> Dataset:
        """Return the same data with each input as one vector."""
        x, x_test = (None if one is None else one.reshape(one.shape[0], -1) for one in (self.x, self.x_test))
        held_out = None if self.held_out is None else self.held_out.flat()
        return Dataset(x, self.y, x_test, self.y_test, self.weight, held_out, self.name)

    def astype(self, dtype: jnp.dtype | str | type) -> Dataset:
        """Return the same data in another precision.

        Parameters
        ----------
        dtype
            The floating-point type, such as ``"float32"``.
        """
        try:
            known = jnp.dtype(dtype) in (jnp.float32, jnp.float64)
        except TypeError:
            known = False
        if not known:
            raise UserError(f"dtype = {short(dtype)} is not a type that flows compute in: give 'float32' or 'float64'.")
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: in_precision(
                f"{jax.tree_util.keystr(path).lstrip('.')} of data set '{self.name}'", leaf, dtype
            ),
            self,
        )

    def check(self) -> None:
        """Raise a `UserError` that names the array, if any entry is NaN or infinite."""
        if self.held_out is not None:
            self.held_out.check()
        for what in ("x", "y", "x_test", "y_test", "weight"):
            values = getattr(self, what)
            if values is not None and (bad := int(np.sum(~np.isfinite(values)))):
                raise UserError(
                    f"{bad} of the {values.size} entries of {what} in data set '{self.name}' are NaN or infinite: "
                    "clean or drop those samples first."
                )
        if self.weight is not None and not float(np.sum(np.asarray(self.weight, float))) > 0:
            raise UserError(
                f"The weights of data set '{self.name}' do not sum to a number above 0: a loss needs a positive total."
            )


class Source(Checked):
    """A law of samples, used inside compiled code: `Descent(source=...)` draws a batch from it at each step."""

    @abc.abstractmethod
    def draw(self, n: int, *, key: KeyLike) -> Dataset:
        """Draw new samples.

        Parameters
        ----------
        n
            Number of samples.
        key
            Random key.
        """


# ---------------------------------------------------------------- drawing and splitting


def generator(key: KeyLike) -> np.random.Generator:
    """Return a NumPy generator seeded by ``key``, for what NumPy does without compiling: shuffles and rejection."""
    return np.random.default_rng(np.asarray(jax.random.key_data(as_key(key))).ravel().tolist())


Draw = Callable[[int, PRNGKey], tuple[Inputs, Outputs]]


def draw_twice(draw: Draw, n: int, n_test: int, *, name: str, key: KeyLike) -> Dataset:
    """Draw a training set and, independently, a test set from one law: ``draw(count, key)`` returns (x, y)."""
    checks.count("n", n)
    checks.count("n_test", n_test, 0)
    train_key, test_key = jax.random.split(as_key(key))
    checks.fits(lambda one: draw(n + n_test, one), train_key, f"{n + n_test:,} samples")
    x, y = draw(n, train_key)
    x_test, y_test = draw(n_test, test_key) if n_test else (None, None)
    return Dataset(x, y, x_test, y_test, name=name)


def cut(n: int, shares: tuple[float, float, float], *, key: KeyLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shuffle n sample numbers by ``key`` and cut them into training, test and held-out parts by their shares."""
    if not (len(shares) == 3 and min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6 and shares[0] > 0):
        raise UserError(
            f"shares = {shares} cannot split the data: give three numbers >= 0, the first above 0, of sum 1."
        )
    first, second = round(shares[0] * n), round((shares[0] + shares[1]) * n)
    if first == 0:
        raise UserError(f"A training share of {shares[0]} leaves none of the {n} samples: give at least {1 / n:.2g}.")
    order = generator(key).permutation(n)
    return order[:first], order[first:second], order[second:]


def divided(
    x: np.ndarray,
    y: np.ndarray,
    parts: tuple[np.ndarray, np.ndarray, np.ndarray],
    scaled: tuple[bool, bool, bool] = (False, False, False),
    *,
    name: str,
) -> Dataset:
    """Make a data set from the numbers of its training, test and held-out samples; the last two may be empty.

    ``scaled`` says whether to standardise the inputs, to divide them by their largest norm, and to standardise the
    targets; all statistics are those of the training samples.
    """
    train, test, held = parts

    def standardised(values: np.ndarray) -> np.ndarray:
        deviation = values[train].std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0)  # constants: only shifted
        return (values - values[train].mean(axis=0)) / deviation

    x = standardised(x) if scaled[0] else x
    x = x / (np.linalg.norm(x[train], axis=1).max() or 1.0) if scaled[1] else x
    y = standardised(y) if scaled[2] else y
    x_test, y_test = (x[test], y[test]) if test.size else (None, None)
    held_out = Dataset(x[held], y[held], name=f"{name}, held out") if held.size else None
    return Dataset(x[train], y[train], x_test, y_test, held_out=held_out, name=name)


def split(x: Inputs, y: Outputs, shares: tuple[float, float, float], *, name: str, key: KeyLike) -> Dataset:
    """Shuffle samples and split them into training, test and held-out parts.

    Parameters
    ----------
    x, y
        Inputs and targets of all samples.
    shares
        Shares of the training, test and held-out samples, which sum to 1.
    name
        Name of the data set.
    key
        Random key of the shuffle.
    """
    return divided(np.asarray(x), np.asarray(y), cut(x.shape[0], shares, key=key), name=name)


DataLike: TypeAlias = Dataset | tuple[Any, ...] | Mapping[str, Any]  # what as_dataset takes


def as_dataset(value: Any, name: str = "data") -> Dataset:
    """Convert what a user's function returns to a data set.

    Parameters
    ----------
    value
        A `Dataset`, a tuple ``(x, y)`` or ``(x, y, x_test, y_test)``, or a dictionary of arrays with these names.
    name
        Name of the data set, unless the value has one.
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
        f"'{name}' gives {got}, where data were expected: return (x, y), (x, y, x_test, y_test), a dictionary of "
        "arrays with these names, or a Dataset."
    )


@checked
def one_hot(labels: Any, classes: Count | None = None) -> Float[Array, "n classes"]:
    """Write class numbers as rows with a single 1, as the cross-entropy expects them.

    Parameters
    ----------
    labels
        Whole numbers, 0 or larger, of shape (n,), as a list, a NumPy array or a series of pandas.
    classes
        Number of classes; one more than the largest label if omitted.
    """
    values = np.asarray(as_floats("The labels", labels), float)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)) or np.any(values != np.round(values)):
        raise UserError(f"Labels are whole numbers of shape (n,), not {short(labels)} of shape {values.shape}.")
    classes = int(values.max()) + 1 if classes is None else classes
    if values.min() < 0 or values.max() >= classes:
        raise UserError(
            f"Labels run from {values.min():g} to {values.max():g}, where 0 to {classes - 1} were expected: "
            "number the classes from 0, or give more classes."
        )
    must_fit(9.0 * values.size * classes, f"{values.size:,} labels of {classes:,} classes", "give fewer classes")
    return jnp.asarray(values[:, None] == np.arange(classes), jnp.result_type(float))


def reads(*options: str, files: Callable[..., Iterable[Path]] | None = None) -> Callable[[Maker], Maker]:
    """Declare, as a decorator, which files a maker of data reads, so that stored results know when these change.

    Parameters
    ----------
    options
        Names of the maker's options that are paths of files.
    files
        A function of the maker's options that returns the files, if no option names them. It must not download.
    """

    def declared(maker: Maker) -> Maker:
        def found(given: Mapping[str, Any]) -> list[Path]:
            named = [Path(given[option]).expanduser() for option in options if given.get(option)]
            return [*named, *(files(**given) if files else ())]

        maker.files_read = found  # type: ignore[attr-defined]
        return maker

    return declared
