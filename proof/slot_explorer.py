"""Go through every interleaving of processes that take slots of one name, breadth first.

The explorer runs swarm's own `SlotTable`, `LockTable` and `Waiter`. A step is one call of
the store, one look whether a process lives, or the work with a slot. A record is atomic here, since
`proof.explorer` proves the records. Between two steps every process may be next, and a
process may be killed. As in `proof.queue_explorer`, the position of a process is the
results of its steps so far: its script is run again with them.

The explorer checks in each state:

- No more processes hold a slot than there are slots, and no two hold the same slot. So a
  living process never loses its slot.
- Where no process can go on, none waits while a slot is free. No process looks at the
  slots by itself here, so no wake is lost.

At the end of each path, a newcomer gets a slot if a slot is free: that of a process that
was killed, at whatever step, is free at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from proof.explorer import Exploration
from proof.report import Report
from swarm.errors import LockHeld
from swarm.locks import expiry, slot_waits
from swarm.locks.record import Lock
from swarm.locks.slots import Slots, SlotTable

Call = tuple[Any, ...]
_ROUND = ("acquire", "release")
_KEPT = ("acquire", "heartbeat", "release")
_WAITS = ("wait", "release")


class Scenario(NamedTuple):
    """Scripts of processes: `acquire` (do not wait), `wait` (for a slot), `heartbeat` and
    `release`. A script ends where a slot is refused. `deaths`: how many are killed.
    """

    name: str
    scripts: tuple[tuple[str, ...], ...]
    slots: int = 2
    deaths: int = 0


class Code(NamedTuple):
    """The code under test: swarm's own, or a variant that is broken on purpose."""

    table: type[SlotTable] = SlotTable
    announces_first: bool = True


class World(NamedTuple):
    records: tuple[tuple[str, bytes], ...] = ()
    tokens: tuple[tuple[str, int], ...] = ()
    dead: frozenset[int] = frozenset()


class Spot(NamedTuple):
    """A process: the results of its steps, its next step, and the slot that it holds."""

    results: tuple[Any, ...]
    call: Call | None
    holds: str = ""
    note: str = ""


class _NextCall(BaseException):
    """The process has reached a step without a result."""


class _CountsFirst(SlotTable):
    """Count the slots that are held, then take a slot of one's own."""

    def _take(self, slots: Slots, take: Any) -> Lock:
        if len(self.keys_of(slots.name)) >= len(slots.values):
            raise LockHeld(slots.name, "", "all are held")
        lock: Lock = take(f"{slots.name}#own{self.clock.number}")  # type: ignore[attr-defined]
        return lock


class _ReadsThenWrites(SlotTable):
    """Write the record of a slot without comparing it."""

    def _write(self, task: str, judged: bytes | None, holder: str, lock: Lock) -> bool:
        self.store.put(self._key(task), lock.encode())  # type: ignore[attr-defined]
        return True


class _WakesBeforeItRemoves(SlotTable):
    """Wake the process that waits, and only then free the slot."""

    def release(self, task: str, *args: Any, **options: Any) -> Lock:
        self._wake(task)
        with mock.patch.object(_WakesBeforeItRemoves, "_wake", return_value=None):
            return super().release(task, *args, **options)


TWO = Scenario("two take two slots, keep them, release them", (_KEPT, _KEPT))
THREE = Scenario("three take two slots and release them", (_ROUND, _ROUND, _ROUND))
TWO_DIE = Scenario("two take two slots, one is killed", (_ROUND, _ROUND), deaths=1)
THREE_DIE = Scenario("three take two slots, one is killed", (("acquire",),) * 3, deaths=1)
ONE_SLOT = Scenario("two take one slot, one is killed", (_KEPT, _KEPT), slots=1, deaths=1)
WAITING = Scenario("two wait for one slot", (_WAITS, _WAITS), slots=1)
TWO_WAIT = Scenario("two have the slots, one waits", (_ROUND, _ROUND, _WAITS))
LONG = [TWO, THREE, TWO_DIE, THREE_DIE, ONE_SLOT, WAITING, TWO_WAIT]
SHORT = [TWO_DIE, ONE_SLOT, WAITING]
VARIANTS = [
    ("count the slots, then take one", Code(_CountsFirst), THREE),
    ("write a slot without comparing", Code(_ReadsThenWrites), TWO),
    ("look at the slots before announcing", Code(announces_first=False), WAITING),
    ("wake before the slot is free", Code(_WakesBeforeItRemoves), WAITING),
]


def prove(report: Report, *, short: bool) -> None:
    """Add the rows of this part. All variants are searched in the short form, too."""
    for scenario in SHORT if short else LONG:
        seen = explore(scenario)
        figures = f"{seen.states:,} states, {seen.transitions:,} steps, depth {seen.depth}"
        held = seen.complete and not seen.violation
        report.row("slots", scenario.name, figures, held=held, seconds=seen.seconds)
        if not held:
            report.say(seen.violation, *seen.trace)
    for name, code, scenario in VARIANTS:
        seen = explore(scenario, code)
        figures = f"found after {seen.states:,} states in {len(seen.trace)} steps"
        found = bool(seen.violation)
        shown = figures if found else "SURVIVED"
        report.row("slots broken on purpose", name, shown, held=found, seconds=seen.seconds)


def explore(scenario: Scenario, code: Code | None = None) -> Exploration:
    """Visit all states. Stop at the first violation."""
    begun = time.monotonic()
    explorer = _Explorer(scenario, code or Code())
    start = explorer.start()
    came_from: dict[Any, tuple[Any, str]] = {start: (None, "")}
    frontier, transitions, depth, violation = [start], 0, 0, ""
    last: Any = None
    while frontier and not violation:
        following = []
        for state in frontier:
            moves = list(explorer.moves(state))
            violation = explorer.end_violation(state) if not moves else ""
            last = state
            for move, after in moves:
                transitions += 1
                if after in came_from:
                    continue
                came_from[after] = state, move
                following.append(after)
                if violation := explorer.violation(after):
                    last = after
                    break
            if violation:
                break
        frontier = following
        depth += bool(frontier)
    trace = []
    while violation and came_from[last][0] is not None:
        last, move = came_from[last]
        trace.append(move)
    seconds = time.monotonic() - begun
    return Exploration(
        len(came_from),
        transitions,
        depth,
        0,
        seconds,
        not violation,
        violation,
        tuple(reversed(trace)),
    )


class _Explorer:
    def __init__(self, scenario: Scenario, code: Code) -> None:
        self._scenario = scenario
        self._code = code
        self._slots = Slots("n", tuple(map(str, range(1, scenario.slots + 1))))
        self._spots: dict[Any, Spot] = {}

    def start(self) -> Any:
        scripts = self._scenario.scripts
        spots = tuple(self._spot(number, scripts[number], ()) for number in range(len(scripts)))
        return World(), spots, self._scenario.deaths

    def moves(self, state: Any) -> Iterator[tuple[str, Any]]:
        world, spots, deaths = state
        for number, spot in enumerate(spots):
            if spot.call is None and not spot.holds:
                continue
            if deaths:
                killed = Spot((), None, "", "killed")
                after = world._replace(dead=world.dead | {number})
                left = (*spots[:number], killed, *spots[number + 1 :])
                yield f"w{number} is killed", (after, left, deaths - 1)
            if spot.call is None:
                continue
            for result, after in _results(spot.call, world):
                script = self._scenario.scripts[number]
                reached = self._spot(number, script, (*spot.results, result))
                if reached.call is None:
                    reached = reached._replace(results=())
                left = (*spots[:number], reached, *spots[number + 1 :])
                yield f"w{number}: {spot.call} -> {result} {reached.note}", (after, left, deaths)

    def violation(self, state: Any) -> str:
        """Return the promise that is broken in a state, "" if none is."""
        held = [spot.holds for spot in state[1] if spot.holds]
        if len(held) > self._scenario.slots:
            return f"{len(held)} processes hold {self._scenario.slots} slots"
        return "" if len(set(held)) == len(held) else f"two processes hold {held[0]}"

    def end_violation(self, state: Any) -> str:
        """Return the promise that is broken where no process can go on."""
        world, spots, _ = state
        held = sum(bool(spot.holds) for spot in spots)
        newcomer, gets = self._newcomer(world), held < self._scenario.slots
        if bool(newcomer) != gets:
            return f"a newcomer gets {newcomer or 'no slot'} while {held} processes hold one"
        waits = [number for number, spot in enumerate(spots) if spot.call is not None]
        return f"w{waits[0]} waits, and a slot is free" if waits and gets else ""

    def _newcomer(self, world: World) -> str:
        """Let a newcomer alone acquire a slot. Return the slot, "" if there is none."""
        number = len(self._scenario.scripts)
        results: tuple[Any, ...] = ()
        while (spot := self._spot(number, ("acquire",), results)).call is not None:
            result, world = next(_results(spot.call, world))
            results = (*results, result)
        return spot.holds

    def _spot(self, number: int, script: tuple[str, ...], results: tuple[Any, ...]) -> Spot:
        key = number, results
        if key not in self._spots:
            port = _Port(number, results)
            try:
                self._run(script, port)
            except _NextCall:
                pass
            self._spots[key] = Spot(results, port.pending, port.holds, port.note)
        return self._spots[key]

    def _run(self, script: tuple[str, ...], port: _Port) -> None:
        table = self._code.table(_Store(port))  # type: ignore[arg-type]
        identity = {"pid": port.number}
        worker, lock = f"w{port.number}", None
        system = SimpleNamespace(getpid=lambda: port.number, urandom=bytes)
        with (
            mock.patch.object(expiry, "_gone", lambda who, _: port.call("gone", who["pid"])),
            mock.patch.object(slot_waits, "os", system),
            mock.patch.object(slot_waits, "process", SimpleNamespace(identity=lambda: identity)),
            mock.patch.object(slot_waits.Waiter, "announce", self._announce()),
        ):
            for op in script:
                if op in ("acquire", "wait"):
                    try:
                        lock = table.acquire_any(
                            self._slots,
                            worker,
                            None,
                            bound=True,
                            process=identity,
                            wait=float(op == "wait"),
                        )
                    except LockHeld:
                        port.note = "refused"
                        return
                    port.holds = lock.task_id
                elif op == "heartbeat" and lock is not None:
                    lock = table.heartbeat(lock.task_id, worker, lock.token, known=lock)
                elif lock is not None:
                    port.call("work")  # so that the process holds the slot for a step
                    port.holds = ""
                    table.release(lock.task_id, worker, lock.token, known=lock)

    def _announce(self) -> Any:
        announce = slot_waits.Waiter.announce
        if self._code.announces_first:
            return announce

        def late(waiter: slot_waits.Waiter) -> None:
            """Announce nothing before the slots were looked at once more."""
            later = waiter.wait

            def wait(timeout: float) -> None:
                announce(waiter)
                later(timeout)

            if "wait" not in vars(waiter):
                vars(waiter)["wait"] = wait

        return late


class _Port:
    """The steps of one process: results that are known, then the next step."""

    def __init__(self, number: int, results: tuple[Any, ...]) -> None:
        self.number = number
        self.pending: Call | None = None
        self.holds = ""
        self.note = ""
        self._results = results
        self._position = 0

    def call(self, *call: Any) -> Any:
        if self.pending is not None or self._position == len(self._results):
            self.pending = self.pending or call
            raise _NextCall
        self._position += 1
        return self._results[self._position - 1]


class _Clock:
    """A clock that stands still: no lease ends, only processes do."""

    of_one_machine = True

    def __init__(self, number: int) -> None:
        self.number = number

    def now(self) -> float:
        return 0.0

    latest = steady = now

    def stamp(self) -> dict[str, object]:
        return {"at": 0.0}

    def since(self, stamp: object) -> float:
        return 0.0

    def written(self, moment: float) -> str:
        return ""


class _Store:
    """The parts of a store that slots use, each a step."""

    def __init__(self, port: _Port) -> None:
        self.clock = _Clock(port.number)
        self._port = port

    def __getattr__(self, what: str) -> Any:
        return lambda *args: self._port.call(what, *args)

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        return list(self._port.call("keys", namespace, after))

    def advance_tokens(self, namespace: str, past: int) -> None:
        raise AssertionError("no token is ever lost here")


def _results(call: Call, world: World) -> Iterator[tuple[Any, World]]:
    """Yield each result that a step may have, and the world after it."""
    what, *args = call
    records, tokens = dict(world.records), dict(world.tokens)
    if what == "work":
        yield None, world
    elif what == "gone":
        yield args[0] in world.dead, world
    elif what == "read":
        yield records.get(args[0]), world
    elif what == "keys":
        first = f"{args[0]}/"
        found = sorted(key for key in records if key.startswith(first) and key > args[1])
        yield tuple(found), world
    elif what == "token_bound":
        yield tokens.get(args[0], 0), world
    elif what == "next_token":
        tokens[args[0]] = tokens.get(args[0], 0) + 1
        yield tokens[args[0]], world._replace(tokens=tuple(sorted(tokens.items())))
    elif what == "watch":
        if records.get(args[0]) != args[1]:  # else the process sleeps
            yield None, world
    else:
        old = None if what == "create" else args[1]
        changes = what == "put" or records.get(args[0]) == old
        if changes and what == "remove":
            del records[args[0]]
        elif changes:
            records[args[0]] = args[-1]
        yield changes, world._replace(records=tuple(sorted(records.items())))
