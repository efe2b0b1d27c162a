"""The network's options in a recipe: they reach the network, and all verbs compute what it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mlap
from mlap.errors import DataError, UsageError
from mlap.graphs import GraphSet, Task, molecules, random_split, synthetic
from mlap.training import Recipe, train
from mlap.training.batches import batch_for
from mlap.training.loop import _parts

TINY = Recipe(layers=2, width=8, epochs=2, batch_size=8, lr=0.01)
OPTIONS: dict[str, Any] = {
    "pooling": "gated-sum",
    "inner_norm": "batch",
    "input_level": True,
    "virtual_node": True,
    "head": "mlp",
    "walk_features": 3,
}


@pytest.fixture(scope="module")
def chains() -> GraphSet:
    """Chains of carbon and oxygen; the label is whether there is oxygen."""
    pytest.importorskip("rdkit", reason="SMILES need RDKit")
    texts = ["C" * (n + 1) + ("O" if n % 2 else "") for n in range(24)]
    return _labelled(molecules(texts).graphs)


def _labelled(graphs: GraphSet) -> GraphSet:
    import dataclasses

    y = np.array([[float("O" in text)] for text in graphs.ids or ()], np.float32)
    return dataclasses.replace(graphs, y=y, task=Task("binary", 1, "rocauc"), splits=random_split(len(graphs)))


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_changes_the_network_and_survives_a_file(option: str, tmp_path: Path) -> None:
    graphs = synthetic(graphs_per_class=3)
    plain = train(TINY, graphs)
    recipe = TINY.replace(**{option: OPTIONS[option]})
    run = mlap.train(graphs, recipe, out=tmp_path / "run")
    names = {name: value.shape for name, value in run.network.state_dict().items()}
    before = {name: value.shape for name, value in plain.network.state_dict().items()}
    logits = run.logits(graphs)
    assert names != before or not np.allclose(logits, mlap.train(graphs, TINY).logits(graphs))
    again = mlap.load(tmp_path / "run")
    assert again.recipe == recipe
    np.testing.assert_array_equal(again.logits(graphs), logits)


def test_descriptors_are_computed_by_every_verb(chains: GraphSet, tmp_path: Path) -> None:
    run = mlap.train(chains, TINY.replace(descriptors=True, walk_features=2), out=tmp_path / "run")
    assert run.network.graph_head.weight.abs().max() > 0
    again = mlap.load(tmp_path / "run")
    texts = ["CCO", "CCCC", "c1ccccc1"]
    values = again.predict(texts).values
    np.testing.assert_array_equal(values, run.predict(texts).values)
    logits = np.log(values) - np.log1p(-values)
    for number, explained in enumerate(again.explain(texts)):
        assert explained.graph_share is not None
        assert explained.shares is not None
        total = explained.bias + explained.shares.sum((0, 1)) + explained.graph_share
        np.testing.assert_allclose(total, logits[number], atol=1e-4)
    assert again.embed(texts).final.shape == (3, 8)
    assert again.evaluate(chains, "all").graphs == len(chains)


def test_the_term_of_descriptors_is_what_they_add(chains: GraphSet) -> None:
    network = train(TINY.replace(descriptors=True), chains).network
    batch = batch_for(network, chains, np.arange(5))
    with torch.no_grad():
        whole = network(batch)
        head, network.graph_head = network.graph_head, None
        torch.testing.assert_close(whole, network(batch) + head(batch.graph_attr))


def test_standardisation_sees_training_molecules_only(chains: GraphSet) -> None:
    from rdkit import Chem
    from rdkit.Chem import Descriptors

    head = train(TINY.replace(descriptors=True, epochs=1), chains).network.graph_head
    weights = [Descriptors.MolWt(Chem.MolFromSmiles(chains.ids[index])) for index in chains.split("train")]
    np.testing.assert_allclose(head.mean[head.names.index("MolWt")], np.mean(weights), rtol=1e-5)


def test_descriptors_need_molecules(chains: GraphSet, tmp_path: Path) -> None:
    graphs = synthetic(graphs_per_class=3)
    with pytest.raises(UsageError) as error:
        train(TINY.replace(descriptors=True), graphs)
    assert (error.value.field, error.value.suggest) == ("descriptors", False)
    run = mlap.train(chains, TINY.replace(descriptors=True, epochs=1))
    without = chains.subset([0, 1])
    object.__setattr__(without, "ids", None)
    with pytest.raises(DataError, match="SMILES"):
        run.predict(without)


def test_a_stopped_run_with_options_equals_one_that_was_not(chains: GraphSet, tmp_path: Path) -> None:
    recipe = TINY.replace(descriptors=True, walk_features=2, inner_norm="batch", norm="batch", epochs=4)
    whole = mlap.train(chains, recipe, out=tmp_path / "whole")
    seen = []

    def stop(epoch: Any) -> None:
        seen.append(epoch)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mlap.train(chains, recipe, out=tmp_path / "part", on_epoch=stop)
    resumed = mlap.train(chains, recipe, out=tmp_path / "part", resume=True)
    np.testing.assert_array_equal(resumed.logits(chains), whole.logits(chains))


def test_a_run_with_descriptors_starts_from_one_without(chains: GraphSet) -> None:
    first = mlap.train(chains, TINY)
    second = mlap.train(chains, TINY.replace(descriptors=True, epochs=1, lr=0.0), init=first)
    np.testing.assert_allclose(second.logits(chains), first.logits(chains), atol=1e-6)


@pytest.mark.parametrize(("number", "sizes"), [(100, [33, 33, 34]), (33, [33]), (3, [3]), (65, [32, 33])])
def test_batches_are_about_as_large_where_their_statistics_count(number: int, sizes: list[int]) -> None:
    order = np.random.RandomState(0).permutation(number)
    for recipe in (Recipe(norm="batch"), Recipe(inner_norm="batch"), Recipe(virtual_node=True)):
        parts = _parts(order, recipe.replace(batch_size=32))
        assert sorted(map(len, parts)) == sizes
        np.testing.assert_array_equal(np.concatenate(parts), order)
    plain = _parts(order, Recipe(batch_size=32))
    assert [len(part) for part in plain[:-1]] == [32] * (len(plain) - 1)
    np.testing.assert_array_equal(np.concatenate(plain), order)


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_pooling_that_counts_starts_with_answers_of_the_usual_size(head: str) -> None:
    graphs = synthetic(graphs_per_class=3)
    recipe = TINY.replace(head=head, lr=0.0, epochs=1, dropout=0.0)
    sizes = {
        pooling: np.abs(mlap.train(graphs, recipe.replace(pooling=pooling)).logits(graphs)).mean()
        for pooling in ("attention", "attention-n", "sum")
    }
    assert sizes["attention-n"] < 3 * sizes["attention"]
    assert sizes["sum"] < 3 * sizes["attention"]


def test_batch_normalisation_cannot_be_compiled() -> None:
    for option in ({"inner_norm": "batch"}, {"virtual_node": True}):
        with pytest.raises(UsageError) as error:
            train(TINY.replace(**option), synthetic(graphs_per_class=3), compile=True)
        assert error.value.field == "compile"
