"""Note what an interactive agent in a pane of `swarm up` does, for views and `swarm send`.

From the start to the end of the agent's session, views show the agent as a worker. The
record is bound to the agent's process, so a killed agent is reported as a worker that
died.
"""

from __future__ import annotations

from swarm import settings
from swarm.agents import identity
from swarm.agents.hook_event import HookEvent
from swarm.errors import LockHeld, NotYours, StoreError
from swarm.locks.presence import NAMESPACE
from swarm.locks.table import LockTable
from swarm.stores.default import default_store
from swarm.system import process
from swarm.tmux.activity import Activity

_SESSION_TTL = 86_400.0  # seconds; a session starts it again with each prompt
_RENEWED_BY = ("SessionStart", "UserPromptSubmit")


def note(event: HookEvent, worker: str) -> None:
    """Note an event of the hooks of an agent in a pane."""
    Activity(settings.pane()).note(event.name, event.kind)
    if event.name in _RENEWED_BY:
        _announce(worker)
    elif event.name == "SessionEnd":
        _withdraw(worker)


def _announce(worker: str) -> None:
    """Announce the agent as a worker, or renew its announcement."""
    agent = identity.find()
    if not agent.pid:
        return  # a sandbox hides the agent's process
    table = LockTable(default_store(), NAMESPACE)
    about = {"agent": agent.name, "accepts_commands": False, "in_pane": True}
    known = table.status(worker).lock
    if known is not None and known.holder.get("pid") == agent.pid:
        table.heartbeat(worker, worker, known.token)
        return
    try:
        table.acquire(
            worker,
            worker,
            _SESSION_TTL,
            bound=True,
            process=process.identity(agent.pid),
            about=about,
        )
    except LockHeld:
        pass  # another program uses this name


def _withdraw(worker: str) -> None:
    try:
        LockTable(default_store(), NAMESPACE).release(worker, worker)
    except (NotYours, StoreError):
        pass
