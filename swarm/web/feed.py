"""One pair of eyes for everybody who looks at the page: a thread looks at the store, and what has changed goes to all streams.

What is passed on is kept for a while, numbered, and every stream only knows the number that it has reached. So memory is bounded
by what is kept, however many look and however slowly they read; one that has fallen behind, or was away for too long, is told to
begin anew. A store that cannot be looked at is an event too, and so is its return.
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

from swarm.board.board import Board
from swarm.board.viewer import Viewer
from swarm.errors import StoreError, SwarmError
from swarm.status.log import LOG, parse_record
from swarm.stores.contract import Store
from swarm.system.clock import from_iso, to_iso
from swarm.web.payloads import Row, board_fields, fingerprint, record_row, task_row, title_of

RECORDS = 1000  # of the log that a page begins with
_GAP = 0.2  # seconds at least between looks
_TICK = 1.0  # seconds after which is looked at what no record announces
_LARGE, _LARGE_GAP = 60, 0.9  # entries of a board that is sent only once in so many seconds
_REFRESH = 10.0  # seconds after which a board is sent in which only time has passed
_KEPT, _KEPT_BYTES = 1000, 8 << 20  # events, for those who come back
_AT_ONCE = 500  # records, or tasks, in one event
_TOO_MANY = 2000  # tasks changed at once: reading all anew is cheaper
_BATCH = 4 << 20  # bytes of the log at one look
_AT_A_TIME = 128 << 10  # bytes of events that one stream has in hand


@dataclass(frozen=True)
class Snapshot:
    """The result of one read of the store. It is never changed.

    `board` is None before the first read. `store_error` says why the store could not be
    read, "" if it could."""

    board: Board | None = None
    tasks: Mapping[str, Row] | None = None
    records: tuple[Row, ...] = ()
    store_error: str = ""
    seconds: float = 0.0
    """That the look took."""
    taken_at: float = 0.0
    """When, on the clock that does not jump."""
    event_id: str = ""
    """Which event it is as of."""


class Feed:
    """Looks at a store from `start` to `stop`. Streams belong to the event loop that it was started in."""

    def __init__(self, store: Store) -> None:
        self.snapshot = Snapshot()
        self.clients = 0
        self.events = 0
        self.stopped = False
        self._store = store
        self._feed_id = secrets.token_hex(4)
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._number = 0
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._watch, name="swarm-web-feed", daemon=True)
        self._end = threading.Event()
        # Of the watching thread alone:
        self._cursor: str | None = None
        self._version: object = None
        self._titles: dict[str, str] = {}
        self._last: object = None
        self._sent_at = 0.0

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Ends the streams and the looking, without waiting for either."""
        self.stopped = True
        self._end.set()
        self._wake()

    def now(self) -> str:
        """By the clock that the swarm shares. Asks nobody: what the last look said, and what has passed since."""
        board = require_board(self.snapshot)
        return to_iso((from_iso(board.generated_at) or 0.0) + time.monotonic() - self.snapshot.taken_at)

    # Streams -----------------------------------------------------------------------------------------------------

    def number_of(self, event_id: str) -> int | None:
        """The number of the event that somebody has seen last; None if what came after it is not known any more."""
        feed_id, _, number = event_id.partition(".")
        if feed_id != self._feed_id or not (number.isascii() and number.isdigit() and len(number) < 16):
            return None
        oldest = self._kept[0][0] if self._kept else self._number + 1
        return int(number) if oldest - 1 <= int(number) <= self._number else None

    def newest(self) -> int:
        return self._number

    def after(self, number: int) -> tuple[bytes, int]:
        """Some events after this one, and the number of the last of them; begin anew, where they are not known any more."""
        if number == self._number:
            return b"", number
        if not self._kept or self._kept[0][0] > number + 1:
            return self.reset(), self._number
        found, size = [], 0
        for at, data in itertools.islice(self._kept, number + 1 - self._kept[0][0], None):
            found.append(data)
            number, size = at, size + len(data)
            if size > _AT_A_TIME:
                break
        return b"".join(found), number

    def reset(self) -> bytes:
        return _event("reset", {}, f"{self._feed_id}.{self._number}")

    async def changed(self) -> None:
        await self._news.wait()

    # The watching thread -----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        viewer = Viewer(self._store)
        while not self._end.is_set():
            begun = time.monotonic()
            try:
                self._look(viewer, begun)
                self._end.wait(max(0.0, _GAP - (time.monotonic() - begun)))
                if not self._end.is_set():
                    viewer.wait(_TICK)
            except Exception as error:  # nobody else would notice that nobody looks any more
                self._set_store_error(str(error) if isinstance(error, SwarmError) else f"this is a fault in swarm: {error!r}")
                self._end.wait(_TICK)

    def _look(self, viewer: Viewer, begun: float) -> None:
        board = viewer.look()
        events: list[tuple[str, Row]] = []
        records, skipped, anew = self._new_records()
        tasks, changed, gone = self._changed_tasks(viewer)
        if records:
            events.append(("log", {"records": records, "skipped": skipped}))
        if (gone or len(changed) > _TOO_MANY) and self.snapshot.board:
            events.append(("tasks", {"all": True, "rows": []}))
        elif self.snapshot.board:
            events += [("tasks", {"rows": changed[at : at + _AT_ONCE]}) for at in range(0, len(changed), _AT_ONCE)]
        now = fingerprint(board)
        silent = begun - self._sent_at
        lists = len(board.problems) + len(board.workers) + len(board.locks)
        changed_board = now != self._last and silent > (_LARGE_GAP if lists > _LARGE else 0.0)
        if changed_board or self.snapshot.store_error or (silent > _REFRESH and lists):
            self._last, self._sent_at = now, begun
            events.append(("board", board_fields(board)))
        recent = (*(() if anew else self.snapshot.records), *records)[-RECORDS:] if records or anew else self.snapshot.records
        if anew:
            events = [("reset", {})]
        snapshot = Snapshot(board, tasks, recent, "", time.monotonic() - begun, time.monotonic(), self.snapshot.event_id)
        self._tell(events, snapshot)

    def _new_records(self) -> tuple[list[Row], int, bool]:
        """Those that came since the last look, how many more there were than anybody could read, whether it is another log."""
        if self._cursor is None:
            lines, self._cursor = self._store.tail(LOG, RECORDS)
            return [record_row(record) for line in lines if (record := parse_record(line))], 0, False
        anew = False
        found: deque[bytes] = deque(maxlen=_AT_ONCE)
        count = read = 0
        while read < _BATCH:
            try:
                lines, after = self._store.read_log(LOG, self._cursor)
            except StoreError:
                if count:
                    break  # what was read must not be lost; the next look will tell
                raise
            if not self._store.continues(self._cursor, after):
                anew = True
                found.clear()
                count = 0
            self._cursor = after
            if not lines:
                break
            found.extend(lines)
            count += len(lines)
            read += sum(map(len, lines))
        rows = [record_row(record) for line in found if (record := parse_record(line))]
        return rows, count - len(found), anew

    def _changed_tasks(self, viewer: Viewer) -> tuple[Mapping[str, Row], list[Row], bool]:
        """All tasks, those that are different now, and whether there are any less."""
        known = self.snapshot.tasks or {}
        if viewer.queue_version == self._version:
            return known, [], False
        blocked = viewer.queue.blocked()
        rows: dict[str, Row] = {}
        changed = []
        for entry in viewer.queue.entries.values():
            if (title := self._titles.get(entry.id)) is None:
                title = self._titles[entry.id] = title_of(entry)
            row = task_row(entry, viewer.state_of(entry), blocked.get(entry.id, ""), title)
            if (old := known.get(entry.id)) == row:
                row = old
            else:
                changed.append(row)
            rows[entry.id] = row
        if len(self._titles) > len(rows):  # another log was put in the place of this one
            self._titles.clear()
        self._version = viewer.queue_version
        return rows, changed, not known.keys() <= rows.keys()

    def _set_store_error(self, text: str) -> None:
        if text != self.snapshot.store_error:
            self._tell([("store_error", {"text": text})], replace(self.snapshot, store_error=text))

    def _tell(self, events: list[tuple[str, Row]], snapshot: Snapshot) -> None:
        """Both at once, as the event loop sees them: who reads the snapshot at an event goes on behind that event."""
        made = []
        number = self._number
        for name, data in events:
            number += 1
            made.append((number, _event(name, data, f"{self._feed_id}.{number}")))
        snapshot = replace(snapshot, event_id=f"{self._feed_id}.{number}")
        done = threading.Event()

        def tell() -> None:
            for at, event in made:
                self._kept.append((at, event))
                self._kept_bytes += len(event)
            while len(self._kept) > _KEPT or (self._kept_bytes > _KEPT_BYTES and len(self._kept) > 1):
                self._kept_bytes -= len(self._kept.popleft()[1])
            self.snapshot, self._number = snapshot, number
            self.events += len(made)
            if made:
                self._wake_here()
            done.set()

        if self._loop is None or self.stopped:
            return
        try:
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:
            return  # the loop has ended
        while not done.wait(1.0) and not self.stopped:
            pass

    def _wake(self) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._wake_here)
            except RuntimeError:
                pass  # the loop has ended, and with it all streams

    def _wake_here(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def require_board(snapshot: Snapshot) -> Board:
    """The board of a snapshot. Raises StoreError where nobody could look yet."""
    if snapshot.board is None:
        raise StoreError(snapshot.store_error or "the swarm is being looked at for the first time. Try again in a moment.")
    return snapshot.board


def _event(name: str, data: Row, event_id: str) -> bytes:
    return f"id: {event_id}\nevent: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
