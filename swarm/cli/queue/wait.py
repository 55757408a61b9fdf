"""`swarm wait`: wait until a task is done, until its lock is free, or until it is in a
given state.
"""

from __future__ import annotations

from swarm.board.waiting import wait_for
from swarm.cli.arguments import Call, Command, Option
from swarm.inputs import check_name
from swarm.locks.waits import Waiting
from swarm.queue.events import DONE
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import shown


def wait(call: Call) -> int:
    task, what = check_name(call.get(0), "TASK"), call.options.get("--for", DONE)
    timeout = call.timeout()
    away = output.warn_every_minute()
    with Waiting(f"{task} to be {what}"):
        answer = wait_for(
            default_store(),
            task,
            what,
            timeout,
            lambda: output.err(f"There is no task {task} yet: waiting for it.\n"),
            away,
        )
    fields = {
        "task_id": task,
        "for": what,
        "met": answer.met,
        "never": answer.never,
        "text": answer.text,
    }
    if not call.answer(fields) and answer.met:
        output.out(f"{shown(answer.text)}\n")
    if answer.met:
        return 0
    end = "Only a user can change this." if answer.never else f"The time of {timeout:g} s is over."
    output.error(f"{answer.text}. {end} See: swarm status")
    return 1


COMMAND = Command(
    wait,
    "Wait until a task is done, until its lock is free, or until it is in a given state.",
    "swarm wait task-001 --for free --timeout 60",
    positional=("TASK",),
    options=(
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
            "Exit 1: the time is over, or only a user can still bring the state about. That is "
            "so for a task that has failed, was cancelled or is done, and for a task that comes "
            "after a failed or cancelled task. If the task does not exist yet, the command waits "
            "for it."
        ),
    ),
)
