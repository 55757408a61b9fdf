"""A pool of sessions on a server.

A session repeats the request for a change until the server has answered, and the server
makes the change only the first time. So each change is made exactly once.

If a connection breaks before the answer arrives, the server may have made the change,
or may still make it. So each change has the name of its *session* and a *request
number*. In the same atomic step as the change, the server stores the request number and
the answer. If a request arrives again, the server only repeats the answer. A request
that arrives late, after a newer request of its session, does nothing. So it is safe to
send a request until an answer arrives, and the answer tells whether the change was
made.

A session outlives its connections.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from swarm.errors import Unreachable
from swarm.stores.address import Address

C = TypeVar("C")  # a connection of a client library
R = TypeVar("R")

SESSION_TTL = 3600  # seconds without a request, after which a server may forget a session
_FIRST_PAUSE = 0.02  # seconds between two attempts; each further pause is twice as long
_LONGEST_PAUSE = 0.5  # seconds; no pause is longer
_ATTEMPTS = 2  # attempts that fit into the timeout of a call, if the server is silent


class ConnectionLost(Exception):
    """The connection to the server is broken, and the server may have carried out the
    last request.

    The text of the error is the reason, for the user.
    """


class Session(Generic[C]):
    """A session on the server, and its current connection."""

    def __init__(self) -> None:
        self.name = os.urandom(12).hex()
        self.request_number = 0
        self.last_answer = (
            b""  # the answer that the server stored last, for drivers that compare it
        )
        self._connection: C | None = None

    @property
    def connection(self) -> C:
        assert self._connection is not None, "only during a call"
        return self._connection


class SessionPool(Generic[C]):
    """A pool with a session for each thread that makes a call at the moment.

    `connect(timeout)` returns a connection on which no answer takes longer than
    `timeout` seconds. `abort(connection)` closes a connection and does not raise.
    `connect`, and the function `work` of a call, raise ConnectionLost if another
    attempt may help. A forked child opens connections of its own.
    """

    def __init__(
        self, address: Address, connect: Callable[[float], C], abort: Callable[[C], object]
    ) -> None:
        self.address = address
        self._connect = connect
        self._abort = abort
        # pop and append need no lock; a fork could copy a lock while it is held
        self._idle: deque[Session[C]] = deque()
        self._pid = os.getpid()

    def call(self, work: Callable[[Session[C]], R]) -> R:
        """Call `work(session)` with a session of the pool, and return the result.

        After ConnectionLost, call `work` again with a new connection and the same
        request number. Raise Unreachable when the timeout of the address is over.
        """
        deadline = time.monotonic() + self.address.timeout
        pause = _FIRST_PAUSE
        sent = False
        session = self._take()
        session.request_number += 1
        try:
            while True:
                try:
                    if session._connection is None:
                        session._connection = self._connect(self.address.timeout / _ATTEMPTS)
                    sent = True
                    return work(session)
                except ConnectionLost as lost:
                    self._disconnect(session)
                    if time.monotonic() + pause >= deadline:
                        raise self._unreachable(lost, sent=sent) from None
                    time.sleep(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)
        except BaseException:
            self._disconnect(session)
            raise
        finally:
            self._idle.append(session)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use. The sessions of the closed
        connections stay valid.
        """
        idle = []
        try:
            while True:  # other threads may take and return sessions meanwhile
                idle.append(self._idle.pop())
        except IndexError:
            pass
        for session in idle:
            self._disconnect(session)
        self._idle.extend(idle)

    def _take(self) -> Session[C]:
        if self._pid != os.getpid():
            self._idle, self._pid = deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return Session()

    def _disconnect(self, session: Session[C]) -> None:
        connection, session._connection = session._connection, None
        if connection is not None and self._pid == os.getpid():
            self._abort(connection)

    def _unreachable(self, lost: ConnectionLost, *, sent: bool) -> Unreachable:
        why = self.address.scrubbed(" ".join(str(lost).split())).rstrip(".")
        if sent:
            advice = (
                "If this was a change, the server may have made it: check before you repeat it."
            )
        else:
            advice = "Is the server running, and is the address right? Run: swarm doctor"
        return Unreachable(
            f"the store {self.address.shown} cannot be reached: {why}. "
            f"swarm tried for {self.address.timeout:g} seconds. {advice}"
        )
