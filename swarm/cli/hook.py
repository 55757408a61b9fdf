"""`swarm hook`: entry point for the hooks of coding agents.

A hook must never stop an agent. Errors are printed on standard error, and the agent
goes on. No hook takes longer than the agent allows. Only a hook that waits for a person
takes long: see `agents.held_hook`. No error exits with 2, because
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
from swarm.errors import BadInput, StoreError
from swarm.formats import json_codec
from swarm.system import process
from swarm.terminal import output
from swarm.terminal.text import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from swarm.agents.hooks import Answer

    R = TypeVar("R")

_MAX_EVENT = 256 << 20  # bytes; a tool's whole answer may be in it
# seconds
_TIMEOUTS = {
    "SessionStart": 8.0,
    "UserPromptSubmit": 3.0,
    "PreToolUse": 5.0,
    "PermissionRequest": 20.0,  # the agent allows an hour
    "PostToolUse": 3.0,
    "PostToolUseFailure": 3.0,
    "Notification": 3.0,
    "SubagentStart": 3.0,
    "Stop": 5.0,
    "StopFailure": 5.0,
    "SessionEnd": 1.0,
}
_AFTER_TOOL = ("PostToolUse", "PostToolUseFailure")


def hook(call: Call) -> int:
    agent = call.options.get("--agent", "")
    if agent not in ("", "copilot"):
        raise BadInput(f"--agent is {agent[:40]!r}, but only copilot needs this option.")
    event = hook_event.parse(output.read_stdin(_MAX_EVENT), agent)
    if event.name not in _TIMEOUTS or (event.name == "PreToolUse" and not event.files):
        return 0
    if event.name == "PermissionRequest":
        return _request(event, call.options.get("--worker"))
    answer = _in_time(event, lambda: _answer(event, call.options.get("--worker")))
    if answer is not None:
        _put(answer)
        _in_time(event, lambda: _confirm(answer))
    return 0


def _request(event: HookEvent, given: str | None) -> int:
    """Answer a request for a permission, which may take as long as a person takes."""
    from swarm.agents.held_hook import HeldHook
    from swarm.agents.hook_questions import Asked

    worker = whoami(given)
    held = HeldHook(event, worker)

    def decide() -> Answer | Asked | None:
        _note_in_pane(event, worker)
        return held.decide()

    found = _in_time(event, decide)
    if isinstance(found, Asked):
        return held.hold(found, _put)
    if found is not None:
        _put(found)
    return 0


def _confirm(answer: Answer) -> None:
    """Write the receipt for the messages in an answer that was printed."""
    from swarm.agents.messages.hook import MessageAnswer

    if isinstance(answer, MessageAnswer):
        answer.confirm()


def _answer(event: HookEvent, given: str | None) -> Answer | None:
    worker = whoami(given)
    _note_in_pane(event, worker)
    if event.name == "SessionStart":
        _name_the_worker(worker)
    state = HookState(worker)
    is_idle = not state.waits and not state.asks
    if event.name in _AFTER_TOOL and is_idle and not state.is_due(time.time()):
        return None
    from swarm.agents.hooks import AgentHooks
    from swarm.stores.default import default_store

    return AgentHooks(default_store(), worker, state, settings.task()).answer(event)


def _note_in_pane(event: HookEvent, worker: str) -> None:
    if settings.in_pane() and not settings.task():
        from swarm.agents.pane_hooks import note

        note(event, worker)


def _put(answer: Answer) -> None:
    output.out(json_codec.dumps(answer) + "\n")


def _in_time(event: HookEvent, work: Callable[[], R]) -> R:
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
    "Answer an event of a coding agent, a JSON object on standard input.",
    'echo \'{"hook_event_name": "SessionStart"}\' | swarm hook',
    options=(
        Option(
            "--worker",
            "W",
            "the worker; default: SWARM_WORKER, else the agent that runs this command",
        ),
        Option("--agent", "A", "the agent that sends the event; only copilot needs it"),
    ),
    details=(
        "Users need not call this command: swarm setup writes it into the settings of the agent.",
        {
            "SessionStart": "tell the agent its name and task, the other workers, tasks that wait "
            "for a user, and messages",
            "UserPromptSubmit": "renew claims, report what happened while the agent waited, and "
            "deliver messages",
            "PreToolUse": "refuse to edit a file that another worker has reserved (swarm reserve)",
            "PermissionRequest": "let the policy of the project or a person decide, and wait "
            "for the answer",
            "PostToolUse": "renew claims, report a lost task and deliver messages, at most "
            "every ten seconds",
            "PostToolUseFailure": "the same",
            "Notification": "log that the task waits for a person, if the agent does",
            "SubagentStart": "tell the subagent that the agent ends the task",
            "Stop": "remind the agent once of a task that is still open",
            "StopFailure": "fail the task, or release it if a limit is the reason",
            "SessionEnd": "release the claims of the agent",
        },
        (
            "All other events of the agent have no effect. Errors are printed on standard error "
            "and never stop the agent."
        ),
    ),
    notes=("Wrong usage exits with 1, not with 2, because agents read 2 as an order to block.",),
)
