"""What the JSON API finds when it is asked: tasks by state and words, one task with its history, records of the log. Every answer
is bounded, and says where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm.errors import BadInput, NoTask
from swarm.formats import json_codec
from swarm.locks.table import LockTable
from swarm.queue.events import LOG as TASKS
from swarm.queue.events import parsed
from swarm.queue.queue import TaskQueue
from swarm.status.log import LOG, parse_record
from swarm.stores.contract import Store
from swarm.web.payloads import Row, cut, has_words, record_matches, record_row

_SEARCHED = 50_000  # records from the end
_BATCH = 8 << 20  # bytes from a cursor on
_PROMPT = 64 << 10  # characters
_HISTORY = 200  # records


def tasks(rows: Mapping[str, Row], *, state: str, words: str, after: str, limit: int) -> Row:
    """Tasks in the order in which they were added, those behind `after`; `next` is where the next page begins. Raises NoTask."""
    wanted = list(rows.values())
    if after:
        if after not in rows:
            raise NoTask("unknown", f"There is no task {after} to go on after.")
        wanted = wanted[next(at for at, row in enumerate(wanted) if row["id"] == after) + 1 :]
    found: list[Row] = []
    for row in wanted:
        if state and row["state"] != state:
            continue
        if words and not has_words(words, row["id"], row["title"], row["worker"], row["reason"]):
            continue
        if len(found) == limit:
            return {"tasks": found, "next": found[-1]["id"], "total": len(rows)}
        found.append(row)
    return {"tasks": found, "next": None, "total": len(rows)}


def task(store: Store, queue: TaskQueue, task_id: str) -> Row:
    """One task: what is asked for, how it stands, and what was said of it. Raises NoTask."""
    found = queue.get(task_id)
    locked = LockTable(store).status(task_id).is_held
    fields = found.fields()
    fields["prompt"] = cut(fields["prompt"], _PROMPT)
    fields["command"] = cut(
        json_codec.dumps(fields["command"]) if isinstance(fields["command"], list) else fields["command"], _PROMPT
    )
    fields["reason"] = cut(fields["reason"], _PROMPT)
    if len(str(fields["meta"])) > _PROMPT:
        fields["meta"] = {}
    history, whole = _history(store, task_id)
    return {
        "task": fields,
        "blocked_by": queue.blocked().get(task_id),
        "locked": locked,
        "history": history,
        "whole": whole,
    }


def records(store: Store, *, after: str | None, limit: int, **wanted: str) -> Row:
    """Records that match: the latest, or those behind a cursor. `cursor` is where to go on; `whole` is false where older ones
    were not searched, or where more may follow. Raises NoTask for what is no cursor."""
    if after is None:
        count = max(1000, 2 * limit)
        while True:
            lines, cursor = store.tail(LOG, count)
            found = _matching(lines, wanted)[-limit:]
            everything = len(lines) < count
            if len(found) == limit or everything or count >= _SEARCHED:
                return {"records": found, "cursor": cursor, "searched": len(lines), "whole": everything}
            count = min(_SEARCHED, 8 * count)
    found, searched, read, cursor, more = [], 0, 0, after, True
    try:
        store.read_log(LOG, after, 0)
    except BadInput as error:
        raise NoTask("unknown", str(error)) from None
    size = 64 << 10
    while more and len(found) < limit and read < _BATCH:
        lines, reached = store.read_log(LOG, cursor, size)
        matching = _matching(lines, wanted)
        if len(found) + len(matching) > limit and size:  # the cursor must stand behind the last one that is answered
            size //= 2
            continue
        more, cursor, size = bool(lines), reached, min(64 << 10, 2 * size + 1024)
        for line in lines:
            searched += 1
            read += len(line)
        found += matching
    return {"records": found, "cursor": cursor, "searched": searched, "whole": not more}


def _matching(lines: list[bytes], wanted: Mapping[str, str]) -> list[Row]:
    rows = (record_row(record) for line in lines if (record := parse_record(line)) is not None)
    return [row for row in rows if record_matches(row, **wanted)]


def _history(store: Store, task_id: str) -> tuple[list[Row], bool]:
    """What the status log says of a task, and what only the queue's log does: who added it, and who had it tried again."""
    needle = json_codec.dumps(task_id).encode()
    found: list[Row] = []
    for line in _lines(store, LOG, needle):
        record = parse_record(line)
        if record is not None and record.get("task_id") == task_id:
            found.append(record_row(record))
    for line in _lines(store, TASKS, needle):
        event = _event(line)
        if event.get("id") == task_id and event.get("op") in ("add", "retry"):
            kind = "ADDED" if event["op"] == "add" else "RETRY"
            found.append(
                record_row({"timestamp": event.get("at"), "type": kind, "task_id": task_id, "worker": event.get("worker")})
            )
    found.sort(key=lambda row: (str(row["timestamp"]), row["type"] != "ADDED"))  # a quick worker has it in the same millisecond
    return found[-_HISTORY:], len(found) <= _HISTORY


def _lines(store: Store, log: str, needle: bytes) -> Any:
    cursor = ""
    while True:
        lines, cursor = store.read_log(log, cursor)
        if not lines:
            return
        # Another program may have written the name with \u escapes; everything else shows it as it is.
        yield from (line for line in lines if needle in line or b"\\u" in line)


def _event(line: bytes) -> Mapping[str, Any]:
    try:
        return parsed(line.decode())
    except (ValueError, TypeError):
        return {}
