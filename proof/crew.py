"""A crew: worker processes that are disturbed, and replaced when they are killed.

To disturb a worker is to kill it, to stop it for a while, to let its wall clock jump,
or to remove a lock like a person. A server is disturbed too: it is stopped for a while,
or killed and started again. No process outlives its crew.

Some workers have a false wall clock, by libfaketime. FAKETIME_DONT_FAKE_MONOTONIC
leaves the other clocks alone. NO_FAKE_STAT shows the true times of files, as after a
real jump.
"""

from __future__ import annotations

import glob
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from proof.counter import counter_updates
from proof.follower import Follower, line_hashes
from proof.history import History, Notes, check, check_readers
from proof.worker import Plan, Worker, is_unreachable
from swarm.errors import NotYours, StoreError
from swarm.locks.table import LockTable
from swarm.status.log import LOG
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from tests.support.processes import fork
from tests.support.servers.server import Server

ROOT = Path(__file__).resolve().parent.parent
SERVER_PACE = 0.5  # disturbances of a server a second
PAUSES = (0.1, 0.4, 0.8, 1.6)  # seconds; the last is longer than a worker tries to reach the server
_QUIET = 0.3  # seconds without a new line: a server may still execute requests of killed workers
SHIFTS = ("+2d", "-2d", "+3000d", "-3000d", "+1h", "-90", "+0.5", "+0")


class Crew:
    """The workers of a plan.

    `failed` has the output of the workers that ended by themselves.
    """

    def __init__(self, plan: Plan, server: Server | None = None) -> None:
        """`server` is the server of the plan's store."""
        plan.lay_out()
        self.plan = plan
        self.server = server
        self.failed: list[str] = []
        self.kills = 0
        self.stops = 0
        self.jumps = 0
        self.removals = 0
        self.pauses = 0
        self.restarts = 0
        self._followers: dict[int, str] = {}
        self._paused_until: float | None = None
        self._next_disturbance = time.monotonic() + 1 / SERVER_PACE
        # before any fork, so that each worker has the driver loaded
        self._store = open_store(plan.address)
        self._notes = Notes(plan.history, "disturber")
        self._workers: dict[int, str] = {}
        self._asleep: dict[int, float] = {}  # by pid: when the process is woken
        self._started = 0
        self._clock = Path(plan.directory) / "wall-clock"
        self._errors = Path(plan.directory) / "errors"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._workers:
            self.kill(next(iter(self._workers)))
        self._notes.close()
        self.resume_server()
        self._store.close()

    def now(self) -> float:
        """Return the time by the clock of the notes."""
        return self._notes.now()

    @property
    def acquisitions(self) -> int:
        return self.plan.tally.stat().st_size

    @property
    def awake(self) -> list[int]:
        return [pid for pid in self._workers if pid not in self._asleep]

    @property
    def workers(self) -> set[str]:
        """The names of the workers, without followers."""
        return set(self._workers.values()) - set(self._followers.values())

    def start(self, *, false_clock: bool = False) -> None:
        """Start a worker that works until it is killed."""
        if false_clock and not self._clock.exists():
            self.jump(SHIFTS[0])
        self.begin(self._work_at_a_false_time if false_clock else self._work)

    def follow(self, name: str) -> None:
        """Start a process that follows the log. It begins where the last process of
        this name stopped.
        """
        pid = self.begin(lambda _: Follower(self.plan, name).follow(), name)
        self._followers[pid] = name

    def begin(self, work: Callable[[str], object], name: str = "") -> int:
        """Start a process of the crew that does other work.

        Return its pid. `work` gets its name.
        """
        self._started += not name
        name = name or f"w{self._started}"
        pid = fork(self._run, work, name)
        self._workers[pid] = name
        return pid

    def _run(self, work: Callable[[str], object], name: str) -> None:
        sys.stderr = self._errors.open("a", buffering=1)
        os.dup2(sys.stderr.fileno(), 2)
        work(name)

    def _work(self, name: str) -> None:
        Worker(self.plan, name).work()

    def _work_at_a_false_time(self, name: str) -> None:
        false = {
            "LD_PRELOAD": libfaketime(),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": str(ROOT),
        }
        os.execve(
            sys.executable,
            [sys.executable, "-m", "proof.worker", self.plan.encode(), name],
            {**os.environ, **false},
        )

    def disturb(self, rng: random.Random) -> None:
        """Disturb one worker, or a lock, and now and then the server.

        Wake workers whose pause is over.
        """
        self.wake()
        if self.server:
            self._disturb_server(rng)
        awake = self.awake
        what = rng.random()
        if what < 0.3:
            self.replace_one(rng)
        elif what < 0.9 and len(awake) > len(self._workers) // 2:
            self.stop(rng.choice(awake), rng.choice((0.01, 0.05, 0.1, 0.25, 0.6)))
        elif what < 0.95:
            self.remove(rng.choice(self.plan.tasks[:2] if self.server else self.plan.tasks))
        else:
            self.jump(rng.choice(SHIFTS))

    def replace_one(self, rng: random.Random) -> None:
        """Kill one process and start another in its place."""
        pid = rng.choice(list(self._workers))
        follower = self._followers.pop(pid, "")
        self.kill(pid)
        if follower:
            self.follow(follower)
        else:
            self.start(false_clock=rng.random() < 0.25)

    def _disturb_server(self, rng: random.Random) -> None:
        self.resume_server_in_time()
        if not self.server_is_paused and time.monotonic() >= self._next_disturbance:
            if self.restarts < self.pauses:
                self.restart_server()
            else:
                self.pause_server(rng.choice(PAUSES))
            self._next_disturbance = time.monotonic() + rng.expovariate(SERVER_PACE)

    def pause_server(self, seconds: float) -> None:
        assert self.server is not None
        self.server.pause()
        self._paused_until = time.monotonic() + seconds
        self.pauses += 1

    @property
    def server_is_paused(self) -> bool:
        return self._paused_until is not None

    def resume_server_in_time(self) -> None:
        if self._paused_until is not None and time.monotonic() >= self._paused_until:
            self.resume_server()

    def resume_server(self) -> None:
        if self.server and self.server_is_paused:
            self.server.resume()
            self._paused_until = None

    def restart_server(self, after: float = 0.0) -> None:
        """Kill the server whatever it does, wait `after` seconds, and start it again."""
        assert self.server is not None
        self.server.kill()
        time.sleep(after)
        self.server.start()
        self.restarts += 1

    def kill(self, pid: int) -> None:
        """Kill a process, even a stopped process."""
        self._notes.note("killed", self._workers[pid], self._notes.now())
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        name = self._forget(pid)
        if not os.WIFSIGNALED(status):
            self._fail(name)
        self.kills += 1

    def stop(self, pid: int, seconds: float) -> None:
        os.kill(pid, signal.SIGSTOP)
        self._asleep[pid] = time.monotonic() + seconds
        self.stops += 1

    def wake(self) -> None:
        now = time.monotonic()
        for pid in [pid for pid, until in self._asleep.items() if until <= now]:
            os.kill(pid, signal.SIGCONT)
            del self._asleep[pid]

    def stopped_itself(self, pid: int) -> bool:
        """Wait until a process stops itself or ends. Return whether it stopped."""
        _, status = os.waitpid(pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        name = self._forget(pid)
        if status != 0:
            self._fail(name)
        return False

    def finish(self, pid: int) -> None:
        """Wake a process that ends by itself, and wait for its end."""
        os.kill(pid, signal.SIGCONT)
        _, status = os.waitpid(pid, 0)
        name = self._forget(pid)
        if status != 0:
            self._fail(name)

    def remove(self, task: str) -> None:
        """Remove a lock, as a person may at any moment."""
        if self.server_is_paused:
            return  # only this process could resume the server, but it would wait here
        before = self._notes.now()
        if not (self._break_lock(task) if self.server else self._unlink(task)):
            return
        self._notes.note("removed", task, before, self._notes.now())
        self.removals += 1

    def _unlink(self, task: str) -> bool:
        try:
            (self.plan.state / "locks" / f"{task}.lock").unlink()
        except FileNotFoundError:
            return False
        return True

    def _break_lock(self, task: str) -> bool:
        """Break a lock. Return whether the lock was removed, or may have been removed.

        Retry until the server answers. After an answer, no earlier request can take
        effect any more.
        """
        sent = False
        while True:
            try:
                LockTable(self._store).break_lock(task)
            except NotYours:
                return sent
            except StoreError as error:
                if not is_unreachable(error):
                    raise
                sent = True
            else:
                return True

    def jump(self, shift: str) -> None:
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(shift + "\n")
        fresh.rename(self._clock)
        self.jumps += 1

    def look(self) -> None:
        """Note the processes that have ended by themselves."""
        for pid in list(self._workers):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._fail(self._forget(pid))
        if self.server and self.server.has_ended():
            self.failed.append("the server ended by itself")

    def examine(self) -> tuple[History, list[str]]:
        """Return the notes of the crew and the violations in them.

        Call `examine` after the end of the crew.
        """
        history = History.read(self.plan.history)
        updates = {path.name: counter_updates(path) for path in self.plan.counters.iterdir()}
        store = open_store(self.plan.address)
        lines = self._at_rest(store)
        disagreeing = self._check_readers(store, lines) if self.server else []
        store.close()
        return history, [*self.failed, *check(history, updates, lines), *disagreeing]

    def _at_rest(self, store: Store) -> list[bytes]:
        """Return the log once no more lines arrive."""
        end = ""
        while self.server and end != (now := store.tail(LOG, 0)[1]):
            end = now
            time.sleep(_QUIET)
        return [line for _, line, whole in store.numbered(LOG) if whole]

    def _check_readers(self, store: Store, lines: list[bytes]) -> list[str]:
        log = [found.encode() for found in line_hashes(lines)]
        read: list[bytes] = []
        cursor = ""
        while (found := store.read_log(LOG, cursor, 5_000))[0]:
            read += found[0]
            cursor = found[1]
        readers = {
            "a reader from the beginning": read,
            "a reader of the end": store.tail(LOG, len(log) + 1)[0],
        }
        others = {
            reader: [found.encode() for found in line_hashes(lines)]
            for reader, lines in readers.items()
        }
        followers = {
            f"the follower {path.name}": Follower(self.plan, path.name)
            for path in self.plan.followed.iterdir()
        }
        return check_readers(
            log, {**others, **{name: follower.all_of_it() for name, follower in followers.items()}}
        )

    def _forget(self, pid: int) -> str:
        self._asleep.pop(pid, None)
        # libfaketime removes these files only at a regular exit
        for left in (f"/dev/shm/faketime_shm_{pid}", f"/dev/shm/sem.faketime_sem_{pid}"):
            Path(left).unlink(missing_ok=True)
        return self._workers.pop(pid)

    def _fail(self, name: str) -> None:
        self.failed.append(f"{name} ended by itself: {self._errors.read_text()[-2000:]}")


def libfaketime() -> str:
    found = sorted(
        glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        + glob.glob("/usr/lib*/faketime/libfaketime.so.1")
    )
    if not found:
        raise FileNotFoundError("libfaketime is not there: install the package faketime")
    return found[0]
