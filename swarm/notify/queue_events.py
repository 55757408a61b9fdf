"""Events that follow from the queue's log: questions, failures, landings, gates, the end.

The state of the queue decides: a line that changes nothing is no event.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from swarm.notify.event import (
    BUDGETS,
    FAILURES,
    FINISHED,
    LANDINGS,
    LIMITS,
    QUESTIONS,
    Event,
    event_id,
    short,
)
from swarm.notify.recent import Recent
from swarm.queue.events import FAILED, READY, RUNNING, SUBMITTED, parse_event
from swarm.queue.pauses import pausing
from swarm.queue.retention.documents import EVENTS
from swarm.queue.state import QueueState
from swarm.queue.task_state import TaskState
from swarm.terminal.text import foreign_name

_BEGIN_AGAIN = ("add", "claim", "retry", "reopen", "release", "void", "answer")


class QueueEvents:
    """The queue after the lines that were read, and the last events."""

    VERSION = 100 * QueueState.VERSION + 2

    def __init__(self) -> None:
        self.queue = QueueState()
        self.recent = Recent()
        self._is_finished = True  # told, or there never was a task

    def __len__(self) -> int:
        return len(self.queue)

    def apply(self, line: bytes) -> bool:
        try:
            record = parse_event(line)
        except (ValueError, TypeError):
            return self.queue.apply(line)
        name = record.get("id")
        before = self._state_of(name)
        changed = self.queue.apply(line)
        after = self._state_of(name)
        if changed or before != after:
            self._derive(line, record, before)
        return changed

    def dump(self) -> Any:
        return [self.queue.dump(), self.recent.dump(), self._is_finished]

    def load(self, data: Any) -> None:
        queue, recent, self._is_finished = data
        self.queue.load(queue)
        self.recent.load(recent)

    @property
    def folded(self) -> dict[str, Any]:
        return self.queue.folded

    def kept(self) -> Iterator[dict[str, Any]]:
        """Yield the whole state as JSON objects with named fields: the queue's, which it
        reads alone, and the last events.
        """
        yield from self.queue.kept()
        yield {EVENTS: {"recent": self.recent.dump(), "is_finished": self._is_finished}}

    def restore(self, documents: Iterator[dict[str, Any]]) -> None:
        found = list(documents)
        self.queue.restore(iter(found))
        events = next((each[EVENTS] for each in found if EVENTS in each), None)
        if events is not None:
            self.recent.load(events["recent"])
            self._is_finished = events["is_finished"]

    def _state_of(self, name: object) -> str:
        entry = self.queue.entries.get(name) if isinstance(name, str) else None
        return entry.state if entry else ""

    def _derive(self, line: bytes, record: dict[str, Any], before: str) -> None:
        op = record["op"]
        if op == "ask":
            self._add_question(line, record)
        elif op == "close":
            self._add_gate(line, record)
        else:
            if op == "landed":
                self._add_landing(line, record)
            entry = self.queue.entries.get(record.get("id", ""))
            if entry is not None and _has_failed(entry, before):
                self._add_failure(line, record, entry)
            self._look_for_end(line, record)

    def _add_question(self, line: bytes, record: dict[str, Any]) -> None:
        number = f"q{self.queue.questions}"
        name = foreign_name(record["id"])
        options = [str(option) for option in record.get("options", ())]
        facts = {
            "question": number,
            "options": options,
            "default": record.get("default") or None,
            "due": record.get("due") or None,
            "needs": record.get("needs") or "anyone",
            "answer": f"swarm answer {number} TEXT",
        }
        self._add(QUESTIONS, line, record, f"{name} asks ({number})", record["text"], facts)

    def _add_failure(self, line: bytes, record: dict[str, Any], entry: TaskState) -> None:
        facts = {"token": entry.token, "attempts": entry.attempts}
        title = f"{foreign_name(entry.id)} has failed"
        self._add(FAILURES, line, record, title, entry.reason, facts, worker=entry.worker)

    def _add_landing(self, line: bytes, record: dict[str, Any]) -> None:
        branch, commit = record.get("branch", ""), record.get("commit", "")
        title = f"{foreign_name(record['id'])} has landed"
        text = f"on {foreign_name(branch)}: {commit[:12]}" if branch else ""
        self._add(LANDINGS, line, record, title, text, {"branch": branch, "commit": commit})

    def _add_gate(self, line: bytes, record: dict[str, Any]) -> None:
        gate = self.queue.gates.get(record["gate"])
        if gate is None or gate.since != record.get("at", ""):
            return  # it was closed already, and stays closed for longer
        kind = BUDGETS if gate.budget else LIMITS
        until = f"until {gate.until}" if gate.until else "until a user opens it"
        what = "A budget is reached" if gate.budget else "A gate is closed"
        title = f"{what}: {foreign_name(gate.agent)}, {until}"
        if gate.is_pause:
            title = pausing.summary(gate.replace(reason=""))
            title = title[:1].upper() + title[1:]
        budget = gate.budget if math.isfinite(gate.budget) else None  # JSON has no infinity
        facts = {"gate": gate.agent, "until": gate.until or None, "budget": budget or None}
        self._add(kind, line, record, title, gate.reason, facts)

    def _look_for_end(self, line: bytes, record: dict[str, Any]) -> None:
        if record["op"] in _BEGIN_AGAIN:
            self._is_finished = False
        queue = self.queue
        if self._is_finished or queue.running or queue.submitted or queue.asking:
            return
        if not queue.is_finished():
            return
        self._is_finished = True
        counts = queue.counts()
        text = ", ".join(f"{number} {state}" for state, number in counts.items())
        self._add(FINISHED, line, record, "No task is left to do", text, {"tasks": counts}, task="")

    def _add(
        self,
        kind: str,
        line: bytes,
        record: dict[str, Any],
        title: str,
        text: str,
        facts: dict[str, Any],
        *,
        task: str | None = None,
        worker: str = "",
    ) -> None:
        self.recent.add(
            Event(
                event_id(kind, line),
                kind,
                record.get("at", ""),
                title,
                short(text),
                record.get("id", "") if task is None else task,
                short(worker or record.get("worker", "")),
                facts,
            )
        )


def _has_failed(entry: TaskState, before: str) -> bool:
    """Return whether a task has just failed, or a run of a task that recurs."""
    if entry.state == FAILED:
        return before != FAILED
    has_run = before in (RUNNING, SUBMITTED) and entry.state == READY
    return has_run and entry.last_run == FAILED and bool(entry.not_before)
