"""Describe the JSON API as OpenAPI 3.1. The schemas are derived from the classes of the
module `answers`.

A test sends generated requests to the server and compares its answers with this
description.
"""

from __future__ import annotations

from swarm import __version__
from swarm.board.board import (
    KINDS,
    ActiveTask,
    ClosedGate,
    LandingRow,
    LivingWorker,
    LockRow,
    Problem,
    QuestionRow,
    SlotRow,
    SlotWaitRow,
    TotalUsage,
    WorkerLastSeen,
)
from swarm.queue.events import STATES
from swarm.queue.questions.question import ANYONE, PERSON
from swarm.queue.questions.question import KINDS as QUESTION_KINDS
from swarm.queue.task import task_schema
from swarm.status.log import STATES as TYPES
from swarm.web import answers
from swarm.web.schema import Schema, reference, schema_of

MAX_LIMIT = 1000  # tasks or records in one answer
MAX_POSITION = 1 << 53  # bytes of an output
MAX_PARAMETER = 400  # characters of a parameter
_UNFIT = "the queue refuses these fields, or the task is in a state that allows no edit"
ACTION_HEADER = "x-swarm-action"

# record classes, with facts that their annotations do not say
_SCHEMAS: dict[type, dict[str, Schema]] = {
    QuestionRow: {
        "kind": {"enum": list(QUESTION_KINDS)},
        "needs": {"enum": [ANYONE, PERSON]},
    },
    Problem: {"kind": {"enum": list(KINDS)}, "fix": {"description": "a command"}},
    ActiveTask: {},
    LockRow: {"status": {"enum": ["Active", "Expired", "Unknown"]}},
    SlotRow: {"status": {"enum": ["Active", "Expired", "Unknown"]}},
    SlotWaitRow: {},
    WorkerLastSeen: {},
    LivingWorker: {},
    ClosedGate: {},
    LandingRow: {"position": {"minimum": 1}},
    TotalUsage: {},
    answers.Board: {},
    answers.Location: {},
    answers.LogPosition: {},
    answers.Record: {},
    answers.Snapshot: {},
    answers.TaskRow: {},
    answers.Tasks: {},
    answers.TaskHistory: {},
    answers.TaskOutput: {},
    answers.Records: {},
    answers.Health: {},
    answers.Release: {},
    answers.Retry: {},
    answers.Open: {},
    answers.Cancel: {},
    answers.Answer: {},
    answers.Add: {},
    answers.Edit: {},
    answers.Done: {},
    answers.Error: {},
}


def description() -> Schema:
    """Return the whole description, which `/openapi.json` serves."""
    schemas = {record.__name__: schema_of(record, **extra) for record, extra in _SCHEMAS.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "swarm",
            "version": __version__,
            "description": "The state of a swarm. See docs/reference/web.md.",
        },
        "paths": _paths(),
        "components": {
            "schemas": {**schemas, "Task": _task(), "Anything": {"type": "object"}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _task() -> Schema:
    """Return the schema of one task: all declared fields, with the command as one
    string.
    """
    properties: Schema = {**task_schema(STATES), "command": {"type": ["string", "null"]}}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _paths() -> Schema:
    short = {"type": "string", "maxLength": MAX_PARAMETER}
    task = _parameter("task", {"type": "string", "minLength": 1}, "path", required=True)
    question = _parameter(
        "question", {"type": "string", "pattern": "^q[0-9]+$"}, "path", required=True
    )
    gate = _parameter("gate", {"type": "string", "minLength": 1}, "path", required=True)
    limit = _parameter(
        "limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": 200}
    )
    words = _parameter("q", short, text="words that must all occur")
    state = _parameter("state", {"type": "string", "enum": list(STATES)})
    kind = _parameter("type", {"type": "string", "enum": list(TYPES)})
    task_filter, worker = _parameter("task", short), _parameter("worker", short)
    after_task = _parameter("after", short, text="a task id; the answer begins after it")
    cursor = _parameter(
        "after", short, text="a cursor; the answer has the records after it instead of the latest"
    )
    position = _parameter(
        "after",
        {"type": "integer", "minimum": 0, "maximum": MAX_POSITION, "default": 0},
        text="a position in the output; the answer begins there",
    )
    event = _parameter(
        "after",
        short,
        text="the id of the last event received; the header Last-Event-ID does the same",
    )
    common = {"400": "a parameter is invalid", "503": "the store cannot be read"}
    acted = {
        **common,
        "403": "actions are not allowed, or the header is missing",
        "404": "there is no such task",
        "409": "the task or its lock has changed meanwhile",
        "413": "the body is too large",
        "415": "the body is not JSON",
    }
    text: Schema = {"schema": {"type": "string"}}
    return {
        "/api/board": {"get": _get("The board", "Board", common)},
        "/api/snapshot": {"get": _get("Everything a page needs to begin", "Snapshot", common)},
        "/api/tasks": {
            "get": _get(
                "Tasks",
                "Tasks",
                {**common, "404": "`after` names no task"},
                state,
                words,
                after_task,
                limit,
            ),
            "post": _post("Add a task", "Add", {**acted, "409": _UNFIT}),
        },
        "/api/tasks/{task}": {
            "get": _get(
                "One task and its history", "TaskHistory", {**common, "404": "no such task"}, task
            )
        },
        "/api/tasks/{task}/output": {
            "get": _get(
                "What the agent of a task has printed",
                "TaskOutput",
                {**common, "404": "no such task"},
                *(task, position),
            )
        },
        "/api/log": {
            "get": _get(
                "Status records",
                "Records",
                {**common, "404": "`after` is not a valid cursor"},
                *(task_filter, kind, worker, words, cursor, limit),
            )
        },
        "/api/events": {
            "get": {
                "summary": (
                    "Changes as server-sent events: board, tasks, log, store_error, "
                    "reset; `ping` when idle"
                ),
                "parameters": [event],
                "responses": {
                    "200": {"description": "a stream", "content": {"text/event-stream": text}},
                    **_errors(common),
                },
            }
        },
        "/api/locks/{task}/release": {
            "post": _post("Release a lock that the page showed", "Release", acted, task)
        },
        "/api/tasks/{task}/retry": {
            "post": _post("Make a failed or cancelled task ready again", "Retry", acted, task)
        },
        "/api/tasks/{task}/edit": {
            "post": _post("Change fields of a task", "Edit", {**acted, "409": _UNFIT}, task)
        },
        "/api/tasks/{task}/cancel": {"post": _post("Cancel a task", "Cancel", acted, task)},
        "/api/gates/{gate}/open": {
            "post": _post("Open a gate, or end a pause", "Open", acted, gate)
        },
        "/api/questions/{question}/answer": {
            "post": _post(
                "Answer a question",
                "Answer",
                {
                    **acted,
                    "404": "that is not the id of a question",
                    "409": "the question is not open any more",
                },
                question,
            )
        },
        "/openapi.json": {"get": _get("This description", "Anything", {"400": common["400"]})},
        "/healthz": {"get": _get("Whether the store can be read", "Health", common)},
        "/metrics": {
            "get": {
                "summary": "Metrics for Prometheus",
                "responses": {
                    "200": {"description": "text", "content": {"text/plain": text}},
                    **_errors({"400": common["400"]}),
                },
            }
        },
    }


def _get(summary: str, answer: str, errors: dict[str, str], *parameters: Schema) -> Schema:
    return {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {"200": _answer(answer), **_errors(errors)},
    }


def _post(summary: str, body: str, errors: dict[str, str], *parameters: Schema) -> Schema:
    header = _parameter(ACTION_HEADER, {"type": "string", "enum": ["yes"]}, "header", required=True)
    return {
        "summary": summary,
        "parameters": [*parameters, header],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": reference(body)}},
        },
        "responses": {"200": _answer("Done"), **_errors(errors)},
    }


def _answer(schema: str) -> Schema:
    return {
        "description": "the answer",
        "content": {"application/json": {"schema": reference(schema)}},
    }


def _errors(texts: dict[str, str]) -> Schema:
    common = {
        "401": "the token is missing",
        "403": "the request comes from another site",
        "414": "the query is too long",
    }
    return {
        code: {**_answer("Error"), "description": text}
        for code, text in {**common, **texts}.items()
    }


def _parameter(
    name: str, schema: Schema, where: str = "query", *, required: bool = False, text: str = ""
) -> Schema:
    parameter = {"name": name, "in": where, "required": required, "schema": schema}
    return {**parameter, "description": text} if text else parameter
