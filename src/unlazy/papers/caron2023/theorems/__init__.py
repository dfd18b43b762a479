"""Theorems of caron2023: over-parameterised shallow networks with asymmetrical node scaling.

`kernels` has the mean NTG, its two parts and its random limit, `start` what can be said at t = 0 (section 3, Prop. A.2
and C.1), `first_step` how features begin to move (section 5), `path` what follows along a run from what is measured
(Lemmas D.1, D.2, D.4), `guarantees` what can be said before it (Theorems 4.1 and 4.2, Lemmas D.3 and D.5), and
`constants` the numbers. `margins` and `monitor` hold (a)-(d) of the main theorems against any run.
"""

from unlazy.papers.caron2023.theorems.constants import Guarantee, Margins, guarantee, margins, printed_width
from unlazy.papers.caron2023.theorems.first_step import (
    KernelMoves,
    WeightsMove,
    first_kernel_step,
    first_weight_step,
    printed_kernel_step,
)
from unlazy.papers.caron2023.theorems.guarantees import (
    ReluConverges,
    ReluPathSuffices,
    SmoothConverges,
    SmoothPathSuffices,
    monitor,
)
from unlazy.papers.caron2023.theorems.kernels import (
    Limit,
    Parts,
    distance_to_limit,
    limit_ntg,
    mean_ntg,
    node_variance,
    parts,
    smallest_mean_eigenvalue,
)
from unlazy.papers.caron2023.theorems.path import EigenvalueBringsDecay, ReluKernelStays, SmoothKernelStays
from unlazy.papers.caron2023.theorems.start import (
    KernelNearItsLimit,
    KernelVaries,
    MeanKernelPositive,
    NodeSums,
    StartConcentrates,
)

__all__ = [
    "EigenvalueBringsDecay",
    "Guarantee",
    "KernelMoves",
    "KernelNearItsLimit",
    "KernelVaries",
    "Limit",
    "Margins",
    "MeanKernelPositive",
    "NodeSums",
    "Parts",
    "ReluConverges",
    "ReluKernelStays",
    "ReluPathSuffices",
    "SmoothConverges",
    "SmoothKernelStays",
    "SmoothPathSuffices",
    "StartConcentrates",
    "WeightsMove",
    "distance_to_limit",
    "first_kernel_step",
    "first_weight_step",
    "guarantee",
    "limit_ntg",
    "margins",
    "mean_ntg",
    "monitor",
    "node_variance",
    "parts",
    "printed_kernel_step",
    "printed_width",
    "smallest_mean_eigenvalue",
]
