"""Theorems of caron2023: over-parameterised shallow networks with asymmetrical node scaling.

NTG is the neural tangent Gram matrix, the tangent kernel on the training inputs. `kernels` has the mean NTG, its two
parts and its random limit, `start` the statements at t = 0 (section 3, Prop. A.2 and C.1), `first_step` those on the
first movement of features (section 5), `path` those that follow from what was measured along a run (Lemmas D.1, D.2,
D.4), `guarantees` those that are known before a run (Theorems 4.1 and 4.2, Lemmas D.3 and D.5), and `constants` the
numbers. `margins` and `monitor` compare (a)-(d) of the main theorems with any run.
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

if TYPE_CHECKING:
    from unlazy.papers.caron2023.theorems.constants import Guarantee as Guarantee, Margins as Margins
    from unlazy.papers.caron2023.theorems.constants import guarantee as guarantee, margins as margins
    from unlazy.papers.caron2023.theorems.constants import printed_width as printed_width
    from unlazy.papers.caron2023.theorems.first_step import KernelMoves as KernelMoves, WeightsMove as WeightsMove
    from unlazy.papers.caron2023.theorems.first_step import first_kernel_step as first_kernel_step
    from unlazy.papers.caron2023.theorems.first_step import first_weight_step as first_weight_step
    from unlazy.papers.caron2023.theorems.first_step import printed_kernel_step as printed_kernel_step
    from unlazy.papers.caron2023.theorems.guarantees import ReluConverges as ReluConverges
    from unlazy.papers.caron2023.theorems.guarantees import ReluConvergesNearby as ReluConvergesNearby
    from unlazy.papers.caron2023.theorems.guarantees import SmoothConverges as SmoothConverges
    from unlazy.papers.caron2023.theorems.guarantees import SmoothConvergesNearby as SmoothConvergesNearby
    from unlazy.papers.caron2023.theorems.guarantees import monitor as monitor
    from unlazy.papers.caron2023.theorems.kernels import Limit as Limit, Parts as Parts
    from unlazy.papers.caron2023.theorems.kernels import distance_to_limit as distance_to_limit, limit_ntg as limit_ntg
    from unlazy.papers.caron2023.theorems.kernels import mean_ntg as mean_ntg, node_variance as node_variance
    from unlazy.papers.caron2023.theorems.kernels import parts as parts
    from unlazy.papers.caron2023.theorems.kernels import smallest_mean_eigenvalue as smallest_mean_eigenvalue
    from unlazy.papers.caron2023.theorems.path import EigenvalueImpliesDecay as EigenvalueImpliesDecay
    from unlazy.papers.caron2023.theorems.path import ReluKernelStays as ReluKernelStays
    from unlazy.papers.caron2023.theorems.path import SmoothKernelStays as SmoothKernelStays
    from unlazy.papers.caron2023.theorems.start import KernelNearItsLimit as KernelNearItsLimit
    from unlazy.papers.caron2023.theorems.start import KernelVaries as KernelVaries
    from unlazy.papers.caron2023.theorems.start import MeanKernelPositive as MeanKernelPositive, NodeSums as NodeSums
    from unlazy.papers.caron2023.theorems.start import StartConcentrates as StartConcentrates
else:
    __all__, __getattr__, __dir__ = offered_lazily(__name__, __file__)
