"""The API on a real server: answers, refusals, uploads."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from markdown_blocks import Block, blocks
from serving import Served, serving

from mlap.graphs import GraphSet, load_graphs
from mlap.models import Model
from mlap.serve.guard import POLICY
from mlap.serve.limits import ATOMS, CHARACTERS, INPUTS, Limits
from mlap.serve.names import Names
from mlap.serve.reference import Reference


@pytest.fixture
def client(served: Served) -> httpx.Client:
    return served.client


def ask(client: httpx.Client, *inputs: str, **more: Any) -> list[dict[str, Any]]:
    response = client.post("/api/predict", json={"inputs": list(inputs), **more})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["answers"]
    return found


def finished(client: httpx.Client, id: str) -> dict[str, Any]:
    for _ in range(500):
        state: dict[str, Any] = client.get(f"/api/tables/{id}").json()
        if state["finished"]:
            return state
        time.sleep(0.02)
    raise AssertionError(f"not finished: {state}")


def upload(client: httpx.Client, content: bytes, name: str = "upload.csv") -> httpx.Response:
    return client.post("/api/tables", params={"name": name}, content=content, headers={"Content-Type": "text/csv"})


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_predictions_are_the_models_own(client: httpx.Client, molecules: Model) -> None:
    asked = ["CCO", "CCN", "c1ccccc1"]
    answers = ask(client, *asked)
    expected = molecules.predict(asked).values
    assert np.array([[output["value"] for output in answer["outputs"]] for answer in answers]) == pytest.approx(
        expected
    )
    assert [answer["outputs"][0]["name"] for answer in answers] == ["alcohol"] * 3
    for answer, (value,) in zip(answers, expected, strict=True):
        assert answer["prediction"] == ["alcohol" if value > 0.5 else "not alcohol"]


def test_rows_that_are_no_molecules_keep_their_places(client: httpx.Client) -> None:
    answers = ask(client, "C(C", "CCO", "", "C" * (CHARACTERS + 1), "C" * (ATOMS + 1), "#99999", "#x", " CCO ")
    assert [answer["error"] is None for answer in answers] == [False, True, False, False, False, False, False, True]
    assert f"{CHARACTERS:,}" in answers[3]["error"]
    assert f"{ATOMS + 1:,}" in answers[4]["error"]
    assert "#47" in answers[5]["error"]
    assert answers[1]["outputs"] == answers[7]["outputs"]


def test_a_graph_of_the_data_set_is_asked_by_its_number(client: httpx.Client, molecules: Model) -> None:
    (answer,) = ask(client, "#3")
    graphs = molecules.data()
    assert graphs.ids is not None
    assert answer["name"] == graphs.ids[3] == "CCCCO"
    assert answer["number"] == 3
    assert answer["labels"] == ["alcohol"]
    assert 3 not in [near["number"] for near in answer["nearest"]]


@pytest.mark.parametrize(("asked", "number"), [("Ethanol", 1), ("ethanol", 1), (" compound 7 ", 7), ("CCCCO", 3)])
def test_a_graph_of_the_data_set_is_asked_by_its_name(
    client: httpx.Client, molecules: Model, asked: str, number: int
) -> None:
    (answer,), (same,) = ask(client, asked), ask(client, f"#{number}")
    assert answer["input"] == asked.strip()
    assert {**answer, "input": ""} == {**same, "input": ""}
    assert answer["number"] == number
    (inside,) = client.post("/api/explain", json={"inputs": [asked]}).json()["explanations"]
    ids = molecules.data().ids
    assert ids is not None
    assert inside["name"] == ids[number]
    pictures = [client.get("/api/picture", params={"input": text}).text for text in (asked, f"#{number}")]
    assert pictures[0] == pictures[1]


def test_names_are_told(client: httpx.Client) -> None:
    (answer,) = ask(client, "#0", nearest=20)
    assert answer["called"] == "Methanol"
    assert {near["number"]: near["called"] for near in answer["nearest"]}.items() >= {7: "compound 7"}.items()
    assert client.get("/api/model").json()["reference"]["named"]


def test_the_part_of_a_graph_is_told(client: httpx.Client, molecules: Model) -> None:
    splits = molecules.data().splits
    numbers = [int(splits[name][0]) for name in ("train", "valid", "test")]
    assert [answer["part"] for answer in ask(client, *(f"#{number}" for number in numbers))] == [
        "train",
        "valid",
        "test",
    ]
    assert ask(client, "OCC")[0]["part"] is None


def test_names_that_name_nothing_or_several(client: httpx.Client) -> None:
    several, nothing, smiles = ask(client, "twin", "aspirin", "CCN")
    assert "#2" in several["error"]
    assert "#3" in several["error"]
    assert "alcohols" in nothing["error"]
    assert smiles["number"] == 25  # and not 4, which is called so: SMILES are SMILES


def test_names_of_a_table_that_has_changed_are_not_believed(molecules: Model, tmp_path: Path) -> None:
    path = tmp_path / "alcohols.csv"
    path.write_text("smiles,Mol ID,alcohol\nCCO,first,1\nC(C,bad,0\nCCN,second,0\nCCC,third,0\nCCCO,fourth,1\n")
    graphs = load_graphs(path)
    assert [Names.of(graphs)[number] for number in range(4)] == ["first", "second", "third", "fourth"]
    path.write_text("smiles,Mol ID,alcohol\nCCO,first,1\nCCN,second,0\nCCC,third,0\n")
    assert [Names.of(graphs)[number] for number in range(4)] == ["first", None, None, None]
    path.unlink()
    assert not Names.of(graphs)


def test_graphs_that_are_no_molecules_are_asked_by_their_ids(synthetic: tuple[Model, GraphSet]) -> None:
    model, graphs = synthetic
    named = replace(graphs, ids=[f"graph {number // 2}" if number < 4 else f"g{number}" for number in range(90)])
    with serving(model, named) as served:
        found, several, nothing = ask(served.client, "g17", "graph 1", "CCO")
        assert (found["number"], found["called"], found["name"]) == (17, "g17", "#17")
        assert "#3" in several["error"]
        assert nothing["error"]


def test_neighbours_and_percentiles_are_those_of_the_training_part(client: httpx.Client, molecules: Model) -> None:
    from rdkit import Chem, DataStructs
    from rdkit.Chem import rdFingerprintGenerator

    generator: Any = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    graphs = molecules.data()
    assert graphs.ids is not None
    train = graphs.split("train")
    query = generator.GetFingerprint(Chem.MolFromSmiles("CCCCCO"))
    similar = {
        int(row): DataStructs.TanimotoSimilarity(query, generator.GetFingerprint(Chem.MolFromSmiles(graphs.ids[row])))
        for row in train
    }
    (answer,) = ask(client, "OCCCCC", nearest=7)  # a molecule of the set, but not as the set writes it
    assert [near["similarity"] for near in answer["nearest"]] == pytest.approx(sorted(similar.values())[:-8:-1])
    assert all(near["similarity"] == pytest.approx(similar[near["number"]]) for near in answer["nearest"])
    own = molecules.predict(graphs.subset(train)).values[:, 0]
    value = answer["outputs"][0]["value"]
    assert answer["outputs"][0]["percentile"] == pytest.approx(100 * np.mean(own < value - 1e-9), abs=100 / len(own))


def test_what_is_unlike_the_training_set_is_said(client: httpx.Client) -> None:
    like, unlike = ask(client, "CCCCCO", "O=S(=O)(c1ccc(F)cc1)N1CC[Si](C)(C)CC1")
    assert like["unlike"] is None
    assert f"{unlike['nearest'][0]['similarity']:.2f}" in unlike["unlike"]


@pytest.mark.parametrize("smiles", ["CCO", "c1ccccc1CCCC", "CC(C)O"])
def test_explanations_add_up_and_are_those_of_the_model(client: httpx.Client, molecules: Model, smiles: str) -> None:
    (found,) = client.post("/api/explain", json={"inputs": [smiles]}).json()["explanations"]
    (explained,) = found["explained"]
    (expected,) = molecules.explain([smiles])
    assert expected.shares is not None
    assert explained["shares"] == expected.shares[:, :, 0].astype(float).tolist()  # to the last digit
    total = explained["bias"] + sum(map(sum, explained["shares"])) + (explained["graph_share"] or 0)
    assert total + sum(explained["others"].values()) == pytest.approx(explained["logit"], abs=1e-5)
    for node in range(len(explained["shares"])):
        assert f'class="node" data-node="{node}"' in found["svg"]


def test_an_unknown_output_is_refused(client: httpx.Client) -> None:
    response = client.post("/api/explain", json={"inputs": ["CCO"], "outputs": [1]})
    assert (response.status_code, response.json()["field"]) == (422, "outputs")


def test_the_map_shows_every_graph_once(client: httpx.Client, molecules: Model) -> None:
    for level in range(4):
        found = client.get("/api/map", params={"level": level}).json()
        assert sorted(found["numbers"]) == list(range(48))
        assert np.isfinite(found["points"]).all()
        assert 0 < found["explained"] <= 1
    assert client.get("/api/map", params={"level": 4}).status_code == 422
    values = molecules.predict(molecules.data()).values[:, 0]
    assert found["values"] == pytest.approx(values[found["numbers"]], abs=1e-6)
    labels = molecules.data().y
    assert labels is not None
    assert found["labels"] == labels[found["numbers"], 0].tolist()


def test_large_sets_are_thinned_at_random(molecules: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlap.serve.reference.POINTS", 20)
    with serving(molecules, molecules.data()) as served:
        state = served.client.get("/api/model").json()["reference"]
        assert (state["graphs"], state["mapped"]) == (48, 20)
        numbers = served.client.get("/api/map").json()["numbers"]
        assert len(set(numbers)) == 20
        assert sorted(numbers) != list(range(20))
        assert ask(served.client, "#47")[0]["labels"] == ["not alcohol"]  # also one that is not on the map


def test_maps_and_percentiles_come_before_the_whole_set_is_read(
    molecules: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlap.serve.reference.SAMPLE", 16)
    monkeypatch.setattr("mlap.serve.reference.ENOUGH", 8)
    graphs = molecules.data()
    reference = Reference(molecules, graphs, threading.Lock())
    for start in range(0, 32, 8):
        reference._read(slice(start, start + 8))
        places = reference.places(0, "pca") if reference.num_maps else []
        assert places is not None
        assert len(places) == (start + 8 if start >= 8 else 0)
    known = reference.rows[:32][reference.compared[:32]]
    values = molecules.predict(graphs.subset(known)).values[:, 0]
    (found,) = reference.percentiles([0.5])
    assert found is not None
    assert found == pytest.approx(100 * np.mean(values < 0.5), abs=100 / 8)


def test_tsne_is_computed_on_request(client: httpx.Client) -> None:
    for _ in range(600):
        found = client.get("/api/map", params={"method": "tsne"}).json()
        if not found["computing"]:
            break
        time.sleep(0.1)
    assert len(found["points"]) == 48


def test_pictures_are_svg_without_style(client: httpx.Client) -> None:
    response = client.get("/api/picture", params={"input": "CCO"})
    assert response.headers["content-type"] == "image/svg+xml"
    assert response.text.startswith("<svg ")
    assert "style" not in response.text  # the page's policy would not let it
    assert client.get("/api/picture", params={"input": "C(C"}).status_code == 422


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_is_predicted_row_by_row(client: httpx.Client, molecules: Model, table: Path) -> None:
    response = upload(client, table.read_bytes())
    assert response.status_code == 202
    id = response.json()["id"]
    state = finished(client, id)
    assert (state["lines"], state["done"], state["invalid"], state["problem"]) == (5, 4, 1, None)
    assert state["named"]
    assert state["columns"][0] == "id"
    page = client.get(f"/api/tables/{id}/rows").json()
    assert [row["values"][0] for row in page["rows"]] == ["a", "b", "bad", "d"]
    assert [row["smiles"] for row in page["rows"]] == ["CCO", "CCN", "C(C", "CCCCO"]
    assert [row["error"] is None for row in page["rows"]] == [True, True, False, True]
    assert client.get(f"/api/tables/{id}/predictions.csv").text == molecules.predict(str(table)).to_csv()
    assert client.get(f"/api/tables/{id}/predictions.json").json() == page
    assert client.delete(f"/api/tables/{id}").status_code == 204
    assert client.get(f"/api/tables/{id}").status_code == 404


def test_tables_are_sorted_and_filtered(client: httpx.Client, table: Path) -> None:
    id = upload(client, table.read_bytes()).json()["id"]
    finished(client, id)

    def rows(**query: Any) -> list[str]:
        return [row["smiles"] for row in client.get(f"/api/tables/{id}/rows", params=query).json()["rows"]]

    assert rows(sort="smiles", descending=True) == ["CCO", "CCN", "CCCCO", "C(C"]
    up = rows(sort="alcohol_probability")
    down = rows(sort="alcohol_probability", descending=True)
    assert up[:3] == down[2::-1]
    assert up[3] == down[3] == "C(C"  # what has no prediction comes last
    assert rows(contains="o", show="valid") == ["CCO", "CCCCO"]
    assert rows(show="invalid") == rows(contains="bad") == ["C(C"]
    assert rows(sort="id", descending=True) == ["CCCCO", "C(C", "CCN", "CCO"]
    assert rows(offset=1, limit=2) == ["CCN", "C(C"]
    refused = client.get(f"/api/tables/{id}/rows", params={"sort": "nothing"})
    assert (refused.status_code, refused.json()["field"]) == (422, "sort")


@pytest.mark.parametrize(
    ("content", "name", "status"),
    [(b"", "upload.csv", 422), (b"smiles\nCCO\n", "upload.exe", 415), (b"smiles\nCCO\n", "x", 422)],
)
def test_what_is_no_table_is_refused(client: httpx.Client, content: bytes, name: str, status: int) -> None:
    assert upload(client, content, name).status_code == status


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a,b\n1,2\n", b"smiles\n" + b"C" * (CHARACTERS + 1) + b"\n"])
def test_a_table_that_cannot_be_read_says_why(client: httpx.Client, content: bytes) -> None:
    id = upload(client, content).json()["id"]
    assert finished(client, id)["problem"]
    assert client.get(f"/api/tables/{id}/predictions.csv").status_code == 409


def test_uploads_are_removed(molecules: Model, small_limits: Limits) -> None:
    with serving(molecules, None, limits=Limits(tables=2)) as served:
        client = served.client
        ids = []
        for _ in range(3):
            ids.append(upload(client, b"smiles\nCCO\n").json()["id"])
            finished(client, ids[-1])
        assert [client.get(f"/api/tables/{id}").status_code for id in ids] == [404, 200, 200]
        (folder,) = [path for path in Path(_temporary()).glob(".mlap-serve.*") if len(list(path.iterdir())) == 2]
        assert [path.name for path in folder.glob("*/*")] == ["predictions.csv"] * 2
    assert not folder.exists()


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/model", "/nothing"])
def test_every_answer_carries_the_policy(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example:80"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "[::bad"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_foreign_pages_are_refused(client: httpx.Client, headers: dict[str, str], status: int) -> None:
    for response in (
        client.get("/api/model", headers=headers),
        client.post("/api/predict", json={"inputs": ["CCO"]}, headers=headers),
    ):
        assert response.status_code == status
        assert response.json()["message"]


def test_the_page_itself_is_not_foreign(client: httpx.Client, served: Served) -> None:
    assert client.get("/api/model", headers={"Origin": served.address}).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ("{", 400, "body"),
        ("[]", 422, "body"),
        ("{}", 422, "inputs"),
        ('{"inputs": []}', 422, "inputs"),
        ('{"inputs": "CCO"}', 422, "inputs"),
        ('{"inputs": [1]}', 422, "inputs.0"),
        ('{"inputs": ["CCO"], "unknown": 1}', 422, "unknown"),
        (json.dumps({"inputs": ["C"] * (INPUTS + 1)}), 422, "inputs"),
    ],
)
def test_wrong_questions_name_the_field(client: httpx.Client, body: str, status: int, field: str) -> None:
    response = client.post("/api/predict", content=body, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["field"]) == (status, field)


def test_what_is_too_long_is_refused(molecules: Model, small_limits: Limits) -> None:
    with serving(molecules, None, limits=small_limits) as served:
        client = served.client
        long = json.dumps({"inputs": ["C" * 3000]}).encode()
        assert client.post("/api/predict", content=long).status_code == 413
        parts = iter([long[:1500], long[1500:]])  # of which the length is not said
        assert client.post("/api/predict", content=parts).status_code == 413
        assert upload(client, b"smiles\n" + b"CCO\n" * 2000).status_code == 413
        id = upload(client, b"smiles\n" + b"CCO\n" * 1000).json()["id"]
        state = finished(client, id)
        assert "30" in state["problem"]


def test_a_busy_server_says_when_to_come_again(molecules: Model, small_limits: Limits) -> None:
    with serving(molecules, None, limits=small_limits) as served:
        client = served.client
        with served.explorer.lock:  # the model has enough to do
            response = client.post("/api/predict", json={"inputs": ["CCO"]})  # waits longer than it may
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) > 0
            client.post("/api/predict", json={"inputs": ["CCO"]})
            refused = client.post("/api/predict", json={"inputs": ["CCO"]})  # two wait already
            assert refused.status_code == 503
            assert "2 questions" in refused.json()["message"]
        while served.explorer.lock.locked() or client.post("/api/predict", json={"inputs": ["CCO"]}).status_code != 200:
            time.sleep(0.02)


# ---- other models ----------------------------------------------------------------------------------------------------


def test_graphs_that_are_no_molecules(synthetic: tuple[Model, GraphSet]) -> None:
    model, graphs = synthetic
    with serving(model, graphs) as served:
        client = served.client
        answers = ask(client, "#0", "CCO")
        assert len(answers[0]["outputs"]) == 9
        assert answers[0]["nearest"][0]["similarity"] <= 1 + 1e-6
        assert answers[1]["error"]
        (found,) = client.post("/api/explain", json={"inputs": ["#5"], "outputs": [2, 4]}).json()["explanations"]
        (expected,) = model.explain(graphs.subset([5]))
        assert expected.shares is not None
        for explained, output in zip(found["explained"], (2, 4), strict=True):
            assert explained["shares"] == expected.shares[:, :, output].astype(float).tolist()
        again = client.post("/api/explain", json={"inputs": ["#5"]}).json()["explanations"][0]
        assert again["svg"] == found["svg"]  # the same places every time
        assert upload(client, b"smiles\nCCO\n").status_code == 409


def test_an_ensemble_tells_spread_sets_and_the_terms_of_its_members(ensemble: Model) -> None:
    with serving(ensemble, ensemble.data(), confidence=0.9) as served:
        about = served.client.get("/api/model").json()
        assert (about["members"], about["calibrated"]) == (["mlap-weighted", "rf-morgan"], True)
        (answer,) = ask(served.client, "CCCCO")
        expected = ensemble.predict(["CCCCO"], confidence=0.9)
        assert expected.spread is not None
        assert answer["outputs"][0]["spread"] == pytest.approx(expected.spread[0, 0])
        assert answer["more"] == {name: values[0] for name, values in expected.more.items()}
        assert "90 %" in answer["sentence"]
        (found,) = served.client.post("/api/explain", json={"inputs": ["CCCCO"]}).json()["explanations"]
        (explained,) = found["explained"]
        (inside,) = ensemble.explain(["CCCCO"])
        assert explained["others"] == {"rf-morgan": pytest.approx(float(inside.others["rf-morgan"][0]))}
        total = explained["bias"] + sum(map(sum, explained["shares"])) + (explained["graph_share"] or 0)
        assert total + explained["others"]["rf-morgan"] == pytest.approx(explained["logit"], abs=1e-5)
        logits = ensemble.logits(ensemble.inputs(["CCCCO"]).graphs)
        assert explained["logit"] == pytest.approx(float(logits[0, 0]), abs=1e-5)


def test_a_forest_predicts_and_explains_nothing(forest: Model) -> None:
    with serving(forest, forest.data()) as served:
        about = served.client.get("/api/model").json()
        assert not about["explains"]
        assert about["reference"]["no_maps"]
        (answer,) = ask(served.client, "CCCCO")
        assert answer["nearest"]
        assert answer["outputs"][0]["percentile"] is not None
        refused = served.client.post("/api/explain", json={"inputs": ["CCCCO"]})
        assert refused.status_code == served.client.get("/api/map").status_code == 409


# ---- as documented ---------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
EXAMPLES = [block for block in blocks(PAGE) if "127.0.0.1:8000" in block.code]


def test_there_are_examples_of_both_kinds() -> None:
    assert {block.language for block in EXAMPLES} == {"bash", "python"}


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: block.language)
def test_examples_of_the_page_run(served: Served, block: Block, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("smiles\nCCO\n")
    code = block.code.replace("http://127.0.0.1:8000", served.address)
    call = [sys.executable, "-c", code] if block.language == "python" else ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True)
    assert done.stdout
    assert "message" not in done.stdout  # a refusal


def test_without_data_answers_stand_alone(molecules: Model) -> None:
    with serving(molecules, None, page=False) as served:
        client = served.client
        (answer,) = ask(client, "CCO")
        assert (answer["nearest"], answer["outputs"][0]["percentile"]) == ([], None)
        assert client.get("/api/map").status_code == 409
        assert client.get("/").status_code == 404  # the API alone
        assert "/api/predict" in client.get("/api/openapi.json").json()["paths"]
