"""A run: one trained network, its scores and its history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from mlap.errors import UsageError
from mlap.files import write_json
from mlap.graphs import GraphSet, load_graphs
from mlap.graphs.dividing import check_parts
from mlap.models.baseline import Baseline, train_baseline
from mlap.models.explanation import Explanation, explain
from mlap.models.levels import level_representations
from mlap.models.model import Floats, Model
from mlap.nn import GraphNetwork
from mlap.progress import shows_progress, training_bar
from mlap.training import Epoch, InitialWeights, Objective, Recipe, Result, parallel, predict_logits, recipe_for
from mlap.training import train as train_network
from mlap.training.descriptor_head import DescriptorHead
from mlap.training.run import (
    CONFIG,
    HISTORY,
    MODEL,
    RESULT,
    config_of,
    read_config,
    read_history,
    read_network,
    read_result,
    write_history,
    write_weights,
)


class Run(Model):
    """A trained network.

    Args:
        network: with the weights that were kept.
        recipe: how it was trained.
        result: its scores; `None` while the run is unfinished.
        history: its epochs.
        config, objective, path: see `Model`.
    """

    def __init__(
        self,
        network: GraphNetwork,
        recipe: Recipe,
        result: Result | None,
        history: Sequence[Epoch],
        config: dict[str, Any],
        objective: Objective,
        path: Path | None = None,
    ) -> None:
        super().__init__(config, objective, path)
        self.network = network.eval()
        self.recipe = recipe
        self.result = result
        self.history = list(history)

    def __repr__(self) -> str:
        where = "" if self.path is None else f", {str(self.path)!r}"
        return f"Run({self.recipe.architecture}, {self.recipe.layers} layers, {self.config['data']['name']}{where})"

    @property
    def levels(self) -> tuple[int, ...] | None:
        """The numbers of the levels that the readout reads, chosen or learned; `None` if it reads all."""
        reads = self.network.reads
        return None if reads is None else self.network.level_numbers(len(reads))

    @property
    def device(self) -> torch.device:
        """Where the network computes."""
        return next(self.network.parameters()).device

    def to(self, device: str) -> Run:
        """Move the network to a device."""
        self.network.to(resolve_device(device))
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of it: that its training has not ended."""
        if self.result is not None:
            return ()
        return (f"training is unfinished: {len(self.history)} of {self.recipe.epochs} epochs",)

    @property
    def explains(self) -> bool:
        """Always: what cannot be told apart is said in the explanation's `reason`."""
        return True

    @property
    def reads_descriptors(self) -> bool:
        """Whether the head adds a term of them."""
        return isinstance(self.network.graph_head, DescriptorHead)

    @property
    def name(self) -> str:
        """The architecture."""
        return self.recipe.architecture

    def logits(self, graphs: GraphSet, indices: NDArray[np.int64] | None = None) -> Floats:
        """The network's logits, in single precision."""
        indices = np.arange(len(graphs)) if indices is None else indices
        found: Floats = predict_logits(self.network, graphs, indices, self.device).numpy()
        return found

    def explain_graphs(self, graphs: GraphSet, indices: Sequence[int]) -> Iterator[Explanation]:
        """Exact shares; see `mlap.models.explanation`."""
        return explain(self.network, graphs, indices, self.device)

    def embed_graphs(self, graphs: GraphSet, indices: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """What the readout makes of the graphs."""
        levels = level_representations(self.network, graphs, indices, self.device)
        return levels.aggregate, levels.level_wise

    def write(self, path: Path) -> None:
        """Write what predicts and what is known of it; not what only resuming needs."""
        if self.history:
            write_history(path / HISTORY, [asdict(epoch) for epoch in self.history])
        if self.result is not None:
            write_json(path / RESULT, asdict(self.result))
        write_weights(path / MODEL, self.network.state_dict())
        write_json(path / CONFIG, self.config)

    @classmethod
    def read(cls, path: Path, config: dict[str, Any], device: str = "cpu") -> Run:
        """Read a run directory with the given configuration."""
        network, objective = read_network(path, config)
        recipe = Recipe.of(config["recipe"])
        return cls(network, recipe, read_result(path), read_history(path), config, objective, path).to(device)


@overload
def train(data: Any, recipe: None = None, *, baseline: str, **options: Any) -> Baseline: ...


@overload
def train(data: Any, recipe: Recipe | None = None, **options: Any) -> Run: ...


def train(
    data: Any,
    recipe: Recipe | None = None,
    *,
    preset: str | None = None,
    baseline: str | None = None,
    labels: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    init: str | Path | Run | None = None,
    freeze_backbone: bool = False,
    device: str = "auto",
    compile: bool = False,
    progress: bool | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_step: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Run | Baseline:
    """Train a network, or fit a baseline, on labelled graphs.

    The same call gives the same numbers on the same machine and with the same number of threads. A run that was
    stopped and resumed equals one that was not. Test graphs are looked at once, at the end.

    Args:
        data: a `GraphSet`, or what `mlap.load_graphs` takes: a path, the name of a data set, SMILES, a DataFrame.
        recipe: how to train; a preset unless given.
        preset: `recommended`, `quick` or `paper`; unless given, the paper's recipe for the paper's data sets, and the
            recommended one for others.
        baseline: fit this simple model, one of `mlap.names.BASELINES`, instead of a network. Of the settings it takes
            `seed` and `select_metric`, and `n_jobs`, the processes at work.
        labels: the labels, where `data` are SMILES.
        out: the run directory; nothing is written without one.
        resume: continue the run in `out` after its last finished epoch; start it if there is none. A finished run is
            extended if more epochs are asked for.
        overwrite: replace the run in `out`.
        init: a trained run to start from instead of random weights.
        freeze_backbone: keep encoder and backbone of `init` as they are, and train readout and head.
        device: a torch device, or `auto`.
        compile: train with `torch.compile`, on batches padded to a few shapes; meant for GPUs.
        progress: whether to show a progress bar; unless told, in a terminal or notebook.
        on_epoch: called after every epoch, also once for each epoch that a resumed run has behind it.
        on_step: called after every training step with the number of steps done in this epoch and in all of it.
        settings: fields of the recipe to change.

    Example:
        >>> from mlap.graphs import synthetic
        >>> run = train(synthetic(graphs_per_class=10), layers=2, width=8, epochs=1)
        >>> run.result.metric, run.predict(synthetic(graphs_per_class=1)).values.shape
        ('error_rate', (9, 9))
    """
    graphs = data if isinstance(data, GraphSet) else load_graphs(data, **({} if labels is None else {"labels": labels}))
    if graphs.task is None:
        raise UsageError(f"{graphs.name} has no labels to train on", "labels")
    if baseline is not None:
        if recipe is not None or init is not None:
            raise UsageError("{field} is no network: it takes neither a recipe nor weights to start from", "baseline")
        for name in settings:
            if name not in ("seed", "select_metric", "n_jobs"):
                raise UsageError(f"{baseline} is no network and has no {{field}}", name)
        metric = settings.pop("select_metric", "")
        return train_baseline(baseline, graphs, out, metric=metric, resume=resume, overwrite=overwrite, **settings)
    if recipe is not None and preset is not None:
        raise UsageError("a recipe says it all: give it or {field}", "preset")
    recipe = recipe_for(graphs, preset, **settings) if recipe is None else recipe.replace(**settings)
    check_parts(graphs, recipe.select_metric)
    if freeze_backbone and init is None:
        raise UsageError("{field} needs a trained run to start from", "freeze_backbone")
    show = shows_progress(progress) and on_epoch is None and parallel.rank() == 0
    with training_bar(recipe.epochs, recipe.select_metric or graphs.task.metric, silent=not show) as (
        draw_epoch,
        draw_step,
    ):
        trained = train_network(
            recipe,
            graphs,
            out,
            resume=resume,
            overwrite=overwrite,
            initial=None if init is None else _initial(init, freeze_backbone),
            device=resolve_device(device),
            compile=compile,
            on_epoch=on_epoch or draw_epoch,
            on_step=on_step or draw_step,
        )
    config = config_of(recipe, graphs, device) if out is None else read_config(Path(out))
    path = None if out is None else Path(out)
    return Run(trained.network, recipe, trained.result, trained.history, config, trained.objective, path)


def _initial(init: str | Path | Run, freeze_backbone: bool) -> InitialWeights:
    run = init if isinstance(init, Run) else Run.read(Path(init), read_config(Path(init)))
    return InitialWeights(run.network.state_dict(), str(run.path or run), freeze_backbone)


def resolve_device(device: str) -> str:
    """The torch device that a name stands for: `auto` is a GPU where there is one."""
    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    kind = device.partition(":")[0]
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if kind not in available:
        raise UsageError(f"{{field}} must be auto, cpu, cuda, cuda:<number> or mps, got {device!r}", "device")
    if not available[kind]:
        raise UsageError(f"this machine has no device {device!r}", "device", "cpu")
    try:
        return str(torch.device(device))
    except RuntimeError:
        raise UsageError(f"{{field}} must be auto, cpu, cuda, cuda:<number> or mps, got {device!r}", "device") from None
