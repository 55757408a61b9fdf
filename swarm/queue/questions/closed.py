"""Say why a question takes no answer: it was answered before, or it is over.

The state of the queue forgets a question when its asker has the answer. The status
records still know who answered first.
"""

from __future__ import annotations

from collections.abc import Iterator

from swarm.errors import NoQuestion
from swarm.queue.log import QueueLog
from swarm.queue.questions.question import DEFAULT, POLICY, Question
from swarm.status.events import is_from_agent
from swarm.status.log import parse_record
from swarm.terminal.text import foreign, foreign_name


def no_question(log: QueueLog, name: str) -> NoQuestion:
    """Return why there is no open question with this id or of this task."""
    entry = log.state.entries.get(name)
    if found := next(_answered(log, name), None):
        return _answered_first(found)
    if entry is not None:
        return NoQuestion(
            f"{foreign_name(name)} asks nothing: it is {entry.shown_state}. See: swarm questions"
        )
    if first := _in_status(log, name):
        return _answered_first(first)
    return NoQuestion(
        f"there is no open question {foreign_name(name)}: it was withdrawn, its attempt is over, "
        "or it never existed. See: swarm questions"
    )


def _answered(log: QueueLog, name: str) -> Iterator[Question]:
    """Yield the questions with this id or of this task that were answered, the newest
    first.
    """
    for entry in log.state.asking.values():
        for each in reversed(entry.asked()):
            if not each.is_open and name in (each.id, each.task_id):
                yield each


def _in_status(log: QueueLog, question_id: str) -> Question | None:
    """Return the answered question as the status records tell of it."""
    for line in log.status.lines_of(question_id):
        record = parse_record(line) or {}
        meta = record.get("meta")
        if not isinstance(meta, dict) or is_from_agent(record) or record.get("state") != "SKIP":
            continue
        if meta.get("question") == question_id and meta.get("answer") and meta.get("source"):
            return Question(
                id=question_id,
                task_id=str(record.get("task_id")),
                token=0,
                worker="",
                text="",
                asked_at="",
                answer=str(meta["answer"]),
                answered_by=str(record.get("worker")),
                answered_as=str(meta["source"]),
            )
    return None


def _answered_first(question: Question) -> NoQuestion:
    what = foreign(question.answer)
    if question.answered_as == DEFAULT:
        why = f"there was no answer in time, and the default counted: {what}"
    elif question.answered_as == POLICY:
        why = f"a policy of the project answered first: {what}"
    else:
        why = f"{foreign_name(question.answered_by)} answered first: {what}"
    return NoQuestion(f"{question.id} is not open any more: {why}. Your answer does not count.")
