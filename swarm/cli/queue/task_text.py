"""How `swarm task` shows a task."""

from __future__ import annotations

from swarm.formats import json_codec
from swarm.queue import claim_report
from swarm.queue.task import AGENT, NAMES, OBJECT, SECONDS, TASK_FIELDS, TEXT, WHOLE
from swarm.queue.usage import Usage
from swarm.terminal import output
from swarm.terminal.text import money, shorten, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from swarm.locks.record import Lock
    from swarm.queue.task import Kind, Task

_COLOURS = {
    "running": "bold",
    "done": "green",
    "failed": "red",
    "cancelled": "dim",
    "waiting": "dim",
}
_MAX_REASON = 200  # characters of a reason in a list
_SHOWN: dict[Kind, Callable[[Any], str]] = {  # the rows of `show`
    TEXT: str,
    AGENT: str,
    WHOLE: str,
    SECONDS: lambda seconds: f"{seconds:g} s",
    NAMES: ", ".join,
    OBJECT: lambda value: json_codec.dumps(value) if value else "",
}


def mark(task: Task) -> str:
    """Return the state of a task, in colour on a terminal, as a column of a list."""
    return output.paint(f"{task.state:<9}", _COLOURS.get(task.state, "yellow"))


def about(task: Task, blocked_by: str) -> str:
    if task.state == "running":
        before = f"; before: {_one_line(task.previous.reason)}" if task.previous.reason else ""
        return (
            f" (worker: {shown(task.worker)}, since {task.since}, attempt {task.attempts} of "
            f"{task.spec.max_attempts}{before})"
        )
    if blocked_by:
        return f" (blocked: waits for {shown(blocked_by)}, which will not be done)"
    if task.state == "waiting":
        return f" (waits for {shown(', '.join(task.spec.after))})"
    again = f"again at {task.ready_at}" if task.ready_at else ""
    notes = [text for text in (_one_line(task.reason), again) if text]
    return f" ({'; '.join(notes)})" if notes else ""


def cost(usage: Usage | None) -> str:
    """Return the cost of a task as the end of its line in a list."""
    return f"  about {money(usage.cost_usd)} USD" if usage and usage.cost_usd else ""


def usage_rows(usage: Usage) -> dict[str, str]:
    """Return what a task cost as rows of `show`."""
    if usage == Usage():
        return {}
    tokens = f"{usage.input_tokens} tokens in, {usage.output_tokens} out"
    turns = count(usage.turns, "turn")
    cost = f"about {money(usage.cost_usd)} USD" if usage.cost_usd else "not reported in money"
    return {"cost": f"{cost}, {turns}, {tokens}, as the agent reports"}


def _one_line(text: str) -> str:
    """Return the beginning of a text of a worker, on one line."""
    return shown(shorten(" ".join(text.split()), _MAX_REASON))


def waits(task: Task) -> str:
    return f" (waits for {', '.join(task.spec.after)})" if task.state == "waiting" else ""


def stopping(lock: Lock | None) -> str:
    """Return a line about the worker of a cancelled claim that has not stopped yet."""
    if lock is None or not lock.must_stop:
        return ""
    until = f", or until {lock.expires_at}" if lock.expires_at else ""
    return (
        f"  {shown(lock.worker)} stops at its next heartbeat. No other worker can claim the task "
        f"until then{until}.\n"
    )


def rows(task: Task) -> dict[str, str]:
    """Return the fields of a task as strings, except the prompt. An empty field is ""."""
    found: dict[str, str] = {}
    for field in TASK_FIELDS:
        value = getattr(task.spec, field.name)
        if field.name == "max_attempts":
            found["attempts"] = f"{task.attempts} of {value}"
        elif field.name != "prompt" and field.kind in _SHOWN:
            found[field.name] = "" if value is None else _SHOWN[field.kind](value)
    needs_worker = task.state == "ready" and task.spec.command
    return found | {
        "command": claim_report.command_line(task),
        "needs": "a worker without --exec, or with --allow-commands" if needs_worker else "",
        "added_at": task.added_at,
        "since": task.since,
        "failure": _one_line(task.previous.reason),
        "note": task.previous.note,
        "session": task.previous.session,
    }


def history_line(record: dict[str, Any]) -> str:
    reason = f"  {record['reason']}" if record.get("reason") else ""
    return shown(
        f"{record.get('timestamp', '')}  {record.get('type', '')!s:5}  "
        f"{record.get('worker', '')}{reason}"
    )


def count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
