"""Features of chen2022: in the mean-field scaling they must move (eq. 15), and random ones have a limit (Lemma 4)."""

from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._types import PRNGKey
from unlazy.activations import Activation
from unlazy.flows import Trajectory
from unlazy.networks import Infinite, RandomLayers, TwoLayer, ntk
from unlazy.papers.chen2022.theorems import setting as s
from unlazy.papers.chen2022.theorems.constants import concentration_bound, features_needed, start_size
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, Verdict, WithProbability, require_type


class FeaturesMustMove(Theorem[tuple[Array, TwoLayer, TwoLayer]]):
    """Eq. 15: (1/m) Σ_j |Δh_j(x)| >= |Δf(x)| / (c L_σ) for every input, whatever the width.

    In the mean-field scaling a function cannot change unless its features move as much. In the NTK scaling it can: the
    left side vanishes like m^-½.
    """

    key: ClassVar[str] = "chen2022/eq-15"
    source: ClassVar[str] = f"{s.AUTHORS}, eq. 15"
    statement: ClassVar[str] = "In the mean-field scaling features move at least as much as the function does."
    example: ClassVar[Example] = Example(s.small_inputs)
    counterexample: ClassVar[Example] = Example(s.small_inputs, scaling=ntk)

    def read(self, run: Trajectory) -> Reading[tuple[Array, TwoLayer, TwoLayer] | None]:
        start = yield from require_type(s.TWO_LAYERS, run.start, TwoLayer)
        final, scales = run.final, np.asarray(start.s, float)
        one_over_m = bool(np.allclose(scales * start.width, 1.0, rtol=1e-6))
        yield Hypothesis("node scales s_j = 1/m", one_over_m, float(scales.max()), 1 / start.width)
        yield s.one_size(start)
        yield s.lipschitz(start.activation)
        return (run.data.x, start, final) if isinstance(final, TwoLayer) else None

    def conclude(self, setting: tuple[Array, TwoLayer, TwoLayer]) -> Finding:
        x, start, final = setting
        moved = jnp.mean(jnp.abs(final.features(x)[1] - start.features(x)[1]), axis=1)
        needed = jnp.abs(final(x) - start(x)) / (jnp.abs(start.a[0]) * start.activation.lipschitz)
        # Both sides are averages of m numbers, whose rounding may turn an equality into a violation.
        slack = 1e3 * float(jnp.finfo(x.dtype).eps) * float(jnp.max(moved) + jnp.max(needed))
        numbers = {"largest change of f": float(jnp.max(jnp.abs(final(x) - start(x)))), "c": float(jnp.abs(start.a[0]))}
        changed = np.asarray(needed > slack)
        if not changed.any():
            why = "The function did not change, so that features need not move."
            return Finding(Verdict.VACUOUS, why, None, numbers)
        holds = bool(jnp.all(moved >= needed - slack))
        tightest = float(np.min(np.asarray(moved)[changed] / np.asarray(needed)[changed]))
        why = f"On every input, features moved at least {tightest:.3g} times as far as the change of f requires."
        return Finding.judge(holds, why, tightest, numbers)


class EmbeddingConcentrates(WithProbability[tuple[RandomLayers, Activation, Array]]):
    """Lemma 4: ‖G - Ḡ‖ <= u with probability 1 - δ if D is of order n² u^-2 log(n/δ).

    This is about data and network alone. The bound, with explicit constants, is `concentration_bound`; it falls like
    D^-½.
    """

    key: ClassVar[str] = "chen2022/lemma-4"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma 4"
    statement: ClassVar[str] = "The Gram matrix of D random features is within order D^-1/2 of its limit."
    example: ClassVar[Example] = Example(s.small_inputs, embedding=RandomLayers((2048,)))
    counterexample: ClassVar[Example] = Example(s.small_inputs)  # no random features

    def read(self, run: Trajectory) -> Reading[tuple[RandomLayers, Activation, Array]]:
        what = "one frozen random layer as the embedding"
        embedding, activation = yield from require_type(what, s.random_layer(run.start), tuple)
        yield s.lipschitz(activation)
        return embedding, activation, run.data.x

    def conclude(self, setting: tuple[RandomLayers, Activation, Array]) -> Finding:
        embedding, activation, x = setting
        features = embedding.widths[0]
        limit = np.asarray(Infinite(1, activation).kernel(x, x), float)
        distance = float(np.linalg.norm(np.asarray(embedding.kernel(x, x), float) - limit, 2))
        values = np.linalg.eigvalsh(limit)
        sizes = start_size(activation, np.mean(np.square(np.asarray(x, float)), axis=1))
        bound = concentration_bound(sizes, features, self.delta)
        numbers = {"distance": distance, "bound": bound, "features": float(features), "eig_max": float(values[-1])}
        if values[0] > 0:
            numbers["features for half of eig_min"] = features_needed(sizes, float(values[0]) / 2, self.delta)
        why = f"|G - Ḡ| = {distance:.3g} with D = {features}; the bound is {bound:.3g}."
        weak = f"It is {bound / values[-1]:.3g} times eig_max(Ḡ), so that it says nothing."
        margin = bound / max(distance, 1e-300)
        return Finding.judge(distance <= bound, why, margin, numbers, vacuous=bound > values[-1], if_vacuous=weak)


def concentration(
    x: Array, activation: Activation, features: Sequence[int], draws: int = 20, *, key: PRNGKey
) -> np.ndarray:
    """Measure ‖G - Ḡ‖ for each number of features, as a root mean square over independent draws.

    Plotted against D on logarithmic axes it falls with slope -1/2.
    """
    limit = np.asarray(Infinite(1, activation).kernel(x, x), float)
    drawn = RandomLayers((draws * max(features),)).draw(x.shape[1], activation, key=key)
    phi = np.asarray(drawn(x), float)

    def distance(count: int) -> float:
        # Features are independent: any group of them is a draw.
        groups = np.swapaxes(phi[:, : draws * count].reshape(-1, draws, count), 0, 1)
        each = np.linalg.norm(groups @ np.swapaxes(groups, 1, 2) / count - limit, 2, axis=(1, 2))
        return float(np.sqrt(np.mean(each**2)))

    return np.array([distance(count) for count in features])
