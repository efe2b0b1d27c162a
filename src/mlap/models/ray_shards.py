"""Shards predicted on a Ray cluster: any machine of it may predict any shard, and this process writes them all.

A machine needs neither the model's directory nor the table: it gets both from here. A shard whose machine is lost is
predicted on another one, by Ray itself.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from mlap.errors import MlapError
from mlap.graphs.inputs import Cells, of_cells
from mlap.machines import connect, import_ray, in_reach, last_line
from mlap.models.model import Model
from mlap.models.shards import Engine, Shard, model_files, predict_piece, shard_of
from mlap.provenance import source_digest

#: how often Ray begins a shard again whose machine or process is lost: after that, the shard itself is to blame
RETRIES = 5


def ray_engine(
    model: Path,
    address: str = "auto",
    *,
    name: str = "molecules",
    extra_columns: bool = True,
    confidence: float | None = None,
) -> Engine:
    """An engine for `mlap.models.shards.predict_shards`.

    Args:
        model: the model's directory.
        address: `auto` for the cluster that runs on this machine or that `RAY_ADDRESS` names, `ray://HOST:PORT` or
            `HOST:PORT` for one elsewhere, `local` to start one on this machine. A process that is connected to a
            cluster uses that one.
        name: what to call the table.
        extra_columns: whether to keep the input's own columns.
        confidence: see `predict_shards`.
    """

    def shards(pieces: Iterator[tuple[Cells, str]], rows: int) -> Iterator[Shard]:
        ray = import_ray()
        connected_here = connect(ray, address)
        try:
            yield from _shards(ray, pieces, rows)
        finally:
            if connected_here:
                ray.shutdown()

    def _shards(ray: Any, pieces: Iterator[tuple[Cells, str]], rows: int) -> Iterator[Shard]:
        files = {path.relative_to(model).as_posix(): path.read_bytes() for path in model_files(model)}
        with in_reach():
            sent = ray.put(files)
        task = ray.remote(_predict).options(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")
        open_: list[Any] = []
        more = True
        while open_ or more:
            # One shard for each processor to work on, and one to begin with when that is done.
            while more and len(open_) < 2 * _processors(ray):
                piece = next(pieces, None)
                if piece is None:
                    more = False
                else:
                    with in_reach():
                        open_.append(task.remote(sent, *piece, name, rows, extra_columns, confidence, source_digest()))
            if open_:
                with in_reach():
                    (done, *_), open_ = ray.wait(open_)
                    yield _result(ray, done)

    return shards


def _processors(ray: Any) -> int:
    with in_reach():
        return max(1, int(ray.cluster_resources().get("CPU", 1)))


def _result(ray: Any, reference: Any) -> Shard:
    try:
        shard: Shard = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise cause if isinstance(cause, MlapError) else MlapError(f"a shard failed: {last_line(error)}") from error
    except ray.exceptions.RayError as error:
        raise MlapError(
            f"a shard was lost {RETRIES + 1} times ({last_line(error)}); run the same command to continue"
        ) from error
    return shard


def _predict(
    files: dict[str, bytes],
    cells: Cells,
    smiles: str,
    name: str,
    rows: int,
    extra_columns: bool,
    confidence: float | None,
    source: str,
) -> Shard:
    """What a machine of the cluster does."""
    if source != source_digest():
        raise MlapError(f"this process has the sources {source} of mlap, but a node of the cluster {source_digest()}")
    import torch

    torch.set_num_threads(1)  # a task has one processor
    model = _model(tuple(files.items()))
    molecules, descriptors = model.reads_molecules, model.reads_descriptors
    inputs = of_cells(cells, smiles, name, molecules=molecules, descriptors=descriptors, processes=1)
    return shard_of(cells.first, rows, predict_piece(model, inputs, confidence), extra_columns)


@lru_cache(maxsize=1)
def _model(files: tuple[tuple[str, bytes], ...]) -> Model:
    """The model of the given files; a process of Ray's keeps it from one shard to the next."""
    from mlap.models import load

    with tempfile.TemporaryDirectory() as folder:
        for name, content in files:
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return load(folder)
