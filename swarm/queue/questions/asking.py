"""Ask questions about tasks, and answer them.

Both are events of the queue's log, and the log decides: of several answers the first
one counts. The status records that follow only inform: WAIT with the question, then
SKIP with the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm import settings
from swarm.errors import BadInput, LockLost, NoQuestion, NotYours, StoreError
from swarm.locks.binding import is_foreign, why_foreign, works_for
from swarm.queue.ending import Ending
from swarm.queue.events import RUNNING, unique_event
from swarm.queue.log import QueueLog
from swarm.queue.questions.closed import no_question
from swarm.queue.questions.question import AGENT, DEFAULT, MAX_OPEN, SOURCES, Question
from swarm.queue.task_state import TaskState
from swarm.status.events import asked
from swarm.system.clock import from_iso, to_iso
from swarm.system.family import this_process
from swarm.terminal.text import foreign_name


def ask(
    log: QueueLog,
    task_id: str,
    worker: str,
    token: int | None,
    fields: Mapping[str, Any],
    after: float | None,
) -> Question:
    """Ask a question, and hold the claim meanwhile. Return the question.

    If the claim has asked the same already, return that question, with its answer if
    there is one. Raise BadInput if that has other settings. Raise LockLost if the worker
    has lost the claim, NotYours if the claim is bound to a process to which this process
    does not belong.
    """
    entry = _claimed(log, task_id, worker, token)
    answer_due(log)
    moment = log.clock.now()
    line = unique_event(
        "ask",
        at=log.clock.written(moment),
        id=task_id,
        worker=worker,
        token=entry.token,
        due=_due(moment, after),
        **fields,
    )
    is_new = log.append(line)
    entry = log.current(task_id)
    found = [each for each in entry.asked() if each.text == fields["text"]]
    if entry.state != RUNNING or (token is not None and entry.token != token):
        raise _lost(entry, worker)
    if not found:
        raise NoQuestion(
            f"{foreign_name(task_id)} has {MAX_OPEN} questions already. Wait for their answers."
        )
    if not is_new and (others := found[-1].differences(fields, after)):
        raise BadInput(
            f"{found[-1].id} asks the same with other settings ({', '.join(others)}). Ask it with "
            "the same settings to wait for its answer, or withdraw it first."
        )
    if is_new:
        question = found[-1]
        log.status.append("WAIT", worker, task_id, question.text, asked(question.id, entry.token))
    return found[-1]


def parking(
    log: QueueLog,
    task_id: str,
    worker: str,
    token: int | None,
    fields: Mapping[str, Any],
    after: float | None,
) -> Ending:
    """Return the request to end a claim with a question, see `Endings.end`."""
    whole = {**fields, "park": True, "due": _due(log.clock.now(), after)}
    return Ending("ask", task_id, worker, token, whole)


def answer(log: QueueLog, question_id: str, text: str, worker: str, source: str) -> Question:
    """Answer a question. Return it with its answer.

    Raise NoQuestion if it is not open any more, or if it does not accept an answer from
    this source. Raise BadInput if the text is no answer to it.
    """
    assert source in SOURCES
    log.read()
    if source != DEFAULT:
        answer_due(log)
    found = find(log, question_id)
    if source == AGENT and _is_asker(log, found, worker):
        raise NoQuestion(
            f"{found.id} is a question of {foreign_name(found.worker)}: the agent that asks cannot "
            "answer. Wait for the answer of a person or of another agent."
        )
    chosen = text if source == DEFAULT else found.choose(text)
    line = unique_event(
        "answer",
        at=log.now(),
        id=found.task_id,
        question=found.id,
        worker=worker,
        answer=chosen,
        source=source,
    )
    if not log.append(line):
        raise _refusal(log, found, source)
    who = "the default counts" if source == DEFAULT else f"answered by {foreign_name(worker)}"
    log.status.append(
        "SKIP",
        worker,
        found.task_id,
        f"{who}: {chosen}",
        {
            **asked(found.id, found.token),
            "answer": chosen,
            "source": source,
            "process": this_process(),
        },
    )
    return found.replace(
        answer=chosen, answered_by=worker, answered_as=source, answered_at=log.now()
    )


def dismiss(log: QueueLog, question: Question, worker: str) -> None:
    """Note that the agent has the answer, or needs none any more.

    If the agent goes on without an answer, log START, since it does not wait any more.
    """
    line = unique_event(
        "dismiss",
        at=log.now(),
        id=question.task_id,
        question=question.id,
        worker=worker,
        token=question.token,
    )
    if log.append(line):
        log.status.append("START", worker, question.task_id, "goes on", {"token": question.token})


def answer_due(log: QueueLog) -> None:
    """Answer the questions whose default counts by now."""
    moment = log.state.next_default()
    if moment is None or moment > log.clock.now():
        return
    for each in open_questions(log):
        due = from_iso(each.due) if each.due else None
        if due is None or due > log.clock.now():
            continue
        try:
            answer(log, each.id, each.default, each.worker, DEFAULT)
        except NoQuestion:
            pass  # another process was faster


def open_questions(log: QueueLog) -> list[Question]:
    """Return the questions that wait for an answer, the oldest first.

    A question that an agent holds ends with its claim, so those of claims whose worker
    is gone are left out, even while no event says so yet.
    """
    return [each for each in log.state.open_questions() if each.is_parked or _is_held(log, each)]


def find(log: QueueLog, name: str) -> Question:
    """Return the open question with this id, or the only open question of the task with
    this id. Raise NoQuestion.
    """
    found = open_questions(log)
    named = [each for each in found if each.id == name] or [
        each for each in found if each.task_id == name
    ]
    if len(named) == 1:
        return named[0]
    if named:
        ids = ", ".join(each.id for each in named)
        raise NoQuestion(f"{foreign_name(name)} asks several questions: {ids}. Name one of them.")
    raise no_question(log, name)


def _is_asker(log: QueueLog, question: Question, worker: str) -> bool:
    """Return whether an agent that answers is the one that asks: by its name, by the token
    in its environment, or because the holder of the claim has started it.
    """
    if worker == question.worker or settings.token_for(question.task_id) == question.token:
        return True
    status = log.locks.status(question.task_id)
    is_held = status.is_held_by(question.worker, question.token)
    return is_held and status.lock is not None and works_for(status.lock)


def _is_held(log: QueueLog, question: Question) -> bool:
    try:
        status = log.locks.status(question.task_id)
    except StoreError:
        return True
    return status.is_held_by(question.worker, question.token)


def _claimed(log: QueueLog, task_id: str, worker: str, token: int | None) -> TaskState:
    """Return the task if this worker has it. Raise LockLost or NotYours."""
    entry = log.entry(task_id)
    if entry.state != RUNNING or entry.worker != worker or token not in (None, entry.token):
        raise _lost(entry, worker)
    status = log.locks.status(task_id)
    if not status.is_held_by(worker, entry.token) or status.lock is None:
        raise _lost(entry, worker)
    if is_foreign(status.lock):
        raise NotYours(
            task_id, f"{foreign_name(task_id)} was not changed: {why_foreign(status.lock)}."
        )
    return entry


def _lost(entry: TaskState, worker: str) -> LockLost:
    return LockLost(
        entry.id,
        f"{foreign_name(worker)} has no claim on {foreign_name(entry.id)}: the task is "
        f"{entry.shown_state}. Only the worker that has a task can ask about it.",
    )


def _refusal(log: QueueLog, question: Question, source: str) -> NoQuestion:
    """Return why an answer did not count."""
    now = {each.id: each for each in log.state.open_questions()}
    if question.id in now and source == AGENT:
        return NoQuestion(
            f"{question.id} needs the answer of a person: an agent's answer does not count. A "
            "person answers in a terminal of their own, or on the page."
        )
    return no_question(log, question.id)


def _due(moment: float, after: float | None) -> str | None:
    return None if after is None else to_iso(moment + after)
