"""`swarm sprint status`: the states of a project's `sprint-status.yaml`."""

from __future__ import annotations

import re

from swarm.cli.arguments import Call
from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.plans import sprint_writer
from swarm.plans.status_file import StatusFile
from swarm.plans.stories import STATES, kind_of
from swarm.sprint.mutex import SprintMutex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Answer = dict[str, Any]

# A key that no YAML reader takes for a number or a date.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*$|\d{1,6}-\d{1,6}-[a-z][a-z0-9-]*$")


def answer(call: Call, mutex: SprintMutex) -> Answer:
    """Show or change the states. Raise BadInput for an unknown story or state."""
    asked = _asked(call)
    if "--session-id" in call.options and not call.options["--session-id"].strip():
        raise BadInput("--session-id is empty. Leave it out, or name the session.")
    path = sprint_writer.find(mutex.project_root, call.options.get("--file", ""))
    if not asked and "--from-queue" not in call.options:
        _, file = sprint_writer.load(path)
        return _answer(call, "read", path, file, f"{len(file.entries)} states")
    tasks = _tasks() if "--from-queue" in call.options else None
    notes: list[str] = []

    def wanted(file: StatusFile) -> Mapping[str, str]:
        notes.clear()
        found: dict[str, str] = {}
        if tasks is not None:
            found, more = sprint_writer.from_queue(file, tasks)
            notes.extend(more)
        return {**found, **sprint_writer.checked(file, asked)}

    found = sprint_writer.change(mutex, path, wanted, call.options.get("--session-id", ""))
    if "file" not in found:
        if found["status"] == "failure":
            return {**found, "mode": "status"}
        return {**found, "mode": "status", "message": f"Nothing was changed: {found['message']}"}
    changed = {key: f"{old} -> {new}" for key, (old, new) in found["changed"].items()}
    message = f"{len(changed)} of {len(found['file'].entries)} states changed"
    done = _answer(call, found["status"], path, found["file"], message)
    done["changed"] = changed if call.json else _quoted(changed)
    done["warnings"] = [*notes, *done["warnings"]]
    return done


def _asked(call: Call) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in call.every("--set"):
        key, sign, status = (part.strip() for part in text.partition("="))
        if not (key and sign and status):
            raise BadInput(f"--set is {text[:80]!r}, but must be STORY=STATUS, as 1-2-login=done.")
        if found.setdefault(key, status) != status:
            raise BadInput(f"--set names {key[:80]} twice. Leave one out.")
    return found


def _tasks() -> dict[str, str]:
    from swarm.queue.queue import TaskQueue

    return {task.id: task.state for task in TaskQueue().tasks()}


def _answer(call: Call, status: str, path: str, file: StatusFile, message: str) -> Answer:
    states = {key: entry.status for key, entry in file.entries.items()}
    unknown = [
        f"line {entry.line}: {entry.status!r} is not a status of {entry.key}"
        for entry in file.entries.values()
        if (kind := kind_of(entry.key)) and entry.status not in STATES[kind]
    ]
    return {
        "status": status,
        "mode": "status",
        "file": path,
        "development_status": states if call.json else _quoted(states),
        "message": message,
        "errors": [],
        "warnings": unknown,
    }


def _quoted(states: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping whose keys are safe in YAML."""
    return {
        key if _PLAIN.match(key) else json_codec.dumps(key): value for key, value in states.items()
    }
