"""A process that follows the log during the chaos.

The follower reads by cursor, and notes the cursor and hashes of the lines in one write.
When a follower is killed, its replacement continues after the last noted cursor.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

from proof.worker import Plan, is_unreachable
from swarm.errors import StoreError
from swarm.status.log import LOG
from swarm.stores.contract import Store
from swarm.stores.registry import open_store

_PORTIONS = (0, 300, 3_000, 20_000)  # bytes read at a time
_WAIT = 0.2  # seconds


class Follower:
    """The lines read under a name, and the process that continues with them."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._plan = plan
        self._name = name
        self._path: Path = plan.followed / name

    def follow(self) -> None:
        """Follow the log until killed."""
        if self._plan.control:
            from proof.server_controls import accept_single_member_reads

            accept_single_member_reads(self._plan.control)
        rng = random.Random(f"{self._plan.seed} {self._name} {os.getpid()}")
        store = self._open(self._plan.worker_address(self._name))
        _, cursor = self._read()
        notes = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        os.ftruncate(notes, self._path.read_bytes().rfind(b"\n") + 1)  # remove a torn note
        while True:
            try:
                store.wait(LOG, cursor, _WAIT)
                lines, cursor = store.read_log(LOG, cursor, rng.choice(_PORTIONS))
            except StoreError as error:
                if not is_unreachable(error):
                    raise
                continue
            if lines:
                os.write(notes, (" ".join((cursor, *line_hashes(lines))) + "\n").encode())

    def all_of_it(self) -> list[bytes]:
        """Return the lines that were read, and the lines after the last cursor."""
        read, cursor = self._read()
        store = self._open(self._plan.address)
        while True:
            lines, cursor = store.read_log(LOG, cursor)
            if not lines:
                store.close()
                return read
            read += [found.encode() for found in line_hashes(lines)]

    def _read(self) -> tuple[list[bytes], str]:
        """Return the hashes of the lines so far, and the cursor after them."""
        notes = self._path.read_bytes().split(b"\n")[:-1] if self._path.exists() else []
        portions = [note.split(b" ") for note in notes]
        return [found for _, *portion in portions for found in portion], portions[-1][
            0
        ].decode() if portions else ""

    def _open(self, address: str) -> Store:
        store = open_store(address)
        if self._plan.control:
            from proof.server_controls import wrap_reader

            return wrap_reader(store, self._plan.control)
        return store


def line_hashes(lines: Iterable[bytes]) -> list[str]:
    return [blake2b(line, digest_size=8).hexdigest() for line in lines]
