"""Caron, Ayed, Jung, Lee, Lee, Yang (2023): shallow networks with asymmetrical node scaling.

One file per experiment: `regression` (figures 1, 2 and 6 to 9), `classification` (3, 4, 10 and 11), `zipf` (5) and
`wide` (networks of growing width and their limit). What they share is in `comparison`, `claims` and `bounds`; `authors`
has numbers of the authors' figures.
"""

from unlazy.papers.caron2023.classification import Cifar, DigitImages, DigitSubset
from unlazy.papers.caron2023.regression import Regression, RegressionSubset, Simulated
from unlazy.papers.caron2023.wide import AgainstWidth, TowardsLimit
from unlazy.papers.caron2023.zipf import SquaredWeights

PAPER = {
    "key": "caron2023",
    "title": "Over-parameterised shallow neural networks with asymmetrical node scaling: global convergence "
    "guarantees and feature learning",
    "authors": "François Caron, Fadhel Ayed, Paul Jung, Hoil Lee, Juho Lee, Hongseok Yang",
    "venue": "Transactions on Machine Learning Research 2025 (arXiv 2023)",
    "about": "Giving the nodes of a shallow network unequal sizes keeps features moving at any width, while the "
    "training risk still converges to zero.",
}

# As printed, and as in the authors' released code; figure 5 has no runs of theirs.
fig1, fig1_released = (Simulated(released) for released in (False, True))
fig2, fig2_released = (RegressionSubset(released) for released in (False, True))
fig3, fig3_released = (DigitSubset(released) for released in (False, True))
fig4, fig4_released = (Cifar(4, by_gamma=False, released=released) for released in (False, True))
fig5 = SquaredWeights()
fig6, fig6_released = (Regression(6, "concrete", released) for released in (False, True))
fig7, fig7_released = (Regression(7, "energy", released) for released in (False, True))
fig8, fig8_released = (Regression(8, "airfoil", released) for released in (False, True))
fig9, fig9_released = (Regression(9, "plant", released) for released in (False, True))
fig10, fig10_released = (DigitImages(released) for released in (False, True))
fig11, fig11_released = (Cifar(11, by_gamma=True, released=released) for released in (False, True))
limit, width = TowardsLimit(), AgainstWidth()
