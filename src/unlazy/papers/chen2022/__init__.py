"""Chen, Vanden-Eijnden, Bruna (2022): On feature learning in neural networks with global convergence guarantees.

One file per experiment: `random_labels` (figures 1 and 5), `embedding` (2 and 6) and `scalings` (3, 4, 7 and 8).
What they share is in `curves`.
"""

from unlazy.papers.chen2022.embedding import AgainstSamples, AgainstSteps
from unlazy.papers.chen2022.random_labels import RandomLabels
from unlazy.papers.chen2022.scalings import FeatureLearning, TestErrors

PAPER = {
    "key": "chen2022",
    "title": "On feature learning in neural networks with global convergence guarantees",
    "authors": "Zhengdao Chen, Eric Vanden-Eijnden, Joan Bruna",
    "venue": "ICLR 2022",
    "about": "A layer trained on fixed features in the mean-field scaling learns features at any width, and its "
    "training loss still converges to zero at a linear rate.",
}

fig1 = RandomLabels(1, wider=True)
fig2 = AgainstSamples()
fig3 = TestErrors()
fig4 = FeatureLearning(4, samples=2)
fig5 = RandomLabels(5, wider=False)
fig6 = AgainstSteps()
fig7 = FeatureLearning(7, samples=1)
fig8 = FeatureLearning(8, samples=3)
