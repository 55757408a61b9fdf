"""What an agent needs to know now: who it is, what its task is, who else works, what waits, and the commands to go on with.

It is short however large the swarm is: where there is more, it says how much. What others wrote stands on one line, cut, and is
theirs: the reader is told so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from swarm.board.board import ActiveTask, Problem
from swarm.board.viewer import Viewer
from swarm.errors import NoTask
from swarm.formats import json_codec
from swarm.locks.reservations import Reservation, Reservations
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from swarm.terminal.text import duration, quoted, shown

_MAX_ROWS = 8  # of each list
_MAX_TEXT = 160  # characters of what somebody else wrote
_MAX_PROMPT = 4000  # characters of the prompts of its tasks; `swarm task show` has the rest


@dataclass(frozen=True)
class OwnTask:
    """A task of the agent's. `managed`: another process keeps its lease alive and ends it; `queued`: it is one of the queue,
    not a lock alone."""

    task_id: str
    token: int | None
    lease_left: float | None
    prompt: str
    managed: bool
    queued: bool


@dataclass(frozen=True)
class Brief:
    worker: str
    tasks: tuple[OwnTask, ...]
    others: tuple[ActiveTask, ...]
    waiting: tuple[Problem, ...]
    """What waits for a person."""
    reserved: tuple[Reservation, ...]
    """By others."""
    queue: dict[str, int]

    def fields(self) -> dict[str, Any]:
        """The brief as JSON shows it."""
        return {
            "schema_version": json_codec.SCHEMA_VERSION,
            "worker": self.worker,
            "your_tasks": [asdict(task) for task in self.tasks],
            "others": [{"worker": w.worker, "task_id": w.task_id, "held_for": w.held_for} for w in self.others],
            "waiting_for_a_person": [{"task_id": p.task_id, "worker": p.worker, "text": p.text} for p in self.waiting],
            "reserved_by_others": [each.fields() for each in self.reserved],
            "queue": self.queue,
            "next": self._commands(),
        }

    def text(self) -> str:
        lines = [
            f"You are worker {shown(self.worker)} in a swarm: several agents share one job, and no task is done twice.",
            *self._own_lines(),
            *_section("Others at work", [f"{_cut(w.worker)} on {_cut(w.task_id)}{_since(w.held_for)}" for w in self.others]),
            *_section("Waiting for a person", [f"{_cut(p.task_id)} ({_cut(p.worker)}): {_cut(p.text)}" for p in self.waiting]),
            *_section("Reserved by others, do not edit", [f"{_cut(r.pattern)} ({_cut(r.worker)})" for r in self.reserved]),
            f"Queue: {', '.join(f'{count} {state}' for state, count in self.queue.items() if count) or 'empty'}.",
            "",
            *(f"{what}: {command}" for what, command in self._commands().items()),
            "",
            "If a command says must_stop, or exits with 1 or 4, you do not have the task: stop working on it.",
        ]
        return "\n".join(lines) + "\n"

    def _own_lines(self) -> list[str]:
        if not self.tasks:
            return ["You have no task yet. Work on nothing that you have not claimed."]
        lines = []
        for own in self.tasks[:_MAX_ROWS]:
            lease = "" if own.lease_left is None else f", lease for {duration(max(0.0, own.lease_left))} more"
            kind = "task" if own.queued else "lock"
            lines.append(
                f"Your {kind}: {shown(own.task_id)} ({'no token' if own.token is None else f'token {own.token}'}{lease})."
            )
            lines += [f"  {shown(line)}" for line in own.prompt.splitlines()]
            if own.managed:
                lines.append(
                    "  Whoever started you keeps it alive and ends it when you end: neither claim nor finish it yourself."
                )
        return lines if len(self.tasks) <= _MAX_ROWS else [*lines, f"And {len(self.tasks) - _MAX_ROWS} more of yours."]

    def _commands(self) -> dict[str, str]:
        who = quoted(self.worker)
        commands: dict[str, str] = {}
        for own in self.tasks[:1]:
            task = quoted(own.task_id)
            token = "" if own.token is None else f" --token {own.token}"
            mine = f"{task} --worker {who}{token}"
            commands["ask a person"] = f"swarm log append HELP {who} {task} 'what you need to know'"
            if own.managed:
                continue
            commands["keep it (every few minutes)"] = f"swarm lock heartbeat {task} {who}{token}"
            if own.queued:
                commands["when it is done"] = f"swarm task done {mine} 'what you did'"
                commands["if it fails"] = f"swarm task fail {mine} 'what went wrong'"
                commands["to give it back"] = f"swarm task release {mine}"
            else:
                commands["to give it back"] = f"swarm lock release {task} {who}{token}"
        if not self.tasks:
            commands["take the next task"] = f"swarm task claim --worker {who}"
        commands["before you edit files that others may want"] = f"swarm reserve 'src/some/dir/**' --worker {who}"
        commands["see everything"] = "swarm status"
        return commands


def brief(store: Store, worker: str, started_for: str = "") -> Brief:
    """How things stand for a worker. `started_for`: the task that whoever started it holds for it."""
    board = Viewer(store).look()
    queue = TaskQueue(store)
    works = [work for work in board.workers if work.worker == worker]
    own = [_own(queue, work, _MAX_PROMPT // len(works), managed=work.task_id == started_for) for work in works]
    return Brief(
        worker=worker,
        tasks=tuple(sorted(own, key=lambda each: not each.queued)),
        others=tuple(work for work in board.workers if work.worker != worker),
        waiting=tuple(problem for problem in board.problems if problem.kind == "waiting"),
        reserved=tuple(each for each in Reservations(store).all() if each.worker != worker),
        queue=board.queue,
    )


def _own(queue: TaskQueue, work: ActiveTask, room: int, *, managed: bool) -> OwnTask:
    try:
        prompt, queued = queue.get(work.task_id).spec.prompt or "", True
    except NoTask:
        prompt, queued = "", False
    if len(prompt) > room:
        prompt = f"{prompt[:room]}\n… all of it: swarm task show {quoted(work.task_id)}"
    return OwnTask(work.task_id, work.token, work.lease_left, prompt, managed, queued)


def _section(title: str, rows: Sequence[str]) -> list[str]:
    if not rows:
        return []
    more = f"; and {len(rows) - _MAX_ROWS} more" if len(rows) > _MAX_ROWS else ""
    return [f"{title}: {'; '.join(rows[:_MAX_ROWS])}{more}."]


def _since(seconds: float | None) -> str:
    return "" if seconds is None else f" for {duration(seconds)}"


def _cut(text: str) -> str:
    text = shown(" ".join(text.split()))
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
