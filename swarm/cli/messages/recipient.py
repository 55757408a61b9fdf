"""Name the recipient of a message, with what is known about it now."""

from __future__ import annotations

from swarm.terminal.text import foreign_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.messages.message import Delivery
    from swarm.messages.outbox import Outbox


def recipient(delivery: Delivery, outbox: Outbox) -> str:
    """Return the worker or the task that a delivery waits for."""
    if delivery.worker:
        runs = "" if outbox.runs(delivery.worker) else " (no such worker is known to run now)"
        return f"{foreign_name(delivery.worker)}{runs}"
    holder, state = outbox.holder(delivery.task), outbox.ended_as(delivery.task)
    about = f"held by {foreign_name(holder)}" if holder else "which no worker holds now"
    return f"task {foreign_name(delivery.task)} ({f'which is {state}' if state else about})"
