"""`mlap sweep --hpo`, and the options of `--engine ray`, as their users meet them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Command
from study_tools import InProcessEngine

from mlap.study import Study
from mlap.study.engine import Event, Failed, Job
from mlap.study.search import Space

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'mlap[hpo]'")

FAST = ("--set", "width=4..8", "--layers", "1-2", "--set", "epochs=1", "--study", "s.db")


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlap.study.settings.LocalEngine", lambda workers: InProcessEngine(workers or 1))


def test_what_people_see(mlap: Command, tiny: Path) -> None:
    answer = mlap("sweep", tiny, *FAST, "--hpo", 4)
    assert answer.code == 0
    lines = answer.err.splitlines()
    searched = "architecture, layers, width, norm, dropout, lr"
    assert lines[0] == f"# search for synthetic-variant: {searched}; sampler tpe, seed 0"
    blank = lines.index("")
    Path("printed.toml").write_text("\n".join(lines[:blank]))
    assert Space.of("mine", "printed.toml") == Space.of("synthetic", width="4..8", layers="1..2", epochs=1)
    assert lines[blank + 1] == "4 trials: 0 done, 4 to run"
    assert re.fullmatch(
        r"roughly .* of a core: .* with 1 worker  \(estimated from 12 random recipes .*\)", lines[blank + 2]
    )
    assert len(lines) == blank + 3 + 4
    run = r"\S+ L[12] \S+ s0 width=\d dropout=\S+ lr=\S+  validation error rate \d\.\d{4}  .* s"
    assert re.fullmatch(rf"4/4  {run}", lines[-1])
    assert " test " not in answer.err + answer.out

    out = answer.out.splitlines()
    assert out[0].startswith("s.db: 4 of 4 trials done  (4 runs now, in ")
    assert out[2] == "The best 4 by validation score"
    with Study.open("s.db") as study:
        best = min(study.runs(), key=lambda run: run.valid_score or 0)
    assert f"{best.valid_score:.4f}" in out[6]
    # The command is one, and asks for the best recipe with more seeds.
    command = shlex.split(out[-1])
    assert command[:2] == ["mlap", "sweep"]
    again = mlap(*command[1:], "--dry-run", "--json").json
    assert (again["runs"], again["done"], again["plan"]["seed"]) == (10, 1, list(range(10)))
    assert {key: again["plan"][key] for key in best.recipe.as_dict() if key != "seed"} == {
        key: [value] for key, value in best.recipe.as_dict().items() if key != "seed"
    }


def test_json_and_going_on(mlap: Command, tiny: Path) -> None:
    dry = mlap("sweep", tiny, *FAST, "--hpo", 3, "--dry-run", "--json").json
    assert (dry["trials"], dry["done"], dry["to_run"], dry["space"]["width"]) == (3, 0, 3, "4..8")
    assert dry["core_hours"] > 0
    assert not Path("s.db").exists()
    first = mlap("sweep", tiny, *FAST, "--hpo", 3, "--sampler", "random", "--search-seed", 5, "--json")
    assert (first.code, first.err) == (0, "")
    assert (first.json["done"], first.json["ran"], first.json["seed"]) == (3, 3, 5)
    assert first.json["best"] == first.json["ranking"][0]
    scores = [entry["valid_score"] for entry in first.json["ranking"]]
    assert scores == sorted(scores)
    more = mlap("sweep", tiny, *FAST, "--hpo", 5, "--json").json
    assert (more["done"], more["ran"]) == (5, 2)
    assert "5 trials: 5 done, 0 to run" in mlap("sweep", tiny, *FAST, "--hpo", 5, "--dry-run").out


def test_a_search_without_any_score_fails(mlap: Command, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def instead(job: Job) -> Event:
        return Failed(job.hash, "no luck", "", "here")

    monkeypatch.setattr("mlap.study.settings.LocalEngine", lambda workers: InProcessEngine(1, instead))
    answer = mlap("sweep", tiny, *FAST, "--hpo", 2, "--quiet")
    assert answer.code == 1
    assert "0 of 2 trials done, 2 failed" in answer.out
    assert "no trial has a validation score" in answer.out
    answer = mlap("sweep", tiny, *FAST, "--hpo", 2, "--json")
    assert (answer.code, answer.json["best"], answer.json["failed"]) == (1, None, 2)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("--sampler tpe", "sampler trials"),
        ("--search-seed 3", "search trials"),
        ("--hpo 0", "'--hpo'"),
        ("--hpo 3 --sampler gp", "'gp' tpe, random"),
        ("--hpo 3 --seeds 0-4", "one and the same seed"),
        ("--hpo 3 --set lr=0..1:log", "lr logarithmic above 0"),
        ("--address auto", "address ray"),
        ("--gpus-per-run 0.5", "gpus 0.5 ray"),
        ("--cpus-per-run 0.5", "whole number of threads 0.5"),
        ("--engine ray --device cuda", "cuda Ray GPU"),
        ("--engine ray --device cpu --gpus-per-run 1", "cpu Ray GPU"),
    ],
)
def test_a_wrong_call_is_one_line(mlap: Command, options: str, facts: str) -> None:
    answer = mlap("sweep", "no-such-data", *options.split())
    assert answer.code == 2
    for fact in facts.split():
        assert fact in answer.error


def test_the_options_reach_ray(mlap: Command, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def make(**options: Any) -> InProcessEngine:
        made.append(options)
        return InProcessEngine(3)

    monkeypatch.setattr("mlap.study.settings.RayEngine", make)
    where = ("--engine", "ray", "--address", "ray://there:10001", "--cpus-per-run", 0.5, "--gpus-per-run", 0.25)
    plan = mlap("sweep", tiny, *where, "--workers", 8, "--dry-run", "--json")
    assert (plan.code, plan.json["workers"]) == (0, 3)
    graphs = made[0].pop("graphs")
    assert graphs.fingerprint == plan.json["fingerprint"]
    assert made == [{"address": "ray://there:10001", "cpus": 0.5, "gpus": 0.25, "workers": 8}]
    ran = mlap("sweep", tiny, "--engine", "ray", "--layers", "1", "--set", "width=4", "--set", "epochs=1", "--quiet")
    assert ran.code == 0
    assert made[1].keys() == {"workers", "graphs"}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("there", "must be auto, local, ray://HOST:PORT or HOST:PORT, got 'there'"),
        ("127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1 ("),
    ],
)
def test_a_cluster_that_is_not_there(mlap: Command, tiny: Path, address: str, message: str) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'mlap[ray]'")
    answer = mlap("sweep", tiny, "--engine", "ray", "--address", address)
    assert answer.code in (1, 2)
    assert message in answer.error
