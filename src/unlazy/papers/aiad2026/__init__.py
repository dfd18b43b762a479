"""Aiad, Yang, Zhang (2026): low-rank structure is sufficient for global convergence: a mean-field perspective.

One file per experiment: `comparison` (figure 2), `toy` (3 and 4), `logratios` (5 and 6), `prediction` (7), `symmetry`
(8 and 9), `density` (10), `mnist` (table 1), `width` (Theorem 2.3, measured), `collapse` (Remark 2.1, measured) and
`benchmark` (appendix I). `setting` has what they share.
"""

from unlazy.papers.aiad2026.benchmark import Benchmark
from unlazy.papers.aiad2026.collapse import Collapse
from unlazy.papers.aiad2026.comparison import LowAgainstFull
from unlazy.papers.aiad2026.density import Weights
from unlazy.papers.aiad2026.logratios import AllPairs, Largest
from unlazy.papers.aiad2026.mnist import Digits
from unlazy.papers.aiad2026.prediction import Prediction
from unlazy.papers.aiad2026.symmetry import Asymmetric, Symmetric
from unlazy.papers.aiad2026.toy import ChannelsInTime, TwoSidedStep
from unlazy.papers.aiad2026.width import AgainstWidth

PAPER = {
    "key": "aiad2026",
    "title": "Low-rank neural network structure is sufficient for global convergence: a mean-field perspective",
    "authors": "Janis Aiad, Haizhao Yang, Shijun Zhang",
    "venue": "preprint, 2026",
    "about": "Wide layers linked by few channels, with frozen random inner weights, follow a mean-field limit in which "
    "training converges globally.",
}

fig2 = LowAgainstFull()
fig3 = ChannelsInTime()
fig4 = TwoSidedStep()
fig5 = Largest()
fig6 = AllPairs()
fig7 = Prediction()
fig8 = Asymmetric()
fig9 = Symmetric()
fig10 = Weights()
table1 = Digits()
distance = AgainstWidth()
collapse_of_full_rank = Collapse()
frequencies = Benchmark()
