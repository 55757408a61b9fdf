"""The connections of the server, bounded in number and in time.

A connection must send a whole request within `REQUEST_TIMEOUT` seconds, and must read
what it is sent within `READ_TIMEOUT` seconds. Above the limit, the connection that has
waited longest for its client makes room. So clients that send nothing cannot
keep others out.
"""

from __future__ import annotations

import asyncio
import math
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT = 10.0  # seconds
READ_TIMEOUT = 20.0  # seconds
BACKLOG = 128  # connections that the kernel holds until they are accepted
_MAX_CONNECTIONS = 400
_OTHER_FILES = 64  # descriptors for the store and for the interpreter
_SEND_BUFFER = 128 << 10  # bytes that the kernel holds for one connection
_REPORT_INTERVAL = 60.0  # seconds between two reports of the same trouble


def max_connections() -> int:
    """Return how many connections fit the limit of open files of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(8, min(_MAX_CONNECTIONS, (soft - _OTHER_FILES - BACKLOG) // 2))


def bound_buffers(listening: socket.socket) -> None:
    """Bound what the kernel holds for a client that does not read, in bytes and time.

    Every accepted connection inherits this from the listening socket.
    """
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        limit = int(1000 * READ_TIMEOUT)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)


def max_streams() -> int:
    """Return how many connections may be event streams, which stay open."""
    return max_connections() // 2


class BoundedProtocol(H11Protocol):
    """One connection. `waiting_since` is set while it owes the server a request."""

    waiting_since: float | None = None
    _request_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > max_connections():
            others = [each for each in self.connections if isinstance(each, BoundedProtocol)]
            min(others, key=BoundedProtocol._worth).abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._has_request()

    def on_response_complete(self) -> None:
        self._await_request()
        super().on_response_complete()
        # a pipelined request may have come already
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._has_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self.loop.call_later(READ_TIMEOUT, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def abort(self) -> None:
        """Close the connection at once, without sending what the client does not read."""
        self._stop_timers()
        self.connections.discard(self)
        self.transport.abort()

    def _worth(self) -> float:
        """Return a number by which connections that may make room sort first."""
        if self.transport.is_closing():
            return 0.0
        return math.inf if self.waiting_since is None else self.waiting_since

    def _await_request(self) -> None:
        self._has_request()
        self.waiting_since = time.monotonic()
        self._request_timer = self.loop.call_later(REQUEST_TIMEOUT, self.abort)

    def _has_request(self) -> None:
        self.waiting_since = None
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _stop_timers(self) -> None:
        self._has_request()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None


def report_rarely(
    report: Callable[[str], object],
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return an exception handler for an event loop.

    It reports each kind of trouble at most once a minute. Without it, asyncio writes
    thousands of tracebacks a second while no descriptor is free.
    """
    reported: dict[str, float] = {}

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        kind = f"{context.get('message', 'trouble')} ({type(error).__name__})"
        now = time.monotonic()
        if now - reported.get(kind, -_REPORT_INTERVAL) < _REPORT_INTERVAL:
            return
        if len(reported) > 100:
            reported.clear()
        reported[kind] = now
        report(f"{context.get('message', 'trouble')}: {error}")

    return handle
