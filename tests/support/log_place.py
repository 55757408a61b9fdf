"""The directory of a log on which somebody else acts just before a chosen call of ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.stores.file import line_reader, log, log_cursor, log_parts
from swarm.stores.file.log import Journal
from swarm.stores.file.syscalls import make_dirs

MODULES: tuple[Any, ...] = (log, log_parts, log_cursor, line_reader)  # to put something else in the place of their `os`
Act = Callable[[], object]


class Place:
    """The directory of one log, and as many as want to write and read it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.live, self.parts = path / "status.log", path / ".status"
        self._patch = monkeypatch

    def somebody(self, max_bytes: int = 0) -> Journal:
        path, parts = str(self.live), str(self.parts)
        if not max_bytes:
            return Journal(path, parts, ensure=make_dirs)
        return Journal(path, parts, ensure=make_dirs, max_bytes=max_bytes)

    def part(self, number: int, data: bytes, *, end: int | None = None, name: str = "abcdef01") -> Path:
        """A part that somebody put aside; without `end` nobody has settled yet where it ends."""
        directory = self.parts / f"{number:010d}-{name}"
        directory.mkdir(parents=True)
        (directory / "part").write_bytes(data)
        if end is not None:
            (directory / "end").symlink_to(str(end))
        return directory

    def before(self, call: str, *acts: Act | None) -> None:
        """The next calls of this name in `os` come after these acts, one each; None: nothing happens before that one."""
        waiting = list(acts)
        real = getattr(os, call)

        def meddled(*args: Any, **options: Any) -> Any:
            act = waiting.pop(0) if waiting else None
            if act:
                act()
            return real(*args, **options)

        self._replace(call, meddled)

    def count(self, call: str) -> list[tuple[Any, ...]]:
        """What the calls of this name in `os` are called with, from now on."""
        seen: list[tuple[Any, ...]] = []
        real = getattr(os, call)

        def counted(*args: Any) -> Any:
            seen.append(args)
            return real(*args)

        self._replace(call, counted)
        return seen

    def _replace(self, call: str, function: Callable[..., Any]) -> None:
        for module in MODULES:
            self._patch.setattr(module, "os", SimpleNamespace(**{**vars(module.os), call: function}))

    def lines(self) -> list[bytes]:
        return [line for _, line, _ in self.somebody().numbered()]
