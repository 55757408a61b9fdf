"""The report about a claim, for users and language models: whether a task was claimed,
which worker holds which task, and the next step. The report gives the next step as a
command that the reader can paste.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swarm.errors import LockHeld, NeedHeld, NoTask, WrongState
from swarm.queue.pauses import pausing
from swarm.queue.queue import Claim, Previous, Task
from swarm.terminal.text import foreign, foreign_name, quoted, shown

_MAX_HOLDERS = 20  # in a message
_MAX_QUOTE = 4096  # characters of a reason or a note


def fields(claimed: Claim, workspace: str = "") -> dict[str, Any]:
    """Return the report about a claim as a dict for JSON. `workspace` is the directory
    that was made for the claim.
    """
    task, worker = claimed.task, quoted(claimed.worker)
    return {
        "claimed": True,
        "must_stop": False,
        "task_id": task.id,
        "worker": claimed.worker,
        "token": claimed.token,
        "attempt": task.attempts,
        "prompt": task.spec.prompt,
        "command": task.fields()["command"],
        "previous": previous_fields(task.previous),
        **({"workspace": workspace} if workspace else {}),
        "slots": claimed.slots,
        "lease_seconds": claimed.lock.ttl,
        "lease_until": claimed.lock.expires_at,
        "task": task.fields(),
        "next": {
            "keep": f"swarm lock heartbeat {quoted(task.id)} {worker} --token {claimed.token}",
            "when_done": (
                f"swarm task done {quoted(task.id)} --worker {worker} --token "
                f"{claimed.token} 'what you did'"
            ),
            "if_it_fails": (
                f"swarm task fail {quoted(task.id)} --worker {worker} --token "
                f"{claimed.token} 'what went wrong'"
            ),
            "to_release": (
                f"swarm task release {quoted(task.id)} --worker {worker} --token {claimed.token}"
            ),
        },
    }


def previous_fields(previous: Previous) -> dict[str, str] | None:
    """Return the attempt before as a dict for JSON, None if there was none.

    The texts are those of a worker, a check or a person: data, not swarm's words.
    """
    return previous.as_dict() if previous.columns else None


def text(claimed: Claim, workspace: str = "") -> str:
    task, commands = claimed.task, fields(claimed)["next"]
    lines = [
        f"Claimed: {foreign_name(task.id)}",
        f"  worker:   {foreign_name(claimed.worker)}",
        f"  token:    {claimed.token}",
        f"  attempt:  {task.attempts} of {task.spec.max_attempts}",
        f"  lease:    {claimed.lock.ttl} seconds, until {claimed.lock.expires_at}",
        *([f"  work in:  {shown(workspace)}"] if workspace else []),
        *(
            f"  slot:     {shown(slot)} of {foreign_name(name)}"
            for name, slots in claimed.slots.items()
            for slot in slots
        ),
        "",
    ]
    if task.spec.prompt:
        lines += [
            "What to do:",
            *(f"  {shown(line)}" for line in task.spec.prompt.splitlines()),
            "",
        ]
    if task.spec.command:
        lines += ["Command to run:", f"  {shown(command_line(task))}", ""]
    lines += _about_previous(task.previous)
    lines += [
        "Next:",
        f"  keep it (before the lease ends):  {shown(commands['keep'])}",
        f"  when it is done:                  {shown(commands['when_done'])}",
        f"  if it fails:                      {shown(commands['if_it_fails'])}",
        f"  to release it unfinished:         {shown(commands['to_release'])}",
    ]
    return "\n".join(lines) + "\n"


def _about_previous(previous: Previous) -> list[str]:
    """Return lines about the attempt before, with the words of others as quotes."""
    lines = []
    if previous.reason:
        lines.append(f"  why the last attempt ended:  {foreign(previous.reason, _MAX_QUOTE)}")
    if previous.note:
        lines.append(f"  a note of a person:          {foreign(previous.note, _MAX_QUOTE)}")
    if previous.feedback:
        lines.append("  the end of its output, each line after a bar:")
        lines += [f"    | {shown(line)}" for line in previous.feedback.splitlines()]
    for question, answer, source in previous.answers:
        lines.append(f"  it asked:                    {foreign(question, _MAX_QUOTE)}")
        lines.append(f"  {f'answer ({source}):':28} {foreign(answer, _MAX_QUOTE)}")
    return ["The attempt before:", *lines, ""] if lines else []


def refusal(error: NoTask | LockHeld | WrongState, to_wait: Callable[[int], str]) -> dict[str, Any]:
    """Return the report about a refused claim.

    `to_wait` returns the command that waits for a task.
    """
    why, holders, ready_in, paused = "state", {}, None, None
    if isinstance(error, NoTask):
        why, holders, ready_in = error.why, dict(error.holders), error.ready_in
        paused = error.paused
    elif isinstance(error, LockHeld):
        why, holders = "held", {error.task_id: error.holder}
        if isinstance(error, NeedHeld):
            why, holders = "slots", dict(error.holders)
    if why in ("empty", "finished"):
        advice = "Stop: do not work on any task. There is nothing to wait for."
    elif why == "unknown":
        advice = "Stop: do not work on this task."
    elif paused is not None:
        advice = f"{pausing.ADVICE} The user's command: {paused['resume']}"
    elif isinstance(error, NoTask):
        wait = to_wait(max(300, round(ready_in or 0) + 1))
        advice = f"Stop: do not work on any task now. To wait for one: {wait}"
    elif isinstance(error, LockHeld):
        name = foreign_name(error.task_id)
        advice = f"Stop: do not work on {name} now. To wait for it: {to_wait(300)}"
    else:
        advice = f"Stop: do not work on {foreign_name(error.task_id)} now."
    answer = {
        "claimed": False,
        "must_stop": True,
        "why": "paused" if paused else why,
        "reason": str(error),
        "held_by": holders,
        **({"paused": dict(paused)} if paused else {}),
    }
    return {**answer, "ready_in": None if ready_in is None else round(ready_in, 3), "next": advice}


def command_to_wait(worker: str, task: str | None) -> Callable[[int], str]:
    """Return a function that returns the command to wait for a named task, or for any
    task.
    """
    claim = "swarm task claim" if task is None else f"swarm task claim {quoted(task)}"
    return lambda seconds: f"{claim} --worker {quoted(worker)} --wait {seconds}"


def refusal_text(fields: dict[str, Any]) -> str:
    shown_holders = [(task, holder) for task, holder in fields["held_by"].items() if holder][
        :_MAX_HOLDERS
    ]
    held = "".join(
        f"  {foreign_name(task)} is held by {foreign_name(holder)}\n"
        for task, holder in shown_holders
    )
    return f"Not claimed.\n{held}{fields['next']}\n"


def command_line(task: Task) -> str:
    """Return a task's own command as a user would type it, "" if the task has no
    command.
    """
    command = task.spec.command
    return " ".join(map(quoted, command)) if isinstance(command, tuple) else command or ""
