"""The steps of processes that ask and answer, for `queue_explorer`, and their promises.

Every answer names the token of the question that its process has read. So the explorer
sees at once if an answer reaches another attempt than the one that asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proof.queue_world import TASK, Port
from swarm.queue.events import ASKING, RUNNING, parse_event
from swarm.queue.log import QueueLog
from swarm.queue.questions import asking
from swarm.queue.questions.held import HeldQuestion
from swarm.queue.questions.question import PERSON, ask_fields
from swarm.queue.state import QueueState
from swarm.queue.task_state import TaskState

_FIELDS = ask_fields("Which?")
Notes = Iterable[tuple[Any, ...]]


def ask(log: QueueLog, worker: str, token: int, port: Port) -> None:
    """Ask, look once whether there is an answer, and note the answer."""
    question = asking.ask(log, TASK, worker, token, _FIELDS, None)
    found = HeldQuestion(question).look(log)
    if not found.is_open:
        port.notes.append(("got", token, found.answer))
        asking.dismiss(log, found, worker)


def answer(log: QueueLog, worker: str, port: Port) -> None:
    """Answer the oldest question, and note that the answer counts."""
    log.read()
    found = asking.open_questions(log)
    if found:
        text = f"for {found[0].token}"
        asking.answer(log, found[0].id, text, worker, PERSON)
        port.notes.append(("counts", found[0].id))


def violation(notes: Notes) -> str:
    """Return the promise about answers that the notes of all processes break, else ""."""
    counted: set[str] = set()
    for what, *rest in notes:
        if what == "got" and rest[1] != f"for {rest[0]}":
            return f"the attempt with token {rest[0]} got an answer {rest[1]}"
        if what == "counts" and rest[0] in counted:
            return f"two answers to {rest[0]} were told that they count"
        if what == "counts":
            counted.add(rest[0])
    return ""


def line_violation(before: TaskState | None, accepted: bool, line: bytes) -> str:
    """Return the promise about answers that a line of the log breaks, else "". `before`
    is the task before the line was applied.
    """
    record = parse_event(line)
    if record["op"] != "answer" or not accepted or before is None:
        return ""
    asked = {each.id: each for each in before.asked()}.get(record["question"])
    if asked is None or not asked.is_open:
        return f"a second answer to {record['question']} counts"
    state = ASKING if asked.is_parked else RUNNING
    if asked.token != before.token or before.state != state:
        return f"an answer to token {asked.token} counts for token {before.token}"
    return ""


class AnswersReachTheNextAttempt(QueueState):
    """Keep the questions of a claim that another worker took over."""

    def _claim(self, entry: TaskState, record: dict[str, Any]) -> bool:
        before = entry.questions
        accepted = super()._claim(entry, record)
        if accepted and before:
            entry.questions = before
            self.asking[entry.id] = entry
        return accepted


class EveryAnswerCounts(QueueState):
    """Take an answer to a question that was answered before."""

    def _answer(self, entry: TaskState, record: dict[str, Any]) -> bool:
        asked = tuple(
            each.replace(answered_as="").columns if each.id == record["question"] else each.columns
            for each in entry.asked()
        )
        entry.questions = asked
        return super()._answer(entry, record)
