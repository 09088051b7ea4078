"""A headless Chromium that shows a page, controlled through a pipe with the DevTools protocol: window, colour scheme, keys."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = shlex.split(
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
    "--disable-component-update --disable-sync --no-first-run --remote-debugging-pipe"
)


class Browser:
    """One page of a running Chromium."""

    def __init__(self, commands: IO[bytes], answers: BufferedReader) -> None:
        self._commands, self._answers = commands, answers
        self._number, self._left = 0, b""
        self._session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session["sessionId"] = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Returns the result of a command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        self._commands.write(json.dumps(message).encode() + b"\0")
        while (answer := json.loads(self._read())).get("id") != self._number:
            pass  # events
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _read(self) -> bytes:
        while b"\0" not in self._left:
            received = self._answers.read1(1 << 20)
            assert received, "Chromium has ended"
            self._left += received
        message, _, self._left = self._left.partition(b"\0")
        return message

    def show(self, path: Path, width: int, scheme: str = "light") -> None:
        """Shows a file in a window of that width."""
        metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 700}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self.run("document.readyState") != "complete" or self.run("location.protocol") != "file:":
            pass

    def run(self, script: str) -> Any:
        """Returns the value of an expression of JavaScript."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        """Presses and releases a key."""
        code = {"Tab": 9, "Enter": 13, " ": 32}[key]
        for kind, more in (("keyDown", {"text": text} if text else {}), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Runs a Chromium whose profile is a folder of its own."""
    assert CHROMIUM is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", CHROMIUM, *_FLAGS, f"--user-data-dir={folder}"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    with os.fdopen(ours_out, "wb", buffering=0) as commands, os.fdopen(ours_in, "rb") as answers:
        try:
            yield Browser(commands, answers)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
