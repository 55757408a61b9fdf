"""A support bundle: facts about a swarm in one file, for a person who helps.

The bundle has no secrets, and no texts of agents or users unless the user wants them
(`swarm.admin.redaction`). Its file is readable by its owner alone. A part that cannot be
made says why instead.
"""

from __future__ import annotations

import io
import os
import platform
import sys
import tarfile
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from swarm import settings
from swarm.admin.doctor import examine
from swarm.admin.redaction import Redaction
from swarm.board.viewer import Viewer
from swarm.errors import BadInput, StoreError, SwarmError
from swarm.formats import json_codec
from swarm.project.location import current
from swarm.queue.events import LOG as QUEUE
from swarm.status.log import LOG as STATUS
from swarm.stores.default import default_store
from swarm.stores.file import state_dir

_MAX_LINES = 1000  # of each log
_MAX_LOG_BYTES = 4 << 20
_MAX_ENTRIES = 100_000  # of the state directory that are counted
_MAX_OUTPUTS = 20
_MAX_OUTPUT_BYTES = 1 << 16
_MAX_CONFIG = 1 << 16
_PREFIXES = ("SWARM_", "AI_SWARM_")
_CHANNEL = ("kind", "format", "on", "always", "quiet", "again", "allow_http", "url_env")


class Part(NamedTuple):
    """A file of the bundle, and one line about it."""

    name: str
    about: str
    data: bytes


def default_name() -> str:
    return time.strftime("swarm-bundle-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime())


def write_bundle(path: str, version: str, *, with_texts: bool) -> list[Part]:
    """Write the bundle to a new file. Return its parts. `version` is that of swarm.

    Raise BadInput if the file exists or cannot be made, StoreError if it cannot be
    written.
    """
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        raise BadInput(f"{path} exists already. Name another file.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{path!r} cannot be made: {why}. Name another file.") from None
    try:
        with open(fd, "wb") as file:
            os.fchmod(fd, 0o600)
            found = parts(version, with_texts=with_texts)
            _pack(file, os.path.basename(path).removesuffix(".tar.gz"), found)
    except BaseException as error:
        os.unlink(path)
        if isinstance(error, OSError):
            raise StoreError(f"{path} cannot be written: {error.strerror}.") from None
        raise
    return found


def parts(version: str, *, with_texts: bool) -> list[Part]:
    """Return the parts of a bundle."""
    redaction = Redaction(with_texts=with_texts)
    texts = "" if with_texts else ", without texts of agents and users"
    found = [
        _json(
            "versions.json", "versions of swarm, Python and the system", lambda: _versions(version)
        ),
        _json("doctor.json", "what swarm doctor finds", lambda: redaction.data(_doctor())),
        _json("board.json", f"what swarm status shows{texts}", lambda: _board(redaction)),
        _lines("status.jsonl", "status log", STATUS, redaction),
        _lines("queue.jsonl", "queue's log", QUEUE, redaction),
        _json(
            "settings.json",
            "swarm.toml without secrets, and the names of the variables that are set",
            lambda: redaction.data(_settings()),
        ),
        _json("sizes.json", "how many files and bytes the state directory has", _sizes),
    ]
    if with_texts:
        found += _outputs(redaction)
    listed = "".join(f"{part.name:<14}  {part.about}\n" for part in found)
    readme = f"A support bundle of swarm. Read it before you pass it on.\n\n{listed}"
    return [Part("README.txt", "this list", readme.encode()), *found]


def _pack(file: Any, directory: str, found: list[Part]) -> None:
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for part in found:
            entry = tarfile.TarInfo(f"{directory}/{part.name}")
            entry.size, entry.mode, entry.mtime = len(part.data), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(part.data))


def _json(name: str, about: str, make: Callable[[], Any]) -> Part:
    return Part(name, about, (json_codec.dumps(_guarded(make)) + "\n").encode())


def _guarded(make: Callable[[], Any]) -> Any:
    """Return a part, or why it cannot be made: a bundle is for swarms with faults."""
    try:
        return make()
    except SwarmError as error:
        return {"error": Redaction().text(str(error))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {Redaction().text(str(error))}"}


def _versions(version: str) -> dict[str, Any]:
    return {
        "swarm": version,
        "python": sys.version,
        "system": platform.platform(),
        "file_system_encoding": sys.getfilesystemencoding(),
    }


def _doctor() -> list[dict[str, Any]]:
    return [asdict(check) for check in examine()]


def _board(redaction: Redaction) -> Any:
    return redaction.record(Viewer(default_store()).look().fields())


def _lines(name: str, log_name: str, log: str, redaction: Redaction) -> Part:
    texts = "" if redaction.with_texts else ", without texts"

    def read() -> list[Any]:
        lines, _ = default_store().tail(log, _MAX_LINES, _MAX_LOG_BYTES)
        return [_line(line, redaction) for line in lines if line.strip()]

    found = _guarded(read)
    rows = found if isinstance(found, list) else [found]
    data = "".join(json_codec.dumps(row) + "\n" for row in rows).encode()
    return Part(name, f"the last lines of the {log_name}, at most {_MAX_LINES:,}{texts}", data)


def _line(line: bytes, redaction: Redaction) -> Any:
    try:
        return redaction.record(json_codec.loads(line))
    except (ValueError, RecursionError):
        return {"invalid_line": len(line)}


def _settings() -> dict[str, Any]:
    names = sorted(name for name in settings.environment() if name.startswith(_PREFIXES))
    project = current()
    found: Any = None
    if project is not None:
        found = _guarded(lambda: _config(project.config))
    return {"variables": names, "project": bool(project), "swarm.toml": found}


def _config(path: str) -> Any:
    """Return the content of `swarm.toml`. Of a channel, only what tells no address."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        found = tomllib.loads(file.read(_MAX_CONFIG).decode())
    channels = found.get("notify")
    if isinstance(channels, dict):
        found["notify"] = [
            {key: value for key, value in channel.items() if key in _CHANNEL}
            for channel in channels.values()
            if isinstance(channel, dict)
        ]
    elif "notify" in found:
        del found["notify"]
    return json_codec.loads(json_codec.dumps(_plain(found)).encode())


def _plain(value: Any) -> Any:
    """Return TOML data as JSON data: times become texts."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool) else str(value)


def _sizes() -> dict[str, Any]:
    root = state_dir.named().path
    found: dict[str, dict[str, int]] = {}
    for count, (folder, size) in enumerate(_files(root)):
        if count >= _MAX_ENTRIES:
            return {"directory": root, "counted": count, "complete": False, "folders": found}
        row = found.setdefault(folder, {"files": 0, "bytes": 0})
        row["files"] += 1
        row["bytes"] += size
    return {"directory": root, "complete": True, "folders": found}


def _files(root: str) -> Iterator[tuple[str, int]]:
    """Yield the first part of the path and the size of each file."""
    for directory, _, names in os.walk(root):
        folder = os.path.relpath(directory, root).partition("/")[0]
        for name in names:
            try:
                yield name if folder == "." else folder, os.lstat(f"{directory}/{name}").st_size
            except OSError:
                continue  # it has just been removed


def _outputs(redaction: Redaction) -> list[Part]:
    """Return the ends of the newest outputs of agents."""
    found: deque[tuple[float, str]] = deque()
    try:
        with os.scandir(f"{state_dir.named().path}/results") as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    except (OSError, SwarmError):
        return []  # there are no outputs
    made = []
    for number, (_, path) in enumerate(sorted(found, reverse=True)[:_MAX_OUTPUTS], 1):
        name = os.path.basename(path)
        text = _guarded(lambda path=path: _end_of(path))  # type: ignore[misc]
        data = redaction.text(text) if isinstance(text, str) else json_codec.dumps(text)
        made.append(Part(f"outputs/{number:02}.txt", f"the end of {name}", data.encode()))
    return made


def _end_of(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        file.seek(max(0, os.fstat(fd).st_size - _MAX_OUTPUT_BYTES))
        return file.read(_MAX_OUTPUT_BYTES).decode(errors="replace")
