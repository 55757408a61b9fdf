"""Poll the store once for all open pages, and pass the changes on to their streams.

One thread reads the store. Each change becomes a numbered event. The feed holds the
latest events; a stream stores only the number of its last event. So memory is bounded,
however many pages are open and however slowly they read. A stream that is too far
behind gets the event `reset`, and its page begins again. A store that cannot be read is
an event too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from swarm.board.board import Board
from swarm.board.viewer import Viewer
from swarm.errors import StoreError, SwarmError
from swarm.status.log import LOG, parse_record
from swarm.stores.contract import Store
from swarm.system.clock import from_iso, to_iso
from swarm.web.answers import Record, TaskRow
from swarm.web.payloads import board_fields, fingerprint, record_row, task_row, title_of

MAX_RECORDS = 1000  # status records that a page begins with
_MIN_INTERVAL = 0.2  # seconds at least between two reads of the store
_POLL_INTERVAL = 1.0  # seconds at most between two reads: an expired lease writes no record
_LARGE_BOARD = 60  # rows from which on a board is large
_LARGE_BOARD_INTERVAL = 0.9  # seconds at least between two large boards
_REFRESH_INTERVAL = 10.0  # seconds until a board is sent again in which only time has passed
_MAX_EVENTS, _MAX_EVENT_BYTES = 1000, 8 << 20  # held for streams that come back
_MAX_EVENT_ROWS = 500  # records or tasks in one event
_MAX_CHANGED_TASKS = 2000  # above this, pages read all tasks again
_MAX_READ = 4 << 20  # bytes of the log in one read of the store
_MAX_SENT = 128 << 10  # bytes of events that a stream takes at once

Event = tuple[str, Mapping[str, object]]  # name and data


@dataclass(frozen=True)
class Snapshot:
    """The result of one read of the store. It is never changed.

    `board` is None before the first read. `store_error` says why the store could not be
    read, "" if it could be read. After a failure, all other fields are of the last read
    that succeeded.
    """

    board: Board | None = None
    tasks: Mapping[str, TaskRow] | None = None
    records: tuple[Record, ...] = ()
    store_error: str = ""
    seconds: float = 0.0
    """How long the read took."""
    taken_at: float = 0.0
    """On the monotonic clock."""
    event_id: str = ""
    """The last event that the snapshot includes."""


class NewRecords(NamedTuple):
    """The status records since the last read.

    `skipped`: the number of older records that were left out. `replaced`: another log
    has replaced the log, so no earlier record counts any more.
    """

    rows: list[Record]
    skipped: int
    replaced: bool


class TaskChanges(NamedTuple):
    """All tasks, the changed tasks, and whether some tasks are gone."""

    tasks: Mapping[str, TaskRow]
    changed: list[TaskRow]
    some_gone: bool


class Feed:
    """Read a store from `start` to `stop`.

    Streams belong to the event loop that called `start`.
    """

    def __init__(self, store: Store) -> None:
        self.snapshot = Snapshot()
        self.clients = 0
        self.events = 0
        self.stopped = False
        self._store = store
        self._feed_id = secrets.token_hex(4)
        self._events: deque[tuple[int, bytes]] = deque()
        self._event_bytes = 0
        self._number = 0
        self._published = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._watch, name="swarm-web-feed", daemon=True)
        self._end = threading.Event()
        # Used by the watching thread alone:
        self._cursor: str | None = None
        self._queue_version: object = None
        self._titles: dict[str, str] = {}
        self._fingerprint: object = None
        self._board_sent_at = 0.0

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End the streams and the thread. Return without waiting for their end."""
        self.stopped = True
        self._end.set()
        self._wake_streams()

    def now(self) -> str:
        """Return the time of the store's clock, without asking the store.

        The result is the time of the last board plus the time since then. Raise
        StoreError if there is no board.
        """
        board = require_board(self.snapshot)
        return to_iso(
            (from_iso(board.generated_at) or 0.0) + time.monotonic() - self.snapshot.taken_at
        )

    # Streams --------------------------------------------------------------------------

    def number_of(self, event_id: str) -> int | None:
        """Return the number of an event.

        Return None if the feed has dropped events after this one.
        """
        feed_id, _, number = event_id.partition(".")
        if feed_id != self._feed_id or not (
            number.isascii() and number.isdigit() and len(number) < 16
        ):
            return None
        oldest = self._events[0][0] if self._events else self._number + 1
        return int(number) if oldest - 1 <= int(number) <= self._number else None

    def newest(self) -> int:
        return self._number

    def after(self, number: int) -> tuple[bytes, int]:
        """Return some events after this number, and the number of the last of them.

        Return a `reset` if the feed has dropped some of these events.
        """
        if number == self._number:
            return b"", number
        if not self._events or self._events[0][0] > number + 1:
            return self.reset(), self._number
        found, size = [], 0
        for at, data in itertools.islice(self._events, number + 1 - self._events[0][0], None):
            found.append(data)
            number, size = at, size + len(data)
            if size > _MAX_SENT:
                break
        return b"".join(found), number

    def reset(self) -> bytes:
        return _encoded("reset", {}, f"{self._feed_id}.{self._number}")

    async def changed(self) -> None:
        """Wait until there is a new event."""
        await self._published.wait()

    # The watching thread --------------------------------------------------------------

    def _watch(self) -> None:
        viewer = Viewer(self._store)
        while not self._end.is_set():
            begun = time.monotonic()
            try:
                self._read(viewer, begun)
                self._end.wait(max(0.0, _MIN_INTERVAL - (time.monotonic() - begun)))
                if not self._end.is_set():
                    viewer.wait(_POLL_INTERVAL)
            # even a fault of swarm: without this thread the page would stand still
            except Exception as error:
                self._set_store_error(
                    str(error)
                    if isinstance(error, SwarmError)
                    else f"this is a fault in swarm: {error!r}"
                )
                self._end.wait(_POLL_INTERVAL)

    def _read(self, viewer: Viewer, begun: float) -> None:
        """Read the store once, and publish what has changed."""
        before = self.snapshot
        board = viewer.look()
        log = self._new_records()
        tasks = self._changed_tasks(viewer)
        events = [
            *_log_events(log),
            *_task_events(tasks, before),
            *self._board_events(board, begun),
        ]
        if log.replaced:
            events = [("reset", {})]
        records = before.records
        if log.rows or log.replaced:
            records = (*(() if log.replaced else records), *log.rows)[-MAX_RECORDS:]
        now = time.monotonic()
        snapshot = Snapshot(board, tasks.tasks, records, seconds=now - begun, taken_at=now)
        self._publish(events, snapshot)

    def _board_events(self, board: Board, begun: float) -> list[Event]:
        """Return the board as an event, if it is due.

        A changed board is due at once, but a large board is delayed. An unchanged board
        is due now and then, since its ages grow, and after an error, since pages must
        learn that the error is over.
        """
        current = fingerprint(board)
        rows = len(board.problems) + len(board.workers) + len(board.locks)
        silent_for = begun - self._board_sent_at
        if self.snapshot.store_error:
            is_due = True
        elif current != self._fingerprint:
            is_due = rows <= _LARGE_BOARD or silent_for > _LARGE_BOARD_INTERVAL
        else:
            is_due = rows > 0 and silent_for > _REFRESH_INTERVAL
        if not is_due:
            return []
        self._fingerprint, self._board_sent_at = current, begun
        return [("board", board_fields(board))]

    def _new_records(self) -> NewRecords:
        if self._cursor is None:
            lines, self._cursor = self._store.tail(LOG, MAX_RECORDS)
            return NewRecords(_rows(lines), 0, replaced=False)
        replaced = False
        found: deque[bytes] = deque(maxlen=_MAX_EVENT_ROWS)
        count = read = 0
        while read < _MAX_READ:
            try:
                lines, after = self._store.read_log(LOG, self._cursor)
            except StoreError:
                if count:
                    break  # publish what was read; the next read reports the error
                raise
            if not self._store.continues(self._cursor, after):
                replaced = True
                found.clear()
                count = 0
            self._cursor = after
            if not lines:
                break
            found.extend(lines)
            count += len(lines)
            read += sum(map(len, lines))
        return NewRecords(_rows(found), count - len(found), replaced)

    def _changed_tasks(self, viewer: Viewer) -> TaskChanges:
        known = self.snapshot.tasks or {}
        if viewer.queue_version == self._queue_version:
            return TaskChanges(known, [], some_gone=False)
        blocked = viewer.queue.blocked()
        rows: dict[str, TaskRow] = {}
        changed = []
        for task in viewer.queue.entries.values():
            if (title := self._titles.get(task.id)) is None:
                title = self._titles[task.id] = title_of(task)
            row = task_row(task, viewer.state_of(task), blocked.get(task.id, ""), title)
            if (old := known.get(task.id)) == row:
                row = old
            else:
                changed.append(row)
            rows[task.id] = row
        if len(self._titles) > len(rows):  # the queue's log was replaced by another
            self._titles.clear()
        self._queue_version = viewer.queue_version
        return TaskChanges(rows, changed, some_gone=not known.keys() <= rows.keys())

    def _set_store_error(self, text: str) -> None:
        if text != self.snapshot.store_error:
            self._publish(
                [("store_error", {"text": text})], replace(self.snapshot, store_error=text)
            )

    def _publish(self, events: list[Event], snapshot: Snapshot) -> None:
        """Add the events and set the snapshot, in one step of the event loop.

        So a page that reads the snapshot misses no event and gets no event twice.
        """
        encoded = []
        number = self._number
        for name, data in events:
            number += 1
            encoded.append((number, _encoded(name, data, f"{self._feed_id}.{number}")))
        snapshot = replace(snapshot, event_id=f"{self._feed_id}.{number}")
        done = threading.Event()

        def publish() -> None:
            for at, event in encoded:
                self._events.append((at, event))
                self._event_bytes += len(event)
            while len(self._events) > _MAX_EVENTS or (
                self._event_bytes > _MAX_EVENT_BYTES and len(self._events) > 1
            ):
                self._event_bytes -= len(self._events.popleft()[1])
            self.snapshot, self._number = snapshot, number
            self.events += len(encoded)
            if encoded:
                self._wake_streams_here()
            done.set()

        if self._loop is None or self.stopped:
            return
        try:
            self._loop.call_soon_threadsafe(publish)
        except RuntimeError:
            return  # the loop has ended
        while not done.wait(1.0) and not self.stopped:
            pass

    def _wake_streams(self) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._wake_streams_here)
            except RuntimeError:
                pass  # the loop has ended, and all streams with it

    def _wake_streams_here(self) -> None:
        self._published.set()
        self._published = asyncio.Event()


def require_board(snapshot: Snapshot) -> Board:
    """Return the board of a snapshot. Raise StoreError if the store was never read."""
    if snapshot.board is None:
        raise StoreError(
            snapshot.store_error
            or "the store is being read for the first time. Try again in a moment."
        )
    return snapshot.board


def _log_events(log: NewRecords) -> list[Event]:
    return [("log", {"records": log.rows, "skipped": log.skipped})] if log.rows else []


def _task_events(tasks: TaskChanges, before: Snapshot) -> list[Event]:
    if before.board is None:
        return []  # no page has a list of tasks yet
    if tasks.some_gone or len(tasks.changed) > _MAX_CHANGED_TASKS:
        return [("tasks", {"all": True, "rows": []})]
    starts = range(0, len(tasks.changed), _MAX_EVENT_ROWS)
    return [("tasks", {"rows": tasks.changed[start : start + _MAX_EVENT_ROWS]}) for start in starts]


def _rows(lines: list[bytes] | deque[bytes]) -> list[Record]:
    return [record_row(record) for line in lines if (record := parse_record(line))]


def _encoded(name: str, data: Mapping[str, object], event_id: str) -> bytes:
    text = json.dumps(data, separators=(",", ":"))
    return f"id: {event_id}\nevent: {name}\ndata: {text}\n\n".encode()
