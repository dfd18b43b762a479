"""Probes: quantities that are measured along a run, such as losses, feature movement and the tangent kernel."""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered
from unlazy.probes.condensation import Alignment as Alignment, Condensation as Condensation
from unlazy.probes.condensation import CosineMatrix as CosineMatrix, InputWeights as InputWeights
from unlazy.probes.condensation import OutgoingWeights as OutgoingWeights, Reduced as Reduced, reduce as reduce
from unlazy.probes.directions import chance as chance, cluster_order as cluster_order, clusters as clusters
from unlazy.probes.directions import condensed as condensed, cosines as cosines, effective_rank as effective_rank
from unlazy.probes.directions import living as living, near_pairs as near_pairs
from unlazy.probes.kernel import DecayRate as DecayRate, Kernel as Kernel, KernelMatrix as KernelMatrix
from unlazy.probes.kernel import MeanSquareSlope as MeanSquareSlope
from unlazy.probes.layer_sizes import LayerSizes as LayerSizes
from unlazy.probes.loss import TestError as TestError, TestLoss as TestLoss, TestOutputs as TestOutputs
from unlazy.probes.loss import TrainError as TrainError, TrainLoss as TrainLoss, TrainOutputs as TrainOutputs
from unlazy.probes.movement import ActiveShare as ActiveShare, FeatureMovement as FeatureMovement
from unlazy.probes.movement import FeaturePair as FeaturePair, TrainedNeurons as TrainedNeurons
from unlazy.probes.movement import WeightMovement as WeightMovement, layers_of as layers_of
from unlazy.probes.observation import Observation as Observation, Probe as Probe, training_kernel as training_kernel
from unlazy.probes.pruning import Importance as Importance, Pruning as Pruning, PruningByScale as PruningByScale
from unlazy.probes.transfer import DenseTransfer as DenseTransfer, Transfer as Transfer

if not TYPE_CHECKING:
    __all__ = offered(__file__)
