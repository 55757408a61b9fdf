"""A worker of the chaos.

The worker acquires a lock, updates the task's counter, appends to the log, releases the
lock, and notes everything. The worker runs until it is killed. Sometimes it sleeps past
its lease without noticing, or leaves a lock to expire.

To save time, `swap.INTENT_TIMEOUT` is `Plan.intent_timeout` instead of 3 seconds. If a
server is unreachable for longer than a call tries, the outcome is noted as unknown. Any
other failure of the store ends the worker and the run.

    python -m proof.worker PLAN NAME      a worker whose wall clock libfaketime moves
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from proof.counter import Counter
from proof.history import Notes
from swarm.errors import LockHeld, LockLost, NotYours, StoreError
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.status.log import LOG, StatusLog
from swarm.stores.contract import Store
from swarm.stores.file import swap
from swarm.stores.file.store import FileStore
from swarm.stores.file.syscalls import Filesystem
from swarm.stores.registry import open_store
from swarm.system import process

# a name that many workers use, so that only the token tells their locks apart
SHARED_NAME = "shared"


class Locks(Protocol):
    """The locks under test: swarm's LockTable, or a control that must be caught."""

    def acquire(
        self, task: str, worker: str, ttl: float | None, *, bound: bool = False, wait: float = 0.0
    ) -> Lock: ...

    def heartbeat(self, task: str, worker: str, token: int | None = None) -> Lock: ...

    def release(self, task: str, worker: str, token: int | None = None) -> Lock: ...


Append = Callable[[str, str, int], object]  # task, worker, number of the record


@dataclass(frozen=True)
class Plan:
    """All that the workers of a run need to know."""

    directory: str
    seed: int
    tasks: tuple[str, ...]
    control: str = ""  # the control in place of swarm; "" for none
    leases: tuple[float, ...] = (0.02, 0.05, 0.15)
    intent_timeout: float = 0.1
    # share of holds with a heartbeat; makes the shortest leases a second long
    heartbeat_share: float = 0.08
    expire_share: float = 0.1  # share of holds that are left to expire
    # share of holds in which the worker sleeps, half of them past its lease
    sleep_share: float = 0.06
    popular_share: float = 0.3  # share of attempts on the first two tasks
    log_max_bytes: int = 50_000
    fenced: bool = True
    server: str = ""  # the address of a store on a server; "" for the directory `state`
    timeout: float = 1.0  # seconds that a worker tries to reach the server
    machines: int = 1  # workers of different machines judge leases by the server's clock
    clocks_apart: float = 0.0  # seconds that each etcd member's clock is ahead of the one before
    log_share: float = 0.4  # share of holds in which a record is appended

    @property
    def address(self) -> str:
        """The address of the store, with the default timeout."""
        return self.server or str(self.state)

    def worker_address(self, name: str) -> str:
        """Return the address for a process of the crew.

        In a cluster, each process starts with another member.
        """
        if not self.server:
            return self.address
        scheme, _, rest = self.server.partition("://")
        hosts, _, options = rest.partition("?")
        members = hosts.split(",")
        first = number_of(name) % len(members)
        ordered = ",".join((*members[first:], *members[:first]))
        return f"{scheme}://{ordered}?{options}&timeout={self.timeout}"

    @property
    def followed(self) -> Path:
        """The lines that followers of the log have read."""
        return Path(self.directory) / "followed"

    @property
    def history(self) -> Path:
        return Path(self.directory) / "history"

    @property
    def counters(self) -> Path:
        return Path(self.directory) / "counters"

    @property
    def state(self) -> Path:
        return Path(self.directory) / "state"

    @property
    def tally(self) -> Path:
        """A file with one byte for each acquisition."""
        return Path(self.directory) / "tally"

    def lay_out(self) -> None:
        for path in (self.history, self.counters, self.state, self.followed):
            path.mkdir(parents=True, exist_ok=True)
        self.tally.touch()

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Plan:
        fields = json.loads(text)
        return cls(**{**fields, "tasks": tuple(fields["tasks"]), "leases": tuple(fields["leases"])})


class Worker:
    """One process of a plan. Its locks use `filesystem`."""

    def __init__(self, plan: Plan, name: str, filesystem: Filesystem | None = None) -> None:
        swap.INTENT_TIMEOUT = plan.intent_timeout
        if plan.machines > 1:
            _claim_machine(number_of(name) % plan.machines)
        if plan.clocks_apart:
            _shift_member_clocks(plan)
        self.plan = plan
        self.name = name
        self.rng = random.Random(f"{plan.seed} {name}")
        self._filesystem = filesystem
        self.store: Store
        self.locks: Locks
        self.append: Append = self._append_to_swarm
        self.reopen()
        if plan.control:
            from proof.controls import install_control

            install_control(self, plan.control)
        self.notes = Notes(plan.history, name)
        self._tally = os.open(plan.tally, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._counters = {
            task: Counter(plan.counters / task, fenced=plan.fenced) for task in plan.tasks
        }
        self._appended = 0

    def reopen(self) -> None:
        """Open the store again, like a process that has just started."""
        if self._filesystem:
            self.store = FileStore(
                self.plan.address,
                log_max_bytes=self.plan.log_max_bytes,
                filesystem=self._filesystem,
            )
        else:
            self.store = open_store(
                self.plan.worker_address(self.name), log_max_bytes=self.plan.log_max_bytes
            )
        self.locks = LockTable(self.store)

    def work(self) -> None:
        self._note_wall_clock()
        while True:
            task = self.rng.choice(
                self.plan.tasks[:2]
                if self.rng.random() < self.plan.popular_share
                else self.plan.tasks
            )
            lock = self.acquire(
                task, bound=self.rng.random() < 0.3, wait=self.rng.choice((0.0, 0.0, 0.05))
            )
            if lock is None:
                _sleep(0.005)
                continue
            self.use(lock)
            if self.rng.random() < self.plan.log_share:
                self.log(task)
            if self.rng.random() >= self.plan.expire_share:
                self.release(lock)
            if self.rng.random() < 0.003:
                self.store.rotate(LOG)
            if self.rng.random() < 0.1:
                self._note_wall_clock()

    def acquire(self, task: str, *, bound: bool = False, wait: float = 0.0) -> Lock | None:
        ttl = self.rng.choice(self.plan.leases)
        worker = self.rng.choice((self.name, SHARED_NAME))
        called = self.notes.now()
        try:
            lock = self.locks.acquire(task, worker, ttl, bound=bound, wait=wait)
        except LockHeld:
            return None
        except StoreError as error:
            self._note_unknown(error, "acquire", task)
            return None
        self.notes.note("held", task, lock.token, called, self.notes.now(), _until(lock), bound)
        os.write(self._tally, b".")
        return lock

    def use(self, lock: Lock) -> None:
        """Update the counter as the holder of a lock does, now and then with a
        heartbeat.
        """
        assert lock.token is not None and lock.ttl is not None
        value = self._counters[lock.task_id].read(lock.token)
        if self.rng.random() < self.plan.sleep_share:
            _sleep(self.rng.uniform(0, 2 * lock.ttl))
        if self.rng.random() < self.plan.heartbeat_share:
            self.heartbeat(lock)
        if value is not None and self._counters[lock.task_id].write(lock.token, value + 1):
            self.notes.note("wrote", lock.task_id, lock.token, value + 1)
        else:
            self.notes.note("refused", lock.task_id, lock.token)

    def heartbeat(self, lock: Lock) -> None:
        try:
            renewed = self.locks.heartbeat(lock.task_id, lock.worker, lock.token)
        except LockLost:
            self.notes.note("lost", lock.task_id, lock.token, self.notes.now())
        except StoreError as error:
            self._note_unknown(error, "heartbeat", lock.task_id, lock.token)
        else:
            self.notes.note("beat", lock.task_id, lock.token, _until(renewed))

    def release(self, lock: Lock) -> None:
        self.notes.note("free", lock.task_id, lock.token, self.notes.now())
        try:
            self.locks.release(lock.task_id, lock.worker, lock.token)
        except NotYours:
            self.notes.note("lost", lock.task_id, lock.token, self.notes.now())
        except StoreError as error:
            self._note_unknown(error, "release", lock.task_id, lock.token)

    def log(self, task: str) -> None:
        self._appended += 1
        called = self.notes.now()
        try:
            self.append(task, self.name, self._appended)
        except StoreError as error:
            self._note_unknown(error, "append", self._appended)
        else:
            self.notes.note("appended", self._appended, called, self.notes.now())

    def _note_unknown(self, error: StoreError, *what: object) -> None:
        if not is_unreachable(error):
            raise error
        self.notes.note("unknown", *what)

    def _note_wall_clock(self) -> None:
        self.notes.note("wall", round((time.time() - self.notes.now()) / 3600))

    def _append_to_swarm(self, task: str, worker: str, number: int) -> None:
        StatusLog(self.store).append("DONE", worker, task, meta={"number": number})


def number_of(name: str) -> int:
    """Return the number in the name of a process, such as 12 of w12; 0 if it has none."""
    return int(name.strip("abcdefghijklmnopqrstuvwxyz") or 0)


def is_unreachable(error: StoreError) -> bool:
    """Return whether the error says that the server is unreachable.

    Return False for refusals of a server and for errors of files.
    """
    return "cannot be reached" in str(error)


def _claim_machine(machine: int) -> None:
    """Let this process claim to be on another machine, so that processes of other
    machines cannot use its stamps.
    """
    boot = f"{process.boot_id()[:-2]}{machine:02d}"
    process.boot_id = lambda: boot
    process._machine = lambda: f"machine {machine}"


def _shift_member_clocks(plan: Plan) -> None:
    """Let this process see etcd members with clocks that differ.

    libfaketime cannot move the clocks of etcd, because etcd does not use libc.
    """
    from swarm.stores.address import Address
    from swarm.stores.etcd_gateway import Connection

    members = Address(plan.server).hosts_and_ports(0)
    original = Connection._answer

    def answer(connection: Connection, verb: str, question: dict[str, Any]) -> dict[str, Any]:
        reply = original(connection, verb, question)
        connection.date += plan.clocks_apart * members.index(
            connection._gateway.members[connection.member]
        )
        return reply

    Connection._answer = answer  # type: ignore[assignment, method-assign]


def _until(lock: Lock) -> float:
    return float(lock.holder["at"] + lock.ttl)


def _sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


def main(plan: str, name: str) -> None:
    # under libfaketime the real `time.sleep` fails with EINVAL
    time.sleep = _sleep  # type: ignore[assignment]
    Worker(Plan.decode(plan), name).work()


if __name__ == "__main__":
    main(*sys.argv[1:])
