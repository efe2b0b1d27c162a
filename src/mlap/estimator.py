"""Graph networks as scikit-learn estimators: `MLAPClassifier` and `MLAPRegressor`."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.model_selection import GroupShuffleSplit, StratifiedShuffleSplit, train_test_split
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _check_y, check_is_fitted

from mlap.errors import DataError, UsageError, unknown
from mlap.files import read_json, write_json
from mlap.graphs import Features, GraphSet, Task
from mlap.graphs.inputs import Inputs, read_inputs
from mlap.machines import usable_cores
from mlap.models import Ensemble, Explanations, Run, Weights, load
from mlap.models.run import resolve_device
from mlap.names import DEFAULT_METRICS
from mlap.progress import shows_progress, training_bar
from mlap.training import Recipe, recipe_for
from mlap.training import train as train_network
from mlap.training.run import config_of

Array = NDArray[Any]
Self = TypeVar("Self", bound="_Estimator")

INVALID = ("raise", "nan")
ESTIMATOR = "estimator.json"
#: the score that chooses the epoch of a classifier: unlike ROC-AUC, it is defined on few rows, and of one class
STOPS_BY = "log_loss"
#: fields of a recipe that are arguments of an estimator under the same name
FIELDS = (
    "architecture",
    "layers",
    "width",
    "backbone",
    "norm",
    "dropout",
    "epochs",
    "batch_size",
    "lr",
    "weight_decay",
)


class _Estimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share. The arguments are explained there."""

    def __init__(
        self,
        recipe: Recipe | Mapping[str, Any] | None = None,
        *,
        architecture: str | None = None,
        layers: int | None = None,
        width: int | None = None,
        backbone: str | None = None,
        norm: str | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        patience: int = 20,
        members: int = 1,
        invalid: str = "raise",
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.recipe = recipe
        self.architecture = architecture
        self.layers = layers
        self.width = width
        self.backbone = backbone
        self.norm = norm
        self.dropout = dropout
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.members = members
        self.invalid = invalid
        self.random_state = random_state
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []  # what networks make is in single precision
        return tags

    # ---- fitting -----------------------------------------------------------------------------------------------------

    def _fit(self, inputs: Inputs, y: Array, task: Task, sample_weight: Any, groups: Any) -> None:
        """Train on the rows that are graphs; `y` has a row for each row of the input."""
        weights = self._weights(sample_weight, inputs)
        groups = None if groups is None else column_or_1d(groups)
        if groups is not None:
            check_consistent_length(y, groups)
        used = inputs.kept if weights is None else inputs.kept[weights[inputs.kept] > 0]
        if not len(used):
            raise ValueError(f"there is nothing to train on: 0 of {inputs.num_rows} rows are graphs with a weight")
        if self._stratified and len(np.unique(y[used])) < 2:
            raise ValueError(f"the {len(used)} rows that can be trained on are all of one class")
        graphs = inputs.graphs.subset(np.searchsorted(inputs.kept, used))
        random = check_random_state(self.random_state)
        seeds = random.randint(np.iinfo(np.int32).max, size=self.members)
        everything = np.arange(len(used))
        graphs = dataclasses.replace(
            graphs, y=y[used], task=task, splits={"train": everything, "valid": everything}, name="training data"
        )
        recipe = self._recipe(graphs)
        stops = recipe.select == "best" if self.early_stopping == "auto" else self.early_stopping
        train, valid = everything, everything
        if stops:
            train, valid = self._inner_split(y[used], None if groups is None else groups[used], random)
            graphs = dataclasses.replace(graphs, splits={"train": train, "valid": valid})
        # Where nothing is held out, the validation graphs are those that were trained on, and choose nothing.
        held_out = {"patience": self.patience, "select": "best"}
        recipe = recipe.replace(**(held_out if valid is not train else {"patience": 0, "select": "last"}))
        row_weights = None if weights is None else weights[used]
        with self._threads():
            runs = [self._train(recipe.replace(seed=int(seed)), graphs, row_weights) for seed in seeds]
        self.model_: Run | Ensemble = runs[0] if len(runs) == 1 else Ensemble(runs, Weights.equal(len(runs)))
        self.n_iter_ = max(len(run.history) for run in runs)
        self._n_features_out = self._width_of(graphs.subset([0]))

    def _train(self, recipe: Recipe, graphs: GraphSet, weights: Array | None) -> Run:
        """Train one network."""
        assert graphs.task is not None
        silent = not shows_progress(bool(self.verbose))
        metric = recipe.select_metric or graphs.task.metric
        with training_bar(recipe.epochs, metric, silent=silent) as (on_epoch, on_step):
            trained = train_network(
                recipe,
                graphs,
                sample_weight=weights,
                device=resolve_device(self.device),
                on_epoch=on_epoch,
                on_step=on_step,
            )
        config = config_of(recipe, graphs, self.device)
        return Run(trained.network, recipe, trained.result, trained.history, config, trained.objective)

    def _width_of(self, graphs: GraphSet) -> int:
        """The channels of the vectors that `transform` makes."""
        return int(self.model_.embed_graphs(graphs, np.arange(len(graphs)))[0].shape[1])

    def _weights(self, sample_weight: Any, inputs: Inputs) -> Array | None:
        if sample_weight is None:
            return None
        weights: Array = _check_sample_weight(
            sample_weight, np.empty(inputs.num_rows), dtype=np.float64, ensure_non_negative=True
        )
        # Equal weights say nothing, and shall change nothing.
        return None if np.ptp(weights) == 0 and weights[0] > 0 else weights

    def _recipe(self, graphs: GraphSet) -> Recipe:
        """The recipe that was given, or the recommended one, with the fields that are arguments."""
        given = {field: getattr(self, field) for field in FIELDS if getattr(self, field) is not None}
        if isinstance(self.recipe, Recipe):
            return self.recipe.replace(**given)
        return recipe_for(graphs, "recommended", **{**(self.recipe or {}), **given})

    def _inner_split(self, y: Array, groups: Array | None, random: np.random.RandomState) -> tuple[Array, Array]:
        """The rows to train on and those that stop training; the same rows twice, where none are held out."""
        everything = np.arange(len(y))
        held_out = int(np.ceil(self.validation_fraction * len(y)))
        if not 0 < held_out < len(y):
            return everything, everything
        counts = np.unique(y, return_counts=True)[1]
        if groups is not None:
            if len(np.unique(groups)) < 2:
                return everything, everything
            splitter = GroupShuffleSplit(1, test_size=self.validation_fraction, random_state=random)
            train, valid = next(splitter.split(everything, groups=groups))
        elif self._stratified and counts.min() > 1 and min(held_out, len(y) - held_out) >= len(counts):
            train, valid = next(StratifiedShuffleSplit(1, test_size=held_out, random_state=random).split(everything, y))
        else:
            train, valid = train_test_split(everything, test_size=held_out, random_state=random)
        if self._stratified and len(np.unique(y[train])) < len(counts):
            return everything, everything  # a class that is not trained on could not be predicted
        return train, valid

    _stratified = False

    def _check_params(self) -> None:
        if self.invalid not in INVALID:
            raise unknown("way to treat invalid rows", str(self.invalid), INVALID, "invalid")
        fraction = self.validation_fraction
        if not isinstance(fraction, numbers.Real) or not 0 < fraction < 1:
            raise UsageError(f"{{field}} must be between 0 and 1, got {fraction!r}", "validation_fraction")
        if self.early_stopping not in (True, False, "auto"):
            raise UsageError(f"{{field}} must be True, False or 'auto', got {self.early_stopping!r}", "early_stopping")
        if not isinstance(self.members, numbers.Integral) or self.members < 1:
            raise UsageError(f"{{field}} must be a whole number, at least 1, got {self.members!r}", "members")

    @contextmanager
    def _threads(self) -> Iterator[None]:
        """Compute with `n_jobs` threads; joblib's -1 is all cores."""
        before = torch.get_num_threads()
        if self.n_jobs is not None:
            wanted = self.n_jobs if self.n_jobs > 0 else usable_cores() + 1 + self.n_jobs
            torch.set_num_threads(max(1, wanted))
        try:
            yield
        finally:
            torch.set_num_threads(before)

    # ---- what X is ---------------------------------------------------------------------------------------------------

    def _inputs(self, X: Any, reset: bool) -> Inputs:
        """The graphs of X; rows that are none raise, or are kept as such."""
        given = X
        if getattr(X, "ndim", 1) == 2 and X.shape[1] == 1 and not hasattr(X, "columns"):
            given = np.asarray(X)[:, 0]  # a column, as pipelines hand it on
        if isinstance(given, str):
            raise UsageError(f"X must be a sequence of graphs, got one text; write [{given!r}]")
        molecules = True if reset else self.model_.reads_molecules
        inputs = read_inputs(given, molecules=molecules, processes=self._processes())
        if inputs.invalid and self.invalid == "raise":
            row, reason = next(iter(inputs.invalid.items()))
            raise DataError(
                f"{len(inputs.invalid)} of {inputs.num_rows} rows are no molecules, the first is row {row}: {reason}",
                "invalid",
                "nan",
            )
        return inputs

    def _processes(self) -> int | None:
        return None if self.n_jobs is None or self.n_jobs < 1 else self.n_jobs

    def _read(self, X: Any) -> Inputs:
        """The graphs of X, as the network of a fitted estimator reads them."""
        check_is_fitted(self)
        self._check_params()
        inputs = self._inputs(X, reset=False)
        return dataclasses.replace(inputs, graphs=_in_vocabulary(inputs.graphs, self.model_.config["features"]))

    def _values(self, X: Any) -> Array:
        """`Predictions.values` for the rows of X."""
        inputs = self._read(X)
        with self._threads():
            return self.model_.predict_inputs(inputs).values

    # ---- what a fitted estimator can do beside predicting ------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """The vectors `(rows, channels)` that the network makes of graphs; NaN where a row is no graph."""
        inputs = self._read(X)
        with self._threads():
            final, _ = self.model_.embed_graphs(inputs.graphs, np.arange(len(inputs.graphs)))
        vectors = np.full((inputs.num_rows, final.shape[1]), np.nan, final.dtype)
        vectors[inputs.kept] = final
        return vectors

    def explain(self, X: Any) -> Explanations:
        """The share of every node, at every level, in each prediction; see `mlap.Model.explain`."""
        return Explanations(self.model_, self._read(X))

    def save(self, path: str | Path) -> Path:
        """Write the fitted estimator into a model directory, which `mlap.load` and the command line read too.

        No code is stored. A `random_state` that is no number is not stored either.
        """
        check_is_fitted(self)
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path} is there already and is not an empty folder; choose another {{field}}", "path")
        path.mkdir(parents=True, exist_ok=True)
        params = self.get_params(deep=False)
        if not isinstance(params["random_state"], numbers.Integral | None):
            params["random_state"] = None
        if isinstance(params["recipe"], Recipe):
            params["recipe"] = params["recipe"].as_dict()
        state = {"estimator": type(self).__name__, "params": params, **self._state()}
        write_json(path / ESTIMATOR, state)
        self.model_.write(path)
        return path

    @classmethod
    def load(cls: type[Self], path: str | Path, device: str = "auto") -> Self:
        """Read what `save` wrote, or a run that `mlap.train` wrote."""
        path = Path(path)
        model = load(path, device)
        networks = model.members if isinstance(model, Ensemble) else (model,)
        runs = [network for network in networks if isinstance(network, Run)]
        if not isinstance(model, Run | Ensemble) or len(runs) < len(networks):
            raise UsageError(
                f"{path} holds a {model.kind} that is not made of networks, as estimators are; use mlap.load", "path"
            )
        state = read_json(path / ESTIMATOR) if (path / ESTIMATOR).exists() else {}
        if state.get("estimator", cls.__name__) != cls.__name__:
            raise UsageError(f"{path} holds a {state['estimator']}, not a {cls.__name__}", "path")
        found = cls(**state.get("params", {"recipe": runs[0].recipe, "members": len(runs)}))
        found.model_ = model
        found.n_iter_ = max(len(run.history) for run in runs)
        found._restore(state)
        return found

    def _state(self) -> dict[str, Any]:
        """What `save` keeps of the fitted estimator beside its network."""
        return {"channels": self._n_features_out}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `save` kept; nothing, for a run that was trained without an estimator."""
        if "channels" in state:
            self._n_features_out = state["channels"]


_ARGUMENTS = """
    Every row of X is a graph: a SMILES string, a PyG `Data`, a networkx graph; or X is a `GraphSet`. Lists, object
    arrays, pandas Series and arrays of one column are all fine.

    Args:
        recipe: how to train: a `Recipe`, or a mapping of fields to change in the recommended one, which is what is
            trained unless told otherwise (`mlap.Recipe.recommended`). The next arguments change single fields, too.
        architecture: how levels become one vector: `mlap-sum`, `mlap-weighted`, `jk-concat`, `naive`, …
        layers: the number of message-passing layers.
        width: the width of node representations.
        backbone: the kind of message-passing layer.
        norm: the normalisation after each layer.
        dropout: the probability of dropout after every layer.
        epochs: how often the training graphs are seen, at most.
        batch_size: graphs per training step.
        lr: the learning rate.
        weight_decay: the penalty on large weights.{class_weight}
        early_stopping: hold out a part of the training rows (whole `groups`, and of each class its share), keep the
            weights of the epoch that does best on it, and stop after `patience` epochs without a better one.
            Otherwise all rows are trained on for all epochs. `auto` does what the recipe says: the recommended one
            keeps the best epoch of a regression, and the last one of a classification.
        validation_fraction: the part that is held out. Where that is no row at all, or would leave a class without
            training rows, nothing is.
        patience: see `early_stopping`; 0 to train for all epochs.
        members: how many networks to train, from different seeds; they add up with equal weights, see `mlap.Ensemble`.
        invalid: what to do about rows that are no molecules: `raise`, or leave them out of training and answer `nan`.
        random_state: of the held-out rows, the initial weights, shuffling and dropout.
        device: a torch device, or `auto`.
        n_jobs: threads to compute with and processes to read SMILES with; what torch does by itself unless given.
        verbose: whether to show a progress bar.
"""


_CLASS_WEIGHT = """
        class_weight: what a row counts by its class: a number for each class, or `balanced` for classes that count
            alike; all rows alike unless given."""


class MLAPClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    __doc__ = f"""A graph classifier with scikit-learn's interface.
{_ARGUMENTS.format(class_weight=_CLASS_WEIGHT)}
    Attributes:
        classes_: the classes.
        model_: the trained network, a `mlap.Run`, or with several `members` a `mlap.Ensemble`.
        n_iter_: how many epochs were trained, at most.

    Example:
        >>> smiles = ["CCO", "CCN", "CCC", "CCCC", "OCCO", "CC(C)O"] * 4
        >>> alcohol = ["yes", "no", "no", "no", "yes", "yes"] * 4
        >>> model = MLAPClassifier(layers=2, width=16, epochs=20, dropout=0.0, lr=0.01, random_state=0)
        >>> model.fit(smiles, alcohol).predict(["OCCCO"])
        array(['yes'], dtype='<U3')
    """

    def __init__(
        self,
        recipe: Recipe | Mapping[str, Any] | None = None,
        *,
        architecture: str | None = None,
        layers: int | None = None,
        width: int | None = None,
        backbone: str | None = None,
        norm: str | None = None,
        dropout: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        patience: int = 20,
        members: int = 1,
        invalid: str = "raise",
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            recipe,
            architecture=architecture,
            layers=layers,
            width=width,
            backbone=backbone,
            norm=norm,
            dropout=dropout,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            members=members,
            invalid=invalid,
            random_state=random_state,
            device=device,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.class_weight = class_weight

    _stratified = True

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> MLAPClassifier:
        """Train a network.

        Args:
            X: the graphs.
            y: a class for each.
            sample_weight: what each graph counts in the training loss; those that count nothing are left out.
            groups: graphs of the same group are held out together; see `early_stopping`.
        """
        self._check_params()
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        inputs = self._inputs(X, reset=True)
        y = _check_y(y, estimator=self)
        check_classification_targets(y)
        check_consistent_length(np.empty(inputs.num_rows), y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        number = len(self.classes_)
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, y)
            sample_weight = by_class if sample_weight is None else by_class * np.asarray(sample_weight)
        names = tuple(str(name) for name in self.classes_)
        if number < 2:
            raise ValueError(f"a classifier needs 2 classes or more, got 1 class: {names[0] if names else 'no rows'}")
        if number == 2:
            task = Task("binary", 1, STOPS_BY, labels=((names[0], names[1]),))
            self._fit(inputs, codes[:, None].astype(np.float32), task, sample_weight, groups)
        else:
            task = Task("multiclass", number, STOPS_BY, names)
            self._fit(inputs, codes.astype(np.int64), task, sample_weight, groups)
        return self

    def decision_function(self, X: Any) -> Array:
        """The logits: `(rows,)` of the second of two classes, `(rows, classes)` of more; NaN where a row is invalid."""
        inputs = self._read(X)
        logits = np.full((inputs.num_rows, self.model_.task.num_outputs), np.nan)
        with self._threads():
            logits[inputs.kept] = self.model_.logits(inputs.graphs)
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, `(rows, classes)`; NaN where a row is invalid."""
        values = self._values(X).astype(np.float64)
        if values.shape[1] == 1:
            return np.concatenate((1 - values, values), axis=1)
        proba: Array = values / values.sum(axis=1, keepdims=True)
        return proba

    def predict(self, X: Any) -> Array:
        """The likeliest class of each row. With `invalid="nan"`, an array of objects where a row is invalid."""
        proba = self.predict_proba(X)
        bad = np.isnan(proba[:, 0])
        labels: Array = self.classes_[np.where(bad[:, None], 0, proba).argmax(axis=1)]
        if bad.any():
            labels = labels.astype(object)
            labels[bad] = np.nan
        return labels

    def _state(self) -> dict[str, Any]:
        classes = {"classes": self.classes_.tolist(), "classes_dtype": self.classes_.dtype.str}
        return {**super()._state(), **classes}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        task = self.model_.task
        if task.kind == "regression" or (task.kind == "binary" and task.num_outputs > 1):
            raise UsageError(f"the model predicts {task.num_outputs} {task.kind} targets, not one class", "path")
        if "classes" in state:
            dtype = state["classes_dtype"]
            self.classes_ = np.array(state["classes"], dtype=object if dtype == "|O" else dtype)
        elif task.kind == "binary":
            self.classes_ = np.array(task.labels[0] if task.labels else (0, 1))
        else:
            self.classes_ = np.array(task.names or range(task.num_outputs))


class MLAPRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    __doc__ = f"""A graph regressor with scikit-learn's interface; several targets are fine.
{_ARGUMENTS.format(class_weight="")}
    Attributes:
        model_: the trained network, a `mlap.Run`, or with several `members` a `mlap.Ensemble`.
        n_iter_: how many epochs were trained, at most.

    Example:
        >>> smiles = ["C", "CC", "CCC", "CCCC", "CCCCC", "CCCCCC"] * 4
        >>> model = MLAPRegressor(layers=2, width=16, epochs=5, random_state=0)
        >>> model.fit(smiles, [len(text) for text in smiles]).predict(["CCC", "CC"]).shape
        (2,)
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> MLAPRegressor:
        """Train a network.

        Args:
            X: the graphs.
            y: a number for each, or `(rows, targets)`.
            sample_weight: what each graph counts in the training loss; those that count nothing are left out.
            groups: graphs of the same group are held out together; see `early_stopping`.
        """
        self._check_params()
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        inputs = self._inputs(X, reset=True)
        y = _check_y(y, multi_output=True, y_numeric=True, estimator=self)
        check_consistent_length(np.empty(inputs.num_rows), y)
        self._single = y.ndim == 1
        targets = y.reshape(len(y), -1).astype(np.float32)
        task = Task("regression", targets.shape[1], DEFAULT_METRICS["regression"])
        self._fit(inputs, targets, task, sample_weight, groups)
        return self

    def predict(self, X: Any) -> Array:
        """The value of each row, `(rows,)` or `(rows, targets)`; NaN where a row is invalid."""
        values = self._values(X)
        return values[:, 0] if self._single else values

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "single": self._single}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        if self.model_.task.kind != "regression":
            raise UsageError(f"the model's task is {self.model_.task.kind}, not a regression", "path")
        self._single = state.get("single", self.model_.task.num_outputs == 1)


def _in_vocabulary(graphs: GraphSet, trained: Mapping[str, Any]) -> GraphSet:
    """The graphs with as many categories as the network knows: few graphs need not have them all."""
    nodes, edges = _known(graphs.node_features, trained["nodes"]), _known(graphs.edge_features, trained["edges"])
    return dataclasses.replace(graphs, node_features=nodes, edge_features=edges).validate()


def _known(features: Features | None, trained: Any) -> Features | None:
    if features is None or features.cardinalities is None or not isinstance(trained, list):
        return features
    return dataclasses.replace(features, cardinalities=tuple(trained))
