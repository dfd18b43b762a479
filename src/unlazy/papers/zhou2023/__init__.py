"""Zhou, Zhou, Li, Xu (2023): Understanding the initial condensation of convolutional neural networks.

One file per experiment: `deep` (figures 2, 3, 5, 8, 9 and 11), `two_layers` (4, 6, 10, 12 and 13), `spectrum` (7 and
14) and `losses` (15); beyond the paper `prediction`, `channels`, `phase` and `multiplicity`. What they share is in
`condensation` and `claims`.
"""

from unlazy.papers.zhou2023.channels import AgainstWidth
from unlazy.papers.zhou2023.deep import CLASSIFIER, DIGITS, NUMBERS, PRINTED, PROBABILITIES, Accuracy, ThreeLayers
from unlazy.papers.zhou2023.losses import Losses
from unlazy.papers.zhou2023.multiplicity import Multiplicity
from unlazy.papers.zhou2023.phase import PhaseMap
from unlazy.papers.zhou2023.prediction import PredictedTime
from unlazy.papers.zhou2023.spectrum import Spectrum
from unlazy.papers.zhou2023.two_layers import Activations, GradientDescent

PAPER = {
    "key": "zhou2023",
    "title": "Understanding the initial condensation of convolutional neural networks",
    "authors": "Zhangchen Zhou, Hanxu Zhou, Yuqing Li, Zhi-Qin John Xu",
    "venue": "CSIAM Transactions on Applied Mathematics 2025 (arXiv 2023)",
    "about": "Trained from small weights, the kernels of a convolutional layer soon lie along one or two directions, "
    "which for two layers can be computed before training.",
}

fig2 = ThreeLayers(2, "cross-entropy, after training", CLASSIFIER, quick=1200, paper=3000, lines=None)
fig3 = ThreeLayers(3, "cross-entropy, initial stage", CLASSIFIER, quick=60, paper=300, lines=(2, 1, 1), control=True)
fig4 = Activations(4, "cifar10")
fig5 = ThreeLayers(5, "squared error with softmax", PROBABILITIES, quick=150, paper=400, printed=PRINTED)
fig6 = GradientDescent(6, "cifar10", quick=100, channels=32, steps=4500, gamma=4.0)
fig7 = Spectrum(7, "cifar10")
fig8 = Accuracy()
fig9 = ThreeLayers(9, "squared error of class numbers", NUMBERS, quick=50, paper=200)
fig10 = Activations(10, "mnist")
fig11 = ThreeLayers(11, "squared error on digits", DIGITS, quick=40, paper=100, weaker=None)
fig12 = GradientDescent(12, "mnist", quick=100, channels=32, steps=3600, demo=True)
fig13 = GradientDescent(13, "mnist", quick=50, channels=320, steps=7000, control=False)
fig14 = Spectrum(14, "mnist")
fig15 = Losses((fig2, fig4, fig5, fig6, fig9, fig10, fig11, fig12, fig13))
predicted_time = PredictedTime()
theorem_1 = AgainstWidth()
phase_map = PhaseMap()
directions = Multiplicity()
