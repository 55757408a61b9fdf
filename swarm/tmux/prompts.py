"""Find out whether the program in a pane waits at a prompt, from what the pane shows.

    danger    a prompt about something that only a person may answer
    confirm   a question with yes and no, or a menu
    enter     "Press Enter to continue", "-- More --"

Danger wins over confirm, confirm over enter. A prompt is a line with the cursor at its
end, or a menu with a marked option as the last text of the screen. Text of an agent that
only looks like a prompt has the agent's input field below it, or the cursor elsewhere.

A menu has an answer only if its marked option says yes to this one matter, and if all of
the dialog is on the screen: a part that is not shown could be dangerous.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from swarm.terminal.text import shorten, width
from swarm.tmux import prompt_patterns as patterns
from swarm.tmux.prompt_patterns import NO_PATTERNS, OwnPatterns

DANGER, CONFIRM, ENTER = "danger", "confirm", "enter"
ENTER_KEY, SPACE_KEY = "\r", " "
MIN_COLUMNS = 40  # in a narrower pane, lines are cut to pieces
_NEAR = 40  # rows above a line that may say what the line asks about
_MAX_WRAPPED = 3  # rows over which one line may be broken
_TEXT_LIMIT = 300  # characters
_FRAME = dict.fromkeys(range(0x2500, 0x2580), " ")  # the characters that draw boxes
_RULE = re.compile(r"[╭┌╔]?[─━═]+[╮┐╗]?")


@dataclass(frozen=True)
class Screen:
    """The rows of a pane, with a part of what has scrolled away, and its cursor.

    `cursor_row` is an index of `rows`. Columns are those of a terminal. `scrolled` is the
    number of rows that have scrolled away.
    """

    rows: Sequence[str]
    columns: int
    cursor_row: int
    cursor_column: int
    has_cursor: bool = True
    scrolled: int = 0


@dataclass(frozen=True)
class Prompt:
    """A prompt at which a program waits.

    `keys` is the answer, "" for none. `reason` says why there is no answer. `screen` is
    the part of the screen that belongs to the prompt: two prompts that differ in nothing
    are the same.
    """

    kind: str
    text: str
    keys: str
    reason: str
    screen: str


def classify(screen: Screen, own: OwnPatterns = NO_PATTERNS) -> Prompt | None:
    """Return the prompt at which a screen ends, None if there is none."""
    rows = [row.translate(_FRAME).rstrip() for row in screen.rows]
    last = max((index for index, row in enumerate(rows) if row), default=-1)
    if last < 0:
        return None
    found = _menu(screen, rows, last)
    if found is None and (found := _line(screen, rows, last, own)):
        found = replace(found, position=str(screen.scrolled))
    return _judged(screen, found, own) if found else None


def _judged(screen: Screen, found: _Found, own: OwnPatterns) -> Prompt:
    """Return the prompt for what was found. Danger has no answer."""
    text = shorten(" ".join(" ".join(found.about).split()), _TEXT_LIMIT)
    part = "\n".join([found.position, *found.scope])
    danger = found.danger or _search([patterns.DANGER, *own.danger], found.scope)
    if danger:
        return Prompt(DANGER, text, "", f"its text has {shorten(danger, 40)!r}", part)
    if found.keys and screen.columns < MIN_COLUMNS:
        reason = f"the pane has fewer than {MIN_COLUMNS} columns"
        return Prompt(found.kind, text, "", reason, part)
    return Prompt(found.kind, text, found.keys, found.reason, part)


@dataclass(frozen=True)
class _Found:
    """A prompt before it is judged. `about` is for people. Words of danger are searched in
    `scope`; `danger` is one that was found elsewhere. `position` differs for equal rows
    that a program has printed again.
    """

    kind: str
    keys: str
    reason: str
    about: Sequence[str]
    scope: Sequence[str]
    danger: str = ""
    position: str = ""


# A line with the cursor at its end ----------------------------------------------------


def _line(screen: Screen, rows: Sequence[str], last: int, own: OwnPatterns) -> _Found | None:
    if not _cursor_is_at_end(screen, rows, last):
        return None
    about, scope = _wrapped(screen, rows, last), rows[max(0, last - _NEAR) : last + 1]
    if secret := _search([patterns.SECRET], about):
        return _Found(CONFIRM, "", "", about, scope, secret)
    if yes := patterns.YES_NO.search(about[0]):
        word = (yes["yes"] or yes["bare"]).lower()
        return _Found(CONFIRM, word + ENTER_KEY, "", about, scope)
    if _search(own.confirm, about):
        return _Found(CONFIRM, f"y{ENTER_KEY}", "", about, scope)
    if _search([patterns.CHOICE], about):
        listed = _listed(rows[:last])
        if listed:
            return _Found(CONFIRM, *_numbered_answer(listed), [*listed, *about], scope)
    if _search([patterns.QUESTION], about):
        reason = "it does not say which answers it takes"
        return _Found(CONFIRM, "", reason, about, scope)
    if _search([patterns.MORE], about):
        return _Found(ENTER, SPACE_KEY, "", about, scope)
    if _search([patterns.ENTER, *own.enter], about):
        return _Found(ENTER, ENTER_KEY, "", about, scope)
    return None


def _cursor_is_at_end(screen: Screen, rows: Sequence[str], last: int) -> bool:
    used = width(rows[last])
    if used >= screen.columns and (screen.cursor_row, screen.cursor_column) == (last + 1, 0):
        return True
    return screen.cursor_row == last and 0 <= screen.cursor_column - used <= 2


def _wrapped(screen: Screen, rows: Sequence[str], last: int) -> list[str]:
    """Return the rows of the line that ends in row `last`, as the terminal broke it."""
    first = last
    while first > max(0, last - _MAX_WRAPPED) and width(rows[first - 1]) >= screen.columns - 1:
        first -= 1
    return ["".join(rows[first : last + 1])]


def _listed(rows: Sequence[str]) -> list[str]:
    """Return the numbered options right above a line, in order."""
    found: list[str] = []
    for row in reversed(rows):
        text = row.strip()
        if patterns.OPTION_NUMBER.match(text):
            found.insert(0, text)
        elif text or len(found) > 1:
            break
    return found if len(found) > 1 else []


def _numbered_answer(listed: Sequence[str]) -> tuple[str, str]:
    """Return the keys for the first option that only says yes, and else the reason."""
    for option in listed:
        number = patterns.OPTION_NUMBER.match(option)
        if number and _is_plain_yes(option):
            return number[1] + ENTER_KEY, ""
    return "", "no option only says yes"


# A menu with a marked option ----------------------------------------------------------


def _menu(screen: Screen, rows: Sequence[str], last: int) -> _Found | None:
    end = last
    while end >= 0 and (not rows[end] or patterns.HINT.search(rows[end])):
        end -= 1
    menu = _options(rows, end)
    if menu is None or not (screen.cursor_row == menu.marked or not screen.has_cursor):
        return None
    first = _opening(screen, menu.first)
    begin = max(0, menu.first - _NEAR) if first is None else first
    scope = rows[begin : last + 1]
    reason = ""
    if not _is_plain_yes(menu.option):
        reason = "the marked option does not only say yes"
    elif first is None:
        reason = "its beginning is not on the screen"
    elif _search([patterns.SHORTENED], scope):
        reason = "a part of it is not on the screen"
    about = rows[begin : menu.first] if any(rows[begin : menu.first]) else scope
    return _Found(CONFIRM, "" if reason else ENTER_KEY, reason, about, scope)


@dataclass(frozen=True)
class _Menu:
    """The row of the first option, the row of the marked option, and its text."""

    first: int
    marked: int
    option: str


def _options(rows: Sequence[str], end: int) -> _Menu | None:
    """Return the menu whose last row is `end`. A menu has two options or more, and marks
    one of them.
    """
    begin = end
    while begin > 0 and rows[begin - 1]:
        begin -= 1
    marks = {
        index: mark
        for index in range(begin, end + 1)
        if (mark := patterns.MARKER.match(rows[index]))
    }
    if len(marks) != 1:
        return None
    ((marked, mark),) = marks.items()
    indent = mark.end()
    is_numbered = bool(patterns.OPTION_NUMBER.match(rows[marked][indent:]))

    def is_option(index: int) -> bool:
        if index == marked:
            return True
        text = rows[index][indent:]
        if rows[index][:indent].strip() or not text or text[0] == " ":
            return False
        return not is_numbered or bool(patterns.OPTION_NUMBER.match(text))

    first = marked
    while first > begin and is_option(first - 1):
        first -= 1
    if sum(map(is_option, range(first, end + 1))) < 2:
        return None
    option = rows[marked][indent:]
    following = marked + 1
    while following <= end and not is_option(following):
        option += " " + rows[following].strip()
        following += 1
    return _Menu(first, marked, option)


def _opening(screen: Screen, first: int) -> int | None:
    """Return the first row of the dialog above its options, None if no row says that it
    begins there.

    Agents indent the text of a dialog, so no text can look like a line from edge to edge.
    """
    for index in range(first - 1, -1, -1):
        row = screen.rows[index].rstrip()
        if width(row) >= screen.columns - 2 and _RULE.fullmatch(row):
            return index
    for index in range(first):  # the first: a later one may be text of the agent
        if patterns.OPENING.search(screen.rows[index]):
            return index
    return None


def _is_plain_yes(option: str) -> bool:
    text = patterns.OPTION_NUMBER.sub("", option).strip()
    return bool(patterns.PLAIN_YES.search(text)) and not patterns.BROAD.search(text)


def _search(wanted: Iterable[re.Pattern[str]], rows: Sequence[str]) -> str:
    """Return the first text that a pattern finds in rows, however the lines were broken."""
    texts = [" ".join(" ".join(rows).split()), "".join(row.strip() for row in rows)]
    for pattern in wanted:
        for text in (*rows, *texts):
            if (found := pattern.search(text)) and found[0]:
                return found[0].strip()
    return ""
