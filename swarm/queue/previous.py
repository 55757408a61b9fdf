"""The attempt before the present one: why it failed, and what a person said about it.

The queue's log has all of it. The state keeps a bounded part for the next claim: the
newest reason, the end of the feedback, and the last note of a person.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats.frozen_record import FrozenRecord
from swarm.terminal.text import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from swarm.queue.questions.question import Question

MAX_FEEDBACK_BYTES = 4096
MAX_NOTE_BYTES = 4096
_MAX_REASON = 500  # characters
_MAX_ANSWER = 4000  # characters of a question or an answer
_MAX_ANSWERS = 64_000  # characters of all questions and answers
_MAX_SESSION_BYTES = 200

REOPENED = "the task was reopened after it was done"


class Previous(FrozenRecord):
    """What the next attempt at a task should know about the attempts before it."""

    reason: str = ""
    """Why the last attempt did not end as done."""
    feedback: str = ""
    """The end of the output of a check or of the agent. For a reopened task: its result."""
    note: str = ""
    """A person's words, given at a retry or when the task was reopened."""
    session: str = ""
    """The agent's session of the last attempt, "" if it is unknown."""
    agent: str = ""
    """The agent of the last attempt."""
    work: str = ""
    """The commit with the saved work of the last attempt, "" if there is none that has
    not landed."""
    answers: tuple[Sequence[str], ...] = ()
    """Questions of earlier attempts, each with its answer and who gave it."""

    @property
    def columns(self) -> tuple[Any, ...]:
        """The fields in order, () if all are empty."""
        values = tuple(self.as_dict().values())
        return values if any(values) else ()

    def after_failure(self, record: dict[str, Any], agent: str) -> Previous:
        return Previous(
            reason=shorten(record.get("reason", ""), _MAX_REASON),
            feedback=record.get("feedback", ""),
            note=self.note,
            session=record.get("session", ""),
            agent=record.get("agent") or agent,
            work=record.get("work") or self.work,
            answers=self.answers,
        )

    def after_answer(self, question: Question) -> Previous:
        """Return what is known after a parked question was answered."""
        pair = (
            shorten(question.text, _MAX_ANSWER),
            shorten(question.answer, _MAX_ANSWER),
            question.answered_as,
        )
        return self.replace(answers=_newest((*self.answers, pair)))

    def after_release(self, record: dict[str, Any], agent: str) -> Previous:
        """Return what is known after a release, or after an agent has ended with a
        question: a new reason only with feedback, a new session and new work if there is
        any.
        """
        found = self.replace(work=record.get("work") or self.work)
        if record.get("feedback"):
            found = found.after_failure(record, agent).replace(
                session=self.session, agent=self.agent
            )
        if record.get("session"):
            found = found.replace(session=record["session"], agent=record.get("agent") or agent)
        return found

    def after_done(self, record: dict[str, Any], agent: str) -> Previous:
        """Return what is kept of a task that is done: the session, and work that has not
        landed, in case the task is reopened.
        """
        session = record.get("session", "")
        return Previous(
            session=session,
            agent=(record.get("agent") or agent) if session else "",
            work=record.get("work", ""),
        )

    def after_submit(self, record: dict[str, Any], agent: str) -> Previous:
        """Return what the next attempt must know if this work does not land: the work and
        the session.
        """
        known = self.after_done(record, agent)
        return self.replace(session=known.session, agent=known.agent, work=known.work)

    def after_return(self, record: dict[str, Any]) -> Previous:
        """Return what is known after a submission was sent back: the new reason, and the
        session and the work of the attempt.
        """
        return self.after_failure(record, self.agent).replace(session=self.session)

    def after_landing(self) -> Previous:
        """Return what is kept of a task whose work has landed: only the session, in case
        the task is reopened.
        """
        return Previous(session=self.session, agent=self.agent if self.session else "")

    def recurred(self, *, failed: bool) -> Previous:
        """Return what the next run of a task that recurs should know: why this run has
        failed. It begins without the session and the work of this run.
        """
        if not failed:
            return NOTHING
        return Previous(reason=self.reason, feedback=self.feedback, note=self.note)

    def reopened(self, record: dict[str, Any], result: str) -> Previous:
        return self.replace(
            reason=REOPENED,
            feedback=_end_of(result, MAX_FEEDBACK_BYTES),
            note=record.get("note", ""),
        )


def of(columns: tuple[Any, ...]) -> Previous:
    if not columns:
        return NOTHING
    found = Previous(*columns)
    return found.replace(answers=tuple(map(tuple, found.answers)))  # JSON has lists


NOTHING = Previous()


def checked_fields(
    feedback: str = "", session: str = "", agent: str = "", work: str = ""
) -> dict[str, str]:
    """Return the fields of an event that ends a claim, cut to what the state keeps.

    Of a longer feedback, its end is kept. A session that cannot be an identifier is left
    out.
    """
    is_session = session.isprintable() and len(session.encode()) <= _MAX_SESSION_BYTES
    return {
        "feedback": _end_of(feedback, MAX_FEEDBACK_BYTES),
        "session": session if is_session else "",
        "agent": agent,
        "work": work,
    }


def check_note(note: str) -> str:
    """Return a person's note. Raise BadInput if it is too long."""
    if len(note.encode()) > MAX_NOTE_BYTES:
        raise BadInput(
            f"the note has more than {MAX_NOTE_BYTES} bytes. Put it in a file, and name the file."
        )
    return note


def _newest(answers: tuple[Sequence[str], ...]) -> tuple[Sequence[str], ...]:
    """Return as many of the last answers as the state keeps."""
    size = sum(len(word) for each in answers for word in each)
    while size > _MAX_ANSWERS:
        size -= sum(map(len, answers[0]))
        answers = answers[1:]
    return answers


def _end_of(text: str, size: int) -> str:
    """Return at most so many bytes from the end of a text."""
    data = text.encode(errors="replace")
    return text if len(data) <= size else "…" + data[3 - size :].decode(errors="ignore")
