"""Serve the page on a bound socket until Ctrl-C or SIGTERM.

At the end, open streams are closed without waiting for their pages. Requests are not
logged, since the first request carries the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from swarm.errors import BadInput
from swarm.stores.contract import Store
from swarm.web.actions import Actions
from swarm.web.app import WebApp
from swarm.web.connections import BACKLOG, BoundedProtocol, bound_buffers, report_rarely
from swarm.web.feed import Feed
from swarm.web.guard import AccessPolicy, Guard, is_loopback

__all__ = ["AccessPolicy", "address_for_others", "bind", "is_loopback", "serve"]

_SHUTDOWN_TIMEOUT = 2  # seconds for answers that are being sent
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Port 0 means any free port. Raise BadInput if the system refuses the address.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise BadInput(
            f"--host {host[:80]!r} is not an address of this machine. Give another address, "
            "such as 127.0.0.1."
        ) from None
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound_buffers(made)
        made.bind(address)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise BadInput(
                f"port {port} of {host} is in use, perhaps by another swarm web. "
                f"Try --port {port + 1}, or --port 0 for any free port."
            ) from None
        raise BadInput(
            f"cannot listen on port {port} of {host}: {error.strerror}. Give another --port or "
            f"--host."
        ) from None
    return made


def address_for_others(bound: str) -> str:
    """Return the address under which other machines reach a bound address, "" if this
    machine has none.

    For a socket bound to all addresses, that is the address of the way out. No packet is
    sent: connecting a datagram socket only chooses an address.
    """
    if bound not in ("0.0.0.0", "::"):
        return bound
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        if bound == "0.0.0.0" and family == socket.AF_INET6:
            continue
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((elsewhere, 9))
            found = str(way.getsockname()[0])
            if not is_loopback(found):
                return found
    return ""


def serve(
    store: Store,
    listening: socket.socket,
    policy: AccessPolicy,
    actions: Actions | None,
    up: Callable[[], object],
    report: Callable[[str], object],
) -> None:
    """Serve until a signal ends the server.

    Call `up` once the server answers, and `report` with trouble of the event loop.
    """
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # `report` gets its errors
    asyncio.run(_serve(store, listening, policy, actions, up, report))


async def _serve(
    store: Store,
    listening: socket.socket,
    policy: AccessPolicy,
    actions: Actions | None,
    up: Callable[[], object],
    report: Callable[[str], object],
) -> None:
    feed = Feed(store)
    app = Guard(WebApp(store, feed, actions).application(), policy)
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(report_rarely(report))

    def end() -> None:
        server.should_exit = True
        feed.stop()

    for number in _END_SIGNALS:
        loop.add_signal_handler(number, end)
    feed.start()
    try:
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        if not serving.done():
            up()
        await serving
    finally:
        feed.stop()


class _Server(uvicorn.Server):
    """A server that leaves signals to `_serve`, which must end the feed first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
