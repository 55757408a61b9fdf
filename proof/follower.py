"""A follower of the log, during the chaos: it reads by cursor, and notes what it has read and the cursor in one write.

When it is killed, the one in its place goes on behind the last cursor that was noted. Lines are noted as digests.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from proof.worker import Plan, is_away
from swarm.errors import StoreError
from swarm.status.log import LOG
from swarm.stores.contract import Store
from swarm.stores.registry import open_store

_PORTIONS = (0, 300, 3_000, 20_000)  # bytes that are asked for at a time
_WAIT = 0.2  # seconds


class Follower:
    """What was followed under a name, and the one who goes on with it."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._plan = plan
        self._name = name
        self._path: Path = plan.followed / name

    def follow(self) -> None:
        """Until it is killed."""
        if self._plan.control:
            from proof.server_controls import forget_the_others

            forget_the_others(self._plan.control)
        rng = random.Random(f"{self._plan.seed} {self._name} {os.getpid()}")
        store = self._open(self._plan.hasty_address(self._name))
        _, cursor = self._read()
        notes = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        os.ftruncate(notes, self._path.read_bytes().rfind(b"\n") + 1)  # a torn note is none
        while True:
            try:
                store.wait(LOG, cursor, _WAIT)
                lines, cursor = store.read_log(LOG, cursor, rng.choice(_PORTIONS))
            except StoreError as error:
                if not is_away(error):
                    raise
                continue
            if lines:
                os.write(notes, (" ".join((cursor, *digests(lines))) + "\n").encode())

    def all_of_it(self) -> list[bytes]:
        """What was read, and what follows behind the last cursor."""
        read, cursor = self._read()
        store = self._open(self._plan.address)
        while True:
            lines, cursor = store.read_log(LOG, cursor)
            if not lines:
                store.close()
                return read
            read += [digest.encode() for digest in digests(lines)]

    def _read(self) -> tuple[list[bytes], str]:
        """The lines so far, as digests, and the cursor behind them."""
        notes = self._path.read_bytes().split(b"\n")[:-1] if self._path.exists() else []
        portions = [note.split(b" ") for note in notes]
        return [digest for _, *portion in portions for digest in portion], portions[-1][0].decode() if portions else ""

    def _open(self, address: str) -> Store:
        store = open_store(address)
        if self._plan.control:
            from proof.server_controls import mislead

            return mislead(store, self._plan.control)
        return store


def digests(lines: Iterable[bytes]) -> list[str]:
    return [blake2b(line, digest_size=8).hexdigest() for line in lines]
