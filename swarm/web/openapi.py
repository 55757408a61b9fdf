"""The JSON API as programs read about it: OpenAPI 3.1. What it says is what the server does; the tests have that tried."""

from __future__ import annotations

from typing import Any

from swarm import __version__
from swarm.board.board import KINDS
from swarm.formats import json_codec
from swarm.queue.events import STATES
from swarm.status.log import STATES as TYPES
from swarm.web.actions import LONGEST_BY

Schema = dict[str, Any]

MOST = 1000  # tasks or records in one answer
LONGEST = 400  # characters of a parameter
ACTION_HEADER = "x-swarm-action"

_NAME = r"^([^/\\\u0000-\u001f\u007f-\u009f\u2028\u2029.-][^/\\\u0000-\u001f\u007f-\u009f\u2028\u2029]*)?$"

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": ["number", "null"]}
_WHOLE: Schema = {"type": ["integer", "null"]}
_MAYBE: Schema = {"type": ["string", "null"]}
_VERSION: Schema = {"const": json_codec.SCHEMA_VERSION}


def description() -> Schema:
    """The whole, as /openapi.json answers it."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "swarm",
            "version": __version__,
            "description": "What one look at a swarm gives. See docs/reference/web.md.",
        },
        "paths": _paths(),
        "components": {"schemas": _schemas(), "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _paths() -> Schema:
    task = _parameter("task", {"type": "string", "minLength": 1}, "path", required=True)
    limit = _parameter("limit", {"type": "integer", "minimum": 1, "maximum": MOST, "default": 200})
    words = _parameter("q", _short(), text="words that must all stand in it")
    state = _parameter("state", {"type": "string", "enum": list(STATES)})
    kind = _parameter("type", {"type": "string", "enum": list(TYPES)})
    task_filter, worker = _parameter("task", _short()), _parameter("worker", _short())
    behind = _parameter("after", _short(), text="the id behind which to go on")
    cursor = _parameter("after", _short(), text="a cursor: the records behind it, not the latest")
    event = _parameter("after", _short(), text="the event that was seen last; so does the header Last-Event-ID")
    no = {"400": "the parameters are not as they should be", "503": "the store cannot be looked at"}
    acted = {
        **no,
        "403": "the page is only for looking, or the header is missing",
        "404": "there is no such task",
        "409": "it is not so any more",
        "413": "the body is too large",
        "415": "the body is not JSON",
    }
    return {
        "/api/board": {"get": _get("The whole at a glance", "Board", no)},
        "/api/snapshot": {"get": _get("Where a page begins, before the events after `event_id`", "Snapshot", no)},
        "/api/tasks": {"get": _get("Tasks", "Tasks", {**no, "404": "`after` names no task"}, state, words, behind, limit)},
        "/api/tasks/{task}": {"get": _get("One task and its history", "TaskHistory", {**no, "404": "there is none"}, task)},
        "/api/log": {
            "get": _get(
                "Records of the log",
                "Records",
                {**no, "404": "`after` is no cursor"},
                task_filter,
                kind,
                worker,
                words,
                cursor,
                limit,
            )
        },
        "/api/events": {
            "get": {
                "summary": "Changes as server-sent events: board, tasks, log, store_error, reset; `here` when idle",
                "parameters": [event],
                "responses": {
                    "200": {"description": "a stream", "content": {"text/event-stream": {"schema": _TEXT}}},
                    **_errors(no),
                },
            }
        },
        "/api/locks/{task}/release": {"post": _post("Free a lock that was seen", "Release", acted, task)},
        "/api/tasks/{task}/retry": {"post": _post("Have a failed or cancelled task tried again", "Retry", acted, task)},
        "/api/tasks/{task}/cancel": {"post": _post("Cancel a task", "Cancel", acted, task)},
        "/openapi.json": {"get": _get("This description", "Anything", {"400": no["400"]})},
        "/healthz": {"get": _get("Whether the store can be looked at", "Health", no)},
        "/metrics": {
            "get": {
                "summary": "The whole in numbers, for Prometheus",
                "responses": {
                    "200": {"description": "text", "content": {"text/plain": {"schema": _TEXT}}},
                    **_errors({"400": no["400"]}),
                },
            }
        },
    }


def _get(summary: str, answer: str, errors: dict[str, str], *parameters: Schema) -> Schema:
    return {"summary": summary, "parameters": list(parameters), "responses": {"200": _answer(answer), **_errors(errors)}}


def _post(summary: str, body: str, errors: dict[str, str], *parameters: Schema) -> Schema:
    header = _parameter(ACTION_HEADER, {"type": "string", "enum": ["yes"]}, "header", required=True)
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}}
    return {
        "summary": summary,
        "parameters": [*parameters, header],
        "requestBody": {"required": True, "content": content},
        "responses": {"200": _answer("Done"), **_errors(errors)},
    }


def _answer(schema: str) -> Schema:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": "the answer", "content": content}


def _errors(texts: dict[str, str]) -> Schema:
    common = {"401": "the token is missing", "403": "the request comes from elsewhere", "414": "the query is too long"}
    return {code: {**_answer("Error"), "description": text} for code, text in {**common, **texts}.items()}


def _parameter(name: str, schema: Schema, where: str = "query", *, required: bool = False, text: str = "") -> Schema:
    parameter = {"name": name, "in": where, "required": required, "schema": schema}
    return {**parameter, "description": text} if text else parameter


def _short() -> Schema:
    return {"type": "string", "maxLength": LONGEST}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _body(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(name: str) -> Schema:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}


def _counts(*names: str) -> Schema:
    return _object(**dict.fromkeys(names, _COUNT))


def _schemas() -> Schema:
    problem = _object(
        kind={"enum": list(KINDS)},
        task_id=_TEXT,
        worker=_TEXT,
        since=_TEXT,
        text=_TEXT,
        fix={**_TEXT, "description": "a command"},
    )
    work = _object(
        worker=_TEXT, task_id=_TEXT, since=_TEXT, held_for=_NUMBER, lease_left=_NUMBER, ttl=_NUMBER, token=_WHOLE,
        state=_TEXT, text=_TEXT, said_at=_TEXT,
    )  # fmt: skip
    lock = _object(
        task_id=_TEXT, status={"enum": ["Active", "Expired", "Unknown"]}, why=_TEXT, worker=_TEXT, acquired_at=_TEXT,
        heartbeat_at=_TEXT, seconds_left=_NUMBER, ttl=_NUMBER, token=_WHOLE,
    )  # fmt: skip
    board = _object(
        schema_version=_VERSION,
        generated_at=_TEXT,
        problems=_list("Problem"),
        workers=_list("ActiveTask"),
        locks=_list("Lock"),
        queue=_counts(*STATES, "blocked", "total"),
        seen=_list("WorkerLastSeen"),
        log=_object(cursor=_TEXT, records=_COUNT, damaged=_COUNT),
        totals=_counts("problems", "workers", "locks", "seen"),
        kinds=_counts(*KINDS),
    )
    row = _object(
        id=_TEXT, state={"enum": list(STATES)}, title=_TEXT, priority={"type": "integer"}, attempts=_COUNT, max_attempts=_COUNT,
        worker=_TEXT, token=_WHOLE, since=_TEXT, reason=_TEXT, after=_COUNT, blocked_by=_MAYBE,
    )  # fmt: skip
    task = _object(
        id=_TEXT, state={"enum": list(STATES)}, prompt=_MAYBE, command=_MAYBE, priority={"type": "integer"},
        after={"type": "array", "items": _TEXT}, attempts=_COUNT, max_attempts=_COUNT, timeout=_NUMBER, meta={"type": "object"},
        worker=_MAYBE, token=_WHOLE, since=_TEXT, reason=_MAYBE, ready_at=_MAYBE, added_at=_TEXT,
    )  # fmt: skip
    record = _object(timestamp=_TEXT, type=_TEXT, worker=_TEXT, task_id=_TEXT, message=_TEXT, meta={"type": ["object", "null"]})
    by = {
        "type": "string",
        "maxLength": LONGEST_BY,
        "pattern": _NAME,
        "description": "who does it; by default who started the page",
    }
    return {
        "Problem": problem,
        "ActiveTask": work,
        "Lock": lock,
        "WorkerLastSeen": _object(worker=_TEXT, task_id=_TEXT, state=_TEXT, at=_TEXT, text=_TEXT),
        "Board": board,
        "Record": record,
        "Snapshot": _object(
            schema_version=_VERSION,
            event_id=_TEXT,
            now=_TEXT,
            store_error=_TEXT,
            actions={"type": "boolean"},
            person=_MAYBE,
            board={"$ref": "#/components/schemas/Board"},
            records=_list("Record"),
        ),
        "TaskRow": row,
        "Tasks": _object(tasks=_list("TaskRow"), next=_MAYBE, total=_COUNT),
        "Task": task,
        "TaskHistory": _object(
            task={"$ref": "#/components/schemas/Task"},
            blocked_by=_MAYBE,
            locked={"type": "boolean"},
            history=_list("Record"),
            whole={"type": "boolean"},
        ),
        "Records": _object(records=_list("Record"), cursor=_TEXT, searched=_COUNT, whole={"type": "boolean"}),
        "Health": _object(ok={"const": True}),
        "Release": _body(["worker", "token"], worker={**_TEXT, "maxLength": 800}, token=_WHOLE, by=by),
        "Retry": _body([], by=by),
        "Cancel": _body([], reason={**_TEXT, "maxLength": 2000}, by=by),
        "Done": _object(done={"enum": ["released", "retried", "cancelled"]}, task_id=_TEXT, by=_TEXT),
        "Error": _object(error=_TEXT, exit_code={"type": "integer"}),
        "Anything": {"type": "object"},
    }
