"""`mlap calibrate`: learn how true a model's probabilities are, and how wide its sets have to be."""

from __future__ import annotations

from typing import Annotated

import typer

from mlap.cli.common import (
    DataRoot,
    Device,
    Json,
    ModelPath,
    Quiet,
    Threads,
    count,
    load_model,
    note,
    print_json,
    use_threads,
)


def calibrate(
    model: ModelPath,
    data: Annotated[
        str | None,
        typer.Argument(
            help="Labelled data that the model was not trained on.  [default: the validation part of its own data]",
            show_default=False,
            metavar="DATA",
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="temperature|platt|isotonic|none", help="How probabilities are mapped; none: as they are."
        ),
    ] = "temperature",
    split: Annotated[
        str | None,
        typer.Option(help="train, valid, test or all.  [default: valid of the model's own data, all of other data]"),
    ] = None,
    threads: Threads = None,
    device: Device = "auto",
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Calibrate a model: its probabilities, and the sets or intervals that `mlap predict --confidence` adds.

    What was learnt is written beside the model and replaces an earlier calibration. Logits and explanations stay as
    they are. Sets hold what they promise for graphs like those given here; `mlap evaluate` measures it.

    \b
    Examples:
      mlap calibrate runs/mine
      mlap calibrate runs/mine new-measurements.csv --method isotonic
    """
    use_threads(threads)
    loaded = load_model(model, device, quiet or as_json)
    calibrated = loaded.calibrate(data, split, method=method, root=data_root)
    if as_json:
        content = {"model": str(model), "method": calibrated.method, "data": calibrated.data}
        print_json({**content, "notes": list(calibrated.notes)})
        return
    for text in calibrated.notes:
        note(f"note: {text}", quiet)
    where = calibrated.data
    typer.echo(
        f"{model}: calibrated ({calibrated.method}) on {count(where['graphs'], 'graph')} of {where['name']} "
        f"({where['part']})"
    )
