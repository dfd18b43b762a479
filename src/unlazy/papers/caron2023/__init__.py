"""Caron, Ayed, Jung, Lee, Lee, Yang (2023): shallow networks with asymmetrical node scaling.

One file per experiment: `simulated` (figure 1), `regression` (2 and 6 to 9), `classification` (3 and 10), `cifar` (4
and 11) and `zipf` (5).
"""

from unlazy.papers.caron2023.cifar import Cifar
from unlazy.papers.caron2023.classification import DigitImages, DigitSubset
from unlazy.papers.caron2023.regression import Regression, RegressionSubset
from unlazy.papers.caron2023.simulated import Simulated
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

fig1 = Simulated(released=False)
fig1_released = Simulated(released=True)
fig2 = RegressionSubset()
fig3 = DigitSubset()
fig4 = Cifar(4, by_gamma=False)
fig5 = SquaredWeights()
fig6 = Regression(6, "concrete")
fig7 = Regression(7, "energy")
fig8 = Regression(8, "airfoil")
fig9 = Regression(9, "plant")
fig10 = DigitImages()
fig11 = Cifar(11, by_gamma=True)
