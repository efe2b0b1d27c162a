from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small import labels
from torch import nn

from mlap.analysis import ProbeScores, Question, probe, questions, summarise_probes
from mlap.errors import UsageError
from mlap.graphs import Task, synthetic
from mlap.models import Levels
from mlap.training import Objective

TASKS = [
    Task("multiclass", 3, "error_rate"),
    Task("binary", 2, "rocauc"),
    Task("binary", 1, "accuracy"),
    Task("regression", 2, "rmse"),
]
GRAPHS = 60


def some_levels(width: int, num_levels: int, aggregate_width: int, seed: int = 0) -> Levels:
    rng = np.random.default_rng(seed)
    return Levels(
        rng.normal(size=(GRAPHS, num_levels, width)).astype(np.float32),
        rng.normal(size=(GRAPHS, aggregate_width)).astype(np.float32),
    )


def question_of(task: Task) -> Question:
    y = labels(np.random.default_rng(1), GRAPHS, task)
    if task.kind == "regression":
        return Question("label", y, Objective(task, np.nanmean(y, 0), np.nanstd(y, 0)))
    return Question("label", y, Objective(task))


def one_by_one(
    x: NDArray[np.float32], question: Question, train: NDArray[np.int64], batch_size: int, epochs: int, seed: int
) -> torch.Tensor:
    """A single linear head, trained as one would write it down."""
    torch.manual_seed(seed)
    head = nn.Linear(x.shape[1], question.objective.task.num_outputs)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    random = np.random.RandomState(seed)
    for _ in range(epochs):
        order = random.permutation(train)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            loss = question.objective.loss(head(torch.from_numpy(x[chosen])), torch.from_numpy(question.y[chosen]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        logits: torch.Tensor = head(torch.from_numpy(x))
    return logits


@pytest.mark.parametrize("aggregate_width", [5, 15])
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_all_at_once_is_the_same_as_one_by_one(
    task: Task, aggregate_width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels, question = some_levels(5, 3, aggregate_width), question_of(task)
    train, test = np.arange(0, 40), np.arange(40, GRAPHS)
    seen: list[torch.Tensor] = []
    score = Objective.score

    def watched(objective: Objective, logits: torch.Tensor, y: NDArray[np.float64]) -> float:
        seen.append(logits.clone())
        return score(objective, logits, y)

    monkeypatch.setattr(Objective, "score", watched)
    found = probe(levels, question, train, test, batch_size=7, epochs=4, seed=3)
    for number in range(4):
        expected = one_by_one(levels[number], question, train, 7, 4, 3)
        torch.testing.assert_close(seen[number], expected[train], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(seen[4 + number], expected[test], rtol=1e-4, atol=1e-5)
        assert found.train[number] == pytest.approx(
            score(question.objective, expected[train], question.y[train]), abs=1e-4
        )
        assert found.test[number] == pytest.approx(
            score(question.objective, expected[test], question.y[test]), abs=1e-4
        )


def test_a_level_that_knows_scores_well_and_one_that_does_not_scores_by_chance() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    knows = np.stack((4.0 * y - 2, rng.normal(size=400)), axis=1)
    noise = rng.normal(size=(400, 2))
    levels = Levels(np.stack((noise, knows), axis=1).astype(np.float32), (noise + knows).astype(np.float32))
    question = Question("class", y, Objective(Task("multiclass", 2, "error_rate")))
    found = probe(levels, question, np.arange(300), np.arange(300, 400), batch_size=5)
    assert found.test[1] == 0
    assert 0.35 < found.test[0] < 0.65


def test_a_network_without_levels_has_one_probe() -> None:
    question = question_of(TASKS[0])
    found = probe(some_levels(5, 0, 5), question, np.arange(40), np.arange(40, 60), batch_size=10, epochs=1)
    assert found.train.shape == found.test.shape == (1,)


def test_the_random_state_of_the_caller_is_left_alone() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    probe(some_levels(5, 1, 5), question_of(TASKS[0]), np.arange(40), np.arange(40, 60), batch_size=10, epochs=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_no_test_graphs() -> None:
    with pytest.raises(UsageError, match="got 3 and 0"):
        probe(some_levels(5, 1, 5), question_of(TASKS[0]), np.arange(3), np.arange(0), batch_size=10)


def test_questions_of_the_synthetic_set() -> None:
    graphs = synthetic(graphs_per_class=2)
    assert graphs.y is not None
    own, centre, peripheral = questions(graphs)
    assert [own.name, centre.name, peripheral.name] == ["class", "centre type", "peripheral type"]
    for label, first, second in zip(graphs.y, centre.y, peripheral.y, strict=True):
        assert label == 3 * first + second
    assert centre.objective.task.num_outputs == 3
    assert {*centre.y.tolist()} == {*peripheral.y.tolist()} == {0, 1, 2}


def test_summary_compares_the_aggregate_with_every_level() -> None:
    rng = np.random.default_rng(0)
    runs = [ProbeScores(rng.random(3), np.array([0.9, 0.5, 0.1]) + rng.normal(0, 0.01, 3)) for _ in range(4)]
    rows = summarise_probes(runs, ("1", "2", "aggregate"), higher_is_better=False)
    assert [row.level for row in rows] == ["1", "2", "aggregate"]
    for number, row in enumerate(rows):
        scores = [run.test[number] for run in runs]
        assert row.test.n == 4
        assert row.test.mean == pytest.approx(np.mean(scores))
        assert row.test.standard_error == pytest.approx(np.std(scores, ddof=1) / 2)
    for row in rows[:2]:
        assert row.against is not None
        assert row.against.r > 0, "the aggregate's error is lower, so it is better"
        # All of 4 below all of 4: one division in 70, times two levels.
        assert row.p_one_sided == pytest.approx(2 / 70)
        assert row.p_two_sided == pytest.approx(4 / 70)
    assert rows[2].against is rows[2].p_one_sided is None


def test_a_single_run_has_no_test_and_no_error() -> None:
    rows = summarise_probes([ProbeScores(np.ones(2), np.zeros(2))], ("1", "aggregate"), higher_is_better=True)
    assert all(row.against is None and row.test.standard_error is None for row in rows)
