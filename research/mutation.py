"""Mutation testing: change one thing in a file at a time, and see whether a test notices.

    python research/mutation.py --sample 6 --out research/results/mutation.csv

First come mutants that once survived, then a sample of all that can be made by turning a comparison, `and` into `or`,
a number by one, or `side="left"` into `side="right"`. Each runs the tests of its file in a copy of the checkout.
A survivor is looked at by a person: it lacks a test, or it changes nothing that anyone could see.
"""

from __future__ import annotations

import argparse
import ast
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent

#: file → its tests, beside the examples in the file itself
TESTS = {
    "training/objective.py": ["tests/training/test_objective.py"],
    "training/scores.py": ["tests/training/test_objective.py", "tests/models/test_calibrated.py"],
    "graphs/splits.py": ["tests/graphs/test_splits.py", "tests/graphs/test_dividing.py"],
    "statistics.py": ["tests/test_statistics.py"],
    "models/_arrays.py": ["tests/models/test_forest.py", "tests/models/test_linear.py"],
    "models/conformal.py": ["tests/models/test_conformal.py"],
    "models/calibration.py": ["tests/models/test_calibration.py"],
    "nn/join.py": ["tests/nn/test_join.py", "tests/nn/test_relations.py"],
    "nn/pooling.py": ["tests/nn/test_pooling.py"],
}
#: file, what stands there, what a mutant says instead: those that tests did not notice once
SURVIVED_ONCE = [
    ("training/scores.py", "(self.ranks > 0)", "(self.ranks >= 0)"),
    ("training/objective.py", "np.nanstd(targets, axis=0), 1e-6)", "np.nanstd(targets, axis=0), 1e-3)"),
    ("training/objective.py", "np.maximum(np.nanstd(targets, axis=0), 1e-6)", "np.nanstd(targets, axis=0)"),
    ("models/_arrays.py", "array.dtype != np.dtype(dtype) or not fits", "not fits"),
    ("graphs/splits.py", 'first), side="right"))\n\n\ndef stratified', 'first), side="left"))\n\n\ndef stratified'),
    ("graphs/splits.py", "(len(group), group[0]), reverse=True", "(len(group), -group[0]), reverse=True"),
]
_TURNED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


@dataclass(frozen=True)
class Mutant:
    """A file's new text, and what was changed in it."""

    file: str
    line: int
    change: str
    text: str
    origin: str


def mutants(file: str) -> Iterator[Mutant]:
    """All mutants of a file."""
    text = (HERE / "src/mlap" / file).read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    encoded = text.encode()

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    def mutant(node: ast.expr, start: int, stop: int, new: str) -> Mutant:
        old = encoded[start:stop].decode()
        changed = (encoded[:start] + new.encode() + encoded[stop:]).decode()
        return Mutant(file, node.lineno, f"{old.strip()} → {new.strip()}", changed, "sample")

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            start = at(node.left.end_lineno or 0, node.left.end_col_offset or 0)
            stop = at(node.comparators[0].lineno, node.comparators[0].col_offset)
            if encoded[start:stop].decode().strip(" ") and b"(" not in encoded[start:stop]:
                yield mutant(node, start, stop, f" {_TURNED[type(node.ops[0])]} ")
        elif isinstance(node, ast.BoolOp):
            first, second = node.values[:2]
            start, stop = at(first.end_lineno or 0, first.end_col_offset or 0), at(second.lineno, second.col_offset)
            if encoded[start:stop].decode().strip() in ("and", "or"):
                yield mutant(node, start, stop, " or " if isinstance(node.op, ast.And) else " and ")
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            start, stop = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
            yield mutant(node, start, stop, repr(node.value + 1))
        elif isinstance(node, ast.Constant) and node.value in ("left", "right"):
            start, stop = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
            yield mutant(node, start, stop, '"right"' if node.value == "left" else '"left"')


def known() -> Iterator[Mutant]:
    """The mutants that survived once."""
    for file, old, new in SURVIVED_ONCE:
        text = (HERE / "src/mlap" / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            raise SystemExit(f"{file} does not have {old!r} once")
        line = text[: text.index(old)].count("\n") + 1
        yield Mutant(file, line, f"{old.split(chr(10))[0]} → {new.split(chr(10))[0]}", text.replace(old, new), "known")


def passes(file: str, checkout: Path) -> bool:
    """Whether all tests of a file pass."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"src/mlap/{file}", *TESTS[file]],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout / "src")},
            capture_output=True,
            timeout=600,
        )
    except subprocess.TimeoutExpired:
        return False  # it never ends: someone would notice
    return done.returncode == 0


def survives(mutant: Mutant, checkout: Path) -> bool:
    """Whether all tests of a file pass with a mutant in its place."""
    path = checkout / "src/mlap" / mutant.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(mutant.text, encoding="utf-8")
    try:
        return passes(mutant.file, checkout)
    finally:
        path.write_text(whole, encoding="utf-8")


def main() -> None:
    """Run the mutants and write what became of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=6, help="mutants of each file, beside the known ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", nargs="*", default=list(TESTS))
    parser.add_argument("--out", type=Path, required=True)
    call = parser.parse_args()
    chosen = [mutant for mutant in known() if mutant.file in call.files]
    for file in call.files:
        every = list(mutants(file))
        chosen += random.Random(call.seed).sample(every, min(call.sample, len(every)))
    with tempfile.TemporaryDirectory() as folder, call.out.open("w", newline="", encoding="utf-8") as out:
        checkout = Path(folder) / "checkout"
        shutil.copytree(HERE, checkout, ignore=shutil.ignore_patterns(".git", ".venv", "build", "__pycache__"))
        for file in call.files:
            if not passes(file, checkout):
                raise SystemExit(f"the tests of {file} fail as it is, so that they say nothing of mutants")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("file", "line", "origin", "change", "outcome"))
        for mutant in chosen:
            outcome = "survived" if survives(mutant, checkout) else "killed"
            writer.writerow((mutant.file, mutant.line, mutant.origin, mutant.change, outcome))
            out.flush()


if __name__ == "__main__":
    main()
