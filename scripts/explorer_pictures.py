"""The pictures of docs/serve.md, from a run and an ensemble of real molecules.

    python scripts/explorer_pictures.py RUN ENSEMBLE TABLE [--out docs]

RUN and ENSEMBLE are models of molecules, TABLE is a CSV file with a column of SMILES. It needs Chromium.
"""

from __future__ import annotations

import argparse
import base64
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser import Browser, running

PROCAINE = "CCN(CC)CCOC(=O)c1ccc(N)cc1"
OTHER = "CN1CCC[C@H]1c1cccnc1"  # nicotine
#: what is looked at with an ensemble: a molecule like those of BACE
LARGE = "CC(C)(C)c1cccc(CNC[C@@H](O)[C@H](Cc2cc(F)cc(F)c2)NC(C)=O)c1"


@contextmanager
def serving(model: str) -> Iterator[str]:
    """The address of a server of the model."""
    call = [sys.executable, "-m", "mlap", "serve", model, "--quiet"]
    server = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)


class Photographer:
    """A browser that takes pictures of one server's page."""

    def __init__(self, browser: Browser, address: str, out: Path) -> None:
        self.browser, self.address, self.out = browser, address, out

    def open(self, **screen: Any) -> None:
        """Open the page and wait until all data are read."""
        self.browser.open(self.address, **screen)
        self.browser.wait("document.querySelector('#footer').textContent.match(/compared(?!.*Reading)/)", 900)

    def ask(self, *smiles: str) -> None:
        """Ask, and wait for the drawing."""
        self.browser.evaluate("document.querySelector('textarea').focus()")
        self.browser.write("\n".join(smiles))
        self.browser.point("button.primary")
        self.browser.wait("document.querySelector('.stage svg')")
        self.settle()

    def choose(self, selector: str, value: str) -> None:
        """Choose in a list, or move a slider."""
        self.browser.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind, {bubbles: true})) })()"
        )

    def settle(self) -> None:
        """Wait for pictures and transitions."""
        self.browser.wait("[...document.images].every((image) => image.complete || image.loading === 'lazy')")
        time.sleep(0.5)

    def take(self, name: str, most: int = 2600) -> None:
        """A picture of the whole page, or of its top."""
        self.browser.evaluate("scrollTo(0, 0)")
        self.settle()
        self.browser.call("Emulation.setScrollbarsHidden", hidden=True)
        width = self.browser.evaluate("innerWidth")
        height = min(most, self.browser.evaluate("document.documentElement.scrollHeight"))
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.browser.call("Emulation.setDeviceMetricsOverride", **screen)
        self.settle()
        content = self.browser.call("Page.captureScreenshot", format="png")
        (self.out / f"{name}.png").write_bytes(base64.b64decode(content["data"]))


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("ensemble")
    parser.add_argument("table", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as profile, running(Path(profile)) as browser:
        with serving(options.run) as address:
            page = Photographer(browser, address, options.out)
            page.open()
            page.ask(PROCAINE)
            page.take("explorer_look")
            page.open(dark=True)
            page.ask(PROCAINE, OTHER)
            page.choose(".controls .field:last-child select", OTHER)
            browser.wait("document.querySelectorAll('.panel svg').length === 2")
            page.choose(".slider input", "1")
            page.take("explorer_two")
            page.open(width=390, height=844)
            page.ask(PROCAINE)
            page.take("explorer_phone", 1500)
            page.open()
            browser.point("#tab-map")
            browser.wait("document.querySelector('.key span')")
            browser.evaluate("document.querySelector('canvas').focus()")
            for _ in range(40):
                browser.press("ArrowRight", 39)
            browser.wait("document.querySelector('.picked img')")
            page.take("explorer_map")
            page.open()
            browser.point("#tab-table")
            browser.choose_file("input[type=file]", options.table)
            browser.wait("document.querySelector('tbody tr')")
            page.choose(".controls .field:nth-child(2) select", "all")
            page.take("explorer_table", 1100)
        with serving(options.ensemble) as address:
            page = Photographer(browser, address, options.out)
            page.open()
            page.ask(LARGE)
            page.take("explorer_ensemble")


if __name__ == "__main__":
    main()
