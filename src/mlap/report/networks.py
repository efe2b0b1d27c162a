"""A look inside trained networks for the report: what each level knows, and what some predictions are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.analysis import Inspection, ProbeRow, inspect_runs
from mlap.analysis.embedding import PERPLEXITY
from mlap.analysis.explanation_words import chosen_output, prediction_text
from mlap.analysis.pictures import explanation_plot
from mlap.analysis.sketch import MAX_NODES, sketch
from mlap.graphs import GraphSet
from mlap.models import Run, explain
from mlap.plotting import Plot
from mlap.report.render import EFFECT, SCORE, Column, P, Table
from mlap.study.compare import family_of
from mlap.study.run_folders import RunFolders
from mlap.study.store import RunRecord
from mlap.training import Recipe, predict_logits
from mlap.training.run import MODEL

#: of the models that a study kept, so many seeds of each architecture are looked into
MOST_SEEDS = 5
#: the correctly predicted graphs among those that are explained
_RIGHT = 3
#: graphs to explain are looked for among so many
_SEARCHED = 2000


@dataclass(frozen=True, eq=False)
class Explained:
    """An explained graph: its picture, and one sentence on what it is."""

    graph: int
    plot: Plot
    text: str


@dataclass(frozen=True, eq=False)
class NetworkFindings:
    """What was found in networks that differ in their seeds only.

    Args:
        name: of their recipe, for file names.
        title: of their recipe, for people.
        inspection: see there.
        findings: what the probes say, in sentences.
        explained: some test graphs, as the first network sees them.
        reason: why there are no exact shares, if so.
    """

    name: str
    title: str
    inspection: Inspection
    findings: tuple[str, ...]
    explained: tuple[Explained, ...]
    reason: str

    @property
    def fingerprint(self) -> str:
        """The identity of the data that the networks were trained on."""
        return str(self.inspection.runs[0].config["data"]["fingerprint"])

    def table(self) -> Table:
        """All probes."""
        metric = self.inspection.task.metric_label
        rows = tuple(
            (question, row.level, row.train, row.test, row.p_one_sided, row.p_two_sided, row.against and row.against.r)
            for question, found in self.inspection.tables.items()
            for row in found
        )
        columns = (
            *(Column("question", "Question"), Column("level", "Level")),
            *(Column("train", "Train", SCORE), Column("test", "Test", SCORE)),
            *(Column("p_one_sided", "p 1-sided", P), Column("p_two_sided", "p 2-sided", P), Column("r", "r", EFFECT)),
        )
        note = (
            "p: the aggregate against the level, Mann–Whitney on the runs' test scores, Bonferroni-corrected; "
            "r is positive where the aggregate is better."
        )
        return Table(
            f"probes-{self.name}", f"Layer-wise classifiers of {self.title} ({metric})", columns, rows, (note,)
        )


def examine(
    runs: Sequence[Run],
    graphs: GraphSet,
    *,
    max_mapped: int | None = 0,
    device: str = "cpu",
    on_step: Callable[[str, int, int], None] | None = None,
) -> NetworkFindings:
    """Look inside runs that differ in their seeds only; see `mlap.analysis.inspect_runs` for the arguments."""
    if len(graphs) <= PERPLEXITY:  # too few for a map
        max_mapped = 0
    inspection = inspect_runs(runs, graphs, max_mapped=max_mapped, device=device, on_step=on_step)
    first = runs[0]
    pictures, reason = [], ""
    chosen = dict(graphs_to_explain(first, graphs, device))
    for explanation in explain(first.network.to(device), graphs, list(chosen), device):
        output = chosen_output(explanation, first.task)
        title = prediction_text(explanation, first, output)
        plot = explanation_plot(explanation, sketch(graphs, explanation.graph), output, title)
        pictures.append(
            Explained(explanation.graph, plot, f"Test graph {explanation.graph}, {chosen[explanation.graph]}.")
        )
        reason = explanation.reason
    recipe = first.recipe
    seeds = ", ".join(str(run.recipe.seed) for run in runs)
    return NetworkFindings(
        name=f"{recipe.architecture}-L{recipe.layers}-{recipe.norm}",
        title=f"{network_title(recipe)}, seed{'s' if len(runs) > 1 else ''} {seeds}",
        inspection=inspection,
        findings=tuple(findings(inspection)),
        explained=tuple(pictures),
        reason=reason,
    )


def network_title(recipe: Any) -> str:
    """A network in words; anything with an architecture, a depth and a normalisation will do."""
    norms = {"graph": "with GraphNorm", "none": "without normalisation"}
    layers = f"{recipe.layers} layer{'s' if recipe.layers > 1 else ''}"
    return f"{recipe.architecture}, {layers}, {norms.get(recipe.norm, f'with {recipe.norm} normalisation')}"


def group_by_recipe(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs in groups that differ in their seeds only, in the order in which they come."""
    groups: dict[tuple[Recipe, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.recipe.replace(seed=0), run.config["data"]["fingerprint"]), []).append(run)
    return list(groups.values())


def kept_models(study: Path, runs: Sequence[RunRecord]) -> list[Path]:
    """The run directories, of those that a study kept, which tell most about levels.

    As in the paper, these are of MLAP networks, as deep as there are, without normalisation where there are such.
    """
    folders = RunFolders(study, keep_models=True)
    kept = [run for run in runs if run.status == "done" and (folders.of(run.hash) / MODEL).exists()]
    groups: dict[str, dict[Recipe, list[RunRecord]]] = {}
    for run in [run for run in kept if family_of(run.architecture) == "mlap"] or kept:
        groups.setdefault(run.architecture, {}).setdefault(run.recipe.replace(seed=0), []).append(run)
    paths = []
    for recipes in groups.values():
        chosen = max(recipes, key=lambda recipe: (recipe.norm == "none", recipe.layers, len(recipes[recipe])))
        paths += [folders.of(run.hash) for run in sorted(recipes[chosen], key=lambda run: run.seed)[:MOST_SEEDS]]
    return paths


def graphs_to_explain(run: Run, graphs: GraphSet, device: str = "cpu") -> Iterator[tuple[int, str]]:
    """Test graphs that are worth a picture, and why: not the nicest ones, but the first of their kind.

    These are the first correct prediction of some classes, the classes far apart, and the first wrong prediction.
    """
    sizes = np.diff(graphs.node_ptr)
    test = np.array([graph for graph in graphs.split("test") if 0 < sizes[graph] <= MAX_NODES][:_SEARCHED], np.int64)
    task = run.task
    if task.kind == "regression" or graphs.y is None:
        yield from ((int(graph), "one of the first") for graph in test[: _RIGHT + 1])
        return
    logits = predict_logits(run.network.to(device), graphs, test, device).numpy()
    if task.kind == "multiclass":
        truth, predicted = graphs.y[test], logits.argmax(axis=1)
        names: Sequence[str] = task.names or [f"class {label}" for label in range(task.num_outputs)]
    else:
        truth, predicted = graphs.y[test, 0], logits[:, 0] > 0
        names = ("negative", "positive")
    right: dict[int, int] = {}
    for place in np.flatnonzero(predicted == truth):
        right.setdefault(int(truth[place]), int(place))
    labels = sorted(right)
    for number in np.unique(np.linspace(0, len(labels) - 1, min(_RIGHT, len(labels))).round().astype(int)):
        label = labels[number]
        yield int(test[right[label]]), f"{names[label]}, predicted rightly"
    for place in np.flatnonzero((predicted != truth) & _known(truth))[:1]:
        yield int(test[place]), f"{names[int(truth[place])]}, predicted wrongly as {names[int(predicted[place])]}"


def _known(labels: NDArray[Any]) -> NDArray[np.bool_]:
    return np.isfinite(labels.astype(np.float64))


def findings(inspection: Inspection) -> Iterator[str]:
    """What the probes say, in sentences."""
    task = inspection.task
    sign = -1 if task.higher_is_better else 1
    best: dict[str, list[str]] = {}
    for question, rows in inspection.tables.items():
        *levels, aggregate = rows
        if not levels:
            continue
        top = min(sign * row.test.mean for row in levels)
        found = [row for row in levels if sign * row.test.mean == top]
        best[question] = [row.level for row in found]
        better = sign * aggregate.test.mean < top
        yield (
            f"{question.capitalize()}: the best by itself is {_levels(best[question])}, with {task.metric_label} "
            f"{_score(found[0])} on test graphs. The aggregate has {_score(aggregate)} and is "
            f"{'better than every level' if better else 'not better'}."
        )
    if {"centre type", "peripheral type"} <= best.keys():
        low, high = (best[f"{part} type"] for part in ("peripheral", "centre"))
        same = max(map(int, low)) < min(map(int, high))
        yield (
            "The paper finds the peripheral type decided in low levels and the centre type in higher ones. Here the "
            f"peripheral type is told best by {_levels(low)}, the centre type by {_levels(high)}: "
            + ("the same order." if same else "not that order.")
        )


def _levels(levels: Sequence[str]) -> str:
    return f"level {levels[0]}" if len(levels) == 1 else f"level {', '.join(levels[:-1])} or {levels[-1]}"


def _score(row: ProbeRow) -> str:
    return SCORE.show(row.test)
