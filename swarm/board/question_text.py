"""The open questions of a board as lines for a screen.

The words of the agent are quoted as «…». The questions are drawn with as much detail as
fits: whole, then with one line of text, then each on one line. If not even that fits,
the last line says how many are missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from swarm.board.board import QuestionRow
from swarm.board.lines import Line, wrapped
from swarm.board.question_facts import facts
from swarm.queue.questions.question import PERMISSION, PERSON, are_numbered
from swarm.system.clock import from_iso
from swarm.terminal.text import cut, duration, fill, foreign, shown, width

_MAX_TEXT = 1200  # characters of the words of an agent
_MAX_FACT = 300  # characters of what a permission is about
_TEXT_ROWS = 6  # of the text of a question, if there is room
_OPTION_ROWS = 6  # of its options


def question_lines(
    questions: Sequence[QuestionRow],
    columns: int,
    now: float,
    room: int,
    most: int,
    selected: object = None,
) -> list[Line]:
    """Return the heading and the questions.

    If `room` lines are enough for more than one line for each question, use them. Never
    use more than `most` lines. The selected question has a mark, and is not left out.
    """
    screen = _Questions(questions, columns, now, selected)
    for text_rows, option_rows in ((_TEXT_ROWS, _OPTION_ROWS), (1, 1)):
        lines = screen.whole(text_rows, option_rows)
        if len(lines) <= room:
            return lines
    return screen.short(max(2, most))


def facts_line(question: QuestionRow, now: float) -> str:
    """Return what a question is about besides its words: its kind, how long it waits, and
    when its default counts.
    """
    since, due = from_iso(question.since), from_iso(question.due)
    facts = [] if since is None else [duration(max(0.0, now - since))]
    if question.kind == PERMISSION:
        facts.append("permission")
    if question.is_parked:
        facts.append("parked")
    if question.needs == PERSON:
        facts.append("for a person")
    if question.default:
        left = "now" if due is None or due <= now else f"in {duration(due - now)}"
        facts.append(f"{foreign(question.default, 60)} counts {left}")
    return " · ".join(facts)


def option_texts(question: QuestionRow) -> list[str]:
    """Return the options as an answer may give them: with their numbers, unless an option
    is a number itself.
    """
    numbered = are_numbered(question.options)
    return [
        f"{number} {foreign(each, 200)}" if numbered else foreign(each, 200)
        for number, each in enumerate(question.options, 1)
    ]


class _Questions:
    def __init__(
        self, questions: Sequence[QuestionRow], columns: int, now: float, selected: object
    ) -> None:
        self._questions = questions
        self._columns = columns
        self._now = now
        self._selected = selected
        self._indent = max(width(shown(each.id)) for each in questions) + 2

    def whole(self, text_rows: int, option_rows: int) -> list[Line]:
        lines: list[Line] = [[("Questions", "bold")]]
        for question in self._questions:
            lines += self._question(question, text_rows, option_rows)
        return lines

    def short(self, rows: int) -> list[Line]:
        """Return one line for each question, at most `rows` lines with the heading."""
        heading: Line = [("Questions", "bold"), (f"  {self._questions[0].fix}", "dim")]
        left = rows - 1
        if len(self._questions) <= left:
            return [heading, *map(self._line, self._questions)]
        count = max(1, left - 1)
        at = next((i for i, each in enumerate(self._questions) if each is self._selected), 0)
        first = max(0, at + 1 - count)
        drawn: list[Line] = [self._line(each) for each in self._questions[first : first + count]]
        if left > 1:
            more = len(self._questions) - count
            drawn.append(
                [(" " * self._indent, ""), (f"… and {more} more, see: swarm questions", "dim")]
            )
        return [heading, *drawn]

    def _question(self, question: QuestionRow, text_rows: int, option_rows: int) -> list[Line]:
        room = self._columns - self._indent
        pad = (" " * self._indent, "")
        who = f" · {cut(shown(question.worker), 24)} · {facts_line(question, self._now)}"
        lines: list[Line] = [
            [*self._label(question), (cut(shown(question.task_id), 32), "bold"), (who, "")]
        ]
        rows = wrapped(foreign(question.text, _MAX_TEXT), room, room, text_rows)
        lines += [[pad, (row, "")] for row in rows]
        about = facts(question.about, question.text)
        if about and text_rows > 1:
            words = ", ".join(f"{name}: {text}" for name, text in about.items())
            rows = wrapped(foreign(words, _MAX_FACT), room, room, 3)
            lines += [[pad, (row, "dim")] for row in rows]
        if question.options:
            options = "   ".join(option_texts(question))
            lines += [[pad, (row, "")] for row in wrapped(options, room, room, option_rows)]
        return [*lines, [pad, (question.fix, "dim")]]

    def _line(self, question: QuestionRow) -> Line:
        options = " ".join(option_texts(question))
        return [
            *self._label(question),
            (cut(shown(question.task_id), 24), "bold"),
            (f": {foreign(question.text, _MAX_TEXT)}", ""),
            (f"  {options}" if options else "", "dim"),
        ]

    def _label(self, question: QuestionRow) -> Line:
        mark = "▸ " if question is self._selected else "  "
        return [(fill(shown(question.id), self._indent - 2) + mark, "yellow")]
