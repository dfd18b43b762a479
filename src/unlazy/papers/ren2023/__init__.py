"""Ren, Zhou, Ge (2023): depth separation with multilayer mean-field networks.

One file a panel: `training` (figure 2, with the stages and the limit of infinite width) and `depth` (what the title
says, shown on two- and three-layer networks).
"""

from unlazy.papers.ren2023.depth import DepthSeparation
from unlazy.papers.ren2023.training import Training

PAPER = {
    "key": "ren2023",
    "title": "Depth separation with multilayer mean-field networks",
    "authors": "Yunwei Ren, Mo Zhou, Rong Ge",
    "venue": "ICLR 2023",
}

fig2 = Training("fig2")
separation = DepthSeparation("depth")
