"""A directory of lock files on which somebody else acts just before a chosen call of ours."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swarm.stores.file.swap import ANCHORS, Handover
from swarm.stores.file.syscalls import Filesystem, make_dirs
from swarm.stores.file.tokens import Tickets

Act = Callable[[], object]
FIRST, LAST = "h" + "0" * 16, "h" + "f" * 16  # the hands that everybody gives way to, and nobody


class Meddled:
    """The real filesystem, on which somebody else acts just before chosen calls."""

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
            self.calls.append((name, args))
            for entry in [entry for entry in self._acts if entry[0] == name]:
                if not entry[2]:
                    self._acts.remove(entry)
                entry[1]()
            return getattr(self._real, name)(*args, **options)

        return call


class Place:
    """A directory of records, and as many as want to change them."""

    def __init__(self, path: Path) -> None:
        self.live, self.private = path / "locks", path / ".locks"
        self.hands, self.gates = self.private / "hands", self.private / "gates"
        self.boot = "a boot"

    def somebody(self, fs: Meddled | None = None) -> Handover:
        filesystem: Any = fs or Filesystem()
        return Handover(str(self.live), str(self.private), ensure=make_dirs, fs=filesystem)

    def tickets(self, fs: Meddled | None = None) -> Tickets:
        filesystem: Any = fs or Filesystem()
        return Tickets(str(self.private), boot=lambda: self.boot, ensure=make_dirs, fs=filesystem)

    def record(self, name: str = "t") -> bytes | None:
        path = self.live / f"{name}.lock"
        return path.read_bytes() if path.exists() else None

    def write(self, data: bytes, name: str = "t") -> None:
        """As a person would."""
        self.live.mkdir(parents=True, exist_ok=True)
        (self.live / f"{name}.lock").write_bytes(data)

    def gate(self, hand: str = LAST, *, name: str = "t", age: float = 0.0) -> Path:
        """A gate that somebody opened, and whose hand lives."""
        (self.hands / hand).mkdir(parents=True, exist_ok=True)
        self.gates.mkdir(parents=True, exist_ok=True)
        anchor = self.anchor(name)
        anchor.parent.mkdir(exist_ok=True)
        anchor.touch()
        gate = self.gates / f"{name}~{hand}~{int(time.time() - age)}"
        gate.hardlink_to(anchor)
        return gate

    def anchor(self, name: str = "t") -> Path:
        return self.private / "anchors" / str(ord(name[-1]) % ANCHORS)

    def residue(self) -> list[str]:
        """What lies about: gates, and files in hands."""
        return sorted(os.listdir(self.gates)) + [str(file) for file in self.hands.glob("*/*")]


def destroy_hands(place: Place) -> None:
    for hand in place.hands.iterdir():
        for file in hand.iterdir():
            file.unlink()
        hand.rmdir()
