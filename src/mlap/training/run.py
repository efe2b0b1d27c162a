"""A run directory: what one training run leaves behind, and how it is read again.

    config.json         the whole recipe, the data's name and fingerprint, the versions of everything that matters
    history.csv         one line per epoch
    model.safetensors   the weights of the best validation epoch
    last.ckpt           everything needed to go on after the last finished epoch
    result.json         the scores, once training is done

`last.ckpt` is the truth while a run goes on: it holds the history and the best weights too, and the other files are
written from it. Every file is replaced in one step, so that a process killed at any moment leaves whole files.
Reading executes no code from any of them.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from mlap.errors import DataError, UsageError
from mlap.files import first_line, read_json, write_text, write_whole
from mlap.graphs import GraphSet, Task
from mlap.nn import GraphNetwork, graph_network
from mlap.training.objective import Objective
from mlap.training.recipe import Recipe

FORMAT = 1
CONFIG, HISTORY, MODEL, LAST, RESULT = "config.json", "history.csv", "model.safetensors", "last.ckpt", "result.json"


@dataclass(frozen=True)
class Run:
    """A finished or unfinished run, read from its directory.

    Args:
        path: the directory.
        config: what `config.json` says.
        recipe: how the network was trained.
        task: what it predicts.
        objective: what its logits mean.
        network: the network with the weights of the best validation epoch, in evaluation mode.
    """

    path: Path
    config: dict[str, Any]
    recipe: Recipe
    task: Task
    objective: Objective
    network: GraphNetwork

    @property
    def result(self) -> dict[str, Any] | None:
        """What `result.json` says, or `None` while the run is unfinished."""
        path = self.path / RESULT
        return read_json(path) if path.exists() else None

    @property
    def history(self) -> list[dict[str, float]]:
        """The epochs so far."""
        with (self.path / HISTORY).open(newline="") as file:
            return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def load_run(path: str | Path) -> Run:
    """Read a run directory with its best network."""
    path = Path(path)
    config = read_config(path)
    weights = path / MODEL
    if not weights.exists():
        raise DataError(f"{path} has no {MODEL} yet: no epoch is finished; continue the run with --resume")
    recipe = Recipe.of(config["recipe"])
    task = Task(**{**config["task"], "names": tuple(config["task"]["names"])})
    targets = config["targets"]
    objective = Objective(task, *(np.array(targets[key]) for key in ("mean", "std")) if targets else ())
    network = build_network(recipe, task, config["features"]["nodes"], config["features"]["edges"])
    try:
        network.load_state_dict(safetensors.torch.load_file(weights))
    except (safetensors.SafetensorError, RuntimeError, OSError) as error:
        raise DataError(f"{weights} is damaged or does not fit {CONFIG}: {first_line(error)}") from error
    return Run(path, config, recipe, task, objective, network.eval())


def read_config(path: Path) -> dict[str, Any]:
    """What the `config.json` of a run directory says."""
    if not path.is_dir():
        raise UsageError(f"there is no run directory {path}; `mlap train … --out {path}` makes one")
    if not (path / CONFIG).exists():
        raise UsageError(f"{path} is not a run directory: it has no {CONFIG}")
    config = read_json(path / CONFIG)
    if config.get("format") != FORMAT:
        raise DataError(f"{path / CONFIG} has format {config.get('format')!r}; this version of mlap reads {FORMAT}")
    return config


def build_network(recipe: Recipe, task: Task, nodes: Any, edges: Any) -> GraphNetwork:
    """The network of a recipe for items of the given descriptions (see `mlap.nn.graph_network`)."""
    return graph_network(
        recipe.architecture,
        num_layers=recipe.layers,
        channels=recipe.width,
        out_channels=task.num_outputs,
        nodes=nodes,
        edges=edges,
        backbone=recipe.backbone,
        norm=recipe.norm,
        dropout=recipe.dropout,
        residual=recipe.residual,
    )


def describe_features(graphs: GraphSet) -> dict[str, Any]:
    """What the nodes and edges of a set are like, as `graph_network` takes it and JSON keeps it."""
    described: dict[str, Any] = {}
    for kind, features in (("nodes", graphs.node_features), ("edges", graphs.edge_features)):
        if features is None:
            described[kind] = None
        else:
            described[kind] = list(features.cardinalities) if features.cardinalities else features.num_columns
    return described


def check_fits(run: Run, graphs: GraphSet) -> None:
    """Raise unless the run's network can read these graphs."""
    trained, given = run.config["features"], describe_features(graphs)
    for kind in ("nodes", "edges"):
        if trained[kind] != given[kind]:
            raise DataError(
                f"{graphs.name} does not fit the network: its {kind} have {_features(given[kind])}, "
                f"but the network was trained on {run.config['data']['name']} with {_features(trained[kind])}"
            )


def _features(described: Any) -> str:
    if described is None:
        return "no features"
    if isinstance(described, int):
        return f"{described} real features"
    return f"categorical features of sizes {described}"


def write_history(path: Path, history: Sequence[Mapping[str, float]]) -> None:
    """Write the history as CSV, every number with all its digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, history[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    write_text(path, text.getvalue())


def write_weights(path: Path, state: Mapping[str, Tensor], epoch: int) -> None:
    """Write a network's weights with the epoch they are from."""
    metadata = {"epoch": str(epoch)}
    write_whole(path, lambda temporary: safetensors.torch.save_file(dict(state), temporary, metadata))


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint of tensors, numbers and text."""
    write_whole(path, lambda temporary: torch.save(dict(content), temporary))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; a damaged one is an error, and no code in it is run."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch does not compare checksums, zipfile does
            if (damaged := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can make the reader raise nearly anything
        raise DataError(
            f"{path} is damaged ({first_line(error)}); delete it to start the run over, or restore a copy"
        ) from error
    if content.get("format") != FORMAT:
        raise DataError(f"{path} has format {content.get('format')!r}; this version of mlap reads {FORMAT}")
    return content
