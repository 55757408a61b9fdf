"""A directory of records in which a test acts just before a chosen system call."""

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
# every process yields to the first scratch directory, none to the last
FIRST, LAST = "s" + "0" * 16, "s" + "f" * 16


class InterruptedFilesystem:
    """The real filesystem, with an act of the test just before chosen calls."""

    def __init__(self) -> None:
        self._real = Filesystem()
        self._acts: list[tuple[str, Act, bool]] = []
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def before(self, call: str, act: Act, *, always: bool = False) -> None:
        """Do `act` before the next call of this name, or before every one with `always`."""
        self._acts.append((call, act, always))

    def fail(self, call: str, number: int, *, always: bool = False) -> None:
        """Let the next call of this name fail with this error number."""

        def failing() -> None:
            raise OSError(number, os.strerror(number))

        self.before(call, failing, always=always)

    def answer(self, call: str, answers: list[object]) -> None:
        """Return these answers from the next calls of this name, without a system call."""
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


class RecordDirectory:
    """A directory of records.

    `process` returns a new object each time, as another process would.
    """

    def __init__(self, path: Path) -> None:
        self.live, self.private = path / "locks", path / ".locks"
        self.scratches, self.intents = self.private / "scratch", self.private / "intents"
        self.boot = "a boot"
        self.now = 1_800_000_000.0
        self.tokens_are_named = False  # in a record or in a log

    def process(self, fs: InterruptedFilesystem | None = None) -> SwapDirectory:
        filesystem: Any = fs or Filesystem()
        return SwapDirectory(str(self.live), str(self.private), make_dirs=make_dirs, fs=filesystem)

    def counters(self, fs: InterruptedFilesystem | None = None) -> TokenCounters:
        filesystem: Any = fs or Filesystem()
        return TokenCounters(
            str(self.private),
            boot=lambda: self.boot,
            now=lambda: self.now,
            were_given=lambda: self.tokens_are_named,
            make_dirs=make_dirs,
            fs=filesystem,
        )

    def record(self, name: str = "t") -> bytes | None:
        path = self.live / f"{name}.lock"
        return path.read_bytes() if path.exists() else None

    def write(self, data: bytes, name: str = "t") -> None:
        """Write a record as a user would, without swarm."""
        self.live.mkdir(parents=True, exist_ok=True)
        (self.live / f"{name}.lock").write_bytes(data)

    def intent(self, scratch: str = LAST, *, name: str = "t", age: float = 0.0) -> Path:
        """Make an intent of another process, whose scratch directory exists."""
        (self.scratches / scratch).mkdir(parents=True, exist_ok=True)
        self.intents.mkdir(parents=True, exist_ok=True)
        intent = self.intents / f"{name}~{scratch}~0"
        intent.touch()
        os.utime(intent, (time.time() - age, time.time() - age))
        return intent

    def residue(self) -> list[str]:
        """Return all intents, and all files in scratch directories."""
        return sorted(os.listdir(self.intents)) + [str(file) for file in self.scratches.glob("*/*")]


def revoke_all(records: RecordDirectory) -> None:
    for scratch in records.scratches.iterdir():
        for file in scratch.iterdir():
            file.unlink()
        scratch.rmdir()
