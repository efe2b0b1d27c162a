"""Search: among the recipes of a space, find one with a good validation score by trying some of them.

Every trial is a run of the study like any other. The sampler has no memory of its own: before each proposal it is told
all trials that the study knows, and its random numbers depend on the seed and the number of the trial alone. So a
search that was stopped goes on as if it had not been.

    architecture = ["naive", "mlap-sum"]    # one of these
    layers = "1..8"                         # from 1 to 8
    lr = "1e-4..1e-2:log"                   # likewise, on a logarithmic scale
    epochs = 20                             # fixed

is a space as a file (TOML): a plan in which ranges have two dots.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlap.errors import UsageError, unknown
from mlap.graphs import GraphSet
from mlap.names import PAPER_ARCHITECTURES
from mlap.study.driver import OnEvent, driving
from mlap.study.engine import Engine, Job
from mlap.study.plan import axes_of, fields_of, toml_values
from mlap.study.settings import SweepSettings
from mlap.study.store import RunRecord, Study
from mlap.training import Recipe

SAMPLERS = ("tpe", "random")

#: what is searched unless the user says otherwise; the rest is the data set's usual recipe
DEFAULT: dict[str, Any] = {
    "architecture": PAPER_ARCHITECTURES,
    "layers": "1..8",
    "width": "32..256:log",
    "norm": ("none", "graph", "batch"),
    "dropout": "0..0.6",
    "lr": "1e-4..1e-2:log",
}

_DEFAULTS = Recipe().as_dict()


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, both included; whole ones if these are."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def parse(cls, name: str, text: str) -> Range:
        """The range of a field in a text such as `1..8` or `1e-4..1e-2:log`."""
        found = re.fullmatch(r"\s*([^\s:]+?)\s*\.\.\s*([^\s:]+?)\s*(:\s*log)?\s*", text)
        if found is None:
            raise UsageError(f"{{field}}: a range is LOW..HIGH or LOW..HIGH:log, got {text!r}", field=name)
        if type(_DEFAULTS[name]) not in (int, float):
            raise UsageError("{field} is not a number and has no range; list its values", field=name)
        low, high = (getattr(Recipe.of({name: end}), name) for end in found.groups()[:2])
        if not low < high:
            raise UsageError(f"{{field}}: the range {text} must rise", field=name)
        if found[3] and low <= 0:
            raise UsageError(f"{{field}}: a range on a logarithmic scale begins above 0, got {text}", field=name)
        return cls(low, high, found[3] is not None)

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{':log' if self.log else ''}"

    def round(self, value: float) -> float:
        """The value with as many digits as one wants to type again."""
        if type(self.low) is int:
            return value
        return min(max(float(f"{value:.4g}"), self.low), self.high)


@dataclass(frozen=True)
class Space:
    """The recipes among which a search looks.

    Args:
        axes: every field of a recipe with its range, or with its values; one value fixes a field.

    Example:
        >>> space = Space.of("synthetic", lr="1e-4..1e-2:log", architecture="naive,mlap-sum", layers=3)
        >>> space.axes["lr"], space.axes["layers"], space.axes["epochs"]
        (Range(low=0.0001, high=0.01, log=True), (3,), (65,))
    """

    axes: dict[str, Range | tuple[Any, ...]]

    @classmethod
    def of(cls, data_name: str, plan: str | Path | None = None, **changes: Any) -> Space:
        """The space for a data set: that of a file or a named plan, or the default one, with some fields changed."""
        fields = {**(DEFAULT if plan is None else fields_of(data_name, plan)), **changes}
        ranges: dict[str, Range] = {}
        for name, value in fields.items():
            if name not in _DEFAULTS:
                raise unknown("field of a recipe", name, _DEFAULTS, "settings")
            if isinstance(value, str) and ".." in value:
                ranges[name] = Range.parse(name, value)
        listed = axes_of(data_name, {name: value for name, value in fields.items() if name not in ranges})
        axes = {name: ranges.get(name) or _gapless(values) for name, values in listed.items()}
        if axes["seed"] != listed["seed"][:1]:
            raise UsageError("a search trains every recipe with one and the same seed", field="seed", suggest=0)
        space = cls(axes)
        if not space.searched:
            raise UsageError("there is nothing to search: every field has one value", field="settings")
        return space

    @property
    def searched(self) -> tuple[str, ...]:
        """The fields that are not fixed."""
        return tuple(name for name, axis in self.axes.items() if isinstance(axis, Range) or len(axis) > 1)

    def recipe(self, point: Mapping[str, Any]) -> Recipe:
        """The recipe with the given values of the searched fields."""
        fields = {name: axis[0] for name, axis in self.axes.items() if not isinstance(axis, Range)}
        for name, value in point.items():
            axis = self.axes[name]
            fields[name] = axis.round(value) if isinstance(axis, Range) else value
        return Recipe.of(fields)

    def to_toml(self) -> str:
        """The whole space as a file, the searched fields first."""
        ordered = sorted(self.axes, key=lambda name: name not in self.searched)
        return "".join(f"{name} = {_toml(self.axes[name])}\n" for name in ordered)

    def key(self, fingerprint: str) -> str:
        """The identity of the search of this space on some data."""
        text = json.dumps({"space": {name: _toml(axis) for name, axis in self.axes.items()}, "data": fingerprint})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _gapless(values: tuple[Any, ...]) -> Range | tuple[Any, ...]:
    """Values of a plan; whole numbers without a gap are a range."""
    if len(values) > 1 and type(values[0]) is int and values == tuple(range(values[0], values[-1] + 1)):
        return Range(values[0], values[-1])
    return values


def _toml(axis: Range | tuple[Any, ...]) -> str:
    return f'"{axis}"' if isinstance(axis, Range) else toml_values(axis)


def propose(
    space: Space, trials: Sequence[RunRecord], higher_is_better: bool, sampler: str = "tpe", seed: int = 0
) -> Recipe:
    """The next recipe to try, after some trials: their recipes and validation scores decide, nothing else.

    Args:
        space: where to look.
        trials: what was tried, in order; trials that still run count too, so that others are tried meanwhile.
        higher_is_better: whether a higher score is a better one.
        sampler: `tpe` (a tree-structured Parzen estimator, at random for the first ten trials) or `random`.
        seed: of the search.
    """
    check_sampler(sampler)
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    history = optuna.create_study(
        direction="maximize" if higher_is_better else "minimize", sampler=_sampler(sampler, [seed, len(trials)])
    )
    distributions = {name: _distribution(space.axes[name]) for name in space.searched}
    for trial in trials:
        score = score_of(trial)
        unscored = TrialState.FAIL if trial.status in ("done", "failed") else TrialState.RUNNING
        history.add_trial(
            create_trial(
                state=unscored if score is None else TrialState.COMPLETE,
                value=score,
                params={name: getattr(trial.recipe, name) for name in space.searched},
                distributions=distributions,
            )
        )
    return space.recipe(history.ask(distributions).params)


def check_sampler(sampler: str) -> None:
    """Raise unless there is such a sampler, and the package that has it."""
    if sampler not in SAMPLERS:
        raise unknown("sampler", sampler, SAMPLERS, "sampler")
    if importlib.util.find_spec("optuna") is None:
        raise UsageError("a search needs a package that is not installed: pip install 'mlap[hpo]'")


def _sampler(name: str, entropy: list[int]) -> Any:
    """One of Optuna's samplers."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import RandomSampler, TPESampler

    (seed,) = map(int, np.random.SeedSequence(entropy).generate_state(1))
    if name == "random":
        return RandomSampler(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # they were experiments before Optuna 5
        return TPESampler(seed=seed, multivariate=True, constant_liar=True)


def _distribution(axis: Range | tuple[Any, ...]) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(axis, Range):
        return CategoricalDistribution(axis)
    if type(axis.low) is int:
        return IntDistribution(axis.low, int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def score_of(trial: RunRecord) -> float | None:
    """What a search is told of a trial: its validation score, if it is done and has one."""
    score = trial.valid_score if trial.status == "done" else None
    return score if score is not None and math.isfinite(score) else None


@dataclass(frozen=True)
class Search:
    """Where a search stands.

    Args:
        space: where it looks.
        wanted: how many trials there are to be.
        trials: those that there are, in order; the same run may be there more than once.
        records: all runs of the study on the same data.
        graphs: the data.
        ran: how many runs were finished just now.
        seconds: how long that took.
    """

    space: Space
    wanted: int
    trials: list[RunRecord]
    records: list[RunRecord]
    graphs: GraphSet
    ran: int = 0
    seconds: float = 0.0

    @property
    def done(self) -> int:
        """The trials that are done."""
        return sum(trial.status == "done" for trial in self.trials)

    @property
    def failed(self) -> int:
        """The trials that have failed."""
        return sum(trial.status == "failed" for trial in self.trials)

    @property
    def left(self) -> int:
        """The runs that are still to be run, if no recipe is proposed twice."""
        return max(self.wanted, len(self.trials)) - self.done - self.failed

    @property
    def ranking(self) -> list[tuple[int, RunRecord]]:
        """The done trials with their numbers, counted from 1, the best by validation score first, each run once."""
        assert self.graphs.task is not None
        sign = -1 if self.graphs.task.higher_is_better else 1
        first = {trial.hash: (number, trial) for number, trial in reversed(list(enumerate(self.trials, 1)))}
        scored = [(sign * score, entry) for entry in first.values() if (score := score_of(entry[1])) is not None]
        return [entry for _, entry in sorted(scored, key=lambda pair: (pair[0], pair[1][0]))]


def search_state(space: Space, trials: int, graphs: GraphSet, study: str | Path) -> Search:
    """Where a search stands in a study, which need not exist; nothing is written, and nothing locked."""
    if not Study.exists(study):
        return Search(space, trials, [], [], graphs)
    with Study.open(study) as opened:
        return _state(space, trials, graphs, opened)


def _state(space: Space, wanted: int, graphs: GraphSet, study: Study) -> Search:
    key = space.key(graphs.fingerprint)
    return Search(space, wanted, study.trials(key), study.runs_on(graphs.fingerprint), graphs)


def search(
    space: Space,
    trials: int,
    settings: SweepSettings,
    *,
    sampler: str = "tpe",
    seed: int = 0,
    engine: Engine | None = None,
    graphs: GraphSet | None = None,
    on_wait: Callable[[str], None] | None = None,
    on_event: OnEvent | None = None,
) -> Search:
    """Search a space until a study has a number of trials in it; those that it has already count.

    With one worker the same seed gives the same trials, also if the search is stopped in between. With more, the
    trials that happen to be done when another is proposed differ from time to time, and so do the proposals.

    Args:
        space: where to look.
        trials: how many recipes to try in all. One that failed counts; one whose run the study has is not run again.
        settings: the data, the study, and how to run; this and the other arguments are those of `mlap.study.sweep`.
        sampler: `tpe` or `random`; see `propose`.
        seed: of the sampler.
        engine: where to run.
        graphs: the loaded data.
        on_wait: called before waiting for another sweep.
        on_event: called with everything that happens to a run.
    """
    check_sampler(sampler)
    began = time.perf_counter()
    with driving(settings, engine, graphs, on_wait) as driver:
        study, data = driver.study, driver.graphs
        key = space.key(data.fingerprint)
        study.search(key, space.to_toml(), data, driver.source, dict(settings.options))
        before = _state(space, trials, data, study)
        assert data.task is not None
        higher_is_better = data.task.higher_is_better
        to_run = ("planned", "failed") if settings.retry_failed else ("planned",)

        def jobs() -> Iterator[Job]:
            begun = {trial.hash: trial for trial in before.trials[:trials]}
            yield from (driver.job(trial.recipe) for trial in begun.values() if trial.status in to_run)
            while len(tried := study.trials(key)) < trials:
                recipe = propose(space, tried, higher_is_better, sampler, seed)
                study.add_trial(key, recipe, data.fingerprint)
                if study.trials(key)[-1].status in to_run:
                    yield driver.job(recipe)

        driver.run(jobs(), on_event)
        after = _state(space, trials, data, study)
    done_before = {record.hash for record in before.records if record.status == "done"}
    ran = sum(record.status == "done" and record.hash not in done_before for record in after.records)
    return dataclasses.replace(after, ran=ran, seconds=time.perf_counter() - began)
