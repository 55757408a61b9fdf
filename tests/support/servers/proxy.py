"""A TCP proxy that loses answers: it passes a request on, and then closes the connection.

It can also hold requests back and deliver them later, like a network that was interrupted
during a call.
"""

from __future__ import annotations

import select
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self


def certificate(directory: Path, whose: str = "DNS:localhost,IP:127.0.0.1") -> Path:
    """Return a file with a key and a self-signed certificate, by default for this machine."""
    path = directory / "certificate.pem"
    names = ["-subj", "/CN=localhost", "-addext", f"subjectAltName={whose}"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run(
        [*make, "-keyout", str(path), "-out", str(directory / "signed.pem")],
        check=True,
        capture_output=True,
    )
    with path.open("a") as both:
        both.write((directory / "signed.pem").read_text())
    return path


class Proxy:
    """A proxy between a client and the server at `port`.

    `losing` is how many answers it still loses. While `holding`, it holds requests back and
    closes the connection. `let_through` sends them to the server later.
    """

    def __init__(
        self, port: int, tls: ssl.SSLContext | None = None, *, host: str = "127.0.0.1"
    ) -> None:
        """With `tls`, the client uses TLS up to the proxy. `host` is where it listens."""
        self.losing = 0
        self.lost = 0
        self.holding = False
        self._tls = tls
        self._server = ("127.0.0.1", port)
        self._held: list[bytes] = []
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def let_through(self) -> list[bytes]:
        """Send the requests that were held back, and return their answers."""
        self.holding = False
        answers = []
        for request in self._held:
            with socket.create_connection(self._server) as server:
                server.sendall(request)
                answers.append(server.recv(1 << 16))
        self._held.clear()
        return answers

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                client = self._tls.wrap_socket(client, server_side=True) if self._tls else client
            except OSError:
                continue  # the client does not trust the certificate
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server:
            while True:
                pending = isinstance(client, ssl.SSLSocket) and client.pending()
                ready = [client] if pending else select.select([client, server], [], [])[0]
                for end in ready:
                    data = end.recv(1 << 20)
                    if end is client and self.holding:
                        self._held.append(data)
                        return
                    if end is server and self.losing:
                        self.losing -= 1
                        self.lost += 1
                        return
                    if not data:
                        return
                    (server if end is client else client).sendall(data)
