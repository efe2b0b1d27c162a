r"""Ensembles: models that add up on the logit scale.

.. math::
    \mathrm{logit} = \sum_m w_m \, \mathrm{logit}_m, \qquad w_m \ge 0, \quad \sum_m w_m = 1

(values in the data's own units for a regression). A network's logit is a sum over its nodes and levels, so the shares
of all networks, averaged with these weights, and one term for each other member add up to the ensemble's logit: its
explanations are as exact as those of a single network.

    ensemble.json       the weights, how they came about, and the checksum of each member
    calibration.json    what `Model.calibrate` learnt
    member-0 …          the members, each a model's directory

Members count with their logits; a calibration of their own is not used. The directory can be moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlap.arrays import checksum_of
from mlap.errors import DataError, MlapError, UsageError, short, unknown
from mlap.files import read_json, write_json
from mlap.graphs import GraphSet, Task
from mlap.models.explanation import Explanation
from mlap.models.folders import ENSEMBLE
from mlap.models.model import Floats, Model
from mlap.models.weights import Weights, fit_group_weights
from mlap.training import Objective
from mlap.training.run import MODEL

FORMAT = 1
WEIGHTS = ("equal", "fitted")
#: networks that weigh less in sum have next to nothing to explain
LITTLE = 0.01


class Ensemble(Model):
    """Some models that answer together.

    Args:
        members: the models.
        weights: what each of them counts.
        path: the directory; see `Model`.
        notes: what a user should know of how it was made, a sentence each.
    """

    def __init__(
        self, members: Sequence[Model], weights: Weights, path: Path | None = None, notes: Sequence[str] = ()
    ) -> None:
        first = members[0]
        super().__init__(first.config, _objective(first.task), path)
        self.members = tuple(members)
        self.weights = weights
        self.notes = tuple(notes)

    def __repr__(self) -> str:
        where = "" if self.path is None else f", {str(self.path)!r}"
        return f"Ensemble({', '.join(member.name for member in self.members)}{where})"

    @classmethod
    def of(
        cls,
        models: Sequence[Model],
        *,
        weights: str = "equal",
        method: str = "temperature",
        data: Any = None,
        part: str | None = None,
        root: str | Path | None = None,
    ) -> Ensemble:
        """Put models together, weigh them, and calibrate the whole.

        Args:
            models: trained for the same task on graphs of the same kind.
            weights: `equal`, or `fitted` for the least loss on validation data, where models that differ in their
                seed alone weigh the same.
            method: how to calibrate the ensemble; see `Model.calibrate`.
            data: labelled data that no member was trained on; the members' own data, if they share them, unless given.
            part: which part of them; unless given, `valid` of the members' own data and `all` of others.
            root: where data sets are kept.
        """
        if weights not in WEIGHTS:
            raise unknown("way to weigh members", weights, WEIGHTS, "weights")
        _check_members(models)
        ensemble = cls(models, Weights.equal(len(models)))
        try:
            fresh = ensemble._fresh(data, part, root)
        except MlapError as error:
            if weights == "fitted" or data is not None:
                raise
            ensemble.notes = (f"not calibrated: {error}",)
            return ensemble
        graphs, indices, part = fresh
        assert graphs.y is not None
        if weights == "fitted":
            logits = ensemble.member_logits(graphs, indices)
            found = fit_group_weights(ensemble.task.kind, logits, graphs.y[indices], _groups(models))
            ensemble.weights = found
            ensemble.notes = tuple(note for note in (found.note, ensemble._on_networks()) if note)
        calibrated = ensemble.calibrate(graphs, part, method=method)
        ensemble.notes += calibrated.notes
        return ensemble

    def _fresh(self, data: Any, part: str | None, root: str | Path | None) -> tuple[GraphSet, NDArray[np.int64], str]:
        """Labelled graphs that no member was trained on."""
        own = {member.config["data"]["fingerprint"] for member in self.members}
        if data is None and len(own) > 1:
            raise UsageError(
                "the members were trained on different data or splits, so the validation graphs of one may be training "
                "graphs of another; give labelled {field} that none of them has seen",
                "data",
            )
        found = self._labelled_part(data, part or ("valid" if data is None else "all"), root)
        if data is None and not self.trained_on(found[0]):
            raise DataError(f"{found[0].name} has changed since the members were trained on it: fingerprints differ")
        return found

    # ---- predicting --------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What to call it among others."""
        return "ensemble"

    def member_logits(self, graphs: GraphSet, indices: NDArray[np.int64] | None = None) -> Floats:
        """The logits of each member `(members, graphs, outputs)`; values in the data's own units for a regression."""
        return np.stack([_own_units(member, member.logits(graphs, indices)) for member in self.members])

    def logits(self, graphs: GraphSet, indices: NDArray[np.int64] | None = None) -> Floats:
        """The weighted sum of the members' logits."""
        return self._sum(self.member_logits(graphs, indices))

    def logits_and_spread(self, graphs: GraphSet) -> tuple[Floats, Floats | None]:
        """The logits, and the standard deviation of what the members would predict, each with its weight."""
        by_member = self.member_logits(graphs)
        logits = self._sum(by_member)
        values = np.stack([self.values(each) for each in by_member])
        mean = np.tensordot(self.weights.values, values, 1)
        return logits, np.sqrt(np.tensordot(self.weights.values, (values - mean) ** 2, 1))

    def _sum(self, by_member: Floats) -> Floats:
        return np.asarray(np.tensordot(self.weights.values, by_member, 1))

    # ---- looking inside ----------------------------------------------------------------------------------------------

    def explain_graphs(self, graphs: GraphSet, indices: Sequence[int]) -> Iterator[Explanation]:
        """The averaged shares of the members that have some, and a term for each other member."""
        names = unique_names([member.name for member in self.members])
        explained: list[tuple[str, float, Model, Iterator[Explanation]]] = []
        alone: list[tuple[str, float, Floats]] = []
        for name, weight, member in zip(names, self.weights.values, self.members, strict=True):
            if member.explains:
                explained.append((name, weight, member, iter(member.explain_graphs(graphs, indices))))
            else:
                alone.append((name, weight, _own_units(member, member.logits(graphs, np.asarray(indices)))))
        if not explained:
            raise UsageError("no member of the ensemble is a network, so its answer is no sum over nodes")
        on_networks = self._on_networks()
        for number in range(len(indices)):
            terms = [(name, weight * logits[number]) for name, weight, logits in alone]
            found = [(name, weight, _rescaled(member, next(each))) for name, weight, member, each in explained]
            yield _combined(found, terms, on_networks)

    @property
    def explains(self) -> bool:
        """Whether a member does."""
        return any(member.explains for member in self.members)

    @property
    def reads_descriptors(self) -> bool:
        """Whether a member does."""
        return any(member.reads_descriptors for member in self.members)

    def _on_networks(self) -> str:
        """What a user should know where the networks weigh next to nothing; empty where they do not."""
        weight = sum(
            weight for weight, member in zip(self.weights.values, self.members, strict=True) if member.explains
        )
        if not self.explains or weight >= LITTLE:
            return ""
        return f"the networks weigh {weight:.2g} in sum: the answers are the other members', and shares of nodes near 0"

    def embed_graphs(self, graphs: GraphSet, indices: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """The vectors of the networks side by side; those of levels where all networks have as many."""
        found = [member.embed_graphs(graphs, indices) for member in self.members if member.explains]
        if not found:
            raise UsageError("no member of the ensemble is a network, and only networks make vectors of graphs")
        levels = {each.shape[1] for _, each in found}
        final = np.concatenate([each for each, _ in found], axis=1)
        level_wise = np.concatenate([each for _, each in found], axis=2) if len(levels) == 1 else final[:, None][:, :0]
        return final, level_wise

    # ---- files -------------------------------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        """Write the members, then the file by which the directory is known."""
        for number, member in enumerate(self.members):
            member.save(path / f"member-{number}")
        self.write_index(path)

    def write_index(self, path: Path) -> None:
        """Write `ensemble.json` beside the members' directories."""
        members = []
        for number, (member, weight) in enumerate(zip(self.members, self.weights.values, strict=True)):
            folder = f"member-{number}"
            weights = path / folder / MODEL
            checksum = checksum_of(weights) if weights.exists() else None  # a member that is an ensemble has none
            members.append({"folder": folder, "name": member.name, "weight": weight, "sha256": checksum})
        content = {"format": FORMAT, "fitted": self.weights.fitted, "notes": list(self.notes), "members": members}
        write_json(path / ENSEMBLE, content)

    @classmethod
    def read(cls, path: Path, read_member: Callable[[Path], Model]) -> Ensemble:
        """Read a directory; a damaged one is a `DataError`.

        Args:
            path: the directory.
            read_member: reads a model from its directory.
        """
        file = path / ENSEMBLE
        content = read_json(file)
        if content.get("format") != FORMAT:
            raise DataError(f"{file} has format {short(content.get('format'))}; this version of mlap reads {FORMAT}")
        try:
            entries = [dict(entry) for entry in content["members"]]
            values = tuple(float(entry["weight"]) for entry in entries)
            folders = [_folder(entry["folder"]) for entry in entries]
            checksums = [entry["sha256"] for entry in entries]
            notes, fitted = tuple(map(str, content["notes"])), bool(content["fitted"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{file} is damaged: {short(error, 200)}") from error
        if not values or min(values) < 0 or not abs(sum(values) - 1) < 1e-6:
            raise DataError(
                f"{file} is damaged: the weights must not be negative and must sum to 1, got {short(values)}"
            )
        members = []
        for folder, checksum in zip(folders, checksums, strict=True):
            if not (path / folder).is_dir():
                raise DataError(f"{path} is not whole: it has no folder {folder}")
            members.append(read_member(path / folder))
            if checksum is not None and checksum_of(path / folder / MODEL) != checksum:
                raise DataError(f"{path / folder / MODEL} is not the member that {ENSEMBLE} names: checksums differ")
        try:
            _check_members(members)
        except UsageError as error:
            raise DataError(f"{path} is damaged: {error}") from error
        return cls(members, Weights(values, fitted), path, notes)


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, numbered where one occurs more than once.

    >>> unique_names(["mlap-sum", "rf-morgan", "mlap-sum"])
    ['mlap-sum 1', 'rf-morgan', 'mlap-sum 2']
    """
    return [
        name if names.count(name) == 1 else f"{name} {names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


def _groups(models: Sequence[Model]) -> list[int]:
    """A number for each model, the same for those that differ in their seed alone."""
    kinds: list[Any] = []
    for place, model in enumerate(models):
        recipe = model.config.get("recipe")
        if model.kind == "run" and recipe:
            kinds.append({**recipe, "seed": 0})
        else:
            kinds.append((model.kind, model.name) if model.kind == "baseline" else place)
    return [kinds.index(kind) for kind in kinds]


def _objective(task: Task) -> Objective:
    """What the sum means: that of a regression is in the data's own units."""
    if task.kind == "regression":
        return Objective(task, np.zeros(task.num_outputs), np.ones(task.num_outputs))
    return Objective(task)


def _own_units(member: Model, logits: Floats) -> Floats:
    """A member's logits in double precision, in the data's own units for a regression."""
    logits = np.asarray(logits, np.float64)
    if member.objective.mean is None or member.objective.std is None:
        return logits
    return logits * member.objective.std + member.objective.mean


def _rescaled(member: Model, found: Explanation) -> Explanation:
    """A member's explanation in the units in which members add up."""
    mean, std = member.objective.mean, member.objective.std
    if mean is None or std is None:
        return found
    return Explanation(
        found.graph,
        found.logits * std + mean,
        found.bias * std + mean,
        found.attention,
        None if found.shares is None else found.shares * std,
        found.levels,
        found.reason,
        None if found.graph_share is None else found.graph_share * std,
        {name: term * std for name, term in found.others.items()},
    )


def _combined(
    found: Sequence[tuple[str, float, Explanation]], terms: Sequence[tuple[str, Floats]], reason: str = ""
) -> Explanation:
    """The explanation of one graph by an ensemble.

    Args:
        found: name, weight and explanation of the members that have one.
        terms: name and weighted logits of the others.
        reason: a sentence that comes before those of the members.
    """
    first = found[0][2]
    logits = sum(
        (weight * np.asarray(each.logits, np.float64) for _, weight, each in found), np.zeros(len(first.logits))
    )
    bias, others = np.zeros(len(first.logits)), dict(terms)
    graph_share: Floats | None = None
    shared = [(weight, each) for _, weight, each in found if each.shares is not None]
    reasons = [reason] if reason else []
    for name, weight, each in found:
        if each.reason and each.reason not in reasons:
            reasons.append(each.reason)
        if each.shares is None:  # its logit is no sum over nodes: it has a term of its own
            others[name] = weight * np.asarray(each.logits, np.float64)
            continue
        bias = bias + weight * each.bias
        if each.graph_share is not None:
            graph_share = weight * each.graph_share + (0 if graph_share is None else graph_share)
        others.update({f"{name}: {inner}": weight * term for inner, term in each.others.items()})
    shares, levels = _shares(shared)
    logits = logits + sum((term for _, term in terms), np.zeros(len(logits)))
    attention = _attention([(weight, each.attention) for _, weight, each in found])
    return Explanation(first.graph, logits, bias, attention, shares, levels, "; ".join(reasons), graph_share, others)


def _shares(found: Sequence[tuple[float, Explanation]]) -> tuple[Floats | None, tuple[int, ...]]:
    """The weighted shares of every node at every level that a member has.

    If a member's shares are of all levels together, so are those of the ensemble.
    """
    if not found:
        return None, ()
    arrays = [(weight, each.levels, np.asarray(each.shares, np.float64)) for weight, each in found]
    if not all(levels for _, levels, _ in arrays):
        return np.sum([weight * shares.sum(axis=1, keepdims=True) for weight, _, shares in arrays], axis=0), ()
    union = tuple(sorted({level for _, levels, _ in arrays for level in levels}))
    total = np.zeros((arrays[0][2].shape[0], len(union), arrays[0][2].shape[2]))
    for weight, levels, shares in arrays:
        total[:, [union.index(level) for level in levels]] += weight * shares
    return total, union


def _attention(found: Sequence[tuple[float, Floats]]) -> Floats:
    """The weighted mean of the members' attention; over all levels, where they have different ones."""
    if len({each.shape for _, each in found}) > 1:
        found = [(weight, each.mean(axis=1, keepdims=True)) for weight, each in found if each.shape[1]]
    total = sum(weight for weight, _ in found) or 1.0
    return np.asarray(np.sum([weight / total * each for weight, each in found], axis=0))


def _check_members(models: Sequence[Model]) -> None:
    """Raise unless the models answer the same question about the same kind of graphs."""
    if not models:
        raise UsageError("an ensemble needs at least one model", "models")
    first = models[0]
    for model in models[1:]:
        for what, wanted, got in (
            ("task", _question(first.task), _question(model.task)),
            ("features", _graph_features(first), _graph_features(model)),
        ):
            if wanted != got:
                raise UsageError(
                    f"{_called(model)} does not go with {_called(first)}: their {what} differ, "
                    f"{short(got, 200)} and {short(wanted, 200)}",
                    "models",
                )


def _graph_features(model: Model) -> Mapping[str, Any]:
    """What a model reads of the graphs; descriptors, which some compute beside, every molecule has."""
    return {kind: model.config["features"][kind] for kind in ("nodes", "edges")}


def _question(task: Task) -> Mapping[str, Any]:
    """What a task asks, whatever metric scores it."""
    return {"kind": task.kind, "outputs": task.num_outputs, "names": task.names, "labels": task.labels}


def _called(model: Model) -> str:
    return model.name if model.path is None else str(model.path)


def _folder(name: Any) -> str:
    """A folder's name, which leads nowhere else."""
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".", "..") or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a folder")
    return name
