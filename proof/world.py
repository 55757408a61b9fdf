"""A scenario and its moves: the possible next moves, their results, and whether the
promises hold.

A state is a tuple of numbers: the state of the disk, the ghost of the monitor, the
budget of the person and of kills, and the spot of each process. In each state every
process may make its next call, with every result that it can have. The person may touch
the lock file. A process may be killed and replaced. A process that is killed for good,
or stopped for ever, makes no more calls. Each state also stands for this case.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Hashable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from proof.disk import TASK, Call, Disk
from proof.monitor import PERSON, Ghost, Violation, after_death, after_event, after_note, begin
from proof.simulated_process import Code, Memory, Note, Processes, Rules, Spot
from swarm.locks.record import decode

State = tuple[int, ...]
Move = tuple[int, int]
"""The actor and its choice.

A process chooses among the outcomes of its next call, and its death. PERSON chooses
among its actions.
"""

T = TypeVar("T", bound=Hashable)


class Scenario(NamedTuple):
    """The actors and the bounds of an exploration.

    `before` is done first, undisturbed. `before` has pairs: a process, and the number
    of operations that the process does first.
    """

    name: str
    scripts: list[list[str]]
    before: tuple[tuple[int, int], ...] = ()
    asleep: int = 0  # after `before`, w0 also makes so many calls of its next operation
    person: tuple[str, ...] = ()  # the actions of a person, each once, in any order, at any moment
    deaths: int = 0  # how many processes are killed and replaced
    forked: bool = False  # the last process is a fork of the first
    # the last process is another thread of the first, with the same scratch directory
    threads: bool = False
    at_once: bool = False  # do private calls before anything else: fewer states
    rules: Rules = Rules()


class Numbers(Generic[T]):
    """A number for each value that was met."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._known: dict[T, int] = {}

    def of(self, value: T) -> int:
        number = self._known.get(value)
        if number is None:
            number = self._known[value] = len(self.values)
            self.values.append(value)
        return number


class Effect(NamedTuple):
    """The facts that the monitor sees of a move: its actor, the change of the lock
    file, the answers, and the lock file after the move.
    """

    who: int
    event: tuple[Any, ...] | None
    notes: tuple[Note, ...]
    record: bytes | None
    death: bool = False


class World:
    """All moves that can happen in a scenario. Each outcome is computed once."""

    def __init__(self, scenario: Scenario, code: Code | None = None) -> None:
        self.scenario = scenario
        self.disk = Disk(laid_out=scenario.rules.laid_out, orders=scenario.rules.orders)
        self.processes = Processes(
            [*scenario.scripts, ["acquire", "heartbeat", "release"]], code or Code(), scenario.rules
        )
        self._ghosts: Numbers[Ghost] = Numbers()
        self._effects: Numbers[Effect] = Numbers()
        self._budgets: Numbers[tuple[tuple[str, ...], int]] = Numbers()
        self._steps: dict[tuple[int, int], tuple[tuple[int, int, int], ...]] = {}
        self._heard: dict[tuple[int, int], int] = {}
        self._never_dead_ends: set[int] = set()
        self.start = self._prepared()

    def moves(self, state: State) -> Iterator[tuple[Move, State]]:
        """Yield the possible moves and the states they lead to.

        Raise Violation with the move that caused it.
        """
        disk, ghost, budget = state[:3]
        private = self._private(state) if self.scenario.at_once else None
        if private is not None:
            yield (private, 0), self.apply(state, (private, 0))
            return
        for index, spot in enumerate(state[3:], 3):
            for choice, (disk_after, spot_after, effect) in enumerate(self._calls(disk, spot)):
                ghost_after = self._hear(ghost, effect, (index - 3, choice))
                yield (
                    (index - 3, choice),
                    (
                        disk_after,
                        ghost_after,
                        budget,
                        *state[3:index],
                        spot_after,
                        *state[index + 1 :],
                    ),
                )
        if budget:  # 0 means that nothing is left
            for who in (*range(len(state) - 3), PERSON):
                calls = 0 if who == PERSON else len(self._calls(disk, state[3 + who]))
                for choice in range(calls, self.choices(state, who)):
                    yield (who, choice), self.apply(state, (who, choice))

    def _private(self, state: State) -> int | None:
        """Return a process whose next call is private, if there is one."""
        for who, spot in enumerate(state[3:]):
            call = self.processes.spots[spot].call
            if call is not None and self.disk.is_private(state[0], call):
                return who
        return None

    def choices(self, state: State, who: int) -> int:
        """Return the number of choices of an actor."""
        actions, deaths = self._budgets.values[state[2]]
        if who == PERSON:
            return len(actions)
        spot = state[3 + who]
        return len(self._calls(state[0], spot)) + bool(
            deaths and self.processes.spots[spot].history
        )

    def is_death(self, state: State, move: Move) -> bool:
        return move[0] != PERSON and move[1] == len(self._calls(state[0], state[3 + move[0]]))

    def apply(self, state: State, move: Move) -> State:
        """Return the state after a move. Raise Violation."""
        disk, ghost, budget = state[:3]
        who, choice = move
        actions, deaths = self._budgets.values[budget]
        if who == PERSON:
            outcome = self.disk.after(disk, ("person", PERSON, actions[choice]))[0]
            left = self._budgets.of((actions[:choice] + actions[choice + 1 :], deaths))
            effect = self._effects.of(Effect(PERSON, outcome.event, (), None))
            return outcome.state, self._hear(ghost, effect, move), left, *state[3:]
        spot = self.processes.spots[state[3 + who]]
        if self.is_death(state, move):
            effect = self._effects.of(Effect(who, None, (), self.disk.record(disk), death=True))
            disk = self.disk.forget_process(disk, who)
            after = self.processes.restart(spot).number
            budget = self._budgets.of((actions, deaths - 1))
        else:
            disk, after, effect = self._calls(disk, spot.number)[choice]
        return (
            disk,
            self._hear(ghost, effect, move),
            budget,
            *state[3 : 3 + who],
            after,
            *state[4 + who :],
        )

    def check_dead_end(self, disk: int) -> None:
        """Raise Violation unless a newcomer can acquire, refresh and release the lock.

        For this check, all other processes are dead and all leases are over.
        """
        if disk in self._never_dead_ends:
            return
        self._never_dead_ends.add(disk)
        newcomer = len(self.scenario.scripts)
        spot = self.processes.start(newcomer, 0, _memory(newcomer)).number
        answers: list[str] = []
        while calls := self._calls(disk, spot):
            disk, spot, effect = calls[-1]  # the last answer to a question about time is "over"
            answers += [note[0] for note in self._effects.values[effect].notes]
        if answers[-3:] != ["acquired", "kept", "released"] or self.disk.record(disk) is not None:
            raise Violation(
                f"a newcomer alone cannot acquire, refresh and release the lock: "
                f"{', '.join(answers)}"
            )

    def describe(self, state: State, move: Move) -> str:
        """Describe a move as a line of a trace."""
        who, choice = move
        if who == PERSON:
            return f"person  {self._budgets.values[state[2]][0][choice]}"
        spot = self.processes.spots[state[3 + who]]
        if self.is_death(state, move):
            return f"w{who}      is killed, and another process replaces it"
        assert spot.call is not None
        kind, value = self.disk.after(state[0], spot.call)[choice].result
        effect = self._effects.values[self._calls(state[0], spot.number)[choice][2]]
        answer = (
            errno.errorcode[value] if kind == "error" else "" if value is None else _shown(value)
        )
        answers = "".join(f"   => {note[0]}" for note in effect.notes if note[0] != "created")
        operation = self.processes.scripts[who][spot.operation]
        return f"w{who} {operation:9} {_in_words(spot.call)}{answer and ' -> '}{answer}{answers}"

    def _calls(self, disk: int, spot: int) -> tuple[tuple[int, int, int], ...]:
        """Return the outcomes of a process's next call: disk, spot and effect."""
        steps = self._steps.get((disk, spot))
        if steps is None:
            steps = self._steps[disk, spot] = tuple(
                self._work_out(disk, self.processes.spots[spot])
            )
        return steps

    def _work_out(self, disk: int, spot: Spot) -> Iterator[tuple[int, int, int]]:
        if spot.call is None:
            return
        for outcome in self.disk.after(disk, spot.call):
            after, notes = self.processes.follow(spot, outcome.result)
            effect = Effect(
                spot.process,
                outcome.event,
                notes,
                self.disk.record(outcome.state) if notes else None,
            )
            yield outcome.state, after.number, self._effects.of(effect)

    def _hear(self, ghost: int, effect: int, move: Move) -> int:
        after = self._heard.get((ghost, effect))
        if after is None:
            try:
                heard = _listen(
                    self._ghosts.values[ghost],
                    self._effects.values[effect],
                    self.scenario.rules.tokens,
                )
            except Violation as violation:
                violation.move = move
                raise
            after = self._heard[ghost, effect] = self._ghosts.of(heard)
        return after

    def _prepared(self) -> State:
        scenario = self.scenario
        self._budgets.of(((), 0))
        budget = self._budgets.of((scenario.person, scenario.deaths))
        spots = [
            self.processes.start(process, 0, _memory(process)).number
            for process in range(len(scenario.scripts))
        ]
        state = (self.disk.empty, self._ghosts.of(begin(len(spots))), budget, *spots)
        for process, operations in scenario.before:
            while self.processes.spots[state[3 + process]].operation < operations:
                state = next(after for (who, _), after in self.moves(state) if who == process)
        for _ in range(scenario.asleep):
            state = next(after for (who, _), after in self.moves(state) if who == 0)
        last = len(spots) - 1
        if scenario.forked or scenario.threads:
            memory = self.processes.spots[state[3]].memory._replace(lock=None)
            child = memory._replace(pid=_memory(last).pid, scratches_made=0)
            # threads share one counter of names: none is used twice
            thread = memory._replace(names_used=100)
            state = (
                *state[:-1],
                self.processes.start(last, 0, child if scenario.forked else thread).number,
            )
        return state


def _listen(ghost: Ghost, effect: Effect, tokens: bool) -> Ghost:
    if effect.death:
        return after_death(ghost, effect.who, effect.record)
    if effect.event:
        ghost = after_event(ghost, effect.event)
    for note in effect.notes:
        ghost = after_note(ghost, effect.who, note, effect.record)
    return ghost if tokens else ghost._replace(order=())


def _memory(process: int) -> Memory:
    return Memory(16 * (process + 1))


def _in_words(call: Call) -> str:
    verb, _, *args = call
    if verb in ("rename commit", "link commit"):
        args = []
    elif verb in ("write_new", "unlink"):
        args = args[: 2 if verb == "write_new" else 1]
    return " ".join([verb, *map(_shown, args)])


def _shown(value: Any) -> str:
    """Shorten a value of a call: the lock as worker#token, scratch directories without
    common digits.
    """
    if isinstance(value, bytes):
        found = decode(value, TASK)
        return (
            f"[{found.worker}#{found.token}+{found.holder.get('beat', '?')}]"
            if found
            else "[nothing]"
        )
    if isinstance(value, tuple):
        return f"({' '.join(map(_shown, value))})"
    return re.sub(r"s0{8,}|private/", "", str(value))
