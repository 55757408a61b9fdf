"""The inputs of the sprint workflow: which values are valid.

Each function returns the value to use, or raises BadInput with the rule that the input
breaks.
"""

from __future__ import annotations

import os

from swarm.errors import BadInput
from swarm.system import process

_MAX_TEXT = 1000  # characters of a session or an epic
_MAX_NAME = 200  # bytes of the lock file's name


def checked_root(root: object) -> str:
    """Return the absolute path of a project, "" if the system cannot resolve the path."""
    path = os.fspath(root) if isinstance(root, str | os.PathLike) else None
    if not isinstance(path, str):
        raise BadInput("project_root must be the path of a directory")
    try:
        return path and os.path.realpath(path)
    except (OSError, ValueError):
        return ""  # the working directory is gone, or no file can have this name


def checked_name(name: object) -> str:
    if (
        not isinstance(name, str)
        or not name.isprintable()
        or "/" in name
        or name in ("", ".", "..")
    ):
        raise BadInput("lock_file_name must be the plain name of a file")
    if len(name.encode(errors="replace")) > _MAX_NAME:
        raise BadInput(f"lock_file_name may have at most {_MAX_NAME} bytes")
    if name.endswith((".tmp", ".work")):
        raise BadInput(
            "lock_file_name must not end in .tmp or .work: while swarm changes the lock, files "
            "beside the lock have such names"
        )
    return name


def checked_text(text: object, name: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise BadInput(f"{name} required for acquire mode")
    if len(text) > _MAX_TEXT:
        raise BadInput(f"{name} may have at most {_MAX_TEXT} characters")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise BadInput(f"{name} must be valid UTF-8")
    return text


def checked_pid(pid: object) -> int:
    if isinstance(pid, bool) or not isinstance(pid, int) or not 0 < pid < 2**31:
        raise BadInput("pid must be the number of a running process")
    if process.probe({"pid": pid}, "", "") != process.ALIVE:
        raise BadInput(f"pid must be the number of a running process, but {pid} is not running")
    return pid
