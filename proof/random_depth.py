"""Long random runs of many processes, for depths that the explorer cannot reach.

A seed decides everything, so its seed replays a failing run exactly. A failing run is
shrunk: moves are left out while the run still breaks a promise. The moves that are left
form a readable trace. The number of seeds, and of moves in a run, is limited.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from proof.monitor import PERSON, Violation
from proof.simulated_process import Code, Rules
from proof.world import Move, Scenario, State, World

_CYCLE = ["acquire", "heartbeat", "heartbeat", "release"]
CROWD = Scenario(
    "8 processes",
    scripts=[_CYCLE * 8] * 4 + [["acquire", "release"] * 12] * 3 + [["collect_garbage"] * 8],
    person=("rm", "write", "rm", "edit", "empty", "rm", "write"),
    deaths=6,
    rules=Rules(scratches=40),
)
_SEEDS_A_WORLD = 20  # a world remembers results that help the next seed, but memory is limited


class Run(NamedTuple):
    """One run: its number of moves and, if it broke a promise, the violation, the moves
    and a trace.
    """

    moves: int
    violation: str = ""
    schedule: tuple[Move, ...] = ()
    trace: tuple[str, ...] = ()


class Total(NamedTuple):
    """Many runs.

    `failed` is the first seed that broke a promise, with its shrunk run.
    """

    seeds: int
    moves: int
    failed: tuple[int, Run] | None = None


def run_seeds(
    seeds: range, code: Code | None = None, *, scenario: Scenario = CROWD, length: int = 1500
) -> Total:
    """Run one seed after the other until one fails."""
    world = World(scenario, code)
    moves = 0
    for count, seed in enumerate(seeds, 1):
        if count % _SEEDS_A_WORLD == 0:
            world = World(scenario, code)
        run = play(world, seed, length)
        moves += run.moves
        if run.violation:
            return Total(count, moves, (seed, shrink(world, run)))
    return Total(len(seeds), moves)


def play(world: World, seed: int, length: int) -> Run:
    """Play one random run.

    An actor makes several moves before another actor is chosen, so most actors sleep
    long.
    """
    rng = random.Random(seed)
    state: State = world.start
    schedule: list[Move] = []
    actors = [*range(len(state) - 3), PERSON]
    who = 0
    try:
        while len(schedule) < length and any(world.choices(state, actor) for actor in actors):
            if rng.random() < 0.25:
                who = rng.choice(actors)
            choices = world.choices(state, who)
            if not choices or (who == PERSON and rng.random() < 0.9):
                who = rng.choice(actors)
                continue
            choice = rng.randrange(choices)
            if world.is_death(state, (who, choice)) and rng.random() < 0.98:
                continue
            schedule.append((who, choice))
            state = world.apply(state, (who, choice))
            if rng.random() < 0.02:
                world.check_dead_end(state[0])
        world.check_dead_end(state[0])
    except Violation as violation:
        return Run(len(schedule), str(violation), tuple(schedule))
    return Run(len(schedule))


def shrink(world: World, run: Run) -> Run:
    """Return the run with as many moves left out as possible, and its trace."""
    schedule = list(run.schedule)
    chunk = len(schedule)
    while chunk:
        at = 0
        while at < len(schedule):
            shorter = schedule[:at] + schedule[at + chunk :]
            done = _replay(world, shorter)
            if done.violation:
                schedule = list(done.schedule)
            else:
                at += chunk
        chunk //= 2
    return _replay(world, schedule)._replace(moves=run.moves)


def _replay(world: World, schedule: list[Move]) -> Run:
    """Make these moves, but skip moves that have become impossible."""
    state: State = world.start
    made, lines = [], []
    try:
        for move in schedule:
            if move[1] < world.choices(state, move[0]):
                made.append(move)
                lines.append(world.describe(state, move))
                state = world.apply(state, move)
        world.check_dead_end(state[0])
    except Violation as violation:
        return Run(len(made), str(violation), tuple(made), tuple(lines))
    return Run(len(made))
