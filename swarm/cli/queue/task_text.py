"""How `swarm task` shows a task."""

from __future__ import annotations

from swarm.formats import json_codec
from swarm.queue import claim_report
from swarm.queue.events import ASKING, SUBMITTED
from swarm.queue.task import (
    AGENT,
    BRANCH,
    CHECKS,
    FLAG,
    LABELS,
    MOMENT,
    NAMES,
    OBJECT,
    REVIEWED,
    RULE,
    SECONDS,
    TASK_FIELDS,
    TEXT,
    WHOLE,
)
from swarm.queue.usage import Usage
from swarm.terminal import output
from swarm.terminal.text import foreign, money, shorten, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from swarm.locks.record import Lock
    from swarm.queue.task import Kind, Task

_COLOURS = {
    "running": "bold",
    "submitted": "green",
    "done": "green",
    "failed": "red",
    "cancelled": "dim",
    "waiting": "dim",
}
_MAX_REASON = 200  # characters of a reason in a list
_HASH = 12  # characters of a commit
_SHOWN: dict[Kind, Callable[[Any], str]] = {  # the rows of `show`
    TEXT: str,
    AGENT: str,
    WHOLE: str,
    SECONDS: lambda seconds: f"{seconds:g} s",
    NAMES: ", ".join,
    LABELS: ", ".join,
    OBJECT: lambda value: json_codec.dumps(value) if value else "",
    CHECKS: lambda value: value if isinstance(value, str) else " && ".join(value) or "none",
    BRANCH: str,
    FLAG: lambda value: "yes" if value else "no",
    REVIEWED: str,
    MOMENT: str,
    RULE: str,
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
    if task.state == ASKING:
        who = f"worker: {shown(task.worker)}, " if task.is_claimed else ""
        asked = [f"{each.id}: {foreign(each.text)}" for each in task.questions if each.is_open]
        return f" ({who}since {task.since}, {'; '.join(asked)})"
    if task.state == "submitted" and task.submission:
        waits = shown(task.submission.waits_for)
        return f" (since {task.since}, {waits}, {_work(task.submission.work)})"
    if blocked_by:
        return f" (blocked: waits for {shown(blocked_by)}, which will not be done)"
    if task.is_early or task.last_run:
        notes = [text for text in (_one_line(task.reason), *_times(task)) if text]
        return f" ({'; '.join(notes)})"
    if task.state == "waiting":
        return f" (waits for {shown(', '.join(task.spec.after))})"
    again = f"again at {task.ready_at}" if task.ready_at else ""
    notes = [text for text in (_one_line(task.reason), again) if text]
    return f" ({'; '.join(notes)})" if notes else ""


def _times(task: Task) -> list[str]:
    """Return when a task recurs, how its last run has ended, and when the next may begin."""
    ready_at = shown(task.ready_at)
    if not task.spec.every:
        return [f"waits until {ready_at}"] if ready_at else []
    last = f"the last run has {'failed' if task.last_run == 'failed' else 'succeeded'}"
    found = [f"every {shown(task.spec.every)}", last if task.last_run else ""]
    return [*found, f"next {ready_at}" if ready_at else ""]


def _work(commit: str) -> str:
    return f"work {shown(commit[:_HASH])}"


def _check(check: Mapping[str, Any]) -> str:
    """Return the check that work has passed, "" if there was none."""
    seconds = check.get("seconds")
    took = f" ({seconds:.1f} s)" if isinstance(seconds, int | float) else ""
    return f"{check['command']}{took}" if check.get("command") else ""


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
    if task.is_early:
        return f" ({'; '.join(filter(None, _times(task)))})"
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
            found[field.name.replace("_", " ")] = "" if value is None else _SHOWN[field.kind](value)
    needs_worker = task.state == "ready" and task.spec.command
    return found | {
        "command": claim_report.command_line(task),
        "needs": "a worker without --exec, or with --allow-commands" if needs_worker else "",
        "added_at": task.added_at,
        "since": task.since,
        "next": task.ready_at,
        "last run": task.last_run,
        "failure": _one_line(task.previous.reason),
        "note": task.previous.note,
        "session": task.previous.session,
        **_work_rows(task),
    }


def _work_rows(task: Task) -> dict[str, str]:
    """Return what `show` says about the work of a task: saved, submitted, landed."""
    submission, landed = task.submission, task.landed
    found = {"saved work": task.previous.work[:_HASH]}
    if submission is not None and task.state == "submitted":
        found = {
            "to land on": submission.branch,
            "review by": submission.review,
            "work": f"{submission.work[:_HASH]}, from {submission.base[:_HASH] or 'unknown'}",
            "passed": _check(submission.check),
        }
    if landed is not None:
        found["landed"] = f"{landed.branch} {landed.commit[:_HASH]}, token {landed.token}".strip()
    return found


def history_line(record: dict[str, Any]) -> str:
    reason = f"  {record['reason']}" if record.get("reason") else ""
    return shown(
        f"{record.get('timestamp', '')}  {record.get('type', '')!s:5}  "
        f"{record.get('worker', '')}{reason}"
    )


def count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def ended(task: Task) -> str:
    """Return what a user reads when a claim was ended well."""
    if task.submission is not None and task.state == SUBMITTED:
        return f"Task submitted: {shown(task.id)} {task.submission.waits_for}\n"
    return f"Task done: {shown(task.id)}{waits(task)}\n"
