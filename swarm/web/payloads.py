"""Build the data that the page and the JSON API show, and limit their size.

Text of agents is passed on unchanged, but cut to a length that a user reads in a list.
The page shows text of agents and never executes it. Other programs may write fields of
any type into the log. This module gives every field the type that the API promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from swarm.board import board as boards
from swarm.board.board import KINDS
from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.queue.events import parse_event
from swarm.queue.questions.question import MAX_TEXT_BYTES
from swarm.queue.task_state import TaskState
from swarm.status.log import parse_record
from swarm.terminal.text import shorten
from swarm.web.answers import Board, Record, TaskRow

# Of each list of a board.
MAX_ROWS = {
    "questions": 50,
    "problems": 100,
    "workers": 300,
    "locks": 100,
    "seen": 50,
    "living": 300,
    "gates": 50,
    "landing": 100,
}
MAX_TEXT = 600  # characters of a text in a list
MAX_QUESTION = MAX_TEXT_BYTES  # characters of a question: a person needs all of it
_MAX_ABOUT = 4000  # characters of what it is about
_MAX_NAME = 200
_MAX_TITLE = 160
_MAX_TIMESTAMP = 40
_MAX_TYPE = 20
_MAX_META = 1000
_MAX_LINE = 1 << 20  # bytes of a record that is parsed as a whole
_MAX_HEAD = 16 << 10  # bytes in which the text of a larger record must begin


def board_fields(board: boards.Board) -> Board:
    """Return a board with at most `MAX_ROWS` rows of each list."""
    fields = board.fields()
    kinds = dict.fromkeys(KINDS, 0)
    for problem in board.problems:
        kinds[problem.kind] += 1
    totals = {name: len(fields[name]) for name in MAX_ROWS}
    for name, most in MAX_ROWS.items():
        cut_row = _question_row if name == "questions" else _cut_row
        fields[name] = [cut_row(row) for row in fields[name][:most]]
    return cast(Board, {**fields, "totals": totals, "kinds": kinds})


def _cut_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: cut(value) for key, value in row.items()}


def _question_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a question as the page shows it: what it is about is cut, if it is long."""
    about = row["about"]
    try:
        whole = json_codec.dumps(about)
    except BadInput:  # NaN, for example, which another program may write
        about, whole = {}, ""
    if len(whole) > _MAX_ABOUT:
        about = {"beginning": cut(whole, _MAX_ABOUT)}
    return {**_cut_row(row), "text": cut(row["text"], MAX_QUESTION), "about": about}


def fingerprint(board: boards.Board) -> object:
    """Return a value that differs between two boards if more than the time has changed."""
    locks = [(h.task_id, h.status, h.worker, h.token, h.heartbeat_at) for h in board.locks]
    seen = board.seen[: MAX_ROWS["seen"]]
    return board.fingerprint(), locks, seen, board.records, board.damaged


def task_row(
    task: TaskState, state: str, blocked_by: str, title: str, cost_usd: float = 0.0
) -> TaskRow:
    """Return a task as a list shows it."""
    return {
        "id": task.id,
        "state": state,
        "title": title,
        "priority": task.priority,
        "attempts": task.attempts,
        "max_attempts": task.max_attempts,
        "worker": cut(task.worker, _MAX_NAME),
        "token": task.token or None,
        "since": cut(task.since, _MAX_TIMESTAMP),
        "reason": cut(task.reason, _MAX_TITLE),
        "after": len(task.after),
        "blocked_by": blocked_by or None,
        "agent": cut(task.agent, _MAX_NAME),
        "cost_usd": round(cost_usd, 6),
        "every": task.every,
        "next": task.not_before,
    }


def title_of(task: TaskState) -> str:
    """Return the beginning of the prompt or command, on one line."""
    record = parse_event(task.line)
    content = record.get("prompt") or record.get("command") or ""
    text = content if isinstance(content, str) else " ".join(map(str, content))
    return " ".join(text[: 4 * _MAX_TITLE].split())[:_MAX_TITLE]


def record_row(record: Mapping[str, Any]) -> Record:
    """Return a status record as the API shows it."""
    row: Record = {
        "timestamp": _text(record.get("timestamp"), _MAX_TIMESTAMP),
        "type": _text(record.get("type"), _MAX_TYPE),
        "worker": _text(record.get("worker"), _MAX_NAME),
        "task_id": _text(record.get("task_id"), _MAX_NAME),
        "message": _text(record.get("message"), MAX_TEXT),
        "meta": None,
    }
    meta = record.get("meta")
    if isinstance(meta, dict) and meta:
        try:
            row["meta"] = meta if len(json_codec.dumps(meta)) <= _MAX_META else None
        except BadInput:
            pass  # NaN, for example, which another program may write
    return row


def line_row(line: bytes) -> Record | None:
    """Return the record in a line as the API shows it, None if there is no record."""
    record = parse_record(bounded_line(line))
    return None if record is None else record_row(record)


def bounded_line(line: bytes) -> bytes:
    """Return a line, or of a large line a record with the fields before its text.

    The text of such a record only tells its size: parsing it all takes several times as
    much memory.
    """
    if len(line) <= _MAX_LINE:
        return line
    head, found, _ = line[:_MAX_HEAD].partition(b', "reason": ')
    if not found:
        return b""
    note = f"a record of {len(line):,} bytes, too large for this page"
    return head + f', "reason": "({note})"}}'.encode()


def record_matches(row: Record, *, task: str, kind: str, worker: str, words: str) -> bool:
    """Return whether a record passes all filters. An empty filter lets every record
    pass.
    """
    if (
        (task and row["task_id"] != task)
        or (kind and row["type"] != kind)
        or (worker and row["worker"] != worker)
    ):
        return False
    return not words or has_words(words, row["message"], row["task_id"], row["worker"], row["type"])


def has_words(words: str, *texts: str) -> bool:
    """Return whether each word occurs in one of the strings. Upper and lower case count
    as equal.
    """
    whole = "\n".join(texts).casefold()
    return all(word in whole for word in words.casefold().split())


def cut(value: Any, most: int = MAX_TEXT) -> Any:
    """Cut a string to `most` characters. Return a value of another type unchanged."""
    return shorten(value, most) if isinstance(value, str) else value


def _text(value: object, most: int) -> str:
    if value is None:
        return ""
    return str(cut(value if isinstance(value, str) else ascii(value)[:most], most))
