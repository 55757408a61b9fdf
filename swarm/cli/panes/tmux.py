"""`swarm up`, `attach`, `agents`, `send`, `capture`, `restart`, `down`: agents in tmux
panes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from swarm import settings
from swarm.cli.arguments import Call, Command, Option
from swarm.cli.panes.watch_prompts import COMMAND as WATCH_PROMPTS
from swarm.cli.up import COMMAND as UP
from swarm.errors import AgentUnavailable, BadInput, SwarmError, TmuxSwarmError
from swarm.inputs import whole
from swarm.locks.presence import forget_dead
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import shown
from swarm.tmux.activity import BUSY, ENDED, INPUT, PERMISSION, UNKNOWN
from swarm.tmux.agent import AgentStatus, agent_name, describe
from swarm.tmux.manager import GRACE, StoppedAgent, TmuxSwarmManager
from swarm.tmux.panes import MAX_TEXT_BYTES

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
    if call.answer({"agents": [{**one.agent.fields(), "killed": one.killed} for one in stopped]}):
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
    rows = [{**agent.fields(), "kind": doing[agent.name].kind} for agent in found]
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
    if "--all" in call.options:
        if call.positional:
            raise BadInput("--all prints the screens of all agents. Leave AGENT away.")
        return _capture_all(call, manager, lines)
    if not call.positional:
        raise BadInput("an AGENT is missing. Name one, or print all screens with --all.")
    text = manager.capture(call.get(0), lines)
    if call.json:
        call.answer({**manager.agent(call.get(0)).fields(), "text": text})
    else:
        output.out(text)
    return 0


def _capture_all(call: Call, manager: TmuxSwarmManager, lines: int | None) -> int:
    """Print the screens of all agents. Each line of a screen is behind a bar, so that no
    screen can look like the heading of another one.
    """
    rows: list[dict[str, object]] = []
    for agent in manager.agents():
        fields: dict[str, object] = {**agent.fields(), "text": None, "error": None}
        heading = output.paint(describe(agent), _COLOURS[agent.status])
        try:
            text = manager.capture(agent.name, lines)
        except AgentUnavailable as error:
            fields["error"] = str(error)
            shown_text = f"  {shown(str(error))}\n"
        else:
            fields["text"] = text
            shown_text = "".join(f"  | {shown(line)}\n" for line in text.splitlines())
        rows.append(fields)
        if not call.json:
            output.out(f"{agent.name}  {heading}\n{shown_text}")
    if not call.answer({"agents": rows}) and not rows:
        output.out("No agents are running. Start some with: swarm up --workers N\n")
    return 0


def restart(call: Call) -> int:
    agent = TmuxSwarmManager().restart(call.get(0), force="--force" in call.options)
    if not call.answer(agent.fields()):
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


COMMANDS = {
    "up": UP,
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
        optional=("AGENT",),
        options=(
            Option("--all", text="print the screens of all agents, each line behind a bar"),
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
    "watch-prompts": WATCH_PROMPTS,
}
