"""Metrics in the text format of Prometheus, version 0.0.4.

No label has a value that agents choose, so the number of time series is small.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from swarm import __version__
from swarm.board.board import KINDS, Board
from swarm.system.clock import from_iso
from swarm.web.feed import Feed

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]  # labels and value
Metric = tuple[str, str, str, list[Sample]]  # name, type, help text, samples


def exposition(feed: Feed) -> str:
    """Return all metrics as text.

    While the store cannot be used, `swarm_up` is 0 and all other metrics are of the
    last read.
    """
    snapshot, board = feed.snapshot, feed.snapshot.board
    metrics: list[Metric] = [
        ("swarm_build_info", "gauge", "The version of swarm.", [({"version": __version__}, 1)]),
        (
            "swarm_up",
            "gauge",
            "Whether the store can be read and written.",
            _one(int(feed.is_healthy())),
        ),
        ("swarm_web_clients", "gauge", "Open pages.", _one(len(feed.streams))),
        ("swarm_web_events_total", "counter", "Events that were sent to pages.", _one(feed.events)),
    ]
    if board is not None:
        read_age = time.monotonic() - snapshot.taken_at
        metrics += [
            *_board_metrics(board),
            (
                "swarm_look_duration_seconds",
                "gauge",
                "Duration of the last read.",
                _one(snapshot.seconds),
            ),
            ("swarm_look_age_seconds", "gauge", "Age of the last read.", _one(read_age)),
        ]
    return "".join(line for metric in metrics for line in _lines(*metric))


def _board_metrics(board: Board) -> list[Metric]:
    kinds = dict.fromkeys(KINDS, 0)
    for problem in board.problems:
        kinds[problem.kind] += 1
    locks = {"active": 0, "expired": 0, "unknown": 0}
    for lock in board.locks:
        locks[lock.status.lower()] += 1
    now = from_iso(board.generated_at) or 0.0
    waiting = [
        since
        for p in board.problems
        if p.kind == "waiting" and (since := from_iso(p.since)) is not None
    ]
    asked = [since for each in board.questions if (since := from_iso(each.since)) is not None]
    waiting += asked
    longest_wait = max(0.0, now - min(waiting)) if waiting else 0.0
    submitted = [since for row in board.landing if (since := from_iso(row.since)) is not None]
    left = [work.lease_left for work in board.workers if work.lease_left is not None]
    workers = {work.worker for work in board.workers}
    return [
        ("swarm_tasks", "gauge", "Tasks of the queue by state.", _labelled("state", board.queue)),
        (
            "swarm_tasks_blocked",
            "gauge",
            "Tasks that wait for a task that will not be done.",
            _one(board.blocked),
        ),
        (
            "swarm_questions_open",
            "gauge",
            "Questions that wait for an answer.",
            _one(len(board.questions)),
        ),
        (
            "swarm_questions_oldest_seconds",
            "gauge",
            "Age of the oldest open question; 0 if there is none.",
            _one(max(0.0, now - min(asked)) if asked else 0.0),
        ),
        (
            "swarm_landing_oldest_seconds",
            "gauge",
            "How long work has waited to land, at most; 0 if none waits.",
            _one(max(0.0, now - min(submitted)) if submitted else 0.0),
        ),
        ("swarm_workers", "gauge", "Workers that hold a task.", _one(len(workers))),
        (
            "swarm_workers_alive",
            "gauge",
            "Workers that run, with or without a task.",
            _one(len(board.living)),
        ),
        (
            "swarm_agent_gates_closed",
            "gauge",
            "Gates that are closed now: limits, logins, budgets.",
            _one(len(board.gates)),
        ),
        (
            "swarm_agent_cost_usd_total",
            "counter",
            "Cost of all attempts, as the agents report it.",
            _one(float(board.usage.cost_usd)),
        ),
        (
            "swarm_agent_turns_total",
            "counter",
            "Turns of all attempts, as the agents report them.",
            _one(board.usage.turns),
        ),
        (
            "swarm_agent_tokens_total",
            "counter",
            "Tokens of all attempts, as the agents report them.",
            _labelled(
                "direction",
                {"input": board.usage.input_tokens, "output": board.usage.output_tokens},
            ),
        ),
        ("swarm_locks", "gauge", "Locks by status.", _labelled("status", locks)),
        ("swarm_problems", "gauge", "Problems by kind.", _labelled("kind", kinds)),
        ("swarm_log_records_total", "counter", "Records in the status log.", _one(board.records)),
        (
            "swarm_log_damaged_total",
            "counter",
            "Invalid lines in the status log.",
            _one(board.damaged),
        ),
        (
            "swarm_waiting_oldest_seconds",
            "gauge",
            "How long a person has been waited for, at most; 0 if nothing waits.",
            _one(longest_wait),
        ),
        (
            "swarm_lease_left_min_seconds",
            "gauge",
            "Time left of the lease that ends first; missing if no lease ends.",
            _one(min(left)) if left else [],
        ),
    ]


def _one(value: float) -> list[Sample]:
    return [({}, value)]


def _labelled(label: str, values: Mapping[str, float]) -> list[Sample]:
    return [({label: name}, value) for name, value in values.items()]


def _lines(name: str, kind: str, text: str, samples: Iterable[Sample]) -> list[str]:
    lines = [f"# HELP {name} {text}\n", f"# TYPE {name} {kind}\n"]
    for labels, value in samples:
        named = ",".join(f'{label}="{_escaped(content)}"' for label, content in labels.items())
        lines.append(
            f"{name}{{{named}}} {_number(value)}\n" if named else f"{name} {_number(value)}\n"
        )
    return lines


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6f}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
