"""Whether the files of a model say what such files can say, before anything is done by them.

They may come from a disk that fails, an older version, or a stranger. What is wrong is a `ValueError` of one line; the
readers in `mlap.training.run` put the file's name before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from mlap.checks import MOST_CATEGORIES, Kinds, are, are_numbers, expect, is_count, need, need_fields

_TEXT = (str, type(None))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and abs(value) < 2**63


#: option of `mlap.graphs.load_graphs` → whether a value can be one; the readers refuse options that they do not know
_OPTIONS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("smiles", "metric", "positive", "split", "splits_file", "on_invalid", "one_way"), _is_text),
    **dict.fromkeys(("split_seed", "folds", "fold", "graphs_per_class", "random_edges", "seed"), _is_whole),
    "targets": lambda value: _is_text(value) or (isinstance(value, list) and all(map(_is_text, value))),
    "task": lambda value: isinstance(value, str | dict),
    "split_sizes": lambda value: isinstance(value, list) and are_numbers(value, len(value)),
    "extra_edges": lambda value: isinstance(value, list) and all(are_numbers(pair, 2) for pair in value),
    "shared_node": lambda value: isinstance(value, str) or _is_whole(value),
    "repeats": lambda value: isinstance(value, bool),
}


def check_config(config: Mapping[str, Any]) -> None:
    """Look at all of a configuration that others rely on; `Recipe` and `Task` look at their own parts."""
    need(config, {"data": dict, "task": dict, "features": dict, "targets": (dict, type(None))})
    _check_data(config["data"])
    _check_features(config["features"])
    kind = config.get("kind", "run")  # before 0.2 there was no other kind
    if kind == "run":
        need(config, {"recipe": dict})
    if kind == "baseline":
        need(config, {"baseline": dict})
        _check_baseline(config["baseline"])


def _check_data(data: Mapping[str, Any]) -> None:
    # A folder of data sets is not named in a configuration of before 0.2.
    kinds: Kinds = {"name": str, "fingerprint": str, "source": _TEXT, "root": _TEXT, "options": dict}
    need({"root": None, **data}, kinds, "data")
    for name, value in data["options"].items():
        expect(name not in _OPTIONS or _OPTIONS[name](value), f"data.options.{name}", value)
    for text in ("source", "root"):
        expect("\0" not in (data.get(text) or ""), f"data.{text}", data.get(text))


def _check_features(features: Mapping[str, Any]) -> None:
    for kind in ("nodes", "edges"):
        if kind not in features:
            raise ValueError(f"it has no features.{kind}")
        sizes = features[kind]
        columns = sizes if isinstance(sizes, list) else [0 if sizes is None else sizes]
        right = all(is_count(size, MOST_CATEGORIES) for size in columns) and sizes != [] and sizes != 0
        expect(right and (not isinstance(sizes, list) or min(sizes) > 0), f"features.{kind}", sizes)
    expect(are(features.get("descriptors", []), str), "features.descriptors", features.get("descriptors"))


def _check_baseline(said: Mapping[str, Any]) -> None:
    need(said, {"name": str, "seed": int, "descriptors": list, "notes": list}, "baseline")
    for name in ("descriptors", "notes"):
        expect(are(said[name], str), f"baseline.{name}", said[name])


def check_targets(targets: Mapping[str, Any], outputs: int) -> None:
    """Look at the means and standard deviations of regression targets."""
    need(targets, {"mean": list, "std": list}, "targets")
    for name in ("mean", "std"):
        expect(are_numbers(targets[name], outputs), f"targets.{name}", targets[name])
    expect(min(targets["std"]) > 0, "targets.std", targets["std"])


def check_checkpoint(content: Mapping[str, Any], epoch_kind: type) -> None:
    """Look at the state of a run between two epochs; whether it is that of the run's network, `restore` will see.

    Args:
        content: what was read.
        epoch_kind: the dataclass of an entry of the history.
    """
    need(content, {"history": list, "network": dict, "optimizer": dict, "best_epoch": int, "best_weights": dict})
    history = content["history"]
    expect(bool(history), "history", history)
    for number, epoch in enumerate(history, 1):
        need_fields(epoch, epoch_kind, f"history[{number}]")
        expect(epoch["epoch"] == number, f"history[{number}].epoch", epoch["epoch"])
    expect(is_count(content["best_epoch"], len(history)), "best_epoch", content["best_epoch"])
    expect(is_count(content.get("steps_done", 0)), "steps_done", content.get("steps_done"))
    for name in ("network", "best_weights", "averaged"):
        weights = content.get(name, {})
        right = isinstance(weights, dict) and all(
            isinstance(key, str) and isinstance(value, Tensor) for key, value in weights.items()
        )
        expect(right, name, type(weights).__name__)
