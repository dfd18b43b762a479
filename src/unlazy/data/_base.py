"""The one form in which data enter: inputs, targets, a test set, and optional sample weights."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._types import Inputs, Outputs, PRNGKey
from unlazy.data import _checks as checks


class Dataset(eqx.Module):
    """Training samples (x, y), an optional test set, optional weights ω_i and an optional held-out set.

    Weights make a data set a quadrature rule: L = Σ_i ω_i ℓ_i. That is how expectations under a known law enter
    (ren2023). The held-out set is a data set of its own; transfer experiments train on it (caron2023 section 6.2).
    """

    x: Inputs
    y: Outputs
    x_test: Float[Array, "tests ..."] | None = None
    y_test: Float[Array, "tests *k"] | None = None
    weight: Float[Array, " n"] | None = None
    held_out: Dataset | None = None
    name: str = eqx.field(static=True, default="data")

    def __check_init__(self) -> None:
        for what, x, y in (("training", self.x, self.y), ("test", self.x_test, self.y_test)):
            if (x is None) != (y is None):
                raise UserError(
                    f"The {what} set of '{self.name}' has inputs or targets, but not both: give both or none."
                )
            if x is not None and y is not None and x.shape[0] != y.shape[0]:
                raise UserError(
                    f"The {what} set of '{self.name}' has {x.shape[0]} inputs but {y.shape[0]} targets: "
                    "the first axis of both is the sample axis."
                )
        if self.weight is not None and self.weight.shape != self.x.shape[:1]:
            raise UserError(f"Weights of '{self.name}' have shape {self.weight.shape}; {self.x.shape[:1]} was wanted.")

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

    def flat(self) -> Dataset:
        """Give the same data with each input as one vector."""

        def vectors(x: Inputs | None) -> Inputs | None:
            return None if x is None else x.reshape(x.shape[0], -1)

        held_out = None if self.held_out is None else self.held_out.flat()
        return eqx.tree_at(
            lambda data: (data.x, data.x_test, data.held_out),
            self,
            (vectors(self.x), vectors(self.x_test), held_out),
            is_leaf=lambda leaf: leaf is None,
        )

    def astype(self, dtype: jnp.dtype | str | type) -> Dataset:
        """Give the same data in another precision."""
        return jax.tree.map(lambda leaf: leaf.astype(dtype), self)

    def check(self) -> None:
        """Refuse NaN and infinite entries by name, before hours are spent on them."""
        for what in ("x", "y", "x_test", "y_test", "weight"):
            values = getattr(self, what)
            if values is None:
                continue
            if bad := int(np.sum(~np.isfinite(values))):
                raise UserError(
                    f"{bad} of the {values.size} entries of {what} in data set '{self.name}' are NaN or infinite: "
                    "clean or drop those samples first."
                )


def generator(key: PRNGKey) -> np.random.Generator:
    """Give a NumPy generator seeded by ``key``, for what NumPy does without compiling: shuffles and rejection."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


Draw = Callable[[int, PRNGKey], tuple[Inputs, Outputs]]


def draw_twice(draw: Draw, n: int, n_test: int, *, name: str, key: PRNGKey) -> Dataset:
    """Draw a training set and, independently, a test set from one law: ``draw(count, key)`` gives (x, y)."""
    checks.count("n", n)
    checks.count("n_test", n_test, 0)
    train_key, test_key = jax.random.split(key)
    x, y = draw(n, train_key)
    x_test, y_test = draw(n_test, test_key) if n_test else (None, None)
    return Dataset(x, y, x_test, y_test, name=name)


def cut(n: int, shares: tuple[float, float, float], *, key: PRNGKey) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shuffle n sample numbers by ``key`` and cut them into training, test and held-out parts by their shares."""
    if not (len(shares) == 3 and min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6 and shares[0] > 0):
        raise UserError(f"Shares {shares} do not cut a data set: three numbers >= 0 that sum to 1, the first above 0.")
    first, second = round(shares[0] * n), round((shares[0] + shares[1]) * n)
    if first == 0:
        raise UserError(f"A training share of {shares[0]} leaves none of the {n} samples: give at least {1 / n:.2g}.")
    order = generator(key).permutation(n)
    return order[:first], order[first:second], order[second:]


def split(x: Inputs, y: Outputs, shares: tuple[float, float, float], *, name: str, key: PRNGKey) -> Dataset:
    """Shuffle by ``key`` and cut into training, test and held-out parts with the given shares (summing to 1)."""
    train, test, held = cut(x.shape[0], shares, key=key)
    x_all, y_all = np.asarray(x), np.asarray(y)

    def part(chosen: np.ndarray) -> tuple[Inputs, Outputs]:
        return jnp.asarray(x_all[chosen]), jnp.asarray(y_all[chosen])

    x_test, y_test = part(test) if test.size else (None, None)
    held_out = Dataset(*part(held), name=f"{name}, held out") if held.size else None
    return Dataset(*part(train), x_test, y_test, held_out=held_out, name=name)
