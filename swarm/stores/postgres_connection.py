"""A connection to PostgreSQL with a time limit for each answer, and notifications.

This module uses no private part of psycopg. The class `Connection` overrides the public
method `wait` of psycopg, which handles every exchange with the server. If a later
version of psycopg did not call `wait`, the tests with a silent server would fail.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import ConnDict, PQGen
from psycopg.conninfo import make_conninfo
from psycopg.waiting import Wait

from swarm.errors import StoreError
from swarm.stores.server.session_pool import ConnectionLost

REPLACED = "SW001"  # the code of our own error: the swarm was removed and created again
# Codes of errors, or their beginnings, after which another attempt may succeed: a lost
# connection, a server that stops or starts, our time limit, a standby, a deadlock, too
# many connections. Also a missing schema: the next connection creates it.
_TEMPORARY = (
    *("08", "57P", "57014", "25006", "25P0", "40", "55P03", "53300"),
    *("3F000", "42P01", "42883", REPLACED),
)
_PREPARE_AFTER = (
    5  # uses of a statement; from then on the server need not parse the statement again
)

Row = tuple[Any, ...]
RV = TypeVar("RV")


class Connection(psycopg.Connection[Row]):
    """A connection on which no answer takes longer than `limit` seconds."""

    def __init__(self, pgconn: pq.abc.PGconn, limit: float) -> None:
        super().__init__(pgconn)
        self.limit = limit
        self.notifications: list[psycopg.Notify] = []
        self.add_notify_handler(self.notifications.append)

    def __del__(self, *_: object) -> None:
        """Do nothing: a connection that a fork has copied must not be closed."""

    def wait(self, gen: PQGen[RV], interval: float = 0, timeout: float | None = None) -> RV:
        """Return the result of an exchange with the server.

        Raise ConnectionLost after `limit` seconds. Without this method, psycopg would
        wait for ever.
        """
        deadline = time.monotonic() + self.limit
        try:
            wanted = next(gen)
            while True:
                ready = _ready(self.pgconn.socket, wanted, deadline - time.monotonic())
                if not ready:
                    raise ConnectionLost(f"no answer within {self.limit:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            answer: RV = end.value
            return answer

    def wait_notification(self, seconds: float) -> bool:
        """Wait for a notification, and return whether a notification came."""
        deadline = time.monotonic() + seconds
        try:
            while not self.notifications and self.pgconn.notifies() is None:
                if not _ready(self.pgconn.socket, Wait.R, deadline - time.monotonic()):
                    return False
                self.pgconn.consume_input()
        except psycopg.Error as error:
            raise translated(error) from None
        return True


def connect(attempt: ConnDict, timeout: float, *, limit: float) -> Connection:
    """Connect to one host within `timeout` seconds.

    Raise ConnectionLost if the host cannot be reached in time.
    """
    deadline = time.monotonic() + timeout
    pgconn = pq.PGconn.connect_start(make_conninfo("", **attempt).encode())
    connection = Connection(pgconn, limit)
    try:
        state = int(pq.PollingStatus.WRITING)
        while pgconn.status != pq.ConnStatus.BAD and state != pq.PollingStatus.OK:
            wanted = Wait.R if state == pq.PollingStatus.READING else Wait.W
            if not _ready(pgconn.socket, wanted, deadline - time.monotonic()):
                host = attempt.get("host") or "the server"
                raise ConnectionLost(f"no answer from {host} within {timeout:.3g} seconds")
            state = pgconn.connect_poll()
        if pgconn.status == pq.ConnStatus.BAD:
            raise ConnectionLost(_first_line(pgconn.error_message.decode(errors="replace")))
        pgconn.nonblocking = 1
        connection.autocommit = True
        connection.prepare_threshold = _PREPARE_AFTER
    except psycopg.Error as error:
        abort(connection)
        raise ConnectionLost(message_of(error)) from None
    except BaseException:
        abort(connection)
        raise
    return connection


def ask(connection: Connection, statement: str, *values: object) -> list[Row]:
    """Run a statement and return its rows. Raise ConnectionLost or StoreError if the
    statement fails.
    """
    try:
        answer = connection.execute(statement, values, binary=True)
        return answer.fetchall() if answer.description else []
    except psycopg.Error as error:
        raise translated(error) from None


def translated(error: psycopg.Error) -> Exception:
    """Return ConnectionLost if another attempt may succeed, else StoreError.

    After a StoreError the server has changed nothing.
    """
    if _is_temporary(error):
        return ConnectionLost(message_of(error))
    return StoreError(
        f"the server refuses: {message_of(error)}. To check the server, run: swarm doctor"
    )


def _is_temporary(error: psycopg.Error) -> bool:
    code = error.diag.sqlstate
    if not code:  # the client raised the error, not the server
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return code.startswith(_TEMPORARY)


def message_of(error: psycopg.Error) -> str:
    return error.diag.message_primary or _first_line(str(error)) or type(error).__name__


def abort(connection: Connection) -> None:
    """Close the connection. If an answer of the server is missing, close the connection
    at once.

    After an immediate close, data that were not sent yet never arrive.
    """
    try:
        if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            with socket.socket(fileno=os.dup(connection.pgconn.socket)) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except (OSError, psycopg.Error):
        pass
    connection.close()


def _ready(fileno: int, wanted: int, seconds: float) -> int:
    """Wait for the socket.

    Return the events of `wanted` for which the socket is ready, or 0.
    """
    poll = select.poll()
    reading = select.POLLIN if wanted & Wait.R else 0
    writing = select.POLLOUT if wanted & Wait.W else 0
    poll.register(fileno, reading | writing)
    found = poll.poll(max(0.0, seconds) * 1000)
    if not found:
        return 0
    events = found[0][1]
    ready = (Wait.R if events & select.POLLIN else 0) | (Wait.W if events & select.POLLOUT else 0)
    return ready or wanted  # the socket is broken: the next read or write raises


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
