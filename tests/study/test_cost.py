"""What a sweep will cost."""

from __future__ import annotations

import platform

import pytest
from study_tools import tiny_plan

from mlap.graphs import synthetic
from mlap.study import cost
from mlap.study.cost import estimate, time_per_graph
from mlap.study.store import RunRecord, run_hash
from mlap.training import Recipe

GRAPHS = synthetic(20)  # 144 train, 18 valid, 18 test
#: graphs' worth of training steps in a run of one epoch: scoring a graph is a third of training on it
ONE_EPOCH, TEST = 144 + 18 / 3, 18 / 3


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The networks that were timed; a graph takes as many seconds as the network has layers, squared."""
    asked: list[Recipe] = []

    def measure(recipe: Recipe, *_: object) -> float:
        asked.append(recipe)
        return float(recipe.layers**2)

    monkeypatch.setattr(cost, "time_per_graph", measure)
    return asked


def test_three_depths_of_each_kind_are_timed_and_powers_of_depth_are_met(timed: list[Recipe]) -> None:
    plan = tiny_plan(architecture="naive,mlap-sum", layers="1-10", seed="0-2", epochs="1,5", lr="0.1,0.2")
    recipes = plan.recipes()
    answer = estimate(recipes, GRAPHS)
    assert sorted((recipe.architecture, recipe.layers) for recipe in timed) == [
        (name, layers) for name in ("mlap-sum", "naive") for layers in (1, 3, 10)
    ]
    assert answer.measured == 6
    for recipe, seconds in zip(recipes, answer.seconds, strict=True):
        assert seconds == pytest.approx(recipe.layers**2 * (recipe.epochs * ONE_EPOCH + TEST))
    assert answer.core_hours == pytest.approx(sum(answer.seconds) / 3600)


def test_finished_runs_on_this_machine_spare_the_timing(timed: list[Recipe]) -> None:
    (recipe,) = tiny_plan(layers=2, epochs=4).recipes()

    def record(host: str, seconds: float, device: str = "cpu") -> RunRecord:
        hash = run_hash(recipe, GRAPHS.fingerprint)
        fields = {"epochs": 4, "seconds": seconds, "host": host, "device": device}
        return RunRecord(hash, recipe, "d", GRAPHS.fingerprint, "d", "error_rate", False, "done", **fields)  # type: ignore[arg-type]

    known = [record(platform.node(), 4 * ONE_EPOCH), record(platform.node(), 12 * ONE_EPOCH)]
    known += [record("other", 1e9), record(platform.node(), 1e9, "cuda")]
    answer = estimate([recipe.replace(seed=7)], GRAPHS, known)
    assert timed == []
    assert answer.measured == 0
    assert answer.seconds == [pytest.approx(2 * (4 * ONE_EPOCH + TEST))]


def test_without_time_to_measure_the_known_kinds_speak_for_the_others(timed: list[Recipe]) -> None:
    (known,) = tiny_plan(architecture="naive", layers=2, epochs=1).recipes()
    run = RunRecord("h", known, "d", GRAPHS.fingerprint, "d", "error_rate", False, "done")
    run = RunRecord(**{**run.__dict__, "epochs": 1, "seconds": 6 * ONE_EPOCH, "host": platform.node(), "device": "cpu"})
    recipes = tiny_plan(architecture="naive,mlap-sum", layers="2,4", epochs=1).recipes()
    answer = estimate(recipes, GRAPHS, [run], budget=0)
    assert timed == []
    assert answer.seconds == [pytest.approx(3 * recipe.layers * (ONE_EPOCH + TEST)) for recipe in recipes]
    assert estimate([], GRAPHS).core_hours == 0


def test_the_first_network_compiles_at_nobodys_expense(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute for the first, five seconds for each other: the budget of twelve ends with the fourth."""
    clock = [0.0]
    asked: list[int] = []

    def measure(recipe: Recipe, *_: object) -> float:
        clock[0] += 5 if asked else 60
        asked.append(recipe.layers)
        return 1.0

    monkeypatch.setattr(cost, "time_per_graph", measure)
    monkeypatch.setattr(cost.time, "perf_counter", lambda: clock[0])
    plan = tiny_plan(architecture="naive,jk-sum,jk-max,mlap-sum,mlap-weighted", layers=2, epochs=1)
    assert estimate(plan.recipes(), GRAPHS, budget=12).measured == len(asked) == 4


@pytest.mark.parametrize("batch_size", [5, 10_000])
def test_a_real_timing(batch_size: int) -> None:
    """A wide network takes longer than a narrow one, whether or not a batch is larger than the set."""
    few = synthetic(3)
    narrow = time_per_graph(Recipe(layers=2, width=4, batch_size=batch_size), few)
    wide = time_per_graph(Recipe(layers=2, width=512, batch_size=batch_size), few)
    assert 0 < narrow < wide
