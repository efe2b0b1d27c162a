"""The command as a process: where it listens, how it ends, what it says when it cannot; and many who ask at once."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

import mlap
from mlap.cli import main
from mlap.models import Model
from mlap.serve import listen
from mlap.serve.limits import Limits

CLIENTS = 200
ROUNDS = 3

#: prints how many of ten interrupts reach the main thread while RDKit, in another one, takes the signal for itself
INTERRUPTS = """
import os, signal, threading, time
from mlap.cli.serve import interrupts_heard

signal.signal(signal.SIGINT, signal.default_int_handler)
heard = 0
with interrupts_heard():
    from rdkit import Chem

    molecule, pattern = Chem.MolFromSmiles("C" * 400), Chem.MolFromSmarts("C~C~C~C~C~C~C~C")

    def search():
        while True:
            try:
                molecule.GetSubstructMatches(pattern, uniquify=False, maxMatches=100_000)
            except KeyboardInterrupt:
                pass

    threading.Thread(target=search, daemon=True).start()
    for _ in range(10):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(100):
                time.sleep(0.05)
        except KeyboardInterrupt:
            heard += 1
    print(heard, flush=True)
    os._exit(0)
"""


@contextmanager
def command(*arguments: str, temporary: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `mlap serve`, and the address that it printed; `temporary` is where it may keep files."""
    call = [sys.executable, "-m", "mlap", "serve", *arguments]
    where = {} if temporary is None else {"TMPDIR": str(temporary)}
    # Whatever happens, the block of the process closes its pipes and waits for its end.
    with subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **where}
    ) as process:
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
                process.communicate(timeout=120)
            finally:
                process.kill()


def test_the_command_serves_until_it_is_interrupted(molecules: Model, tmp_path: Path) -> None:
    with command(str(molecules.path), "--quiet", temporary=tmp_path) as (process, address):
        assert address.startswith("http://127.0.0.1:")
        about = httpx.get(f"{address}api/model", timeout=60).json()
        assert about["reference"]["own"]
        assert about["reference"]["graphs"] == 48
        assert len(list(tmp_path.glob(".mlap-serve.*"))) == 1
    assert process.returncode == 0
    assert not list(tmp_path.glob(".mlap-serve.*"))


def test_no_interrupt_is_lost_to_a_library() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTS], capture_output=True, text=True, timeout=120)
    assert ended.stdout == "10\n", ended.stderr


def test_the_api_alone(molecules: Model) -> None:
    with command(str(molecules.path), "--api-only") as (_, address):
        assert "/api/explain" in httpx.get(address, timeout=60).json()["paths"]
        assert httpx.get(httpx.URL(address).join("/"), timeout=60).status_code == 404


def test_other_data_and_another_confidence(molecules: Model, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("smiles,alcohol\n" + "".join(f"{'C' * n}N,{n % 2}\n" for n in range(1, 9)))
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


def test_answers_are_sent_at_once() -> None:
    """A connection that waits to fill its packets makes every answer 40 ms late."""
    found = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def ask() -> None:
        listening = listen("127.0.0.1", 0)
        async with await asyncio.start_server(answer, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            await reader.read()
            writer.close()
            await writer.wait_closed()

    asyncio.run(ask())
    assert found == [1]


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


def test_a_confidence_needs_a_calibrated_model(molecules: Model, failing: Callable[..., str]) -> None:
    line = failing(str(molecules.path), "--confidence", "0.9")
    assert "--confidence" in line
    assert "calibrate" in line


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


@pytest.mark.slow
def test_an_hour_of_questions_leaves_nothing_behind(molecules: Model, tmp_path: Path) -> None:
    """As many questions as one a second for an hour, of all kinds: no memory, file, thread or table is left over."""
    with (
        command(str(molecules.path), "--quiet", temporary=tmp_path) as (process, address),
        httpx.Client(base_url=address, timeout=60) as http,
    ):
        while not (about := http.get("/api/model").json()["reference"])["ready"] or about["done"] < about["mapped"]:
            time.sleep(0.1)

        def minute(number: int) -> None:
            """Sixty questions."""
            for turn in range(27):
                inputs = [f"{'C' * (1 + (number + turn) % 40)}O"]  # others each time: nothing may be remembered
                assert http.post("/api/predict", json={"inputs": inputs}).status_code == 200
                assert http.post("/api/explain", json={"inputs": inputs}).status_code == 200
            assert http.get("/api/picture", params={"input": "CCO"}).status_code == 200
            assert http.get("/api/map").status_code == 200
            assert http.post("/api/predict", content=b"{").status_code == 422
            content = b"smiles\n" + b"CCO\nC(C\n" * 20
            while (sent := http.post("/api/tables", params={"name": "a.csv"}, content=content)).status_code == 503:
                time.sleep(0.05)  # two tables are being predicted
            assert sent.status_code == 202
            table = f"/api/tables/{sent.json()['id']}"
            while not http.get(table).json().get("finished", True):  # one that made room is finished, too
                time.sleep(0.02)
            assert http.get(f"{table}/predictions.csv").status_code in (200, 404)
            assert http.delete(table).status_code in (204, 404)

        def minutes(first: int, end: int) -> None:
            with ThreadPoolExecutor(6) as clients:
                list(clients.map(minute, range(first, end)))

        server = psutil.Process(process.pid)
        minutes(0, 12)
        memory, files, threads = server.memory_info().rss, server.num_fds(), server.num_threads()
        minutes(12, 60)
        assert server.memory_info().rss - memory < 30e6
        assert server.num_fds() <= files + 2
        assert server.num_threads() <= threads + 2
        (folder,) = tmp_path.glob(".mlap-serve.*")
        assert len(list(folder.iterdir())) <= Limits().tables
    assert not folder.exists()
