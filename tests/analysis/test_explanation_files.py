from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from small import random_graphs, small_network
from torch import nn

from mlap.analysis.explanation_files import write_explanations
from mlap.analysis.explanation_words import chosen_output, prediction_text, terms
from mlap.analysis.sketch import MAX_NODES
from mlap.errors import UsageError
from mlap.graphs import Task
from mlap.models import explain
from mlap.training import Objective


class Plain:
    """A model of which the words and files need only what its logits mean."""

    def __init__(self, task: Task, *scale: np.ndarray) -> None:
        self.objective = Objective(task, *scale)
        self.task = task

    def values(self, logits: np.ndarray) -> np.ndarray:
        return np.asarray(self.objective.predict(torch.from_numpy(logits)))


CLASSES = Plain(Task("multiclass", 3, "accuracy", ("a", "b", "c")))


def test_json_and_csv_add_up(tmp_path: Path) -> None:
    graphs = random_graphs([5, 1, 4, 6])
    network = small_network("mlap-weighted", 2, 3).float()
    seen: list[int] = []
    written = write_explanations(
        explain(network, graphs, [2, 0, 1]),
        graphs,
        CLASSES,
        tmp_path,
        max_pictures=0,
        on_graph=lambda content: seen.append(content["graph"]),
    )
    assert (written.graphs, written.pictures, written.reason) == (3, (), "")
    assert written.residual < 1e-5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["explanations.csv", "explanations.json"]
    content = json.loads((tmp_path / "explanations.json").read_text())
    with (tmp_path / "explanations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert seen == [one["graph"] for one in content] == [2, 0, 1]
    for one in content:
        assert one["output"] == int(np.argmax(one["logits"]))
        assert one["output_name"] == "abc"[one["output"]]
        assert one["prediction"] == pytest.approx(np.exp(one["logits"]) / np.exp(one["logits"]).sum(), abs=1e-5)
        own = [row for row in rows if row["graph"] == str(one["graph"])]
        total = sum(float(row["share"]) for row in own)
        assert one["bias"] + total == pytest.approx(one["logit"], abs=1e-5)
        assert one["bias"] + np.sum(one["shares"]) == pytest.approx(one["logit"], abs=1e-5)
        np.testing.assert_allclose(np.sum(one["shares"], axis=0), one["shares_of_levels"], atol=1e-5)
        np.testing.assert_allclose(np.sum(one["shares"], axis=1), one["shares_of_nodes"], atol=1e-5)
        assert {row["level"] for row in own} == {"1", "2"}
        assert {row["output"] for row in own} == {str(one["output"])}
        for row in own:
            node, level = int(row["node"]), int(row["level"]) - 1
            assert float(row["share"]) == one["shares"][node][level]
            assert float(row["attention"]) == one["attention"][node][level]


def test_the_shared_attention_of_jumping_knowledge_is_repeated(tmp_path: Path) -> None:
    graphs = random_graphs([4])
    network = small_network("jk-sum", 3, 3).float()
    write_explanations(explain(network, graphs, [0]), graphs, CLASSES, tmp_path, output=2, max_pictures=0)
    with (tmp_path / "explanations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert all(len({row["attention"] for row in rows if row["node"] == str(node)}) == 1 for node in range(4))


def test_attention_only(tmp_path: Path) -> None:
    graphs = random_graphs([4, 0])
    network = small_network("mlap-sum", 2, 3).float()
    network.head = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    written = write_explanations(explain(network, graphs, [0, 1]), graphs, CLASSES, tmp_path)
    assert "not linear" in written.reason
    assert written.pictures == (tmp_path / "graph-0",)
    assert written.not_drawn == (1,)
    content = json.loads((tmp_path / "explanations.json").read_text())
    assert content[0]["shares"] is content[0]["bias"] is None
    assert np.sum(content[0]["attention"], axis=0) == pytest.approx([1, 1])
    assert "attention" in (tmp_path / "graph-0.svg").read_text()
    assert "share" not in (tmp_path / "graph-0.svg").read_text()


def test_pictures_are_limited_in_number_and_in_size(tmp_path: Path) -> None:
    graphs = random_graphs([MAX_NODES + 1, 3, 4, 5], density=0.001)
    network = small_network("naive", 1, 3).float()
    written = write_explanations(explain(network, graphs, range(4)), graphs, CLASSES, tmp_path, max_pictures=2)
    assert [path.name for path in written.pictures] == ["graph-1", "graph-2"]
    assert written.not_drawn == (0,)
    for picture in written.pictures:
        assert all(picture.with_suffix(ending).stat().st_size > 500 for ending in (".svg", ".png"))


def test_a_failure_leaves_no_half_files(tmp_path: Path) -> None:
    graphs = random_graphs([3, 4])
    network = small_network("naive", 1, 3).float()
    with pytest.raises(UsageError, match="there is no output 3; the model has 3"):
        write_explanations(explain(network, graphs, [0, 1]), graphs, CLASSES, tmp_path, output=3)
    assert list(tmp_path.iterdir()) == []


def test_predictions_in_words() -> None:
    graphs = random_graphs([3])
    binary = Plain(Task("binary", 1, "rocauc", ("hERG",), (("inactive", "active"),)))
    numbers = Plain(Task("binary", 1, "rocauc", ("hERG",)))
    value = Plain(Task("regression", 1, "rmse", ("logS",)), np.array([5.0]), np.array([2.0]))
    (one,) = explain(small_network("mlap-sum", 2, 1).float(), graphs, [0])
    assert chosen_output(one, binary.task) == 0
    logit = float(one.logits[0])
    probability = 1 / (1 + np.exp(-logit))
    said, total = prediction_text(one, binary, 0).split("\n")
    assert said == f"hERG: predicted {'active' if logit > 0 else 'inactive'}, P(active) = {probability:.3f}"
    assert total.replace("−", "-").startswith(f"logit of active {logit:+.2f} = bias {one.bias[0]:+.2f} shares of nodes")
    assert prediction_text(one, numbers, 0).startswith(f"hERG: predicted {int(logit > 0)}, P(1) = {probability:.3f}")
    text = prediction_text(one, value, 0).replace("−", "-")
    assert text.startswith(f"logS: predicted {5 + 2 * logit:.4g}\nstandardised logS {logit:+.2f}")
    (many,) = explain(small_network("mlap-sum", 2, 3).float(), graphs, [0])
    likeliest = int(many.logits.argmax())
    assert chosen_output(many, CLASSES.task) == likeliest
    other = (likeliest + 1) % 3
    said = prediction_text(many, CLASSES, other).split("\n")[0]
    assert said.startswith(f"predicted {'abc'[likeliest]}, P({'abc'[likeliest]}) = 0.")
    assert f"; P({'abc'[other]}) = 0." in said


def test_the_terms_add_up() -> None:
    (one,) = explain(small_network("mlap-sum", 2, 3).float(), random_graphs([3]), [0])
    one = dataclasses.replace(
        one,
        graph_share=np.full(3, 0.5),
        others={"rf-morgan": np.array([1.0, 2.0, 3.0])},
        logits=one.logits + 0.5 + np.array([1.0, 2.0, 3.0]),
    )
    found = terms(one, 1)
    assert list(found) == ["bias", "level 1", "level 2", "descriptors", "rf-morgan"]
    assert sum(found.values()) == pytest.approx(one.logits[1], abs=1e-5)


def test_graphs_go_by_the_rows_of_the_input(tmp_path: Path) -> None:
    graphs = random_graphs([3, 4])
    network = small_network("mlap-sum", 1, 3).float()
    written = write_explanations(
        explain(network, graphs, [0, 1]), graphs, CLASSES, tmp_path, rows=[2, 7], max_pictures=1, numbers=True
    )
    assert written.pictures == (tmp_path / "graph-2",)
    content = json.loads((tmp_path / "explanations.json").read_text())
    assert [one["graph"] for one in content] == [2, 7]
    with (tmp_path / "explanations.csv").open(newline="") as file:
        assert {row["graph"] for row in csv.DictReader(file)} == {"2", "7"}
