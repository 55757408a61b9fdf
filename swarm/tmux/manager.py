"""A swarm in a terminal: a master and workers, each in a tmux pane.

A pane belongs to the swarm if this module created the pane. swarm stores the agent's
name and the pane's id as options of the pane, before the command starts. swarm never
lists, reads, writes to, restarts or closes a pane that the user made. The tmux session
ends with its last pane, so it stays while the user has a pane in it.

The status of an agent is the state of its process, as tmux reports it. The status log
shows whether an agent makes progress.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from swarm import settings
from swarm.errors import AgentUnavailable, BadInput, TmuxSwarmError
from swarm.stores.cache import FileCache
from swarm.stores.default import store_url
from swarm.stores.file.state_dir import StateDir, named
from swarm.stores.secrets import PAGE_TOKEN, STORE, WITHHELD, agent_environment
from swarm.system.own_command import swarm_command
from swarm.tmux.activity import INPUT, Activity
from swarm.tmux.agent import (
    MASTER,
    NAME,
    PROMPTS,
    AgentPane,
    AgentStatus,
    agent_in,
    agent_name,
    describe,
)
from swarm.tmux.ending import GRACE, StoppedAgent, end_agents
from swarm.tmux.panes import (
    Pane,
    encode_input,
    list_panes,
    new_pane,
    rerun,
    setting,
    start_options,
)
from swarm.tmux.program import (
    INTERACTIVE,
    PROGRAM,
    VIEW,
    WORKER,
    Doing,
    Program,
    SendReport,
    StartReport,
    check_reads_input,
    is_taken,
)
from swarm.tmux.server import TmuxServer

__all__ = [
    "GRACE",
    "AgentPane",
    "AgentStatus",
    "AgentUnavailable",
    "SendReport",
    "StartReport",
    "StoppedAgent",
    "TmuxSwarmError",
    "TmuxSwarmManager",
]

MAX_WORKERS = 64
_SERVER_END_TIMEOUT = 5.0  # seconds
_AGENTS = "@swarm-agents"  # server options: names of the started agents, and the command of each
_COMMAND = "@swarm-command-"
_KIND = "@swarm-kind-"

Command = Sequence[str]


class TmuxSwarmManager:
    """Start, show and stop the agents of a state directory.

    The default is the state directory of this call: of a variable, the project, or none.

    Every method raises TmuxSwarmError if tmux cannot be run or refuses a command.
    """

    def __init__(self, state_dir: str | os.PathLike[str] | None = None) -> None:
        directory = (
            named() if state_dir is None else StateDir(os.path.abspath(state_dir), trusted=True)
        )
        self.state_dir = directory.path
        self._trusted = directory.trusted
        self._tmux = TmuxServer(directory.path)

    @property
    def socket(self) -> str:
        """The socket of the swarm's tmux server, for `tmux -S SOCKET …`."""
        return self._tmux.socket

    def start(
        self,
        workers: int,
        *,
        agent: str = "",
        until_empty: bool = False,
        allow_commands: bool = False,
        store_for_agent: bool = False,
        preset: str = "",
        options: Sequence[str] = (),
        interactive: Command | None = None,
        answer_prompts: str = "",
        worker_command: Callable[[int], Command] | None = None,
        master_command: Command | None = None,
    ) -> StartReport:
        """Start a master and the workers 1 to `workers`, in the working directory.

        Start agents that are missing or have ended, and leave running agents alone.
        `agent` is the command line for the tasks of workers (`--exec`).
        `preset` is the name of their agent instead (`--agent`). `allow_commands`,
        `store_for_agent` and the further `options` are options of `swarm worker`.
        `interactive` is the command of an interactive agent, which each pane runs instead
        of a worker. `answer_prompts` is the value of `swarm watch-prompts --answer`, which
        then runs in a pane of its own; "" for none. `worker_command` and `master_command`
        replace swarm's own commands.
        """
        _check_number(workers)
        given = {
            "--until-empty": until_empty,
            "--allow-commands": allow_commands,
            "--store-for-agent": store_for_agent,
        }
        further = [*options, *(name for name, is_set in given.items() if is_set)]
        program = Program(
            PROGRAM if master_command else VIEW,
            master_command or swarm_command("status", "--watch"),
        )
        programs = {MASTER: program}
        for number in range(1, workers + 1):
            if worker_command:
                program = Program(PROGRAM, worker_command(number))
            elif interactive:
                program = Program(INTERACTIVE, interactive, store_for_agent)
            else:
                command = _worker_command(number, agent, preset, further)
                program = Program(WORKER, command)
            programs[f"worker-{number}"] = program
        if answer_prompts:
            command = swarm_command("watch-prompts", "--answer", answer_prompts)
            programs[PROMPTS] = Program(VIEW, command)
        with self._tmux.alone():
            StateDir(self.state_dir, trusted=self._trusted).make(self.state_dir)
            self._end_other_prompts(programs.get(PROMPTS))
            found = {known.name: known for known in self.agents()}
            done: dict[str, list[str]] = {"started": [], "restarted": [], "running": []}
            for name, program in programs.items():
                done[self._ensure_running(name, program, found.get(name))].append(name)
            differing = [
                name
                for name in done["running"]
                if name != MASTER and not programs[name].is_same(self._program(name))
            ]
        others = [
            agent.name
            for agent in found.values()
            if agent.name not in programs and agent.status is AgentStatus.RUNNING
        ]
        lists = {**done, "differing": differing, "others": others}
        return StartReport(**{key: tuple(names) for key, names in lists.items()})

    def agents(self) -> list[AgentPane]:
        """Return the agents, the master first. Return an empty list if no agent was
        started.
        """
        found = {pane.agent: agent_in(pane) for pane in self._panes() if pane.agent}
        for name in self._recorded():
            found.setdefault(name, AgentPane(name, AgentStatus.GONE))
        return sorted(
            found.values(), key=lambda agent: (agent.name == PROMPTS, agent.worker_id or 0)
        )

    def without_hooks(self) -> list[AgentPane]:
        """Return the running interactive agents whose hooks have reported nothing."""
        lines = self._tmux.ask(["show-options", "-sq"]) or []
        kinds = dict(line.removeprefix(_KIND).split(" ", 1) for line in lines if _KIND in line)
        return [
            agent
            for agent in self.agents()
            if agent.status is AgentStatus.RUNNING
            and kinds.get(agent.name, "").strip('"').split(" ")[0] == INTERACTIVE
            and not self._activity(agent.name).number
        ]

    def agent(self, name: str | int) -> AgentPane:
        """Return one agent: "master", "worker-3", "3" or 3.

        Raise AgentUnavailable if no agent of that name was started.
        """
        wanted = agent_name(name)
        known = self.agents()
        for agent in known:
            if agent.name == wanted:
                return agent
        if not known:
            raise AgentUnavailable(
                "no agent was started here. Start agents with: swarm up --workers N"
            )
        raise AgentUnavailable(
            f"this swarm has no {wanted}. Its agents: {' '.join(agent.name for agent in known)}."
        )

    def send(
        self, name: str | int, text: str, *, enter: bool = True, force: bool = False
    ) -> SendReport:
        """Type text into an agent's pane, exactly, and then press Enter.

        The text may contain newlines and tabs, but no other control characters.
        Newlines at the end of the text are dropped. An agent that has turned on
        bracketed paste gets the text as one paste.

        Raise AgentUnavailable, unless `force`, if no program in the pane waits for
        input: a worker and the view read none, and an interactive agent reads it only
        between two prompts.
        """
        data = encode_input(text)
        agent = self.agent(name)
        if agent.status is not AgentStatus.RUNNING:
            raise AgentUnavailable(
                f"{agent.name} is not running: it is {describe(agent)}. Start the agent with: "
                f"{_restart(agent)}"
            )
        off = self._tmux.run(["display-message", "-p", "-t", agent.pane_id, "#{pane_input_off}"])
        if off == ["1"]:
            raise AgentUnavailable(
                f"the pane of {agent.name} takes no input. To allow input, run: "
                f"{self._tmux_command('select-pane -e', agent)}"
            )
        kind, activity = self._kind(agent.name), self._activity(agent.name)
        if not force:
            check_reads_input(agent.name, kind, activity.state)
        target = ["-t", agent.pane_id]
        buffer = f"swarm-{os.getpid()}-{time.monotonic_ns()}"
        # Pasted, not typed with send-keys: keys would go to copy mode if the user has
        # scrolled up, and to every pane of a window with synchronized panes.
        commands = [["copy-mode", "-q", *target]]
        with self._tmux.private_file(data) as path:
            if data:
                commands += [
                    ["load-buffer", "-b", buffer, path],
                    ["paste-buffer", "-d", "-p", "-b", buffer, *target],
                ]
            if enter:
                commands += [
                    ["set-buffer", "-b", buffer, "\r"],
                    ["paste-buffer", "-d", "-b", buffer, *target],
                ]
            self._tmux.run(*commands)
        reports = kind == INTERACTIVE and activity.state == INPUT and enter and bool(data)
        return SendReport(agent.name, is_taken(activity) if reports else None)

    def capture(self, name: str | int, lines: int | None = None) -> str:
        """Return the text in an agent's pane, without colours, even after the agent has
        ended.

        With `lines`, return this number of last lines, even lines that have scrolled
        away. Empty lines at the end are left out.
        """
        if lines is not None and (
            isinstance(lines, bool) or not isinstance(lines, int) or lines < 1
        ):
            raise BadInput(f"lines is {lines!r}, but must be a whole number, 1 or more.")
        agent = self.agent(name)
        if agent.status is AgentStatus.GONE:
            raise AgentUnavailable(
                f"the pane of {agent.name} was closed. Start the agent with: {_restart(agent)}"
            )
        shown = self._screen(agent, "0" if lines is None else "-")
        if (
            agent.status is not AgentStatus.RUNNING
            and shown
            and shown[-1].startswith("Pane is dead")
        ):
            # tmux before 3.3 scrolls by a line for this message
            shown = self._screen(agent, "-1" if lines is None else "-")[:-1]
        while shown and not shown[-1]:
            shown.pop()
        return "".join(f"{line}\n" for line in (shown if lines is None else shown[-lines:]))

    def restart(self, name: str | int, *, force: bool = False, grace: float = GRACE) -> AgentPane:
        """Start an ended agent again, with the same command, in the same pane.

        Raise AgentUnavailable if the agent runs. With `force`, end a running agent
        first.
        """
        with self._tmux.alone():
            agent = self.agent(name)
            if agent.status is AgentStatus.RUNNING:
                if not force:
                    raise AgentUnavailable(
                        f"{agent.name} is running. To end the agent and start it again: "
                        f"{_restart(agent)} --force"
                    )
                agent = self._end([agent], grace)[0].agent
            self._ensure_running(agent.name, self._program(agent.name), agent)
            return self.agent(agent.name)

    def stop(self, grace: float = GRACE) -> list[StoppedAgent]:
        """End all agents and close their panes. Return how each agent ended.

        Each agent gets SIGTERM, and SIGKILL if it has not ended `grace` seconds later.
        Return an empty list if no swarm is up.
        """
        with self._tmux.alone():
            ended = self._end(self.agents(), grace)
            for stopped in ended:
                self._close(stopped.agent.pane_id)
            names = [stopped.agent.name for stopped in ended]
            notes = [prefix + name for name in names for prefix in (_COMMAND, _KIND)]
            self._tmux.ask(*(["set-option", "-su", note] for note in (_AGENTS, *notes)))
            return ended

    def attach_command(self) -> list[str]:
        """Return the command line that shows the swarm in a terminal.

        Run that command without TMUX in the environment.
        """
        for pane in self._panes():
            if pane.agent:
                return self._tmux.command("attach-session", "-t", pane.session_id)
        raise AgentUnavailable("no agent was started here. Start agents with: swarm up --workers N")

    def _screen(self, agent: AgentPane, begin: str) -> list[str]:
        return [
            line.rstrip()
            for line in self._tmux.run(
                ["capture-pane", "-p", "-J", "-S", begin, "-t", agent.pane_id]
            )
        ]

    def _panes(self) -> list[Pane]:
        return list_panes(self._tmux)

    def _recorded(self) -> list[str]:
        """Return the names of the agents that `start` started and `stop` did not stop."""
        answer = self._tmux.ask(["show-options", "-svq", _AGENTS])
        return [name for name in " ".join(answer or []).split(",") if NAME.fullmatch(name)]

    def doing(self, name: str | int) -> Doing:
        """Return what runs in an agent's pane, and what an interactive agent does."""
        wanted = agent_name(name)
        kind = self._kind(wanted)
        return Doing(kind, self._activity(wanted).state if kind == INTERACTIVE else "")

    def _activity(self, name: str) -> Activity:
        directory = StateDir(self.state_dir, trusted=self._trusted)
        return Activity(name, FileCache(self.state_dir, directory))

    def _kind(self, name: str) -> str:
        found = "".join(self._tmux.run(["show-options", "-svq", _KIND + name])).split(" ")[0]
        return found or PROGRAM

    def _program(self, name: str) -> Program:
        """Return the program that started an agent."""
        text = "".join(self._tmux.run(["show-options", "-svq", _KIND + name]))
        return Program(self._kind(name), self._command(name), text.endswith(" store"))

    def _command(self, name: str) -> Command:
        """Return the command that started an agent."""
        text = "".join(self._tmux.run(["show-options", "-svq", _COMMAND + name]))
        try:
            return [str(word) for word in json.loads(text)]
        except (ValueError, TypeError):
            raise TmuxSwarmError(
                f"tmux has no command for {name} any more. End the swarm with: swarm down"
            ) from None

    def _ensure_running(self, name: str, program: Program, known: AgentPane | None) -> str:
        if known and known.status is AgentStatus.RUNNING:
            return "running"
        command = program.command
        if program.kind == INTERACTIVE:
            self._activity(name).forget()
        # tmux gives a single word to a shell
        words = list(command) if len(command) > 1 else ["env", *command]
        with self._store_variables(program) as variables:
            if not known or known.status is AgentStatus.GONE:
                new_pane(
                    self._tmux,
                    name,
                    words,
                    self._environment(name),
                    variables,
                    start_options(self.state_dir),
                )
            else:
                rerun(self._tmux, known.pane_id, words, self._environment(name), variables)
        kind = f"{program.kind} store" if program.has_store else program.kind
        self._tmux.run(
            ["set-option", "-s", _COMMAND + name, json.dumps(list(command))],
            ["set-option", "-s", _KIND + name, kind],
        )
        if known:
            return "restarted"
        self._tmux.run(["set-option", "-sa", _AGENTS, f",{name}"])
        return "started"

    def _end_other_prompts(self, wanted: Program | None) -> None:
        """End the pane that answers prompts, unless it runs the wanted program."""
        agents = {agent.name: agent for agent in self.agents()}
        if PROMPTS not in agents or (wanted and wanted.is_same(self._program(PROMPTS))):
            return
        (ended,) = self._end([agents.pop(PROMPTS)], GRACE)
        self._close(ended.agent.pane_id)
        names = ",".join(agents)
        self._tmux.ask(["set-option", "-s", _AGENTS, names])

    @contextmanager
    def _store_variables(self, program: Program) -> Iterator[str]:
        """Provide a file of tmux commands that set the variables of the store. An
        interactive agent gets no password, unless the user said so.

        Afterwards take the secrets out of tmux again: tmux shows its environment to
        every process of its user.
        """
        real = {**settings.environment(), STORE: store_url()}
        safe = agent_environment(store_for_agent=False)
        if safe.get(STORE, "") == settings.store():
            safe[STORE] = real[STORE]
        names = sorted({STORE, WITHHELD, *(name for name in real if real[name] != safe.get(name))})
        given = safe if program.kind == INTERACTIVE and not program.has_store else real
        wanted = b"".join(
            setting(name, given.get(name, "")) for name in names if name != PAGE_TOKEN
        )
        try:
            with self._tmux.private_file(wanted) as path:
                yield path
        finally:
            public = b"".join(setting(name, safe.get(name, "")) for name in names)
            with self._tmux.private_file(public) as path:
                self._tmux.ask(["source-file", path])

    def _environment(self, name: str) -> Mapping[str, str]:
        worker = "" if name == MASTER else name
        return {
            "SWARM_STATE_DIR": self.state_dir,
            "AI_SWARM_DIR": self.state_dir,
            "SWARM_WORKER": worker,
            "SWARM_PANE": name,
        }

    def _end(self, agents: Sequence[AgentPane], grace: float) -> list[StoppedAgent]:
        return end_agents(self._tmux, self.agents, agents, grace)

    def _close(self, pane_id: str) -> None:
        """Close a pane. After the last pane, wait until the server has ended.

        A new tmux server can start only after the old server has ended.
        """
        panes = [pane.pane_id for pane in self._panes()]
        if pane_id not in panes:
            return  # the pane was closed already
        self._tmux.run(["kill-pane", "-t", pane_id])
        deadline = time.monotonic() + _SERVER_END_TIMEOUT
        while len(panes) == 1 and time.monotonic() < deadline:
            try:
                if self._tmux.ask(["list-sessions"]) is None:
                    return
            except TmuxSwarmError:
                pass  # the server is ending
            time.sleep(0.01)

    def _tmux_command(self, command: str, agent: AgentPane) -> str:
        return f"tmux -S {self.socket} {command} -t {agent.pane_id}"


def _worker_command(number: int, agent: str, preset: str, options: Sequence[str]) -> Command:
    return swarm_command(
        "worker",
        "--id",
        str(number),
        *(["--exec", agent] if agent else ["--agent", preset] if preset else []),
        *options,
    )


def _restart(agent: AgentPane) -> str:
    return f"swarm restart {agent.name}"


def _check_number(workers: int) -> None:
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MAX_WORKERS:
        raise BadInput(
            f"workers is {workers!r}, but must be a whole number from 1 to {MAX_WORKERS}."
        )
