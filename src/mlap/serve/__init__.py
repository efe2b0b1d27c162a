"""The explorer: a page on this machine where people look into a model, and the API behind it."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Callable

from mlap.errors import UsageError
from mlap.graphs import GraphSet
from mlap.models import Model
from mlap.serve.limits import Limits

__all__ = ["Limits", "serve"]


def serve(
    model: Model,
    graphs: GraphSet | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    page: bool = True,
    browser: bool = False,
    no_data: str = "",
    confidence: float | None = None,
    limits: Limits | None = None,
    on_start: Callable[[str], None] = print,
) -> None:
    """Serve a model until the process is interrupted.

    Args:
        model: any model.
        graphs: a data set to compare answers with, usually `model.data()`.
        host: the address to listen on; others than this machine can ask only if it is not a loopback address.
        port: 0 for any that is free.
        page: whether to serve the page, not only the API.
        browser: whether to open the page in the user's browser.
        no_data: why there is no data set, in words for the page.
        confidence: of conformal sets and intervals, such as 0.9, of a calibrated model.
        limits: of the server.
        on_start: called with the server's address once it listens.
    """
    try:
        import uvicorn

        from mlap.serve.app import create_app
    except ModuleNotFoundError as error:
        raise UsageError(f"the explorer needs {error.name}; install it with: pip install 'mlap[serve]'") from error
    from mlap.serve.explorer import Explorer
    from mlap.serve.guard import LOOPBACK
    from mlap.serve.tables import Tables

    explorer = Explorer(model, graphs, no_data, confidence, limits)
    listening = listen(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}/"
    tables = Tables(explorer)
    try:
        config = uvicorn.Config(
            create_app(explorer, [*LOOPBACK, host], page=page, tables=tables),
            log_level="warning",
            access_log=False,  # addresses of pictures hold what users paste
            server_header=False,
            timeout_keep_alive=60,  # a slow client must not find its connection closed when it asks again
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=64 << 10,
        )
        server = uvicorn.Server(config)
        on_start(address)
        if browser:
            webbrowser.open(address)
        server.run(sockets=[listening])
    finally:  # the server does both as well, unless it is interrupted before it has begun
        tables.close()
        listening.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens already, so that the address can be told, and asked, before the server runs."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only where the protocol is named does asyncio send small packets at once; each answer would take 40 ms longer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror}", "port", 0) from error
    listening.listen(256)
    listening.set_inheritable(True)
    return listening
