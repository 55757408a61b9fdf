"""A pool of sessions is used again, interrupted or closed between any two bytecodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from swarm.stores.address import Address
from swarm.stores.server import session_pool
from swarm.stores.server.session_pool import Session, SessionPool
from tests.support.interrupts import Moments


class Requests:
    """Requests on connections with numbers. A server refuses a number that it has seen."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        self.busy: list[int] = []
        self.aborted: list[int] = []
        self._connections: Iterator[int] = count()
        self.pool = SessionPool(
            Address("redis://h/0?timeout=5"),
            lambda timeout: next(self._connections),
            self.aborted.append,
        )

    def send(self) -> None:
        self.pool.call(self._answer)

    def _answer(self, session: Session[int]) -> None:
        connection = session.connection
        assert connection not in self.busy, "two calls use one connection"
        assert connection not in self.aborted, "a closed connection is used"
        self.busy.append(connection)
        try:
            self.seen.append((session.name, session.request_number))
        finally:
            self.busy.remove(connection)

    def expect_each_once(self) -> None:
        assert len(self.seen) == len(set(self.seen)), "a session used a request number twice"
        newest: dict[str, int] = {}
        for name, number in self.seen:
            assert number > newest.get(name, 0), "the server would ignore an older number"
            newest[name] = number


def test_a_call_inside_a_call_uses_another_session() -> None:
    requests, moments = Requests(), Moments(session_pool)
    while moments.act_in(requests.send, requests.send):
        assert len(requests.seen) == 2 * moments.number
    assert moments.number > 30
    requests.expect_each_once()


def test_an_interrupted_call_leaves_sessions_that_can_be_used() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    requests, moments, going = Requests(), Moments(session_pool), True
    while going:
        requests.send()
        try:
            going = moments.act_in(requests.send, interrupt)
        except KeyboardInterrupt:
            pass
        before = len(requests.seen)
        requests.send()
        assert len(requests.seen) == before + 1
    requests.expect_each_once()


@pytest.mark.parametrize("act", ["close", "send and close"])
def test_a_pool_may_be_closed_during_a_call(act: str) -> None:
    requests, moments = Requests(), Moments(session_pool)

    def close() -> None:
        if act == "send and close":
            requests.send()
        requests.pool.close()

    while moments.act_in(requests.send, close):
        pass
    requests.expect_each_once()
