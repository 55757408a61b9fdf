"""The status log for Python programs:

`StatusBroadcaster` writes the records of one worker, and reads the records of all
workers.

Without a store, each call uses the state directory that the environment names.
"""

import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from swarm.errors import BadInput
from swarm.inputs import check_name
from swarm.status.log import STATES, StatusLog, check_filter, parse_record
from swarm.stores.contract import StoreLike
from swarm.stores.default import DefaultStore

__all__ = ["BroadcastState", "StatusBroadcaster"]


class BroadcastState(StrEnum):
    """The six states of a record.

    All other facts go into the field `meta` of a record. Each member equals its name as
    a string.
    """

    START = "START"
    DONE = "DONE"
    WAIT = "WAIT"
    ERROR = "ERROR"
    HELP = "HELP"
    SKIP = "SKIP"


class StatusBroadcaster:
    """Writes and reads the status log.

    When a call returns, its record is in the log, whole and once.
    """

    def __init__(self, worker_id: str, store: StoreLike = None) -> None:
        self.worker_id = check_name(worker_id, "worker_id")
        self._default_store = DefaultStore(store)
        self._default_store.prepare()
        self._last: StatusLog | None = None

    def broadcast(
        self,
        state: BroadcastState | str,
        task_id: str,
        message: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Append a record and return the record.

        Raise BadInput (a ValueError) for invalid input, before anything is written.
        """
        if state not in STATES:
            raise BadInput(f"{state!r} is not a status: use one of {' '.join(STATES)}.")
        if not isinstance(message, str):
            raise BadInput(f"message must be text, not {type(message).__name__}.")
        return self._log().add(str(state), self.worker_id, task_id, message, meta)[1]

    def broadcast_start(
        self, task_id: str, message: str = "", meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return self.broadcast(BroadcastState.START, task_id, message, meta)

    def broadcast_done(
        self, task_id: str, message: str = "", meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return self.broadcast(BroadcastState.DONE, task_id, message, meta)

    def broadcast_wait(
        self, task_id: str, message: str = "", meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return self.broadcast(BroadcastState.WAIT, task_id, message, meta)

    def broadcast_error(
        self, task_id: str, message: str = "", meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return self.broadcast(BroadcastState.ERROR, task_id, message, meta)

    def broadcast_help(
        self, task_id: str, message: str = "", meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return self.broadcast(BroadcastState.HELP, task_id, message, meta)

    def broadcast_skip(
        self, task_id: str, message: str = "", meta: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return self.broadcast(BroadcastState.SKIP, task_id, message, meta)

    def tail(self, count: int = 10) -> list[dict[str, Any]]:
        """Return the last records of all workers, the oldest first."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise BadInput(f"count is {count!r}, but must be a whole number, 0 or more.")
        return [
            record for line in self._log().tail(count) if (record := parse_record(line)) is not None
        ]

    def query(self, task_id: str) -> list[dict[str, Any]]:
        """Return every record of a task, in order."""
        return [record for _, record in self._log().query(check_name(task_id, "task_id"))]

    def read(self, cursor: str = "") -> tuple[list[dict[str, Any]], str]:
        """Return records after the cursor, and the cursor after the last returned
        record.

        The cursor "" is the beginning of the log.
        """
        found, after = self._log().read(cursor)
        return [record for _, record in found], after

    def follow(
        self,
        since: str | None = None,
        *,
        task_id: str | None = None,
        state: BroadcastState | str | None = None,
        timeout: float | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the records after the cursor `since`, and new records as they come.
        Without `since`, yield only new records. End after `timeout` seconds without a
        record. `state` may also be a state of another program, such as ASSIGNED.
        """
        if task_id is not None:
            check_name(task_id, "task_id")
        if state is not None:
            check_filter(state, "state")
        log = self._log()
        # The cursor is taken now, and not at the first call of next().
        start = log.end() if since is None else since
        return (
            record
            for _, record, _ in log.follow(
                start, task_id, None if state is None else str(state), timeout
            )
        )

    def _get_status_log_path(self) -> str:
        return os.path.join(self._default_store.state_dir().path, "status.log")

    def _log(self) -> StatusLog:
        store, log = self._default_store.store(), self._last
        if log is None or log.store is not store:
            log = self._last = StatusLog(store)
        return log
