"""Controls: locks, a counter and a log that break a promise on purpose.

The checker must catch each control. A checker that does not catch a control proves
nothing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from proof import server_controls
from proof.crew import Crew
from proof.worker import Plan, Worker
from swarm.errors import LockHeld, LockLost, NotYours
from swarm.locks.expiry import judge, new_lock, refreshed
from swarm.locks.record import Lock, decode
from swarm.stores.contract import Store

CONTROLS = {
    "no locks": "two holders at once",
    "expired, so delete, so create": "two holders at once",
    "a counter that takes late writes": "a lost update",
    "a log that is rewritten and renamed": "the log lacks",
}
_WORKERS = 8
_SECONDS = 0.5
_ROUNDS = 40


def caught(control: str, seed: int) -> str:
    """Return the violation that shows a control, "" if none does.

    The violation depends on chance, so there are several rounds.
    """
    for number in range(_ROUNDS):
        directory = tempfile.mkdtemp(prefix="swarm-control-")
        late = control == "a counter that takes late writes"
        plan = Plan(
            directory,
            seed + number,
            ("a", "b"),
            control="" if late else control,
            leases=(0.005,),
            sleep_share=0.5 if late else 0.0,
            expire_share=0.5 if control == "expired, so delete, so create" else 0.0,
            heartbeat_share=0.0,
            fenced=not late,
        )
        try:
            crew = Crew(plan)
            with crew:
                for _ in range(_WORKERS):
                    crew.start()
                time.sleep(_SECONDS)
            found = [
                violation
                for violation in crew.examine()[1]
                if violation.startswith(CONTROLS[control])
            ]
        finally:
            shutil.rmtree(directory)
        if found:
            return found[0]
    return ""


def install_control(worker: Worker, control: str) -> None:
    """Replace the locks or the log of a worker by a control."""
    if control == "no locks":
        worker.locks = NoLocks(worker.store)
    elif control == "expired, so delete, so create":
        worker.locks = DeleteAndCreate(worker.store, worker.plan.state)
    elif control == "a log that is rewritten and renamed":
        worker.append = RenamedLog(worker.plan.state).append
    else:
        server_controls.install_control(worker, control)


class NoLocks:
    """Give a token to every worker that asks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def acquire(
        self,
        task: str,
        worker: str,
        ttl: float | None,
        *,
        bound: bool = False,
        group: int = 0,
        wait: float = 0.0,
    ) -> Lock:
        return new_lock(
            task, worker, ttl, self._store.next_token(f"locks/{task}"), self._store.clock
        )

    def heartbeat(self, task: str, worker: str, token: int | None = None) -> Lock:
        return new_lock(task, worker, 1.0, token or 0, self._store.clock)

    def release(self, task: str, worker: str, token: int | None = None) -> Lock:
        return self.heartbeat(task, worker, token)


class DeleteAndCreate:
    """The pseudo-code of 003: delete an expired file, then create a new file with
    O_EXCL.

    Its tokens are correct.
    """

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory

    def acquire(
        self,
        task: str,
        worker: str,
        ttl: float | None,
        *,
        bound: bool = False,
        group: int = 0,
        wait: float = 0.0,
    ) -> Lock:
        path = self._directory / f"{task}.lock"
        held = LockHeld(task, "", "another worker has it")
        try:
            if judge(
                decode(path.read_bytes(), task),
                self._store.clock,
                lambda: time.time() - path.stat().st_mtime,
            ).is_held:
                raise held
            path.unlink()
        except FileNotFoundError:
            pass
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            raise held from None
        lock = new_lock(
            task, worker, ttl, self._store.next_token(f"locks/{task}"), self._store.clock
        )
        os.write(fd, lock.encode())
        os.close(fd)
        return lock

    def heartbeat(self, task: str, worker: str, token: int | None = None) -> Lock:
        lock = self._own(task, token)
        if lock is None:
            raise LockLost(task, "another worker has it")
        renewed = refreshed(lock, self._store.clock)
        (self._directory / f"{task}.lock").write_bytes(renewed.encode())
        return renewed

    def release(self, task: str, worker: str, token: int | None = None) -> Lock:
        lock = self._own(task, token)
        if lock is None:
            raise NotYours(task, "another worker has it")
        (self._directory / f"{task}.lock").unlink(missing_ok=True)
        return lock

    def _own(self, task: str, token: int | None) -> Lock | None:
        try:
            lock = decode((self._directory / f"{task}.lock").read_bytes(), task)
        except FileNotFoundError:
            return None
        return lock if lock is not None and lock.token == token else None


class RenamedLog:
    """The method of 002: write the whole log to a temporary file, then rename it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "status.log"

    def append(self, task: str, worker: str, number: int) -> None:
        fresh = self._path.with_suffix(f".{os.getpid()}")
        before = self._path.read_bytes() if self._path.exists() else b""
        fresh.write_bytes(
            before + b'{"worker": "%s", "meta": {"number": %d}}\n' % (worker.encode(), number)
        )
        fresh.rename(self._path)
