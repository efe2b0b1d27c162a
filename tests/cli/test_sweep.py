"""`mlap sweep` as its users meet it."""

from __future__ import annotations

import io
import os
import re
import threading
import time
from pathlib import Path

import pytest
from cli.conftest import Command
from rich.console import Console
from study_tools import InProcessEngine, tiny_plan, wait_for

from mlap.cli.sweep_view import SweepView, duration
from mlap.graphs import packed
from mlap.locking import locked_study
from mlap.study import Cost, Plan, Study, forecast, run_hash
from mlap.study.driver import Started
from mlap.study.engine import Died, EpochDone, Event, Failed, Job

FAST = ("--layers", "1-2", "--set", "width=8", "--set", "epochs=2", "--study", "s.db")


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[InProcessEngine]:
    """The engines that were made; jobs run in this process, which is all but the start of workers."""
    made: list[InProcessEngine] = []

    def make(workers: int | None) -> InProcessEngine:
        made.append(InProcessEngine(workers or 2))
        return made[-1]

    monkeypatch.setattr("mlap.study.settings.LocalEngine", make)
    return made


def test_real_workers_then_nothing_is_left_to_run(mlap: Command, tiny: Path) -> None:
    answer = mlap("sweep", tiny, *FAST, "--workers", 1, "--json")
    assert (answer.code, answer.err) == (0, "")
    result = answer.json
    assert {key: result[key] for key in ("runs", "done", "ran", "failed")} == {
        "runs": 2,
        "done": 2,
        "ran": 2,
        "failed": 0,
    }
    assert result["plan"]["layers"] == [1, 2]
    again = mlap("sweep", tiny, *FAST)
    assert again.code == 0
    assert "2 runs: 2 done, 0 to run" in again.err
    assert re.fullmatch(r"s\.db: 2 of 2 runs done  \(0 now, in .*\)\n", again.out)
    assert sorted(os.listdir()) == ["s.db", "tiny.graphs"]


def test_what_people_see(mlap: Command, tiny: Path, engines: list[InProcessEngine]) -> None:
    answer = mlap("sweep", tiny, *FAST, "-a", "naive,mlap-sum", "--graph-norm", "both", "--workers", 3)
    assert answer.code == 0
    lines = answer.err.splitlines()
    assert lines[0] == "# plan grid for synthetic-variant: 2 architecture × 2 layers × 2 norm"
    blank = lines.index("")
    Path("printed.toml").write_text("\n".join(lines[:blank]))
    plan = Plan.of("mine", "printed.toml")
    assert (
        plan.axes
        == Plan.of("synthetic", architecture="naive,mlap-sum", layers="1-2", norm="none,graph", width=8, epochs=2).axes
    )
    assert lines[blank + 1] == "8 runs: 0 done, 8 to run"
    assert re.fullmatch(r"about .* of a core: .* with 3 workers  \(8 kinds of network timed in .*\)", lines[blank + 2])
    assert len(lines) == blank + 3 + 8
    score = r"validation error rate \d\.\d{4}  test \d\.\d{4}"
    assert re.fullmatch(rf"1/8  naive L1 none s0  {score}  .* s  \(.* left\)", lines[blank + 3])
    assert re.fullmatch(rf"8/8  mlap-sum L2 graph s0  {score}  .* s", lines[-1])
    assert answer.out.startswith("s.db: 8 of 8 runs done  (8 now, in ")


def test_a_dry_run_writes_nothing(mlap: Command, tiny: Path) -> None:
    answer = mlap("sweep", tiny, "--plan", "quick", "--dry-run")
    assert (answer.code, answer.err) == (0, "")
    assert "a rehearsal: small networks, few epochs, few seeds" in answer.out
    assert "18 runs: 0 done, 18 to run" in answer.out
    assert os.listdir() == ["tiny.graphs"]
    costs = mlap("sweep", tiny, *FAST, "--seeds", "0-4", "--workers", 2, "--dry-run", "--json").json
    assert (costs["runs"], costs["done"], costs["failed"], costs["to_run"], costs["workers"]) == (10, 0, 0, 10, 2)
    assert costs["core_hours"] > 0
    assert costs["plan"]["seed"] == [0, 1, 2, 3, 4]


def test_failures_are_listed_and_the_exit_code_is_1(
    mlap: Command, tiny: Path, engines: list[InProcessEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def instead(job: Job) -> Event | None:
        return Failed(job.hash, "no luck", "Traceback …", "here") if job.recipe["layers"] == 2 else None

    monkeypatch.setattr("mlap.study.settings.LocalEngine", lambda workers: InProcessEngine(1, instead))
    answer = mlap("sweep", tiny, *FAST, "--quiet")
    assert answer.code == 1
    assert answer.err == "mlap-sum L2 graph s0  failed: no luck\n"
    assert answer.out == "s.db: 1 of 2 runs done, 1 failed (--retry-failed runs them again)\n"
    assert "1 failed before" in mlap("sweep", tiny, *FAST, "--dry-run").out

    monkeypatch.setattr("mlap.study.settings.LocalEngine", lambda workers: InProcessEngine(1))
    answer = mlap("sweep", tiny, *FAST, "--retry-failed", "--json", "--keep-models")
    assert answer.code == 0
    assert (answer.json["done"], answer.json["ran"], answer.json["failures"]) == (2, 1, [])
    (folder,) = Path("s.db.runs").iterdir()
    assert mlap("evaluate", folder, "--json").code == 0


def test_every_option_reaches_the_study(mlap: Command, tiny: Path, engines: list[InProcessEngine]) -> None:
    Path("mine.toml").write_text("width = 4\nlayers = 1\nepochs = 1\nseed = [3, 4]\n")
    options = "--plan mine.toml --seeds 5 --graph-norm off --set lr=0.1,0.2 --set dropout=0 --device cpu"
    answer = mlap("sweep", tiny, *options.split(), "--study", "new/s.db", "--json")
    assert answer.code == 0
    assert engines[0].capacity == 2
    with Study.open("new/s.db") as study:
        runs = study.runs()
        assert [plan.name for plan in study.plans()] == ["mine.toml"]
    assert [(run.recipe.lr, run.seed, run.norm, run.recipe.width) for run in runs] == [
        (lr, 5, "none", 4) for lr in (0.1, 0.2)
    ]
    assert runs[0].source == str(tiny.resolve())


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("--layers 0", "at least 1, got 0"),
        ("--graph-norm yes", "on, off or both, got 'yes'"),
        ("--set epochs", "KEY=VALUE got 'epochs'"),
        ("--set epoch=3", "'epoch' 'epochs'"),
        ("--layers 3 --set layers=4", "layers twice 3 4"),
        ("--plan papre", "'papre' paper, quick, TOML"),
        ("--engine spark", "'spark' local, ray"),
        ("--workers 0", "'--workers'"),
        ("--architectures mlap-sum,mlp", "'mlp' mlap"),
        ("--split-seed one", "whole numbers 'one'"),
        ("--hpo 3 --split-seed 0-4", "one split"),
    ],
)
def test_a_wrong_call_is_one_line(mlap: Command, options: str, facts: str) -> None:
    answer = mlap("sweep", "no-such-data", *options.split())
    assert answer.code == 2
    for fact in facts.split():
        assert fact in answer.error


def test_a_study_in_use(mlap: Command, tiny: Path, engines: list[InProcessEngine]) -> None:
    with locked_study(Path("s.db")):
        answer = mlap("sweep", tiny, *FAST, "--quiet")
    assert answer.code == 1
    assert f"process {os.getpid()}" in answer.error
    assert engines[-1].closed


def test_waiting_for_a_study_in_use(mlap: Command, tiny: Path, engines: list[InProcessEngine]) -> None:
    holder = threading.Thread(target=hold, args=(Path("s.db"), 0.5))
    holder.start()
    wait_for(Path("s.db.lock").exists)
    answer = mlap("sweep", tiny, *FAST, "--wait")
    holder.join()
    assert answer.code == 0
    assert f"waiting for another sweep on s.db (process {os.getpid()} on" in answer.err


def hold(study: Path, seconds: float) -> None:
    with locked_study(study):
        time.sleep(seconds)


def test_several_splits_of_a_table(mlap: Command, engines: list[InProcessEngine]) -> None:
    rows = [f"{'C' * (1 + number)}{'N' if number % 2 else 'O'},{number % 2}" for number in range(60)]
    Path("table.csv").write_text("smiles,active\n" + "\n".join(rows) + "\n")
    options = ("--split-by", "random", "--split-seed", "1,4-5", "--target", "active", "--smiles-column", "smiles")
    answer = mlap("sweep", "table.csv", *FAST, *options, "--task", "binary", "--invalid", "error", "--json")
    assert answer.code == 0, answer.err
    assert [split["done"] for split in answer.json["splits"]] == [2, 2, 2]
    with Study.open("s.db") as study:
        assert {run.options["split_seed"] for run in study.runs()} == {1, 4, 5}
        assert len({run.fingerprint for run in study.runs()}) == 3
    assert "over splits" in mlap("compare", "s.db", "--table", "splits").out


def test_a_stop_says_how_to_go_on(
    mlap: Command, tiny: Path, engines: list[InProcessEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    def instead(job: Job) -> Event | None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlap.study.settings.LocalEngine", lambda workers: InProcessEngine(1, instead))
    answer = mlap("sweep", tiny, *FAST, "--quiet")
    assert answer.code == 130
    assert "same command" in answer.error


# ---- the live view -------------------------------------------------------------------------------------------------


def test_the_live_view(tiny: Path, tmp_path: Path) -> None:
    graphs = packed.load(tiny)
    todo = forecast(tiny_plan(seed="0-3", width="4,8", epochs=10), graphs, tmp_path / "s.db")
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=140, color_system=None)
    first, second, third = (run_hash(recipe, graphs.fingerprint) for recipe in todo.pending[:3])
    with SweepView.of_grid(todo, Cost([1.0] * 8, 0.0, 0), console) as view:
        for hash, recipe in zip((first, second, third), todo.pending, strict=False):
            view(Started(hash, recipe))
        view(EpochDone(first, {"epoch": 5, "valid_score": 0.25}))
        view(Died(second, "the worker was killed by SIGKILL"))
        view(Failed(third, "the training loss became nan", "", "here"))
        with console.capture() as capture:
            console.print(view._picture())
        picture = capture.get()
    assert "1/8 runs" in picture
    assert "19%" in picture  # one run of eight is over, and half of another
    assert re.search(r"s left", picture)
    assert "1 failed" in picture
    assert re.search(r"mlap-sum L5 graph s0 width=4 +epoch 5/10 +validation error rate 0\.2500", picture)
    assert "mlap-sum L5 graph s0 width=8" not in picture  # it waits for another process
    assert "failed: the training loss became nan" in picture
    assert "continues in another process: the worker was killed by SIGKILL" in screen.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.2 s"),
        (12.3, "12 s"),
        (89, "89 s"),
        (200, "3.3 min"),
        (5000, "83.3 min"),
        (6000, "1.7 h"),
        (2e5, "2.3 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
