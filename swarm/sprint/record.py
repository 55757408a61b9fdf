"""The format of a sprint's lock file. The module `zombie` decides whether the sprint is
running.

The file is YAML with five keys that any program may write: `pid`, `session_id`,
`started_at`, `epic_spec` and `lock_version`. swarm adds further facts about the
process. swarm also adds a stamp: the reading of a clock that does not jump, with a copy
of `started_at`. A lock file without the additions of swarm is valid. `lock_id` is
random, so that no two lock files are equal.
"""

from __future__ import annotations

import os

from swarm.formats import yaml_codec
from swarm.system import process
from swarm.system.clock import Clock, from_iso, to_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LOCK_VERSION = 1
MAX_BYTES = 65536  # a larger file is not a lock file

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

    Raise StoreError if the file needs a YAML reader that is not installed.
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


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
