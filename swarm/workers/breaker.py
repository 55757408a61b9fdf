"""The circuit breaker: stop an agent when several tasks fail alike as soon as they start.

Then the agent itself is at fault: it is not logged in, its program is broken, its model
does not exist. More attempts would only use up the attempts of more tasks.

The status log has the failures of all workers, so all of them count. The breaker looks
at the last records: after the agent's last success, failures of THRESHOLD different
tasks count that are alike and came within QUICK seconds of their start. A success is a
DONE, or work that was submitted; a lander then writes the DONE, without an agent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from swarm.status.log import StatusLog, parse_record

THRESHOLD = 3  # tasks
QUICK = 10.0  # seconds
_RECORDS = 200  # of the status log
_WINDOW = 3600.0  # seconds
_VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}(?:-[0-9a-f]+)*|\d+", re.IGNORECASE)


def is_open(log: StatusLog, agent: str, task: str, reason: str, seconds: float) -> bool:
    """Return whether the failure of this task is one too many of its kind.

    `seconds` is the time from the start of the attempt to its failure.
    """
    if not agent or seconds > QUICK:
        return False
    wanted = alike(reason)
    tasks = {task} | {
        found["task_id"] for found in _failures(log, agent) if alike(_reason(found)) == wanted
    }
    return len(tasks) >= THRESHOLD


def alike(reason: str) -> str:
    """Return what two failures have in common that are alike: numbers may differ."""
    return _VARIABLE.sub("#", reason)


def _failures(log: StatusLog, agent: str) -> Iterator[Mapping[str, Any]]:
    """Yield the recent quick failures of an agent, the newest first."""
    clock = log.store.clock
    oldest = clock.written(clock.now() - _WINDOW)
    for line in reversed(log.tail(_RECORDS)):
        record = parse_record(line) or {}
        meta = record.get("meta")
        if not isinstance(meta, dict) or meta.get("agent") != agent:
            continue
        succeeded = record.get("state") == "DONE" or "submitted" in meta
        if succeeded or str(record.get("timestamp", "")) < oldest:
            return
        seconds = meta.get("seconds")
        is_quick = isinstance(seconds, int | float) and seconds <= QUICK
        if record.get("state") == "ERROR" and is_quick:
            yield record


def _reason(record: Mapping[str, Any]) -> str:
    return str(record.get("reason", ""))
