"""Status records about events: which records only inform, and the record of a broken
lock.

An informational record says something about a task without changing its state:

    START, DONE, SKIP that an agent printed    only the agent's exit ends the attempt
    SKIP with `held_by`                        a worker found the task held by another
    SKIP with `refused`                        the queue refused to end a claim
    SKIP with `lost`                           a worker lost its lock, and stopped

WAIT, HELP and ERROR that an agent printed do change the state: the board shows them.
"""

from __future__ import annotations

from swarm import settings
from swarm.status.log import StatusLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from swarm.stores.contract import Store

INFORMATIONAL_KEYS = ("held_by", "refused", "lost")  # of the `meta` of a SKIP


def from_agent(token: int | None = None) -> dict[str, Any]:
    """Return the `meta` of a record that an agent printed or reported."""
    return {"from": "output"} if token is None else {"from": "output", "token": token}


def held_by(holder: str) -> dict[str, Any]:
    """Return the `meta` of the SKIP of a worker that found a task held by another."""
    return {"held_by": holder}


def refused(op: str, token: int | None, current_token: int) -> dict[str, Any]:
    """Return the `meta` of the SKIP for an end of a claim that the queue refused."""
    return {"refused": op, "token": token, "current_token": current_token}


def lost(**facts: Any) -> dict[str, Any]:
    """Return the `meta` of the SKIP of a worker that lost its lock."""
    return {"lost": True, **facts}


def is_from_agent(record: Mapping[str, Any]) -> bool:
    """Return whether a record has a line that an agent printed or reported."""
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
    the log see it.

    `worker` and `token` belong to the holder. They are "" and None if the lock was
    unreadable.
    """
    was = {"worker": worker, "token": token} if worker else {}
    text = f"lock broken by {who}" + (f"; it was held by {worker}" if worker else "")
    meta = {"event": "lock-broken", "by": who, "user": settings.user(), **was}
    StatusLog(store).append("ERROR", who, task, text, meta)
