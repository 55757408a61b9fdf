"""What is logged of a lock that was broken: its holder, and everyone who reads the log, must see who did this."""

from __future__ import annotations

from swarm import settings
from swarm.status.log import StatusLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.contract import Store


def log_break(store: Store, task: str, who: str, *, worker: str = "", token: int | None = None) -> None:
    """Log that `who` has broken the lock of a task. `worker` and `token` are of its holder, "" and None if unreadable."""
    was = {"worker": worker, "token": token} if worker else {}
    text = f"lock broken by {who}" + (f"; it was held by {worker}" if worker else "")
    StatusLog(store).append("ERROR", who, task, text, {"event": "lock-broken", "by": who, "user": settings.user(), **was})
