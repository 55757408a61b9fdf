"""The lock file of a sprint, and whether the sprint is still running.

The file is YAML with five keys that any program may write: `pid`, `session_id`,
`started_at`, `epic_spec` and `lock_version`. swarm adds the identity of the process
beyond its pid, and a stamp: a reading of a clock that does not jump, with a copy of the
`started_at` it belongs to. A file without them is judged by the keys it has. `lock_id`
makes every file different.
"""

from __future__ import annotations

import os

from swarm.formats import yaml_codec
from swarm.system import process
from swarm.system.clock import Clock, from_iso, to_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

ZOMBIE_THRESHOLD_HOURS = 24
LOCK_VERSION = 1
MAX_BYTES = 65536  # a larger file is not a lock file

INVALID_FORMAT = "Lock file exists but has invalid format"

_NEEDED = ("pid", "session_id", "started_at", "epic_spec")
_TEXTS = ("host", "machine", "boot", "pid_ns", "time_ns")


class Sprint:
    """A sprint as its lock file describes it."""

    __slots__ = ("epic_spec", "lock_id", "pid", "session_id", "stamp", "started_at", "who")

    def __init__(
        self,
        *,
        pid: int,
        session_id: str,
        started_at: str,
        epic_spec: str,
        who: Mapping[str, object],
        stamp: str,
        lock_id: str,
    ) -> None:
        self.pid = pid
        self.session_id = session_id
        self.started_at = started_at
        self.epic_spec = epic_spec
        self.who = who
        self.stamp = stamp
        self.lock_id = lock_id

    def encode(self) -> bytes:
        fields = {
            "pid": self.pid,
            "session_id": self.session_id,
            "started_at": self.started_at,
            "epic_spec": self.epic_spec,
            "lock_version": LOCK_VERSION,
            **self.who,
            "stamp": self.stamp,
            "lock_id": self.lock_id,
        }
        return yaml_codec.dumps(fields).encode()


class Verdict:
    """Whether a sprint is still running, and why.

    `pid_alive` is None if the process cannot be looked up from here. `age_hours` is
    None if the lock file is unreadable.
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


def new_sprint(pid: int, session_id: str, epic_spec: str, clock: Clock) -> Sprint:
    boot, time_ns = clock.identity()
    started_at = to_iso(clock.now())[:19] + "Z"
    return Sprint(
        pid=pid,
        session_id=session_id,
        started_at=started_at,
        epic_spec=epic_spec,
        who={**process.identity(pid), "boot": boot, "time_ns": time_ns},
        stamp=f"{started_at} {clock.steady():.3f}" if boot else "",
        lock_id=os.urandom(8).hex(),
    )


def decode(data: bytes) -> Sprint | None:
    """Return the sprint in a lock file, None if the file is invalid.

    Raises StoreError if the file needs a YAML reader that is not installed.
    """
    if len(data) > MAX_BYTES:
        return None
    try:
        found = yaml_codec.read_mapping(data.decode())
    except ValueError:
        return None
    pid, session_id, started_at, epic_spec = (found.get(name) for name in _NEEDED)
    if pid is None or session_id is None or started_at is None or epic_spec is None:
        return None
    if not _is_number(pid) or int(pid) <= 0 or from_iso(started_at) is None:
        return None
    who: dict[str, object] = {
        name: text for name in _TEXTS if (text := found.get(name)) is not None
    }
    start = found.get("start")
    if start is not None and _is_number(start):
        who["start"] = int(start)
    return Sprint(
        pid=int(pid),
        session_id=session_id,
        started_at=started_at,
        epic_spec=epic_spec,
        who={**who, "pid": int(pid)},
        stamp=found.get("stamp") or "",
        lock_id=found.get("lock_id") or "",
    )


def judge(sprint: Sprint | None, clock: Clock) -> Verdict:
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
    """Return the seconds since the start.

    Use the clock that does not jump if the file has a reading of it, and `started_at`
    was not edited since.
    """
    started_at, _, at = sprint.stamp.partition(" ")
    if started_at == sprint.started_at and at.isascii() and at.replace(".", "", 1).isdigit():
        passed = clock.since(
            {"at": float(at), "boot": sprint.who.get("boot"), "time_ns": sprint.who.get("time_ns")}
        )
        if passed is not None:
            return passed
    return clock.now() - (from_iso(sprint.started_at) or 0.0)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
