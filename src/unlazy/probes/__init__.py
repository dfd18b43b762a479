"""Probes: quantities that are measured along a run, such as losses, feature movement and the tangent kernel."""

from unlazy._observation import Observation, training_kernel
from unlazy.probes._base import Probe
from unlazy.probes.condensation import (
    Alignment,
    Condensation,
    CosineMatrix,
    InputWeights,
    Reduced,
    condensed,
    reduce,
)
from unlazy.probes.directions import chance, cluster_order, clusters, cosines, effective_rank, living
from unlazy.probes.features import FeaturePair
from unlazy.probes.kernel import DecayRate, Kernel, KernelMatrix
from unlazy.probes.loss import TestError, TestLoss, TestOutputs, TrainError, TrainLoss, TrainOutputs
from unlazy.probes.movement import ActiveShare, FeatureMovement, MeanSquareSlope, TrainedNeurons, WeightMovement
from unlazy.probes.pruning import Importance, Pruning
from unlazy.probes.transfer import Transfer

__all__ = [
    "ActiveShare",
    "Alignment",
    "Condensation",
    "CosineMatrix",
    "DecayRate",
    "FeatureMovement",
    "FeaturePair",
    "Importance",
    "InputWeights",
    "Kernel",
    "KernelMatrix",
    "MeanSquareSlope",
    "Observation",
    "Probe",
    "Pruning",
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
    "living",
    "reduce",
    "training_kernel",
]
