"""Start the command `swarm`, and end its process.

Agents call the command hundreds of times, and Python's own work before and after it
takes most of the time. So the process ends at once, without destroying its objects
first. Only the command does this: a program that imports swarm ends as usual.
"""

from __future__ import annotations

import gc
import sys

if sys.version_info < (3, 11):
    sys.exit(
        "Error: swarm needs Python 3.11 or newer; this is %d.%d. Put a newer python3 first in PATH."
        % sys.version_info[:2]
    )
if sys.platform == "win32":
    sys.exit("Error: swarm does not run on Windows: it needs a POSIX filesystem. Use WSL.")

import posix as os  # importing os would cost a command a tenth of its time


def start() -> None:
    """Run the command and end the process with its exit code."""
    _end(_run())


def _run() -> int:
    while (spare := os.open("/dev/null", os.O_RDONLY)) <= 2:
        pass  # a closed standard stream: a file that swarm opens must not get its number
    os.close(spare)
    if sys.getfilesystemencoding() != "utf-8":  # file names and output are UTF-8 in any locale
        os.execv(sys.executable, [sys.executable, "-Xutf8", *sys.orig_argv[1:]])
    gc.set_threshold(10_000)  # a command is over before a collection pays
    try:
        from swarm.cli.main import main

        return main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


def _end(code: int) -> None:
    """End the process at once, unless a thread, an exit handler, a debugger or a
    profiler needs more.
    """
    awaited = "threading" in sys.modules or "atexit" in sys.modules or _is_observed()
    if awaited or sys.flags.inspect or sys.flags.dev_mode:
        sys.exit(code)
    try:
        sys.stdout.flush()  # swarm writes past it, but other code may have printed
    except (AttributeError, OSError, ValueError):  # closed, or no reader: Python handles this error
        sys.exit(code)
    os._exit(code)


def _is_observed() -> bool:
    """Return whether a debugger or profiler is active.

    From Python 3.12 on, it may use `sys.monitoring`.
    """
    monitoring = getattr(sys, "monitoring", None)
    return bool(
        sys.gettrace()
        or sys.getprofile()
        or (monitoring and any(map(monitoring.get_tool, range(6))))
    )
