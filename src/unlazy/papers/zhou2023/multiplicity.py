"""Beyond the paper: the number of directions into which weights condense, for activations of multiplicity 1 to 3.

With multiplicity p, small weights follow a' = T[w, ..., w] and w' = a p T[w, ..., w, ·] with a tensor T of the data.
For p = 1 this is linear, and all neurons grow at the same rate. For p ≥ 2 each neuron escapes from small weights at
its own time, which depends on its initial weights: along gradient flow the few that escape first end the initial
stage, when the others have hardly moved. Adam moves all of them, but by its rate in each coordinate, so that the first
directions are vectors of signs: with one input (w, b) ∝ (±1, ±1), two lines for every p.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array

from unlazy.figures import ORDERED
from unlazy.flows import Optimiser
from unlazy.lab import Recipe
from unlazy.papers._base import Axes, Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option
from unlazy.papers._curves import even_steps, titled_canvas
from unlazy.papers.outcomes import Judgement, at_least, certain, together, vacuous
from unlazy.papers.zhou2023 import claims as check
from unlazy.papers.zhou2023 import condensation as c
from unlazy.papers.zhou2023.condensation import SQUARED, STAND_IN, STANDARD, START, Training

_HERE = "unlazy.papers.zhou2023.multiplicity"
_ACTIVATIONS = {1: "tanh", 2: "xtanh", 3: f"{_HERE}:x2tanh"}
_WORDS = {1: "tanh", 2: "x tanh", 3: "x² tanh"}
_SCALES: dict[Scale, Sizes] = {  # the kernels are those of figure 10 with tanh
    "quick": Sizes(n=60, channels=16, rate=2.5e-5, steps=40, gamma=2.25, seeds=5),
    "paper": Sizes(n=500, channels=32, rate=5e-6, steps=200, gamma=2.0, seeds=20),
}
# Of the dense networks with one input. At ε = 5e-3 and rate 5e-4 the loss with p = 1 had fallen to that of the best
# straight line before neurons turned: in the initial stage outputs must stay far below the targets.
_WIDTH, _SAMPLES, _EPSILON = 100, 80, 1e-4
_RATE, _STEPS = 1e-5, 200  # of Adam
_LENGTH, _LONG = 2e-4, 3000  # of steps of unit length
_FALLEN = 0.01  # the decrease of the loss that ends the initial stage of gradient flow
# With p = 3 gradients are of the order of ε³, below Adam's usual 1e-8, and kernels would not move.
_ADAM = {"kind": "adam", "eps": 1e-30}
_CONTROL = (0, 1, 2, 5, 10, 20, 50, 100)
_FLOW, _SIGNS, _KERNELS, _STANDARD = "gradient flow", "Adam", "kernels", "standard start"
_BEFORE = (
    "Zhou et al. (2022), from whom Definition 1 is taken, find that the number of condensed orientations is at most "
    "twice the multiplicity, and prove it for one input; this paper's theory has multiplicity 1, and its statement is "
    "'one or a few directions'"
)


def x2tanh(h: Array) -> Array:
    """Compute σ(h) = h² tanh h, an activation of multiplicity 3."""
    return h * h * jnp.tanh(h)


class UnitSteps(Optimiser):
    """The direction g / |g|: gradient flow in arc length, whose number of steps does not depend on the size of g."""

    registered = False

    def transform(self) -> optax.GradientTransformation:
        def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
            length = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(updates)))
            return jax.tree.map(lambda leaf: leaf / length, updates), state

        return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _dense(p: int, label: str, seeds: int) -> Recipe:
    """Return the recipe of dense networks with one input and biases, on random labels."""
    network = {
        "kind": "two-layer",
        "width": _WIDTH,
        "activation": _ACTIVATIONS[p],
        "scaling": {"kind": "scaling", "node": 0.0, "feature": 0.0},
        "scale": _EPSILON,
        "readout": {"kind": "normal", "spread": _EPSILON},
        "bias": True,
        "train_readout": True,
    }
    adam = label == _SIGNS
    optimiser, rate = (_ADAM, _RATE) if adam else (f"{_HERE}:UnitSteps", _LENGTH)
    steps = even_steps(_STEPS, 5) if adam else even_steps(_LONG, 301)
    return Recipe(
        name=f"zhou2023 multiplicity {p} {label}",
        data={"kind": "random-labels", "n": _SAMPLES, "d": 1},
        network=network,
        flow={"kind": "descent", "optimiser": optimiser, "rate": rate},
        times=[rate * step for step in steps],
        probes=["train-loss", {"kind": "input-weights", "layers": ["hidden"]}],
        seeds=seeds,
    )


def _kernels(p: int, scale: Scale, standard: bool, seeds: int) -> Recipe:
    """Return the recipe of a convolution, in double precision, which resolves small decreases of the loss."""
    s, start = _SCALES[scale], "standard start" if standard else "small weights"
    steps = _CONTROL if standard else even_steps(s.steps, 5)
    one = Training("mnist", s.n, (s.channels,), 5, s.rate, steps, SQUARED, _ACTIVATIONS[p], s.gamma, standard=standard)
    made = dataclasses.replace(one, optimiser=_ADAM).recipe(f"multiplicity {p} {start}", scale, seeds)
    return msgspec.structs.replace(made, dtype="float64")


def initial_stage(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return (w_j, b_j), (seeds, neurons, 2), and the decrease of the loss, at the end of the initial stage.

    That is the last time at which the loss of a seed has fallen by less than 1 %. The network has one input.
    """
    falls = c.fall(run)
    early = np.cumprod(falls < _FALLEN, axis=1).astype(bool)
    at, seeds = early.sum(axis=1) - 1, np.arange(len(falls))
    return run["input-weights.hidden"].values[seeds, at], falls[seeds, at]


def along_signs(vectors: np.ndarray) -> float:
    """Compute the share of vectors (rows) with |cos| > 0.95 to the vector of their signs."""
    lengths = np.sqrt(vectors.shape[1]) * np.linalg.norm(vectors, axis=1)
    return float(np.mean(np.abs(vectors).sum(axis=1) / lengths > check.NEAR))


class Multiplicity(Panel):
    """How many lines neurons and kernels follow, with tanh, x tanh and x² tanh."""

    key = "zhou2023/multiplicity"
    title = "Beyond the paper: condensed directions against the multiplicity of the activation"
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"{s.seeds} draws of {_WIDTH} neurons with one input; n = {s.n}, {s.channels} kernels of 5 x 5, "
            f"{s.steps} steps"
        ),
    )
    caption = (
        "tanh, x tanh and x² tanh have multiplicity p = 1, 2 and 3 (Definition 1). Top and middle: angles (up to sign) "
        f"and lengths of (w, b) of {_WIDTH} neurons with one input, drawn from N(0, {_EPSILON:g}²) and trained on "
        f"{_SAMPLES} samples with random labels, first draw: along gradient flow (in arc length, by steps of "
        f"{_LENGTH:g}) at the last observation before the loss has fallen by {_FALLEN:.0%}, and after {_STEPS} steps "
        f"of Adam at rate {_RATE:g}; dotted lines are the directions (±1, ±1). Sizes were chosen after trial runs. "
        "Bottom: cosines between kernels of 5 x 5 on class numbers of MNIST, trained by Adam as in figure 10. "
        f"{START}. The controls start from {STANDARD}. {STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        found = {}
        for p in _ACTIVATIONS:
            for label in (_FLOW, _SIGNS):
                found[f"{label} p={p}"] = _dense(p, label, seeds or _SCALES[scale].seeds)
            for label in (_KERNELS, _STANDARD):
                found[f"{label} p={p}"] = _kernels(p, scale, label == _STANDARD, seeds or 3)
        return found

    def claims(self, results: Results) -> list[Claim]:
        runs = {label: {p: results[f"{label} p={p}"] for p in _ACTIVATIONS} for label in (_FLOW, _SIGNS, _KERNELS)}
        dense = {label: {p: initial_stage(run) for p, run in runs[label].items()} for label in (_FLOW, _SIGNS)}
        kernels = {p: (c.kernels(run, "conv1"), c.fall(run)[:, -1]) for p, run in runs[_KERNELS].items()}
        counts = {p: [check.count_lines(one) for one in each] for p, (each, _) in dense[_SIGNS].items()}
        return [
            _few_lines("neurons with one input, along gradient flow", dense[_FLOW]),
            _few_lines("neurons with one input, by Adam", dense[_SIGNS], signs=True),
            Claim(
                text="the bound is attained: for each p some draws with one input, by Adam, have p lines; at least two "
                f"neurons and {check.SPREAD:.0%} of all make a line, to |cos| > {check.NEAR:g}",
                paper=_BEFORE,
                measured="; ".join(f"p = {p}: lines by draw {', '.join(map(str, each))}" for p, each in counts.items()),
                judged=together(certain(max(each) == p, "largest number of lines") for p, each in counts.items()),
                hindsight=True,
            ),
            _few_lines("kernels, by Adam", kernels),
            *(check.control(results[f"{_KERNELS} p={p}"], results[f"{_STANDARD} p={p}"]) for p in _ACTIVATIONS),
        ]

    def draw(self, results: Results) -> Figure:
        images, pictures = c.NAMES[option(results[f"{_KERNELS} p=1"], "data.kind")], []
        title = f"Condensed directions and multiplicity; kernels on {images}"
        figure, axes = titled_canvas(title, 3, 11.0, 9.5, rows=3)
        for index, p in enumerate(_ACTIVATIONS):
            for row, label in enumerate((_FLOW, _SIGNS)):
                _angles(axes[3 * row + index], initial_stage(results[f"{label} p={p}"])[0][0])
                axes[3 * row + index].set_title(f"{_WORDS[p]} (p = {p}), {label}", fontsize=9)
            run, title = results[f"{_KERNELS} p={p}"], f"{_WORDS[p]} (p = {p}), kernels"
            pictures.append(c.heat(axes[6 + index], run, "conv1", title))
        for row in (0, 3):
            axes[row].set_ylabel("|(w, b)| / ε")
        figure.colorbar(pictures[-1], ax=axes[6:], shrink=0.8)
        return figure


def _angles(axes: Axes, vectors: np.ndarray) -> None:
    angles = np.rad2deg(np.arctan2(vectors[:, 1], vectors[:, 0])) % 180
    axes.semilogy(angles, np.linalg.norm(vectors, axis=1) / _EPSILON, ".", color=ORDERED[2], markersize=4)
    for signs in (45, 135):
        axes.axvline(signs, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, 180), ylim=(1e-2, 1e4), xlabel="angle of (w, b), degrees")


def _few_lines(what: str, found: dict[int, tuple[np.ndarray, np.ndarray]], signs: bool = False) -> Claim:
    """Claim that nearly all vectors lie along at most as many lines as the multiplicity.

    Sizes and the constant of Adam were changed after a first run, but not the claim. With ``signs``, vectors along the
    two lines of signs are not evidence for p ≥ 2.
    """
    shares = {p: np.array([check.gathered(one, p) for one in each]) for p, (each, _) in found.items()}
    counts = {p: [check.count_lines(one) for one in each] for p, (each, _) in found.items()}
    by_signs = {p: np.mean([along_signs(one) for one in each]) for p, (each, _) in found.items()}

    def judged(p: int) -> Judgement:
        if signs and p > 1 and by_signs[p] >= check.NEARLY_ALL:
            return vacuous("neurons lie along vectors of signs, which are two lines for every p")
        return at_least(shares[p], check.NEARLY_ALL)

    return Claim(
        text=f"{what}: at least {check.NEARLY_ALL:.0%} lie along at most p lines (2p directions), to |cos| > "
        f"{check.NEAR:g}, for p = 1, 2 and 3; the number of lines, the share along vectors of signs and the decrease "
        "of the loss are also given",
        paper=_BEFORE,
        measured="; ".join(
            f"p = {p}: {check.percent(share)} along {p}, lines by draw {', '.join(map(str, counts[p]))}, "
            f"{by_signs[p]:.0%} along signs, loss fallen by {found[p][1].mean():.1e}"
            for p, share in shares.items()
        ),
        judged=together(judged(p) for p in shares),
        hindsight=True,
    )
