"""`swarm prime`: print the brief of an agent."""

from __future__ import annotations

from swarm import settings
from swarm.agents.brief import brief
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.stores.default import default_store
from swarm.terminal import output


def prime(call: Call) -> int:
    worker = whoami(call.options.get("--worker"))
    found = brief(default_store(), worker, settings.task())
    if not call.answer(found.fields()):
        output.out(found.text())
    return 0


COMMAND = Command(
    prime,
    "Print the brief of an agent. The command changes nothing.",
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
            "for a user, files that other workers have reserved, and the next commands."
        ),
    ),
)
