"""Real processes on a real filesystem: killed and stopped at random, and before every single call, while wall clocks jump.

What they did is noted outside swarm and checked afterwards; see `history` for what the checker concludes. The kernel decides the
order of events, so a seed does not repeat a run; it tells how one was made. The directory of a run that went wrong is kept.
Linux only.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from proof import every_call
from proof.controls import CONTROLS, caught
from proof.crew import Crew
from proof.history import History
from proof.report import Report
from proof.worker import Plan
from tests.support.servers.server import Server

PART = "real processes"
WORKERS = 16
TASKS = tuple(f"t{number}" for number in range(20))
FALSE_CLOCKS = 4  # one worker of so many
_PACE = {False: 30.0, True: 15.0}  # blows a second, by whether there is a server: it needs time for itself
_STUCK = 60.0  # seconds without an acquisition
_FOLLOWERS = 2  # of the log of a server
_SERVER_BLOWS = 4  # at least


class Chaos(NamedTuple):
    """What a run has seen."""

    history: History
    violations: list[str]
    kills: int
    stops: int
    jumps: int
    removals: int
    pauses: int  # of the server
    restarts: int


def prove(report: Report, *, short: bool, seed: int | None = None) -> None:
    """Adds the rows of this part. In the full form 100,000 acquisitions, in the short one 3,000."""
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    _prove_at_random(report, seed, 3_000 if short else 100_000)
    for operation in every_call.OPERATIONS:
        _prove_at_every_call(report, seed, operation, rounds=1 if short else 4)
    for control, sign in CONTROLS.items():
        answer = caught(control, seed)
        report.row(PART, f"control: {control}", f"caught: {sign}" if answer else f"not caught, seed {seed}", held=bool(answer))


def run(plan: Plan, acquisitions: int, report: Report | None = None, server: Server | None = None) -> Chaos:
    """The chaos at random, until there were so many acquisitions, or something is wrong that shows at once. `server`: the one
    that the plan's store is on, which is then tormented too, and whose log is followed."""
    rng = random.Random(plan.seed)
    crew = Crew(plan, server)
    with crew:
        for number in range(WORKERS):
            crew.start(false_clock=number % FALSE_CLOCKS == 0)
        for number in range(_FOLLOWERS if server else 0):
            crew.follow(f"f{number}")
        done, since = 0, time.monotonic()
        while (done < acquisitions or (server and crew.pauses + crew.restarts < _SERVER_BLOWS)) and not crew.failed:
            time.sleep(rng.expovariate(_PACE[server is not None]))
            crew.torment(rng)
            crew.look()
            before, done = done, crew.acquisitions
            if done > before:
                since = time.monotonic()
                if report:
                    report.progress(f"{PART}: {done:,} of {acquisitions:,} acquisitions")
            elif time.monotonic() > since + _STUCK:
                crew.failed.append(f"nobody could acquire anything for {_STUCK:.0f} seconds")
        kills = crew.kills
    history, violations = crew.examine()
    return Chaos(history, violations, kills, crew.stops, crew.jumps, crew.removals, crew.pauses, crew.restarts)


def _prove_at_random(report: Report, seed: int, acquisitions: int) -> None:
    with kept_if_wrong() as (directory, wrong):
        chaos = run(Plan(directory, seed, TASKS), acquisitions, report)
        wrong.extend(chaos.violations)
        appended = sum(map(len, chaos.history.appended.values()))
        figures = (
            f"{len(chaos.history.holds):,} acquisitions, {appended:,} appends, {chaos.kills:,} kills, {chaos.stops:,} stops, "
            f"{chaos.jumps:,} clock jumps, {chaos.removals:,} locks removed by hand, "
            f"{chaos.history.refused:,} late writes refused"
        )
        what = f"{WORKERS} workers, killed and stopped at random, clock jumps"
        report.row(PART, what, with_wrong(figures, wrong, directory, seed), held=not wrong)


def _prove_at_every_call(report: Report, seed: int, operation: str, rounds: int) -> None:
    with kept_if_wrong() as (directory, wrong):
        calls = {True: 0, False: 0}  # killed, stopped
        acquisitions = 0
        for number, killing in itertools.product(range(rounds), (False, True)):
            outcome = every_call.run(operation, f"{directory}/{number}-{killing}", seed=seed + number, killing=killing)
            calls[killing] = max(calls[killing], outcome.calls)
            acquisitions += outcome.acquisitions
            wrong.extend(outcome.violations)
        figures = (
            f"stopped before each of {calls[False]} calls, killed before each of {calls[True]}, {_times(rounds)}, "
            f"{acquisitions:,} acquisitions meanwhile"
        )
        what = f"{operation}, at every call, among {every_call.RIVALS} others"
        report.row(PART, what, with_wrong(figures, wrong, directory, seed), held=not wrong)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


@contextmanager
def kept_if_wrong() -> Iterator[tuple[str, list[str]]]:
    """A directory for a run, and a list for what is wrong with it."""
    directory = tempfile.mkdtemp(prefix="swarm-chaos-")
    wrong: list[str] = []
    try:
        yield directory, wrong
    finally:
        if not wrong:
            shutil.rmtree(directory)


def with_wrong(figures: str, wrong: list[str], directory: str, seed: int) -> str:
    return (
        f"{figures}; {len(wrong)} violations, seed {seed}, kept in {directory}: {wrong[0]}"
        if wrong
        else f"{figures}, 0 violations"
    )
