"""A headless Chromium for tests, driven by its DevTools protocol over a pipe: no driver and no package is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = (
    *("--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


def find() -> str:
    """The browser's executable: `MLAP_BROWSER`, or the first known name in PATH; without one the test is skipped."""
    found = os.environ.get("MLAP_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is in PATH; scripts/browser.sh installs one on Debian")
    return found


class Browser:
    """A browser with one page.

    Attributes:
        events: what the page reported since it was last opened.
    """

    def __init__(self, executable: str, profile: Path, timeout: float = 60) -> None:
        self.events: list[dict[str, Any]] = []
        self.timeout = timeout
        self._last = 0
        self._received = b""
        self._session: str | None = None
        theirs_in, self._out = _pipe()
        self._in, theirs_out = _pipe()
        arguments = [executable, *_ARGUMENTS, f"--user-data-dir={profile}", "about:blank"]
        if os.geteuid() == 0:  # Chromium's sandbox does not work for root
            arguments.insert(1, "--no-sandbox")
        self._process = os.posix_spawn(
            executable,
            arguments,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, theirs_in, 3),  # where Chromium expects the two
                (os.POSIX_SPAWN_DUP2, theirs_out, 4),
            ],
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the browser."""
        with suppress(OSError, TimeoutError, RuntimeError):
            self._session = None
            self.call("Browser.close")
        os.close(self._in)
        os.close(self._out)
        for _ in range(100):
            if os.waitpid(self._process, os.WNOHANG) != (0, 0):
                return
            time.sleep(0.1)
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            if not select.select([self._in], [], [], self.timeout)[0]:
                raise TimeoutError(f"the browser said nothing for {self.timeout} s")
            if not (part := os.read(self._in, 1 << 20)):
                raise RuntimeError("the browser has ended")
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        content: dict[str, Any] = json.loads(message)
        return content

    def open(self, page: Path | str, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Open a file or an address, as on a screen of the given size in CSS pixels, and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 30) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(f"not true within {seconds} s: {expression}")
            time.sleep(0.05)

    def write(self, text: str) -> None:
        """Write into what has the focus."""
        self.call("Input.insertText", text=text)

    def point(self, selector: str, *, click: bool = True) -> None:
        """Move the mouse to the middle of an element, and click."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{place}.scrollIntoView({{block: 'center'}})")
        x, y = self.evaluate(
            f"(() => {{ const b = {place}.getBoundingClientRect();return [b.x + b.width / 2, b.y + b.height / 2] }})()"
        )
        for kind in ("mouseMoved", *(("mousePressed", "mouseReleased") if click else ())):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose_file(self, selector: str, path: Path) -> None:
        """Choose a file in a field for one."""
        found = self.call("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")
        self.call("DOM.setFileInputFiles", files=[str(path)], objectId=found["result"]["objectId"])

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def complaints(self) -> list[str]:
        """Errors and warnings that the page reported since it was opened."""
        found = []
        for event in self.events:
            method, content = event.get("method"), event.get("params", {})
            if (
                method == "Runtime.exceptionThrown"
                or (method == "Runtime.consoleAPICalled" and content["type"] in ("error", "warning", "assert"))
                or (method == "Log.entryAdded" and content["entry"]["level"] in ("error", "warning"))
            ):
                found.append(json.dumps(content))
        return found

    def requests(self) -> list[str]:
        """The addresses that the page asked for since it was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def screenshot(self, path: Path) -> None:
        """A picture of the whole page."""
        content = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(content["data"]))

    def pdf(self, path: Path) -> None:
        """The page as it prints on A4."""
        content = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(content["data"]))


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are not 3 and 4, which would be in the way."""
    ends = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return read, write


@contextmanager
def running(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, ended when it is no longer needed."""
    browser = Browser(find(), profile)
    try:
        yield browser
    finally:
        browser.close()
