"""What is to be predicted for each graph, and how a prediction is scored."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    kind: str
    num_outputs: int
    metric: str
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in TASKS:
            raise unknown("kind of task", self.kind, TASKS)
        if self.metric not in METRICS:
            raise unknown("metric", self.metric, METRICS)
        if self.kind not in METRICS[self.metric].kinds:
            fitting = [name for name, metric in METRICS.items() if self.kind in metric.kinds]
            raise UsageError(
                f"metric {self.metric!r} does not score a {self.kind} task; use one of {', '.join(fitting)}"
            )
        if self.num_outputs < 1:
            raise UsageError(f"a task needs at least one output, got {self.num_outputs}")
        if self.names and len(self.names) != self.num_outputs:
            raise UsageError(f"got {len(self.names)} names for {self.num_outputs} outputs")

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher score is a better one."""
        return METRICS[self.metric].higher_is_better

    @property
    def metric_label(self) -> str:
        """The metric's name for people."""
        return METRICS[self.metric].label
