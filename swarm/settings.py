"""What the environment says. Read at each call, never at import; only faces and the default of a constructor ask."""

from __future__ import annotations

import posix as os  # its calls; importing os would cost a command a tenth of its time
import sys

from swarm.errors import BadInput, StoreError
from swarm.inputs import check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_STATE_DIR = "/tmp/ai_swarm"
DEFAULT_LOCK_TTL = 300
MAX_TTL = 315_360_000
MAX_RECORD_BYTES = 16 * 1024 * 1024


def state_dir() -> tuple[str, bool]:
    """The state directory as an absolute path, and whether somebody chose it (the default is not trusted blindly)."""
    chosen = _variable("SWARM_STATE_DIR")
    other = _variable("AI_SWARM_DIR")
    if chosen and other and chosen != other and _real(chosen) != _real(other):
        raise BadInput(
            f"SWARM_STATE_DIR is {chosen!r} and AI_SWARM_DIR is {other!r}: two state directories would split the swarm. "
            "Unset one of them, or set both to the same directory."
        )
    path = chosen or other
    if not path:
        return DEFAULT_STATE_DIR, False
    try:
        return _absolute(path), True
    except FileNotFoundError:
        raise StoreError(f"the state directory is {path!r}, but the working directory is gone. Go to one that exists.") from None


def store_url() -> str:
    """The store that SWARM_STORE names, a directory as an absolute path; "" if the state directory is the store."""
    url = _variable("SWARM_STORE")
    return parse_store(url, "SWARM_STORE") if url else ""


def parse_store(text: str, what: str) -> str:
    """The address of a store as a person types it; a directory as an absolute path. A server's address that lacks something must
    not be taken for a directory: each machine would have a swarm of its own."""
    if "://" in text:
        return text
    first, slash, _ = text.partition("/")
    if not slash or any(sign in first for sign in ":=@ "):
        raise BadInput(f"{what} names neither a server, such as redis://host/0, nor a directory: write that with a /, as ./here.")
    return _absolute(text)


def choose_store(url: str) -> None:
    """What --store says: from now on for this process, and for every one that it starts."""
    from os import environ

    refuse_secret(url, "--store")
    environ["SWARM_STORE"] = url
    environ["SWARM_STORE"] = store_url()  # also for what is started in another directory


def refuse_secret(url: str, what: str) -> None:
    """Refuses an address that was typed with a password in it."""
    if "://" not in url or url.startswith("file://"):
        return
    from swarm.stores.address import Address

    if Address(url).has_secret:
        raise BadInput(
            f"{what} contains a password, which everybody on this machine can read while the command runs (ps). "
            "Give it in a variable instead: the whole address in SWARM_STORE, or the password as the server's own tools take it."
        )


def lock_ttl() -> int:
    """The lease of a lock taken from Python: AI_SWARM_LOCK_TTL, else 300 seconds."""
    text = _variable("AI_SWARM_LOCK_TTL")
    return parse_ttl(text, "AI_SWARM_LOCK_TTL") if text else DEFAULT_LOCK_TTL


def log_max_bytes() -> int:
    """The size at which the status log is rotated by itself, 0 for never."""
    text = _variable("SWARM_LOG_MAX_BYTES")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 18) or int(text) < 1:
        raise BadInput(f"SWARM_LOG_MAX_BYTES is {text[:40]!r}, but must be a whole number of bytes, 1 or more.")
    return int(text)


def durable() -> bool:
    """Whether every change is to be on disk before it is confirmed."""
    text = _variable("SWARM_DURABLE")
    if text not in ("", "0", "1"):
        raise BadInput(f"SWARM_DURABLE is {text[:40]!r}, but must be 1, or 0 for no.")
    return text == "1"


def worker() -> str:
    return _variable("SWARM_WORKER")


def task() -> str:
    """The task that whoever started us holds, "" if it holds none."""
    return _variable("SWARM_TASK_ID")


def web_token() -> str:
    """The token of `swarm web` that somebody has chosen, "" if one is to be drawn."""
    return _variable("SWARM_WEB_TOKEN")


def token_for(task: str) -> str:
    """The token that whoever started us holds this very task with, "" if it holds another or none."""
    return _variable("SWARM_TOKEN") if _variable("SWARM_TASK_ID") == task else ""


def agent_config_dir(agent: str) -> str:
    """Where an agent keeps its user's settings, as an absolute path; "" if in the usual directory."""
    chosen = _variable("CLAUDE_CONFIG_DIR") if agent == "claude" else _variable("CODEX_HOME")
    return _absolute(chosen) if chosen else ""


def errand() -> tuple[str, int] | None:
    """The task that whoever started us holds, and its token; None if nobody said so, or not so that it can be believed."""
    task, token = _variable("SWARM_TASK_ID"), _variable("SWARM_TOKEN")
    return (check_name(task, "SWARM_TASK_ID"), parse_token(token)) if task and token.isdigit() else None


def user() -> str:
    """Who runs this, as a name that may stand in a log."""
    import pwd

    try:
        return check_name(pwd.getpwuid(os.geteuid()).pw_name, "user")
    except (KeyError, BadInput):
        return f"uid-{os.geteuid()}"


def environment_for(task: str, worker: str, token: int) -> dict[str, str]:
    """The environment of a command that works on a task: who it is, and this swarm, whatever its working directory."""
    place = state_dir()[0]
    names = {"SWARM_TASK_ID": task, "SWARM_WORKER": worker, "SWARM_TOKEN": str(token)}
    from os import environ

    return {**environ, **names, "SWARM_STATE_DIR": place, "AI_SWARM_DIR": place}


def parse_token(text: str) -> int:
    """A fencing token as a person types it."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadInput(f"--token is {text[:40]!r}, but must be a whole number.")
    return int(text)


def parse_meta(text: str | None) -> dict[str, Any] | None:
    """The value of --meta, None if it was not given."""
    if text is None:
        return None
    from swarm.formats import json_codec

    try:
        meta = json_codec.loads(text, strict=True)
    except ValueError as error:
        raise BadInput(f"--meta is not JSON ({error}). Give an object, such as '{{\"retry_count\": 1}}'.") from None
    if not isinstance(meta, dict):
        raise BadInput("--meta must be a JSON object, such as '{\"retry_count\": 1}'.")
    return meta


def parse_ttl(text: str, what: str) -> int:
    """A TTL as a person types it: whole seconds."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9) or not 1 <= int(text) <= MAX_TTL:
        raise BadInput(f"{what} is {text[:40]!r}, but must be a whole number of seconds from 1 to {MAX_TTL}.")
    return int(text)


def parse_wait(text: str, what: str) -> float:
    """A duration as a person types it: seconds, also fractions."""
    if not (text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= 20):
        raise BadInput(f"{what} is {text[:40]!r}, but must be a number of seconds, 0 or more.")
    return check_wait(float(text))


def check_ttl(ttl: float, *, fractions: bool = False) -> float:
    """A TTL as a program passes it."""
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 1 <= ttl <= MAX_TTL:
        raise BadInput(f"ttl is {ttl!r}, but must be a number of seconds from 1 to {MAX_TTL}.")
    if not fractions and ttl != int(ttl):
        raise BadInput(f"ttl is {ttl!r}, but must be whole seconds here; only hold() takes fractions.")
    return int(ttl) if ttl == int(ttl) else ttl


def check_wait(wait: float) -> float:
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not 0 <= wait <= MAX_TTL:
        raise BadInput(f"wait is {wait!r}, but must be a number of seconds, 0 or more.")
    return wait


def _variable(name: str) -> str:
    """Of the environment, "" if it is not set."""
    if "os" in sys.modules:  # which a program may have given another environment
        found: str = sys.modules["os"].environ.get(name, "")
        return found
    value = os.environ.get(name.encode(), b"")
    return value.decode(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())


def _absolute(path: str) -> str:
    """As os.path has it, which is imported only for a path that is to be changed."""
    if path.startswith("/") and "//" not in path and "/." not in path and not path.endswith("/"):
        return path
    from os.path import abspath

    return abspath(path)


def _real(path: str) -> str:
    from os.path import realpath

    return realpath(path)
