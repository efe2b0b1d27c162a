"""Campaigns against the command: `python tests/faults/campaign.py --help`."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.checks import Snapshot, damaged, snapshot
from faults.commands import SCENARIOS, Answer, Scenario, Workshop
from faults.syscalls import BROKEN, FORBIDDEN, FULL, KILL, Fault

FAULTS = {fault.name: fault for fault in (FULL, BROKEN, FORBIDDEN)}


@dataclass
class Trial:
    """One disturbed command.

    Args:
        scenario: which command.
        fault: what went wrong.
        number: at which call of the system; 0 if it was at a moment.
        hit: what it hit.
        survived: whether the command did its work all the same.
        problems: what did not hold afterwards.
    """

    scenario: str
    fault: str
    number: int
    hit: str = ""
    survived: bool = False
    problems: list[str] = field(default_factory=list)


class Campaign:
    """Disturbs commands in a workshop."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._references: dict[str, tuple[Snapshot, float]] = {}

    def reference(self, scenario: Scenario) -> tuple[Snapshot, float]:
        """What the undisturbed command leaves, and how long it takes."""
        if scenario.name not in self._references:
            self._workshop.begin(scenario.start)
            began = time.monotonic()
            answer = self._workshop.run(scenario.call)
            if answer.code:
                raise SystemExit(f"{scenario.call}: {answer.err}")
            self._references[scenario.name] = snapshot(self._workshop.trial), time.monotonic() - began
        return self._references[scenario.name]

    def inject(self, scenario: Scenario, fault: Fault, numbers: Iterator[int]) -> Iterator[Trial]:
        """Make the calls of the given numbers fail, each in a command of its own, until a number is too high."""
        for number in numbers:
            trial = Trial(scenario.name, fault.name, number)
            self.reference(scenario)
            self._workshop.begin(scenario.start)
            answer = self._workshop.run(scenario.call, fault, number)
            if not answer.watched.hit:
                return
            self._judge(trial, scenario, answer)
            yield trial

    def kill(self, scenario: Scenario, rng: random.Random) -> Trial:
        """Kill the command: at a call of the system, or at a moment; one time in three its repetition as well."""
        _, seconds = self.reference(scenario)
        self._workshop.begin(scenario.start)
        trial = Trial(scenario.name, KILL.name, 0)
        calls, call = self._calls(scenario), scenario.call
        for _ in range(rng.choice((1, 1, 2))):
            if rng.random() < 0.5:
                trial.number = rng.randint(1, calls)
                answer = self._workshop.run(call, KILL, trial.number)
            else:
                answer = self._workshop.run(call, moment=rng.uniform(0, seconds))
            call = f"{scenario.call} {scenario.again}"
        self._judge(trial, scenario, answer)
        return trial

    def _calls(self, scenario: Scenario) -> int:
        answer = self._workshop.run(scenario.call)
        self._workshop.begin(scenario.start)
        return answer.watched.calls

    def _judge(self, trial: Trial, scenario: Scenario, answer: Answer) -> None:
        """Note what does not hold."""
        folder = self._workshop.trial
        reference, _ = self.reference_kept(scenario)
        problems = trial.problems
        trial.hit = answer.watched.hit[0] if answer.watched.hit else ""
        trial.survived = answer.code == 0
        if answer.watched.hung:
            problems.append("it hung")
        if answer.code == 0:
            problems += [f"exit code 0, but {what}" for what in _differences(reference, snapshot(folder))]
        elif trial.fault != KILL.name:
            lines = answer.err.splitlines()
            if answer.code not in (1, 2) or len(lines) != 1 or not lines[0].startswith("mlap: "):
                problems.append(f"exit code {answer.code} and {len(lines)} lines: {answer.err[-1500:]}")
        problems += damaged(folder)
        again = self._workshop.run(f"{scenario.call} {scenario.again}")
        if again.code:
            problems.append(f"repeating it ends with exit code {again.code}: {again.err[-1500:]}")
        else:
            problems += [f"repeated, {what}" for what in _differences(reference, snapshot(folder))]

    def reference_kept(self, scenario: Scenario) -> tuple[Snapshot, float]:
        """The reference, which must have been made before the trial began."""
        return self._references[scenario.name]


def _differences(expected: Snapshot, found: Snapshot) -> Iterator[str]:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield f"{name} is not there"
        elif name not in expected:
            yield f"{name} is left over"
        elif expected[name] != found[name]:
            yield f"{name} differs"


def main() -> None:
    """Run a campaign; one JSON object per trial on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("campaign", choices=("inject", "kill"))
    parser.add_argument("--verbs", default=",".join(SCENARIOS), help="which commands")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which faults")
    parser.add_argument("--step", type=int, default=1, help="inject: every so manyth call only")
    parser.add_argument("--first", type=int, default=1, help="inject: the first call")
    parser.add_argument("--trials", type=int, default=300, help="kill: how many")
    parser.add_argument("--seed", type=int, default=0, help="kill: of the random choices")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mlap-faults-") as folder:
        campaign = Campaign(Workshop(Path(folder)))
        for trial in _trials(campaign, options):
            print(json.dumps(asdict(trial)), flush=True)


def _trials(campaign: Campaign, options: argparse.Namespace) -> Iterator[Trial]:
    scenarios = [SCENARIOS[name] for name in options.verbs.split(",")]
    if options.campaign == "kill":
        rng = random.Random(options.seed)
        for number in range(options.trials):
            yield campaign.kill(scenarios[number % len(scenarios)], rng)
        return
    for scenario in scenarios:
        for fault in options.faults.split(","):
            yield from campaign.inject(scenario, FAULTS[fault], iter(range(options.first, 10**6, options.step)))


if __name__ == "__main__":
    main()
