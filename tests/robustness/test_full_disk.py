"""A disk without space: simulated at every single write, and really, for several
workers at once.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.errors import LockHeld, NotYours, StoreError
from swarm.locks.table import LockTable
from swarm.stores.file import log_rotation, log_writer, swap
from swarm.stores.file.store import FileStore
from swarm.stores.file.syscalls import Filesystem
from tests.support.disks import Disk, exhaust_inodes, fill, loop_mounted, mounted, needs_root
from tests.support.lock_files import table, write_expired
from tests.support.processes import Counting, fork

WRITER: Any = log_writer
ROTATION: Any = log_rotation
NEED_SPACE = ("mkdir", "link", "rename", "symlink", "write_new", "grow")
CURES = {errno.ENOSPC: "Free some space", errno.EDQUOT: "quota", errno.EIO: "df, mount"}
FAILURES = [
    (errno.ENOSPC, False),
    (errno.ENOSPC, True),
    (errno.EDQUOT, False),
    (errno.EIO, False),
    (errno.EIO, True),
]
failures = pytest.mark.parametrize(
    ("code", "lasting"),
    FAILURES,
    ids=[f"{errno.errorcode[code]}{'-from-there-on' * lasting}" for code, lasting in FAILURES],
)

OPERATIONS: dict[str, Callable[[LockTable], object]] = {
    "acquire": lambda locks: locks.acquire("t", "w", 60),
    "takeover": lambda locks: locks.acquire("t", "w", 60),
    "overtaken acquire": lambda locks: locks.acquire("t", "w", 60),
    "overtaken takeover": lambda locks: locks.acquire("t", "w", 60),
    "heartbeat": lambda locks: locks.heartbeat("t", "w"),
    "release": lambda locks: locks.release("t", "w"),
}


class Overtaken(Filesystem):
    """Another process takes a token right after the first: the new lock must get a
    later one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.overtaken = False

    def grow(self, path: str, *, sync: bool) -> int:
        token = super().grow(path, sync=sync)
        if not self.overtaken:
            self.overtaken = True
            super().grow(path, sync=sync)
        return token


class Failing:
    """Let the write number `at` fail, or all from there on, until `over`."""

    def __init__(self, at: int, code: int, lasting: bool) -> None:
        self.at = at
        self.code = code
        self.lasting = lasting
        self.calls = 0
        self.over = False

    def __call__(self) -> None:
        if self.over:
            return
        self.calls += 1
        if self.calls == self.at or (self.lasting and self.calls > self.at):
            raise OSError(self.code, os.strerror(self.code), "/a/path")


@failures
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_lock_is_held_exactly_if_reported_whichever_write_fails(
    operation: str, code: int, lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if code == errno.EIO and lasting:
        # a scratch directory that cannot be removed is waited for
        monkeypatch.setattr(swap, "INTENT_TIMEOUT", 0.0)
    # freeing needs no space
    calls = (*NEED_SPACE, "unlink", "rmdir") if code == errno.EIO else NEED_SPACE
    for at in range(1, 100):
        path = tmp_path / str(at)
        prepare(path, operation)
        failing = Failing(at, code, lasting)
        inner = Overtaken() if operation.startswith("overtaken") else Filesystem()
        locks = table(path, filesystem=Counting(inner, failing, calls))  # type: ignore[arg-type]
        failed = ""
        try:
            OPERATIONS[operation](locks)
        except StoreError as error:
            failed = str(error)
        failing.over = True
        if failing.calls < at:
            assert at > 3, "hardly a call was counted"
            return
        assert not failed or CURES[code] in failed
        found = locks.status("t")
        has_it = found.is_held
        if operation.startswith("overtaken") and lasting:
            assert has_it or failed  # a lock that was written already can be undone only by writing
        elif operation.endswith(("acquire", "takeover")):
            assert has_it == (not failed), (
                f"answered {'no' if failed else 'yes'} at write {at}, which is false"
            )
        elif operation == "heartbeat":
            assert has_it
        elif not failed:
            assert not has_it
        if has_it:
            assert locks.heartbeat("t", "w").worker == locks.release("t", "w").worker == "w"
        other = table(path)
        other.release("t", "other", other.acquire("t", "other", 60).token)
        assert os.listdir(path / "locks") == []
    pytest.fail("it never came to an end")


def prepare(path: Path, operation: str) -> None:
    if operation.endswith("takeover"):
        write_expired(path, 1)
        (path / "locks" / "t0.lock").rename(path / "locks" / "t.lock")
    elif not operation.endswith("acquire"):
        table(path).acquire("t", "w", 60)


WORK: dict[str, Callable[[FileStore], object]] = {
    "append": lambda store: store.append("status", b"tried"),
    "rotate": lambda store: store.rotate("status"),
    "append that rotates": lambda store: store.append("status", b"tried"),
}


@pytest.mark.parametrize("short", [False, True], ids=["", "half-written"])
@failures
@pytest.mark.parametrize("work", WORK)
def test_the_log_keeps_every_returned_append_whichever_write_fails(
    work: str,
    code: int,
    lasting: bool,
    short: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for at in range(1, 100):
        path = tmp_path / str(at)
        store = FileStore(str(path), log_max_bytes=1 if "that rotates" in work else 0)
        before = FileStore(str(path))
        before.append("status", b"before")
        failing = Failing(at, code, lasting)
        returned, failed = False, ""
        with monkeypatch.context() as patch:
            for module in (WRITER, ROTATION):
                patch.setattr(module, "os", failing_os(failing, short))
            try:
                WORK[work](store)
                returned = work != "rotate"
            except StoreError as error:
                failed = str(error)
        failing.over = True
        assert (
            not failed or CURES[code] in failed or (short and "only a part of the line" in failed)
        )
        store.append("status", b"after")
        before.append("status", b"and here too")
        lines = store.read_log("status")[0]
        assert [line for line in lines if line not in (b"tried", b"tri")] == [
            b"before",
            b"after",
            b"and here too",
        ]
        assert lines.count(b"tried") == 1 if returned else lines.count(b"tried") <= 1
        assert store.tail("status", 100)[0] == lines
        for one in (store, before):
            one.close()
        if failing.calls < at:
            assert at > 1, "no call was counted"
            return
    pytest.fail("it never came to an end")


def failing_os(failing: Failing, short: bool) -> Any:
    """Return an `os` in which every call that takes space is counted, and may fail; a
    write perhaps after half of it.
    """
    counted = Counting(os, failing, ("symlink", "rename", "mkdir"))

    def write(fd: int, data: bytes) -> int:
        try:
            failing()
        except OSError:
            if short:
                return os.write(fd, data[: len(data) // 2])
            raise
        return os.write(fd, data)

    def open_(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not os.path.exists(path):
            failing()
        return os.open(path, flags, mode)

    replaced = {name: getattr(counted, name) for name in ("symlink", "rename", "mkdir")}
    return SimpleNamespace(**{**vars(os), **replaced, "write": write, "open": open_})


def no_bytes(disk: Disk) -> None:
    fill(disk.seen / "ballast")


def no_inodes(disk: Disk) -> None:
    exhaust_inodes(disk.seen / "ballast")


def free(disk: Disk) -> None:
    ballast = disk.seen / "ballast"
    shutil.rmtree(ballast) if ballast.is_dir() else ballast.unlink()


KINDS: dict[str, tuple[Callable[[Path], AbstractContextManager[Disk]], Callable[[Disk], None]]] = {
    "tmpfs without bytes": (lambda path: mounted(path, "size=16m"), no_bytes),
    "tmpfs without inodes": (lambda path: mounted(path, "nr_inodes=300"), no_inodes),
    "ext4 without bytes": (lambda path: loop_mounted(path, "16M"), no_bytes),
    "ext4 without inodes": (lambda path: loop_mounted(path, "4M", inodes=256), no_inodes),
}


@needs_root
@pytest.mark.parametrize("kind", KINDS)
def test_workers_on_a_disk_that_fills_up_never_overlap_and_lose_nothing(
    kind: str, tmp_path: Path
) -> None:
    make, exhaust = KINDS[kind]
    workers = range(4)
    with make(tmp_path / "disk") as disk:
        state = disk.seen / "state"
        children = [fork(work_until_stopped, me, state, tmp_path) for me in workers]
        try:
            for _ in range(6):
                time.sleep(0.1)
                exhaust(disk)
                time.sleep(0.15)
                free(disk)
        finally:
            (tmp_path / "enough").touch()
            codes = [os.waitpid(child, 0)[1] for child in children]
        assert codes == [0] * len(workers)
        notes = [json.loads((tmp_path / f"notes-{me}").read_text()) for me in workers]
        assert any(note["refused"] for note in notes), "no worker ever found the disk full"
        assert [
            text for note in notes for text in note["refused"] if "Free some space" not in text
        ] == []
        assert not any(note["overlaps"] for note in notes)
        # Every release needs an inode. Without one, a lock may stay in the name of a
        # worker that was told no.
        assert "inodes" in kind or not any(note["stuck"] for note in notes), (
            "a refused worker holds the lock"
        )
        assert sum(note["held"] for note in notes) > 10
        tokens = [int(token) for token in (tmp_path / "order").read_text().split()]
        assert tokens == sorted(set(tokens))
        store = FileStore(str(state))
        lines = list(read_whole(store))
        returned = [line for note in notes for line in note["returned"]]
        assert len(returned) > 10
        assert [line for line in returned if lines.count(line) != 1] == []
        store.close()
        heir = table(state)
        heir.release("t", "heir", heir.acquire("t", "heir", 60).token)
        heir.store.close()
        assert os.listdir(state / "locks") == []


def work_until_stopped(me: int, state: Path, outside: Path) -> None:
    """Acquire, refresh and release one lock, and append to the log, until the file
    `enough` exists. Note everything in a file.
    """
    store = FileStore(str(state))
    locks = LockTable(store)
    rng = random.Random(me)
    refused: set[str] = set()
    returned: list[str] = []
    held = overlaps = stuck = 0

    def until_there_is_space(change: Callable[[], object]) -> None:
        while True:
            try:
                change()
                return
            except StoreError as error:
                refused.add(str(error))
                time.sleep(0.01)

    def release(token: int | None) -> None:
        try:
            locks.release("t", f"w{me}", token)
        except NotYours:
            pass  # an earlier attempt had released it, and failed after that

    with (outside / "alone").open("w") as alone, (outside / "order").open("a") as order:
        number = 0
        while not (outside / "enough").exists():
            number += 1
            try:
                lock = locks.acquire("t", f"w{me}", None)
            except LockHeld as refusal:
                if refusal.holder == f"w{me}":
                    stuck += 1
                    until_there_is_space(lambda: release(None))
                time.sleep(0.001)
                continue
            except StoreError as error:
                refused.add(str(error))
                time.sleep(0.005)
                continue
            held += 1
            try:
                flock(alone, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                overlaps += 1
            order.write(f"{lock.token}\n")
            order.flush()
            until_there_is_space(lambda: locks.heartbeat("t", f"w{me}"))
            line = f"{me} {number} " + "x" * rng.choice([0, 100, 3000])
            try:
                store.append("status", line.encode())
                returned.append(line)
            except StoreError as error:
                refused.add(str(error))
            flock(alone, LOCK_UN)
            until_there_is_space(lambda token=lock.token: release(token))  # type: ignore[misc]
    store.close()
    notes = {
        "refused": sorted(refused),
        "overlaps": overlaps,
        "held": held,
        "stuck": stuck,
        "returned": returned,
    }
    (outside / f"notes-{me}").write_text(json.dumps(notes))


def read_whole(store: FileStore) -> Iterator[str]:
    cursor = ""
    while True:
        lines, cursor = store.read_log("status", cursor)
        if not lines:
            return
        yield from (line.decode() for line in lines)
