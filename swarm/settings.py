"""What the environment says. It is read at each call, never at import."""

from __future__ import annotations

import posix as os  # its calls; importing os would cost a command a tenth of its time
import sys

from swarm.errors import BadInput, StoreError
from swarm.inputs import absolute_path, check_name, parse_token, parse_ttl, whole

DEFAULT_STATE_DIR = "/tmp/ai_swarm"
DEFAULT_LOCK_TTL = 300


def state_dir() -> tuple[str, bool]:
    """The state directory as an absolute path, and whether somebody chose it (the default is not trusted blindly)."""
    chosen = variable("SWARM_STATE_DIR")
    other = variable("AI_SWARM_DIR")
    if chosen and other and chosen != other and _real(chosen) != _real(other):
        raise BadInput(
            f"SWARM_STATE_DIR is {chosen!r} and AI_SWARM_DIR is {other!r}: two state directories would split the swarm. "
            "Unset one of them, or set both to the same directory."
        )
    path = chosen or other
    if not path:
        return DEFAULT_STATE_DIR, False
    try:
        return absolute_path(path), True
    except FileNotFoundError:
        raise StoreError(f"the state directory is {path!r}, but the working directory is gone. Go to one that exists.") from None


def store() -> str:
    """SWARM_STORE as it was typed, "" if it is not set. `stores.default.store_url` understands it."""
    return variable("SWARM_STORE")


def lock_ttl() -> int:
    """The lease of a lock taken from Python: AI_SWARM_LOCK_TTL, else 300 seconds."""
    text = variable("AI_SWARM_LOCK_TTL")
    return parse_ttl(text, "AI_SWARM_LOCK_TTL") if text else DEFAULT_LOCK_TTL


def log_max_bytes() -> int:
    """The size at which the status log is rotated by itself, 0 for never."""
    text = variable("SWARM_LOG_MAX_BYTES")
    return whole(text, "SWARM_LOG_MAX_BYTES", 1, unit="bytes") if text else 0


def durable() -> bool:
    """Whether every change is to be on disk before it is confirmed."""
    text = variable("SWARM_DURABLE")
    if text not in ("", "0", "1"):
        raise BadInput(f"SWARM_DURABLE is {text[:40]!r}, but must be 1, or 0 for no.")
    return text == "1"


def worker() -> str:
    return variable("SWARM_WORKER")


def task() -> str:
    """The task that whoever started us holds, "" if it holds none."""
    return variable("SWARM_TASK_ID")


def web_token() -> str:
    """The token of `swarm web` that somebody has chosen, "" if one is to be drawn."""
    return variable("SWARM_WEB_TOKEN")


def token_for(task: str) -> str:
    """The token that whoever started us holds this very task with, "" if it holds another or none."""
    return variable("SWARM_TOKEN") if variable("SWARM_TASK_ID") == task else ""


def agent_config_dir(agent: str) -> str:
    """Where an agent keeps its user's settings, as an absolute path; "" if in the usual directory."""
    chosen = variable("CLAUDE_CONFIG_DIR") if agent == "claude" else variable("CODEX_HOME")
    return absolute_path(chosen) if chosen else ""


def assigned_task() -> tuple[str, int] | None:
    """The task that whoever started us holds, and its token; None if nobody said so, or not so that it can be believed."""
    task, token = variable("SWARM_TASK_ID"), variable("SWARM_TOKEN")
    return (check_name(task, "SWARM_TASK_ID"), parse_token(token)) if task and token.isdigit() else None


def user() -> str:
    """Who runs this, as a name that may stand in a log."""
    import pwd

    try:
        return check_name(pwd.getpwuid(os.geteuid()).pw_name, "user")
    except (KeyError, BadInput):
        return f"uid-{os.geteuid()}"


def columns() -> int:
    """Return COLUMNS, the width that texts are to fit into; 0 if it is not set to a number."""
    text = variable("COLUMNS")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else 0


def wants_colour() -> bool:
    """Return whether a terminal may get colours: NO_COLOR is not set, and TERM is not "dumb"."""
    return not variable("NO_COLOR") and variable("TERM") != "dumb"


def terminal_draws() -> bool:
    """Return whether the terminal can draw a screen in place, by TERM."""
    return variable("TERM") not in ("", "dumb")


def language() -> str:
    """Return the locale of messages: the first of LC_ALL, LC_MESSAGES and LANG that is set."""
    return variable("LC_ALL") or variable("LC_MESSAGES") or variable("LANG")


def claude_env_file() -> str:
    """Return the file in which a hook sets variables for Claude Code's shell, "" if there is none."""
    return variable("CLAUDE_ENV_FILE")


def environment() -> dict[str, str]:
    """Return a copy of the environment, for a process that this one starts."""
    from os import environ

    return dict(environ)


def variable(name: str) -> str:
    """Return a variable of the environment, "" if it is not set.

    `posix.environ` is the environment at the start of the process, and a program changes only
    `os.environ`. While `os` is not imported, both are the same. The hot commands do not import
    it: that would take a tenth of their time.
    """
    if "os" in sys.modules:
        found: str = sys.modules["os"].environ.get(name, "")
        return found
    value = os.environ.get(name.encode(), b"")
    return value.decode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def _real(path: str) -> str:
    from os.path import realpath

    return realpath(path)
