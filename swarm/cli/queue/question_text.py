"""How questions look on a terminal. The words of an agent stand behind bars."""

from __future__ import annotations

from swarm.board.question_facts import facts
from swarm.queue.questions.question import (
    AGENT,
    DEFAULT,
    PERMISSION,
    PERSON,
    POLICY,
    are_numbered,
)
from swarm.system.clock import from_iso
from swarm.terminal.text import duration, foreign, foreign_name, shorten, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.queue.questions.question import Question

_MAX_FACT = 2000  # characters
_SOURCES = {AGENT: "an agent", PERSON: "a person"}


def whole(question: Question, now: float) -> str:
    """Return a question with all that a person needs to answer it."""
    waits = "parked: no worker has the task" if question.is_parked else "held: its attempt goes on"
    what = "wants a permission for" if question.kind == PERMISSION else "asks about"
    who, task = foreign_name(question.worker), foreign_name(question.task_id)
    since = duration(age(question, now))
    found = [f"{question.id}  {who} {what} {task}, {since} ago ({waits})\n", lines(question.text)]
    found += [_fact(*each) for each in facts(question.about, question.text).items()]
    numbered = are_numbered(question.options)
    found += [
        f"{number if numbered else '-':>3} | {shown(option)}\n"
        for number, option in enumerate(question.options, 1)
    ]
    if question.options and question.is_free:
        found.append("  Other words are an answer, too.\n")
    if question.due:
        found.append(
            f"  Without an answer, {foreign(question.default)} counts at {question.due}.\n"
        )
    if question.needs == PERSON:
        found.append("  Only a person may answer, in a terminal of their own or on the page.\n")
    return "".join([*found, f"  Answer: {command(question)}\n"])


def short(question: Question) -> str:
    """Return a question of a task as a line or two of `swarm task show`."""
    state = "parked" if question.is_parked else "held"
    if question.is_open:
        return f"{question.id}, {state}:\n{lines(question.text)}  Answer: {command(question)}\n"
    return (
        f"{question.id}, answered by {answerer(question)}:\n{lines(question.text)}"
        f"  Answer:\n{lines(question.answer)}"
    )


def answerer(question: Question) -> str:
    """Return who answered a question, and as what."""
    if question.answered_as == DEFAULT:
        return "its default, since there was no answer in time"
    if question.answered_as == POLICY:
        return "a policy of the project"
    return f"{foreign_name(question.answered_by)}, {_SOURCES[question.answered_as]}"


def lines(text: str) -> str:
    """Return the words of another, each line behind a bar."""
    return "".join(f"  | {shown(line)}\n" for line in text.splitlines())


def _fact(name: str, text: str) -> str:
    """Return a fact: on one line if it is a plain name, else behind bars."""
    if foreign_name(text) == text:
        return f"  {foreign_name(name)}: {text}\n"
    return f"  {foreign_name(name)}:\n{lines(shorten(text, _MAX_FACT))}"


def command(question: Question) -> str:
    """Return the command that answers."""
    is_number = question.options and are_numbered(question.options)
    return f"swarm answer {question.id} {'NUMBER' if is_number else 'TEXT'}"


def age(question: Question, now: float) -> float:
    """Return the seconds since a question was asked."""
    asked = from_iso(question.asked_at)
    return 0.0 if asked is None else max(0.0, round(now - asked, 3))
