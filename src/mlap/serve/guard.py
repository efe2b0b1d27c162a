"""What stands before every request: who may ask, how much, how long, and what a page may do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from mlap.serve.limits import Limits
from mlap.serve.problems import Problem, busy

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "::1")

#: The page is made of our own files alone. Pictures may also be made by the page itself (`blob:`, for downloads).
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),  # what users paste stays nowhere
)


class Guard:
    """An ASGI application in front of another.

    A page of another site can make a browser send requests to this machine. Such a request has a foreign `Origin`, or,
    where a name was bent to point here, a foreign `Host`: both are refused.

    Args:
        app: what is guarded.
        hosts: names by which the server may be called, without port.
        limits: of the server.
        upload: the path whose bodies may be as long as uploads.
    """

    def __init__(self, app: App, hosts: Iterable[str], limits: Limits, upload: str) -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)
        self.limits = limits
        self.upload = upload
        self.open = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(receive, self._most(scope), self.limits.seconds)
        started = False

        async def send_safely(message: Message) -> None:
            nonlocal started
            if body.problem is not None and not started:
                return  # the application speaks of a body that it did not get; we know why
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        self.open += 1
        try:
            self._check(scope)
            await self.app(scope, body.receive, send_safely)
            refused = body.problem
        except Problem as problem:
            refused = problem
        finally:
            self.open -= 1
        if refused is not None and not started:
            body.problem = None
            await _refuse(refused, send_safely)

    def _check(self, scope: MutableMapping[str, Any]) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if self.open > self.limits.connections:
            raise busy(f"{self.limits.connections} requests are open")
        host = headers.get(b"host", "")
        if _name(f"//{host}") not in self.hosts:
            raise Problem(421, "this server is not called by that name; use the address that it printed", "Host")
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise Problem(403, "pages of other sites may not ask this server", "Origin")
        if headers.get(b"sec-fetch-site") == "cross-site" and scope["path"].startswith("/api/"):
            raise Problem(403, "pages of other sites may not ask this server", "Sec-Fetch-Site")
        length = headers.get(b"content-length", "0")
        if length.isdigit() and int(length) > self._most(scope):
            raise _too_long(self._most(scope))

    def _most(self, scope: MutableMapping[str, Any]) -> int:
        return self.limits.upload if scope["path"] == self.upload else self.limits.body


class _Body:
    """The body of a request, as long as it is not too long and does come.

    Attributes:
        problem: what was wrong with it.
    """

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seconds = receive, most, seconds
        self._got = 0
        self._whole = False
        self.problem: Problem | None = None

    async def receive(self) -> Message:
        """The next part."""
        if self._whole:  # the application waits for the end of the connection, which may take its time
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._seconds)
        except asyncio.TimeoutError:
            self.problem = Problem(408, f"nothing came for {self._seconds:g} s")
            raise self.problem from None
        self._got += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._got > self._most:
            self.problem = _too_long(self._most)
            raise self.problem
        return message


def _too_long(most: int) -> Problem:
    return Problem(413, f"the request is too long: at most {most / 1e6:g} MB are read")


def _name(address: str) -> str:
    """The name in an address, without its port; empty if it is none."""
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


async def _refuse(problem: Problem, send: Send) -> None:
    body = json.dumps(problem.content).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    pairs = [(name.lower().encode(), value.encode()) for name, value in {**headers, **problem.headers}.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
