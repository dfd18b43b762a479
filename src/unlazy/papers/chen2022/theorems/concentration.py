"""How close random features come to their limit: Lemma 4 of chen2022."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Array

from unlazy._types import PRNGKey
from unlazy.activations import Activation
from unlazy.flows import Trajectory
from unlazy.networks import Infinite, RandomLayers
from unlazy.papers.chen2022.theorems._setting import AUTHORS, lipschitz, random_layer, small_inputs
from unlazy.papers.chen2022.theorems.constants import concentration_bound, features_needed, start_size
from unlazy.theory._base import Finding, Hypothesis, Reading, Verdict
from unlazy.theory._runs import AtEnds, WithProbability


class Layer(NamedTuple):
    """A frozen random layer, its activation and the inputs that it is given."""

    embedding: RandomLayers
    activation: Activation
    x: Array


class EmbeddingConcentrates(AtEnds[Layer], WithProbability[Layer]):
    """Lemma 4: ‖G - Ḡ‖ <= u with probability 1 - δ if D is of order n² u^-2 log(n/δ).

    On data and network alone. The bound is `concentration_bound`, with constants worked out; it falls like D^-½.
    """

    key: ClassVar[str] = "chen2022/lemma-4"
    source: ClassVar[str] = f"{AUTHORS}, Lemma 4"
    statement: ClassVar[str] = "The Gram matrix of D random features is within order D^-1/2 of its limit."

    def read(self, run: Trajectory) -> Reading[Layer | None]:
        """One frozen random layer with a Lipschitz activation."""
        layer = random_layer(run.start)
        yield Hypothesis("one frozen random layer as the embedding", layer is not None)
        if layer is None:
            return None
        yield lipschitz(layer[1])
        return Layer(*layer, run.data.x)

    def conclude(self, setting: Layer) -> Finding:
        """Compare the distance with the bound."""
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
        verdict = Verdict.HOLDS if distance <= bound else Verdict.FAILS
        if verdict is Verdict.HOLDS and bound > values[-1]:
            verdict = Verdict.VACUOUS
            why += f" It is {bound / values[-1]:.3g} times eig_max(Ḡ), and says nothing."
        return Finding(verdict, why, bound / max(distance, 1e-300), numbers)

    def example(self) -> Trajectory:
        """2048 features on two points."""
        return small_inputs(self, embedding=RandomLayers((2048,)))

    def counterexample(self) -> Trajectory:
        """No random features."""
        return small_inputs(self)


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
