"""`swarm task edit`: change fields of a task."""

from __future__ import annotations

from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.cli.queue import task_text
from swarm.inputs import MAX_RECORD_BYTES, check_name, seconds_in
from swarm.queue.queue import TaskQueue
from swarm.terminal import output
from swarm.terminal.text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_RESET = Option("--reset", "FIELD", "give FIELD its default again, such as check", repeated=True)
# The fields of options whose empty value is no list of names.
_LISTS = ("after", "labels")


def edit(call: Call) -> int:
    from swarm.cli.queue.task import given_fields

    task_id = check_name(call.get(0), "TASK")
    changes: dict[str, Any] = {
        name: None if name in _LISTS and value == [""] else value
        for name, value in given_fields(call).items()
    }
    if changes.get("prompt") == "-":
        changes["prompt"] = output.read_stdin(MAX_RECORD_BYTES)
    if call.command_line:
        changes["command"] = list(call.command_line)
    changes |= dict.fromkeys(
        (name.removeprefix("--").replace("-", "_") for name in call.every(_RESET.name)), None
    )
    if "label" in changes:
        changes["labels"] = changes.pop("label")
    task = TaskQueue().edit(task_id, whoami(fallback="user"), changes)
    if not call.answer({"edited": True, "task": task.fields()}):
        output.out(f"Task edited: {shown(task.id)}{task_text.waits(task)}\n")
    return 0


def moment(text: str) -> str:
    """Return the time in --not-before. A duration such as 2h is from now."""
    from swarm.stores.default import default_store
    from swarm.system.clock import to_iso

    seconds = seconds_in(text)
    return text if seconds is None else to_iso(default_store().clock.now() + seconds)


def command(field_options: Sequence[Option]) -> Command:
    return Command(
        edit,
        "Change fields of a task that is ready, waiting, failed or cancelled.",
        "swarm task edit login --priority 9 --after ''",
        positional=("TASK",),
        options=(*field_options, _RESET),
        command_line="optional",
        details=(
            (
                "Its state and its attempts stay. An empty value removes a text or a list; "
                "'' for --check is no check. --not-before 0s lets a task begin now."
            ),
        ),
    )
