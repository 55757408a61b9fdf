"""A Python function does tasks: what it gets, and what becomes of what it returns or raises."""

from __future__ import annotations

import functools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import BadInput, LockLost, StoreError
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.queue.usage import UsageLog
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.workers.function import FunctionAttempt, LimitReached, Work
from swarm.workers.worker import SmartWorker


@pytest.fixture
def store(live_store: Store, isolated_swarm_dir: Path) -> Store:
    """Heartbeats need real time."""
    return live_store


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    return TaskQueue(store)


def attempt(store: Store, function: Any, **options: Any) -> str:
    worker = SmartWorker("w", function, store=store, **{"backoff": 0.0, **options})
    claim = worker.queue.claim("w", agent=worker.agent_name, bound=True, ttl=options.get("ttl"))
    return worker.work_on(claim)


def test_a_function_gets_its_task_and_returns_the_result(store: Store, queue: TaskQueue) -> None:
    got: list[Work] = []

    def agent(work: Work) -> str:
        got.append(work)
        work.lease.check()
        return f"did {work.task.id}: {work.prompt}\n"

    queue.add("a", "Fix it.")
    queue.add("b", "And this.", after=["a"])
    worker = SmartWorker("w", agent, store=store)
    assert worker.run(until_empty=True).done == 2
    assert queue.get("a").reason == "did a: Fix it."
    first = got[0]
    assert (first.worker, first.token, first.previous) == ("w", 1, None)
    assert first.lease.seconds_left > 1
    start = next(record for _, record in StatusLog(store).query("a"))
    assert start["meta"]["agent"] == "agent"


def test_an_exception_fails_the_attempt_and_the_next_one_learns_of_it(
    store: Store, queue: TaskQueue
) -> None:
    prompts: list[str] = []

    def agent(work: Work) -> str | None:
        prompts.append(work.prompt)
        if len(prompts) == 1:
            raise ValueError("no\ndisk")
        return None

    queue.add("a", "Fix it.")
    assert [attempt(store, agent) for _ in range(2)] == ["failed", "done"]
    assert "|   ValueError: no disk" in prompts[1].splitlines()
    assert 'raise ValueError("no' in prompts[1]


def test_a_result_that_is_no_text_fails(store: Store, queue: TaskQueue) -> None:
    queue.add("a", "x")
    assert attempt(store, lambda work: 5) == "failed"
    assert "returned int" in queue.get("a").reason


async def _async(work: Work) -> str:
    return "done"


async def _async_generator(work: Work) -> Any:
    yield "done"


class _AsyncCall:
    async def __call__(self, work: Work) -> str:
        return "done"


@pytest.mark.parametrize(
    "function", [_async, _async_generator, _AsyncCall(), functools.partial(_async)]
)
def test_an_async_function_is_refused(store: Store, function: Any) -> None:
    with pytest.raises(BadInput, match=r"is async.*asyncio\.run"):
        SmartWorker("w", function, store=store)


@pytest.mark.parametrize("agent", [5, 0, {"a": 1}, object()])
def test_an_agent_of_another_type_is_refused(store: Store, agent: Any) -> None:
    with pytest.raises(BadInput, match=f"agent is {type(agent).__name__}"):
        SmartWorker("w", agent, store=store)


def test_a_limit_closes_the_gate_and_costs_no_attempt(store: Store, queue: TaskQueue) -> None:
    until = time.time() + 500

    def my_api(work: Work) -> str:
        raise LimitReached("429 from my API", until)

    queue.add("a", "x", max_attempts=1)
    assert attempt(store, my_api) == "limited"
    (gate,) = queue.gates()
    assert (gate.agent, gate.until) == ("my_api", store.clock.written(until))
    assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)


def test_what_a_function_reports_is_counted(store: Store, queue: TaskQueue) -> None:
    def agent(work: Work) -> str:
        work.add_usage(input_tokens=5, cost_usd=0.5)
        work.add_usage(cost_usd=0.25, turns=1)
        return "ok"

    queue.add("a", "x")
    attempt(store, agent)
    used = UsageLog(store).of_task("a")
    assert (used.agent, used.cost_usd, used.input_tokens, used.turns) == ("agent", 0.75, 5, 1)


def test_a_stopped_worker_ends_a_function_that_checks_its_lease(
    store: Store, queue: TaskQueue
) -> None:
    queue.add("a", "x")
    workers: list[SmartWorker] = []

    def agent(work: Work) -> str:
        workers[0].stop()
        work.lease.check()
        return "not reached"

    workers.append(SmartWorker("w", agent, store=store))
    assert workers[0].run().released == 1
    assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)


def test_a_function_that_ends_by_itself_is_done_even_if_the_worker_stops(
    store: Store, queue: TaskQueue
) -> None:
    queue.add("a", "x")
    workers: list[SmartWorker] = []

    def agent(work: Work) -> str:
        workers[0].stop()
        return "finished"

    workers.append(SmartWorker("w", agent, store=store))
    assert workers[0].run().done == 1


def test_ctrl_c_releases_the_task_and_reaches_the_program(store: Store, queue: TaskQueue) -> None:
    def agent(work: Work) -> str:
        raise KeyboardInterrupt

    queue.add("a", "x")
    with pytest.raises(KeyboardInterrupt):
        attempt(store, agent)
    assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)
    assert not LockTable(store).status("a").exists


def test_a_lost_lease_reaches_the_function_and_its_result_is_refused(
    store: Store, queue: TaskQueue
) -> None:
    losses: list[LockLost] = []

    def agent(work: Work) -> str:
        LockTable(store).break_lock(work.task.id)
        while True:
            try:
                work.lease.check()
            except LockLost as lost:
                losses.append(lost)
                raise
            time.sleep(0.05)

    queue.add("a", "x")
    assert attempt(store, agent, ttl=2) == "lost"
    assert losses and queue.get("a").state != "done"


def test_a_function_that_ignores_the_loss_changes_nothing(store: Store, queue: TaskQueue) -> None:
    def agent(work: Work) -> str:
        LockTable(store).break_lock(work.task.id)
        TaskQueue(store).claim("other")
        return "too late"

    queue.add("a", "x")
    assert attempt(store, agent) == "lost"
    assert (queue.get("a").state, queue.get("a").worker) == ("running", "other")


def test_the_lease_is_renewed_while_a_function_runs(store: Store, queue: TaskQueue) -> None:
    def agent(work: Work) -> str:
        first = queue.holder("a")
        while (now := queue.holder("a")) is not None and now == first:
            time.sleep(0.05)
        return "renewed"

    queue.add("a", "x")
    assert attempt(store, agent, ttl=1) == "done"


def test_the_timeout_is_noticed_at_a_check(store: Store, queue: TaskQueue) -> None:
    def agent(work: Work) -> str:
        while True:
            work.lease.check()

    queue.add("a", "x", timeout=0.2)
    assert attempt(store, agent) == "failed"
    assert queue.get("a").reason == "timed out after 0.2 seconds"


def test_a_store_that_fails_for_a_while_costs_no_result(
    store: Store, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = TaskQueue.done
    failures = [StoreError("no answer"), StoreError("no answer")]

    def flaky(self: TaskQueue, *args: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(self, *args, **options)

    monkeypatch.setattr(TaskQueue, "done", flaky)
    queue.add("a", "x")
    assert attempt(store, lambda work: "ok") == "done"
    assert not failures


def test_own_commands_of_tasks_run_only_if_they_are_allowed(store: Store, queue: TaskQueue) -> None:
    queue.add("a", command="echo ran")
    assert SmartWorker("w", lambda work: "", store=store).run(until_empty=True).done == 0
    worker = SmartWorker("w", lambda work: "", store=store, allow_commands=True)
    assert worker.run(until_empty=True).done == 1
    assert queue.get("a").reason == "ran"


def test_a_second_stop_gives_up_on_a_store_that_does_not_answer(
    store: Store, queue: TaskQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise StoreError("no answer")

    queue.add("a", "x")
    claim = queue.claim("w", bound=True)
    tried = FunctionAttempt(
        queue,
        StatusLog(store),
        claim,
        function=lambda work: "ok",
        results=str(tmp_path),
        timeout=None,
        delay=0.0,
    )
    monkeypatch.setattr(queue, "done", fail)

    def stop_twice() -> None:
        tried.stop()
        tried.stop()

    threading.Timer(0.2, stop_twice).start()
    with pytest.raises(StoreError):
        tried.run()
