"""Probes: what to look at while a network learns."""

from unlazy._observation import Observation, training_kernel
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
from unlazy.probes.condensation import (
    Alignment,
    Condensation,
    CosineMatrix,
    InputWeights,
    Reduced,
    chance,
    cluster_order,
    clusters,
    condensed,
    cosines,
    effective_rank,
    living,
    reduce,
)
from unlazy.probes.drive import ChannelDrive
from unlazy.probes.features import FeaturePair
from unlazy.probes.kernel import DecayRate, Kernel, KernelMatrix
from unlazy.probes.loss import TestError, TestLoss, TestOutputs, TrainError, TrainLoss, TrainOutputs
from unlazy.probes.movement import ActiveShare, FeatureMovement, MeanSquareSlope, WeightMovement
from unlazy.probes.pruning import Importance, Pruning
from unlazy.probes.radial import (
    ClipActivity,
    FirstLayer,
    LimitDistance,
    LossDecomposition,
    RadialProfile,
    SecondLayer,
)
from unlazy.probes.transfer import Transfer

__all__ = [
    "ActiveShare",
    "Alignment",
    "BackwardSignals",
    "ChannelDrive",
    "ChannelSpectrum",
    "Channels",
    "ClipActivity",
    "Condensation",
    "CosineMatrix",
    "DecayRate",
    "FeatureMovement",
    "FeaturePair",
    "FirstLayer",
    "Importance",
    "InputWeights",
    "Kernel",
    "KernelMatrix",
    "LimitDistance",
    "LogRatios",
    "LossDecomposition",
    "MeanSquareSlope",
    "Observation",
    "ParameterHistogram",
    "Preactivations",
    "Probe",
    "Pruning",
    "RadialProfile",
    "Reduced",
    "SecondLayer",
    "Spikes",
    "SymmetryDefect",
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
