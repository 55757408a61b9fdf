"""The store on etcd: records and lines are keys, and every change is one transaction, which the cluster carries out alone and
whole, and confirms once a majority has it on disk.

Everything lies under `namespace/`. etcd keeps the history of every key until it is compacted: without auto-compaction
(`--auto-compaction-retention`) heartbeats fill its database in the end, and it then takes no more writes. The time is the
member's that answers, to the second. See docs/reference/stores.md.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from swarm.errors import StoreError
from swarm.stores.address import Address
from swarm.stores.contract import Cache
from swarm.stores.etcd_gateway import (
    Gateway,
    Json,
    Wire,
    delete,
    either,
    entries,
    get,
    is_absent,
    is_never,
    is_revision,
    is_value,
    put,
    status,
    value,
)
from swarm.stores.server import cursors
from swarm.stores.server.base import MadeAnew, OnServer
from swarm.stores.server.clock import ServerClock
from swarm.stores.server.cursors import Position
from swarm.stores.server.session_pool import FORGOTTEN, Broken, Link, Slot
from swarm.system.clock import Clock

VERSION = 1
_LONG = 1 << 16  # bytes: a longer record is compared here, as the old and the new one may not fit into one request
_NONCE = 12  # bytes before every line, by which a writer knows its own
_CLEARING = 1 / 50  # of the dials
_ASIDE = 0.02  # seconds, at most, that somebody steps aside for who was too slow to append


class _Opened(NamedTuple):
    """A namespace, as long as it is not removed: what its meta says, and which one it is."""

    meta: bytes
    incarnation: str


class EtcdStore(OnServer[Wire]):
    """A namespace of a cluster."""

    def __init__(self, address: Address, *, clock: Clock | None = None, cache: Cache | None = None) -> None:
        self._gateway = Gateway(address)
        super().__init__(address, Link(address, lambda timeout: self._gateway.dial(timeout, self._greet), Wire.hang_up), cache)
        self._server_clock = ServerClock(self._ask_time)
        self.clock = clock or self._server_clock
        self._timed_by = -1
        self._opened = _Opened(b"", "")
        self._known: dict[tuple[str, str], int] = {}  # by incarnation and log: which line was the last

    # Records ---------------------------------------------------------------------------------------------------------

    def read(self, key: str) -> bytes | None:
        return value(self._get(self._name("record", key)))

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        first = self._name("record", f"{after}\0" if after else f"{namespace}/")
        last = self._name("record", f"{namespace}0")  # 0 comes right after /
        found = entries(self._get(first, last, keys_only=True, limit=str(limit)))
        return [each.key.removeprefix(self._name("record", "")) for each in found]

    def where(self, key: str) -> str:
        return f"{self._name('record', key)} on {self.address.shown}"

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        self._listen(self._name("record", key), lambda: self.read(key) == data, timeout)

    # Tickets ---------------------------------------------------------------------------------------------------------

    def next_token(self, key: str) -> int:
        name, skipped = self._name("ticket", key), self._name("skipped", key.partition("/")[0])
        before, _, drawn = self._ask(either([], [get(skipped), put(name, b""), get(name)], []))["responses"]
        return int(value(before) or 0) + entries(drawn)[0].version

    def token_bound(self, key: str) -> int:
        found = entries(self._get(self._name("ticket", key)))
        return found[0].version + self._skipped(key.partition("/")[0]) if found else 0

    def highest_token(self, namespace: str) -> int:
        first, end = self._name("ticket", f"{namespace}/"), self._name("ticket", f"{namespace}0")
        highest = {"sort_target": "VERSION", "sort_order": "DESCEND", "limit": "1"}
        found = entries(self._get(first, end, **highest))
        return (found[0].version if found else 0) + self._skipped(namespace)

    def advance_tokens(self, namespace: str, past: int) -> None:
        name = self._name("skipped", namespace)
        while (known := value(self._get(name)) or b"") == b"" or int(known) < past:
            self._ask(either([_is_now(name, known)], [put(name, b"%d" % past)], []))

    # Logs ------------------------------------------------------------------------------------------------------------

    def append(self, log: str, line: bytes) -> str:
        own = os.urandom(_NONCE) + line
        last: int | None = None
        unsure = False  # whether the line may have come after `last`, or may yet

        def sent(slot: Slot[Wire]) -> str:
            nonlocal last, unsure
            opened, crowd = self._opened, 0
            while True:
                if last is None:
                    last = self._known.pop((opened.incarnation, log), None) or _last(self._say(slot.wire, self._head(log)))
                again, unsure = unsure, True
                done, head, there = self._try_append(slot.wire, opened.meta, log, last, own, look=again)
                unsure = False  # by now somebody's line comes after `last`
                if done or there == own:
                    if not crowd:
                        self._known[opened.incarnation, log] = max(last + 1, head)
                    return cursors.cursor(opened.incarnation, (last + 1,))
                last = head
                crowd += 1
                if 1 < crowd < 6:  # who has lost more often than that goes first
                    time.sleep(random.random() * _ASIDE)

        return self._link.call(sent)

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        opened, start = self._start(cursor)
        try:
            lines, end = self._portions.gather(log, lambda at, count: self._fetch(opened, log, at, count), start, limit)
        except MadeAnew:
            return self.read_log(log, cursor, limit)
        return lines, cursors.cursor(opened.incarnation, end)

    def tail(self, log: str, count: int) -> tuple[list[bytes], str]:
        opened, _ = self._start("")
        try:
            last = _last(self._look(opened, self._head(log)))
            count = min(count, last)
            found = self._fetch(opened, log, (last - count,), count) if count else []
        except MadeAnew:
            return self.tail(log, count)
        return [line for _, line in found], cursors.cursor(opened.incarnation, (last,))

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout

        def nothing_new() -> bool:
            opened, start = self._start(cursor)
            try:
                return _last(self._look(opened, self._head(log))) <= start[0]
            except MadeAnew:
                return nothing_new()

        while nothing_new():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._listen(self._name("head", log), nothing_new, left)
        return True

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        opened, at = self._start("")
        while found := self._fetch(opened, log, at, 256):
            for position, line in found:
                at = position
                yield self._line(log, at[0]), line, True

    # For `swarm doctor` ----------------------------------------------------------------------------------------------

    def server_settings(self) -> Json:
        said = self._ask(status())
        version, size = said.get("version", ""), int(said.get("dbSize", 0))
        return {"version": version, "errors": said.get("errors", ()), "database_bytes": size}

    # How it is said to the server ------------------------------------------------------------------------------------

    def _ask(self, request: Json) -> Json:
        """The answer to a question that may be put twice."""
        return self._link.call(lambda slot: self._say(slot.wire, request))

    def _get(self, key: str, end: str = "", **options: object) -> Json:
        return self._ask(get(key, end, **options))

    def _say(self, wire: Wire, request: Json) -> Json:
        before = self._server_clock.steady()
        answer = wire.ask(request)
        if wire.place != self._timed_by:
            self._server_clock.forget()
            self._timed_by = wire.place
        self._server_clock.learn(before, self._server_clock.steady(), wire.date, wire.date + 1)
        return answer

    def _skipped(self, namespace: str) -> int:
        """By how much a ticket is more than how often its key was put. Asked by itself, after that: a transaction that only reads
        is the end of an old etcd when whoever asks hangs up (its issue 14110)."""
        return int(value(self._get(self._name("skipped", namespace))) or 0)

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        """Changes a record once, however often that is sent: the transaction is for a turn that has not been taken."""
        record = self._name("record", key)
        unsure = False  # whether the turn may have been taken, or may yet be

        def sent(slot: Slot[Wire]) -> bool:
            nonlocal unsure
            if not unsure:
                _begin_session(slot)
            while True:
                judged = self._judged(slot.wire, record, old)
                again, unsure = unsure, True
                try:
                    noted = self._try_turn(slot, judged, record, new)
                except _Gone:
                    unsure = again
                    raise
                if _turn(noted) == slot.turn:
                    slot.noted = noted
                    return noted.endswith(b"1")
                if 0 < _turn(noted) < slot.turn:  # what was given up was done after all
                    slot.noted = noted
                elif again:
                    raise StoreError(f"{self.address.shown} has forgotten whether {key} was changed. Look before you repeat it.")
                else:  # the session was cleared
                    _begin_session(slot, anew=True)
                unsure = False

        return self._link.call(sent)

    def _try_turn(self, slot: Slot[Wire], judged: Json, record: str, new: bytes | None) -> bytes:
        """Takes the turn if the one before it is the one that is known; the turn that is noted now, with its answer."""
        session, meta = self._name("session", slot.session), self._opened.meta
        change = delete(record) if new is None else put(record, new)
        yes, no = b"%d 1" % slot.turn, b"%d 0" % slot.turn
        request = either(
            [is_value(self._name("meta"), meta), _is_now(session, slot.noted)],
            [either([judged], [change, put(session, yes)], [put(session, no)])],
            [get(self._name("meta")), get(session)],
        )
        answer = self._say(slot.wire, request)
        if answer.get("succeeded"):
            return yes if answer["responses"][0]["response_txn"].get("succeeded") else no
        found, noted = map(value, answer["responses"])
        _check_same(meta, found)
        return noted or b""

    def _judged(self, wire: Wire, record: str, old: bytes | None) -> Json:
        """What must be so for a record to be changed."""
        if old is None:
            return is_absent(record)
        if len(old) <= _LONG:
            return is_value(record, old)
        for found in entries(self._say(wire, get(record))):
            if found.value == old:
                return is_revision(record, found.revision)
        return is_never(record)

    def _try_append(
        self, wire: Wire, meta: bytes, log: str, last: int, own: bytes, *, look: bool
    ) -> tuple[bool, int, bytes | None]:
        """Whether the line was put after the last one, which one is the last, and, to `look`, what came after `last`."""
        head, line = self._name("head", log), self._line(log, last + 1)
        known = b"%d" % last if last else b""
        request = either(
            [is_value(self._name("meta"), meta), _is_now(head, known)],
            [put(head, b"%d" % (last + 1)), put(line, own)],
            [get(self._name("meta")), get(head), *([get(line)] if look else [])],
        )
        answer = self._say(wire, request)
        if answer.get("succeeded"):
            return True, last + 1, own
        found, now, *there = map(value, answer["responses"])
        _check_same(meta, found)
        return False, int(now or 0), there[0] if there else None

    def _fetch(self, opened: _Opened, log: str, after: Position, count: int) -> list[tuple[Position, bytes]]:
        first = after[0] + 1  # both ends are given, as etcd counts what it does not send: there are no gaps
        found = entries(self._look(opened, get(self._line(log, first), self._line(log, first + count))))
        return [((first + step,), each.value[_NONCE:]) for step, each in enumerate(found)]

    def _look(self, opened: _Opened, request: Json) -> Json:
        """The answer to a `get` in the namespace that was opened, and in no other that has taken its place."""

        def looked(slot: Slot[Wire]) -> Json:
            if self._opened != opened:
                raise self._made_anew()
            answer = self._say(slot.wire, request)  # no transaction: a full database refuses those, too
            _check_same(opened.meta, value(self._say(slot.wire, get(self._name("meta"), serializable=True))))
            return answer

        return self._link.call(looked)

    def _listen(self, name: str, unchanged: Callable[[], bool], seconds: float) -> None:
        """Returns when it is not unchanged any more, or when time is up; it may return early."""
        deadline = time.monotonic() + seconds

        def listened(slot: Slot[Wire]) -> None:
            slot.wire.watch(name)
            while unchanged() and (left := deadline - time.monotonic()) > 0:
                if not slot.wire.heard(min(left, self._longest_wait)):
                    break
            raise _Ended

        try:
            self._link.call(listened)
        except _Ended:
            pass  # the wire is in another mode now: it was hung up

    def _start(self, cursor: str) -> tuple[_Opened, Position]:
        incarnation, position = cursors.parse_cursor(cursor)
        if not self._opened.meta:
            self._link.call(lambda slot: None)
        opened = self._opened
        return opened, position[:1] if incarnation == opened.incarnation else (0,)

    def _ask_time(self) -> tuple[float, float]:
        def asked(slot: Slot[Wire]) -> tuple[float, float]:
            self._say(slot.wire, get(self._name("meta"), serializable=True))
            return slot.wire.date, slot.wire.date + 1

        return self._link.call(asked)

    def _head(self, log: str) -> Json:
        return get(self._name("head", log))

    def _line(self, log: str, ordinal: int) -> str:
        return self._name("log", log, f"{ordinal:020d}")

    def _name(self, *parts: str) -> str:
        return "/".join((self.address.namespace, *parts))

    def _greet(self, wire: Wire) -> None:
        self._check_version(wire)
        if random.random() < _CLEARING:
            first, end = self._name("session", ""), self._name("session", f"{_hour(wire) - 2:08d}")
            self._say(wire, delete(first, end))

    def _check_version(self, wire: Wire) -> None:
        """Makes the namespace if it is not there; refuses one that is somebody else's."""
        name = self._name("meta")
        meta = value(self._say(wire, get(name)))
        if meta is None:
            own = json.dumps({"version": VERSION, "incarnation": os.urandom(4).hex()}).encode()
            answer = self._say(wire, either([is_absent(name)], [put(name, own)], [get(name)]))
            meta = own if answer.get("succeeded") else value(answer["responses"][0])
        try:
            said = json.loads(meta or b"")
            version, incarnation = int(said["version"]), str(said["incarnation"])
            cursors.parse_cursor(cursors.cursor(incarnation, (0,)))
        except (ValueError, TypeError, KeyError):
            raise StoreError(
                f"{name} on {self.address.shown} is not swarm's. Choose another namespace, with ?namespace=NAME in the address."
            ) from None
        if version > VERSION:
            raise StoreError(
                f"{self.address.shown} was made by a newer swarm (version {version}; this one knows {VERSION}). "
                "Use that one, or another namespace."
            )
        self._opened = _Opened(meta or b"", incarnation)


class _Ended(Exception):
    """Ends a call and hangs up its wire."""


class _Gone(Broken):
    """The namespace is not the one that was opened, and nothing was changed; the next wire makes it anew."""


def _is_now(key: str, known: bytes) -> Json:
    """That a key has a value, which is never empty; empty: that it is not there."""
    return is_value(key, known) if known else is_absent(key)


def _check_same(meta: bytes, found: bytes | None) -> None:
    if found != meta:
        raise _Gone("the namespace has just been removed")


def _begin_session(slot: Slot[Wire], *, anew: bool = False) -> None:
    """Another session every hour or two, named after it: those of hours long past can be cleared."""
    begun, _, _ = slot.session.rpartition("/")
    if anew or not begun or not 0 <= _hour(slot.wire) - int(begun) <= 1:
        slot.session, slot.noted = f"{_hour(slot.wire):08d}/{os.urandom(12).hex()}", b""


def _last(answer: Json) -> int:
    """Which line is the last, as the head of a log tells."""
    return int(value(answer) or 0)


def _hour(wire: Wire) -> int:
    return int(wire.date // FORGOTTEN)


def _turn(noted: bytes) -> int:
    return int(noted.partition(b" ")[0] or 0)
