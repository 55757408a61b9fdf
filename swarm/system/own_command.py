"""The command line that starts this installation of swarm, and how to recognise it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from swarm import settings

_MAIN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "__main__.py")
_VERSION_TIMEOUT = 20.0  # seconds for a command that prints its version


class OwnCommand(NamedTuple):
    """A command line that starts swarm.

    `warning` says on which machines the command does not work; "" if it works
    everywhere.
    """

    words: tuple[str, ...]
    warning: str


def own_command(version: str, *, shared: bool) -> OwnCommand:
    """Return the command line that starts this installation of swarm.

    `shared` says that other machines read the command too. On other machines, only the
    plain command `swarm` works.
    """
    found = shutil.which("swarm")
    if found is None or not _is_this(found, version):
        words = (sys.executable, "-P", _MAIN)
        which = f"{found} is another program or version" if found else "there is no `swarm` on PATH"
        cure = (
            "Install swarm and run this again, or use --user to leave the project alone."
            if shared
            else ""
        )
        return OwnCommand(
            words,
            (
                f"{which}, so the command names the Python and the directory of this machine. "
                f"{cure}"
            ).strip(),
        )
    if os.path.dirname(found) != os.path.join(sys.prefix, "bin") or sys.prefix == sys.base_prefix:
        return OwnCommand(("swarm",), "")
    if not shared:
        return OwnCommand((found,), "")
    return OwnCommand(
        ("swarm",), f"`swarm` is {found}: start the agent where that virtual environment is active."
    )


def swarm_command(*args: str) -> list[str]:
    """Return a command line that starts this swarm in any directory, installed or from
    a checkout.
    """
    return [sys.executable, "-P", _MAIN, *args]


def environment_with(state_dir: str) -> dict[str, str]:
    """Return this process's environment, without variables of swarm except the given
    state directory.
    """
    kept = {
        name: value
        for name, value in settings.environment().items()
        if not name.startswith(("SWARM_", "AI_SWARM_"))
    }
    return {**kept, "SWARM_STATE_DIR": state_dir}


def is_own(words: Sequence[object], subcommand: str) -> bool:
    """Return whether a command line starts this swarm with `subcommand` alone."""
    if not words or words[-1] != subcommand or not all(isinstance(word, str) for word in words):
        return False
    program = [str(word) for word in words[:-1]]
    if len(program) == 1:
        return os.path.basename(program[0]) == "swarm"
    return len(program) == 3 and program[1] == "-P" and program[2].endswith("/swarm/__main__.py")


def is_own_server(server: Any) -> bool:
    """Return whether a settings entry for an MCP server starts swarm.

    Most agents have the keys `command` and `args`; opencode has one list, `command`.
    """
    if not isinstance(server, dict):
        return False
    program, args = server.get("command"), server.get("args", [])
    words = program if isinstance(program, list) else [program]
    return isinstance(args, list) and is_own([*words, *args], "mcp")


def _is_this(program: str, version: str) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_VERSION_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout == f"swarm {version}\n".encode()
