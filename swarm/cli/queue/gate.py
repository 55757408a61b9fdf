"""`swarm gate`: list, close and open the gates of agents."""

from __future__ import annotations

import math

from swarm.agents.identity import whoami
from swarm.cli.arguments import Call, Command, Option
from swarm.errors import BadInput
from swarm.inputs import parse_duration
from swarm.queue.gates import BUDGET, EVERYONE
from swarm.queue.queue import TaskQueue
from swarm.system.clock import from_iso
from swarm.terminal import output
from swarm.terminal.text import foreign, foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from swarm.queue.gates import Gate


def list_gates(call: Call) -> int:
    gates = TaskQueue().gates()
    if not call.answer({"gates": [_fields(gate) for gate in gates]}):
        output.out("".join(map(_line, gates)) or "All gates are open\n")
    return 0


def close(call: Call) -> int:
    agent, until = call.get(0), until_of(call)
    gate = TaskQueue().close_gate(agent, until, call.get(1), whoami(fallback="user"))
    if not call.answer({"closed": True, "gate": _fields(gate)}):
        output.out(f"Gate closed: {_line(gate)}")
    return 0


def open_gate(call: Call) -> int:
    agent = call.get(0)
    opened = TaskQueue().open_gate(agent, whoami(fallback="user"))
    if not call.answer({"opened": opened, "agent": agent}):
        output.out(f"Gate {'opened' if opened else 'was open already'}: {foreign_name(agent)}\n")
    return 0


def until_of(call: Call) -> float:
    """Return the time in --until or --for, infinity if neither was given."""
    from swarm.stores.default import default_store

    text = call.options.get("--until")
    if text is None and "--for" in call.options:
        return default_store().clock.now() + parse_duration(call.options["--for"], "--for")
    if text is None:
        return math.inf
    if "--for" in call.options:
        raise BadInput("--until and --for exclude each other. Give only one option.")
    until = from_iso(text)
    if until is None:
        raise BadInput(f"--until is {text[:40]!r}, but must be a time: 2026-02-02T15:00:00Z.")
    if until <= default_store().clock.now():
        raise BadInput(f"--until is {text[:40]!r}, which is over. Give a later time.")
    return until


def _fields(gate: Gate) -> dict[str, Any]:
    return {
        "agent": gate.agent,
        "since": gate.since,
        "until": gate.until or None,
        "reason": gate.reason or None,
        "worker": gate.worker,
        "budget": gate.budget or None,
        "spent": gate.spent or None,
        "open": f"swarm gate open {quoted(gate.agent)}",
    }


def _line(gate: Gate) -> str:
    until = f"until {gate.until}" if gate.until else "until a user opens it"
    reason = f": {foreign(gate.reason)}" if gate.reason else ""
    return f"{foreign_name(gate.agent)}  {until}, by {foreign_name(gate.worker)}{reason}\n"


_GATES = {
    "AGENT": "workers with this agent, such as claude",
    EVERYONE: "all workers, also those without an agent: swarm pause",
    "label:LABEL": "all workers, at tasks with this label: swarm pause --label",
    BUDGET: "workers with an agent, since a budget (--budget) is reached",
    "task:TASK": "workers with an agent at this task, since its budget is reached",
}
COMMANDS = {
    "list": Command(
        list_gates,
        "List the gates that are closed, each with its end, worker and reason.",
        "swarm gate list",
        details=(
            "A worker claims no task while a gate stops it. Gates stop:",
            _GATES,
        ),
    ),
    "close": Command(
        close,
        "Close a gate: workers with this agent begin no task. Tasks that run go on.",
        "swarm gate close claude 'the account is used elsewhere' --for 3600",
        positional=("AGENT",),
        optional=("REASON",),
        options=(
            Option("--for", "S", "the gate opens after S seconds; 90m, 2h and 1d are allowed"),
            Option("--until", "TIME", "the gate opens at this time, such as 2026-02-02T15:00:00Z"),
        ),
        details=(
            (
                "Without --for or --until, the gate stays closed until swarm gate open. A gate "
                "that is closed for longer already does not change. For all workers, AGENT is '*'."
            ),
        ),
    ),
    "open": Command(
        open_gate,
        "Open a gate now. After a budget was reached, this allows the same amount once more.",
        "swarm gate open claude",
        positional=("AGENT",),
    ),
}
