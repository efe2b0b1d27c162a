"""One model of a table, and the forms it is shown in: text, Markdown, LaTeX, CSV and JSON.

A column has a kind, which says what its values are, how people read them (text, Markdown, LaTeX) and which fields
machines read (CSV, JSON). `None` is a value that does not exist, in any column.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mlap.provenance import made_by
from mlap.report.published import Below
from mlap.statistics import Summary

#: The widest table that LaTeX gets on one page; a longer one is broken across pages.
_PAGE = 40
#: the columns of a line of text where no terminal says how many there are
_LINE = 100


class Kind(NamedTuple):
    """What the values of a column are.

    Args:
        show: a value as people read it.
        fields: the suffix of a field's name → its value for machines.
    """

    show: Callable[[Any], str]
    fields: Mapping[str, Callable[[Any], Any]]


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _score(value: Summary) -> str:
    return f"{value.mean:.4f}" + ("" if value.standard_error is None else f" ± {value.standard_error:.4f}")


def _p(value: float) -> str:
    bound = max(value, 0.001)
    return f"<{bound:.3f}" if isinstance(value, Below) or value < bound else f"{value:.3f}"


def _number(value: Any) -> Any:
    return f"<{float(value)}" if isinstance(value, Below) else value


#: names, depths, counts, recipe fields
PLAIN = Kind(_plain, {"": _number})
#: a normalisation, as the paper writes it: GraphNorm or none
NORM = Kind(lambda norm: {"graph": "(+)", "none": "(−)"}.get(norm, norm), {"": str})
#: a `Summary`
SCORE = Kind(
    _score,
    {
        "n": lambda value: value.n,
        "mean": lambda value: value.mean,
        "standard_error": lambda value: value.standard_error,
    },
)
#: the sizes of two samples
SIZES = Kind(
    lambda sizes: f"{sizes[0]} + {sizes[1]}", {"first": lambda sizes: sizes[0], "second": lambda sizes: sizes[1]}
)
#: a p-value
P = Kind(_p, {"": _number})
#: an effect size
EFFECT = Kind(lambda value: f"{value:.3f}".replace("-", "−"), {"": _number})


class Column(NamedTuple):
    """A column: its name for machines, its title for people, and what it holds."""

    key: str
    title: str
    kind: Kind = PLAIN


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        name: for machines and file names.
        caption: what it shows.
        columns: see `Column`.
        rows: as many values as columns in each.
        notes: sentences that a reader of the table needs.
    """

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    notes: tuple[str, ...] = ()

    def shown(self) -> list[list[str]]:
        """The rows as people read them."""
        return [
            ["–" if value is None else column.kind.show(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def is_text(self, column: int) -> bool:
        """Whether a column holds words, which are set to the left, and not numbers, which are set to the right."""
        return any(isinstance(row[column], str) for row in self.rows)


def to_text(tables: Sequence[Table], warnings: Sequence[str], width: int | None = None) -> str:
    """Tables as text.

    Args:
        tables: the tables.
        warnings: sentences after the last table.
        width: the columns of the terminal, which no line exceeds; without one a table is as wide as it needs.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    parts = []
    for table in tables:
        grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        for index, column in enumerate(table.columns):
            grid.add_column(Text(column.title), justify="left" if table.is_text(index) else "right", overflow="fold")
        for row in table.shown():
            grid.add_row(*map(Text, row))
        drawn = io.StringIO()
        Console(file=drawn, width=width or sys.maxsize, color_system=None).print(grid)
        parts += [table.caption, "\n".join(line.rstrip() for line in drawn.getvalue().splitlines()), *table.notes]
    parts += [f"warning: {warning}" for warning in warnings]
    return "\n\n".join(part if "\n" in part else textwrap.fill(part, width or _LINE) for part in parts) + "\n"


def to_markdown(tables: Sequence[Table], warnings: Sequence[str]) -> str:
    """Tables for a Markdown page."""
    blocks = []
    for table in tables:
        head = [_markdown(column.title) for column in table.columns]
        rule = ["---" if table.is_text(index) else "---:" for index in range(len(head))]
        rows = [head, rule, *([_markdown(text) for text in row] for row in table.shown())]
        blocks.append(f"### {_markdown(table.caption)}")
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
        if table.notes:
            blocks.append(_markdown(" ".join(table.notes)))
    if warnings:
        blocks.append("\n".join(("Warnings:", "", *(f"- {_markdown(warning)}" for warning in warnings))))
    return "\n\n".join(blocks) + "\n"


def to_latex(tables: Sequence[Table], warnings: Sequence[str]) -> str:
    """Tables for a LaTeX document that uses the packages booktabs and longtable."""
    lines = [r"% needs \usepackage{booktabs,longtable}"]
    lines += [f"% warning: {' '.join(warning.split())}" for warning in warnings]
    for table in tables:
        layout = "".join("l" if table.is_text(index) else "r" for index in range(len(table.columns)))
        caption = rf"\caption{{{_latex(' '.join((table.caption + '.', *table.notes)))}}}"
        head = _latex_row([column.title for column in table.columns])
        rows = [_latex_row(row) for row in table.shown()]
        if len(rows) > _PAGE:
            lines += ["", rf"\begin{{longtable}}{{{layout}}}", rf"{caption} \\", r"\toprule", head, r"\midrule"]
            lines += [r"\endhead", r"\bottomrule", r"\endfoot", *rows, r"\end{longtable}"]
        else:
            lines += ["", r"\begin{table}", r"\centering", caption, rf"\begin{{tabular}}{{{layout}}}", r"\toprule"]
            lines += [head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    return "\n".join(lines) + "\n"


def to_csv(table: Table, signed: bool = False) -> str:
    """One table as CSV, every number with all its digits, a value that does not exist as nothing.

    Args:
        table: the table.
        signed: whether a last column says which `mlap` made the table (`mlap.provenance.made_by`).
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    last = {"made_by": made_by()} if signed else {}
    writer.writerow([_join(column.key, field) for column in table.columns for field in column.kind.fields] + [*last])
    for row in table.rows:
        writer.writerow(
            [
                None if value is None else read(value)
                for column, value in zip(table.columns, row, strict=True)
                for read in column.kind.fields.values()
            ]
            + [*last.values()]
        )
    return text.getvalue()


def to_json(table: Table) -> dict[str, Any]:
    """One table for JSON: each row is an object."""
    rows = []
    for row in table.rows:
        content: dict[str, Any] = {}
        for column, value in zip(table.columns, row, strict=True):
            fields = {} if value is None else {field: read(value) for field, read in column.kind.fields.items()}
            content[column.key] = fields.get("", fields or None)
        rows.append(content)
    return {"caption": table.caption, "rows": rows, "notes": list(table.notes)}


def _join(key: str, field: str) -> str:
    return f"{key}_{field}" if field else key


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_<`\[\]#])", r"\\\1", text)


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_row(texts: Sequence[str]) -> str:
    # An opening bracket after \\ would be read as its argument, and a star as its variant; hence the braces.
    cells = [_latex(text) for text in texts]
    cells[0] = f"{{{cells[0]}}}" if cells[0][:1] in ("[", "*") else cells[0]
    return " & ".join(cells) + r" \\"
