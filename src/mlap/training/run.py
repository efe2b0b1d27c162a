"""A run directory: what one training run leaves behind, and how it is read again.

    config.json         the whole recipe, the data's name and fingerprint, the versions of everything that matters
    history.csv         one line per epoch
    model.safetensors   the weights of the best validation epoch
    last.ckpt           everything needed to go on after the last finished epoch
    result.json         the scores, once training is done
    splits.json         which graphs were for training, validation and test
    calibration.json    how true its probabilities are, if the run was calibrated

`last.ckpt` is the truth while a run goes on: it holds the history and the best weights too, and the other files are
written from it. Every file is replaced in one step, so that a process killed at any moment leaves whole files.
Reading executes no code from any of them.
"""

from __future__ import annotations

import csv
import io
import platform
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric
from torch import Tensor

import mlap
from mlap.arrays import checksum, checksum_of, read_arrays, write_arrays
from mlap.checks import need_fields
from mlap.errors import DataError, UsageError, short
from mlap.files import first_line, read_json, write_text, write_whole
from mlap.graphs import GraphSet, Task
from mlap.graphs.descriptors import descriptor_names
from mlap.graphs.molecules import are_molecules
from mlap.nn import GraphNetwork, graph_network
from mlap.provenance import source_id
from mlap.training.contents import check_checkpoint, check_config, check_targets
from mlap.training.descriptor_head import DescriptorHead
from mlap.training.objective import Objective
from mlap.training.recipe import Recipe

FORMAT = 1
CONFIG, HISTORY, MODEL, LAST, RESULT = "config.json", "history.csv", "model.safetensors", "last.ckpt", "result.json"
SPLITS = "splits.json"
#: what was learnt of these weights afterwards; see `mlap.models.calibrated`
CALIBRATION = "calibration.json"

_DEFAULT = Recipe()


@dataclass(frozen=True)
class Epoch:
    """One line of the history, and what a progress display needs."""

    epoch: int
    lr: float
    train_loss: float
    valid_loss: float
    valid_score: float
    seconds: float


@dataclass(frozen=True)
class Result:
    """The scores of a run: those of the epoch whose weights were kept.

    Args:
        metric: how scores are measured.
        best_epoch: the epoch whose weights were kept: the first with the best validation score, unless the recipe
            says to keep the last.
        valid_score: the validation score there.
        test_score: the test score there, or `None` if the set has no test graphs or they do not define it.
        epochs: how many epochs were trained.
        num_parameters: of the network.
    """

    metric: str
    best_epoch: int
    valid_score: float
    test_score: float | None
    epochs: int
    num_parameters: int


def read_network(path: Path, config: Mapping[str, Any]) -> tuple[GraphNetwork, Objective]:
    """The network of a run directory with the weights that were kept, in evaluation mode, and what its logits mean."""
    weights = path / MODEL
    if not weights.exists():
        raise DataError(f"{path} has no {MODEL} yet: no epoch is finished", "resume", True)
    objective = read_objective(path, config)
    arrays = read_arrays(weights)
    try:
        recipe = Recipe.of(config["recipe"])
        # What a file says of sizes may not fit the memory, so the first network has shapes and no numbers.
        with torch.device("meta"):
            shapes = build_network(recipe, objective.task, config["features"]).state_dict()
    except (ValueError, RuntimeError) as error:
        raise DataError(f"{path / CONFIG} is damaged: {first_line(error)}") from error
    for name in sorted(shapes.keys() | arrays.keys()):
        want, got = (tuple(found[name].shape) if name in found else None for found in (shapes, arrays))
        if want != got:
            raise DataError(f"{weights} is damaged or does not fit {CONFIG}: {name} is {got} there, {want} here")
    network = build_network(recipe, objective.task, config["features"])
    network.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})
    network.settle()
    return network.eval(), objective


def read_objective(path: Path, config: Mapping[str, Any]) -> Objective:
    """What the logits mean of the model that the configuration of a directory describes."""
    try:
        task, targets = Task.from_dict(config["task"]), config["targets"]
        if (task.kind == "regression") != (targets is not None):
            raise ValueError(f"targets cannot be {short(targets)} for {task.kind}")
        if targets is None:
            return Objective(task)
        check_targets(targets, task.num_outputs)
    except ValueError as error:
        raise DataError(f"{path / CONFIG} is damaged: {first_line(error)}") from error
    return Objective(task, np.array(targets["mean"], np.float64), np.array(targets["std"], np.float64))


def read_result(path: Path) -> Result | None:
    """The scores of a run directory, or `None` while the run is unfinished."""
    if not (path / RESULT).exists():
        return None
    content = read_json(path / RESULT)
    try:
        need_fields(content, Result)
        return Result(**content)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path / RESULT} is damaged: {first_line(error)}") from error


def read_history(path: Path) -> list[Epoch]:
    """The epochs of a run directory so far."""
    if not (path / HISTORY).exists():
        return []
    try:
        with (path / HISTORY).open(newline="", encoding="utf-8") as file:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        return [Epoch(**{**row, "epoch": int(row["epoch"])}) for row in rows]  # type: ignore[arg-type]
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise DataError(f"{path / HISTORY} is damaged: {first_line(error)}") from error


def read_config(path: Path) -> dict[str, Any]:
    """What the `config.json` of a run directory says."""
    if not path.is_dir():
        raise UsageError(f"there is no run directory {path}", "model")
    if not (path / CONFIG).exists():
        raise UsageError(f"{path} is not a run directory: it has no {CONFIG}", "model")
    config = read_json(path / CONFIG)
    if config.get("format") != FORMAT:
        raise DataError(
            f"{path / CONFIG} has format {short(config.get('format'))}; this version of mlap reads {FORMAT}"
        )
    try:
        check_config(config)
    except ValueError as error:
        raise DataError(f"{path / CONFIG} is damaged: {first_line(error)}") from error
    return config


def config_of(
    recipe: Recipe, graphs: GraphSet, device: str, initial: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What the `config.json` of a run says: everything that is needed to load, judge and repeat it."""
    objective = Objective.of(graphs, recipe.select_metric, recipe.class_weight)
    return {
        "format": FORMAT,
        "kind": "run",
        "recipe": recipe.as_dict(),
        **config_of_data(graphs, objective),
        "features": describe_features(graphs, recipe),
        "initial": initial,
        "device": device,
        "threads": torch.get_num_threads(),
        "versions": {
            "mlap": mlap.__version__,
            "source": source_id(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "numpy": np.__version__,
        },
    }


def config_of_data(graphs: GraphSet, objective: Objective) -> dict[str, Any]:
    """What every model's configuration says of the data it was trained on, and of its task."""
    source = graphs.source
    return {
        "data": {
            **({"source": None, "options": {}, "root": None} if source is None else asdict(source)),
            "name": graphs.name,
            "fingerprint": graphs.fingerprint,
            "graphs": len(graphs),
            "splits": {name: len(part) for name, part in graphs.splits.items()},
        },
        "task": objective.task.as_dict(),
        "features": describe_features(graphs),
        "targets": objective.as_dict(),
    }


def build_network(recipe: Recipe, task: Task, features: Mapping[str, Any]) -> GraphNetwork:
    """The network of a recipe for graphs with the features that `describe_features` describes."""
    network = graph_network(
        recipe.architecture,
        num_layers=recipe.layers,
        channels=recipe.width,
        out_channels=task.num_outputs,
        nodes=features["nodes"],
        edges=features["edges"],
        backbone=recipe.backbone,
        norm=recipe.norm,
        dropout=recipe.dropout,
        residual=recipe.residual,
        pooling=recipe.pooling,
        inner_norm=recipe.inner_norm,
        input_level=recipe.input_level,
        virtual_node=recipe.virtual_node,
        head=recipe.head,
        walk_features=recipe.walk_features,
        levels=recipe.levels,
        level_dropout=recipe.level_dropout,
    )
    if features.get("descriptors"):
        network.graph_head = DescriptorHead(features["descriptors"], task.num_outputs)
    return network


def describe_features(graphs: GraphSet, recipe: Recipe = _DEFAULT) -> dict[str, Any]:
    """What the network of a recipe reads of a set, as `graph_network` takes it and JSON keeps it.

    `nodes` and `edges` are described as `mlap.nn.encoders.FeatureSizes`; `descriptors` are names, if there are any.
    """
    described: dict[str, Any] = {}
    for kind, features in (("nodes", graphs.node_features), ("edges", graphs.edge_features)):
        if features is None:
            described[kind] = None
        else:
            described[kind] = list(features.cardinalities) if features.cardinalities else features.num_columns
    if recipe.descriptors:
        if not are_molecules(graphs):
            raise UsageError(
                f"{{field}} are those of molecules, and {graphs.name} has no SMILES to compute them from",
                "descriptors",
                False,
            )
        described["descriptors"] = list(descriptor_names())
    return described


def check_fits(config: Mapping[str, Any], graphs: GraphSet) -> None:
    """Raise unless the network that a configuration describes can read these graphs."""
    trained, given = config["features"], describe_features(graphs)
    for kind in ("nodes", "edges"):
        if trained[kind] != given[kind]:
            raise DataError(
                f"{graphs.name} does not fit the network: its {kind} have {_features(given[kind])}, "
                f"but the network was trained on {config['data']['name']} with {_features(trained[kind])}"
            )
    if trained.get("descriptors") and not are_molecules(graphs):
        raise DataError(f"{graphs.name} does not fit the network, which needs SMILES to compute descriptors from")


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


def remove_run(path: Path) -> None:
    """Remove the files of a run, its configuration last; whatever else lies in the folder stays."""
    for name in (CALIBRATION, RESULT, LAST, MODEL, HISTORY, SPLITS, CONFIG):
        (path / name).unlink(missing_ok=True)


def write_weights(path: Path, state: Mapping[str, Tensor]) -> None:
    """Write a network's weights."""
    arrays = {name: value.cpu().numpy() for name, value in state.items()}
    if _checksum(path) != checksum(arrays):
        path.with_name(CALIBRATION).unlink(missing_ok=True)  # it was learnt of other weights
    write_arrays(path, arrays)


def _checksum(path: Path) -> str | None:
    try:
        return checksum_of(path)
    except DataError:  # there are none, or they are damaged: the new ones replace them
        return None


def write_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write a checkpoint of tensors, numbers and text."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)  # to a file, torch would answer a full disk with an error of its own kind

    def write(temporary: Path) -> None:
        temporary.write_bytes(buffer.getbuffer())

    write_whole(path, write)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; a damaged one is an error, and no code in it is run."""
    stored = io.BytesIO(path.read_bytes())  # a file that cannot be read may be whole, and is not called damaged
    try:
        with zipfile.ZipFile(stored) as archive:  # torch does not compare checksums, zipfile does
            if (damaged := archive.testzip()) is not None:
                raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
        stored.seek(0)
        content: dict[str, Any] = torch.load(stored, map_location="cpu", weights_only=True)
        if isinstance(content, dict) and content.get("format") == FORMAT:
            check_checkpoint(content, Epoch)
            return content
    except Exception as error:  # a damaged file can make the reader raise nearly anything
        raise DataError(
            f"{path} is damaged ({first_line(error)}); delete it to start the run over, or restore a copy"
        ) from error
    found = short(content.get("format")) if isinstance(content, dict) else "unknown"
    raise DataError(f"{path} has format {found}; this version of mlap reads {FORMAT}")
