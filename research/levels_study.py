"""The study of the paper's open questions: its sweeps, and the table of what they say.

    python -m research.levels_study commands --data DATA --studies FOLDER    print every command
    python -m research.levels_study run --data DATA --studies FOLDER         run them one after the other; resumes
    python -m research.levels_study table --studies FOLDER                   write results/levels_study*.csv

`DATA` holds the folders of the data sets. A study that is not finished gives a table of what there is.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import mlap
from benchmarks.records import RESULTS, made_by, write
from mlap.analysis import layer_weights
from mlap.graphs import GraphSet, load_graphs
from mlap.names import load_plugins
from mlap.nn import graph_network
from mlap.statistics import holm, mann_whitney, summarise
from mlap.study import RunRecord, Study
from mlap.training import Recipe
from mlap.training.run import describe_features

#: 64 channels instead of the paper's 200, and fewer epochs, so that ten seeds of all arms are affordable
SETTINGS = {"width": 64, "epochs": 30, "lr_decay_every": 10}
#: the networks that are compared, beside `mlap-sum` itself, which is every other arm's opponent
ARCHITECTURES = ("naive", "jk-sum", "mlap-sum", "mlap-weighted", "mlap-gate", "mlap-attention", "mlap-gru")
#: options of `mlap-sum`
OPTIONS = (
    {"levels": "1+3+5"},
    {"levels": "last:2"},
    {"levels": "learned:0.01"},
    {"level_dropout": 0.2},
    {"deep_supervision": 1.0},
    {"stages": "naive:10"},
    {"stages": "naive:10+frozen:5"},
)
#: the join with the most parameters, to which the controls are widened
LARGEST = "mlap-gru"
#: options of MLAP-Weighted, for appendix C's question whether its weights are unstable
WEIGHTED = ({"lr": 1e-4}, {"stages": "mlap-sum:10"}, {"stages": "naive:10+frozen:5"})

#: architectures that learn a weight of each level, the same for all graphs
HAVE_WEIGHTS = ("mlap-weighted", "mlap-scaled", "mlap-slow")


class Part(NamedTuple):
    """A set with the depths and seeds at which it is studied; options are studied at depth 5."""

    data: str
    layers: str
    seeds: str


#: the cheapest first, and half of the seeds of all of them before the other half
PARTS = (
    *(Part(data, "5", seeds) for seeds in ("0-4", "5-9") for data in ("NCI83", "ogbg-molbace", "Mutagenicity")),
    Part("synthetic", "3,5,8", "0-4"),
    Part("Tox21_MMP_training", "5", "0-9"),
    Part("synthetic", "3,5,8", "5-9"),
)


def num_parameters(recipe: Recipe, graphs: GraphSet) -> int:
    """The parameters of a recipe's network for some graphs."""
    assert graphs.task is not None
    network = graph_network(
        recipe.architecture,
        num_layers=recipe.layers,
        channels=recipe.width,
        out_channels=graphs.task.num_outputs,
        norm=recipe.norm,
        **describe_features(graphs),
    )
    return sum(parameter.numel() for parameter in network.parameters())


def matched_width(recipe: Recipe, parameters: int, graphs: GraphSet) -> int:
    """The width at which a recipe's network has the nearest number of parameters, which grows with the width."""
    low, high = 1, 2
    while num_parameters(recipe.replace(width=high), graphs) < parameters:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if num_parameters(recipe.replace(width=middle), graphs) < parameters:
            low = middle
        else:
            high = middle
    return min((low, high), key=lambda width: abs(num_parameters(recipe.replace(width=width), graphs) - parameters))


def commands(data: Path, studies: Path) -> Iterator[list[str]]:
    """Every `mlap sweep` of the study."""
    for part in PARTS:
        yield sweep(part, data, studies, ",".join(ARCHITECTURES), part.layers, {})
        graphs = load_graphs(part.data, root=data)
        for layers in part.layers.split(","):
            largest = Recipe(architecture=LARGEST, layers=int(layers), width=SETTINGS["width"])
            goal = num_parameters(largest, graphs)
            for control in ("jk-sum", "mlap-sum"):
                width = matched_width(largest.replace(architecture=control), goal, graphs)
                yield sweep(part, data, studies, control, layers, {"width": width})
        for changes in OPTIONS:
            yield sweep(part, data, studies, "mlap-sum", "5", changes)
        for changes in WEIGHTED:
            yield sweep(part, data, studies, "mlap-weighted", "5", changes)
        yield sweep(part, data, studies, "mlap-scaled,mlap-slow", "5", {})


def sweep(
    part: Part, data: Path, studies: Path, architectures: str, layers: str, changes: Mapping[str, Any]
) -> list[str]:
    """One `mlap sweep`. The networks are kept, to look at the weights and the levels that they have learned."""
    command = ["mlap", "sweep", part.data, "--data-root", str(data), "--study", str(studies / f"{part.data}.db")]
    command += ["--architectures", architectures, "--layers", layers, "--seeds", part.seeds, "--graph-norm", "on"]
    for name, value in {**SETTINGS, **changes}.items():
        command += ["--set", f"{name}={value}"]
    return [*command, "--workers", "1", "--keep-models"]


def arm_of(run: RunRecord) -> str:
    """What to call the networks that differ from others in more than their seeds."""
    usual = Recipe().replace(**SETTINGS).as_dict()
    fields = ("width", "lr", "levels", "level_dropout", "stages", "deep_supervision")
    lr = Recipe.preset(run.data_name).lr
    changed = [
        f"{name}={getattr(run.recipe, name)}"
        for name in fields
        if getattr(run.recipe, name) != (lr if name == "lr" else usual[name])
    ]
    return " ".join([run.architecture, *changed])


def table(studies: Path) -> None:
    """Write every run; a row per set, depth and arm with its test against MLAP-Sum; and what the levels weigh."""
    rows, weights = [], []
    for path in sorted(studies.glob("*.db")):
        out = RESULTS / f"levels_study_{path.stem}_runs.csv"
        export = ["mlap", "compare", str(path), "--table", "runs", "--finished", "--format", "csv", "--out", str(out)]
        subprocess.run([sys.executable, "-m", *export], check=True)
        with Study.open(path) as study:
            done = [run for run in study.runs() if run.status == "done" and run.test_score is not None]
        arms: dict[int, dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
        for run in done:
            arms[run.layers][arm_of(run)].append(run)
            weights += list(_weights(run, path.with_name(f"{path.name}.runs") / run.hash))
        for layers, found in sorted(arms.items()):
            rows += _rows(done[0], layers, found)
    write("levels_study.csv", rows, made_by("torch", arguments=["table"]))
    write("levels_study_weights.csv", weights, made_by("torch", arguments=["table"]))


def _weights(run: RunRecord, folder: Path) -> Iterator[dict[str, Any]]:
    """The weights of the levels of a network that has learned some; a level that it did not keep has none."""
    if not folder.exists() or (run.architecture not in HAVE_WEIGHTS and not run.recipe.levels.startswith("learned")):
        return
    network = mlap.load(folder).network
    found = layer_weights(network)
    assert found is not None
    by_level = dict(zip(network.level_numbers(len(found)), found.tolist(), strict=True))
    for level in range(1, run.layers + 1):
        weight = round(by_level.get(level, 0.0), 6)
        about = {"data": run.data_name, "layers": run.layers, "arm": arm_of(run), "seed": run.seed}
        yield {**about, "level": level, "weight": weight}


def _rows(example: RunRecord, layers: int, arms: dict[str, list[RunRecord]]) -> list[dict[str, Any]]:
    """A row for each arm of a set at a depth; p-values are corrected for all of them together."""
    scores = {arm: [run.test_score for run in runs if run.test_score is not None] for arm, runs in arms.items()}
    others = [arm for arm in arms if arm != "mlap-sum"]
    outcomes = {
        arm: mann_whitney(scores[arm], scores["mlap-sum"], higher_is_better=example.higher_is_better)
        for arm in (others if "mlap-sum" in arms else [])
    }
    corrected = dict(zip(outcomes, holm([outcome.p_two_sided for outcome in outcomes.values()]), strict=True))
    rows = []
    for arm, runs in arms.items():
        valid, test = (
            summarise([run.valid_score for run in runs if run.valid_score is not None]),
            summarise(scores[arm]),
        )
        rows.append(
            {
                "data": example.data_name,
                "layers": layers,
                "arm": arm,
                "seeds": len(runs),
                "parameters": runs[0].num_parameters,
                "metric": example.metric,
                "valid": round(valid.mean, 4),
                "valid_error": _rounded(valid.standard_error),
                "test": round(test.mean, 4),
                "test_error": _rounded(test.standard_error),
                "p": _rounded(outcomes[arm].p_two_sided if arm in outcomes else None),
                "p_holm": _rounded(corrected.get(arm)),
                "minutes": round(sum(run.seconds or 0 for run in runs) / len(runs) / 60, 2),
            }
        )
    return rows


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("commands", "run", "table"))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--studies", type=Path, default=Path("studies"))
    asked = parser.parse_args()
    os.environ["MLAP_PLUGINS"] = "research.levels_joins"  # `mlap-scaled` and `mlap-slow`, for the workers too
    load_plugins()
    if asked.what == "table":
        table(asked.studies)
        return
    asked.studies.mkdir(parents=True, exist_ok=True)
    for command in commands(asked.data, asked.studies):
        print(shlex.join(command), flush=True)
        if asked.what == "run":
            subprocess.run([sys.executable, "-m", *command, "--quiet"], check=False)


if __name__ == "__main__":
    main()
