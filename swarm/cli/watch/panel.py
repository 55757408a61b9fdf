"""The lower part of `swarm status --watch`: the selected question or problem, and what the
user types about it.

A panel knows the keys and draws itself. `Acts` does what the keys ask for. A text that
was typed stays until it is sent or the user drops it, even if the board changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from swarm.board.board import Board, Problem, QuestionRow
from swarm.board.lines import wrapped
from swarm.board.question_text import facts_line, option_texts
from swarm.board.text import text as board_text
from swarm.errors import SwarmError
from swarm.queue.questions.question import MAX_TEXT_BYTES
from swarm.system.clock import from_iso
from swarm.terminal.keyboard import Key
from swarm.terminal.output import paint
from swarm.terminal.text import cut, fill, foreign, foreign_name, shown, width

Item = QuestionRow | Problem

LIST, ANSWER, CANCEL, HELP, OUTPUT = "list", "answer", "cancel", "help", "output"
_SMALL = 12  # lines of a screen on which the panel needs all lines but the title
_ABOVE = 3  # a larger screen leaves one of so many lines to the board
_HELP = (
    ("↑ ↓ or k j", "select a question or a problem"),
    ("a or Enter", "answer the selected question: type a text or the number of an option"),
    ("r", "retry the selected task"),
    ("c", "cancel the selected task, after y"),
    ("o", "show the last output of the selected task"),
    ("Esc", "go back"),
    ("q or Ctrl-C", "quit"),
)


class Acts(Protocol):
    """What the keys can do. Each returns a sentence about it, or raises SwarmError."""

    def answer(self, question: str, text: str) -> str: ...

    def retry(self, task: str) -> str: ...

    def cancel(self, task: str) -> str: ...

    def output(self, task: str) -> list[str]: ...


class Panel:
    def __init__(self, acts: Acts) -> None:
        self._acts = acts
        self._mode = LIST
        self._key: object = None  # of the selected item
        self._at = 0  # its position when it was last seen
        self._about: Item | None = None  # the item that is answered or cancelled
        self._typed = ""
        self._note = ""
        self._is_error = False
        self.has_acted = False
        """Whether the last key did something to the swarm."""

    # Keys -----------------------------------------------------------------------------

    def press(self, key: Key, board: Board) -> bool:
        """Do what a key asks for. Return False if the user quits."""
        self.has_acted = False
        if key.name == "end":
            return False
        if self._mode == ANSWER:
            self._type(key)
        elif self._mode == CANCEL:
            self._confirm(key)
        elif self._mode in (HELP, OUTPUT):
            self._mode = LIST
        else:
            return self._command(key, board)
        return True

    def _command(self, key: Key, board: Board) -> bool:
        name = key.text if key.name == "text" else key.name
        self._say("")
        if name == "q":
            return False
        if name in ("j", "down", "k", "up"):
            self._move(board, 1 if name in ("j", "down") else -1)
        elif name == "escape":
            self._key = None
        elif name == "?":
            self._mode = HELP
        elif name in ("a", "enter"):
            self._begin_answer(board)
        elif name in ("r", "c", "o"):
            self._on_task(name, board)
        return True

    def _move(self, board: Board, by: int) -> None:
        items = _items(board)
        if not items:
            return
        current = self.selected(board)
        at = -1 if current is None and by > 0 else self._at
        self._at = max(0, min(len(items) - 1, at + by))
        self._key = _key(items[self._at])

    def _begin_answer(self, board: Board) -> None:
        item = self.selected(board)
        if item is None and board.questions:
            item = board.questions[0]
            self._at, self._key = 0, _key(item)
        if isinstance(item, QuestionRow):
            self._mode, self._about, self._typed = ANSWER, item, ""
        else:
            fix = f" Try: {item.fix}" if item else ""
            self._say(f"There is no question to answer.{fix}", is_error=True)

    def _on_task(self, name: str, board: Board) -> None:
        item = self.selected(board)
        if item is None or not item.task_id:
            self._say("Select a question or a problem of a task first: ↑ ↓", is_error=True)
        elif name == "c":
            self._mode, self._about = CANCEL, item
        elif name == "o":
            self._mode, self._about = OUTPUT, item
        elif isinstance(item, Problem) and item.kind == "blocked":
            self._say(f"It waits for another task: {item.fix}", is_error=True)
        else:
            self._try(lambda: self._acts.retry(item.task_id))

    def _type(self, key: Key) -> None:
        if key.name == "enter":
            about, text = self._about, self._typed
            assert about is not None
            if not text.strip():
                self._say("Type an answer, or Esc to go back.", is_error=True)
            elif isinstance(about, QuestionRow) and self._try(
                lambda: self._acts.answer(about.id, text)
            ):
                self._mode, self._typed = LIST, ""
            return
        self._say("")
        if key.name == "escape":
            self._mode, self._typed = LIST, ""
        elif key.name == "backspace":
            self._typed = self._typed[:-1]
        elif key.name == "clear":
            self._typed = ""
        elif key.name == "word":
            self._typed = self._typed.rstrip().rpartition(" ")[0]
        elif key.name in ("text", "paste"):
            self._typed += "".join(c for c in key.text if c == "\n" or c.isprintable())

    def _confirm(self, key: Key) -> None:
        self._mode = LIST
        about = self._about
        if about is not None and key == Key("text", "y"):
            self._try(lambda: self._acts.cancel(about.task_id))
        else:
            self._say("Not cancelled.")

    def _try(self, act: Callable[[], str]) -> bool:
        self.has_acted = True
        try:
            self._say(act())
        except SwarmError as error:
            self._say(str(error), is_error=True)
            return False
        return True

    def _say(self, text: str, *, is_error: bool = False) -> None:
        self._note, self._is_error = text, is_error

    # The screen -----------------------------------------------------------------------

    def selected(self, board: Board) -> Item | None:
        """Return the selected item, None if there is none any more."""
        items = _items(board)
        for at, item in enumerate(items):
            if _key(item) == self._key:
                self._at = at
                return item
        self._key = None
        self._at = min(self._at, max(0, len(items) - 1))
        return None

    def screen(self, board: Board, columns: int, height: int) -> list[str]:
        """Return the lines of the whole screen: the board, and the panel at the bottom."""
        if self._mode == HELP:
            return _help(columns)[:height]
        if self._mode == OUTPUT:
            return self._output(columns, height)
        item = self._about if self._mode in (ANSWER, CANCEL) else self.selected(board)
        panel = self._lines(board, item, columns, height)
        above = height - len(panel)
        lines = board_text(board, columns, above, paint, self.selected(board))
        return [*lines, *[""] * (above - len(lines)), *panel]

    def _lines(self, board: Board, item: Item | None, columns: int, height: int) -> list[str]:
        last = self._last_line(board, item, columns)
        is_small = height < _SMALL
        note = self._note_lines(columns, 1 if is_small else 3)
        if item is None:
            return note or [last] if is_small else [*note, last]
        rule = [] if is_small else [paint("─" * columns, "dim")]
        above = 1 if is_small else height // _ABOVE
        room = height - above - len(rule) - len(note) - 1
        about = [cut(line, columns) for line in _about(item, board, columns, max(0, room))]
        return [*rule, *about, *note, last]

    def _note_lines(self, columns: int, most: int) -> list[str]:
        if not self._note:
            return []
        colour = "red" if self._is_error else "green"
        rows = wrapped(shown(self._note), columns, columns, most)
        return [paint(cut(row, columns), colour) for row in rows]

    def _last_line(self, board: Board, item: Item | None, columns: int) -> str:
        if self._mode == ANSWER and isinstance(item, QuestionRow):
            is_open = any(each.id == item.id for each in board.questions)
            prompt = f"Answer {item.id}: " if is_open else f"{item.id} is not open any more: "
            typed = shown(self._typed)
            while width(prompt + typed) > columns - 1 and typed:
                typed = typed[1:]
            return paint(prompt, "bold" if is_open else "red") + typed + "▏"
        if self._mode == CANCEL and item is not None:
            name = foreign_name(item.task_id)
            return paint(cut(f"Cancel {name}? Its worker stops. y/n", columns), "bold")
        keys = ["↑↓ select"] if item is None else []
        if isinstance(item, QuestionRow) or (item is None and board.questions):
            keys.append("a answer")
        if isinstance(item, Problem) and item.task_id:
            keys.append("r retry")
        if item is not None and item.task_id:
            keys += ["c cancel", "o output"]
        return paint(cut(" · ".join([*keys, "? keys", "q quit"]), columns), "dim")

    def _output(self, columns: int, height: int) -> list[str]:
        assert self._about is not None
        title = f"Output of {foreign_name(self._about.task_id)}"
        try:
            lines = self._acts.output(self._about.task_id)
        except SwarmError as error:
            lines = [str(error)]
        room = max(1, height - 2)
        rows = [cut(shown(line.expandtabs(4)), columns) for line in lines[-room:]]
        return [
            paint(cut(title, columns), "bold"),
            *rows,
            *[""] * (room - len(rows)),
            paint(cut("any key: back", columns), "dim"),
        ][:height]


def _items(board: Board) -> list[Item]:
    return [*board.questions, *board.problems]


def _key(item: Item) -> object:
    """Return a value that names an item on the next boards, too."""
    if isinstance(item, QuestionRow):
        return item.id
    return item.kind, item.task_id, item.worker


def _about(item: Item, board: Board, columns: int, room: int) -> list[str]:
    """Return the selected item in at most `room` lines: it may be cut above.

    If the lines are few, the words of a question and its options stay, and share them.
    """
    if room <= 0:
        return []
    if isinstance(item, Problem):
        names = " · ".join(shown(name) for name in (item.task_id, item.worker) if name)
        words = _rows(f"{names}: {shown(item.text)}", columns, max(1, room - 1))
        return [*words, shown(item.fix)][:room]
    question = foreign(item.text, MAX_TEXT_BYTES)
    if item.about:
        facts = ", ".join(f"{name}: {value}" for name, value in item.about.items())
        question += f" {foreign(facts, MAX_TEXT_BYTES)}"
    options = "   ".join(option_texts(item))
    word_rows = len(_rows(question, columns, room))
    option_rows = len(_rows(options, columns, room)) if options else 0
    if word_rows + option_rows > room:
        option_rows = min(option_rows, max(room - word_rows, room // 2))
        word_rows = room - option_rows
    lines = [*_rows(question, columns, word_rows), *_rows(options, columns, option_rows)]
    if len(lines) == room:
        return lines
    now = from_iso(board.generated_at) or 0.0
    return [f"{item.id} · {foreign_name(item.task_id)} · {facts_line(item, now)}", *lines]


def _rows(text: str, columns: int, most: int) -> list[str]:
    return [cut(row, columns) for row in wrapped(text, columns, columns, most)] if most else []


def _help(columns: int) -> list[str]:
    wide = max(width(keys) for keys, _ in _HELP) + 4
    lines = ["Keys", ""]
    for keys, text in _HELP:
        first, *more = wrapped(text, columns - wide, columns - wide, 6)
        lines.append(f"  {fill(keys, wide - 2)}{first}")
        lines += [" " * wide + row for row in more]
    return [cut(line, columns) for line in [*lines, "", "any key: back"]]
