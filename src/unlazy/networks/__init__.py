"""Networks: functions of a batch that know how fast each of their parameters learns.

Family A is `TwoLayer`: a trained layer on a fixed embedding, under a scaling with width. Family B is `MeanFieldStack`:
blocks of many neurons with narrow ends, whose initial parameters are drawn from laws. Family C is `ConvNet`:
convolutions from small initialisation. A `TangentModel` is the linearisation of any network, and a `TwoLayerLimit` the
limit of infinitely many neurons of family A. `wrap` makes networks from models of other libraries.
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered
from unlazy.networks._base import Chord as Chord, GramForm as GramForm, Network as Network, View as View
from unlazy.networks._base import as_function as as_function, frozen_rates as frozen_rates
from unlazy.networks._base import generic_kernel as generic_kernel, plain_numbers as plain_numbers
from unlazy.networks._base import split_trained as split_trained, traced_numbers as traced_numbers
from unlazy.networks._base import trained_rates as trained_rates, with_fields as with_fields
from unlazy.networks.blocks import Block as Block
from unlazy.networks.conv import ConvNet as ConvNet
from unlazy.networks.embeddings import Anchored as Anchored, Embedding as Embedding, Identity as Identity
from unlazy.networks.embeddings import Infinite as Infinite, Quadratic as Quadratic, RandomLayers as RandomLayers
from unlazy.networks.embeddings import RandomPatches as RandomPatches
from unlazy.networks.foreign.torch_modules import TorchNetwork as TorchNetwork
from unlazy.networks.foreign.wrap import as_network as as_network, wrap as wrap
from unlazy.networks.foreign.wrapped import Wrapped as Wrapped
from unlazy.networks.laws import Constant as Constant, Eye as Eye, Given as Given, Grid as Grid, Law as Law
from unlazy.networks.laws import Normal as Normal, Sphere as Sphere, Tied as Tied, Uniform as Uniform
from unlazy.networks.layers import Layer as Layer
from unlazy.networks.limits import Limit as Limit
from unlazy.networks.linear import Layout as Layout
from unlazy.networks.node_kernels import NodeKernels as NodeKernels
from unlazy.networks.prepared import Batch as Batch, OtherBatch as OtherBatch, Prepared as Prepared
from unlazy.networks.prepared import PreparedInputs as PreparedInputs, Samples as Samples, raw_inputs as raw_inputs
from unlazy.networks.scalings import Asymmetrical as Asymmetrical, FirstNodes as FirstNodes, GivenNodes as GivenNodes
from unlazy.networks.scalings import NodeWeights as NodeWeights, Scaling as Scaling, Zipf as Zipf
from unlazy.networks.scalings import asymmetrical as asymmetrical, mean_field as mean_field
from unlazy.networks.scalings import multilayer_mean_field as multilayer_mean_field, ntk as ntk
from unlazy.networks.stack import MeanFieldStack as MeanFieldStack
from unlazy.networks.tangent import TangentModel as TangentModel
from unlazy.networks.traced_layers import layers_on as layers_on
from unlazy.networks.tracing import TracedLayer as TracedLayer, preactivations as preactivations
from unlazy.networks.tracing import trace_layers as trace_layers
from unlazy.networks.two_layer import TwoLayer as TwoLayer
from unlazy.networks.two_layer_limit import TwoLayerLimit as TwoLayerLimit

if not TYPE_CHECKING:
    __all__ = offered(__file__)
