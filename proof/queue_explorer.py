"""Go through every interleaving of workers that claim one task, breadth first.

The explorer runs swarm's own `Claims`, `LogFold`, `QueueState` and `directing`. A step
is one append to the queue's log, one read of it, one reading of the clock, or one change
of the lock. The lock is an atomic record here, since `proof.explorer` proves the lock.
Between two steps every process may be next, and time may pass.

A running frame cannot be copied. So the position of a process is its script and the
results of its steps so far. The script is run again with these results, and is stopped
at the first step without a result.

The explorer checks, in each final state and whenever a worker is told that it has the
task:

- A task that is not done has used up as many attempts as workers were told that they have
  it. A process that ends before its `void` is in the store may have used up an attempt,
  too.
- The task has failed only if as many workers were told as it has attempts. The task is
  running only if the worker of its claim was told.
- No worker is told that it has the task while another is at work within its lease.
- No worker is told of a claim that was written while the gate of its agent or of the
  task's label was closed.
- A task whose running claim was halted has used up no attempt by that claim, unless it is
  done.
- The branch has the work of the task once. The queue knows only landings that the branch
  has, and each of them once.
- An answer reaches only the attempt that asked, and of several answers to a question one
  counts.
- Submitted work leaves the line only by a landing or a return with its own token, or by
  a cancel. A task whose work has landed stays done.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple
from unittest import mock

from proof import question_steps
from proof.explorer import Exploration
from proof.queue_world import (
    AGENT,
    LABEL,
    ROUND,
    TASK,
    Call,
    NextCall,
    Port,
    Result,
    World,
    queue_log,
    results_of,
)
from proof.report import Report
from swarm.errors import LockHeld, LockLost, NoQuestion, NoTask, StoreError, WrongState
from swarm.queue import directing, events
from swarm.queue.accepted import ALL, Accepted, Claimant
from swarm.queue.claims import Claim, Claims
from swarm.queue.ending import Ending
from swarm.queue.events import DONE, FAILED, RUNNING, SUBMITTED, event, parse_event
from swarm.queue.gates import Gates, gate_of_label
from swarm.queue.gating import close_gate, open_gate
from swarm.queue.log import QueueLog
from swarm.queue.outcomes import Outcome
from swarm.queue.pauses import halting
from swarm.queue.questions import asking
from swarm.queue.questions.question import ask_fields
from swarm.queue.state import QueueState
from swarm.queue.task_state import TaskState


class Scenario(NamedTuple):
    """Scripts of processes, and what may happen meanwhile.

    A script has the operations `claim`, `work` (a heartbeat), `done`, `fail`,
    `release`, `cancel`, `retry`, `close` (the gate of the workers' agent, for a
    round), `pause` (the tasks with the task's label), `halt` (the same, and the attempts)
    and `resume`. For work that lands: `begin` (raise the task's fence; if the branch has work
    that the queue does not know, say so and stop), `submit`, `land` (move the branch,
    then tell the queue), `move` (die before telling it), `tell` (the queue what the
    branch has) and `return`. For questions: `ask` (and look for the answer), `park` and
    `answer` (the oldest question). After a refused claim, the script goes on with its next
    claim. If a script ends without ending its claim, its worker has died. `rounds`: how
    often time passes. `lease`: the rounds of a lease. `errors`: how often an append
    raises StoreError, before or after it has written its line.
    """

    name: str
    scripts: tuple[tuple[str, ...], ...]
    max_attempts: int = 1
    rounds: int = 1
    errors: int = 0
    lease: int = 1

    @property
    def has_gate(self) -> bool:
        return any(op in script for script in self.scripts for op in _OF_GATES)


_OF_GATES = ("close", "pause", "halt")


class Code(NamedTuple):
    """The code under test: swarm's own, or a variant that is broken on purpose."""

    claims: type[Claims] = Claims
    cancel_frees_the_lock: bool = False
    state: type[QueueState] = QueueState
    looks_at_the_branch: bool = True


class _AttemptsOfSleepersCount(Claims):
    """Release a claim of which its worker was not told, instead of voiding it."""

    def _void(self) -> None:
        for task_id, worker, token in self._untold:
            self._log.append(event("release", id=task_id, worker=worker, token=token))
        self._untold.clear()


class _ErrorsUseAttemptsUp(Claims):
    """Void only claims that are known to be in the log."""

    def _void(self) -> None:
        known = self._log.state.entries[TASK]
        self._untold = [claim for claim in self._untold if claim[2] == known.token]
        super()._void()


class _ToldAfterTheLease(Claims):
    """Do not look at the clock after the claim is in the log."""

    def _check_lease(self, task_id: str, began: float, ttl: float) -> None:
        pass


class _LooksAtTheGateBefore(Claims):
    """Look at the gate before the claim, and leave the agent out of the claim."""

    def _claim(self, entry: TaskState, claimant: Claimant) -> Claim:
        return super()._claim(entry, claimant.replace(accepted=ALL))


class _ClaimsToKnowEveryGate(Claims):
    """Say in each claim that all closings were read."""

    def _asked(self, claimant: Claimant) -> dict[str, Any]:
        return {**super()._asked(claimant), "gates": 99}


class _ForgetsTheLabels(QueueState):
    """Look at the gate only when a worker chooses a task, and not in the fold."""

    def _claim(self, entry: TaskState, record: dict[str, Any]) -> bool:
        gates, self.gates = self.gates, Gates()
        try:
            return super()._claim(entry, record)
        finally:
            self.gates = gates


class _HaltedAttemptsCount(QueueState):
    """Halt claims without a mark that their attempts do not count."""

    def _fail(self, entry: TaskState, record: dict[str, Any]) -> bool:
        entry.halted = ""
        return super()._fail(entry, record)


class _TakesLateLandings(QueueState):
    """Take a landing of older work for the end of the claim that runs."""

    def _landed(self, entry: TaskState, record: dict[str, Any]) -> bool:
        return super()._landed(entry, {**record, "claim": entry.token})


class _ReturnsLandedWork(QueueState):
    """Take a return of work that has landed."""

    def _return(self, entry: TaskState, record: dict[str, Any]) -> bool:
        if entry.landed_token != record["token"]:
            return super()._return(entry, record)
        self._back(entry, record)
        return True


class _LandsTwice(QueueState):
    """Take a landing that is known already."""

    def _landed(self, entry: TaskState, record: dict[str, Any]) -> bool:
        return super()._landed(entry, record) or entry.landed_token == record["token"]


_ROUND = ("claim", "fail")
_TWICE = ("claim", *_ROUND)
SLEEP = Scenario("two claim, each may sleep past its lease", (_ROUND, _ROUND))
DEATH = Scenario("two attempts, one worker dies", (("claim",), (*_ROUND, *_ROUND)), 2, rounds=2)
ERROR = Scenario("an append fails", (_TWICE, _ROUND), errors=1)
ERRORS = Scenario("two appends fail", (_TWICE, _ROUND), errors=2)
CANCEL = Scenario(
    "a task is cancelled and retried",
    (("claim", "work", "fail"), ("cancel", "retry"), ("claim", "done")),
)
LIMIT = Scenario("one closes the gate, one claims", (("claim", "close", "release"), _ROUND), 2)
GATE = Scenario("a sleeper claims at the gate", (("close",), _ROUND), rounds=2, lease=3)
PAUSE = Scenario("one pauses the label, one claims", (("pause",), _ROUND))
RESUME = Scenario("a pause ends, one claims", (("pause", "resume"), _ROUND))
HALT = Scenario("one halts, one claims twice", (("halt", "resume"), _TWICE), 2, rounds=0)
_WORK = ("claim", "begin", "submit")
RETURN = Scenario("one lands, one sends back", (_WORK, _WORK, ("land",), ("return",)), 2, rounds=0)
LANDERS = Scenario("two land", (_WORK, ("land",), ("land",), ("tell",)), rounds=0)
KILLED = Scenario(
    "a lander dies, and the task is cancelled and retried",
    ((*_WORK, *_WORK), ("move", "land"), ("cancel", "retry")),
    rounds=0,
)
_ASKS = ("claim", "ask", "ask")
ANSWERS = Scenario("one asks, two answer", (_ASKS, ("answer",), ("answer",)), rounds=0)
TAKEOVER = Scenario(
    "an asker dies, and the next asks the same", (_ASKS[:2], _ASKS[:2], ("answer",)), 2
)
PARKED = Scenario(
    "a task is parked, and two answer",
    (("claim", "park"), ("claim", "fail"), ("answer",), ("answer",)),
    rounds=0,
)
QUESTIONS = (ANSWERS, TAKEOVER, PARKED)
SHORT = (
    SLEEP,
    DEATH,
    ERROR,
    ERRORS,
    LIMIT,
    GATE,
    PAUSE,
    RESUME,
    HALT,
    RETURN,
    LANDERS,
    KILLED,
    *QUESTIONS,
)
LONG = (
    *SHORT,
    CANCEL,
    TAKEOVER._replace(
        name="the same, and the next looks twice", scripts=(_ASKS[:2], _ASKS, ("answer",))
    ),
    RETURN._replace(name="one lands, one sends back, and workers may sleep", rounds=1),
    LANDERS._replace(name="two land, and an append fails", errors=1),
    LIMIT._replace(name="the same, and both may sleep twice", rounds=2),
    HALT._replace(name="the same, and both may sleep", rounds=1),
    Scenario("a gate is closed, and an append fails", (("close",), _TWICE), errors=1),
    Scenario("two claim twice, and may sleep twice", (_TWICE, _TWICE), rounds=2),
    Scenario("three claim, and may sleep twice", (_ROUND, _ROUND, _ROUND), rounds=2),
    Scenario("three claim, two attempts", (_ROUND, ("claim", "release"), ("claim",)), 2, rounds=2),
)
VARIANTS = (
    ("the attempt of a sleeper counts", Code(_AttemptsOfSleepersCount), SLEEP),
    ("an error of the store uses an attempt up", Code(_ErrorsUseAttemptsUp), ERROR),
    ("a worker is told after its lease", Code(_ToldAfterTheLease), DEATH),
    ("a cancel frees the lock", Code(cancel_frees_the_lock=True), CANCEL),
    ("a worker looks at the gate only before its claim", Code(_LooksAtTheGateBefore), LIMIT),
    ("a sleeper claims to know the gate", Code(_ClaimsToKnowEveryGate), GATE),
    ("the log does not compare the label", Code(state=_ForgetsTheLabels), PAUSE),
    ("a halted attempt counts", Code(state=_HaltedAttemptsCount), HALT),
    ("a late landing of older work counts", Code(state=_TakesLateLandings), RETURN),
    ("landed work is sent back", Code(state=_ReturnsLandedWork), RETURN),
    ("work lands twice", Code(state=_LandsTwice), LANDERS),
    ("a worker does not look at the branch", Code(looks_at_the_branch=False), KILLED),
    (
        "an answer does not compare the token",
        Code(state=question_steps.AnswersReachTheNextAttempt),
        TAKEOVER,
    ),
    ("every answer counts", Code(state=question_steps.EveryAnswerCounts), ANSWERS),
)


def prove(report: Report, *, short: bool) -> None:
    """Add the rows of this part. The short form has fewer scenarios, but all variants."""
    for scenario in SHORT if short else LONG:
        seen = explore(scenario)
        figures = f"{seen.states:,} states, {seen.transitions:,} steps, depth {seen.depth}"
        report.row("claims", scenario.name, figures, held=not seen.violation, seconds=seen.seconds)
        if seen.violation:
            report.say(seen.violation, *seen.trace)
    for name, code, scenario in VARIANTS:
        seen = explore(scenario, code)
        figures = f"found after {seen.states:,} states" if seen.violation else "SURVIVED"
        report.row("claims, broken on purpose", name, figures, held=bool(seen.violation))


def explore(scenario: Scenario, code: Code | None = None) -> Exploration:
    """Visit all states. Stop at the first violation."""
    # A script that is run again must write the same lines.
    with (
        mock.patch.object(events, "nonce", return_value="nonce"),
        mock.patch.object(asking, "this_process", return_value={}),
    ):
        return _explore(_Crew(scenario, code or Code()))


def _explore(crew: _Crew) -> Exploration:
    begun = time.monotonic()
    start = crew.start()
    came_from: dict[_State, tuple[_State, str] | None] = {start: None}
    frontier = [start]
    transitions = depth = 0

    def result(violation: str = "", trace: tuple[str, ...] = ()) -> Exploration:
        seconds = time.monotonic() - begun
        return Exploration(
            len(came_from), transitions, depth, 0, seconds, not violation, violation, trace
        )

    while frontier:
        following: list[_State] = []
        for state in frontier:
            for move, after in crew.moves(state):
                transitions += 1
                if after in came_from:
                    continue
                came_from[after] = state, move
                following.append(after)
                if violation := crew.violation(state, after):
                    return result(violation, tuple(_way(came_from, after)))
        frontier = following
        depth += bool(frontier)
    return result()


def _way(came_from: dict[_State, tuple[_State, str] | None], state: _State) -> list[str]:
    lines = []
    while (before := came_from[state]) is not None:
        state, move = before
        lines.append(move)
    return lines[::-1]


# The processes ------------------------------------------------------------------------


class _Spot(NamedTuple):
    """A position of a process: the results of its steps, its next step (None at the end)
    and its notes.
    """

    results: tuple[Result, ...]
    call: Call | None
    notes: tuple[tuple[Any, ...], ...]

    def tokens(self, what: str) -> list[int]:
        """Return the tokens of the notes of one kind."""
        return [note[1] for note in self.notes if note[0] == what]

    def at_work_until(self) -> int:
        """The end of the lease of a process at work, 0 if it is not at work."""
        until = 0
        for what, *rest in self.notes:
            until = rest[1] if what in ("told", "beat") else 0
        return until


_WORK_OF_ALL = "c0de"


def _handle_line(op: str, log: QueueLog, claims: Claims, worker: str, port: Port) -> None:
    """Land the work that waits, or send it back."""
    waiting = log.read().submitted.get(TASK)
    if waiting is None:
        return
    token = waiting.token
    if op == "return":
        claims.end_submission(Outcome("return", TASK, token, worker))
    elif port.call("move", token) and op == "land":
        claims.end_submission(Outcome("landed", TASK, token, worker))


def _landing_violation(queue: QueueState, line: bytes, world: World) -> str:
    """Apply a line. Return the promise about landings or answers that it broke, "" if it
    broke none.
    """
    record = parse_event(line)
    op, token = record["op"], record.get("token")
    entry = queue.entries.get(TASK)
    before = (entry.state, entry.token, entry.landed_token) if entry else ("", 0, 0)
    was = copy(entry)
    accepted = queue.apply(line)
    if found := question_steps.line_violation(was, accepted, line):
        return found
    entry = queue.entries[TASK]
    state, waiting, known = before
    if op == "landed" and accepted and token not in world.landed:
        return f"the queue took a landing that the branch does not have: {token}"
    if op == "landed" and accepted and known:
        return f"the queue took two landings: {known}, then {token}"
    if op == "landed" and state == RUNNING and accepted and record.get("claim") != waiting:
        return f"a landing with token {token} ended the claim with token {waiting}"
    if known and entry.state != DONE:
        return f"work has landed, and {op} made the task {entry.state}"
    if (
        state == SUBMITTED
        and entry.state != SUBMITTED
        and (op, token)
        not in (
            ("landed", waiting),
            ("return", waiting),
            ("cancel", None),
        )
    ):
        return f"{op} with token {token} ended the submission with token {waiting}"
    return ""


_State = tuple[World, tuple[_Spot, ...]]


class _Crew:
    """The processes of a scenario, and the moves that they can make."""

    def __init__(self, scenario: Scenario, code: Code) -> None:
        self._scenario = scenario
        self._code = code
        self._spots: dict[tuple[int, tuple[Result, ...]], _Spot] = {}

    def start(self) -> _State:
        spec: dict[str, Any] = {"prompt": "x", "max_attempts": self._scenario.max_attempts}
        if self._scenario.has_gate:
            spec["labels"] = [LABEL]
        added = event("add", id=TASK, **spec)
        world = World(0, self._scenario.errors, None, 0, (added,), self._scenario.lease)
        return world, tuple(self._spot(n, ()) for n in range(len(self._scenario.scripts)))

    def moves(self, state: _State) -> Iterator[tuple[str, _State]]:
        world, spots = state
        for number, spot in enumerate(spots):
            if spot.call is None:
                continue
            for result, after in results_of(spot.call, world):
                reached = self._spot(number, (*spot.results, result))
                if reached.call is None:  # only its notes matter from now on
                    reached = _Spot((), None, reached.notes)
                move = f"w{number}: {spot.call} -> {result} {reached.notes[len(spot.notes) :]}"
                yield move, (after, (*spots[:number], reached, *spots[number + 1 :]))
        if world.time < self._scenario.rounds and any(spot.call for spot in spots):
            yield "time passes", (world._replace(time=world.time + 1), spots)

    def violation(self, before: _State, after: _State) -> str:
        """Return the promise that a move has broken, "" if it broke none."""
        world, spots = after
        for number, (old, new) in enumerate(zip(before[1], spots, strict=True)):
            if len(new.tokens("told")) > len(old.tokens("told")):
                if new.tokens("told")[-1] in world.behind:
                    return f"w{number} was told of a claim behind the gate"
                for other, spot in enumerate(spots):
                    if other != number and world.time < spot.at_work_until():
                        return f"w{number} was told while w{other} was at work"
        if found := question_steps.violation(note for spot in spots for note in spot.notes):
            return found
        if any(spot.call for spot in spots):
            return ""
        return self._final_violation(
            world,
            [token for spot in spots for token in spot.tokens("told")],
            [token for spot in spots for token in spot.tokens("not voided")],
        )

    def _final_violation(self, world: World, told: list[int], unknown: list[int]) -> str:
        queue, halted = self._code.state(), set[int]()
        for line in world.lines:
            if violation := _landing_violation(queue, line, world):
                return violation
            halted |= {each.token for each in queue.halted()}
        entry = queue.entries[TASK]
        if len(world.landed) > 1:
            return f"the work of the task landed twice: {world.landed}"
        released = sum(b'"op": "release"' in line or b'"park"' in line for line in world.lines)
        if entry.state == RUNNING and entry.token not in (*told, *unknown):
            return f"the task is running by a claim of which no worker was told: {entry.token}"
        told = [token for token in told if token not in halted]
        directed = any("retry" in script for script in self._scenario.scripts)
        counted = range(len(told), len(told) + len(unknown) + 1)
        if entry.state == FAILED and counted[-1] < entry.max_attempts:
            return f"the task failed, and {len(told)} workers were told that they have it"
        # A late `void` changes nothing about a task that is done.
        is_open = entry.state != DONE and not directed and not released
        attempts = entry.attempts - bool(entry.halted)
        if is_open and attempts not in counted:
            return f"{attempts} attempts are used up, and {len(told)} workers were told"
        return ""

    def _spot(self, number: int, results: tuple[Result, ...]) -> _Spot:
        key = number, results
        if key not in self._spots:
            port = Port(results, has_wall_clock=self._scenario.has_gate)
            try:
                self._run(f"w{number}", self._scenario.scripts[number], port)
            except NextCall:
                pass
            self._spots[key] = _Spot(results, port.pending, tuple(port.notes))
        return self._spots[key]

    def _run(self, worker: str, script: tuple[str, ...], port: Port) -> None:
        """Run a script from its beginning."""
        log = queue_log(port, self._code.state)
        claims = self._code.claims(log)
        accepted = Accepted(None, AGENT) if self._scenario.has_gate else ALL
        claimant = Claimant(worker, float(self._scenario.lease), accepted=accepted)
        token: int | None = None
        for op in script:
            try:
                if op == "claim":
                    claim = claims.named(TASK, claimant)
                    token = claim.token
                    port.notes.append(("told", token, int(claim.lock.holder["ends"])))
                elif op == "cancel":
                    task = directing.cancel(log, TASK, worker, "")
                    if self._code.cancel_frees_the_lock and task.token:
                        log.release_quietly(TASK, task.worker, task.token)
                elif op == "close":
                    close_gate(log, AGENT, log.clock.now() + ROUND, "limit", worker)
                elif op in ("pause", "halt"):
                    gate = gate_of_label(LABEL)
                    close_gate(log, gate, math.inf, "", worker, halt=op == "halt")
                    halting.refuse_heartbeats(log)
                elif op == "resume":
                    open_gate(log, gate_of_label(LABEL), worker)
                elif op == "retry":
                    directing.retry(log, claims, TASK, worker)
                elif op in ("land", "move", "return"):
                    _handle_line(op, log, claims, worker, port)
                elif op == "tell":
                    if landed := port.call("branch"):
                        claims.end_submission(Outcome("landed", TASK, landed, worker))
                elif op == "answer":
                    question_steps.answer(log, worker, port)
                elif token is not None and op == "ask":
                    question_steps.ask(log, worker, token, port)
                elif token is not None and op == "park":
                    port.notes.append(("stopped", token))
                    fields = ask_fields("Which?")
                    claims.end(asking.parking(log, TASK, worker, token, fields, None))
                    token = None
                elif token is not None and op == "begin":
                    landed = port.call("fence", token)
                    if landed > log.current(TASK).landed_token and self._code.looks_at_the_branch:
                        port.notes.append(("stopped", token))
                        outcome = Outcome("landed", TASK, landed, worker, claim=token)
                        claims.end_submission(outcome)
                        token = None
                elif token is not None and op == "work":
                    lock = log.locks.heartbeat(TASK, worker, token)
                    port.notes.append(("beat", token, int(lock.holder["ends"])))
                elif token is not None:
                    port.notes.append(("stopped", token))
                    work = {"work": _WORK_OF_ALL} if op == "submit" else {}
                    claims.end(Ending(op, TASK, worker, token, work))
                    token = None
            except LockLost:
                assert token is not None
                port.notes.append(("stopped", token))
                log.release_quietly(TASK, worker, token)
                token = None
            except (LockHeld, WrongState, StoreError, NoTask, NoQuestion):
                if op == "begin":  # it makes no attempt at work that has landed
                    token = None
        port.notes += [("not voided", token) for _, _, token in claims._untold]
