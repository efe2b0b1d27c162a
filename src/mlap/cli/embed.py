"""`mlap embed`: graphs as vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    InputArgument,
    ModelPath,
    Quiet,
    SmilesColumn,
    Threads,
    count,
    load_model,
    note,
    one_or_many,
    use_threads,
)
from mlap.progress import steps_bar


def embed(
    model: ModelPath,
    inputs: InputArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .csv or .parquet file.")],
    level: Annotated[
        int | None, typer.Option(min=1, help="A level's vectors instead of the final ones, counted from 1.")
    ] = None,
    smiles_column: SmilesColumn = None,
    threads: Threads = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Write the vectors that a network makes of graphs, one row for each row of the input.

    \b
    Examples:
      mlap embed runs/mine molecules.csv --out vectors.parquet
      mlap embed runs/mine molecules.csv --level 2 --out local.csv
    """
    from mlap.models.merging import check_suffix

    use_threads(threads)
    check_suffix(out, "out")  # before the work, not after it
    with steps_bar(quiet) as progress:
        found = load_model(model, device, quiet).embed(
            one_or_many(inputs), smiles=smiles_column, root=data_root, progress=progress
        )
    found.write(out, level)
    note(f"{count(len(found), 'row')} written to {out}", quiet)
