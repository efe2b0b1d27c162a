"""What a model learnt from labelled graphs after training: how true its probabilities are, and how wide its sets.

It lies beside the model as `calibration.json`, can be exchanged without touching the model, and changes no logit: so
explanations, which add up to logits, stay as they are. Sets are made from the plain probabilities (σ or softmax of the
logits), whichever map the given probabilities went through: exchanging the map does not void the promise of the sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # its parts load when they are used, so predictions by networks do not wait for them
from numpy.typing import NDArray

from mlap.errors import DataError, UsageError, short
from mlap.files import read_json, write_json
from mlap.graphs import Task
from mlap.models.calibration import Calibration
from mlap.models.conformal import Conformal, Coverage, coverage_of_intervals, coverage_of_sets
from mlap.training.run import CALIBRATION

Array = NDArray[Any]

FORMAT = 1
#: the method that leaves probabilities as they are, and makes sets only
NONE = "none"


@dataclass(frozen=True)
class Calibrated:
    """A calibration and the scores for conformal sets, from the same graphs.

    Args:
        calibration: how logits become probabilities; `None` for a regression, and where it was not wanted.
        conformal: the scores of the graphs.
        data: which graphs: their `name`, `fingerprint`, `part` and number.
    """

    calibration: Calibration | None
    conformal: Conformal
    data: dict[str, Any]

    @classmethod
    def fit(cls, task: Task, logits: Array, values: Array, y: Array, method: str, data: dict[str, Any]) -> Calibrated:
        """Learn from graphs that were not used for training.

        Args:
            task: the task.
            logits: `(G, outputs)`.
            values: in the data's own units, for a regression; probabilities are made of the logits.
            y: the labels.
            method: one of `mlap.models.calibration.METHODS`, or `none`; a regression has no probabilities.
            data: see the class.
        """
        wanted = task.kind != "regression" and method != NONE
        calibration = Calibration.fit(task.kind, logits, y, method) if wanted else None
        return cls(calibration, Conformal.fit(task.kind, plain(task, logits, values), y), data)

    @property
    def method(self) -> str:
        """How probabilities are calibrated."""
        return NONE if self.calibration is None else self.calibration.method

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know of the calibration."""
        return () if self.calibration is None else self.calibration.notes

    def columns(self, task: Task, logits: Array, values: Array, confidence: float) -> dict[str, list[Any]]:
        """The columns that predictions have with a confidence: sets in words, or the ends of intervals.

        A set that cannot exclude any class holds all of them; an empty one means that the graph is unlike the graphs
        of every class that the model was calibrated on.
        """
        alpha = alpha_of(confidence)
        if task.kind == "regression":
            ends = self.conformal.intervals(values, alpha)
            prefixes = task.prefixes
            return {
                f"{prefix}{name}": [round(float(end), 6) for end in ends[:, number, side]]
                for number, prefix in enumerate(prefixes)
                for side, name in enumerate(("lower", "upper"))
            }
        sets = self.conformal.sets(plain(task, logits, values), alpha)
        if task.kind == "multiclass":
            return {"conformal_set": _words(sets, [str(name) for name in task.names or range(task.num_outputs)])}
        words = task.labels or (("0", "1"),) * task.num_outputs
        return {
            f"{prefix}conformal_set": _words(sets[:, number], words[number])
            for number, prefix in enumerate(task.prefixes)
        }

    def coverage(self, task: Task, logits: Array, values: Array, y: Array, confidence: float) -> list[Coverage]:
        """How often sets or intervals hold the truth, measured on labelled graphs."""
        alpha = alpha_of(confidence)
        if task.kind == "regression":
            return coverage_of_intervals(self.conformal.intervals(values, alpha), y)
        return coverage_of_sets(self.conformal.sets(plain(task, logits, values), alpha), y)

    def warnings(self, task: Task, confidence: float) -> tuple[str, ...]:
        """Where the graphs were too few for a confidence."""
        return self.conformal.notes(alpha_of(confidence), task.names)

    # ---- files -------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        """Write `calibration.json` into a model's directory."""
        content = {
            "format": FORMAT,
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "conformal": self.conformal.to_dict(),
            "data": self.data,
        }
        write_json(folder / CALIBRATION, content)

    @classmethod
    def read(cls, folder: Path, task: Task) -> Calibrated | None:
        """What `calibration.json` of a model's directory says, if there is one; a damaged one is a `DataError`."""
        path = folder / CALIBRATION
        if not path.exists():
            return None
        content = read_json(path)
        if content.get("format") != FORMAT:
            raise DataError(f"{path} has format {short(content.get('format'))}; this version of mlap reads {FORMAT}")
        try:
            given = content["calibration"]
            calibration = None if given is None else Calibration.from_dict(given)
            found = cls(calibration, Conformal.from_dict(content["conformal"]), dict(content["data"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is damaged: {error}") from error
        made_for = {(found.conformal.kind, found.conformal.outputs)}
        if calibration is not None:
            made_for.add((calibration.kind, calibration.outputs))
        if made_for != {(task.kind, task.num_outputs)}:
            raise DataError(f"{path} is not of this model: it is for another task")
        return found


def plain(task: Task, logits: Array, values: Array) -> Array:
    """The probabilities before any calibration, in double precision; the values of a regression as they are."""
    if task.kind == "regression":
        return values
    logits = np.asarray(logits, np.float64)
    return np.asarray(scipy.special.expit(logits) if task.kind == "binary" else scipy.special.softmax(logits, axis=1))


def alpha_of(confidence: float) -> float:
    """One minus the confidence, as it is written: 0.9 leaves 0.1 and not the double next to it.

    >>> alpha_of(0.9)
    0.1
    """
    if not 0 < confidence < 1:
        raise UsageError(f"{{field}} must lie between 0 and 1, got {confidence}", "confidence", 0.9)
    return float(1 - Fraction(repr(float(confidence))))


def _words(sets: NDArray[np.bool_], names: Any) -> list[str]:
    """Each set in words: `active`, `active or inactive`, `none`."""
    return [" or ".join(name for name, holds in zip(names, row, strict=True) if holds) or "none" for row in sets]
