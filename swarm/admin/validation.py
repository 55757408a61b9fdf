"""Checks of every status record, report of usage and lock file of a swarm.

`schemas/` documents the form of status records and lock files as JSON Schema. The
checks in this module are plain Python, so that `swarm log validate` needs no package. A
test compares the verdicts of these checks with the verdicts of the jsonschema library.
The checks go beyond the schemas in three points. Two keys with one meaning must have
equal values, a time must be valid, and a lock file must be named after its task.

A state of another program is a warning and no fault: all readers read its records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from swarm.errors import StoreError
from swarm.formats import json_codec
from swarm.inputs import MAX_TTL, check_name
from swarm.locks.table import NAMESPACE
from swarm.queue.usage import LOG as USAGE
from swarm.queue.usage import parse_report
from swarm.status.log import LOG, STATES, parse_record
from swarm.stores.contract import Store
from swarm.system.clock import from_iso
from swarm.terminal.text import shorten

_PROGRESS_EVERY = 20_000  # lines
_MAX_SHOWN = 60  # characters of a value in a message
_MAX_OTHER_STATES = 100  # that are reported one by one

Rule = tuple[Callable[[object], bool], str]  # whether a value is valid; what the value must be


class Finding(NamedTuple):
    where: str
    text: str
    is_fault: bool = True


def findings(
    store: Store, progress: Callable[[int], object] = lambda count: None
) -> Iterator[Finding]:
    """Yield every fault of a store's logs and locks, and a warning for each state in the
    status log that is none of swarm's.

    During the check, `progress` is called with the number of lines that were read.
    """
    others = _OtherStates()
    for count, (where, line, complete) in enumerate(store.numbered(LOG)):
        if count % _PROGRESS_EVERY == _PROGRESS_EVERY - 1:
            progress(count + 1)
        if not complete:
            yield Finding(where, "the last line is not complete")
        elif line.strip():
            yield from (Finding(where, fault) for fault in record_faults(line))
            others.note(where, line)
    yield from others.warnings()
    for where, line, complete in store.numbered(USAGE):
        if complete and line.strip():
            yield from (Finding(where, fault) for fault in usage_faults(line))
    for key in store.keys(NAMESPACE):
        try:
            data = store.read(key)
        except StoreError as error:
            yield Finding(store.where(key), f"cannot be read: {error}")
            continue
        if data is not None:
            yield from (
                Finding(store.where(key), fault)
                for fault in lock_faults(data, key.partition("/")[2])
            )


class _OtherStates:
    """The states in a log that are none of swarm's: where each is first, and how often."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def note(self, where: str, line: bytes) -> None:
        record = parse_record(line)
        state = record.get("state") if record else None
        if not _is_name(state) or state in STATES:
            return
        name = f"the state {_short(state)}"
        if name not in self._first and len(self._first) >= _MAX_OTHER_STATES:
            name = "another state"
        self._first.setdefault(name, where)
        self._counts[name] = self._counts.get(name, 0) + 1

    def warnings(self) -> Iterator[Finding]:
        for name, where in self._first.items():
            count = self._counts[name]
            records = "1 record has" if count == 1 else f"{count} records have"
            text = f"{records} {name}, which is none of swarm's and changes no task"
            yield Finding(where, text, is_fault=False)


def record_faults(line: bytes) -> Iterator[str]:
    """Yield what is wrong with one line of the status log."""
    try:
        record = json_codec.loads(line, strict=True)
    except ValueError as error:
        yield f"not JSON: {error}"
        return
    yield from check_record(record)
    if isinstance(record, dict):
        yield from _unequal(record, ("type", "state"), ("reason", "message"))
        yield from _bad_times(record, "timestamp")


def usage_faults(line: bytes) -> Iterator[str]:
    """Yield what is wrong with one line of the usage log."""
    try:
        parse_report(line)
    except ValueError as error:
        yield f"not a report of usage: {error}"


def lock_faults(data: bytes, task: str) -> Iterator[str]:
    """Yield what is wrong with the lock file of a task."""
    try:
        record = json_codec.loads(data, strict=True)
    except ValueError as error:
        yield f"not JSON: {error}"
        return
    yield from check_lock(record)
    if isinstance(record, dict):
        yield from _unequal(record, ("worker", "worker_id"))
        yield from _bad_times(record, "acquired_at", "heartbeat_at", "expires_at")
        if isinstance(record.get("task_id"), str) and record["task_id"] != task:
            yield f"task_id is {record['task_id']!r}, but the file is named after {task!r}"
    try:
        check_name(task, "the file's name")
    except ValueError as error:
        yield str(error)


def check_record(value: object) -> Iterator[str]:
    """Yield where a value differs from `schemas/status-record.schema.json`."""
    return _check(value, _RECORD, required=("timestamp", "task_id"), one_of=("type", "state"))


def check_lock(value: object) -> Iterator[str]:
    """Yield where a value differs from `schemas/lock.schema.json`."""
    return _check(value, _LOCK, required=("task_id",), one_of=("worker", "worker_id"))


def _check(
    value: object, rules: Mapping[str, Rule], *, required: tuple[str, ...], one_of: tuple[str, str]
) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"it is {_short(value)}, but must be an object"
        return
    yield from (f"{key} is missing" for key in required if key not in value)
    if not any(key in value for key in one_of):
        yield f"{' or '.join(one_of)} is missing"
    for key, (is_right, wanted) in rules.items():
        if key in value and not is_right(value[key]):
            yield f"{key} is {_short(value[key])}, but must be {wanted}"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _starts_with_year(value: object) -> bool:
    return isinstance(value, str) and re.match("[0-9]{4}", value) is not None


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_ttl(value: object) -> bool:
    return _is_absent(value) or (
        isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= MAX_TTL
    )


def _is_expiry(value: object) -> bool:
    return _is_absent(value) or _starts_with_year(value)


def _is_absent(value: object) -> bool:
    return value is None or (isinstance(value, str) and value == "")


def _is_token(value: object) -> bool:
    """Return whether a value is an integer from 1 on.

    In JSON Schema, 1.0 is an integer too.
    """
    if isinstance(value, float):
        return value.is_integer() and value >= 1
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


_TEXT: Rule = (_is_text, "a text")
_NAME: Rule = (_is_name, "a string that is not empty")
_TIME: Rule = (_starts_with_year, "a time such as 2026-02-02T10:30:00Z")
_OBJECT: Rule = (_is_object, "an object")
_RECORD: dict[str, Rule] = {
    "timestamp": _TIME,
    "type": _NAME,
    "state": _NAME,
    "worker": _NAME,
    "task_id": _NAME,
    "reason": _TEXT,
    "message": _TEXT,
    "meta": _OBJECT,
}
_LOCK: dict[str, Rule] = {
    "task_id": _NAME,
    "worker": _NAME,
    "worker_id": _NAME,
    "acquired_at": _TIME,
    "heartbeat_at": _TIME,
    "ttl": (_is_ttl, f"a number of seconds from 1 to {MAX_TTL}, null or empty"),
    "expires_at": (_is_expiry, "a time such as 2026-02-02T10:30:00Z, null or empty"),
    "token": (_is_token, "a whole number from 1 on"),
    "holder": _OBJECT,
}


def _unequal(record: dict[str, Any], *pairs: tuple[str, str]) -> Iterator[str]:
    for one, other in pairs:
        if one in record and other in record and record[one] != record[other]:
            yield (
                f"{one} is {_short(record[one])} but {other} is {_short(record[other])}: they "
                f"must be equal"
            )


def _bad_times(record: dict[str, Any], *names: str) -> Iterator[str]:
    """Yield the times of a record that fit the schema, but are not valid ISO 8601."""
    for name in names:
        value = record.get(name)
        if _starts_with_year(value) and from_iso(value) is None:
            yield f"{name} is {_short(value)}, which is not an ISO 8601 time"


def _short(value: object) -> str:
    text = repr(value)
    return shorten(text, _MAX_SHOWN)
