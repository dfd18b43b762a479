"""Probes: quantities that are measured along a run, such as losses, feature movement and the tangent kernel."""

from unlazy.probes.condensation import (
    Alignment,
    Condensation,
    CosineMatrix,
    InputWeights,
    OutgoingWeights,
    Reduced,
    reduce,
)
from unlazy.probes.directions import (
    chance,
    cluster_order,
    clusters,
    condensed,
    cosines,
    effective_rank,
    living,
    near_pairs,
)
from unlazy.probes.kernel import DecayRate, Kernel, KernelMatrix, MeanSquareSlope
from unlazy.probes.layer_sizes import LayerSizes
from unlazy.probes.loss import TestError, TestLoss, TestOutputs, TrainError, TrainLoss, TrainOutputs
from unlazy.probes.movement import ActiveShare, FeatureMovement, FeaturePair, TrainedNeurons, WeightMovement, layers_of
from unlazy.probes.observation import Observation, Probe, training_kernel
from unlazy.probes.pruning import Importance, Pruning, PruningByScale
from unlazy.probes.transfer import DenseTransfer, Transfer

__all__ = [
    "ActiveShare",
    "Alignment",
    "Condensation",
    "CosineMatrix",
    "DecayRate",
    "DenseTransfer",
    "FeatureMovement",
    "FeaturePair",
    "Importance",
    "InputWeights",
    "Kernel",
    "KernelMatrix",
    "LayerSizes",
    "MeanSquareSlope",
    "Observation",
    "OutgoingWeights",
    "Probe",
    "Pruning",
    "PruningByScale",
    "Reduced",
    "TestError",
    "TestLoss",
    "TestOutputs",
    "TrainError",
    "TrainLoss",
    "TrainOutputs",
    "TrainedNeurons",
    "Transfer",
    "WeightMovement",
    "chance",
    "cluster_order",
    "clusters",
    "condensed",
    "cosines",
    "effective_rank",
    "layers_of",
    "living",
    "near_pairs",
    "reduce",
    "training_kernel",
]
