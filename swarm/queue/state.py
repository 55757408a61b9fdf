"""The state of the queue: the rules by which events change it.

    add      a new task                    a known id changes nothing
    claim    ready -> running              with a larger token than any before, after
                                           all its dependencies are done
             running -> running            the worker of the last claim is dead: the
                                           lock was free
             running -> failed             the same, but the attempts are used up
    done     running -> done               only with the token of the claim
    fail     running -> ready, failed      the same; failed if the failure is final, or
                                           the attempt is the last
    release  running -> ready              the same; the attempt does not count
    retry    failed, cancelled -> ready    its count of attempts starts again at 0
    cancel   ready, running -> cancelled

An event that does not fit changes nothing. So a worker that lost its lease cannot
finish a task, however late its event is and whatever the worker checked before. All
processes that have read equally far have the same state. Only a task's lock says
whether its worker is alive.
"""

from __future__ import annotations

import heapq
import sys

from swarm.inputs import check_name
from swarm.queue.events import CANCELLED, DONE, ENDED, FAILED, READY, RUNNING, WAITING, parse_event
from swarm.queue.ready import Node, ReadyList
from swarm.queue.snapshot import encode_column, expand, pack, unpack
from swarm.queue.task import DEFAULT_MAX_ATTEMPTS, Task, spec_in_log
from swarm.system.clock import from_iso, to_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from typing import Any

_DIED = "its worker {worker} was gone, at the last of {attempts} attempts"
# The beginning of a line that swarm wrote; 24 characters of time follow.
_ADDED = b'{"op": "add", "at": "'


class TaskState(Node):
    """A task in the queue.

    `line` is the event that added it: fields by which the queue does not decide are
    read from this line.
    """

    __slots__ = (
        "after",
        "attempts",
        "changed_at",
        "delay",
        "ended_by",
        "has_command",
        "id",
        "line",
        "max_attempts",
        "open_dependencies",
        "priority",
        "reason",
        "state",
        "token",
        "worker",
    )

    def __init__(
        self,
        task_id: str,
        line: bytes,
        has_command: bool,
        priority: int,
        after: Sequence[str],
        max_attempts: int,
        changed_at: str | None = None,
        state: str = READY,
        attempts: int = 0,
        token: int = 0,
        worker: str = "",
        reason: str = "",
        delay: float = 0.0,
        ended_by: str = "",
    ) -> None:
        self.next = self.previous = None
        self.id = task_id
        self.line = line
        self.has_command = has_command
        self.priority = priority
        self.after = after
        self.max_attempts = max_attempts
        # When the task came into its state, None if it was added in this state.
        self.changed_at = changed_at
        self.state = state
        self.attempts = attempts
        self.token = token
        self.worker = worker
        self.reason = reason
        self.delay = delay
        # The event by which the worker ended the last claim, "" if there is none.
        self.ended_by = ended_by
        # The number of tasks in `after` that are not done.
        self.open_dependencies = 0

    @property
    def shown_state(self) -> str:
        return WAITING if self.state == READY and self.open_dependencies else self.state

    @property
    def is_last_attempt(self) -> bool:
        return self.attempts >= self.max_attempts

    @property
    def since(self) -> str:
        """The time at which the task came into its state."""
        return self._added_at() if self.changed_at is None else self.changed_at

    def due(self) -> float:
        """Return the time at which the delay before the next attempt ends."""
        return (from_iso(self.since) or 0.0) + self.delay

    def task(self, before: Task | None = None) -> Task:
        """Return the task as of now.

        `before`: an earlier `Task` to copy the immutable fields from.
        """
        if before is None:
            record = parse_event(self.line)
            spec, added_at = spec_in_log(record), str(record.get("at", ""))
        else:
            spec, added_at = before.spec, before.added_at
        return Task(
            spec=spec,
            state=self.shown_state,
            attempts=self.attempts,
            worker=self.worker,
            token=self.token or None,
            since=added_at if self.changed_at is None else self.changed_at,
            reason=self.reason,
            ready_at=to_iso(self.due()) if self.state == READY and self.delay else "",
            added_at=added_at,
        )

    def _added_at(self) -> str:
        at, rest = self.line[21:45], self.line[45:46]
        if self.line.startswith(_ADDED) and rest == b'"' and b'"' not in at and b"\\" not in at:
            return at.decode()
        return str(parse_event(self.line).get("at", ""))


# In the order of the arguments of TaskState, after `task_id` and `line`.
_COLUMNS = (
    "has_command",
    "priority",
    "after",
    "max_attempts",
    "changed_at",
    "state",
    "attempts",
    "token",
    "worker",
    "reason",
    "delay",
    "ended_by",
)


def effective_state(entry: TaskState, *, lock_is_free: bool) -> str:
    """Return the state of a task, given whether its lock is free.

    A running task whose lock is free has lost its worker. Such a task is ready, or
    failed after its last attempt, even while no event says so yet.
    """
    if entry.state != RUNNING or not lock_is_free:
        return entry.shown_state
    return FAILED if entry.is_last_attempt else READY


class QueueState:
    """The queue, as far as its log was read. `damaged` counts invalid lines."""

    VERSION = 3

    def __init__(self) -> None:
        self.entries: dict[str, TaskState] = {}
        self.running: dict[str, TaskState] = {}
        self.damaged = 0
        self._ready = ReadyList()
        self._delayed: list[tuple[float, str]] = []  # when, which
        # By tasks that are not done, or do not exist yet.
        self._dependents: dict[str, list[str]] = {}
        self._events = {
            "claim": self._claim,
            "done": self._done,
            "fail": self._fail,
            "release": self._release,
            "retry": self._retry,
            "cancel": self._cancel,
        }

    def __len__(self) -> int:
        return len(self.entries)

    def apply(self, line: bytes) -> bool:
        try:
            record = parse_event(line)
            if record["op"] == "add":
                return self._add(record, line)
            entry = self.entries.get(record["id"])
            return self._events[record["op"]](entry, record) if entry else False
        except (ValueError, KeyError, TypeError, OverflowError):
            self.damaged += bool(line.strip())
            return False

    def counts(self) -> dict[str, int]:
        """Return the number of tasks in each state."""
        found: dict[str, int] = {}
        for entry in self.entries.values():
            state = entry.shown_state
            found[state] = found.get(state, 0) + 1
        return found

    def best(
        self, now: float, skip: Container[str], among: int, *, commands_only: bool = False
    ) -> list[TaskState]:
        """Return the next ready tasks, at most `among` of one priority.

        `skip` has ids to leave out.
        """
        while self._delayed and self._is_due(*self._delayed[0], now):
            moment, name = heapq.heappop(self._delayed)
            entry = self.entries[name]
            # Otherwise the delay belongs to an earlier attempt.
            if entry.state == READY and moment == entry.due():
                entry.delay = 0.0
                self._ready.add(entry)

        def fits(entry: TaskState) -> bool:
            return entry.id not in skip and (entry.has_command or not commands_only)

        found: list[TaskState] = self._ready.best(fits, among)
        return found

    def is_finished(self, *, commands_only: bool = False) -> bool:
        """Return whether no task is running or ready, now or after its delay.

        If True, each open task waits for a task that failed, was cancelled or is missing.
        """
        delayed = [
            entry for _, name in self._delayed if (entry := self.entries[name]).state == READY
        ]
        if self.running or any(entry.has_command or not commands_only for entry in delayed):
            return False
        return not self._ready.best(lambda entry: entry.has_command or not commands_only)

    def next_due(self) -> float | None:
        """Return the time at which the next delayed task is ready again, None if no
        task is delayed.
        """
        return self._delayed[0][0] if self._delayed else None

    def find_cycle(self, asked: Mapping[str, Sequence[str]]) -> list[str]:
        """Return a cycle that would exist if these tasks were added, each after others.

        Return an empty list if there is no cycle.
        """
        # Known tasks have no cycle. They can be part of one only if a known task waits
        # for a new task.
        known = self.entries if any(name in self._dependents for name in asked) else {}
        checked: set[str] = set()
        for start in asked:
            # The path so far: each task with the tasks left to try.
            path = {} if start in checked else {start: iter(asked[start])}
            while path:
                here = next(reversed(path))
                name = next(path[here], None)
                if name is None:
                    del path[here]
                    checked.add(here)
                elif name in path:
                    names = list(path)
                    return [*names[names.index(name) :], name]
                elif name not in checked:
                    entry = known.get(name)
                    path[name] = iter(asked.get(name, entry.after if entry else ()))
        return []

    def blocked(self) -> dict[str, str]:
        """Return each task that waits for a failed, cancelled or missing task, with the
        task for which it waits.
        """
        found: dict[str, str] = {}
        culprits = [
            n
            for n in self._dependents
            if n not in self.entries or self.entries[n].state in (FAILED, CANCELLED)
        ]
        for culprit in culprits:
            stack = [culprit]
            while stack:
                for name in self._dependents.get(stack.pop(), ()):
                    if name not in found and self.entries[name].state == READY:
                        found[name] = culprit
                        stack.append(name)
        return found

    # Snapshots ------------------------------------------------------------------------

    def dump(self) -> Any:
        entries = list(self.entries.values())
        texts = (
            pack([entry.id.encode() for entry in entries]),
            pack([entry.line for entry in entries]),
        )
        return [
            len(entries),
            *texts,
            *(encode_column([getattr(entry, name) for entry in entries]) for name in _COLUMNS),
        ]

    def load(self, data: Any) -> None:
        count, names, texts, *columns = data
        ids, lines = [line.decode() for line in unpack(names)], unpack(texts)
        values = [expand(values, count) for values in columns]
        self.entries = dict(zip(ids, map(TaskState, ids, lines, *values), strict=True))
        if (
            not count == len(ids) == len(self.entries)
            or next(lines, None) is not None
            or len(values) != len(_COLUMNS)
        ):
            raise ValueError
        for entry in self.entries.values():
            if entry.state == RUNNING:
                self.running[entry.id] = entry
            if entry.after and entry.state != DONE:
                self._link(entry)
            if entry.state == READY:
                self._make_ready(entry)

    # The events -----------------------------------------------------------------------

    def _add(self, record: dict[str, Any], line: bytes) -> bool:
        task_id, after = check_name(record["id"], "id"), record.get("after", ())
        if (
            task_id in self.entries
            or task_id in after
            or (task_id in self._dependents and self.find_cycle({task_id: after}))
        ):
            return False
        if not all(isinstance(name, str) for name in after):
            raise TypeError
        priority, attempts = (
            record.get("priority", 0),
            record.get("max_attempts", DEFAULT_MAX_ATTEMPTS),
        )
        entry = TaskState(task_id, line, "command" in record, priority, tuple(after), attempts)
        self.entries[task_id] = entry
        self._link(entry)
        self._make_ready(entry)
        return True

    def _claim(self, entry: TaskState, record: dict[str, Any]) -> bool:
        token = record["token"]
        if token <= entry.token or entry.state not in (READY, RUNNING) or entry.open_dependencies:
            return False
        entry.token = token
        if entry.state == RUNNING and entry.is_last_attempt:
            self._end(
                entry, FAILED, record, _DIED.format(worker=entry.worker, attempts=entry.attempts)
            )
            return False
        self._ready.discard(entry)
        self.running[entry.id] = entry
        entry.attempts += 1
        entry.worker = sys.intern(record.get("worker", ""))
        entry.ended_by = ""
        self._move(entry, RUNNING, record)
        return True

    def _done(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if not self._fits(entry, record):
            return False
        entry.ended_by = "done"
        self._end(entry, DONE, record)
        for name in self._dependents.pop(entry.id, ()):
            dependent = self.entries[name]
            dependent.open_dependencies -= 1
            if dependent.state == READY:
                self._make_ready(dependent)
        return True

    def _fail(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if not self._fits(entry, record):
            return False
        entry.ended_by = "fail"
        if record.get("final") or entry.is_last_attempt:
            self._end(entry, FAILED, record)
        else:
            self._back(entry, record, delay=float(record.get("delay", 0)))
        return True

    def _release(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if not self._fits(entry, record):
            return False
        entry.ended_by = "release"
        entry.attempts -= 1
        self._back(entry, record, first=True)
        return True

    def _retry(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if entry.state not in (FAILED, CANCELLED):
            return False
        entry.attempts = 0
        self._back(entry, record)
        return True

    def _cancel(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if entry.state in ENDED:
            return False
        self._ready.discard(entry)
        self._end(entry, CANCELLED, record)
        return True

    # Parts of the events --------------------------------------------------------------

    def _fits(self, entry: TaskState, record: dict[str, Any]) -> bool:
        return entry.state == RUNNING and bool(record["token"] == entry.token)

    def _end(self, entry: TaskState, state: str, record: dict[str, Any], reason: str = "") -> None:
        self.running.pop(entry.id, None)
        self._move(entry, state, record, reason)

    def _back(
        self, entry: TaskState, record: dict[str, Any], *, delay: float = 0.0, first: bool = False
    ) -> None:
        self.running.pop(entry.id, None)
        self._move(entry, READY, record)
        entry.delay = delay
        self._make_ready(entry, first=first)

    def _move(self, entry: TaskState, state: str, record: dict[str, Any], reason: str = "") -> None:
        entry.state = state
        entry.changed_at = record.get("at", "")
        entry.reason = reason or record.get("reason", "")

    def _make_ready(self, entry: TaskState, *, first: bool = False) -> None:
        if entry.open_dependencies:
            return
        if entry.delay > 0:
            heapq.heappush(self._delayed, (entry.due(), entry.id))
        else:
            self._ready.add(entry, first=first)

    def _is_due(self, moment: float, task_id: str, now: float) -> bool:
        """Return whether a delay is over, even if the clock was set back.

        No task waits longer than its delay.
        """
        entry = self.entries[task_id]
        return now >= moment or now < moment - entry.delay

    def _link(self, entry: TaskState) -> None:
        for name in entry.after:
            known = self.entries.get(name)
            if known is None or known.state != DONE:
                self._dependents.setdefault(name, []).append(entry.id)
                entry.open_dependencies += 1
