"""Processes that append to one log, and what its readers find."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from swarm.stores.file.log import FileLog
from swarm.stores.file.store import FileStore
from tests.support.processes import fork


def open_log(path: Path, max_bytes: int = 0) -> FileLog:
    store = FileStore(str(path), log_max_bytes=max_bytes)
    return store._log("status")


def read_all(log: FileLog) -> list[bytes]:
    lines: list[bytes] = []
    cursor = ""
    while True:
        more, cursor = log.read(cursor, 1 << 16)
        if not more:
            return lines
        lines += more


class Writers:
    """Processes that append numbered records and note, outside swarm, which appends
    have returned.
    """

    def __init__(self, path: Path, append: Callable[[bytes], object]) -> None:
        self.path = path
        self.append = append
        self.children: dict[int, int] = {}
        self.started = 0
        path.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        self.started += 1
        self.children[fork(self._write, self.started)] = self.started

    def _write(self, writer: int) -> None:
        rng = random.Random(writer)
        noted = os.open(self.path / f"returned-{writer}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        for number in range(1_000_000):
            filler = "x" * rng.choice([0, 50, 300, 5_000, 40_000])
            self.append(json.dumps({"writer": writer, "number": number, "filler": filler}).encode())
            os.write(noted, b"%d\n" % number)

    def kill_one(self) -> None:
        pid = random.choice(list(self.children))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del self.children[pid]

    def stop(self) -> None:
        while self.children:
            self.kill_one()

    def returned(self) -> set[tuple[int, int]]:
        return {
            (int(path.name.partition("-")[2]), int(number))
            for path in self.path.glob("returned-*")
            for number in path.read_text().split()
        }


def whole(lines: list[bytes]) -> list[tuple[int, int]]:
    found = []
    for line in lines:
        try:
            record = json.loads(line)
            found.append((record["writer"], record["number"]))
        except (ValueError, TypeError, KeyError):
            continue  # a torn piece of a killed writer
    return found
