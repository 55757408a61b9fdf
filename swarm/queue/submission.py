"""Work that waits to land, and work that has landed.

A worker that has finished a task whose work lands on a branch *submits* it: the work is
checked and saved, and the claim is over. `Submission` has the facts that a review and a
landing need. The task is done when its work has landed; `Landed` says where.
"""

from __future__ import annotations

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.formats.frozen_record import FrozenRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_MAX_CHECK_BYTES = 64 * 1024


class Submission(FrozenRecord):
    """The work of one attempt, which waits for its review or its landing."""

    token: int
    """The token of the claim that made the work."""
    worker: str
    at: str
    """When the work was submitted."""
    branch: str
    """The branch on which it lands, "" if it waits only for its review."""
    work: str
    """The commit that has the work."""
    base: str
    """The commit from which the attempt began."""
    tree: str
    """The tree of `work`."""
    check: Mapping[str, Any]
    """The check that passed: its command, its seconds and its tree; empty without one."""
    review: str
    """The agent that reviews it, "any" for any agent, "" without a review."""
    result: str
    """The worker's words about its work."""

    @property
    def columns(self) -> tuple[Any, ...]:
        return tuple(self.as_dict().values())

    @property
    def waits_for(self) -> str:
        """What the work waits for, in words."""
        if self.review:
            return "waits for its review"
        return f"waits to land on {self.branch}" if self.branch else "waits to land"


class Landed(FrozenRecord):
    """The last landing of a task's work that the queue knows."""

    token: int
    branch: str
    commit: str

    @property
    def columns(self) -> tuple[Any, ...]:
        return tuple(self.as_dict().values())


def submission_in_log(record: Mapping[str, Any]) -> Submission:
    """Return what an event `submit` says."""
    return Submission(
        token=record["token"],
        worker=record.get("worker", ""),
        at=record.get("at", ""),
        branch=record.get("branch", ""),
        work=record.get("work", ""),
        base=record.get("base", ""),
        tree=record.get("tree", ""),
        check=record.get("checked", {}),
        review=record.get("review", ""),
        result=record.get("reason", ""),
    )


def submission_of(columns: tuple[Any, ...]) -> Submission | None:
    return Submission(*columns) if columns else None


def landed_of(columns: tuple[Any, ...]) -> Landed | None:
    return Landed(*columns) if columns else None


def check_fields(check: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the facts about a check for an event, None if there are none.

    Raise BadInput if they are too long, or nothing that JSON can hold.
    """
    if not check:
        return None
    found = dict(check)
    if len(json_codec.dumps(found).encode()) > _MAX_CHECK_BYTES:
        raise BadInput(
            f"the facts about the check have more than {_MAX_CHECK_BYTES} bytes. Put its output "
            "in a file, and name the file."
        )
    return found
