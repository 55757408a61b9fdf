"""What somebody is asked before a sprint's lock is overwritten: in the workflow's own words where the locale is Chinese."""

from __future__ import annotations

from swarm.sprint.record import Sprint, Verdict
from swarm.terminal.output import shown
from swarm.terminal.prompt import speaks_chinese

_LONGEST = 200  # characters

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
    """The question, with everything that came out of the file made fit to be shown."""
    words = (_ZOMBIE_IN_CHINESE, _RUNNING_IN_CHINESE) if speaks_chinese() else (_ZOMBIE, _RUNNING)
    return words[0 if verdict.is_zombie else 1].format(
        pid=sprint.pid if sprint else "?",
        state={True: "alive", False: "dead", None: "unknown"}[verdict.pid_alive],
        session=_fit(sprint.session_id) if sprint else "?",
        started=_fit(sprint.started_at) if sprint else "?",
        age="?" if verdict.age_hours is None else f"{verdict.age_hours:.1f}",
        epic=_fit(sprint.epic_spec) if sprint else "?",
    )


def _fit(text: str) -> str:
    """A text from the file as it may be shown: it cannot forge a line, nor push the question off the screen."""
    return shown(text if len(text) <= _LONGEST else text[:_LONGEST] + "…")
