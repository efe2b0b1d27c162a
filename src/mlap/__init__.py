"""Multi-level attention pooling for graph classification.

The public names are loaded when they are first used, so that importing `mlap` does not load torch.

>>> import mlap
>>> graphs = mlap.synthetic(graphs_per_class=10)
>>> run = mlap.train(graphs, architecture="mlap-sum", layers=2, width=8, epochs=1)
>>> run.result.metric
'error_rate'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mlap.errors import DataError, MlapError, UsageError
    from mlap.estimator import MLAPClassifier, MLAPRegressor
    from mlap.graphs import Features, GraphBatch, GraphSet, Task, from_networkx, from_pyg, load_graphs, synthetic
    from mlap.models import Baseline, Ensemble, Evaluation, Model, Predictions, Run, load, train
    from mlap.nn import GraphNetwork, MultiLevelAttentionPooling, Trace, graph_network
    from mlap.study import train_ensemble
    from mlap.training import Recipe, Scores

#: public name → the room it lives in
_ROOMS = {
    "Baseline": "models",
    "DataError": "errors",
    "Ensemble": "models",
    "Evaluation": "models",
    "Features": "graphs",
    "GraphBatch": "graphs",
    "GraphNetwork": "nn",
    "GraphSet": "graphs",
    "MLAPClassifier": "estimator",
    "MLAPRegressor": "estimator",
    "MlapError": "errors",
    "Model": "models",
    "MultiLevelAttentionPooling": "nn",
    "Predictions": "models",
    "Recipe": "training",
    "Run": "models",
    "Scores": "training",
    "Task": "graphs",
    "Trace": "nn",
    "UsageError": "errors",
    "from_networkx": "graphs",
    "from_pyg": "graphs",
    "graph_network": "nn",
    "load_graphs": "graphs",
    "load": "models",
    "synthetic": "graphs",
    "train": "models",
    "train_ensemble": "study",
}

__all__ = [*_ROOMS, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'mlap' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mlap.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
