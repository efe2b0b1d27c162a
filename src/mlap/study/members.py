"""Ensembles of networks that differ in their seeds, and of simple models: a small study that answers as one model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlap.errors import MlapError, UsageError
from mlap.graphs import GraphSet, load_graphs
from mlap.machines import usable_cores
from mlap.models import Ensemble, Model, Run, load, train
from mlap.models.baseline import train_baseline
from mlap.models.folders import ENSEMBLE, holds_model, remove_model
from mlap.study.driver import sweep
from mlap.study.engine import EpochDone
from mlap.study.local_engine import LocalEngine
from mlap.study.plan import Plan
from mlap.study.run_folders import RunFolders
from mlap.study.settings import SweepSettings
from mlap.study.store import run_hash
from mlap.training import Recipe, recipe_for
from mlap.training.presets import MEMBERS, baselines_for, preset_of

#: the study of an ensemble that is not finished, in its folder
WORK = "training.db"


def train_ensemble(
    data: Any,
    recipe: Recipe | None = None,
    *,
    preset: str | None = None,
    members: int = MEMBERS,
    baselines: Sequence[str] | None = None,
    labels: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    weights: str | None = None,
    method: str = "temperature",
    workers: int | None = None,
    device: str = "cpu",
    on_epoch: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Ensemble:
    """Train the same network from several seeds, put the networks and some simple models together, and calibrate.

    Without further arguments this is the model that we recommend for data of one's own.

    The members are trained at the same time, one for each core, and each as if it were alone. It may be stopped at any
    moment: with `resume` it continues after the last finished epoch of each member. Graphs in memory, which no other
    process can read, are trained on one member after the other.

    Args:
        data: what `mlap.train` takes.
        recipe: how to train; its seed is that of the first member, the others have the following ones. The recipe of
            the preset unless given.
        preset: `recommended`, `quick` or `paper`; unless given, the paper's recipe for the paper's data sets, and the
            recommended one for others.
        members: how many networks.
        baselines: simple models that join them, of `mlap.names.BASELINES`; unless given, those of the recommended
            model with its recipe, and none with another.
        labels: the labels, where `data` are SMILES.
        out: the directory of the ensemble; nothing is kept without one.
        resume: continue in `out`; a finished ensemble is read.
        overwrite: replace the model in `out`.
        weights: `equal` or `fitted`; unless given, fitted where there are baselines. See `Ensemble.of`.
        method: how to calibrate; see `Model.calibrate`.
        workers: how many members are trained at once; as many as there are cores unless given.
        device: a torch device.
        on_epoch: called after every epoch with the number of epochs done and in all.
        settings: fields of the recipe to change.
    """
    if members < 1:
        raise UsageError(f"{{field}} must be at least 1, got {members}", "members")
    graphs = data if isinstance(data, GraphSet) else load_graphs(data, **({} if labels is None else {"labels": labels}))
    if graphs.task is None:
        raise UsageError(f"{graphs.name} has no labels to train on", "labels")
    if baselines is None:
        ours = recipe is None and (preset or preset_of(graphs)) == "recommended"
        baselines = baselines_for(graphs) if ours else ()
    weights = weights or ("fitted" if baselines else "equal")
    recipe = recipe_for(graphs, preset, **settings) if recipe is None else recipe.replace(**settings)
    recipes = [recipe.replace(seed=recipe.seed + number) for number in range(members)]
    path = None if out is None else Path(out)
    if path is not None and (path / ENSEMBLE).exists() and resume and not overwrite:
        return _finished(path, recipes, baselines, graphs)
    with _folder(path, resume, overwrite) as folder:
        tell = _counted(on_epoch, members * recipe.epochs)
        if graphs.source is None:
            runs = [
                train(
                    graphs,
                    each,
                    out=folder / f"{WORK}.runs" / str(each.seed),
                    resume=True,
                    device=device,
                    on_epoch=tell,
                )
                for each in recipes
            ]
        else:
            runs = _train_apart(recipes, graphs, folder / WORK, workers, device, tell)
        models: list[Model] = [*runs]
        for name in baselines:
            place = folder / f"{WORK}.runs" / name
            models.append(train_baseline(name, graphs, place, seed=recipe.seed, resume=True, n_jobs=usable_cores()))
        ensemble = Ensemble.of(models, weights=weights, method=method, data=graphs, part="valid")
        if path is None:
            for model in models:
                model.path = None  # their folders go away
            return ensemble
        for leftover in path.glob("member-*"):  # of a process that was killed while it wrote them
            shutil.rmtree(leftover)
        if ensemble.calibrated is not None:
            ensemble.calibrated.write(path)
        ensemble.write(path)
        _clean(path)
    return _read(path)


def _train_apart(
    recipes: list[Recipe], graphs: GraphSet, study: Path, workers: int | None, device: str, tell: Callable[[Any], None]
) -> list[Run]:
    """Train in processes of their own, each of which reads the data again."""
    assert graphs.source is not None
    source = graphs.source
    fields = {**recipes[0].as_dict(), "seed": [recipe.seed for recipe in recipes]}
    settings = SweepSettings(
        source.source, study, source.options, source.root, device, retry_failed=True, keep_models=True
    )
    engine = LocalEngine(workers or (None if device == "cpu" else 1))
    outcome = sweep(
        Plan.of(graphs.name, **fields),
        settings,
        engine=engine,
        graphs=graphs,
        on_event=lambda event: tell(event) if isinstance(event, EpochDone) else None,
    )
    for run in outcome.failures:
        raise MlapError(f"the member with seed {run.seed} failed: {run.error}")
    folders = RunFolders(study, keep_models=True)
    runs = [load(folders.of(run_hash(recipe, graphs.fingerprint))) for recipe in recipes]
    return [run for run in runs if isinstance(run, Run)]


def _counted(on_epoch: Callable[[int, int], None] | None, total: int) -> Callable[[Any], None]:
    """Count epochs, whatever tells of them."""
    done = 0

    def tell(epoch: Any) -> None:
        nonlocal done
        done += 1
        if on_epoch is not None:
            on_epoch(done, total)

    return tell


def _finished(path: Path, recipes: list[Recipe], baselines: Sequence[str], graphs: GraphSet) -> Ensemble:
    """The ensemble that is there, if it is the one that was asked for."""
    found = _read(path)
    _clean(path)  # it may have been stopped while it did
    there = [member.recipe if isinstance(member, Run) else member.name for member in found.members]
    if there != [*recipes, *baselines] or not found.trained_on(graphs):
        raise UsageError(
            f"{path} holds another ensemble: its members have other recipes or other data; replace it, or choose "
            "another folder",
            "overwrite",
            True,
        )
    return found


def _read(path: Path) -> Ensemble:
    found = load(path)
    assert isinstance(found, Ensemble)
    return found


@contextmanager
def _folder(path: Path | None, resume: bool, overwrite: bool) -> Iterator[Path]:
    """Where members are trained: the ensemble's folder, or one that goes away."""
    if path is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, where {{field}} should be a folder", "out")
    if overwrite:
        _clean(path)
        remove_model(path)
    unfinished = (path / WORK).exists() or (path / f"{WORK}.runs").exists()
    if holds_model(path) or (unfinished and not resume):
        raise UsageError(
            f"{path} already holds a model; continue it, replace it, or choose another folder", "resume", True
        )
    if path.is_dir() and not unfinished and any(path.iterdir()):
        raise UsageError(f"{path} is neither empty nor a model; choose another folder for {{field}}", "out")
    path.mkdir(parents=True, exist_ok=True)
    yield path


def _clean(path: Path) -> None:
    """Remove what only training needs."""
    for left in path.glob(f"{WORK}*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    for left in path.glob(f".{WORK}*"):
        left.unlink()
