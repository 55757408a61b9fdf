"""Tasks are removed from the queue: the right ones, and nothing else with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swarm.errors import BadInput, NoTask, StoreError, WrongState
from swarm.inputs import parse_age
from swarm.queue.queue import TaskQueue
from swarm.queue.usage import Usage, UsageLog
from swarm.stores.contract import Store
from swarm.workers.upkeep.results import remove_old
from tests.conftest import HandClock

DAY = 86400


def ended(queue: TaskQueue, task: str, op: str = "done") -> None:
    queue.add(task, "x")
    if op == "cancel":
        queue.cancel(task, "ada")
        return
    claim = queue.claim("w", task)
    if op == "done":
        queue.done(task, "w", claim.token)
    else:
        queue.fail(task, "w", claim.token, "no", final=True)


def test_a_task_that_has_ended_or_not_begun_can_be_removed(store: Store) -> None:
    queue = TaskQueue(store)
    for op in ("done", "fail", "cancel"):
        ended(queue, op, op)
    queue.add("ready", "x")
    for name in ("done", "fail", "cancel", "ready"):
        queue.remove(name, "ada")
    assert queue.tasks() == []
    with pytest.raises(NoTask):
        queue.remove("done", "ada")


def test_a_task_that_a_worker_has_is_not_removed(store: Store) -> None:
    queue = TaskQueue(store)
    for name in ("running", "asking", "submitted", "cancelled"):
        queue.add(name, "x")
        claim = queue.claim("w", name)
        if name == "asking":
            queue.park(name, "w", claim.token, "Which?")
        if name == "submitted":
            queue.submit(name, "w", claim.token, work="c0de")
    queue.cancel("cancelled", "ada")  # its worker still holds the lock
    for name in ("running", "asking", "submitted", "cancelled"):
        with pytest.raises(WrongState, match=name):
            queue.remove(name, "ada")
    assert queue.clear(["done", "failed", "cancelled"], "ada") == []
    assert len(queue.tasks()) == 4


def test_a_task_that_another_open_task_comes_after_stays(store: Store) -> None:
    queue = TaskQueue(store)
    ended(queue, "schema")
    queue.add("api", "x", after=["schema"])
    with pytest.raises(WrongState, match="api comes after it"):
        queue.remove("schema", "ada")
    assert queue.clear(["done"], "ada") == []
    claim = queue.claim("w", "api")
    queue.done("api", "w", claim.token)
    assert queue.clear(["done"], "ada", dry_run=True) == ["schema", "api"]
    assert queue.clear(["done"], "ada") == ["schema", "api"]
    assert queue.tasks() == []


def test_a_task_of_the_same_name_is_another_task_with_larger_tokens(store: Store) -> None:
    queue = TaskQueue(store)
    queue.add("a", "x")
    first = queue.claim("w", "a")
    queue.submit("a", "w", first.token, work="c0de", branch="main")
    queue.landed("a", first.token, "w", commit="c0de", branch="main")
    queue.remove("a", "ada")
    queue.add("a", "something else")
    assert queue.get("a").landed is None and queue.get("a").attempts == 0
    with pytest.raises(WrongState):
        queue.landed("a", first.token, "w", commit="c0de", branch="main")
    assert queue.claim("w", "a").token > first.token


def test_a_retried_task_does_not_wait_for_a_done_task_that_was_removed(store: Store) -> None:
    queue = TaskQueue(store)
    ended(queue, "schema")
    queue.add("api", "x", after=["schema"])
    claim = queue.claim("w", "api")
    queue.fail("api", "w", claim.token, "no", final=True)
    queue.remove("schema", "ada")
    queue.retry("api", "ada")
    assert queue.get("api").state == "ready"
    assert TaskQueue(store).blocked() == {}


def test_only_tasks_that_ended_so_long_ago_are_cleared(store: Store, clock: HandClock) -> None:
    queue = TaskQueue(store)
    ended(queue, "old")
    clock.pass_time(2 * DAY)
    ended(queue, "new")
    ended(queue, "failed", "fail")
    assert queue.clear(["done", "failed"], "ada", older_than=DAY) == ["old"]
    assert [task.id for task in queue.tasks()] == ["new", "failed"]
    with pytest.raises(BadInput, match="running"):
        queue.clear(["running"], "ada")


def test_what_a_removed_task_has_cost_still_counts(store: Store) -> None:
    queue, usage = TaskQueue(store), UsageLog(store)
    ended(queue, "a")
    usage.add("a", 1, "w", Usage("claude", cost_usd=1.5))
    queue.remove("a", "ada")
    assert usage.total().cost_usd == 1.5 and UsageLog(store).of_task("a").cost_usd == 1.5


def test_the_gate_of_a_removed_task_is_gone_with_it(store: Store) -> None:
    queue = TaskQueue(store)
    queue.add("a", "x")
    queue.close_gate("task:a", None, "spent", "w")
    queue.remove("a", "ada")
    queue.add("b", "x")
    assert queue.gates() == [] and queue.claim("w", agent="claude").task.id == "b"


def test_only_old_output_of_tasks_that_have_ended_is_removed(
    store: Store, clock: HandClock, tmp_path: Path
) -> None:
    queue, results = TaskQueue(store), tmp_path / "results"
    results.mkdir()
    ended(queue, "a.b")
    queue.add("running", "x")
    queue.claim("w", "running")
    outside = tmp_path / "outside"
    outside.write_text("mine")
    kept = ["running.1.out", "notes.txt", "a.b.x.out", "a.b.1.log", "gone.2.txt"]
    for name in ("a.b.1.out", "a.b.1.txt", "gone.1.err", *kept[:-1]):
        (results / name).write_text("output")
        os.utime(results / name, (0, 0))
    (results / "gone.2.txt").write_text("it is new")
    (results / "a.b.2.out").symlink_to(outside)
    (results / "a.b.3.out").mkdir()
    kept += ["a.b.2.out", "a.b.3.out"]
    assert remove_old(str(results), queue.state(), clock.now(), DAY).files == 1  # of no task
    clock.pass_time(2 * DAY)
    assert remove_old(str(results), queue.state(), clock.now(), DAY, dry_run=True).files == 2
    found = remove_old(str(results), queue.state(), clock.now(), DAY)
    assert (found.files, found.bytes) == (2, 12)
    assert sorted(path.name for path in results.iterdir()) == sorted(kept)
    assert outside.read_text() == "mine"


def test_new_output_of_a_task_of_another_swarm_stays(store: Store, tmp_path: Path) -> None:
    queue, now = TaskQueue(store), store.clock.now()
    (tmp_path / "theirs.1.out").write_text("output")
    (tmp_path / "mine.1.out").write_text("output")
    remove_old(str(tmp_path), queue.state(), now, 0.0, removed=["mine"])
    assert [path.name for path in tmp_path.glob("*.out")] == ["theirs.1.out"]


def test_a_directory_of_results_that_is_a_link_is_refused(tmp_path: Path, store: Store) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "results").symlink_to(tmp_path / "other")
    with pytest.raises(StoreError):
        remove_old(str(tmp_path / "results"), TaskQueue(store).state(), 0.0, DAY)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 30 * DAY), ("1.5h", 5400), ("2w", 14 * DAY), ("0s", 0)]
)
def test_an_age_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert parse_age(text, "--older-than") == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1 d", "٣d", "1.2.3d", "inf d"])
def test_anything_else_is_no_age(text: str) -> None:
    with pytest.raises(BadInput, match="30d"):
        parse_age(text, "--older-than")
