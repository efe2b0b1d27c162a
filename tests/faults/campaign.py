"""Campaigns against the command: `python tests/faults/campaign.py --help`."""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.checks import Snapshot, damaged, snapshot
from faults.commands import SCENARIOS, Answer, Scenario, Workshop
from faults.syscalls import BROKEN, FORBIDDEN, FULL, KILL, Fault

import mlap

#: the explorer's name among the commands
EXPLORER = "serve"
_SERVE = "serve run --port 0 --threads 1"
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
        self._calls: dict[tuple[str, str], int] = {}

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
        calls, call = self.calls(scenario, KILL), scenario.call
        self._workshop.begin(scenario.start)
        for _ in range(rng.choice((1, 1, 2))):
            if rng.random() < 0.5:
                trial.number = rng.randint(1, calls)
                answer = self._workshop.run(call, KILL, trial.number)
            else:
                answer = self._workshop.run(call, moment=rng.uniform(0, seconds))
            call = f"{scenario.call} {scenario.again}"
        self._judge(trial, scenario, answer)
        return trial

    def kill_explorer(self, rng: random.Random) -> Trial:
        """Kill the explorer while it predicts tables, then let another one come and go."""
        trial = Trial(EXPLORER, KILL.name, 0)
        workshop = self._workshop
        workshop.begin("made")
        before = snapshot(workshop.trial)
        with asking(workshop.out):
            workshop.run(_SERVE, moment=rng.uniform(0, 4))
        problems = trial.problems
        problems += [f"the explorer was killed, and {what}" for what in _differences(before, snapshot(workshop.trial))]
        for seconds in (5, 40):  # a machine that is busy takes longer to start one
            with asking(workshop.out) as answers:
                ended = workshop.run(_SERVE, moment=seconds, signal_=signal.SIGINT)
            problems += [f"{left.name} is left over" for left in workshop.temporary.glob(".mlap-serve*")]
            if 202 in answers:
                break
        if ended.watched.hung or 202 not in answers:
            problems.append(f"the next explorer does not answer: {ended.err[-1500:]}")
        return trial

    def calls(self, scenario: Scenario, fault: Fault) -> int:
        """How many calls of an undisturbed command a fault can hit."""
        key = scenario.name, fault.name
        if key not in self._calls:
            self._workshop.begin(scenario.start)
            self._calls[key] = self._workshop.run(scenario.call, fault).watched.calls
        return self._calls[key]

    def _judge(self, trial: Trial, scenario: Scenario, answer: Answer) -> None:
        """Note what does not hold."""
        folder = self._workshop.trial
        reference, _ = self._references[scenario.name]
        problems = trial.problems
        trial.hit = answer.watched.hit[0] if answer.watched.hit else ""
        trial.survived = answer.code == 0
        if answer.watched.hung:
            problems.append("it hung")
        if answer.code == 0:
            found = snapshot(folder).items()  # what is hidden is for the next command to remove
            visible = {name: digest for name, digest in found if digest or name in reference}
            problems += [f"exit code 0, but {what}" for what in _differences(reference, visible)]
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


@contextmanager
def asking(out: Path) -> Iterator[list[int]]:
    """Upload tables to an explorer that prints its address to a file, over and over; the codes of its answers."""
    codes: list[int] = []
    over = threading.Event()
    out.write_text("")

    def ask() -> None:
        while not over.wait(0.05):
            found = re.search(r"http://[\d.]+:\d+", out.read_text(encoding="utf-8"))
            if found is None:
                continue
            with contextlib.suppress(httpx.HTTPError):
                table = {"name": "t.csv"}
                content = "smiles\n" + "CCO\n" * 2000
                codes.append(httpx.post(f"{found[0]}/api/tables", params=table, content=content).status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield codes
    finally:
        over.set()
        thread.join()


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
    parser.add_argument("campaign", choices=("inject", "kill", "soak"))
    parser.add_argument("--verbs", default=",".join(SCENARIOS), help="which commands")
    parser.add_argument("--faults", default=",".join(FAULTS), help="which faults")
    parser.add_argument("--step", type=int, default=1, help="inject: every so manyth call only")
    parser.add_argument("--first", type=int, default=1, help="inject: the first call")
    parser.add_argument("--trials", type=int, default=400, help="kill, soak: how many kills at most")
    parser.add_argument("--seed", type=int, default=0, help="kill: of the random choices")
    parser.add_argument("--minutes", type=float, default=30, help="soak: about how long")
    parser.add_argument("--out", type=Path, help="soak: a CSV file for the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mlap-faults-") as folder:
        campaign = Campaign(Workshop(Path(folder)))
        if options.campaign == "soak":
            sys.exit(soak(campaign, options))
        for trial in _trials(campaign, options):
            print(json.dumps(asdict(trial)), flush=True)


#: columns of the figures
COLUMNS = ("promise", "verb", "fault", "trials", "stopped", "survived", "broken", "command", "version")
_PROMISES = {
    "inject": "a failed system call: one line, files whole or absent, repeating gives the undisturbed result",
    "kill": "kill -9: files whole or absent, repeating gives the undisturbed result",
}


def soak(campaign: Campaign, options: argparse.Namespace) -> int:
    """All campaigns, in a random order that spreads what the time allows; a table, and 1 if something did not hold."""
    end = time.monotonic() + 60 * options.minutes
    rng = random.Random(options.seed)
    verbs = itertools.islice(itertools.cycle([*SCENARIOS, EXPLORER]), options.trials)
    killed = (
        campaign.kill_explorer(rng) if verb == EXPLORER else campaign.kill(SCENARIOS[verb], rng) for verb in verbs
    )
    campaigns = {"kill": killed, "inject": _spread(campaign, rng)}
    found: list[tuple[str, Trial]] = []
    rows: list[dict[str, object]] = []
    while campaigns:
        for kind, trials in list(campaigns.items()):  # by turns: the time may be over before either is
            trial = next(trials, None) if time.monotonic() < end else None
            if trial is None:
                del campaigns[kind]
                continue
            found.append((kind, trial))
            if trial.problems:
                print(json.dumps(asdict(trial)), file=sys.stderr, flush=True)
            rows = _figures(found, f"make soak (seed {options.seed}, {options.minutes:g} minutes)")
            if options.out is not None:  # after each trial: what was found is not lost if somebody stops it
                with options.out.open("w", encoding="utf-8", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    writer.writeheader()
                    writer.writerows(rows)
    for row in rows:
        print(*(f"{row[column]}" for column in COLUMNS[1:7]), sep="\t")
    return int(any(trial.problems for _, trial in found))


def _spread(campaign: Campaign, rng: random.Random) -> Iterator[Trial]:
    """Every call of every command and fault: one of each in turn, in a random order."""
    chances = []
    for scenario, fault in itertools.product(SCENARIOS.values(), FAULTS.values()):
        numbers = list(range(1, campaign.calls(scenario, fault) + 1))
        rng.shuffle(numbers)
        chances.append([(scenario, fault, number) for number in numbers])
    print(f"{sum(map(len, chances))} calls can fail", file=sys.stderr, flush=True)
    rng.shuffle(chances)
    for turn in itertools.zip_longest(*chances):
        for chance in turn:
            if chance is not None:
                scenario, fault, number = chance
                yield from campaign.inject(scenario, fault, iter([number]))


def _figures(found: list[tuple[str, Trial]], command: str) -> list[dict[str, object]]:
    groups: dict[tuple[str, str, str], list[Trial]] = {}
    for kind, trial in sorted(found, key=lambda entry: (entry[0], entry[1].scenario, entry[1].fault)):
        groups.setdefault((kind, trial.scenario, trial.fault), []).append(trial)
    return [
        {
            "promise": _PROMISES[kind],
            "verb": verb,
            "fault": fault,
            "trials": len(trials),
            "stopped": sum(not trial.survived for trial in trials),
            "survived": sum(trial.survived for trial in trials),
            "broken": sum(bool(trial.problems) for trial in trials),
            "command": command,
            "version": mlap.__version__,
        }
        for (kind, verb, fault), trials in groups.items()
    ]


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
