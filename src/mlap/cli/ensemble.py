"""`mlap ensemble`: models that answer together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.cli.common import DataRoot, Json, Quiet, note, print_json

if TYPE_CHECKING:
    from mlap.models import Ensemble

Weighing = Annotated[
    str,
    typer.Option("--weights", metavar="equal|fitted", help="How members are weighed; fitted: on validation data."),
]


def ensemble(
    models: Annotated[
        list[Path], typer.Argument(help="Model directories: runs, baselines, ensembles.", metavar="MODEL…")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory of the ensemble.")],
    weights: Weighing = "equal",
    data: Annotated[
        str | None,
        typer.Option(
            help="Labelled data that no member was trained on, to weigh and calibrate by.  "
            "[default: the validation part of the members' data]"
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(metavar="temperature|platt|isotonic|none", help="How the probabilities are calibrated."),
    ] = "temperature",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model in --out.")] = False,
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Put models together. Their logits are added, so that explanations of the whole still add up.

    The members are copied: the directory can be moved, and loads anywhere.

    \b
    Examples:
      mlap ensemble runs/a runs/b runs/c --out runs/together
      mlap ensemble runs/mine runs/forest --weights fitted --out runs/both
      mlap ensemble runs/* --data fresh.csv --weights fitted --out runs/all
    """
    from mlap.models import Ensemble, load

    made = Ensemble.of([load(path) for path in models], weights=weights, method=method, data=data, root=data_root)
    made.path = made.save(out, overwrite)
    if as_json:
        print_json(ensemble_json(made))
        return
    for line in ensemble_lines(made):
        note(line, quiet)
    typer.echo(str(out))


def ensemble_json(made: Ensemble) -> dict[str, Any]:
    """An ensemble for machines."""
    from mlap.models.ensemble import unique_names

    names = unique_names([member.name for member in made.members])
    return {
        "model": str(made.path),
        "members": [
            {"name": name, "path": str(member.path), "weight": weight}
            for name, member, weight in zip(names, made.members, made.weights.values, strict=True)
        ],
        "fitted": made.weights.fitted,
        "calibration": None if made.calibrated is None else made.calibrated.method,
        "notes": list(made.notes),
    }


def ensemble_lines(made: Ensemble) -> list[str]:
    """What to say of an ensemble: its members with their weights, and how it was calibrated."""
    content = ensemble_json(made)
    how = "fitted on validation data" if content["fitted"] else "equal"
    lines = [f"weights ({how}):"]
    lines += [f"  {member['weight']:.4f}  {member['name']}" for member in content["members"]]
    if made.calibrated is not None:
        where = made.calibrated.data
        lines.append(f"calibrated ({made.calibrated.method}) on {where['graphs']:,} graphs of {where['name']}")
    return lines + [f"note: {text}" for text in made.notes]
