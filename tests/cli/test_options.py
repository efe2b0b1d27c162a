"""Every option of every verb is given in a test, and no message speaks the other side's language."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from markdown_blocks import blocks

import mlap
from mlap.cli import app
from mlap.cli.spelling import PARAMETERS
from mlap.training import Recipe

HOUSE = Path(mlap.__file__).parent
TESTS = Path(__file__).parents[1]
#: fields of errors that only Python has: there is no way to meet them at the command line
ONLY_IN_PYTHON = (
    {"x", "labels", "names", "recipe", "data", "kind", "join", "channels", "num_levels"}  # functions and modules
    | {"logits", "groups", "alpha", "spread", "rounds", "bits", "fold"}  # the parts of models
    | {"sample_weight", "validation_fraction", "early_stopping", "path"}  # the estimator
)


def verbs() -> Iterator[tuple[str, list[list[str]]]]:
    """Each verb, and its options with all their spellings."""
    command = typer.main.get_command(app)
    for name, verb in command.commands.items():  # type: ignore[attr-defined]
        for words, found in [(f"{name} {sub}", own) for sub, own in getattr(verb, "commands", {}).items()] or [
            (name, verb)
        ]:
            options = [[*option.opts, *option.secondary_opts] for option in found.params if option.opts[0][0] == "-"]
            yield words, options


def constants(module: ast.Module) -> dict[str, str]:
    """What a test file's own names stand for, as source: constants, and functions that tests call."""
    found = {}
    for node in module.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = ast.unparse(node)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: ast.unparse(node.value) for target in targets if isinstance(target, ast.Name)}
    return found


def calls() -> Iterator[str]:
    """The source of every test that calls the command, with its file's constants; and the commands of the docs."""
    for path in sorted((TESTS / "cli").glob("test_*.py")) + sorted(TESTS.glob("*/test_*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        known = constants(module)
        for node in module.body:
            if isinstance(node, ast.FunctionDef):
                names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
                yield ast.unparse(node) + "".join(f"\n{known[name]}" for name in names & set(known))
    for page in (TESTS.parent / "README.md", *sorted((TESTS.parent / "docs").glob("*.md"))):
        for block in blocks(page):
            if block.language == "bash" and not block.not_run:
                for line in block.code.replace("\\\n", " ").splitlines():
                    yield " ".join(repr(word) for word in line.split())


@pytest.mark.parametrize(("verb", "options"), list(verbs()), ids=[verb for verb, _ in verbs()])
def test_every_option_is_given_in_a_test(verb: str, options: list[list[str]]) -> None:
    words = verb.split()
    of_verb = [source for source in calls() if all(re.search(rf"['\" ]{word}['\" ]", source) for word in words)]
    untried = [
        spellings[-1]
        for spellings in options
        if not any(re.search(rf"['\" ]{option}['\" =]", source) for option in spellings for source in of_verb)
    ]
    assert untried == []


def raised() -> Iterator[tuple[str, str, str | None]]:
    """Every error that the package raises with a message: where, its text, and the field it is about."""
    for path in sorted(HOUSE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if not (isinstance(node, ast.Call) and (name.endswith("Error") or name == "unknown")) or not node.args:
                continue
            texts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            fields = [keyword.value for keyword in node.keywords if keyword.arg == "field"]
            own = name in ("MlapError", "UsageError", "DataError")
            fields += node.args[1:2] if own else node.args[3:4] if name == "unknown" else []
            field = next((value.value for value in fields if isinstance(value, ast.Constant)), None)
            where = f"{path.relative_to(HOUSE)}:{node.lineno}"
            yield where, "".join(text for text in texts if isinstance(text, str)), field


def test_the_library_names_no_flag_and_the_command_no_keyword() -> None:
    found = list(raised())
    assert len(found) > 300
    library = [(where, text) for where, text, _ in found if not where.startswith("cli/")]
    assert [error for error in library if re.search(r"(^|\s)--[a-z]", error[1])] == []
    command = [(where, text) for where, text, _ in found if where.startswith("cli/")]
    assert [error for error in command if re.search(r"\b[a-z_]+=['\[({]", error[1])] == []


def test_every_field_of_an_error_has_a_spelling() -> None:
    """What an error is about is an option of some verb, a field of recipes, or met in Python alone."""
    command = typer.main.get_command(app)
    every = [verb for name in command.commands.values() for verb in (*getattr(name, "commands", {}).values(), name)]  # type: ignore[attr-defined]
    parameters = {parameter.name for verb in every for parameter in verb.params}
    known = parameters | set(PARAMETERS) | set(Recipe().as_dict()) | ONLY_IN_PYTHON
    assert sorted({(field, where) for where, _, field in raised() if field is not None and field not in known}) == []
