"""Conditions change under running workers: lost permissions, other pids, all of them
paused.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import swarm.system.inotify  # noqa: F401  # who has dropped its privileges may not be able to load it
from swarm import TaskLockManager
from swarm.errors import LockLost
from swarm.locks.lease import Lease
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT
from tests.support.disks import needs_root
from tests.support.lock_files import table
from tests.support.processes import Refusal, Worker, fork

NOBODY = 65534
PATHS = ("", "locks", ".locks", ".locks/scratch", ".locks/intents", ".locks/tokens", ".status")


@pytest.fixture
def state() -> Iterator[Path]:
    """A state directory of a user who has to obey modes. pytest's own directories are
    private.
    """
    parent = Path(tempfile.mkdtemp(prefix="swarm-test-"))
    parent.chmod(0o755)
    path = parent / "state"
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    yield path
    shutil.rmtree(parent)


def become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


@contextmanager
def closed(path: Path, mode: int) -> Iterator[None]:
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(0o700)


@pytest.mark.parametrize("mode", [0o500, 0o000], ids=oct)
@pytest.mark.parametrize("below", PATHS)
def test_a_lost_permission_is_reported_and_recovered_from(
    below: str, mode: int, state: Path
) -> None:
    with (
        Worker(table(state), become_nobody) as worker,
        Worker(table(state), become_nobody) as newcomer,
    ):
        token = worker("acquire", "t", "w", 60).token
        appended = [b"first", b"second"]
        for line in appended:
            worker("store.append", "status", line)
            worker("store.rotate", "status")
        refusals: list[Refusal] = []
        left = {}
        with closed(state / below, mode):
            for one, task in ((worker, "n"), (newcomer, "m")):
                answers = {
                    verb: one(verb, *args)
                    for verb, *args in (
                        ("status", "t"),
                        ("heartbeat", "t", "w", token),
                        ("acquire", task, "w", 60),
                        ("release", task, "w"),
                        ("store.keys", "locks"),
                        ("store.append", "status", b"third"),
                        ("store.rotate", "status"),
                        ("store.read_log", "status"),
                    )
                }
                assert isinstance(answers["status"], Refusal) or answers["status"].exists, (
                    "an unreadable lock was reported as absent"
                )
                refused = {
                    verb: answer for verb, answer in answers.items() if isinstance(answer, Refusal)
                }
                left[task] = "release" in refused and "acquire" not in refused
                appended += [b"third"] * ("store.append" not in refused)
                if "acquire" in refused:
                    assert refused.pop("release").kind in ("NotYours", "StoreError")
                refusals += refused.values()
        assert refusals or (below, mode) == (".locks", 0o500), "no call was refused"
        assert [
            answer
            for answer in refusals
            if answer.kind != "StoreError" or "owner and mode" not in answer.text
        ] == []
        for one, task in ((worker, "n"), (newcomer, "m")):
            assert one("heartbeat", "t", "w", token).token == token
            # a lock that was there before could not be removed: its worker can release
            # it now
            if below == ".locks/intents":
                one("release", task, "w")
                left[task] = False
            assert left[task] or one("acquire", task, "w", 60).token, (
                "a refused worker has the lock"
            )
            assert one("release", task, "w").task_id == task
        assert worker("store.append", "status", b"last")
        assert worker("store.read_log", "status")[0] == [*appended, b"last"]


def test_a_holder_without_permission_past_its_lease_stops_and_can_reacquire(
    state: Path, tmp_path: Path
) -> None:
    hears, says = os.pipe()
    answers, asks = os.pipe()

    def hold() -> None:
        become_nobody()
        manager = TaskLockManager("holder", FileStore(str(state)))
        lost: list[LockLost] = []
        with manager.hold("t", ttl=1.0, on_lost=lost.append) as lease:
            os.write(says, b"held")
            with pytest.raises(LockLost, match="could not be refreshed"):
                keep_checking(lease)
            assert lease.seconds_left == 0
            os.write(says, b"lost")
            os.read(answers, 1)
        assert len(lost) == 1  # `on_lost` was called, by another thread, before the block ended
        with manager.hold("t", ttl=60) as again:
            assert again.token > lease.token
            again.check()

    child = fork(hold)
    os.close(says)
    try:
        assert os.read(hears, 4) == b"held"
        with closed(state, 0o000):
            assert os.read(hears, 4) == b"lost"
    finally:
        os.write(asks, b".")
        assert os.waitpid(child, 0)[1] == 0
        for fd in (hears, answers, asks):
            os.close(fd)


def keep_checking(lease: Lease) -> None:
    while True:
        lease.check()  # during the lease it is sure, whether or not the lock can be read
        time.sleep(0.002)


CONTENDER = """
import mmap, os, sys, time
from swarm.errors import LockHeld
from swarm.locks.table import LockTable
from swarm.stores.file.store import FileStore

state, shared, rounds, first = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if first:
    for _ in range(2):
        os.waitpid(os.fork() or os._exit(0), 0)
    time.sleep(0.1)
file = open(shared, "r+b")
memory = mmap.mmap(file.fileno(), 0)
arrived = memoryview(memory)[:64].cast("q")
tried = memoryview(memory)[64:128].cast("q")
won = memoryview(memory)[128:]

def work(me):
    locks = LockTable(FileStore(state))
    for number in range(rounds):
        arrived[me] = number + 1
        while min(arrived) <= number:
            os.sched_yield()
        try:
            locks.acquire(f"t{number}", f"w{me}", 600, bound=True)
            won[me * rounds + number] = 1
        except LockHeld:
            pass
        tried[me] = number + 1
        while min(tried) <= number:
            os.sched_yield()

children = []
for me in range(first, first + 4):
    child = os.fork()
    if not child:
        try:
            work(me)
            os._exit(0)
        finally:
            os._exit(1)
    children.append(child)
print(children, flush=True)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


@needs_root
def test_workers_in_two_pid_namespaces_have_one_winner_each_time(tmp_path: Path) -> None:
    rounds = 200
    shared = tmp_path / "shared"
    shared.write_bytes(bytes(128 + 8 * rounds))
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        sys.executable,
        "-c",
        CONTENDER,
    ]
    command += [str(tmp_path / "state"), str(shared), str(rounds)]
    groups = [
        subprocess.Popen(
            [*command, str(first)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for first in (0, 4)
    ]
    try:
        done = [group.communicate(timeout=60) for group in groups]
    finally:
        for group in groups:
            group.kill()
            group.wait()
    assert [group.returncode for group in groups] == [0, 0], done
    assert [pids for pids, _ in done] == ["[2, 3, 4, 5]\n", "[4, 5, 6, 7]\n"], (
        "some pids are of others there, some of none"
    )
    won = shared.read_bytes()[128:]
    winners = [[me for me in range(8) if won[me * rounds + number]] for number in range(rounds)]
    assert [len(who) for who in winners] == [1] * rounds
    assert {me // 4 for (me,) in winners} == {0, 1}, "one namespace never won: they did not compete"


def test_workers_paused_past_their_leases_notice_it_and_are_refused(tmp_path: Path) -> None:
    """Successors have the same names, as if a supervisor had restarted them: only
    tokens differ.
    """
    tasks = range(4)
    state = str(tmp_path / "state")

    def use(task: int, token: int) -> None:
        with (tmp_path / f"resource-{task}").open("a") as file:
            file.write(f"{token}\n")

    def hold(task: int) -> None:
        manager = TaskLockManager("w", FileStore(state))
        with manager.hold(f"t{task}", ttl=1.0) as lease:
            (tmp_path / f"began-{task}").write_text(str(lease.token))
            try:
                while True:
                    lease.check()
                    use(task, lease.token)
                    time.sleep(0.002)
            except LockLost as error:
                lost = str(error)
        again = table(Path(state)).store.read(f"locks/t{task}")
        (tmp_path / f"paused-{task}").write_text(
            json.dumps([lost, json.loads(again or b"{}").get("token")])
        )

    def take_over(task: int) -> None:
        with TaskLockManager("w", FileStore(state)).hold(f"t{task}", ttl=60, wait=60) as lease:
            use(task, lease.token)
            (tmp_path / f"taken-{task}").write_text(str(lease.token))
            await_all((tmp_path / f"paused-{task}").exists)
            lease.check()

    paused = [fork(hold, task) for task in tasks]
    rivals: list[int] = []
    try:
        await_all(lambda: all((tmp_path / f"resource-{task}").exists() for task in tasks))
        with paused_together(paused):
            rivals += [fork(take_over, task) for task in tasks]
            await_all(lambda: all((tmp_path / f"taken-{task}").exists() for task in tasks))
        codes = [os.waitpid(child, 0)[1] for child in (*paused, *rivals)]
        paused, rivals = [], []
    finally:
        for child in (*paused, *rivals):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert codes == [0] * 8
    for task in tasks:
        lost, owner = json.loads((tmp_path / f"paused-{task}").read_text())
        assert lost
        began, taken = (
            int((tmp_path / f"{what}-{task}").read_text()) for what in ("began", "taken")
        )
        assert owner == taken > began
        used = [int(token) for token in (tmp_path / f"resource-{task}").read_text().split()]
        late = used[used.index(taken) :].count(began)
        assert late <= 1, (
            "paused between asking and writing, once: that is what the token is refused for"
        )


def await_all(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@contextmanager
def paused_together(pids: list[int]) -> Iterator[None]:
    """Pause processes as a container is paused: by a cgroup where possible, otherwise
    by signals.
    """
    group = make_cgroup()
    if group is None:
        send(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            send(pids, signal.SIGCONT)
        return
    switch, on, off = FREEZERS[(group / "cgroup.freeze").exists()]
    over, at_end = os.pipe()
    watchdog = fork(thaw_later, group / switch, off, over, at_end)
    try:
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        (group / switch).write_text(on)
        await_all(lambda: is_frozen(group))
        yield
    finally:
        (group / switch).write_text(off)
        for pid in pids:
            (group.parent / "cgroup.procs").write_text(str(pid))
        await_all(lambda: is_removed(group))
        os.close(over)
        os.close(at_end)
        os.waitpid(watchdog, 0)


def thaw_later(switch: Path, off: str, over: int, at_end: int) -> None:
    """Thaw processes when the test ends, is killed, or takes too long: frozen processes
    cannot even be killed.
    """
    os.close(at_end)
    os.setsid()
    select.select([over], [], [], 90)
    if switch.exists():
        switch.write_text(off)


FREEZERS = {
    True: ("cgroup.freeze", "1", "0"),
    False: ("freezer.state", "FROZEN", "THAWED"),
}  # of the second version, of the first


def make_cgroup() -> Path | None:
    """Return an empty cgroup that can be frozen, None where this is not allowed."""
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer"):
        group = Path(root) / f"swarm-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if any((group / switch).exists() for switch, _, _ in FREEZERS.values()) and os.access(
            group.parent / "cgroup.procs", os.W_OK
        ):
            return group
        group.rmdir()
    return None


def is_frozen(group: Path) -> bool:
    state_file = group / (
        "cgroup.events" if (group / "cgroup.freeze").exists() else "freezer.state"
    )
    return not {"frozen 1", "FROZEN"}.isdisjoint(state_file.read_text().splitlines())


def is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False  # a process of it is still ending
    return True


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)
