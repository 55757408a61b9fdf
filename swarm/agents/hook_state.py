"""What is remembered of an agent between its hooks, each of which is a process of its own.

It is kept on this machine, beside the state, and may be lost at any time. What makes no sense counts as nothing. Reading it is
all that most hooks do, so this imports little.
"""

from __future__ import annotations

from swarm import settings
from swarm.formats import json_codec
from swarm.locks.heartbeat import heartbeat_interval
from swarm.stores.cache import FileCache
from swarm.stores.file.state_dir import StateDir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class HookMemory:
    """What is remembered of one agent: when its locks were last refreshed `at` (by the wall clock), how long the `shortest` of
    their leases is (0: there is none), the `tokens` of the tasks that it had then and of the claims that it was `reminded` of."""

    def __init__(self, worker: str) -> None:
        path, chosen = settings.state_dir()
        self._files = FileCache(path, StateDir(path, trusted=chosen))
        self._name = f"agent-{worker}"
        self.at = 0.0
        self.shortest = 0.0
        self.tokens: dict[str, int] = {}
        self.reminded: dict[str, int] = {}
        self._recall()

    def is_due(self, now: float) -> bool:
        """Whether its locks are to be refreshed: after each tool would cost the agent more than it gives."""
        return not 0 <= now - self.at < heartbeat_interval(self.shortest)

    def save(self) -> None:
        fields = {"at": self.at, "shortest": self.shortest, "tokens": self.tokens, "reminded": self.reminded}
        self._files.put(self._name, json_codec.dumps(fields).encode())

    def forget(self) -> None:
        self._files.drop(self._name)

    def _recall(self) -> None:
        data = self._files.get(self._name)
        try:
            said = json_codec.loads(data or b"{}")
            at, shortest = float(said.get("at", 0)), float(said.get("shortest", 0))
            tokens, reminded = _tokens(said.get("tokens", {})), _tokens(said.get("reminded", {}))
        except (ValueError, TypeError, AttributeError):
            return
        self.at, self.shortest, self.tokens, self.reminded = at, shortest, tokens, reminded


def _tokens(said: Mapping[str, object]) -> dict[str, int]:
    return {task: token for task, token in said.items() if isinstance(token, int)}
