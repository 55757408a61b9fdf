"""Events that follow from the status log: an agent waits or stalls, a landing is held up.

A question is in the queue's log, so its WAIT record is no event here.
"""

from __future__ import annotations

from typing import Any

from swarm.notify.event import HELD, STALLS, WAITS, Event, event_id, short
from swarm.notify.recent import Recent
from swarm.status.events import HELD_UP
from swarm.status.log import parse_record
from swarm.terminal.text import foreign_name


class StatusEvents:
    """The last events of the status log."""

    VERSION = 2

    def __init__(self) -> None:
        self.recent = Recent()

    def __len__(self) -> int:
        return 0

    def apply(self, line: bytes) -> bool:
        if b"WAIT" not in line and b"HELP" not in line:
            return False  # most records
        record = parse_record(line)
        if record is None or record.get("state") not in ("WAIT", "HELP"):
            return False
        found = record.get("meta")
        meta = found if isinstance(found, dict) else {}
        if "question" in meta:
            return False
        task, worker = short(record.get("task_id", "")), short(record.get("worker", ""))
        kind, what = _judge(record["state"], meta)
        facts = {name: meta[name] for name in ("stalled", "loops", "token") if name in meta}
        self.recent.add(
            Event(
                event_id(kind, line),
                kind,
                str(record.get("timestamp", "")),
                f"{foreign_name(task)} {what}",
                short(record.get("reason") or ""),
                task,
                worker,
                {name: short(value) for name, value in facts.items()},
            )
        )
        return True

    def dump(self) -> Any:
        return self.recent.dump()

    def load(self, data: Any) -> None:
        self.recent.load(data)


def _judge(state: str, meta: dict[str, Any]) -> tuple[str, str]:
    if "stalled" in meta:
        return STALLS, "makes no progress"
    if "loops" in meta:
        return STALLS, "repeats itself"
    if HELD_UP in meta:
        return HELD, "cannot land"
    return WAITS, "waits" if state == "WAIT" else "needs help"
