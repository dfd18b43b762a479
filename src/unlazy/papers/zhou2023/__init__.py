"""Zhou, Zhou, Li, Xu (2023): Understanding the initial condensation of convolutional neural networks.

One file per experiment: `deep` (figures 2, 3, 5, 8, 9 and 11), `activations` (4 and 10), `descent` (6, 12 and 13),
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
    "about": "Trained from small weights, the kernels of a convolutional layer soon lie along one or two directions, "
    "which for two layers can be computed before training.",
}

_END: Shown = {scale: one.steps[-1] for scale, one in CLASSIFIER.items()}


def _at(quick: int, paper: int) -> Shown:
    """Give the step that is shown at each scale."""
    return {"quick": quick, "paper": paper}


fig2 = ThreeLayers(2, "cross-entropy, after training", CLASSIFIER, _END, lines=None)
fig3 = ThreeLayers(3, "cross-entropy, initial stage", CLASSIFIER, _at(60, 300), lines=2, control=True)
fig4 = Activations(4, "cifar10")
fig5 = ThreeLayers(5, "squared error with softmax", PROBABILITIES, _at(150, 400), lines=2, printed=PRINTED)
fig6 = GradientDescent(6, COLOURS)
fig7 = Spectrum(7, "cifar10")
fig8 = Accuracy()
fig9 = ThreeLayers(9, "squared error of class numbers", NUMBERS, _at(50, 200), lines=2)
fig10 = Activations(10, "mnist")
fig11 = ThreeLayers(11, "squared error on digits", DIGITS, _at(40, 100), lines=1)
fig12 = GradientDescent(12, FEW, demo=True)
fig13 = GradientDescent(13, WIDE, control=False)
fig14 = Spectrum(14, "mnist")
fig15 = Losses((fig2, fig4, fig5, fig6, fig9, fig10, fig11, fig12, fig13))
predicted_time = PredictedTime()
theorem_1 = AgainstWidth()
phase_map = PhaseMap()
