"""What is logged of a lock that was broken: the holder, and whoever watches, must be able to see who did this."""

from __future__ import annotations

from swarm import settings
from swarm.locks.record import Lock
from swarm.status.log import StatusLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.contract import Store


def log_break(store: Store, task: str, lock: Lock | None, who: str) -> None:
    """Tells that `who` has broken the lock of a task, None for one that made no sense."""
    was = {"worker": lock.worker, "token": lock.token} if lock else {}
    text = f"lock broken by {who}" + (f"; it was held by {lock.worker}" if lock else "")
    StatusLog(store).append("ERROR", who, task, text, {"event": "lock-broken", "by": who, "user": settings.user(), **was})
