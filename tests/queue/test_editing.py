"""Changing the fields of a task that no worker has."""

from __future__ import annotations

from typing import Any

import pytest

from swarm.errors import BadInput, NoTask, WrongState
from swarm.queue.events import LOG, event
from swarm.queue.fields.edited import EDITABLE
from swarm.queue.log import QueueLog
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.queue.task import TASK_FIELDS
from swarm.status.events import is_informational
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from swarm.system.clock import to_iso
from tests.conftest import HandClock
from tests.support.processes import race


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    made = TaskQueue(store)
    made.add("a", "x", labels=["ui"], priority=1)
    return made


def test_every_field_with_an_option_can_be_changed_and_reset(queue: TaskQueue) -> None:
    queue.add("b", "x")
    changed: dict[str, Any] = {
        "prompt": "y",
        "command": ["make"],
        "priority": 7,
        "after": ["b"],
        "max_attempts": 9,
        "timeout": 5.5,
        "meta": {"k": 1},
        "agent": "claude",
        "check": ["make test"],
        "land": "main",
        "review": "any",
        "require_changes": True,
        "labels": ["web"],
        "not_before": "2030-01-01T00:00:00.000Z",
        "every": "1h",
        "slots": {"build": 2},
        "locks": ["migrations"],
    }
    assert set(changed) == set(EDITABLE)
    assert {field.name for field in TASK_FIELDS if field.option} <= set(EDITABLE)
    before = queue.get("b").spec
    found = queue.edit("a", "ada", changed).fields()
    assert {name: found[name] for name in changed} == changed
    queue.edit("a", "ada", dict.fromkeys(set(changed) - {"prompt"}))
    after = queue.edit("a", "ada", prompt="x").spec
    assert after.replace(id="b") == before


def test_an_edit_changes_what_the_queue_decides_by(queue: TaskQueue) -> None:
    queue.add("b", "x", priority=5)
    queue.edit("a", "ada", priority=9)
    assert queue.claim("w").task.id == "a"
    queue.add("c", "x", priority=6)
    queue.edit("c", "ada", agent="claude")
    assert queue.claim("w").task.id == "b"
    assert queue.claim("w", agent="claude").task.id == "c"


def test_a_ready_task_is_listed_by_its_new_labels(queue: TaskQueue) -> None:
    queue.add("b", "x", labels=["ui"])
    queue.edit("a", "ada", labels=["web"])
    with pytest.raises(NoTask):
        queue.claim("w", labels=["api"])
    assert queue.claim("w", labels=["web"]).task.id == "a"
    assert queue.claim("w", labels=["ui"]).task.id == "b"


def test_a_task_can_come_after_another_one_later(queue: TaskQueue) -> None:
    queue.add("b", "x")
    assert queue.edit("a", "ada", after=["b"]).state == "waiting"
    assert queue.claim("w").task.id == "b"
    with pytest.raises(NoTask):
        queue.claim("w")
    assert queue.edit("a", "ada", after=None).state == "ready"
    queue.done("b", "w")
    assert queue.claim("w").task.id == "a"


def test_tasks_that_would_wait_for_each_other_are_refused(queue: TaskQueue, store: Store) -> None:
    queue.add("b", "x", after=["a"])
    queue.add("c", "x", after=["b"])
    with pytest.raises(BadInput, match="would wait for itself"):
        queue.edit("a", "ada", after=["c"])
    with pytest.raises(BadInput, match="no such task"):
        queue.edit("a", "ada", after=["unknown"])
    log = QueueLog(store)
    assert not log.append(event("edit", id="a", fields={"after": ["c"]}))
    assert not log.append(event("edit", id="a", fields={"after": ["a"]}))


def test_a_cycle_through_a_task_that_is_done_is_one_too(queue: TaskQueue) -> None:
    queue.add("b", "x", after=["a"])
    queue.done("a", "w", queue.claim("w").token)
    queue.done("b", "w", queue.claim("w").token)
    queue.reopen("a", "u")
    with pytest.raises(BadInput, match="would wait for itself"):
        queue.edit("a", "ada", after=["b"])


@pytest.mark.parametrize("state", ["running", "asking", "submitted", "done"])
def test_a_task_that_a_worker_has_or_has_done_is_not_changed(
    queue: TaskQueue, store: Store, state: str
) -> None:
    claim = queue.claim("w")
    if state == "asking":
        queue.park("a", "w", claim.token, "which?")
    elif state == "submitted":
        queue.submit("a", "w", claim.token, work="c0de")
    elif state == "done":
        queue.done("a", "w", claim.token)
    with pytest.raises(WrongState, match=rf"a is {state}, and was not changed.*\w"):
        queue.edit("a", "ada", prompt="y")
    assert not QueueLog(store).append(event("edit", id="a", fields={"prompt": "y"}))
    assert queue.get("a").spec.prompt == "x"


def test_failed_and_cancelled_tasks_and_those_of_dead_workers_can_be_changed(
    queue: TaskQueue, clock: HandClock
) -> None:
    queue.fail("a", "w", queue.claim("w").token, final=True)
    assert queue.edit("a", "ada", prompt="y").state == "failed"
    queue.cancel(queue.add("b", "x").id, "u")
    assert queue.edit("b", "ada", prompt="y").state == "cancelled"
    queue.add("c", "x")
    queue.claim("w", ttl=10)
    clock.pass_time(60)
    found = queue.edit("c", "ada", prompt="y")
    assert (found.state, found.spec.prompt, found.attempts) == ("ready", "y", 1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "needs a field"),
        ({"id": "b"}, "cannot change 'id'"),
        ({"review_of": "b"}, "cannot change 'review_of'"),
        ({"nonsense": 1}, "cannot change 'nonsense'"),
        ({"priority": "high"}, "whole number"),
        ({"prompt": None}, "neither a prompt nor a command"),
        ({"every": "sometimes"}, "every"),
    ],
)
def test_an_invalid_edit_changes_nothing(
    queue: TaskQueue, store: Store, changes: dict[str, Any], text: str
) -> None:
    before = store.read_log(LOG, "")[0]
    with pytest.raises(BadInput, match=text):
        queue.edit("a", "ada", changes)
    assert store.read_log(LOG, "")[0] == before


@pytest.mark.parametrize(
    "fields", [{}, {"id": "b"}, {"priority": "x"}, {"nonsense": 1}, {"prompt": 1}, {"after": [1]}]
)
def test_an_event_that_swarm_did_not_write_changes_nothing(
    queue: TaskQueue, store: Store, fields: dict[str, Any]
) -> None:
    log = QueueLog(store)
    dump = log.read().dump()
    assert not log.append(event("edit", id="a", fields=fields))
    assert log.state.dump() == dump


def test_labels_that_are_no_texts_leave_the_state_whole(queue: TaskQueue, store: Store) -> None:
    log = QueueLog(store)
    assert not log.append(event("edit", id="a", at=log.now(), fields={"labels": [1]}))
    assert (log.state.damaged, log.state.entries["a"].labels) == (1, ("ui",))
    assert queue.claim("w", labels=["ui"]).task.id == "a"


def test_the_log_says_who_changed_what(queue: TaskQueue, store: Store) -> None:
    queue.edit("a", "ada", prompt="y" * 5000, priority=None)
    queue.edit("a", "ada", prompt="y" * 5000)  # changes nothing
    (record,) = [record for _, record in StatusLog(store).query("a")]
    assert (record["state"], record["worker"]) == ("SKIP", "ada")
    assert is_informational(record)
    assert set(record["meta"]["edited"]) == {"prompt", "priority"}
    assert "priority = null" in record["message"]
    assert len(record["message"]) < 500


def test_an_edit_keeps_state_attempts_and_the_time_of_the_add(
    queue: TaskQueue, clock: HandClock
) -> None:
    queue.fail("a", "w", queue.claim("w").token, "no", delay=60)
    before = queue.get("a")
    clock.pass_time(1)
    after = queue.edit("a", "ada", prompt="y")
    assert after.replace(spec=before.spec) == before


def test_a_time_can_be_changed_and_removed(queue: TaskQueue, clock: HandClock) -> None:
    later = to_iso(clock.now() + 60)
    assert queue.edit("a", "ada", not_before=later).ready_at == later
    assert queue.edit("a", "ada", not_before=None).state == "ready"
    assert queue.edit("a", "ada", every="@yearly UTC").ready_at == "2027-01-01T00:00:00.000Z"
    assert queue.edit("a", "ada", not_before=to_iso(clock.now())).state == "ready"
    queue.done("a", "w", queue.claim("w").token)
    assert queue.get("a").ready_at == "2027-01-01T00:00:00.000Z"
    assert queue.edit("a", "ada", every=None, not_before=None).state == "ready"
    assert queue.done("a", "w", queue.claim("w").token).state == "done"


def test_the_state_is_the_same_from_a_snapshot(queue: TaskQueue, store: Store) -> None:
    queue.add("b", "x")
    queue.edit("a", "ada", after=["b"], prompt="y", command=["make"])
    state = QueueState()
    for line in store.read_log(LOG, "")[0]:
        state.apply(line)
    fresh = QueueState()
    fresh.load(state.dump())
    assert fresh.dump() == state.dump()
    assert fresh.entries["a"].task() == queue.get("a")


def test_edits_at_once_all_count(tmp_path: object) -> None:
    url = f"{tmp_path}/swarm"
    TaskQueue(open_store(url)).add("a", "x")
    fields = ("priority", "max_attempts", "timeout")

    def attempt(me: int, number: int) -> bool:
        TaskQueue(open_store(url)).edit("a", f"w{me}", {fields[me]: number + 1})
        return True

    race(3, 5, attempt)
    spec = TaskQueue(open_store(url)).get("a").spec
    assert (spec.priority, spec.max_attempts, spec.timeout) == (5, 5, 5)
