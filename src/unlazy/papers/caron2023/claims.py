"""What caron2023 says of its experiments, as claims on the runs of all settings.

All settings are run on the same data and from the same weights, seed by seed, so that comparisons are paired. "The
smaller γ" compares every setting with all settings of the next smaller γ; "the smaller α" compares settings of equal γ.

Arguments that several functions share: ``runs`` are stored runs by label, from lazy to rich; ``error`` is the relative
error of the integration; ``what`` and ``words`` are a curve of a probe and its name.
"""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import xarray as xr

from unlazy.papers._base import Claim, Results
from unlazy.papers._curves import listed, mean_sd
from unlazy.papers.caron2023.comparison import (
    TITLES,
    WEIGHTS,
    Sets,
    by_gamma,
    curve,
    end_risk,
    robustness,
    setting_of,
    transferred,
    weight_size,
)
from unlazy.papers.outcomes import Judgement, at_least, at_most, increases, ordered, together, undecided

LITTLE = 0.1  # of the size at the start: a smaller change is "little", a larger one "significant"
_HALF = 0.5
_FEW = 10  # at most this many features are "few"
_MANY = 10  # gates between the two closest inputs: with fewer, eig_min depends on single gates
_RATES = "the minimum eigenvalue and the training rates increase with the value of γ"
_CHANGES = (
    "when γ < 1 both the weights and the NTG change significantly; the smaller γ and α, the more feature learning "
    "arises; for γ = 1 there is no or very little: they do not change significantly"
)
_PRUNES = "models with smaller γ values are more robust to pruning"
_THEORY = (
    "our theory suggests that a model with smaller γ and/or α values is likely to be more robust with respect to "
    "pruning, as long as γ < 1"
)
_TRANSFERS = "models with smaller γ have lower risks when a small number of features are used for the transfer"


def steps_in_gamma(runs: Results) -> Iterator[tuple[str, str]]:
    """Yield the labels of every two runs of neighbouring γ, that of the larger γ first."""
    for larger, smaller in pairwise(by_gamma(runs).values()):
        yield from ((one, other) for one in larger for other in smaller)


def steps_in_alpha(runs: Results) -> Iterator[tuple[str, str]]:
    """Yield the labels of every two runs of equal γ and neighbouring α, that of the larger α first."""
    for names in by_gamma(runs).values():
        yield from pairwise(sorted(names, key=lambda name: -setting_of(runs[name])[1]))


def faster(runs: Results, floor: np.ndarray | None = None, error: float = 0.0) -> Claim:
    """The larger γ, the lower the training risk at the end; ``floor`` is the least possible risk for each seed."""
    ends = {name: end_risk(run) for name, run in runs.items()}
    below = "" if floor is None else f"; equal inputs with different targets leave at least {floor.mean():.2g}"
    return Claim(
        text="training is faster the larger γ is: the training risk at the end grows with each step to a smaller γ",
        paper=_RATES,
        measured=listed(ends) + below,
        judged=together(increases(ends[a], ends[b], log=True, error=error) for a, b in steps_in_gamma(runs)),
    )


def tested(runs: Results) -> Claim:
    """The larger γ, the lower the test risk at the end: of training by batches the paper shows this risk only."""
    ends = {name: curve(run, "test-loss")[:, -1] for name, run in runs.items()}
    return Claim(
        text="training is faster the larger γ is: the test risk, too, is larger at the end with each step to a smaller "
        "γ",
        paper=f"the main conclusions of the previous experiments hold in this setting as well ({_RATES}); the figure "
        "shows test risks",
        measured=listed(ends),
        judged=together(increases(ends[a], ends[b], log=True) for a, b in steps_in_gamma(runs)),
    )


def eigenvalues(runs: Results, gates: float | None = None) -> list[Claim]:
    """eig_min of the NTG is larger the larger γ is, at the start and at the end; below rounding nothing is decided.

    The number of ``gates`` (see `gates_between`) is mentioned where it explains the outcome: it is 0 if inputs repeat,
    and if it is small, eig_min jumps whenever a gate opens or closes.
    """
    largest = max(float(run["kernel.largest"].max()) for run in runs.values())
    rounding = float(np.finfo(str(next(iter(runs.values())).attrs.get("dtype", "float64"))).eps) * largest * 1e2
    note = ""
    if gates == 0:
        note = "; some inputs are repeated, so that it is 0 for every γ"
    elif gates is not None and gates < _MANY:
        note = f"; only {gates:.2g} gates, on average, distinguish the two closest inputs"
    found = []
    for when, index in (("start", 0), ("end", -1)):
        seen = {name: run["kernel.smallest"].values[:, index] for name, run in runs.items()}
        falls = together(increases(seen[b], seen[a], error=rounding) for a, b in steps_in_gamma(runs))
        text = f"eig_min of the NTG at the {when} is larger the larger γ is"
        found.append(Claim(text=text, paper=_RATES, measured=listed(seen) + note, judged=falls))
    return found


def gates_between(sets: Sets, width: int) -> float:
    """Return m θ/π: of m = ``width`` random gates, the mean number open for only one of the two closest inputs."""

    def least_angle(x: np.ndarray) -> float:
        if len(np.unique(x, axis=0)) < len(x):
            return 0.0
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        cosines = unit @ unit.T
        np.fill_diagonal(cosines, -1)
        i, j = np.unravel_index(cosines.argmax(), cosines.shape)
        return float(2 * np.arcsin(np.linalg.norm(unit[i] - unit[j]) / 2))  # exact also where the cosine rounds to 1

    return min(width * least_angle(x) / np.pi for x, _ in sets)


def moves(runs: Results, what: str, error: float = 0.0) -> list[Claim]:
    """The weights (`WEIGHTS`) or the NTG (`KERNEL`) change more the smaller γ and α are, and little with γ = 1."""
    ends = {name: curve(run, what)[:, -1] for name, run in runs.items()}
    shares = {name: end / _start(runs[name], what) for name, end in ends.items()}
    lazy = [name for name, run in runs.items() if setting_of(run)[0] == 1]
    rich = [name for name in runs if name not in lazy]
    subject = f"{'the ' if what == WEIGHTS else ''}{TITLES[what]} at the end"
    of = "(E|w_0j|²)^½" if what == WEIGHTS else "‖Θ_0‖₂"
    least = np.min([ends[name] for name in rich], axis=0)
    return [
        Claim(
            text=f"{subject} grows with each step to smaller γ or α",
            paper=_CHANGES,
            measured=listed(ends),
            judged=ordered(list(ends.values()), log=True, error=error),
        ),
        Claim(
            text=f"with γ = 1, {subject} is at most {LITTLE:g} of {of}",
            paper=_CHANGES,
            measured=listed({name: shares[name] for name in lazy}),
            judged=below(np.max([shares[name] for name in lazy], axis=0), LITTLE),
            hindsight=True,
        ),
        Claim(
            text=f"with γ < 1, {subject} is at least {LITTLE:g} of {of}",
            paper=_CHANGES,
            measured=listed({name: shares[name] for name in rich}),
            judged=at_least(np.min([shares[name] for name in rich], axis=0), LITTLE, loose=math.inf),
            hindsight=True,
        ),
        Claim(
            text=f"with γ = 1, {subject} is below {_HALF:g} of that of every other setting",
            paper=_CHANGES,
            measured=listed(ends),
            judged=below(np.max([ends[name] for name in lazy], axis=0), _HALF * least)
            if np.all(least > 0)
            else undecided("in another setting nothing moved"),
            weaker=True,
        ),
    ]


def _start(run: xr.Dataset, what: str) -> np.ndarray | float:
    """Return the size at the start of what moves, seed by seed."""
    return weight_size(run) if what == WEIGHTS else run["kernel.largest"].values[:, 0]


def below(values: np.ndarray, bound: float | np.ndarray) -> Judgement:
    """Judge that a quantity is below a bound; as it could well be large, the claim is never vacuous."""
    return at_most(values, bound, loose=math.inf)


def prunes(runs: Results, what: str = "train_risk", words: str = "training risk", by: str = "pruning") -> list[Claim]:
    """The smaller γ, the less pruning costs; and the smaller α, where settings differ in α alone.

    ``by`` is the name of the probe of pruning.
    """
    areas = {name: robustness(run, what, by) for name, run in runs.items()}
    measure = f"area between the curve of the {words} and its start, over nodes pruned, as a share of the whole rise"
    text = f"the smaller {{}}, the less pruning costs: {measure}"
    return _smaller(runs, [areas], text, _PRUNES, _THEORY, lambda each: mean_sd(each[0]))


def transfers(runs: Results, classes: int = 1, what: str = "test_risk", words: str = "test risk") -> list[Claim]:
    """With few features, networks of smaller γ and α transfer better: for every small number, and in the mean.

    The mean is the weaker statement. For ``classes`` (1 for a regression) it is over 10 to 50 features of ten classes:
    with fewer, MNIST shows the same order, but the digits that replace it do not, so that these numbers were fixed
    after the outcome had been seen.
    """
    counts = transferred(next(iter(runs.values())))
    risks = {name: run[f"transfer.hidden.{what}"].values for name, run in runs.items()}
    few = [index for index, count in enumerate(counts) if count <= _FEW]
    found = _smaller(
        runs,
        [{name: risk[:, index] for name, risk in risks.items()} for index in few],
        f"for every small number of features ({', '.join(str(counts[index]) for index in few)}) networks transfer "
        f"better the smaller {{}} is: {words} on held-out data",
        _TRANSFERS,
        _TRANSFERS,
        lambda each: ", ".join(f"{one.mean():.3g}" for one in each),
    )
    least, most = (1, _FEW) if classes == 1 else (classes, 5 * classes)
    some = [index for index, count in enumerate(counts) if least <= count <= most]
    means = {name: risk[:, some].mean(axis=1) for name, risk in risks.items()}
    mean = Claim(
        text=f"with few features ({', '.join(str(counts[index]) for index in some)}) networks transfer better the "
        f"smaller γ is: mean {words} on held-out data",
        paper=_TRANSFERS,
        measured=listed(means),
        judged=together(increases(means[b], means[a]) for a, b in steps_in_gamma(runs)),
        weaker=True,
        hindsight=classes > 1,
    )
    return found if some == few and len(few) == 1 else [*found, mean]  # the mean of one number says nothing new


def _smaller(
    runs: Results,
    values: list[dict[str, np.ndarray]],
    text: str,
    gamma: str,
    alpha: str,
    words: Callable[[list[np.ndarray]], str],
) -> list[Claim]:
    """Claim that all values are smaller the smaller γ is and, where settings differ in α alone, the smaller α is.

    ``gamma`` and ``alpha`` quote the paper on each.
    """
    measured = listed({name: [one[name] for one in values] for name in runs}, words)
    found = []
    for name, quoted, steps in (("γ", gamma, steps_in_gamma(runs)), ("α", alpha, steps_in_alpha(runs))):
        parts = [increases(one[b], one[a]) for a, b in steps for one in values]
        if parts:
            found.append(Claim(text.format(name), quoted, measured, together(parts)))
    return found
