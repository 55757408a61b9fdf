"""Read the store for all open pages at once, and pass the changes on to the stream of
each page.

One thread reads the store. Each change becomes a numbered event. The feed holds the
latest events; a stream stores only the number of its last event. So the memory does not
grow with the number of open pages, however slowly the pages read. A stream that is too
far behind gets the event `reset`, and its page loads the snapshot again. If the store
cannot be read, the feed publishes this as an event.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from swarm.board.board import Board
from swarm.board.viewer import Viewer
from swarm.errors import StoreError, SwarmError
from swarm.status.log import LOG
from swarm.stores.contract import Store
from swarm.system.clock import from_iso, to_iso
from swarm.web.answers import Record, TaskRow
from swarm.web.payloads import board_fields, fingerprint, line_row, task_row, title_of
from swarm.web.write_probe import WriteProbe

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
_MAX_TAIL = 8 << 20  # bytes of the records that a page begins with
_PROBE_INTERVAL = 5.0  # seconds between checks whether the store can be written
_STALE_AFTER = 30.0  # seconds without a successful read until the store counts as unreadable
_MAX_SENT = 128 << 10  # bytes of events that a stream takes at once

Event = tuple[str, Mapping[str, object]]  # name and data


@dataclass(frozen=True)
class Snapshot:
    """The result of one read of the store. A snapshot never changes.

    `board` is None before the first read. `store_error` says why the store could not be
    read, "" if it could be read. `is_writable` says whether the state directory exists
    and can be written. After a failure, all other fields are of the last read that
    succeeded.
    """

    board: Board | None = None
    tasks: Mapping[str, TaskRow] | None = None
    records: tuple[Record, ...] = ()
    store_error: str = ""
    is_writable: bool = True
    seconds: float = 0.0
    """How long the read took."""
    taken_at: float = 0.0
    """On the monotonic clock."""
    event_id: str = ""
    """The last event that the snapshot includes."""


class NewRecords(NamedTuple):
    """The status records since the last read, up to `cursor`.

    `skipped` is the number of older records that were left out. `replaced` says that
    another log has replaced the log, so that no earlier record counts.
    """

    rows: list[Record]
    skipped: int
    replaced: bool
    cursor: str


class TaskChanges(NamedTuple):
    """All tasks, the changed tasks, and whether some tasks are gone."""

    tasks: Mapping[str, TaskRow]
    changed: list[TaskRow]
    some_gone: bool


class Feed:
    """Read a store repeatedly, from the call of `start` to the call of `stop`.

    Streams belong to the event loop that called `start`.
    """

    def __init__(self, store: Store) -> None:
        self.snapshot = Snapshot()
        self.streams: dict[object, asyncio.Future[None]] = {}  # the oldest first
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
        self._titles: dict[str, tuple[bytes, str]] = {}  # the line, the title
        self._fingerprint: object = None
        self._board_sent_at = 0.0
        self._probe = WriteProbe(store)
        self._probed_at = -math.inf
        self._is_writable = True

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Tell the streams and the thread to end, and return without waiting for them."""
        self.stopped = True
        self._end.set()
        self._wake_streams()

    def now(self) -> str:
        """Return the time of the store's clock, without asking the store.

        The result is the time of the last board plus the time that has passed since
        that board. Raise StoreError if there is no board.
        """
        board = require_board(self.snapshot)
        return to_iso(
            (from_iso(board.generated_at) or 0.0) + time.monotonic() - self.snapshot.taken_at
        )

    def is_healthy(self) -> bool:
        """Return whether the store was read lately, and can be written."""
        snapshot = self.snapshot
        return (
            snapshot.board is not None
            and not snapshot.store_error
            and snapshot.is_writable
            and time.monotonic() - snapshot.taken_at <= _STALE_AFTER
        )

    def check_store(self) -> None:
        """Raise StoreError if the store's directory is gone: an action would find
        nothing, or begin a new swarm.
        """
        self._probe.check_exists()

    # Streams --------------------------------------------------------------------------

    def number_of(self, event_id: str) -> int | None:
        """Return the number of an event.

        Return None if the feed has dropped events that came after this event.
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
        """Return events after an event number, and the number of the last event
        returned.

        Return only the event `reset` if the feed has dropped events after that number.
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

    def changed(self) -> Coroutine[Any, Any, object]:
        """Return a coroutine that waits until there is a newer event than now."""
        return self._published.wait()

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
        """Read the store once, and publish what has changed.

        The feed moves on only after that: an error in between loses no change.
        """
        before = self.snapshot
        self._probe.check_exists()
        board = viewer.look()
        log = self._new_records()
        tasks = self._changed_tasks(viewer)
        self._probe.check_exists()  # it may have gone during the read
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
        if begun - self._probed_at > _PROBE_INTERVAL:
            self._probed_at, self._is_writable = begun, self._probe.can_write()
        now = time.monotonic()
        snapshot = Snapshot(
            board,
            tasks.tasks,
            records,
            is_writable=self._is_writable,
            seconds=now - begun,
            taken_at=now,
        )
        self._publish(events, snapshot)
        self._cursor, self._queue_version = log.cursor, viewer.queue_version
        if any(name == "board" for name, _ in events):
            self._fingerprint, self._board_sent_at = fingerprint(board), begun

    def _board_events(self, board: Board, begun: float) -> list[Event]:
        """Return the board as an event, if it is due.

        A changed board is published at once, unless it is large: a large board is
        delayed. An unchanged board is due now and then, because the ages on the board
        grow. An unchanged board is also due after an error, so that pages learn that
        the error is over.
        """
        lists = (board.questions, board.problems, board.workers, board.locks)
        rows = sum(map(len, lists))
        silent_for = begun - self._board_sent_at
        if self.snapshot.store_error:
            is_due = True
        elif fingerprint(board) != self._fingerprint:
            is_due = rows <= _LARGE_BOARD or silent_for > _LARGE_BOARD_INTERVAL
        else:
            is_due = rows > 0 and silent_for > _REFRESH_INTERVAL
        return [("board", board_fields(board))] if is_due else []

    def _new_records(self) -> NewRecords:
        if self._cursor is None:
            return self._all_records(replaced=False)
        cursor = self._cursor
        found: deque[bytes] = deque(maxlen=_MAX_EVENT_ROWS)
        count = read = 0
        while read < _MAX_READ:
            try:
                lines, after = self._store.read_log(LOG, cursor)
            except StoreError:
                if count:
                    break  # publish what was read; the next read reports the error
                raise
            if not self._store.continues(cursor, after):
                return self._all_records(replaced=True)
            cursor = after
            if not lines:
                break
            found.extend(lines)
            count += len(lines)
            read += sum(map(len, lines))
        return NewRecords(_rows(found), count - len(found), False, cursor)

    def _all_records(self, *, replaced: bool) -> NewRecords:
        """Begin again at the end of the log, which may have parts from before."""
        lines, after = self._store.tail(LOG, MAX_RECORDS, _MAX_TAIL)
        return NewRecords(_rows(lines), 0, replaced, after)

    def _changed_tasks(self, viewer: Viewer) -> TaskChanges:
        known = self.snapshot.tasks or {}
        if viewer.queue_version == self._queue_version:
            return TaskChanges(known, [], some_gone=False)
        blocked = viewer.queue.blocked()
        rows: dict[str, TaskRow] = {}
        changed = []
        for task in viewer.queue.entries.values():
            known_line, title = self._titles.get(task.id, (b"", ""))
            if known_line is not task.line:  # a new task, or an edited one
                title = title_of(task)
                self._titles[task.id] = task.line, title
            usage = viewer.cost_of_tasks.get(task.id)
            row = task_row(
                task,
                viewer.state_of(task),
                blocked.get(task.id, ""),
                title,
                usage.cost_usd if usage else 0.0,
            )
            if (old := known.get(task.id)) == row:
                row = old
            else:
                changed.append(row)
            rows[task.id] = row
        if len(self._titles) > len(rows):  # the queue's log was replaced by another
            self._titles.clear()
        return TaskChanges(rows, changed, some_gone=not known.keys() <= rows.keys())

    def _set_store_error(self, text: str) -> None:
        if text != self.snapshot.store_error:
            self._publish(
                [("store_error", {"text": text})], replace(self.snapshot, store_error=text)
            )

    def _publish(self, events: list[Event], snapshot: Snapshot) -> None:
        """Add the events and set the snapshot, in one step of the event loop.

        As a result, a page that reads the snapshot misses no event and gets no event
        twice.
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
    return [row for line in lines if (row := line_row(line)) is not None]


def _encoded(name: str, data: Mapping[str, object], event_id: str) -> bytes:
    text = json.dumps(data, separators=(",", ":"))
    return f"id: {event_id}\nevent: {name}\ndata: {text}\n\n".encode()
