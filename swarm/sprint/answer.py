"""What the sprint mutex answers: the `return` mapping of the workflow, and the words in it."""

from __future__ import annotations

from swarm.sprint.record import Sprint, Verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Answer = dict[str, Any]


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
    """The answer for something that went wrong."""
    return answer("failure", mode, {"exists": exists}, error + (detail and f": {detail}"), errors=[error])


def info(sprint: Sprint | None, verdict: Verdict) -> dict[str, object]:
    return {
        "exists": True,
        "pid": sprint.pid if sprint else None,
        "session_id": sprint.session_id if sprint else None,
        "started_at": sprint.started_at if sprint else None,
        "epic_spec": sprint.epic_spec if sprint else None,
        "age_hours": None if verdict.age_hours is None else round(verdict.age_hours, 1) + 0.0,  # no -0.0
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
