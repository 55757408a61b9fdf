"""swarm's hooks among those of others, in the form that Claude Code and Codex share:

    {"hooks": {EVENT: [{"matcher": TOOLS, "hooks": [{"type": "command", "command": …, "timeout": SECONDS}]}]}}

A handler is swarm's if its command is `swarm hook`, however swarm is started. Handlers of others in the same group stay.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from swarm.agents.setup import json_edit
from swarm.agents.setup.json_edit import Path
from swarm.system.own_command import is_own

_NEVER_2 = ["||", "exit", "1"]  # a Python that does not find swarm any more exits with 2, which agents read as: block


def command_line(command: Sequence[str]) -> str:
    """What an agent's shell runs as a hook, where `command` starts swarm."""
    return f"{shlex.join([*command, 'hook'])} {' '.join(_NEVER_2)}"


def put(text: str, groups: Mapping[str, object], name: str) -> str:
    """The text with these groups, one an event, and no other hook of swarm's."""
    if text and _ours(json_edit.parsed(text, name)) == {event: [group] for event, group in groups.items()}:
        return text
    text = taken_out(text, name)
    for event, group in groups.items():
        present = _events(json_edit.parsed(text, name)).get(event) if text else None
        text = json_edit.put(text, ("hooks", event, len(present) if isinstance(present, list) else 0), group, name)
    return text


def taken_out(text: str, name: str) -> str:
    """The text without swarm's hooks, "" if there is nothing else."""
    while text and (path := _first_of_ours(json_edit.parsed(text, name))):
        text = json_edit.taken_out(text, path, name)
    return text


def _events(value: Any) -> dict[str, Any]:
    events = value.get("hooks")
    return events if isinstance(events, dict) else {}


def _handlers(group: Any) -> list[Any]:
    handlers = group.get("hooks") if isinstance(group, dict) else None
    return handlers if isinstance(handlers, list) else []


def _ours(value: Any) -> dict[str, list[object]]:
    """The groups that have a hook of swarm's, event by event."""
    found: dict[str, list[object]] = {}
    for event, groups in _events(value).items():
        for group in groups if isinstance(groups, list) else []:
            if any(map(_is_ours, _handlers(group))):
                found.setdefault(event, []).append(group)
    return found


def _first_of_ours(value: Any) -> Path:
    for event, groups in _events(value).items():
        for index, group in enumerate(groups if isinstance(groups, list) else []):
            ours = [number for number, handler in enumerate(_handlers(group)) if _is_ours(handler)]
            if ours and len(ours) == len(_handlers(group)):
                return "hooks", event, index
            if ours:
                return "hooks", event, index, "hooks", ours[0]
    return ()


def _is_ours(handler: Any) -> bool:
    command = handler.get("command") if isinstance(handler, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # an open quote: nothing that we wrote
        return False
    return is_own(words[:-3] if words[-3:] == _NEVER_2 else words, "hook")
