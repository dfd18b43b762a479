"""Probes: what to look at while a network learns."""

from unlazy.probes._base import Probe
from unlazy.probes.features import FeaturePair
from unlazy.probes.kernel import DecayRate, Kernel, KernelMatrix, training_kernel
from unlazy.probes.loss import TestError, TestLoss, TestOutputs, TrainError, TrainLoss, TrainOutputs
from unlazy.probes.movement import ActiveShare, FeatureMovement, MeanSquareSlope, WeightMovement
from unlazy.probes.pruning import Importance, Pruning
from unlazy.probes.transfer import Transfer

__all__ = [
    "ActiveShare",
    "DecayRate",
    "FeatureMovement",
    "FeaturePair",
    "Importance",
    "Kernel",
    "KernelMatrix",
    "MeanSquareSlope",
    "Probe",
    "Pruning",
    "TestError",
    "TestLoss",
    "TestOutputs",
    "TrainError",
    "TrainLoss",
    "TrainOutputs",
    "Transfer",
    "WeightMovement",
    "training_kernel",
]
