"""A swarm in a terminal: a master and its workers, each in a pane of a tmux server of their own.

A pane is this swarm's if it was made here: it then carries its agent's name and its own id as pane options, both set before its
command begins. No other pane is ever listed, written to, read, restarted or closed, not even one that a person split off beside
them. The session and its server end with their last pane, so they stay while somebody else has one there.

What is told is what tmux knows of the process in the pane. Whether an agent gets on with its work, the status log tells.
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
from swarm.tmux.panes import PID_NAMESPACE, Pane, list_panes, new_pane, rerun, sent, setting, start_options
from swarm.tmux.server import TmuxServer

__all__ = ["AgentPane", "AgentStatus", "AgentUnavailable", "StartReport", "StoppedAgent", "TmuxSwarmError", "TmuxSwarmManager"]

MAX_WORKERS = 64
GRACE = 20.0  # seconds that a worker gets to give its task back
_KILLED = 5.0  # seconds in which the system ends what was killed
_AGENTS = "@swarm-agents"  # server options: the names that were started, and the command of each
_COMMAND = "@swarm-command-"

Command = Sequence[str]


@dataclass(frozen=True)
class StartReport:
    """What `start` did: names of agents that are new, that had ended and were started again, and that ran already."""

    started: tuple[str, ...]
    restarted: tuple[str, ...]
    running: tuple[str, ...]


@dataclass(frozen=True)
class StoppedAgent:
    """How an agent was when its pane was closed; `killed` if it did not end by itself in time."""

    agent: AgentPane
    killed: bool


class TmuxSwarmManager:
    """Starts, watches and stops the agents of one state directory; by default the environment's. Raises TmuxSwarmError whenever
    tmux cannot be asked or refuses."""

    def __init__(self, state_dir: str | None = None) -> None:
        path, chosen = settings.state_dir() if state_dir is None else (os.path.abspath(state_dir), True)
        self.state_dir = path
        self._trusted = chosen
        self._tmux = TmuxServer(path)

    @property
    def socket(self) -> str:
        """Where the swarm's tmux server listens: `tmux -S SOCKET …` talks to it."""
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
        """Sees to it that the master and workers 1 to `workers` run: starts those that are missing and those that have ended,
        and leaves those that run as they are. `agent` is the command line that workers give their tasks to (`--exec`); the
        commands are swarm's own unless others are given. They run in the caller's working directory."""
        _check_number(workers)
        commands: dict[str, Command] = {MASTER: master_command or swarm_command("status", "--watch")}
        for number in range(1, workers + 1):
            commands[f"worker-{number}"] = (
                worker_command(number) if worker_command else _worker_command(number, agent, until_empty=until_empty)
            )
        with self._tmux.alone():
            StateDir(self.state_dir, trusted=self._trusted).ensure(self.state_dir)
            found = {known.name: known for known in self.agents()}
            done: dict[str, list[str]] = {"started": [], "restarted": [], "running": []}
            for name, command in commands.items():
                done[self._see_that_it_runs(name, command, found.get(name))].append(name)
        return StartReport(**{key: tuple(names) for key, names in done.items()})

    def agents(self) -> list[AgentPane]:
        """The agents, the master first; none if nothing is up."""
        found = {pane.agent: agent_in(pane) for pane in self._panes() if pane.agent}
        for name in self._recorded():
            found.setdefault(name, AgentPane(name, AgentStatus.GONE))
        return sorted(found.values(), key=lambda agent: agent.worker_id or 0)

    def agent(self, name: str | int) -> AgentPane:
        """One agent: "master", "worker-3", "3" or 3. Raises AgentUnavailable if none of that name was started."""
        wanted = agent_name(name)
        known = self.agents()
        for agent in known:
            if agent.name == wanted:
                return agent
        if not known:
            raise AgentUnavailable("no swarm is up here. Start one with: swarm up --workers N")
        raise AgentUnavailable(f"there is no {wanted} in this swarm. It has: {' '.join(agent.name for agent in known)}.")

    def send(self, name: str | int, text: str, *, enter: bool = True) -> None:
        """Types text into an agent's pane, exactly, and then one Enter. Text may have lines and tabs, and no other control
        characters; newlines at its end are left to the Enter. An agent that has asked for it gets it as one paste."""
        data = sent(text)
        agent = self.agent(name)
        if agent.status is not AgentStatus.RUNNING:
            raise AgentUnavailable(f"{agent.name} is not running: it is {describe(agent)}. Start it with: {_restart(agent)}")
        off = self._tmux.run(["display-message", "-p", "-t", agent.pane_id, "#{pane_input_off}"])
        if off == ["1"]:
            raise AgentUnavailable(
                f"the pane of {agent.name} takes no input. Allow it with: {self._cure('select-pane -e', agent)}"
            )
        target = ["-t", agent.pane_id]
        buffer = f"swarm-{os.getpid()}-{time.monotonic_ns()}"
        # Pasted, not typed with send-keys: that would go to copy mode where a person has scrolled up, and to every pane of a
        # window whose panes are synchronized.
        commands = [["copy-mode", "-q", *target]]
        with self._tmux.private_file(data) as path:
            if data:
                commands += [["load-buffer", "-b", buffer, path], ["paste-buffer", "-d", "-p", "-b", buffer, *target]]
            if enter:
                commands += [["set-buffer", "-b", buffer, "\r"], ["paste-buffer", "-d", "-b", buffer, *target]]
            self._tmux.run(*commands)

    def capture(self, name: str | int, lines: int | None = None) -> str:
        """What an agent's pane shows, without colours; with `lines`, that many last lines, also those that scrolled away. Also
        of one that has ended. Empty lines at the end are left out."""
        if lines is not None and (isinstance(lines, bool) or not isinstance(lines, int) or lines < 1):
            raise BadInput(f"lines is {lines!r}, but must be a whole number, 1 or more.")
        agent = self.agent(name)
        if agent.status is AgentStatus.GONE:
            raise AgentUnavailable(f"the pane of {agent.name} was closed. Start it again with: {_restart(agent)}")
        shown = self._screen(agent, "0" if lines is None else "-")
        if agent.status is not AgentStatus.RUNNING and shown and shown[-1].startswith("Pane is dead"):
            shown = self._screen(agent, "-1" if lines is None else "-")[:-1]  # tmux before 3.3 has scrolled up by one to say so
        while shown and not shown[-1]:
            shown.pop()
        return "".join(f"{line}\n" for line in (shown if lines is None else shown[-lines:]))

    def restart(self, name: str | int, *, force: bool = False, grace: float = GRACE) -> AgentPane:
        """Starts an agent that has ended again, with its command, in its pane. One that runs is refused, or with `force` is
        ended first."""
        with self._tmux.alone():
            agent = self.agent(name)
            if agent.status is AgentStatus.RUNNING:
                if not force:
                    raise AgentUnavailable(
                        f"{agent.name} is running. To end it first and start it anew: {_restart(agent)} --force"
                    )
                agent = self._end([agent], grace)[0].agent
            self._see_that_it_runs(agent.name, self._command(agent.name), agent)
            return self.agent(agent.name)

    def stop(self, grace: float = GRACE) -> list[StoppedAgent]:
        """Ends all agents: each gets SIGTERM, and SIGKILL if it has not ended `grace` seconds later; then closes their panes.
        How each one ended; nothing if nothing is up."""
        with self._tmux.alone():
            ended = self._end(self.agents(), grace)
            for stopped in ended:
                self._close(stopped.agent.pane_id)
            notes = [_AGENTS, *(_COMMAND + stopped.agent.name for stopped in ended)]
            self._tmux.ask(*(["set-option", "-su", note] for note in notes))
            return ended

    def attach_command(self) -> list[str]:
        """The command line that shows the swarm in a terminal. To be run without TMUX in the environment."""
        for pane in self._panes():
            if pane.agent:
                return self._tmux.command("attach-session", "-t", pane.session_id)
        raise AgentUnavailable("no swarm is up here. Start one with: swarm up --workers N")

    def _screen(self, agent: AgentPane, begin: str) -> list[str]:
        return [line.rstrip() for line in self._tmux.run(["capture-pane", "-p", "-J", "-S", begin, "-t", agent.pane_id])]

    def _panes(self) -> list[Pane]:
        return list_panes(self._tmux)

    def _recorded(self) -> list[str]:
        """The names that were started here and not stopped since."""
        answer = self._tmux.ask(["show-options", "-svq", _AGENTS])
        return [name for name in " ".join(answer or []).split(",") if NAME.fullmatch(name)]

    def _command(self, name: str) -> Command:
        """What an agent was started with."""
        told = "".join(self._tmux.run(["show-options", "-svq", _COMMAND + name]))
        try:
            return [str(word) for word in json.loads(told)]
        except (ValueError, TypeError):
            raise TmuxSwarmError(f"tmux has lost the command of {name}. End the swarm with: swarm down") from None

    def _see_that_it_runs(self, name: str, command: Command, known: AgentPane | None) -> str:
        if known and known.status is AgentStatus.RUNNING:
            return "running"
        words = list(command) if len(command) > 1 else ["env", *command]  # one word alone would be given to a shell
        with self._tmux.private_file(setting("SWARM_STORE", store_url())) as store:
            if not known or known.status is AgentStatus.GONE:
                new_pane(self._tmux, name, words, self._environment(name), store, start_options(self.state_dir))
            else:
                rerun(self._tmux, known.pane_id, words, self._environment(name), store)
        self._tmux.run(["set-option", "-s", _COMMAND + name, json.dumps(list(command))])
        if known:
            return "restarted"
        self._tmux.run(["set-option", "-sa", _AGENTS, f",{name}"])
        return "started"

    def _environment(self, name: str) -> Mapping[str, str]:
        worker = "" if name == MASTER else name
        return {"SWARM_STATE_DIR": self.state_dir, "AI_SWARM_DIR": self.state_dir, "SWARM_WORKER": worker}

    def _end(self, agents: Sequence[AgentPane], grace: float) -> list[StoppedAgent]:
        _check_grace(grace)
        if agents:
            self._check_namespace()
        wanted = [agent.name for agent in agents]
        running = _signal(agents, signal.SIGTERM)
        if left := self._wait_for_end(running, grace):
            killed = {agent.name for agent in _signal(left, signal.SIGKILL)}
            self._wait_for_end(left, _KILLED)
        else:
            killed = set()
        now = {agent.name: agent for agent in self.agents()}
        return [StoppedAgent(now.get(name, AgentPane(name, AgentStatus.GONE)), name in killed) for name in wanted]

    def _check_namespace(self) -> None:
        """In another container that shares our /tmp, the number of an agent's process is somebody else's."""
        theirs = "".join(self._tmux.ask(["show-options", "-svq", PID_NAMESPACE]) or [])
        if theirs and theirs != process.namespace("pid"):
            raise TmuxSwarmError("this swarm was started in another container (pid namespace). Run this command there.")

    def _wait_for_end(self, agents: Sequence[AgentPane], timeout: float) -> list[AgentPane]:
        """Those of them that still run when time is up."""
        deadline = time.monotonic() + timeout
        names = {agent.name for agent in agents}
        pause = 0.01
        while names:
            left = [agent for agent in self.agents() if agent.name in names and agent.status is AgentStatus.RUNNING]
            if not left or time.monotonic() >= deadline:
                return left
            time.sleep(min(pause, max(deadline - time.monotonic(), 0)))
            pause = min(pause * 1.5, 0.25)
        return []

    def _close(self, pane_id: str) -> None:
        """Closes a pane of ours. With the last of all its server ends, and another may be started only when it has."""
        panes = [pane.pane_id for pane in self._panes()]
        if pane_id not in panes:
            return  # somebody was faster
        self._tmux.run(["kill-pane", "-t", pane_id])
        deadline = time.monotonic() + _KILLED
        while len(panes) == 1 and time.monotonic() < deadline:
            try:
                if self._tmux.ask(["list-sessions"]) is None:
                    return
            except TmuxSwarmError:
                pass  # it is just ending
            time.sleep(0.01)

    def _cure(self, command: str, agent: AgentPane) -> str:
        return f"tmux -S {self.socket} {command} -t {agent.pane_id}"


def _worker_command(number: int, agent: str, *, until_empty: bool) -> Command:
    return swarm_command(
        "worker", "--id", str(number), *(["--exec", agent] if agent else []), *(["--until-empty"] if until_empty else [])
    )


def _restart(agent: AgentPane) -> str:
    return f"swarm restart {agent.name}"


def _check_number(workers: int) -> None:
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MAX_WORKERS:
        raise BadInput(f"workers is {workers!r}, but must be a whole number from 1 to {MAX_WORKERS}.")


def _check_grace(grace: float) -> None:
    if isinstance(grace, bool) or not isinstance(grace, (int, float)) or not 0 <= grace <= 3600:
        raise BadInput(f"grace is {grace!r}, but must be a number of seconds from 0 to 3600.")


def _signal(agents: Iterable[AgentPane], number: signal.Signals) -> list[AgentPane]:
    """Sends a signal to those that run; to be killed, to all of the group that the pane's process leads."""
    running = [agent for agent in agents if agent.status is AgentStatus.RUNNING and agent.pid]
    for agent in running:
        assert agent.pid
        try:
            (os.killpg if number is signal.SIGKILL else os.kill)(agent.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # it has just ended, or is somebody else's by now: closing its pane is all that is left
    return running
