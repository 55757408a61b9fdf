"""The memory that the hooks of one agent share. Each hook is a process of its own.

The memory is a file in the state directory. The file may be lost at any time, and an
invalid file counts as missing. Most hooks only read the file, so this module imports
few modules.
"""

from __future__ import annotations

from swarm.formats import json_codec
from swarm.locks.heartbeat import heartbeat_interval, memory_of
from swarm.stores.cache import FileCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class HookState:
    """The facts that the hooks of one agent remember.

    `at` is the time of the last heartbeat of the agent's locks, by the wall clock.
    `shortest` is the shortest TTL of the agent's locks, 0 if it has no lock. `tokens`
    has the tasks that the agent had at the last heartbeat, with their tokens.
    `reminded` has the claims of which the agent was reminded, by task. `waits` has the
    tasks, with their tokens, for which a hook wrote that the agent waits. `news` has the
    sentences that the agent must read at its next prompt. `asks` names the tool calls
    about which a hook asks.
    """

    def __init__(self, worker: str) -> None:
        self._files = FileCache.given()
        self._name = memory_of(worker)
        self.at = 0.0
        self.shortest = 0.0
        self.tokens: dict[str, int] = {}
        self.reminded: dict[str, int] = {}
        self.waits: dict[str, int] = {}
        self.news: list[str] = []
        self.asks: list[str] = []
        self._load()

    def is_due(self, now: float) -> bool:
        """Return whether the locks need a heartbeat.

        A heartbeat after every tool would slow the agent down.
        """
        return not 0 <= now - self.at < heartbeat_interval(self.shortest)

    def save(self) -> None:
        fields = {
            "at": self.at,
            "shortest": self.shortest,
            "tokens": self.tokens,
            "reminded": self.reminded,
            "waits": self.waits,
            "news": self.news,
            "asks": self.asks,
        }
        self._files.put(self._name, json_codec.dumps(fields).encode())

    def drop(self) -> None:
        self._files.drop(self._name)

    def _load(self) -> None:
        data = self._files.get(self._name)
        try:
            fields = json_codec.loads(data or b"{}")
            at, shortest = float(fields.get("at", 0)), float(fields.get("shortest", 0))
            tokens, reminded, waits = (
                _tokens(fields.get(key, {})) for key in ("tokens", "reminded", "waits")
            )
            news, asks = (
                [text for text in fields.get(key, []) if isinstance(text, str)]
                for key in ("news", "asks")
            )
        except (ValueError, TypeError, AttributeError):
            return
        self.at, self.shortest, self.tokens, self.reminded = at, shortest, tokens, reminded
        self.waits, self.news, self.asks = waits, news, asks


def _tokens(fields: Mapping[str, object]) -> dict[str, int]:
    return {task: token for task, token in fields.items() if isinstance(token, int)}
