"""Which tasks lack a worker, which workers died, and which gates are closed.

    idle      tasks are ready, and no worker runs
    died      a worker ended without saying so, or with an error
    namesake  several workers with one name run
    unserved  workers run, but none of them accepts these tasks
    paused    all tasks, or those with a label, are paused: no claim succeeds
    gate      the gate of an agent is closed: a limit, an overload, a login
    budget    a budget is reached, and swarm asks before it spends more

A worker that died is a problem even while all tasks are done. Agents and users may also
claim tasks without a worker. So a swarm in which no worker ever started has a hint, not a
problem.
"""

from __future__ import annotations

from swarm.board.board import Problem
from swarm.locks.presence import Presence, has_ever_run, presences
from swarm.queue.accepted import Accepted
from swarm.queue.events import READY, SUBMITTED
from swarm.queue.pauses import pausing
from swarm.queue.task_state import effective_state
from swarm.system.clock import from_iso
from swarm.terminal.text import duration, foreign_name, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from swarm.queue.gates import Gate
    from swarm.queue.state import QueueState
    from swarm.queue.task_state import TaskState
    from swarm.stores.contract import Store

_SECONDS_BELOW = 3600.0  # seconds; a time that is nearer is shown with its seconds
_MAX_NAMESAKES = 4  # in a text


class Staffing:
    """The workers of one store, compared with the tasks of its queue.

    `dead` are the running tasks whose worker is dead, by id.
    """

    def __init__(self, store: Store, queue: QueueState, dead: Mapping[str, TaskState]) -> None:
        known = presences(store)
        self.living = tuple(presence for presence in known if presence.is_alive)
        self._died = [presence for presence in known if not presence.is_alive]
        self._store = store
        self._queue = queue
        self._dead = dead
        self.gates: tuple[Gate, ...] = tuple(queue.gates.closed(store.clock.now()))

    def problems(self, counts: Mapping[str, int]) -> list[Problem]:
        """Return the problems. `counts` has the number of tasks in each state."""
        now = self._store.clock.now()
        found = [
            self._pause_problem(gate) if gate.is_pause else _gate_problem(gate, now)
            for gate in self.gates
        ]
        found += [_died_problem(presence) for presence in self._died]
        found += self._namesakes()
        if self.living:
            return [*found, *self._unserved()] if counts[READY] else found
        work = counts[READY] or counts[SUBMITTED]
        if work and self._is_idle() and (self._died or has_ever_run(self._store)):
            found.append(self._idle_problem(counts))
        return found

    def hint(self, counts: Mapping[str, int]) -> str:
        """Return what to do in a swarm in which no worker has started yet, else ""."""
        if not counts[READY] or self.living or self._died or not self._is_idle():
            return ""
        if has_ever_run(self._store):
            return ""
        return f"no worker has started yet; to start some: {self._start_command()}"

    def _pause_problem(self, gate: Gate) -> Problem:
        running = [entry for entry in self._queue.under(gate.agent) if entry.id not in self._dead]
        text = pausing.summary(gate, sum(bool(entry.halted) for entry in running))
        return Problem("paused", "", "", gate.since, text, pausing.resume_command(gate))

    def _is_idle(self) -> bool:
        """Return whether no task of the queue is being done, by whatever program."""
        return all(name in self._dead for name in self._queue.running)

    def _ready(self) -> list[TaskState]:
        entries = self._queue.entries.values()
        return [
            entry
            for entry in entries
            if effective_state(entry, lock_is_free=entry.id in self._dead) == READY
        ]

    def _namesakes(self) -> list[Problem]:
        """Return a problem for each name that several living workers have."""
        groups: dict[str, list[Presence]] = {}
        for presence in self.living:
            groups.setdefault(presence.worker, []).append(presence)
        found = []
        for name, workers in groups.items():
            if len(workers) > 1:
                where = ", ".join(map(_process, workers[:_MAX_NAMESAKES]))
                text = f"{len(workers)} workers have this name ({where}); give each one its own"
                since = max(presence.since for presence in workers)
                fix = f"swarm worker --id {quoted(f'{name}-2')}"
                found.append(Problem("namesake", "", name, since, text, fix))
        return found

    def _unserved(self) -> list[Problem]:
        """Return a problem for each kind of ready tasks that no worker accepts."""
        accepted = list({_key(presence): _accepted(presence) for presence in self.living}.values())
        alike: dict[tuple[str, bool, tuple[str, ...]], list[TaskState]] = {}
        for entry in self._ready():
            alike.setdefault((entry.agent, entry.has_command, entry.labels), []).append(entry)
        groups: dict[tuple[object, ...], list[TaskState]] = {}
        for (agent, has_command, labels), entries in alike.items():
            if any(each.fits(entries[0]) for each in accepted):
                continue
            if any(each.fits_but_for_labels(entries[0]) for each in accepted):
                groups.setdefault(("labels", labels), []).extend(entries)
            else:
                groups.setdefault((agent, has_command), []).extend(entries)
        return [
            _label_problem(entries) if kind[0] == "labels" else _kind_problem(entries)
            for kind, entries in groups.items()
        ]

    def _idle_problem(self, counts: Mapping[str, int]) -> Problem:
        ready, submitted = counts[READY], counts[SUBMITTED]
        text = f"{ready:,} tasks are ready" if ready != 1 else "1 task is ready"
        fix = self._start_command()
        if not ready:
            text = f"the work of {submitted:,} task{'s' * (submitted != 1)} waits to land"
            fix = "swarm land"
        return Problem("idle", "", "", "", f"{text}, and no worker runs", fix)

    def _start_command(self) -> str:
        ready = self._ready()
        if all(entry.has_command for entry in ready):
            return "swarm up --workers 3"
        agents = {entry.agent for entry in ready if entry.agent}
        return f"swarm up --agent {quoted(min(agents, default='claude'))}"


def _key(presence: Presence) -> tuple[str, bool, frozenset[str]]:
    return presence.agent, presence.accepts_commands, frozenset(presence.labels)


def _accepted(presence: Presence) -> Accepted:
    """Return the tasks that a worker accepts."""
    if not presence.agent:
        return Accepted(True, labels=presence.labels)
    return Accepted(None if presence.accepts_commands else False, presence.agent, presence.labels)


def _kind_problem(entries: list[TaskState]) -> Problem:
    """Return the problem of tasks for whose agent or command no worker runs."""
    first, many = entries[0], len(entries) > 1
    what = f"{len(entries)} tasks" if many else "it"
    if first.agent:
        text = f"{what} need{'s' * (not many)} agent {foreign_name(first.agent)}"
        fix = f"swarm worker --id {quoted(f'{first.agent}-1')} --agent {quoted(first.agent)}"
    elif first.has_command:
        text = f"{what} {'have' if many else 'has'} a command, which only a worker without "
        text += "an agent or with --allow-commands runs"
        fix = "swarm worker --id commands-1"
    else:
        text = f"{what} need{'s' * (not many)} an agent"
        fix = "swarm worker --id claude-1 --agent claude"
    text += ", and no such worker runs"
    return Problem("unserved", first.id, "", first.since, text, fix)


def _label_problem(entries: list[TaskState]) -> Problem:
    """Return the problem of tasks that workers could do if they had other labels."""
    first, many = entries[0], len(entries) > 1
    what = f"{len(entries)} tasks have" if many else "it has"
    if first.labels:
        names = " and ".join(map(foreign_name, first.labels))
        text = f"{what} the label{'s' * (len(first.labels) > 1)} {names}"
    else:
        text = f"{what} no label"
    text += ", and every worker that could do " + ("them" if many else "it")
    text += " takes only tasks with other labels" if first.labels else " takes only some labels"
    name = quoted(f"{first.labels[0]}-1" if first.labels else "worker-1")
    agent = first.agent or ("" if first.has_command else "claude")
    fix = f"swarm worker --id {name}" + (f" --agent {quoted(agent)}" if agent else "")
    fix += "".join(f" --label {quoted(label)}" for label in first.labels[:1])
    return Problem("unserved", first.id, "", first.since, text, fix)


def _died_problem(presence: Presence) -> Problem:
    name = quoted(presence.worker)
    text = f"its {_process(presence)} has ended"
    if presence.why:
        text = f"it ended with an error: {presence.why}"
    text = f"{text.rstrip('.')} (to forget: swarm status --forget-dead)"
    fix = f"swarm restart {name}" if presence.in_pane else f"swarm worker --id {name}"
    if presence.agent and not presence.in_pane:
        from swarm.presets.registry import NAMES  # most boards do not need this module

        known = presence.agent in NAMES
        fix += f" --agent {presence.agent}" if known else f" --exec '{presence.agent} …'"
    return Problem("died", "", presence.worker, presence.last_seen, text, fix)


def _process(presence: Presence) -> str:
    return f"process {presence.pid} on {foreign_name(presence.host or '?')}"


def _gate_problem(gate: Gate, now: float) -> Problem:
    kind = "budget" if gate.budget else "gate"
    who = foreign_name(gate.agent)
    text = gate.reason if gate.budget else f"{who} is stopped {until_text(gate, now)}"
    if gate.reason and not gate.budget:
        text += f": {gate.reason}"
    fix = f"swarm gate open {quoted(gate.agent)}"
    return Problem(kind, gate.task, "", gate.since, text, fix)


def until_text(gate: Gate, now: float) -> str:
    """Return until when a gate is closed, and in how long it opens."""
    if not gate.until:
        return f"until a user {'resumes' if gate.is_pause else 'opens'} it"
    left = max(0.0, (from_iso(gate.until) or 0.0) - now)
    time = gate.until[11:19] if left < _SECONDS_BELOW else f"{gate.until[:10]} {gate.until[11:16]}"
    return f"until {time} UTC (in {duration(left)})"
