"""Where runs begin: data sets, drawn from a law or read from a published file.

Everything here makes a ``Dataset``: training inputs and targets, and where there are any a test set, a held-out set and
sample weights. The sample axis comes first; a scalar target has shape (n,), k targets (n, k). What is random takes a
``key``, and the same key gives the same bits.

- ``synthetic``: the laws that papers write down. ``random_labels``, ``quadratic_teacher``, ``orthogonal_clusters``
  (chen2022); ``sphere_sine`` (caron2023); ``cosine``, ``chirp``, ``two_sided_step`` (aiad2026). A law
  of no paper: ``single_index``, whose target depends on one direction.
- ``images``: ``mnist``, ``cifar10``, ``digits``.
- ``tabular``: ``concrete``, ``energy``, ``airfoil``, ``plant``.
- ``files``: your own, from a table of numbers (``csv``) or a file of NumPy (``npz``).

Files are looked for in the argument ``folder``, then in the folder that the environment variable ``UNLAZY_DATA`` names,
then in the cache (``UNLAZY_CACHE``), and are else downloaded; whichever it is, the published SHA-256 is checked.

Arrays of your own are a `Dataset` directly, with class labels as `one_hot` rows where they are needed. Adding a data
set is adding a function: any public one, in a public module of this package or of a plug-in, annotated to return a
``Dataset``, is found by recipes; `reads` says which of its options name files.
"""

from unlazy.data._base import Dataset, Source, as_dataset, one_hot, reads, split
from unlazy.data._download import at_hand
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
