"""Go through every interleaving of a scenario, breadth first.

So the explorer finds each violation by its shortest trace. In each state of the disk
the explorer also checks that a newcomer, with all other processes dead, can get the
lock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

from proof.monitor import Violation
from proof.simulated_process import Code
from proof.world import Scenario, State, World

_BITS = 28  # of each number in a packed state
_MASK = (1 << _BITS) - 1


class Exploration(NamedTuple):
    """The result of an exploration.

    `complete` says that all states were visited. `trace` leads to the violation, if
    there is one.
    """

    states: int
    transitions: int
    depth: int
    disks: int
    seconds: float
    complete: bool
    violation: str = ""
    trace: tuple[str, ...] = ()


def explore(
    scenario: Scenario,
    code: Code | None = None,
    *,
    limit: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Exploration:
    """Visit all states, or about `limit` of them. Stop at the first violation."""
    begun = time.monotonic()
    world = World(scenario, code)
    came_from = {_pack(world.start): -1}
    frontier = [world.start]
    transitions = depth = 0
    complete = True
    violation, trace = "", []
    collecting = gc.isenabled()
    # there is no garbage here, and searching millions of states for garbage costs more
    # than exploring
    gc.disable()
    try:
        while frontier and complete:
            following = []
            for state in frontier:
                world.check_dead_end(state[0])
                packed = _pack(state)
                for _, after in world.moves(state):
                    transitions += 1
                    after_packed = _pack(after)
                    if after_packed not in came_from:
                        came_from[after_packed] = packed
                        following.append(after)
            frontier = following
            depth += bool(frontier)
            complete = not limit or len(came_from) < limit or not frontier
            if progress:
                progress(len(came_from))
    except Violation as found:
        violation, complete = str(found), False
        trace = _way(world, came_from, _pack(state))
        if found.move:
            trace.append(world.describe(state, found.move))
    finally:
        if collecting:
            gc.enable()
    seconds = time.monotonic() - begun
    return Exploration(
        len(came_from),
        transitions,
        depth,
        len(world.disk),
        seconds,
        complete,
        violation,
        tuple(trace),
    )


def _way(world: World, came_from: dict[int, int], packed: int) -> list[str]:
    """Describe the moves that lead to a state."""
    way = []
    while (before := came_from[packed]) >= 0:
        way.append((before, packed))
        packed = before
    lines = []
    for before, after in reversed(way):
        state = _unpack(before, len(world.start))
        move = next(move for move, reached in world.moves(state) if _pack(reached) == after)
        lines.append(world.describe(state, move))
    return lines


def _pack(state: State) -> int:
    packed = 0
    for number in state:
        packed = packed << _BITS | number
    return packed


def _unpack(packed: int, size: int) -> State:
    return tuple(packed >> _BITS * shift & _MASK for shift in range(size - 1, -1, -1))
