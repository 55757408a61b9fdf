"""`swarm prime`: what an agent needs to know now."""

from __future__ import annotations

from swarm import settings
from swarm.agents.brief import brief
from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command
from swarm.formats import json_codec
from swarm.stores.default import default_store
from swarm.terminal import output


def prime(call: Call) -> int:
    worker = whoami(call.options.get("--worker"))
    told = brief(default_store(), worker, settings.task())
    output.out(json_codec.dumps(told.fields()) + "\n" if call.json else told.text())
    return 0


COMMAND = Command(
    "[--worker W]",
    "Prints what an agent needs to know now: who it is, its task, who else works, what waits for a person, which files others\n"
    "have reserved, and the commands to go on with. It changes nothing.\n"
    "\n"
    "  --worker W   default: SWARM_WORKER, else the agent that runs this, by its process",
    "swarm prime",
    prime,
    "--worker=",
)
