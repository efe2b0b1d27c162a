"""Searches: spaces, what is proposed, and that nothing but validation scores decides."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_tools import InProcessEngine, tiny_graphs

from mlap.errors import DataError, UsageError
from mlap.graphs import GraphSet
from mlap.names import PAPER_ARCHITECTURES
from mlap.study import Plan, RunRecord, Study, SweepSettings, run_hash, sweep
from mlap.study.engine import Died, Done, Event, Failed, Job
from mlap.study.search import Range, Search, Space, propose, search, search_state
from mlap.training import Recipe

pytest.importorskip("optuna", reason="optuna is not installed: pip install 'mlap[hpo]'")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, GraphSet]:
    return tiny_graphs(tmp_path_factory.mktemp("data"))


STATES = ("planned", "running", "failed")


def tiny_space(**changes: Any) -> Space:
    fields = {"width": "4..8", "layers": "1..2", "epochs": 1, "architecture": "naive,mlap-sum", "norm": "none,graph"}
    return Space.of("synthetic", **{**fields, **changes})


def valley(recipe: Recipe) -> float:
    """A score that is best for wide, shallow networks with a learning rate of 0.001."""
    return abs(math.log10(recipe.lr) + 3) + recipe.dropout + recipe.layers / 10 - recipe.width / 1000


def pretend(score: Callable[[Recipe], float] = valley, test: float = 0.5) -> Callable[[Job], Event]:
    """Answers a job at once, with a score that its recipe decides."""

    def instead(job: Job) -> Event:
        result = {"best_epoch": 1, "valid_score": score(Recipe.of(job.recipe)), "test_score": test}
        return Done(job.hash, {**result, "num_parameters": 1, "epochs": 1}, [], "here", "cpu", {})

    return instead


def recipes(found: Search) -> list[Recipe]:
    return [trial.recipe for trial in found.trials]


# ---- spaces --------------------------------------------------------------------------------------------------------


def test_the_default_space_and_what_changes_it(tmp_path: Path) -> None:
    space = Space.of("ogbg-molhiv")
    assert space.searched == ("architecture", "layers", "width", "norm", "dropout", "lr")
    assert space.axes["lr"] == Range(1e-4, 1e-2, log=True)
    assert space.axes["layers"] == Range(1, 8)
    assert space.axes["architecture"] == PAPER_ARCHITECTURES
    assert space.axes["batch_size"] == (20,)
    changed = Space.of("mine", layers="2-5", width="64,128", dropout=0.1, weight_decay="1e-6 .. 1e-3 : log", seed=3)
    assert changed.axes["layers"] == Range(2, 5)
    assert changed.axes["width"] == (64, 128)
    assert changed.axes["dropout"] == (0.1,)
    assert changed.axes["weight_decay"] == Range(1e-6, 1e-3, log=True)
    assert changed.axes["seed"] == (3,)
    # A file states the whole space, and what is printed is such a file.
    (tmp_path / "space.toml").write_text('lr = "1e-4..1e-2:log"\nresidual = [true, false]\n')
    stated = Space.of("mine", tmp_path / "space.toml")
    assert stated.searched == ("residual", "lr")
    for printed in (space, changed, stated):
        (tmp_path / "printed.toml").write_text(printed.to_toml())
        assert Space.of("other", tmp_path / "printed.toml") == printed
    assert len({printed.key("data") for printed in (space, changed, stated)}) == 3
    assert space.key("data") != space.key("other data")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": "1e-2..1e-4"}, r"lr: the range 1e-2\.\.1e-4 must rise"),
        ({"lr": "0..1:log"}, "lr: a range on a logarithmic scale begins above 0"),
        ({"lr": "1..2:lin"}, r"lr: a range is LOW\.\.HIGH or LOW\.\.HIGH:log, got '1\.\.2:lin'"),
        ({"lr": ".."}, r"lr: a range is LOW\.\.HIGH"),
        ({"layers": "1..2.5"}, "layers must be a whole number, got '2.5'"),
        ({"dropout": "0..2"}, "dropout must be at most 1"),
        ({"norm": "none..graph"}, "norm is not a number and has no range; list its values"),
        ({"depth": "1..2"}, "unknown field of a recipe 'depth'"),
        ({"depth": 3}, "unknown field of a recipe 'depth'"),
        ({"seed": "0-3"}, "a search trains every recipe with one and the same seed"),
        ({"seed": "0..3"}, "a search trains every recipe with one and the same seed"),
        (
            {"architecture": "naive", "layers": 1, "width": 8, "norm": "none", "dropout": 0, "lr": 0.1},
            "there is nothing to search",
        ),
    ],
)
def test_a_wrong_space_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        Space.of("synthetic", **fields)


@given(
    st.floats(1e-6, 1, exclude_max=True),
    st.floats(1e-3, 5),
    st.booleans(),
    st.integers(0, 2**31),
    st.sampled_from(["tpe", "random"]),
)
def test_proposals_lie_in_the_space_and_can_be_typed(
    low: float, size: float, log: bool, seed: int, sampler: str
) -> None:
    text = f"{low!r}..{low + size!r}{':log' if log else ''}"
    space = tiny_space(lr=text, layers="2,5", width="30..40")
    recipe = propose(space, [], False, sampler, seed)
    assert low <= recipe.lr <= low + size
    assert len(f"{recipe.lr:.4g}") <= 10
    assert recipe.lr in (float(f"{recipe.lr:.4g}"), low, low + size)
    assert recipe.layers in (2, 5)
    assert 30 <= recipe.width <= 40
    assert recipe.epochs == 1


# ---- searching -----------------------------------------------------------------------------------------------------


def test_a_search_trains_what_it_proposes(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    source, graphs = data
    study = tmp_path / "s.db"
    space = tiny_space()
    assert search_state(space, 4, graphs, study).trials == []
    assert not study.exists()
    found = search(space, 4, SweepSettings(source, study), engine=InProcessEngine(2))
    assert (found.done, found.failed, found.ran, found.left) == (4, 0, 4, 0)
    (number, best), *others = found.ranking
    assert best.valid_score is not None
    assert all(best.valid_score <= (other.valid_score or 0) for _, other in others)
    assert found.trials[number - 1] == best
    # Its trials are runs like any other: a sweep of the best recipe has nothing to run.
    plan = Plan.of("synthetic", **best.recipe.as_dict())
    assert sweep(plan, SweepSettings(source, study), engine=InProcessEngine()).ran == 0
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_a_search_that_is_stopped_ends_as_if_it_had_not_been(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    source, graphs = data
    space = tiny_space(lr="1e-4..1e-2:log", dropout="0..0.6")
    whole = search(
        space, 16, SweepSettings(source, tmp_path / "whole.db"), engine=InProcessEngine(1, pretend()), graphs=graphs
    )
    assert len(set(recipes(whole))) == 16

    answered: Counter[str] = Counter()

    def stops(job: Job) -> Event:
        """Is stopped at every third run, when it is under way."""
        answered["runs"] += 1
        if answered["runs"] % 3 == 0:
            raise KeyboardInterrupt
        return pretend()(job)

    study = tmp_path / "stopped.db"
    stopped = 0
    while True:
        try:
            found = search(space, 16, SweepSettings(source, study), engine=InProcessEngine(1, stops), graphs=graphs)
            break
        except KeyboardInterrupt:
            stopped += 1
    assert stopped >= 5
    assert recipes(found) == recipes(whole)
    assert [trial.valid_score for trial in found.trials] == [trial.valid_score for trial in whole.trials]
    assert found.ranking[0][1].recipe == whole.ranking[0][1].recipe
    # Going on to more trials is the same as having asked for them at once.
    longer = search(
        space, 16, SweepSettings(source, tmp_path / "more.db"), engine=InProcessEngine(1, pretend()), graphs=graphs
    )
    again = InProcessEngine(1, pretend())
    more = search(space, 19, SweepSettings(source, tmp_path / "more.db"), engine=again, graphs=graphs)
    assert len(again.submitted) == more.ran == 3
    assert recipes(more)[:16] == recipes(longer) == recipes(whole)


def test_another_seed_or_sampler_proposes_something_else(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    found = {}
    for seed, sampler in ((0, "tpe"), (1, "tpe"), (0, "random")):
        study = tmp_path / f"{seed}{sampler}.db"
        engine = InProcessEngine(1, pretend())
        space = Space.of("synthetic")
        found[seed, sampler] = search(
            space, 14, SweepSettings(data[0], study), engine=engine, graphs=data[1], seed=seed, sampler=sampler
        )
    assert recipes(found[0, "tpe"]) != recipes(found[1, "tpe"])
    # The first ten trials are at random, with either sampler; what follows is judged by them.
    assert recipes(found[0, "tpe"])[10:] != recipes(found[0, "random"])[10:]


def test_the_sampler_learns(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    def mean_of_last(sampler: str) -> float:
        study = tmp_path / f"{sampler}.db"
        engine = InProcessEngine(2, pretend())
        found = search(
            Space.of("synthetic"), 40, SweepSettings(data[0], study), engine=engine, graphs=data[1], sampler=sampler
        )
        return sum(valley(recipe) for recipe in recipes(found)[20:]) / 20

    assert mean_of_last("tpe") < 0.7 * mean_of_last("random")


def test_higher_is_better_where_the_task_says_so(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    source, graphs = data
    assert graphs.task is not None
    other = dataclasses.replace(graphs, task=dataclasses.replace(graphs.task, metric="accuracy"))
    assert other.task is not None
    assert other.task.higher_is_better
    engine = InProcessEngine(1, pretend(lambda recipe: -valley(recipe)))
    found = search(Space.of("synthetic"), 14, SweepSettings(source, tmp_path / "s.db"), engine=engine, graphs=other)
    lower = search(
        Space.of("synthetic"),
        14,
        SweepSettings(source, tmp_path / "l.db"),
        engine=InProcessEngine(1, pretend()),
        graphs=graphs,
    )
    assert recipes(found) == recipes(lower)
    scores = [trial.valid_score or 0 for _, trial in found.ranking]
    assert scores == sorted(scores, reverse=True)


def test_test_scores_decide_nothing(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    source, graphs = data
    space = Space.of("synthetic")
    found = {}
    for poisoned in (False, True):
        study = tmp_path / f"{poisoned}.db"
        engine = InProcessEngine(1, pretend(test=0.0 if poisoned else 0.5))
        search(space, 12, SweepSettings(source, study), engine=engine, graphs=graphs)
        if poisoned:
            with sqlite3.connect(study) as connection:
                connection.execute("UPDATE runs SET test_score = valid_score * -1e9")
            connection.close()
        engine = InProcessEngine(1, pretend(test=-1e9 if poisoned else 0.5))
        found[poisoned] = search(space, 18, SweepSettings(source, study), engine=engine, graphs=graphs)
    assert recipes(found[True]) == recipes(found[False])
    assert [run.hash for _, run in found[True].ranking] == [run.hash for _, run in found[False].ranking]


# ---- what does not go well -----------------------------------------------------------------------------------------


def test_failures_count_are_not_followed_and_are_retried_on_request(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    def instead(job: Job) -> Event:
        if job.recipe["norm"] == "none":
            return Failed(job.hash, "the training loss became nan", "", "here")
        if job.recipe["layers"] == 1:
            return pretend(lambda _: float("nan"))(job)  # a score that is none
        return pretend()(job)

    space, study = tiny_space(lr="1e-4..1e-2:log"), tmp_path / "s.db"
    found = search(space, 14, SweepSettings(data[0], study), engine=InProcessEngine(1, instead), graphs=data[1])
    assert found.done + found.failed == 14
    assert found.failed > 0
    assert {trial.recipe.norm for _, trial in found.ranking} == {"graph"}
    assert {trial.recipe.layers for _, trial in found.ranking} == {2}
    engine = InProcessEngine(1, pretend())
    assert search(space, 14, SweepSettings(data[0], study), engine=engine, graphs=data[1]).failed == found.failed
    assert engine.submitted == []
    retried = search(space, 14, SweepSettings(data[0], study, retry_failed=True), engine=engine, graphs=data[1])
    assert (retried.failed, retried.ran, len(engine.submitted)) == (0, found.failed, found.failed)


def test_a_recipe_that_is_proposed_twice_is_run_once(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    space = Space.of("synthetic", architecture="naive", layers="1..2", width=8, norm="none", dropout=0, lr="0.1,0.2")
    engine = InProcessEngine(3, pretend())
    found = search(space, 12, SweepSettings(data[0], tmp_path / "s.db"), engine=engine, graphs=data[1])
    assert found.done == len(found.trials) == 12
    assert len({job.hash for job in engine.submitted}) == len(engine.submitted) == found.ran <= 4
    assert len(found.ranking) == found.ran


def test_runs_of_a_grid_are_used_but_are_not_trials(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    source, graphs = data
    study = tmp_path / "s.db"
    fields = {"architecture": "naive", "layers": "1-2", "width": 8, "norm": "none", "dropout": 0, "lr": "0.1,0.2"}
    sweep(
        Plan.of("synthetic", **fields),
        SweepSettings(source, study),
        engine=InProcessEngine(1, pretend()),
        graphs=graphs,
    )
    space = Space.of("synthetic", **fields)
    assert search_state(space, 5, graphs, study).trials == []
    engine = InProcessEngine(1, pretend())
    found = search(space, 5, SweepSettings(source, study), engine=engine, graphs=graphs)
    assert (found.done, found.ran, engine.submitted) == (5, 0, [])
    # Another space is another search.
    assert search_state(Space.of("synthetic"), 5, graphs, study).trials == []


def test_a_worker_that_dies_costs_nothing(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    died: set[str] = set()

    def instead(job: Job) -> Event:
        if job.hash in died:
            return pretend()(job)
        died.add(job.hash)
        return Died(job.hash, "gone")

    found = search(
        Space.of("synthetic"),
        6,
        SweepSettings(data[0], tmp_path / "s.db"),
        engine=InProcessEngine(2, instead),
        graphs=data[1],
    )
    assert (found.done, found.failed, found.ran) == (6, 0, 6)


def test_running_trials_count() -> None:
    """Trials under way at the best known place send the sampler elsewhere; failed ones there do not."""
    space = Space.of("synthetic")

    def record(recipe: Recipe, status: str) -> RunRecord:
        score = valley(recipe) if status == "done" else None
        return RunRecord(run_hash(recipe, "f"), recipe, "d", "f", "s", "error", False, status, valid_score=score)

    known = [record(propose(space, [], False, "random", seed), "done") for seed in range(12)]
    best = min(known, key=lambda run: run.valid_score or 0).recipe
    after = {
        status: [propose(space, [*known, *[record(best, status)] * 6], False, seed=seed) for seed in range(6)]
        for status in STATES
    }
    assert after["running"] == after["planned"]
    assert after["running"] != after["failed"]


def test_wrong_calls(tmp_path: Path, data: tuple[str, GraphSet], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown sampler 'gp'"):
        search(tiny_space(), 3, SweepSettings(data[0], tmp_path / "s.db"), sampler="gp")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"pip install 'mlap\[hpo\]'"):
        search(tiny_space(), 3, SweepSettings(data[0], tmp_path / "s.db"))
    assert list(tmp_path.iterdir()) == []


def test_the_study_says_what_was_searched(tmp_path: Path, data: tuple[str, GraphSet]) -> None:
    space = tiny_space()
    search(space, 3, SweepSettings(data[0], tmp_path / "s.db"), engine=InProcessEngine(1, pretend()), graphs=data[1])
    with Study.open(tmp_path / "s.db") as study:
        assert len(study.trials(space.key(data[1].fingerprint))) == 3
        assert study.trials("another") == []
    connection = sqlite3.connect(tmp_path / "s.db")
    assert connection.execute("SELECT space FROM searches").fetchall() == [(space.to_toml(),)]
    connection.close()
