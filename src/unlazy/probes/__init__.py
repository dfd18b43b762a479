"""Probes: what to look at while a network learns."""

from unlazy.probes._base import Probe
from unlazy.probes.condensation import (
    Alignment,
    Condensation,
    CosineMatrix,
    Reduced,
    chance,
    cluster_order,
    clusters,
    cosines,
    effective_rank,
    reduce,
)
from unlazy.probes.features import FeaturePair
from unlazy.probes.kernel import DecayRate, Kernel, KernelMatrix, training_kernel
from unlazy.probes.loss import TestError, TestLoss, TestOutputs, TrainError, TrainLoss, TrainOutputs
from unlazy.probes.movement import ActiveShare, FeatureMovement, MeanSquareSlope, WeightMovement
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
    "Kernel",
    "KernelMatrix",
    "MeanSquareSlope",
    "Probe",
    "Pruning",
    "Reduced",
    "TestError",
    "TestLoss",
    "TestOutputs",
    "TrainError",
    "TrainLoss",
    "TrainOutputs",
    "Transfer",
    "WeightMovement",
    "chance",
    "cluster_order",
    "clusters",
    "cosines",
    "effective_rank",
    "reduce",
    "training_kernel",
]
