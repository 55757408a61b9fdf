"""`swarm sprint`: run one sprint at a time in a project."""

from __future__ import annotations

import os

from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput, CannotRun, StoreError
from swarm.formats import yaml_codec
from swarm.inputs import whole
from swarm.sprint.messages import failure
from swarm.sprint.mutex import LOCK_FILE_NAME, USER_CONFIRM_TIMEOUT_SECONDS, SprintMutex
from swarm.terminal import output, prompt
from swarm.terminal.text import quoted, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Answer = dict[str, Any]

_EXIT_CODES = {
    "acquired": 0,
    "released": 0,
    "clean": 0,
    "read": 0,
    "written": 0,
    "unchanged": 0,
    "blocked": 1,
    "zombie-detected": 1,
    "failure": StoreError.exit_code,
}


def acquire(call: Call, mutex: SprintMutex) -> Answer:
    chosen = "--pid" in call.options
    pid = whole(call.options["--pid"], "--pid", 1) if chosen else _shell()
    answer = _acquire(call, mutex, pid)
    if answer["status"] == "acquired" and not chosen:
        answer["message"] += (
            f" (bound to the calling process, PID {pid}; if it ends before the sprint, use --pid)"
        )
    return answer


def release(call: Call, mutex: SprintMutex) -> Answer:
    return mutex.release(call.options.get("--session-id"))


def check(call: Call, mutex: SprintMutex) -> Answer:
    return mutex.check()


def status(call: Call, mutex: SprintMutex) -> Answer:
    from swarm.cli.queue import sprint_status  # the other commands need no queue

    return sprint_status.answer(call, mutex)


def run(call: Call) -> int:
    """Run a command as the sprint.

    The lock is bound to the process of the command. The lock stays if only `run` is
    killed.
    """
    from swarm.system import job_control
    from swarm.system.child import GatedProcess

    child = GatedProcess()
    mutex = None
    try:
        job_control.exit_on_signals()
        mutex = _mutex(call)
        answer = _acquire(call, mutex, child.pid)
        if answer["status"] != "acquired":
            _print(call, answer)
            return _EXIT_CODES[answer["status"]]
        _print_warnings(answer)
        return job_control.Foreground(child).run(call.command_line) or 0
    except BadInput as error:
        if (code := child.poll()) is not None:
            return code  # the process was ended before it could start its command
        _print(call, _refusal("acquire", error))
        return BadInput.exit_code
    except CannotRun as error:
        output.error(str(error))
        return error.exit_code
    finally:
        job_control.hold_signals()  # nothing may interrupt the release
        child.discard()
        if mutex and mutex.holds and not mutex.release_own():
            _warn(
                "the lock was not released: another sprint has overwritten it, or it cannot be "
                "removed. See: swarm sprint check"
            )


def _answering(mode: str, operate: Callable[[Call, SprintMutex], Answer]) -> Callable[[Call], int]:
    """Return a command that prints its answer.

    For input that breaks a rule, the command prints a `failure`.
    """

    def run(call: Call) -> int:
        mutex = None
        try:
            try:
                mutex = _mutex(call)
                answer = operate(call, mutex)
                code = _EXIT_CODES[answer["status"]]
            except BadInput as error:
                answer, code = _refusal(mode, error), BadInput.exit_code
            _print(call, answer)
        except BaseException:
            if mutex:
                mutex.release_own()  # the answer was not printed, so no sprint may have the lock
            raise
        if mutex and mutex.holds:
            _hint_at_gitignore(mutex)
        return code

    return run


def _refusal(mode: str, error: BadInput) -> Answer:
    """Return the answer to invalid input. The answer names a missing option."""
    name, required, _ = str(error).partition(" required for ")
    advice = f"give it with --{name.replace('_', '-')}" if required else ""
    return failure(mode, str(error), advice)


def _acquire(call: Call, mutex: SprintMutex, pid: int) -> Answer:
    session_id, epic_spec = call.options.get("--session-id"), call.options.get("--epic-spec")
    return mutex.acquire(
        session_id, epic_spec, force="--force" in call.options, yes="--yes" in call.options, pid=pid
    )


def _print(call: Call, answer: Answer) -> None:
    try:
        if not call.answer(answer):
            output.out(yaml_codec.dumps(answer))
    except BrokenPipeError:
        pass  # the exit code says the same
    _print_warnings(answer)


def _print_warnings(answer: Answer) -> None:
    for warning in answer["warnings"]:
        _warn(warning)
    if answer["status"] == "failure" or (
        answer["status"] == "blocked" and answer["mode"] in ("acquire", "status")
    ):
        output.error(answer["message"])


def _warn(text: str) -> None:
    output.err(f"{output.paint('Warning:', 'yellow', stream=2)} {shown(text)}\n")


def _mutex(call: Call) -> SprintMutex:
    name = call.options.get("--lock-file-name", LOCK_FILE_NAME)
    return SprintMutex(call.options.get("--project-root", "."), name, ask=_ask)


def _ask(question: str) -> bool:
    """Ask the user at the terminal. Without a terminal, answer no at once."""
    return prompt.is_possible() and prompt.ask(question, USER_CONFIRM_TIMEOUT_SECONDS)


def _shell() -> int:
    """Return the calling process.

    The lock is bound to the calling process, unless --pid names another process.
    """
    parent = os.getppid()
    if parent == 0:
        raise BadInput(
            "the calling process is in another pid namespace: name the process of the sprint "
            "with --pid"
        )
    return parent


def _hint_at_gitignore(mutex: SprintMutex) -> None:
    """Print a hint if git does not ignore the lock file.

    A lock file that is committed blocks the sprints of every clone.
    """
    folder = mutex.project_root
    while not os.path.exists(f"{folder}/.git"):
        if folder == "/":
            return
        folder = os.path.dirname(folder)
    import subprocess

    name = os.path.basename(mutex.path)
    command = ["git", "-C", mutex.project_root, "check-ignore", "--quiet", "--", name]
    try:
        ignored = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=False
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return
    if ignored == 1:
        ignored_by = quoted(f"{mutex.project_root}/.gitignore")
        output.err(
            f"Hint: {shown(name)} is not ignored by git. Ignore it with: echo {quoted(name)} "
            f">> "
            f"{ignored_by}\n"
        )


_PROJECT = (
    Option("--project-root", "DIR", "the project; default: the working directory"),
    Option("--lock-file-name", "N", f"the name of the lock file; default {LOCK_FILE_NAME}"),
)
_SPRINT = (
    Option("--session-id", "S", "the name of the session", required=True),
    Option("--epic-spec", "E", "the epic that the sprint works on", required=True),
    Option(
        "--force",
        text=(
            "overwrite a zombie lock, and after a confirmation even the lock of a running sprint"
        ),
    ),
    Option("--yes", text="answer every question with yes"),
    *_PROJECT,
)
COMMANDS = {
    "acquire": Command(
        _answering("acquire", acquire),
        "Acquire the sprint lock of a project for a session. Exit 1: a sprint is running.",
        "swarm sprint acquire --session-id sprint-001 --epic-spec epic5 --pid $$",
        options=(
            *_SPRINT,
            Option("--pid", "P", "bind the lock to this process; default: the calling process"),
        ),
        details=(
            (
                "When the process of a lock has ended, the lock is a zombie. A zombie lock is "
                "overwritten with --force or after a confirmation; otherwise exit 1."
            ),
        ),
    ),
    "release": Command(
        _answering("release", release),
        "Release the sprint lock. Warn if the lock belongs to another session than S.",
        "swarm sprint release --session-id sprint-001",
        options=(Option("--session-id", "S", "the session that should have the lock"), *_PROJECT),
    ),
    "check": Command(
        _answering("check", check),
        "Show whether a sprint is running. Exit 0: no sprint is running. The command changes "
        "and asks nothing.",
        "swarm sprint check",
        options=_PROJECT,
    ),
    "status": Command(
        _answering("status", status),
        "Show the states of BMAD's sprint-status.yaml, or change some while no other sprint runs.",
        "swarm sprint status --set 1-2-login=review",
        options=(
            Option("--file", "F", "the file; default: where BMAD puts it in the project"),
            Option(
                "--set", "STORY=STATUS", "change a state; STORY is a key, or 1-2", repeated=True
            ),
            Option("--from-queue", text="move stories forward to the states of their tasks"),
            Option("--session-id", "S", "change states even while the sprint of S runs"),
            *_PROJECT,
        ),
        details=(
            (
                "Only values change: comments, order and other keys stay. An edit that another "
                "program makes meanwhile is kept. Exit 1: the sprint of another session runs. "
                "The own sprint is that of --session-id, or one that started this command."
            ),
        ),
    ),
    "run": Command(
        run,
        "Run a command with the sprint lock. The lock is released however the command ends.",
        "swarm sprint run --session-id sprint-001 --epic-spec epic5 -- make all",
        options=_SPRINT,
        command_line="required",
        details=(
            (
                "If the lock cannot be acquired, the command is not run, and exit code and "
                "--json are as for swarm sprint acquire. If the command is run, --json prints "
                "nothing."
            ),
        ),
        exit_codes="that of the command",
    ),
}
