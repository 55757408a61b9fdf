"""What attempts cost is added up once for each attempt, and budgets close gates."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from swarm.errors import BadInput, NoTask
from swarm.queue.queue import TaskQueue
from swarm.queue.usage import LOG, Usage, UsageLog, UsageState
from swarm.stores import log_fold
from swarm.stores.contract import Store
from swarm.stores.memory import MemoryStore
from tests.conftest import HandClock

ONE = Usage("claude", "s1", 3, 1000, 200, 0.5)


@pytest.fixture
def usage(store: Store) -> UsageLog:
    return UsageLog(store)


class TestLog:
    def test_usage_is_added_up_by_task_agent_and_day(
        self, usage: UsageLog, store: Store, clock: HandClock
    ) -> None:
        assert usage.total() == Usage() and usage.of_task("a") == Usage()
        assert usage.add("a", 1, "w", ONE)
        assert usage.add("a", 2, "w", Usage("claude", "s2", 1, 10, 20, 0.25))
        clock.pass_time(86400)
        assert usage.add("b", 1, "w", Usage("codex", "", 1, 1, 1))
        for log in (usage, UsageLog(store)):
            assert log.of_task("a") == Usage("claude", "", 4, 1010, 220, 0.75)
            assert log.total() == Usage("", "", 5, 1011, 221, 0.75)
            assert {name: each.turns for name, each in log.totals("agent").items()} == {
                "claude": 4,
                "codex": 1,
            }
            assert list(log.totals("day")) == ["2026-02-02", "2026-02-03"]
            assert list(log.totals()) == ["a", "b"]

    def test_an_attempt_counts_once(self, usage: UsageLog, store: Store) -> None:
        assert usage.add("a", 1, "w", ONE) is True
        assert usage.add("a", 1, "w", ONE) is False
        assert UsageLog(store).add("a", 1, "w2", Usage(cost_usd=7)) is False
        assert usage.add("a", 2, "w", ONE) is True
        assert usage.add("b", 1, "w", ONE) is True
        assert usage.total().cost_usd == 1.5

    def test_the_log_is_read_once_and_continued_from_a_snapshot(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_fold.LogFold, "SNAPSHOT_EVERY", 5)
        log = UsageLog(store)
        for token in range(1, 13):
            log.add("a", token, "w", ONE)
        applied = []
        apply = UsageState.apply

        def counted(state: UsageState, line: bytes) -> bool:
            applied.append(line)
            return apply(state, line)

        monkeypatch.setattr(UsageState, "apply", counted)
        fresh = UsageLog(store)
        assert fresh.total() == Usage("", "", 36, 12000, 2400, 6.0)
        assert 0 < len(applied) < 12
        assert fresh.add("a", 1, "w", ONE) is False, "the snapshot knows which attempts count"

    @pytest.mark.parametrize(
        "wrong",
        [
            {"cost_usd": -1.0},
            {"cost_usd": math.nan},
            {"cost_usd": math.inf},
            {"turns": -1},
            {"turns": True},
            {"input_tokens": 1.5},
            {"agent": None},
        ],
    )
    def test_invalid_usage_is_refused_and_nothing_is_written(
        self, usage: UsageLog, store: Store, wrong: dict[str, Any]
    ) -> None:
        with pytest.raises(BadInput):
            usage.add("a", 1, "w", Usage(**wrong))
        assert store.read_log(LOG)[0] == []

    def test_an_unknown_way_to_add_up_is_refused(self, usage: UsageLog) -> None:
        with pytest.raises(BadInput, match="task or agent or day"):
            usage.totals("week")

    @pytest.mark.parametrize(
        "line",
        [
            b"",
            b"[]",
            b"{",
            b'{"task": "a", "token": 1, "at": "2026-02-02T10:00:00.000Z"}',
            b'{"task": "a", "token": "1", "at": "2026-02-02T10:00:00.000Z", "usage": {}}',
            b'{"task": "a/b", "token": 1, "at": "2026-02-02T10:00:00.000Z", "usage": {}}',
            b'{"task": "a", "token": 1, "at": "soon", "usage": {}}',
            b'{"task": "a", "token": 1, "at": "2026-02-02T10:00:00.000Z", "usage": {"x": 1}}',
            b'{"task": "a", "token": 1, "at": "2026-02-02T10:00:00.000Z", "usage": {"turns": -1}}',
            b'{"task": "a", "token": 1, "at": "2026-02-02T10:00:00.000Z", "usage": 5}',
        ],
    )
    def test_an_invalid_line_changes_nothing(self, line: bytes) -> None:
        state = UsageState()
        before = json.dumps(state.dump())
        assert state.apply(line) is False and json.dumps(state.dump()) == before

    def test_a_damaged_snapshot_is_not_loaded(self) -> None:
        state = UsageState()
        wrong: list[Any] = [[], [{}, [], {}], [{"task": {"a": ["x", "", -1, 0, 0, 0]}}, [], {}]]
        for data in wrong:
            with pytest.raises((ValueError, KeyError, TypeError)):
                state.load(data)


class TestBudgets:
    @pytest.fixture
    def queue(self, store: Store) -> TaskQueue:
        made = TaskQueue(store)
        for name in "abc":
            made.add(name, "x", max_attempts=1)
        return made

    def spend(self, store: Store, task: str, token: int, cost: float) -> None:
        UsageLog(store).add(task, token, "w", Usage("claude", cost_usd=cost))

    def refused(self, queue: TaskQueue, **asked: Any) -> NoTask:
        with pytest.raises(NoTask) as caught:
            queue.claim("w", agent="claude", **asked)
        return caught.value

    def test_a_reached_budget_closes_a_gate_and_uses_no_attempt_up(
        self, queue: TaskQueue, store: Store
    ) -> None:
        self.spend(store, "z", 1, 4.99)
        queue.release("a", "w", queue.claim("w", agent="claude", budget=5.0).token)
        self.spend(store, "z", 2, 0.01)
        error = self.refused(queue, budget=5.0)
        assert (error.why, error.ready_in) == ("gate", None)
        assert "swarm gate open budget" in str(error)
        (gate,) = queue.gates()
        assert (gate.agent, gate.until, gate.budget, gate.spent) == ("budget", "", 5.0, 5.0)
        assert "5.00" in gate.reason and queue.get("a").attempts == 0
        self.refused(queue, budget=5.0)
        assert store.read_log("tasks")[0][-1].count(b"close") == 1
        assert self.refused(queue).why == "gate", "a worker without a budget stops too"
        assert queue.claim("w2").task.id == "a", "a worker without an agent spends nothing"

    def test_a_higher_budget_passes_the_gate(self, queue: TaskQueue, store: Store) -> None:
        self.spend(store, "z", 1, 5.0)
        self.refused(queue, budget=5.0)
        assert queue.claim("w", agent="claude", budget=9.0).task.id == "a"
        self.spend(store, "z", 2, 4.0)
        assert self.refused(queue, budget=9.0).why == "gate"
        assert queue.gates()[0].budget == 9.0

    def test_to_open_the_gate_allows_the_same_amount_once_more(
        self, queue: TaskQueue, store: Store
    ) -> None:
        self.spend(store, "z", 1, 5.5)
        self.refused(queue, budget=5.0)
        assert queue.open_gate("budget", "ada")
        queue.claim("w", agent="claude", budget=5.0)
        self.spend(store, "z", 2, 4.9)
        queue.claim("w", agent="claude", budget=5.0)
        self.spend(store, "z", 3, 0.1)
        assert self.refused(queue, budget=5.0).why == "gate"

    def test_the_budget_of_a_task_stops_this_task_alone(
        self, queue: TaskQueue, store: Store
    ) -> None:
        self.spend(store, "a", 1, 2.0)
        assert queue.claim("w", agent="claude", task_budget=2.0).task.id == "b"
        (gate,) = queue.gates()
        assert (gate.agent, gate.task) == ("task:a", "a")
        assert queue.claim("w", agent="claude").task.id == "c", "also without a budget"
        queue.done("b", "w")
        queue.done("c", "w")
        error = self.refused(queue, task_budget=2.0)
        assert (error.why, error.ready_in) == ("gate", None) and "task:a" in str(error)
        assert self.refused(queue, task_id="a", task_budget=2.0).why == "gate"
        assert queue.get("a").attempts == 0
        queue.open_gate("task:a", "ada")
        assert queue.claim("w", agent="claude", task_budget=2.0).task.id == "a"

    def test_a_named_task_over_its_budget_closes_its_gate(
        self, queue: TaskQueue, store: Store
    ) -> None:
        self.spend(store, "a", 1, 2.0)
        assert self.refused(queue, task_id="a", task_budget=2.0).why == "gate"
        assert queue.claim("w", "a", agent="claude", task_budget=2.5).task.id == "a"

    @pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf, True])
    def test_a_budget_that_is_no_amount_is_refused(self, budget: float) -> None:
        queue = TaskQueue(MemoryStore())
        with pytest.raises(BadInput, match=r"^budget is"):
            queue.claim("w", agent="claude", budget=budget)
        with pytest.raises(BadInput, match="task_budget is"):
            queue.claim("w", agent="claude", task_budget=budget)
