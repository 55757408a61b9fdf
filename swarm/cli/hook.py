"""`swarm hook`: entry point for Claude Code and Codex hooks.

A hook must never stop an agent. Errors are printed on standard error, and the agent
goes on. No hook takes longer than the agent allows. No error exits with 2, because
agents read the exit code 2 as an order to block. `cli.main` replaces the exit code 2.
"""

from __future__ import annotations

import time

from swarm import settings
from swarm.agents import hook_event
from swarm.agents.hook_event import HookEvent
from swarm.agents.hook_state import HookState
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import StoreError
from swarm.formats import json_codec
from swarm.system import process
from swarm.terminal import output
from swarm.terminal.text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from swarm.agents.hooks import Answer

_MAX_EVENT = 256 << 20  # bytes; a tool's whole answer may be in it
# seconds
_TIMEOUTS = {
    "SessionStart": 8.0,
    "PreToolUse": 5.0,
    "PostToolUse": 3.0,
    "Stop": 5.0,
    "SessionEnd": 1.0,
}


def hook(call: Call) -> int:
    event = hook_event.parse(output.read_stdin(_MAX_EVENT))
    if event.name not in _TIMEOUTS or (event.name == "PreToolUse" and not event.files):
        return 0
    answer = _in_time(event, lambda: _answer(event, call.options.get("--worker")))
    if answer is not None:
        output.out(json_codec.dumps(answer) + "\n")
    return 0


def _answer(event: HookEvent, given: str | None) -> Answer | None:
    worker = whoami(given)
    if event.name == "SessionStart":
        _name_the_worker(worker)
    state = HookState(worker)
    if event.name == "PostToolUse" and not state.is_due(time.time()):
        return None
    from swarm.agents.hooks import AgentHooks
    from swarm.stores.default import default_store

    return AgentHooks(default_store(), worker, state, settings.task()).answer(event)


def _in_time(event: HookEvent, work: Callable[[], Answer | None]) -> Answer | None:
    """Run `work` with a time limit, and return its result.

    Raise StoreError if `work` takes too long: a disk or a store that does not answer
    must not delay the agent.
    """
    from swarm.system.background import BackgroundCall

    limit = _TIMEOUTS[event.name]
    call = BackgroundCall(work, event.name)
    try:
        call.start()
    except StoreError:  # an answer without a limit is better than none
        return work()
    # The agent counts from the start of this process, which on a busy machine is long
    # ago.
    if not call.wait(max(limit / 2, limit - process.age())):
        raise StoreError(
            f"{event.name} took longer than {limit:g} seconds, so the agent goes on without an "
            "answer of swarm. "
            f"See: swarm doctor"
        )
    return call.result()


def _name_the_worker(worker: str) -> None:
    """Set SWARM_WORKER for the commands that Claude Code will run in its shell."""
    path = settings.claude_env_file()
    if path and not settings.worker():
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"export SWARM_WORKER={quoted(worker)}\n")
        except OSError as error:
            output.err(f"Warning: {path} cannot be written: {error.strerror}.\n")


COMMAND = Command(
    hook,
    "Answer an event of Claude Code or Codex, a JSON object on standard input.",
    'echo \'{"hook_event_name": "SessionStart"}\' | swarm hook',
    options=(
        Option(
            "--worker",
            "W",
            "the worker; default: SWARM_WORKER, else the agent that runs this command",
        ),
    ),
    details=(
        "Users need not call this command: swarm setup writes it into the settings of the agent.",
        {
            "SessionStart": "tell the agent its name and task, the other workers, and tasks "
            "that wait for a user",
            "PreToolUse": "refuse to edit a file that another worker has reserved (swarm reserve)",
            "PostToolUse": "renew claims, at most every ten seconds, and report a lost task",
            "Stop": "remind the agent once of a task that is still open",
            "SessionEnd": "release the claims of the agent",
        },
        (
            "All other events of the agent have no effect. Errors are printed on standard error "
            "and never stop the agent."
        ),
    ),
    notes=("Wrong usage exits with 1, not with 2, because agents read 2 as an order to block.",),
)
