"""Caron, Ayed, Jung, Lee, Lee, Yang (2023): shallow networks with asymmetrical node scaling.

One file an experiment: `simulated` (figure 1), `regression` (2 and 6 to 9), `classification` (3 and 10), `cifar` (4
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
}

fig1 = Simulated("fig1", released=False)
fig1_released = Simulated("fig1-released", released=True)
fig2 = RegressionSubset("fig2")
fig3 = DigitSubset("fig3")
fig4 = Cifar("fig4", by_gamma=False)
fig5 = SquaredWeights("fig5")
fig6 = Regression("fig6", "concrete")
fig7 = Regression("fig7", "energy")
fig8 = Regression("fig8", "airfoil")
fig9 = Regression("fig9", "plant")
fig10 = DigitImages("fig10")
fig11 = Cifar("fig11", by_gamma=True)
