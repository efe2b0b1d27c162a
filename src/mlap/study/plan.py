"""A plan: which recipes a sweep runs. Every field of a recipe has one value (it is fixed) or several (it is swept).

    architecture = "paper"          # or "all", a name, or a list of names
    layers = "1-10"                 # whole numbers may be ranges
    norm = ["none", "graph"]
    seed = "0-29"
    epochs = 20

is a plan file (TOML). What it does not mention is the paper's recipe for a data set of the paper, and the default
recipe for others.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlap import paper
from mlap.errors import DataError, UsageError, unknown
from mlap.graphs.synthetic import VARIANT
from mlap.names import ARCHITECTURES, PAPER_ARCHITECTURES
from mlap.paper import PROTOCOLS
from mlap.training import Recipe
from mlap.training.recipe import checked

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: more runs than this in one plan are a slip of the keyboard
MOST_RUNS = 1_000_000

_DEFAULTS = Recipe().as_dict()
_GROUPS: dict[str, Sequence[str]] = {"all": ARCHITECTURES, "paper": PAPER_ARCHITECTURES}

#: a rehearsal in minutes: enough to see a study at work, too little for any conclusion
QUICK: dict[str, Any] = {
    "architecture": ("naive", "jk-sum", "mlap-sum"),
    "layers": (1, 3),
    "norm": "graph",
    "seed": (0, 1, 2),
    "width": 32,
    "epochs": 5,
    "batch_size": 100,
    "lr": 1e-3,
}


@dataclass(frozen=True)
class Plan:
    """A grid of recipes.

    Args:
        name: `paper`, `quick`, a file's name, or `grid`.
        axes: every field of a recipe with its values.

    Example:
        >>> plan = Plan.of("synthetic", layers="1-3", seed="0-9", epochs=20)
        >>> len(plan), plan.recipes()[1].layers
        (30, 2)
    """

    name: str
    axes: dict[str, tuple[Any, ...]]

    def __post_init__(self) -> None:
        if len(self) > MOST_RUNS:
            raise UsageError(f"the plan has {len(self):,} runs; one sweep takes at most {MOST_RUNS:,}", field="plan")

    @classmethod
    def of(cls, data_name: str, plan: str | Path | None = None, **changes: Any) -> Plan:
        """The plan for a data set: a named one (`paper`, `quick`), a TOML file, or none, with some fields changed.

        A value may be a list, and text as on a command line: `"1-3,5"`, `"none,graph"`.
        """
        axes = axes_of(data_name, {**fields_of(data_name, plan), **changes})
        return cls("grid" if plan is None else str(plan) if plan in ("paper", "quick") else Path(plan).name, axes)

    def __len__(self) -> int:
        return math.prod(map(len, self.axes.values()))

    def recipes(self) -> list[Recipe]:
        """All recipes. The seed varies last, so that a study that is not complete yet is an even one."""
        names = ["seed", *(name for name in self.axes if name != "seed")]
        values = (self.axes[name] for name in names)
        return [Recipe.of(dict(zip(names, point, strict=True))) for point in itertools.product(*values)]

    def to_toml(self) -> str:
        """The whole plan as a plan file, the swept fields first."""
        ordered = sorted(self.axes, key=lambda name: len(self.axes[name]) == 1)
        return "".join(f"{name} = {toml_values(self.axes[name])}\n" for name in ordered)


def axes_of(data_name: str, fields: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Every field of a recipe with its values: those that are given, and the data set's usual ones."""
    base = Recipe.preset(data_name).as_dict()
    for name in fields:
        if name not in base:
            raise unknown("field of a recipe", name, base, "settings")
    return {name: values_of(name, value) for name, value in {**base, **fields}.items()}


def fields_of(data_name: str, plan: str | Path | None) -> Mapping[str, Any]:
    """What a named plan, or a plan file, says of the fields of a recipe."""
    if plan is None:
        return {}
    if plan == "quick":
        return QUICK
    return _paper(data_name) if plan == "paper" else _read(Path(plan))


def _paper(data_name: str) -> dict[str, Any]:
    """The paper's protocol (section 4.3) for one of its data sets."""
    if data_name not in (*PROTOCOLS, VARIANT):
        raise UsageError(
            f"the paper has no protocol for {data_name!r}, only for {', '.join(PROTOCOLS)}; "
            "name architectures, depths, normalisations and seeds instead",
            field="plan",
        )
    return {
        "architecture": paper.ARCHITECTURES,
        "layers": paper.LAYERS,
        "norm": paper.NORMS,
        "seed": range(PROTOCOLS["synthetic" if data_name == VARIANT else data_name].seeds),
    }


def _read(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no plan {str(path)!r}; known: paper, quick, or a TOML file", "plan") from None
    except OSError as error:
        raise UsageError(f"cannot read the plan {path}: {error.strerror}", "plan") from error
    except (ValueError, RecursionError) as error:  # of TOML, or of UTF-8
        raise DataError(f"{path} is not a plan in TOML: {error}") from error
    for name, value in content.items():
        if name not in _DEFAULTS:
            raise UsageError(f"{path}: {unknown('field of a recipe', name, _DEFAULTS)}")
        if isinstance(value, dict):
            raise UsageError(f"{path}: {name} must be a value or a list of values, got a table")
    return content


def values_of(name: str, value: Any) -> tuple[Any, ...]:
    """The values of a field, each of them checked, each of them once."""
    parts = [value] if isinstance(value, str) or not isinstance(value, Sequence) else list(value)
    found: dict[Any, None] = {}
    for part in parts:
        for single in _expand(name, part) if isinstance(part, str) else (part,):
            found[checked(name, single)] = None
    if not found:
        raise UsageError("{field} needs at least one value", field=name)
    return tuple(found)


def split_seeds(text: str | None) -> tuple[int | None, ...]:
    """The seeds of the splits to run a plan on, in a text such as `0-9`; `None` is the usual split.

    >>> split_seeds("0-2,5"), split_seeds(None)
    ((0, 1, 2, 5), (None,))
    """
    if text is None:
        return (None,)
    try:
        return values_of("seed", text)
    except UsageError:
        raise UsageError(f"{{field}} must be whole numbers such as 0-9 or 0,1,2, got {text!r}", "split_seed") from None


def _expand(name: str, text: str) -> list[Any]:
    """The values in a text such as `1-3,5` or `naive,mlap-sum`."""
    expanded: list[Any] = []
    for part in (piece.strip() for piece in text.split(",")):
        if name == "architecture" and part in _GROUPS:
            expanded.extend(_GROUPS[part])
        elif type(_DEFAULTS[name]) is int and (ends := re.fullmatch(r"(\d+)\s*-\s*(\d+)", part)):
            first, last = int(ends[1]), int(ends[2])
            if not first <= last < first + MOST_RUNS:
                raise UsageError(f"{{field}}: the range {part} must rise, and by less than {MOST_RUNS:,}", field=name)
            expanded.extend(range(first, last + 1))
        else:
            expanded.append(part)
    return expanded


def toml_values(values: tuple[Any, ...]) -> str:
    """The values of a field as TOML; whole numbers without a gap as a range."""
    if len(values) == 1:
        return json.dumps(values[0])
    if type(values[0]) is int and values == tuple(range(values[0], values[0] + len(values))):
        return f'"{values[0]}-{values[-1]}"'
    return json.dumps(list(values), ensure_ascii=False)
