"""The rooms of the house import only to their left, and nothing heavy before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mlap

HOUSE = Path(mlap.__file__).parent

#: what every room may use, beside the package itself for its version: none of them loads torch
COMMON = {
    *(
        "arrays",
        "checks",
        "errors",
        "files",
        "locking",
        "machines",
        "names",
        "paper",
        "plotting",
        "progress",
        "provenance",
        "statistics",
    ),
}
#: room → the rooms it may import from
LEFT_OF = {
    **{name: set() for name in COMMON},
    "kernels": {"nn"},
    "nn": {"kernels"},
    "graphs": set(),
    "training": {"graphs", "nn"},
    "models": {"graphs", "nn", "training"},
    "study": {"graphs", "nn", "training", "models"},
    "analysis": {"graphs", "nn", "training", "models", "study"},
    "report": {"graphs", "nn", "training", "models", "study", "analysis"},
    "serve": {"graphs", "nn", "training", "models", "study", "analysis", "report"},
    "estimator": {"graphs", "nn", "training", "models", "study", "analysis", "report"},
    "cli": {"graphs", "nn", "training", "models", "study", "analysis", "report", "serve", "estimator"},
    "__main__": {"cli"},
}
FILES = sorted(path for path in HOUSE.rglob("*.py") if path != HOUSE / "__init__.py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms that a file names in any import statement, also inside functions."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "mlap" else set()
            modules.add(node.module or "")
    return {name.split(".")[1] for name in modules if name.startswith("mlap.")} & set(LEFT_OF)


def test_the_check_sees_an_import_to_the_right(tmp_path: Path) -> None:
    offender = tmp_path / "offender.py"
    offender.write_text("def f():\n    from mlap import training\n    import mlap.cli.train\n")
    assert imported_rooms(offender) == {"training", "cli"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_rooms_import_only_to_their_left(path: Path) -> None:
    room = path.relative_to(HOUSE).parts[0].removesuffix(".py")
    assert room in LEFT_OF, f"{room} is a new room: say here what it may import"
    assert imported_rooms(path) <= LEFT_OF[room] | {room} | COMMON


@pytest.mark.parametrize("call", ["import mlap", "import mlap.cli", "import mlap; dir(mlap)"])
def test_start_is_light(call: str) -> None:
    code = f"{call}\nimport sys\nprint([m for m in ('torch', 'numpy', 'sklearn', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", mlap.__all__)
def test_public_names_exist(name: str) -> None:
    assert getattr(mlap, name) is not None
    assert name in dir(mlap)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mlap.nothing
