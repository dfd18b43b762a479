"""Figures of your own runs, and the drawing helpers that all figures of the package share.

>>> from unlazy import figures
>>> figure = figures.curves({"NTK": run, "mean field": other}, probe="train-loss")
>>> figure.savefig("losses.pdf")

`curves` draws any probes of any runs, and `overlay` draws one of them into existing axes. `canvas`, `band`, `bars`,
`styled` and `fit` are the helpers that draw the figures of the papers.
"""

from unlazy.figures.comparison import Comparison, Group, compare, rank, settings, short
from unlazy.figures.drawing import curves, draw_plots, overlay, plots, shows_seeds
from unlazy.figures.phases import Axis, draw_phases, phase_figure
from unlazy.figures.style import (
    DASHES,
    ORDERED,
    SCALING,
    STYLE,
    Style,
    band,
    bars,
    canvas,
    fit,
    literal,
    plain,
    rounding,
    styled,
    typeset,
)
from unlazy.figures.widths import draw_widths

__all__ = [
    "DASHES",
    "ORDERED",
    "SCALING",
    "STYLE",
    "Axis",
    "Comparison",
    "Group",
    "Style",
    "band",
    "bars",
    "canvas",
    "compare",
    "curves",
    "draw_phases",
    "draw_plots",
    "draw_widths",
    "fit",
    "literal",
    "overlay",
    "phase_figure",
    "plain",
    "plots",
    "rank",
    "rounding",
    "settings",
    "short",
    "shows_seeds",
    "styled",
    "typeset",
]
