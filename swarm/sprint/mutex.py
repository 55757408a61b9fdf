"""One sprint at a time in a project: the mutex `.sprint-running`.

`concurrency_control` runs the whole workflow: it takes the inputs of the workflow
document and returns the mapping that the document describes. `SprintMutex` offers the
steps of the workflow as methods. If several sprints start at once, one of them gets the
lock.

The module `zombie` decides when a lock is a zombie, that is, when its sprint has ended.
swarm overwrites a zombie if the caller passes `force`, or if `ask` returns True. swarm
overwrites only the lock file that it has judged. If the file changes before the user
answers, swarm judges the new file.

This module prints nothing. Every result is a mapping with a status. Input that breaks a
rule raises BadInput.
"""

from __future__ import annotations

import errno
import os

from swarm.errors import BadInput, StoreError
from swarm.sprint.inputs import checked_name, checked_pid, checked_root, checked_text
from swarm.sprint.messages import answer, failure, info, named, question, running, warnings_of
from swarm.sprint.record import LOCK_VERSION, Sprint, decode, new_sprint
from swarm.sprint.zombie import INVALID_FORMAT, ZOMBIE_THRESHOLD_HOURS, Verdict, judge
from swarm.stores.busy import retry_while_busy
from swarm.stores.file.single_record import RenameFailed, SingleRecord
from swarm.system.clock import Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVarTuple

    Args = TypeVarTuple("Args")
    Answer = dict[str, Any]
    Ask = Callable[[str], bool]  # shows a question; returns whether the user said yes

__all__ = [
    "LOCK_FILE_NAME",
    "LOCK_VERSION",
    "USER_CONFIRM_TIMEOUT_SECONDS",
    "WRITE_TIMEOUT_SECONDS",
    "ZOMBIE_THRESHOLD_HOURS",
    "SprintMutex",
    "concurrency_control",
]

LOCK_FILE_NAME = ".sprint-running"
USER_CONFIRM_TIMEOUT_SECONDS = 30  # the time for an answer to `ask`
WRITE_TIMEOUT_SECONDS = 10  # the time for one change of the lock file, including all waits
_INPUTS = ("session_id", "epic_spec", "force", "lock_file_name", "yes", "pid", "ask")
_MAX_TRIES = 100


def concurrency_control(*, mode: object = "", project_root: Any = "", **inputs: Any) -> Answer:
    """Run the workflow with its `inputs` by name, and return its `return` mapping.

    Three inputs are not in the workflow document. `yes` answers every question with
    yes. `pid` is the sprint's process, by default the calling process. `ask` is the
    same function as in `SprintMutex`.
    """
    try:
        if mode not in ("acquire", "release", "check"):
            raise BadInput("Invalid mode")
        unknown = sorted(set(inputs) - set(_INPUTS))
        if unknown:
            raise BadInput(f"Unknown input: {', '.join(unknown)}")
        mutex = SprintMutex(
            project_root, inputs.pop("lock_file_name", LOCK_FILE_NAME), ask=inputs.pop("ask", None)
        )
        if mode == "check":
            return mutex.check()
        session_id = inputs.pop("session_id", None)
        if mode == "release":
            return mutex.release(session_id)
        return mutex.acquire(session_id, inputs.pop("epic_spec", None), **inputs)
    except BadInput as error:
        return failure(str(mode), str(error))


class _Failed(Exception):
    """An operation of the sprint mutex failed, for a reason that the system gave."""

    def __init__(self, error: str, detail: str = "") -> None:
        super().__init__(error)
        self.error = error
        self.detail = detail


class SprintMutex:
    """The mutex of one project.

    `ask` is called with a question and returns whether the user said yes. Without `ask`
    no question is asked, and the answer is no.
    """

    def __init__(
        self,
        project_root: str | os.PathLike[str],
        lock_file_name: str = LOCK_FILE_NAME,
        *,
        clock: Clock | None = None,
        ask: Ask | None = None,
    ) -> None:
        self.project_root = checked_root(project_root)
        self.path = f"{self.project_root}/{checked_name(lock_file_name)}"
        self._record = SingleRecord(self.path)
        self._clock = clock or Clock()
        self._ask = ask or _say_no
        self._mine = b""

    def acquire(
        self,
        session_id: str | None,
        epic_spec: str | None,
        *,
        force: bool = False,
        yes: bool = False,
        pid: int | None = None,
    ) -> Answer:
        """Acquire the lock for a session. The status is `acquired`, `blocked` or
        `failure`.

        The lock is bound to `pid`, by default this process. `yes` answers every
        question with yes.
        """
        session_id, epic_spec = (
            checked_text(session_id, "session_id"),
            checked_text(epic_spec, "epic_spec"),
        )
        pid = os.getpid() if pid is None else checked_pid(pid)
        if not isinstance(force, bool) or not isinstance(yes, bool):
            raise BadInput("force and yes must be true or false")
        return self._run(
            "acquire", self._acquire, lambda: self._new(pid, session_id, epic_spec), force, yes
        )

    def release(self, session_id: str | None = None) -> Answer:
        """Remove the lock, whichever session has it. The status is `released` or
        `failure`.

        The status is `released` even if there is no lock.
        """
        if session_id is not None and not isinstance(session_id, str):
            raise BadInput("session_id must be a string")
        return self._run("release", self._release, session_id)

    def check(self) -> Answer:
        """Judge the lock. The status is `clean`, `blocked`, `zombie-detected` or
        `failure`.

        A check changes nothing.
        """
        return self._run("check", self._check)

    @property
    def holds(self) -> bool:
        """Whether this object has acquired the lock and not released it.

        Another sprint may have overwritten the lock since.
        """
        return bool(self._mine)

    def release_own(self) -> bool:
        """Remove the lock that this object has acquired, and no other.

        Return False if the lock was removed or overwritten, or cannot be removed.
        """
        mine, self._mine = self._mine, b""
        return bool(mine) and self._undo(mine)

    def _run(self, mode: str, operation: Callable[[*Args], Answer], *args: *Args) -> Answer:
        if not (
            os.path.isdir(self.project_root)
            and os.access(self.project_root, os.R_OK | os.W_OK | os.X_OK)
        ):
            return failure(mode, "Project root not accessible", self.project_root)
        try:
            return operation(*args)
        except _Failed as failed:
            return failure(mode, failed.error, failed.detail, exists=os.path.lexists(self.path))
        finally:
            if mode != "check":
                self._record.remove_private()

    def _check(self) -> Answer:
        data = self._read()
        if data is None:
            return answer("clean", "check", {"exists": False}, "No sprint is running")
        sprint, verdict = self._judged(data)
        status = "zombie-detected" if verdict.is_zombie else "blocked"
        message = (
            f"Zombie lock detected: {verdict.why} ({named(sprint)})"
            if verdict.is_zombie
            else running(sprint)
        )
        return answer(
            status, "check", info(sprint, verdict), message, warnings=warnings_of(verdict)
        )

    def _acquire(self, new: Callable[[], Sprint], force: bool, yes: bool) -> Answer:
        for _ in range(_MAX_TRIES):
            data = self._read()
            if data is None:
                mine = self._write(new, self._record.create)
                if mine:
                    return self._acquired(mine, [])
                continue
            sprint, verdict = self._judged(data)
            refusal = self._refusal(sprint, verdict, force, yes)
            if refusal:
                return answer(
                    "blocked",
                    "acquire",
                    info(sprint, verdict),
                    refusal,
                    warnings=warnings_of(verdict),
                )
            mine = self._write(new, self._record.replace, data)
            if mine:
                what = "zombie lock" if verdict.is_zombie else "lock of a running sprint"
                return self._acquired(
                    mine,
                    [*warnings_of(verdict), f"Overwrote a {what} ({named(sprint)}): {verdict.why}"],
                )
        raise _Failed("Failed to write lock file", "the file changes faster than swarm can read it")

    def _refusal(self, sprint: Sprint | None, verdict: Verdict, force: bool, yes: bool) -> str:
        """Return why the lock may not be overwritten, "" if overwriting is allowed."""
        if verdict.is_zombie:
            if force or yes or self._ask(question(sprint, verdict)):
                return ""
            return (
                f"Zombie lock not overwritten ({named(sprint)}): {verdict.why}. To overwrite "
                f"it, use --force or --yes"
            )
        if not force:
            return running(sprint)
        if yes or self._ask(question(sprint, verdict)):
            return ""
        return (
            f"{running(sprint)}. To overwrite the lock of a running sprint, use --force with --yes"
        )

    def _write(
        self, new: Callable[[], Sprint], change: Callable[[*Args, bytes], bool], *judged: *Args
    ) -> Sprint | None:
        """Write the lock file, and read it back. Return None if another sprint wrote
        the file first.
        """
        mine = b""
        try:
            sprint = new()
            mine = sprint.encode()
            if not self._retried(change, *judged, mine):
                return None
            verified = self._record.read() == mine
        except BaseException as error:
            if mine:
                self._undo(mine)
            if isinstance(error, RenameFailed):
                raise _Failed("Atomic rename failed", self._reason(error)) from error
            if isinstance(error, OSError | StoreError):
                raise _Failed("Failed to write lock file", self._reason(error)) from error
            raise
        if not verified:
            self._undo(mine)
            raise _Failed("Lock file verification failed", "the file is not as swarm wrote it")
        self._mine = mine
        return sprint

    def _new(self, pid: int, session_id: str, epic_spec: str) -> Sprint:
        # the process may have ended during the question
        return new_sprint(checked_pid(pid), session_id, epic_spec, self._clock)

    def _undo(self, mine: bytes) -> bool:
        """Remove the lock file if its content is `mine`: this object may have written
        the file.
        """
        try:
            return self._retried(self._record.remove, mine)
        except (OSError, StoreError):
            return False
        finally:
            self._record.remove_private()

    def _acquired(self, sprint: Sprint, warnings: list[str]) -> Answer:
        message = f"Lock acquired successfully for session {sprint.session_id}"
        return answer(
            "acquired",
            "acquire",
            info(sprint, Verdict(True, 0.0, "it has just begun")),
            message,
            warnings=warnings,
        )

    def _release(self, session_id: str | None) -> Answer:
        data = self._read()
        if data is None:
            return answer("released", "release", {"exists": False}, "There is no lock to release")
        warnings = self._doubts(data, session_id)
        try:
            removed = self._retried(self._record.remove, data)
            # a program that follows the workflow literally may have left this file
            _remove_file(f"{self.path}.tmp")
        except (OSError, StoreError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EPERM, errno.EACCES):
                raise _Failed("Cannot delete lock file: permission denied") from error
            raise _Failed("Cannot delete lock file", self._reason(error)) from error
        if data == self._mine:
            self._mine = b""
        if not removed and self._read() is not None:
            warnings.append("Another sprint has acquired the lock meanwhile: it was not removed")
        return answer(
            "released",
            "release",
            {"exists": False},
            "Lock released successfully",
            warnings=warnings,
        )

    def _doubts(self, data: bytes, session_id: str | None) -> list[str]:
        """Return warnings about a lock. The lock is released even if there are
        warnings.
        """
        try:
            sprint = decode(data)
        except StoreError:
            sprint = None
        doubts = [] if sprint else [INVALID_FORMAT]
        actual = sprint.session_id if sprint else "unknown"
        if session_id and actual != session_id:
            doubts.append(f"Lock session mismatch (expected: {session_id}, actual: {actual})")
        return doubts

    def _read(self) -> bytes | None:
        try:
            return self._record.read()
        except OSError as error:
            raise _Failed("Cannot read lock file", self._reason(error)) from error

    def _judged(self, data: bytes) -> tuple[Sprint | None, Verdict]:
        try:
            sprint = decode(data)
            return sprint, judge(sprint, self._clock)
        except StoreError as error:
            raise _Failed(
                "Cannot read lock file", f"{error} To remove the lock: swarm sprint release"
            ) from error

    def _reason(self, error: Exception) -> str:
        """Return the reason that the system gave, and what to do. Name the file unless
        it is the lock file.
        """
        if not isinstance(error, OSError):
            return str(error)
        if error.errno == errno.ELOOP:
            return "the lock file is a symbolic link"
        where = f": {error.filename}" if error.filename not in (None, self.path) else ""
        cure = (
            f". Free some space, or remove {self.path} yourself"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else ""
        )
        return f"{error.strerror or error}{where}{cure}"

    def _retried(self, change: Callable[[*Args], bool], *args: *Args) -> bool:
        return retry_while_busy(self._clock, WRITE_TIMEOUT_SECONDS, change, *args)


def _say_no(question: str) -> bool:
    return False


def _remove_file(path: str) -> None:
    try:
        if not os.path.islink(path) and os.path.isfile(path):
            os.unlink(path)
    except OSError:
        pass
