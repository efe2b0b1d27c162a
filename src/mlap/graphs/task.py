"""What is to be predicted for each graph, and how a prediction is scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mlap.checks import MOST_CATEGORIES, are, expect, need
from mlap.errors import UsageError, unknown
from mlap.names import METRICS, TASKS


@dataclass(frozen=True)
class Task:
    """The task of a graph set.

    Args:
        kind: `multiclass` (one of several classes), `binary` (one yes/no question per target) or `regression`.
        num_outputs: the number of classes (multiclass) or of target columns (binary, regression).
        metric: a key of `METRICS` that scores this kind.
        names: the classes' or targets' names, if they have any.
        labels: the words for no and yes of each binary target, such as `("Inactive", "Active")`; empty where the data
            say 0 and 1. They are for people: training does not see them.
    """

    kind: str
    num_outputs: int
    metric: str
    names: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in TASKS:
            raise unknown("kind of task", self.kind, TASKS, "task")
        if self.metric not in METRICS:
            raise unknown("metric", self.metric, METRICS, "metric")
        if self.kind not in METRICS[self.metric].kinds:
            fitting = [name for name, metric in METRICS.items() if self.kind in metric.kinds]
            raise UsageError(
                f"{{field}} {self.metric!r} does not score a {self.kind} task; use one of {', '.join(fitting)}",
                field="metric",
            )
        if self.num_outputs < 1:
            raise UsageError(f"a task needs at least one output, got {self.num_outputs}")
        if self.names and len(self.names) != self.num_outputs:
            raise UsageError(f"got {len(self.names)} names for {self.num_outputs} outputs")
        if self.labels and (self.kind != "binary" or len(self.labels) != self.num_outputs):
            raise UsageError(f"labels are the words for no and yes of each binary target, got {self.labels!r}")

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is a better one."""
        return METRICS[self.metric].higher_is_better

    @property
    def metric_label(self) -> str:
        """The metric's name for people."""
        return METRICS[self.metric].label

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the columns of each target begin with: nothing, where the one target has no name."""
        if self.names:
            return tuple(f"{name}_" for name in self.names)
        return ("",) if self.num_outputs == 1 else tuple(f"{number}_" for number in range(self.num_outputs))

    def as_dict(self) -> dict[str, Any]:
        """The task as JSON holds it."""
        return {**asdict(self), "names": list(self.names), "labels": [list(pair) for pair in self.labels]}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Task:
        """The task that `as_dict` wrote; anything else is a `ValueError`. Files of older versions have no labels.

        >>> Task.from_dict(Task("binary", 1, "rocauc", ("tox",), (("no", "yes"),)).as_dict()).labels
        (('no', 'yes'),)
        """
        need(content, {"kind": str, "num_outputs": int, "metric": str, "names": list}, "task")
        outputs, names, labels = content["num_outputs"], content["names"], content.get("labels", [])
        expect(1 <= outputs <= MOST_CATEGORIES, "task.num_outputs", outputs)
        expect(are(names, str), "task.names", names)
        expect(isinstance(labels, list) and all(are(pair, str) and len(pair) == 2 for pair in labels), "labels", labels)
        return cls(content["kind"], outputs, content["metric"], tuple(names), tuple((no, yes) for no, yes in labels))
