"""While the queue is paused, no claim succeeds; a halt ends the claims that run."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from swarm.errors import BadInput, LockLost, NoTask, WrongState
from swarm.locks.table import LockTable
from swarm.queue.events import LOG
from swarm.queue.pauses.halting import Running
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.stores.contract import Store
from swarm.stores.memory import MemoryStore
from swarm.system.clock import to_iso
from tests.conftest import HandClock


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    made = TaskQueue(store)
    made.add("a", "x", labels=["web", "slow"])
    made.add("b", "x", labels=["api"])
    made.add("c", "x")
    return made


def refused(queue: TaskQueue, **asked: Any) -> NoTask:
    with pytest.raises(NoTask) as caught:
        queue.claim("w", **asked)
    return caught.value


class TestPause:
    def test_no_claim_succeeds_while_all_tasks_are_paused(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        pause = queue.pause("the bill", "ana")
        assert (pause.is_new, pause.gate.worker, pause.gate.until) == (True, "ana", "")
        for asked in ({}, {"agent": "claude"}, {"task_id": "c"}, {"labels": ["api"]}):
            error = refused(queue, **asked)
            assert error.why == "gate" and error.paused is not None
            assert error.paused == {
                "label": None,
                "by": "ana",
                "why": "the bill",
                "since": to_iso(clock.now()),
                "until": None,
                "resume": "swarm resume",
            }
            assert "paused by ana" in str(error) and "«the bill»" in str(error)
        assert queue.resume("bob") is True and queue.resume("bob") is False
        assert queue.claim("w").task.id == "a"

    def test_a_label_pauses_only_its_tasks(self, queue: TaskQueue) -> None:
        queue.pause("no browser", "ana", label="web")
        assert refused(queue, task_id="a").paused
        assert [queue.claim("w").task.id for _ in range(2)] == ["b", "c"]
        error = refused(queue)
        assert (error.why, error.paused and error.paused["label"]) == ("gate", "web")
        assert "swarm resume --label web" in str(error)
        assert queue.resume("ana", label="api") is False
        assert queue.resume("ana", label="web") is True
        assert queue.claim("w").task.id == "a"

    def test_a_task_with_a_paused_label_is_stopped_whatever_other_labels_it_has(
        self, queue: TaskQueue
    ) -> None:
        queue.pause("", "ana", label="slow")
        assert refused(queue, labels=["web"]).paused
        assert refused(queue, task_id="a").paused

    def test_the_task_of_a_dead_worker_is_paused_too(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.claim("w1", "a", ttl=5)
        queue.pause("", "ana", label="web")
        clock.pass_time(6)
        assert refused(queue, labels=["web"]).why in ("gate", "busy")
        assert refused(queue, task_id="a").paused
        assert queue.get("a").attempts == 1

    @pytest.mark.parametrize("label", ["", "web"])
    def test_a_clock_that_is_set_back_does_not_end_a_pause(
        self, queue: TaskQueue, store: Store, clock: HandClock, label: str
    ) -> None:
        queue.pause("", "ana", label=label, until=clock.now() + 3600)
        clock.jump(-86400)
        for each in (queue, TaskQueue(store)):
            assert refused(each, task_id="a").paused
        clock.jump(86400)
        clock.pass_time(3601)
        assert queue.claim("w", "a").task.id == "a"

    def test_no_time_ends_a_pause_without_an_end(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.pause("", "ana")
        for step in (86400 * 4000, -86400 * 8000):
            clock.jump(step)
            assert refused(queue).paused
        assert queue.resume("ana") is True

    def test_a_pause_is_never_made_shorter(self, queue: TaskQueue, clock: HandClock) -> None:
        first = queue.pause("the bill", "ana")
        second = queue.pause("lunch", "bob", until=clock.now() + 60)
        assert (second.is_new, second.gate) == (False, first.gate)
        clock.pass_time(61)
        assert refused(queue).paused
        with pytest.raises(BadInput, match="over"):
            queue.pause("", "ana", until=clock.now() - 1)

    @pytest.mark.parametrize("label", ["two words", "must_stop", "a\nb", "«x»"])
    def test_an_invalid_label_is_refused(self, queue: TaskQueue, label: str) -> None:
        with pytest.raises(BadInput):
            queue.pause("", "ana", label=label)

    def test_a_claim_whose_line_comes_behind_the_pause_is_no_claim(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The pause comes after the worker has looked at the gates and has the lock."""
        claims, other = queue._claims(), TaskQueue(store)
        asked = claims._asked

        def slow(claimant: Any) -> dict[str, Any]:
            found = asked(claimant)
            if list(LockTable(store).tasks()):
                monkeypatch.undo()
                other.pause("", "ana", label="web")
            return found

        monkeypatch.setattr(claims, "_asked", slow)
        assert queue.claim("w").task.id in ("b", "c")
        assert queue.get("a").attempts == 0

    def test_a_worker_that_waits_claims_when_the_pause_ends(self, live_store: Store) -> None:
        queue = TaskQueue(live_store)
        queue.add("a", "x", labels=["web"])
        pause = queue.pause("", "ana", label="web", until=live_store.clock.now() + 0.5)
        assert queue.claim("w", wait=60).task.since >= pause.gate.until


class TestLabels:
    def test_a_worker_with_labels_claims_only_tasks_with_one_of_them(
        self, queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", labels=["api", "docs"])
        assert claim.task.id == "b"
        queue.done("b", "w", claim.token)
        error = refused(queue, labels=["api", "docs"])
        assert error.why == "finished" and "api or docs" in str(error)
        assert queue.claim("w", labels=["slow"]).task.id == "a"
        assert queue.claim("w").task.id == "c"

    def test_a_named_task_without_the_label_is_refused(self, queue: TaskQueue) -> None:
        with pytest.raises(WrongState, match="label"):
            queue.claim("w", "c", labels=["api"])
        assert queue.claim("w", "b", labels=["api"]).task.id == "b"

    def test_the_priority_decides_between_tasks_with_different_labels(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add("low", "x", labels=["a"])
        queue.add("high", "x", labels=["b"], priority=5)
        queue.add("plain", "x", priority=5)
        found = [queue.claim("w", labels=["a", "b"]).task.id for _ in range(2)]
        assert found == ["high", "low"]

    @pytest.mark.parametrize("labels", ["web", ["two words"], [""], [3]])
    def test_invalid_labels_are_refused(self, queue: TaskQueue, labels: Any) -> None:
        with pytest.raises(BadInput):
            queue.claim("w", labels=labels)


class TestHalt:
    def halted(self, queue: TaskQueue, **more: Any) -> tuple[Running, ...]:
        return queue.pause("stop", "ana", halt=True, **more).running

    def test_the_claims_of_paused_tasks_are_halted_and_others_go_on(self, queue: TaskQueue) -> None:
        first, other = queue.claim("w1", "a"), queue.claim("w2", "b")
        assert self.halted(queue, label="web") == (Running("a", "w1", first.token),)
        assert (queue.halted_by(first), queue.halted_by(other)) == ("ana", "")
        assert queue.not_ended([Running("a", "w1", first.token)])

    def test_a_halted_attempt_does_not_count(self, store: Store, clock: HandClock) -> None:
        for end in ("release", "fail", "die"):
            queue = TaskQueue(store)
            queue.add(end, "x", max_attempts=1)
            claim = queue.claim("w", end, ttl=5)
            halted = self.halted(queue)
            if end == "die":
                clock.pass_time(6)
            else:
                getattr(queue, end)(end, "w", claim.token, "it was stopped")
            assert queue.not_ended(halted) == []
            assert queue.get(end).state == "ready", end
            assert queue.resume("ana") is True
            again = queue.claim("w2", end)
            assert again.task.attempts == 1
            queue.done(end, "w2", again.token)

    def test_work_that_is_finished_before_its_end_counts(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        self.halted(queue)
        assert queue.done("a", "w", claim.token).state == "done"
        assert queue.get("a").attempts == 1

    def test_a_claim_that_does_not_look_at_the_log_loses_its_heartbeats(
        self, queue: TaskQueue, store: Store
    ) -> None:
        shell = queue.claim("shell", "a")
        worker = queue.claim("worker", "b", bound=True, looks_for_halt=True)
        self.halted(queue)
        with pytest.raises(LockLost, match="halted"):
            LockTable(store).heartbeat("a", "shell", shell.token)
        LockTable(store).heartbeat("b", "worker", worker.token)

    def test_another_process_tells_the_claims_if_the_one_that_halts_is_killed(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        claim = queue.claim("shell", "a")
        with monkeypatch.context() as killed:
            killed.setattr("swarm.queue.pauses.halting.refuse_heartbeats", lambda log: None)
            self.halted(queue)
        LockTable(store).heartbeat("a", "shell", claim.token)
        assert refused(TaskQueue(store)).paused
        with pytest.raises(LockLost, match="halted"):
            LockTable(store).heartbeat("a", "shell", claim.token)

    def test_a_paused_queue_can_be_halted_later(self, queue: TaskQueue, clock: HandClock) -> None:
        claim = queue.claim("w", "a")
        assert queue.pause("", "bob").running and not queue.halted_by(claim)
        pause = queue.pause("", "ana", halt=True, until=clock.now() + 5)
        assert (pause.is_new, pause.gate.worker, pause.gate.until) == (False, "bob", "")
        assert queue.halted_by(claim) == "ana"

    def test_a_halt_ends_with_its_claims(self, queue: TaskQueue) -> None:
        first = queue.claim("w", "a")
        self.halted(queue)
        queue.release("a", "w", first.token)
        queue.resume("ana")
        again = queue.claim("w", "a")
        assert queue.halted_by(again) == "" and queue.halted_by(first) == ""

    def test_a_parked_question_survives_a_halt(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        queue.ask("a", "w", claim.token, "Which?")
        self.halted(queue)
        queue.park("a", "w", claim.token, "Which?")
        assert (queue.get("a").state, queue.get("a").attempts) == ("asking", 0)
        queue.answer("a", "this one", "ana")
        queue.resume("ana")
        assert queue.claim("w", "a").previous is not None

    def test_a_void_of_a_halted_claim_does_not_count_twice(self) -> None:
        state = QueueState()
        for record in (
            {"op": "add", "id": "a", "prompt": "x", "max_attempts": 1},
            {"op": "claim", "id": "a", "token": 1, "worker": "w"},
            {"op": "close", "gate": "*", "halt": True},
            {"op": "open", "gate": "*"},
            {"op": "claim", "id": "a", "token": 2, "worker": "v"},
            {"op": "void", "id": "a", "token": 1},
        ):
            state.apply(json.dumps(record).encode())
        assert state.entries["a"].attempts == 1

    def test_only_a_pause_halts(self) -> None:
        for gate in ("claude", "budget", "task:a", "label:"):
            state = QueueState()
            for record in (
                {"op": "add", "id": "a", "prompt": "x"},
                {"op": "claim", "id": "a", "token": 1, "worker": "w"},
                {"op": "close", "gate": gate, "halt": True},
            ):
                state.apply(json.dumps(record).encode())
            assert state.halted() == [], gate

    def test_a_snapshot_keeps_labels_and_halts(self, queue: TaskQueue, store: Store) -> None:
        queue.claim("w", "a")
        self.halted(queue, label="web")
        state = QueueState()
        for line in store.read_log(LOG)[0]:
            state.apply(line)
        again = QueueState()
        again.load(json.loads(json.dumps(state.dump())))
        assert [(each.id, each.halted) for each in again.halted()] == [("a", "ana")]
        assert again.entries["a"].labels == ("web", "slow")
        assert again.dump() == state.dump()


def test_a_claim_does_not_look_at_the_tasks_of_other_workers() -> None:
    """Among 20,000 tasks with one label, a worker finds the few with another at once."""
    queue = TaskQueue(MemoryStore())
    state = QueueState()
    for number in range(20_000):
        record = {"op": "add", "id": f"t{number}", "prompt": "x", "labels": ["other"]}
        state.apply(json.dumps(record).encode())
    state.apply(b'{"op": "add", "id": "mine", "prompt": "x", "labels": ["mine"]}')
    looked: list[str] = []

    from swarm.queue.accepted import Accepted

    class Counting(Accepted):
        def fits(self, entry: Any) -> bool:
            looked.append(entry.id)
            return super().fits(entry)

    accepted = Counting(None, None, ["mine"])
    assert [entry.id for entry in state.best(math.inf, (), 8, accepted)] == ["mine"]
    assert len(looked) == 1
    assert queue.counts() == {}
