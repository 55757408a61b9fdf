"""`swarm up`: start a master and workers in tmux panes.

An option that is not given comes from the last start, else from swarm.toml. Only the
options that a user gave are remembered, so a change of swarm.toml counts. An agent that
is not the one of the last start begins without the options of the last start.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

from swarm.cli.arguments import Call, Command, Option
from swarm.cli.worker import (
    AGENT_OPTIONS,
    ALLOW_COMMANDS,
    LABEL,
    NO_AGENT,
    STORE_FOR_AGENT,
    WORKSPACE,
    cost,
    labels_of,
)
from swarm.errors import BadInput
from swarm.inputs import whole
from swarm.project.config import Config, load
from swarm.terminal import output
from swarm.terminal.text import shown
from swarm.tmux import last_start
from swarm.tmux.agent import AgentPane, AgentStatus
from swarm.tmux.last_start import Start
from swarm.tmux.manager import MAX_WORKERS, StartReport, TmuxSwarmManager
from swarm.tmux.prompt_watch import MODES, OFF, check_mode, mode_of
from swarm.workers import command
from swarm.workers.launch import preset_agent

_SETTLE = 1.0  # seconds; a command that cannot work has ended by then
_UNTIL_EMPTY = Option("--until-empty", text="each worker ends when no task is left to do")
_WORKER_OPTIONS = (
    *AGENT_OPTIONS[1:],
    LABEL,
    ALLOW_COMMANDS,
    STORE_FOR_AGENT,
    WORKSPACE,
    _UNTIL_EMPTY,
)
_OF_PRESETS = ("--permissions", "--model")
_BUDGETS = ("--budget", "--task-budget")
_AGENTS = ("--agent", "--exec", "--interactive")
_PROMPTS = "--answer-prompts"

_NEXT = """\
Open them:      swarm attach     (C-b d leaves them, and they go on)
List them:      swarm agents
End them:       swarm down
"""


def up(call: Call) -> int:
    manager = TmuxSwarmManager()
    config = load()
    given = _given(call, last_start.load(manager.state_dir))
    start = _completed(given, config)
    _check(start, config)
    report = manager.start(
        start.workers,
        agent=start.command,
        preset=start.agent,
        interactive=command.split(start.interactive) if start.interactive else None,
        store_for_agent=bool(start.interactive) and STORE_FOR_AGENT.name in start.options,
        answer_prompts="" if start.prompts == OFF else start.prompts,
        options=start.words,
    )
    last_start.save(manager.state_dir, given)
    agents = _settled(manager)
    begun = {*report.started, *report.restarted}
    dead = [
        agent.name
        for agent in agents
        if agent.name in begun and agent.status in (AgentStatus.DEAD, AgentStatus.GONE)
    ]
    if call.json:
        listed = [agent.fields() for agent in agents]
        call.answer({**report.fields(), "agents": listed, "socket": manager.socket})
    else:
        output.out("".join(f"{line}\n" for line in _lines(_described(start, given), report)))
        output.out(_NEXT)
    if dead:
        output.error(
            f"these agents ended at once: {' '.join(dead)}. To see why: swarm capture {dead[0]}"
        )
    return 1 if dead else 0


# What to start ------------------------------------------------------------------------


def _given(call: Call, last: Start) -> Start:
    """Return what users gave: the options of this call, and of the last start."""
    named = [name for name in _AGENTS if name in call.options]
    if len(named) > 1:
        raise BadInput("the workers have one agent. Leave out --exec, --agent or --interactive.")
    chosen = last
    if named:
        agent, exec_, interactive = (call.options.get(name, "") for name in _AGENTS)
        chosen = Start(last.workers, agent, exec_, interactive)
        if chosen == replace(last, options={}, prompts=""):
            chosen = last
    options = dict(chosen.options)
    for option in _WORKER_OPTIONS:
        if option.name in call.options:
            options[option.name] = call.options[option.name] if option.value else ""
            if option.value and not options[option.name]:
                del options[option.name]  # such as --model '': as in swarm.toml again
    if options.get(LABEL.name):
        options[LABEL.name] = ",".join(labels_of(call)) or options[LABEL.name]
    number = last.workers
    if "--workers" in call.options:
        number = whole(call.options["--workers"], "--workers", 1, MAX_WORKERS)
    prompts = call.options.get(_PROMPTS, chosen.prompts)
    if prompts:
        check_mode(prompts)
    return replace(chosen, workers=number, options=options, prompts=prompts)


def _completed(given: Start, config: Config) -> Start:
    """Return what to start: what users gave, else what swarm.toml says.

    Raise BadInput if nothing says which agent to start.
    """
    start = given if given.names_agent else replace(given, agent=config.agent)
    if not start.names_agent and not start.workers:
        raise BadInput(
            "which agent? Name one, such as: swarm up --agent claude. Or set `agent` in "
            "swarm.toml. For tasks with a command of their own: swarm up --workers 3"
        )
    options = dict(start.options)
    if start.agent and start.agent != NO_AGENT:
        options.setdefault("--permissions", config.permissions)
        options.setdefault("--model", config.model)
    if not start.interactive:
        for name, amount in zip(_BUDGETS, (config.budget, config.task_budget), strict=True):
            if (amount := cost(options.get(name), name, amount)) is not None:
                options[name] = f"{amount:f}".rstrip("0").rstrip(".")
    # in one order, so that the same options make the same command
    ordered = {option.name: options.get(option.name) for option in _WORKER_OPTIONS}
    known = {name: text for name, text in ordered.items() if text or name in start.options}
    return replace(
        start,
        workers=start.workers or min(config.workers, MAX_WORKERS),
        options={name: text for name, text in known.items() if text is not None},
        prompts=start.prompts or (mode_of(config.prompts) if start.interactive else ""),
    )


def _check(start: Start, config: Config) -> None:
    """Raise BadInput if an agent cannot run so, before a pane starts."""
    if start.prompts and not start.interactive:
        raise BadInput(f"{_PROMPTS} is for interactive agents. Use it with --interactive.")
    if start.agent and start.agent != NO_AGENT:
        permissions, model = (start.options.get(name, "") for name in _OF_PRESETS)
        preset_agent(start.agent, permissions=permissions, model=model, config=config)
        return
    if start.interactive:
        unfit = [name for name in start.options if name != STORE_FOR_AGENT.name]
        if unfit:
            raise BadInput(f"{unfit[0]} is for workers. Leave it out with --interactive.")
        program = command.split(start.interactive)[0]
        if shutil.which(program) is None:
            raise BadInput(
                f"--interactive names {program!r}, which cannot be run: it is not in PATH, or not "
                f"executable."
            )
        return
    unfit = [name for name in _OF_PRESETS if name in start.options]
    if start.command:
        command.split(start.command)
        if unfit:
            raise BadInput(f"{unfit[0]} belongs to --agent. Write it into the command of --exec.")
    elif unfit:
        raise BadInput(f"{unfit[0]} is for an agent, and there is none. Name one with --agent.")


# What was started ---------------------------------------------------------------------


def _described(start: Start, given: Start) -> str:
    """Return what to start, in one line."""
    number = f"{start.workers} worker{'s' * (start.workers != 1)}"
    if start.interactive:
        number = f"{start.workers} pane{'s' * (start.workers != 1)}"
        text = f"{number} with the interactive agent: {shown(start.interactive)}"
        return text if start.prompts == OFF else f"{text}, answer prompts: {start.prompts}"
    agent = start.command or start.agent
    text = f"{number} with agent: {shown(agent)}"
    if not agent or agent == NO_AGENT:
        text = f"{number} without an agent, for tasks with a command of their own"
    default = Config().permissions
    about = [
        f"{name.removeprefix('--').replace('-', ' ')} {shown(value)}" if value else name
        for name, value in start.options.items()
        if name in given.options or (name, value) != ("--permissions", default)
    ]
    return ", ".join([text, *about])


def _lines(described: str, report: StartReport) -> list[str]:
    """Return what was started, and which workers go on as they are."""
    lines = [f"Wanted: {described}" if report.differing else described]
    same = [name for name in report.running if name not in report.differing]
    for text, names in (
        ("Started", report.started),
        ("Restarted", report.restarted),
        ("Already running", same),
        ("Already running with other options, and unchanged", report.differing),
    ):
        if names:
            lines.append(f"{text}: {' '.join(names)}")
    if report.differing:
        lines.append("To change them:  swarm down, then swarm up")
    if report.others:
        lines.append(f"These workers go on too: {' '.join(report.others)}")
    return lines


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


COMMAND = Command(
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
        Option(
            _PROMPTS,
            "MODE",
            f"prompts of interactive agents without hooks: {', '.join(MODES)}; default: as in "
            "swarm.toml, else off. See: swarm watch-prompts --help",
        ),
        LABEL,
        ALLOW_COMMANDS,
        STORE_FOR_AGENT,
        WORKSPACE,
        _UNTIL_EMPTY,
    ),
    details=(
        (
            "An option that is not given is as in the last start, else as in swarm.toml. Another "
            "agent than the last time starts without the options of the last time."
        ),
        (
            "If agents are running already, swarm starts only the agents that are missing "
            "or have ended. The first line says what is wanted; swarm names the running workers "
            "with other options. Exit 1: an agent ended at once."
        ),
        (
            "An interactive agent gets its worker name in SWARM_WORKER. Its hooks connect it "
            "with the swarm: see swarm setup."
        ),
    ),
)
