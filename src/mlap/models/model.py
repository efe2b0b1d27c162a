"""What all models have in common: the verbs, and what they take and return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError
from mlap.files import write_text, write_whole
from mlap.graphs import GraphSet, Task, load_graphs
from mlap.graphs.inputs import Inputs, read_inputs
from mlap.graphs.molecules import ATOM_CARDINALITIES
from mlap.graphs.progress import Progress
from mlap.models.calibrated import Calibrated, alpha_of
from mlap.models.evaluation import Evaluation, evaluation
from mlap.models.explanation import Explanation
from mlap.models.folders import new_folder
from mlap.models.merging import check_suffix
from mlap.models.predictions import Predictions
from mlap.training import Objective
from mlap.training.run import SPLITS, check_fits

Floats = NDArray[np.floating[Any]]

PARTS = ("train", "valid", "test", "all")


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Graphs as vectors, one row for each row of the input; NaN where a row is invalid.

    Args:
        final: `(rows, C)`, the graph representations that the head sees.
        levels: `(rows, L, d)`, the level-wise ones; L is 0 for networks that pool once.
        inputs: what was embedded.
    """

    final: Floats
    levels: Floats
    inputs: Inputs

    def __len__(self) -> int:
        return len(self.final)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return np.array(self.final, dtype=dtype)

    def of_level(self, level: int | None = None) -> Floats:
        """The vectors of a level, counted from 1; the final ones unless given."""
        if level is None:
            return self.final
        if not 1 <= level <= self.levels.shape[1]:
            has = f"levels 1 to {self.levels.shape[1]}" if self.levels.shape[1] else "no level-wise vectors"
            raise UsageError(f"{{field}} {level} does not exist: the network has {has}", "level")
        return np.asarray(self.levels[:, level - 1])

    def write(self, path: str | Path, level: int | None = None) -> None:
        """Write the vectors to a `.csv` or `.parquet` file: each row's name, then one column a channel."""
        path = Path(path)
        check_suffix(path, "out")
        vectors = self.of_level(level)
        names = self.inputs.smiles or [str(row) for row in range(len(self))]
        columns: dict[str, Any] = {"smiles" if self.inputs.smiles else "graph": names}
        columns |= {str(number): vectors[:, number] for number in range(vectors.shape[1])}
        if path.suffix == ".parquet":
            from pyarrow import parquet, table

            write_whole(path, lambda temporary: parquet.write_table(table(columns), temporary))
        else:
            from mlap.files import csv_text

            rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            write_text(path, csv_text(rows))


@dataclass(frozen=True, eq=False)
class Explanations:
    """The explanations of some graphs, computed when they are asked for, in batches of bounded size.

    Args:
        model: whose predictions are explained.
        inputs: the graphs, and the rows of the input that they are.
    """

    model: Model
    inputs: Inputs

    def __len__(self) -> int:
        return len(self.inputs.graphs)

    def __getitem__(self, number: int) -> Explanation:
        return next(self.of([range(len(self))[number]]))

    def __iter__(self) -> Iterator[Explanation]:
        return self.of(range(len(self)))

    def of(self, graphs: Sequence[int]) -> Iterator[Explanation]:
        """The explanations of the graphs with the given numbers."""
        return self.model.explain_graphs(self.inputs.graphs, graphs)


class Model:
    """Anything that predicts: a network, a baseline, an ensemble.

    A kind of model says how its `logits` come about; the verbs are the same for all.

    Args:
        config: what is known of the model: its `data`, `features` and `task`, as in `config.json`.
        objective: what its logits mean.
        path: its directory, or `None` if it was not written to one.
    """

    def __init__(self, config: dict[str, Any], objective: Objective, path: Path | None = None) -> None:
        self.config = config
        self.objective = objective
        self.path = path
        self._calibrated: Calibrated | None = None

    # ---- what a kind of model provides -------------------------------------------------------------------------------

    def logits(self, graphs: GraphSet, indices: NDArray[np.int64] | None = None) -> Floats:
        """The answers `(graphs, outputs)` on the logit scale (standardised values for a regression)."""
        raise TypeError(f"{type(self).__name__} does not say how it predicts")

    def explain_graphs(self, graphs: GraphSet, indices: Sequence[int]) -> Iterator[Explanation]:
        """Explain graphs of a set one after the other."""
        raise UsageError(f"a {self.kind} cannot be explained node by node: its answer is no sum over nodes")

    def embed_graphs(self, graphs: GraphSet, indices: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """The final `(G, C)` and the level-wise `(G, L, d)` representations of graphs of a set."""
        raise UsageError(f"a {self.kind} makes no vectors of graphs; only networks do")

    def write(self, path: Path) -> None:
        """Write the model's own files into an empty directory."""
        raise TypeError(f"{type(self).__name__} does not say how it is kept")

    def logits_and_spread(self, graphs: GraphSet) -> tuple[Floats, Floats | None]:
        """The logits of all graphs and, of an ensemble, the standard deviation of its members' predictions."""
        return self.logits(graphs), None

    @property
    def explains(self) -> bool:
        """Whether its answers are sums over nodes, so that `explain` and `embed` work."""
        return False

    @property
    def reads_descriptors(self) -> bool:
        """Whether it reads RDKit's descriptors of molecules, which take most of the time of a prediction."""
        return False

    @property
    def name(self) -> str:
        """What to call the model among others: short, and fit for a folder's name."""
        raise TypeError(f"{type(self).__name__} has no name")

    @property
    def kind(self) -> str:
        """What to call this kind of model."""
        return type(self).__name__.lower()

    # ---- the verbs ---------------------------------------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """What is predicted."""
        return self.objective.task

    @property
    def calibrated(self) -> Calibrated | None:
        """What `calibrate` learnt; `None` before. `objective.predict` makes use of it."""
        return self._calibrated

    @calibrated.setter
    def calibrated(self, learnt: Calibrated | None) -> None:
        calibration = None if learnt is None else learnt.calibration
        self._calibrated = learnt
        self.objective = self.objective.calibrated(None if calibration is None else calibration.apply)

    @property
    def reads_molecules(self) -> bool:
        """Whether the graphs are molecules, so that SMILES can be given."""
        return bool(self.config["features"]["nodes"] == list(ATOM_CARDINALITIES))

    def predict(
        self,
        x: Any,
        *,
        smiles: str | None = None,
        root: str | Path | None = None,
        confidence: float | None = None,
        progress: Progress | None = None,
    ) -> Predictions:
        """Predict one row for each row of the input; rows that cannot be read stay, with the reason.

        Args:
            x: a path or the name of a data set, SMILES (one, or a list, array or Series), a DataFrame with a column of
                SMILES, PyG `Data`, networkx graphs, or a `GraphSet`.
            smiles: a table's column of SMILES; inferred unless given.
            root: where data sets are kept.
            confidence: such as 0.9, of a calibrated model: add the set of classes, or the interval, that holds the
                truth in at least that share of graphs like those that the model was calibrated on.
            progress: called with (what, done, total) while rows are read.
        """
        self.check_confidence(confidence)
        inputs = self.inputs(x, smiles=smiles, root=root, progress=progress)
        return self.predict_inputs(inputs, confidence)

    def predict_inputs(self, inputs: Inputs, confidence: float | None = None) -> Predictions:
        """Predict what has been read by `inputs`."""
        calibrated = self.check_confidence(confidence)

        def rows(found: Any) -> Any:
            """An array of one row for each row of the input."""
            filled = np.full((inputs.num_rows, self.task.num_outputs), np.nan)
            filled[inputs.kept] = found
            return filled

        logits, spread = self.logits_and_spread(inputs.graphs)
        values = self.values(logits)
        lost = np.asarray(~np.isfinite(values).all(axis=1))
        invalid = dict(inputs.invalid)
        if lost.any():  # too large a number in a feature, or in a damaged file
            invalid.update(dict.fromkeys(inputs.kept[lost].tolist(), "the model's answer is not a finite number"))
            values, logits = np.where(lost[:, None], np.nan, values), np.where(lost[:, None], 0, logits)
        more: dict[str, list[Any]] = {}
        if calibrated is not None and confidence is not None:
            for name, cells in calibrated.columns(self.task, logits, values, confidence).items():
                more[name] = [None] * inputs.num_rows
                for row, cell in zip(inputs.kept.tolist(), cells, strict=True):
                    more[name][row] = None if row in invalid else cell
        return Predictions(
            self.task,
            rows(values),
            inputs.smiles or [str(row) for row in range(inputs.num_rows)],
            dict(sorted(invalid.items())),
            inputs.columns,
            None if spread is None else rows(spread),
            more,
            label="smiles" if inputs.smiles else "graph",
        )

    def values(self, logits: Floats) -> Floats:
        """What logits mean: probabilities, calibrated if the model is, or values in the data's own units."""
        return np.asarray(self.objective.predict(torch.from_numpy(np.asarray(logits))))

    def _finite(self, logits: Floats, graphs: GraphSet, indices: NDArray[np.int64]) -> Floats:
        """What logits mean, or an error where one means nothing."""
        values = self.values(logits)
        lost = np.asarray(~np.isfinite(values).all(axis=1))
        if lost.any():
            where = int(indices[lost.argmax()])
            raise DataError(
                f"the model's answers to {lost.sum()} of {len(lost)} graphs of {graphs.name} are not finite numbers; "
                f"the first is graph {where}"
            )
        return values

    def evaluate(
        self,
        x: Any = None,
        part: str | None = None,
        *,
        root: str | Path | None = None,
        confidence: float | None = None,
    ) -> Evaluation:
        """Score the predictions for labelled graphs.

        Args:
            x: labelled data as `mlap.load_graphs` takes them; the data that the model was trained on unless given.
            part: `train`, `valid`, `test` or `all`; unless given, `test` of the model's own data and `all` of others.
            root: where data sets are kept.
            confidence: of a calibrated model: also measure how often sets or intervals of that confidence hold.
        """
        calibrated = self.check_confidence(confidence)
        graphs, indices, part = self._labelled_part(x, part or ("test" if x is None else "all"), root)
        assert graphs.y is not None
        logits, y = self.logits(graphs, indices), graphs.y[indices]
        values = self._finite(logits, graphs, indices)
        ranks = logits
        if self.calibrated is not None and self.calibrated.calibration is not None:
            ranks = self.calibrated.calibration.ranks(logits)
        coverage = None
        if calibrated is not None and confidence is not None:
            coverage = calibrated.coverage(self.task, logits, values, y, confidence)
        return evaluation(self.task, values, ranks, y, part=part, data=graphs.name, coverage=coverage)

    def calibrate(
        self,
        x: Any = None,
        part: str | None = None,
        *,
        method: str = "temperature",
        root: str | Path | None = None,
    ) -> Calibrated:
        """Learn from labelled graphs how true the probabilities are, and how wide sets and intervals have to be.

        What was learnt before is exchanged; logits, and so explanations, stay as they are. The promise of sets and
        intervals is exact for graphs that were not used at all; on validation graphs, by which an epoch or weights
        were chosen, it is nearly so. If the model has a directory, what was learnt is written there.

        Args:
            x: labelled data that the model was not trained on; the model's own data unless given.
            part: which part; unless given, `valid` of the model's own data and `all` of others.
            method: `temperature`, `platt`, `isotonic`, or `none` for sets alone. A regression has intervals alone.
            root: where data sets are kept.
        """
        graphs, indices, part = self._labelled_part(x, part or ("valid" if x is None else "all"), root)
        assert graphs.y is not None
        if part in ("train", "all") and self.trained_on(graphs):
            raise UsageError(
                f"{{field}} {part!r} of {graphs.name} holds graphs that the model was trained on, which it knows "
                "better than any other",
                "part",
                "valid",
            )
        logits = self.logits(graphs, indices)
        values = self._finite(logits, graphs, indices)
        data = {"name": graphs.name, "fingerprint": graphs.fingerprint, "part": part, "graphs": len(indices)}
        self.calibrated = Calibrated.fit(self.task, logits, values, graphs.y[indices], method, data)
        if self.path is not None:
            self.calibrated.write(self.path)
        return self.calibrated

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Write the model into a directory, which can be moved, and from which `mlap.load` reads it again.

        Args:
            path: the directory; made if there is none.
            overwrite: whether to replace a model that is there.
        """
        path = Path(path)
        splits = None if self.path is None else self.path / SPLITS
        parts = splits.read_text(encoding="utf-8") if splits is not None and splits.exists() else None
        with new_folder(path, overwrite) as folder:
            if parts is not None:
                write_text(folder / SPLITS, parts)
            self.write(folder)
            if self.calibrated is not None:
                self.calibrated.write(folder)
        return path

    def explain(
        self,
        x: Any,
        *,
        smiles: str | None = None,
        root: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Explanations:
        """The share of every node, at every level, in the prediction. The arguments are those of `predict`."""
        return Explanations(self, self.inputs(x, smiles=smiles, root=root, progress=progress))

    def embed(
        self,
        x: Any,
        *,
        smiles: str | None = None,
        root: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Embeddings:
        """Graphs as vectors: final and level-wise representations. The arguments are those of `predict`."""
        inputs = self.inputs(x, smiles=smiles, root=root, progress=progress)
        found = self.embed_graphs(inputs.graphs, np.arange(len(inputs.graphs)))
        final, levels = (np.full((inputs.num_rows, *rows.shape[1:]), np.nan, rows.dtype) for rows in found)
        final[inputs.kept], levels[inputs.kept] = found
        return Embeddings(final, levels, inputs)

    def check_confidence(self, confidence: float | None) -> Calibrated | None:
        """What sets and intervals are made by, if they are asked for; a model that can make none is told so."""
        if confidence is None:
            return None
        if self.calibrated is None:
            raise UsageError("{field} needs a calibrated model: calibrate this one first", "confidence")
        alpha_of(confidence)
        return self.calibrated

    # ---- what the verbs are given ------------------------------------------------------------------------------------

    def inputs(
        self,
        x: Any,
        *,
        smiles: str | None = None,
        root: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Inputs:
        """Read what `predict`, `explain` and `embed` take, and make sure that the model can read it."""
        root = root or self._root()
        inputs = read_inputs(x, molecules=self.reads_molecules, smiles=smiles, root=root, progress=progress)
        if len(inputs.graphs):
            check_fits(self.config, inputs.graphs)
        return inputs

    def data(self, root: str | Path | None = None, **options: Any) -> GraphSet:
        """The data that the model was trained on, read again.

        Args:
            root: where data sets are kept; where they were then, unless given.
            options: more options of `mlap.load_graphs` (`progress`, `say`).
        """
        data = self.config["data"]
        if data["source"] is None:
            raise UsageError(
                f"the model was trained on graphs in memory ({data['name']}), which were not kept; give {{field}}",
                "data",
            )
        return load_graphs(data["source"], root=root or self._root(), **{**data["options"], **options})

    def labelled(self, x: Any, *, root: str | Path | None = None, **options: Any) -> GraphSet:
        """Other labelled data, read for the model's task."""
        if isinstance(x, GraphSet):
            return x
        root = root or self._root()
        kept = self.config["data"]["options"]
        targets = kept.get("targets") or (self.task.names if self.task.kind != "multiclass" else None)
        return load_graphs(x, root=root, **options, **for_task(x, self.task, targets))

    def _labelled_part(self, x: Any, part: str, root: str | Path | None) -> tuple[GraphSet, NDArray[np.int64], str]:
        """A labelled set that the model can read, and which of its graphs are meant."""
        graphs = self.data(root=root) if x is None else self.labelled(x, root=root)
        check_fits(self.config, graphs)
        if graphs.y is None:
            raise UsageError(f"{graphs.name} has no labels to score against", "data")
        own, other = ((task.kind, task.num_outputs) for task in (self.task, graphs.task or self.task))
        if own != other:
            raise UsageError(
                f"{graphs.name} is labelled for another task: {other[0]} with {other[1]} outputs, where the model's is "
                f"{own[0]} with {own[1]}",
                "data",
            )
        if part not in PARTS:
            raise UsageError(f"{{field}} must be {', '.join(PARTS[:-1])} or all, got {part!r}", "part")
        indices = np.arange(len(graphs)) if part == "all" else graphs.split(part)
        if not len(indices):
            raise DataError(f"{graphs.name} has no graphs in its part {part!r}")
        return graphs, indices, part

    def trained_on(self, graphs: GraphSet) -> bool:
        """Whether these are, to the last label, the data that the model was trained on."""
        return bool(graphs.fingerprint == self.config["data"]["fingerprint"])

    def _root(self) -> str | None:
        """Where data sets were kept when the model was trained, as long as that folder is there."""
        root = self.config["data"].get("root")
        return root if root and Path(root).is_dir() else None


def for_task(x: Any, task: Task, targets: Any) -> dict[str, Any]:
    """The options with which a table is read for a given task; other sources take none."""
    from mlap.graphs.sources import is_table

    if isinstance(x, str | Path) and not is_table(str(x)):
        return {}
    return {"task": task, **({"targets": targets} if targets else {})}
