"""Answer the questions of the JSON API: tasks, one task with its history, status
records.

Every answer has a maximal size, and says at which position the next answer begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from swarm.board.viewer import total_usage
from swarm.errors import BadInput, NoTask, StoreError
from swarm.formats import json_codec
from swarm.locks.table import LockTable
from swarm.queue.events import LOG as TASKS
from swarm.queue.events import parse_event
from swarm.queue.queue import TaskQueue
from swarm.queue.usage import UsageLog
from swarm.status.log import LOG, StatusLog, search_texts
from swarm.stores.contract import Store
from swarm.web.answers import Record, Records, TaskHistory, TaskRow, Tasks
from swarm.web.payloads import bounded_line, cut, has_words, line_row, record_matches, record_row

Stopped = Callable[[], bool]  # whether the client has gone

_MAX_SEARCHED = 50_000  # records from the end of the log
_MAX_TAIL = 16 << 20  # bytes of them
_MAX_READ = 8 << 20  # bytes from a cursor on
_MAX_BLOCK = 64 << 10  # bytes in one read
_MAX_PROMPT = 64 << 10  # characters
_MAX_HISTORY = 200  # records


def tasks(rows: Mapping[str, TaskRow], *, state: str, words: str, after: str, limit: int) -> Tasks:
    """Return matching tasks that were added after the task `after`, the oldest first.

    Raise NoTask if the task `after` does not exist.
    """
    wanted = list(rows.values())
    if after:
        if after not in rows:
            raise NoTask(
                "unknown", f"there is no task {after}, so the list cannot continue after it."
            )
        wanted = wanted[next(index for index, row in enumerate(wanted) if row["id"] == after) + 1 :]
    found: list[TaskRow] = []
    for row in wanted:
        if state and row["state"] != state:
            continue
        if words and not has_words(words, row["id"], row["title"], row["worker"], row["reason"]):
            continue
        if len(found) == limit:
            return {"tasks": found, "next": found[-1]["id"], "total": len(rows)}
        found.append(row)
    return {"tasks": found, "next": None, "total": len(rows)}


def task(
    store: Store, queue: TaskQueue, task_id: str, stopped: Stopped = lambda: False
) -> TaskHistory:
    """Return one task and the latest records about it. Raise NoTask."""
    found = queue.get(task_id)
    locked = LockTable(store).status(task_id).is_held
    fields = found.fields()
    command = fields["command"]
    fields["command"] = cut(
        json_codec.dumps(command) if isinstance(command, list) else command, _MAX_PROMPT
    )
    for name in ("prompt", "reason"):
        fields[name] = cut(fields[name], _MAX_PROMPT)
    if len(str(fields["meta"])) > _MAX_PROMPT:
        fields["meta"] = {}
    history = _history(store, task_id, stopped)
    return {
        "task": fields,
        "blocked_by": queue.blocked().get(task_id),
        "locked": locked,
        "usage": total_usage(UsageLog(store).of_task(task_id)).as_dict(),
        "history": history[-_MAX_HISTORY:],
        "complete": len(history) <= _MAX_HISTORY,
    }


def records(
    store: Store, stopped: Stopped, *, after: str | None, limit: int, **wanted: str
) -> Records:
    """Return matching records: the latest, or those after a cursor.

    Raise NoTask if the cursor is invalid.
    """
    if after is None:
        return _latest(store, limit, wanted, stopped)
    try:
        store.read_log(LOG, after, 0)
    except BadInput as error:
        raise NoTask("unknown", str(error)) from None
    return _following(store, after, limit, wanted, stopped)


def _latest(store: Store, limit: int, wanted: Mapping[str, str], stopped: Stopped) -> Records:
    count = max(1000, 2 * limit)
    while True:
        lines, cursor = store.tail(LOG, count, _MAX_TAIL)
        is_cut = sum(map(len, lines)) >= _MAX_TAIL
        found = _matching(lines, wanted, stopped)[-limit:]
        everything = len(lines) < count and not is_cut
        if len(found) == limit or everything or is_cut or count >= _MAX_SEARCHED:
            return {
                "records": found,
                "cursor": cursor,
                "searched": len(lines),
                "complete": everything,
            }
        count = min(_MAX_SEARCHED, 8 * count)


def _following(
    store: Store, cursor: str, limit: int, wanted: Mapping[str, str], stopped: Stopped
) -> Records:
    found: list[Record] = []
    searched = read = 0
    more, size = True, _MAX_BLOCK
    while more and len(found) < limit and read < _MAX_READ:
        lines, next_cursor = store.read_log(LOG, cursor, size)
        matching = _matching(lines, wanted, stopped)
        # read less: the cursor must follow the last record returned
        if len(found) + len(matching) > limit and size:
            size //= 2
            continue
        more, cursor, size = bool(lines), next_cursor, min(_MAX_BLOCK, 2 * size + 1024)
        searched += len(lines)
        read += sum(map(len, lines))
        found += matching
    return {"records": found, "cursor": cursor, "searched": searched, "complete": not more}


def _matching(lines: list[bytes], wanted: Mapping[str, str], stopped: Stopped) -> list[Record]:
    rows = (row for line in _while_wanted(lines, stopped) if (row := line_row(line)) is not None)
    return [row for row in rows if record_matches(row, **wanted)]


def _while_wanted(lines: Iterable[bytes], stopped: Stopped) -> Iterator[bytes]:
    """Yield the lines. Raise StoreError soon after the client has gone."""
    for number, line in enumerate(lines):
        if not number % 100 and stopped():
            raise StoreError("the client has gone.")
        yield line


def _history(store: Store, task_id: str, stopped: Stopped) -> list[Record]:
    """Return the latest status records of a task, in order of time.

    If there are more than `_MAX_HISTORY`, return more than that, too. Only the queue's
    log says when the task was added.
    """
    latest = deque(_lines_of(store, task_id, stopped), maxlen=_MAX_HISTORY + 1)
    rows = (line_row(line) for line in latest)
    found = [row for row in rows if row is not None and row["task_id"] == task_id]
    for line in _while_wanted(store.search(TASKS, *search_texts(task_id)), stopped):
        event = _event(line)
        if event.get("id") == task_id and event.get("op") == "add":
            added = {"timestamp": event.get("at"), "type": "ADDED", "task_id": task_id}
            found.append(record_row(added))
    # A worker may claim a task in the millisecond in which it was added.
    found.sort(key=lambda row: (row["timestamp"], row["type"] != "ADDED"))
    return found


def _lines_of(store: Store, task_id: str, stopped: Stopped) -> Iterator[bytes]:
    """Yield the lines of a task, or of a large line only its head.

    A line that swarm wrote shows its task without being parsed, which takes longest.
    """
    written = b'"task_id": ' + json_codec.dumps(task_id).encode()
    for line in _while_wanted(StatusLog(store).lines_of(task_id), stopped):
        head = bounded_line(line)
        if written in head or ((row := line_row(head)) is not None and row["task_id"] == task_id):
            yield head


def _event(line: bytes) -> Mapping[str, Any]:
    try:
        return parse_event(line.decode())
    except (ValueError, TypeError):
        return {}
