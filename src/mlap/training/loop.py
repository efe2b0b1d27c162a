"""The training loop: from a recipe and a graph set to a trained network, its history and its scores."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mlap.errors import DataError, MlapError, UsageError
from mlap.files import first_line, write_json
from mlap.graphs import GraphBatch, GraphSet
from mlap.graphs.descriptors import descriptors_of
from mlap.graphs.dividing import write_splits
from mlap.nn import GraphNetwork
from mlap.training import parallel
from mlap.training import run as files
from mlap.training.batches import Batches, batch_for, evaluation_batches, prepare
from mlap.training.descriptor_head import DescriptorHead
from mlap.training.noise import STEPS as NOISE_STEPS
from mlap.training.noise import noise
from mlap.training.objective import Objective
from mlap.training.recipe import Recipe
from mlap.training.run import Epoch, Result
from mlap.training.stages import FROZEN

#: shapes of batches for which a network is compiled; torch itself would give up after 8
COMPILED_SHAPES = 64

#: poolings whose result grows with the number of nodes
COUNTING = ("attention-n", "gated-sum", "sum")

_HEADS = ("head.", "graph_head.")
_DEFAULT = Recipe()  # what a run of before had for a field that recipes did not have then


@dataclass(frozen=True)
class InitialWeights:
    """Weights of a trained network to start from.

    Args:
        weights: name → tensor, as in a state dict.
        run: the run that they are from.
        freeze_backbone: whether encoder and backbone keep them.
    """

    weights: Mapping[str, Tensor]
    run: str
    freeze_backbone: bool = False

    def load_into(self, network: GraphNetwork) -> None:
        """Copy the weights; a head for another number of outputs is left as it was drawn."""
        own = network.state_dict()
        fitting = {
            name: value
            for name, value in self.weights.items()
            if not (name.startswith(_HEADS) and name in own and own[name].shape != value.shape)
        }
        missing, unexpected = network.load_state_dict(fitting, strict=False) if _shapes_fit(own, fitting) else (own, ())
        if unexpected or any(not name.startswith(_HEADS) for name in missing):
            raise UsageError(
                f"the network of {self.run} has another form than the one to be trained: "
                "its architecture, layers, width and features must be the same",
                "init",
            )

    def as_dict(self) -> dict[str, Any]:
        """What a run's configuration keeps."""
        return {"run": self.run, "freeze_backbone": self.freeze_backbone}


@dataclass(frozen=True)
class EarlierStage(InitialWeights):
    """Weights that an earlier stage of the same run has trained.

    Args:
        same_readout: whether the readout goes on too.
    """

    same_readout: bool = False

    def load_into(self, network: GraphNetwork) -> None:
        """Copy what fits."""
        own = network.state_dict()
        carried = {
            name: value
            for name, value in self.weights.items()
            if name in own and own[name].shape == value.shape and (self.same_readout or not name.startswith("readout."))
        }
        network.load_state_dict(carried, strict=False)


def _shapes_fit(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> bool:
    return all(name not in own or own[name].shape == value.shape for name, value in given.items())


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
    overwrite: bool = False,
    initial: InitialWeights | None = None,
    sample_weight: NDArray[Any] | None = None,
    device: str = "cpu",
    compile: bool = False,
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
        resume: continue the run in `out` after its last finished epoch; start it if there is none. A finished run
            is extended if the recipe asks for more epochs.
        overwrite: replace the run in `out`.
        initial: weights to start from instead of drawing them.
        sample_weight: `(graphs,)`, what each graph counts in the training loss; only their ratios matter. A run
            directory does not keep them.
        device: a torch device.
        compile: train with `torch.compile`, on batches padded to a few shapes. What is trained is the same, random
            numbers and rounding aside.
        on_epoch: called after every epoch, also once for each epoch that a resumed run has behind it (by the first
            process, if there are several).
        on_step: called after every training step with the number of steps done in this epoch and in all of it.
    """
    if compile and _uses_batch_norm(recipe):
        raise UsageError(
            "compiled training pads batches, and batch normalisation would see the padding; choose another norm",
            "compile",
            False,
        )
    for field in ("deep_supervision", "flag"):
        if compile and getattr(recipe, field):
            raise UsageError("compiled training knows no {field}", field, 0)
    if initial is not None and recipe.stages:
        raise UsageError("a run that starts from the weights of another has no {field}", "stages")
    if sample_weight is not None and out is not None:
        raise UsageError("a run directory does not keep {field}; train without one", "sample_weight")
    first = parallel.rank() == 0
    if out is not None:
        out = Path(out)
        if first:
            _prepare(out, recipe, graphs, device, initial, resume, overwrite)
        parallel.wait_for_all()
    with torch.random.fork_rng(), _compiler() if compile else nullcontext():
        last = files.read_checkpoint(out / files.LAST) if out is not None and (out / files.LAST).exists() else None
        stage = 0 if last is None else recipe.stage_at(len(last["history"]))
        trainer = _Trainer(recipe, graphs, torch.device(device), initial, compile, stage)
        trainer.weigh(sample_weight)
        if out is not None and last is not None:
            try:
                trainer.restore(last)
            except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
                raise DataError(f"{out / files.LAST} is not of this run: {first_line(error)}") from error
            parallel.wait_for_all()
            if first:
                trainer.save_readable(out)
        for done in trainer.history:
            if on_epoch is not None and first:
                on_epoch(done)
        while not trainer.done:
            trainer = trainer.for_next_epoch()
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

    def __init__(
        self,
        recipe: Recipe,
        graphs: GraphSet,
        device: torch.device,
        initial: InitialWeights | None = None,
        compile: bool = False,
        stage: int = 0,
    ) -> None:
        self.recipe = recipe
        self.graphs = graphs
        self.device = device
        self.compile = compile
        self.stage = stage
        self.objective = Objective.of(graphs, recipe.select_metric, recipe.class_weight)
        torch.manual_seed(_seeds(recipe.seed, 0)[0])
        self.network = files.build_network(
            recipe.in_stage(stage), self.objective.task, files.describe_features(graphs, recipe)
        )
        if recipe.pooling in COUNTING:
            _scale_down(self.network, float(np.diff(graphs.node_ptr)[graphs.split("train")].mean()))
        if isinstance(self.network.graph_head, DescriptorHead):
            head = self.network.graph_head
            head.fit(descriptors_of(graphs, graphs.split("train"), head.names))
        if initial is not None:
            initial.load_into(self.network)
        self.network.to(device)
        freeze = recipe.stage(stage).name == FROZEN or (initial is not None and initial.freeze_backbone)
        self.frozen = _frozen_parts(self.network) if freeze else []
        optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer]
        self.optimizer = optimizer(
            [parameter for parameter in self.network.parameters() if parameter.requires_grad],
            recipe.lr,
            weight_decay=recipe.weight_decay,
            fused=device.type in ("cpu", "cuda"),
        )
        #: what predicts: the network itself, or the moving average of its weights
        self.predictor = copy.deepcopy(self.network).requires_grad_(False) if recipe.ema else self.network
        self.steps_done = 0
        self.batches = Batches(graphs, device, compile, self.network)
        self.forward: Callable[[GraphBatch], Tensor] = self.network
        if compile:
            mode = "reduce-overhead" if device.type == "cuda" else None  # with CUDA graphs
            self.forward = torch.compile(self.network, dynamic=False, mode=mode)
        self.weights: Tensor | None = None  # what each graph counts
        self.history: list[Epoch] = []
        self.best_epoch = 0  # the one whose weights are kept
        self.best_weights: dict[str, Tensor] = {}

    def weigh(self, sample_weight: NDArray[Any] | None) -> None:
        """Have graphs count by their weights, which are scaled so that training graphs count 1 on average."""
        if sample_weight is not None:
            scaled = np.asarray(sample_weight, dtype=np.float64) / np.mean(sample_weight[self.graphs.split("train")])
            self.weights = torch.from_numpy(scaled.astype(np.float32)).to(self.device)

    @property
    def epoch(self) -> int:
        """The epochs done."""
        return len(self.history)

    @property
    def candidates(self) -> list[Epoch]:
        """The epochs done whose weights may be kept: those of the recipe's own network."""
        return self.history[self.recipe.epochs_before :]

    @property
    def done(self) -> bool:
        """Whether all epochs are done, or enough of them in a row brought nothing better."""
        if self.epoch >= self.recipe.epochs:
            return True
        patience, candidates = self.recipe.patience, self.candidates
        return bool(patience and candidates) and self.epoch - _first_best(candidates, self._better) >= patience

    def for_next_epoch(self) -> _Trainer:
        """What trains the next epoch: this, or where a stage begins, one with that stage's network and optimizer."""
        stage = self.recipe.stage_at(self.epoch + 1)
        if stage == self.stage:
            return self
        same = self.recipe.in_stage(stage).architecture == self.recipe.in_stage(self.stage).architecture
        before = EarlierStage(self.network.state_dict(), f"stage {self.stage}", same_readout=same)
        following = _Trainer(self.recipe, self.graphs, self.device, before, self.compile, stage)
        following.history, following.weights = self.history, self.weights
        if self.candidates:
            following.best_epoch, following.best_weights = self.best_epoch, self.best_weights
        return following

    def run_epoch(self, on_step: Callable[[int, int], None] | None) -> None:
        """Train for one epoch and look at the validation graphs."""
        started = time.perf_counter()
        epoch = self.epoch + 1
        shuffle_seed, dropout_seed = _seeds(self.recipe.seed, epoch)
        order = np.random.RandomState(shuffle_seed).permutation(self.graphs.split("train"))
        torch.manual_seed(dropout_seed + parallel.rank())
        self._check_finite("training loss", train_loss := self._train_steps(order, epoch, on_step))
        logits, labels = self._predict("valid")
        self._check_finite("answer to a validation graph", float(logits.abs().max()))
        done = Epoch(
            epoch,
            self.recipe.lr_at(epoch),
            train_loss,
            float(self.objective.loss(logits, torch.from_numpy(labels))),
            self.objective.score(logits, labels),
            time.perf_counter() - started,
        )
        self.history.append(done)
        candidates = self.candidates
        if candidates and (self.recipe.select == "last" or _first_best(candidates, self._better) == epoch):
            self.best_epoch = epoch
            self.best_weights = {key: value.cpu().clone() for key, value in self.predictor.state_dict().items()}

    def _check_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise MlapError(
                f"the {what} became {value} in epoch {self.epoch + 1}; use a normalisation, or lower {{field}}, "
                f"which is {self.recipe.lr:g}",
                "lr",
            )

    def _better(self, score: float, than: float) -> bool:
        return score > than if self.objective.task.higher_is_better else score < than

    def _train_steps(self, order: NDArray[np.int64], epoch: int, on_step: Callable[[int, int], None] | None) -> float:
        """One pass over the training graphs; the mean loss per label."""
        self.network.train()
        for module in self.frozen:
            module.eval()
        assert self.graphs.y is not None
        parts = _parts(order, self.recipe)
        steps = len(parts)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for step, part in enumerate(parts):
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.lr_at(epoch, step, steps)
            total += self._train_step(part)
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
            weights = None if self.weights is None else self.weights[torch.from_numpy(part).to(self.device)]
            share = 1.0
            if len(part) < len(whole):
                share = self.objective.known_labels(self.graphs.y[part]) / max(1, labels)
            summed = self._backward(batch, weights, share) * labels
        parallel.add_up_gradients(self.network)
        if self.recipe.clip:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        self.optimizer.step()
        self._average()
        return summed

    def _backward(self, batch: GraphBatch, weights: Tensor | None, share: float) -> Tensor:
        """Add the gradients of a batch, a share of one, to the network's; its loss."""
        assert batch.y is not None
        if not self.recipe.flag:
            loss, beside = self._losses(batch, batch.y, weights)
            torch.autograd.backward((loss + beside) * share)
            return loss.detach() * share
        mean = torch.zeros((), device=self.device)
        with noise(self.network.encoder, batch.num_nodes, self.recipe.flag) as climb:
            for _ in range(NOISE_STEPS):
                loss, beside = self._losses(batch, batch.y, weights)
                torch.autograd.backward((loss + beside) * (share / NOISE_STEPS))
                mean += loss.detach() * (share / NOISE_STEPS)
                climb()
        return mean

    def _losses(self, batch: GraphBatch, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | float]:
        """The loss of the logits, and what is minimised beside it: the losses of levels, the price of learned ones."""
        beside: Tensor | float = getattr(getattr(self.network.readout, "join", None), "penalty", 0.0)
        supervision = self.recipe.deep_supervision * (1 - self.epoch / max(1, self.recipe.epochs - 1))
        if not supervision:
            return self.objective.loss(self.forward(batch)[: batch.num_real], y, weights), beside
        logits, alone = self.network.supervised(batch)
        losses = torch.stack([self.objective.loss(of_level, y, weights) for of_level in alone])
        return self.objective.loss(logits, y, weights), beside + supervision * losses.mean()

    def _average(self) -> None:
        """Move the averaged weights towards the network's; quickly at first, when they mean little."""
        self.steps_done += 1
        if self.predictor is self.network:
            return
        decay = min(self.recipe.ema, (1 + self.steps_done) / (10 + self.steps_done))
        now = self.network.state_dict()
        with torch.no_grad():
            for name, average in self.predictor.state_dict().items():
                if average.is_floating_point():
                    average.lerp_(now[name], 1 - decay)
                else:  # how many batches a normalisation has seen
                    average.copy_(now[name])

    def _predict(self, split: str) -> tuple[Tensor, NDArray[Any]]:
        """The logits and the labels of a split; every process computes its share of the logits."""
        assert self.graphs.y is not None
        indices = self.graphs.split(split)
        part = _logits(self.predictor, self.batches.for_evaluation(split))
        return parallel.join_shares(part, len(indices)), self.graphs.y[indices]

    def finish(self) -> Result:
        """Put the best weights into the network and score the test graphs with them."""
        self.network.load_state_dict(self.best_weights)
        self.network.settle()
        self.predictor = self.network.requires_grad_(True)
        test_score = None
        if len(self.graphs.splits.get("test", ())):
            with suppress(DataError):  # too few test graphs for the metric; the run is good all the same
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
                "averaged": {} if self.predictor is self.network else self.predictor.state_dict(),
                "steps_done": self.steps_done,
            },
        )
        self.save_readable(out, weights=self.best_epoch == self.epoch)

    def save_readable(self, out: Path, weights: bool = True) -> None:
        """Write what others read of the run: its history and, if they are new, its best weights."""
        if weights and self.best_weights:
            files.write_weights(out / files.MODEL, self.best_weights)
        files.write_history(out / files.HISTORY, [asdict(epoch) for epoch in self.history])

    def restore(self, checkpoint: Mapping[str, Any]) -> None:
        """Take up the state of a checkpoint."""
        self.history = [Epoch(**epoch) for epoch in checkpoint["history"]]
        self.network.load_state_dict(checkpoint["network"])
        _restore_optimizer(self.optimizer, checkpoint["optimizer"])
        self.best_epoch = checkpoint["best_epoch"]
        self.best_weights = checkpoint["best_weights"]
        if self.candidates and {name: value.shape for name, value in self.best_weights.items()} != {
            name: value.shape for name, value in self.network.state_dict().items()
        }:
            raise ValueError("the best weights are those of another network")
        self.steps_done = checkpoint.get("steps_done", 0)
        if self.predictor is not self.network:
            self.predictor.load_state_dict(checkpoint["averaged"])


def _restore_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Take up what an optimizer knows of each weight; how it learns, the recipe says."""
    learns = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, own in zip(optimizer.param_groups, learns, strict=True):
        for name in group.keys() - {"params"}:
            del group[name]
        group.update(own)
    for parameter, known in optimizer.state.items():
        shapes = {name: value.shape for name, value in known.items() if isinstance(value, Tensor)}
        of_weight = getattr(parameter, "shape", None)  # what stands for no weight stays as it was
        if shapes != {"step": torch.Size(), "exp_avg": of_weight, "exp_avg_sq": of_weight} or len(known) != 3:
            raise ValueError("the optimizer is that of another network")


@contextmanager
def _compiler() -> Iterator[None]:
    """Torch's compiler with the settings that our networks need, and with errors of one line."""
    from torch._dynamo import config, exc

    patch: Callable[..., AbstractContextManager[Any]] = config.patch
    try:
        with patch(recompile_limit=COMPILED_SHAPES, allow_rnn=True):  # the latter for JK-LSTM
            yield
    except exc.TorchDynamoException as error:
        raise MlapError(f"torch could not compile the network ({first_line(error)})", "compile", False) from error


def _parts(order: NDArray[np.int64], recipe: Recipe) -> list[NDArray[np.int64]]:
    """The training graphs of an epoch, cut into batches.

    With statistics of batches, all batches are about as large: a few graphs at the end would say little of the others,
    and a tenth of what evaluation uses would be theirs. Otherwise the last batch is what is left, as in the paper.
    """
    size = recipe.batch_size
    if _uses_batch_norm(recipe):
        return np.array_split(order, max(1, round(len(order) / size)))
    return [order[start : start + size] for start in range(0, len(order), size)]


def _uses_batch_norm(recipe: Recipe) -> bool:
    return "batch" in (recipe.norm, recipe.inner_norm) or recipe.virtual_node


def _seeds(seed: int, epoch: int) -> tuple[int, int]:
    """Two seeds for an epoch, of shuffling and of dropout; epoch 0 stands for the initial weights."""
    first, second = np.random.SeedSequence([seed, epoch]).generate_state(2, np.uint32)
    return int(first), int(second)


def _first_best(history: Sequence[Epoch], better: Callable[[float, float], bool]) -> int:
    """The first epoch with the best validation score, counted from 1."""
    best = history[0]
    for epoch in history[1:]:
        if better(epoch.valid_score, best.valid_score):
            best = epoch
    return best.epoch


def _frozen_parts(network: GraphNetwork) -> list[torch.nn.Module]:
    """Freeze encoder and backbone; what in them keeps statistics of batches, which must not go on changing either."""
    frozen = []
    for part in filter(None, (network.encoder, network.walk_encoder, network.backbone)):
        part.requires_grad_(False)
        frozen += [module for module in part.modules() if getattr(module, "track_running_stats", False)]
    return frozen


def _scale_down(network: GraphNetwork, nodes: float) -> None:
    """Divide the head's first weights by the nodes of an average graph.

    What a pooling that counts gives to the head is so many times larger than a mean. Logits that start far off cost a
    tenth of the score in a regression (ESOL, three splits: validation RMSE .78, .83, .81 against .83, .90, .98).
    """
    first = next(module for module in network.head.modules() if isinstance(module, torch.nn.Linear))
    with torch.no_grad():
        first.weight /= max(1.0, nodes)


def _prepare(
    out: Path,
    recipe: Recipe,
    graphs: GraphSet,
    device: str,
    initial: InitialWeights | None,
    resume: bool,
    overwrite: bool,
) -> None:
    """Make the run directory, or make sure that it holds the same run."""
    config = files.config_of(recipe, graphs, device, None if initial is None else initial.as_dict())
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file, where {{field}} should be a folder", "out")
    if overwrite and (out / files.CONFIG).exists():
        files.remove_run(out)
    if not (out / files.CONFIG).exists():
        if out.is_dir() and any(not entry.name.startswith(".") for entry in out.iterdir()):
            raise UsageError(f"{out} is neither empty nor a run; choose another folder for {{field}}", "out")
        write_json(out / files.CONFIG, config)  # first: by it the folder is known as a run
        write_splits(out / files.SPLITS, graphs)
        return
    if not resume:
        raise UsageError(
            f"{out} already holds a run; continue it, replace it, or choose another folder", "resume", True
        )
    before = files.read_config(out)
    if before["data"]["fingerprint"] != graphs.fingerprint:
        raise UsageError(f"{out} was started on other data than {graphs.name}: their fingerprints differ", "data")
    changed = {
        field: (before["recipe"].get(field, getattr(_DEFAULT, field)), value)
        for field, value in recipe.as_dict().items()
        if before["recipe"].get(field, getattr(_DEFAULT, field)) != value
    }
    fixed = recipe.schedule != "step" or recipe.deep_supervision  # what depends on the number of epochs
    may_change = ("patience",) if fixed else ("epochs", "patience")
    for field, (was, now) in changed.items():
        if field not in may_change:
            reason = "; a cosine schedule or deep supervision cannot be extended" if field == "epochs" else ""
            raise UsageError(f"{out} was started with {{field}} {was}, now got {now}{reason}", field)
    if not (out / files.SPLITS).exists():  # the run was stopped before it could write them
        write_splits(out / files.SPLITS, graphs)
    if changed:
        write_json(out / files.CONFIG, {**before, "recipe": recipe.as_dict()})
        (out / files.RESULT).unlink(missing_ok=True)


def predict_logits(
    network: GraphNetwork, graphs: GraphSet, indices: NDArray[np.int64], device: torch.device | str = "cpu"
) -> Tensor:
    """The logits `(graphs, K)` of the given graphs, on the CPU, from the network in evaluation mode."""
    prepare(network, graphs, indices)
    return _logits(
        network, (batch_for(network, graphs, part).to(device) for part in evaluation_batches(graphs, indices))
    )


def _logits(network: GraphNetwork, batches: Iterable[GraphBatch]) -> Tensor:
    """The logits of all graphs of some batches, on the CPU."""
    network.eval()
    with torch.inference_mode():
        return torch.cat([network(batch) for batch in batches]).cpu()
