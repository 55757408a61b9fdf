"""A wire to PostgreSQL on which no answer takes longer than it may, and which can hear notifications.

It uses no private part of psycopg. `Connection.wait` is public but replaced here: psycopg sends every exchange with the server
through it, and the tests with a server that is silent would show if it did not any more.
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
from swarm.stores.server.session_pool import Broken

GONE = "SW001"  # the code of our own error: the store is another one now
# Codes, or how they begin, of what is refused, and soon not any more: lost connections, a server that ends or starts, our own
# time limit, a standby, deadlocks, a full house, and a schema that is gone, which the next wire makes anew.
_AGAIN = ("08", "57P", "57014", "25006", "25P0", "40", "55P03", "53300", "3F000", "42P01", "42883", GONE)

_PREPARED = 5  # times that a statement is sent as it is; from then on the server need not understand it anew each time

Row = tuple[Any, ...]
RV = TypeVar("RV")


class Wire(psycopg.Connection[Row]):
    """A connection on which no answer takes longer than `limit` seconds, and which can hear."""

    def __init__(self, pgconn: pq.abc.PGconn, limit: float) -> None:
        super().__init__(pgconn)
        self.limit = limit
        self.news: list[psycopg.Notify] = []
        self.add_notify_handler(self.news.append)

    def __del__(self, *_: object) -> None:
        """A wire may end with the program; one that a fork has brought along is not even closed."""

    def wait(self, gen: PQGen[RV], interval: float = 0, timeout: float | None = None) -> RV:
        """What an exchange with the server gives. The driver's own would wait for ever for one that is silent."""
        deadline = time.monotonic() + self.limit
        try:
            wanted = next(gen)
            while True:
                ready = _ready(self.pgconn.socket, wanted, deadline - time.monotonic())
                if not ready:
                    raise Broken(f"no answer within {self.limit:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            answer: RV = end.value
            return answer

    def hear(self, seconds: float) -> bool:
        """Whether there is a notification, or comes one within that time."""
        deadline = time.monotonic() + seconds
        try:
            while not self.news and self.pgconn.notifies() is None:
                if not _ready(self.pgconn.socket, Wait.R, deadline - time.monotonic()):
                    return False
                self.pgconn.consume_input()
        except psycopg.Error as error:
            raise answered(error) from None
        return True


def connect(attempt: ConnDict, timeout: float, *, limit: float) -> Wire:
    deadline = time.monotonic() + timeout
    pgconn = pq.PGconn.connect_start(make_conninfo("", **attempt).encode())
    wire = Wire(pgconn, limit)
    try:
        state = int(pq.PollingStatus.WRITING)
        while pgconn.status != pq.ConnStatus.BAD and state != pq.PollingStatus.OK:
            wanted = Wait.R if state == pq.PollingStatus.READING else Wait.W
            if not _ready(pgconn.socket, wanted, deadline - time.monotonic()):
                raise Broken(f"no answer from {attempt.get('host') or 'the server'} within {timeout:.3g} seconds")
            state = pgconn.connect_poll()
        if pgconn.status == pq.ConnStatus.BAD:
            raise Broken(_first_line(pgconn.error_message.decode(errors="replace")))
        pgconn.nonblocking = 1
        wire.autocommit = True
        wire.prepare_threshold = _PREPARED
    except psycopg.Error as error:
        hang_up(wire)
        raise Broken(text_of(error)) from None
    except BaseException:
        hang_up(wire)
        raise
    return wire


def _ready(fileno: int, wanted: int, seconds: float) -> int:
    """For what a socket is ready, of what is wanted; 0 when time is up."""
    poll = select.poll()
    poll.register(fileno, (select.POLLIN if wanted & Wait.R else 0) | (select.POLLOUT if wanted & Wait.W else 0))
    found = poll.poll(max(0.0, seconds) * 1000)
    if not found:
        return 0
    events = found[0][1]
    ready = (Wait.R if events & select.POLLIN else 0) | (Wait.W if events & select.POLLOUT else 0)
    return ready or wanted  # it is broken: who reads or writes will be told


def ask(wire: Wire, statement: str, *values: object) -> list[Row]:
    try:
        answer = wire.execute(statement, values, binary=True)
        return answer.fetchall() if answer.description else []
    except psycopg.Error as error:
        raise answered(error) from None


def answered(error: psycopg.Error) -> Exception:
    """What an error means: either the server has changed nothing, or nobody knows."""
    code = error.diag.sqlstate
    if code.startswith(_AGAIN) if code else isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return Broken(text_of(error))
    return StoreError(f"the server refuses: {text_of(error)}. Look at its settings with: swarm doctor")


def text_of(error: psycopg.Error) -> str:
    return error.diag.message_primary or _first_line(str(error)) or type(error).__name__


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def hang_up(wire: Wire) -> None:
    """At once, if an answer is missing: what has not been sent shall never arrive."""
    try:
        if wire.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            with socket.socket(fileno=os.dup(wire.pgconn.socket)) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except (OSError, psycopg.Error):
        pass
    wire.close()
