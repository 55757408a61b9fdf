"""Run a program for a notification: the user's command, or that of the desktop.

The program has no shell, no terminal and no secret of swarm. After `LIMIT` seconds its
process group is ended.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence

from swarm import settings
from swarm.errors import CannotRun
from swarm.notify.channel import Undelivered
from swarm.stores.secrets import agent_environment
from swarm.system.child import GatedProcess
from swarm.terminal.text import shown

LIMIT = 20.0  # seconds for a program
_GRACE = 1.0  # seconds between SIGTERM and SIGKILL
_POLL_INTERVAL = 0.05  # seconds
_SCRIPT = (
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
)


def run(words: Sequence[str], stdin: bytes, text: str, directory: str = "") -> None:
    """Run a program until it ends. Raise Undelivered unless it ends with 0."""
    environment = agent_environment(store_for_agent=False)
    environment["SWARM_NOTIFY_TEXT"] = text.replace("\0", "")
    name = shown(words[0])
    nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        with tempfile.TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            child = GatedProcess(
                group=True,
                die_with_parent=True,
                stdin=given.fileno(),
                stdout=nothing,
                stderr=nothing,
            )
        with child:
            child.exec(words, environment, directory)
            code = _wait(child)
            child.end(_GRACE)
    except CannotRun as error:
        raise Undelivered(str(error)) from None
    except OSError as error:
        raise Undelivered(f"cannot run {name}: {error.strerror}") from None
    finally:
        os.close(nothing)
    if code is None:
        raise Undelivered(f"{name} did not end within {LIMIT:g} seconds, and was ended")
    if code:
        raise Undelivered(f"{name} ended with exit code {code}")


def desktop_command(title: str, text: str, *, urgent: bool) -> list[str] | None:
    """Return the command that shows a text on this desktop, None without a desktop."""
    if sys.platform == "darwin":
        if shutil.which("osascript") is None:
            return None
        script = [word for line in _SCRIPT for word in ("-e", line)]
        return ["osascript", *script, title, text]
    screens = ("DBUS_SESSION_BUS_ADDRESS", "WAYLAND_DISPLAY", "DISPLAY")
    if shutil.which("notify-send") is None or not any(map(settings.variable, screens)):
        return None
    level = "critical" if urgent else "normal"
    words = [_without_markup(title), _without_markup(text)]
    return ["notify-send", "--app-name=swarm", f"--urgency={level}", "--", *words]


def _without_markup(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _wait(child: GatedProcess) -> int | None:
    deadline = time.monotonic() + LIMIT
    while (code := child.poll()) is None and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)
    return code
