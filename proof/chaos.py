"""Run real processes on a real filesystem. Kill and stop them while wall clocks jump.

Workers are disturbed at random moments, and before every single system call. The
workers note their actions outside swarm; `history` checks the notes afterwards.

- This part checks the promises that `history` lists, and that each control is caught. A
  control is code that looks like swarm and breaks one promise on purpose.
- A run ends after a given number of acquisitions. The kernel decides the order of
  events, so a seed does not repeat a run. The seed only says how the run was made.

The directory of a failed run is kept. Linux only.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
FALSE_CLOCKS = 4  # one worker of this many has a false clock
_PACE = {False: 30.0, True: 15.0}  # disturbances a second, by whether there is a server
_STUCK = 60.0  # seconds without an acquisition
_FOLLOWERS = 2  # followers of the log of a server
_SERVER_DISTURBANCES = 4  # the smallest number of server disturbances


class Chaos(NamedTuple):
    """The figures and violations of one run."""

    history: History
    violations: list[str]
    kills: int
    stops: int
    jumps: int
    removals: int
    pauses: int  # pauses of the server
    restarts: int


def prove(report: Report, *, short: bool, seed: int | None = None) -> None:
    """Add the rows of this part.

    The full form makes 100,000 acquisitions, the short form 1,500.
    """
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    _prove_at_random(report, seed, 1_500 if short else 100_000)
    for operation in every_call.OPERATIONS:
        _prove_at_every_call(report, seed, operation, rounds=1 if short else 4)
    for control, sign in CONTROLS.items():
        answer = caught(control, seed)
        report.row(
            PART,
            f"control: {control}",
            f"caught: {sign}" if answer else f"not caught, seed {seed}",
            held=bool(answer),
        )


def run(
    plan: Plan, acquisitions: int, report: Report | None = None, server: Server | None = None
) -> Chaos:
    """Disturb workers at random until the number of acquisitions is reached, or a
    process fails.

    `server` is the server of the plan's store. The server is disturbed too, and its log
    is followed.
    """
    rng = random.Random(plan.seed)
    crew = Crew(plan, server)
    with crew:
        for number in range(WORKERS):
            crew.start(false_clock=number % FALSE_CLOCKS == 0)
        for number in range(_FOLLOWERS if server else 0):
            crew.follow(f"f{number}")
        done, since = 0, time.monotonic()
        while (done < acquisitions or not _has_tried_all(crew)) and not crew.failed:
            time.sleep(rng.expovariate(_PACE[server is not None]))
            crew.disturb(rng)
            crew.look()
            before, done = done, crew.acquisitions
            if done > before:
                since = time.monotonic()
                if report:
                    report.progress(f"{PART}: {done:,} of {acquisitions:,} acquisitions")
            elif time.monotonic() > since + _STUCK:
                crew.failed.append(f"no worker acquired a lock for {_STUCK:.0f} seconds")
        kills = crew.kills
    history, violations = crew.examine()
    return Chaos(
        history,
        violations,
        kills,
        crew.stops,
        crew.jumps,
        crew.removals,
        crew.pauses,
        crew.restarts,
    )


def _has_tried_all(crew: Crew) -> bool:
    """Return whether each kind of disturbance has happened, also in a short run."""
    if crew.server and crew.pauses + crew.restarts < _SERVER_DISTURBANCES:
        return False
    return min(crew.kills, crew.stops, crew.jumps, crew.removals) > 0


def _prove_at_random(report: Report, seed: int, acquisitions: int) -> None:
    with run_directory() as (directory, wrong):
        chaos = run(Plan(directory, seed, TASKS), acquisitions, report)
        wrong.extend(chaos.violations)
        appended = sum(map(len, chaos.history.appended.values()))
        figures = (
            f"{len(chaos.history.holds):,} acquisitions, {appended:,} appends, {chaos.kills:,} "
            f"kills, {chaos.stops:,} stops, "
            f"{chaos.jumps:,} clock jumps, {chaos.removals:,} locks removed by a person, "
            f"{chaos.history.refused:,} late writes refused"
        )
        what = f"{WORKERS} workers, killed and stopped at random, clock jumps"
        report.row(PART, what, with_violations(figures, wrong, directory, seed), held=not wrong)


def _prove_at_every_call(report: Report, seed: int, operation: str, rounds: int) -> None:
    with run_directory() as (directory, wrong):
        calls = {True: 0, False: 0}  # killed, stopped
        acquisitions = 0
        for number, killing in itertools.product(range(rounds), (False, True)):
            outcome = every_call.run(
                operation, f"{directory}/{number}-{killing}", seed=seed + number, killing=killing
            )
            calls[killing] = max(calls[killing], outcome.calls)
            acquisitions += outcome.acquisitions
            wrong.extend(outcome.violations)
        figures = (
            f"stopped before each of {calls[False]} calls, killed before each of {calls[True]}, "
            f"{_times(rounds)}, "
            f"{acquisitions:,} acquisitions meanwhile"
        )
        what = f"{operation}, at every call, among {every_call.RIVALS} others"
        report.row(PART, what, with_violations(figures, wrong, directory, seed), held=not wrong)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


@contextmanager
def run_directory() -> Iterator[tuple[str, list[str]]]:
    """Yield a directory for a run and a list for its violations.

    Keep the directory if there are violations.
    """
    directory = tempfile.mkdtemp(prefix="swarm-chaos-")
    wrong: list[str] = []
    try:
        yield directory, wrong
    finally:
        if not wrong:
            shutil.rmtree(directory)


def with_violations(figures: str, wrong: list[str], directory: str, seed: int) -> str:
    """Return the text of a row. All violations go to a file in the kept directory."""
    if not wrong:
        return f"{figures}, 0 violations"
    Path(directory, "violations").write_text("\n".join(wrong) + "\n")
    return f"{figures}; {len(wrong)} violations, seed {seed}, kept in {directory}: {wrong[0]}"
