"""Checks a whole swarm's files against the JSON Schemas that ship with the package.

The schemas use a small part of JSON Schema, so that the check needs nothing installed; a keyword that is not known here is an
error, never ignored. The tests compare this reading with that of the jsonschema library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from swarm.errors import StoreError
from swarm.formats import json_codec
from swarm.inputs import check_name
from swarm.locks.table import NAMESPACE
from swarm.status.log import LOG
from swarm.stores.contract import Store
from swarm.system.clock import from_iso

_PROGRESS_EVERY = 20_000
_ANNOTATIONS = {"$schema", "title", "description"}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}


def faults(store: Store, progress: Callable[[int], object] = lambda count: None) -> Iterator[tuple[str, str]]:
    """Every fault in the log and the locks of a store: the place, and what is wrong there. Tells how many lines it has seen."""
    schema = load_schema("status-record")
    for count, (place, line, whole) in enumerate(store.numbered(LOG)):
        if count % _PROGRESS_EVERY == _PROGRESS_EVERY - 1:
            progress(count + 1)
        if not whole:
            yield place, "the last line is not complete"
        elif line.strip():
            yield from ((place, fault) for fault in record_faults(line, schema))
    schema = load_schema("lock")
    for key in store.keys(NAMESPACE):
        try:
            data = store.read(key)
        except StoreError as error:
            yield store.where(key), f"cannot be read: {error}"
            continue
        if data is not None:
            yield from ((store.where(key), fault) for fault in lock_faults(data, key.partition("/")[2], schema))


def record_faults(line: bytes, schema: dict[str, Any]) -> Iterator[str]:
    """What is wrong with one line of the log."""
    record = _loaded(line)
    if isinstance(record, _Fault):
        yield record.text
        return
    yield from check(record, schema)
    if isinstance(record, dict):
        yield from _unequal(record, ("type", "state"), ("reason", "message"))
        yield from _bad_times(record, "timestamp")


def lock_faults(data: bytes, task: str, schema: dict[str, Any]) -> Iterator[str]:
    """What is wrong with one lock file."""
    record = _loaded(data)
    if isinstance(record, _Fault):
        yield record.text
        return
    yield from check(record, schema)
    if isinstance(record, dict):
        yield from _unequal(record, ("worker", "worker_id"))
        yield from _bad_times(record, "acquired_at", "heartbeat_at", "expires_at")
        if isinstance(record.get("task_id"), str) and record["task_id"] != task:
            yield f"task_id is {record['task_id']!r}, but the file is named after {task!r}"
    try:
        check_name(task, "the file's name")
    except ValueError as error:
        yield str(error)


def load_schema(name: str) -> dict[str, Any]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemas", f"{name}.schema.json")
    try:
        with open(path, "rb") as file:
            schema = json_codec.loads(file.read(), strict=True)
        if not _is_schema(schema):
            raise ValueError("not a schema, or one with a keyword that is not implemented")
    except (OSError, ValueError) as error:
        raise StoreError(f"the schema {path} cannot be used: {error}. Install swarm anew.") from None
    whole: dict[str, Any] = schema
    return whole


def check(value: object, schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """The faults of a value by a schema."""
    name = at or "the record"
    for keyword, rule in schema.items():
        if keyword == "type":
            if not _has_type(value, rule):
                yield f"{name} must be of type {rule}, not {_type_name(value)}"
        elif keyword == "enum":
            if not any(value == allowed and type(value) is type(allowed) for allowed in rule):
                yield f"{name} must be one of {' '.join(map(repr, rule))}, not {_short(value)}"
        elif keyword == "anyOf":
            found = [list(check(value, option, at)) for option in rule]
            if all(found):
                yield " or ".join(option[0] for option in found)
        elif keyword == "required":
            if isinstance(value, dict):
                yield from (f"{key} is missing" for key in rule if key not in value)
        elif keyword == "properties":
            if isinstance(value, dict):
                for key, part in rule.items():
                    if key in value:
                        yield from check(value[key], part, f"{at}.{key}" if at else key)
        elif keyword == "minLength":
            if isinstance(value, str) and len(value) < rule:
                yield f"{name} must have {rule} characters or more"
        elif keyword == "pattern":
            if isinstance(value, str) and not re.search(rule, value):
                yield f"{name} is {_short(value)}, which does not match {rule}"
        elif keyword in ("minimum", "maximum"):
            if _has_type(value, "number") and (value < rule if keyword == "minimum" else value > rule):
                yield f"{name} is {_short(value)}, but its {keyword} is {rule}"
        elif keyword not in _ANNOTATIONS:
            raise ValueError(f"the schema uses {keyword}, which is not implemented")


def _is_schema(schema: object) -> bool:
    """Whether `check` understands all of it."""
    return isinstance(schema, dict) and all(_is_rule(keyword, rule) for keyword, rule in schema.items())


def _is_rule(keyword: str, rule: object) -> bool:
    if keyword == "type":
        return isinstance(rule, str) and rule in _TYPES
    if keyword == "enum":
        return isinstance(rule, list)
    if keyword == "anyOf":
        return isinstance(rule, list) and bool(rule) and all(map(_is_schema, rule))
    if keyword == "required":
        return isinstance(rule, list) and all(isinstance(key, str) for key in rule)
    if keyword == "properties":
        return isinstance(rule, dict) and all(map(_is_schema, rule.values()))
    if keyword == "minLength":
        return _has_type(rule, "integer")
    if keyword == "pattern":
        return isinstance(rule, str) and _compiles(rule)
    if keyword in ("minimum", "maximum"):
        return _has_type(rule, "number")
    return keyword in _ANNOTATIONS


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


class _Fault:
    def __init__(self, text: str) -> None:
        self.text = text


def _loaded(data: bytes) -> object:
    try:
        return json_codec.loads(data, strict=True)
    except ValueError as error:
        return _Fault(f"not JSON: {error}")


def _unequal(record: dict[str, Any], *pairs: tuple[str, str]) -> Iterator[str]:
    for one, other in pairs:
        if one in record and other in record and record[one] != record[other]:
            yield f"{one} is {_short(record[one])} but {other} is {_short(record[other])}: they must be equal"


def _bad_times(record: dict[str, Any], *names: str) -> Iterator[str]:
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value and from_iso(value) is None:
            yield f"{name} is {_short(value)}, which is not an ISO 8601 time"


def _has_type(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _type_name(value: object) -> str:
    return next(name for name in ("boolean", "null", "integer", "number", "string", "object", "array") if _has_type(value, name))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
