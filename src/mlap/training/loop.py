"""The training loop: from a recipe and a graph set to a trained network, its history and its scores."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric
from numpy.typing import NDArray
from torch import Tensor

import mlap
from mlap.errors import MlapError, UsageError
from mlap.files import first_line, write_json
from mlap.graphs import GraphBatch, GraphSet
from mlap.nn import GraphNetwork
from mlap.provenance import source_id
from mlap.training import parallel
from mlap.training import run as files
from mlap.training.batches import Batches, evaluation_batches
from mlap.training.objective import Objective
from mlap.training.recipe import Recipe

#: shapes of batches for which a network is compiled; torch itself would give up after 8
COMPILED_SHAPES = 64


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
    """The scores of a run: those of its best validation epoch.

    Args:
        metric: how scores are measured.
        best_epoch: the first epoch with the best validation score.
        valid_score: the validation score there.
        test_score: the test score there, or `None` if the set has no test split.
        epochs: how many epochs were trained.
        num_parameters: of the network.
    """

    metric: str
    best_epoch: int
    valid_score: float
    test_score: float | None
    epochs: int
    num_parameters: int


@dataclass(frozen=True)
class Trained:
    """What training returns: the network of the best validation epoch, its scores and its history."""

    network: GraphNetwork
    objective: Objective
    result: Result
    history: list[Epoch]


def train(
    recipe: Recipe,
    graphs: GraphSet,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    device: str = "cpu",
    compile: bool = False,
    source: Mapping[str, Any] | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Trained:
    """Train the network of a recipe on a labelled graph set with the splits `train` and `valid`.

    The score of a run is its best validation epoch; the test graphs are looked at once, with that epoch's weights.
    The recipe's seed decides everything: the same call gives the same numbers on the same machine and with the same
    number of threads. Random numbers of an epoch depend on the seed and the epoch alone, so that a run that was
    stopped and resumed equals one that was not. The caller's random state is left as it was. Several processes can
    train together: see `mlap.training.parallel`.

    Args:
        recipe: what to train.
        graphs: on what.
        out: the run directory; nothing is written without one.
        resume: continue the run in `out` after its last finished epoch; start it if there is none.
        device: a torch device.
        compile: train with `torch.compile`, on batches padded to a few shapes. What is trained is the same, random
            numbers and rounding aside.
        source: how to load `graphs` again, kept in the run's configuration: the `source`, the `options`
            and the `root` of `mlap.graphs.load_graphs`; the name of the set alone unless given.
        on_epoch: called after every epoch, also once for each epoch that a resumed run has behind it (by the first
            process, if there are several).
        on_step: called after every training step with the number of steps done in this epoch and in all of it.
    """
    if compile and recipe.norm == "batch":
        raise UsageError(
            "compiled training pads batches, and batch normalisation would see the padding; "
            "choose another norm, or leave out --compile"
        )
    first = parallel.rank() == 0
    if out is not None:
        out = Path(out)
        if first:
            _prepare(out, recipe, graphs, device, source, resume)
        parallel.wait_for_all()
    with torch.random.fork_rng(), _compiler() if compile else nullcontext():
        trainer = _Trainer(recipe, graphs, torch.device(device), compile)
        if out is not None and (out / files.LAST).exists():
            trainer.restore(files.read_checkpoint(out / files.LAST))
            parallel.wait_for_all()
            if first:
                trainer.save_readable(out)
        for done in trainer.history:
            if on_epoch is not None and first:
                on_epoch(done)
        while trainer.epoch < recipe.epochs:
            trainer.run_epoch(on_step)
            if out is not None and first:
                trainer.save(out)
            if on_epoch is not None and first:
                on_epoch(trainer.history[-1])
        result = trainer.finish()
    if out is not None and first:
        write_json(out / files.RESULT, asdict(result))
    return Trained(trainer.network, trainer.objective, result, trainer.history)


class _Trainer:
    """The state of a run between two epochs."""

    def __init__(self, recipe: Recipe, graphs: GraphSet, device: torch.device, compile: bool = False) -> None:
        self.recipe = recipe
        self.graphs = graphs
        self.device = device
        self.objective = Objective.of(graphs)
        torch.manual_seed(_seeds(recipe.seed, 0)[0])
        described = files.describe_features(graphs)
        self.network = files.build_network(recipe, self.objective.task, described["nodes"], described["edges"])
        self.network.to(device)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), recipe.lr, weight_decay=recipe.weight_decay, fused=device.type in ("cpu", "cuda")
        )
        self.batches = Batches(graphs, device, pad=compile)
        self.forward: Callable[[GraphBatch], Tensor] = self.network
        if compile:
            mode = "reduce-overhead" if device.type == "cuda" else None  # with CUDA graphs
            self.forward = torch.compile(self.network, dynamic=False, mode=mode)
        self.history: list[Epoch] = []
        self.best_epoch = 0
        self.best_weights: dict[str, Tensor] = {}

    @property
    def epoch(self) -> int:
        """The epochs done."""
        return len(self.history)

    def run_epoch(self, on_step: Callable[[int, int], None] | None) -> None:
        """Train for one epoch and look at the validation graphs."""
        started = time.perf_counter()
        epoch = self.epoch + 1
        shuffle_seed, dropout_seed = _seeds(self.recipe.seed, epoch)
        order = np.random.RandomState(shuffle_seed).permutation(self.graphs.split("train"))
        torch.manual_seed(dropout_seed + parallel.rank())
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr_at(epoch)
        train_loss = self._train_steps(order, on_step)
        if not math.isfinite(train_loss):
            raise MlapError(
                f"the training loss became {train_loss} in epoch {epoch}; lower the learning rate "
                f"(lr is {self.recipe.lr:g}) or use a normalisation"
            )
        logits, labels = self._predict("valid")
        done = Epoch(
            epoch,
            self.recipe.lr_at(epoch),
            train_loss,
            float(self.objective.loss(logits, torch.from_numpy(labels))),
            self.objective.score(logits, labels),
            time.perf_counter() - started,
        )
        self.history.append(done)
        if self.best_epoch == 0 or self._better(done.valid_score, self.history[self.best_epoch - 1].valid_score):
            self.best_epoch = epoch
            self.best_weights = {key: value.cpu().clone() for key, value in self.network.state_dict().items()}

    def _better(self, score: float, than: float) -> bool:
        return score > than if self.objective.task.higher_is_better else score < than

    def _train_steps(self, order: NDArray[np.int64], on_step: Callable[[int, int], None] | None) -> float:
        """One pass over the training graphs; the mean loss per label."""
        self.network.train()
        assert self.graphs.y is not None
        size = self.recipe.batch_size
        steps = math.ceil(len(order) / size)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for step in range(steps):
            total += self._train_step(order[step * size : (step + 1) * size])
            if on_step is not None:
                on_step(step + 1, steps)
        parallel.add_up([total])
        return float(total) / max(1, self.objective.known_labels(self.graphs.y[order]))

    def _train_step(self, whole: NDArray[np.int64]) -> Tensor | float:
        """One step on a batch of all processes; this process's part of the sum of its losses.

        Nothing here looks at a value on the device, so that the host can run ahead of it.
        """
        assert self.graphs.y is not None
        part = parallel.share(whole)
        labels = self.objective.known_labels(self.graphs.y[whole])
        summed: Tensor | float = 0.0
        self.optimizer.zero_grad()
        if len(part):
            batch = self.batches.for_training(part)
            assert batch.y is not None
            loss = self.objective.loss(self.forward(batch)[: batch.num_real], batch.y)
            if len(part) < len(whole):
                loss = loss * (self.objective.known_labels(self.graphs.y[part]) / max(1, labels))
            torch.autograd.backward(loss)
            summed = loss.detach() * labels
        parallel.add_up_gradients(self.network)
        self.optimizer.step()
        return summed

    def _predict(self, split: str) -> tuple[Tensor, NDArray[Any]]:
        """The logits and the labels of a split; every process computes its share of the logits."""
        assert self.graphs.y is not None
        indices = self.graphs.split(split)
        part = _logits(self.network, self.batches.for_evaluation(split))
        return parallel.join_shares(part, len(indices)), self.graphs.y[indices]

    def finish(self) -> Result:
        """Put the best weights into the network and score the test graphs with them."""
        self.network.load_state_dict(self.best_weights)
        test_score = None
        if len(self.graphs.splits.get("test", ())):
            test_score = self.objective.score(*self._predict("test"))
        return Result(
            metric=self.objective.task.metric,
            best_epoch=self.best_epoch,
            valid_score=self.history[self.best_epoch - 1].valid_score,
            test_score=test_score,
            epochs=self.epoch,
            num_parameters=sum(parameter.numel() for parameter in self.network.parameters()),
        )

    def save(self, out: Path) -> None:
        """Write the state after an epoch, the checkpoint first."""
        files.write_checkpoint(
            out / files.LAST,
            {
                "format": files.FORMAT,
                "history": [asdict(epoch) for epoch in self.history],
                "network": self.network.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "best_epoch": self.best_epoch,
                "best_weights": self.best_weights,
            },
        )
        self.save_readable(out, weights=self.best_epoch == self.epoch)

    def save_readable(self, out: Path, weights: bool = True) -> None:
        """Write what others read of the run: its history and, if they are new, its best weights."""
        if weights:
            files.write_weights(out / files.MODEL, self.best_weights, self.best_epoch)
        files.write_history(out / files.HISTORY, [asdict(epoch) for epoch in self.history])

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Take up the state of a checkpoint."""
        self.history = [Epoch(**epoch) for epoch in checkpoint["history"]]
        self.network.load_state_dict(checkpoint["network"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.best_epoch = checkpoint["best_epoch"]
        self.best_weights = checkpoint["best_weights"]


@contextmanager
def _compiler() -> Iterator[None]:
    """Torch's compiler with the settings that our networks need, and with errors of one line."""
    from torch._dynamo import config, exc

    patch: Callable[..., AbstractContextManager[Any]] = config.patch
    try:
        with patch(recompile_limit=COMPILED_SHAPES, allow_rnn=True):  # the latter for JK-LSTM
            yield
    except exc.TorchDynamoException as error:
        raise MlapError(f"torch could not compile the network ({first_line(error)}); leave out --compile") from error


def _seeds(seed: int, epoch: int) -> tuple[int, int]:
    """Two seeds for an epoch, of shuffling and of dropout; epoch 0 stands for the initial weights."""
    first, second = np.random.SeedSequence([seed, epoch]).generate_state(2, np.uint32)
    return int(first), int(second)


def _prepare(
    out: Path, recipe: Recipe, graphs: GraphSet, device: str, source: Mapping[str, Any] | None, resume: bool
) -> None:
    """Make the run directory, or make sure that it holds the same run."""
    config = _config(recipe, graphs, device, source)
    if not (out / files.CONFIG).exists():
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / files.CONFIG, config)
        return
    if not resume:
        raise UsageError(f"{out} already holds a run; add --resume to continue it, or choose another --out")
    before = files.read_config(out)
    for field, value in recipe.as_dict().items():
        if before["recipe"].get(field) != value:
            raise UsageError(
                f"{out} was started with {field} = {before['recipe'].get(field)}, now got {value}; "
                "resume with the same recipe, or choose another --out"
            )
    if before["data"]["fingerprint"] != graphs.fingerprint:
        raise UsageError(f"{out} was started on other data than {graphs.name}: their fingerprints differ")


def _config(recipe: Recipe, graphs: GraphSet, device: str, source: Mapping[str, Any] | None) -> dict[str, Any]:
    objective = Objective.of(graphs)
    return {
        "format": files.FORMAT,
        "recipe": recipe.as_dict(),
        "data": {
            **(source or {"source": graphs.name, "options": {}}),
            "name": graphs.name,
            "fingerprint": graphs.fingerprint,
            "graphs": len(graphs),
            "splits": {name: len(part) for name, part in graphs.splits.items()},
        },
        "task": asdict(objective.task),
        "features": files.describe_features(graphs),
        "targets": objective.as_dict(),
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


def predict_logits(
    network: GraphNetwork, graphs: GraphSet, indices: NDArray[np.int64], device: torch.device | str = "cpu"
) -> Tensor:
    """The logits `(graphs, K)` of the given graphs, on the CPU, from the network in evaluation mode."""
    return _logits(network, (graphs.batch(part).to(device) for part in evaluation_batches(graphs, indices)))


def _logits(network: GraphNetwork, batches: Iterable[GraphBatch]) -> Tensor:
    """The logits of all graphs of some batches, on the CPU."""
    network.eval()
    with torch.inference_mode():
        return torch.cat([network(batch) for batch in batches]).cpu()


def evaluate(
    network: GraphNetwork,
    objective: Objective,
    graphs: GraphSet,
    indices: NDArray[np.int64],
    device: torch.device | str = "cpu",
) -> float:
    """The score of a network on the given graphs of a labelled set."""
    if graphs.y is None:
        raise UsageError(f"{graphs.name} has no labels to score against")
    return objective.score(predict_logits(network, graphs, indices, device), graphs.y[indices])
