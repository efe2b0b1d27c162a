"""The code in Markdown pages: fenced blocks with what is said about them, and code within the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

#: languages that are run, and languages that are only read; a block in another one is a mistake
RUN, READ = ("bash", "python"), ("text", "csv", "toml", "bibtex", "json")

_FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_REMARK = re.compile(r"<!-- *(not run|file): *((?:(?!-->).)+?) *-->\s*$", re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Args:
        page: the file.
        line: where it begins.
        language: the word behind the fence.
        code: what is in it.
        not_run: why it is not run; empty if it is. The page says so in `<!-- not run: reason -->` before it.
        file: the name of the file that it shows, from `<!-- file: name -->`; empty if none.
    """

    page: Path
    line: int
    language: str
    code: str
    not_run: str = ""
    file: str = ""

    @property
    def place(self) -> str:
        """Where it is, as editors write it."""
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order; Sphinx's directives are none."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        if match[2].startswith("{"):
            continue
        said = _REMARK.search(text[: match.start()])
        remark = {} if said is None else {said[1].replace(" ", "_"): " ".join(said[2].split())}
        indent = len(match[1])
        code = "".join(line[indent:] for line in match[3].splitlines(keepends=True))
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, match[2], code, **remark))
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def spans(page: Path) -> list[str]:
    """Code within the text, each on one line."""
    return [" ".join(span.split()) for span in _SPAN.findall(prose(page))]
