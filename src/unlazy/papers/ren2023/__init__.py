"""Ren, Zhou, Ge (2023): depth separation with multilayer mean-field networks.

One file per panel: `training` (figure 2, with the stages and the limit of infinite width) and `depth` (what the title
says, shown on two- and three-layer networks).
"""

from unlazy.papers.ren2023.depth import DepthSeparation
from unlazy.papers.ren2023.training import Training

PAPER = {
    "key": "ren2023",
    "title": "Depth separation with multilayer mean-field networks",
    "authors": "Yunwei Ren, Mo Zhou, Rong Ge",
    "venue": "ICLR 2023",
    "about": "A three-layer mean-field network learns a radial function by gradient flow that no two-layer network of "
    "moderate size can approximate.",
}

fig2 = Training()
separation = DepthSeparation()
