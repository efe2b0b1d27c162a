from __future__ import annotations

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlap.report.published import Below
from mlap.report.render import (
    EFFECT,
    NORM,
    SCORE,
    SIZES,
    Column,
    P,
    Table,
    to_csv,
    to_json,
    to_latex,
    to_markdown,
    to_text,
)
from mlap.statistics import Summary

COLUMNS = (
    *(Column("name", "Name"), Column("lr", "lr"), Column("norm", "GN", NORM), Column("valid", "Validation", SCORE)),
    *(Column("p", "p", P), Column("r", "r", EFFECT), Column("seeds", "Seeds", SIZES)),
)
ROWS = (
    ("a_b & 5% of {x} | $y$ #1 ~^\\", 1e-4, "graph", Summary(3, 0.51234, 0.00456), 0.0004, -0.1234, (3, 4)),
    ("[b]", 0.01, "none", Summary(1, 1 / 3, None), Below(0.05), 0.5, (1, 1)),
    ("*", None, "batch", None, None, None, None),
)
TABLE = Table("example", "An example_of 5% ± 1", COLUMNS, ROWS, ("A note.",))


def long(rows: int) -> Table:
    return Table("long", "Long", COLUMNS, rows * ROWS[1:2])


def test_what_people_read() -> None:
    assert TABLE.shown()[0][1:] == ["0.0001", "(+)", "0.5123 ± 0.0046", "<0.001", "−0.123", "3 + 4"]
    assert TABLE.shown()[1][1:] == ["0.01", "(−)", "0.3333", "<0.050", "0.500", "1 + 1"]
    assert TABLE.shown()[2][1:] == ["–", "batch", "–", "–", "–", "–"]


@pytest.mark.parametrize(("p", "shown"), [(0.001, "0.001"), (0.00099, "<0.001"), (0.0396, "0.040"), (1.0, "1.000")])
def test_p_values(p: float, shown: str) -> None:
    assert P.show(p) == shown


def test_csv_comes_back() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert len(rows) == 3
    assert rows[0]["name"] == ROWS[0][0]
    assert float(rows[1]["valid_mean"]) == 1 / 3
    assert (rows[0]["valid_n"], rows[0]["valid_standard_error"]) == ("3", "0.00456")
    assert (rows[1]["valid_standard_error"], rows[1]["p"]) == ("", "<0.05")
    assert float(rows[0]["p"]) == 0.0004
    assert (rows[0]["seeds_first"], rows[0]["seeds_second"]) == ("3", "4")
    assert {key for key, value in rows[2].items() if value} == {"name", "norm"}
    assert None not in rows[2]
    assert rows[2]["norm"] == "batch"


def test_json_comes_back() -> None:
    content = json.loads(json.dumps(to_json(TABLE)))
    assert content["rows"][0]["valid"] == {"n": 3, "mean": 0.51234, "standard_error": 0.00456}
    assert content["rows"][0]["norm"] == "graph"
    assert content["rows"][1]["p"] == "<0.05"
    assert content["rows"][1]["valid"]["standard_error"] is None
    assert content["rows"][2] == {"name": "*", "norm": "batch", **dict.fromkeys(("lr", "valid", "p", "r", "seeds"))}
    assert content["notes"] == ["A note."]


def markdown_cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)[1:-1]


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1))
def test_markdown_has_as_many_cells_in_every_row(name: str) -> None:
    text = to_markdown([Table("t", "t", COLUMNS, ((name, *ROWS[0][1:]), *ROWS))], ["a | b"])
    lines = [line for line in text.split("\n") if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert {len(markdown_cells(line)) for line in lines} == {len(COLUMNS)}


def test_markdown_sets_numbers_to_the_right() -> None:
    rule = to_markdown([TABLE], []).split("\n")[3]
    assert [cell.strip() for cell in markdown_cells(rule)] == ["---", "---:", "---", "---:", "---:", "---:", "---:"]


def check_latex(source: str) -> None:
    """A reader of the little LaTeX that tables use: it fails on what a compiler would fail on."""
    source = re.sub(r"(?m)^%.*$", "", source)
    known = {
        *("begin", "end", "centering", "caption", "toprule", "midrule", "bottomrule", "endhead", "endfoot", "pm"),
        *("textbackslash", "textasciitilde", "textasciicircum", "textbar"),
    }
    environments: list[str] = []
    depth = columns = 0
    in_math = False
    for token in re.findall(r"\\[A-Za-z]+|\\.|[^\\]", source.replace("\\\\\n", "\\;\n")):
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
        elif token == "$":
            in_math = not in_math
        elif token[0] == "\\" and len(token) > 2:
            assert token[1:] in known, token
            assert token != "\\pm" or in_math
        assert depth >= 0
        assert token not in "#%^_~", "a special character is not escaped"
        assert in_math or token not in "<>±−", "these need mathematics, or a font that has them"
    assert (depth, in_math) == (0, False)
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", source):
        if kind == "begin":
            environments.append(name)
        else:
            assert environments.pop() == name
    assert environments == []
    for body in re.findall(r"\\begin\{(?:tabular|longtable)\}\{([lr]+)\}(.*?)\\end", source, re.S):
        columns = len(body[0])
        rows = [line for line in body[1].split("\n") if line.endswith(r"\\") and "caption" not in line]
        assert rows
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == columns - 1
            assert not row.startswith(("[", "*")), "the row end before would take it as its own"


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), min_size=1))
def test_latex_is_well_formed_whatever_the_names(name: str) -> None:
    check_latex(to_latex([Table("t", f"On {name}", COLUMNS, ((name, *ROWS[0][1:]), *ROWS))], [f"beware of {name}"]))


def test_latex_breaks_long_tables_across_pages() -> None:
    source = to_latex([TABLE, long(41)], [])
    check_latex(source)
    assert source.count(r"\begin{table}") == 1
    assert source.count(r"\begin{longtable}") == 1
    assert r"\begin{longtable}" not in to_latex([long(40)], [])


def test_the_latex_reader_of_this_test_sees_mistakes() -> None:
    good = to_latex([TABLE], [])
    for wrong in (good.replace("\\&", "&"), good.replace("\\%", "%"), good.replace("\\_", "_"), good + "}"):
        with pytest.raises(AssertionError):
            check_latex(wrong)
    with pytest.raises(AssertionError):
        check_latex(good.replace(r"$\pm$", r"\pm"))


def test_text_as_wide_as_the_terminal_or_as_the_table() -> None:
    wide = Table("wide", "C", (Column("a", "A"), Column("b", "B")), (("a" * 80, "b" * 80),))
    line = f"{'a' * 80}  {'b' * 80}"
    assert line in to_text([wide], []).split("\n")
    assert max(map(len, to_text([wide], [], width=100).split("\n"))) <= 100


def test_text_has_sentences_of_a_hundred_columns_at_most() -> None:
    text = to_text([TABLE, long(3)], ["word " * 50])
    assert max(map(len, text.split("\n"))) <= 100
    assert all(line == line.rstrip() for line in text.split("\n"))
    assert "a_b & 5% of {x} | $y$ #1 ~^\\" in text
    assert "[b]" in text  # which rich would read as markup
    assert "A note." in text
    narrow = to_text([TABLE], [], width=60)
    assert max(map(len, narrow.split("\n"))) <= 60
