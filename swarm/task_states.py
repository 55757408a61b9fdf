"""The states that a task of the queue can be in, and where the queue's log is."""

from __future__ import annotations

LOG = "tasks"

READY = "ready"
WAITING = "waiting"  # for tasks it comes after
RUNNING = "running"
DONE = "done"
FAILED = "failed"
CANCELLED = "cancelled"
STATES = (READY, WAITING, RUNNING, DONE, FAILED, CANCELLED)
ENDED = (DONE, FAILED, CANCELLED)
