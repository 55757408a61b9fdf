"""The tools for questions: the answers that an agent reads.

The words of a question and its options are quoted, because another agent wrote them. The
answer to the agent's own question is in a field of its own, as it was given, with who
gave it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swarm.agents.session import AgentSession
from swarm.errors import LockLost, NoQuestion, NotYours
from swarm.queue.questions.question import AGENT, MAX_TEXT_BYTES, PERSON, Question, are_numbered
from swarm.terminal.text import foreign, foreign_name, quoted

_MAX_ROWS = 20
_WORDS = {
    PERSON: "A person answered: go on as the answer says.",
    AGENT: "Another agent answered, not a person: judge its answer, then go on.",
}
_BY_RULE = "No person answered, the answer follows from a rule: go on as the answer says."


def ask(
    session: AgentSession, task: str, stop: Callable[[str], str], **given: Any
) -> dict[str, Any]:
    """Ask about a task of the session, and return what the agent reads."""
    try:
        found = session.ask(task, **given)
    except LockLost as lost:
        return {"answered": False, "must_stop": True, "reason": str(lost), "next": stop(task)}
    except NotYours as error:
        return {
            "answered": False,
            "must_stop": False,
            "reason": str(error),
            "next": "Ask only about a task that you have claimed.",
        }
    except NoQuestion as error:
        return {
            "answered": False,
            "must_stop": False,
            "reason": str(error),
            "next": "There will be no answer. Look at the board.",
        }
    if found.is_open:
        return {
            "answered": False,
            "waiting": True,
            "question": found.id,
            "must_stop": False,
            "next": "No answer yet. To wait on, call ask again with the same arguments.",
        }
    return {
        "answered": True,
        "question": found.id,
        "answer": found.answer,
        "answered_by": foreign_name(found.answered_by),
        "answered_as": found.answered_as,
        "must_stop": False,
        "next": _WORDS.get(found.answered_as, _BY_RULE),
    }


def answer(session: AgentSession, question: str, text: str) -> dict[str, Any]:
    """Answer a question of another agent as an agent."""
    try:
        found = session.queue.answer(question, text, session.worker, AGENT)
    except NoQuestion as error:
        return {
            "answered": False,
            "must_stop": False,
            "reason": str(error),
            "next": "Your answer was not delivered. Call questions to see which are open.",
        }
    return {
        "answered": True,
        "question": found.id,
        "must_stop": False,
        "next": "It counts as the answer of an agent. Go on.",
    }


def questions(session: AgentSession) -> dict[str, Any]:
    """Return the open questions, the oldest first."""
    found = session.queue.questions()
    rows = [_row(each, is_own=each.worker == session.worker) for each in found[:_MAX_ROWS]]
    return {
        "questions": rows,
        "left_out": len(found) - len(rows),
        "must_stop": False,
        "next": (
            "Answer only if you know, and only where may_answer is true: call answer with the id."
            if rows
            else "No question is open."
        ),
    }


def _row(question: Question, *, is_own: bool) -> dict[str, Any]:
    numbered = are_numbered(question.options)
    default = {"default": foreign(question.default), "due": question.due} if question.due else {}
    return {
        "id": question.id,
        "task": foreign_name(question.task_id),
        "asked_by": foreign_name(question.worker),
        "asked_at": question.asked_at,
        "text": foreign(question.text, MAX_TEXT_BYTES),
        "options": [
            f"{number}: {foreign(each, 500)}" if numbered else foreign(each, 500)
            for number, each in enumerate(question.options, 1)
        ],
        **default,
        "kind": question.kind,
        "is_parked": question.is_parked,
        "may_answer": question.accepts(AGENT) and not is_own,
        "for_a_person": f"swarm answer {quoted(question.id)}",
    }
