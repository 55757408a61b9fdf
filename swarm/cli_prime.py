"""`swarm prime`: what an agent needs to know now."""

from __future__ import annotations

from swarm import agent_process, jsontext, settings, terminal
from swarm.agent_brief import brief
from swarm.arguments import Call, Command
from swarm.home import Home


def prime(call: Call) -> int:
    worker = agent_process.worker(call.options.get("--worker"))
    told = brief(Home().store(), worker, settings.task())
    terminal.out(jsontext.dumps(told.fields()) + "\n" if call.json else told.text())
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
