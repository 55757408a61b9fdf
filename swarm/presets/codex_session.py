"""The session file of Codex, for commands about which `codex exec --json` prints nothing.

Codex 0.169.0 often prints no event about a command that the sandbox stops at once. Its
session file has every command with its output. The format of the file is not
documented: a line that has another form is ignored, and so is a missing file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from swarm import settings
from swarm.presets.contract import is_session
from swarm.presets.json_lines import as_object, text_of
from swarm.system.clock import to_iso

_EXIT_CODE = re.compile(r"^Process exited with code (\d+)$", re.MULTILINE)


class Ran(NamedTuple):
    """A command that has ended. `output` is what the model was told about it."""

    command: str
    exit_code: int
    output: str


def commands(session: str, since: float) -> Iterator[Ran]:
    """Yield the commands of a session that ended after `since`, in their order."""
    if not is_session(session):
        return
    began = to_iso(since)  # the form of Codex too
    directory = Path(settings.agent_config_dir("CODEX_HOME") or os.path.expanduser("~/.codex"))
    try:
        for file in directory.glob(f"sessions/*/*/*/rollout-*-{session}.jsonl"):
            with file.open(encoding="utf-8", errors="replace") as lines:
                yield from _ended(lines, began)
    except OSError:
        return


def _ended(lines: Iterator[str], began: str) -> Iterator[Ran]:
    called: dict[str, str] = {}
    for line in lines:
        event = as_object(line) if '"function_call' in line else None
        if event is None or text_of(event, "timestamp") < began:
            continue
        call = text_of(event, "payload", "call_id")
        arguments = as_object(text_of(event, "payload", "arguments"))
        if arguments is not None:
            called[call] = text_of(arguments, "cmd")
            continue
        output = text_of(event, "payload", "output")
        code = _EXIT_CODE.search(output)
        if code is not None and called.get(call):
            yield Ran(called[call], int(code[1]), output)
