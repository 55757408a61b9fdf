"""`swarm work`: list the workspaces of agents, and clean up."""

from __future__ import annotations

from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, GitError, StoreError
from swarm.landing.context import WorkContext, work_context
from swarm.queue.queue import TaskQueue
from swarm.terminal import output
from swarm.terminal.text import foreign_name, quoted, shown
from swarm.workspaces.claims import is_over
from swarm.workspaces.occupants import occupants
from swarm.workspaces.workspaces import Entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def list_workspaces(call: Call) -> int:
    entries = _entries(work_context())
    if not call.answer({"workspaces": [_fields(entry) for entry in entries]}):
        output.out("".join(map(_line, entries)) or "No workspaces\n")
    return 0


def clean(call: Call) -> int:
    found = work_context()
    if found.workspaces is None:
        raise BadInput(_NONE)
    queue, only = TaskQueue(), call.get(0)

    def may_end(task: str, token: int) -> bool:
        return (not only or task == only) and is_over(queue, task, token)

    done = found.workspaces.sweep(may_end, again=True)
    if "--force" in call.options:
        for entry in _entries(found):
            if entry.task and may_end(entry.task, entry.token):
                done += _discard(found, entry)
    left = [entry for entry in _entries(found) if not only or entry.task == only]
    code = 1 if any(entry.kept_because for entry in left) else 0
    if call.answer({"done": done, "left": [_fields(entry) for entry in left]}):
        return code
    output.out("".join(f"{shown(line[:1].upper() + line[1:])}\n" for line in done))
    output.out("".join(f"Left: {_line(entry)}" for entry in left))
    if not done and not left:
        output.out("No workspaces\n")
    return code


def _discard(found: WorkContext, entry: Entry) -> list[str]:
    """Remove a workspace that had to stay, unless a process lives in it."""
    assert found.workspaces is not None
    workspace = found.workspaces.find(entry.task, entry.token)
    if workspace is None or occupants(workspace.path):
        return []
    try:
        found.workspaces.discard(workspace)
    except (GitError, StoreError) as error:
        return [f"kept {workspace.path}: {error}"]
    return [f"removed {workspace.path}"]


def _entries(found: WorkContext) -> list[Entry]:
    return found.workspaces.list() if found.workspaces else []


def _fields(entry: Entry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "task": entry.task,
        "token": entry.token,
        "state": entry.state,
        "commit": entry.commit or None,
        "kept_because": entry.kept_because or None,
        "host": entry.host,
    }


def _line(entry: Entry) -> str:
    task = f"{foreign_name(entry.task)} {entry.token}" if entry.task else "unknown"
    saved = f", saved as {entry.commit[:12]}" if entry.commit else ""
    why = f"; stays because {shown(entry.kept_because)}" if entry.kept_because else ""
    return f"{task}: {entry.state}{saved}: {shown(quoted(entry.path))}{why}\n"


_NONE = (
    "this project has no workspaces: it is no git checkout, or swarm.toml has workspace = "
    '"none". See: swarm help work'
)
COMMANDS = {
    "list": Command(
        list_workspaces,
        "List the workspaces of attempts.",
        "swarm work list",
        notes=(
            {
                "making": "a process is making it, or was killed",
                "ready": "an agent works in it, or its worker was killed",
                "saved": "everything in it is saved, as a commit in refs/swarm/work",
                "removing": "a process is removing it, or was killed",
                "unreadable": "its record is damaged; it stays as it is",
            },
        ),
    ),
    "clean": Command(
        clean,
        "Save and remove the workspaces of attempts that are over.",
        "swarm work clean",
        optional=("TASK",),
        options=(
            Option(
                "--force",
                text="also remove copies, and what a commit cannot hold: repositories inside, "
                "submodules",
            ),
        ),
        details=(
            (
                "Workers do this by themselves. A workspace stays while its task is claimed, "
                "and while a process works in it."
            ),
        ),
        exit_codes="1 if a workspace had to stay",
    ),
}
