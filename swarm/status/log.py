"""The status log: how a record is written and read, on any store.

Two fields of a record have two names each: `type` and `state`, `reason` and `message`.
A reader accepts records with only one name of each field, `worker_id` in place of
`worker`, unknown keys, and states of other programs, such as ASSIGNED. A reader skips
and counts each line that is not a JSON object.
"""

from __future__ import annotations

from swarm.errors import BadInput, Unreachable
from swarm.formats import json_codec
from swarm.inputs import MAX_RECORD_BYTES, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from swarm.stores.contract import Store

LOG = "status"
STATES = ("START", "DONE", "WAIT", "ERROR", "HELP", "SKIP")

_QUOTED = {state: f'"{state}"' for state in STATES}
# Characters. Readers cut a longer name; names that swarm writes are shorter.
NAME_LIMIT = 800
_MAX_CACHED_NAMES = 1000
MAX_TAIL = 64 << 20  # bytes of the records that `tail` returns


class StatusLog:
    """Writes and reads the log of one store.

    `damaged` is the number of lines that readers skipped. `cut` says that the last
    `tail` left out records.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.damaged = 0
        self.cut = False
        self._names: dict[str, str] = {}  # cache: each valid name as a JSON string

    def append(
        self,
        state: str,
        worker: str,
        task: str,
        reason: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Append a record.

        Return the line of the record. Raise BadInput for invalid input, before anything
        is written.
        """
        return self._write(state, worker, task, reason, meta)[0]

    def add(
        self,
        state: str,
        worker: str,
        task: str,
        reason: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> tuple[bytes, dict[str, Any]]:
        """Append a record.

        Return the line of the record, and the record in the form that readers get.
        Raise BadInput for invalid input, before anything is written.
        """
        line, now = self._write(state, worker, task, reason, meta)
        if meta is not None or not type(worker) is type(task) is type(reason) is str:
            return line, parse_record(line) or {}
        record = {
            "timestamp": now,
            "type": str(state),
            "state": str(state),
            "worker": worker,
            "task_id": task,
        }
        if reason:
            record["reason"] = record["message"] = reason
        return line, record

    def _write(
        self, state: str, worker: str, task: str, reason: str, meta: Mapping[str, Any] | None
    ) -> tuple[bytes, str]:
        """Append a record, and return the line and the time of the record."""
        if state not in STATES:
            raise BadInput(f"{state[:40]!r} is not a status: use one of {' '.join(STATES)}.")
        clock, named = self.store.clock, _QUOTED[state]
        now = clock.written(clock.now())
        quoted_worker, quoted_task = self._quoted(worker, "worker"), self._quoted(task, "task_id")
        text = (
            f'{{"timestamp": "{now}", "type": {named}, "state": {named}, '
            f'"worker": {quoted_worker}, "task_id": {quoted_task}'
        )
        if reason:
            quoted = json_codec.dumps(reason)
            text += f', "reason": {quoted}, "message": {quoted}'
        if meta is not None:
            if not isinstance(meta, dict):
                raise BadInput('meta must be a JSON object, such as {"retry_count": 1}.')
            text += f', "meta": {json_codec.dumps(meta)}'
        line = (text + "}").encode()
        if len(line) > MAX_RECORD_BYTES:
            raise BadInput(
                f"the record has {len(line)} bytes, at most {MAX_RECORD_BYTES} are allowed. "
                f"Put the text in a file, and give the file's path."
            )
        self.store.append(LOG, line)
        return line, now

    def tail(self, count: int) -> list[bytes]:
        """Return the lines of the last `count` records.

        If the lines have more than `MAX_TAIL` bytes, return fewer lines and set `cut`.
        """
        asked = count
        while True:
            lines, _ = self.store.tail(LOG, asked, MAX_TAIL)
            self.damaged = 0
            good = [line for line in lines if self._parse(line) is not None]
            self.cut = len(good) < count and sum(map(len, lines)) >= MAX_TAIL
            if len(good) >= count or len(lines) < asked:
                return good[max(0, len(good) - count) :]
            asked *= 2

    def end(self) -> str:
        """Return the cursor after the last record."""
        return self.store.tail(LOG, 0)[1]

    def read(
        self, cursor: str = "", *, one: bool = False
    ) -> tuple[list[tuple[bytes, dict[str, Any]]], str]:
        """Return records after the cursor, each as a line and as a dict, and the cursor
        after the last returned record. If there is no record, return the same cursor.
        """
        while True:
            lines, after = self.store.read_log(LOG, cursor, 0 if one else 1 << 20)
            found = [(line, record) for line in lines if (record := self._parse(line)) is not None]
            if found or not lines:
                return found, after
            cursor = after

    def lines_of(self, task: str) -> Iterator[bytes]:
        """Yield, in order, every line of the log that may be about a task."""
        return self.store.search(LOG, *search_texts(task))

    def query(self, task: str) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield every record of a task, in order."""
        for line in self.lines_of(task):
            record = self._parse(line)
            if record is not None and record.get("task_id") == task:
                yield line, record

    def follow(
        self,
        since: str | None = None,
        task: str | None = None,
        state: str | None = None,
        silence: float | None = None,
        away: Callable[[Unreachable], object] | None = None,
    ) -> Iterator[tuple[bytes, dict[str, Any], str]]:
        """Yield records as they come, each with the cursor after the record. Begin
        after the cursor `since`. Without `since`, begin with the next new record. End
        after `silence` seconds without a record. While the server is unreachable, call
        `away` and try again. Without `away`, raise Unreachable.
        """
        cursor = self.end() if since is None else since
        while True:
            try:
                found, cursor = self.read(cursor, one=True)
                more = found or self.store.wait(LOG, cursor, 3600.0 if silence is None else silence)
            except Unreachable as error:
                if away is None:
                    raise
                away(error)
                continue
            for line, record in found:
                if (task is None or record.get("task_id") == task) and (
                    state is None or record.get("state") == state
                ):
                    yield line, record, cursor
            if not more and silence is not None:
                return

    def _quoted(self, name: str, what: str) -> str:
        quoted = self._names.get(name) if isinstance(name, str) else None
        if quoted is None:
            quoted = json_codec.dumps(check_name(name, what))
            if len(self._names) >= _MAX_CACHED_NAMES:
                self._names.clear()
            self._names[name] = quoted
        return quoted

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        if not line.strip():
            return None
        record = parse_record(line)
        self.damaged += record is None
        return record


def search_texts(task: str) -> tuple[bytes, bytes]:
    """Return the forms in which JSON may write the task's name. Every record of the
    task contains at least one of the returned strings.
    """
    return json_codec.dumps(task).encode(), b"\\u"


def parse_record(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line, with both names of each field.

    Return None if the line is not a JSON object.
    """
    try:
        record = json_codec.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    if "worker_id" in record:
        record.setdefault("worker", record["worker_id"])
    for one, other in (("type", "state"), ("reason", "message")):
        if one in record or other in record:
            value = record.get(one, record.get(other))
            record.setdefault(one, value)
            record.setdefault(other, value)
    return record


def check_filter(state: object, what: str) -> str:
    """Return a state that readers look for, also one of another program. Raise BadInput
    for a state of swarm in the wrong case, which no record has.
    """
    if isinstance(state, str) and state and (state in STATES or state.upper() not in STATES):
        return state
    raise BadInput(
        f"{what} is {str(state)[:40]!r}, but must be a state such as {' '.join(STATES)}."
    )
