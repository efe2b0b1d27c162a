"""What a study ran: data, commands, versions, seeds and cost, and how far that is from the paper's protocol."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlap import paper
from mlap.paper import PROTOCOLS
from mlap.report.tables import paper_warnings
from mlap.study.compare import Comparison
from mlap.study.plan import Plan
from mlap.study.store import PlanRecord, RunRecord

_GRAPH_NORM = {("graph",): "on", ("none",): "off", paper.NORMS: "both"}
#: option of `load_graphs` → the option of `mlap sweep`
_READING = {
    "smiles": "--smiles-column",
    "targets": "--target",
    "task": "--task",
    "split": "--split-by",
    "split_seed": "--split-seed",
    "on_invalid": "--invalid",
}


@dataclass(frozen=True)
class Facts:
    """What was run on one data set.

    Args:
        data_name: the data set's name.
        fingerprint: the identity of the data.
        source: how the data were named by the user.
        states: `done`, `failed` and so on → how many runs are so.
        seeds: of the finished runs.
        hours: torch device → the hours that its finished runs were trained for. A run on a CPU has one core.
        hosts: the machines.
        versions: package → its versions, usually one.
        began, ended: the day of the first start and of the last end (UTC).
        sweeps: when each sweep was started, and a command that asks for the same, in parts (see `sweep_command`).
    """

    data_name: str
    fingerprint: str
    source: str
    states: Mapping[str, int]
    seeds: tuple[int, ...]
    hours: Mapping[str, float]
    hosts: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]
    began: str | None
    ended: str | None
    sweeps: tuple[tuple[str, list[str]], ...]


def facts(runs: Sequence[RunRecord], plans: Iterable[PlanRecord], study: str, baselines: Sequence[str] = ()) -> Facts:
    """The facts about the runs of a study on one data set.

    Args:
        runs: the runs, of one data set; see `mlap.study.compare.runs_on`.
        plans: what the sweeps of the study were asked for.
        study: the name of the study file.
        baselines: the names of the baselines that the study has on these data.
    """
    first = runs[0]
    done = [run for run in runs if run.status == "done"]
    hours: dict[str, float] = {}
    versions: dict[str, dict[str, None]] = {}
    for run in done:
        device = run.device or "cpu"
        hours[device] = hours.get(device, 0.0) + (run.seconds or 0.0) / 3600
        for package, version in (run.versions or {}).items():
            versions.setdefault(package, {})[version] = None
    states = {state: sum(run.status == state for run in runs) for state in ("done", "failed", "running", "planned")}
    return Facts(
        data_name=first.data_name,
        fingerprint=first.fingerprint,
        source=first.source,
        states={state: number for state, number in states.items() if number},
        seeds=tuple(sorted({run.seed for run in done})),
        hours=hours,
        hosts=tuple(dict.fromkeys(run.host for run in done if run.host)),
        versions={package: tuple(found) for package, found in versions.items()},
        began=min((run.started[:10] for run in runs if run.started), default=None),
        ended=max((run.finished[:10] for run in done if run.finished), default=None),
        sweeps=tuple(
            (plan.started[:16].replace("T", " "), sweep_command(plan, first, study, baselines))
            for plan in plans
            if plan.fingerprint == first.fingerprint
        ),
    )


def sweep_command(plan: PlanRecord, run: RunRecord, study: str, baselines: Sequence[str] = ()) -> list[str]:
    """A command that asks for the same runs as a plan did, with no more options than it needs.

    Args:
        plan: what a sweep was asked for.
        run: a run on the same data, which says how they are read.
        study: the name of the study file.
        baselines: those to fit beside.

    Returns:
        The command and its options, each part as a shell takes it; last a comment, if the data were read with options
        that only Python has.
    """
    named = plan.name if plan.name in ("paper", "quick") else None
    usual = Plan.of(run.data_name, named).axes
    parts = [["mlap", "sweep", run.source], ["--study", study], *([["--plan", named]] if named else [])]
    for field, values in plan.axes.items():
        if tuple(values) != usual.get(field):
            parts.append(_option(field, tuple(values)))
    if baselines:
        parts.append(["--baselines", ",".join(baselines)])
    known = {option: value for option, value in run.options.items() if option in _READING}
    for option, value in known.items():
        parts += [[_READING[option], str(single)] for single in (value if isinstance(value, list) else [value])]
    others = [f"{option}={value!r}" for option, value in run.options.items() if option not in known]
    return [*map(shlex.join, parts), *([f"# from Python, with {', '.join(others)}"] if others else [])]


def _option(field: str, values: tuple[Any, ...]) -> list[str]:
    if field == "norm" and values in _GRAPH_NORM:
        return ["--graph-norm", _GRAPH_NORM[values]]
    if field == "architecture":
        return ["--architectures", "paper" if values == paper.ARCHITECTURES else ",".join(values)]
    name = {"layers": "--layers", "seed": "--seeds"}.get(field)
    return [name, whole_numbers(values)] if name else ["--set", f"{field}={','.join(map(str, values))}"]


def whole_numbers(values: Sequence[int]) -> str:
    """Whole numbers in short, runs of three or more as ranges.

    >>> whole_numbers([1, 2, 3, 5, 7, 8])
    '1-3,5,7,8'
    """
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def ranges(values: Sequence[int]) -> str:
    """Whole numbers in short, for people.

    >>> ranges([1, 2, 3, 5])
    '1–3, 5'
    """
    return whole_numbers(values).replace("-", "–").replace(",", ", ")


def differences_from_paper(comparison: Comparison) -> list[str] | None:
    """Where a study falls short of the paper's protocol, or departs from it; `None` for data that the paper has not."""
    name = comparison.data_name
    if name not in PROTOCOLS:
        return None
    cells, needed = comparison.cells, PROTOCOLS[name].seeds
    differing = []
    trained = sum(len(cell.seeds) for cell in cells)
    asked = len(paper.ARCHITECTURES) * len(paper.NORMS) * len(paper.LAYERS) * needed
    if trained < asked:
        differing.append(f"{trained:,} trained networks; the paper trained {asked:,} on this data set")
    fewest, most = (pick(len(cell.seeds) for cell in cells) for pick in (min, max))
    if fewest < needed:
        seeds = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        differing.append(f"{seeds} seed{'s' if most > 1 else ''} for each mean; the paper has {needed}")
    architectures, norms = {cell.architecture for cell in cells}, {cell.norm for cell in cells}
    if missing := [known for known in paper.ARCHITECTURES if known not in architectures]:
        differing.append(f"no {', '.join(missing)}")
    layers = sorted({cell.layers for cell in cells})
    if not set(paper.LAYERS) <= set(layers):
        differing.append(f"depth {ranges(layers)}; the paper has 1–10")
    for norm, words in (("none", "without GraphNorm"), ("graph", "with GraphNorm")):
        if norm not in norms:
            differing.append(f"no networks {words}")
    return differing + paper_warnings(comparison)
