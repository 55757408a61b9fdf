"""The tasks and locks that an agent holds while its session lives.

Leases are kept alive, and everything is released when the session ends. Every lock is
bound to this process, so a killed process holds nothing. A lock is lost if its lease ran
out or another worker took it. `news` reports each loss once; a later call about a lost
task is refused again. Threads may share the object. A waiting call gives up soon after
`stopped` returns true. `close` takes no longer than its timeout, however slow the store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swarm.errors import LockHeld, LockLost, NotYours, StoreError, SwarmError, WrongState
from swarm.inputs import check_name, check_ttl
from swarm.locks.lease import Lease
from swarm.locks.reservations import Reservations
from swarm.locks.table import LockTable
from swarm.queue.queue import Claim, Task, TaskQueue
from swarm.queue.waiting import claim_patiently
from swarm.stores.contract import Store

_NOT_DELIVERED = "the answer could not be delivered"
_ENDED = "its agent's session ended"
_POLL_INTERVAL = 0.5  # seconds between looks whether somebody still waits for a lock


@dataclass
class Holding:
    """A task or, without a `claim`, a lock. `lost`: why it is not the agent's any more, "" while it is."""

    name: str
    lease: Lease
    claim: Claim | None = None
    lost: str = ""
    reported: bool = False


class AgentSession:
    """One agent's session. `assigned_task`: the task that whoever started the agent holds for it, and its token."""

    def __init__(self, store: Store, worker: str, ttl: float, *, assigned_task: tuple[str, int] | None = None) -> None:
        self.store = store
        self.worker = check_name(worker, "worker")
        self.ttl = check_ttl(ttl, fractions=True)
        self.queue = TaskQueue(store)
        self._assigned_task = assigned_task
        self._locks = LockTable(store)
        self._files = Reservations(store)
        self._for_files = f"files of {self.worker}"
        self._reserving = threading.RLock()
        self._holdings: dict[str, Holding] = {}
        self._finished: dict[str, Claim] = {}  # the last claim of each task that was ended: saying so again does no harm
        self._guard = threading.Lock()
        self._taking = threading.Lock()  # so that nothing is taken behind the back of the end
        self._ended = False

    def assigned_task(self) -> str:
        """The task that the agent was started for, and that is still held for it; "" if there is none."""
        if self._assigned_task is None:
            return ""
        task, token = self._assigned_task
        status = self._locks.status(task)
        return task if status.is_held_by(status.holder, token) else ""

    def holds(self) -> list[Holding]:
        """What it has now."""
        with self._guard:
            return [holding for holding in self._holdings.values() if not self._why_lost(holding)]

    def has(self, name: str) -> Holding | None:
        with self._guard:
            holding = self._holdings.get(name)
            return holding if holding is not None and not self._why_lost(holding) else None

    def why_lost(self, name: str) -> str:
        """Why it has not any more what it had, "" if it never had that, or has it."""
        with self._guard:
            holding = self._holdings.get(name)
            return self._why_lost(holding) if holding is not None else ""

    def news(self) -> list[Holding]:
        """What was lost since it was last reported."""
        with self._guard:
            found = [holding for holding in self._holdings.values() if self._why_lost(holding) and not holding.reported]
            for holding in found:
                holding.reported = True
            return found

    # Tasks -----------------------------------------------------------------------------------------------------------

    def claim(self, task: str | None, wait: float = 0.0, stopped: Callable[[], bool] = lambda: False) -> Claim:
        """Raises as the queue does, and WrongState while the agent has the task that it was started for."""
        assigned = self.assigned_task()
        if assigned:
            raise WrongState(assigned, f"You work on {assigned} already: it is held for you, and your exit ends it.")
        return claim_patiently(self.queue, lambda: self._claim_now(task), wait, stopped)

    def end(self, how: str, task: str, text: str = "", *, final: bool = False) -> Task:
        """Ends a claim: `how` is done, fail or release. Raises LockLost if another has the task by now, NotYours if this session
        never claimed it, WrongState for the task that the agent was started for."""
        holding = self._holding(check_name(task, "task_id"))
        claim = holding.claim if holding else self._finished.get(task)
        if claim is None:
            if task == self.assigned_task():
                raise WrongState(task, f"{task} was started by a worker, and your exit ends it: 0 is done, anything else failed.")
            why = "it is only a lock: call unlock" if holding else "call claim first"
            raise NotYours(task, f"This session has not claimed {task}: {why}.")
        try:
            if how == "done":
                ended = self.queue.done(task, self.worker, claim.token, text)
            elif how == "fail":
                ended = self.queue.fail(task, self.worker, claim.token, text, final=final)
            else:
                ended = self.queue.release(task, self.worker, claim.token, text)
        except LockLost as lost:
            if holding is not None:
                self._lose(holding, lost, reported=True)
            raise
        if holding is not None:
            self._finished[task] = claim
            self._forget(holding)
        return ended

    # Locks -----------------------------------------------------------------------------------------------------------

    def lock(self, name: str, wait: float = 0.0, stopped: Callable[[], bool] = lambda: False) -> Lease:
        """Raises LockHeld."""
        check_name(name, "name")
        deadline = time.monotonic() + wait
        while True:
            try:
                return self._lock_now(name)
            except LockHeld:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                self._locks.await_change(name, min(left, _POLL_INTERVAL))
                if stopped():
                    raise

    def unlock(self, name: str) -> None:
        """Raises LockLost if it is another's by now, NotYours if this session has no such lock."""
        holding = self._holding(check_name(name, "name"))
        if holding is None or holding.claim is not None:
            why = "it is a task: end it with done or fail" if holding else "there is nothing to give back"
            raise NotYours(name, f"This session has not locked {name}: {why}.")
        try:
            self._locks.release(name, self.worker, holding.lease.token)
        except NotYours as gone:
            lost = LockLost(name, str(gone))
            self._lose(holding, lost, reported=True)
            raise lost from None
        self._forget(holding)

    # Files -----------------------------------------------------------------------------------------------------------

    def reserve(self, patterns: Sequence[str]) -> Callable[[], None]:
        """Reserves files, all or none, for the task that it has; without one, until the session ends. What undoes it is returned.
        Raises LockHeld, or LockLost if the task is another's by now."""
        made: list[str] = []

        def undo() -> None:
            self.unreserve(made)

        with self._reserving:
            task, token = self._reason_to_reserve()
            before = {each.pattern for each in self._files.all() if each.worker == self.worker}
            try:
                for pattern in sorted(patterns):  # in one order for all, as swarm reserve does
                    self._files.reserve_for_task(pattern, self.worker, task, token)
                    if pattern not in before:
                        made.append(pattern)
            except BaseException:
                undo()
                raise
        return undo

    def unreserve(self, patterns: Sequence[str]) -> None:
        """Gives files up; and with the last of those that no task is the reason for, the lock that stood for the session."""
        with self._reserving:
            for pattern in patterns:
                try:
                    self._files.release(self.worker, pattern)
                except NotYours:
                    pass
            if not any(each.worker == self.worker and each.task_id == self._for_files for each in self._files.all()):
                self.undo(self._for_files)

    def _reason_to_reserve(self) -> tuple[str, int | None]:
        """What the files are kept for: the only task; else a lock that stands for the session, and ends with it."""
        assigned = self.assigned_task()
        if assigned:
            return assigned, self._assigned_task[1] if self._assigned_task else None
        claims = [holding for holding in self.holds() if holding.claim]
        if len(claims) == 1:
            return claims[0].name, claims[0].lease.token
        mine = self.has(self._for_files)
        return self._for_files, mine.lease.token if mine else self.lock(self._for_files).token

    # The end ---------------------------------------------------------------------------------------------------------

    def undo(self, name: str) -> None:
        """Gives back what could not be reported, if it can be done."""
        holding = self._holding(name)
        if holding is not None:
            self._release(holding, _NOT_DELIVERED)

    def close(self, timeout: float = 1.0) -> bool:
        """Gives everything back; whether that was done in time. What was not is free when this process ends."""
        self._ended = True

        def release_all() -> None:
            with self._taking, self._guard:
                left = sorted(self._holdings.values(), key=lambda holding: holding.claim is not None)  # locks are quicker
            for holding in left:
                self._release(holding, _ENDED)

        releasing = threading.Thread(target=release_all, daemon=True)
        releasing.start()
        releasing.join(timeout)
        return not releasing.is_alive()

    def _release(self, holding: Holding, reason: str) -> None:
        try:
            if holding.claim is not None:
                self.queue.release(holding.name, self.worker, holding.claim.token, reason)
            else:
                self._locks.release(holding.name, self.worker, holding.lease.token)
        except SwarmError:
            pass  # it was lost, or ends with its lease
        self._forget(holding)

    # Holdings --------------------------------------------------------------------------------------------------------

    def _claim_now(self, task: str | None) -> Claim:
        with self._taking:
            self._check_open()
            claim = self.queue.claim(self.worker, task, ttl=self.ttl, bound=True)
            holding: Holding
            lease = self.queue.keep(claim, on_lost=lambda lost: self._lose(holding, lost))
            holding = Holding(claim.task.id, lease, claim)
            self._keep(holding)
            return claim

    def _lock_now(self, name: str) -> Lease:
        with self._taking:
            self._check_open()
            holding: Holding
            lease = Lease(self._locks, name, self.worker, self.ttl, on_lost=lambda lost: self._lose(holding, lost))
            holding = Holding(name, lease)
            self._keep(holding)
            return lease

    def _check_open(self) -> None:
        if self._ended:
            raise StoreError("the session has ended.")

    def _keep(self, holding: Holding) -> None:
        holding.lease.start()
        with self._guard:
            self._holdings[holding.name] = holding

    def _holding(self, name: str) -> Holding | None:
        with self._guard:
            return self._holdings.get(name)

    def _forget(self, holding: Holding) -> None:
        """Forgets it, and ends its heartbeats; the lock itself is given back already."""
        with self._guard:
            if self._holdings.get(holding.name) is holding:
                del self._holdings[holding.name]
        holding.lease.detach()
        # Its thread may still wait for the store.
        threading.Thread(target=holding.lease.stop, daemon=True).start()

    def _lose(self, holding: Holding, lost: LockLost, *, reported: bool = False) -> None:
        with self._guard:
            holding.lost = holding.lost or str(lost)
            holding.reported = holding.reported or reported

    def _why_lost(self, holding: Holding) -> str:
        """Also what no heartbeat has noticed yet, after a time in which the whole process was stopped."""
        if not holding.lost and holding.lease.seconds_left <= 0:
            holding.lost = f"The lease of {holding.name} ran out: it could not be refreshed in {holding.lease.ttl:g} seconds."
        return holding.lost
