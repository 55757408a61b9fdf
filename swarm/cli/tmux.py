"""`swarm up`, `attach`, `agents`, `send`, `capture`, `restart`, `down`: agents in tmux
panes.
"""

from __future__ import annotations

import os
import signal
import time

from swarm import settings
from swarm.cli.arguments import Call, Command, Option
from swarm.cli.worker import ALLOW_COMMANDS, STORE_FOR_AGENT
from swarm.errors import BadInput, TmuxSwarmError
from swarm.inputs import whole
from swarm.terminal import output
from swarm.terminal.text import shown
from swarm.tmux.agent import AgentPane, AgentStatus, agent_name, describe
from swarm.tmux.manager import GRACE, MAX_WORKERS, StoppedAgent, TmuxSwarmManager
from swarm.tmux.panes import MAX_TEXT_BYTES
from swarm.workers import command

_SETTLE = 1.0  # seconds; a command that cannot work has ended by then
_COLOURS = {
    AgentStatus.RUNNING: "green",
    AgentStatus.EXITED: "dim",
    AgentStatus.DEAD: "red",
    AgentStatus.GONE: "red",
}

_NEXT = """\
Open them:      swarm attach     (C-b d leaves them, and they go on)
List them:      swarm agents
End them:       swarm down
"""


def up(call: Call) -> int:
    if "--workers" not in call.options:
        raise BadInput("--workers is missing. Say how many workers to start: swarm up --workers 3")
    workers = whole(call.options["--workers"], "--workers", 1, MAX_WORKERS)
    agent = call.options.get("--exec", "")
    if agent:
        command.split(agent)
    manager = TmuxSwarmManager()
    report = manager.start(
        workers,
        agent=agent,
        until_empty="--until-empty" in call.options,
        allow_commands=ALLOW_COMMANDS.name in call.options,
        store_for_agent=STORE_FOR_AGENT.name in call.options,
    )
    agents = _settled(manager)
    begun = {*report.started, *report.restarted}
    dead = [
        agent
        for agent in agents
        if agent.name in begun and agent.status in (AgentStatus.DEAD, AgentStatus.GONE)
    ]
    if call.json:
        changes = {
            "started": [*report.started],
            "restarted": [*report.restarted],
            "running": [*report.running],
        }
        call.answer(
            {**changes, "agents": [_as_json(agent) for agent in agents], "socket": manager.socket}
        )
    else:
        if report.started:
            output.out(f"Started: {' '.join(report.started)}\n")
        if report.restarted:
            output.out(f"Restarted: {' '.join(report.restarted)}\n")
        if report.running:
            also = " with the command of their start" if begun or "--exec" in call.options else ""
            output.out(f"Already running{also}: {' '.join(report.running)}\n")
        output.out(_NEXT)
    if dead:
        names = " ".join(agent.name for agent in dead)
        output.error(
            f"these agents ended at once: {names}. To see why: swarm capture {dead[0].name}"
        )
    return 1 if dead else 0


def attach(call: Call) -> int:
    if not call.json and not (os.isatty(0) and os.isatty(1)):
        raise BadInput("attach needs a terminal. To print an agent's screen: swarm capture AGENT")
    command = TmuxSwarmManager().attach_command()
    if call.answer({"command": command}):
        return 0
    environment = settings.environment()
    if environment.pop("TMUX", None) is not None:
        output.err(
            "This is a tmux inside your tmux: press C-b twice for the inner one (C-b C-b d "
            "leaves it).\n"
        )
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise TmuxSwarmError(
            f"tmux cannot be run: {error.strerror}. Install tmux, then try again."
        ) from error


def down(call: Call) -> int:
    grace = call.seconds("--grace", GRACE)
    stopped = TmuxSwarmManager().stop(grace)
    if call.answer({"agents": [{**_as_json(one.agent), "killed": one.killed} for one in stopped]}):
        return 0
    if not stopped:
        output.out("No agents are running.\n")
    for one in stopped:
        output.out(f"{one.agent.name}: {_how_it_ended(one, grace)}\n")
    return 0


def agents(call: Call) -> int:
    found = TmuxSwarmManager().agents()
    if call.answer({"agents": [_as_json(agent) for agent in found]}):
        return 0
    if not found:
        output.out("No agents are running. Start some with: swarm up --workers N\n")
    width = max((len(agent.name) for agent in found), default=0)
    for agent in found:
        runs = (
            f" (pid {agent.pid}, {shown(agent.command)})"
            if agent.status is AgentStatus.RUNNING
            else ""
        )
        output.out(
            f"{agent.name:{width}}  {output.paint(describe(agent), _COLOURS[agent.status])}{runs}\n"
        )
    return 0


def send(call: Call) -> int:
    text = call.get(1)
    if text == "-":
        text = output.read_stdin(MAX_TEXT_BYTES)
    name = agent_name(call.get(0))
    TmuxSwarmManager().send(name, text, enter="--no-enter" not in call.options)
    if not call.answer({"name": name, "sent": True}):
        output.out(f"Sent to {name}.\n")
    return 0


def capture(call: Call) -> int:
    lines = whole(call.options["--lines"], "--lines", 1) if "--lines" in call.options else None
    manager = TmuxSwarmManager()
    text = manager.capture(call.get(0), lines)
    if call.json:
        call.answer({**_as_json(manager.agent(call.get(0))), "text": text})
    else:
        output.out(text)
    return 0


def restart(call: Call) -> int:
    agent = TmuxSwarmManager().restart(call.get(0), force="--force" in call.options)
    if not call.answer(_as_json(agent)):
        output.out(f"Restarted: {agent.name} (pid {agent.pid})\n")
    return 0


def _how_it_ended(one: StoppedAgent, grace: float) -> str:
    if one.killed:
        return f"killed, because it did not end within {grace:g} s"
    was_stopped = one.agent.signal == signal.SIGTERM or one.agent.exit_code in (
        0,
        128 + signal.SIGTERM,
    )
    return "ended" if was_stopped else describe(one.agent)


def _settled(manager: TmuxSwarmManager) -> list[AgentPane]:
    """Wait a moment, so that a command that cannot work has ended, and return the
    agents.
    """
    deadline = time.monotonic() + _SETTLE
    while True:
        found = manager.agents()
        if time.monotonic() > deadline or all(
            agent.status is not AgentStatus.RUNNING for agent in found
        ):
            return found
        time.sleep(0.05)


def _as_json(agent: AgentPane) -> dict[str, object]:
    return {
        "name": agent.name,
        "role": agent.role,
        "worker_id": agent.worker_id,
        "status": str(agent.status),
        "pid": agent.pid,
        "pane_id": agent.pane_id or None,
        "command": agent.command or None,
        "exit_code": agent.exit_code,
        "signal": agent.signal,
    }


COMMANDS = {
    "up": Command(
        up,
        "Start a master and N workers in tmux panes, in this directory.",
        "swarm up --workers 3 --exec 'claude -p'",
        options=(
            Option("--workers", "N", f"the number of workers, 1 to {MAX_WORKERS}", required=True),
            Option(
                "--exec",
                "CMD",
                "the agent of each worker, such as 'claude -p': see swarm worker --help",
            ),
            ALLOW_COMMANDS,
            STORE_FOR_AGENT,
            Option("--until-empty", text="each worker ends when no task is left to do"),
        ),
        details=(
            (
                "If agents are running already, swarm starts only the agents that are missing "
                "or have ended. Exit 1: an agent ended at once."
            ),
        ),
    ),
    "attach": Command(
        attach,
        "Open the agents' panes in this terminal. C-b d leaves the panes, and the agents go on.",
        "swarm attach",
        details=(
            "Exit 1: no agent is running. With --json, print the command that opens the panes.",
        ),
    ),
    "down": Command(
        down,
        "End all agents and close their panes. Other panes stay.",
        "swarm down",
        options=(
            Option("--grace", "S", f"seconds between SIGTERM and SIGKILL; default {GRACE:g}"),
        ),
        details=("Workers get SIGTERM first, so that they release their tasks.",),
    ),
    "agents": Command(agents, "List the master and the workers with their state.", "swarm agents"),
    "send": Command(
        send,
        "Type TEXT and Enter into the pane of an agent. Exit 1: the agent has ended.",
        "swarm send worker-3 'go on with the next one'",
        positional=("AGENT", "TEXT"),
        options=(Option("--no-enter", text="do not type Enter"),),
        details=(
            "AGENT is worker-3 (or 3), or master. If TEXT is -, it is read from standard input.",
        ),
    ),
    "capture": Command(
        capture,
        "Print an agent's screen, also after the agent has ended.",
        "swarm capture worker-3 --lines 100",
        positional=("AGENT",),
        options=(
            Option("--lines", "N", "print the last N lines, even lines that have scrolled away"),
        ),
        details=("AGENT is worker-3 (or 3), or master.",),
    ),
    "restart": Command(
        restart,
        "Restart an ended agent, with the same command in the same pane.",
        "swarm restart worker-3",
        positional=("AGENT",),
        options=(
            Option("--force", text="if the agent is running, end it first, as swarm down does"),
        ),
        details=("AGENT is worker-3 (or 3), or master. Exit 1: the agent is running.",),
    ),
}
