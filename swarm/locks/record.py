"""The format of the record of a lock. The module `expiry` decides whether a lock is
held or has expired.

A record carries two sets of names (`worker` and `worker_id`, `ttl` and `expires_at`),
so that programs written for one of the sets can read the record. swarm reads a record
that has only one of the sets, and records that users wrote or edited.

The field `holder` names the process that the lock is bound to, if any. The field also
has a *stamp*: the reading of a clock that does not jump, with copies of the worker, the
heartbeat and the ttl. After a user has edited the record, the copies differ from the
record. The key `must_stop` in `holder` says why the holder's next heartbeats are
refused. The key `with` names the slots and locks that end with the lock, see
`companions`.
"""

from __future__ import annotations

from swarm.formats import json_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

COMPANIONS = "with"  # the key of `holder` that names the slots and locks of a claim
MAX_SECONDS = 1e12  # a longer ttl counts as endless: no date could hold its end
_set = object.__setattr__


class Lock:
    """A lock as its record describes it. The fields of a Lock cannot be changed.

    `ttl` is None and `expires_at` is "" for a lock that never expires. `token` is None
    if the record has no token. `holder` has the stamp and, for a bound lock, the
    identity of its process.
    """

    __slots__ = (
        "_encoded",
        "acquired_at",
        "expires_at",
        "heartbeat_at",
        "holder",
        "task_id",
        "token",
        "ttl",
        "worker",
    )

    task_id: str
    worker: str
    acquired_at: str
    heartbeat_at: str
    ttl: float | None
    expires_at: str
    token: int | None
    holder: Mapping[str, Any]
    _encoded: bytes

    def __init__(
        self,
        *,
        task_id: str,
        worker: str,
        acquired_at: str,
        heartbeat_at: str,
        ttl: float | None,
        expires_at: str,
        token: int | None,
        holder: Mapping[str, Any],
    ) -> None:
        _set(self, "task_id", task_id)
        _set(self, "worker", worker)
        _set(self, "acquired_at", acquired_at)
        _set(self, "heartbeat_at", heartbeat_at)
        _set(self, "ttl", ttl)
        _set(self, "expires_at", expires_at)
        _set(self, "token", token)
        _set(self, "holder", holder)
        _set(self, "_encoded", b"")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"the field {name} of a Lock cannot be assigned to: use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"the field {name} of a Lock cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (
            {name: getattr(self, name) for name in Lock.__slots__ if name != "_encoded"},
        )

    def replace(self, **changes: Any) -> Lock:
        """Return a copy of the lock with other values for the given fields."""
        return Lock(
            **{name: getattr(self, name) for name in Lock.__slots__ if name != "_encoded"} | changes
        )

    def fields(self) -> dict[str, Any]:
        """Return the record's fields, in their order in the file."""
        fields: dict[str, Any] = {
            "task_id": self.task_id,
            "worker": self.worker,
            "worker_id": self.worker,
            "acquired_at": self.acquired_at,
            "heartbeat_at": self.heartbeat_at,
            "ttl": self.ttl,
            "expires_at": self.expires_at,
        }
        if self.token is not None:
            fields["token"] = self.token
        if self.holder:
            fields["holder"] = dict(self.holder)
        return fields

    @property
    def is_bound(self) -> bool:
        """Whether the lock also ends with a process, not only with its lease."""
        return "pid" in self.holder

    @property
    def must_stop(self) -> str:
        """Why the holder must stop, such as "cancelled"; "" if it may go on."""
        return _text(self.holder.get("must_stop"))

    def belongs_to(self, worker: str, token: int | None) -> bool:
        """Return whether the record names this worker and exactly this token.

        The lock may have expired.
        """
        return (self.worker, self.token) == (worker, token)

    def encode(self) -> bytes:
        """Return the record's bytes."""
        if not self._encoded:
            _set(self, "_encoded", json_codec.dumps(self.fields(), own=True).encode() + b"\n")
        return self._encoded


def _rebuilt(fields: dict[str, Any]) -> Lock:
    """Make a lock from its pickled fields."""
    return Lock(**fields)


def decode(data: bytes, task_id: str) -> Lock | None:
    """Return the lock that a record describes.

    Return None for an invalid record. An invalid record is empty or cut short, is not
    a JSON object, or names no worker.
    """
    try:
        record = json_codec.loads(data)
    except ValueError:
        return None
    return from_fields(record, task_id)


def from_fields(record: object, task_id: str) -> Lock | None:
    """Return the lock that has the given fields, under the names that `Lock.fields`
    uses.

    Return None if the fields are invalid.
    """
    if not isinstance(record, dict):
        return None
    holder = record.get("holder")
    holder = holder if isinstance(holder, dict) and all(map(_is_plain, holder.values())) else {}
    worker = _worker(record, holder)
    if not worker:
        return None
    acquired_at = _text(record.get("acquired_at"))
    return Lock(
        task_id=_text(record.get("task_id")) or task_id,
        worker=worker,
        acquired_at=acquired_at,
        heartbeat_at=_text(record.get("heartbeat_at")) or acquired_at,
        ttl=_number(record.get("ttl")),
        expires_at=_text(record.get("expires_at")),
        token=record["token"] if type(record.get("token")) is int else None,
        holder=holder,
    )


def _worker(record: Mapping[str, object], holder: Mapping[str, object]) -> str:
    """Return the worker's name.

    If `worker` and `worker_id` differ, a user has edited one of the two fields. If the
    two fields differ, return the field that differs from the copy of the worker in the
    stamp.
    """
    worker, worker_id = _text(record.get("worker")), _text(record.get("worker_id"))
    return worker if worker and worker != holder.get("worker") else worker_id or worker


def _is_plain(value: object) -> bool:
    """Return whether the value is a string, a finite number or null.

    swarm writes only strings, finite numbers and null into `holder`.
    """
    return (
        value is None
        or isinstance(value, (str, int))
        or (isinstance(value, float) and value - value == 0)
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return max(value, -MAX_SECONDS) if value < MAX_SECONDS else None  # NaN gives None too
