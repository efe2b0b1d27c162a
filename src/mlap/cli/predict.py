"""`mlap predict`: apply a model to graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    InputArgument,
    Json,
    ModelPath,
    Quiet,
    SmilesColumn,
    Threads,
    count,
    note,
    one_or_many,
    print_json,
    use_threads,
)
from mlap.progress import steps_bar


def predict(
    model: ModelPath,
    inputs: InputArgument,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A CSV file.  [default: stdout]")] = None,
    drop_extra_columns: Annotated[
        bool, typer.Option("--drop-extra-columns", help="Leave out the input's own columns.")
    ] = False,
    confidence: Annotated[
        float | None,
        typer.Option(
            metavar="0.9", help="Add sets of classes, or intervals, that hold the truth this often. Calibrated models."
        ),
    ] = None,
    smiles_column: SmilesColumn = None,
    threads: Threads = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict one row for each row of the input, in its order.

    The input's own columns are kept. Binary targets get the predicted class and the probability of the positive one,
    several classes the likeliest class and the probability of each, regression the value in the data's own units. A
    row that cannot be read stays, and its column `error` says why.

    \b
    Examples:
      mlap predict runs/mine new-molecules.csv --out predictions.csv
      mlap predict runs/mine CCO "c1ccccc1O"
      cat new.csv | mlap predict runs/mine - > predictions.csv
    """
    from mlap.models import load

    use_threads(threads)
    silent = quiet or as_json
    with steps_bar(silent) as progress:
        loaded = load(model, device)
        predictions = loaded.predict(
            one_or_many(inputs), smiles=smiles_column, root=data_root, confidence=confidence, progress=progress
        )
    if confidence is not None and loaded.calibrated is not None:
        for text in loaded.calibrated.warnings(loaded.task, confidence):
            note(f"note: {text}", silent)
    if as_json:
        print_json({"model": str(model), "predictions": predictions.rows(not drop_extra_columns)})
    else:
        predictions.to_csv("-" if out is None else out, extra_columns=not drop_extra_columns)
    if out is not None:
        note(f"{count(len(predictions), 'row')} written to {out}", silent)
    if predictions.invalid:
        row, reason = next(iter(predictions.invalid.items()))
        note(f"{count(len(predictions.invalid), 'row')} could not be read; the first is row {row}: {reason}", silent)
