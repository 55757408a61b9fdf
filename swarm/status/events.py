"""Informational status records, and the status record of a broken lock.

An informational record says something about a task without changing its state:

    START, DONE, SKIP that an agent printed    only the agent's exit ends the attempt
    SKIP with `held_by`                        a worker found the task held by another
    SKIP with `refused`                        the queue refused to end a claim
    SKIP with `submitted`                      the work of a task waits to land
    SKIP with `landed`                         the work of a task that was done has landed
    SKIP with `returned`                       work was sent back; the next attempt has begun
    SKIP with `lost`                           a worker lost its lock, and stopped
    SKIP with `denied`                         an agent was denied tool calls
    SKIP with `policy`                         a rule of the project decided about a tool call
    SKIP with `edited`                         a user changed fields of a task
    SKIP with `typed`                          swarm answered a prompt in a pane

HELP with `stalled` or `loops` says that an attempt seems stuck. The board shows it until
a START record, or until the attempt ends.

If an agent prints WAIT, HELP or ERROR, the state of its task changes, and the board
shows the new state.
"""

from __future__ import annotations

from swarm import settings
from swarm.status.log import StatusLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from swarm.stores.contract import Store

# The reason of an attempt in which an agent was denied tool calls begins with this word.
DENIED = "denied: "
# The key in the `meta` of a WAIT record about work that cannot land.
HELD_UP = "held_up"
# Keys in the `meta` of a SKIP record.
INFORMATIONAL_KEYS = (
    "held_by",
    "refused",
    "lost",
    "denied",
    "policy",
    "submitted",
    "landed",
    "returned",
    "typed",
    "edited",
)


def from_agent(token: int | None = None) -> dict[str, Any]:
    """Return the `meta` of a record that an agent printed or reported."""
    return {"from": "output"} if token is None else {"from": "output", "token": token}


def held_by(holder: str) -> dict[str, Any]:
    """Return the `meta` of the SKIP record that a worker writes if another worker holds
    the task.
    """
    return {"held_by": holder}


def refused(op: str, token: int | None, current_token: int) -> dict[str, Any]:
    """Return the `meta` of the SKIP record which says that the queue refused to end a
    worker's claim.
    """
    return {"refused": op, "token": token, "current_token": current_token}


def submitted(work: str) -> dict[str, Any]:
    """Return the `meta` of the SKIP record which says that the work of a task waits to
    land. `work` is its commit.
    """
    return {"submitted": work}


def asked(question: str, token: int) -> dict[str, Any]:
    """Return the `meta` of the records about a question: WAIT when it is asked, SKIP when
    it is answered.
    """
    return {"question": question, "token": token}


def landed(commit: str) -> dict[str, Any]:
    """Return the `meta` of the SKIP record which says that the work of a task that was
    done already has landed, as this commit.
    """
    return {"landed": commit}


def held_up(token: int) -> dict[str, Any]:
    """Return the `meta` of the WAIT record which says why work cannot land now."""
    return {HELD_UP: True, "token": token}


def returned(work: str) -> dict[str, Any]:
    """Return the `meta` of the record which says that the work of a task was sent back:
    ERROR, or SKIP if the next attempt has begun. `work` is its commit.
    """
    return {"returned": work}


def edited(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `meta` of the SKIP record about a task whose fields a user changed."""
    return {"edited": dict(fields)}


def lost(**facts: Any) -> dict[str, Any]:
    """Return the `meta` of the SKIP record that a worker writes after it lost its lock."""
    return {"lost": True, **facts}


def denied(calls: list[dict[str, str]], token: int) -> dict[str, Any]:
    """Return the `meta` of the SKIP record about tool calls that an agent was denied.

    Each call has `tool`, `what`, and `cure`, the setting that would allow it.
    """
    return {"denied": calls, "token": token}


def by_policy(verdict: str, rule: str, tool: str, token: int) -> dict[str, Any]:
    """Return the `meta` of the SKIP record about a tool call that a rule of the project
    allowed or denied.
    """
    return {"policy": verdict, "rule": rule, "tool": tool, "token": token}


def stalled(evidence: Mapping[str, Any], token: int) -> dict[str, Any]:
    """Return the `meta` of the HELP record about an attempt without a sign of work."""
    return {"stalled": dict(evidence), "token": token}


def loops(evidence: Mapping[str, Any], token: int) -> dict[str, Any]:
    """Return the `meta` of the HELP record about an attempt that repeats itself."""
    return {"loops": dict(evidence), "token": token}


def is_stuck(record: Mapping[str, Any], token: int) -> bool:
    """Return whether a record says that the attempt with this token seems stuck."""
    meta = record.get("meta")
    return (
        isinstance(meta, dict)
        and meta.get("token") == token
        and ("stalled" in meta or "loops" in meta)
    )


def is_from_agent(record: Mapping[str, Any]) -> bool:
    """Return whether a record repeats a line that an agent printed or reported."""
    meta = record.get("meta")
    return isinstance(meta, dict) and meta.get("from") == "output"


def is_informational(record: Mapping[str, Any]) -> bool:
    """Return whether a record only informs and does not change its task."""
    state, meta = record.get("state"), record.get("meta")
    if state not in ("START", "DONE", "SKIP") or not isinstance(meta, dict):
        return False
    return meta.get("from") == "output" or (
        state == "SKIP" and any(key in meta for key in INFORMATIONAL_KEYS)
    )


def log_break(
    store: Store, task: str, who: str, *, worker: str = "", token: int | None = None
) -> None:
    """Log that `who` broke the lock of a task, so that its holder and all readers of
    the log see this.

    `worker` and `token` are the worker and the token of the holder. For an unreadable
    lock, `worker` is "" and `token` is None.
    """
    was = {"worker": worker, "token": token} if worker else {}
    text = f"lock broken by {who}" + (f"; it was held by {worker}" if worker else "")
    from swarm.system.family import this_process

    about = {"event": "lock-broken", "by": who, "user": settings.user(), **was}
    meta = {**about, "process": this_process()}
    StatusLog(store).append("ERROR", who, task, text, meta)
