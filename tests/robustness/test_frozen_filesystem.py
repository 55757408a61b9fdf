"""A filesystem that is frozen: processes sleep inside their system calls, and all wake
at once.

A process that is stopped before a call has not resolved its path yet. A process that
sleeps inside the call has. Only a frozen disk shows the difference.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarm import TaskLockManager
from swarm.errors import LockHeld, LockLost
from swarm.locks.table import LockTable
from swarm.stores.file import swap
from swarm.stores.file.store import FileStore
from swarm.stores.file.swap import SwapDirectory
from swarm.stores.file.syscalls import Filesystem
from tests.support.disks import Disk, loop_mounted, needs_root
from tests.support.lock_files import table, write_expired
from tests.support.log_writers import Writers, open_log, read_all, whole
from tests.support.processes import Counting, Stopped, fork

pytestmark = needs_root

CHANGES = ("mkdir", "rmdir", "link", "rename", "symlink", "unlink", "write_new", "grow")
RIVALS = 3
LEASE = 10_000.0

Make = Callable[[Path, float, Filesystem], LockTable]

OPERATIONS: dict[str, Callable[[LockTable], object]] = {
    "takeover": lambda locks: locks.acquire("t", "sleeper", LEASE).token,
    "heartbeat": lambda locks: locks.heartbeat("t", "sleeper").token,
    "release": lambda locks: locks.release("t", "sleeper").token,
}


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with loop_mounted(tmp_path_factory.mktemp("frozen") / "disk", "128M") as made:
        yield made


@pytest.mark.parametrize("operation", OPERATIONS)
def test_after_a_freeze_exactly_one_process_has_the_lock_and_knows_it(
    operation: str, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the worst case: every intent counts as left by a crash
    monkeypatch.setattr(swap, "INTENT_TIMEOUT", 0.0)
    rounds = [
        frozen_round(disk, disk.seen / f"{operation}-{at}-{again}", operation, at, swarms)
        for at in range(1, 9)
        for again in "ab"
    ]
    assert [winners for winners, owner in rounds if winners != [owner]] == []
    assert len({owner for _, owner in rounds}) > 1, "always the same one won: they did not compete"


def test_the_freeze_test_catches_scratch_directories_behind_symlinks(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing the symlink stops a process that is stopped before its rename, but not
    one that sleeps inside: two winners.
    """
    monkeypatch.setattr(swap, "INTENT_TIMEOUT", 0.0)
    wrong = 0
    for number in range(60):
        winners, _ = frozen_round(
            disk, disk.seen / f"linked-{number}", "takeover", number % 6 + 1, through_links
        )
        wrong += len(winners) > 1
        if wrong >= 3:
            return
    pytest.fail(f"two winners in {wrong} of 60 rounds only: the freeze proves little")


def frozen_round(
    disk: Disk, path: Path, operation: str, at: int, make: Make
) -> tuple[list[str], str]:
    """Return the workers that were told "acquired", and the holder, after a freeze.

    One process sleeps inside the rename that ends its operation. The lease is over for
    the rivals: each sleeps inside its changing call number `at`.
    """
    if operation == "takeover":
        write_expired(path, 1)
        (path / "locks" / "t0.lock").rename(path / "locks" / "t.lock")
    else:
        table(path).acquire("t", "sleeper", 60)
    later = {
        "sleeper": 1000.0 if operation == "takeover" else 0.0,
        **{f"rival-{me}": 1000.0 for me in range(RIVALS)},
    }

    def work(step: Callable[[], None], who: str) -> object:
        calls = ("rename",) if who == "sleeper" else CHANGES
        locks = make(path, later[who], Counting(Filesystem(), step, calls))  # type: ignore[arg-type]
        return (
            OPERATIONS[operation](locks)
            if who == "sleeper"
            else locks.acquire("t", who, LEASE).token
        )

    processes = {
        who: Stopped(lambda step, who=who: work(step, who), 1 if who == "sleeper" else at)  # type: ignore[misc]
        for who in later
    }
    assert not processes["sleeper"].finished
    with disk.frozen():
        # the sleeper last: the process that slept first is woken first
        for process in reversed(processes.values()):
            process.wake()
            await_sleep(process)
    answers = {who: process.answer() for who, process in processes.items()}
    assert {answer for answer in answers.values() if isinstance(answer, str)} <= {
        "LockHeld",
        "LockLost",
        "NotYours",
    }
    lock = path / "locks" / "t.lock"
    owner = json.loads(lock.read_text())["worker"] if lock.exists() else ""
    if operation != "takeover":
        answers.pop("sleeper")  # its lease was over for the others, whatever answer it got
    return [who for who, answer in answers.items() if isinstance(answer, int)], owner


def await_sleep(process: Stopped) -> None:
    """Return when the process sleeps inside a system call that a freeze holds up."""
    deadline = time.monotonic() + 10
    while (
        not process.finished
        and Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "D"
    ):
        assert time.monotonic() < deadline, "it goes on although the filesystem is frozen"
        time.sleep(0.0005)


def swarms(path: Path, later: float, filesystem: Filesystem) -> LockTable:
    return table(path, later=later, filesystem=filesystem)


def through_links(path: Path, later: float, filesystem: Filesystem) -> LockTable:
    locks = table(path, later=later, filesystem=filesystem)
    assert isinstance(locks.store, FileStore)
    right = locks.store._records_of("locks")
    linked = LinkedScratches(right._live, right._private, make_dirs=right._make_dirs, fs=right._fs)
    locks.store._records["locks"] = linked
    return locks


class LinkedScratches(SwapDirectory):
    """The broken scheme: a scratch directory is a symlink to a directory that stays.

    Removing the symlink revokes nothing in flight.
    """

    def _make_scratch(self) -> str:
        scratch = "s" + os.urandom(8).hex()
        self._fs.mkdir(f"{self._scratches}/body-of-{scratch}")
        self._fs.symlink(f"body-of-{scratch}", f"{self._scratches}/{scratch}")
        self._own = (os.getpid(), scratch)
        return scratch

    def _revoke(self, scratch: str) -> None:
        self._unlink_if_there(f"{self._scratches}/{scratch}")


def test_no_append_is_lost_or_torn_by_a_freeze(disk: Disk, tmp_path: Path) -> None:
    log = open_log(disk.seen / "log", max_bytes=300_000)

    def append(line: bytes) -> None:
        log.append(line)
        time.sleep(0.002)  # the disk is small

    writers = Writers(tmp_path / "notes", append)
    for _ in range(6):
        writers.start()
    try:
        for _ in range(12):
            time.sleep(0.05)
            with disk.frozen():
                time.sleep(0.03)
                victim = random.choice(list(writers.children))
                os.kill(victim, signal.SIGKILL)  # it ends when it wakes
            os.waitpid(victim, 0)
            del writers.children[victim]
            writers.start()
            log.rotate()
        with disk.frozen():
            for writer in writers.children:
                os.kill(writer, signal.SIGKILL)
    finally:
        writers.stop()
    lines = read_all(log)
    found = whole(lines)
    assert len(found) == len(set(found)) == len(lines) > 100, "torn, or there twice"
    assert writers.returned() - set(found) == set(), "appends that returned are not in the log"
    for writer in range(1, writers.started + 1):
        numbers = [number for who, number in found if who == writer]
        assert numbers == sorted(numbers), "a writer's records are out of order"


def test_a_holder_frozen_past_its_lease_is_warned_and_has_one_successor(
    disk: Disk, tmp_path: Path
) -> None:
    store = FileStore(str(disk.seen / "held"))
    steady = store.clock.steady
    hears, says = os.pipe()

    def hold() -> None:
        claims = []
        with TaskLockManager("holder", store).hold("t", ttl=1.0) as lease:
            os.write(says, b"held")
            try:
                while True:
                    asked = steady()
                    lease.check()
                    claims.append(asked)
                    time.sleep(0.002)
            except LockLost as error:
                os.write(says, b"lost")
                lost = str(error)
        note(tmp_path / "holder", {"claims": claims, "lost": lost, "token": lease.token})

    def take_over(me: int) -> None:
        found: dict[str, object] = {}
        holder = "holder"
        while not found and holder == "holder":
            try:
                lock = LockTable(store).acquire("t", f"rival-{me}", 60)
                found = {"token": lock.token, "at": lock.holder["at"]}
            except LockHeld as held:
                holder = held.holder
                time.sleep(0.002)
        note(tmp_path / f"rival-{me}", found)

    children = [fork(hold)]
    try:
        os.close(says)
        assert os.read(hears, 4) == b"held"
        with disk.frozen():
            children += [fork(take_over, me) for me in range(4)]
            assert os.read(hears, 4) == b"lost", (
                "the warning must not wait for the frozen filesystem"
            )
    finally:
        codes = [os.waitpid(child, 0)[1] for child in children]
        os.close(hears)
    assert codes == [0] * 5
    holder = json.loads((tmp_path / "holder").read_text())
    rivals = [json.loads((tmp_path / f"rival-{me}").read_text()) for me in range(4)]
    (winner,) = [rival for rival in rivals if rival]
    assert holder["lost"].startswith("the lease of t ran out")
    assert max(holder["claims"]) < winner["at"]
    assert winner["token"] > holder["token"]
    record = json.loads((disk.seen / "held" / "locks" / "t.lock").read_text())
    assert record["token"] == winner["token"], "who woke up damaged its successor's lock"


def note(path: Path, what: dict[str, object]) -> None:
    path.write_text(json.dumps(what))
