"""One loader for everything: from a DATASET argument, a name or a path, to a `GraphSet`.

What has been read from text is kept as a packed set, so that it is read only once. The packed sets lie in the folder
`packed` of the data root; they can be removed at any time.
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
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mlap.errors import DataError, UsageError, unknown
from mlap.graphs import packed
from mlap.graphs._cells import SUFFIXES as TABLE_SUFFIXES
from mlap.graphs.download import fetch_ogb, fetch_tu
from mlap.graphs.graph_set import GraphSet
from mlap.graphs.ogb import OGB_SETS, ogb_chunks, ogb_name, ogb_splits
from mlap.graphs.splits import Split
from mlap.graphs.synthetic import synthetic
from mlap.graphs.tables import read_table
from mlap.graphs.tu import read_tu, tu_name
from mlap.locking import locked

#: To be raised when a reader makes something else of the same files: packed sets of older readers are made anew.
READERS = 1

#: Options that do not change what is read.
_MANNER = ("processes", "progress")

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


def data_root() -> Path:
    """Where data sets are kept unless the caller says otherwise: `$MLAP_DATA`, or a folder of the user's cache."""
    if chosen := os.environ.get("MLAP_DATA"):
        return Path(chosen).expanduser()
    return _user_cache() / "mlap"


def _user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def load_graphs(
    source: str | Path,
    *,
    root: str | Path | None = None,
    cache: bool = True,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> GraphSet:
    """The graph set that a name or a path stands for.

    Args:
        source: `synthetic`, the name of an OGB graph-property set or of a TU set; or the path of a packed set, of a
            folder in OGB's or TU's layout, or of a table (CSV, TSV, Parquet) of SMILES. What exists as a path is
            taken as one. A named set that is not in `root` is downloaded to it.
        root: where data sets are kept; see `data_root`.
        cache: whether to keep what was read as a packed set, and to take it from there the next time. A set larger
            than memory needs this.
        progress: whether to show a progress bar (on stderr, only on a terminal).
        say: called with a sentence for the user at a time: what was guessed about a table, what has to be read anew.
        options: those of the reader: `split` for OGB folders, `split_seed` for TU folders, the options of `read_table`
            for tables and those of `synthetic` for the synthetic set.
    """
    root = data_root() if root is None else Path(root)
    say = say or (lambda sentence: None)
    if str(source) == "synthetic":
        _refuse_other_options("synthetic", options, _keywords(synthetic))
        return synthetic(**options)
    path = _find(source, root, progress)
    if packed.is_packed(path):
        _refuse_other_options(f"{path} is a packed set", options, ())
        return packed.load(path)
    reader = _reader(path, options, progress)
    return _cached(reader, root, say) if cache else reader.read(say)


# ---- what a name or a path stands for ----------------------------------------------------------------------------


def _find(source: str | Path, root: Path, progress: bool) -> Path:
    """The file or folder to read, fetched if it is an official set that is not there."""
    path = Path(source).expanduser()
    if path.exists():
        return path
    name = str(source)
    if isinstance(source, Path) or len(path.parts) > 1 or name.lower().endswith((*TABLE_SUFFIXES, packed.SUFFIX)):
        raise UsageError(f"there is no file or folder {path}")
    if official := ogb_name(name):
        return fetch_ogb(official, root, progress=progress)
    if (root / name).exists():
        return root / name
    tu_names = {known.lower(): known for known in TU_NAMES}
    if name.lower() in tu_names:
        return fetch_tu(tu_names[name.lower()], root, progress=progress)
    raise _unknown_name(name, root)


def _unknown_name(name: str, root: Path) -> UsageError:
    everything = {known.lower(): known for known in ("synthetic", *OGB_SETS, *TU_NAMES)}
    near = [everything[match] for match in difflib.get_close_matches(name.lower(), everything, n=3, cutoff=0.5)]
    known = dict.fromkeys(("synthetic", "ogbg-molhiv", "ogbg-ppa", "MCF-7", *near))
    return UsageError(
        f"{unknown('data set', name, known)}, every other ogbg-mol… and TU set (`mlap data list`), folders in {root} "
        "(--data-root names another), and paths of a packed set, an OGB folder, a TU folder or a table of SMILES"
    )


def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's optional arguments."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(each.name for each in parameters if each.default is not inspect.Parameter.empty)


def _refuse_other_options(what: str, options: Iterable[str], known: Iterable[str]) -> None:
    known = [name for name in known if name not in _MANNER]
    for name in options:
        if name not in known and name not in _MANNER:
            raise UsageError(f"{what}, which takes no option {name!r}; it takes {', '.join(known) or 'none'}")


@dataclass(frozen=True)
class _Reader:
    """Something on disk that can be read.

    Args:
        kind: what it is, for the cache: the same path may come to hold something else.
        path: where it is.
        files: the files that are read.
        options: those that change what is read.
        open: starts reading: consecutive pieces of the set, its splits, and what was guessed.
    """

    kind: str
    path: Path
    files: tuple[Path, ...]
    options: dict[str, Any]
    open: Callable[[], tuple[Iterator[GraphSet], Split, tuple[str, ...]]]

    def read(self, say: Callable[[str], None]) -> GraphSet:
        """The set, in memory."""
        pieces, splits, notes = self.open()
        for note in notes:
            say(note)
        return dataclasses.replace(GraphSet.concatenate(list(pieces)), splits=splits)

    def pack(self, target: Path, say: Callable[[str], None]) -> None:
        """Pack the set piece by piece, in memory that does not grow with its size."""
        pieces, splits, notes = self.open()
        for note in notes:
            say(note)
        with packed.Writer(target) as writer:
            for piece in pieces:
                writer.append(piece)
            writer.splits, writer.notes = splits, notes


def _reader(path: Path, options: dict[str, Any], progress: bool) -> _Reader:
    """How to read a file or folder, judged by its name and its files."""
    content = {key: value for key, value in options.items() if key not in _MANNER}
    if path.is_file() and path.name.lower().endswith(TABLE_SUFFIXES):
        _refuse_other_options(f"{path} is a table", options, _keywords(read_table))

        def read_molecules() -> tuple[Iterator[GraphSet], Split, tuple[str, ...]]:
            table = read_table(path, **{"progress": progress, **options})
            return iter([table.graphs]), table.graphs.splits, table.notes

        return _Reader("table", path, (path,), content, read_molecules)
    raw = path / "raw"
    if (raw / "num-node-list.csv.gz").exists() or (raw / "edge.csv.gz").exists():
        _refuse_other_options(f"{path} is a folder in OGB's layout", options, ("split",))
        files = [file for part in ("raw", "split", "mapping") for file in (path / part).rglob("*") if file.is_file()]

        def read_pieces() -> tuple[Iterator[GraphSet], Split, tuple[str, ...]]:
            splits = ogb_splits(path, options.get("split"))
            return _counted(ogb_chunks(path), path, progress), splits, ()

        return _Reader("ogb", path, tuple(files), content, read_pieces)
    if name := tu_name(path):
        _refuse_other_options(f"{path} is a folder in TU's layout", options, ("split_seed",))
        files = [file for place in (path, raw) for file in place.glob(f"{name}_*.txt")]

        def read_all() -> tuple[Iterator[GraphSet], Split, tuple[str, ...]]:
            graphs = read_tu(path, name, **content)
            return iter([graphs]), graphs.splits, ()

        return _Reader("tu", path, tuple(files), content, read_all)
    raise UsageError(
        f"{path} is not a data set: expected a packed set (with header.json), a folder in OGB's layout (raw/*.csv.gz), "
        f"a folder with the files of one TU set (NAME_A.txt, …) or a table ({', '.join(TABLE_SUFFIXES)})"
    )


def _counted(pieces: Iterator[GraphSet], path: Path, progress: bool) -> Iterator[GraphSet]:
    """The pieces, with a progress bar."""
    if not (progress and sys.stderr.isatty()):
        yield from pieces
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("reading {task.description}:"), MofNCompleteColumn(), TextColumn("graphs")
    total = _SIZES.get(ogb_name(path.name) or "")
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(path.name, total=total)
        for piece in pieces:
            yield piece
            bar.advance(task, len(piece))


# ---- the packed sets -------------------------------------------------------------------------------------------------


def _cached(reader: _Reader, root: Path, say: Callable[[str], None]) -> GraphSet:
    """The set from its packed form; one process makes that first, where it is missing, out of date or damaged."""
    folder = _cache_folder(root)
    if folder is None:
        say(f"{reader.path} is not kept as a packed set: neither {root} nor the user's cache folder can be written")
        return reader.read(say)
    identity = _hash([reader.kind, str(reader.path.resolve()), reader.options])
    state = _hash(
        [READERS, packed.VERSION, [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(reader.files)]]
    )
    stem = f"{re.sub(r'[^A-Za-z0-9.-]+', '_', reader.path.name)}-{identity}-"
    target = folder / f"{stem}{state}{packed.SUFFIX}"
    with contextlib.suppress(DataError):
        return _kept(target, say)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # on a file system without locks, do without
            stack.enter_context(locked(target.with_name(f"{target.name}.lock")))
        if target.exists():
            try:
                return _kept(target, say)  # another process has made it in the meantime
            except DataError as error:
                say(f"reading {reader.path} again: {error}")
                shutil.rmtree(target, ignore_errors=True)
        for stale in folder.glob(f"{stem}*{packed.SUFFIX}"):
            if stale != target:
                say(f"reading {reader.path} again: it has changed")
                shutil.rmtree(stale, ignore_errors=True)
        reader.pack(target, say)
        return packed.load(target)


def _kept(target: Path, say: Callable[[str], None]) -> GraphSet:
    """A packed set that was made before; what was guessed then is said again."""
    graph_set = packed.load(target)
    for note in packed.notes(target):
        say(note)
    return graph_set


def _cache_folder(root: Path) -> Path | None:
    """Where packed sets are kept: in the data root, or in the user's cache if that cannot be written."""
    for place in (root, _user_cache() / "mlap"):
        folder = place / "packed"
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        # A folder that is marked read-only is left alone, even by a user who may write everywhere.
        if existing.stat().st_mode & 0o222 and os.access(existing, os.W_OK):
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                return folder
    return None


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()[:12]


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


def is_table(source: str | Path) -> bool:
    """Whether a source is a table, judged by its name."""
    return str(source).lower().endswith(TABLE_SUFFIXES)


def is_source(text: str, root: str | Path | None = None) -> bool:
    """Whether a text stands for a data set: an existing path, a table's or packed set's name, or a known name."""
    root = data_root() if root is None else Path(root)
    named = text == "synthetic" or ogb_name(text) is not None or text.lower() in {name.lower() for name in TU_NAMES}
    return named or is_table(text) or text.endswith(packed.SUFFIX) or Path(text).exists() or (root / text).exists()


def absolute_source(source: str) -> str:
    """A source as a later command, or another process, finds it from another folder: a name, or a whole path."""
    path = Path(source).expanduser()
    return str(path.resolve()) if source != "synthetic" and path.exists() else source


def absolute_root(root: str | Path | None) -> str | None:
    """A data root as a later command, or another process, finds it from another folder; `None` for the default."""
    return None if root is None else str(Path(root).absolute())
