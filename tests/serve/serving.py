"""Real servers for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from mlap.graphs import GraphSet
from mlap.models import Model
from mlap.serve import listen


@dataclass(frozen=True)
class Served:
    """A running server: its address, what it serves, and somebody who asks it."""

    address: str
    explorer: Any
    client: httpx.Client


@contextmanager
def serving(model: Model, graphs: GraphSet | None, *, wait: bool = True, **options: Any) -> Iterator[Served]:
    """A server on a free port, in a thread; `wait` until the data set is read and predicted."""
    import uvicorn

    from mlap.serve.app import create_app
    from mlap.serve.explorer import Explorer

    explorer = Explorer(model, graphs, confidence=options.pop("confidence", None), limits=options.pop("limits", None))
    app = create_app(explorer, ["localhost", "127.0.0.1"], **options)
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started or (wait and graphs is not None and not explorer.reference.finished):  # type: ignore[union-attr]
            assert thread.is_alive()
            assert explorer.reference is None or not explorer.reference.problem
            threading.Event().wait(0.02)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with httpx.Client(base_url=address, timeout=60) as client:
            yield Served(address, explorer, client)
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
    assert not thread.is_alive()
