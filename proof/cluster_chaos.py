"""Real processes on a cluster of three etcd members that fails again and again.

The leader is killed, a member is cut off from the others, or the majority is lost.
Workers and followers are the same as in `server_chaos`; each starts with another
member.

This part checks, beside the promises that `history` lists:

- A member that is cut off, or left alone, gives no answer, whether it leads or not. See
  `witness`.
- Without a majority no worker is told "acquired" or "appended", and commands end with
  exit code 3, in time.
- Workers that were there before an event succeed again after it, by themselves.
- At the end all members have the same log.

Two times are reported for each event. `first` is the time until the first call after
the event succeeded. `every_worker` is the time until a call of each worker succeeded.
Workers are stopped, and wait for each other's locks, so both are upper bounds.

The number and the length of the events are limited. Linux only, as root.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from proof.chaos import TASKS, run_directory, with_violations
from proof.crew import ROOT, Crew
from proof.follower import line_hashes
from proof.history import History, Hold, check_readers
from proof.report import Report
from proof.server_controls import READS_ALONE
from proof.witness import TIMEOUT, Witness, wrong_with
from proof.worker import Plan
from swarm.status.log import LOG
from swarm.stores.registry import open_store
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.etcd_cluster import ClusterApart, cluster_apart

PART = "an etcd cluster"
WORKERS = 9
_LONGER = 1.0  # more seconds without a majority, in which workers give up
_MOMENT = 0.3  # seconds
_PACE = 4.0  # disturbances of workers a second
_STUCK = 30.0  # seconds after which waiting ends
_IN_TIME = 10.0  # seconds for a command, which gives up after TIMEOUT
_COMMANDS = (
    ("lock", "acquire", "asked", "worker"),
    ("lock", "check", "t0"),
    ("log", "append", "WAIT", "worker", "asked"),
    ("log", "tail", "1"),
    ("task", "list"),
)


class Event(NamedTuple):
    """An event of the cluster from `begun` to `ended`, when its cause was removed.

    `there` names the workers that lived from before the event until `settled`.
    """

    what: str
    begun: float
    ended: float
    settled: float
    there: frozenset[str]
    wrong: tuple[str, ...]


class Wait(NamedTuple):
    """The seconds until the first success after an event, and until every worker had a
    success.
    """

    first: float
    every_worker: float


class Commands:
    """Commands of swarm that cannot succeed, started at once.

    The commands must end with exit code 3, in time.
    """

    def __init__(self, plan: Plan) -> None:
        variables = {
            "SWARM_STORE": f"{plan.address}&timeout={TIMEOUT}",
            "SWARM_STATE_DIR": str(plan.state),
        }
        self._begun = time.monotonic()
        self._seconds: dict[str, float] = {}
        self._commands = {
            " ".join(command): subprocess.Popen(
                [sys.executable, "-m", "swarm", *command],
                cwd=ROOT,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for command in _COMMANDS
        }

    @property
    def have_ended(self) -> bool:
        for name, command in self._commands.items():
            if name not in self._seconds and command.poll() is not None:
                self._seconds[name] = time.monotonic() - self._begun
        return len(self._seconds) == len(self._commands)

    def wrong(self) -> list[str]:
        """Return the violations, once all commands have ended."""
        found = []
        for name, command in self._commands.items():
            out, err = command.communicate()
            if (command.returncode, out) != (3, "") or "cannot be reached" not in err:
                found.append(
                    f"swarm {name} ended with {command.returncode} without a majority: {out}{err}"
                )
            if self._seconds[name] > _IN_TIME:
                found.append(f"swarm {name} took {self._seconds[name]:.1f} s without a majority")
        return found


class Stage:
    """A crew at work on a cluster, and the events that happen to the cluster.

    `away` is the length of each event in seconds.
    """

    def __init__(self, cluster: ClusterApart, crew: Crew, away: float) -> None:
        self.cluster = cluster
        self.crew = crew
        self.events: list[Event] = []
        self._away = away
        self._rng = random.Random(crew.plan.seed)

    def kill_the_leader(self) -> None:
        leader = self.cluster.leader()
        leader.kill()
        with self._event("the leader is killed, and comes back with what it had"):
            self.go_on(self._away)
            leader.start(wait=False)

    def cut_off_a_follower(self) -> None:
        self._cut_off(self.cluster.follower(), "a follower is cut off from the other members")

    def cut_off_the_leader(self) -> None:
        self._cut_off(self.cluster.leader(), "the leader is cut off from the other members")

    def lose_the_majority(self) -> None:
        left, *others = self._rng.sample(self.cluster.members, 3)
        with self._witness(left) as witness, ExitStack() as stack:
            for member in others:
                member.pause()
                stack.callback(member.resume)
            time.sleep(0.1)  # until all their threads have stopped
            with self._event(MAJORITY, end=stack.close) as wrong:
                silence = self.crew.now()
                commands = Commands(self.crew.plan)
                witness.ask()
                assert self.go_on(
                    self._away + _LONGER, lambda: witness.has_ended and commands.have_ended
                ), self.crew.failed
                wrong.extend(wrong_with(witness.outcomes(), "the member that is left"))
                wrong.extend(commands.wrong())
                wrong.extend(self._successes_since(silence))

    def go_on(self, seconds: float, until: Callable[[], bool] = lambda: True) -> bool:
        """Stop and kill workers for some seconds and until a condition holds.

        Return whether the condition held in time.
        """
        end = time.monotonic() + seconds
        while not (true := until()) or time.monotonic() < end:
            if time.monotonic() > end + _STUCK or self.crew.failed:
                return true
            time.sleep(self._rng.expovariate(_PACE))
            self.crew.wake()
            if self._rng.random() < 0.15:
                self.crew.replace_one(self._rng)
            elif len(self.crew.awake) > WORKERS // 2:
                self.crew.stop(
                    self._rng.choice(self.crew.awake), self._rng.choice((0.05, 0.1, 0.25))
                )
            self.crew.look()
        return True

    def _cut_off(self, member: EtcdServer, what: str) -> None:
        with self._witness(member) as witness, ExitStack() as stack:
            self.cluster.cut_off(member)
            stack.callback(self.cluster.heal, member)
            with self._event(what, end=stack.close) as wrong:
                witness.ask()
                assert self.go_on(self._away, lambda: witness.has_ended), self.crew.failed
                wrong.extend(wrong_with(witness.outcomes(), "the member that is cut off"))

    @contextmanager
    def _event(self, what: str, end: Callable[[], object] = int) -> Iterator[list[str]]:
        """Record an event.

        Enter the block when the event has begun; `end` removes its cause.
        """
        before, wrong = self.crew.workers, list[str]()
        begun = self.crew.now()
        yield wrong
        end()
        ended = self.crew.now()
        if not self.go_on(
            _MOMENT, lambda: all(member.is_well() for member in self.cluster.members)
        ):
            wrong.append(f"{what}: the members did not form a cluster again")

        def event() -> Event:
            there = frozenset(before & self.crew.workers)
            return Event(what, begun, ended, self.crew.now(), there, tuple(wrong))

        self.go_on(
            self._away / 3, lambda: not idle_after(event(), History.read(self.crew.plan.history))
        )
        self.events.append(event())

    def _witness(self, member: EtcdServer) -> Witness:
        return Witness(member.url("chaos"), self.crew.plan.control)

    def _successes_since(self, since: float) -> list[str]:
        return [
            f"{worker} succeeded without a majority, at {returned:.6f}"
            for worker, called, returned in History.read(self.crew.plan.history).yeses
            if called >= since
        ]


MAJORITY = "two of three members are stopped"
EVENTS = (
    Stage.kill_the_leader,
    Stage.cut_off_a_follower,
    Stage.cut_off_the_leader,
    Stage.lose_the_majority,
)


def prove(report: Report, *, short: bool, seed: int | None = None) -> None:
    """Add the rows of this part. In the full form each event happens several times."""
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    rounds, away = (1, 2.5) if short else (4, 5.0)
    with (
        tempfile.TemporaryDirectory(prefix="swarm-cluster-") as directory,
        cluster_apart(Path(directory)) as cluster,
    ):
        _prove_at_work(report, cluster, seed, rounds, away)
        if not short:
            _prove_clocks_apart(report, cluster, seed)
        for control, happen, sign in CONTROLS:
            answer = caught(control, happen, sign, cluster, seed)
            figures = f"caught: {sign}" if answer else f"not caught, seed {seed}"
            report.row(PART, f"control: {control}", figures, held=bool(answer))


def _prove_at_work(
    report: Report, cluster: ClusterApart, seed: int, rounds: int, away: float
) -> None:
    with run_directory() as (directory, wrong):
        plan = Plan(
            directory,
            seed,
            TASKS,
            server=cluster.url("chaos"),
            timeout=3.0,
            machines=2,
            leases=(0.03, 0.1, 0.3),
            log_share=0.8,
        )
        crew = Crew(plan, cluster)
        with crew:
            stage = _begun(cluster, crew, away)
            for _ in range(rounds):
                for happen in EVENTS:
                    report.progress(
                        f"{PART}: {crew.acquisitions:,} acquisitions, {len(stage.events)} events"
                    )
                    happen(stage)
            kills = crew.kills
        history, found = crew.examine()
        wrong += [*found, *_check_members(cluster)]
        wrong += [
            each for event in stage.events for each in (*event.wrong, *idle_after(event, history))
        ]
        figures = (
            f"{len(history.holds):,} acquisitions, {sum(map(len, history.appended.values())):,} "
            f"appends, {kills:,} kills, "
            f"{crew.stops:,} stops, {len(stage.events)} events, {history.refused:,} late writes "
            f"refused, "
            f"{history.unknown.total():,} outcomes unknown ({history.unknown['append']:,} of "
            f"appends)"
        )
        what = (
            f"{WORKERS} workers and 3 followers of the log, killed and stopped; the cluster "
            f"too, as below"
        )
        report.row(PART, what, with_violations(figures, wrong, directory, seed), held=not wrong)
    for what in dict.fromkeys(event.what for event in stage.events):
        _add_row(report, history, [event for event in stage.events if event.what == what])


def _begun(cluster: ClusterApart, crew: Crew, away: float) -> Stage:
    for _ in range(WORKERS):
        crew.start()
    for number in range(len(cluster.members)):
        crew.follow(f"f{number}")
    stage = Stage(cluster, crew, away)
    stage.go_on(1.0, lambda: crew.acquisitions > 3 * WORKERS)
    return stage


def _add_row(report: Report, history: History, events: list[Event]) -> None:
    waits = [wait_after(event, history) for event in events]
    wrong = [each for event in events for each in (*event.wrong, *idle_after(event, history))]
    firsts = sorted(wait.first for wait in waits)
    span = f"{firsts[0]:.2f} s" if len(firsts) == 1 else f"{firsts[0]:.2f} to {firsts[-1]:.2f} s"
    last = max(wait.every_worker for wait in waits)
    figures = (
        f"{_times(len(events))}: first success after {span}, every worker's after {last:.2f} s"
    )
    length = sum(event.settled - event.begun for event in events)
    report.row(
        PART, events[0].what, "; ".join((figures, *wrong[:1])), held=not wrong, seconds=length
    )


def wait_after(event: Event, history: History) -> Wait:
    """Return how long workers waited for a success.

    Count from the return of the majority if it was lost, otherwise from the beginning
    of the event. Return infinity if no call succeeded before the event had settled.
    """
    late = event.what == MAJORITY
    since = event.ended if late else event.begun
    waits = {worker: float("inf") for worker in event.there}
    first = float("inf")
    for worker, called, returned in history.yeses:
        if since <= (returned if late else called) and returned <= event.settled:
            first = min(first, returned - since)
            if worker in waits:
                waits[worker] = min(waits[worker], returned - since)
    return Wait(
        first, max((wait for wait in waits.values() if wait < float("inf")), default=float("inf"))
    )


def idle_after(event: Event, history: History) -> list[str]:
    """Return a violation for each worker that succeeded before an event and not after
    it.
    """
    before = {worker for worker, _, returned in history.yeses if returned < event.begun}
    after = {
        worker for worker, _, returned in history.yeses if event.ended < returned <= event.settled
    }
    return [
        f"{worker} does not recover after the event"
        for worker in sorted(event.there & before - after)
    ]


def _check_members(cluster: ClusterApart) -> list[str]:
    """Return the violations if members have different logs."""
    logs = {}
    for member in cluster.members:
        store = open_store(member.url("chaos"))
        logs[f"member {member.host}"] = [
            each.encode() for each in line_hashes(line for _, line, _ in store.numbered(LOG))
        ]
        store.close()
    return check_readers(next(iter(logs.values())), logs)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


# Clocks -------------------------------------------------------------------------------

_APART = 1.0  # seconds that each member's clock is ahead of the one before
_LEASE = 4.0


def _prove_clocks_apart(report: Report, cluster: ClusterApart, seed: int) -> None:
    """Check that different clocks of members end leases early by at most the
    difference.

    Tokens still grow, and the counters still refuse late writes.
    """
    furthest = _APART * (len(cluster.members) - 1)
    with run_directory() as (directory, wrong):
        plan = Plan(
            directory,
            seed,
            tuple(f"t{number}" for number in range(60)),
            server=cluster.url("apart"),
            timeout=3.0,
            machines=len(cluster.members),
            clocks_apart=_APART,
            leases=(_LEASE,),
            expire_share=0.6,
            sleep_share=0.0,
        )
        crew = Crew(plan, cluster)
        with crew:
            for _ in range(WORKERS):
                crew.start()
            for _ in range(30):
                time.sleep(1)
                crew.look()
        history, found = crew.examine()
        wrong += [
            each
            for each in found
            if not each.startswith(("two holders at once", "robbed in its lease"))
        ]
        early = too_early(history)
        wrong += [f"a lease ended {seconds:.3f} s early" for seconds in early if seconds > furthest]
        figures = (
            f"{len(history.holds):,} acquisitions, {len(early):,} of them before another's lease "
            f"of {_LEASE:g} s was over, "
            f"by {max(early, default=0):.2f} s at most, {sum(map(len, history.wrote.values())):,} "
            f"updates of counters, none lost"
        )
        what = f"members' clocks are {_APART:g} s apart, as three machines hear them"
        report.row(PART, what, with_violations(figures, wrong, directory, seed), held=not wrong)


def too_early(history: History) -> list[float]:
    """Return by how many seconds each acquisition came before the previous lease was
    over.
    """
    found = []
    before: dict[str, Hold] = {}
    for hold in sorted(history.holds, key=lambda hold: hold.token):
        last = before.get(hold.task)
        if last is not None and hold.returned < last.end:
            found.append(last.end - hold.returned)
        before[hold.task] = hold
    return found


# Controls -----------------------------------------------------------------------------

CONTROLS: tuple[tuple[str, Callable[[Stage], None], str], ...] = (
    (READS_ALONE, Stage.cut_off_a_follower, "the member that is cut off answered"),
    (
        "an append that is sent again as another",
        Stage.lose_the_majority,
        "the log holds records of",
    ),
)
_ROUNDS = 20


def caught(
    control: str, happen: Callable[[Stage], None], sign: str, cluster: ClusterApart, seed: int
) -> str:
    """Return the violation that shows a control, "" if none does.

    The violation depends on chance, so there are several rounds.
    """
    for number in range(_ROUNDS):
        with tempfile.TemporaryDirectory(prefix="swarm-control-") as directory:
            namespace = f"control{uuid.uuid4().hex[:8]}"
            tasks = tuple("abcdefghijklmnop")
            server = cluster.url(namespace)
            plan = Plan(
                directory,
                seed + number,
                tasks,
                control=control,
                server=server,
                timeout=0.4,
                log_share=1.0,
            )
            crew = Crew(plan, cluster)
            with crew:
                stage = _begun(cluster, crew, 1.5)
                happen(stage)
            violations = [*stage.events[0].wrong, *crew.examine()[1]]
            found = [violation for violation in violations if violation.startswith(sign)]
            if found:
                return found[0]
    return ""
