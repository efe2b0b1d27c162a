"""The commands that are disturbed, run in processes that start at once: forks of one that has imported everything."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import traceback
import types
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from faults.syscalls import NONE, Fault, Watched, watch

#: what the verbs import when they run
_ROOMS = (
    "mlap.cli",
    "mlap.models",
    "mlap.report.page",
    "mlap.study",
    "mlap.study.worker_process",
    "mlap.analysis",
    "mlap.analysis.explanation_files",
    "mlap.kernels.run",
    "mlap.serve.app",
    "uvicorn",
    "sklearn.metrics",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_svg",
    "matplotlib.backends.backend_agg",
    "rdkit.Chem.Draw",
    "pyarrow.parquet",
)

#: a network that trains in a moment
_FAST = "--layers 2 --width 8 --threads 1 --quiet"
_STEP = "--preset paper --set schedule=step"


@dataclass(frozen=True)
class Scenario:
    """A command, and where it starts.

    Args:
        name: what is done.
        call: the command's arguments.
        start: the folder that it starts in; see `Workshop`.
        again: further arguments when it is repeated after a fault.
    """

    name: str
    call: str
    start: str = "made"
    again: str = ""


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("train", f"train table.csv {_STEP} --epochs 2 {_FAST} --out run", "bare", "--resume"),
        Scenario("resume", f"train table.csv {_STEP} --epochs 3 {_FAST} --out run --resume"),
        Scenario("overwrite", f"train table.csv {_STEP} --epochs 1 --seed 5 {_FAST} --out run --overwrite"),
        Scenario(
            "members", f"train table.csv {_STEP} --members 2 --epochs 1 {_FAST} --out several", "bare", "--resume"
        ),
        Scenario("baseline", "train table.csv --baseline wl-linear --out linear --quiet", "bare", "--resume"),
        Scenario(
            "sweep",
            "sweep table.csv --architectures naive,mlap-sum --layers 1 --seeds 0 --set epochs=2 --set width=8 "
            "--study study.db --workers 1 --keep-models --quiet",
            "bare",
        ),
        Scenario("pack", "data pack other.csv --out set.graphs --quiet"),
        Scenario("predict", "predict run other.csv --out answers.csv --quiet"),
        Scenario("predict parquet", "predict run other.csv --out answers.parquet --quiet"),
        Scenario("predict shards", "predict run other.csv --out shards/ --shard-rows 10 --merge all.csv --quiet"),
        Scenario("embed", "embed run other.csv --out vectors.csv --quiet"),
        Scenario("calibrate", "calibrate run --quiet"),
        Scenario("ensemble", "ensemble run second --out both --quiet", again="--overwrite"),
        Scenario("report", "report study.db --out report --no-tsne --quiet"),
        Scenario("explain", "explain run other.csv --graphs 0-2 --max 1 --out looked-at --quiet"),
    )
}

#: folder → the commands that make it out of the tables
_STARTS = {
    "bare": (),
    "made": (
        f"train table.csv {_STEP} --epochs 1 {_FAST} --out run",
        f"train table.csv {_STEP} --epochs 1 --seed 1 {_FAST} --out second",
        "sweep table.csv --architectures naive,mlap-sum --layers 1 --seeds 0,1 --set epochs=1 --set width=8 "
        "--study study.db --workers 1 --keep-models --quiet",
        "data pack table.csv --out set.graphs --quiet",
        "predict second other.csv --out answers.csv --quiet",
        "predict second other.csv --out answers.parquet --quiet",
    ),
}


@dataclass(frozen=True)
class Answer:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str
    watched: Watched


class Workshop:
    """Runs commands in a folder that always has the same name, because results hold paths.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        for room in _ROOMS:
            __import__(room)
        self._compile()
        self._folder = folder
        self.trial = folder / "trial"
        self.out = folder / "stdout"
        self.temporary = folder
        self._starts: dict[str, Path] = {}

    @staticmethod
    def _compile() -> None:
        """Load the compiled kernels, which takes longer than all that a trial does."""
        import torch

        from mlap.graphs import synthetic
        from mlap.training import Recipe, train

        torch.set_num_threads(1)  # a fork has none of the threads of its parent
        train(Recipe(architecture="mlap-sum", layers=2, width=8, epochs=1), synthetic(6))

    def begin(self, start: str) -> None:
        """Make the folder of a trial anew."""
        shutil.rmtree(self.trial, ignore_errors=True)
        if start not in self._starts:
            self._make(start)
        shutil.copytree(self._starts[start], self.trial, symlinks=True)

    def _make(self, start: str) -> None:
        self.trial.mkdir()
        for name in ("home", "data"):
            (self.trial / name).mkdir()
        (self.trial / "table.csv").write_text(_table(range(60)), encoding="utf-8")
        (self.trial / "other.csv").write_text(_table(range(35, 60)), encoding="utf-8")
        for call in _STARTS[start]:
            answer = self.run(call)
            assert answer.code == 0, f"{call}: {answer.err}"
        self._starts[start] = self._folder / start
        self.trial.rename(self._starts[start])

    def run(self, call: str, fault: Fault = NONE, number: int = 0, **how: Any) -> Answer:
        """Run the command in the folder of the trial, with a fault at its `number`-th call of the system.

        Further arguments are those of `watch`.
        """
        out, err = self.out, self._folder / "stderr"

        def work() -> int:
            with out.open("wb") as to_out, err.open("wb") as to_err:
                os.dup2(to_out.fileno(), 1)
                os.dup2(to_err.fileno(), 2)
            sys.stdout, sys.stderr = (
                io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), encoding="utf-8") for number in (1, 2)
            )
            self._environment()
            sys.argv = ["mlap", *shlex.split(call)]
            code = _main()
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            return code

        watched = watch(work, self.trial, fault, number, **how)
        return Answer(watched.code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"), watched)

    def _environment(self) -> None:
        """Where a command of a trial finds things, in the process that runs it."""
        os.chdir(self.trial)
        home = str(self.trial / "home")
        os.environ |= {"HOME": home, "XDG_CACHE_HOME": home, "MLAP_DATA": str(self.trial / "data")}
        os.environ |= {"TMPDIR": str(self._folder), "COLUMNS": "120"}
        import tempfile

        import mlap.study.local_engine as engine

        tempfile.tempdir = None
        names = {**vars(subprocess), "Popen": _ForkedWorker}
        engine.subprocess = types.SimpleNamespace(**names)  # type: ignore[attr-defined]


def _main() -> int:
    """The command, as its script runs it; the exit code."""
    from mlap.cli import main

    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    return 1


class _ForkedWorker:
    """A worker of a sweep, like the one that `subprocess.Popen` starts, without the seconds of importing torch."""

    def __init__(self, command: list[str], *, stdin: int, stdout: int, stderr: IO[bytes], env: dict[str, str]) -> None:
        their_in, our_in = os.pipe()
        our_out, their_out = os.pipe()
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                for number, file in enumerate((their_in, their_out, stderr.fileno())):
                    os.dup2(file, number)
                os.closerange(3, 1024)  # above all the driver's ends of the pipes: see `worker_process`
                sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
                os.environ.clear()
                os.environ.update(env)
                from mlap.study.worker_process import main

                main()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(their_in)
        os.close(their_out)
        self.stdin: Any = os.fdopen(our_in, "wb")
        self.stdout: Any = os.fdopen(our_out, "rb")

    def kill(self) -> None:
        """As of `Popen`."""
        if self._code is None:
            os.kill(self.pid, 9)

    def wait(self, timeout: float | None = None) -> int:
        """As of `Popen`."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


def _table(rows: range) -> str:
    """Molecules with a label that depends on them."""
    heads, tails = ("CC", "OC", "NC", "CCC", "ClC", "c1ccccc1", "CN(C)", "CS"), ("O", "C(=O)O", "N", "CCl", "c1ccncc1")
    smiles = [heads[row % 8] + "C" * (row // 8 % 3) + tails[row % 5] for row in rows]
    lines = [f"m{row},{text},{int('N' in text or 'n' in text)}" for row, text in zip(rows, smiles, strict=True)]
    return "\n".join(("name,smiles,active", *lines)) + "\n"
