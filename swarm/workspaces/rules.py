"""The rules for the work of one task: its check, its review, and where it lands.

A task's own field comes first, then the project's key in swarm.toml.  `none` as a task's
branch, reviewer or check means that it has none.  The work of a review is its verdict:
nothing of it is checked, reviewed or landed.
"""

from __future__ import annotations

from dataclasses import dataclass

from swarm.project.config import Config
from swarm.queue.task import TaskSpec

NONE = "none"


@dataclass(frozen=True)
class Rules:
    """What happens with the work of a task after its agent has ended well.

    `check` are commands for a shell. `land` and `review` are "" for none. The other
    fields are as in `Config`.
    """

    check: tuple[str, ...] = ()
    check_timeout: float | None = None
    land: str = ""
    land_by: str = "rebase"
    review: str = ""
    require_changes: bool = False
    push: str = ""
    pr: str = ""
    land_checkout: str = "update"

    @property
    def is_submitted(self) -> bool:
        """Whether finished work waits for a review or a landing before the task is done."""
        return bool(self.land or self.review)


def rules_for(spec: TaskSpec, config: Config) -> Rules:
    """Return the rules for a task."""
    if spec.review_of:
        return Rules()
    own = (spec.check,) if isinstance(spec.check, str) else spec.check
    changes = spec.require_changes
    return Rules(
        check=_without_none(tuple(config.check) if own is None else tuple(own)),
        check_timeout=config.check_timeout,
        land=_chosen(spec.land, config.land),
        land_by=config.land_by,
        review=_chosen(spec.review, config.review),
        require_changes=config.require_changes if changes is None else changes,
        push=config.push,
        pr=config.pr,
        land_checkout=config.land_checkout,
    )


def _chosen(own: str | None, project: str) -> str:
    value = own or project
    return "" if value == NONE else value


def _without_none(check: tuple[str, ...]) -> tuple[str, ...]:
    return () if check == (NONE,) else check
