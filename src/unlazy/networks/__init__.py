"""Networks: functions of a batch that know how fast each of their parameters learns.

Family A is `TwoLayer`: a trained layer on an embedding, under a scaling, both of which are values to write down. Family
B is `MeanFieldStack`: blocks of many neurons with narrow ends, whose parameters start from laws. Family C is `ConvNet`:
convolutions from small initialisation. A `TangentModel` is the linearisation of any network.
"""

from unlazy.networks._base import (
    Chord,
    GramForm,
    Network,
    View,
    frozen_rates,
    jacobian_kernel,
    split_trained,
    trained_rates,
    with_fields,
)
from unlazy.networks._learner import SphericalLimit, is_learner, pulls, shares, slope_of, slopes, sphere_mean
from unlazy.networks._prepared import Batch, OtherBatch, Prepared, PreparedInputs, Samples, raw_inputs
from unlazy.networks.blocks import Block, Limit, kernel_of, lengths
from unlazy.networks.conv import ConvNet
from unlazy.networks.embeddings import Anchored, Embedding, Identity, Infinite, Quadratic, RandomLayers, RandomPatches
from unlazy.networks.laws import Constant, Eye, Given, Grid, Law, Normal, Sphere, Tied, Uniform
from unlazy.networks.layers import Layer, nested_sums
from unlazy.networks.linear import AXIS, Layout
from unlazy.networks.scalings import (
    Asymmetrical,
    FirstNodes,
    GivenNodes,
    NodeWeights,
    Scaling,
    Zipf,
    asymmetrical,
    mean_field,
    multilayer_mean_field,
    ntk,
)
from unlazy.networks.stack import MeanFieldStack
from unlazy.networks.tangent import TangentModel
from unlazy.networks.two_layer import TwoLayer

__all__ = [
    "AXIS",
    "Anchored",
    "Asymmetrical",
    "Batch",
    "Block",
    "Chord",
    "Constant",
    "ConvNet",
    "Embedding",
    "Eye",
    "FirstNodes",
    "Given",
    "GivenNodes",
    "GramForm",
    "Grid",
    "Identity",
    "Infinite",
    "Law",
    "Layer",
    "Layout",
    "Limit",
    "MeanFieldStack",
    "Network",
    "NodeWeights",
    "Normal",
    "OtherBatch",
    "Prepared",
    "PreparedInputs",
    "Quadratic",
    "RandomLayers",
    "RandomPatches",
    "Samples",
    "Scaling",
    "Sphere",
    "SphericalLimit",
    "TangentModel",
    "Tied",
    "TwoLayer",
    "Uniform",
    "View",
    "Zipf",
    "asymmetrical",
    "frozen_rates",
    "is_learner",
    "jacobian_kernel",
    "kernel_of",
    "lengths",
    "mean_field",
    "multilayer_mean_field",
    "nested_sums",
    "ntk",
    "pulls",
    "raw_inputs",
    "shares",
    "slope_of",
    "slopes",
    "sphere_mean",
    "split_trained",
    "trained_rates",
    "with_fields",
]
