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

from unlazy.data._base import DataLike, Dataset, Source, as_dataset, one_hot, reads, split
from unlazy.data.download import at_hand
from unlazy.data.files import csv, npz
from unlazy.data.images import cifar10, digits, mnist
from unlazy.data.synthetic import (
    chirp,
    cosine,
    orthogonal_clusters,
    quadratic_teacher,
    random_labels,
    single_index,
    sphere_sine,
    two_sided_step,
)
from unlazy.data.tabular import airfoil, concrete, energy, plant

__all__ = [
    "DataLike",
    "Dataset",
    "Source",
    "airfoil",
    "as_dataset",
    "at_hand",
    "chirp",
    "cifar10",
    "concrete",
    "cosine",
    "csv",
    "digits",
    "energy",
    "mnist",
    "npz",
    "one_hot",
    "orthogonal_clusters",
    "plant",
    "quadratic_teacher",
    "random_labels",
    "reads",
    "single_index",
    "sphere_sine",
    "split",
    "two_sided_step",
]
