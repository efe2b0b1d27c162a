"""Simple models to beat, fitted to a graph set: forests on fingerprints, a linear model on neighbourhoods.

The recipes are others', as settings: `rf-morgan` is the baseline of BASF's MolPipeline, which CheMeleon had to beat;
`rf-assay` the forest that the ogbg-molhiv entries of PAS and HIG build on; `wl-linear` follows the TUDataset paper.
A fitted baseline is a directory like that of a run: `config.json`, `model.safetensors` and, once it is scored,
`result.json` and `splits.json`. Reading executes nothing.
"""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its parts load when they are used, so predictions by networks do not wait for them
import torch
from numpy.typing import NDArray

import mlap
from mlap.arrays import read_arrays, write_arrays
from mlap.errors import DataError, UsageError, unknown
from mlap.files import write_json
from mlap.graphs import GraphSet, Task
from mlap.graphs._smiles import require_rdkit
from mlap.graphs.descriptors import descriptor_names
from mlap.graphs.dividing import write_splits
from mlap.models.fingerprints import molecule_features, width_of
from mlap.models.folders import check_folder, holds_model, new_folder
from mlap.models.forest import Forest, grow_forest
from mlap.models.linear import Linear, fit_linear
from mlap.models.model import Model
from mlap.models.wl import BITS, ignored_features, wl_features
from mlap.names import BASELINES
from mlap.provenance import source_id
from mlap.training import Objective, Result
from mlap.training.run import (
    CONFIG,
    FORMAT,
    MODEL,
    RESULT,
    SPLITS,
    config_of_data,
    read_config,
    read_objective,
    read_result,
)

Array = NDArray[Any]
Floats = NDArray[np.float64]

#: rounds of Weisfeiler–Lehman refinement
ROUNDS = 4


@dataclass(frozen=True)
class _ForestRecipe:
    """A forest's features and its settings in scikit-learn's words, in general and for yes/no questions."""

    fingerprint: str
    descriptors: bool
    settings: Mapping[str, Any]
    classification: Mapping[str, Any] = field(default_factory=dict)
    binary: Mapping[str, Any] = field(default_factory=dict)


_FORESTS = {
    "rf-morgan": _ForestRecipe("morgan-counts", True, {"n_estimators": 500, "max_features": "log2"}),
    "rf-assay": _ForestRecipe(
        "morgan-maccs",
        False,
        {"n_estimators": 1000, "min_samples_leaf": 2, "max_features": "sqrt"},
        classification={"criterion": "entropy"},
        binary={"class_weight": {0: 1, 1: 10}},
    ),
}


class Baseline(Model):
    """A fitted baseline.

    Args:
        parts: the model of each target; a single one for all classes of a multiclass task.
        config, objective, path: see `Model`; `config["baseline"]` is what is known of the fit.
        result: its scores; `None` unless it was scored.
    """

    def __init__(
        self,
        parts: Sequence[Forest | Linear],
        config: dict[str, Any],
        objective: Objective,
        path: Path | None = None,
        result: Result | None = None,
    ) -> None:
        super().__init__(config, objective, path)
        self.parts = tuple(parts)
        self.result = result
        self._descriptors = tuple(map(str, config["baseline"]["descriptors"]))

    def __repr__(self) -> str:
        where = "" if self.path is None else f", {str(self.path)!r}"
        return f"Baseline({self.name}, {self.config['data']['name']}{where})"

    @property
    def name(self) -> str:
        """One of `mlap.names.BASELINES`."""
        return str(self.config["baseline"]["name"])

    @property
    def reads_descriptors(self) -> bool:
        """Whether they are among its features."""
        return bool(self._descriptors)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the fit, a sentence each."""
        return tuple(self.config["baseline"]["notes"])

    @classmethod
    def fit(
        cls,
        name: str,
        graphs: GraphSet,
        train: Sequence[int] | Array | None = None,
        valid: Sequence[int] | Array | None = None,
        *,
        seed: int = 0,
        metric: str = "",
        n_jobs: int = 1,
    ) -> Baseline:
        """Fit to the training graphs; a target's unknown labels are left out of its fit.

        Args:
            name: one of `mlap.names.BASELINES`.
            graphs: labelled graphs; forests read the molecules' SMILES from `graphs.ids`.
            train: which graphs to fit to; the split `train` unless given.
            valid: which to choose the penalty of `wl-linear` by; the split `valid` unless given. Forests choose
                nothing and do not look at them.
            seed: of a forest; `wl-linear` draws nothing by chance.
            metric: what scores; the set's own metric if empty.
            n_jobs: trees that grow at a time.
        """
        if name not in BASELINES:
            raise unknown("baseline", name, BASELINES, "baseline")
        if graphs.task is None or graphs.y is None:
            raise DataError(f"{graphs.name} has no labels to fit a baseline to")
        task = dataclasses.replace(graphs.task, metric=metric) if metric else graphs.task
        train = np.asarray(graphs.split("train") if train is None else train, np.int64)
        valid = np.asarray(graphs.split("valid") if valid is None else valid, np.int64)
        if not len(train):
            raise DataError(f"{graphs.name} has no graphs to fit a baseline to")
        descriptors = _descriptors(name)
        found = _features(name, graphs, task, np.concatenate((train, valid)), descriptors)
        x, valid_x = found[: len(train)], found[len(train) :]
        labels = graphs.y[:, None] if task.kind == "multiclass" else graphs.y
        parts: list[Forest | Linear] = []
        notes = _notes(name, graphs)
        for target in range(labels.shape[1]):
            y, valid_y = labels[train, target].astype(np.float64), labels[valid, target].astype(np.float64)
            rows, valid_rows = ~np.isnan(y), ~np.isnan(valid_y)
            if not rows.any():
                parts.append(_unknown(name, task, target, x.shape[1]))
                notes.append(f"target {_called(task, target)} has no training labels: it is answered by a half")
            elif name in _FORESTS:
                settings = {**_settings(name, task.kind), "random_state": seed}
                kept = _dense(x[rows])
                parts.append(grow_forest(task.kind, kept, y[rows], task.num_outputs, n_jobs=n_jobs, **settings))
            else:
                some = (x[rows], y[rows], valid_x[valid_rows], valid_y[valid_rows])
                parts.append(fit_linear(task.kind, *some, task.num_outputs))
        objective = _objective(task)
        config = {
            "format": FORMAT,
            "kind": "baseline",
            "baseline": {
                "name": name,
                "seed": seed,
                "train": len(train),
                "valid": len(valid),
                "descriptors": list(descriptors),
                "choices": [
                    {"strength": part.strength, "validation_losses": list(part.losses)}
                    for part in parts
                    if isinstance(part, Linear)
                ],
                "notes": notes,
            },
            **config_of_data(graphs, objective),
            "versions": _versions(),
        }
        return cls(parts, config, objective)

    def logits(self, graphs: GraphSet, indices: Sequence[int] | Array | None = None) -> Floats:
        """The answers `(graphs, outputs)`: logits, or values in the data's own units for a regression.

        The share p of a forest's T trees becomes (T p + 1/C) / (T + 1), C the number of classes, as if one more tree
        had no opinion: no logit is infinite, and the order of all answers stays. Logits of exclusive classes are
        logarithms of these.

        Args:
            graphs: to predict; labels are not looked at.
            indices: which of them; all unless given.
        """
        chosen = np.arange(len(graphs)) if indices is None else np.asarray(indices, np.int64)
        if not len(chosen):
            return np.zeros((0, self.task.num_outputs))
        x = _features(self.name, graphs, self.task, chosen, self._descriptors)
        return np.concatenate([self._answers(part, x) for part in self.parts], axis=1)

    def _answers(self, part: Forest | Linear, x: scipy.sparse.csr_matrix) -> Floats:
        return part.predict(x) if isinstance(part, Linear) else forest_logits(self.task.kind, part, x)

    def scored(self, graphs: GraphSet) -> Result:
        """The scores on the validation and the test part, also kept as `result`.

        A part that does not define the metric has the score NaN (validation) or none (test).
        """
        assert graphs.y is not None
        found: dict[str, float | None] = {}
        for part in ("valid", "test"):
            rows = graphs.splits.get(part, np.zeros(0, np.int64))
            found[part] = None
            if len(rows):
                with suppress(DataError):
                    found[part] = self.objective.score(torch.from_numpy(self.logits(graphs, rows)), graphs.y[rows])
        numbers = sum(
            array.size for number, part in enumerate(self.parts) for array in part.arrays(f"{number}").values()
        )
        valid = math.nan if found["valid"] is None else found["valid"]
        self.result = Result(self.task.metric, 0, valid, found["test"], 0, numbers)
        return self.result

    # ---- files -------------------------------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        """Write the files of a directory; the configuration last, so that a directory that has one is whole."""
        arrays: dict[str, Array] = {}
        for number, part in enumerate(self.parts):
            arrays.update(part.arrays(f"{number}."))
        write_arrays(path / MODEL, arrays)
        if self.result is not None:
            write_json(path / RESULT, dataclasses.asdict(self.result))
        write_json(path / CONFIG, self.config)

    @classmethod
    def read(cls, path: Path, config: dict[str, Any]) -> Baseline:
        """Read a directory with the given configuration; a damaged one is a `DataError`."""
        name, descriptors = config["baseline"]["name"], tuple(config["baseline"]["descriptors"])
        objective = read_objective(path, config)
        if name not in BASELINES:
            raise DataError(f"{path / CONFIG} is of a baseline {name[:60]!r}; known are {', '.join(BASELINES)}")
        arrays = read_arrays(path / MODEL)
        task = objective.task
        multiclass = task.kind == "multiclass"
        outputs = task.num_outputs if multiclass else 1
        kind: type[Forest] | type[Linear] = Forest if name in _FORESTS else Linear
        width = width_of(_FORESTS[name].fingerprint) + len(descriptors) if name in _FORESTS else 1 << BITS
        numbers = range(1 if multiclass else task.num_outputs)
        parts = [kind.of_arrays(arrays, width, outputs, f"{number}.") for number in numbers]
        return cls(parts, config, objective, path, read_result(path))


def train_baseline(
    name: str,
    graphs: GraphSet,
    out: str | Path | None = None,
    *,
    seed: int = 0,
    metric: str = "",
    resume: bool = False,
    overwrite: bool = False,
    n_jobs: int = 1,
) -> Baseline:
    """Fit a baseline, score it and, if a directory is given, write it there.

    Args:
        name: one of `mlap.names.BASELINES`.
        graphs: labelled graphs with the splits `train` and `valid`.
        out: the directory.
        seed: of a forest.
        metric: what scores; the set's own metric if empty.
        resume: read the same baseline if it is there already.
        overwrite: replace the model that is there.
        n_jobs: trees that grow at a time.
    """
    path = None if out is None else Path(out)
    if path is not None and resume and not overwrite and holds_model(path):
        before = Baseline.read(path, read_config(path))
        asked = {"name": name, "seed": seed, "fingerprint": graphs.fingerprint, "metric": metric or before.task.metric}
        facts = {
            **before.config["baseline"],
            **before.config["data"],
            "name": before.name,
            "metric": before.task.metric,
        }
        for field_, value in asked.items():
            if facts[field_] != value:
                raise UsageError(f"{path} holds a baseline with {{field}} {facts[field_]}, now got {value}", field_)
        return before
    if path is not None:
        check_folder(path, overwrite)
    model = Baseline.fit(name, graphs, seed=seed, metric=metric, n_jobs=n_jobs)
    model.scored(graphs)
    if path is not None:
        with new_folder(path, overwrite) as folder:
            write_splits(folder / SPLITS, graphs)
            model.write(folder)
        model.path = path
    return model


def _objective(task: Task) -> Objective:
    """What the answers mean: those of a regression are in the data's own units."""
    return (
        Objective(task, np.zeros(task.num_outputs), np.ones(task.num_outputs))
        if task.kind == "regression"
        else (Objective(task))
    )


def forest_logits(kind: str, forest: Forest, features: Any) -> Floats:
    """A forest's answers on the logit scale (see `Baseline.logits`)."""
    answers = forest.predict(features)
    if kind == "regression":
        return answers
    trees, classes = forest.num_trees, 2 if kind == "binary" else answers.shape[1]
    shrunk = (trees * answers + 1 / classes) / (trees + 1)
    return np.log(shrunk) - np.log1p(-shrunk) if kind == "binary" else np.log(shrunk)


def _features(
    name: str, graphs: GraphSet, task: Task, chosen: NDArray[np.int64], descriptors: tuple[str, ...]
) -> scipy.sparse.csr_matrix:
    """What a baseline sees of the chosen graphs."""
    if name in _FORESTS:
        if graphs.ids is None:
            raise UsageError(
                f"{name} reads molecules, but {graphs.name} has no SMILES", field="baseline", suggest="wl-linear"
            )
        return molecule_features(_FORESTS[name].fingerprint, graphs, chosen, descriptors)
    features = wl_features(graphs.subset(chosen), rounds=ROUNDS)
    if task.kind != "regression":
        # A second ring says less of a class than the first; of a value that sums over atoms it says as much.
        np.log1p(features.data, out=features.data)
    return features


def _settings(name: str, kind: str) -> dict[str, Any]:
    recipe = _FORESTS[name]
    settings = dict(recipe.settings)
    if kind != "regression":
        settings.update(recipe.classification)
    if kind == "binary":
        settings.update(recipe.binary)
    return settings


def _descriptors(name: str) -> tuple[str, ...]:
    if name not in _FORESTS:
        return ()
    require_rdkit()
    return descriptor_names() if _FORESTS[name].descriptors else ()


def _dense(features: scipy.sparse.csr_matrix) -> Any:
    """Trees grow faster on a dense matrix, as long as that fits a gigabyte."""
    return features.toarray() if features.shape[0] * features.shape[1] * 4 <= 1 << 30 else features.tocsc()


def _unknown(name: str, task: Task, target: int, width: int) -> Forest | Linear:
    """The model of a target without labels: a half."""
    if task.kind == "regression":
        raise DataError(f"target {_called(task, target)} has no training labels; leave it out, or choose another split")
    if name in _FORESTS:
        return Forest.constant([0.5], width)
    return Linear(np.zeros(0, np.int64), np.zeros((1, 0)), np.zeros(1))


def _called(task: Task, target: int) -> str:
    return repr(task.names[target]) if task.names and task.kind != "multiclass" else str(target)


def _notes(name: str, graphs: GraphSet) -> list[str]:
    if name in _FORESTS:
        return []
    return [f"{name} does not use the real {kind} features" for kind in ignored_features(graphs)]


def _versions() -> dict[str, str]:
    import sklearn

    versions = {"mlap": mlap.__version__, "source": source_id(), "python": platform.python_version()}
    versions |= {"numpy": np.__version__, "scikit-learn": sklearn.__version__}
    try:
        import rdkit
    except ImportError:
        return versions
    return {**versions, "rdkit": rdkit.__version__}
