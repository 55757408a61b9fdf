"""Find out whether a person runs this process, or an agent does.

A process counts as a person's if all of this is true:

- It has a controlling terminal.
- Neither its environment nor that of an ancestor has a variable that swarm or an agent
  sets for the commands of agents. The system keeps the environment with which each
  process was started, so `env -u` in front of a command hides nothing.
- No ancestor is a known agent, a worker of swarm, or a sandbox.

This is a guard against mistakes and easy tricks, not a wall. One user is the boundary of
a swarm: an agent with the rights of its user could type into the terminal of the user,
or write into the store. On a system without /proc, only the names of ancestors and the
environment of this process count.
"""

from __future__ import annotations

import os

from swarm import settings
from swarm.system.ancestry import ancestors, command_words, has_terminal, parentage, variables_at

_AGENTS = {
    *("aider", "amp", "claude", "claude-code", "codex", "copilot", "crush", "cursor-agent"),
    *("gemini", "gemini-cli", "goose", "opencode", "opencode-ai", "qwen", "qwen-code"),
}
_SANDBOXES = {"bwrap", "codex-linux-san", "codex-linux-sandbox", "sandbox-exec"}
_INTERPRETERS = ("bun", "deno", "node", "python")  # python3.14, too


def why_agent() -> str:
    """Return why this process counts as an agent's, "" if it counts as a person's."""
    if name := settings.agent_variable():
        return f"its environment has {name}"
    me = os.getpid()
    above = ancestors(me)
    if not above and os.getppid() > 0:
        return "a sandbox hides its ancestors"
    for pid in above:
        if found := _why_agent(pid):
            return f"process {pid}, from which it comes, {found}"
    return "" if has_terminal() else "it has no terminal"


def _why_agent(pid: int) -> str:
    known = parentage(pid)
    names = {known.name if known else "", *_programs(command_words(pid))}
    if found := names & _AGENTS:
        return f"is the agent {min(found)}"
    if names & _SANDBOXES:
        return "is a sandbox"
    if is_worker(command_words(pid)):
        return "is a worker of swarm"
    if found := variables_at(pid) & {*settings.AGENT_VARIABLES}:
        return f"was started with {min(found)}"
    return ""


def is_worker(words: list[str]) -> bool:
    """Return whether a command line is that of `swarm worker`."""
    at = words.index("worker") if "worker" in words else 0
    return at > 0 and any(
        word == "swarm" or word.endswith(("/swarm", "swarm/__main__.py")) for word in words[:at]
    )


def _programs(words: list[str]) -> set[str]:
    """Return the names of the program of a command line: that of the file, and if an
    interpreter runs it, the parts of the script's path.
    """
    if not words:
        return set()
    first = os.path.basename(words[0])
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    if not first.startswith(_INTERPRETERS) or not script:
        return {first}
    parts = script.split("/")
    return {first, *parts, os.path.splitext(parts[-1])[0]}
