"""`mlap predict`: apply a model to graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    InputArgument,
    Json,
    ModelPath,
    Quiet,
    SmilesColumn,
    count,
    load_model,
    note,
    one_or_many,
    print_json,
    use_threads,
)
from mlap.errors import UsageError, unknown
from mlap.machines import usable_cores
from mlap.progress import rows_bar

if TYPE_CHECKING:
    from mlap.models.shards import Engine, Summary

ENGINES = ("local", "ray")


def predict(
    model: ModelPath,
    inputs: InputArgument,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="A .csv or .parquet file, or a folder of shards for large tables.  [default: stdout]"
        ),
    ] = None,
    merge: Annotated[
        Path | None, typer.Option(help="Put the shards together in this .csv or .parquet file, too.")
    ] = None,
    shard_rows: Annotated[int, typer.Option(min=1, help="Rows of a shard.")] = 20_000,
    engine: Annotated[str, typer.Option(metavar="local|ray", help="Where shards are predicted.")] = "local",
    address: Annotated[
        str,
        typer.Option(
            metavar="auto|local|ray://HOST:PORT", help="The Ray cluster.  [default: this machine's, or $RAY_ADDRESS]"
        ),
    ] = "auto",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Start over if the folder holds other predictions.")
    ] = False,
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
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes that read SMILES.  [default: one for each core]")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads of the network.  [default: half of the cores]")
    ] = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Predict one row for each row of the input, in its order.

    The input's own columns are kept. Binary targets get the predicted class and the probability of the positive one,
    several classes the likeliest class and the probability of each, regression the value in the data's own units. A
    row that cannot be read stays, and its column `error` says why.

    Tables of any length are predicted in bounded memory. A folder of shards can be continued: give the same command
    again after it was stopped, however it was stopped.

    \b
    Examples:
      mlap predict runs/mine new-molecules.csv --out predictions.csv
      mlap predict runs/mine CCO "c1ccccc1O"
      cat new.csv | mlap predict runs/mine - > predictions.csv
      mlap predict runs/mine library.csv --out scores/ --merge scores.parquet
      mlap predict runs/mine library.csv --out scores/ --engine ray --address ray://head:10001
    """
    # Where rows are many, other processes read them while the network computes: threads that wait for a core would
    # only keep it from those. Half of the cores is about the network's share of the work.
    use_threads(threads or max(1, usable_cores() // 2))
    out = None if out == "-" else out
    folder = _folder(out)
    _check(folder, merge, engine, as_json)
    silent = quiet or as_json
    found = load_model(model, device, silent)
    if confidence is not None and found.calibrated is not None:
        for text in found.calibrated.warnings(found.task, confidence):
            note(f"note: {text}", silent)
    source = one_or_many(inputs)
    if as_json:
        with _quickly(source, data_root):
            predictions = found.predict(source, smiles=smiles_column, root=data_root, confidence=confidence)
        print_json({"model": str(model), "predictions": predictions.rows(not drop_extra_columns)})
        return

    from mlap.graphs.inputs import about_rows, is_table
    from mlap.models import shards

    extra_columns = not drop_extra_columns
    say = _sayer(silent)
    with rows_bar(silent, None if folder is None else note) as on_rows:
        if folder is not None:
            summary = shards.predict_shards(
                found,
                str(source),
                folder,
                rows=shard_rows,
                smiles=smiles_column,
                extra_columns=extra_columns,
                confidence=confidence,
                processes=processes,
                overwrite=overwrite,
                engine=None if engine == "local" else _on_ray(model, address, extra_columns, confidence),
                on_rows=on_rows,
                say=say,
            )
        else:
            target = sys.stdout if out is None else Path(out)
            total = None
            if isinstance(source, str) and is_table(source):
                total = about_rows(source)
                pieces = shards.iter_predictions(
                    found, source, smiles=smiles_column, confidence=confidence, processes=processes, say=say
                )
            else:
                with _quickly(source, data_root):
                    whole = found.predict(source, smiles=smiles_column, root=data_root, confidence=confidence)
                pieces = iter([(0, whole)])
            summary = shards.write_predictions(
                pieces, target, extra_columns=extra_columns, total=total, on_rows=on_rows
            )
    if folder is not None and merge is not None:
        shards.merge_shards(folder, merge)
    _tell(summary, " and ".join(str(path) for path in (out, merge) if path is not None), silent)


def _quickly(source: str | list[str], root: Path | None) -> AbstractContextManager[None]:
    """SMILES on the command line are predicted without kernels, which take longer to load than that takes."""
    from mlap.graphs.sources import is_source
    from mlap.nn.execution import by_itself

    return nullcontext() if isinstance(source, str) and is_source(source, root) else by_itself()


def _sayer(silent: bool) -> Callable[[str], None]:
    return lambda text: note(text, silent)


def _folder(out: str | None) -> Path | None:
    """The folder that the user means: what ends in a slash, has no ending, or is one."""
    if out is None or (Path(out).suffix and not out.endswith(("/", "\\")) and not Path(out).is_dir()):
        return None
    return Path(out)


def _check(folder: Path | None, merge: Path | None, engine: str, as_json: bool) -> None:
    """Raise for what can be known to be wrong before a model is loaded."""
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES, "engine")
    if folder is None and (merge is not None or engine == "ray"):
        raise UsageError("{field} is for shards: give a folder for them", "merge" if engine == "local" else "engine")
    if folder is not None and as_json:
        raise UsageError("{field} prints the predictions, which shards are not for", "as_json")
    if merge is not None:
        from mlap.models.merging import check_suffix

        check_suffix(merge, "merge")


def _on_ray(model: Path, address: str, extra_columns: bool, confidence: float | None) -> Engine:
    from mlap.models.ray_shards import ray_engine

    return ray_engine(model, address, extra_columns=extra_columns, confidence=confidence)


def _tell(summary: Summary, where: str, silent: bool) -> None:
    if where:
        before = f" ({summary.found:,} were there)" if summary.found else ""
        note(f"{count(summary.rows, 'row')} written to {where}{before}", silent)
    if summary.invalid:
        first = "" if summary.first_invalid is None else "; the first is row {}: {}".format(*summary.first_invalid)
        note(f"{count(summary.invalid, 'row')} could not be read{first}", silent)
