"""A real browser, headless, spoken to through chromedriver: JSON over HTTP, so the standard library is enough."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ABSENT = "needs chromium and chromedriver (Debian: apt install chromium chromium-driver)"
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-unsafe-swiftshader",  # 3-D without a graphics card
    "--hide-scrollbars",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # how the protocol names an element


def available() -> bool:
    return bool(_program() and shutil.which("chromedriver"))


def _program() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One window."""

    def __init__(self, server: str, session: str):
        self._base = f"{server}/session/{session}"

    def call(self, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
        return _ask(f"{self._base}{path}", body, method)

    def open(self, page: Path, hash: str = "") -> None:
        self.call("/url", {"url": "about:blank"})  # another hash alone would not load it again
        self.call("/url", {"url": f"{page.as_uri()}{hash}"})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script's return."""
        return self.call("/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, seconds: float = 15.0) -> Any:
        """Until a script returns something true."""
        end = time.monotonic() + seconds
        while not (found := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(f"not true within {seconds:.0f} s: {script}")
            time.sleep(0.05)
        return found

    def find(self, selector: str) -> str:
        return str(self.call("/element", {"using": "css selector", "value": selector})[ELEMENT])

    def click(self, selector: str) -> None:
        self.call(f"/element/{self.find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        self.call(f"/element/{self.find(selector)}/value", {"text": text})

    def drag(self, selector: str, across: int, down: int) -> None:
        """Press in the middle of an element, move, release: as a mouse does."""
        here = {"type": "pointerMove", "origin": {ELEMENT: self.find(selector)}, "x": 0, "y": 0}
        moves = [
            {"type": "pointerMove", "origin": "pointer", "x": across // 4, "y": down // 4, "duration": 50}
            for _ in range(4)
        ]
        steps = [here, {"type": "pointerDown", "button": 0}, *moves, {"type": "pointerUp", "button": 0}]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": steps}
        self.call("/actions", {"actions": [mouse]})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self.call("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, height: int) -> None:
        """The page's own size; a window has a least one, a phone is narrower."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme: str) -> None:
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def errors(self) -> list[str]:
        """What the console said since the last call, warnings and worse."""
        return [entry["message"] for entry in self._log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def _log(self, kind: str) -> list[dict[str, Any]]:
        return list(self.call("/se/log", {"type": kind}))

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        found = self.devtools("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def print(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("/print", {"background": True})))


@contextmanager
def browser(folder: Path, size: Sequence[int] = (1400, 900)) -> Iterator[Browser]:
    """A browser with a profile of its own, gone with the block."""
    program = _program()
    driver = subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        server = f"http://127.0.0.1:{_port(driver)}"
        options = [*OPTIONS, f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}"]
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": options, "binary": program},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = _ask(f"{server}/session", {"capabilities": {"alwaysMatch": wanted}}, "POST")["sessionId"]
        try:
            yield Browser(server, session)
        finally:
            _ask(f"{server}/session/{session}", None, "DELETE")
    finally:
        driver.terminate()
        driver.communicate(timeout=10)


def _port(driver: subprocess.Popen[str]) -> int:
    assert driver.stdout is not None
    for line in driver.stdout:
        if "started successfully on port" in line:
            return int(line.rstrip(".\n").rpartition(" ")[2])
    raise RuntimeError("chromedriver ended before it listened")


def _ask(url: str, body: dict[str, Any] | None, method: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(json.load(error)["value"]["message"].partition("\n")[0]) from None
