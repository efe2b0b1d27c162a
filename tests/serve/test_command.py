"""The command as a process: where it listens, how it ends, what it says when it cannot; and many who ask at once."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

import mlap
from mlap.cli import main
from mlap.models import Model

CLIENTS = 200
ROUNDS = 3


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `mlap serve`, and the address that it printed."""
    call = [sys.executable, "-m", "mlap", "serve", *arguments]
    process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            _, said = process.communicate(timeout=60)
            raise AssertionError(said)
        yield process, address
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=30)
        finally:
            process.kill()


def test_the_command_serves_until_it_is_interrupted(molecules: Model) -> None:
    before = set(Path(tempfile.gettempdir()).glob(".mlap-serve.*"))
    with command(str(molecules.path), "--quiet") as (process, address):
        assert address.startswith("http://127.0.0.1:")
        about = httpx.get(f"{address}api/model", timeout=60).json()
        assert about["reference"]["own"]
        assert about["reference"]["graphs"] == 48
        assert len(set(Path(tempfile.gettempdir()).glob(".mlap-serve.*")) - before) == 1
    assert process.returncode in (0, 130, -signal.SIGINT)
    assert set(Path(tempfile.gettempdir()).glob(".mlap-serve.*")) <= before


def test_the_api_alone(molecules: Model) -> None:
    with command(str(molecules.path), "--api-only") as (_, address):
        assert "/api/explain" in httpx.get(address, timeout=60).json()["paths"]
        assert httpx.get(httpx.URL(address).join("/"), timeout=60).status_code == 404


def test_other_data_and_another_confidence(molecules: Model, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("smiles,label\n" + "".join(f"{'C' * n}N,{n % 2}\n" for n in range(1, 9)))
    model = tmp_path / "calibrated"
    shutil.copytree(molecules.path, model)  # type: ignore[arg-type]
    mlap.load(model).calibrate()
    data = ("--data", str(tmp_path / "other.csv"), "--data-root", str(tmp_path))
    where = ("--host", "localhost", "--port", "0", "--threads", "1", "--device", "cpu", "--confidence", "0.8")
    with command(str(model), *data, *where) as (_, address):
        assert httpx.get(f"{address}api/model", timeout=60).json()["reference"]["graphs"] == 8
        (answer,) = httpx.post(f"{address}api/predict", json={"inputs": ["CCO"]}, timeout=60).json()["answers"]
        assert "80 %" in answer["sentence"]


def test_the_browser_is_opened_on_request(molecules: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser that writes down where it was sent."""
    seen = tmp_path / "seen"
    (tmp_path / "browse").write_text(f'#!/bin/sh\necho "$1" > {seen}\n')
    (tmp_path / "browse").chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{tmp_path / 'browse'} %s")
    with command(str(molecules.path), "--open") as (_, address):
        httpx.get(f"{address}api/model", timeout=60)
        for _ in range(100):
            if seen.exists() and seen.read_text():
                break
            time.sleep(0.1)
        assert seen.read_text().strip() == address


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A call that ends with one line, which it returns."""

    def fail(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["mlap", "serve", *arguments])
        with pytest.raises(SystemExit, match="2"):
            main()
        said = capsys.readouterr()
        assert said.out == ""
        (line,) = said.err.splitlines()
        return line

    return fail


def test_a_missing_extra_is_one_line(
    molecules: Model, failing: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "mlap[serve]" in failing(str(molecules.path))


def test_a_port_that_is_taken_is_one_line(molecules: Model, failing: Callable[..., str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert port in failing(str(molecules.path), "--port", port)


def test_data_that_are_not_there_are_one_line(molecules: Model, failing: Callable[..., str]) -> None:
    assert "no-such.csv" in failing(str(molecules.path), "--data", "no-such.csv")


@pytest.mark.slow
def test_hundreds_ask_at_once(molecules: Model) -> None:
    """Every answer is right or says when to come again, and memory does not grow with the number of questions."""
    asked = [f"{'C' * n}O" for n in range(1, 11)]
    expected = dict(zip(asked, molecules.predict(asked).values[:, 0].tolist(), strict=True))
    with command(str(molecules.path)) as (process, address):

        async def client(http: httpx.AsyncClient, number: int) -> list[int]:
            statuses = []
            for turn in range(2):
                smiles = asked[(number + turn) % len(asked)]
                response = await http.post("/api/predict", json={"inputs": [smiles]})
                statuses.append(response.status_code)
                if response.status_code == 200:
                    (answer,) = response.json()["answers"]
                    assert answer["outputs"][0]["value"] == pytest.approx(expected[smiles], abs=1e-6)
                else:
                    assert response.status_code == 503
                    assert int(response.headers["retry-after"]) > 0
            return statuses

        async def crowd() -> list[int]:
            limits = httpx.Limits(max_connections=CLIENTS)
            async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as http:
                found = await asyncio.gather(*(client(http, number) for number in range(CLIENTS)))
            return [status for statuses in found for status in statuses]

        memory = []
        for _ in range(ROUNDS):
            statuses = asyncio.run(crowd())
            assert len(statuses) == 2 * CLIENTS
            assert 200 in statuses
            memory.append(psutil.Process(process.pid).memory_info().rss)
        assert memory[-1] - memory[0] < 50e6
        assert httpx.post(f"{address}api/predict", json={"inputs": ["CCO"]}).status_code == 200
