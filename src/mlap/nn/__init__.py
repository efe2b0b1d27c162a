"""The mathematics: encoders, backbones, readouts, and the network composed of them."""

from mlap.nn.backbone import NORMS, Backbone, VirtualNode, make_backbone
from mlap.nn.convs import CONVS, GATLayer, GCNLayer, GINLayer
from mlap.nn.dropout import Dropout
from mlap.nn.encoders import CategoryEncoder, ConstantEncoder, RealEncoder, make_encoder
from mlap.nn.join import Concat, Join, Last, LSTMAttention, Max, Projection, Sum, Terms, Weighted
from mlap.nn.level_choice import LevelChoice
from mlap.nn.network import HEADS, GraphNetwork, Trace, graph_network
from mlap.nn.pooling import (
    AttentionPooling,
    AttentionSumPooling,
    GatedSumPooling,
    MaxPooling,
    MeanPooling,
    Pooling,
    SumPooling,
)
from mlap.nn.readout import (
    JumpReadout,
    MultiLevelAttentionPooling,
    Reading,
    make_readout,
)
from mlap.nn.relations import LevelAttention, LevelGate, LevelGRU, RelationalJoin, SparseSum

__all__ = [
    "CONVS",
    "HEADS",
    "NORMS",
    "AttentionPooling",
    "AttentionSumPooling",
    "Backbone",
    "CategoryEncoder",
    "Concat",
    "ConstantEncoder",
    "Dropout",
    "GATLayer",
    "GCNLayer",
    "GINLayer",
    "GatedSumPooling",
    "GraphNetwork",
    "Join",
    "JumpReadout",
    "LSTMAttention",
    "Last",
    "LevelAttention",
    "LevelChoice",
    "LevelGRU",
    "LevelGate",
    "Max",
    "MaxPooling",
    "MeanPooling",
    "MultiLevelAttentionPooling",
    "Pooling",
    "Projection",
    "Reading",
    "RealEncoder",
    "RelationalJoin",
    "SparseSum",
    "Sum",
    "SumPooling",
    "Terms",
    "Trace",
    "VirtualNode",
    "Weighted",
    "graph_network",
    "make_backbone",
    "make_encoder",
    "make_readout",
]
