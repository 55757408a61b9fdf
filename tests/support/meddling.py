"""A directory of lock files on which another process acts just before a chosen call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swarm.stores.file.swap import SwapDirectory
from swarm.stores.file.syscalls import Filesystem, make_dirs
from swarm.stores.file.tokens import TokenCounters

Act = Callable[[], object]
FIRST, LAST = "s" + "0" * 16, "s" + "f" * 16  # every process gives way to the first, none to the last


class Meddled:
    """The real filesystem, on which another process acts just before chosen calls."""

    def __init__(self) -> None:
        self._real = Filesystem()
        self._acts: list[tuple[str, Act, bool]] = []
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def before(self, call: str, act: Act, *, always: bool = False) -> None:
        """The next call of this name comes after `act`; every call, where `always`."""
        self._acts.append((call, act, always))

    def fail(self, call: str, number: int, *, always: bool = False) -> None:
        """The next call of this name fails with this error of the system."""

        def failing() -> None:
            raise OSError(number, os.strerror(number))

        self.before(call, failing, always=always)

    def answer(self, call: str, answers: list[object]) -> None:
        """The next calls of this name are answered so, and nobody is asked."""
        setattr(self, call, lambda *_: answers.pop(0))

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            is_intent = name == "write_new" and "/intents/" in args[0]
            known_as = "announce" if is_intent else name
            self.calls.append((known_as, args))
            for entry in [entry for entry in self._acts if entry[0] == known_as]:
                if not entry[2]:
                    self._acts.remove(entry)
                entry[1]()
            return getattr(self._real, name)(*args, **options)

        return call


class Place:
    """A directory of records, and as many as want to change them."""

    def __init__(self, path: Path) -> None:
        self.live, self.private = path / "locks", path / ".locks"
        self.scratches, self.intents = self.private / "scratch", self.private / "intents"
        self.boot = "a boot"

    def process(self, fs: Meddled | None = None) -> SwapDirectory:
        filesystem: Any = fs or Filesystem()
        return SwapDirectory(str(self.live), str(self.private), make_dirs=make_dirs, fs=filesystem)

    def counters(self, fs: Meddled | None = None) -> TokenCounters:
        filesystem: Any = fs or Filesystem()
        return TokenCounters(str(self.private), boot=lambda: self.boot, make_dirs=make_dirs, fs=filesystem)

    def record(self, name: str = "t") -> bytes | None:
        path = self.live / f"{name}.lock"
        return path.read_bytes() if path.exists() else None

    def write(self, data: bytes, name: str = "t") -> None:
        """As a person would."""
        self.live.mkdir(parents=True, exist_ok=True)
        (self.live / f"{name}.lock").write_bytes(data)

    def intent(self, scratch: str = LAST, *, name: str = "t", age: float = 0.0) -> Path:
        """An intent of another process, whose scratch directory exists."""
        (self.scratches / scratch).mkdir(parents=True, exist_ok=True)
        self.intents.mkdir(parents=True, exist_ok=True)
        intent = self.intents / f"{name}~{scratch}~0"
        intent.touch()
        os.utime(intent, (time.time() - age, time.time() - age))
        return intent

    def residue(self) -> list[str]:
        """What lies about: intents, and files in scratches."""
        return sorted(os.listdir(self.intents)) + [str(file) for file in self.scratches.glob("*/*")]


def revoke_all(place: Place) -> None:
    for scratch in place.scratches.iterdir():
        for file in scratch.iterdir():
            file.unlink()
        scratch.rmdir()
