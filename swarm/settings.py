"""The settings that swarm reads from environment variables.

Only this module reads the environment, at each call and never at import.
"""

from __future__ import annotations

import posix as os  # `import os` would take a tenth of a command's time
import sys

from swarm.errors import BadInput, StoreError
from swarm.inputs import absolute_path, check_name, parse_token, parse_ttl, whole

DEFAULT_STATE_DIR = "/tmp/ai_swarm"
DEFAULT_LOCK_TTL = 300
# Variables that swarm and agents set for the commands that an agent runs.
AGENT_VARIABLES = (
    *("SWARM_TOKEN", "CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX"),
    *("CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID", "CURSOR_AGENT", "GEMINI_CLI"),
    "OPENCODE",
)


def named_state_dir() -> str:
    """Return the state directory that a variable names as an absolute path, "" if no
    variable names one.

    Raise BadInput if two variables name different directories.
    """
    chosen = variable("SWARM_STATE_DIR")
    other = variable("AI_SWARM_DIR")
    if chosen and other and chosen != other and _real(chosen) != _real(other):
        raise BadInput(
            f"SWARM_STATE_DIR is {chosen!r} and AI_SWARM_DIR is {other!r}: two state directories "
            f"would make two swarms. "
            "Unset one of the two variables, or set both to the same directory."
        )
    path = chosen or other
    try:
        return absolute_path(path) if path else ""
    except FileNotFoundError:
        raise StoreError(
            f"the state directory is {path!r}, but the working directory has been removed. "
            "Change to another directory."
        ) from None


def store() -> str:
    """Return SWARM_STORE as the user set it, "" if it is not set.

    `stores.default` checks the value.
    """
    return variable("SWARM_STORE")


def store_is_withheld() -> bool:
    """Return whether the process that started this one kept the store's password."""
    return bool(variable("SWARM_STORE_WITHHELD"))


def lock_ttl() -> int:
    """Return the default length of a lease in seconds: AI_SWARM_LOCK_TTL, else 300."""
    text = variable("AI_SWARM_LOCK_TTL")
    return parse_ttl(text, "AI_SWARM_LOCK_TTL") if text else DEFAULT_LOCK_TTL


def log_max_bytes() -> int:
    """Return the size in bytes at which an append rotates the status log, 0 for never."""
    text = variable("SWARM_LOG_MAX_BYTES")
    return whole(text, "SWARM_LOG_MAX_BYTES", 1, unit="bytes") if text else 0


def durable() -> bool:
    """Return whether each change must be on disk before it is confirmed."""
    text = variable("SWARM_DURABLE")
    if text not in ("", "0", "1"):
        raise BadInput(f"SWARM_DURABLE is {text[:40]!r}, but must be 1 for yes or 0 for no.")
    return text == "1"


def worker() -> str:
    """Return the worker name in SWARM_WORKER, "" if the variable is not set."""
    return variable("SWARM_WORKER")


def in_pane() -> bool:
    """Return whether `swarm up` started this process in a pane."""
    return bool(pane())


def pane() -> str:
    """Return the name of the pane in which `swarm up` started this process, else ""."""
    return variable("SWARM_PANE")


def task() -> str:
    """Return the assigned task, "" if there is no assigned task."""
    return variable("SWARM_TASK_ID")


def web_token() -> str:
    """Return the token that the user chose for `swarm web`, "" if it is to be random."""
    return variable("SWARM_WEB_TOKEN")


def token_for(task: str) -> int | None:
    """Return the token of the assigned task, None if `task` is not the assigned task.

    Raise BadInput if the token is not a number.
    """
    text = variable("SWARM_TOKEN") if variable("SWARM_TASK_ID") == task else ""
    return parse_token(text, "SWARM_TOKEN") if text else None


def agent_variable() -> str:
    """Return a variable of this process that only an agent's commands have, else ""."""
    return next((name for name in AGENT_VARIABLES if variable(name)), "")


def is_headless() -> bool:
    """Return whether Claude Code, as far as it says so, runs without a terminal."""
    return variable("CLAUDE_CODE_ENTRYPOINT").startswith("sdk")


def agent_config_dir(name: str) -> str:
    """Return the directory in the variable by which an agent's user settings are moved,
    as an absolute path. Return "" if the agent has no variable, or if it is not set.
    """
    chosen = variable(name) if name else ""
    return absolute_path(chosen) if chosen else ""


def assigned_task() -> tuple[str, int] | None:
    """Return the assigned task and its token. Return None if there is no assigned task,
    or if its token is not a number.
    """
    task, token = variable("SWARM_TASK_ID"), variable("SWARM_TOKEN")
    return (
        (check_name(task, "SWARM_TASK_ID"), parse_token(token, "SWARM_TOKEN"))
        if task and token.isdigit()
        else None
    )


def user() -> str:
    """Return the name of the user of this process, `uid-N` if the user has no valid
    name.
    """
    import pwd

    try:
        return check_name(pwd.getpwuid(os.geteuid()).pw_name, "user")
    except (KeyError, BadInput):
        return f"uid-{os.geteuid()}"


def columns() -> int:
    """Return the width for texts that the variable COLUMNS sets; 0 if COLUMNS is not a
    number.
    """
    text = variable("COLUMNS")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0


def wants_colour() -> bool:
    """Return whether a terminal may get colours: NO_COLOR is not set, and TERM is not
    "dumb".
    """
    return not variable("NO_COLOR") and variable("TERM") != "dumb"


def terminal_draws() -> bool:
    """Return whether TERM names a terminal that can draw a screen in place."""
    return variable("TERM") not in ("", "dumb")


def language() -> str:
    """Return the locale of messages: the first of LC_ALL, LC_MESSAGES and LANG that is
    set.
    """
    return variable("LC_ALL") or variable("LC_MESSAGES") or variable("LANG")


def time_zone() -> str:
    """Return the time zone that TZ names, "" if it names none."""
    return variable("TZ").removeprefix(":")


def claude_env_file() -> str:
    """Return the file in which a hook sets variables for Claude Code's shell, "" if
    Claude Code names no file.
    """
    return variable("CLAUDE_ENV_FILE")


def is_sandbox() -> bool:
    """Return whether IS_SANDBOX tells Claude Code that root is in a container."""
    return variable("IS_SANDBOX") == "1"


def environment() -> dict[str, str]:
    """Return a copy of the environment, for a child process."""
    from os import environ

    return dict(environ)


def variable(name: str) -> str:
    """Return a variable of the environment, "" if it is not set.

    `posix.environ` is the environment at the start of the process, and a program
    changes only `os.environ`. The two are equal until a program imports `os`. `swarm
    lock` and `swarm log` do not import `os`, which would take a tenth of their time.
    """
    if "os" in sys.modules:
        found: str = sys.modules["os"].environ.get(name, "")
        return found
    value = os.environ.get(name.encode(), b"")
    return value.decode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def _real(path: str) -> str:
    from os.path import realpath

    return realpath(path)
