"""Real disks for tests, each in its own mount namespace: a tmpfs, and an ext4 that can
be frozen.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

import pytest

from tests.conftest import ROOT, script_environment
from tests.support.processes import fork

needs_root = pytest.mark.skipif(
    (os.geteuid() != 0 and "CI" not in os.environ) or sys.platform != "linux",
    reason="mounts and namespaces need root on Linux; in CI that is a failure",
)

Done = subprocess.CompletedProcess[str]
_FREEZE, _THAW = 0xC0045877, 0xC0045878  # FIFREEZE and FITHAW, which the program fsfreeze calls
_LONGEST_FREEZE = 20.0  # seconds after which a disk is thawed in any case


class Disk:
    """A filesystem in a mount namespace of its own.

    The test reaches it from outside by `seen`.
    """

    def __init__(self, pid: int, path: Path) -> None:
        self.pid = pid
        self.path = path
        self.seen = Path(f"/proc/{pid}/root{path}")
        self.scripts = ROOT / "scripts"
        self.environment = script_environment(AI_SWARM_DIR=str(path / "state"))
        self.prefix: list[str] = []

    def run(self, group: str, *args: str) -> Done:
        script = self.scripts / ("swarm_lock.sh" if group == "lock" else "swarm_status_log.sh")
        return self.inside(*self.prefix, str(script), *args, env=self.environment)

    def inside(
        self, *command: str, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Done:
        enter = [
            "nsenter",
            "--target",
            str(self.pid),
            "--mount",
            *([f"--wdns={cwd}"] if cwd else []),
            "--",
        ]
        return subprocess.run(
            [*enter, *command], capture_output=True, text=True, timeout=30, env=env
        )

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the disk.

        A process that changes it sleeps inside the system call until the block ends.
        """
        disk = os.open(self.seen, os.O_RDONLY | os.O_CLOEXEC)
        over, at_end = os.pipe()
        watchdog = fork(_thaw_later, disk, over, at_end)
        try:
            os.close(over)
            fcntl.ioctl(disk, _FREEZE, 0)
            yield
        finally:
            _thaw(disk)
            os.close(at_end)
            os.close(disk)
            os.waitpid(watchdog, 0)


def _thaw_later(disk: int, over: int, at_end: int) -> None:
    """Thaw the disk when the test ends, is killed, or takes too long.

    No process can end while it waits for a frozen disk.
    """
    os.close(at_end)
    os.setsid()  # a Ctrl-C for the test does not end it
    select.select([over], [], [], _LONGEST_FREEZE)
    _thaw(disk)


def _thaw(disk: int) -> None:
    try:
        fcntl.ioctl(disk, _THAW, 0)
    except OSError as error:
        if error.errno != errno.EINVAL:  # the disk is not frozen
            raise


def mounted(path: Path, options: str, also: str = "") -> AbstractContextManager[Disk]:
    """Mount a tmpfs on `path`, in a mount namespace that ends with the block."""
    return _kept(path, f"{also} mount -t tmpfs -o '{options}' tmpfs '{path}'")


@contextmanager
def loop_mounted(path: Path, size: str, inodes: int = 2000) -> Iterator[Disk]:
    """Mount an ext4 on `path`, from an image in memory, on a loop device that ends with
    the block.
    """
    below = path.with_name(f"{path.name}-below")
    below.mkdir()
    image = below / f"image-{os.getpid()}"
    script = (
        f"PATH=$PATH:/usr/sbin:/sbin && mount -t tmpfs tmpfs '{below}' && truncate -s {size} "
        f"'{image}' &&"
        f" mkfs.ext4 -q -m 0 -N {inodes} '{image}' && mount -o loop '{image}' '{path}'"
    )
    with _kept(path, script) as disk:
        yield disk
    deadline = time.monotonic() + 20
    while _has_loop_device(image):
        assert time.monotonic() < deadline, "the loop device stays"
        time.sleep(0.01)


def _has_loop_device(image: Path) -> bool:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if backing.read_text().strip().endswith(f"/{image.name}"):
                return True
        except OSError:
            continue  # it is ending
    return False


@contextmanager
def _kept(path: Path, mount: str) -> Iterator[Disk]:
    """Run a shell command that mounts `path`, in a mount namespace that ends with the
    block.
    """
    path.mkdir(exist_ok=True)
    command = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        f"{mount} && echo ready && exec sleep 300",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as keeper:
        try:
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == "ready\n"
            yield Disk(keeper.pid, path)
        finally:
            keeper.send_signal(signal.SIGKILL)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"\0" * 4096)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def exhaust_inodes(path: Path) -> None:
    """Create files until no more inodes are free."""
    path.mkdir()
    try:
        for number in count():
            (path / str(number)).touch()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
