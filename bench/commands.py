"""Commands as a user at a shell starts them, and the memory they use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK, LOG = str(ROOT / "scripts" / "swarm_lock.sh"), str(ROOT / "scripts" / "swarm_status_log.sh")
# the Python that a user has: not that of the environment, nor a version manager's shim
PYTHON = os.path.realpath(sys.executable)
_BEGIN = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from swarm.cli.start import start; start()"
)
_WATCH = """
import posix, sys
child = posix.posix_spawnp(sys.argv[1], sys.argv[1:], posix.environ, file_actions=[
    (posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0)])
_, status, used = posix.wait4(child, 0)
sys.exit(f"{sys.argv[1:]}: {status}") if status else print(used.ru_maxrss * 1024)
"""


def swarm(*args: str) -> tuple[str, ...]:
    """Return the command `swarm` as the scripts start it."""
    return (PYTHON, "-I", "-S", "-Xutf8", "-c", _BEGIN, *args)


def command(directory: str, *args: str, text: bytes = b"") -> Callable[[], object]:
    """Return a function that runs a command on a state directory. The command must
    succeed.

    The function reads the output, because grep does less work if its output is
    /dev/null.
    """
    return lambda: subprocess.run(
        args,
        env=_environment(directory),
        cwd=directory,
        input=text,
        stdout=subprocess.PIPE,
        check=True,
    )


def most_memory(directory: str, *args: str) -> int:
    """Return the peak memory of the largest process of a command, in bytes.

    The memory of the program that starts the command counts too, but it is small.
    """
    watched = (PYTHON, "-I", "-S", "-c", _WATCH, *args)
    return int(
        subprocess.run(
            watched, env=_environment(directory), cwd=directory, stdout=subprocess.PIPE, check=True
        ).stdout
    )


def _environment(directory: str) -> dict[str, str]:
    return {
        "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}",
        "SWARM_STATE_DIR": directory,
        "SWARM_PYTHON": PYTHON,
    }
