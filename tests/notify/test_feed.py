"""Events follow from the logs: the same for every reader, with ids that stay."""

from __future__ import annotations

import pytest

from swarm.errors import NoTask
from swarm.formats import json_codec
from swarm.locks.presence import NAMESPACE as WORKERS
from swarm.locks.table import LockTable
from swarm.notify import recent
from swarm.notify.event import Event
from swarm.notify.feed import Feed
from swarm.queue.queue import TaskQueue
from swarm.queue.usage import Usage, UsageLog
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from tests.conftest import HandClock


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    made = TaskQueue(store)
    made.add("a", "x", max_attempts=2)
    return made


def events(store: Store) -> list[Event]:
    return Feed(store).read({}).events


def kinds(store: Store) -> list[str]:
    return [event.kind for event in events(store)]


class TestQueue:
    def test_a_question_is_an_event_with_its_words_and_its_number(
        self, store: Store, queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        queue.ask("a", "w", claim.token, "Which database?", options=["x", "y"])
        (event,) = events(store)
        assert (event.kind, event.text, event.task, event.worker) == (
            "questions",
            "Which database?",
            "a",
            "w",
        )
        assert event.facts["question"] == "q1" and event.facts["options"] == ["x", "y"]

    def test_the_text_of_an_agent_is_one_line(self, store: Store, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        queue.ask("a", "w", claim.token, "Which?\n\nAnswer: swarm answer q9 yes")
        StatusLog(store).append("HELP", "w", "b", "help\n- c has failed")
        assert {event.text for event in events(store)} == {
            "Which? Answer: swarm answer q9 yes",
            "help - c has failed",
        }

    def test_a_question_that_the_queue_refuses_is_no_event(
        self, store: Store, queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        for _ in range(2):
            queue.ask("a", "w", claim.token, "Which database?")
        assert kinds(store) == ["questions"]

    def test_only_the_last_failed_attempt_is_a_failure(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.fail("a", "w", queue.claim("w", "a").token, "once")
        assert kinds(store) == []
        queue.fail("a", "w", queue.claim("w", "a").token, "twice")
        failure, end = events(store)
        assert (failure.kind, failure.text, failure.task) == ("failures", "twice", "a")
        assert (end.kind, end.facts["tasks"]) == ("finished", {"failed": 1})

    def test_a_task_whose_last_worker_died_has_failed(
        self, store: Store, queue: TaskQueue, clock: HandClock
    ) -> None:
        for _ in range(2):
            queue.claim("w", "a", ttl=5)
            clock.pass_time(6)
        assert kinds(store) == []
        with pytest.raises(NoTask):
            queue.claim("w")
        failure, _ = events(store)
        assert failure.kind == "failures" and "gone" in failure.text

    def test_a_run_of_a_task_that_recurs_fails_once_for_each_time(
        self, store: Store, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("n", "x", every="1h", max_attempts=2)
        for _ in range(2):
            queue.fail("n", "w", queue.claim("w", "n").token, "no disk")
        assert kinds(store).count("failures") == 1
        clock.pass_time(3600)
        queue.done("n", "w", queue.claim("w", "n").token)
        assert kinds(store).count("failures") == 1

    def test_the_queue_is_finished_once_until_more_is_added(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.add("b", "x", after=["a"])
        queue.fail("a", "w", queue.claim("w", "a").token, "no", final=True)
        assert kinds(store) == ["failures", "finished"]
        queue.cancel("b", "ann")
        assert kinds(store) == ["failures", "finished"]
        queue.add("c", "x")
        queue.done("c", "w", queue.claim("w", "c").token)
        assert kinds(store) == ["failures", "finished", "finished"]

    def test_the_queue_is_not_finished_while_a_question_is_open(
        self, store: Store, queue: TaskQueue
    ) -> None:
        queue.park("a", "w", queue.claim("w", "a").token, "Which?")
        assert kinds(store) == ["questions"]
        queue.answer("q1", "that", "ann")
        queue.done("a", "w", queue.claim("w", "a").token)
        assert kinds(store) == ["questions", "finished"]

    def test_a_gate_is_an_event_when_it_closes_and_not_when_it_stays_closed(
        self, store: Store, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.close_gate("claude", clock.now() + 100, "a limit", "w")
        clock.pass_time(1)
        queue.close_gate("claude", clock.now() + 200, "a limit", "w2")
        (event,) = events(store)
        assert (event.kind, event.text, event.facts["gate"]) == ("limits", "a limit", "claude")

    def test_a_reached_budget_is_an_event(self, store: Store, queue: TaskQueue) -> None:
        UsageLog(store).add("a", 1, "w", Usage(cost_usd=3.0))
        with pytest.raises(NoTask):
            queue.claim("w", agent="claude", budget=2.0)
        (event,) = events(store)
        assert event.kind == "budgets" and event.facts["budget"] == 2.0

    def test_a_line_of_another_program_cannot_make_an_event_that_cannot_be_sent(
        self, store: Store
    ) -> None:
        store.append("tasks", b'{"op": "close", "gate": "x", "budget": NaN, "at": "2026"}')
        store.append("tasks", b'{"op": "ask", "id": "a"}')
        store.append("tasks", b"[]")
        (event,) = events(store)
        assert json_codec.dumps(event.payload("shop"))


class TestStatus:
    @pytest.mark.parametrize(
        ("state", "meta", "kind"),
        [
            ("HELP", {"stalled": "no output for 600 s", "token": 7}, "stalls"),
            ("HELP", {"loops": "make test failed 5 times", "token": 7}, "stalls"),
            ("WAIT", {"held_up": True, "token": 7}, "held"),
            ("WAIT", None, "waits"),
            ("HELP", {"from": "output"}, "waits"),
        ],
    )
    def test_a_record_that_asks_for_a_user_is_an_event(
        self, store: Store, state: str, meta: dict[str, object] | None, kind: str
    ) -> None:
        StatusLog(store).append(state, "w", "a", "look here", meta)
        (event,) = events(store)
        assert (event.kind, event.text, event.task, event.worker) == (kind, "look here", "a", "w")

    def test_other_records_and_the_record_of_a_question_are_no_events(self, store: Store) -> None:
        log = StatusLog(store)
        log.append("START", "w", "a", "WAIT for it")
        log.append("WAIT", "w", "a", "q", {"question": "q1", "token": 1})
        store.append("status", b"HELP not JSON")
        assert events(store) == []


class TestPosition:
    def test_all_readers_find_the_same_events_with_the_same_ids(self, store: Store) -> None:
        log = StatusLog(store)
        first = Feed(store)
        for number in range(5):
            log.append("WAIT", "w", f"t{number}", "x")
            first.read({})
        ids = [event.id for event in first.read({}).events]
        assert ids == [event.id for event in Feed(store).read({}).events]
        assert len(set(ids)) == 5
        news = Feed(store).read({"status": 3, "tasks": 0})
        assert [event.task for event in news.events] == ["t3", "t4"]
        assert news.seen == {"status": 5, "tasks": 0}

    def test_events_that_are_not_kept_are_counted(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(recent, "MAX_EVENTS", 5)
        line = b'{"timestamp": "2026-02-02T10:00:00.000Z", "type": "WAIT", "task_id": "a", "n": %d}'
        for number in range(12):
            store.append("status", line % number)
        news = Feed(store).read({"status": 4})
        assert (len(news.events), news.missed) == (5, 3)

    def test_a_snapshot_keeps_the_events(self, store: Store, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        queue.ask("a", "w", claim.token, "Which database?")
        feed = Feed(store)
        feed._queue.SNAPSHOT_EVERY = 1
        before = feed.read({})
        assert store.cache_get("notify-tasks")
        assert Feed(store).read({}) == before
        assert Feed(store).open_questions() == {"q1": "a"}


class TestIdle:
    def test_ready_tasks_without_a_living_worker_are_idle(
        self, store: Store, queue: TaskQueue, clock: HandClock
    ) -> None:
        feed = Feed(store)
        feed.read({})
        assert not feed.is_idle(), "no worker ever ran"
        table = LockTable(store, WORKERS)
        lock = table.acquire("w", "w", 60)
        assert not feed.is_idle()
        table.release("w", "w", lock.token)
        assert feed.is_idle()
        queue.claim("w", "a", ttl=5)
        feed.read({})
        assert not feed.is_idle(), "a program without a worker has the task"
        clock.pass_time(6)
        assert feed.is_idle()
