"""The names of refs and directories for a task, an attempt and a branch.

    refs/heads/swarm/TASK/TOKEN        the branch of an attempt, removed with its workspace
    refs/swarm/work/TASK/TOKEN         the saved work of an attempt; older saves: TOKEN.1 …
    refs/swarm/work/TASK/TOKEN.base    the commit from which the attempt began
    refs/swarm/landed/BRANCH/TASK      the last landing of a task on a branch: a tag object
    refs/swarm/task/TASK               when the task of this name was added: a blob
    refs/swarm/fence/task/TASK         the highest token of a task: a blob
    refs/swarm/fence/branch/BRANCH     the highest token of a lander: a blob
    refs/swarm/behind/BRANCH           where the checkouts of a branch still are

TASK and BRANCH are written by `component`: the id of a task may have any characters, and
git accepts only some of them in a ref.
"""

from __future__ import annotations

from hashlib import sha256

HEADS = "refs/heads/"
WORK = "refs/swarm/work/"
LANDED = "refs/swarm/landed/"
TASK = "refs/swarm/task/"
TASK_FENCE = "refs/swarm/fence/task/"
BRANCH_FENCE = "refs/swarm/fence/branch/"
BEHIND = "refs/swarm/behind/"
BASE = "base"  # the commit from which an attempt began
DROPPED = "dropped"  # commits of an attempt that its last state does not contain

_MAX = 160  # bytes: with a token and an ending, a file name must stay below 255 bytes
_PREFIX = 100
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def component(name: str) -> str:
    """Return a name as one part of a ref, which is also safe as a file name.

    Keep ASCII letters, digits, `_`, `-` and harmless dots, and write each other byte as
    `%XX`. Two names never have the same component. A long name is cut, and ends with
    `%h` and a hash.
    """
    data = name.encode("utf-8", "surrogateescape")
    parts = []
    for index, byte in enumerate(data):
        harmless = byte in _PLAIN and not (byte == ord("-") and index == 0)
        parts.append(chr(byte) if harmless or _is_inner_dot(data, index) else f"%{byte:02X}")
    text = "".join(parts)
    if len(text) <= _MAX:
        return text
    return f"{text[:_PREFIX]}%h{sha256(data).hexdigest()[:40]}"


def work_ref(task: str, token: int, older: int | str = 0) -> str:
    """Return the ref of an attempt's saved work. `older` numbers the earlier saves of
    the same attempt from 1 on; `DROPPED` is for commits that the agent dropped, `BASE`
    for the commit that the attempt began with.
    """
    return f"{WORK}{component(task)}/{token}{f'.{older}' if older else ''}"


def work_refs(task: str) -> str:
    """Return the prefix of all refs with saved work of a task."""
    return f"{WORK}{component(task)}/"


def attempt_branch(task: str, token: int) -> str:
    """Return the ref of the branch on which an attempt works."""
    return f"{HEADS}swarm/{component(task)}/{token}"


def landed_ref(branch: str, task: str) -> str:
    return f"{LANDED}{component(branch)}/{component(task)}"


def task_ref(task: str) -> str:
    return f"{TASK}{component(task)}"


def task_fence(task: str) -> str:
    return f"{TASK_FENCE}{component(task)}"


def branch_fence(branch: str) -> str:
    return f"{BRANCH_FENCE}{component(branch)}"


def behind_ref(branch: str) -> str:
    return f"{BEHIND}{component(branch)}"


def workspace_name(task: str, token: int) -> str:
    """Return the name of the directory of an attempt's workspace."""
    return f"{component(task)}.{token}"


def landing_name(branch: str, token: int) -> str:
    """Return the name of the directory in which a lander works.

    No task has a workspace of this name: `component` never writes `%l`.
    """
    return f"%landing.{component(branch)}.{token}"


def short(ref: str) -> str:
    """Return the name of a branch without `refs/heads/`."""
    return ref.removeprefix(HEADS)


def _is_inner_dot(data: bytes, index: int) -> bool:
    """Return whether a byte is a dot that git accepts here: not the first or
    last, not beside another dot, and not the dot of an ending `.lock`.
    """
    return (
        data[index] == ord(".")
        and 0 < index < len(data) - 1
        and data[index + 1] != ord(".")
        and data[index - 1] != ord(".")
        and data[index:].lower() != b".lock"
    )
