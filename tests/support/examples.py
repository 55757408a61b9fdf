"""Records and locks that are valid, and ones that are not."""

from __future__ import annotations

from typing import Any

from swarm.status.log import STATES

RECORD = {
    "timestamp": "2026-02-02T10:30:10.123Z",
    "type": "WAIT",
    "state": "WAIT",
    "worker": "worker-1",
    "task_id": "task-002",
    "reason": "needs a person",
    "message": "needs a person",
    "meta": {"retry_count": 1},
}
LOCK = {
    "task_id": "task-001",
    "worker": "worker-0",
    "worker_id": "worker-0",
    "acquired_at": "2026-02-02T10:30:00.000Z",
    "heartbeat_at": "2026-02-02T10:30:10.000Z",
    "ttl": 300,
    "expires_at": "2026-02-02T10:35:10.000Z",
    "token": 17,
    "holder": {},
}


def without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in keys}


VALID: dict[str, list[Any]] = {
    "status-record": [
        RECORD,
        without(RECORD, "reason", "message", "meta"),
        without(RECORD, "state", "message"),
        without(RECORD, "type", "worker", "reason"),
        {**RECORD, "unknown": [1, None, {"deep": "er"}]},
        {**RECORD, "meta": {}},
        {**RECORD, "reason": "", "message": ""},
        {**RECORD, "timestamp": "2026-01-31"},
        *({**RECORD, "type": state, "state": state} for state in STATES),
        *({**RECORD, "type": state, "state": state} for state in ("ASSIGNED", "start")),
    ],
    "lock": [
        LOCK,
        {"task_id": "t", "worker": "w"},
        {"task_id": "t", "worker_id": "w"},
        without(LOCK, "worker_id", "heartbeat_at", "ttl", "token", "holder"),
        without(LOCK, "worker", "expires_at", "token", "holder"),
        {**LOCK, "ttl": None, "expires_at": ""},
        {**LOCK, "ttl": "", "expires_at": None},
        {**LOCK, "ttl": 1},
        {**LOCK, "ttl": 1.5},
        {**LOCK, "ttl": 315360000},
        {**LOCK, "token": 1.0},
        {**LOCK, "unknown": True},
    ],
}
INVALID: dict[str, list[Any]] = {
    "status-record": [
        *([], "text", 1, 1.5, True, None, {}),
        *(without(RECORD, key) for key in ("timestamp", "task_id")),
        without(RECORD, "type", "state"),
        *({**RECORD, "type": wrong} for wrong in ("", None, 1, ["WAIT"])),
        {**RECORD, "state": ""},
        {**RECORD, "task_id": ""},
        {**RECORD, "worker": ""},
        *({**RECORD, key: 1} for key in RECORD),
        *({**RECORD, "meta": wrong} for wrong in ([1], "x", None, True)),
        *({**RECORD, "timestamp": wrong} for wrong in ("", "now", "26-01-31", None, 1770000000)),
    ],
    "lock": [
        *([], "text", 0, False, None, {}),
        without(LOCK, "task_id"),
        without(LOCK, "worker", "worker_id"),
        *({**LOCK, key: []} for key in LOCK),
        *({**LOCK, "worker": wrong} for wrong in ("", None, 7)),
        *({**LOCK, "ttl": wrong} for wrong in (0, -1, 0.5, 315360001, "300", True)),
        *({**LOCK, "token": wrong} for wrong in (0, -1, 1.5, "17", True, None)),
        *({**LOCK, "expires_at": wrong} for wrong in ("never", 0, False)),
        *({**LOCK, "acquired_at": wrong} for wrong in ("", None, "yesterday")),
    ],
}
# From the workflow that defines the lock file.
SPRINT_LOCK = """\
# .sprint-running
pid: 12345                                    # 当前进程 PID
session_id: "sprint-2026-02-07-001"           # Sprint 会话唯一标识
started_at: "2026-02-07T22:30:00Z"            # 锁创建时间（ISO 8601 UTC）
epic_spec: "epic5"                            # 正在执行的 Epic 标识
lock_version: 1                               # 锁文件格式版本（向后兼容）
"""
