"""Data sets, drawn from a law or read from a file.

Everything here makes a ``Dataset``: training inputs and targets, and optionally a test set, a held-out set and sample
weights. The sample axis comes first; a scalar target has shape (n,), k targets (n, k). Whatever is random takes a
``key``, and the same key gives the same bits.

- ``synthetic``: laws from papers. ``random_labels``, ``quadratic_teacher``, ``orthogonal_clusters`` (chen2022);
  ``sphere_sine`` (caron2023); ``cosine``, ``chirp``, ``two_sided_step`` (aiad2026). Not from a paper:
  ``single_index``, whose target depends on one direction.
- ``images``: ``mnist``, ``cifar10``, ``digits``.
- ``tabular``: ``concrete``, ``energy``, ``airfoil``, ``plant``.
- ``files``: your own data, from a table of numbers (``csv``) or an .npz file of NumPy (``npz``).

Files are searched for in the argument ``folder``, then in the folder that the environment variable ``UNLAZY_DATA``
names, then in the cache (``UNLAZY_CACHE``); otherwise they are downloaded. The published SHA-256 is always checked.

To use arrays of your own, make a `Dataset` of them, with class labels as `one_hot` rows where they are needed. To add a
data set, write a function: recipes find every public function, in a public module of this package or of a plug-in, that
is annotated to return a ``Dataset``. `reads` declares which of its options name files.
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered
from unlazy.data._base import DataLike as DataLike, Dataset as Dataset, Source as Source, as_dataset as as_dataset
from unlazy.data._base import one_hot as one_hot, reads as reads, split as split
from unlazy.data.download import at_hand as at_hand
from unlazy.data.files import csv as csv, npz as npz
from unlazy.data.images import cifar10 as cifar10, digits as digits, mnist as mnist
from unlazy.data.synthetic import chirp as chirp, cosine as cosine, orthogonal_clusters as orthogonal_clusters
from unlazy.data.synthetic import quadratic_teacher as quadratic_teacher, random_labels as random_labels
from unlazy.data.synthetic import single_index as single_index, sphere_sine as sphere_sine
from unlazy.data.synthetic import two_sided_step as two_sided_step
from unlazy.data.tabular import airfoil as airfoil, concrete as concrete, energy as energy, plant as plant

if not TYPE_CHECKING:
    __all__ = offered(__file__)
