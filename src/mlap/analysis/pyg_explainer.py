"""Exact shares for PyTorch Geometric's `Explainer`, beside GNNExplainer, PGExplainer and Captum."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain import ExplainerAlgorithm, Explanation
from torch_geometric.explain.config import MaskType, ModelMode, ModelReturnType, ModelTaskLevel

from mlap.errors import UsageError
from mlap.models.explanation import decompose
from mlap.nn import GraphNetwork
from mlap.nn.batch import graphs_of


class ExactShares(ExplainerAlgorithm):  # type: ignore[misc]
    r"""What every node adds to the logit of a `GraphNetwork`; nothing is trained, sampled or approximated.

    The `Explanation` has, for N nodes and S levels:

    - `node_mask` `(N, 1)`: the share of each node, all levels together; negative where it speaks against;
    - `level_shares` `(N, S)`: the share of each node at each of `levels`, or one column if there are none of levels;
    - `rest` `(B,)`: the bias, and what features of whole graphs add.

    For each graph, `rest` and the shares of its nodes add up to its logit. For several classes it is the logit of the
    class that is explained, `target`; in binary classification it is that of the positive class, whichever is.

    Args:
        output: which logit, where there are several and they are not classes.

    Example:
        >>> import torch
        >>> from torch_geometric.explain import Explainer
        >>> from mlap.nn import graph_network
        >>> network = graph_network(num_layers=2, channels=8, out_channels=3, nodes=4)
        >>> config = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
        >>> explainer = Explainer(
        ...     network, ExactShares(), explanation_type="model", node_mask_type="object", model_config=config
        ... )
        >>> x, edge_index = torch.randn(3, 4), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> explanation = explainer(x, edge_index)
        >>> logit = explanation.prediction.max()
        >>> bool(torch.isclose(explanation.node_mask.sum() + explanation.rest[0], logit, atol=1e-6))
        True
    """

    def __init__(self, output: int | None = None) -> None:
        super().__init__()
        self.output = output

    def forward(
        self,
        model: nn.Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> Explanation:
        """Explain graphs; those that `index` does not name have shares of zero."""
        if not isinstance(model, GraphNetwork):
            raise UsageError(f"exact shares are those of a GraphNetwork, got {type(model).__name__}")
        g = graphs_of(x, edge_index, **kwargs)
        with torch.no_grad():
            found = decompose(model, g)
        if found.shares is None:
            raise UsageError(f"this network has no exact shares: {found.reason}")
        outputs = self._outputs(target, found.logits)
        shares = found.shares.gather(2, outputs[g.index].view(-1, 1, 1).expand(-1, found.shares.size(1), 1)).squeeze(2)
        rest = found.bias if found.graph_share is None else found.bias + found.graph_share
        if index is not None:
            wanted = torch.zeros(g.dim_size, dtype=torch.bool, device=shares.device)
            wanted[index] = True
            shares = shares * wanted[g.index].unsqueeze(1)
        return Explanation(
            node_mask=shares.sum(dim=1, keepdim=True),
            level_shares=shares,
            levels=found.levels,
            rest=rest.expand_as(found.logits).gather(1, outputs.unsqueeze(1)).squeeze(1),
        )

    def _outputs(self, target: Tensor, logits: Tensor) -> Tensor:
        """Which logit of each graph is explained `(B,)`."""
        if self.output is None and self.model_config.mode == ModelMode.multiclass_classification:
            return target.long().view(-1)
        if self.output is None and logits.size(1) > 1:
            raise UsageError(
                f"the network has {logits.size(1)} outputs: {{field}} says which to explain", "output", "0"
            )
        return torch.full_like(logits[:, 0], self.output or 0, dtype=torch.long)

    def supports(self) -> bool:
        """Whether the settings are such that there are exact shares; else the reason is logged, as PyG does."""
        for wrong, expected in (
            (self.model_config.task_level != ModelTaskLevel.graph, "task_level 'graph'"),
            (self.model_config.return_type != ModelReturnType.raw, "return_type 'raw', for shares of logits"),
            (self.explainer_config.node_mask_type != MaskType.object, "node_mask_type 'object'"),
            (self.explainer_config.edge_mask_type is not None, "no edge_mask_type: shares are of nodes"),
        ):
            if wrong:
                logging.error("'%s' expects %s", type(self).__name__, expected)
                return False
        return True
