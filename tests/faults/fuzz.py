"""Fuzzing of all readers, guided by coverage: `python tests/faults/fuzz.py --help`.

Needs Python 3.11 or newer and `pip install atheris`, which the other tests do without. Each target runs in a process
of its own. An input is right if its reader answers or raises one of our own errors, of one line, in bounded time and
memory. Any other one is a finding, written to a folder; `--reproduce FILE` tries it again, with no need for atheris.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import importlib
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parents[1]))

#: what is followed while it runs; the kernels are not read from files
_ROOMS = (
    *("mlap.graphs", "mlap.graphs.inputs", "mlap.graphs._csv", "mlap.graphs._formats", "mlap.graphs.ogb"),
    *("mlap.graphs.tu", "mlap.graphs.packed", "mlap.graphs.dividing", "mlap.graphs._labels", "mlap.graphs.tables"),
    *("mlap.models", "mlap.models.loading", "mlap.models.calibrated", "mlap.training.run", "mlap.study"),
    *("mlap.study.compare", "mlap.study.plan", "mlap.study.search"),
)

#: seconds that one input may take, and megabytes that the process may have
SECONDS, MEGABYTES = 30, 3000

Use = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    """A reader.

    Args:
        seeds: makes sound inputs, in a folder that stays.
        use: makes what reads an input, in the same folder.
        words: what its files are made of.
    """

    seeds: Callable[[Path], list[bytes]]
    use: Callable[[Path], Use]
    words: tuple[str, ...] = ()


# ---- tables ----------------------------------------------------------------------------------------------------------

_CSV = (
    b"smiles,y\nCCO,1\nc1ccccc1,0\nCN,1\nCC(=O)O,0\n",
    b"name;smiles;a;b\nx;CCO;1,5;Active\ny;C;2,5;Inactive\nz;CC;;Inactive\n",
    b'smiles\tsplit\ty\n"C\nC"\ttrain\t1e3\nCC\tvalid\tnan\nCCC\ttest\t-7\n',
)
_SDF = b"ethanol\n\n\n  3  2  0  0  0  0            999 V2000\n" + b"".join(
    b"    0.0000    0.0000    0.0000 %s   0  0\n" % atom for atom in (b"C", b"C", b"O")
)
_SDF += b"  1  2  1  0\n  2  3  1  0\nM  END\n> <y>\n1\n\n$$$$\n"
_WORDS = (
    "smiles",
    "Active",
    "1e999",
    "-1",
    "nan",
    "\ufeff",
    "[Na+].[Cl-]",
    "C%99",
    " |$a$|",
    "$$$$",
    "M  END",
    "> <a>",
)


def _read(path: Path) -> None:
    from mlap.graphs import load_graphs
    from mlap.graphs.inputs import iter_inputs, read_inputs

    for read in (
        lambda: load_graphs(path, cache=False).validate(),
        lambda: load_graphs(path, cache=False, targets=()).validate(),
        lambda: read_inputs(path, molecules=True),
        lambda: list(iter_inputs(path, rows=2)),
    ):
        _answered(read)


def _table(name: str, wrap: Callable[[bytes], bytes] = bytes) -> Callable[[Path], Use]:
    def make(folder: Path) -> Use:
        def use(data: bytes) -> None:
            (folder / name).write_bytes(wrap(data))
            _read(folder / name)

        return use

    return make


def _half_gzipped(data: bytes) -> bytes:
    """A gzipped file if the first byte is even, or the bytes as they are: checksums stop most others at once."""
    return data[1:] if data[:1] > b"\x7f" else gzip.compress(data[1:], 1)


def _parquet_seeds(folder: Path) -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    tables: list[dict[str, list[Any]]] = [
        {"smiles": ["CCO", "C", "CC", "CN"], "y": [1, 0, 1, None]},
        {"smiles": ["CCO", None], "y": [1.5, -2.0], "list": [["a"], []], "when": [b"\xff", None]},
    ]
    seeds = []
    for number, columns in enumerate(tables):
        for compression in ("none", "gzip"):
            path = folder / f"seed-{number}.parquet"
            pyarrow.parquet.write_table(pyarrow.table(columns), path, compression=compression)
            seeds.append(path.read_bytes())
    return seeds


def _workbook(folder: Path) -> dict[str, bytes]:
    import openpyxl

    book = openpyxl.Workbook()
    for row in (("smiles", "y", "day"), ("CCO", 1, "2020-01-01"), ("C", 0.5, None), ("CC", True, "=1+1")):
        book.active.append(row)
    book.save(folder / "seed.xlsx")
    with zipfile.ZipFile(folder / "seed.xlsx") as archive:
        return {name: archive.read(name) for name in sorted(archive.namelist())}


def _xlsx(folder: Path) -> Use:
    """The first byte says which part of the workbook the others replace."""
    parts = _workbook(folder)
    names = sorted(parts)

    def use(data: bytes) -> None:
        replaced = names[data[0] % len(names)] if data else ""
        path = folder / "t.xlsx"
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in parts.items():
                archive.writestr(name, data[1:] if name == replaced else content)
        _read(path)

    return use


def _numbered(parts: dict[str, bytes]) -> list[bytes]:
    return [bytes([number]) + parts[name] for number, name in enumerate(sorted(parts))]


# ---- graphs ----------------------------------------------------------------------------------------------------------

_TU = {
    "A": b"1, 2\n2, 1\n3, 4\n4, 3\n",
    "graph_indicator": b"1\n1\n2\n2\n",
    "graph_labels": b"0\n1\n",
    "node_labels": b"3\n5\n3\n3\n",
    "edge_labels": b"1\n1\n2\n2\n",
    "node_attributes": b"0.5, 1\n2, 3\n4, 5\n6, 7e3\n",
    "edge_attributes": b"1\n1\n.5\n.5\n",
    "graph_attributes": b"1.5, 2\n-3, 0\n",
}
_OGB = {
    "mapping/mol": b"y,smiles,mol_id\n0,CC,a\n1,CO,b\n",
    "raw/edge": b"0,1\n0,1\n",
    "raw/edge-feat": b"0.125,1\n0.5,0\n",
    "raw/graph-label": b"0\n1\n",
    "raw/node-feat": b"5,0\n5,1\n7,0\n0,0\n",
    "raw/num-edge-list": b"1\n1\n",
    "raw/num-node-list": b"2\n2\n",
    "split/s/test": b"",
    "split/s/train": b"0\n",
    "split/s/valid": b"1\n",
}
#: stands between the files of a folder
_NEXT = b"\x1c"
_NUMBERS = ("4294967296", "9223372036854775807", "1e400", "nan", "-1", '""', ", ", "\r\n", "0.0005")


def _folder(files: dict[str, bytes], name: Callable[[str], str], wrap: Callable[[bytes], bytes]) -> Any:
    """A folder whose files stand one after the other; an absent file is one that says only `-`."""

    def make(folder: Path) -> Use:
        place = folder / "T"

        def use(data: bytes) -> None:
            from mlap.graphs import load_graphs

            shutil.rmtree(place, ignore_errors=True)
            for file, content in zip(files, data.split(_NEXT), strict=False):
                if content != b"-":
                    path = place / name(file)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(wrap(content))
            _answered(lambda: load_graphs(place, cache=False).validate())

        return use

    return make


def _folder_seeds(files: dict[str, bytes], optional: tuple[str, ...]) -> list[bytes]:
    """The whole folder, and the folder without each of the files that it can do without."""
    return [_NEXT.join(b"-" if name == left else files[name] for name in files) for left in ("", *optional)]


def _packed_seeds(folder: Path) -> list[bytes]:
    parts = _packed_parts(folder)
    return _numbered(parts)


def _packed_parts(folder: Path) -> dict[str, bytes]:
    """A packed set of molecules: what its header says, and its arrays."""
    from mlap.graphs import load_graphs, packed

    path = folder / "seed.graphs"
    shutil.rmtree(path, ignore_errors=True)
    packed.save(load_graphs(["CCO", "C", "c1ccccc1N"], labels={"y": [0, 1, None]}), path)
    header = json.loads((path / "header.json").read_text())["set"]
    parts = {file.stem: file.read_bytes() for file in sorted(path.glob("*.bin"))}
    return {"": json.dumps(header).encode(), **parts}


def _packed(folder: Path) -> Use:
    """The first byte says which array, or the header, the others replace; all checksums are right."""
    from mlap.graphs import packed

    parts = _packed_parts(folder)
    names = sorted(parts)
    header = json.loads(parts[""])
    path = folder / "t.graphs"

    def use(data: bytes) -> None:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        name = names[data[0] % len(names)] if data else ""
        found = {**parts, name: data[1:]}
        said = json.loads(parts[""])
        if name:
            entry = said["arrays"][name]
            row = int(np.prod(entry["shape"][1:])) * np.dtype(entry["dtype"]).itemsize
            entry["shape"][0] = len(found[name]) // row
            found[name] = found[name][: entry["shape"][0] * row]
        else:
            try:
                said = json.loads(found[""])
            except (ValueError, RecursionError):
                said = header
        for array, content in found.items():
            if array:
                (path / f"{array}.bin").write_bytes(content)
                with contextlib.suppress(TypeError, KeyError, AttributeError):
                    said["arrays"][array]["crc32"] = zlib.crc32(content)
        whole = {"format": packed.MAGIC, "version": packed.VERSION, "sha256": packed._digest(said), "set": said}
        (path / "header.json").write_text(json.dumps(whole))
        _answered(read)

    def read() -> None:
        graphs = packed.load(path)
        packed.notes(path)
        batch = graphs.batch(np.arange(len(graphs)))
        assert batch.edge_index.numel() == 0 or int(batch.edge_index.max()) < batch.num_nodes
        graphs.validate()

    return use


# ---- models and studies ----------------------------------------------------------------------------------------------


def _model_parts(folder: Path) -> dict[str, bytes]:
    import mlap

    smiles = ["C" * length + end for length in range(1, 26) for end in "ONSF"]
    graphs = mlap.load_graphs(smiles, labels=[int(text[-1] in "ON") for text in smiles], split="stratified")
    place = folder / "model"
    if not place.exists():
        run = mlap.train(graphs, preset="quick", epochs=1, layers=2, width=8, out=place, progress=False)
        run.calibrate(graphs, "valid", method="platt").write(place)
    return {path.name: path.read_bytes() for path in sorted(place.iterdir()) if path.suffix in (".json", ".csv")}


def _model(folder: Path) -> Use:
    """The first byte says which file of a run the others replace."""
    import mlap

    parts = _model_parts(folder)
    names = sorted(parts)

    def use(data: bytes) -> None:
        name = names[data[0] % len(names)] if data else names[0]
        (folder / "model" / name).write_bytes(data[1:])
        try:
            _answered(read)
        finally:
            (folder / "model" / name).write_bytes(parts[name])

    def read() -> None:
        model = mlap.load(folder / "model")
        repr(model)
        found = model.predict(["CCO", "N"], confidence=0.5 if model.calibrated else None)
        assert np.isfinite(found.values).all() or found.invalid

    return use


def _study_file(folder: Path) -> Path:
    from study_tools import InProcessEngine, tiny_graphs, tiny_plan

    from mlap.study import SweepSettings, sweep

    path = folder / "seed.db"
    if not path.exists():
        source, graphs = tiny_graphs(folder)
        plan = tiny_plan(architecture=["naive", "mlap-sum"], layers=1, epochs=1)
        sweep(plan, SweepSettings(source, path), engine=InProcessEngine(), graphs=graphs)
    return path


def _cells(path: Path) -> list[tuple[str, str, Any]]:
    """Table, column and first value of all cells that a study has."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = [(table, row[1]) for table in tables for row in connection.execute(f"PRAGMA table_info({table})")]
        found = []
        for table, column in columns:
            for (value,) in connection.execute(f"SELECT {column} FROM {table} LIMIT 1"):
                found.append((table, column, value))
        return found


def _study_seeds(folder: Path) -> list[bytes]:
    path = _study_file(folder)
    whole = bytes([255]) + path.read_bytes()
    return [whole, *(bytes([number]) + str(value).encode() for number, (_, _, value) in enumerate(_cells(path)))]


def _study(folder: Path) -> Use:
    """The first byte says which cell the others replace; above 127 they are the whole file."""
    from study_tools import read_study

    seed, path = _study_file(folder), folder / "t.db"
    cells = _cells(seed)

    def use(data: bytes) -> None:
        for left in folder.glob("t.db*"):
            left.unlink()
        number, content = (data[0] if data else 255), data[1:]
        if number > 127:
            path.write_bytes(content)
        else:
            shutil.copy(seed, path)
            table, column, _ = cells[number % len(cells)]
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("PRAGMA ignore_check_constraints = ON")
                with contextlib.suppress(sqlite3.IntegrityError):
                    connection.execute(f"UPDATE {table} SET {column} = ?", (_value(content),))
        _answered(lambda: read_study(path))

    return use


def _value(content: bytes) -> Any:
    """A number where it looks like one, else a text, else bytes."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return value if abs(value := kind(text)) < 2**63 else text
    return text


def _plan(folder: Path) -> Use:
    from mlap.study.plan import Plan

    def use(data: bytes) -> None:
        (folder / "t.toml").write_bytes(data)
        _answered(lambda: Plan.of("synthetic", folder / "t.toml").to_toml())

    return use


_TOML = (
    b'architecture = "paper"\nlayers = "1-10"\nnorm = ["none", "graph"]\nseed = "0-29"\nepochs = 20\n',
    b'lr = [1e-3, 0.01]\npooling = "attention"\nhead = "linear"\ndescriptors = true\nwidth = 8\n',
)
_JSON = ("null", "true", "1e999", "NaN", "-1", "[]", "{}", '""', "123456789012345678901", "\\ud800", '"mlap-sum"')

TARGETS = {
    "csv": Target(lambda folder: list(_CSV), _table("t.csv"), _WORDS),
    "csv.gz": Target(lambda folder: [b"\0" + seed for seed in _CSV], _table("t.csv.gz", _half_gzipped), _WORDS),
    "smi": Target(lambda folder: [b"CCO ethanol\nC |$a$| x\n", b"smiles\tname\nC\tx\n"], _table("t.smi"), _WORDS),
    "sdf": Target(lambda folder: [_SDF + _SDF.replace(b"\n1\n\n", b"\n0\n\n"), _SDF], _table("t.sdf"), _WORDS),
    "xlsx": Target(lambda folder: _numbered(_workbook(folder)), _xlsx),
    "parquet": Target(_parquet_seeds, _table("t.parquet")),
    "ogb": Target(
        lambda folder: _folder_seeds(_OGB, ("mapping/mol", "raw/node-feat", "raw/edge-feat", "raw/graph-label")),
        _folder(_OGB, "{}.csv.gz".format, lambda content: gzip.compress(content, 1)),
        _NUMBERS,
    ),
    "tu": Target(lambda folder: _folder_seeds(_TU, tuple(_TU)[2:]), _folder(_TU, "T_{}.txt".format, bytes), _NUMBERS),
    "packed": Target(_packed_seeds, _packed, _JSON),
    "model": Target(lambda folder: _numbered(_model_parts(folder)), _model, _JSON),
    "study": Target(_study_seeds, _study, _JSON),
    "plan": Target(lambda folder: list(_TOML), _plan, (*_JSON, "1-1000000", "all", '"""', "[[")),
}


def _answered(use: Callable[[], object]) -> None:
    """Raises unless it answers, or says in one line of our own why not."""
    from damage import answered

    answered(use)


# ---- the campaign ----------------------------------------------------------------------------------------------------


def fuzz(target: Target, place: Path, minutes: float) -> None:
    """Fuzz a target in this process, which ends with it; what is found is written to `place / "findings"`."""
    import atheris

    with atheris.instrument_imports(include=["mlap"]):
        for room in _ROOMS:
            importlib.import_module(room)
    seeds, work, findings = place / "seeds", place / "work", place / "findings"
    for folder in (seeds, work, findings, place / "corpus"):
        folder.mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds(work)):
        (seeds / str(number)).write_bytes(seed)
    spelt = ("".join(f"\\x{byte:02x}" for byte in word.encode("utf-8", "surrogatepass")) for word in target.words)
    (place / "words").write_text("".join(f'"{word}"\n' for word in (*spelt, "\\x1c")))
    use = target.use(work)
    seen: set[str] = set()

    def one(data: bytes) -> None:
        try:
            use(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            where = "-".join(f"{Path(frame.filename).stem}.{frame.lineno}" for frame in _frames(error)[-2:])
            name = f"{type(error).__name__}-{where}"
            if name not in seen:
                seen.add(name)
                (findings / name).write_bytes(data)
                (findings / f"{name}.txt").write_text("".join(traceback.format_exception(error))[-5000:])

    limits = [f"-max_total_time={60 * minutes:.0f}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}"]
    limits += [f"-max_len={max(4096, *(path.stat().st_size for path in seeds.iterdir()))}", "-print_final_stats=1"]
    paths = [f"-artifact_prefix={findings}/", f"-dict={place / 'words'}", str(place / "corpus"), str(seeds)]
    atheris.Setup([sys.argv[0], *limits, *paths], one)
    atheris.Fuzz()


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    frames = list(traceback.extract_tb(error.__traceback__))
    return [frame for frame in frames if "/mlap/" in frame.filename] or frames


def campaign(name: str, minutes: float, findings: Path) -> dict[str, Any]:
    """Fuzz a target in another process until its time is over, and again after a crash; a row of the table."""
    began, executions, crashes, features = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="mlap-fuzz-") as folder:
        left = minutes
        while left > 0.1 and crashes < 5:
            command = [sys.executable, str(HERE), "--target", name, "--inside", folder, "--minutes", str(left)]
            environment = {**os.environ, "MLAP_KERNELS": "0", "TMPDIR": folder, "HOME": folder}
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
            said = done.stderr.decode(errors="replace")
            executions += sum(map(int, re.findall(r"stat::number_of_executed_units: (\d+)", said)))
            features = max([features, *map(int, re.findall(r" ft: (\d+)", said))])
            if done.returncode:
                crashes += 1
                print(f"{name}: exit code {done.returncode}\n{said[-3000:]}", file=sys.stderr, flush=True)
            left = minutes - (time.monotonic() - began) / 60
        found = sorted(path for path in (Path(folder) / "findings").glob("*") if path.suffix != ".txt")
        if any((Path(folder) / "findings").glob("*")):
            shutil.copytree(Path(folder) / "findings", findings / name, dirs_exist_ok=True)
    for path in found:
        print(f"{name}: {findings / name / path.name}", file=sys.stderr, flush=True)
    return {
        "target": name,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "executions": executions,
        "features": features,
        "findings": len(found),
    }


def reproduce(name: str, path: Path) -> None:
    """Try an input again; raises what it raised."""
    with tempfile.TemporaryDirectory(prefix="mlap-fuzz-") as folder:
        TARGETS[name].use(Path(folder))(path.read_bytes())


def main() -> None:
    """Run the campaign; 1 if there was a finding."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default=",".join(TARGETS), help="which readers")
    parser.add_argument("--minutes", type=float, default=2, help="for each of them")
    parser.add_argument("--out", type=Path, help="a CSV file for the figures")
    parser.add_argument("--findings", type=Path, default=Path("build/findings"), help="a folder for what is found")
    parser.add_argument("--reproduce", type=Path, help="a finding to try again")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    call = parser.parse_args()
    if call.reproduce is not None:
        reproduce(call.target, call.reproduce)
        return
    if call.inside is not None:
        fuzz(TARGETS[call.target], call.inside, call.minutes)
        return
    import mlap

    rows: list[dict[str, Any]] = []
    command = f"python tests/faults/fuzz.py --minutes {call.minutes:g}"
    for name in call.target.split(","):
        row = {**campaign(name, call.minutes, call.findings), "command": command, "version": mlap.__version__}
        rows.append(row)
        print(*list(row.values())[:5], sep="\t", flush=True)
        if call.out is not None:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(row), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            call.out.write_text(text.getvalue(), encoding="utf-8")
    sys.exit(any(row["findings"] for row in rows))


if __name__ == "__main__":
    main()
