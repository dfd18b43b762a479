"""Theorems of caron2023: over-parameterised shallow networks with asymmetrical node scaling.

NTG is the neural tangent Gram matrix, the tangent kernel on the training inputs. `kernels` has the mean NTG, its two
parts and its random limit, `start` the statements at t = 0 (section 3, Prop. A.2 and C.1), `first_step` those on the
first movement of features (section 5), `path` those that follow from what was measured along a run (Lemmas D.1, D.2,
D.4), `guarantees` those that are known before a run (Theorems 4.1 and 4.2, Lemmas D.3 and D.5), and `constants` the
numbers. `margins` and `monitor` compare (a)-(d) of the main theorems with any run.
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
    ReluConvergesNearby,
    SmoothConverges,
    SmoothConvergesNearby,
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
from unlazy.papers.caron2023.theorems.path import EigenvalueImpliesDecay, ReluKernelStays, SmoothKernelStays
from unlazy.papers.caron2023.theorems.start import (
    KernelNearItsLimit,
    KernelVaries,
    MeanKernelPositive,
    NodeSums,
    StartConcentrates,
)

__all__ = [
    "EigenvalueImpliesDecay",
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
    "ReluConvergesNearby",
    "ReluKernelStays",
    "SmoothConverges",
    "SmoothConvergesNearby",
    "SmoothKernelStays",
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
