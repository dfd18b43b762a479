"""Probes: what to look at while a network learns."""

from unlazy.probes._base import Probe
from unlazy.probes.features import FeaturePair
from unlazy.probes.kernel import DecayRate, Kernel, KernelMatrix, training_kernel
from unlazy.probes.loss import TestError, TestLoss, TestOutputs, TrainError, TrainLoss, TrainOutputs
from unlazy.probes.movement import ActiveShare, FeatureMovement, MeanSquareSlope, WeightMovement

__all__ = [
    "ActiveShare",
    "DecayRate",
    "FeatureMovement",
    "FeaturePair",
    "Kernel",
    "KernelMatrix",
    "MeanSquareSlope",
    "Probe",
    "TestError",
    "TestLoss",
    "TestOutputs",
    "TrainError",
    "TrainLoss",
    "TrainOutputs",
    "WeightMovement",
    "training_kernel",
]
