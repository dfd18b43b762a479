"""How many samples and outputs are worked on at a time, so that memory stays within a bound."""

from __future__ import annotations

from typing import Any, NamedTuple

from unlazy.kernels.structure import Choice, Structure


class Blocks(NamedTuple):
    """Sizes of the blocks in which Θ is computed, and the bytes that one block takes."""

    rows: int  # samples x
    columns: int  # samples z
    outputs: int
    bytes: float  # estimated working memory


def blocks_within(
    structure: Structure, leaves: list[Any], choice: Choice, rows: int, columns: int, reduced: str, memory: float
) -> Blocks:
    """Choose the largest blocks whose working memory is within a bound in bytes, or the smallest blocks there are."""
    item = max(structure.dtype.itemsize, *(leaf.dtype.itemsize for leaf in leaves))
    k = 1 if reduced == "one" else structure.outputs
    b, c, o = rows, columns, k
    while True:
        need = item * _entries(structure, choice, b, c, o, trace=reduced == "trace")
        if need <= memory or b == c == o == 1:
            return Blocks(b, c, o, need)
        if b == c == 1:
            o = -(-o // 2)
        elif c >= b:
            c = -(-c // 2)
        else:
            b = -(-b // 2)


def _entries(structure: Structure, choice: Choice, b: int, c: int, o: int, *, trace: bool) -> float:
    """Count the numbers that are held at a time for b rows, c columns and o outputs."""
    whole = float(sum(leaf.size for leaf in structure.leaves))
    passes = structure.intermediates * (1 + o)
    if choice.products:
        return c * o * whole + c * passes + b * structure.intermediates * (1 + c * o) + b * c * o * structure.outputs
    each, pair = passes, 1.0
    for leaf, gram in zip(structure.leaves, choice.gram, strict=True):
        if not gram:
            each += o * leaf.size * (2.0 if leaf.sites else 1.0)
        for place in leaf.sites:
            groups, places, depth, width = structure.sites[place].form.size
            each += 2 * groups * places * (depth + o * width)
        if gram and leaf.classes is not None:
            squares = [sum(structure.sites[at].form.size[1] for at in members) ** 2 for members in leaf.classes]
            pair = max(pair, 2.0 * max(structure.sites[leaf.sites[0]].form.size[0] * square for square in squares))
    return (b + c) * each + b * c * (1 if trace else o * o) * pair
