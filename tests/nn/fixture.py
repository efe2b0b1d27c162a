"""What networks compute, in numbers few enough to keep: the fixture of `test_fixture.py`.

`python tests/nn/fixture.py` writes `fixture.json` anew. It was last made before joins and poolings became open parts,
and is not to be made again unless a change of results is wanted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from samples import graph_set, shake, whole_batch

from mlap.graphs import synthetic
from mlap.nn import graph_network
from mlap.training import Recipe, train

PATH = Path(__file__).with_name("fixture.json")
NAMES = ("naive", "jk-sum", "jk-concat", "jk-max", "jk-lstm", "mlap-sum", "mlap-weighted")
NAMES += ("jk-weighted", "mlap-concat", "mlap-max", "mlap-lstm", "jk-linear", "mlap-linear")
FEATURES: dict[str, Any] = {"categories": ((3, 2, 4), (2, 3)), "none": (None, None), "reals": (2, 3)}


def cases() -> Iterator[dict[str, Any]]:
    """Every architecture × norm × depth; other backbones, features and the residual connection for some."""
    common = {"backbone": "gin", "residual": False, "features": "categories"}
    for architecture in NAMES:
        for norm in ("none", "graph", "batch", "layer", "pair"):
            for layers in (1, 2, 4):
                yield {"architecture": architecture, "norm": norm, "layers": layers, **common}
    for architecture in ("naive", "mlap-weighted"):
        for backbone in ("gin", "gcn", "gat"):
            for features in FEATURES:
                case = {"architecture": architecture, "norm": "graph", "layers": 3}
                yield {**case, "backbone": backbone, "residual": True, "features": features}


def key(case: dict[str, Any]) -> str:
    """One line of text for a case."""
    return " ".join(map(str, case.values()))


def computed(case: dict[str, Any]) -> list[float]:
    """Logits in training and evaluation, and a sum over all gradients, of a network drawn with seed 1."""
    nodes, edges = FEATURES[case["features"]]
    torch.manual_seed(1)
    network = graph_network(
        case["architecture"],
        num_layers=case["layers"],
        channels=4,
        out_channels=2,
        nodes=nodes,
        edges=edges,
        backbone=case["backbone"],
        norm=case["norm"],
        dropout=0.3,
        residual=case["residual"],
    ).double()
    drawn = sum(float(p.detach().abs().sum()) for p in network.parameters())
    for part in (network.encoder, network.backbone, network.head):  # not the readout, whose names may change
        shake(part)
    batch = whole_batch(graph_set(nodes, edges))
    logits = network(batch)
    weights = torch.arange(1.0, 1 + logits.numel(), dtype=torch.double).view_as(logits)
    (logits * weights).cos().sum().backward()
    gradient = sum(float(p.grad.pow(2).sum()) for p in network.parameters() if p.grad is not None)
    network.eval()
    with torch.no_grad():
        answers = network(batch)
    return [drawn, *logits.flatten().tolist(), math.sqrt(gradient), *answers.flatten().tolist()]


def history(architecture: str) -> list[float]:
    """The losses and the validation score of a short training."""
    recipe = Recipe(architecture=architecture, layers=3, width=8, epochs=3, batch_size=9, norm="graph")
    trained = train(recipe, synthetic(graphs_per_class=6))
    return [*(epoch.train_loss for epoch in trained.history), trained.result.valid_score]


def main() -> None:
    """Write the fixture."""
    torch.set_num_threads(1)
    made = {
        "computed": {key(case): [float(f"{value:.12g}") for value in computed(case)] for case in cases()},
        "history": {name: history(name) for name in NAMES},
    }
    lines = [
        f'"{part}": {{\n' + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()) + "\n}"
        for part, rows in made.items()
    ]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
