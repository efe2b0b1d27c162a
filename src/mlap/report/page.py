"""The report: one self-contained HTML page on a study, its figures and tables also as files beside it.

DIR/index.html              opens without a network; everything it shows is in it
DIR/figures/NAME.svg        every figure, also as .png, and its data as .csv
DIR/tables/NAME.csv         every table, with all digits
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

import mlap
from mlap.errors import UsageError
from mlap.files import remove_abandoned, write_text
from mlap.graphs import GraphSet
from mlap.models import Run, load_run
from mlap.paper import PROTOCOLS
from mlap.plotting import NARROW, Plot, save_plot
from mlap.report.curves import depth_plot, scores_plot
from mlap.report.facts import differences_from_paper, facts, ranges
from mlap.report.networks import NetworkFindings, examine, group_by_recipe, kept_models, network_title
from mlap.report.published import published_test
from mlap.report.render import EFFECT, NORM, SCORE, P, Table, to_csv
from mlap.report.tables import baselines_table, full_table, results_table, runs_table, significance_table, summary_table
from mlap.report.words import metric_label
from mlap.study import Study
from mlap.study.compare import ENOUGH_SEEDS, Comparison, best, compare, runs_on

PAGE = "index.html"
#: how a page is known to be ours, before it is replaced
_GENERATOR = f'<meta name="generator" content="mlap {mlap.__version__}">'
_OURS = '<meta name="generator" content="mlap '

#: pixels on the screen for an inch of a figure: its smallest text, 7 points, becomes 12.6 pixels high
_PIXELS = 130
#: a longer table is folded
_FOLDED = 60

#: figure of an inspection → its caption
_CAPTIONS = {
    "probe": "What each level knows: score of a linear classifier on each level's graph representation, and on the "
    "aggregate that the network itself decides by.",
    "probe-types": "The two parts of the class: the type of the centre component and the type of the peripheral ones.",
    "smoothing": "Beside the probes: how alike the nodes of a graph become from level to level.",
    "weights": "The weight that each network gives to each level; the dashed line is equal weights.",
    "tsne": "The graphs as each level places them (t-SNE). Near points are graphs with similar representations.",
}


@dataclass(frozen=True)
class WrittenReport:
    """What was written.

    Args:
        page: the page.
        figures: the figures, without their endings.
        tables: the tables.
        looked_into: the run directories that were looked into.
        warnings: what a reader should know before concluding anything.
    """

    page: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]
    looked_into: tuple[Path, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Image:
    """A figure on the page.

    Args:
        name: of its files.
        caption: what it shows.
        source: the picture itself, as a data URI.
        width, height: in pixels.
        wide: whether it is as wide as the page.
    """

    name: str
    caption: str
    source: str
    width: int
    height: int
    wide: bool


def write_report(
    study: Path,
    out: Path,
    run_dirs: Sequence[Path] = (),
    *,
    load_data: Callable[[Run], GraphSet],
    data: str | None = None,
    models: bool = True,
    max_mapped: int | None = 1000,
    device: str = "cpu",
    on_step: Callable[[str, int, int], None] | None = None,
) -> WrittenReport:
    """Write the report on a study.

    Args:
        study: the study file.
        out: the folder; made if there is none. One that holds something else than a report is an error.
        run_dirs: run directories to look into; those that the study kept unless given.
        load_data: reads the data of a run.
        data: which data set, if the study has several; see `mlap.study.compare.runs_on`.
        models: whether to look into networks at all.
        max_mapped: map at most so many graphs by t-SNE; 0 for none, `None` for all.
        device: a torch device for the networks.
        on_step: called before each longer step with what is to be done, the number of steps done and of all.
    """
    with Study.open(study) as opened:
        runs, plans, baselines = runs_on(opened.runs(), data), opened.plans(), opened.baselines()
    comparison = compare(runs, baselines=baselines)
    paths = (list(run_dirs) or kept_models(study, runs)) if models else []
    groups = group_by_recipe([load_run(path) for path in paths])
    check_out(out)
    networks: list[NetworkFindings] = []
    for group in groups:
        network = examine(group, load_data(group[0]), max_mapped=max_mapped, device=device, on_step=on_step)
        same = sum(before.name.startswith(network.name) for before in networks)
        networks.append(dataclasses.replace(network, name=f"{network.name}-{same + 1}") if same else network)

    if not (out / PAGE).exists():  # an interrupted report must be known as one, to be written again
        write_text(out / PAGE, f"<!doctype html>{_GENERATOR}<p>This report was not finished.</p>\n")
    files = _FileWriter(out)
    shown = [_show_network(files, network) for network in networks]
    scores = scores_plot(comparison)
    results, significance, summary, full = (
        make(comparison) for make in (results_table, significance_table, summary_table, full_table)
    )
    template = _environment().get_template("page.html")
    page = template.render(
        generator=_GENERATOR,
        study=study.name,
        metric=metric_label(comparison),
        comparison=comparison,
        facts=facts(runs, plans, study.name, [cell.name for cell in comparison.baselines]),
        differences=differences_from_paper(comparison),
        headline=list(headline(comparison)),
        depths=list(best_depths(comparison)),
        scores=files.figure("scores", _scores_caption(comparison), scores) if scores else None,
        depth=files.figure("depth", _depth_caption(comparison), depth_plot(comparison)),
        networks=shown,
        asked=models,
        foreign=[_foreign(network) for network in networks if network.fingerprint != runs[0].fingerprint],
        results=files.table(results),
        significance=files.table(significance),
        summary=files.table(summary),
        baselines=files.table(baselines_table(comparison)) if comparison.baselines else None,
        tables=[files.table(table) for table in (full, *(network.table() for network in networks), runs_table(runs))],
    )
    write_text(out / PAGE, page)
    return WrittenReport(out / PAGE, tuple(files.figures), tuple(files.tables), tuple(paths), comparison.warnings)


def check_out(out: Path) -> None:
    """Raise unless a report may be written to this folder; make it if there is none."""
    try:
        if out.exists() and not out.is_dir():
            raise UsageError(f"{{field}} must be a folder, but {out} is a file", field="out")
        remove_abandoned(out)  # a report that was killed as it began has left no more than that
        if out.is_dir() and any(out.iterdir()) and not _is_report(out / PAGE):
            raise UsageError(f"{out} holds something else than a report; choose another folder, or an empty one", "out")
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error.strerror}", field="out") from error


def _is_report(page: Path) -> bool:
    try:
        with page.open(encoding="utf-8", errors="replace") as file:
            return _OURS in file.read(2000)
    except OSError:
        return False


# ---- sentences -------------------------------------------------------------------------------------------------------


def headline(comparison: Comparison) -> Iterator[str]:
    """Who won, and whether that means anything."""
    tested = [(cell, cell.test) for cell in comparison.selected.values() if cell.test is not None]
    if not tested:
        yield "No selected model has a test score, so nobody won."
        return
    on_baselines, simple_wins = _on_baselines(comparison)
    if simple_wins:  # the first sentence is what people read
        yield on_baselines
    sign = -1 if comparison.higher_is_better else 1
    top = min(sign * summary.mean for _, summary in tested)
    first, *equals = [(cell, summary) for cell, summary in tested if sign * summary.mean == top]
    score = f"test {metric_label(comparison)}: {SCORE.show(first[1])}"
    if len(tested) == 1:
        yield f"Only one family has a test score. {network_title(first[0])} has the mean {score}."
    elif equals:
        names = "; ".join(network_title(cell) for cell, _ in (first, *equals))
        yield f"A tie. These have the best mean {score}. They are {names}."
    else:
        seeds = "1 seed" if first[1].n == 1 else f"{first[1].n} seeds"
        among = "Of the networks, " if comparison.baselines else ""
        yield f"{among}{network_title(first[0])} has the best mean {score} over {seeds}."
    if on_baselines and not simple_wins:
        yield on_baselines
    for contrast in comparison.contrasts:
        outcome = contrast.outcome
        if outcome is None:
            continue
        words = f"{contrast.first} against {contrast.second}: "
        p = P.show(outcome.p_two_sided)
        numbers = f"two-sided p {p if p.startswith('<') else f'= {p}'}, effect size r = {EFFECT.show(outcome.r)}"
        side = "better" if outcome.r > 0 else "worse"
        if min(outcome.first, outcome.second) < ENOUGH_SEEDS:
            words += f"too few seeds to conclude ({numbers})."
        elif outcome.p_two_sided < 0.05:
            words += f"significantly {side} ({numbers})."
        elif outcome.p_one_sided < 0.05:
            words += f"{side}, but significant only one-sided, as the paper tests ({numbers})."
        else:
            words += f"no significant difference ({numbers})."
        yield words
    if paper := published_test(comparison.data_name):
        theirs = min(paper, key=lambda row: sign * row.test.mean)
        yield f"In the paper the best is {network_title(theirs)}: {SCORE.show(theirs.test)} over {theirs.test.n} seeds."


def _on_baselines(comparison: Comparison) -> tuple[str, bool]:
    """Whether a simple model does as well, in words, and whether it wins; no words where none was tested."""
    tested = [(cell, cell.test) for cell in comparison.baselines if cell.test is not None]
    network = comparison.best_network
    if not tested or network.test is None:
        return "", False
    sign = -1 if comparison.higher_is_better else 1
    cell, summary = tested[0]  # the best by validation, as the network is
    ours, theirs = SCORE.show(summary), SCORE.show(network.test)
    if sign * summary.mean < sign * network.test.mean:
        return f"A simple model wins: the baseline {cell.name} has {ours}, {network_title(network)} {theirs}.", True
    return f"The best baseline, {cell.name}, has {ours}; {network_title(network)} has {theirs}.", False


def best_depths(comparison: Comparison) -> Iterator[str]:
    """The best depth of each architecture for each normalisation, in words."""
    for norm in dict.fromkeys(cell.norm for cell in comparison.cells):
        cells = [cell for cell in comparison.cells if cell.norm == norm]
        depths = [
            f"{name} {best([cell for cell in cells if cell.architecture == name], comparison.higher_is_better).layers}"
            for name in dict.fromkeys(cell.architecture for cell in cells)
        ]
        yield f"Best depth by validation, GraphNorm {NORM.show(norm)}: {', '.join(depths)}."


def _foreign(network: NetworkFindings) -> str:
    data = f"{network.inspection.graphs.name} with fingerprint {network.fingerprint}"
    return f"{network.title}: trained on other data than the study's, {data}"


def _scores_caption(comparison: Comparison) -> str:
    paper = " The paper's selected models are grey." if published_test(comparison.data_name) else ""
    simple = ", and of the baselines" if comparison.baselines else ""
    metric = metric_label(comparison)
    return f"Test {metric} of each family's selected model{simple}: every seed, and mean ± standard error.{paper}"


def _depth_caption(comparison: Comparison) -> str:
    swept = f" Each point is the best over {', '.join(comparison.swept)}." if comparison.swept else ""
    paper = " Faint and dashed: the paper." if comparison.data_name in PROTOCOLS else ""
    return f"Validation {metric_label(comparison)} by depth, mean ± standard error over seeds.{swept}{paper}"


# ---- tables and figures ----------------------------------------------------------------------------------------------


class _FileWriter:
    """Writes figures and tables to their files, and gives back what the page needs of them."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.figures: list[Path] = []
        self.tables: list[Path] = []

    def figure(self, name: str, caption: str, plot: Plot) -> Image:
        """Write a figure."""
        path = self.out / "figures" / name
        svg, _, _ = save_plot(plot, path)
        self.figures.append(path)
        width, height = plot.figure.get_size_inches()
        return Image(
            name=name,
            caption=caption,
            source=f"data:image/svg+xml;base64,{base64.b64encode(svg.read_bytes()).decode()}",
            width=round(_PIXELS * width),
            height=round(_PIXELS * height),
            wide=width > NARROW,
        )

    def table(self, table: Table) -> dict[str, Any]:
        """Write a table."""
        path = self.out / "tables" / f"{table.name}.csv"
        path.parent.mkdir(exist_ok=True)
        write_text(path, to_csv(table))
        self.tables.append(path)
        return {
            "name": table.name,
            "caption": table.caption,
            "notes": table.notes,
            "columns": [(column.title, table.is_text(number)) for number, column in enumerate(table.columns)],
            "rows": [
                [(text, _sort_key(value)) for text, value in zip(shown, row, strict=True)]
                for shown, row in zip(table.shown(), table.rows, strict=True)
            ],
            "folded": len(table.rows) > _FOLDED,
        }


def _sort_key(value: Any) -> str | None:
    """What a cell is sorted by: a number, nothing (a value that does not exist), or `None` for its text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return None
    if isinstance(value, tuple):
        return repr(sum(value))
    number = float(getattr(value, "mean", value))
    return repr(number) if math.isfinite(number) else ""


def _show_network(files: _FileWriter, network: NetworkFindings) -> dict[str, Any]:
    """What the page shows of one group of networks."""
    plots = network.inspection.plots()
    figures = [files.figure(f"{network.name}/{name}", _CAPTIONS[name], plot) for name, plot in plots.items()]
    return {
        "title": network.title,
        "findings": network.findings,
        "figures": sorted(figures, key=lambda image: image.wide),  # narrow ones side by side
        "explained": [
            files.figure(f"{network.name}/graph-{found.graph}", found.text, found.plot) for found in network.explained
        ],
        "reason": network.reason,
        "runs": len(network.inspection.runs),
    }


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mlap.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["ranges"] = ranges
    return environment
