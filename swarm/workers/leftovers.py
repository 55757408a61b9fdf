"""The processes that attempts at a task have left behind, outside of their group.

Claude Code, for example, starts each command in a session of its own. If the agent is
killed, such a command goes on, and would change files that the next attempt has written.
Its environment names the attempt, see `command.environment_for`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swarm.system import leftovers

_SAME_TASK = ("SWARM_TASK_ID", "SWARM_STATE_DIR", "SWARM_STORE")


class Leftovers:
    """The leftovers of a task. `environment` is that of the present attempt."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._same = {name: environment.get(name, "") for name in _SAME_TASK}
        self._token = int(environment["SWARM_TOKEN"])

    def end_older(self, grace: float, at_most: Callable[[], float]) -> list[int]:
        """End the processes of earlier attempts. Return those that cannot be ended."""
        return self._end(lambda token: token < self._token, grace, at_most)

    def end_own(self, grace: float, at_most: Callable[[], float]) -> list[int]:
        """End the processes of this attempt. Return those that cannot be ended."""
        return self._end(lambda token: token == self._token, grace, at_most)

    def _end(
        self, is_due: Callable[[int], bool], grace: float, at_most: Callable[[], float]
    ) -> list[int]:
        def belongs(environment: Mapping[str, str]) -> bool:
            token = environment.get("SWARM_TOKEN", "")
            return (
                "SWARM_ATTEMPT" in environment  # `swarm run` has a token too, and no attempt
                and all(environment.get(name, "") == self._same[name] for name in self._same)
                and token.isascii()
                and token.isdigit()
                and is_due(int(token))
            )

        mark = "SWARM_TASK_ID", self._same["SWARM_TASK_ID"]
        return leftovers.end(mark, belongs, grace=grace, at_most=at_most)
