"""What a person may do from the page: free a lock, have a task tried again, cancel one. Each is logged with who did it, as the
commands log it, and acts only on what the person has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swarm.errors import BadInput, StoreError
from swarm.formats import json_codec
from swarm.inputs import check_name
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.events import log_break
from swarm.stores.contract import Store

LONGEST_BY = 40
_LONGEST_REASON = 2000


class Actions:
    """On one store, in the name of `person` where a request does not say in whose. Threads may share the object."""

    def __init__(self, store: Store, person: str) -> None:
        self.person = person
        self._who({})
        self._store = store
        self._queue = TaskQueue(store)

    def release(self, task: str, body: bytes) -> dict[str, Any]:
        """Frees the lock that was seen. Raises NotYours if it is another by now."""
        fields = _fields(body, "by", "worker", "token")
        worker, token = fields.get("worker"), fields.get("token")
        if not isinstance(worker, str) or len(worker) > 800:
            raise BadInput("worker must be the worker that the lock was seen with, as text.")
        if isinstance(token, bool) or not isinstance(token, int | None) or "token" not in fields:
            raise BadInput("token must be the token that the lock was seen with, a whole number or null.")
        who = self._who(fields)
        lock = LockTable(self._store).break_seen(task, worker, token)
        try:
            log_break(self._store, task, who, worker=lock.worker if lock else "", token=lock.token if lock else None)
        except StoreError as error:
            raise StoreError(f"the lock of {task} is broken, but that could not be logged: {error}") from None
        return {"done": "released", "task_id": task, "by": who}

    def retry(self, task: str, body: bytes) -> dict[str, Any]:
        who = self._who(_fields(body, "by"))
        self._queue.retry(task, who)
        return {"done": "retried", "task_id": task, "by": who}

    def cancel(self, task: str, body: bytes) -> dict[str, Any]:
        fields = _fields(body, "by", "reason")
        reason = fields.get("reason", "")
        if not isinstance(reason, str) or len(reason) > _LONGEST_REASON:
            raise BadInput(f"reason must be text of at most {_LONGEST_REASON} characters.")
        who = self._who(fields)
        self._queue.cancel(task, who, reason)
        return {"done": "cancelled", "task_id": task, "by": who}

    def _who(self, fields: Mapping[str, Any]) -> str:
        by = fields.get("by", "")
        if not isinstance(by, str) or len(by) > LONGEST_BY:
            raise BadInput(f"by must be a name, as text of at most {LONGEST_BY} characters.")
        return check_name(f"{by or self.person} (web)", "by")


def _fields(body: bytes, *known: str) -> dict[str, Any]:
    try:
        fields = json_codec.loads(body, strict=True)
    except ValueError as error:
        raise BadInput(f"the body is not JSON ({error}). Send an object.") from None
    if not isinstance(fields, dict):
        raise BadInput("the body must be a JSON object.")
    if unknown := [name for name in fields if name not in known]:
        raise BadInput(f"the body has a field {unknown[0][:40]!r}. Its fields are: {' '.join(known)}.")
    return fields
