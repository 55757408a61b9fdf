"""Start the command `swarm`, and end its process.

Agents call the command hundreds of times, and most of its time is spent in the start
and the end of Python. So the process ends at once, without destroying its objects
first. A program that imports swarm ends as usual.
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
    try:
        _open_closed_streams()
        if sys.getfilesystemencoding() != "utf-8":  # file names and output are UTF-8 in any locale
            os.execv(sys.executable, [sys.executable, "-Xutf8", *sys.orig_argv[1:]])
    except OSError as error:
        _report(f"swarm cannot start: {error}.")
        return 3
    gc.set_threshold(10_000)  # a command is over before a collection pays
    try:
        from swarm.cli.main import main

        return main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    except (ImportError, OSError) as error:  # before `main` could report errors
        if sys.flags.dev_mode:
            raise
        _report(f"swarm cannot start: {error}.")
        return 3


def _open_closed_streams() -> None:
    """Open an empty pipe for each closed standard stream.

    A file that swarm opens must not get the number of the stream. Unlike /dev/null,
    a pipe exists in every sandbox.
    """
    spare = -1
    while spare <= 2:
        spare, write_end = os.pipe()
        os.close(write_end)
    os.close(spare)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 for the rest of the process


def _report(text: str) -> None:
    try:
        os.write(2, f"Error: {text}\n".encode())
    except OSError:
        pass


def _end(code: int) -> None:
    """End the process at once, unless a thread, an exit handler, a debugger or a
    profiler needs an orderly end.
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

    From Python 3.12 on, a debugger or profiler may use `sys.monitoring`.
    """
    monitoring = getattr(sys, "monitoring", None)
    return bool(
        sys.gettrace()
        or sys.getprofile()
        or (monitoring and any(map(monitoring.get_tool, range(6))))
    )
