"""Ren, Zhou, Ge (2023): depth separation with multilayer mean-field networks.

One file per panel: `training` (figure 2, with the stages and the limit of infinite width; its claims are in `claims`
and `quantities`), `dimension` (times against d at infinite width) and `depth` (the claim of the title, on two- and
three-layer networks).
"""

from unlazy.papers.ren2023.depth import DepthSeparation
from unlazy.papers.ren2023.dimension import Dimension
from unlazy.papers.ren2023.training import Training

PAPER = {
    "key": "ren2023",
    "title": "Depth separation with multilayer mean-field networks",
    "authors": "Yunwei Ren, Mo Zhou, Rong Ge",
    "venue": "ICLR 2023",
    "about": "A three-layer mean-field network learns by gradient flow a radial function that no two-layer network of "
    "polynomial size approximates to errors of order d^-6.",
}

fig2 = Training()
dimension = Dimension()
separation = DepthSeparation()
