"""Add swarm's hooks to an agent's settings, in the form that Claude Code and Codex
share:

    {"hooks": {EVENT: [{"matcher": TOOLS, "hooks": [{"type": "command", "command": …, "timeout": SECONDS}]}]}}

A handler belongs to swarm if its command runs `swarm hook`, by any path to swarm.
Handlers of other programs stay, even in a group with a handler of swarm.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from swarm.agents.setup import json_edit
from swarm.agents.setup.json_edit import Path
from swarm.system.own_command import is_own

# Python exits with 2 if swarm is gone, and agents read 2 as "block".
_NEVER_EXIT_2 = ["||", "exit", "1"]


def command_line(command: Sequence[str]) -> str:
    """Return the shell command for a hook. `command` is the command line that starts
    swarm.
    """
    return f"{shlex.join([*command, 'hook'])} {' '.join(_NEVER_EXIT_2)}"


def put(text: str, groups: Mapping[str, object], name: str) -> str:
    """Return the settings with one given group for each event, and with no other hook
    of swarm.
    """
    if text and _own_groups(json_edit.parse(text, name)) == {
        event: [group] for event, group in groups.items()
    }:
        return text
    text = remove(text, name)
    for event, group in groups.items():
        present = _events(json_edit.parse(text, name)).get(event) if text else None
        text = json_edit.insert(
            text, ("hooks", event, len(present) if isinstance(present, list) else 0), group, name
        )
    return text


def remove(text: str, name: str) -> str:
    """Return the settings without swarm's hooks, "" if nothing else is in them."""
    while text and (path := _first_own_path(json_edit.parse(text, name))):
        text = json_edit.remove(text, path, name)
    return text


def _events(value: Any) -> dict[str, Any]:
    events = value.get("hooks")
    return events if isinstance(events, dict) else {}


def _handlers(group: Any) -> list[Any]:
    handlers = group.get("hooks") if isinstance(group, dict) else None
    return handlers if isinstance(handlers, list) else []


def _own_groups(value: Any) -> dict[str, list[object]]:
    """Return the groups with a hook of swarm, by event."""
    found: dict[str, list[object]] = {}
    for event, groups in _events(value).items():
        for group in groups if isinstance(groups, list) else []:
            if any(map(_is_own, _handlers(group))):
                found.setdefault(event, []).append(group)
    return found


def _first_own_path(value: Any) -> Path:
    for event, groups in _events(value).items():
        for index, group in enumerate(groups if isinstance(groups, list) else []):
            own = [number for number, handler in enumerate(_handlers(group)) if _is_own(handler)]
            if own and len(own) == len(_handlers(group)):
                return "hooks", event, index
            if own:
                return "hooks", event, index, "hooks", own[0]
    return ()


def _is_own(handler: Any) -> bool:
    command = handler.get("command") if isinstance(handler, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # an open quote: swarm did not write this command
        return False
    return is_own(words[:-3] if words[-3:] == _NEVER_EXIT_2 else words, "hook")
