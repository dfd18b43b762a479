"""Zhou, Zhou, Li, Xu (2023): Understanding the initial condensation of convolutional neural networks.

One file an experiment: `deep` (figures 2, 3, 5, 8, 9 and 11), `activations` (4 and 10), `descent` (6, 12 and 13),
`spectrum` (7 and 14) and `losses` (15); beyond the paper `prediction`, `channels` and `phase`.
"""

from unlazy.papers.zhou2023.activations import Activations
from unlazy.papers.zhou2023.channels import AgainstWidth
from unlazy.papers.zhou2023.deep import (
    CLASSIFIER,
    DIGITS,
    NUMBERS,
    PRINTED,
    PROBABILITIES,
    Accuracy,
    Shown,
    ThreeLayers,
)
from unlazy.papers.zhou2023.descent import COLOURS, WIDE, GradientDescent
from unlazy.papers.zhou2023.descent import DIGITS as FEW
from unlazy.papers.zhou2023.losses import Losses
from unlazy.papers.zhou2023.phase import PhaseMap
from unlazy.papers.zhou2023.prediction import PredictedTime
from unlazy.papers.zhou2023.spectrum import Spectrum

PAPER = {
    "key": "zhou2023",
    "title": "Understanding the initial condensation of convolutional neural networks",
    "authors": "Zhangchen Zhou, Hanxu Zhou, Yuqing Li, Zhi-Qin John Xu",
    "venue": "CSIAM Transactions on Applied Mathematics 2025 (arXiv 2023)",
}

_END: Shown = {scale: (one.steps[-1],) for scale, one in CLASSIFIER.items()}


def _at(quick: int, paper: int) -> Shown:
    """Show all layers at one step."""
    return {"quick": (quick,), "paper": (paper,)}


fig2 = ThreeLayers("fig2", "cross-entropy, after training", CLASSIFIER, _END, lines=None)
fig3 = ThreeLayers("fig3", "cross-entropy, initial stage", CLASSIFIER, _at(60, 300), lines=2, control=True)
fig4 = Activations("fig4", "cifar10")
fig5 = ThreeLayers("fig5", "squared error with softmax", PROBABILITIES, _at(150, 400), lines=2, printed=PRINTED)
fig6 = GradientDescent("fig6", COLOURS)
fig7 = Spectrum("fig7", "cifar10")
fig8 = Accuracy("fig8")
fig9 = ThreeLayers("fig9", "squared error of class numbers", NUMBERS, _at(50, 200), lines=2)
fig10 = Activations("fig10", "mnist")
fig11 = ThreeLayers("fig11", "squared error on digits", DIGITS, _at(40, 100), lines=1)
fig12 = GradientDescent("fig12", FEW, demo=True)
fig13 = GradientDescent("fig13", WIDE, control=False)
fig14 = Spectrum("fig14", "mnist")
fig15 = Losses("fig15", (fig2, fig4, fig5, fig6, fig9, fig10, fig11, fig12, fig13))
predicted_time = PredictedTime("prediction")
theorem_1 = AgainstWidth("theorem-1")
phase_map = PhaseMap("phase-map")
