"""Studies for tests of the report: a tiny real one, and one with numbers made by hand."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from study_tools import InProcessEngine, tiny_plan

from mlap.graphs import GraphSet, packed, synthetic
from mlap.report.page import WrittenReport, write_report
from mlap.study import Study, SweepSettings, sweep
from mlap.study.engine import Done, Event, Failed, Job
from mlap.study.store import run_hash
from mlap.training import Recipe

#: text that would do harm, or vanish, on a page that does not escape it
HOSTILE = '<script>document.title="taken over"</script> & "quoted" <img src=x onerror=alert(1)>'


@dataclass(frozen=True)
class Made:
    """A report, and what it was made from."""

    study: Path
    graphs: GraphSet
    written: WrittenReport


def real_report(folder: Path) -> Made:
    """A report on real networks, with a look into the deepest ones. One of the runs has failed."""
    # Under the name of the paper's set, so that the paper's numbers stand beside.
    graphs = dataclasses.replace(synthetic(6), name="synthetic")
    packed.save(graphs, folder / "tiny.graphs")

    def fail(job: Job) -> Event | None:
        wanted = job.recipe["architecture"] == "naive" and job.recipe["layers"] == job.recipe["seed"] + 1 == 2
        return Failed(job.hash, "out of memory", "", "here") if wanted and job.recipe["norm"] == "none" else None

    plan = tiny_plan(architecture="naive,jk-sum,mlap-weighted", layers="1-2", norm="none,graph", seed="0-1")
    source, study = str(folder / "tiny.graphs"), folder / "study.db"
    sweep(plan, SweepSettings(source, study, keep_models=True), engine=InProcessEngine(instead=fail))
    return Made(study, graphs, write_report(study, folder / "report", load_data=lambda run: graphs))


def study_by_hand(path: Path) -> None:
    """Scores above and below 10, names and errors that need escaping, a run without a test score, a failed one."""
    graphs = dataclasses.replace(synthetic(2), name=f"mine {HOSTILE}")
    with Study.create(path) as study:
        for number, architecture in enumerate(("naive", "jk-sum", "mlap-sum")):
            for layers in (1, 2):
                for seed in range(3):
                    recipe = Recipe(architecture=architecture, layers=layers, seed=seed)
                    score = (9.5, 101.25, 10.125)[number] - layers + 0.5 * seed
                    test = None if (architecture, layers, seed) == ("naive", 1, 1) else score + 1
                    _finish(study, graphs, recipe, score, test, parameters=(999, 1000, 12345)[number])
        failed = Recipe(architecture="naive", layers=3)
        study.plan("grid", {}, [failed], graphs, HOSTILE, {})
        study.fail(Failed(run_hash(failed, graphs.fingerprint), HOSTILE, "", "here"))


def _finish(study: Study, graphs: GraphSet, recipe: Recipe, valid: float, test: float | None, parameters: int) -> None:
    axes = {field: [value] for field, value in recipe.as_dict().items()}
    study.plan("grid", axes, [recipe], graphs, HOSTILE, {})
    name = run_hash(recipe, graphs.fingerprint)
    result = {"best_epoch": 1, "valid_score": valid, "test_score": test, "num_parameters": parameters, "epochs": 1}
    epoch = {"epoch": 1, "lr": 0.1, "train_loss": 1.0, "valid_loss": 1.0, "valid_score": valid, "seconds": 1800.0}
    study.start(name)
    study.finish(Done(name, result, [epoch], "here", "cpu", {"mlap": "1", "torch": "2"}))
