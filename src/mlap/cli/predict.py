"""`mlap predict`: apply a trained network to graphs."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    Json,
    Quiet,
    SmilesColumn,
    count,
    load_input,
    note,
    print_json,
    resolve_device,
)

if TYPE_CHECKING:
    from mlap.graphs import GraphSet
    from mlap.training import Run


def predict(
    run: Annotated[Path, typer.Argument(help="A run directory that `mlap train` made.", metavar="RUN")],
    inputs: Annotated[
        list[str], typer.Argument(help="A DATASET (a name or a path, e.g. a CSV), or SMILES.", metavar="INPUT…")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A CSV file.  [default: stdout]")] = None,
    smiles_column: SmilesColumn = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict with a trained network, one line per graph.

    Binary tasks give the probability of *yes* for each target, several classes the likeliest class and the
    probability of each, regression the values in the data's own units. Rows with invalid SMILES are left out and named.

    \b
    Examples:
      mlap predict runs/mine new-molecules.csv --out predictions.csv
      mlap predict runs/mine CCO "c1ccccc1O"
    """
    import numpy as np

    from mlap.training import load_run, predict_logits
    from mlap.training.run import check_fits

    trained = load_run(run)
    graphs = load_input(trained, inputs, data_root, smiles_column, quiet or as_json)
    check_fits(trained, graphs)
    device = resolve_device(device)
    logits = predict_logits(trained.network.to(device), graphs, np.arange(len(graphs)), device)
    rows = _rows(trained, graphs, trained.objective.predict(logits))
    if as_json:
        print_json({"run": str(run), "data": graphs.name, "predictions": rows})
    elif out is None:
        _write(rows, sys.stdout)
    else:
        with out.open("w", newline="", encoding="utf-8") as file:
            _write(rows, file)
        note(f"{count(len(rows), 'prediction')} written to {out}", quiet)


def _rows(run: Run, graphs: GraphSet, predictions: Any) -> list[dict[str, Any]]:
    """One row per graph: its name (for molecules the SMILES, else its number) and what is predicted."""
    names = run.task.names or tuple(str(number) for number in range(run.task.num_outputs))
    if run.task.kind == "multiclass":
        columns = [f"p({name})" for name in names]
    elif run.task.names:
        columns = list(names)
    else:
        columns = ["prediction"] if len(names) == 1 else [f"prediction {name}" for name in names]
    rows = []
    for number, values in enumerate(predictions):
        row: dict[str, Any] = {"graph": graphs.ids[number] if graphs.ids is not None else number}
        if run.task.kind == "multiclass":
            row["class"] = names[int(values.argmax())]
        rows.append(row | {column: round(float(value), 6) for column, value in zip(columns, values, strict=True)})
    return rows


def _write(rows: list[dict[str, Any]], file: Any) -> None:
    if rows:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
