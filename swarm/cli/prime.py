"""`swarm prime`: print the brief of an agent."""

from __future__ import annotations

from swarm import settings
from swarm.agents.brief import brief
from swarm.agents.identity import whoami
from swarm.agents.messages import hook as hook_messages
from swarm.cli.arguments import Call, Command, Option
from swarm.stores.default import default_store
from swarm.terminal import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from swarm.agents.brief import Brief


def prime(call: Call) -> int:
    worker = whoami(call.options.get("--worker"))
    found = brief(default_store(), worker, settings.task())
    received = hook_messages.receive(default_store(), worker)
    if received is None:
        _print(call, found, [], "")
        return 0
    with received:
        messages = [message.fields() for message in received.messages]
        _print(call, found, messages, f"\n{hook_messages.shown(received, worker)}\n")
        received.confirm()  # after the output: a killed reader gets them again
    return 0


def _print(call: Call, found: Brief, messages: list[dict[str, Any]], text: str) -> None:
    if not call.answer({**found.fields(), "messages": messages}):
        output.out(found.text() + text)


COMMAND = Command(
    prime,
    "Print the brief of an agent. The command only marks messages as read.",
    "swarm prime",
    options=(
        Option(
            "--worker",
            "W",
            "the worker; default: SWARM_WORKER, else the agent that runs this command",
        ),
    ),
    details=(
        (
            "The brief has the agent's worker name and task, the other workers, tasks that wait "
            "for a user, files that other workers have reserved, the next commands, and messages."
        ),
    ),
)
