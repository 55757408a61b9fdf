"""The store on etcd: records and lines of logs are keys.

Each change is one transaction, which etcd carries out as one atomic step. etcd confirms
a change when a majority of its members has the change on disk. All keys begin with
`NAME/`, where NAME is the name of the swarm.

etcd stores all old values of a key until they are compacted. Without auto-compaction
(`--auto-compaction-retention`), heartbeats fill the database, and then etcd refuses
writes. Times come from the clock of the member that answers, in whole seconds. See
docs/reference/stores.md.
"""

import json
import os
import random
import time
from collections.abc import Callable

from swarm.errors import StoreError
from swarm.stores.address import Address
from swarm.stores.contract import NO_LIMIT, Cache
from swarm.stores.etcd_gateway import (
    Connection,
    Gateway,
    Json,
    always_false,
    delete,
    entries,
    get,
    is_absent,
    is_revision,
    is_value,
    put,
    status,
    transaction,
    value,
)
from swarm.stores.server import cursors
from swarm.stores.server.base import LAYOUT, ServerStore, StoreReplaced
from swarm.stores.server.cursors import Position
from swarm.stores.server.session_pool import SESSION_TTL, ConnectionLost, Session
from swarm.system.clock import Clock

# bytes; a longer record is compared by its revision, since the old and the new record
# may not fit into one request
_LONG_RECORD = 1 << 16
_NONCE = 12  # bytes before every line, by which its writer recognises the line
_TRIM_BATCH = 1000  # lines that are deleted at once
_CLEANUP_SHARE = 1 / 50  # this share of all new connections deletes old sessions
_MAX_BACKOFF = 0.02  # seconds of random back-off after losing an append twice


class EtcdStore(ServerStore[Connection]):
    """The data of one swarm in a cluster."""

    def __init__(
        self, address: Address, *, clock: Clock | None = None, cache: Cache | None = None
    ) -> None:
        self._gateway = Gateway(address)
        super().__init__(
            address,
            lambda timeout: self._gateway.connect(timeout, self._handshake),
            Connection.abort,
            clock=clock,
            cache=cache,
        )
        self._timed_by = -1  # the member whose clock was read last
        self._metas: dict[str, bytes] = {}  # by incarnation: the value of the key `meta`
        # By incarnation and log: the number of the last line.
        self._last_lines: dict[tuple[str, str], int] = {}

    # Records --------------------------------------------------------------------------

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
        self._wait_while(self._name("record", key), lambda: self.read(key) == data, timeout)

    # Tokens ---------------------------------------------------------------------------

    def next_token(self, key: str) -> int:
        name, floor = self._name("token", key), self._name("floor", key.partition("/")[0])
        answer = self._ask(transaction([], [get(floor), put(name, b""), get(name)], []))
        before, _, after = answer["responses"]
        return int(value(before) or 0) + entries(after)[0].version

    def token_bound(self, key: str) -> int:
        found = entries(self._get(self._name("token", key)))
        return found[0].version + self._floor(key.partition("/")[0]) if found else 0

    def highest_token(self, namespace: str) -> int:
        first, end = self._name("token", f"{namespace}/"), self._name("token", f"{namespace}0")
        highest = {"sort_target": "VERSION", "sort_order": "DESCEND", "limit": "1"}
        found = entries(self._get(first, end, **highest))
        return (found[0].version if found else 0) + self._floor(namespace)

    def advance_tokens(self, namespace: str, past: int) -> None:
        name = self._name("floor", namespace)
        while (known := value(self._get(name)) or b"") == b"" or int(known) < past:
            self._ask(transaction([_is_still(name, known)], [put(name, b"%d" % past)], []))

    # Logs -----------------------------------------------------------------------------

    def append(self, log: str, line: bytes) -> str:
        own = os.urandom(_NONCE) + line
        last: int | None = None
        unsure = False  # whether the line was perhaps added after `last`, or may be added later

        def sent(session: Session[Connection]) -> str:
            nonlocal last, unsure
            incarnation, connection, losses = self._incarnation, session.connection, 0
            while True:
                if last is None:
                    known = self._last_lines.pop((incarnation, log), None)
                    last = known or _last_line(self._ask_on(connection, self._head(log)))
                again, unsure = unsure, True
                done, head, there = self._try_append(
                    connection, incarnation, log, last, own, look=again
                )
                unsure = False  # now there is a line after `last`: ours, or another writer's
                if done or there == own:
                    if not losses:
                        self._last_lines[incarnation, log] = max(last + 1, head)
                    return cursors.format_cursor(incarnation, (last + 1,))
                last = head
                losses += 1
                if 1 < losses < 6:  # after more losses, go on at once, before the others
                    time.sleep(random.random() * _MAX_BACKOFF)

        return self._pool.call(sent)

    def tail(self, log: str, count: int, limit: int = NO_LIMIT) -> tuple[list[bytes], str]:
        incarnation, _ = self._locate("")

        def fetch_before(position: Position, most: int) -> list[tuple[Position, bytes]]:
            first = position[0] - min(most, position[0] - 1)
            if first == position[0]:
                return []
            page = get(self._line(log, first), self._line(log, position[0]))
            answer, trimmed_to = self._ask_log(incarnation, log, page)
            numbered = ((int(each.key.rpartition("/")[2]), each) for each in entries(answer))
            found: list[tuple[Position, bytes]]
            found = [((at,), each.value[_NONCE:]) for at, each in numbered if at > trimmed_to]
            return found[::-1]

        try:
            last = _last_line(self._ask_in(incarnation, self._head(log)))
            lines = self._batches.read_back(log, fetch_before, (last + 1,), count, limit)
        except StoreReplaced:
            return self.tail(log, count, limit)
        return lines, cursors.format_cursor(incarnation, (last,))

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        deadline = time.monotonic() + timeout

        def has_no_more() -> bool:
            incarnation, start = self._locate(cursor)
            try:
                return _last_line(self._ask_in(incarnation, self._head(log))) <= start[0]
            except StoreReplaced:
                return has_no_more()

        while has_no_more():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._wait_while(self._name("head", log), has_no_more, left)
        return True

    def server_settings(self) -> Json:
        answer = self._ask(status())
        return {
            "version": answer.get("version", ""),
            "errors": answer.get("errors", ()),
            "database_bytes": int(answer.get("dbSize", 0)),
        }

    # Requests -------------------------------------------------------------------------

    def _ask(self, request: Json) -> Json:
        """Send a request that may be carried out twice, and return the answer."""
        return self._pool.call(lambda session: self._ask_on(session.connection, request))

    def _get(self, key: str, end: str = "", **options: object) -> Json:
        return self._ask(get(key, end, **options))

    def _ask_on(self, connection: Connection, request: Json) -> Json:
        """Send a request and return its answer.

        Set the server clock from the answer's date.
        """
        before = self._server_clock.steady()
        answer = connection.ask(request)
        if connection.member != self._timed_by:
            self._server_clock.forget()
            self._timed_by = connection.member
        self._server_clock.learn(
            before, self._server_clock.steady(), connection.date, connection.date + 1
        )
        return answer

    def _floor(self, namespace: str) -> int:
        """Return the number that is added to the version of a key to get a token.

        The number is read with a request of its own, because a transaction that only
        reads can crash an old etcd (etcd's issue 14110).
        """
        return int(value(self._get(self._name("floor", namespace))) or 0)

    def _swap(self, key: str, old: bytes | None, new: bytes | None) -> bool:
        record = self._name("record", key)
        unsure = False  # whether the request was perhaps carried out, or may be carried out later

        def sent(session: Session[Connection]) -> bool:
            nonlocal unsure
            if not unsure:
                _renew_session(session)
            while True:
                condition = self._condition(session.connection, record, old)
                again, unsure = unsure, True
                try:
                    answer = self._try_swap(session, condition, record, new)
                except _SwarmGone:
                    unsure = again
                    raise
                number = _request_number(answer)
                if number == session.request_number:
                    session.last_answer = answer
                    return answer.endswith(b"1")
                if 0 < number < session.request_number:  # an abandoned request was carried out
                    session.last_answer = answer
                elif again:
                    raise StoreError(
                        f"{self.address.shown} no longer knows whether {key} was changed. Check "
                        f"the record before you repeat the command."
                    )
                else:  # the server deleted the session
                    _renew_session(session, always=True)
                unsure = False

        return self._pool.call(sent)

    def _try_swap(
        self, session: Session[Connection], condition: Json, record: str, new: bytes | None
    ) -> bytes:
        """Change a record, if the server's last answer to this session is still the
        answer that the session knows.

        Return the server's last answer to the session after this request.
        """
        name, incarnation = self._name("session", session.name), self._incarnation
        change = delete(record) if new is None else put(record, new)
        yes, no = b"%d 1" % session.request_number, b"%d 0" % session.request_number
        request = transaction(
            [self._is_incarnation(incarnation), _is_still(name, session.last_answer)],
            [transaction([condition], [change, put(name, yes)], [put(name, no)])],
            [get(self._name("meta")), get(name)],
        )
        answer = self._ask_on(session.connection, request)
        if answer.get("succeeded"):
            return yes if answer["responses"][0]["response_txn"].get("succeeded") else no
        meta, last_answer = map(value, answer["responses"])
        self._check_meta(incarnation, meta)
        return last_answer or b""

    def _condition(self, connection: Connection, record: str, old: bytes | None) -> Json:
        """Return the condition of a transaction which says that a record equals `old`."""
        if old is None:
            return is_absent(record)
        if len(old) <= _LONG_RECORD:
            return is_value(record, old)
        for found in entries(self._ask_on(connection, get(record))):
            if found.value == old:
                return is_revision(record, found.revision)
        return always_false(record)

    def _try_append(
        self,
        connection: Connection,
        incarnation: str,
        log: str,
        last: int,
        own: bytes,
        *,
        look: bool,
    ) -> tuple[bool, int, bytes | None]:
        """Append a line, if the log's last line has the number `last`.

        Return whether the line was added, and the number of the last line. If the line
        was not added and `look` is set, also return the line after `last`.
        """
        head, line = self._name("head", log), self._line(log, last + 1)
        request = transaction(
            [self._is_incarnation(incarnation), _is_still(head, b"%d" % last if last else b"")],
            [put(head, b"%d" % (last + 1)), put(line, own)],
            [get(self._name("meta")), get(head), *([get(line)] if look else [])],
        )
        answer = self._ask_on(connection, request)
        if answer.get("succeeded"):
            return True, last + 1, own
        meta, now, *there = map(value, answer["responses"])
        self._check_meta(incarnation, meta)
        return False, int(now or 0), there[0] if there else None

    def _fetch(
        self, incarnation: str, log: str, after: Position, count: int
    ) -> list[tuple[Position, bytes]]:
        # Both ends are named instead of a limit: with a limit, etcd counts all lines up
        # to the end. The numbers of lines have no gaps.
        first = after[0] + 1 if after else 1
        page = get(self._line(log, first), self._line(log, first + count))
        answer, trimmed_to = self._ask_log(incarnation, log, page)
        self._check_trimmed(log, after, (trimmed_to,))
        if first <= trimmed_to:  # from the oldest line on
            return self._fetch(incarnation, log, (trimmed_to,), count)
        found = entries(answer)
        return [((first + step,), each.value[_NONCE:]) for step, each in enumerate(found)]

    def _ask_in(self, incarnation: str, request: Json) -> Json:
        """Send a `get`, and return its answer if the swarm still has this incarnation.

        Raise StoreReplaced if the swarm was removed and created again.
        """
        return self._ask_log(incarnation, "", request)[0]

    def _ask_log(self, incarnation: str, log: str, request: Json) -> tuple[Json, int]:
        """Send a `get` as `_ask_in` does. Also return the number of the last line of a log
        that was forgotten, as of the answer or later.
        """

        def asked(session: Session[Connection]) -> tuple[Json, int]:
            if self._incarnation != incarnation:
                raise self._replaced()
            # two requests, and no transaction: a full database refuses transactions
            answer = self._ask_on(session.connection, request)
            names = self._name("meta"), self._name("meta0")  # 0 comes right after /
            metas = self._ask_on(session.connection, get(*names, serializable=True))
            found = {each.key: each.value for each in entries(metas)}
            self._check_meta(incarnation, found.get(self._name("meta")))
            return answer, int(found.get(self._trimmed(log), 0))

        return self._pool.call(asked)

    def _trim(self, incarnation: str, log: str, oldest: Position) -> None:
        # The number is stored first, so that no reader misses a line without notice.
        name = self._trimmed(log)
        trimmed_to = min(oldest[0], _last_line(self._ask_in(incarnation, self._head(log)))) - 1
        while int((known := value(self._get(name)) or b"") or 0) < trimmed_to:
            conditions = [self._is_incarnation(incarnation), _is_still(name, known)]
            self._ask(transaction(conditions, [put(name, b"%d" % trimmed_to)], []))
            self._ask_in(incarnation, self._head(log))  # ends this if the swarm was replaced
        last = int(value(self._get(name)) or 0)
        one = {"keys_only": True, "limit": "1"}
        first, end = self._line(log, 0), self._line(log, last + 1)
        for each in entries(self._get(first, end, **one)):
            for ordinal in range(int(each.key.rpartition("/")[2]), last + 1, _TRIM_BATCH):
                stop = min(ordinal + _TRIM_BATCH, last + 1)
                gone = delete(self._line(log, ordinal), self._line(log, stop))
                self._ask(transaction([self._is_incarnation(incarnation)], [gone], []))

    def _trimmed_to(self, log: str) -> Position:
        return (int(value(self._get(self._trimmed(log))) or 0),)

    def _trimmed(self, log: str) -> str:
        """Return the key of the number of the last line that was forgotten. One request
        reads it together with the key `meta`.
        """
        return self._name("meta", "trimmed", log)

    def _wait_while(self, name: str, is_unchanged: Callable[[], bool], seconds: float) -> None:
        """Wait for a change of a key, as long as `is_unchanged` returns True.

        `_wait_while` may return before a change.
        """
        deadline = time.monotonic() + seconds

        def waited(session: Session[Connection]) -> None:
            session.connection.watch(name)
            while is_unchanged() and (left := deadline - time.monotonic()) > 0:
                if not session.connection.wait_event(min(left, self._max_wait)):
                    break
            raise _EndWatch

        try:
            self._pool.call(waited)
        except _EndWatch:
            pass

    def _ask_time(self) -> tuple[float, float]:
        def asked(session: Session[Connection]) -> tuple[float, float]:
            self._ask_on(session.connection, get(self._name("meta"), serializable=True))
            return session.connection.date, session.connection.date + 1

        return self._pool.call(asked)

    def _where_line(self, log: str, position: Position) -> str:
        return self._line(log, position[0])

    def _head(self, log: str) -> Json:
        """Return the request for the number of a log's last line."""
        return get(self._name("head", log))

    def _line(self, log: str, ordinal: int) -> str:
        return self._name("log", log, f"{ordinal:020d}")

    def _name(self, *parts: str) -> str:
        return "/".join((self.address.swarm, *parts))

    # The swarm on the server ----------------------------------------------------------

    def _handshake(self, connection: Connection) -> None:
        self._open_swarm(connection)
        if random.random() < _CLEANUP_SHARE:
            oldest = f"{_hour(connection) - 2:08d}"
            self._ask_on(
                connection, delete(self._name("session", ""), self._name("session", oldest))
            )

    def _open_swarm(self, connection: Connection) -> None:
        """Create the swarm if it is missing.

        Raise StoreError if another program wrote the keys.
        """
        name = self._name("meta")
        meta = value(self._ask_on(connection, get(name)))
        if meta is None:
            own = json.dumps({"version": LAYOUT, "incarnation": cursors.new_incarnation()}).encode()
            answer = self._ask_on(
                connection, transaction([is_absent(name)], [put(name, own)], [get(name)])
            )
            meta = own if answer.get("succeeded") else value(answer["responses"][0])
        try:
            fields = json.loads(meta or b"")
            layout, incarnation = int(fields["version"]), str(fields["incarnation"])
        except (ValueError, TypeError, KeyError):
            raise self._foreign(name) from None
        self._metas[incarnation] = meta or b""  # set before `_accept`: other threads need it
        self._accept(name, layout, incarnation)

    def _is_incarnation(self, incarnation: str) -> Json:
        """Return the condition of a transaction which says that the swarm still has
        this incarnation.
        """
        return is_value(self._name("meta"), self._metas[incarnation])

    def _check_meta(self, incarnation: str, meta: bytes | None) -> None:
        if meta != self._metas[incarnation]:
            raise _SwarmGone("the swarm has just been removed")


class _EndWatch(Exception):
    """Raised to end a call and close its connection: after a watch, a connection can
    only send events.
    """


class _SwarmGone(ConnectionLost):
    """The swarm was removed, and perhaps created again. Nothing was changed.

    The next connection opens the swarm again.
    """


def _is_still(key: str, known: bytes) -> Json:
    """Return the condition of a transaction which says that a key has this value. b""
    means that the key does not exist.
    """
    return is_value(key, known) if known else is_absent(key)


def _renew_session(session: Session[Connection], *, always: bool = False) -> None:
    """Begin a new session if the session is more than an hour old. With `always`, begin
    a new session in any case.

    The name of a session begins with the hour, so that old sessions can be deleted by
    their names.
    """
    begun, _, _ = session.name.rpartition("/")
    if always or not begun or not 0 <= _hour(session.connection) - int(begun) <= 1:
        session.name = f"{_hour(session.connection):08d}/{os.urandom(12).hex()}"
        session.last_answer = b""


def _last_line(answer: Json) -> int:
    """Return the number of a log's last line, from the answer to `_head`."""
    return int(value(answer) or 0)


def _hour(connection: Connection) -> int:
    return int(connection.date // SESSION_TTL)


def _request_number(answer: bytes) -> int:
    return int(answer.partition(b" ")[0] or 0)
