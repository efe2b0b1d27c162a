"""The mathematics: encoders, backbones, readouts, and the network composed of them."""

from mlap.nn.backbone import NORMS, Backbone, make_backbone
from mlap.nn.convs import CONVS, GATLayer, GCNLayer, GINLayer
from mlap.nn.dropout import Dropout
from mlap.nn.encoders import CategoryEncoder, ConstantEncoder, RealEncoder, make_encoder
from mlap.nn.join import JOINS, Last, Max, Projection, Sum, Weighted
from mlap.nn.network import GraphNetwork, Trace, graph_network
from mlap.nn.pooling import AttentionPooling
from mlap.nn.readout import (
    JumpReadout,
    MultiLevelAttentionPooling,
    make_readout,
)

__all__ = [
    "CONVS",
    "JOINS",
    "NORMS",
    "AttentionPooling",
    "Backbone",
    "CategoryEncoder",
    "ConstantEncoder",
    "Dropout",
    "GATLayer",
    "GCNLayer",
    "GINLayer",
    "GraphNetwork",
    "JumpReadout",
    "Last",
    "Max",
    "MultiLevelAttentionPooling",
    "Projection",
    "RealEncoder",
    "Sum",
    "Trace",
    "Weighted",
    "graph_network",
    "make_backbone",
    "make_encoder",
    "make_readout",
]
