"""A server that is far away: a proxy delays every request, and counts the requests.

A request is all data that a client sends until an answer comes, in any number of
pieces. Over a network, a request costs one round trip.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self


class Far:
    """A proxy for the server at `port`, which seems to be `delay` seconds away."""

    def __init__(self, port: int, delay: float = 0.0) -> None:
        self._server = ("127.0.0.1", port)
        self._delay = delay
        self._count = mmap.mmap(-1, 8)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pid = 0

    @property
    def questions(self) -> int:
        number: int = struct.unpack("q", self._count[:8])[0]
        return number

    def __enter__(self) -> Self:
        self._pid = os.fork()  # a thread would take time from the measurement
        if self._pid == 0:
            self._serve_for_ever()
        self._listener.close()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def _serve_for_ever(self) -> None:
        try:
            while True:
                threading.Thread(
                    target=self._serve, args=(self._listener.accept()[0],), daemon=True
                ).start()
        finally:
            os._exit(1)

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asking = False
            while True:
                for end in select.select([client, server], [], [])[0]:
                    data = end.recv(1 << 20)
                    if not data:
                        return
                    if end is client and not asking:
                        self._count[:8] = struct.pack("q", self.questions + 1)
                        time.sleep(self._delay)
                    asking = end is client
                    (server if asking else client).sendall(data)
