"""Decide whether a sprint lock is a zombie: a lock whose sprint does not run any more.

A lock is a zombie if its process has ended or cannot be looked up, or if the sprint
began more than ZOMBIE_THRESHOLD_HOURS ago. An invalid lock file is a zombie too. If the
process belongs to another host or pid namespace, the age alone decides.
"""

from __future__ import annotations

from swarm.sprint.record import Sprint
from swarm.system import process
from swarm.system.clock import Clock, from_iso

ZOMBIE_THRESHOLD_HOURS = 24
INVALID_FORMAT = "Lock file exists but has invalid format"


class Verdict:
    """Whether a sprint lock is a zombie, and why.

    `pid_alive` is None if the process belongs to another host or pid namespace.
    `age_hours` is None if the lock file is invalid. `warning` is "" if there is no
    warning.
    """

    __slots__ = ("age_hours", "pid_alive", "warning", "why")

    def __init__(
        self, pid_alive: bool | None, age_hours: float | None, why: str, warning: str = ""
    ) -> None:
        self.pid_alive = pid_alive
        self.age_hours = age_hours
        self.why = why
        self.warning = warning

    @property
    def is_zombie(self) -> bool:
        return self.pid_alive is False or (
            self.age_hours is not None and self.age_hours > ZOMBIE_THRESHOLD_HOURS
        )


def judge(sprint: Sprint | None, clock: Clock) -> Verdict:
    """Return the verdict on a sprint. `sprint` is None for an invalid lock file."""
    if sprint is None:
        return Verdict(False, None, "the lock file is invalid", INVALID_FORMAT)
    age = _age(sprint, clock) / 3600
    found = process.probe(sprint.who, *clock.identity())
    if found == process.ELSEWHERE:
        verdict = Verdict(
            None,
            age,
            f"PID {sprint.pid} belongs to another host or pid namespace: age alone decides",
        )
    elif found == process.UNKNOWN:
        verdict = Verdict(
            False,
            age,
            "its process could not be looked up",
            f"PID check failed for PID {sprint.pid}",
        )
    else:
        verdict = Verdict(found == process.ALIVE, age, _REASONS[found])
    if verdict.pid_alive is not False and verdict.is_zombie:
        verdict.why += f", and it is older than {ZOMBIE_THRESHOLD_HOURS} hours"
    return verdict


_REASONS = {
    process.ALIVE: "its process is running",
    process.GONE: "its process is gone",
    process.REUSED: "its process is gone: the PID belongs to another process now",
    process.RESTARTED: "its process is gone: the machine was restarted",
}


def _age(sprint: Sprint, clock: Clock) -> float:
    """Return the seconds since the sprint began.

    Use the clock that does not jump, if the lock file has a reading of that clock and
    `started_at` has not been edited. If the lock file has no such reading or
    `started_at` was edited, use the wall clock.
    """
    started_at, _, at = sprint.stamp.partition(" ")
    if started_at == sprint.started_at and at.isascii() and at.replace(".", "", 1).isdigit():
        passed = clock.since(
            {"at": float(at), "boot": sprint.who.get("boot"), "time_ns": sprint.who.get("time_ns")}
        )
        if passed is not None:
            return passed
    return clock.now() - (from_iso(sprint.started_at) or 0.0)
