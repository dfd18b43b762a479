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

__all__ = [
    "ActiveShare",
    "Alignment",
    "Condensation",
    "CosineMatrix",
    "DecayRate",
    "FeatureMovement",
    "FeaturePair",
    "Kernel",
    "KernelMatrix",
    "MeanSquareSlope",
    "Probe",
    "Reduced",
    "TestError",
    "TestLoss",
    "TestOutputs",
    "TrainError",
    "TrainLoss",
    "TrainOutputs",
    "WeightMovement",
    "chance",
    "cluster_order",
    "clusters",
    "cosines",
    "effective_rank",
    "reduce",
    "training_kernel",
]
