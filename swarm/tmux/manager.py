"""A swarm in a terminal: a master and workers, each in a tmux pane.

A pane belongs to the swarm if this module created the pane. Such a pane has its agent's
name and its own id as pane options, both set before its command starts. No other pane
is listed, written to, read, restarted or closed, not even a pane that the user split
off. The session and its server end with their last pane, so they stay while the user
has a pane there.

The status of an agent is what tmux knows of its process. The status log shows whether
an agent makes progress.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from swarm import settings
from swarm.errors import AgentUnavailable, BadInput, TmuxSwarmError
from swarm.stores.default import store_url
from swarm.stores.file.state_dir import StateDir
from swarm.system import process
from swarm.system.own_command import swarm_command
from swarm.tmux.agent import MASTER, NAME, AgentPane, AgentStatus, agent_in, agent_name, describe
from swarm.tmux.panes import (
    PID_NAMESPACE,
    Pane,
    encode_input,
    list_panes,
    new_pane,
    rerun,
    setting,
    start_options,
)
from swarm.tmux.server import TmuxServer

__all__ = [
    "AgentPane",
    "AgentStatus",
    "AgentUnavailable",
    "StartReport",
    "StoppedAgent",
    "TmuxSwarmError",
    "TmuxSwarmManager",
]

MAX_WORKERS = 64
GRACE = 20.0  # seconds for a worker to release its task
_SIGKILL_TIMEOUT = 5.0  # seconds
_AGENTS = "@swarm-agents"  # server options: names of the started agents, and the command of each
_COMMAND = "@swarm-command-"

Command = Sequence[str]


@dataclass(frozen=True)
class StartReport:
    """The names of the agents that `start` started, restarted, or found running."""

    started: tuple[str, ...]
    restarted: tuple[str, ...]
    running: tuple[str, ...]


@dataclass(frozen=True)
class StoppedAgent:
    """An agent when its pane was closed.

    `killed`: the agent did not end in time by itself.
    """

    agent: AgentPane
    killed: bool


class TmuxSwarmManager:
    """Start, show and stop the agents of a state directory.

    The default is the state directory of the environment.

    Every method raises TmuxSwarmError if tmux cannot be run or refuses a command.
    """

    def __init__(self, state_dir: str | None = None) -> None:
        path, chosen = (
            settings.state_dir() if state_dir is None else (os.path.abspath(state_dir), True)
        )
        self.state_dir = path
        self._trusted = chosen
        self._tmux = TmuxServer(path)

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
        worker_command: Callable[[int], Command] | None = None,
        master_command: Command | None = None,
    ) -> StartReport:
        """Make the master and workers 1 to `workers` run, in the working directory.

        Start agents that are missing or have ended, and leave running agents alone.
        `agent` is the command line for the tasks of workers (`--exec`).
        `worker_command` and `master_command` replace swarm's own commands.
        """
        _check_number(workers)
        commands: dict[str, Command] = {
            MASTER: master_command or swarm_command("status", "--watch")
        }
        for number in range(1, workers + 1):
            commands[f"worker-{number}"] = (
                worker_command(number)
                if worker_command
                else _worker_command(number, agent, until_empty=until_empty)
            )
        with self._tmux.alone():
            StateDir(self.state_dir, trusted=self._trusted).make(self.state_dir)
            found = {known.name: known for known in self.agents()}
            done: dict[str, list[str]] = {"started": [], "restarted": [], "running": []}
            for name, command in commands.items():
                done[self._ensure_running(name, command, found.get(name))].append(name)
        return StartReport(**{key: tuple(names) for key, names in done.items()})

    def agents(self) -> list[AgentPane]:
        """Return the agents, the master first; an empty list if no swarm is up."""
        found = {pane.agent: agent_in(pane) for pane in self._panes() if pane.agent}
        for name in self._recorded():
            found.setdefault(name, AgentPane(name, AgentStatus.GONE))
        return sorted(found.values(), key=lambda agent: agent.worker_id or 0)

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
            raise AgentUnavailable("no swarm is up here. Start one with: swarm up --workers N")
        raise AgentUnavailable(
            f"this swarm has no {wanted}. It has: {' '.join(agent.name for agent in known)}."
        )

    def send(self, name: str | int, text: str, *, enter: bool = True) -> None:
        """Type text into an agent's pane, exactly, and then press Enter.

        Text may contain newlines and tabs, and no other control characters. Newlines at
        the end of the text are dropped. An agent that has turned on bracketed paste
        gets the text as one paste.
        """
        data = encode_input(text)
        agent = self.agent(name)
        if agent.status is not AgentStatus.RUNNING:
            raise AgentUnavailable(
                f"{agent.name} is not running: it is {describe(agent)}. Start it with: "
                f"{_restart(agent)}"
            )
        off = self._tmux.run(["display-message", "-p", "-t", agent.pane_id, "#{pane_input_off}"])
        if off == ["1"]:
            raise AgentUnavailable(
                f"the pane of {agent.name} takes no input. Allow it with: "
                f"{self._tmux_command('select-pane -e', agent)}"
            )
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

    def capture(self, name: str | int, lines: int | None = None) -> str:
        """Return what an agent's pane shows, without colours, even after the agent's
        end.

        `lines`: return that many last lines, even lines that have scrolled away. Empty
        lines at the end are left out.
        """
        if lines is not None and (
            isinstance(lines, bool) or not isinstance(lines, int) or lines < 1
        ):
            raise BadInput(f"lines is {lines!r}, but must be a whole number, 1 or more.")
        agent = self.agent(name)
        if agent.status is AgentStatus.GONE:
            raise AgentUnavailable(
                f"the pane of {agent.name} was closed. Start it again with: {_restart(agent)}"
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
        """Start an agent that has ended again, with its command, in its pane.

        Raise AgentUnavailable if the agent runs. With `force`, end a running agent
        first.
        """
        with self._tmux.alone():
            agent = self.agent(name)
            if agent.status is AgentStatus.RUNNING:
                if not force:
                    raise AgentUnavailable(
                        f"{agent.name} is running. To end it first and start it again: "
                        f"{_restart(agent)} --force"
                    )
                agent = self._end([agent], grace)[0].agent
            self._ensure_running(agent.name, self._command(agent.name), agent)
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
            notes = [_AGENTS, *(_COMMAND + stopped.agent.name for stopped in ended)]
            self._tmux.ask(*(["set-option", "-su", note] for note in notes))
            return ended

    def attach_command(self) -> list[str]:
        """Return the command line that shows the swarm in a terminal.

        Run that command without TMUX in the environment.
        """
        for pane in self._panes():
            if pane.agent:
                return self._tmux.command("attach-session", "-t", pane.session_id)
        raise AgentUnavailable("no swarm is up here. Start one with: swarm up --workers N")

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
        """Return the names of the agents that were started and not stopped since."""
        answer = self._tmux.ask(["show-options", "-svq", _AGENTS])
        return [name for name in " ".join(answer or []).split(",") if NAME.fullmatch(name)]

    def _command(self, name: str) -> Command:
        """Return the command that an agent was started with."""
        text = "".join(self._tmux.run(["show-options", "-svq", _COMMAND + name]))
        try:
            return [str(word) for word in json.loads(text)]
        except (ValueError, TypeError):
            raise TmuxSwarmError(
                f"tmux has no command for {name} any more. End the swarm with: swarm down"
            ) from None

    def _ensure_running(self, name: str, command: Command, known: AgentPane | None) -> str:
        if known and known.status is AgentStatus.RUNNING:
            return "running"
        # tmux gives a single word to a shell
        words = list(command) if len(command) > 1 else ["env", *command]
        with self._tmux.private_file(setting("SWARM_STORE", store_url())) as store:
            if not known or known.status is AgentStatus.GONE:
                new_pane(
                    self._tmux,
                    name,
                    words,
                    self._environment(name),
                    store,
                    start_options(self.state_dir),
                )
            else:
                rerun(self._tmux, known.pane_id, words, self._environment(name), store)
        self._tmux.run(["set-option", "-s", _COMMAND + name, json.dumps(list(command))])
        if known:
            return "restarted"
        self._tmux.run(["set-option", "-sa", _AGENTS, f",{name}"])
        return "started"

    def _environment(self, name: str) -> Mapping[str, str]:
        worker = "" if name == MASTER else name
        return {
            "SWARM_STATE_DIR": self.state_dir,
            "AI_SWARM_DIR": self.state_dir,
            "SWARM_WORKER": worker,
        }

    def _end(self, agents: Sequence[AgentPane], grace: float) -> list[StoppedAgent]:
        _check_grace(grace)
        if agents:
            self._check_namespace()
        wanted = [agent.name for agent in agents]
        running = _signal(agents, signal.SIGTERM)
        if left := self._wait_for_end(running, grace):
            killed = {agent.name for agent in _signal(left, signal.SIGKILL)}
            self._wait_for_end(left, _SIGKILL_TIMEOUT)
        else:
            killed = set()
        now = {agent.name: agent for agent in self.agents()}
        return [
            StoppedAgent(now.get(name, AgentPane(name, AgentStatus.GONE)), name in killed)
            for name in wanted
        ]

    def _check_namespace(self) -> None:
        """Refuse to signal agents of another pid namespace.

        In a container that shares /tmp with the swarm, the agents' pids belong to other
        processes.
        """
        theirs = "".join(self._tmux.ask(["show-options", "-svq", PID_NAMESPACE]) or [])
        if theirs and theirs != process.namespace("pid"):
            raise TmuxSwarmError(
                "this swarm was started in another container (pid namespace). Run this command "
                "there."
            )

    def _wait_for_end(self, agents: Sequence[AgentPane], timeout: float) -> list[AgentPane]:
        """Wait for agents to end. Return the agents that still run when time is up."""
        deadline = time.monotonic() + timeout
        names = {agent.name for agent in agents}
        pause = 0.01
        while names:
            left = [
                agent
                for agent in self.agents()
                if agent.name in names and agent.status is AgentStatus.RUNNING
            ]
            if not left or time.monotonic() >= deadline:
                return left
            time.sleep(min(pause, max(deadline - time.monotonic(), 0)))
            pause = min(pause * 1.5, 0.25)
        return []

    def _close(self, pane_id: str) -> None:
        """Close a pane. After the last pane, wait until the server has ended.

        A new server can be started only then.
        """
        panes = [pane.pane_id for pane in self._panes()]
        if pane_id not in panes:
            return  # the pane was closed already
        self._tmux.run(["kill-pane", "-t", pane_id])
        deadline = time.monotonic() + _SIGKILL_TIMEOUT
        while len(panes) == 1 and time.monotonic() < deadline:
            try:
                if self._tmux.ask(["list-sessions"]) is None:
                    return
            except TmuxSwarmError:
                pass  # the server is ending
            time.sleep(0.01)

    def _tmux_command(self, command: str, agent: AgentPane) -> str:
        return f"tmux -S {self.socket} {command} -t {agent.pane_id}"


def _worker_command(number: int, agent: str, *, until_empty: bool) -> Command:
    return swarm_command(
        "worker",
        "--id",
        str(number),
        *(["--exec", agent] if agent else []),
        *(["--until-empty"] if until_empty else []),
    )


def _restart(agent: AgentPane) -> str:
    return f"swarm restart {agent.name}"


def _check_number(workers: int) -> None:
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MAX_WORKERS:
        raise BadInput(
            f"workers is {workers!r}, but must be a whole number from 1 to {MAX_WORKERS}."
        )


def _check_grace(grace: float) -> None:
    if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not 0 <= grace <= 3600:
        raise BadInput(f"grace is {grace!r}, but must be a number of seconds from 0 to 3600.")


def _signal(agents: Iterable[AgentPane], number: signal.Signals) -> list[AgentPane]:
    """Send a signal to the agents that run. SIGKILL goes to the whole process group."""
    running = [agent for agent in agents if agent.status is AgentStatus.RUNNING and agent.pid]
    for agent in running:
        assert agent.pid
        try:
            (os.killpg if number is signal.SIGKILL else os.kill)(agent.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # the agent has just ended, or its pid is another user's by now
    return running
