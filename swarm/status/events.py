"""Informational status records, and the status record of a broken lock.

An informational record says something about a task without changing its state:

    START, DONE, SKIP that an agent printed    only the agent's exit ends the attempt
    SKIP with `held_by`                        a worker found the task held by another
    SKIP with `refused`                        the queue refused to end a claim
    SKIP with `lost`                           a worker lost its lock, and stopped
    SKIP with `denied`                         an agent was denied tool calls

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
# Keys in the `meta` of a SKIP record.
INFORMATIONAL_KEYS = ("held_by", "refused", "lost", "denied")


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


def lost(**facts: Any) -> dict[str, Any]:
    """Return the `meta` of the SKIP record that a worker writes after it lost its lock."""
    return {"lost": True, **facts}


def denied(calls: list[dict[str, str]], token: int) -> dict[str, Any]:
    """Return the `meta` of the SKIP record about tool calls that an agent was denied.

    Each call has `tool`, `what`, and `cure`, the setting that would allow it.
    """
    return {"denied": calls, "token": token}


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
