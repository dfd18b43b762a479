"""Find the boundary between regions of a grid from few of its points: a coarse grid first, then only along it.

The grid is divided into rectangular cells. A cell is divided further as long as two points that are known in it, or on
its edges, belong to different regions. A region that lies inside one coarse cell is not found.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from unlazy.figures.style import evenly

Place = tuple[int, int]  # indices along the two axes
Cell = tuple[int, int, int, int]  # first and last index along the first axis, then along the second


def refine(
    shape: tuple[int, int],
    coarse: int,
    evaluate: Callable[[list[Place]], None],
    region: Callable[[Place], object | None],
) -> list[Cell]:
    """Evaluate points of a grid until every cell that a boundary crosses is as small as the grid allows.

    ``evaluate`` is called, round by round, with points whose ``region`` is None; afterwards ``region`` must know them,
    and may know more. All known points of a returned cell with more than four points belong to one region.
    """
    across, up = (evenly(count, coarse).tolist() for count in shape)
    cells: list[Cell] = [(a, b, c, d) for a, b in itertools.pairwise(across) for c, d in itertools.pairwise(up)]
    while True:
        corners = (corner for a, b, c, d in cells for corner in itertools.product((a, b), (c, d)))
        wanted = dict.fromkeys(corner for corner in corners if region(corner) is None)
        if wanted:
            evaluate(list(wanted))
        divided = [part for cell in cells for part in (_quarters(cell) if _mixed(cell, region) else [cell])]
        if divided == cells:
            return cells
        cells = divided


def _mixed(cell: Cell, region: Callable[[Place], object | None]) -> bool:
    a, b, c, d = cell
    known = {region((i, j)) for i in range(a, b + 1) for j in range(c, d + 1)}
    return len(known - {None}) > 1


def _quarters(cell: Cell) -> list[Cell]:
    a, b, c, d = cell
    across = [(a, (a + b) // 2), ((a + b) // 2, b)] if b - a > 1 else [(a, b)]
    up = [(c, (c + d) // 2), ((c + d) // 2, d)] if d - c > 1 else [(c, d)]
    return [(*one, *other) for one in across for other in up]
