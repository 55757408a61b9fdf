"""A log's directory, in which a test acts just before a chosen system call of a log."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.stores.file import (
    line_reader,
    log_cursor,
    log_parts,
    log_reader,
    log_rotation,
    log_writer,
)
from swarm.stores.file.log import FileLog
from swarm.stores.file.syscalls import make_dirs

# The modules whose `os` is replaced.
MODULES: tuple[Any, ...] = (
    log_writer,
    log_reader,
    log_rotation,
    log_parts,
    log_cursor,
    line_reader,
)
Act = Callable[[], object]


class LogDirectory:
    """The directory of one log. `open` returns a new object each time, as another process would."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.live, self.parts = path / "status.log", path / ".status"
        self._patch = monkeypatch

    def open(self, max_bytes: int = 0) -> FileLog:
        path, parts_dir = str(self.live), str(self.parts)
        if not max_bytes:
            return FileLog(path, parts_dir, make_dirs=make_dirs)
        return FileLog(path, parts_dir, make_dirs=make_dirs, max_bytes=max_bytes)

    def part(
        self, number: int, data: bytes, *, end: int | None = None, name: str = "abcdef01"
    ) -> Path:
        """Make a part. Without `end`, its end is not decided yet."""
        directory = self.parts / f"{number:010d}-{name}"
        directory.mkdir(parents=True)
        (directory / "part").write_bytes(data)
        if end is not None:
            (directory / "end").symlink_to(str(end))
        return directory

    def before(self, call: str, *acts: Act | None) -> None:
        """Do one act before each of the next system calls of this name. None does nothing."""
        waiting = list(acts)
        real = getattr(os, call)

        def after_the_act(*args: Any, **options: Any) -> Any:
            act = waiting.pop(0) if waiting else None
            if act:
                act()
            return real(*args, **options)

        self._replace(call, after_the_act)

    def count(self, call: str) -> list[tuple[Any, ...]]:
        """Return a list that collects the arguments of all later system calls of this name."""
        seen: list[tuple[Any, ...]] = []
        real = getattr(os, call)

        def counted(*args: Any) -> Any:
            seen.append(args)
            return real(*args)

        self._replace(call, counted)
        return seen

    def _replace(self, call: str, function: Callable[..., Any]) -> None:
        for module in MODULES:
            self._patch.setattr(
                module, "os", SimpleNamespace(**{**vars(module.os), call: function})
            )

    def part_names(self) -> list[str]:
        """Return the names of the directories that rotations made."""
        return sorted(name for name in os.listdir(self.parts) if name[0] != ".")

    def lines(self) -> list[bytes]:
        return [line for _, line, _ in self.open().numbered()]
