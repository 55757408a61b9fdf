"""What the page and the JSON API are told of a swarm, as plain data and within bounds.

Text is passed on as agents wrote it, but not more of it than a person reads in a list: the page shows it and never executes it.
What other programs wrote into the log may be of any type; here every field has the type that the API promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm.board.board import KINDS, Board
from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.queue.events import parsed
from swarm.queue.state import TaskState

Row = dict[str, Any]

MANY = {"problems": 100, "workers": 300, "locks": 100, "seen": 50}  # more than a person looks through
TEXT = 600  # characters of a text in a list
_NAME = 200
_TITLE = 160
_META = 1000


def board_fields(board: Board) -> Row:
    """A board with as much of its lists as `MANY` says; `totals` tells how many there are."""
    fields = board.fields()
    kinds = dict.fromkeys(KINDS, 0)
    for problem in board.problems:
        kinds[problem.kind] += 1
    totals = {name: len(fields[name]) for name in MANY}
    for name, most in MANY.items():
        fields[name] = [{key: cut(value) for key, value in row.items()} for row in fields[name][:most]]
    return {**fields, "totals": totals, "kinds": kinds}


def fingerprint(board: Board) -> object:
    """What of a board is different once something has happened, and not because time has passed."""
    timeless = ("waiting", "failed", "error", "unreadable", "blocked")
    problems = [(p.kind, p.task_id, p.worker, p.text if p.kind in timeless else "") for p in board.problems]
    work = [(w.worker, w.task_id, w.since, w.token, w.state, w.text) for w in board.workers]
    locks = [(h.task_id, h.status, h.worker, h.token, h.heartbeat_at) for h in board.locks]
    return problems, work, locks, board.queue, board.blocked, board.seen[: MANY["seen"]], board.records, board.damaged


def task_row(entry: TaskState, state: str, blocked_by: str, title: str) -> Row:
    """A task as a list shows it."""
    return {
        "id": entry.id,
        "state": state,
        "title": title,
        "priority": entry.priority,
        "attempts": entry.attempts,
        "max_attempts": entry.max_attempts,
        "worker": cut(entry.worker, _NAME),
        "token": entry.token or None,
        "since": cut(entry.since, 40),
        "reason": cut(entry.reason, _TITLE),
        "after": len(entry.after),
        "blocked_by": blocked_by or None,
    }


def title_of(entry: TaskState) -> str:
    """The beginning of what is asked for, on one line."""
    record = parsed(entry.line)
    said = record.get("prompt") or record.get("command") or ""
    text = said if isinstance(said, str) else " ".join(map(str, said))
    return " ".join(text[: 4 * _TITLE].split())[:_TITLE]


def record_row(record: Mapping[str, Any]) -> Row:
    """A record of the status log."""
    row: Row = {
        "timestamp": _text(record.get("timestamp"), 40),
        "type": _text(record.get("type"), 20),
        "worker": _text(record.get("worker", record.get("worker_id")), _NAME),
        "task_id": _text(record.get("task_id"), _NAME),
        "message": _text(record.get("message"), TEXT),
        "meta": None,
    }
    meta = record.get("meta")
    if isinstance(meta, dict) and meta:
        try:
            row["meta"] = meta if len(json_codec.dumps(meta)) <= _META else None
        except BadInput:
            pass  # such as NaN, which another program may write
    return row


def record_matches(row: Row, *, task: str, kind: str, worker: str, words: str) -> bool:
    """Whether a record is one of those that are asked for; "" asks for all."""
    if (task and row["task_id"] != task) or (kind and row["type"] != kind) or (worker and row["worker"] != worker):
        return False
    return not words or has_words(words, row["message"], row["task_id"], row["worker"], row["type"])


def has_words(words: str, *texts: str) -> bool:
    """Whether each of the words stands somewhere in the texts, in small letters or large."""
    whole = "\n".join(texts).casefold()
    return all(word in whole for word in words.casefold().split())


def cut(value: Any, most: int = TEXT) -> Any:
    """Text that is not too long; anything else as it is."""
    return value if not isinstance(value, str) or len(value) <= most else value[: most - 1] + "…"


def _text(value: object, most: int) -> str:
    if value is None:
        return ""
    return str(cut(value if isinstance(value, str) else ascii(value)[:most], most))
