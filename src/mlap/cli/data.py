"""`mlap data`: what data sets there are, what is in them, and how to make and pack them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlap.cli.common import (
    DataRoot,
    Invalid,
    Json,
    NoCache,
    Positive,
    Quiet,
    SmilesColumn,
    SplitBy,
    SplitSeed,
    SplitsFile,
    SplitSizes,
    Targets,
    TaskKind,
    count,
    load,
    note,
    print_json,
    table_options,
)
from mlap.cli.spelling import spelling
from mlap.errors import UsageError
from mlap.progress import steps_bar

if TYPE_CHECKING:
    from mlap.graphs import Features, GraphSet

app = typer.Typer(
    help="List, describe, make and pack data sets; remove packed copies.", no_args_is_help=True, rich_markup_mode=None
)

Dataset = Annotated[str, typer.Argument(help="A name (see mlap data list) or a path.", metavar="DATASET")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Where to write the packed set, e.g. mine.graphs.")]


@app.command("list")
def list_sets(data_root: DataRoot = None, as_json: Json = False) -> None:
    """List the data sets that can be named, and whether they are here already."""
    from mlap.graphs.sources import known_datasets

    known = known_datasets(data_root)
    if as_json:
        print_json({"datasets": [entry._asdict() for entry in known]})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "graphs", "what", "where", box=None, pad_edge=False)
    for entry in known:
        table.add_row(entry.name, f"{entry.graphs:,}" if entry.graphs else "", entry.kind, entry.where)
    Console().print(table)


@app.command("info")
def info(
    context: typer.Context,
    dataset: Dataset,
    smiles_column: SmilesColumn = None,
    target: Targets = None,
    task: TaskKind = None,
    positive: Positive = None,
    split_by: SplitBy = None,
    split_seed: SplitSeed = None,
    split_sizes: SplitSizes = None,
    splits_file: SplitsFile = None,
    invalid: Invalid = None,
    invalid_rows: Annotated[
        Path | None,
        typer.Option("--invalid-rows", metavar="FILE", help="Write the rows that are left out to a CSV file."),
    ] = None,
    no_cache: NoCache = False,
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say what is in a data set: size, labels, repeated and contradictory molecules, salts, invalid rows, the split.

    \b
    Examples:
      mlap data info molecules.csv
      mlap data info molecules.csv --target active --split-by scaffold --invalid-rows invalid.csv
      mlap data info synthetic
    """
    from mlap.graphs.sources import is_table
    from mlap.graphs.summary import summary, write_left_out

    silent = quiet or as_json
    options = table_options(
        smiles_column, target, task, split_by, split_seed, invalid, positive, split_sizes, splits_file
    )
    options["cache"] = not no_cache
    try:
        graphs = load(dataset, data_root, silent, **options)
    except UsageError as error:
        # What came by standard input has been read, and cannot be read again.
        if error.field != "targets" or "targets" in options or not is_table(dataset) or dataset == "-":
            raise
        # The labels have to be named first; the rest can be told all the same.
        note(error.told(spelling(context.command)), silent)
        unlabelled = {key: options[key] for key in ("smiles", "on_invalid", "cache") if key in options}
        graphs = load(dataset, data_root, silent, targets=(), **unlabelled)
    with steps_bar(silent) as progress:
        found = summary(graphs, progress=progress)
    if invalid_rows is not None:
        write_left_out(graphs, invalid_rows)
        note(f"{count(len(graphs.left_out), 'row')} written to {invalid_rows}", silent)
    facts = _facts(graphs)
    if as_json:
        print_json({**facts, "summary": found.as_dict()})
        return
    for key, value in facts.items():
        text = ", ".join(f"{k} {v:,}" for k, v in value.items()) if isinstance(value, dict) else value
        typer.echo(f"{key.replace('_', ' '):<16}{f'{text:,}' if isinstance(text, int) else text}")
    typer.echo()
    for line in found.lines():
        typer.echo(line)


class OneWay(str, Enum):
    """Which edges of a synthetic graph are single arcs."""

    appended = "appended"
    random = "random"
    none = "none"


@app.command("make")
def make(
    dataset: Annotated[str, typer.Argument(help="synthetic, the one data set that is made.", metavar="DATASET")],
    out: Out,
    graphs_per_class: Annotated[int, typer.Option(help="Graphs of each class.")] = 1000,
    extra_edges: Annotated[str, typer.Option(help="The extra edge of each component type.")] = "0-2,1-4,0-4",
    shared_node: Annotated[
        str, typer.Option(help="The node a peripheral component shares: 0 to 4, index or random.")
    ] = "0",
    random_edges: Annotated[int, typer.Option(help="Random edges per graph.")] = 5,
    one_way: Annotated[
        OneWay, typer.Option(help="Edges that are single arcs: appended (extra and random ones), random or none.")
    ] = OneWay.random,
    repeats: Annotated[bool, typer.Option(help="Whether a random edge may repeat another or be a loop.")] = False,
    seed: Annotated[int, typer.Option(help="Random seed of the random edges and the split.")] = 0,
    as_json: Json = False,
) -> None:
    """Make the paper's synthetic data set, or another reading of it, as a packed set.

    \b
    Examples:
      mlap data make synthetic --one-way none --out both-ways.graphs
    """
    from mlap.graphs import packed, synthetic

    if dataset != "synthetic":
        raise UsageError(f"only `synthetic` can be made, got {dataset!r}; `mlap data pack` packs any data set")
    graphs = synthetic(
        graphs_per_class,
        extra_edges=_edges(extra_edges),
        shared_node=int(shared_node) if shared_node.isdigit() else shared_node,
        random_edges=random_edges,
        one_way=one_way.value,
        repeats=repeats,
        seed=seed,
    )
    packed.save(graphs, out)
    _say_written(graphs, out, as_json)


@app.command("pack")
def pack(
    dataset: Dataset,
    out: Out,
    smiles_column: SmilesColumn = None,
    target: Targets = None,
    task: TaskKind = None,
    positive: Positive = None,
    split_by: SplitBy = None,
    split_seed: SplitSeed = None,
    split_sizes: SplitSizes = None,
    splits_file: SplitsFile = None,
    invalid: Invalid = None,
    no_cache: NoCache = False,
    data_root: DataRoot = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a data set as a packed set, which loads in milliseconds and may be larger than memory.

    \b
    Examples:
      mlap data pack ogbg-molhiv --out molhiv.graphs
    """
    from mlap.graphs import packed

    options = table_options(
        smiles_column, target, task, split_by, split_seed, invalid, positive, split_sizes, splits_file
    )
    graphs = load(dataset, data_root, quiet or as_json, cache=not no_cache, **options)
    packed.save(graphs, out)
    _say_written(graphs, out, as_json)


@app.command("clean")
def clean(data_root: DataRoot = None, as_json: Json = False) -> None:
    """Remove the packed copies of data sets. They are made again when they are needed.

    Sets that you packed yourself, and what was downloaded, stay.

    \b
    Examples:
      mlap data clean
    """
    from mlap.graphs.sources import clean_cache

    removed, size = clean_cache(data_root)
    if as_json:
        print_json({"removed": removed, "bytes": size})
    else:
        typer.echo(f"{count(removed, 'packed copy').replace('copys', 'copies')} removed, {size / 1e6:.1f} MB")


def _say_written(graphs: GraphSet, out: Path, as_json: bool) -> None:
    if as_json:
        print_json({"path": str(out), **_facts(graphs)})
    else:
        typer.echo(
            f"{count(len(graphs), 'graph')} of {graphs.name} written to {out}  (fingerprint {graphs.fingerprint})"
        )


def _edges(text: str) -> list[tuple[int, int]]:
    try:
        pairs = [tuple(int(end) for end in edge.split("-")) for edge in text.split(",")]
        return [(first, second) for first, second in pairs]
    except ValueError:
        raise UsageError(f"{{field}} takes pairs of nodes such as 0-2,1-4,0-4, got {text!r}", "extra_edges") from None


def _facts(graphs: GraphSet) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": graphs.name,
        "graphs": len(graphs),
        "nodes": graphs.num_nodes,
        "edges": graphs.num_edges,
        "direction": "directed (arcs)" if graphs.directed else "undirected",
        "nodes_per_graph": round(graphs.num_nodes / max(1, len(graphs)), 2),
        "edges_per_graph": round(graphs.num_edges / max(1, len(graphs)), 2),
        "node_features": _features(graphs.node_features),
        "edge_features": _features(graphs.edge_features),
    }
    if graphs.task is not None:
        outputs = count(graphs.task.num_outputs, "class" if graphs.task.kind == "multiclass" else "target")
        facts["task"] = f"{graphs.task.kind}, {outputs.replace('classs', 'classes')}"
        facts["measure"] = graphs.task.metric_label
    if graphs.splits:
        facts["splits"] = {name: len(part) for name, part in graphs.splits.items()}
    facts["fingerprint"] = graphs.fingerprint
    return facts


def _features(features: Features | None) -> str:
    if features is None:
        return "none"
    if features.cardinalities is None:
        return f"{count(features.num_columns, 'real column')}"
    return (
        f"{count(features.num_columns, 'categorical column')} of {', '.join(map(str, features.cardinalities))} values"
    )
