"""Theorem C.1: frozen random features span all functions on the data, if one of the inputs is constant."""

from typing import ClassVar, cast

import jax.numpy as jnp
import numpy as np

from unlazy.activations import Activation
from unlazy.flows import Trajectory
from unlazy.networks import Block, Limit
from unlazy.networks.limits import kernel_of
from unlazy.papers.aiad2026.theorems import problems
from unlazy.papers.aiad2026.theorems.setting import AUTHORS, Setting, drawn_features, driven, largest
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem
from unlazy.theory.hypotheses import rounding

_DEGREE = 8  # polynomials of a higher degree are not recognised
_GAP = 1e6  # eigenvalues that fall by more than this from one to the next are 0 from there on, not merely small
_MOST = 16  # times as many features as points are drawn


def is_polynomial(activation: Activation) -> bool:
    """Return whether an activation is a polynomial of degree 8 or less, as far as 200 values on [-3, 3] show it."""
    points = np.linspace(-3, 3, 200)
    values = np.asarray(activation(jnp.asarray(points)), float)
    fitted = np.polynomial.Chebyshev.fit(points, values, _DEGREE)(points)
    precision = float(jnp.finfo(jnp.result_type(float)).eps)
    return largest(fitted - values) <= 1e3 * precision * largest(values)


def has_constant(setting: Setting) -> bool:
    """Return whether features depend on a constant: a bias, or an input that is the same, and not 0, at all points."""
    first, x = setting.first, setting.x
    if isinstance(first, Block):
        bias = first.b is not None and bool(np.any(np.asarray(first.b)))
    else:
        bias = first.bias_spread > 0
    return bias or bool(np.any((np.ptp(x, axis=0) == 0) & (x[0] != 0)))


def left_over(features: np.ndarray, target: np.ndarray) -> float:
    """Return the norm of the target minus its best fit by the features, (features, n), as a share of its own norm."""
    best = np.linalg.lstsq(features.T, target, rcond=None)[0]
    return float(np.linalg.norm(target - features.T @ best) / max(float(np.linalg.norm(target)), 1e-300))


class FeaturesSpan(Theorem[Setting]):
    """Theorem C.1: features φ_1(L^0 x) of full support and non-polynomial φ_1 span densely, at all times.

    On n points this says that they span all functions of the points, that is, that K_μ0(X, X) is positive definite, and
    that training does not change it. The law of an infinite first block has full support; a finite block represents its
    law if it has at least as many neurons as there are points. `numbers` has the share of the target that the best
    combination of N drawn features leaves, for growing N.

    The printed hypotheses do not include the constant input (section 2.1 introduces it to write biases). Without it
    leaky ReLU of one input spans two functions, and tanh only odd functions.

    Where an eigenvalue is 0 up to rounding, the theorem FAILS if a gap separates it from the others, and is VACUOUS if
    eigenvalues fall gradually below rounding.
    """

    key: ClassVar[str] = "aiad2026/theorem-c.1"
    source: ClassVar[str] = f"{AUTHORS}, Theorem C.1"
    statement: ClassVar[str] = "Frozen random features with a constant input span all functions on the data."
    example: ClassVar[Example] = Example(problems.independent_laws)
    counterexample: ClassVar[Example] = Example(problems.without_constant)

    def read(self, run: Trajectory) -> Reading[Setting]:
        setting = yield from driven(run)
        yield Hypothesis("phi_1 is not a polynomial", not is_polynomial(setting.first.activation))
        n, distinct = len(setting.x), len(np.unique(setting.x, axis=0))
        yield Hypothesis("distinct points", distinct == n, distinct, n)
        if isinstance(setting.first, Block):
            width = setting.first.width
            yield Hypothesis("at least as many neurons as points, to represent a full support", width >= n, width, n)
        yield Hypothesis("a constant input, or biases (not in the printed theorem)", has_constant(setting))
        return setting

    def conclude(self, setting: Setting) -> Finding:
        n, run = len(setting.x), setting.run
        kernel = setting.kernel(setting.x) - float("c" in setting.first.train)
        values = np.linalg.eigvalsh(kernel)[::-1]
        ratio, least = float(values[-1] / values[0]), n * rounding(run)
        rank = int(np.sum(values > least * values[0]))
        gap = rank < n and values[rank - 1] > _GAP * max(float(np.abs(values[rank])), 1e-300)
        first = cast(Block | Limit, setting.ends[-1].restore().blocks[0])
        points = jnp.asarray(setting.x, run.data.x.dtype)
        after = np.asarray(kernel_of(first, points, points), float) - float("c" in setting.first.train)
        changed = largest(after - kernel)
        numbers = {"rank": float(rank), "points": float(n), "eig_min / eig_max": ratio, "change of K": changed}
        features, y = drawn_features(setting, _MOST * n), np.asarray(run.data.y, float).reshape(n, -1)[:, 0]
        for count in sorted({max(1, len(features) // _MOST), *(len(features) // 2**k for k in range(4))} - {0}):
            numbers[f"left of the target by {count} features"] = left_over(features[:count], y)
        why = f"Features span {rank} of {n} functions on the data; eig_min/eig_max of K is {ratio:.2g}."
        hidden = rank < n and not gap
        holds = (rank == n or hidden) and changed <= 1e3 * rounding(run) * float(values[0])
        weak = "Eigenvalues fall below rounding gradually, so that the rank is not known."
        return Finding.judge(holds, why, ratio / least, numbers, vacuous=hidden, if_vacuous=weak)
