"""Networks: functions of a batch that know how fast each of their parameters learns.

Family A is `TwoLayer`: a trained layer on an embedding, under a scaling, both of which are values to write down. Family
B is `MeanFieldStack`: blocks of many neurons with narrow ends, whose parameters start from laws. Family C is `ConvNet`:
convolutions from small initialisation. A `TangentModel` is the linearisation of any network, and a `TwoLayerLimit` the
limit of infinitely many neurons of family A. `wrap` makes networks of models of other libraries.
"""

from unlazy.networks._base import (
    Chord,
    GramForm,
    Network,
    View,
    as_function,
    frozen_rates,
    generic_kernel,
    plain_numbers,
    split_trained,
    traced_numbers,
    trained_rates,
    with_fields,
)
from unlazy.networks.blocks import Block
from unlazy.networks.conv import ConvNet
from unlazy.networks.embeddings import Anchored, Embedding, Identity, Infinite, Quadratic, RandomLayers, RandomPatches
from unlazy.networks.foreign.torch_modules import TorchNetwork
from unlazy.networks.foreign.wrap import as_network, wrap
from unlazy.networks.foreign.wrapped import Wrapped
from unlazy.networks.laws import Constant, Eye, Given, Grid, Law, Normal, Sphere, Tied, Uniform
from unlazy.networks.layers import Layer
from unlazy.networks.limits import Limit
from unlazy.networks.linear import Layout
from unlazy.networks.node_kernels import NodeKernels
from unlazy.networks.prepared import Batch, OtherBatch, Prepared, PreparedInputs, Samples, raw_inputs
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
from unlazy.networks.traced_layers import layers_on
from unlazy.networks.tracing import TracedLayer, preactivations, trace_layers
from unlazy.networks.two_layer import TwoLayer
from unlazy.networks.two_layer_limit import TwoLayerLimit

__all__ = [
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
    "NodeKernels",
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
    "TangentModel",
    "Tied",
    "TorchNetwork",
    "TracedLayer",
    "TwoLayer",
    "TwoLayerLimit",
    "Uniform",
    "View",
    "Wrapped",
    "Zipf",
    "as_function",
    "as_network",
    "asymmetrical",
    "frozen_rates",
    "generic_kernel",
    "layers_on",
    "mean_field",
    "multilayer_mean_field",
    "ntk",
    "plain_numbers",
    "preactivations",
    "raw_inputs",
    "split_trained",
    "trace_layers",
    "traced_numbers",
    "trained_rates",
    "with_fields",
    "wrap",
]
