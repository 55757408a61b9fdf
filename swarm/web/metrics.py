"""A swarm as Prometheus reads it: text format 0.0.4. No label has a value that agents choose, so the series are few."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from swarm import __version__
from swarm.board.board import KINDS
from swarm.system.clock import from_iso
from swarm.web.feed import Feed

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


def exposition(feed: Feed) -> str:
    """Everything that is measured. While the store cannot be looked at, `swarm_up` is 0 and the rest is as it was last."""
    snapshot, board = feed.snapshot, feed.snapshot.board
    one: Mapping[str, str] = {}
    lines = [
        *_metric("swarm_build_info", "gauge", "The version of swarm.", [({"version": __version__}, 1)]),
        *_metric("swarm_up", "gauge", "Whether the store could be read.", [(one, 0 if snapshot.store_error or not board else 1)]),
        *_metric("swarm_web_clients", "gauge", "Pages that are open.", [(one, feed.clients)]),
        *_metric("swarm_web_events_total", "counter", "Events that pages were told.", [(one, feed.events)]),
    ]
    if board is None:
        return "".join(lines)
    kinds = dict.fromkeys(KINDS, 0)
    for problem in board.problems:
        kinds[problem.kind] += 1
    locks = {"Active": 0, "Expired": 0, "Unknown": 0}
    for lock in board.locks:
        locks[lock.status] += 1
    now = from_iso(board.generated_at) or 0.0
    waiting = [now - since for p in board.problems if p.kind == "waiting" and (since := from_iso(p.since)) is not None]
    left = [work.lease_left for work in board.workers if work.lease_left is not None]
    lines += [
        *_metric("swarm_tasks", "gauge", "Tasks of the queue by state.", [({"state": s}, n) for s, n in board.queue.items()]),
        *_metric("swarm_tasks_blocked", "gauge", "Tasks that come after one that will not be done.", [(one, board.blocked)]),
        *_metric("swarm_workers", "gauge", "Workers that hold a task.", [(one, len({work.worker for work in board.workers}))]),
        *_metric("swarm_locks", "gauge", "Locks by status.", [({"status": s.lower()}, n) for s, n in locks.items()]),
        *_metric("swarm_problems", "gauge", "Problems by kind.", [({"kind": kind}, count) for kind, count in kinds.items()]),
        *_metric("swarm_log_records_total", "counter", "Records in the status log.", [(one, board.records)]),
        *_metric("swarm_log_damaged_total", "counter", "Lines of the status log that make no sense.", [(one, board.damaged)]),
        *_metric(
            "swarm_waiting_oldest_seconds",
            "gauge",
            "How long a person has been waited for, at most; 0 if nobody is.",
            [(one, max(0.0, *waiting, 0.0))],
        ),
        *_metric(
            "swarm_lease_left_min_seconds",
            "gauge",
            "What is left of the lease that ends first; missing if none ends.",
            [(one, min(left))] if left else [],
        ),
        *_metric("swarm_look_duration_seconds", "gauge", "How long the last look at the store took.", [(one, snapshot.seconds)]),
        *_metric("swarm_look_age_seconds", "gauge", "How long ago that was.", [(one, time.monotonic() - snapshot.taken_at)]),
    ]
    return "".join(lines)


def _metric(name: str, kind: str, text: str, samples: Iterable[Sample]) -> list[str]:
    lines = [f"# HELP {name} {text}\n", f"# TYPE {name} {kind}\n"]
    for labels, value in samples:
        named = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels.items())
        lines.append(f"{name}{{{named}}} {_number(value)}\n" if named else f"{name} {_number(value)}\n")
    return lines


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
