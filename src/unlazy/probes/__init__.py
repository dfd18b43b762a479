"""Probes: what to look at while a network learns."""

from unlazy.probes._base import Probe
from unlazy.probes.channels import (
    BackwardSignals,
    Channels,
    ChannelSpectrum,
    LogRatios,
    ParameterHistogram,
    Preactivations,
    Spikes,
    SymmetryDefect,
    TrainedNeurons,
)
from unlazy.probes.features import FeaturePair
from unlazy.probes.kernel import DecayRate, Kernel, KernelMatrix, training_kernel
from unlazy.probes.loss import TestError, TestLoss, TestOutputs, TrainError, TrainLoss, TrainOutputs
from unlazy.probes.movement import ActiveShare, FeatureMovement, MeanSquareSlope, WeightMovement

__all__ = [
    "ActiveShare",
    "BackwardSignals",
    "ChannelSpectrum",
    "Channels",
    "DecayRate",
    "FeatureMovement",
    "FeaturePair",
    "Kernel",
    "KernelMatrix",
    "LogRatios",
    "MeanSquareSlope",
    "ParameterHistogram",
    "Preactivations",
    "Probe",
    "Spikes",
    "SymmetryDefect",
    "TestError",
    "TestLoss",
    "TestOutputs",
    "TrainError",
    "TrainLoss",
    "TrainOutputs",
    "TrainedNeurons",
    "WeightMovement",
    "training_kernel",
]
