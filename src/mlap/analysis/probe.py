"""What each level knows: a linear classifier on every level-wise graph representation (the paper's section 5.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mlap.errors import UsageError
from mlap.graphs import GraphSet, Task
from mlap.graphs.synthetic import VARIANT
from mlap.models.levels import Levels
from mlap.statistics import MannWhitney, Summary, bonferroni, mann_whitney, summarise
from mlap.training import Objective

#: the paper's settings
EPOCHS = 30
LR = 1e-3

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Question:
    """Something that a probe is to tell about a graph.

    Args:
        name: in words.
        y: the answers for all graphs, as in a `GraphSet`.
        objective: how answers are trained and scored.
    """

    name: str
    y: Array
    objective: Objective


@dataclass(frozen=True, eq=False)
class ProbeScores:
    """The scores of the probes of one run, for the levels in order and then the aggregate, `(L + 1,)` each."""

    train: NDArray[np.float64]
    test: NDArray[np.float64]


@dataclass(frozen=True)
class ProbeRow:
    """One representation in a summary over runs.

    Args:
        level: `1` to `L`, or `aggregate`.
        train: score on the training graphs over the runs.
        test: score on the test graphs over the runs.
        against: the aggregate's test scores against this level's, if there are at least two runs.
        p_one_sided: of that test, Bonferroni-corrected for the number of levels.
        p_two_sided: likewise.
    """

    level: str
    train: Summary
    test: Summary
    against: MannWhitney | None = None
    p_one_sided: float | None = None
    p_two_sided: float | None = None


def questions(graphs: GraphSet) -> list[Question]:
    """The set's own labels; for the synthetic set also the centre type and the peripheral type alone."""
    objective = Objective.of(graphs)
    assert graphs.y is not None
    task = objective.task
    asked = [Question("class" if task.kind == "multiclass" else "label", graphs.y, objective)]
    if types := component_types(graphs):
        part = Objective(Task("multiclass", types, task.metric))
        asked.append(Question("centre type", graphs.y // types, part))
        asked.append(Question("peripheral type", graphs.y % types, part))
    return asked


def component_types(graphs: GraphSet) -> int | None:
    """How many types of components the graphs of a synthetic set are made of; `None` for other sets."""
    if graphs.task is None or graphs.name not in ("synthetic", VARIANT):
        return None
    types = math.isqrt(graphs.task.num_outputs)
    return types if types > 1 and types**2 == graphs.task.num_outputs else None


def probe(
    levels: Levels,
    question: Question,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    *,
    batch_size: int,
    epochs: int = EPOCHS,
    lr: float = LR,
    seed: int = 0,
) -> ProbeScores:
    """Train a linear classifier with bias on each level and on the aggregate, by Adam on the training graphs.

    All classifiers are trained at once. They share no parameter and Adam treats every parameter by itself, so that this
    is the same as one after the other. They start from the same weights and see the graphs in the same order: what
    differs between levels is the representation alone.

    Args:
        levels: representations of all graphs of a set.
        question: what to tell.
        train: the graphs to learn from.
        test: the graphs to be tested on.
        batch_size: graphs per step; the paper's is that of its training.
        epochs: passes over the training graphs.
        lr: Adam's learning rate.
        seed: of initial weights and shuffling.
    """
    if not len(train) or not len(test):
        raise UsageError(f"probes need training and test graphs, got {len(train)} and {len(test)}")
    stacks = [torch.from_numpy(levels.aggregate[:, None])]
    if levels.num_levels:
        stacks.insert(0, torch.from_numpy(levels.level_wise))
    labels = torch.from_numpy(question.y.astype(np.float32 if question.y.dtype.kind == "f" else np.int64))
    with torch.random.fork_rng():
        heads = [_heads(stack, question.objective.task.num_outputs, seed) for stack in stacks]
    optimizer = torch.optim.Adam([parameter for head in heads for parameter in head], lr, fused=True)
    random = np.random.RandomState(seed)
    for _ in range(epochs):
        order = torch.from_numpy(random.permutation(train))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            # (L + 1, B, K): the mean over all probes times their number is the sum of their losses.
            logits = torch.cat([_logits(stack[chosen], head) for stack, head in zip(stacks, heads, strict=True)])
            y = labels[chosen].repeat(len(logits), *[1] * (labels.ndim - 1))
            loss = question.objective.loss(logits.flatten(0, 1), y) * len(logits)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()

    with torch.inference_mode():
        weights = [(w, b) for head in heads for w, b in zip(*head, strict=True)]

        def scores(indices: NDArray[np.int64]) -> NDArray[np.float64]:
            answers = (
                torch.from_numpy(levels[number][indices]) @ w.T + b.squeeze(0) for number, (w, b) in enumerate(weights)
            )
            return np.array([question.objective.score(answer, question.y[indices]) for answer in answers])

        return ProbeScores(scores(train), scores(test))


def _heads(stack: Tensor, outputs: int, seed: int) -> tuple[Tensor, Tensor]:
    """The weights `(P, K, c)` and biases `(P, 1, K)` of P equal linear layers."""
    torch.manual_seed(seed)
    linear = nn.Linear(stack.size(2), outputs)
    weight = linear.weight.detach().repeat(stack.size(1), 1, 1)
    bias = linear.bias.detach().repeat(stack.size(1), 1, 1)
    return weight.requires_grad_(), bias.requires_grad_()


def _logits(representations: Tensor, head: tuple[Tensor, Tensor]) -> Tensor:
    """Logits `(P, B, K)` of representations `(B, P, c)`."""
    weight, bias = head
    return torch.baddbmm(bias, representations.transpose(0, 1), weight.transpose(1, 2))


def summarise_probes(runs: Sequence[ProbeScores], names: Sequence[str], *, higher_is_better: bool) -> list[ProbeRow]:
    """The scores of several runs in short, and the aggregate compared with every level (Mann–Whitney, Bonferroni).

    Args:
        runs: the probes of each run.
        names: `Levels.names`.
        higher_is_better: whether a higher score is a better one.
    """
    train, test = (np.stack([getattr(run, part) for run in runs], axis=1) for part in ("train", "test"))  # (L + 1, R)
    rows = [ProbeRow(name, summarise(train[number]), summarise(test[number])) for number, name in enumerate(names[:-1])]
    if len(runs) > 1:
        tests = [mann_whitney(test[-1], level, higher_is_better=higher_is_better) for level in test[:-1]]
        one_sided = bonferroni([outcome.p_one_sided for outcome in tests])
        two_sided = bonferroni([outcome.p_two_sided for outcome in tests])
        rows = [
            ProbeRow(row.level, row.train, row.test, outcome, one, two)
            for row, outcome, one, two in zip(rows, tests, one_sided, two_sided, strict=True)
        ]
    return [*rows, ProbeRow(names[-1], summarise(train[-1]), summarise(test[-1]))]
