"""The next attempt learns from the one before, and a person may add a note."""

from __future__ import annotations

import json

import pytest

from swarm.errors import BadInput, WrongState
from swarm.queue.previous import MAX_FEEDBACK_BYTES, MAX_NOTE_BYTES, REOPENED, Previous
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from tests.conftest import HandClock


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    made = TaskQueue(store)
    made.add("a", "x", max_attempts=9)
    return made


class TestAttempts:
    def test_the_first_attempt_has_nothing_before_it(self, queue: TaskQueue) -> None:
        assert queue.claim("w").previous is None

    def test_an_attempt_finds_why_the_one_before_failed(
        self, queue: TaskQueue, store: Store
    ) -> None:
        token = queue.claim("w", agent="claude").token
        queue.fail("a", "w", token, "2 tests failed", feedback="E1\nE2", session="s-1")
        for each in (queue, TaskQueue(store)):
            claim = each.claim("w", agent="codex")
            assert claim.previous == Previous("2 tests failed", "E1\nE2", "", "s-1", "claude")
            each.release("a", "w", claim.token)

    def test_only_the_last_attempt_counts(self, queue: TaskQueue) -> None:
        queue.fail("a", "w", queue.claim("w").token, "one", feedback="1", session="s-1")
        queue.fail("a", "w", queue.claim("w").token, "two", agent="codex")
        assert queue.claim("w").previous == Previous("two", "", "", "", "codex")

    def test_a_release_without_feedback_keeps_what_was_known(self, queue: TaskQueue) -> None:
        queue.fail("a", "w", queue.claim("w").token, "one", feedback="1", session="s-1")
        queue.release("a", "w", queue.claim("w").token, "stopped")
        assert queue.claim("w").previous == Previous("one", "1", "", "s-1", "")

    def test_a_release_for_a_limit_brings_its_session(self, queue: TaskQueue) -> None:
        queue.fail("a", "w", queue.claim("w").token, "one", feedback="1", session="s-1")
        queue.release("a", "w", queue.claim("w", agent="claude").token, "limit", session="s-2")
        assert queue.claim("w").previous == Previous("one", "1", "", "s-2", "claude")
        queue.release("a", "w", None, "denied", feedback="Bash", agent="codex")
        assert queue.claim("w").previous == Previous("denied", "Bash", "", "s-2", "claude")

    def test_the_death_of_a_worker_is_a_reason(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.claim("w1", agent="claude", ttl=5)
        clock.pass_time(6)
        assert queue.claim("w2").previous == Previous("its worker w1 was gone", agent="claude")

    def test_a_voided_claim_changes_nothing(self, queue: TaskQueue) -> None:
        queue.fail("a", "w", queue.claim("w").token, "one")
        queue._claims().undo(queue.claim("w"))
        assert queue.claim("w").previous == Previous("one")

    def test_long_feedback_loses_its_beginning(self, queue: TaskQueue) -> None:
        text = "x" * 3 + "ä" * MAX_FEEDBACK_BYTES + "end"
        queue.fail("a", "w", queue.claim("w").token, "y" * 5000, feedback=text)
        previous = queue.claim("w").previous
        assert previous is not None
        assert len(previous.feedback.encode()) in range(MAX_FEEDBACK_BYTES - 2, 4097)
        assert previous.feedback.startswith("…ä") and previous.feedback.endswith("end")
        assert len(previous.reason) == 500

    @pytest.mark.parametrize("session", ["x" * 201, "a\nb"])
    def test_a_session_that_is_no_identifier_is_left_out(
        self, queue: TaskQueue, session: str
    ) -> None:
        queue.fail("a", "w", queue.claim("w").token, "one", session=session)
        assert queue.claim("w").previous == Previous("one")


class TestNotes:
    def test_a_note_reaches_every_attempt_until_the_task_is_done(self, queue: TaskQueue) -> None:
        queue.fail("a", "w", queue.claim("w").token, "one", final=True, feedback="1")
        queue.retry("a", "ada", "Use the index")
        assert queue.claim("w").previous == Previous("one", "1", "Use the index")
        queue.fail("a", "w", None, "two", final=True)
        queue.retry("a", "ada")
        assert queue.claim("w").previous == Previous("two", "", "Use the index")
        queue.done("a", "w")
        assert queue.get("a").previous == Previous()

    @pytest.mark.parametrize("note", ["", "Use the index"])
    def test_a_retry_and_its_note_are_in_the_history(
        self, queue: TaskQueue, store: Store, note: str
    ) -> None:
        queue.fail("a", "w", queue.claim("w").token, "one", final=True)
        queue.retry("a", "ada", note)
        with pytest.raises(WrongState):
            queue.retry("a", "ada", note)
        *_, failed, retried = (record for _, record in StatusLog(store).query("a"))
        assert failed["state"] == "ERROR"
        assert (retried["state"], retried["worker"]) == ("SKIP", "ada")
        assert retried["message"].endswith(f"again: {note}" if note else "again")

    def test_a_note_that_is_too_long_changes_nothing(self, queue: TaskQueue) -> None:
        queue.cancel("a", "ada")
        with pytest.raises(BadInput, match="note has more than"):
            queue.retry("a", "ada", "ä" * (MAX_NOTE_BYTES // 2 + 1))
        assert queue.get("a").state == "cancelled"
        queue.retry("a", "ada", "x" * MAX_NOTE_BYTES)
        assert queue.claim("w").previous == Previous(note="x" * MAX_NOTE_BYTES)


class TestReopening:
    def done(self, queue: TaskQueue, task: str, session: str = "") -> None:
        claim = queue.claim("w", task, agent="claude")
        queue.done(task, "w", claim.token, f"did {task}", session=session)

    def test_a_done_task_is_ready_again_with_a_note_and_its_session(
        self, queue: TaskQueue, store: Store
    ) -> None:
        self.done(queue, "a", session="s-1")
        task = queue.reopen("a", "ada", "The page is missing")
        assert (task.state, task.attempts) == ("ready", 0)
        before = Previous(REOPENED, "did a", "The page is missing", "s-1", "claude")
        assert queue.claim("w2").previous == before
        records = [record for _, record in StatusLog(store).query("a")]
        assert ("SKIP", "reopened: The page is missing") in [
            (record["state"], record.get("message")) for record in records
        ]

    @pytest.mark.parametrize("state", ["ready", "running", "failed", "cancelled"])
    def test_only_a_done_task_can_be_reopened(self, queue: TaskQueue, state: str) -> None:
        if state in ("running", "failed"):
            queue.claim("w")
        if state == "failed":
            queue.fail("a", "w", final=True)
        if state == "cancelled":
            queue.cancel("a", "ada")
        with pytest.raises(WrongState, match=f"a is {state}: only a task that is done"):
            queue.reopen("a", "ada")
        assert queue.get("a").state == state

    def test_the_worker_of_the_old_claim_cannot_end_it_again(self, queue: TaskQueue) -> None:
        token = queue.claim("w").token
        queue.done("a", "w", token)
        queue.reopen("a", "ada")
        with pytest.raises(Exception, match="no claim on a"):
            queue.done("a", "w", token)
        assert queue.get("a").state == "ready"

    def test_tasks_after_it_wait_again_unless_they_run_or_are_done(
        self, queue: TaskQueue, store: Store
    ) -> None:
        for name in ("done", "running", "ready", "failed"):
            queue.add(name, "x", after=["a"], max_attempts=2)
        self.done(queue, "a")
        self.done(queue, "done")
        queue.claim("w", "running")
        queue.claim("w", "failed")
        queue.fail("failed", "w", final=True)
        queue.reopen("a", "ada")
        states = {task.id: task.state for task in queue.tasks()}
        assert states == {
            "a": "ready",
            "done": "done",
            "running": "running",
            "ready": "waiting",
            "failed": "failed",
        }
        assert states == {task.id: task.state for task in TaskQueue(store).tasks()}
        queue.retry("failed", "ada")
        queue.fail("running", "w")
        assert [queue.get(name).state for name in ("failed", "running")] == ["waiting"] * 2
        self.done(queue, "a")
        assert queue.counts() == {"ready": 3, "done": 2}

    def test_the_task_of_a_dead_worker_is_taken_over_although_it_would_wait(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("b", "x", after=["a"])
        self.done(queue, "a")
        queue.claim("w", "b", ttl=5)
        queue.reopen("a", "ada")
        clock.pass_time(6)
        assert queue.claim("w2", "b").task.attempts == 2

    def test_a_delayed_task_does_not_pass_a_reopened_one(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("b", "x", after=["a"])
        self.done(queue, "a")
        queue.claim("w", "b")
        queue.fail("b", "w", delay=5)
        queue.reopen("a", "ada")
        clock.pass_time(6)
        assert queue.claim("w").task.id == "a"
        with pytest.raises(Exception, match="no task is free"):
            queue.claim("w2")
        queue.done("a", "w")
        assert queue.claim("w2").task.id == "b"

    def test_a_chain_can_be_reopened_from_its_end_or_its_beginning(self, queue: TaskQueue) -> None:
        queue.add("b", "x", after=["a"])
        for order in ("ab", "ba"):
            for name in "ab":
                self.done(queue, name)
            for name in order:
                queue.reopen(name, "ada")
            assert [queue.get(name).state for name in "ab"] == ["ready", "waiting"]

    def test_a_snapshot_does_not_link_a_done_task_to_a_reopened_one(self) -> None:
        """`b` was done after `a`, which is reopened and fails: `b` is done, and nothing
        is blocked.
        """
        state = QueueState()
        events = [
            {"op": "add", "id": "a", "prompt": "x"},
            {"op": "add", "id": "b", "prompt": "x", "after": ["a"]},
            {"op": "claim", "id": "a", "token": 1},
            {"op": "done", "id": "a", "token": 1},
            {"op": "claim", "id": "b", "token": 1},
            {"op": "reopen", "id": "a"},
            {"op": "done", "id": "b", "token": 1},
            {"op": "reopen", "id": "b"},
            {"op": "cancel", "id": "b"},
            {"op": "retry", "id": "b"},
        ]
        for count, record in enumerate(events, 1):
            assert state.apply(json.dumps(record).encode()), record
            fresh = QueueState()
            fresh.load(json.loads(json.dumps(state.dump())))
            for each in (state, fresh):
                counted = [entry.open_dependencies for entry in each.entries.values()]
                assert counted in ([0], [0, 0], [0, 1]), (count, counted)
            assert fresh.counts() == state.counts(), count
        assert state.counts() == {"ready": 1, "waiting": 1}
