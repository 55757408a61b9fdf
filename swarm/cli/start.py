"""Starting the command `swarm`, and ending it.

Agents call it hundreds of times, and most of such a call is Python's own work before and after ours. So nothing is taken apart
at the end that ends with the process anyway. Only the command does this: `import swarm` in a program changes nothing there.
"""

from __future__ import annotations

import gc
import sys

if sys.version_info < (3, 11):
    sys.exit("Error: swarm needs Python 3.11 or newer; this is %d.%d. Put a newer python3 first in PATH." % sys.version_info[:2])
if sys.platform == "win32":
    sys.exit("Error: swarm does not run on Windows: it needs a POSIX filesystem. Use WSL.")

import posix as os  # its calls; importing os would cost a command a tenth of its time


def start() -> None:
    """Runs the command, and ends the process with its exit code."""
    _end(_run())


def _run() -> int:
    while (spare := os.open("/dev/null", os.O_RDONLY)) <= 2:
        pass  # a closed standard stream: its number must not go to a file that we write to
    os.close(spare)
    if sys.getfilesystemencoding() != "utf-8":  # names of files and what is printed are UTF-8, whatever the locale
        os.execv(sys.executable, [sys.executable, "-Xutf8", *sys.orig_argv[1:]])
    gc.set_threshold(10_000)  # most of what a command makes ends with it
    try:
        from swarm.cli.main import main

        return main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


def _end(code: int) -> None:
    """At once, unless an orderly end is waited for: by a thread, at exit, in a debugger or profiler."""
    awaited = "threading" in sys.modules or "atexit" in sys.modules or _is_observed()
    if awaited or sys.flags.inspect or sys.flags.dev_mode:
        sys.exit(code)
    try:
        sys.stdout.flush()  # swarm leaves nothing there, but it may not be alone
    except (AttributeError, OSError, ValueError):  # closed, or nobody reads: Python knows what to do
        sys.exit(code)
    os._exit(code)


def _is_observed() -> bool:
    """Return whether a debugger or profiler looks on; from Python 3.12 on it may do so through `sys.monitoring`."""
    monitoring = getattr(sys, "monitoring", None)
    return bool(sys.gettrace() or sys.getprofile() or (monitoring and any(map(monitoring.get_tool, range(6)))))
