"""`swarm task rm` and `swarm task clear`: remove tasks from the queue."""

from __future__ import annotations

from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput
from swarm.inputs import check_name, parse_age
from swarm.queue.events import CANCELLED, DONE, ENDED, FAILED
from swarm.queue.queue import TaskQueue
from swarm.stores.default import DefaultStore, default_store
from swarm.stores.file.layout import RESULTS
from swarm.terminal import output
from swarm.terminal.text import shown
from swarm.workers.upkeep.queue_log import LogUpkeep
from swarm.workers.upkeep.results import remove_old

_STATES = {
    "--done": (DONE,),
    "--failed": (FAILED,),
    "--cancelled": (CANCELLED,),
    "--all-ended": ENDED,
}
_MAX_SHOWN = 20


def remove(call: Call) -> int:
    queue, names = TaskQueue(), [check_name(name, "TASK") for name in call.positional]
    if not names:
        raise BadInput("rm needs a task. See: swarm task list")
    for name in dict.fromkeys(names):
        queue.remove(name, whoami(fallback="user"))
    if not call.answer({"removed": list(dict.fromkeys(names))}):
        for name in dict.fromkeys(names):
            output.out(f"Task removed: {shown(name)}\n")
    return 0


def clear(call: Call) -> int:
    states = {state for option in _STATES if option in call.options for state in _STATES[option]}
    with_results, dry_run = "--results" in call.options, "--dry-run" in call.options
    if not states and not with_results:
        raise BadInput(
            "clear needs to know which tasks: give --done, --failed, --cancelled or --all-ended, "
            "or --results for old results alone."
        )
    text = call.options.get("--older-than")
    age = parse_age(text, "--older-than") if text is not None else 0.0
    queue, store = TaskQueue(), default_store()
    names = queue.clear(states, whoami(fallback="user"), older_than=age, dry_run=dry_run)
    folded = not dry_run and LogUpkeep(store).run(queue.state())
    fields = {"removed": names, "dry_run": dry_run, "folded": folded}
    gone = None
    if with_results:
        path = f"{DefaultStore(None).state_dir().path}/{RESULTS}"
        now = store.clock.now()
        gone = remove_old(path, queue.state(), now, age, removed=names, dry_run=dry_run)
        fields["results"] = {"files": gone.files, "bytes": gone.bytes}
    if call.answer(fields):
        return 0
    for name in names[:_MAX_SHOWN] if dry_run else ():
        output.out(f"{shown(name)}\n")
    if dry_run and len(names) > _MAX_SHOWN:
        output.out(f"… and {len(names) - _MAX_SHOWN} more\n")
    verb = "would be removed" if dry_run else "removed"
    if states:
        output.out(f"{len(names)} {'task' if len(names) == 1 else 'tasks'} {verb}\n")
    if gone is not None:
        files = f"{gone.files} {'file' if gone.files == 1 else 'files'}"
        output.out(f"{files} with results {verb} ({gone.bytes} bytes)\n")
    if folded:
        output.out("The queue's log was folded.\n")
    return 0


COMMANDS = {
    "rm": Command(
        remove,
        "Remove tasks from the queue: tasks that have ended, and tasks that no worker has.",
        "swarm task rm login",
        positional=("TASK",),
        repeated="TASK",
        details=(
            (
                "A task after which another open task comes is not removed. What the task has "
                "cost still counts, and its saved work stays."
            ),
        ),
    ),
    "clear": Command(
        clear,
        "Remove all tasks that have ended: done, failed or cancelled.",
        "swarm task clear --done --older-than 30d",
        options=(
            Option("--done", text="tasks that are done"),
            Option("--failed", text="tasks that have failed"),
            Option("--cancelled", text="tasks that were cancelled"),
            Option("--all-ended", text="all three"),
            Option("--older-than", "AGE", "only those that ended so long ago, such as 30d or 12h"),
            Option("--results", text="also the output in results/ of tasks that ended so long ago"),
            Option("--dry-run", text="only show what would be removed"),
        ),
        details=(
            "Tasks that another open task waits for stay. What the tasks have cost still counts.",
        ),
    ),
}
