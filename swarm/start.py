"""Starting the command `swarm`, and ending it.

Agents call it hundreds of times, and most of such a call is Python's own work before and after ours. So the package's modules
are found by their compiled files, at half the price of Python's search, and nothing is taken apart at the end that ends with the
process anyway. Only the command does this: `import swarm` in somebody's program changes nothing there.
"""

from __future__ import annotations

import gc
import sys

if sys.version_info < (3, 11):
    sys.exit("Error: swarm needs Python 3.11 or newer; this is %d.%d. Put a newer python3 first in PATH." % sys.version_info[:2])
if sys.platform == "win32":
    sys.exit("Error: swarm does not run on Windows: it needs a POSIX filesystem. Use WSL.")

import posix as os  # its calls; importing os would cost a command a tenth of its time
from _frozen_importlib_external import MAGIC_NUMBER
from _imp import _fix_co_filename  # type: ignore[attr-defined]  # typeshed does not know it
from marshal import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
else:
    ModuleSpec = type(__spec__)  # to import importlib would cost what is gained here

_PACKAGE = "swarm."
_ENOUGH = 1 << 16  # bytes; a larger buffer would cost more than what is read into it


def start() -> None:
    """Runs the command, and ends the process with its exit code."""
    _end(_run())


def _run() -> int:
    while (spare := os.open("/dev/null", os.O_RDONLY)) <= 2:
        pass  # a closed standard stream: its number must not go to a file that we write to
    os.close(spare)
    if sys.getfilesystemencoding() != "utf-8":  # names of files and what is printed are UTF-8, whatever the locale
        os.execv(sys.executable, [sys.executable, "-Xutf8", *sys.orig_argv[1:]])
    if not sys.flags.optimize and sys.pycache_prefix is None:  # else the compiled files are others, or elsewhere
        sys.meta_path.insert(0, _Compiled(__file__.rpartition("/")[0]))
    gc.set_threshold(10_000)  # most of what a command makes ends with it
    try:
        from swarm.cli import main

        return main(sys.argv[1:])
    except KeyboardInterrupt:
        return 130


def _end(code: int) -> None:
    """At once, unless an orderly end is waited for: by a thread, at exit, in a debugger or profiler."""
    awaited = "threading" in sys.modules or "atexit" in sys.modules or sys.gettrace() or sys.getprofile()
    if awaited or sys.flags.inspect or sys.flags.dev_mode:
        sys.exit(code)
    try:
        sys.stdout.flush()  # swarm leaves nothing there, but it may not be alone
    except (AttributeError, OSError, ValueError):  # closed, or nobody reads: Python knows what to do
        sys.exit(code)
    os._exit(code)


class _Compiled:
    """Finds and loads what Python has compiled, by Python's own rule: by this version, from the source as it is now. Everything
    else (not compiled yet, from another source, not readable) is left to Python."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._suffix = f".{sys.implementation.cache_tag}.pyc"

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not name.startswith(_PACKAGE):
            return None
        stem = name[len(_PACKAGE) :]
        source, compiled = f"{self._folder}/{stem}.py", f"{self._folder}/__pycache__/{stem}{self._suffix}"
        try:
            written = os.stat(source)
            file = os.open(compiled, os.O_RDONLY | os.O_CLOEXEC)
            data = os.read(file, _ENOUGH)
            os.close(file)
        except OSError:
            return None
        stamp = b"".join((int(n) & 0xFFFFFFFF).to_bytes(4, "little") for n in (written.st_mtime, written.st_size))
        if data[:16] != MAGIC_NUMBER + bytes(4) + stamp or len(data) == _ENOUGH:
            return None
        code = loads(memoryview(data)[16:])
        _fix_co_filename(code, source)  # they may have been moved since
        spec = ModuleSpec(name, self, origin=source, loader_state=code)  # type: ignore[arg-type]
        spec.has_location = True
        spec.cached = compiled
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """None: it is a module like any other."""

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        code, spec.loader_state = spec.loader_state, None
        exec(code, module.__dict__)
