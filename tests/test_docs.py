"""README and docs: every command and every Python block runs as written, on real molecules with known answers.

The shell blocks and Python blocks of a page run one after the other in one folder. It begins with

- `molecules.csv`, real molecules with a label `active` that is a known function of the molecule,
- `new-molecules.csv`, others, and
- `runs/mine`, a network trained on the first.

A block that takes minutes or needs a download says so before it, `<!-- not run: reason -->`; its options are checked.
"""

from __future__ import annotations

import csv
import importlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from markdown_blocks import READ, RUN, Block, blocks, prose, spans
from warm_command import warm_command

from mlap.cli import app

TOP = Path(__file__).resolve().parents[1]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
IDS = [page.name for page in PAGES]

#: an aromatic amine or nitro group: the answer to "what makes these molecules active?"
ACTIVE = "[$([NX3;H2]c),$([N+](=O)([O-])c)]"
#: rows of the tables, a third of them active: few, because the pages train networks as people do
ROWS, NEW_ROWS = 150, 30
#: what makes `runs/mine`
TRAIN = "mlap train molecules.csv --target active --preset quick --out runs/mine"
#: blocks that are shown and not run: as few as possible
MOST_NOT_RUN = 16


def write_tables(folder: Path) -> None:
    """`molecules.csv` and `new-molecules.csv`, of molecules that come with RDKit."""
    from rdkit import Chem, RDConfig

    active = Chem.MolFromSmarts(ACTIVE)
    rows: dict[bool, list[tuple[Any, ...]]] = {True: [], False: []}
    for line in (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()[:1000]:
        smiles, number = line.split()
        if (molecule := Chem.MolFromSmiles(smiles)) is not None:
            label = molecule.HasSubstructMatch(active)
            weight = round(sum(atom.GetMass() for atom in molecule.GetAtoms()), 2)
            rows[label].append(
                (f"NSC{number}", smiles, int(label), weight, ("train", "valid", "test")[len(rows[label]) % 3])
            )
    mixed = [row for three in zip(rows[True], rows[False][::2], rows[False][1::2], strict=False) for row in three]
    for name, part in (("molecules.csv", mixed[:ROWS]), ("new-molecules.csv", mixed[ROWS : ROWS + NEW_ROWS])):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([("id", "smiles", "active", "weight", "part"), *part])


@pytest.fixture(scope="module")
def bash() -> Iterator[Any]:
    """Runs a script by bash as a user would: any command that fails ends it."""
    with warm_command() as folder:

        def run(script: str, where: Path) -> str:
            environment = {
                **os.environ,
                "PATH": f"{folder}:{os.environ['PATH']}",
                "MLAP_DATA": str(where.parent / "data"),
                "OMP_NUM_THREADS": "1",
            }
            ended = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=where,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=900,  # a loaded machine is slow; this only ends what hangs
            )
            assert ended.returncode == 0, f"{script}\n{ended.stdout}{ended.stderr}"
            return ended.stdout

        yield run


@pytest.fixture(scope="module")
def begun(bash: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a page's folder begins with."""
    folder = tmp_path_factory.mktemp("begun")
    write_tables(folder)
    bash(TRAIN, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_block_of_a_page_runs_as_written(
    page: Path, bash: Any, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdkit")
    found = [block for block in blocks(page) if block.language in RUN or block.file]
    if not found:
        pytest.skip("nothing to run")
    folder = tmp_path / "page"
    shutil.copytree(begun, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLAP_DATA", str(tmp_path / "data"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in found:
        if block.not_run:
            continue
        if block.file:
            Path(block.file).write_text(block.code)
        elif block.language == "bash":
            bash(block.code, folder)
        else:
            try:
                exec(compile(block.code, block.place, "exec"), names)
            except Exception as error:
                raise AssertionError(f"{block.place}: {type(error).__name__}: {error}") from error


# ---- what is written about commands, whether it is run or not -----------------------------------------------------


def _all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks(page)]


def test_few_blocks_are_not_run_and_they_say_why() -> None:
    left = [block for block in _all_blocks() if block.language in RUN and block.not_run]
    assert len(left) <= MOST_NOT_RUN, [f"{block.place}: {block.not_run}" for block in left]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_code_stands_in_fenced_blocks_of_known_languages(page: Path) -> None:
    assert [block.place for block in blocks(page) if block.language not in RUN + READ] == []
    indented = re.findall(r"(?:\A|\n)[ \t]*\n((?: {4}|\t)[^\s*\-\d].*)", prose(page))
    assert indented == [], "indented code would not be run"


def _options(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def _verbs(command: Any, name: str = "mlap") -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from _verbs(inner, f"{name} {word}")


VERBS = dict(_verbs(typer.main.get_command(app)))


def wrong_words(command: str) -> list[str]:
    """The verb or options of a command line that do not exist."""
    words = shlex.split(command, comments=True)
    verb, words = "mlap", words[1:]
    while words and f"{verb} {words[0]}" in VERBS:
        verb, words = f"{verb} {words[0]}", words[1:]
    if verb == "mlap" and words and re.fullmatch(r"[a-z]+", words[0]):
        return [words[0]]
    known = _options(VERBS[verb]) | {"--help", "-h"}
    return [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]


def _commands(text: str) -> list[str]:
    """The calls of `mlap` in a script, one a line."""
    return re.findall(r"(?:^|[|;&]|\bdo\b|-m)\s*(mlap\s[^|;&>\n]*)", text.replace("\\\n", " "), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_verbs_and_options_exist(page: Path) -> None:
    shown = [line for block in blocks(page) if block.language == "bash" for line in _commands(block.code)]
    shown += [span for span in spans(page) if span.startswith("mlap ") and "…" not in span and "VERB" not in span]
    assert {line: wrong for line in shown if (wrong := wrong_words(line))} == {}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_options_in_the_text_exist(page: Path) -> None:
    known = {option for command in VERBS.values() for option in _options(command)}
    named = {word for span in spans(page) for word in re.findall(r"^--[a-z][a-z-]*", span)}
    assert named - known - {"--help"} == set()


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_names_in_the_text_exist(page: Path) -> None:
    for span in spans(page):
        for name in re.findall(r"(?<![\w./-])mlap((?:\.\w+)+)", span):
            if name.count(".") == 1 and name.split(".")[1] in ("db", "git"):
                continue
            thing: Any = importlib.import_module("mlap")
            for part in name[1:].split("."):
                if not hasattr(thing, part):
                    importlib.import_module(f"{thing.__name__}.{part}")
                thing = getattr(thing, part)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose(page)):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), target


def test_the_check_of_options_finds_what_is_wrong() -> None:
    assert wrong_words("mlap train x.csv --layers 3 --graph-norm") == []
    assert wrong_words("mlap train x.csv --no-such 3") == ["--no-such"]
    assert wrong_words("mlap data info x.csv --layers 3") == ["--layers"]
    assert wrong_words("mlap frobnicate x") == ["frobnicate"]
    script = "cat a | mlap predict m - > b\nfor s in 0; do\n  mlap sweep \\\n x\ndone"
    assert [" ".join(command.split()) for command in _commands(script)] == ["mlap predict m -", "mlap sweep x"]


def test_the_coverage_that_is_told_is_the_coverage_that_was_measured() -> None:
    """The page on trust has the rows of `research/results/coverage.csv` for these models, and no others."""
    told = [line for line in (TOP / "docs" / "trust.md").read_text().splitlines() if line.count("| 0.9 |") == 1]
    with (TOP / "research" / "results" / "coverage.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["confidence"] == "0.9" and row["class"] != "all"]
    measured = [
        f"| {row['class']} | 0.9 | {float(row['coverage']):.3f} | {int(row['graphs']):,} |"
        for row in rows
        if row["model"] in ("wl-linear", "rf-assay")
    ]
    assert len(told) == 6
    assert [line[-len(end) :] for line, end in zip(told, measured, strict=True)] == measured
