"""`swarm wait`: sleeps until a task is done, or free, or in some state."""

from __future__ import annotations

from swarm.cli.arguments import Call, Command
from swarm.formats import json_codec
from swarm.inputs import parse_wait
from swarm.queue.events import DONE
from swarm.queue.waiting import wait_for
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import shown


def wait(call: Call) -> int:
    task, what = call.get(0), call.options.get("--for", DONE)
    timeout = parse_wait(call.options["--timeout"], "--timeout") if "--timeout" in call.options else None
    away = output.warn_every_minute()
    answer = wait_for(
        default_store(), task, what, timeout, lambda: output.err(f"Nobody knows {task} yet: waiting for it.\n"), away
    )
    if call.json:
        fields = {"task_id": task, "for": what, "met": answer.met, "never": answer.never, "text": answer.text}
        output.out(json_codec.dumps({"schema_version": 1, **fields}) + "\n")
    elif answer.met:
        output.out(f"{shown(answer.text)}\n")
    if answer.met:
        return 0
    end = "That will not change by itself." if answer.never else f"Time is up, after {timeout:g} s."
    output.error(f"{answer.text}. {end} See: swarm status")
    return 1


COMMAND = Command(
    "TASK [--for done|free|STATE] [--timeout S]",
    "Sleeps until the task is done (default), or its lock is free, or it is in a STATE.\n"
    "\n"
    "  --for done      done in the queue; for a task that is not in the queue: DONE in the log, and no START after it\n"
    "  --for free      nobody holds its lock\n"
    "  --for STATE     ready waiting running failed cancelled: its state in the queue;\n"
    "                  START DONE WAIT ERROR HELP SKIP: its latest record in the log, now or later\n"
    "  --timeout S     at most so many seconds; default: as long as it takes\n"
    "\n"
    "Exit 1: time is up, or it can never be so unless somebody steps in: the task failed for good, was cancelled, is done\n"
    "already, or comes after one that failed or was cancelled. A task that nobody knows yet is waited for.",
    "swarm wait task-001 --for free --timeout 60",
    wait,
    "--for= --timeout=",
)
