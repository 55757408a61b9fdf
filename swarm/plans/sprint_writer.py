"""Change states in a project's `sprint-status.yaml`, under its sprint mutex.

swarm is one writer among persons and agents that edit the file by hand: the mutex keeps
sprints of other sessions out, and each change compares the file before it replaces it.
"""

from __future__ import annotations

import os
import time

from swarm.errors import BadInput, StoreError
from swarm.plans import replacing
from swarm.plans.status_file import StatusFile
from swarm.plans.stories import EPIC, STATES, STORY, epic_of, kind_of
from swarm.queue.events import ASKING, CANCELLED, DONE, FAILED, RUNNING, SUBMITTED
from swarm.sprint.mutex import WRITE_TIMEOUT_SECONDS, SprintMutex
from swarm.system import ancestry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Answer = dict[str, Any]

# Where BMAD puts the file, the newest path first.
PATHS = (
    "_bmad-output/implementation-artifacts/sprint-status.yaml",
    "_bmad-output/sprint-status.yaml",
    "docs/implementation-artifacts/sprint-status.yaml",
    "docs/sprint-artifacts/sprint-status.yaml",
    ".bmad/sprint-artifacts/sprint-status.yaml",
    "docs/stories/sprint-status.yaml",
    "docs/sprint-status.yaml",
    "sprint-status.yaml",
)
# Session and epic in a lock that is held only for the change of a file.
_SESSION = "swarm sprint status"
_EPIC_SPEC = "sprint-status.yaml"
_PAUSE = 0.02  # seconds
_MAX_TRIES = 100
_STATUS_OF = {
    RUNNING: "in-progress",
    ASKING: "in-progress",
    SUBMITTED: "review",
    DONE: "done",
}


def find(root: str, chosen: str = "") -> str:
    """Return the path of the file in a project. Raise BadInput if there is none, or more
    than one.
    """
    if chosen:
        return os.path.join(root, chosen)
    found = [path for path in PATHS if os.path.isfile(f"{root}/{path}")]
    if not found:
        raise BadInput(f"there is no sprint-status.yaml in {root}. Name the file with --file.")
    if len(found) > 1:
        raise BadInput(f"there are {' and '.join(found)}. Name the file with --file.")
    return f"{root}/{found[0]}"


def load(path: str) -> tuple[bytes, StatusFile]:
    """Return the content of the file, and what it says.

    Raise BadInput if it is no such file, StoreError if it cannot be read.
    """
    try:
        data = replacing.read(path)
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}. Name the file with --file.") from None
    except ValueError:
        raise BadInput("--file has a NUL character.") from None
    return data, StatusFile(data.decode(errors="surrogateescape"), path)


def change(
    mutex: SprintMutex,
    path: str,
    wanted: Callable[[StatusFile], Mapping[str, str]],
    session_id: str = "",
) -> Answer:
    """Change states under the mutex of the project.

    `wanted` gets the file and returns the new states by key; it is called again if the
    file changes meanwhile. Return an answer of the mutex with the status `blocked` or
    `failure`, or one with the status `written` or `unchanged` and the changes.
    """
    refusal = _enter(mutex, session_id)
    if refusal is not None:
        return refusal
    try:
        for _ in range(_MAX_TRIES):
            data, file = load(path)
            statuses = {
                key: status
                for key, status in wanted(file).items()
                if file.entries[key].status != status
            }
            if not statuses:
                return {"status": "unchanged", "changed": {}, "file": file}
            before = {key: file.entries[key].status or "" for key in statuses}
            new = file.changed(statuses).encode(errors="surrogateescape")
            if replacing.replace(path, data, new):
                changed = {key: (before[key], statuses[key]) for key in statuses}
                after = StatusFile(new.decode(errors="surrogateescape"), path)
                return {"status": "written", "changed": changed, "file": after}
            time.sleep(_PAUSE / 4)
        raise StoreError(f"{path} changes faster than swarm can read it. Try again.")
    finally:
        mutex.release_own()


def checked(file: StatusFile, statuses: Mapping[str, str]) -> dict[str, str]:
    """Return states that a user asks for. A story may be named by its number, as 1-2.

    Raise BadInput for an unknown key, or a state that BMAD does not know.
    """
    found = {}
    for name, status in statuses.items():
        key = _key(file, name)
        kind = kind_of(key)
        if kind and status not in STATES[kind]:
            raise BadInput(
                f"{status[:40]!r} is not a status of {key}: use one of {' '.join(STATES[kind])}."
            )
        found[key] = status
    return found


def from_queue(file: StatusFile, tasks: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the states that follow from the states of tasks by id, and notes.

    As BMAD does, move a state only forward, and begin an epic with its first story.
    """
    found: dict[str, str] = {}
    notes: list[str] = []
    by_number: dict[str, list[str]] = {}
    for task_id in tasks:
        if epic_of(task_id):
            by_number.setdefault("-".join(task_id.split("-")[:2]), []).append(task_id)
    for key, entry in file.entries.items():
        if kind_of(key) != STORY:
            continue
        same = [key] if key in tasks else by_number.get("-".join(key.split("-")[:2]), [])
        if len(same) != 1:
            if same:
                notes.append(f"{key}: {len(same)} tasks have its number: {' '.join(same[:5])}")
            continue
        state = tasks[same[0]]
        if state in (FAILED, CANCELLED):
            notes.append(f"{key}: its task is {state}; the status stays {entry.status}")
        status = _STATUS_OF.get(state)
        if status is None:
            continue
        if entry.status not in STATES[STORY]:
            notes.append(f"{key}: its status {entry.status!r} is unknown, and stays")
        elif STATES[STORY].index(entry.status) < STATES[STORY].index(status):
            found[key] = status
        elif entry.status != status:
            notes.append(f"{key}: its task is {state}, but its status is {entry.status} already")
    for key in found:
        epic = file.entries.get(f"epic-{epic_of(key)}")
        if epic is not None and epic.status == STATES[EPIC][0]:
            found = found | {epic.key: "in-progress"}
    return found, notes


def _key(file: StatusFile, name: str) -> str:
    if name in file.entries:
        return name
    number = name.replace(".", "-", 1)
    same = [key for key in file.entries if key.startswith(f"{number}-")]
    if len(same) == 1 and epic_of(number):
        return same[0]
    raise BadInput(f"{name[:80]!r} is not in development_status of the file.")


def _enter(mutex: SprintMutex, session_id: str) -> Answer | None:
    """Acquire the mutex for a moment, unless this session has it. Return the answer of
    the mutex if another session has it.
    """
    deadline = time.monotonic() + WRITE_TIMEOUT_SECONDS
    while True:
        found = mutex.check()
        if found["status"] == "failure":
            return found
        lock = found["lock_info"]
        is_short = lock.get("epic_spec") == _EPIC_SPEC and str(lock["session_id"]).startswith(
            _SESSION
        )
        if found["status"] == "blocked":
            if not is_short and _is_own(lock, session_id):
                return None
            if not is_short or time.monotonic() > deadline:
                return found
            time.sleep(_PAUSE)
            continue
        if found["status"] == "zombie-detected" and not is_short:
            found["message"] += ". If that sprint is over: swarm sprint release"
            return {**found, "status": "blocked"}
        # a zombie of this kind is of a command that was killed
        answer = mutex.acquire(
            f"{_SESSION} {os.getpid()}", _EPIC_SPEC, force=is_short, pid=os.getpid()
        )
        if answer["status"] == "acquired":
            return None
        if answer["status"] == "failure":
            return answer


def _is_own(lock: Mapping[str, Any], session_id: str) -> bool:
    if session_id:
        return bool(lock["session_id"] == session_id)
    # every process descends from process 1
    own = {os.getpid(), *ancestry.ancestors(os.getpid())} - {1}
    return lock["pid_alive"] is True and lock["pid"] in own
