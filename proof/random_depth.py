"""Long random runs of many processes: where the explorer cannot go to the end, go far.

A seed decides everything. A run that breaks a promise is replayed exactly by its seed, and shrunk: moves are left out as long as
the same promise still breaks, so that what remains is a trace one can read.
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
_SEEDS_A_WORLD = 20  # what was worked out for one seed helps the next, but memory has an end


class Run(NamedTuple):
    """One run: how many moves it made, and if a promise was broken, which, by which moves, and how that reads."""

    moves: int
    violation: str = ""
    schedule: tuple[Move, ...] = ()
    trace: tuple[str, ...] = ()


class Total(NamedTuple):
    """Many runs; `failed` is the first seed that broke a promise, with its run, shrunk."""

    seeds: int
    moves: int
    failed: tuple[int, Run] | None = None


def run_seeds(seeds: range, code: Code | None = None, *, scenario: Scenario = CROWD, length: int = 1500) -> Total:
    """Runs one seed after the other, until one fails."""
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
    """One random run. Somebody is chosen and makes a few moves before the next one is: most of the others sleep."""
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
    """The run with as many moves left out as can be, and how it reads."""
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
    """Makes these moves; those that are not possible any more are left out."""
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
