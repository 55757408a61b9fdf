"""Add swarm's hooks to an agent's settings, in the form that most agents share:

    {"hooks": {EVENT: [{"matcher": TOOLS, "hooks": [{"type": "command", "command": …, "timeout": SECONDS}]}]}}

Copilot has the handler itself in the list of the event. A handler belongs to swarm if
its command runs `swarm hook`, by any path to swarm. Handlers of other programs stay,
even in a group with a handler of swarm.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from swarm.agents.setup import json_edit
from swarm.agents.setup.agents import Agent
from swarm.agents.setup.json_edit import Path
from swarm.system.own_command import is_own

# Python exits with 2 if swarm is gone, and agents read 2 as "block".
_NEVER_EXIT_2 = "|| exit 1"
_NEVER_FAIL = "|| exit 0"
_AGENT_OPTION = "--agent"


def command_line(command: Sequence[str], agent: str = "", *, never_fail: bool = False) -> str:
    """Return the shell command for a hook. `command` is the command line that starts
    swarm. `agent` is the agent whose form of answers swarm must use.
    """
    words = [*command, "hook", *([_AGENT_OPTION, agent] if agent else [])]
    return f"{shlex.join(words)} {_NEVER_FAIL if never_fail else _NEVER_EXIT_2}"


def groups(agent: Agent, command: Sequence[str]) -> dict[str, object]:
    """Return swarm's hooks for an agent, by event."""
    form = agent.hook_form
    line = command_line(command, agent.name if form.flat else "", never_fail=form.never_fail)
    found: dict[str, object] = {}
    for entry in agent.hooks:
        matcher = {"matcher": entry.matcher} if entry.matcher else {}
        handler = {
            "type": "command",
            "command": line,
            form.timeout: entry.timeout * form.per_second,
            **({"statusMessage": entry.status} if entry.status else {}),
        }
        found[entry.event] = {**matcher, **(handler if form.flat else {"hooks": [handler]})}
    return found


def put(
    text: str, groups: Mapping[str, object], name: str, head: Mapping[str, object] | None = None
) -> str:
    """Return the settings with one given group for each event, and with no other hook
    of swarm. A new file begins with the keys of `head`.
    """
    if text and _own_groups(json_edit.parse(text, name)) == {
        event: [group] for event, group in groups.items()
    }:
        return text
    text = remove(text, name, head)
    for key, value in (head or {}).items() if not text else ():
        text = json_edit.insert(text, (key,), value, name)
    for event, group in groups.items():
        present = _events(json_edit.parse(text, name)).get(event) if text else None
        text = json_edit.insert(
            text, ("hooks", event, len(present) if isinstance(present, list) else 0), group, name
        )
    return text


def remove(text: str, name: str, head: Mapping[str, object] | None = None) -> str:
    """Return the settings without swarm's hooks, "" if nothing but `head` is left."""
    found = False
    while text and (path := _first_own_path(json_edit.parse(text, name))):
        text, found = json_edit.remove(text, path, name), True
    return "" if found and text and head and json_edit.parse(text, name) == head else text


def _events(value: Any) -> dict[str, Any]:
    events = value.get("hooks")
    return events if isinstance(events, dict) else {}


def _handlers(group: Any) -> list[Any]:
    if not isinstance(group, dict):
        return []
    handlers = group.get("hooks", [group])
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
    for ending in (_NEVER_EXIT_2, _NEVER_FAIL):
        if words[-3:] == ending.split():
            words = words[:-3]
    return is_own(words[:-2] if words[-2:-1] == [_AGENT_OPTION] else words, "hook")
