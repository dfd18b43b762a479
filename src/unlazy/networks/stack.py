"""Family B: a stack of mean-field blocks with narrow ends (aiad2026, ren2023)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._checked import MAY_BE_INFINITE
from unlazy._errors import UserError
from unlazy._inputs import as_key
from unlazy._linalg import norm
from unlazy._memory import total
from unlazy._types import Count, Outputs, PRNGKey, PyTree, Scalar
from unlazy.activations import Activation, LeakyRelu, Relu, Sigmoid, Tanh
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import prepared
from unlazy.networks._base import (
    GramForm,
    Network,
    example_data,
    frozen_rates,
    generic_kernel,
    split_trained,
    with_fields,
)
from unlazy.networks.blocks import AbstractBlock, Block, Columns, Neurons, raw_columns
from unlazy.networks.clipping import Bounds, check_clip, clipped, shares, slope_of
from unlazy.networks.drawing import draw_blocks
from unlazy.networks.laws import Constant, Eye, Grid, Law, Normal, Sphere, Tied, Uniform
from unlazy.networks.limits import FixedFeatures, Limit, SphericalLimit, in_gram, in_weights
from unlazy.networks.linear import Gram
from unlazy.networks.prepared import Batch, OtherBatch, Places, Prepared, PreparedInputs, Samples, in_places

Parameterisation = Literal["mean-field", "standard"]
Many = list[Float[Array, "..."]]  # an array for each block
Path = list[Float[Array, "..."] | PreparedInputs]  # inputs, then what each block gives

_MANY_INPUTS = 8  # from here on looking features up is cheaper than making them again
_SHARE = 4  # features that are computed once may take one part in this many of the memory


class MeanFieldStack(Network):
    """f = F_L ∘ ... ∘ F_1 with blocks F_l(x) = (1/m_l) Σ_j A_j σ(w_j·x + b_j) + c of m_l neurons and rank D_l.

    aiad2026 eq. 1 and ren2023 Definition A.3. The outputs of F_l are its D_l channels f_k^(l). An option of
    single blocks (``train``, ``activation``, ``features``, ``bias``, ``amplitude``, ``offset``) is one value for all of
    them, or a tuple with one for each.

    As E[A] = 0 makes the channels of a wide mean-field network vanish at the start, give amplitudes a mean to see its
    limit move: ``amplitude=Normal(mean=(1.0, -1.0))``.

    Parameters
    ----------
    widths
        Numbers of neurons m_1 to m_L. The first may be infinite: its law then enters through its kernel only, which
        needs Gaussian features; or, where it is tied, through the radius of its sphere (ren2023 section 3).
    inputs, outputs
        Input dimension d, and number of outputs D_L; without the latter f is a scalar.
    ranks
        D_1 to D_{L-1}: one number for all, or one each.
    train
        What is trained, in letters: "ac" (random features, low rank), "wabc" ("LR only"), "wb", ...
    parameterisation
        "mean-field", in which neurons learn m_l times as fast, or "standard", which has no 1/m_l, rates 1 and all
        parameters uniform in ±1/√fan-in.
    activation
        σ: an activation, or its name.
    features
        Law of (w_j, b_j), N(0, 1) by default.
    bias
        A law of its own for b, or False for none.
    amplitude
        Law of A; ``Tied()`` is A_j = |w_j| (ren2023), ``Eye()`` an ordinary layer, without low rank.
    offset
        Law of c.
    skip
        Whether blocks between equal ranks add their input.
    clip
        Bounds on the effect of one sample on (v_1, v_2, r_2) of ren2023's learner (eq. 4).
    key
        Random key, or a whole number as a seed.

    Examples
    --------
    >>> network = MeanFieldStack((1024, 1024), inputs=1, ranks=15, train="ac", key=jax.random.key(0))
    """

    blocks: tuple[AbstractBlock, ...]
    scalar: bool = eqx.field(static=True)
    clip: Bounds | None = eqx.field(static=True)

    def __init__(
        self,
        widths: tuple[Annotated[float, MAY_BE_INFINITE], ...],
        inputs: Count,
        outputs: Count | None = None,
        *,
        ranks: Count | tuple[Count, ...] = 10,
        train: str | tuple[str, ...] = "ac",
        parameterisation: Parameterisation = "mean-field",
        activation: Activation | str | tuple[Activation | str, ...] = "relu",
        features: Law | tuple[Law, ...] | None = None,
        bias: Law | bool | tuple[Law | bool, ...] = True,
        amplitude: Law | tuple[Law, ...] | None = None,
        offset: Law | tuple[Law, ...] | None = None,
        skip: bool = False,
        clip: Bounds | None = None,
        key: PRNGKey | int,
    ) -> None:
        ends, options = (inputs, ranks, outputs), (train, activation, features, bias, amplitude, offset)
        blocks = draw_blocks(widths, ends, parameterisation, options, skip=skip, key=as_key(key))
        self.blocks, self.scalar, self.clip = blocks, outputs is None, clip
        if not jax.tree.leaves(split_trained(self)[0]) and not isinstance(blocks[0], Limit):
            raise UserError("Nothing in this stack is trained: name some of a, w, b and c in `train`.")
        check_clip(blocks, clip)

    @property
    def depth(self) -> int:
        """Number of blocks L."""
        return len(self.blocks)

    @property
    def inputs(self) -> int:
        """Number of raw inputs d."""
        return self.blocks[0].inputs

    @property
    def trainable(self) -> int:
        """Number of trained parameters."""
        return sum(leaf.size for leaf in jax.tree.leaves(split_trained(self)[0]))

    def _enter(self, x: Batch) -> Columns | PreparedInputs:
        raw, first = prepared.raw_vectors(x), self.blocks[0]
        if raw.shape[1] != self.inputs:
            raise UserError(f"This network was made for {self.inputs} inputs but was given {raw.shape[1]}.")
        return x if isinstance(x, PreparedInputs) and isinstance(first, FixedFeatures | SphericalLimit) else raw.T

    def _leave(self, z: Float[Array, "D n"] | PreparedInputs) -> Outputs:
        z = raw_columns(z)
        return z[0] if self.scalar else z.T

    def __call__(self, x: Batch) -> Outputs:
        return self._leave(self._path(x)[-1])

    def channels(self, x: Batch) -> Many:
        """f_k^(l)(x) of every block l, the last of which is the output; (n, D_l) each."""
        return [raw_columns(z).T for z in self._path(x)[1:]]

    def _path(self, x: Batch) -> Path:
        path: Path = [self._enter(x)]
        for block in self.blocks:
            path.append(block(path[-1]))
        return path

    def signals(self, x: Batch) -> Many:
        """∂f_i/∂f_k^(l)(x) of every block l: what is sent back to channel k; (outputs, D_l, n) each.

        For one output this is B_k^(l) of aiad2026, in the form that is right at any depth: from the top down
        ∂f/∂f^(l-1) = s Σ_j w_j σ'(h_j) A_j·∂f/∂f^(l).
        """
        return self._signals(self._path(x))

    def _signals(self, path: Path) -> Many:
        top = raw_columns(path[-1])
        one = jnp.eye(top.shape[0], dtype=top.dtype)[:, :, None]
        signals = [jnp.broadcast_to(one, (*one.shape[:2], top.shape[1]))]
        for block, x in zip(cast("tuple[Block, ...]", self.blocks[:0:-1]), path[-2:0:-1], strict=True):
            signals.insert(0, block.back(x, signals[0]))
        return signals

    def _named(self) -> list[tuple[int, str]]:
        return [(level, name) for level, block in enumerate(self.blocks) for name in block.rates()]

    def _set(self, tree: PyTree, values: list[Any]) -> PyTree:
        """Replace the trained arrays of ``tree``, in the order of `_named`."""
        where = lambda tree: [attrgetter(name)(tree.blocks[level]) for level, name in self._named()]  # noqa: E731
        return eqx.tree_at(where, tree, values) if values else tree

    def rates(self) -> PyTree:
        """m_l for what belongs to neurons, 1 for offsets; in the standard parameterisation 1."""
        return self._set(frozen_rates(self), [rate for block in self.blocks for rate in block.rates().values()])

    @property
    def clips_per_sample(self) -> bool:
        return self.clip is not None

    def gradient(self, data: Dataset | Samples, loss: Loss) -> tuple[Scalar, PyTree]:
        """Return the loss and its gradient or, with bounds, the clipped one of ren2023 eq. 4."""
        if self.clip is None:
            return super().gradient(data, loss)
        first, second = self.blocks
        assert isinstance(first, Block | SphericalLimit)
        assert isinstance(second, Block)
        f = self(data.x)
        slope, share = slope_of(loss, f, data.y).reshape(-1), shares(loss, data.weight, f)
        parts = clipped(first, second, self._enter(data.x), slope, share, self.clip)
        found = self._set(split_trained(self)[0], [parts[level][name] for level, name in self._named()])
        return loss(f, data.y, data.weight), found

    @property
    def has_kinks(self) -> bool:
        """Whether a parameter can move a pre-activation across a kink."""
        return any(
            bool(block.activation.kinks) and (level > 0 or not block.fixed)
            for level, block in enumerate(self.blocks)
            if isinstance(block, Block)
        )

    def prepare(self, data: Dataset) -> Prepared:
        """Make the features of a frozen first block once, where that pays; make an infinite one exact on the data.

        Neurons then stand along the last axis, where steps are fastest.
        """
        first, network, make = self.blocks[0], self, lambda x: x
        if isinstance(first, SphericalLimit):
            make = lambda x: prepared.Radii(x, first.radii(x.T))  # noqa: E731
        elif isinstance(first, Limit) or self._worth_storing(data):
            assert isinstance(first, Block | Limit)
            fixed = in_weights(first, data.points())
            network, make = self._with(fixed), lambda x: prepared.Features(x, fixed.features(x))
        if self.clip is None:
            blocks = tuple(block.transposed() if isinstance(block, Block) else block for block in network.blocks)
            network = with_fields(network, blocks=blocks)
        return prepared.prepared_by(network, data, make)

    def _worth_storing(self, data: Dataset) -> bool:
        first = self.blocks[0]
        if not isinstance(first, Block) or first.a is None or self._fixed_features() is None:
            return False
        points = data.n + (0 if data.x_test is None else data.x_test.shape[0])
        return first.inputs >= _MANY_INPUTS and first.width * points * data.x.dtype.itemsize <= total() / _SHARE

    def _fixed_features(self) -> float | None:
        """How many fixed features the first block is trained on; None where they are not fixed."""
        first = self.blocks[0]
        if isinstance(first, Limit):
            return math.inf
        if isinstance(first, Block) and first.fixed and first.a is not None and first.train:
            return first.width
        return None

    def gram_form(self, data: Dataset) -> GramForm | None:
        """Train the coefficients of the first block on the training points, where its features are fixed."""
        features, first = self._fixed_features(), self.blocks[0]
        if features is None or not isinstance(first, Block | Limit):
            return None
        self._enter(data.x)  # inputs of another dimension are an error
        return GramForm(features, None, lambda _: in_places(self._with(in_gram(first, data.points(), data.n)), data))

    def restore(self) -> MeanFieldStack:
        return with_fields(self, blocks=tuple(block.restored() for block in self.blocks))

    def _with(self, first: AbstractBlock) -> MeanFieldStack:
        return with_fields(self, blocks=(first, *self.blocks[1:]))

    def preactivations(self, x: Batch, block: int) -> Float[Array, "n m"]:
        """h_j(x) = w_j·f^(l-1)(x) + b_j of block l = 1, 2, ..., where it has neurons."""
        layer = self.layers().get(name(block - 1))
        if layer is None:
            raise UserError(f"Block {block} has no single neurons, so it has no pre-activations: take another.")
        return layer.preactivations(x)

    def layers(self) -> Mapping[str, Neurons]:
        """Return the neurons of every block of finite width: ``block-1``, ``block-2``, ..."""
        inner = [block.inner if isinstance(block, FixedFeatures) else block for block in self.blocks]
        there = [level for level, block in enumerate(inner) if isinstance(block, Block)]
        return {name(level): Neurons(self, name(level), level) for level in there}

    def trained_rows(self) -> dict[str, Float[Array, "m p"]]:
        """Return what is trained of each neuron, by block; nothing of blocks without trained neurons."""
        rows = {name(i): block.rows() for i, block in enumerate(self.restore().blocks) if isinstance(block, Block)}
        return {layer: values for layer, values in rows.items() if values is not None}

    def movement(self, start: Network) -> dict[str, Float[Array, " m"]]:
        """Return the distance that each neuron's trained parameters have moved, by block."""
        assert isinstance(start, MeanFieldStack)
        rows, first = self.trained_rows(), start.trained_rows()
        return {layer: norm(rows[layer] - first[layer], axis=1) for layer in rows}

    def narrowed(self, widths: Sequence[int], first: int = 0) -> MeanFieldStack:
        """The network of the first ``widths`` neurons of each block (or as many from ``first`` on), 1/m adjusted.

        This couples networks of all widths: the narrow ones are samples of the wide one (aiad2026 Theorem 2.3).
        """
        if len(widths) != self.depth:
            raise UserError(f"{len(widths)} widths were given for {self.depth} blocks: give one for each.")
        blocks = []
        for block, width in zip(self.restore().blocks, widths, strict=True):
            if not isinstance(block, Block) or (block.a is None and not block.tied):
                raise UserError("Only blocks of neurons with amplitudes can be narrowed.")
            if not 0 <= first < first + width <= block.width:
                raise UserError(f"A block of {block.width} neurons has none from {first} to {first + width}.")
            blocks.append(block.chosen(slice(first, first + int(width))))
        return with_fields(self, blocks=tuple(blocks))

    def sampled(self, *widths: int, key: PRNGKey) -> MeanFieldStack:
        """Draw a network with ``widths`` neurons in its first blocks from this one's measures (ren2023 Definition A.1).

        All outputs of a block share the law of (w, b), so that its neurons (A_j, w_j, b_j) are rows to be drawn, with
        replacement, from those that are there, or from the law of a block of infinite width.

        Parameters
        ----------
        *widths
            Number of neurons of each of the first blocks; the other blocks stay as they are.
        key
            Random key.
        """
        blocks = list(self.restore().blocks)
        if not 0 < len(widths) <= len(blocks) or min(widths) < 1:
            raise UserError(f"Give 1 to {len(blocks)} widths of at least 1 neuron, not {list(widths)}.")
        for level, (width, one) in enumerate(zip(widths, jax.random.split(key, len(widths)), strict=True)):
            block = blocks[level]
            if isinstance(block, SphericalLimit):
                blocks[level] = block.sample(width, key=one)
            elif isinstance(block, Block) and block.mean_field and (block.tied or block.a is not None):
                blocks[level] = block.chosen(jax.random.randint(one, (width,), 0, block.width))
            else:
                raise UserError(f"Block {level + 1} has no mean-field neurons with amplitudes to draw from.")
        return with_fields(self, blocks=tuple(blocks))

    def tangent_kernel(self, x: Batch, z: OtherBatch | None = None) -> Float[Array, "..."]:
        """Sum over blocks of feature overlaps times signal overlaps; nothing of size n x n' x m is built."""
        z = x if z is None else z
        if any(isinstance(block, Block) and block.tied and "w" in block.train for block in self.blocks):
            return generic_kernel(self, x, z)
        paths = [self._path(points) for points in (x, z)]
        ups = [self._signals(path) for path in paths]
        kernel = sum(
            block.kernel(paths[0][level], paths[1][level], ups[0][level], ups[1][level])
            for level, block in enumerate(self.blocks)
        )
        assert not isinstance(kernel, int)
        return kernel[:, 0, :, 0] if self.scalar else kernel

    def push(self, x: Batch, change: PyTree) -> Outputs:
        """J(x) v; in Gram coordinates autodiff does not know the first block's part."""
        first = self.blocks[0]
        if not (isinstance(first, FixedFeatures) and isinstance(first.linear, Gram) and isinstance(x, Places)):
            return super().push(x, change)
        trained, frozen = split_trained(with_fields(self, blocks=self.blocks[1:]))

        def rest(leaves: PyTree, z: Columns) -> Outputs:
            for block in eqx.combine(leaves, frozen).blocks:
                z = block(z)
            return self._leave(z)

        z, moved = first(x), first.linear.push(x, change.blocks[0].linear.coefficients)
        return jax.jvp(rest, (trained, z), (with_fields(trained, blocks=change.blocks[1:]), moved))[1]

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """Every parameterisation, law and way of training, one output and several, finite and infinite."""
        keys = iter(jax.random.split(key, 16))
        data, several = example_data(7, 4, (3,), keys)
        many = Dataset(jax.random.normal(next(keys), (6, 9)), data.y[:6], name="example with many inputs")

        def one(widths: tuple[float, ...] = (8, 7), inputs: int = 3, **options: Any) -> MeanFieldStack:
            return cls(widths, inputs, **{"ranks": 2, "activation": Tanh(), "key": next(keys), **options})

        slope = LeakyRelu(0.3)
        learner: dict[str, Any] = {
            "ranks": 1,
            "train": ("w", "wb"),
            "features": (Sphere(), Normal()),
            "bias": (False, Constant(0.5)),
            "amplitude": (Tied(), Constant(1.0)),
            "activation": Relu(),
        }
        return [
            (one(), data),
            (one((8, 7, 6), ranks=(2, 2), train=("ac", "wa", "bc"), activation=(Tanh(), Sigmoid(), slope)), data),
            (one((8, 7, 6), train="wabc", skip=True, parameterisation="standard"), data),
            (
                one((5, 6), ranks=5, outputs=3, amplitude=(Eye(), Uniform()), train="wbc", parameterisation="standard"),
                several,
            ),
            (one(inputs=9, features=Grid(), outputs=None), many),
            (one(**{**learner, "activation": Tanh()}), data),
            (one((math.inf, 7), amplitude=(Normal(mean=(1.0, -0.5)), Normal())), data),
            (one((math.inf, 7), **learner), data),
            (one(**learner, clip=(0.1, 0.2, 0.3)), data),
        ]


def name(level: int) -> str:
    """``block-1`` is the first."""
    return f"block-{level + 1}"
