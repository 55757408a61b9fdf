"""Remember the options of the last `swarm up`: `swarm up` alone starts the same again.

The file `.last-start.json` in the state directory is for its user alone: a command line
may contain a secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from swarm.errors import TmuxSwarmError

_NAME = ".last-start.json"


@dataclass(frozen=True)
class Start:
    """What `swarm up` starts.

    At most one of `agent` (a preset), `command` (`--exec`) and `interactive` (a command
    line) is set. `options` are further options of `swarm worker` with their values, ""
    for an option without a value. `workers` is 0 if no user gave a number. `prompts` is
    how to answer prompts of the interactive agent, "" if no user said.
    """

    workers: int = 0
    agent: str = ""
    command: str = ""
    interactive: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    prompts: str = ""

    @property
    def names_agent(self) -> bool:
        return bool(self.agent or self.command or self.interactive)

    @property
    def words(self) -> list[str]:
        """The options as words of a command line."""
        pairs = self.options.items()
        return [word for name, value in pairs for word in ([name, value] if value else [name])]


def load(state_dir: str) -> Start:
    """Return the last start, an empty one if there is none. Ignore an invalid file."""
    try:
        with open(_path(state_dir), encoding="utf-8") as file:
            found = json.load(file)
        known = {each.name: found[each.name] for each in fields(Start) if each.name in found}
        start = Start(**known)
    except (OSError, ValueError, TypeError, KeyError):
        return Start()
    if not isinstance(start.workers, int) or not isinstance(start.options, dict):
        return Start()
    texts = (start.agent, start.command, start.interactive, start.prompts, *start.options.values())
    return start if all(isinstance(text, str) for text in texts) else Start()


def save(state_dir: str, start: Start) -> None:
    """Remember a start. Raise TmuxSwarmError if the file cannot be written."""
    path = _path(state_dir)
    draft = f"{path}.{os.getpid()}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(start), file)
        os.replace(draft, path)
    except OSError as error:
        raise TmuxSwarmError(
            f"the agents were started, but {path} cannot be written: {error.strerror}. The next "
            "swarm up needs its options again."
        ) from error


def _path(state_dir: str) -> str:
    return os.path.join(state_dir, _NAME)
