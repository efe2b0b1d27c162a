"""Everything that `mlap probe` finds in one or several trained networks of the same recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap import plotting
from mlap.analysis import figures
from mlap.analysis.embedding import Maps, tsne_maps
from mlap.analysis.probe import EPOCHS, ProbeRow, ProbeScores, probe, questions, summarise_probes
from mlap.analysis.smoothing import Smoothing, smoothing
from mlap.analysis.weights import layer_weights
from mlap.errors import UsageError
from mlap.graphs import GraphSet, Task
from mlap.models import Run
from mlap.models.levels import level_representations, num_representations
from mlap.training.run import check_fits


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was found.

    Args:
        runs: the runs.
        graphs: the set they were looked at with.
        task: of the set.
        tables: the probes in short, by question: the set's own labels first.
        smoothings: of the test graphs, one for each run.
        weights: the layer weights `(runs, L)` of networks that have any.
        maps: the t-SNE maps of the first run, if they were asked for.
    """

    runs: Sequence[Run]
    graphs: GraphSet
    task: Task
    tables: dict[str, list[ProbeRow]]
    smoothings: list[Smoothing]
    weights: NDArray[np.float64] | None
    maps: Maps | None

    @property
    def table(self) -> list[ProbeRow]:
        """The probes of the set's own labels."""
        return next(iter(self.tables.values()))

    def plots(self) -> dict[str, plotting.Plot]:
        """All figures by name."""
        own, *parts = self.tables.items()
        plots = {"probe": figures.probe_plot(dict([own]), self.task)}
        if parts:
            plots["probe-types"] = figures.probe_plot(dict(parts), self.task)
        plots["smoothing"] = figures.smoothing_plot(self.smoothings, self.table, self.task)
        if self.weights is not None:
            plots["weights"] = figures.weights_plot(
                self.weights, self.runs[0].network.level_numbers(self.weights.shape[1])
            )
        if self.maps is not None:
            plots["tsne"] = figures.maps_plot(self.maps, self.graphs, f"seed {self.runs[0].recipe.seed}")
        return plots

    def as_dict(self) -> dict[str, Any]:
        """The numbers for JSON, in which there is no NaN."""
        return {
            "data": self.graphs.name,
            "metric": self.task.metric,
            "seeds": [run.recipe.seed for run in self.runs],
            "probes": [figures.probe_row(question, row) for question, rows in self.tables.items() for row in rows],
            "smoothing": [
                {"seed": run.recipe.seed, **{name: _known(getattr(found, name)) for name in figures.MEASURES}}
                for run, found in zip(self.runs, self.smoothings, strict=True)
            ],
            "layer_weights": None if self.weights is None else self.weights.tolist(),
            "mapped_graphs": None if self.maps is None else len(self.maps.rows),
        }


def _known(values: Any) -> list[float | None]:
    return [None if value != value else float(value) for value in values]


def inspect_runs(
    runs: Sequence[Run],
    graphs: GraphSet,
    *,
    epochs: int = EPOCHS,
    max_mapped: int | None = 0,
    seed: int = 0,
    device: str = "cpu",
    on_step: Callable[[str, int, int], None] | None = None,
) -> Inspection:
    """Look inside runs that differ in their seeds only.

    Args:
        runs: the runs.
        graphs: a labelled set with the splits `train` and `test`, usually the one they were trained on.
        epochs: of the probes; the paper's are 30.
        max_mapped: map at most so many graphs of the first run by t-SNE, drawn at random; 0 for none, `None` for all.
        seed: of the probes and of the maps.
        device: a torch device for the networks.
        on_step: called before each step with what is to be done, the number of steps done and of all.
    """
    _check_alike(runs)
    train, test = graphs.split("train"), graphs.split("test")
    asked = questions(graphs)
    steps = _Steps(
        on_step, len(runs) * (1 + len(asked)) + (num_representations(runs[0].network) if max_mapped != 0 else 0)
    )
    scores: dict[str, list[ProbeScores]] = {question.name: [] for question in asked}
    names: tuple[str, ...] = ()
    smoothings: list[Smoothing] = []
    maps: Maps | None = None
    for number, run in enumerate(runs):
        check_fits(run.config, graphs)
        where = f"run {number + 1} of {len(runs)}: "
        steps.begin(where + "representations")
        network = run.network.to(device)
        levels = level_representations(network, graphs, np.arange(len(graphs)), device)
        smoothings.append(smoothing(network, graphs, test, device))
        if names not in ((), levels.names):
            raise UsageError(
                f"{run.path} reads the levels {', '.join(levels.names[:-1])} and {runs[0].path} reads "
                f"{', '.join(names[:-1])}; look into runs of the same levels at once",
                field="runs",
            )
        names = levels.names
        for question in asked:
            steps.begin(where + f"probes of the {question.name}")
            scores[question.name].append(
                probe(levels, question, train, test, batch_size=run.recipe.batch_size, epochs=epochs, seed=seed)
            )
        if number == 0 and max_mapped != 0:
            maps = tsne_maps(
                levels, max_graphs=max_mapped, seed=seed, on_map=lambda name: steps.begin(f"t-SNE map, {name}")
            )
    task = asked[0].objective.task
    weights = [layer_weights(run.network) for run in runs]
    found = [run for run in weights if run is not None]
    return Inspection(
        runs,
        graphs,
        task,
        {
            name: summarise_probes(of_runs, names, higher_is_better=task.higher_is_better)
            for name, of_runs in scores.items()
        },
        smoothings,
        np.stack(found) if found else None,
        maps,
    )


def write_inspection(inspection: Inspection, out: Path) -> list[Path]:
    """Write all figures, each as SVG, PNG and CSV; the files."""
    return [path for name, plot in inspection.plots().items() for path in plotting.save_plot(plot, out / name)]


class _Steps:
    """Counts steps for a progress display."""

    def __init__(self, on_step: Callable[[str, int, int], None] | None, total: int) -> None:
        self.on_step = on_step
        self.total = total
        self.begun = 0

    def begin(self, what: str) -> None:
        """Say what comes next."""
        if self.on_step is not None:
            self.on_step(what, self.begun, self.total)
        self.begun += 1


def _check_alike(runs: Sequence[Run]) -> None:
    """Raise unless the runs are seeds of one recipe on the same data."""
    if not runs:
        raise UsageError("name at least one run to look into", field="runs")
    first = runs[0]
    for run in runs[1:]:
        for field, value in _identity(run).items():
            if value != (expected := _identity(first)[field]):
                raise UsageError(
                    f"{run.path} and {first.path} differ in {field} ({value} and {expected}); "
                    "look into runs of the same recipe at once, which differ in their seeds only",
                    field="runs",
                )
    seeds = [run.recipe.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise UsageError(
            f"the runs have the seeds {', '.join(map(str, seeds))}; runs of the same seed are the same run",
            field="runs",
        )


def _identity(run: Run) -> dict[str, Any]:
    recipe = {field: value for field, value in run.recipe.as_dict().items() if field != "seed"}
    return {**recipe, "data": run.config["data"]["fingerprint"]}
