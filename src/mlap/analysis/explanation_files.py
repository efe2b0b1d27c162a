"""Explanations written down: one JSON file, one CSV file, and pictures."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlap.analysis.pictures import explanation_plot, explanation_rows, signed
from mlap.analysis.sketch import MAX_NODES, sketch, symbols_of
from mlap.errors import UsageError
from mlap.files import write_whole
from mlap.graphs import GraphSet
from mlap.models.explanation import Explanation
from mlap.plotting import save_plot
from mlap.training import Objective

JSON, CSV = "explanations.json", "explanations.csv"
COLUMNS = ("graph", "id", "node", "element", "level", "output", "attention", "share")


@dataclass(frozen=True)
class Written:
    """What was written.

    Args:
        graphs: how many graphs were explained.
        pictures: the pictures, without their endings.
        not_drawn: graphs that are too large to be drawn.
        residual: the largest difference between a logit and the sum of its bias and shares.
        reason: why there are no shares, or none of single levels; empty if there are.
    """

    graphs: int
    pictures: tuple[Path, ...]
    not_drawn: tuple[int, ...]
    residual: float
    reason: str


def chosen_output(explanation: Explanation, objective: Objective, output: int | None = None) -> int:
    """Which logit to explain: the given one; else that of the predicted class, or of the first target."""
    if output is None:
        return int(explanation.logits.argmax()) if objective.task.kind == "multiclass" else 0
    if not 0 <= output < len(explanation.logits):
        raise UsageError(
            f"there is no output {output}; the network has {len(explanation.logits)}, from 0", field="output"
        )
    return output


def output_name(objective: Objective, output: int) -> str:
    """What a logit is called: its class or target."""
    task = objective.task
    if task.names:
        return task.names[output]
    return f"class {output}" if task.kind == "multiclass" else f"target {output}"


def prediction_text(explanation: Explanation, objective: Objective, output: int) -> str:
    """The prediction in words and, in a second line, the sum that its logit is."""
    value = objective.predict(torch.from_numpy(explanation.logits)[None])[0][output]
    name = output_name(objective, output)
    text = f"{name}: predicted {value:.3g}" if objective.task.kind == "regression" else f"P({name}) = {value:.3f}"
    logit = "logit"
    if objective.task.kind == "regression":  # an ensemble adds up values in the data's own units
        logit = "value" if objective.std is None or np.all(objective.std == 1) else "standardised value"
    text += f"\n{logit} {signed(explanation.logits[output])}"
    if explanation.shares is not None:
        shares = float(explanation.shares[:, :, output].sum())
        terms = "".join(f", {name} {signed(term[output])}" for name, term in explanation.others.items())
        text += f" = bias {signed(explanation.bias[output])}{terms} and shares {signed(shares)}"
    return text


def explanation_dict(explanation: Explanation, graphs: GraphSet, objective: Objective, output: int) -> dict[str, Any]:
    """One graph's explanation for machines. Shares are `[node][level]`, of the logit `output`."""
    shares = None if explanation.shares is None else explanation.shares[:, :, output]
    return {
        "graph": explanation.graph,
        "id": None if graphs.ids is None else graphs.ids[explanation.graph],
        "prediction": _numbers(objective.predict(torch.from_numpy(explanation.logits)[None])[0]),
        "logits": _numbers(explanation.logits),
        "output": output,
        "output_name": output_name(objective, output),
        "logit": float(explanation.logits[output]),
        "bias": None if shares is None else float(explanation.bias[output]),
        "levels": list(explanation.levels),
        "shares": None if shares is None else _numbers(shares),
        "shares_of_levels": None if shares is None else _numbers(shares.sum(axis=0)),
        "shares_of_nodes": None if shares is None else _numbers(shares.sum(axis=1)),
        "others": {name: float(term[output]) for name, term in explanation.others.items()},
        "attention": _numbers(explanation.attention),
        "elements": symbols_of(graphs, explanation.graph),
        "residual": None if shares is None else explanation.residual,
        "reason": explanation.reason or None,
    }


def write_explanations(
    explanations: Iterable[Explanation],
    graphs: GraphSet,
    objective: Objective,
    out: Path,
    *,
    output: int | None = None,
    max_pictures: int = 12,
    on_graph: Callable[[dict[str, Any]], None] | None = None,
) -> Written:
    """Write explanations to a folder as they come: `explanations.json`, `explanations.csv` and pictures.

    Args:
        explanations: of graphs of the set, any number of them.
        graphs: the set.
        objective: what the network's logits mean.
        out: the folder.
        output: which logit to explain; that of the predicted class, or of the first target, unless given.
        max_pictures: draw so many of the graphs, the first ones.
        on_graph: called with each graph's `explanation_dict`.
    """
    out.mkdir(parents=True, exist_ok=True)
    pictures: list[Path] = []
    not_drawn: list[int] = []
    done, residual, reason = 0, 0.0, ""

    def write_json(json_path: Path) -> None:
        write_whole(out / CSV, lambda csv_path: write_both(json_path, csv_path))

    def write_both(json_path: Path, csv_path: Path) -> None:
        nonlocal done, residual, reason
        with (
            json_path.open("w", encoding="utf-8") as as_json,
            csv_path.open("w", encoding="utf-8", newline="") as as_csv,
        ):
            writer = csv.DictWriter(as_csv, COLUMNS, lineterminator="\n")
            writer.writeheader()
            as_json.write("[")
            for explanation in explanations:
                chosen = chosen_output(explanation, objective, output)
                content = explanation_dict(explanation, graphs, objective, chosen)
                as_json.write(",\n" if done else "\n")
                as_json.write(json.dumps(content))
                for row in explanation_rows(explanation, chosen, content["elements"]):
                    writer.writerow({"id": content["id"], **row})
                if len(pictures) < max_pictures:
                    if 0 < explanation.num_nodes <= MAX_NODES:
                        pictures.append(draw(explanation, graphs, objective, chosen, out))
                    else:
                        not_drawn.append(explanation.graph)
                done, residual, reason = done + 1, max(residual, explanation.residual), explanation.reason
                if on_graph is not None:
                    on_graph(content)
            as_json.write("\n]\n")

    write_whole(out / JSON, write_json)
    return Written(done, tuple(pictures), tuple(not_drawn), residual, reason)


def draw(explanation: Explanation, graphs: GraphSet, objective: Objective, output: int, out: Path) -> Path:
    """Draw one explained graph to `out` as SVG and PNG, with its data as CSV; the path without ending."""
    title = f"{graphs.name} {explanation.graph}: {prediction_text(explanation, objective, output)}"
    plot = explanation_plot(explanation, sketch(graphs, explanation.graph), output, title)
    path = out / f"graph-{explanation.graph}"
    save_plot(plot, path)
    return path


def _numbers(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64).tolist()
