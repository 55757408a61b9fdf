"""The results and questions of the sprint mutex.

A result is the mapping that the workflow document calls `return`. A question is in
Chinese under a Chinese locale, with the text of the workflow document. Under other
locales, a question is in English.
"""

from __future__ import annotations

from swarm import settings
from swarm.sprint.record import Sprint
from swarm.sprint.zombie import Verdict
from swarm.terminal.text import shorten, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Answer = dict[str, Any]

_MAX_SHOWN = 200  # characters of a string from the lock file

_ZOMBIE = """\
Zombie lock detected:
- PID: {pid} (process: {state})
- Session: {session}
- Started: {started} ({age}h ago)
- Epic: {epic}

Overwrite this lock and start a new sprint? [y/N]"""

_RUNNING = """\
Warning: a sprint is running!
- PID: {pid} (process: {state})
- Session: {session}
- Started: {started} ({age}h ago)
Overwriting its lock may damage its state files. Overwrite it? [y/N]"""

_ZOMBIE_IN_CHINESE = """\
检测到僵尸锁：
- PID: {pid} (进程状态: {state})
- Session: {session}
- 启动时间: {started} ({age}h ago)
- Epic: {epic}

是否覆盖此锁并启动新 Sprint? [y/N]"""

_RUNNING_IN_CHINESE = """\
警告: 检测到活跃的 Sprint 进程！
- PID: {pid} (进程状态: {state})
- Session: {session}
- 启动时间: {started} ({age}h ago)
强制覆盖可能导致状态文件损坏。确认覆盖? [y/N]"""


def question(sprint: Sprint | None, verdict: Verdict) -> str:
    """Return the question to the user. Strings from the lock file are made safe to
    show.
    """
    words = (_ZOMBIE_IN_CHINESE, _RUNNING_IN_CHINESE) if _speaks_chinese() else (_ZOMBIE, _RUNNING)
    return words[0 if verdict.is_zombie else 1].format(
        pid=sprint.pid if sprint else "?",
        state={True: "alive", False: "dead", None: "unknown"}[verdict.pid_alive],
        session=_fit(sprint.session_id) if sprint else "?",
        started=_fit(sprint.started_at) if sprint else "?",
        age="?" if verdict.age_hours is None else f"{verdict.age_hours:.1f}",
        epic=_fit(sprint.epic_spec) if sprint else "?",
    )


def answer(
    status: str,
    mode: str,
    lock_info: dict[str, object],
    message: str,
    *,
    errors: list[str] | None = None,
    warnings: list[str] | None = None,
) -> Answer:
    return {
        "status": status,
        "mode": mode,
        "lock_info": lock_info,
        "message": message,
        "errors": errors or [],
        "warnings": warnings or [],
    }


def failure(mode: str, error: str, detail: str = "", *, exists: bool = False) -> Answer:
    """Return the result for an operation that failed."""
    return answer(
        "failure", mode, {"exists": exists}, error + (detail and f": {detail}"), errors=[error]
    )


def info(sprint: Sprint | None, verdict: Verdict) -> dict[str, object]:
    return {
        "exists": True,
        "pid": sprint.pid if sprint else None,
        "session_id": sprint.session_id if sprint else None,
        "started_at": sprint.started_at if sprint else None,
        "epic_spec": sprint.epic_spec if sprint else None,
        # adding 0.0 turns -0.0 into 0.0
        "age_hours": None if verdict.age_hours is None else round(verdict.age_hours, 1) + 0.0,
        "pid_alive": verdict.pid_alive,
        "is_zombie": verdict.is_zombie,
        "why": verdict.why,
    }


def warnings_of(verdict: Verdict) -> list[str]:
    return [verdict.warning] if verdict.warning else []


def running(sprint: Sprint | None) -> str:
    return f"Sprint already running ({named(sprint)})"


def named(sprint: Sprint | None) -> str:
    if sprint is None:
        return "PID: unknown, session: unknown, started: unknown"
    return f"PID: {sprint.pid}, session: {sprint.session_id}, started: {sprint.started_at}"


def _fit(text: str) -> str:
    """Make a string from the lock file safe to show.

    The result has no line break, and is short enough to leave the question on the
    screen.
    """
    return shown(shorten(text, _MAX_SHOWN))


def _speaks_chinese() -> bool:
    """Return whether the locale is Chinese."""
    return settings.language().lower().startswith("zh")
