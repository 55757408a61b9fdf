"""The status log compared with a model, step by step, on files and in memory.

Writers append.  Users and other programs add lines and pieces of lines.  The log is
rotated.  Several readers continue from their own cursors.  All that happens in any order.

The model is the list of all lines that count.  After every step the whole log equals the
list.  Invalid lines are counted and hide no other line.  No reader misses a record or
sees one twice.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from swarm.status.log import LOG, StatusLog
from swarm.stores.contract import Store
from swarm.stores.file import log_writer
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore
from tests.conftest import HandClock

TASKS = some.sampled_from(["t", "任务 1", 'q"'])
READERS = some.sampled_from(["ann", "bob", "eve"])
TEXTS = some.sampled_from(["", "a reason", "中\n文 \u2028 \ud800 \x00", "x" * 70_000])
LINES = some.sampled_from(
    [
        b'{"task_id": "t", "state": "DONE"}',
        b'\xef\xbb\xbf{"task_id": "t"}\r',
        b' {"task_id": "\\u0074", "n": NaN} ',
        b"{}",
        b"",
        b" \r",
        b"{",
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b"\x00" * 50,
        b"[" * 3000,
        b'{"n": ' + b"9" * 5000 + b"}",
        b'{"task_id": "t"} {"task_id": "t"}',
        b'{"task_id": "' + b"y" * 66_000 + b'"}',
    ]
)
PIECES = some.sampled_from(
    [b'{"task_id": "t', b'"}', b", ", b"{", b"\xe4\xbb", b" ", b"\r", b"z" * 66_000]
)


def record_of(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, by another parser than swarm's."""
    try:
        record = json.loads(line.decode("utf-8-sig"), strict=False)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


class Log(RuleBasedStateMachine):
    """The steps. A subclass makes the store."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.lines: list[bytes] = []
        # reader: its cursor, and the number of records before it
        self.read_by: dict[str, tuple[str, int]] = {}
        self.store = self.open()

    def open(self) -> Store:
        raise NotImplementedError

    @property
    def log(self) -> StatusLog:
        return StatusLog(self.store)

    @property
    def records(self) -> list[bytes]:
        return [line for line in self.lines if record_of(line) is not None]

    @rule(task=TASKS, text=TEXTS)
    def append(self, task: str, text: str) -> None:
        line = self.log.append("WAIT", "w", task, text)
        assert json.loads(line)["task_id"] == task and json.loads(line).get("reason", "") == text
        assert b"\n" not in line
        self.lines.append(line)

    @rule()
    def restart(self) -> None:
        self.store = self.open()

    @rule(reader=READERS)
    def begin_from_now_on(self, reader: str) -> None:
        self.read_by[reader] = self.log.end(), len(self.records)

    @rule(reader=READERS, one=some.booleans())
    def read(self, reader: str, one: bool) -> None:
        cursor, before = self.read_by.get(reader, ("", 0))
        found, after = self.log.read(cursor, one=one)
        lines = [line for line, _ in found]
        rest = self.records[before:]
        assert lines == rest[: len(lines)]
        assert bool(lines) == bool(rest) and (not one or len(lines) <= 1)
        self.read_by[reader] = after, before + len(lines)

    @rule(reader=READERS, count=some.integers(1, 5))
    def follow(self, reader: str, count: int) -> None:
        cursor, before = self.read_by.get(reader, ("", 0))
        seen = before
        for line, _, after in self.log.follow(cursor, silence=0.0):
            assert line == self.records[seen]
            seen += 1
            self.read_by[reader] = after, seen
            if seen == before + count:
                return
        assert seen == len(self.records)

    @rule(count=some.integers(0, 6))
    def tail(self, count: int) -> None:
        assert self.log.tail(count) == self.records[max(0, len(self.records) - count) :]

    @rule(task=TASKS)
    def query(self, task: str) -> None:
        expected = [line for line in self.records if (record_of(line) or {}).get("task_id") == task]
        assert [line for line, _ in self.log.query(task)] == expected

    @rule()
    def rotate(self) -> None:
        self.store.rotate(LOG)

    @invariant()
    def the_whole_log_reads_as_the_list_says(self) -> None:
        log, found, cursor = self.log, [], ""
        while True:
            more, cursor = log.read(cursor)
            if not more:
                break
            found += [line for line, _ in more]
        assert found == self.records
        assert log.damaged == sum(
            bool(line.strip()) and record_of(line) is None for line in self.lines
        )

    @invariant()
    def every_line_is_numbered(self) -> None:
        assert [line for _, line, whole in self.store.numbered(LOG) if whole] == self.lines


class LogInMemory(Log):
    def open(self) -> Store:
        return self.store if hasattr(self, "store") else MemoryStore(clock=self.clock)

    @rule(line=LINES)
    def another_program_adds_a_line(self, line: bytes) -> None:
        self.store.append(LOG, line)
        self.lines.append(line)


class LogInFiles(Log):
    """The steps that only files have: pieces of lines, and rotation."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="swarm-test-"))
        self.torn = b""
        self.parts = 0
        self.no_grace = mock.patch.object(log_writer, "_TORN_LINE_GRACE", 0.0)
        self.no_grace.start()
        super().__init__()

    def open(self) -> Store:
        return FileStore(str(self.root), clock=self.clock)

    def add(self, data: bytes) -> None:
        with (self.root / "status.log").open("ab") as file:
            file.write(data)

    @rule(task=TASKS, text=TEXTS)
    def append(self, task: str, text: str) -> None:
        if self.torn:
            self.lines.append(self.torn)  # the append terminates it first
        super().append(task, text)
        self.torn = b""

    @rule(line=LINES)
    def another_program_adds_a_line(self, line: bytes) -> None:
        self.add(line + b"\n")
        self.lines.append(self.torn + line)
        self.torn = b""

    @rule(piece=PIECES)
    def another_program_dies_in_the_middle_of_a_line(self, piece: bytes) -> None:
        self.add(piece)
        self.torn += piece

    @rule()
    def rotate(self) -> None:
        live = self.root / "status.log"
        filled = live.exists() and live.stat().st_size > 0
        assert self.store.rotate(LOG) is filled
        self.parts += filled
        self.torn = b""  # an unterminated line of a rotated file never counts

    @invariant()
    def every_part_is_there(self) -> None:
        assert len(list(self.root.glob(".status/*/part"))) == self.parts

    def teardown(self) -> None:
        self.no_grace.stop()
        self.store.close()
        shutil.rmtree(self.root)


TestLogInFiles = LogInFiles.TestCase
TestLogInMemory = LogInMemory.TestCase
