"""`swarm wait`: wait until tasks are done, until their locks are free, until they are in a
given state, or until nothing is left to do in the queue.
"""

from __future__ import annotations

from swarm.board.waiting import wait_for
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput
from swarm.inputs import check_name
from swarm.locks.waits import Waiting
from swarm.queue.events import DONE
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def wait(call: Call) -> int:
    tasks = list(dict.fromkeys(check_name(task, "TASK") for task in call.positional))
    if _ALL.name in call.options:
        if tasks or "--for" in call.options:
            raise BadInput("--all waits for the whole queue: leave out TASK and --for.")
        return _wait_for_queue(call)
    if not tasks:
        raise BadInput("wait needs a task, or --all for all tasks of the queue.")
    if len(tasks) > 1:
        return _wait_for_each(call, tasks)
    task, what = tasks[0], call.options.get("--for", DONE)
    timeout = call.timeout()
    away = output.warn_every_minute()
    with Waiting(f"{task} to be {what}"):
        answer = wait_for(default_store(), task, what, timeout, lambda: _warn_unknown(task), away)
    fields = {
        "task_id": task,
        "for": what,
        "met": answer.met,
        "never": answer.never,
        "text": answer.text,
    }
    return _end(call, fields, answer.met, answer.text, is_over=not answer.never)


def _wait_for_each(call: Call, tasks: list[str]) -> int:
    from swarm.board.waiting_for_all import wait_for_each

    what, away = call.options.get("--for", DONE), output.warn_every_minute()
    with Waiting(f"{len(tasks)} tasks to be {what}"):
        found = wait_for_each(default_store(), tasks, what, call.timeout(), away, _warn_unknown)
    rows = [
        {"task_id": task, "met": each.met, "never": each.never, "text": each.text}
        for task, each in found.by_task.items()
    ]
    fields = {"for": what, "met": found.met, "never": found.never, "tasks": rows}
    return _end(call, fields, found.met, found.text, is_over=not found.never)


def _wait_for_queue(call: Call) -> int:
    from swarm.board.waiting_for_all import wait_for_queue

    away = output.warn_every_minute()
    with Waiting("all tasks to end"):
        end = wait_for_queue(default_store(), call.timeout(), away)
    fields = {
        "met": end.met,
        "ended": end.ended,
        "failed": end.failed,
        "cancelled": end.cancelled,
        "blocked": end.blocked,
        "asking": end.asking,
        "waiting_for_time": end.early,
        "left": end.left,
        "text": end.text,
    }
    return _end(call, fields, end.met, end.text, is_over=not end.ended)


def _end(call: Call, fields: dict[str, Any], met: bool, text: str, *, is_over: bool) -> int:
    """Print the answer, and return the exit code. `is_over`: the time is over."""
    if not call.answer(fields) and met:
        output.out(f"{shown(text)}\n")
    if met:
        return 0
    end = "Only a user can change this."
    if is_over:
        end = f"The time of {call.timeout() or 0.0:g} s is over."
    output.error(f"{text}. {end} See: swarm status")
    return 1


def _warn_unknown(task: str) -> None:
    output.err(f"There is no task {task} yet: waiting for it.\n")


_ALL = Option("--all", text="wait until no task of the queue is left to do")
COMMAND = Command(
    wait,
    "Wait until tasks are done, until their locks are free, or until they are in a given state.",
    "swarm wait login schema --timeout 600",
    repeated="TASK",
    options=(
        _ALL,
        Option("--for", "done|free|STATE", "what to wait for; default: done"),
        Option("--timeout", "S", "wait at most S seconds; default: without limit"),
    ),
    details=(
        {
            "done": (
                "the task is done in the queue. For a task that is not in the queue: the log "
                "has DONE, and no START after it"
            ),
            "free": "no worker holds the lock of the task",
            "STATE": (
                "ready waiting running asking submitted failed cancelled: the state of the task "
                "in the queue. START DONE WAIT ERROR HELP SKIP: the type of the latest record of "
                "the task, now or later"
            ),
        },
    ),
    notes=(
        (
            "Of several tasks, all must be so at the same moment. If one of them never can be, "
            "the command ends at once, and names it."
        ),
        (
            "--all ends when each task is done, has failed, was cancelled, or waits for a person, "
            "for a task that will not be done, or for its time. Exit 1 if one has failed, is "
            "blocked or asks."
        ),
        (
            "Exit 1: the time is over, or only a user can still bring the state about. That is "
            "so for a task that has failed, was cancelled or is done, and for a task that comes "
            "after a failed or cancelled task. If the task does not exist yet, the command waits "
            "for it."
        ),
    ),
)
