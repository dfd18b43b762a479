"""Chen, Vanden-Eijnden, Bruna (2022): On feature learning in neural networks with global convergence guarantees.

One file an experiment: `random_labels` (figures 1 and 5), `embedding` (2 and 6) and `scalings` (3, 4, 7 and 8).
"""

from unlazy.papers.chen2022.embedding import AgainstSamples, AgainstSteps
from unlazy.papers.chen2022.random_labels import RandomLabels
from unlazy.papers.chen2022.scalings import FeatureLearning, TestErrors

PAPER = {
    "key": "chen2022",
    "title": "On feature learning in neural networks with global convergence guarantees",
    "authors": "Zhengdao Chen, Eric Vanden-Eijnden, Joan Bruna",
    "venue": "ICLR 2022",
}

fig1 = RandomLabels("fig1", wider=True)
fig2 = AgainstSamples("fig2")
fig3 = TestErrors("fig3")
fig4 = FeatureLearning("fig4", samples=2)
fig5 = RandomLabels("fig5", wider=False)
fig6 = AgainstSteps("fig6")
fig7 = FeatureLearning("fig7", samples=1)
fig8 = FeatureLearning("fig8", samples=3)
