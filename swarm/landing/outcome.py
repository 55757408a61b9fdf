"""How a try to land ended."""

from __future__ import annotations

from dataclasses import dataclass

LANDED = "landed"
SENT_BACK = "sent back"
WAITS = "waits"


@dataclass(frozen=True)
class Outcome:
    """`kind` is LANDED, SENT_BACK or WAITS. `reason` says why work waits or was sent
    back. `commit` is where the branch has the work.
    """

    kind: str
    reason: str = ""
    commit: str = ""
    branch: str = ""


class Blocked(Exception):
    """Work cannot land now, through no fault of its own. It stays in line.

    `needs_user` is False if it can land later without a user's help.
    """

    def __init__(self, reason: str, *, needs_user: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.needs_user = needs_user


class Overtaken(Exception):
    """The branch has moved, or another lander has taken over. Nothing was landed."""
