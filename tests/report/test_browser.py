"""The report page in a real browser: what it asks for, shows, sorts, and how it fits on screens and paper."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, running
from report_pages import HOSTILE, Made, study_by_hand

from mlap.report.page import write_report

SCREENS = {
    "desktop": {"width": 1200, "height": 900},
    "phone": {"width": 360, "height": 740},
    "dark": {"width": 1200, "height": 900, "dark": True},
}

#: what sticks out of a phone's window to the right, apart from what scrolls inside its own box
OUTSIDE = """
    [...document.querySelectorAll("body *")].filter((element) =>
      element.getBoundingClientRect().right > 360.5 && !element.parentElement.closest(".scroll, .card")
    ).map((element) => element.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope="session")  # as wide as that of the report, which is then not made if there is no browser
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with running(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(report: Made) -> Path:
    return report.written.page


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a study whose scores, sorted as text, would come in a wrong order."""
    folder = tmp_path_factory.mktemp("by-hand")
    study_by_hand(folder / "study.db")

    def no_data(run: object) -> None:
        raise AssertionError("there is nothing to look into")

    return write_report(folder / "study.db", folder / "report", load_data=no_data).page


@pytest.mark.parametrize("screen", SCREENS)
def test_the_page_works_alone_and_without_complaint(browser: Browser, page: Path, screen: str) -> None:
    browser.open(page, **SCREENS[screen])
    assert browser.complaints() == []
    asked = browser.requests()
    assert page.resolve().as_uri() in asked
    assert [address for address in asked if not address.startswith("data:")] == [page.resolve().as_uri()]
    widths = browser.evaluate("[...document.images].map((image) => image.complete && image.naturalWidth)")
    assert len(widths) == len([address for address in asked if address.startswith("data:image/svg")])
    assert min(widths) > 0


def test_these_tests_see_complaints_and_requests(browser: Browser, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text("<!doctype html><img src='missing.png'><script>console.error('no'); nothing()</script>")
    browser.open(broken)
    assert len(browser.complaints()) >= 3  # the image, the console, the exception
    assert any(address.endswith("missing.png") for address in browser.requests())
    assert browser.evaluate("document.images[0].naturalWidth") == 0


def test_nothing_sticks_out_on_a_phone(browser: Browser, page: Path, by_hand: Path) -> None:
    for path in (page, by_hand):
        browser.open(path, **SCREENS["phone"])
        assert browser.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [360, 360]
        assert browser.evaluate(OUTSIDE) == []
    browser.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=\"width: 500px\">wide</p>')")
    assert len(browser.evaluate(OUTSIDE)) == 1


def test_wide_tables_and_figures_can_be_scrolled_on_a_phone(browser: Browser, page: Path) -> None:
    browser.open(page, **SCREENS["phone"])
    for box in (".scroll", ".wide .card"):
        assert browser.evaluate(f"document.querySelector('{box}').scrollWidth > 360")
        assert browser.evaluate(
            f"(() => {{ const box = document.querySelector('{box}'); box.scrollLeft = 50; return box.scrollLeft }})()"
        ) == pytest.approx(50, abs=1)


CONTRAST = """
    ((selector) => {
      const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
      const light = (colour) => numbers(colour).slice(0, 3)
        .map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, index) => sum + c * [0.2126, 0.7152, 0.0722][index], 0);
      const ground = (element) => {
        const colour = getComputedStyle(element).backgroundColor;
        return numbers(colour)[3] === 0 ? ground(element.parentElement) : colour;
      };
      const element = document.querySelector(selector);
      const [a, b] = [getComputedStyle(element).color, ground(element)].map(light).sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05);
    })
"""


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_are_both_legible(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, dark=dark)
    red = browser.evaluate("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
    assert (red < 60) == dark
    for selector in ("#run dd", "dt", ".banner li", "figcaption", "nav a", "td", "th", ".note", "pre", ".comment"):
        # The least that the accessibility guidelines (WCAG 2, level AA) ask for.
        assert browser.evaluate(f"{CONTRAST}('{selector}')") >= 4.5, selector
    assert browser.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor") == "rgb(255, 255, 255)"


def column(browser: Browser, table: str, head: str) -> list[str]:
    return list(
        browser.evaluate(f"""
            (() => {{
              const table = document.getElementById("table-{table}");
              const index = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "{head}");
              return [...table.tBodies[0].rows].map((row) => row.cells[index].textContent);
            }})()
        """)
    )


def click(browser: Browser, table: str, head: str) -> list[str | None]:
    """Click on a column's head; the sort states of all columns afterwards."""
    return list(
        browser.evaluate(f"""
            (() => {{
              const heads = [...document.getElementById("table-{table}").tHead.rows[0].cells];
              heads.find((cell) => cell.textContent === "{head}").querySelector("button").click();
              return heads.map((cell) => cell.getAttribute("aria-sort")).filter((state) => state);
            }})()
        """)
    )


def rows_of(page: Path, table: str) -> list[dict[str, str]]:
    with (page.parent / "tables" / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("table", "head", "field", "digits"),
    [
        ("full", "Validation", "valid_mean", 4),  # with ±
        ("results", "Test", "test_mean", 4),
        ("runs", "Test", "test_score", 4),  # two are missing
        ("runs", "Parameters", "num_parameters", 0),  # 999, 1,000 and 12,345
        ("runs", "L", "layers", 0),
    ],
)
def test_numbers_sort_both_ways_and_missing_ones_stay_last(
    browser: Browser, by_hand: Path, table: str, head: str, field: str, digits: int
) -> None:
    browser.open(by_hand)
    cells = [row[field] for row in rows_of(by_hand, table)]
    numbers = sorted(float(cell) for cell in cells if cell)
    as_text = [str(number) for number in numbers]
    assert head == "L" or sorted(as_text) != as_text, "these would come right without a thought"
    for state, expected in (("ascending", numbers), ("descending", numbers[::-1]), ("ascending", numbers)):
        assert click(browser, table, head) == [state]
        shown = column(browser, table, head)
        known = [f"{number:,.{digits}f}" for number in expected]
        assert [cell.split(" ± ")[0] for cell in shown] == known + ["–"] * cells.count("")


def test_text_sorts_too_and_only_one_column_is_sorted_at_a_time(browser: Browser, by_hand: Path) -> None:
    browser.open(by_hand)
    assert click(browser, "full", "L") == ["ascending"]
    assert click(browser, "full", "Architecture") == ["ascending"]
    assert column(browser, "full", "Architecture") == sorted(row["architecture"] for row in rows_of(by_hand, "full"))
    # Rows that are equal keep the order of the sort before.
    assert column(browser, "full", "L") == ["1", "2"] * 3


def test_sorting_by_keyboard(browser: Browser, by_hand: Path) -> None:
    browser.open(by_hand)
    head = "document.querySelector('#table-runs th:nth-child(2)')"
    browser.evaluate(f"{head}.querySelector('button').focus()")
    browser.press("Enter", 13)
    assert browser.evaluate(f"{head}.getAttribute('aria-sort')") == "ascending"
    browser.press("Enter", 13)
    assert browser.evaluate(f"{head}.getAttribute('aria-sort')") == "descending"


def test_names_and_errors_are_text_and_nothing_else(browser: Browser, by_hand: Path) -> None:
    browser.open(by_hand)
    assert browser.complaints() == []
    assert browser.evaluate("document.title").startswith("mine <script>")
    assert HOSTILE in column(browser, "runs", "Error")
    assert browser.evaluate("document.querySelector('h1').firstChild.textContent").strip() == f"mine {HOSTILE}"


def test_links_lead_somewhere(browser: Browser, page: Path) -> None:
    browser.open(page)
    links = browser.evaluate(
        "[...document.links].map((link) => [link.getAttribute('href'), link.hasAttribute('download')])"
    )
    inner = [target for target, download in links if not download]
    assert inner
    assert all(browser.evaluate(f"document.querySelector('{target}') !== null") for target in inner)
    files = {target for target, download in links if download}
    assert all((page.parent / target).stat().st_size > 0 for target in files)
    # Everything that was written is linked.
    assert files == {
        path.relative_to(page.parent).as_posix() for path in page.parent.rglob("*") if path.is_file() and path != page
    }


def test_it_prints_on_a4(browser: Browser, page: Path, tmp_path: Path) -> None:
    browser.open(page, width=688)  # A4 less its margins of 14 mm, in pixels of 1/96 inch
    browser.call("Emulation.setEmulatedMedia", media="print", features=[])
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    cut = "[...document.querySelectorAll('.scroll, .card, pre')].filter((box) => box.scrollWidth > box.clientWidth + 1)"
    assert browser.evaluate(f"{cut}.map((box) => box.outerHTML.slice(0, 80))") == []
    browser.pdf(tmp_path / "page.pdf")
    content = (tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page\n") >= 3
