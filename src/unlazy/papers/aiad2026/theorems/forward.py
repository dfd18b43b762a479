"""Forward bounds for finite networks: Lemma D.1 at any depth, and Lemmas E.2 and F.1 for the second layer."""

import itertools
from typing import ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.flows import Trajectory
from unlazy.networks import Block
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.papers.aiad2026.theorems import problems
from unlazy.papers.aiad2026.theorems import setting as common
from unlazy.papers.aiad2026.theorems.setting import AUTHORS, Setting, largest, moment
from unlazy.papers.aiad2026.theorems.width import Finite, finite, is_finite, is_finite_stack
from unlazy.probes import Probe, TrainedNeurons
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, require
from unlazy.theory.coupling import neurons_of
from unlazy.theory.hypotheses import observed_later, rounding

_WEAK = 1e3  # a bound that exceeds what it bounds by this factor does not test anything
_MOMENTS = 1.0, 2.0, 50.0  # those that the norms of Appendix D.2 use


class Layer(NamedTuple):
    """H of one layer along a run, and what bounds its change."""

    hidden: np.ndarray  # H at the training points: (times, neurons, n)
    values: np.ndarray  # φ(H)
    changes: np.ndarray  # max_k E|w_k - w_k(0)| at every time
    weight: float  # max_k E|w_k(0)|
    mixing: float  # |L|_∞,1, the largest sum of mixing entries of a neuron
    lipschitz: float  # Lipschitz constant of φ


def layers(setting: Setting) -> list[Layer]:
    """Evaluate all layers at every time of a run of a finite stack that was observed with `TrainedNeurons`."""
    blocks = [cast(Block, block) for block in setting.network.blocks]
    rows = [neurons_of(setting.run)[f"block-{level + 1}"] for level in range(len(blocks))]
    dtype = setting.run.data.x.dtype

    def forward(amplitudes: list[Array]) -> list[tuple[Array, Array]]:
        found, z = [], setting.run.data.x.T
        for block, a in zip(blocks, amplitudes, strict=True):
            hidden = block.hidden(z)
            values = block.activation(hidden)
            found.append((hidden, values))
            z = block.scale * (a.T @ values) + block.c[:, None]
        return found

    along = jax.jit(lambda all_rows: jax.lax.map(forward, all_rows))([jnp.asarray(one, dtype) for one in rows])
    return [
        Layer(
            np.asarray(hidden, float),
            np.asarray(values, float),
            np.abs(one - one[:1]).mean(axis=1).max(axis=1),
            float(np.abs(one[0]).mean(axis=0).max()),
            float(np.abs(np.asarray(block.w, float)).sum(axis=1).max()),
            block.activation.lipschitz,
        )
        for (hidden, values), one, block in zip(along, rows, blocks, strict=True)
    ]


class ForwardLipschitz(Theorem[Setting]):
    """Lemma D.1: how far H_l of every layer l >= 2 moves from the first time to each later one.

    |H_2(W') - H_2(W'')| <= K |L|_∞,1 max_k E|w_1' - w_1''|, and for l >= 3
    |H_l(W') - H_l(W'')| <= |L|_∞,1 max_k (K E|w' - w''| + ℓ E|w''| B), with w and φ of layer l - 1 and B the bound for
    its H. K is sup |φ(H(W'))| on the data at this time, and ℓ the Lipschitz constant of φ. For φ_l(H_l) the
    bound is multiplied by that of φ_l, which the lemma omits. `numbers` has the margin of every layer; the margin of
    the finding is the smallest of them.
    """

    key: ClassVar[str] = "aiad2026/lemma-d.1"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.1"
    statement: ClassVar[str] = "Neurons of all layers move no further than the weights below allow."
    example: ClassVar[Example] = Example(problems.deeper)
    counterexample: ClassVar[Example] = problems.TRAINED_FEATURES
    probes: ClassVar[tuple[Probe, ...]] = (TrainedNeurons(),)
    knows = staticmethod(is_finite_stack)

    def read(self, run: Trajectory) -> Reading[Setting]:
        what = "two or more blocks of finite width that train their amplitudes only"
        yield from require(Hypothesis(what, is_finite_stack(run.start)))
        yield observed_later(run)
        return Setting(run)

    def conclude(self, setting: Setting) -> Finding:
        found = layers(setting)
        numbers, margins, moves, holds = {}, [], [], True
        allowed = np.zeros(len(setting.run.times))
        for level, (below, here) in enumerate(itertools.pairwise(found), start=2):
            top = np.abs(below.values).max(axis=(1, 2))
            allowed = here.mixing * (top * below.changes + below.lipschitz * below.weight * allowed)
            slack = 1e3 * rounding(setting.run) * largest(here.hidden)
            moved, outputs = (np.abs(one - one[:1]).max(axis=(1, 2)) for one in (here.hidden, here.values))
            holds &= bool(np.all(moved <= allowed + slack) and np.all(outputs <= here.lipschitz * allowed + slack))
            clear = moved > 10 * slack
            margins.append(float(np.min(allowed[clear] / moved[clear])) if clear.any() else np.inf)
            moves.append(float(moved.max()))
            name = f"H_{level}"
            numbers |= {f"largest change of {name}": moves[-1], f"allowed for {name}": float(allowed.max())}
            numbers[f"margin of {name}"] = margins[-1]
        weak = [f"H_{level}" for level, margin in enumerate(margins, start=2) if margin >= _WEAK]
        why = f"H_2 changes by {moves[0]:.3g} at most, and {numbers['allowed for H_2']:.3g} is allowed."
        if len(margins) > 1:
            last = f"H_{len(found)}"
            why += f" For {last} these are {moves[-1]:.3g} and {numbers[f'allowed for {last}']:.3g}."
        if weak:
            why += f" For {', '.join(weak)} it is larger by a factor of more than {_WEAK:,.0f}, and tests nothing."
        return Finding.judge(holds, why, min(margins), numbers, vacuous=len(weak) == len(margins))


class ForwardBound(Theorem[Finite]):
    """Lemmas E.2 and F.1: sup |H_2| <= |L|_∞,1 max_k sup |f_k| and sup |f_k| <= K E[sup |w_1|], suprema over time.

    K is the largest |φ_1| on the data. With moments, E_x[sup |H_2|^m]^(1/m) <= K |L|_∞,1 max_k E[sup |w_1|^m]^(1/m).
    This is checked for m = 1, 2 and 50.
    """

    key: ClassVar[str] = "aiad2026/lemma-e.2"
    source: ClassVar[str] = f"{AUTHORS}, Lemmas E.2 and F.1"
    statement: ClassVar[str] = "Second-layer pre-activations are bounded by mixing entries times first-layer weights."
    example: ClassVar[Example] = Example(problems.few_points, first=24)
    counterexample: ClassVar[Example] = problems.TRAINED_FEATURES
    probes: ClassVar[tuple[Probe, ...]] = (ChannelDrive(), TrainedNeurons())
    knows = staticmethod(is_finite)

    def read(self, run: Trajectory) -> Reading[Finite]:
        setting = yield from finite(run)
        yield common.without_offsets(run)
        yield common.without_biases(setting.second)
        yield observed_later(run)
        return setting

    def conclude(self, setting: Finite) -> Finding:
        data = setting.run.data
        channels, mixing = setting.drive.channels[:, : data.n], setting.mixing
        weights, features = neurons_of(setting.run)["block-1"], largest(setting.first.column(data.x.T))
        along = np.max(np.abs(channels @ mixing.T), axis=(0, 2))  # of each point
        hidden, ever = float(along.max()), np.max(np.abs(weights), axis=0)
        norm, reached = float(np.abs(mixing).sum(axis=1).max()), np.max(np.abs(channels), axis=(0, 1))
        below = features * ever.mean(axis=0)
        by_channels, by_weights = norm * float(reached.max()), norm * float(below.max())
        slack = 1e3 * rounding(setting.run)
        moments = [
            norm * features * float(moment(ever, m).max()) / max(float(moment(along[:, None], m)[0]), 1e-300)
            for m in _MOMENTS
        ]
        holds = hidden <= by_channels * (1 + slack) and bool(np.all(reached <= below * (1 + slack)))
        holds &= min(moments) >= 1 - slack
        margin = min(by_channels / max(hidden, 1e-300), float(np.min(below / np.maximum(reached, 1e-300)))) + slack
        numbers = {"sup |H_2|": hidden, "by channels": by_channels, "by weights": by_weights}
        numbers |= {f"margin of the moment m = {m:g}": one for m, one in zip(_MOMENTS, moments, strict=True)}
        why = f"|H_2| reaches {hidden:.3g}; channels allow {by_channels:.3g}, weights {by_weights:.3g}."
        return Finding.judge(holds, why, margin, numbers, vacuous=hidden == 0)
