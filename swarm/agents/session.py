"""The tasks and locks that an agent holds while its session lives.

The session sends heartbeats, and releases all tasks and locks when it ends. Every lock
is bound to this process, so a killed process holds nothing. A lock is lost if its lease
ran out or another worker took it. `news` reports each loss once. Every later call about
a lost task is refused. Threads may share a session object. A call that waits gives up
soon after `stopped` returns true. `close` takes no longer than its timeout, even if the
store is slow.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from swarm.agents.finishing import Finishing
from swarm.agents.session_questions import SessionQuestions
from swarm.errors import LockHeld, LockLost, NoTask, NotYours, StoreError, SwarmError, WrongState
from swarm.inputs import check_name, check_plain_name, check_ttl
from swarm.locks.lease import Lease
from swarm.locks.reservations import Reservations
from swarm.locks.table import LockTable
from swarm.queue.questions.question import Question
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.stores.contract import Store
from swarm.system.background import BackgroundCall
from swarm.system.threads import CallThreads
from swarm.terminal.text import foreign_name

_NOT_DELIVERED = "the agent did not receive the answer"
_ENDED = "its agent's session ended"
_STOP_POLL_INTERVAL = 0.5  # seconds between checks whether the caller of `lock` still waits


@dataclass
class HeldLock:
    """A lock of this session. A lock with a `claim` is the lock of a task in the queue.

    `lost` says why the session lost the lock; it is "" while the session has the lock.
    `reported` says that the agent knows of the loss.
    """

    name: str
    lease: Lease
    claim: Claim | None = None
    lost: str = ""
    reported: bool = False


class AgentSession:
    """The session of one agent.

    `assigned_task` is the task for which the agent was started, with its token. The
    process that started the agent holds the assigned task.
    """

    def __init__(
        self, store: Store, worker: str, ttl: float, *, assigned_task: tuple[str, int] | None = None
    ) -> None:
        self.store = store
        self.worker = check_plain_name(worker, "worker")
        self.ttl = check_ttl(ttl, fractions=True)
        self.queue = TaskQueue(store)
        self._assigned_task = assigned_task
        self._locks = LockTable(store)
        self._files = Reservations(store)
        self._files_lock = f"files of {self.worker}"
        self._reserving = threading.RLock()
        self.finishing = Finishing(store, self.queue, self.worker)
        self.questions = SessionQuestions(self.queue)
        self._held: dict[str, HeldLock] = {}
        # the last ended claim of each task: ending it again is accepted
        self._finished: dict[str, Claim] = {}
        self._guard = threading.Lock()
        self._acquiring = threading.Lock()  # `close` waits for this, to see every lock
        self._ended = False
        self._threads = CallThreads("session")  # one is there to release all

    @property
    def was_assigned(self) -> bool:
        """Whether the agent was started for one task."""
        return self._assigned_task is not None

    def assigned_task(self) -> str:
        """Return the assigned task if its lock is still held with the assigned token,
        else "".
        """
        if self._assigned_task is None:
            return ""
        task, token = self._assigned_task
        status = self._locks.status(task)
        return task if status.is_held_by(status.holder, token) else ""

    def holds(self) -> list[HeldLock]:
        """Return the locks that the session has now."""
        with self._guard:
            return [held for held in self._held.values() if not self._why_lost(held)]

    def has(self, name: str) -> HeldLock | None:
        """Return the session's lock of this name, None if the session does not have the
        lock now.
        """
        with self._guard:
            held = self._held.get(name)
            return held if held is not None and not self._why_lost(held) else None

    def why_lost(self, name: str) -> str:
        """Return why the session lost this lock.

        Return "" if the session has the lock or never had it.
        """
        with self._guard:
            held = self._held.get(name)
            return self._why_lost(held) if held is not None else ""

    def news(self) -> list[HeldLock]:
        """Return the locks that were lost and not reported yet, and mark them as
        reported.
        """
        with self._guard:
            found = [
                held for held in self._held.values() if self._why_lost(held) and not held.reported
            ]
            for held in found:
                held.reported = True
            return found

    # Tasks ----------------------------------------------------------------------------

    def claim(
        self,
        task: str | None,
        wait: float = 0.0,
        stopped: Callable[[], bool] = lambda: False,
        labels: Sequence[str] = (),
    ) -> Claim:
        """Claim the named task, or without a name the best ready task.

        Raise the errors of `TaskQueue.claim`, and WrongState while the agent has an
        assigned task.
        """
        assigned = self.assigned_task()
        if assigned:
            raise WrongState(
                assigned,
                (
                    f"You are assigned to {foreign_name(assigned)}: the process that started you "
                    f"holds it, and your exit ends the task."
                ),
            )
        return self.queue.retry_claim(lambda: self._claim_now(task, labels), wait, stopped)

    def make_workspace(self, claim: Claim) -> str:
        """Make the workspace of a claim of this session, and return its directory. If
        that fails, release the claim and raise the error.
        """
        try:
            return self.finishing.make_workspace(claim)
        except SwarmError:
            if held := self._get(claim.task.id):
                self._forget(held)
            raise

    def end(
        self,
        how: str,
        task: str,
        text: str = "",
        *,
        final: bool = False,
        wait: float = math.inf,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Task:
        """End a claim and return the task. `how` is done, fail or release.

        For done, the check runs first: raise WorkRefused if it fails, and StillChecking
        if it takes longer than `wait` seconds; the claim goes on. Raise LockLost if
        another worker has the task, NotYours if this session never claimed the task,
        WrongState if the task is the assigned task.
        """
        held = self._get(check_name(task, "task_id"))
        claim = held.claim if held else self._finished.get(task)
        if claim is None:
            if task == self.assigned_task():
                raise WrongState(
                    task,
                    (
                        f"{foreign_name(task)} is your assigned task: your exit ends the task. "
                        f"Exit code 0 means done, any other means failed."
                    ),
                )
            why = "it is a lock, not a claim. Call unlock" if held else "call claim first"
            raise NotYours(task, f"This session has not claimed {foreign_name(task)}: {why}.")
        try:
            if how == "done":
                ended = self.finishing.finish(
                    claim,
                    text,
                    wait=wait,
                    must_end=lambda: self._why_to_end(task),
                    stopped=stopped,
                )
            elif how == "fail":
                work = self.finishing.saved_work(claim)
                ended = self.queue.fail(
                    task, self.worker, claim.token, text, final=final, work=work
                )
            else:
                work = self.finishing.saved_work(claim)
                ended = self.queue.release(task, self.worker, claim.token, text, work=work)
        except NoTask:
            gone = "the queue was removed or replaced. Stop working on the task."
            lost = LockLost(task, f"there is no task {foreign_name(task)} any more: {gone}")
            if held is not None:
                self._lose(held, lost, reported=True)
            raise lost from None
        except LockLost as lost:
            if held is not None:
                self._lose(held, lost, reported=True)
            raise
        if held is not None:
            self._finished[task] = claim
            self._forget(held)
        return ended

    def ask(self, task: str, text: str, **given: Any) -> Question:
        """Ask about a claim of the session or about the assigned task, and wait, see
        `SessionQuestions.ask`. Raise NotYours if the session has no such task.
        """
        held, assigned = self.has(check_name(task, "task_id")), self._assigned_task
        if held is not None and held.claim is not None:
            claim = (task, self.worker, held.claim.token)
        elif why := self.why_lost(task):
            raise LockLost(task, why)
        elif assigned is not None and task == assigned[0]:
            claim = (task, self._locks.status(task).holder or self.worker, assigned[1])
        else:
            raise NotYours(task, f"This session has not claimed {foreign_name(task)}.")
        return self.questions.ask(claim, text, **given)

    def _why_to_end(self, task: str) -> str:
        """Return why the check of a task must end now, "" if it may go on."""
        return "the session has ended" if self._ended else self.why_lost(task)

    # Locks ----------------------------------------------------------------------------

    def lock(
        self, name: str, wait: float = 0.0, stopped: Callable[[], bool] = lambda: False
    ) -> Lease:
        """Acquire the lock of a name for the session.

        Raise LockHeld if another worker still holds the lock after `wait` seconds.
        """
        check_name(name, "name")
        deadline = time.monotonic() + wait
        while True:
            try:
                return self._lock_now(name)
            except LockHeld:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                self._locks.await_change(name, min(left, _STOP_POLL_INTERVAL))
                if stopped():
                    raise

    def unlock(self, name: str) -> None:
        """Release a lock.

        Raise LockLost if the session lost the lock, NotYours if this session never had
        it.
        """
        held = self._get(check_name(name, "name"))
        if held is None or held.claim is not None:
            why = (
                "it is a claimed task. Call done or fail" if held else "there is nothing to release"
            )
            raise NotYours(name, f"This session has not locked {foreign_name(name)}: {why}.")
        try:
            self._locks.release(name, self.worker, held.lease.token)
        except NotYours as gone:
            lost = LockLost(name, str(gone))
            self._lose(held, lost, reported=True)
            raise lost from None
        self._forget(held)

    # Files ----------------------------------------------------------------------------

    def reserve(self, patterns: Sequence[str]) -> Callable[[], None]:
        """Reserve all given files, or no file if one of them is reserved. Return a
        function that undoes the call.

        The reservations end with the only task of the session. If the session has no
        task or several tasks, they end with the session. Raise LockHeld if another
        worker reserved one of the files, LockLost if the session lost its task.
        """
        made: list[str] = []

        def undo() -> None:
            self.unreserve(made)

        with self._reserving:
            task, token = self._lock_for_files()
            before = {each.pattern for each in self._files.all() if each.worker == self.worker}
            try:
                for pattern in sorted(patterns):  # the same order as `swarm reserve`
                    self._files.reserve_for_task(pattern, self.worker, task, token)
                    if pattern not in before:
                        made.append(pattern)
            except BaseException:
                undo()
                raise
        return undo

    def unreserve(self, patterns: Sequence[str]) -> None:
        """Release reservations.

        With the last reservation, also release the session's own lock for files.
        """
        with self._reserving:
            for pattern in patterns:
                try:
                    self._files.release(self.worker, pattern)
                except NotYours:
                    pass
            if not any(
                each.worker == self.worker and each.task_id == self._files_lock
                for each in self._files.all()
            ):
                self.undo(self._files_lock)

    def _lock_for_files(self) -> tuple[str, int | None]:
        """Return the lock to which new reservations are tied, and its token.

        The result is the lock of the session's only task, else a lock that ends with
        the session.
        """
        if self._assigned_task is not None and self.assigned_task():
            return self._assigned_task
        claims = [held for held in self.holds() if held.claim]
        if len(claims) == 1:
            return claims[0].name, claims[0].lease.token
        mine = self.has(self._files_lock)
        return self._files_lock, mine.lease.token if mine else self.lock(self._files_lock).token

    # The end --------------------------------------------------------------------------

    def undo(self, name: str) -> None:
        """Release a claim or lock that was granted in an answer that the agent never
        received.

        Errors of the store are ignored.
        """
        held = self._get(name)
        if held is not None:
            self._release(held, _NOT_DELIVERED)

    def close(self, timeout: float = 1.0) -> bool:
        """Release all tasks and locks.

        Return whether everything was released within `timeout` seconds.

        A lock that could not be released in time is free once this process has ended.
        """
        self._ended = True
        call = BackgroundCall(self._release_all, f"end of {self.worker}")
        try:
            call.start(self._threads.run)
        except StoreError:
            return False
        if not call.wait(timeout):
            return False
        self._threads.close()
        call.result()
        return True

    def _release_all(self) -> None:
        with self._acquiring, self._guard:
            # locks are quicker
            held = sorted(self._held.values(), key=lambda each: each.claim is not None)
        for each in held:
            self._release(each, _ENDED)

    def _release(self, held: HeldLock, reason: str) -> None:
        try:
            if held.claim is not None:
                work = self.finishing.saved_work(held.claim)
                self.queue.release(held.name, self.worker, held.claim.token, reason, work=work)
            else:
                self._locks.release(held.name, self.worker, held.lease.token)
        except SwarmError:
            pass  # the lock was lost, or ends with its lease
        self._forget(held)

    # Held locks -----------------------------------------------------------------------

    def _claim_now(self, task: str | None, labels: Sequence[str] = ()) -> Claim:
        with self._acquiring:
            self._check_open()
            claim = self.queue.claim(self.worker, task, ttl=self.ttl, bound=True, labels=labels)
            held: HeldLock
            lease = self.queue.keep(claim, on_lost=lambda lost: self._lose(held, lost))
            held = HeldLock(claim.task.id, lease, claim)
            self._start(held)
            return claim

    def _lock_now(self, name: str) -> Lease:
        with self._acquiring:
            self._check_open()
            held: HeldLock
            lease = Lease(
                self._locks,
                name,
                self.worker,
                self.ttl,
                on_lost=lambda lost: self._lose(held, lost),
            )
            held = HeldLock(name, lease)
            self._start(held)
            return lease

    def _check_open(self) -> None:
        """Raise StoreError if the session has ended, or if no thread can be had to end
        what will be acquired.
        """
        if self._ended:
            raise StoreError("the session has ended.")
        try:
            self._threads.prepare()
        except RuntimeError:
            raise StoreError("the system allows no more threads. End some processes.") from None

    def _start(self, held: HeldLock) -> None:
        held.lease.start()
        with self._guard:
            self._held[held.name] = held

    def _get(self, name: str) -> HeldLock | None:
        """Return the entry of a lock in this session, even if the lease is lost.

        Return None if the session has no entry for the lock.
        """
        with self._guard:
            return self._held.get(name)

    def _forget(self, held: HeldLock) -> None:
        """Forget a lock that was released, and end its heartbeats."""
        with self._guard:
            if self._held.get(held.name) is held:
                del self._held[held.name]
        held.lease.detach()
        # In the background: a heartbeat of the lock may be waiting for the store.
        try:
            BackgroundCall(held.lease.stop, f"end of the lease of {held.name}").start()
        except StoreError:
            held.lease.stop(failing=True)

    def _lose(self, held: HeldLock, lost: LockLost, *, reported: bool = False) -> None:
        with self._guard:
            held.lost = held.lost or _with_foreign_name(str(lost), held.name)
            held.reported = held.reported or reported

    def _why_lost(self, held: HeldLock) -> str:
        """Return why a lock is lost, "" if it is not lost.

        Check the lease itself: it may have run out while the whole process was stopped,
        before a heartbeat notices.
        """
        if not held.lost and held.lease.seconds_left <= 0:
            held.lost = (
                f"the lease of {foreign_name(held.name)} ran out: there was no heartbeat for "
                f"{held.lease.ttl:g} seconds."
            )
        return held.lost


def _with_foreign_name(text: str, name: str) -> str:
    """Return a lease's error with the name of its task quoted, if it must be quoted."""
    shown = foreign_name(name)
    return text if shown in text else text.replace(name, shown)
