"""The page in a real browser: asking, looking inside, comparing, the map, the table, keyboard, screens."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex
from serving import Served, serving

from mlap import plotting
from mlap.graphs import GraphSet
from mlap.models import Model

SMILES = "c1ccccc1CCO"
PNG = b"\x89PNG"
#: what sticks out to the right, unless it lies in something that scrolls
OUTSIDE = (
    "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1"
    " && !e.closest('.scroll, .tabs, pre, svg')).map((e) => e.outerHTML.slice(0, 80))"
)
#: the contrast of an element's text with what lies behind it
CONTRAST = """((selector) => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const element = document.querySelector(selector);
  let behind = element;
  while (behind && (parse(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
  const a = light(parse(getComputedStyle(element).color));
  const b = light(parse(getComputedStyle(behind).backgroundColor));
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
})"""


@pytest.fixture
def page(browser: Browser, served: Served) -> Browser:
    start(browser, served)
    return browser


def start(browser: Browser, served: Served, **screen: Any) -> None:
    browser.open(served.address, **screen)
    browser.wait("document.querySelector('#footer').textContent.includes('compared')")


def refusal(page: Browser, text: str) -> str:
    """What is said beside the field when something wrong is asked in an empty one."""
    page.point("textarea")
    page.write(text)
    page.point("button.primary")
    page.wait("document.querySelector('#ask-error').textContent")
    return str(page.evaluate("document.querySelector('#ask-error').textContent"))


def ask(page: Browser, text: str) -> None:
    page.evaluate("document.querySelector('textarea').select()")
    page.point("textarea")
    page.evaluate("document.querySelector('textarea').select()")
    page.write(text)
    page.point("button.primary")
    page.wait("document.querySelector('.stage svg')")


def set_value(page: Browser, selector: str, value: str) -> None:
    """Choose in a list, or move a slider."""
    page.evaluate(
        f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
        "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true})) })()"
    )


def shown(page: Browser, panel: int = 0) -> list[tuple[str, float]]:
    """The colour and the share of each node of a drawing."""
    found = page.evaluate(
        f"[...document.querySelectorAll('.panel')[{panel}].querySelectorAll('.node')]"
        ".map((e) => [e.getAttribute('fill'), Number(e.dataset.share)])"
    )
    return [tuple(pair) for pair in found]


def downloaded(page: Browser, button: str, path: Path) -> bytes:
    """The file that a button gives, under the name that it has."""
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(path.parent))
    page.point(button)
    for _ in range(200):
        if path.exists() and (content := path.read_bytes()):
            return content
        page.evaluate("new Promise((wake) => setTimeout(wake, 20))")
    raise AssertionError(f"{path.name} did not come; there are {[other.name for other in path.parent.iterdir()]}")


@pytest.fixture(scope="module")
def explained(molecules: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the command says about two molecules, each asked alone: sums of a batch are rounded in another order."""
    out = str(tmp_path_factory.mktemp("explained"))
    found = {}
    for smiles in (SMILES, "CCN"):
        call = [sys.executable, "-m", "mlap", "explain", str(molecules.path), smiles, "--json", "--out", out]
        done = subprocess.run([*call, "--max", "0"], capture_output=True, text=True, check=True)
        (found[smiles],) = json.loads(done.stdout)["explanations"]
    return found


# ---- asking ----------------------------------------------------------------------------------------------------------


def test_the_page_asks_nobody_else_and_does_not_complain(page: Browser, served: Served) -> None:
    ask(page, SMILES)
    page.wait("[...document.images].every((image) => image.complete && image.naturalWidth)")
    assert page.complaints() == []
    assert all(address.startswith((served.address, "blob:")) for address in page.requests())


def test_a_question_is_answered_in_words(page: Browser, served: Served) -> None:
    ask(page, SMILES)
    value = served.explorer.predict([SMILES])[0]
    assert page.evaluate("document.querySelector('.sentence').textContent") == value.sentence
    assert page.evaluate("document.querySelectorAll('.near img').length") == 5
    assert "%" in page.evaluate("document.querySelector('.output small').textContent")


def test_wrong_smiles_are_told_beside_the_field(page: Browser) -> None:
    assert "C(C" in refusal(page, "C(C")
    assert page.evaluate("document.querySelector('textarea').getAttribute('aria-invalid')") == "true"
    assert "ask-error" in page.evaluate("document.querySelector('textarea').getAttribute('aria-describedby')")
    ask(page, f"C(C\n{SMILES}")  # the other line is answered
    assert "Line 1" in page.evaluate("document.querySelector('#ask-error').textContent")


def test_a_graph_is_asked_by_its_name(page: Browser) -> None:
    assert "names" in page.evaluate("document.querySelector('#ask-hint').textContent")
    ask(page, "ethanol")
    said = page.evaluate("document.querySelector('.answer').textContent")
    assert "#1, Ethanol" in said
    assert "CCO" in said
    assert "True label: alcohol" in said
    page.wait("document.querySelector('figcaption').textContent.includes('Ethanol')")
    page.evaluate("document.querySelector('textarea').select()")
    page.write("twin")
    page.point("button.primary")
    page.wait("document.querySelector('#ask-error').textContent.includes('#3')")
    assert page.complaints() == []


def test_what_users_write_stays_text(page: Browser) -> None:
    assert "<img" in refusal(page, "<img src=x onerror=window.broken=1>")
    assert page.evaluate("[window.broken === undefined, document.querySelector('img[src=x]') === null]") == [True, True]


# ---- looking inside --------------------------------------------------------------------------------------------------


def test_colours_are_the_shares_of_the_command(page: Browser, explained: dict[str, Any]) -> None:
    expected = explained[SMILES]
    shares = np.array(expected["shares"])
    largest = max(np.abs(shares).max(), np.abs(shares.sum(axis=1)).max())
    scale = ScalarMappable(Normalize(-largest, largest), plotting.DIVERGING)
    ask(page, SMILES)
    asked = len(page.requests())
    for level in range(4):
        set_value(page, ".slider input", str(level))
        values = shares[:, level] if level < 3 else shares.sum(axis=1)
        found = shown(page)
        assert [share for _, share in found] == pytest.approx(values.tolist(), abs=1e-7)  # to the digits of a float32
        assert [colour for colour, _ in found] == [to_hex(scale.to_rgba(value)) for value in values]
    assert len(page.requests()) == asked  # the slider asks nobody


def test_the_waterfall_ends_at_the_logit(page: Browser, explained: dict[str, Any]) -> None:
    expected = explained[SMILES]
    ask(page, SMILES)
    numbers = page.evaluate("[...document.querySelectorAll('.waterfall .number')].map((e) => e.textContent)")
    found = [float(text.replace("−", "-")) for text in numbers]
    terms = [expected["bias"], *expected["shares_of_levels"]]
    assert found[: len(terms)] == pytest.approx(terms, abs=6e-4)
    assert found[-1] == pytest.approx(expected["logit"], abs=6e-4)
    assert sum(found[:-1]) == pytest.approx(found[-1], abs=5e-4 * len(found))  # features of the molecule included
    page.point(".waterfall button.step")  # a level of the sum moves the slider
    assert page.evaluate("document.querySelector('.slider input').value") == "0"


def test_an_atom_tells_its_levels(page: Browser, explained: dict[str, Any]) -> None:
    expected = explained[SMILES]
    ask(page, SMILES)
    for click in (False, True):
        node = 8 if click else 2
        page.point(f".target[data-node='{node}']", click=click)
        page.wait(f"document.querySelector('.bars strong')?.textContent === '{'O' if node == 8 else 'C'}{node}'")
        numbers = page.evaluate("[...document.querySelectorAll('.slot .number')].map((e) => e.textContent)")
        assert [float(text.replace("−", "-")) for text in numbers] == pytest.approx(expected["shares"][node], abs=6e-3)


def test_an_atom_is_tapped_on_a_phone(browser: Browser, served: Served) -> None:
    start(browser, served, width=390, height=844)
    ask(browser, SMILES)
    x, y = browser.evaluate(
        "(() => { const e = document.querySelector('.target[data-node=\"8\"]'); e.scrollIntoView({block: 'center'});"
        "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()"
    )
    browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    browser.wait("document.querySelector('.bars strong').textContent === 'O8'")


def test_two_molecules_share_one_scale(page: Browser, explained: dict[str, Any]) -> None:
    ask(page, f"{SMILES}\nCCN")
    set_value(page, ".controls .field:last-child select", "CCN")
    page.wait("document.querySelectorAll('.panel svg').length === 2")
    both = [np.array(explained[smiles]["shares"]) for smiles in (SMILES, "CCN")]
    largest = max(max(np.abs(shares).max(), np.abs(shares.sum(axis=1)).max()) for shares in both)
    scale = ScalarMappable(Normalize(-largest, largest), plotting.DIVERGING)
    set_value(page, ".slider input", "1")
    for panel, shares in enumerate(both):
        assert [colour for colour, _ in shown(page, panel)] == [to_hex(scale.to_rgba(value)) for value in shares[:, 1]]


def test_classes_and_their_difference(browser: Browser, synthetic: tuple[Model, GraphSet]) -> None:
    model, graphs = synthetic
    (expected,) = model.explain(graphs.subset([3]))
    assert expected.shares is not None
    with serving(model, graphs) as served:
        start(browser, served)
        ask(browser, "#3")
        set_value(browser, ".controls .field:nth-of-type(2) select", "5")
        browser.wait("document.querySelector('.legend').textContent.includes('class 5')")
        set_value(browser, ".slider input", "0")
        assert [share for _, share in shown(browser)] == expected.shares[:, 0, 5].astype(float).tolist()
        set_value(browser, ".controls .field:nth-of-type(3) select", "7")
        browser.wait("document.querySelector('.legend').textContent.includes('class 7')")
        set_value(browser, ".slider input", "0")
        difference = expected.shares[:, 0, 5].astype(float) - expected.shares[:, 0, 7].astype(float)
        assert [share for _, share in shown(browser)] == difference.tolist()
        assert browser.complaints() == []


def test_an_ensemble_shows_the_terms_of_its_members(browser: Browser, ensemble: Model) -> None:
    (expected,) = ensemble.explain([SMILES])
    with serving(ensemble, ensemble.data(), confidence=0.9) as served:
        start(browser, served)
        assert "mlap-weighted, rf-morgan" in browser.evaluate("document.querySelector('#about').textContent")
        ask(browser, SMILES)
        rows = browser.evaluate(
            "[...document.querySelectorAll('.step')].map((e) => [...e.querySelectorAll('.name, .number')]"
            ".map((cell) => cell.textContent))"
        )
        found = {name: float(number.replace("−", "-")) for name, number in rows}
        assert found["rf-morgan"] == pytest.approx(float(expected.others["rf-morgan"][0]), abs=6e-4)
        assert found["logit"] == pytest.approx(float(expected.logits[0]), abs=6e-4)
        assert sum(found.values()) == pytest.approx(2 * found["logit"], abs=5e-4 * len(found))
        probability = ensemble.predict([SMILES]).values[0, 0]
        assert f"{100 * probability:.0f} %" in browser.evaluate("document.querySelector('.means').textContent")
        assert "over members" in browser.evaluate("document.querySelector('.output small').textContent")
        assert "90 %" in browser.evaluate("document.querySelector('.sentence').textContent")
        assert browser.complaints() == []


def test_a_forest_is_asked_but_not_looked_into(browser: Browser, forest: Model) -> None:
    with serving(forest, forest.data()) as served:
        start(browser, served)
        browser.point("textarea")
        browser.write(SMILES)
        browser.point("button.primary")
        browser.wait("document.querySelector('.sentence')")
        assert browser.evaluate("document.querySelector('.inside')") is None
        browser.point("#tab-map")
        browser.wait("document.querySelector('#map').textContent.includes('no map')")
        assert browser.complaints() == []


def test_pictures_and_numbers_are_downloaded(page: Browser, tmp_path: Path) -> None:
    ask(page, SMILES)
    names = ("explained.svg", "explained.png", "explained.json")
    files = [
        downloaded(page, f".downloads button:nth-of-type({at})", tmp_path / name) for at, name in enumerate(names, 1)
    ]
    assert all(colour in files[0].decode() for colour, _ in shown(page))
    assert files[1].startswith(PNG)
    assert json.loads(files[2])["name"] == SMILES


# ---- map and table ---------------------------------------------------------------------------------------------------


def test_points_of_the_map_are_picked_and_looked_into(page: Browser) -> None:
    page.point("#tab-map")
    page.wait("document.querySelector('.key span')")
    page.evaluate("document.querySelector('canvas').focus()")
    page.press("ArrowRight", 39)
    page.wait("document.querySelector('.picked img')")
    first = page.evaluate("document.querySelector('.picked strong').textContent")
    page.press("ArrowRight", 39)
    page.wait(f"document.querySelector('.picked strong').textContent !== '{first}'")
    left, top, right, bottom = page.evaluate(
        "(() => { const e = document.querySelector('canvas'); e.scrollIntoView({block: 'center'});"
        "const b = e.getBoundingClientRect(); return [b.left + 2, b.top + 2, b.right - 2, b.bottom - 2] })()"
    )
    corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    kinds = ("mousePressed", "mouseMoved", "mouseMoved", "mouseMoved", "mouseReleased")
    for kind, (x, y) in zip(kinds, corners, strict=True):
        page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
    page.wait("document.querySelector('.picked').textContent.includes('48 graphs')")
    page.point(".picked button.primary")
    page.wait("document.querySelectorAll('.item').length === 48")
    assert page.complaints() == []


def test_a_table_is_uploaded_sorted_and_looked_into(page: Browser, table: Path) -> None:
    page.point("#tab-table")
    page.choose_file("input[type=file]", table)
    page.wait("document.querySelectorAll('tbody tr').length === 4")
    page.point("th[data-name=smiles] button")
    page.wait("document.querySelector('tbody code').textContent === 'C(C'")
    assert "bad" in page.evaluate("document.querySelector('tbody tr').textContent")  # its id in the file
    assert page.evaluate("document.querySelector('th[data-name=smiles]').ariaSort") == "ascending"
    set_value(page, ".controls .field:nth-child(2) select", "valid")
    page.wait("document.querySelectorAll('tbody tr').length === 3")
    page.wait("document.querySelector('.thumbnail').naturalWidth")
    page.point("tbody button")
    page.wait("document.querySelector('.stage svg')")
    assert page.complaints() == []


def test_each_row_of_a_table_gives_its_picture(page: Browser, served: Served, table: Path, tmp_path: Path) -> None:
    page.point("#tab-table")
    page.choose_file("input[type=file]", table)
    page.wait("document.querySelectorAll('tbody tr').length === 4")
    buttons = page.evaluate(
        "[...document.querySelectorAll('tbody tr')].map((e) => e.querySelectorAll('.downloads button').length)"
    )
    assert buttons == [2, 2, 0, 2]  # a row that is no molecule has no picture
    fourth = "tbody tr:nth-child(4) .downloads button"
    drawn = downloaded(page, f"{fourth}:nth-of-type(1)", tmp_path / "row-3.svg").decode()
    outlines = [re.findall(r' d="([^"]*)"', text) for text in (drawn, served.explorer.picture("CCCCO"))]
    assert outlines[0]
    assert outlines[0] == outlines[1]
    assert downloaded(page, f"{fourth}:nth-of-type(2)", tmp_path / "row-3.png").startswith(PNG)
    assert page.complaints() == []


def test_an_upload_that_is_too_large_is_told(page: Browser, tmp_path: Path) -> None:
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(64_000_001)
    page.point("#tab-table")
    page.choose_file("input[type=file]", large)
    page.wait("document.querySelector('#table .error').textContent.includes('64 MB')")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n")
    page.choose_file("input[type=file]", wrong)
    page.wait("document.querySelector('#table .error').textContent.includes('column')")


# ---- keyboard and screens --------------------------------------------------------------------------------------------


def test_everything_works_by_keyboard(page: Browser) -> None:
    page.evaluate("document.querySelector('textarea').focus()")
    page.write(SMILES)
    page.press("Enter", 13)
    page.wait("document.querySelector('.stage svg')")

    def tab_to(test: str) -> None:
        for _ in range(40):
            page.press("Tab", 9)
            if page.evaluate(f"document.activeElement.matches({json.dumps(test)})"):
                return
        raise AssertionError(f"Tab does not lead to {test}")

    tab_to(".slider input")
    page.press("ArrowLeft", 37)
    page.wait("document.querySelector('.level').textContent === 'level 3'")
    tab_to(".stage")
    before = page.evaluate("document.querySelector('.bars strong').textContent")
    page.press("ArrowRight", 39)
    page.wait(f"document.querySelector('.bars strong').textContent !== '{before}'")
    tab_to(".waterfall button")
    page.evaluate("document.querySelector('#tab-look').focus()")
    page.press("ArrowRight", 39)
    page.wait("!document.querySelector('#map').hidden")


def test_controls_have_names(page: Browser) -> None:
    ask(page, f"{SMILES}\nCCN")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "slider", "combobox", "tab", "image", "group"}
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node.get("ignored") and node.get("role", {}).get("value") in roles
    ]
    assert {role for role, _ in named} >= {"button", "textbox", "slider", "combobox", "tab"}
    assert [role for role, name in named if not name.strip()] == []


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_are_legible(browser: Browser, served: Served, dark: bool) -> None:
    start(browser, served, dark=dark)
    ask(browser, SMILES)
    red = browser.evaluate("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
    assert red < 64 if dark else red > 192
    for selector in ("body", ".soft", ".kicker", "button.primary", ".step .number", ".output small", ".legend", "a"):
        assert browser.evaluate(f"{CONTRAST}('{selector}')") >= 4.5, selector


@pytest.mark.parametrize("view", ["look", "map", "table", "help"])
def test_nothing_sticks_out_on_a_phone(browser: Browser, served: Served, table: Path, view: str) -> None:
    start(browser, served, width=360, height=740)
    if view == "look":
        ask(browser, f"{SMILES}\nCCN\nCC(C)(C)CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCO")
    else:
        browser.point(f"#tab-{view}")
    if view == "table":
        browser.choose_file("input[type=file]", table)
        browser.wait("document.querySelector('tbody tr')")
    assert browser.evaluate("document.documentElement.scrollWidth") == 360
    assert browser.evaluate(OUTSIDE) == []


def test_the_examples_of_the_page_run(page: Browser, molecules: Model, table: Path) -> None:
    page.point("#tab-help")
    examples = page.evaluate("[...document.querySelectorAll('#help pre')].map((e) => e.textContent)")
    table.rename(table.with_name("molecules.csv"))
    said = []
    for text in examples:
        call = [sys.executable, "-c", text] if text.startswith("import ") else ["bash", "-euc", text]
        found = subprocess.run(call, capture_output=True, text=True, timeout=60, check=True, cwd=table.parent)
        said.append(found.stdout)
    predicted, explained, printed, uploaded = said
    sentences = [answer["sentence"] for answer in json.loads(predicted)["answers"]]
    assert all(sentences)
    assert json.loads(explained)["explanations"][0]["explained"]
    assert [line.split(" ", 1)[1] for line in printed.splitlines()] == sentences
    state = json.loads(uploaded)
    assert (state["done"], state["invalid"]) == (4, 1)
    expected = molecules.predict(str(table.with_name("molecules.csv"))).to_csv()
    assert table.with_name("predictions.csv").read_text() == expected
    with pytest.raises(RuntimeError):  # the last line of the example deletes it
        page.evaluate(f"fetch('/api/tables/{state['id']}').then((r) => {{ if (!r.ok) throw Error(r.status) }})")


def test_examples_are_those_that_a_model_can_answer(browser: Browser, forest: Model) -> None:
    with serving(forest, forest.data()) as served:
        start(browser, served)
        browser.point("#tab-help")
        assert "/api/explain" not in browser.evaluate("document.querySelector('#help').textContent")


def test_no_file_of_the_page_names_another_machine() -> None:
    import mlap.serve

    for path in (Path(mlap.serve.__file__).parent / "static").iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "//cdn" not in text
