"""`swarm up`, `attach`, `agents`, `send`, `capture`, `restart`, `down`: agents in tmux
panes.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from swarm import settings
from swarm.cli.arguments import Call, Command, Option
from swarm.cli.worker import AGENT_OPTIONS, ALLOW_COMMANDS, NO_AGENT, STORE_FOR_AGENT
from swarm.errors import BadInput, SwarmError, TmuxSwarmError
from swarm.inputs import whole
from swarm.locks.presence import forget_dead
from swarm.project.config import Config
from swarm.project.config import load as load_config
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import shown
from swarm.tmux import last_start
from swarm.tmux.activity import BUSY, ENDED, INPUT, PERMISSION, UNKNOWN
from swarm.tmux.agent import AgentPane, AgentStatus, agent_name, describe
from swarm.tmux.last_start import Start
from swarm.tmux.manager import GRACE, MAX_WORKERS, StoppedAgent, TmuxSwarmManager
from swarm.tmux.panes import MAX_TEXT_BYTES
from swarm.workers import command
from swarm.workers.launch import preset_agent

_SETTLE = 1.0  # seconds; a command that cannot work has ended by then
_COLOURS = {
    AgentStatus.RUNNING: "green",
    AgentStatus.EXITED: "dim",
    AgentStatus.DEAD: "red",
    AgentStatus.GONE: "red",
}

_ACTIVITIES = {
    UNKNOWN: "",
    INPUT: ": waits for input",
    BUSY: ": busy",
    PERMISSION: ": asks for a permission",
    ENDED: ": its session has ended",
}
_TAKEN = {
    None: "",
    True: " The agent has begun with it.",
    False: " The agent has not said that it has it.",
}
_UNTIL_EMPTY = Option("--until-empty", text="each worker ends when no task is left to do")

_NEXT = """\
Open them:      swarm attach     (C-b d leaves them, and they go on)
List them:      swarm agents
End them:       swarm down
"""


def up(call: Call) -> int:
    manager = TmuxSwarmManager()
    start = _chosen(call, last_start.load(manager.state_dir))
    report = manager.start(
        start.workers,
        agent=start.command,
        preset=start.agent,
        interactive=command.split(start.interactive) if start.interactive else None,
        store_for_agent=bool(start.interactive) and STORE_FOR_AGENT.name in start.options,
        options=start.options,
    )
    last_start.save(manager.state_dir, start)
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
        output.out(f"{_described(start)}\n")
        if report.started:
            output.out(f"Started: {' '.join(report.started)}\n")
        if report.restarted:
            output.out(f"Restarted: {' '.join(report.restarted)}\n")
        if report.running:
            also = " with the command of their start" if begun or _names_agent(call) else ""
            output.out(f"Already running{also}: {' '.join(report.running)}\n")
        output.out(_NEXT)
    if dead:
        names = " ".join(agent.name for agent in dead)
        output.error(
            f"these agents ended at once: {names}. To see why: swarm capture {dead[0].name}"
        )
    return 1 if dead else 0


def _names_agent(call: Call) -> bool:
    return any(name in call.options for name in ("--agent", "--exec", "--interactive"))


def _chosen(call: Call, last: Start) -> Start:
    """Return what to start: what the options say, else the last start, else swarm.toml.

    Raise BadInput if nothing says which agent to start.
    """
    config = load_config()
    if sum(name in call.options for name in ("--agent", "--exec", "--interactive")) > 1:
        raise BadInput("the workers have one agent. Leave out --exec, --agent or --interactive.")
    options = _worker_options(call)
    if _names_agent(call) or options:
        chosen = Start(
            0,
            call.options.get("--agent", ""),
            call.options.get("--exec", ""),
            call.options.get("--interactive", ""),
            options,
        )
    else:
        chosen = last
    if not chosen.names_agent and config.agent:
        chosen = replace(chosen, agent=config.agent)
    if "--workers" in call.options:
        number = whole(call.options["--workers"], "--workers", 1, MAX_WORKERS)
    elif chosen.names_agent or last.workers:
        number = min(last.workers or config.workers, MAX_WORKERS)
    else:
        raise BadInput(
            "which agent? Name one, such as: swarm up --agent claude. Or set `agent` in "
            "swarm.toml. For tasks with a command of their own: swarm up --workers 3"
        )
    _check(chosen, config)
    return replace(chosen, workers=number)


def _worker_options(call: Call) -> tuple[str, ...]:
    """Return the options that `swarm up` passes on to its workers."""
    words: list[str] = []
    for option in (*AGENT_OPTIONS[1:], ALLOW_COMMANDS, STORE_FOR_AGENT, _UNTIL_EMPTY):
        for value in call.every(option.name):
            words += [option.name, value] if option.value else [option.name]
    return tuple(words)


def _check(start: Start, config: Config) -> None:
    """Raise BadInput if the program of the agent does not exist, before a pane starts."""
    if start.agent and start.agent != NO_AGENT:
        preset_agent(start.agent, config=config)
    elif start.command:
        command.split(start.command)
    elif start.interactive:
        unfit = [name for name in start.options if name.startswith("--")]
        if any(name != STORE_FOR_AGENT.name for name in unfit):
            raise BadInput(f"{unfit[0]} is for workers. Leave it out with --interactive.")
        program = command.split(start.interactive)[0]
        if shutil.which(program) is None:
            raise BadInput(
                f"--interactive names {program!r}, which cannot be run: it is not in PATH, or not "
                f"executable."
            )


def _described(start: Start) -> str:
    """Return what was started, in one line."""
    number = f"{start.workers} worker{'s' * (start.workers != 1)}"
    if start.interactive:
        number = f"{start.workers} pane{'s' * (start.workers != 1)}"
        return f"{number} with the interactive agent: {shown(start.interactive)}"
    if start.agent or start.command:
        return f"{number} with agent: {shown(start.agent or start.command)}"
    return f"{number} without an agent, for tasks with a command of their own"


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
    _forget([one.agent.name for one in stopped])
    if call.answer({"agents": [{**_as_json(one.agent), "killed": one.killed} for one in stopped]}):
        return 0
    if not stopped:
        output.out("No agents are running.\n")
    for one in stopped:
        output.out(f"{one.agent.name}: {_how_it_ended(one, grace)}\n")
    return 0


def _forget(names: Sequence[str]) -> None:
    """Forget that these workers died, because the user has ended them."""
    try:
        for name in names:
            forget_dead(default_store(), successor=name)
    except SwarmError:
        pass  # the views report the workers for a day


def agents(call: Call) -> int:
    manager = TmuxSwarmManager()
    found = manager.agents()
    doing = {agent.name: manager.doing(agent.name) for agent in found}
    rows = [{**_as_json(agent), "kind": doing[agent.name].kind} for agent in found]
    for row, agent in zip(rows, found, strict=True):
        row["activity"] = doing[agent.name].activity or None
    if call.answer({"agents": rows}):
        return 0
    if not found:
        output.out("No agents are running. Start some with: swarm up --workers N\n")
    width = max((len(agent.name) for agent in found), default=0)
    for agent in found:
        runs = (
            f" (pid {agent.pid}, {shown(agent.command)}){_ACTIVITIES[doing[agent.name].activity]}"
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
    report = TmuxSwarmManager().send(
        name, text, enter="--no-enter" not in call.options, force="--force" in call.options
    )
    if not call.answer({"name": name, "sent": True, "taken": report.is_taken}):
        output.out(f"Typed into the pane of {name}.{_TAKEN[report.is_taken]}\n")
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
        "swarm up --agent claude --workers 3",
        options=(
            Option(
                "--workers",
                "N",
                f"the number of workers, 1 to {MAX_WORKERS}; default: as the last time, else "
                "workers in swarm.toml, else 3",
            ),
            *AGENT_OPTIONS,
            Option(
                "--exec",
                "CMD",
                "the command line of any other agent: see swarm worker --help",
            ),
            Option(
                "--interactive",
                "CMD",
                "start an interactive agent in each pane, such as claude, instead of a worker",
            ),
            ALLOW_COMMANDS,
            STORE_FOR_AGENT,
            _UNTIL_EMPTY,
        ),
        details=(
            "Without options, swarm starts the same as the last time.",
            (
                "If agents are running already, swarm starts only the agents that are missing "
                "or have ended. Exit 1: an agent ended at once."
            ),
            (
                "An interactive agent gets its worker name in SWARM_WORKER. Its hooks connect it "
                "with the swarm: see swarm setup."
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
        "Type TEXT and Enter into the pane of an agent that waits for input.",
        "swarm send worker-3 'go on with the next one'",
        positional=("AGENT", "TEXT"),
        options=(
            Option("--no-enter", text="do not type Enter"),
            Option("--force", text="type it even if no program waits for input"),
        ),
        details=(
            "AGENT is worker-3 (or 3), or master. If TEXT is -, it is read from standard input.",
            (
                "Workers and the view read no input. An interactive agent reads it while it waits "
                "for a prompt, as its hooks report. Exit 1: nothing was typed, or the agent has "
                "ended."
            ),
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
