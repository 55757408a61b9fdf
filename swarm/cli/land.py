"""`swarm land`: land finished work now, or show the line of each branch."""

from __future__ import annotations

from dataclasses import replace

from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput
from swarm.landing.context import work_context
from swarm.landing.lander import NAMESPACE, Lander
from swarm.landing.line_view import Waiting, line_view
from swarm.landing.outcome import LANDED, SENT_BACK
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import foreign, foreign_name, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHOICES = ("--onto", "--push", "--pr")


def land(call: Call) -> int:
    if "--status" in call.options:
        return _status(call)
    return _land_task(call) if call.positional else _land_all(call)


def _status(call: Call) -> int:
    if any(name in call.options for name in _CHOICES):
        raise BadInput("--status only shows the line. Leave the other options out.")
    store = default_store()
    waiting = line_view(TaskQueue(store), StatusLog(store), LockTable(store, NAMESPACE))
    if call.positional:
        waiting = [each for each in waiting if each.task == call.get(0)]
    if call.answer({"waiting": [each.fields() for each in waiting]}):
        return 0
    output.out("".join(map(_line, waiting)) or "No work waits to land\n")
    return 0


def _line(each: Waiting) -> str:
    branch = shown(each.branch) if each.branch else "(review only)"
    where = f"{branch} {each.position}. {foreign_name(each.task)}"
    lander = f"; lander: {foreign_name(each.lander)}" if each.lander else ""
    return f"{where}, since {shown(each.since)}: {shown(each.reason)}{lander}\n"


def _land_task(call: Call) -> int:
    task = call.get(0)
    outcome = _lander(call, []).land(task, call.options.get("--onto", ""))
    fields = {
        "task": task,
        "outcome": outcome.kind,
        "landed": outcome.kind == LANDED,
        "commit": outcome.commit or None,
        "branch": outcome.branch or None,
        "reason": outcome.reason or None,
    }
    if call.answer(fields):
        return 0 if outcome.kind == LANDED else 1
    name = foreign_name(task)
    if outcome.kind == LANDED:
        where = f" on {shown(outcome.branch)}: {outcome.commit[:12]}" if outcome.branch else ""
        output.out(f"{name} has landed{where}\n")
        return 0
    what = "was sent back" if outcome.kind == SENT_BACK else "waits"
    output.out(f"{name} {what}: {shown(outcome.reason)}\n")
    return 1


def _land_all(call: Call) -> int:
    if "--onto" in call.options:
        raise BadInput("--onto needs a task: swarm land TASK --onto BRANCH")
    events: list[tuple[str, str, str]] = []
    lander = _lander(call, events)
    ended = lander.run_line()
    named = [
        {"task": task, "outcome": what, "text": text}
        for what, task, text in events
        if what in ("landed", "sent back", "waits")
    ]
    code = 1 if any(each["outcome"] != LANDED for each in named) else 0
    if call.answer({"ended": ended, "tasks": named}):
        return code
    for what, task, text in events:
        output.out(
            f"{foreign_name(task)}: {shown(text if what == LANDED else f'{what}: {text}')}\n"
        )
    if not events:
        waiting = len(TaskQueue().submissions())
        output.out(
            "Another lander is at work. See: swarm land --status\n"
            if waiting
            else "No work waits to land\n"
        )
    return code


def _lander(call: Call, events: list[tuple[str, str, str]]) -> Lander:
    """Return a lander for the project, with the choices of this call."""
    found = work_context()
    if found.repository is None or found.project is None:
        raise BadInput(
            "work lands only in a project in a git checkout, and this is none. Make one: swarm init"
        )
    changes: dict[str, Any] = {}
    if "--push" in call.options:
        changes["push"] = call.options["--push"]
    if "--pr" in call.options and not found.config.pr:
        raise BadInput("--pr needs the command `pr` in swarm.toml.")
    if changes.get("push", "-").startswith("-") and changes:
        raise BadInput(f"--push is {foreign(changes['push'])}, but must name a remote: git remote")
    store = default_store()
    return Lander(
        TaskQueue(store),
        StatusLog(store),
        found.repository,
        found.state_dir,
        replace(found.config, **changes),
        whoami(fallback="user"),
        on_event=lambda *event: events.append(event),
    )


COMMAND = Command(
    land,
    "Land finished work on its branch, or show what waits to land.",
    "swarm land --status",
    optional=("TASK",),
    options=(
        Option("--onto", "BRANCH", "the branch for a task that is done and has not landed"),
        Option("--push", "REMOTE", "land on the branch of this remote"),
        Option("--pr", text="leave the merge to the forge, by the command pr of swarm.toml"),
        Option("--status", text="show the line of each branch, and why work waits"),
    ),
    details=(
        (
            "Workers land work by themselves. Without TASK, land all work that waits now. With "
            "TASK, land its work after the work before it in line."
        ),
    ),
    exit_codes="1 if work waits or was sent back",
)
