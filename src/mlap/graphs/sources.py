"""One loader for everything: from a name, a path or data in memory to a `GraphSet`.

What has been read from text files is kept as a packed set, so that it is read only once. The packed sets lie in the
folder `packed` of the data root; they can be removed at any time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import hashlib
import inspect
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mlap.errors import DataError, UsageError, unknown
from mlap.graphs import _trust, packed
from mlap.graphs._cells import frame_cells, is_frame, label_cells
from mlap.graphs._formats import STDIN
from mlap.graphs._formats import SUFFIXES as TABLE_SUFFIXES
from mlap.graphs._formats import is_table as is_table
from mlap.graphs.convert import from_networkx, from_pyg, holds
from mlap.graphs.dividing import Division, divide
from mlap.graphs.download import fetch_ogb, fetch_tu
from mlap.graphs.graph_set import GraphSet, LeftOut, Source
from mlap.graphs.ogb import OGB_SETS, ogb_chunks, ogb_name, ogb_splits
from mlap.graphs.places import data_root, user_folder
from mlap.graphs.progress import Progress
from mlap.graphs.splits import Split
from mlap.graphs.synthetic import synthetic
from mlap.graphs.tables import Table, read_table, table_of
from mlap.graphs.task import Task
from mlap.graphs.tu import read_tu, tu_name
from mlap.locking import locked

#: To be raised when a reader makes something else of the same files: packed sets of older readers are made anew.
READERS = 2

#: Options that do not change what is read.
_MANNER = ("processes",)

#: Options that divide a set into parts.
_DIVIDING = tuple(field.name for field in dataclasses.fields(Division))

#: name → graphs, where known
_SIZES = {
    "synthetic": 9000,
    "ogbg-molbace": 1513,
    "ogbg-molbbbp": 2039,
    "ogbg-molclintox": 1477,
    "ogbg-molmuv": 93_087,
    "ogbg-molpcba": 437_929,
    "ogbg-molsider": 1427,
    "ogbg-moltox21": 7831,
    "ogbg-moltoxcast": 8576,
    "ogbg-molhiv": 41_127,
    "ogbg-molesol": 1128,
    "ogbg-molfreesolv": 642,
    "ogbg-mollipo": 4200,
    "ogbg-ppa": 158_100,
    "MCF-7": 27_770,
    "NCI1": 4110,
}

#: Names of the TU collection; `SYNTHETIC`, since replaced by `SYNTHETICnew`, is left out: it is not the paper's set.
TU_NAMES = tuple(
    """
    AIDS BZR BZR_MD COX2 COX2_MD DHFR DHFR_MD ER_MD FRANKENSTEIN MCF-7 MCF-7H MOLT-4 MOLT-4H Mutagenicity MUTAG NCI1
    NCI109 NCI-H23 NCI-H23H OVCAR-8 OVCAR-8H P388 P388H PC-3 PC-3H PTC_FM PTC_FR PTC_MM PTC_MR SF-295 SF-295H SN12C
    SN12CH SW-620 SW-620H UACC257 UACC257H Yeast YeastH DD ENZYMES KKI OHSU Peking_1 PROTEINS PROTEINS_full COIL-DEL
    COIL-RAG Cuneiform Fingerprint FIRSTMM_DB Letter-high Letter-low Letter-med MSRC_9 MSRC_21 MSRC_21C COLLAB
    deezer_ego_nets github_stargazers IMDB-BINARY IMDB-MULTI REDDIT-BINARY REDDIT-MULTI-5K REDDIT-MULTI-12K
    reddit_threads twitch_egos TWITTER-Real-Graph-Partial COLORS-3 SYNTHETICnew Synthie TRIANGLES QM9
    alchemy_full ZINC_full ZINC_test ZINC_train ZINC_val
    """.split()  # noqa: SIM905
)


def load_graphs(
    source: Any,
    *,
    labels: Any = None,
    names: Sequence[str] | None = None,
    root: str | Path | None = None,
    cache: bool = True,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> GraphSet:
    """The graph set that a name, a path or data in memory stand for.

    Args:
        source: `synthetic`, the name of an OGB graph-property set or of a TU set; the path of a packed set, of a folder
            in OGB's or TU's layout, or of a table of SMILES (CSV, TSV, SMI, SDF, Parquet, Excel), or `-` for a
            table on standard input. What exists as a path is taken as one. A named set that is not in `root` is
            downloaded to it. Or data in memory: a data frame with a column of SMILES, a sequence of SMILES, of PyG
            `Data` or of networkx graphs, or a `GraphSet`.
        labels: those of a sequence of SMILES or networkx graphs: one for each, or a row of several, or a mapping or
            data frame of several columns.
        names: what to call the columns of `labels`.
        root: where data sets are kept; see `data_root`.
        cache: whether to keep what was read from files as a packed set, and to take it from there the next time. A set
            larger than memory needs this.
        progress: called as the work goes on.
        say: called with a sentence for the user at a time: what was guessed about a table, what was kept where.
        options: those of the reader: the options of `read_table` for tables, `split` for OGB folders, `split_seed` for
            TU folders, those of `synthetic` for the synthetic set; and for all of them those of `Division`.

    >>> load_graphs(["CCO", "CCN", "CCC", "CC=O"], labels=["yes", "no", "no", "no"]).task.labels
    (('no', 'yes'),)
    """
    say = say or (lambda sentence: None)
    if not isinstance(source, str | Path):
        return _in_memory(source, labels, names, progress, say, options)
    if labels is not None or names is not None:
        raise UsageError(
            "{field} belong to data in memory; a file names its columns of labels",
            "names" if labels is None else "labels",
        )
    named_root = root
    root = data_root() if root is None else Path(root)
    if str(source) == STDIN:
        _refuse_other_options("standard input is a table", options, _keywords(read_table))
        return _of_table(read_table(STDIN, progress=progress, **options), say)
    origin = Source(absolute_source(str(source)), _plain(options), absolute_root(named_root))
    graphs, division = _from_files(source, options, root, cache, progress, say)
    if division is not None:
        splits = divide(graphs, division, processes=options.get("processes"), progress=progress)
        graphs = dataclasses.replace(graphs, splits=splits)
    return _with_source(graphs, origin)


def _from_files(
    source: str | Path,
    options: dict[str, Any],
    root: Path,
    cache: bool,
    progress: Progress | None,
    say: Callable[[str], None],
) -> tuple[GraphSet, Division | None]:
    """The set that a name or a path stands for, and how it is still to be divided if not as it is."""
    if str(source) == "synthetic":
        _refuse_other_options("synthetic", options, (*_keywords(synthetic), *_DIVIDING))
        rest, division = _take_division(options)
        return synthetic(**{key: value for key, value in rest.items() if key not in _MANNER}), division
    path = _find(source, root, progress)
    if packed.is_packed(path):
        _refuse_other_options(f"{path} is a packed set", options, _DIVIDING)
        return packed.load(path), _take_division(options)[1]
    reader, division = _reader(path, options, progress)
    return (_cached(reader, root, say) if cache else reader.read(say)), division


def _take_division(options: dict[str, Any], own: Sequence[str] = ()) -> tuple[dict[str, Any], Division | None]:
    """The options of a reader, and the division that the others make: `None` if they say no more than its own do."""
    given = {key: value for key, value in options.items() if key in _DIVIDING and value is not None}
    rest = {key: value for key, value in options.items() if key not in _DIVIDING}
    if given.keys() <= set(own):
        return rest | given, None
    return rest, Division(**given)


def _with_source(graphs: GraphSet, origin: Source) -> GraphSet:
    found = dataclasses.replace(graphs, source=origin)
    if "fingerprint" in graphs.__dict__:  # a packed set knows its own, which takes long to compute for a large one
        found.__dict__["fingerprint"] = graphs.fingerprint
    return found


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    """Options as JSON holds them, so that they can be given again later and from another folder."""

    def plain(value: Any) -> Any:
        if isinstance(value, Task):
            return value.as_dict()
        if isinstance(value, tuple | list):
            return [plain(entry) for entry in value]
        return value

    kept = {key: plain(value) for key, value in options.items() if key not in _MANNER and value is not None}
    if "splits_file" in kept:
        kept["splits_file"] = str(Path(kept["splits_file"]).expanduser().absolute())
    return kept


# ---- data in memory --------------------------------------------------------------------------------------------------


def _in_memory(
    source: Any,
    labels: Any,
    names: Sequence[str] | None,
    progress: Progress | None,
    say: Callable[[str], None],
    options: dict[str, Any],
) -> GraphSet:
    """The set of data that the caller holds."""
    rest, division = _take_division(options)
    if isinstance(source, GraphSet):
        _refuse_other_options("this is a graph set", rest, ())
        graphs = source
    elif is_frame(source) or holds(source, str):
        frame = is_frame(source)
        if frame and labels is not None:
            raise UsageError("name the columns of labels by {field} instead", field="targets")
        cells = frame_cells(source) if frame else label_cells(source, labels, names)
        _refuse_other_options("this is a table", rest, _keywords(table_of))
        if not frame:
            rest.setdefault("smiles", "smiles")
            rest.setdefault("targets", tuple(name for name in cells.columns if name != "smiles"))
        return _of_table(table_of(cells, "molecules", division or Division(), progress=progress, **rest), say)
    else:
        _refuse_other_options("these are graphs", rest, ("task",))
        graphs = graphs_of(source, labels, task=rest.get("task"))
        division = division or (None if graphs.task is None else Division())
    if division is None:
        return graphs
    return dataclasses.replace(graphs, splits=divide(graphs, division, progress=progress))


def _of_table(table: Table, say: Callable[[str], None]) -> GraphSet:
    for note in table.notes:
        say(note)
    return table.graphs


def graphs_of(source: Any, labels: Any = None, task: Task | None = None) -> GraphSet:
    """The set of PyG `Data` or networkx graphs, one or several; the latter with all numeric attributes they have."""
    several = [source] if hasattr(source, "edge_index") or hasattr(source, "nodes") else list(source)
    if several and all(hasattr(graph, "nodes") and hasattr(graph, "edges") for graph in several):
        nodes: dict[str, Any] = next((values for graph in several for _, values in graph.nodes(data=True)), {})
        edges: dict[str, Any] = next((values for graph in several for *_, values in graph.edges(data=True)), {})
        return from_networkx(several, labels, node_attrs=tuple(nodes), edge_attrs=tuple(edges), task=task)
    if labels is not None:
        raise UsageError("{field} of PyG graphs are in their y", field="labels")
    return from_pyg(several, task=task)


# ---- what a name or a path stands for ----------------------------------------------------------------------------


def _exists(path: Path) -> bool:
    """Whether there is such a file or folder; a text that cannot even be a path, such as a long SMILES, is none."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _find(source: str | Path, root: Path, progress: Progress | None) -> Path:
    """The file or folder to read, fetched if it is an official set that is not there."""
    path = _expanded(source)
    if _exists(path):
        return path
    name = str(source)
    if isinstance(source, Path) or len(path.parts) > 1 or name.lower().endswith((*TABLE_SUFFIXES, packed.SUFFIX)):
        raise UsageError(f"there is no file or folder {_short(path)}", field="source")
    if official := ogb_name(name):
        return fetch_ogb(official, root, progress=progress)
    if _exists(root / name):
        return root / name
    tu_names = {known.lower(): known for known in TU_NAMES}
    if name.lower() in tu_names:
        return fetch_tu(tu_names[name.lower()], root, progress=progress)
    raise _unknown_name(name, root)


def _short(text: object) -> str:
    """What was typed, cut where it goes on for lines."""
    return str(text) if len(str(text)) <= 200 else str(text)[:199] + "…"


def _expanded(source: str | Path) -> Path:
    try:
        return Path(source).expanduser()
    except (RuntimeError, ValueError):  # ~name of nobody
        return Path(source)


def _unknown_name(name: str, root: Path) -> UsageError:
    everything = {known.lower(): known for known in ("synthetic", *OGB_SETS, *TU_NAMES)}
    near = [everything[match] for match in difflib.get_close_matches(name.lower(), everything, n=3, cutoff=0.5)]
    known = dict.fromkeys(("synthetic", "ogbg-molhiv", "ogbg-ppa", "MCF-7", *near))
    return UsageError(
        f"{unknown('data set', _short(name), known).message}, the other ogbg-mol… and TU sets, folders in {root}, "
        "and paths of a packed set, an OGB folder, a TU folder or a table of SMILES",
        field="source",
    )


def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's optional arguments."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(each.name for each in parameters if each.default is not inspect.Parameter.empty)


def _refuse_other_options(what: str, options: Iterable[str], known: Iterable[str]) -> None:
    known = tuple(known)
    for name in options:
        if name not in known and name not in _MANNER:
            raise UsageError(f"{what}, which takes no {{field}}", field=name)


class _Reading(NamedTuple):
    """What a reader starts: consecutive pieces of the set, its splits, what was guessed, and what was left out."""

    pieces: Iterator[GraphSet]
    splits: Split
    notes: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class _Reader:
    """Something on disk that can be read.

    Args:
        kind: what it is, for the cache: the same path may come to hold something else.
        path: where it is.
        files: the files that are read.
        options: those that change what is read.
        open: starts reading.
    """

    kind: str
    path: Path
    files: tuple[Path, ...]
    options: dict[str, Any]
    open: Callable[[], _Reading]

    def read(self, say: Callable[[str], None]) -> GraphSet:
        """The set, in memory."""
        reading = self.open()
        for note in reading.notes:
            say(note)
        return dataclasses.replace(GraphSet.concatenate(list(reading.pieces)), splits=reading.splits)

    def pack(self, target: Path, say: Callable[[str], None]) -> None:
        """Pack the set piece by piece, in memory that does not grow with its size."""
        reading = self.open()
        for note in reading.notes:
            say(note)
        with packed.Writer(target) as writer:
            for piece in reading.pieces:
                writer.append(piece)
            writer.splits, writer.notes, writer.left_out = reading.splits, reading.notes, reading.left_out


def _reader(path: Path, options: dict[str, Any], progress: Progress | None) -> tuple[_Reader, Division | None]:
    """How to read a file or folder, judged by its name and its files; and how to divide it if not as it is."""
    if path.is_file() and is_table(path):
        _refuse_other_options(f"{path} is a table", options, _keywords(read_table))

        def read_molecules() -> _Reading:
            table = read_table(path, progress=progress, **options)
            return _Reading(iter([table.graphs]), table.graphs.splits, table.notes, table.graphs.left_out)

        files = [path, *([Path(options["splits_file"])] if options.get("splits_file") else [])]
        return _Reader("table", path, tuple(files), _content(options), read_molecules), None
    raw = path / "raw"
    if (raw / "num-node-list.csv.gz").exists() or (raw / "edge.csv.gz").exists():
        _refuse_other_options(f"{path} is a folder in OGB's layout", options, _DIVIDING)
        official = options.get("split") if (path / "split" / str(options.get("split"))).is_dir() else None
        rest, division = ({"split": official}, None) if official else _take_division(options)
        files = [file for part in ("raw", "split", "mapping") for file in (path / part).rglob("*") if file.is_file()]

        def read_pieces() -> _Reading:
            return _Reading(_counted(ogb_chunks(path), path, progress), ogb_splits(path, rest.get("split")))

        return _Reader("ogb", path, tuple(files), _content(rest), read_pieces), division
    if name := tu_name(path):
        _refuse_other_options(f"{path} is a folder in TU's layout", options, _DIVIDING)
        rest, division = _take_division(options, own=("split_seed",))
        files = [file for place in (path, raw) for file in place.glob(f"{name}_*.txt")]

        def read_all() -> _Reading:
            graphs = read_tu(path, name, **_content(rest))
            return _Reading(iter([graphs]), graphs.splits)

        return _Reader("tu", path, tuple(files), _content(rest), read_all), division
    raise UsageError(
        f"{path} is not a data set: expected a packed set (with header.json), a folder in OGB's layout (raw/*.csv.gz), "
        f"a folder with the files of one TU set (NAME_A.txt, …) or a table ({', '.join(TABLE_SUFFIXES)})",
        field="source",
    )


def _content(options: dict[str, Any]) -> dict[str, Any]:
    """The options that change what is read."""
    return {key: value for key, value in options.items() if key not in _MANNER and value is not None}


def _counted(pieces: Iterator[GraphSet], path: Path, progress: Progress | None) -> Iterator[GraphSet]:
    """The pieces, counted as they come."""
    total, done = _SIZES.get(ogb_name(path.name) or ""), 0
    for piece in pieces:
        yield piece
        done += len(piece)
        if progress is not None:
            progress(f"reading {path.name}", done, total)


# ---- the packed sets -------------------------------------------------------------------------------------------------


def _cached(reader: _Reader, root: Path, say: Callable[[str], None]) -> GraphSet:
    """The set from its packed form; one process makes that first, where it is missing, out of date or damaged."""
    folder = _cache_folder(root)
    if folder is None:
        say(f"{reader.path} is not kept as a packed set: neither {root} nor the user's cache folder can be written")
        return reader.read(say)
    identity = _hash([reader.kind, str(reader.path.resolve()), _plain(reader.options)])
    state = _hash(
        [
            READERS,
            packed.VERSION,
            [(f, f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(_resolved(reader.files))],
        ]
    )
    stem = f"{re.sub(r'[^A-Za-z0-9.-]+', '_', reader.path.name)}-{identity}-"
    target = folder / f"{stem}{state}{packed.SUFFIX}"
    with contextlib.suppress(DataError):
        return _kept(target, say)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # on a file system without locks, do without
            stack.enter_context(locked(target.with_name(f"{target.name}.lock")))
        again = False
        if target.exists():
            try:
                return _kept(target, say)  # another process has made it in the meantime
            except DataError as error:
                say(f"reading {reader.path} again: {error}")
                again = True
                shutil.rmtree(target, ignore_errors=True)
        for stale in folder.glob(f"{stem}*{packed.SUFFIX}"):
            if stale != target:
                say(f"reading {reader.path} again: it, or the way it is read, has changed")
                again = True
                shutil.rmtree(stale, ignore_errors=True)
        reader.pack(target, say)
        if not again:  # where the packed sets lie is said once for each
            say(f"a packed copy of {reader.path.name}, which loads faster, is kept in {folder}")
        return packed.load(target)


def _kept(target: Path, say: Callable[[str], None]) -> GraphSet:
    """A packed set that was made before; what was guessed then is said again."""
    graph_set = packed.load(target)
    for note in packed.notes(target):
        say(note)
    return graph_set


def _cache_folder(root: Path) -> Path | None:
    """Where packed sets are kept: in the data root, or in the user's cache if that cannot be written."""
    for place in (root, user_folder()):
        folder = place / "packed"
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        # A folder that is marked read-only is left alone, even by a user who may write everywhere.
        if existing.stat().st_mode & 0o222 and os.access(existing, os.W_OK):
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                return folder
    return None


def _resolved(files: Iterable[Path]) -> list[Path]:
    """The files by the paths that do not depend on the current folder."""
    return [file.resolve() for file in files]


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()[:12]


def clean_cache(root: str | Path | None = None) -> tuple[int, int]:
    """Remove the packed sets that were kept, in the data root and in the user's cache: how many, and their bytes.

    What was remembered about packed sets elsewhere is forgotten as well: they are checked again when they are loaded.
    """
    _trust.forget_all()
    places = {(data_root() if root is None else Path(root)) / "packed", user_folder() / "packed"}
    kept = [entry for place in places if place.is_dir() for entry in place.glob(f"*{packed.SUFFIX}")]
    removed = [entry for entry in kept if packed.is_packed(entry)]
    size = sum(file.stat().st_size for entry in removed for file in entry.iterdir())
    for entry in removed:
        shutil.rmtree(entry, ignore_errors=True)
    return len(removed), size


# ---- what there is ---------------------------------------------------------------------------------------------------


class KnownDataset(NamedTuple):
    """A data set that can be called by its name."""

    name: str
    kind: str
    graphs: int | None
    where: str


def known_datasets(root: str | Path | None = None) -> list[KnownDataset]:
    """The data sets that have names, and where they are; of the TU sets those of the paper and those in `root`."""
    root = data_root() if root is None else Path(root)
    known = [KnownDataset("synthetic", "the paper's synthetic set", _SIZES["synthetic"], "made when needed")]
    for name in sorted(OGB_SETS, key=lambda name: (name not in ("ogbg-molhiv", "ogbg-ppa"), name)):
        folder = root / name.replace("-", "_")
        where = str(folder) if (folder / "raw").is_dir() else "to be downloaded"
        known.append(KnownDataset(name, "OGB", _SIZES.get(name), where))
    folders = [folder for folder in sorted(root.iterdir()) if folder.is_dir()] if root.is_dir() else []
    here = {folder.name: folder for folder in folders if tu_name(folder) == folder.name}
    for name in dict.fromkeys(("MCF-7", "NCI1", *here)):
        known.append(KnownDataset(name, "TU", _SIZES.get(name), str(here.get(name, "to be downloaded"))))
    return known


def is_source(text: str, root: str | Path | None = None) -> bool:
    """Whether a text stands for a data set: an existing path, a table's or packed set's name, or a known name."""
    root = data_root() if root is None else Path(root)
    named = text == "synthetic" or ogb_name(text) is not None or text.lower() in {name.lower() for name in TU_NAMES}
    return named or is_table(text) or text.endswith(packed.SUFFIX) or _exists(_expanded(text)) or _exists(root / text)


def absolute_source(source: str) -> str:
    """A source as a later command, or another process, finds it from another folder: a name, or a whole path."""
    path = _expanded(source)
    return str(path.resolve()) if source != "synthetic" and _exists(path) else source


def absolute_root(root: str | Path | None) -> str | None:
    """A data root as a later command, or another process, finds it from another folder; `None` for the default."""
    return None if root is None else str(Path(root).absolute())
