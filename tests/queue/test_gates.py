"""Behind a closed gate no worker of its agent begins a task, and no attempt is used up."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from swarm.errors import BadInput, LockHeld, NoTask, WrongState
from swarm.locks.table import LockTable
from swarm.queue import gating
from swarm.queue.accepted import Accepted, Claimant
from swarm.queue.events import LOG
from swarm.queue.gates import MAX_CLOCK_DIFFERENCE, Gate, Gates
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.stores.contract import Store
from swarm.stores.memory import MemoryStore
from swarm.system.clock import to_iso
from tests.conftest import HandClock

NOON = 1_770_000_000.0


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    made = TaskQueue(store)
    made.add("a", "x", max_attempts=1)
    made.add("b", "x", max_attempts=1)
    return made


def lines(store: Store) -> list[dict[str, Any]]:
    return [json.loads(line) for line in store.read_log(LOG)[0]]


def refused(queue: TaskQueue, **asked: Any) -> NoTask:
    with pytest.raises(NoTask) as caught:
        queue.claim("w", **asked)
    return caught.value


class TestClaiming:
    def test_no_worker_of_an_agent_claims_behind_its_gate(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        gate = queue.close_gate("claude", clock.now() + 90, "usage limit", "w1")
        assert (gate.agent, gate.reason, gate.worker) == ("claude", "usage limit", "w1")
        assert (gate.since, gate.until) == (to_iso(clock.now()), to_iso(clock.now() + 90))
        error = refused(queue, agent="claude")
        assert (error.why, error.ready_in) == ("gate", 90)
        assert "swarm gate open claude" in str(error) and "«usage limit»" in str(error)
        assert refused(queue, task_id="a", agent="claude").why == "gate"
        assert list(LockTable(store).tasks()) == [] and queue.get("a").attempts == 0
        assert [line["op"] for line in lines(store)] == ["add", "add", "close"]
        clock.pass_time(89.9)
        assert refused(queue, agent="claude").why == "gate"
        assert queue.gates() == [gate]
        clock.pass_time(0.1)
        assert queue.claim("w", agent="claude").task.id == "a" and queue.gates() == []

    def test_other_agents_and_workers_without_one_go_on(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.close_gate("claude", clock.now() + 90, "usage limit", "w1")
        assert queue.claim("w1", agent="codex").task.id == "a"
        assert queue.claim("w2").task.id == "b"

    def test_the_gate_of_all_stops_every_worker(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.close_gate("*", clock.now() + 5, "pause", "ada")
        assert [refused(queue, agent=agent).why for agent in ("claude", "")] == ["gate"] * 2
        assert refused(queue, task_id="b").why == "gate"

    def test_a_claim_whose_line_comes_behind_the_gates_line_is_no_claim(
        self, queue: TaskQueue, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The gate is closed after the worker has looked at it and has the lock."""
        claims, other = queue._claims(), TaskQueue(store)
        asked = claims._asked

        def slow(claimant: Claimant) -> dict[str, Any]:
            found = asked(claimant)
            if list(LockTable(store).tasks()):
                monkeypatch.undo()
                other.close_gate("claude", clock.now() + 90, "usage limit", "w1")
            return found

        monkeypatch.setattr(claims, "_asked", slow)
        error = refused(queue, agent="claude")
        assert (error.why, error.ready_in) == ("gate", 90)
        assert [line["op"] for line in lines(store)] == ["add", "add", "close", "claim"]
        assert list(LockTable(store).tasks()) == []
        assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)
        clock.pass_time(90)
        assert queue.claim("w", agent="claude").task.attempts == 1

    def test_a_worker_with_nothing_left_to_do_is_told_so_even_behind_a_gate(
        self, store: Store
    ) -> None:
        queue = TaskQueue(store)
        queue.close_gate("claude", math.inf, "usage limit", "w")
        assert refused(queue, agent="claude").why == "empty"
        queue.add("a", "x", agent="codex")
        assert refused(queue, agent="claude").why == "finished"
        assert "--agent codex" in str(refused(queue, agent="claude"))

    def test_the_task_of_a_dead_worker_stays_behind_the_gate_too(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = TaskQueue(store)
        queue.add("a", "x")
        first = queue.claim("w1", agent="claude", ttl=5)
        queue.close_gate("claude", clock.now() + 60, "usage limit", "w2")
        clock.pass_time(6)
        assert refused(queue, agent="claude").why == "gate"
        assert queue.get("a").attempts == 1
        clock.pass_time(60)
        assert queue.claim("w2", agent="claude").token > first.token

    def test_a_failed_task_can_be_retried_while_all_gates_are_closed(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = TaskQueue(store)
        queue.add("a", "x", max_attempts=1)
        queue.claim("w", ttl=5)
        clock.pass_time(6)
        queue.close_gate("*", math.inf, "pause", "ada")
        assert queue.retry("a", "ada").state == "ready"

    def test_waiting_for_a_task_ends_when_the_gate_opens(self, live_store: Store) -> None:
        queue = TaskQueue(live_store)
        queue.add("a", "x")
        gate = queue.close_gate("claude", live_store.clock.now() + 0.5, "rate limit", "w")
        claim = queue.claim("w", agent="claude", wait=60)
        assert claim.task.since >= gate.until


class TestTime:
    """The wall clock decides, and may jump."""

    def closed(self, store: Store, clock: HandClock) -> TaskQueue:
        queue = TaskQueue(store)
        queue.add("a", "x")
        queue.close_gate("claude", clock.now() + 3600, "usage limit", "w")
        return queue

    def test_a_clock_that_is_set_back_does_not_keep_a_gate_closed(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = self.closed(store, clock)
        clock.jump(-7200)
        assert queue.gates() == []
        assert queue.claim("w", agent="claude").task.id == "a"

    def test_clocks_that_differ_a_little_open_no_gate(self, store: Store, clock: HandClock) -> None:
        queue = self.closed(store, clock)
        clock.jump(-MAX_CLOCK_DIFFERENCE)
        assert refused(queue, agent="claude").why == "gate"

    def test_a_gate_without_an_end_stays_closed_at_any_time(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = TaskQueue(store)
        queue.add("a", "x")
        queue.close_gate("claude", math.inf, "login expired", "w")
        for jump in (-7200, 1e9):
            clock.jump(jump)
            error = refused(queue, agent="claude")
            assert (error.why, error.ready_in) == ("gate", None)

    def test_a_process_that_slept_since_before_the_closing_is_refused(self) -> None:
        """Its time is before that of the gate, as after a clock that was set back; but it
        has not read the gate's line.
        """
        gates = Gates()
        assert gates.close(closing(until=NOON + 3600))
        late = {"agent": "claude", "at": to_iso(NOON - 2 * MAX_CLOCK_DIFFERENCE)}
        assert gates.against("a", late)
        assert not gates.against("a", {**late, "gates": 1})
        assert gates.against("a", {"agent": "claude"}), "a claim without a time"


def closing(name: str = "claude", until: float | None = None, **fields: Any) -> dict[str, Any]:
    ends = {} if until is None else {"until": to_iso(until)}
    return {"gate": name, "at": to_iso(NOON), "worker": "w", **ends, **fields}


class TestClosing:
    def test_closing_extends_and_never_shortens(self, queue: TaskQueue, clock: HandClock) -> None:
        first = queue.close_gate("claude", clock.now() + 60, "one", "w1")
        assert queue.close_gate("claude", clock.now() + 30, "two", "w2") == first
        assert queue.close_gate("claude", None, "three", "w3") == first
        clock.pass_time(10)
        longer = queue.close_gate("claude", clock.now() + 90, "four", "w4")
        assert (longer.until, longer.since) == (to_iso(clock.now() + 90), first.since)
        assert (longer.reason, longer.worker) == ("four", "w4")
        endless = queue.close_gate("claude", math.inf, "five", "w5")
        assert endless.until == ""
        assert queue.close_gate("claude", clock.now() + 1e6, "six", "w6") == endless

    def test_the_log_decides_between_closings_that_were_written_at_once(self) -> None:
        gates = Gates()
        assert gates.close(closing(until=NOON + 60))
        assert not gates.close(closing(until=NOON + 60))
        assert not gates.close(closing(until=NOON + 30))
        assert gates.close(closing(until=NOON + 61))
        assert (gates.number, gates.closings("claude")) == (2, 1)

    def test_a_gate_is_opened_by_hand(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.close_gate("claude", clock.now() + 60, "usage limit", "w")
        assert queue.open_gate("claude", "ada") is True
        assert queue.gates() == [] and queue.claim("w", agent="claude").task.id == "a"
        assert queue.open_gate("claude", "ada") is False
        assert queue.open_gate("never closed", "ada") is False

    def test_a_gate_that_is_over_cannot_be_opened(self, store: Store, clock: HandClock) -> None:
        queue = TaskQueue(store)
        queue.close_gate("claude", clock.now() + 60, "usage limit", "w")
        clock.pass_time(60)
        assert queue.open_gate("claude", "ada") is False

    def test_unknown_ends_are_pauses_that_grow_until_the_agent_did_a_task(
        self, queue: TaskQueue, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(random, "random", lambda: 0.5)

        def length() -> float:
            gate = queue.close_gate("claude", None, "overloaded", "w")
            left = gate.seconds_left(clock.now())
            assert left is not None
            clock.pass_time(left)
            return left

        assert [length() for _ in range(9)] == [
            pytest.approx(min(3600, 30 * 2**count) * 1.125, abs=0.01) for count in range(9)
        ]
        claim = queue.claim("w", agent="claude")
        queue.release("a", "w", claim.token)
        assert length() == pytest.approx(4050, abs=0.01), "a release is no success"
        queue.done("a", "w", queue.claim("w", agent="claude").token)
        assert length() == pytest.approx(33.75, abs=0.01)

    def test_workers_that_meet_one_limit_together_count_as_one_closing(
        self, queue: TaskQueue, store: Store
    ) -> None:
        for number in range(5):
            queue.close_gate("claude", None, "overloaded", f"w{number}")
        assert queue._log().state.gates.closings("claude") == 1
        assert sum(line["op"] == "close" for line in lines(store)) == 1

    def test_a_pause_has_a_random_part(self) -> None:
        found = {gating.pause(0) for _ in range(20)}
        assert len(found) > 1 and all(30 <= length <= 37.5 for length in found)

    def test_an_end_that_is_over_is_an_unknown_end(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        gate = queue.close_gate("claude", clock.now(), "resets now", "w")
        assert gate.until > to_iso(clock.now() + 29)

    @pytest.mark.parametrize("until", [math.nan, 1e300])
    def test_an_end_that_is_no_time_is_refused(
        self, queue: TaskQueue, store: Store, until: float
    ) -> None:
        with pytest.raises(BadInput, match="until is"):
            queue.close_gate("claude", until, "x", "w")
        assert [line["op"] for line in lines(store)] == ["add", "add"]

    @pytest.mark.parametrize("name", ["", "a/b", "-x", "a\nb"])
    def test_a_gate_with_an_invalid_name_is_refused(self, queue: TaskQueue, name: str) -> None:
        with pytest.raises(BadInput, match="not a valid name"):
            queue.close_gate(name, None, "x", "w")
        with pytest.raises(BadInput, match="not a valid name"):
            queue.open_gate(name, "w")

    def test_a_long_reason_is_cut(self, queue: TaskQueue) -> None:
        assert len(queue.close_gate("claude", None, "x" * 10_000, "w").reason) == 500


class TestFold:
    def test_gates_are_the_same_from_a_snapshot(self) -> None:
        state = QueueState()
        records = [
            closing(until=NOON + 60, op="close", reason="limit"),
            closing("budget", op="close", budget=5.0, spent=5.25),
            closing("codex", op="close", until=NOON + 1),
            {"op": "open", "gate": "budget", "at": to_iso(NOON + 1)},
        ]
        for record in records:
            assert state.apply(json.dumps(record).encode())
        fresh = QueueState()
        fresh.load(json.loads(json.dumps(state.dump())))
        assert fresh.dump() == state.dump()
        for gates in (state.gates, fresh.gates):
            assert [gate.agent for gate in gates.closed(NOON)] == ["claude", "codex"]
            assert [gate.agent for gate in gates.closed(NOON + 2)] == ["claude"]
            assert gates.number == 3 and gates.approved("budget") == 5.25
            assert gates.get("claude") == state.gates.closed(NOON)[0]
            assert (gates.closings("claude"), gates.closings("other")) == (1, 0)

    @pytest.mark.parametrize(
        "line",
        [
            b'{"op": "close"}',
            b'{"op": "open"}',
            b'{"op": "close", "gate": 5}',
            b'{"op": "close", "gate": "claude", "until": "soon"}',
            b'{"op": "close", "gate": "claude", "until": 5}',
        ],
    )
    def test_a_damaged_line_closes_no_gate(self, line: bytes) -> None:
        state = QueueState()
        assert state.apply(line) is False and state.damaged == 1
        assert state.gates.number == 0 and state.gates.closed(NOON) == []

    def test_a_closing_without_optional_fields_is_valid(self) -> None:
        gates = Gates()
        assert gates.close({"gate": "claude"})
        assert gates.get("claude") == Gate("claude", "", "", "", "", 1, 0.0, 0.0)
        assert gates.open({"gate": "claude"}) and gates.approved("claude") == 0
        assert gates.close({"gate": "claude", "until": to_iso(NOON)})
        early = {"agent": "claude", "at": to_iso(1e6), "gates": 9}
        assert gates.against("a", early), "a gate of no known time was not closed in the future"

    def test_only_a_higher_budget_passes_the_gate_of_a_budget(self) -> None:
        gates = Gates()
        for name in ("claude", "budget", "task:a"):
            assert gates.close(closing(name, budget=0.5))
        claim = {"agent": "claude", "at": to_iso(NOON), "budget": 0.6, "task_budget": 0.6}
        assert gates.against("b", claim), "the gate of an agent knows no budget"
        assert gates.open({"gate": "claude"})
        assert not gates.against("b", claim) and not gates.against("a", claim)
        assert gates.against("b", {**claim, "budget": 0.5})
        assert gates.against("a", {**claim, "task_budget": 0.5})
        for name in ("budget", "task_budget"):
            assert gates.against("a", {key: claim[key] for key in claim if key != name})

    def test_a_gate_of_a_budget_that_a_user_closed_is_passed_by_no_budget(self) -> None:
        gates = Gates()
        assert gates.close(closing("budget"))
        assert gates.against("a", {"agent": "claude", "at": to_iso(NOON), "budget": 9.0})
        assert not gates.close(closing("budget", budget=9.0))

    def test_a_closed_gate_changes_for_a_higher_budget_alone(self) -> None:
        gates = Gates()
        assert gates.close(closing("budget", budget=0.5, spent=0.5))
        assert not gates.close(closing("budget", budget=0.5, spent=0.7))
        assert gates.close(closing("budget", budget=0.6, spent=0.7))
        assert gates.open({"gate": "budget"}) and gates.approved("budget") == 0.7

    def test_of_several_closed_gates_the_one_that_opens_last_is_named(self) -> None:
        gates = Gates()
        gates.close(closing(until=NOON + 60))
        gates.close(closing("*", until=NOON + 90))
        found = gates.against("a", {"agent": "claude", "at": to_iso(NOON), "gates": 2})
        assert found is not None and found.agent == "*"
        gates.close(closing("claude"))
        found = gates.against("a", {"agent": "claude", "at": to_iso(NOON), "gates": 2})
        assert found is not None and found.agent == "claude"


class TestAgents:
    def test_a_task_for_an_agent_is_claimed_by_workers_with_this_agent_alone(
        self, store: Store
    ) -> None:
        queue = TaskQueue(store)
        queue.add("a", "x", agent="codex")
        queue.add("b", "x")
        assert queue.claim("w1", agent="claude").task.id == "b"
        queue.release("b", "w1")
        assert queue.claim("w1").task.id == "b"
        error = refused(queue)
        assert error.why == "busy"
        queue.done("b", "w1")
        assert str(refused(queue)) == "the tasks that are left need a worker with --agent codex."
        assert refused(queue, commands_only=True).why == "finished"
        assert queue.claim("w2", agent="codex").task.spec.agent == "codex"

    def test_a_named_task_for_another_agent_is_refused_unless_the_worker_has_none(
        self, store: Store
    ) -> None:
        queue = TaskQueue(store)
        queue.add("a", "x", agent="codex")
        with pytest.raises(WrongState, match="needs a worker with --agent codex"):
            queue.claim("w", "a", agent="claude")
        assert queue.claim("w", "a").task.id == "a"

    def test_a_dead_workers_task_for_another_agent_is_left(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = TaskQueue(store)
        queue.add("a", "x", agent="codex")
        queue.claim("w", agent="codex", ttl=5)
        clock.pass_time(6)
        assert refused(queue, agent="claude").why == "finished"
        assert queue.claim("w", agent="codex").task.attempts == 2

    @pytest.mark.parametrize("name", ["budget", "task:a", "a b", "*", "x" * 65])
    def test_a_name_that_no_agent_can_have_is_refused(self, name: str) -> None:
        queue = TaskQueue(MemoryStore())
        with pytest.raises(BadInput):
            queue.add("a", "x", agent=name)
        with pytest.raises(BadInput):
            queue.claim("w", agent=name)

    def test_what_a_worker_leaves_is_said_by_what_it_lacks(self) -> None:
        state = QueueState()
        for fields in ({"agent": "codex"}, {"agent": "gemini"}, {"command": "x"}):
            state.apply(json.dumps({"op": "add", "id": f"t{len(state)}", **fields}).encode())
        tasks = list(state.entries.values())
        assert "--agent codex or gemini." in Accepted(None, "claude").why_left(tasks)
        assert "--allow-commands" in Accepted(False).why_left(tasks[2:])
        assert "a worker with an agent" in Accepted(True).why_left([])

    def test_the_record_of_a_start_names_the_agent(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add("a", "x")
        queue.claim("w", agent="claude")
        (record,) = [record for _, record in queue._log().status.query("a")]
        assert record["meta"]["agent"] == "claude"


def test_the_lock_of_a_task_behind_a_gate_is_not_touched(store: Store, clock: HandClock) -> None:
    queue = TaskQueue(store)
    queue.add("a", "x")
    LockTable(store).acquire("a", "other", 60)
    queue.close_gate("claude", math.inf, "x", "w")
    assert refused(queue, task_id="a", agent="claude").why == "gate"
    queue.open_gate("claude", "w")
    with pytest.raises(LockHeld):
        queue.claim("w", "a", agent="claude")


def test_a_gate_names_its_task() -> None:
    assert [Gate(name, "", "", "", "").task for name in ("claude", "task:a:b")] == ["", "a:b"]
