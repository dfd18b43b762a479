"""Figures of your own runs, and the drawing helpers that all figures of the package share.

>>> from unlazy import figures
>>> figure = figures.curves({"NTK": run, "mean field": other}, probe="train-loss")
>>> figure.savefig("losses.pdf")

`curves` draws any probes of any runs, and `overlay` draws one of them into existing axes. `canvas`, `band`, `bars`,
`styled` and `fit` are the helpers that draw the figures of the papers.
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

if TYPE_CHECKING:
    from unlazy.figures.comparison import Comparison as Comparison, Group as Group, compare as compare, rank as rank
    from unlazy.figures.comparison import settings as settings, short as short
    from unlazy.figures.drawing import curves as curves, draw_plots as draw_plots, overlay as overlay, plots as plots
    from unlazy.figures.drawing import shows_seeds as shows_seeds
    from unlazy.figures.phases import Axis as Axis, draw_phases as draw_phases, phase_figure as phase_figure
    from unlazy.figures.style import DASHES as DASHES, ORDERED as ORDERED, SCALING as SCALING, STYLE as STYLE
    from unlazy.figures.style import Style as Style, band as band, bars as bars, canvas as canvas, fit as fit
    from unlazy.figures.style import literal as literal, plain as plain, rounding as rounding, styled as styled
    from unlazy.figures.style import typeset as typeset
    from unlazy.figures.widths import draw_widths as draw_widths
else:
    __all__, __getattr__, __dir__ = offered_lazily(__name__, __file__)
