"""Theorem 4.1 along the runs: each of its statements (a)-(d) is a claim, with the margin by which it holds."""

import jax.numpy as jnp
import numpy as np
import xarray as xr

from unlazy.activations import Relu
from unlazy.networks import Zipf, asymmetrical
from unlazy.papers._base import Claim, Results
from unlazy.papers.caron2023 import comparison
from unlazy.papers.caron2023.comparison import KERNEL, WEIGHTS, Sets, setting_of
from unlazy.papers.caron2023.theorems import Margins, guarantee, margins, smallest_mean_eigenvalue
from unlazy.papers.outcomes import Judgement, at_least, vacuous

_DELTA = 0.05
PARTS = {
    "a": "eig_min(Θ_t) >= γκ/4",
    "b": "L_t <= exp(-γκt/2) L_0",
    "c": "no weight moves farther than its bound",
    "d": "the NTG changes by at most its bound",
}


def theorem(runs: Results) -> list[Claim]:
    """(a)-(d) of Theorem 4.1 along every run with γ > 0, at every time: the margins, and the width that it requires.

    A part is vacuous where κ_n is 0 or every seed satisfies the bound by a factor of 1,000. A fraction θ/π of m gates
    is open for only one of two inputs at angle θ. Where m θ is below 1 there may be none, and eig_min lies far below
    κ_n, which is that of infinitely many gates: then (a) fails, as the width is far below that of the theorem.
    """
    one = next(iter(runs.values()))
    sets = comparison.training_sets(one)
    kappas = [smallest_mean_eigenvalue(Relu(), jnp.asarray(x)) for x, _ in sets]
    # A κ_n that rounding alone could produce counts as 0.
    kappas = [k if k > 1e2 * np.finfo(float).eps * len(x) else 0.0 for k, (x, _) in zip(kappas, sets, strict=True)]
    found = {name: _margins(run, sets, kappas) for name, run in runs.items() if setting_of(run)[0] > 0}
    head = f"κ_n = {np.median(kappas):.2g}; " if any(kappas) else "κ_n is 0 up to rounding; "
    return [
        Claim(
            text=f"({part}) of Theorem 4.1, {statement}, along every run with γ > 0 (smallest margin at least 1), "
            f"although m = {one[WEIGHTS].shape[2]:,} is far below the width that it requires (δ = {_DELTA:g})",
            paper=f"Theorem 4.1 ({part}): {statement}",
            measured=head
            + "; ".join(
                f"{name}: {min(each.least()[part] for each in every):.2g} "
                f"(width {float(np.median([each.width for each in every])):.1e})"
                for name, every in found.items()
            ),
            judged=_judged([[each.least()[part] for each in every] for every in found.values()], kappas),
        )
        for part, statement in PARTS.items()
    ]


def _judged(least: list[list[float]], kappas: list[float]) -> Judgement:
    """Judge margins, with a row for each setting and a column for each seed, on the seeds with κ_n > 0."""
    positive = np.asarray(kappas) > 0
    if not positive.any():
        return vacuous("κ_n is 0 up to rounding, so that the theorem guarantees nothing")
    return at_least(np.min(least, axis=0)[positive], 1.0)


def _margins(run: xr.Dataset, sets: Sets, kappas: list[float]) -> list[Margins]:
    """Compute the margins of (a)-(d) of Theorem 4.1 for every seed of a run, with δ = 0.05."""
    gamma, alpha = setting_of(run)
    variances = asymmetrical(gamma, Zipf(alpha)).node.variances(run[WEIGHTS].shape[2])  # type: ignore[union-attr]
    found = []
    for seed, ((x, y), kappa) in enumerate(zip(sets, kappas, strict=True)):
        n, d = x.shape
        promised = guarantee(Relu(), variances, gamma, kappa, n, d, float(np.abs(y).max()), _DELTA)
        seen = [run[name].values[seed] for name in ("train-loss", "kernel.smallest", WEIGHTS, KERNEL)]
        found.append(margins(promised, variances, run["time"].values, *seen, speed=2 / n))
    return found
