"""Several hosts on one machine, each with its own network, processes, name, boot and
clocks.

A host is a set of namespaces that live as long as the block, or this process, however
either ends. Nothing has a name outside of them: links, addresses and mounts go with
their namespace, and two runs cannot meet. Hosts share the filesystem, which the tests
read, and CLOCK_MONOTONIC, which orders the events on all of them.

The first namespace is the server's: a network with the bridge that all hosts are
plugged into. A host that is unplugged still sends, and gets no answer. No packet is
refused, as when a cable breaks further away.
"""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT, script_environment
from tests.support.namespaces import MORTAL, children, kept, run

SERVER_ADDRESS = "10.77.0.1"
_APART = (
    "unshare",
    "--net",
    "--mount",
    "--uts",
    "--pid",
    "--time",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_SETTLE = """set -e
mount -t tmpfs tmpfs /dev/shm
cat /proc/sys/kernel/random/uuid >/dev/shm/boot_id
tr -d - </proc/sys/kernel/random/uuid >/dev/shm/machine-id
mount --bind /dev/shm/boot_id /proc/sys/kernel/random/boot_id
mount --bind /dev/shm/machine-id /etc/machine-id
echo "$1" >/proc/sys/kernel/hostname
ip link set lo up
trap '' CHLD # so that orphans leave no zombies
echo ready
exec sleep 600
"""

# With libfaketime 0.9.10 and a true monotonic clock, clock_nanosleep until a moment
# fails with EINVAL.
_MENDED_SLEEP = """
import select, time
time.sleep = lambda seconds: select.select([], [], [], seconds) and None
"""

Done = subprocess.CompletedProcess[str]
Process = subprocess.Popen[str]


class Host:
    """A host.

    `pid` is its first process, as seen from here. `clock` has the variables that make
    its wall clock wrong.
    """

    def __init__(
        self, name: str, pid: int, number: int, clock: Mapping[str, str], switch: int
    ) -> None:
        self.name = name
        self.pid = pid
        self.address = f"10.77.0.{number}"
        self.mac = f"02:00:00:00:77:{number:02x}"
        self._clock = clock
        self._switch = switch
        self._port = f"port{number}"

    def start(self, *command: str, env: Mapping[str, str], output: Path | None = None) -> Process:
        """Start a command on the host.

        Its exit code is that of the process. Use `send` to signal it.
        """
        variables = [f"{name}={value}" for name, value in {**env, **self._clock}.items()]
        enter = [
            *MORTAL,
            "nsenter",
            "--target",
            str(self.pid),
            "--all",
            f"--wdns={ROOT}",
            "--",
            *MORTAL,
            "env",
            *variables,
        ]
        to = output.open("ab") if output else None
        try:
            return subprocess.Popen(
                [*enter, *command],
                stdin=subprocess.DEVNULL,
                stdout=to or subprocess.PIPE,
                stderr=to or subprocess.PIPE,
                text=True,
                env=script_environment(),
            )
        finally:
            if to:
                to.close()

    def run(self, *command: str, env: Mapping[str, str], timeout: float = 30) -> Done:
        with self.start(*command, env=env) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            finally:
                end(process)
            return subprocess.CompletedProcess(command, process.returncode, out, err)

    def processes(self) -> set[int]:
        """Return all processes of the host but the first, by their pids there."""
        listed = run(
            "nsenter", "--target", str(self.pid), "--all", "sh", "-c", "echo /proc/[0-9]*; echo $$"
        ).split()
        return {int(path.removeprefix("/proc/")) for path in listed[:-1]} - {1, int(listed[-1])}

    def cut_off(self) -> None:
        """Unplug the host: nothing that it sends arrives, nothing reaches it, and no
        packet is refused.
        """
        run(
            "nsenter",
            "--target",
            str(self._switch),
            "--net",
            "ip",
            "link",
            "set",
            self._port,
            "nomaster",
        )

    def heal(self) -> None:
        run(
            "nsenter",
            "--target",
            str(self._switch),
            "--net",
            "ip",
            "link",
            "set",
            self._port,
            "master",
            "bridge",
        )

    def plug_in(self) -> None:
        """Give the host a link to the bridge, and its address.

        All hosts know all addresses. Without this an unplugged host would find out by
        the missing answer to the question for an address.
        """
        at_switch = ("nsenter", "--target", str(self._switch), "--net", "ip")
        inside = ("nsenter", "--target", str(self.pid), "--net", "ip")
        peer = ("peer", "name", "eth0", "address", self.mac, "netns", str(self.pid))
        run(*at_switch, "link", "add", self._port, "type", "veth", *peer)
        run(*at_switch, "link", "set", self._port, "master", "bridge", "up")
        run(
            *at_switch,
            "neigh",
            "replace",
            self.address,
            "lladdr",
            self.mac,
            "dev",
            "bridge",
            "nud",
            "permanent",
        )
        run(*inside, "address", "add", f"{self.address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(
            *inside,
            "neigh",
            "replace",
            SERVER_ADDRESS,
            "lladdr",
            _SERVER_MAC,
            "dev",
            "eth0",
            "nud",
            "permanent",
        )


_SERVER_MAC = "02:00:00:00:77:01"


class Elsewhere(NamedTuple):
    """The host of a server: its address, and the command that starts a program there."""

    host: str
    prefix: tuple[str, ...]


class Hosts:
    """Three hosts whose wall clocks are minutes apart, and the host of the server."""

    def __init__(self, server: int, right: Host, ahead: Host, behind: Host) -> None:
        self.server = server  # the process that keeps its network
        self.right = right
        self.ahead = ahead
        self.behind = behind
        self.all = (right, ahead, behind)
        self.for_server = Elsewhere(
            SERVER_ADDRESS, (*MORTAL, "nsenter", "--target", str(server), "--net", "--")
        )


@contextmanager
def three_hosts(directory: Path) -> Iterator[Hosts]:
    """Start three hosts.

    `directory` has the files that make their wall clocks wrong.
    """
    (directory / "sitecustomize.py").write_text(_MENDED_SLEEP)
    with ExitStack() as stack:
        bridge = (
            f"ip link add bridge address {_SERVER_MAC} type bridge && ip address add "
            f"{SERVER_ADDRESS}/24 dev bridge"
        )
        up = "ip link set lo up && ip link set bridge up && echo ready && exec sleep 600"
        server = stack.enter_context(kept("unshare", "--net", "sh", "-c", f"{bridge} && {up}"))
        made = []
        for number, (name, wall, boottime) in enumerate(
            (("right", "", 1000), ("ahead", "+7m", 100_000), ("behind", "-7m", 5_000_000)), 2
        ):
            outer = stack.enter_context(
                kept(*_APART, f"--boottime={boottime}", "sh", "-c", _SETTLE, "sh", name)
            )
            host = Host(name, children(outer)[0], number, _false_time(wall, directory), server)
            host.plug_in()
            made.append(host)
        yield Hosts(server, *made)


def send(process: Process, number: signal.Signals) -> None:
    """Send a signal to a command on a host, rather than to the program that entered the
    host.
    """
    for pid in children(process.pid):
        os.kill(pid, number)


def end(process: Process) -> None:
    """End a command on a host, and the program that entered the host."""
    if process.poll() is None:
        send(process, signal.SIGKILL)
        process.kill()
    process.wait()


def wait_until_gone(host: Host, before: set[int]) -> set[int]:
    """Return the new processes that are still there after a moment."""
    deadline = time.monotonic() + 2
    while (left := host.processes() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _false_time(wall: str, directory: Path) -> dict[str, str]:
    """Return the variables that shift a wall clock, as libfaketime takes them."""
    if not wall:
        return {}
    found = sorted(
        glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        + glob.glob("/usr/lib*/faketime/libfaketime.so.1")
    )
    assert found, "install the package faketime"
    patched = {"PYTHONPATH": str(directory)}
    return {
        "LD_PRELOAD": found[0],
        "FAKETIME": wall,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        **patched,
    }
