"""Explanations written down: one JSON file, one CSV file, and pictures."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlap.analysis.explanation_words import (
    Answering,
    answer,
    chosen_output,
    explained_quantity,
    output_name,
    prediction_text,
    terms,
)
from mlap.analysis.pictures import explanation_plot, explanation_rows
from mlap.analysis.sketch import MAX_NODES, sketch, symbols_of
from mlap.files import write_whole
from mlap.graphs import GraphSet
from mlap.models.explanation import Explanation
from mlap.plotting import save_plot

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


def explanation_dict(explanation: Explanation, graphs: GraphSet, model: Answering, output: int) -> dict[str, Any]:
    """One graph's explanation for machines. Shares are `[node][level]`, of the logit `output`."""
    shares = None if explanation.shares is None else explanation.shares[:, :, output]
    values = model.values(explanation.logits[None])[0]
    return {
        "graph": explanation.graph,
        "id": None if graphs.ids is None else graphs.ids[explanation.graph],
        "prediction": _numbers(values),
        "answer": answer(model.task, values, output),
        "logits": _numbers(explanation.logits),
        "output": output,
        "output_name": output_name(model.task, output),
        "explained": explained_quantity(model.task, output, values, explanation.logits),
        "logit": float(explanation.logits[output]),
        "bias": None if shares is None else float(explanation.bias[output]),
        "levels": list(explanation.levels),
        "shares": None if shares is None else _numbers(shares),
        "shares_of_levels": None if shares is None else _numbers(shares.sum(axis=0)),
        "shares_of_nodes": None if shares is None else _numbers(shares.sum(axis=1)),
        "terms": dict(terms(explanation, output)),
        "attention": _numbers(explanation.attention),
        "elements": symbols_of(graphs, explanation.graph),
        "residual": None if shares is None else explanation.residual,
        "reason": explanation.reason or None,
    }


def write_explanations(
    explanations: Iterable[Explanation],
    graphs: GraphSet,
    model: Answering,
    out: Path,
    *,
    output: int | None = None,
    rows: Sequence[int] | None = None,
    max_pictures: int = 12,
    numbers: bool = False,
    on_graph: Callable[[dict[str, Any]], None] | None = None,
) -> Written:
    """Write explanations to a folder as they come: `explanations.json`, `explanations.csv` and pictures.

    Args:
        explanations: of graphs of the set, any number of them.
        graphs: the set.
        model: whose explanations they are.
        out: the folder.
        output: which logit to explain; that of the predicted class, or of the first target, unless given.
        rows: the row of the input that each graph of the set is, by which it is called; its own number unless given.
        max_pictures: draw so many of the graphs, the first ones.
        numbers: whether to write the numbers of the nodes into the pictures.
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
                chosen = chosen_output(explanation, model.task, output)
                row_of_input = explanation.graph if rows is None else int(rows[explanation.graph])
                content = {**explanation_dict(explanation, graphs, model, chosen), "graph": row_of_input}
                as_json.write(",\n" if done else "\n")
                as_json.write(json.dumps(content))
                for row in explanation_rows(explanation, chosen, content["elements"]):
                    writer.writerow({**row, "id": content["id"], "graph": row_of_input})
                if len(pictures) < max_pictures:
                    if 0 < explanation.num_nodes <= MAX_NODES:
                        path = out / f"graph-{row_of_input}"
                        draw(explanation, graphs, model, chosen, path, f"{graphs.name} {row_of_input}", numbers)
                        pictures.append(path)
                    else:
                        not_drawn.append(row_of_input)
                done, residual, reason = done + 1, max(residual, explanation.residual), explanation.reason
                if on_graph is not None:
                    on_graph(content)
            as_json.write("\n]\n")

    write_whole(out / JSON, write_json)
    return Written(done, tuple(pictures), tuple(not_drawn), residual, reason)


def draw(
    explanation: Explanation, graphs: GraphSet, model: Answering, output: int, path: Path, name: str, numbers: bool
) -> None:
    """Draw one explained graph to `path` with the endings SVG, PNG and CSV; a molecule is called by its SMILES."""
    identity = None if graphs.ids is None else graphs.ids[explanation.graph]
    title = f"{_short(identity or name)}\n{prediction_text(explanation, model, output)}"
    drawing = sketch(graphs, explanation.graph)
    save_plot(explanation_plot(explanation, drawing, output, title, numbers=numbers), path)


def _short(text: str, longest: int = 90) -> str:
    """A text that fits above a picture."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _numbers(values: Any) -> Any:
    return np.asarray(values, dtype=np.float64).tolist()
