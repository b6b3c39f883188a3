"""A headless Chromium for tests: real input, and everything that the page asks for.

It is spoken to by the DevTools protocol over two pipes, which needs no library and no port.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str | None:
    """The first Chromium or Chrome on the path."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in a browser, which ends with the context."""

    def __init__(self, program: str, folder: Path) -> None:
        self.requests: list[str] = []  # the addresses that the page asked for
        self.complaints: list[str] = []  # exceptions and errors on the console
        self._number, self._session, self._rest = 0, "", b""
        read_end, self._write = os.pipe()
        self._read, write_end = os.pipe()
        # Chromium reads from 3 and writes to 4; both ends are moved out of the way before.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (read_end, write_end)]

        def connect() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
        quiet = ("--no-first-run", "--disable-extensions", "--hide-scrollbars")
        self._process = subprocess.Popen(
            [program, *options, *quiet, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(3, 4),
            preexec_fn=connect,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (read_end, write_end, *ends):
            os.close(end)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        try:
            self._call("Browser.close")
            self._process.wait(timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self._call("Page.navigate", url=path.absolute().as_uri())
        self.evaluate("document.readyState === 'complete' || new Promise(r => onload = r)")
        self.settle()

    def settle(self) -> None:
        """Wait until the page has drawn what was asked of it, the fine picture too."""
        self.evaluate("new Promise(r => setTimeout(() => requestAnimationFrame(r), 400))")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        done = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            raise AssertionError(done["exceptionDetails"])
        return done["result"].get("value")

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the window a size in pixels, and the user a taste."""
        window = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **window)
        taste = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[taste])
        self.settle()

    def drag(self, *places: tuple[float, float]) -> None:
        """Press the mouse at the first place, move over the others, release at the last."""
        for number, (x, y) in enumerate(places):
            kind = "mouseMoved" if number else "mousePressed"
            self._mouse(kind, x, y)
        self._mouse("mouseReleased", *places[-1])
        self.settle()

    def _mouse(self, kind: str, x: float, y: float) -> None:
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def picture(self) -> bytes:
        """The whole page as PNG."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._read, 1 << 16)
            if not read:
                raise OSError("the browser has ended")
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        method, details = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(details["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "assert"):
            self.complaints.append(json.dumps(details["args"]))
