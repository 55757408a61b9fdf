"""The queue: tasks are handed to one worker at a time, and what becomes of them is
decided by the token.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.errors import BadInput, LockHeld, LockLost, NoTask, StoreError, TaskExists, WrongState
from swarm.locks.table import LockTable
from swarm.queue import adding
from swarm.queue import queue as module
from swarm.queue.ending import Ending
from swarm.queue.events import LOG, MAX_REASON_BYTES, event
from swarm.queue.queue import Claim, TaskQueue
from swarm.queue.state import QueueState
from swarm.queue.task import Task, TaskSpec
from swarm.queue.task_state import TaskState
from swarm.settings import lock_ttl
from swarm.status.log import StatusLog
from swarm.stores import log_fold
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.system.clock import to_iso
from tests.conftest import HandClock
from tests.support.processes import fork


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    return TaskQueue(store)


def logged(store: Store, task: str) -> list[tuple[str, str]]:
    return [
        (record["state"], record.get("message", "")) for _, record in StatusLog(store).query(task)
    ]


def _refuse(*_: Any, **__: Any) -> Any:
    raise StoreError("the disk is full")


def records(store: Store, task: str) -> list[tuple[str, str, str, dict[str, Any]]]:
    """What the status log says about a task, with everything in it."""
    found = [record for _, record in StatusLog(store).query(task)]
    return [
        (record["state"], record["worker"], record.get("message", ""), record.get("meta", {}))
        for record in found
    ]


class TestAdding:
    def test_a_task_is_as_it_was_asked_for(self, queue: TaskQueue) -> None:
        queue.add("a", "first")
        queue.add(
            "任务-1",
            "do it",
            command=["make", "x"],
            priority=7,
            after=["a"],
            max_attempts=5,
            timeout=9.5,
            meta={"owner": "ada"},
        )
        task = queue.get("任务-1")
        assert task.spec == TaskSpec(
            "任务-1", "do it", ("make", "x"), 7, ("a",), 5, 9.5, {"owner": "ada"}
        )
        assert (task.state, task.attempts, task.worker, task.token) == ("waiting", 0, "", None)

    def test_an_id_is_taken_once(self, queue: TaskQueue) -> None:
        queue.add("a", "one")
        with pytest.raises(TaskExists, match="the task a exists already") as caught:
            queue.add("a", "one")
        assert caught.value.task_id == "a"
        with pytest.raises(TaskExists, match="with other fields") as caught:
            queue.add("a", "two")
        assert caught.value.task_id == "a"
        with pytest.raises(BadInput, match="two tasks c"):
            queue.add_all(
                [TaskSpec("b", "x"), TaskSpec("d", "x"), TaskSpec("c", "x"), TaskSpec("c", "x")]
            )
        assert queue.get("a").spec.prompt == "one"

    @pytest.mark.parametrize("one", ["the same", "another"])
    @pytest.mark.parametrize("later", [0, 1])
    def test_of_two_processes_that_add_an_id_at_once_one_finds_it_taken(
        self, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch, one: str, later: int
    ) -> None:
        mine, other = TaskQueue(store), TaskQueue(store)
        check = adding._check_new

        def slow(specs: Sequence[TaskSpec], state: QueueState) -> None:
            check(specs, state)
            monkeypatch.undo()
            assert mine.add_all([TaskSpec("a", "mine"), TaskSpec("b", "same")]) == (["a", "b"], [])
            clock.pass_time(later)

        monkeypatch.setattr(adding, "_check_new", slow)
        if one == "another":
            with pytest.raises(TaskExists, match="a exists already, with other fields"):
                other.add_all([TaskSpec("a", "other")])
        else:
            assert other.add_all([TaskSpec("b", "same"), TaskSpec("c", "other")]) == (["c"], ["b"])
        assert [task.spec.prompt for task in TaskQueue(store).tasks()][:2] == ["mine", "same"]

    def test_a_task_that_would_close_a_cycle_made_meanwhile_is_an_error(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        check = adding._check_new

        def slow(specs: Sequence[TaskSpec], state: QueueState) -> None:
            check(specs, state)
            store.append(LOG, b'{"op": "add", "id": "b", "prompt": "x", "after": ["a"]}')

        monkeypatch.setattr(adding, "_check_new", slow)
        queue = TaskQueue(store)
        with pytest.raises(StoreError, match=r"a was not added.*Try again"):
            queue.add_all([TaskSpec("b", "x"), TaskSpec("a", "x", after=("b",))])
        assert [task.id for task in queue.tasks()] == ["b"]

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            (TaskSpec("../x", "x"), "the task: id '../x' is not a valid name"),
            (TaskSpec("x"), "the task x has neither a prompt nor a command"),
            (TaskSpec("x", "x", max_attempts=0), "max_attempts is '0', but must be"),
            (TaskSpec("x", "x", timeout=-1.0), "timeout is '-1.0', but must be"),
        ],
    )
    def test_specs_made_by_a_program_are_checked_before_anything_is_written(
        self, queue: TaskQueue, store: Store, spec: TaskSpec, expected: str
    ) -> None:
        with pytest.raises(BadInput, match=expected):
            queue.add_all([TaskSpec("a", "x"), spec])
        assert store.read_log(LOG)[0] == []

    def test_adding_many_tasks_reports_its_progress(self, queue: TaskQueue) -> None:
        reported: list[int] = []
        queue.add_all([TaskSpec(f"t{number}", "x") for number in range(1999)], reported.append)
        assert reported == [1000]
        queue.add_all([TaskSpec(f"u{number}", "x") for number in range(2000)], reported.append)
        assert reported == [1000, 1000, 2000]

    def test_a_task_cannot_come_after_one_that_does_not_exist(self, queue: TaskQueue) -> None:
        with pytest.raises(BadInput, match="b comes after a, but there is no such task"):
            queue.add("b", "x", after=["a"])
        assert queue.tasks() == []

    def test_a_task_after_a_done_task_is_ready_at_once(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        queue.add("b", "x")
        queue.done("a", "w", queue.claim("w").token)
        assert queue.add("c", "x", after=["a"]).state == "ready"
        assert queue.add("d", "x", after=["a", "b"]).state == "waiting"
        queue.done("b", "w", queue.claim("w", "b").token)
        assert [task.id for task in queue.tasks("ready")] == ["c", "d"]

    def test_many_may_come_after_each_other_in_any_order(self, queue: TaskQueue) -> None:
        specs = [
            TaskSpec("c", "x", after=("b",)),
            TaskSpec("b", "x", after=("a",)),
            TaskSpec("a", "x"),
        ]
        assert queue.add_all(specs) == (["c", "b", "a"], [])
        assert [task.state for task in queue.tasks()] == ["waiting", "waiting", "ready"]
        assert queue.add_all(specs) == ([], ["c", "b", "a"])

    @pytest.mark.parametrize(
        ("after", "circle"),
        [
            ({"a": ("a",)}, "a cannot come after itself"),
            ({"a": ("b",), "b": ("a",)}, "in a cycle: a after b after a"),
            (
                {"x": (), "a": ("x", "b"), "b": ("c",), "c": ("x", "a")},
                "in a cycle: a after b after c after a",
            ),
        ],
    )
    def test_a_cycle_of_tasks_is_refused_and_named(
        self, queue: TaskQueue, after: dict[str, tuple[str, ...]], circle: str
    ) -> None:
        with pytest.raises(BadInput, match=circle):
            queue.add_all([TaskSpec(name, "x", after=names) for name, names in after.items()])
        assert queue.tasks() == []

    def test_many_tasks_are_checked_in_one_go(self, queue: TaskQueue) -> None:
        """Looking at all others for each would take minutes."""
        chain = [TaskSpec(f"t{number}", "x", after=(f"t{number + 1}",)) for number in range(30_000)]
        with pytest.raises(
            BadInput, match=r"in a cycle: t0 after t1 .* after … after .* after t30000 after t0\."
        ):
            queue.add_all([*chain, TaskSpec("t30000", "x", after=("t0",))])
        with pytest.raises(BadInput, match="two tasks t0"):
            queue.add_all([*chain, TaskSpec("t30000", "x"), chain[0]])
        assert queue.tasks() == []

    def test_a_cycle_through_existing_tasks_is_found(self, store: Store, queue: TaskQueue) -> None:
        # an import that was cut off
        store.append(LOG, b'{"op": "add", "id": "a", "prompt": "x", "after": ["b"]}')
        with pytest.raises(BadInput, match="in a cycle: b after a after b"):
            queue.add("b", "x", after=["a"])

    def test_of_a_large_cycle_both_ends_are_named(self, queue: TaskQueue) -> None:
        def cycle(size: int) -> list[str]:
            names = [str(number) for number in range(size)]
            with pytest.raises(BadInput) as caught:
                queue.add_all(
                    [TaskSpec(name, "x", after=(names[at - 1],)) for at, name in enumerate(names)]
                )
            return (
                str(caught.value).partition("cycle: ")[2].partition(". Remove")[0].split(" after ")
            )

        assert cycle(18) == ["0", *(str(number) for number in range(17, -1, -1))]
        assert cycle(19) == [
            "0",
            *["18", "17", "16", "15", "14", "13", "12", "…"],
            *["7", "6", "5", "4", "3", "2", "1", "0"],
        ]

    def test_tasks_with_very_many_ways_between_them_have_no_cycle(self, queue: TaskQueue) -> None:
        levels = [(f"a{level}", f"b{level}") for level in range(60)]
        specs = [
            TaskSpec(name, "x", after=before)
            for before, both in zip([(), *levels[:-1]], levels, strict=True)
            for name in both
        ]
        assert len(queue.add_all(specs[::-1])[0]) == 120

    def test_a_long_chain_of_tasks_is_not_a_cycle(self, queue: TaskQueue) -> None:
        names = [f"t{number}" for number in range(2000)]
        queue.add_all(
            [
                TaskSpec(name, "x", after=tuple(names[at + 1 : at + 2]))
                for at, name in enumerate(names)
            ]
        )
        assert queue.claim("w").task.id == "t1999"

    def test_two_imports_at_once_cannot_make_a_cycle(self, store: Store) -> None:
        """Each is fine alone, and neither sees the other's tasks before it writes."""
        store.append(LOG, b'{"op": "add", "id": "a", "prompt": "x", "after": ["b"]}')
        store.append(LOG, b'{"op": "add", "id": "b", "prompt": "x", "after": ["a"]}')
        queue = TaskQueue(store)
        assert [task.id for task in queue.tasks()] == ["a"]
        assert queue.blocked() == {"a": "b"}
        queue.add("b", "x")
        assert queue.claim("w").task.id == "b"

    @pytest.mark.parametrize(
        ("fields", "rule"),
        [
            ({"task_id": "../x", "prompt": "x"}, "slash"),
            ({"task_id": "a" * 300, "prompt": "x"}, "at most 200"),
            ({"task_id": "a"}, "neither a prompt nor a command"),
            ({"task_id": "a", "prompt": ""}, "neither a prompt nor a command"),
            ({"task_id": "a", "prompt": "x\0y"}, "NUL"),
            ({"task_id": "a", "prompt": "\ud800"}, "not valid UTF-8"),
            ({"task_id": "a", "prompt": 5}, "must be text"),
            ({"task_id": "a", "command": ["", "x"]}, "empty word"),
            ({"task_id": "a", "prompt": "x", "priority": 1.5}, "whole number"),
            ({"task_id": "a", "prompt": "x", "priority": True}, "whole number"),
            ({"task_id": "a", "prompt": "x", "max_attempts": 0}, "from 1 to"),
            ({"task_id": "a", "prompt": "x", "timeout": 0}, "more than 0"),
            ({"task_id": "a", "prompt": "x", "timeout": float("nan")}, "more than 0"),
            ({"task_id": "a", "prompt": "x", "meta": {"x": {1, 2}}}, "cannot be written as JSON"),
            ({"task_id": "a", "prompt": "x", "after": ["../b"]}, "slash"),
            ({"task_id": "a", "prompt": "x" * (17 << 20)}, "at most"),
        ],
    )
    def test_an_invalid_record_is_refused_and_not_written(
        self, queue: TaskQueue, fields: dict[str, object], rule: str
    ) -> None:
        with pytest.raises(BadInput, match=rule):
            queue.add(**fields)  # type: ignore[arg-type]
        assert queue.tasks() == []


class TestClaiming:
    def test_a_claim_is_the_lock_and_start(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "do it")
        claim = queue.claim("w", ttl=60)
        lock = LockTable(store).status("a")
        assert lock.lock is not None and lock.is_held
        assert (lock.lock.worker, lock.lock.token, lock.lock.ttl) == ("w", claim.token, 60)
        assert logged(store, "a") == [("START", "")]
        assert (claim.task.state, claim.task.worker, claim.task.attempts) == ("running", "w", 1)
        assert (claim.worker, claim.lock.token, claim.lock.worker) == ("w", claim.token, "w")

    def test_a_task_has_one_claim(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        queue.claim("w1")
        with pytest.raises(NoTask, match="no task is free") as caught:
            TaskQueue(store).claim("w2")
        assert (caught.value.why, caught.value.holders) == ("busy", {"a": "w1"})
        with pytest.raises(LockHeld, match="held by w1"):
            queue.claim("w2", "a")

    def test_the_best_comes_first_and_equals_in_their_order(self, queue: TaskQueue) -> None:
        for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -1)):
            queue.add(name, "x", priority=priority)
        order = []
        for _ in range(5):
            claim = queue.claim("w")
            order.append(claim.task.id)
            queue.done(claim.task.id, "w", claim.token)
        assert order == ["b", "d", "a", "c", "e"]

    def test_a_task_waits_until_the_tasks_it_comes_after_are_done(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        queue.add("b", "x")
        queue.add("c", "x", after=["a", "b"], priority=9)
        with pytest.raises(WrongState, match="c waits for a, b"):
            queue.claim("w", "c")
        first, second = queue.claim("w"), queue.claim("w")
        queue.done(first.task.id, "w", first.token)
        with pytest.raises(NoTask):
            queue.claim("w")
        queue.done(second.task.id, "w", second.token)
        assert queue.claim("w").task.id == "c"

    def test_a_task_that_a_user_holds_is_skipped(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        queue.add("b", "x")
        locks = LockTable(store)
        held = locks.acquire("a", "ada", None)
        assert queue.claim("w").task.id == "b"
        with pytest.raises(NoTask, match="other workers hold") as caught:
            queue.claim("w")
        assert caught.value.holders == {"a": "ada", "b": "w"}
        locks.release("a", "ada", held.token)
        clock.pass_time(2)
        assert queue.claim("w").task.id == "a"

    def test_a_held_task_is_looked_at_again_a_second_later(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        for name in "abcd":
            queue.add(name, "x")
        locks = LockTable(store)
        held = locks.acquire("a", "ada", None)
        assert queue.done(queue.claim("w").task.id, "w").id == "b"
        locks.release("a", "ada", held.token)
        clock.pass_time(0.5)
        assert queue.done(queue.claim("w").task.id, "w").id == "c"
        clock.pass_time(0.5)
        assert queue.claim("w").task.id == "a"

    def test_a_worker_that_lost_a_race_reads_again_before_the_next_try(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in "abcdef":
            queue.add(name, "x")
        other, acquire = TaskQueue(store), LockTable.acquire
        tried: list[str] = []

        def slow(self: LockTable, task: str, worker: str, ttl: float | None, **options: Any) -> Any:
            if worker == "w":
                tried.append(task)
                # meanwhile others take what we went for, and more
                for name in "abcde" if len(tried) == 1 else "":
                    other.claim("w2", name)
            return acquire(self, task, worker, ttl, **options)

        monkeypatch.setattr(LockTable, "acquire", slow)
        assert queue.claim("w").task.id == "f"
        assert tried == ["a", "f"]

    def test_a_lone_worker_claims_tasks_in_order(self, queue: TaskQueue, store: Store) -> None:
        names = [f"t{number:02d}" for number in range(40)]
        for name in names:
            queue.add(name, "x")
        for name in names[::3]:
            LockTable(store).acquire(name, "ada", None)  # who meets others now and then
        taken: list[str] = []
        while len(taken) < 26:
            taken.append(queue.claim("w").task.id)
            queue.done(taken[-1], "w")
        assert taken == [name for name in names if name not in names[::3]]

    def test_only_held_tasks_that_are_due_are_looked_at_again(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        """Those whose second is over stand first."""
        for name in "ab":
            queue.add(name, "x")
            LockTable(store).acquire(name, "ada", None)
        held = queue._claims()._choice.held
        for name, moment in (("a", -0.1), ("b", 0.5)):
            held[name] = (clock.steady() + moment, LockHeld(name, "ada", "held"))
        with pytest.raises(NoTask):
            queue.claim("w")
        assert queue._claims()._choice.held is held and list(held) == ["b", "a"], (
            "a was looked at, and is held still"
        )

    def test_a_held_task_that_is_skipped_again_comes_last(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        choice = queue._claims()._choice
        for name in "aba":
            clock.pass_time(0.1)
            choice.skip_held(name, LockHeld(name, "ada", "held"))
        assert list(choice.held) == ["b", "a"]

    def test_while_others_work_a_claim_takes_one_of_the_first_eight_of_the_highest_priority(
        self, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(12):
            queue.add(f"t{number:02d}", "x", priority=int(number < 10))
        assert queue.claim("other").task.id == "t00"
        offered: list[list[str]] = []

        def last(ready: list[TaskState]) -> TaskState:
            offered.append([entry.id for entry in ready])
            return ready[-1]

        monkeypatch.setattr(random, "choice", last)
        assert [queue.claim("w").task.id for _ in range(3)] == ["t08", "t09", "t07"]
        assert offered[0] == [f"t{number:02d}" for number in range(1, 9)]

    def test_a_search_for_a_task_ends_even_if_another_is_always_faster(
        self, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        queue.claim("w")
        # and then another has its lock
        monkeypatch.setattr(queue._log(), "is_dead", lambda entry: True)
        with pytest.raises(NoTask) as caught:
            queue.claim("v")
        assert caught.value.why == "busy"

    def test_a_claim_without_a_task_says_why(self, queue: TaskQueue) -> None:
        with pytest.raises(NoTask, match="the queue is empty"):
            queue.claim("w")
        with pytest.raises(NoTask, match="there is no task a"):
            queue.claim("w", "a")
        with pytest.raises(BadInput, match=r"^task_id '../a' is not a valid name"):
            queue.get("../a")
        queue.add("a", "x")
        queue.done("a", "w", queue.claim("w").token)
        with pytest.raises(NoTask, match="nothing is left to do") as caught:
            queue.claim("w")
        assert caught.value.why == "finished"
        with pytest.raises(WrongState, match="a is done: there is nothing to do"):
            queue.claim("w", "a")

    def test_the_reason_for_no_task_is_an_attribute_of_the_error(self, queue: TaskQueue) -> None:
        def why(task: str | None = None) -> tuple[str, dict[str, str]]:
            with pytest.raises(NoTask) as caught:
                queue.claim("w", task)
            return caught.value.why, dict(caught.value.holders)

        assert why() == ("empty", {})
        assert why("a") == ("unknown", {})
        queue.add("a", "x")
        claim = queue.claim("w")
        assert why() == ("busy", {"a": "w"})
        queue.done("a", "w", claim.token)
        assert why() == ("finished", {})

    def test_a_caller_may_leave_tasks_with_a_command_to_others(self, queue: TaskQueue) -> None:
        queue.add("c", command="true", priority=9)
        queue.add("p", "x")
        assert queue.claim("w", prompts_only=True).task.id == "p"
        with pytest.raises(NoTask):
            queue.claim("w", prompts_only=True)
        assert queue.claim("w").task.id == "c"

    def test_a_worker_without_an_agent_gets_only_tasks_with_a_command(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        def claim() -> str:
            return queue.claim("w", commands_only=True, ttl=5).task.id

        def nothing() -> tuple[str, bool, dict[str, str]]:
            with pytest.raises(NoTask) as caught:
                claim()
            return (
                caught.value.why,
                "need a worker with an agent" in str(caught.value),
                dict(caught.value.holders),
            )

        left: tuple[str, bool, dict[str, str]] = ("finished", True, {})
        queue.add("p", "x", priority=9)
        queue.add("q", "x")
        assert nothing() == left
        queue.add("c", command=["true"])
        queue.add("c2", command="true", priority=1)
        assert claim() == "c2" and queue.done("c2", "w").state == "done"
        assert claim() == "c"
        assert nothing()[::2] == ("busy", {"c": "w"})
        queue.fail("c", "w", delay=30)
        assert nothing()[::2] == ("busy", {})
        clock.pass_time(30)
        assert claim() == "c" and queue.done("c", "w").state == "done"
        assert nothing() == left
        queue.fail("p", "agent", queue.claim("agent", "p").token, delay=30)
        assert nothing() == left
        queue.claim("agent", "q", ttl=5)
        assert nothing()[::2] == ("busy", {"q": "agent"})
        clock.pass_time(6)
        # which has died, but a worker without an agent cannot take its place
        assert nothing() == left

    def test_a_named_task_is_claimed_as_any_other(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        queue.add("b", "x")
        with pytest.raises(BadInput, match=r"^task_id '../b' is not a valid name"):
            queue.claim("w", "../b")
        claim = queue.claim("w", "b", ttl=60.5, bound=True)
        found = LockTable(store).status("b")
        assert found.lock is not None
        assert (claim.task.worker, found.lock.worker, found.lock.ttl) == ("w", "w", 60.5)
        assert found.lock.holder["pid"] == os.getpid()
        queue.claim("w", "a", ttl=60)
        found = LockTable(store).status("a")
        assert found.lock is not None and "pid" not in found.lock.holder

    def test_the_names_that_a_task_waits_for_include_missing_tasks(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("b", "x")
        store.append(LOG, b'{"op": "add", "id": "a", "prompt": "x", "after": ["b", "c"]}')
        queue.done("b", "w", queue.claim("w").token)
        with pytest.raises(WrongState, match=r"^a waits for c\.$") as caught:
            queue.claim("w", "a")
        assert caught.value.task_id == "a"
        with pytest.raises(WrongState, match=r"^b is done: there is nothing to do\.$") as caught:
            queue.claim("w", "b")
        assert caught.value.task_id == "b"

    def test_one_claim_of_many_that_go_for_it_at_once(self, tmp_path: Path) -> None:
        TaskQueue(FileStore(str(tmp_path))).add_all(
            [TaskSpec(f"t{number}", "x") for number in range(40)]
        )

        def work(worker: str) -> None:
            queue = TaskQueue(FileStore(str(tmp_path)))
            while True:
                try:
                    claim = queue.claim(worker, bound=True)
                except NoTask as none:
                    if none.why == "finished":
                        return
                    continue
                queue.done(claim.task.id, worker, claim.token)

        pids = [fork(work, f"w{number}") for number in range(6)]
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 6
        records = [json.loads(line) for line in (tmp_path / "status.log").read_text().splitlines()]
        started = [record["task_id"] for record in records if record["state"] == "START"]
        assert sorted(started) == sorted(f"t{number}" for number in range(40))
        assert {task.state for task in TaskQueue(FileStore(str(tmp_path))).tasks()} == {"done"}
        assert list((tmp_path / "locks").iterdir()) == []

    def test_a_task_never_has_two_workers_however_many_go_for_it(self, tmp_path: Path) -> None:
        TaskQueue(FileStore(str(tmp_path / "s"))).add("a", "x")
        effects = os.open(tmp_path / "effects", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

        def work(worker: str) -> None:
            queue = TaskQueue(FileStore(str(tmp_path / "s")))
            rounds = 0
            while rounds < 60:
                try:
                    claim = queue.claim(worker, "a", bound=True)
                except LockHeld:
                    continue
                os.write(effects, b"B %d\n" % claim.token)
                os.write(effects, b"E %d\n" % claim.token)
                queue.release("a", worker, claim.token)
                rounds += 1

        pids = [fork(work, f"w{number}") for number in range(6)]
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 6
        os.close(effects)
        events = (tmp_path / "effects").read_text().split("\n")[:-1]
        tokens = [int(event.split()[1]) for event in events[::2]]
        assert events == [f"{what} {token}" for token in tokens for what in "BE"]
        assert tokens == sorted(set(tokens)) and len(tokens) == 360

    def test_a_claim_has_a_larger_token_than_any_claim_in_the_log(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        store.append(LOG, event("claim", at="", id="a", worker="w", token=50))
        assert queue.claim("v", "a").token > 50

    def test_a_claim_logs_no_failure_that_another_worker_reported(
        self, queue: TaskQueue, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        queue.claim("late", ttl=5)
        clock.pass_time(6)
        locks = queue._log().locks
        acquire = locks.acquire

        def slowly(*args: Any, **options: Any) -> Any:
            answer = acquire(*args, **options)
            store.append(LOG, event("fail", at="", id="a", worker="late", token=1, final=True))
            return answer

        monkeypatch.setattr(locks, "acquire", slowly)
        with pytest.raises(WrongState, match="a is failed now"):
            queue.claim("w", "a")
        assert [state for state, _ in logged(store, "a")] == ["START"]

    @pytest.mark.parametrize("successor", ["w2", "w1"])
    def test_a_claim_that_was_slower_than_its_successor_is_refused(
        self, queue: TaskQueue, store: Store, clock: HandClock, successor: str
    ) -> None:
        """It took the lock, slept past its lease, and wrote its line only when another
        had claimed the task, perhaps under the same name.
        """
        queue.add("a", "x")
        append = queue._log().append
        new = []

        def slow(line: bytes) -> bool:
            clock.pass_time(6)
            new.append(TaskQueue(store).claim(successor))
            return append(line)

        queue._log().append = slow  # type: ignore[method-assign]
        with pytest.raises(NoTask):
            queue.claim("w1", ttl=5)
        assert (queue.get("a").worker, queue.get("a").token) == (successor, new[0].token)
        assert [state for state, _ in logged(store, "a")] == ["START"]
        assert LockTable(store).heartbeat("a", successor, new[0].token).token == new[0].token


class TestEnding:
    def test_done_is_logged_and_releases_the_lock(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        task = queue.done("a", "w", claim.token, "12 tests pass")
        assert (task.state, task.reason) == ("done", "12 tests pass")
        assert logged(store, "a") == [("START", ""), ("DONE", "12 tests pass")]
        assert not LockTable(store).status("a").exists
        assert queue.done("a", "w", claim.token).state == "done"  # repeated
        assert len(logged(store, "a")) == 2

    def test_a_failure_is_tried_again_until_the_attempts_are_used_up(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x", max_attempts=2)
        assert queue.fail("a", "w", queue.claim("w").token, "boom").state == "ready"
        assert queue.fail("a", "w", queue.claim("w").token, "boom again").state == "failed"
        assert logged(store, "a")[-1] == ("ERROR", "boom again")
        with pytest.raises(NoTask, match="nothing is left to do"):
            queue.claim("w")

    def test_a_final_failure_is_not_tried_again(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        assert queue.fail("a", "w", queue.claim("w").token, final=True).state == "failed"

    def test_a_failed_task_waits_its_delay(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.add("a", "x")
        queue.fail("a", "w", queue.claim("w").token, delay=30)
        with pytest.raises(NoTask) as caught:
            queue.claim("w")
        assert caught.value.why == "busy" and not queue.is_finished()
        assert queue.seconds_until_due() == pytest.approx(30, abs=0.01)
        clock.pass_time(30.1)
        assert queue.claim("w").task.attempts == 2
        queue.fail("a", "w", delay=0.5)
        with pytest.raises(NoTask):
            queue.claim("w")
        clock.pass_time(0.5)
        assert queue.claim("w").task.attempts == 3

    def test_a_clock_that_was_set_back_does_not_prolong_the_delay_of_a_task(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        queue.fail("a", "w", queue.claim("w").token, delay=30)
        clock.jump(-3600)
        assert queue.claim("w").task.id == "a"

    def test_a_released_task_is_next_and_the_attempt_does_not_count(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        queue.add("b", "x")
        queue.release("a", "w", queue.claim("w").token, "stopped")
        claim = queue.claim("w")
        assert (claim.task.id, claim.task.attempts) == ("a", 1)
        assert logged(store, "a") == [("START", ""), ("SKIP", "released: stopped"), ("START", "")]

    def test_without_a_token_the_claim_of_the_worker_counts(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        queue.claim("w1")
        with pytest.raises(
            LockLost, match="w2 has no claim on a: w1 has the task with token 1"
        ) as caught:
            queue.done("a", "w2")
        assert caught.value.task_id == "a"
        assert logged(store, "a")[-1][0] == "SKIP"  # a refusal is logged in any case
        assert queue.done("a", "w1").state == "done"

    @pytest.mark.parametrize("end", ["done", "fail", "release"])
    def test_a_late_worker_is_refused_and_that_is_logged(
        self, queue: TaskQueue, store: Store, clock: HandClock, end: str
    ) -> None:
        queue.add("a", "x")
        late = queue.claim("w1", ttl=5)
        clock.pass_time(6)
        other = TaskQueue(store)
        new = other.claim("w2")
        assert new.token > late.token
        with pytest.raises(LockLost, match="w1 has no claim on a with token 1"):
            getattr(queue, end)("a", "w1", late.token)
        what = {"done": "DONE", "fail": "ERROR", "release": "a release"}[end]
        assert records(store, "a")[-1] == (
            "SKIP",
            "w1",
            f"{what} with token 1 was refused: w2 has the task with token 2",
            {"refused": end, "token": 1, "current_token": 2},
        )
        assert queue.get("a").worker == "w2"
        assert other.done("a", "w2", new.token).state == "done"
        with pytest.raises(LockLost):
            getattr(queue, end)("a", "w1", late.token)
        assert queue.get("a").state == "done"

    def test_an_older_run_of_the_same_worker_is_told_which_claim_counts(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        late = queue.claim("w", ttl=5)
        clock.pass_time(6)
        new = TaskQueue(store).claim("w")
        expected = f"w has a with token {new.token}, not with token {late.token}"
        with pytest.raises(LockLost, match=expected) as caught:
            queue.done("a", "w", late.token)
        assert caught.value.task_id == "a"

    def test_a_worker_without_a_claim_is_told_how_to_get_one(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        command = "swarm task claim a --worker w"
        with pytest.raises(LockLost, match=f"no claim on a: .*ready. Claim it first: {command}$"):
            queue.done("a", "w")
        assert logged(store, "a")[-1] == (
            "SKIP",
            "DONE with no token was refused: the task is ready",
        )
        first = queue.claim("w")
        queue.release("a", "w", first.token)
        with pytest.raises(LockLost, match=rf"\. Stop .*, or claim it again: {command}$"):
            queue.done("a", "w", first.token)

    def test_a_late_worker_is_refused_by_the_log_alone(
        self, queue: TaskQueue, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It looked at the lock, slept, and wrote its line only when another had
        claimed the task and given it back. Then a later lock of its own stays.
        """
        queue.add("a", "x")
        late = queue.claim("w1", ttl=5)
        clock.pass_time(6)
        other = TaskQueue(store)
        other.release("a", "w2", other.claim("w2").token)
        later = []
        monkeypatch.setattr(
            queue._claims()._endings,
            "check_lock",
            lambda *_: later.append(LockTable(store).acquire("a", "w1", 60)),
        )
        with pytest.raises(LockLost, match="no claim on a with token 1: the task is ready"):
            queue.done("a", "w1", late.token)
        assert queue.get("a").state == "ready"
        assert LockTable(store).status("a").is_held_by("w1", later[0].token)

    def test_a_late_worker_is_refused_while_another_holds_the_lock(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        """Also where the log does not know of it: a person has taken it, or a worker
        whose claim is about to be written.
        """
        queue.add("a", "x")
        late = queue.claim("w", ttl=5)
        clock.pass_time(6)
        held = LockTable(store).acquire("a", "ada", 5)
        with pytest.raises(
            LockLost, match=f"ada has the task with token {held.token}. Stop working"
        ) as caught:
            queue.done("a", "w", late.token)
        assert caught.value.task_id == "a" and queue.get("a").state == "running"
        clock.pass_time(6)  # its lease is over
        assert queue.done("a", "w", late.token).state == "done"

    def test_a_worker_whose_lock_is_unreadable_may_end_its_claim(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        LockTable(store).break_lock("a")
        assert store.create("locks/a", b"\0" * 20)
        assert queue.done("a", "w", claim.token).state == "done"

    def test_a_later_lock_of_the_same_worker_is_not_released(
        self, queue: TaskQueue, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w", ttl=5)
        clock.pass_time(6)
        monkeypatch.setattr(
            queue._claims()._endings, "_log_end", lambda *_: LockTable(store).acquire("a", "w", 60)
        )
        assert queue.done("a", "w", claim.token).state == "done"
        found = LockTable(store).status("a")
        assert found.lock is not None and found.lock.token == claim.token + 1

    def test_a_claim_is_ended_by_another_process_than_the_one_that_made_it(
        self, store: Store
    ) -> None:
        """As from a shell.

        With the token, or without: then what others did since its last look counts.
        """
        looked = TaskQueue(store)
        looked.add("a", "x")
        claim = TaskQueue(store).claim("w")
        assert looked.release("a", "w").state == "ready"
        claim = TaskQueue(store).claim("w")
        assert TaskQueue(store).done("a", "w", claim.token).state == "done"
        for token in (1, None):
            with pytest.raises(NoTask, match="there is no task b"):
                TaskQueue(store).done("b", "w", token)

    def test_only_the_end_of_the_same_claim_may_be_repeated(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        first = queue.claim("w")
        queue.release("a", "w", first.token)
        second = queue.claim("w")
        queue.done("a", "w", second.token)
        assert queue.done("a", "w", second.token).state == "done"
        with pytest.raises(LockLost, match="the task is done"):
            queue.done("a", "w", first.token)
        with pytest.raises(LockLost, match=r"is done\. Stop working on the task\.$"):
            queue.fail("a", "w", second.token)

    def test_every_record_tells_which_claim_it_is_about(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x", max_attempts=5)
        queue.claim("w", ttl=5)
        clock.pass_time(6)
        queue.fail("a", "v", queue.claim("v").token, "boom", delay=5, host="h")
        clock.pass_time(5)
        queue.release("a", "w", queue.claim("w").token)
        queue.fail("a", "w", queue.claim("w").token)
        queue.fail("a", "w", queue.claim("w").token, "never", delay=5, final=True)
        queue.retry("a", "ada")
        queue.done("a", "w", queue.claim("w").token, tests=12)
        found = records(store, "a")
        processes = [about.pop("process", None) for _, _, _, about in found]
        ends = [state != "START" for state, _, _, _ in found]
        assert [bool(each) for each in processes] == ends
        assert {each["pid"] for each in processes if each} == {os.getpid()}
        assert found == [
            ("START", "w", "", {"token": 1, "attempt": 1}),
            ("START", "v", "taken over from w", {"token": 2, "attempt": 2, "taken_over_from": "w"}),
            (
                "ERROR",
                "v",
                "boom",
                {"token": 2, "attempt": 2, "host": "h", "attempts_left": 3, "retry_in": 5},
            ),
            ("START", "w", "", {"token": 3, "attempt": 3}),
            ("SKIP", "w", "released", {"token": 3}),
            ("START", "w", "", {"token": 4, "attempt": 3}),
            ("ERROR", "w", "failed", {"token": 4, "attempt": 3, "attempts_left": 2}),
            ("START", "w", "", {"token": 5, "attempt": 4}),
            ("ERROR", "w", "never", {"token": 5, "attempt": 4, "attempts_left": 0}),
            ("SKIP", "ada", "to be tried again", {}),
            ("START", "w", "", {"token": 6, "attempt": 1}),
            ("DONE", "w", "", {"token": 6, "attempt": 1, "tests": 12}),
        ]

    def test_the_log_of_the_queue_tells_who_did_what_and_when(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        queue.fail("a", "w", queue.claim("w").token, "boom", delay=5, final=True)
        queue.retry("a", "ada")
        queue.release("a", "w", queue.claim("w").token, "stopped")
        queue.cancel("a", "bob", "not needed")
        queue.retry("a", "ada")
        queue.done("a", "w", queue.claim("w").token, "well")
        lines = [json.loads(line) for line in store.read_log(LOG)[0]]
        assert {line.pop("at") for line in lines} == {to_iso(clock.now())} and {
            line.pop("id") for line in lines
        } == {"a"}
        nonces = [line.pop("nonce") for line in lines if "nonce" in line]
        assert len(set(nonces)) == len(nonces) == 4, "the lines without a token"
        assert lines == [
            {"op": "add", "prompt": "x"},
            {"op": "claim", "worker": "w", "token": 1},
            {"op": "fail", "worker": "w", "token": 1, "reason": "boom", "delay": 5, "final": True},
            {"op": "retry", "worker": "ada"},
            {"op": "claim", "worker": "w", "token": 2},
            {"op": "release", "worker": "w", "token": 2, "reason": "stopped"},
            {"op": "cancel", "worker": "bob", "reason": "not needed"},
            {"op": "retry", "worker": "ada"},
            {"op": "claim", "worker": "w", "token": 3},
            {"op": "done", "worker": "w", "token": 3, "reason": "well"},
        ]

    def test_a_failed_task_comes_behind_its_equals_and_so_does_one_that_is_retried(
        self, queue: TaskQueue
    ) -> None:
        for name in "abc":
            queue.add(name, "x", max_attempts=1 if name == "b" else 2)
        queue.fail("a", "w", queue.claim("w").token)
        queue.fail("b", "w", queue.claim("w").token)
        queue.retry("b", "ada")
        order = []
        for _ in range(3):
            claim = queue.claim("w")
            order.append(claim.task.id)
            queue.done(claim.task.id, "w", claim.token)
        assert order == ["c", "a", "b"]

    def test_a_result_may_have_a_megabyte(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        assert queue.done("a", "w", queue.claim("w").token, "x" * MAX_REASON_BYTES).state == "done"

    def test_a_worker_whose_lease_ended_unnoticed_may_still_finish(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w", ttl=5)
        clock.pass_time(6)
        assert queue.done("a", "w", claim.token).state == "done"

    @pytest.mark.parametrize("name", ["a", None])
    def test_a_claim_of_a_task_that_was_done_meanwhile_fails(
        self, queue: TaskQueue, store: Store, clock: HandClock, name: str | None
    ) -> None:
        """Between the successor's lock and its claim, the late worker says that it is
        done: it was, and once.
        """
        queue.add("a", "x")
        late = queue.claim("w1", ttl=5)
        clock.pass_time(6)
        other = TaskQueue(store)
        append = other._log().append
        done = []

        def slow(line: bytes) -> bool:
            # it looked before the successor came
            queue._claims()._endings.check_lock = lambda *_: None  # type: ignore[method-assign]
            done.append(queue.done("a", "w1", late.token).state)
            return append(line)

        other._log().append = slow  # type: ignore[method-assign]
        if name:
            with pytest.raises(WrongState, match=r"^a is done now\.$") as caught:
                other.claim("w2", name)
            assert caught.value.task_id == "a"
        else:
            with pytest.raises(NoTask, match="nothing is left to do"):
                other.claim("w2")
        assert done == ["done"]
        assert [state for state, _ in logged(store, "a")] == ["START", "DONE"]
        assert not LockTable(store).status("a").exists

    @pytest.mark.parametrize("end", ["done", "fail", "release"])
    def test_a_repeated_end_completes_one_that_was_cut_off(
        self, queue: TaskQueue, store: Store, end: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The line is in the log, and then the disk was full: no record, and the lock
        still there.
        """
        queue.add("a", "x", max_attempts=1)
        claim = queue.claim("w")
        with monkeypatch.context() as patch:
            patch.setattr(StatusLog, "append", _refuse)
            patch.setattr(LockTable, "release", _refuse)
            with pytest.raises(StoreError):
                getattr(queue, end)("a", "w", claim.token)
        assert LockTable(store).status("a").exists and len(logged(store, "a")) == 1
        for _ in range(2):
            getattr(queue, end)("a", "w", claim.token)
            assert not LockTable(store).status("a").exists and len(logged(store, "a")) == 2

    def test_a_text_that_the_status_log_would_not_take_changes_nothing(
        self, queue: TaskQueue
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        with pytest.raises(BadInput, match="in a file"):
            queue.done("a", "w", claim.token, "x" * 9_000_000)
        assert queue.get("a").state == "running"

    def test_the_pause_of_an_earlier_attempt_does_not_end_a_later_one(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        for delay in (1.0, 600.0):
            queue.fail("a", "w", queue.claim("w").token, delay=delay)
            clock.pass_time(2)
        for reader in (queue, TaskQueue(store)):
            with pytest.raises(NoTask, match="may begin in 598 seconds") as caught:
                reader.claim("w")
            assert caught.value.ready_in == pytest.approx(598, abs=0.01)
        assert queue.get("a").ready_at == to_iso(clock.now() + 598)
        clock.pass_time(599)
        assert queue.claim("w").task.attempts == 3


class TestDying:
    def test_a_claim_whose_lease_ends_comes_back(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        queue.claim("w1", ttl=5)
        clock.pass_time(6)
        assert queue.get("a").state == "ready" and queue.counts() == {"ready": 1}
        assert queue.get("a").reason == "its worker w1 is gone"
        claim = TaskQueue(store).claim("w2")
        assert (claim.task.id, claim.task.attempts, claim.task.worker) == ("a", 2, "w2")
        assert logged(store, "a")[-1] == ("START", "taken over from w1")

    def test_a_claim_of_a_killed_process_comes_back_at_once(self, tmp_path: Path) -> None:
        queue = TaskQueue(FileStore(str(tmp_path)))
        queue.add("a", "x")

        def die() -> None:
            TaskQueue(FileStore(str(tmp_path))).claim("w1", bound=True, ttl=300)
            os.kill(os.getpid(), signal.SIGKILL)

        os.waitpid(fork(die), 0)
        assert queue.claim("w2").task.attempts == 2

    def test_a_task_whose_lock_a_user_removed_is_ready_again(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        queue.claim("w1")
        LockTable(store).break_lock("a")
        assert queue.claim("w2").task.id == "a"

    def test_a_dead_claim_of_higher_priority_goes_before_what_is_ready(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("a", "x", priority=5)
        queue.add("b", "x")
        queue.claim("w1", ttl=5)
        clock.pass_time(6)
        assert queue.claim("w2").task.id == "a"

    def test_a_dead_claim_goes_before_its_equals_and_the_best_of_them_first(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        for name, priority in (("a", 0), ("b", 5), ("c", 0)):
            queue.add(name, "x", priority=priority)
        for name in "ab":
            queue.claim("w1", name, ttl=5)
        clock.pass_time(6)
        other = TaskQueue(store)
        # who lives is asked once a second
        assert [other.claim("w2").task.id for _ in range(2)] == ["b", "c"]
        queue.add("d", "x")
        queue.add("e", "x")
        queue.claim("w1", "d", ttl=1)
        clock.pass_time(1)
        assert other.claim("w2").task.id == "a"
        clock.pass_time(1)
        assert other.claim("w2").task.id == "d"

    def test_a_task_that_kills_its_workers_ends_as_failed(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x", max_attempts=2)
        for worker in ("w1", "w2"):
            queue.claim(worker, ttl=5)
            clock.pass_time(6)
        assert queue.get("a").state == "failed"  # no event says so yet
        with pytest.raises(NoTask) as caught:
            queue.claim("w3")
        assert caught.value.why == "finished"
        assert queue.get("a").reason == "its worker w2 was gone, at the last of 2 attempts"
        why = "its worker w2 was gone, at the last of 2 attempts"
        assert records(store, "a")[-1] == ("ERROR", "w3", why, {"token": 3, "attempts": 2})
        assert not LockTable(store).status("a").exists

    def test_a_worker_whose_lock_cannot_be_read_is_not_dead(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        queue.claim("w1", ttl=5)
        clock.pass_time(6)

        def broken(key: str) -> bytes | None:
            raise StoreError("the disk does not answer")

        monkeypatch.setattr(store, "read", broken)
        assert queue.get("a").state == "running" and queue.counts() == {"running": 1}
        with pytest.raises(NoTask) as caught:
            queue.claim("w2")
        assert caught.value.why == "busy"

    def test_done_counts_even_if_the_lock_cannot_be_released(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")

        def broken(key: str, old: bytes) -> bool:
            raise StoreError("the disk is full")

        monkeypatch.setattr(store, "remove", broken)
        assert queue.done("a", "w", claim.token).state == "done"

    @pytest.mark.parametrize("slow", ["acquire", "START"])
    def test_a_claim_fails_if_its_lease_ends_before_it_is_complete(
        self,
        queue: TaskQueue,
        store: Store,
        clock: HandClock,
        monkeypatch: pytest.MonkeyPatch,
        slow: str,
    ) -> None:
        queue.add("a", "x")
        what = queue._log().locks if slow == "acquire" else queue._log().status
        call = getattr(what, "acquire" if slow == "acquire" else "append")

        def slowly(*args: Any, **options: Any) -> Any:
            answer = call(*args, **options)
            clock.pass_time(5)
            return answer

        monkeypatch.setattr(what, call.__name__, slowly)
        expected = "its lease of 5 seconds ended"
        with pytest.raises(WrongState, match=expected) as caught:
            queue.claim("w", "a", ttl=5)
        assert caught.value.task_id == "a"
        lines = [json.loads(line) for line in store.read_log(LOG)[0]][1:]
        back = [{"op": "void", "at": to_iso(clock.now()), "id": "a", "worker": "w", "token": 1}]
        assert lines[1:] == ([] if slow == "acquire" else back) and len(lines) == (
            0 if slow == "acquire" else 2
        )

    @pytest.mark.parametrize("named", [None, "a"])
    @pytest.mark.parametrize("errors", [1, 3])
    def test_a_claim_whose_line_was_written_before_an_error_costs_no_attempt(
        self,
        queue: TaskQueue,
        store: Store,
        monkeypatch: pytest.MonkeyPatch,
        errors: int,
        named: str | None,
    ) -> None:
        """Once, or as long as the store cannot be used."""
        queue.add("a", "x", max_attempts=1)
        append, left = store.append, errors

        def broken(log: str, line: bytes) -> str:
            nonlocal left
            cursor = append(log, line) if log == LOG and b'"claim"' in line else ""
            if left:
                left -= 1
                raise StoreError("an error after the line was written")
            return cursor or append(log, line)

        monkeypatch.setattr(store, "append", broken)
        with pytest.raises(StoreError):
            queue.claim("w")
        left = 0
        assert TaskQueue(store).get("a").state == ("ready" if errors == 1 else "failed")
        claim = queue.claim("w", named)
        assert claim.task.attempts == 1
        assert queue.done("a", "w", claim.token).state == "done"

    def test_a_worker_that_sleeps_past_its_lease_in_its_claim_uses_no_attempt_up(
        self, queue: TaskQueue, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its claim is written when the next worker has the lock, and is voided when
        the claim of that worker has been refused.
        """
        queue.add("a", "x", max_attempts=1)
        append, other = store.append, TaskQueue(store)
        order = []

        def slept(log: str, line: bytes) -> str:
            if log != LOG:
                return append(log, line)
            order.append((json.loads(line)["op"], json.loads(line).get("worker")))
            if order == [("claim", "asleep")]:
                clock.pass_time(6)
                lock = LockTable(store).acquire("a", "other", 60)
                cursor = append(log, line)
                line = event(
                    "claim", at=other._log().now(), id="a", worker="other", token=lock.token
                )
                append(LOG, line)
                LockTable(store).release("a", "other")
                return cursor
            return append(log, line)

        monkeypatch.setattr(store, "append", slept)
        with pytest.raises(WrongState, match="its lease of 5 seconds ended"):
            queue.claim("asleep", "a", ttl=5)
        assert order == [("claim", "asleep"), ("void", "asleep")]
        assert (other.get("a").state, other.get("a").attempts) == ("ready", 0)

    def test_a_claim_of_which_its_worker_is_not_told_costs_no_attempt(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")

        def interrupted(claim: Callable[[], Claim], _: float) -> Claim:
            assert claim().token == 1
            raise KeyboardInterrupt

        monkeypatch.setattr(queue, "retry_claim", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.claim("w")
        task = TaskQueue(store).get("a")
        assert (task.state, task.attempts) == ("ready", 0)
        assert not LockTable(store).status("a").exists
        void = json.loads(store.read_log(LOG)[0][-1])
        assert (void["op"], void["id"], void["worker"], void["token"]) == ("void", "a", "w", 1)

    def test_a_failed_claim_raises_its_cause_even_if_it_cannot_be_undone(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")

        def broken(*_: Any) -> Any:
            monkeypatch.setattr(store, "append", _refuse)
            raise RuntimeError("the log is gone")

        monkeypatch.setattr(queue._log().status, "append", broken)
        with pytest.raises(RuntimeError, match="the log is gone"):
            queue.claim("w")
        assert not LockTable(store).status("a").exists

    def test_a_record_from_an_agents_output_does_not_replace_the_record_of_the_end(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        with monkeypatch.context() as broken:
            broken.setattr(queue._log().status, "append", _refuse)
            with pytest.raises(StoreError):
                queue.done("a", "w", claim.token, "well")
        StatusLog(store).append(
            "DONE", "w", "a", "I am done", {"token": claim.token, "from": "output"}
        )
        assert queue.done("a", "w", claim.token, "well").state == "done"
        assert logged(store, "a")[1:] == [("DONE", "I am done"), ("DONE", "well")]

    def test_a_task_is_ready_if_a_worker_is_killed_between_lock_and_claim(
        self, tmp_path: Path
    ) -> None:
        queue = TaskQueue(FileStore(str(tmp_path)))
        queue.add("a", "x")

        def die() -> None:
            dying = TaskQueue(FileStore(str(tmp_path)))
            dying._log().append = lambda line: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment, return-value]
            dying.claim("w1", bound=True)

        os.waitpid(fork(die), 0)
        assert (tmp_path / "locks" / "a.lock").exists()
        assert queue.claim("w2").task.attempts == 1

    def test_a_task_is_done_if_its_worker_is_killed_before_the_release(
        self, tmp_path: Path
    ) -> None:
        queue = TaskQueue(FileStore(str(tmp_path)))
        queue.add("a", "x")

        def die() -> None:
            dying = TaskQueue(FileStore(str(tmp_path)))
            claim = dying.claim("w1", bound=True)
            dying._claims()._endings._log_end = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
            dying.done("a", "w1", claim.token)

        os.waitpid(fork(die), 0)
        assert queue.get("a").state == "done"
        with pytest.raises(NoTask, match="nothing is left"):
            queue.claim("w2")

    def test_a_claim_that_could_not_be_completed_costs_no_attempt(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x", max_attempts=1)
        for _ in range(4):
            with monkeypatch.context() as patch:
                patch.setattr(StatusLog, "append", _refuse)
                with pytest.raises(StoreError):
                    queue.claim("w")
        assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)

    def test_a_claim_whose_lease_ended_before_it_was_complete_is_undone(
        self, queue: TaskQueue, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        append = StatusLog.append

        def slow(log: StatusLog, *args: Any) -> bytes:
            clock.pass_time(6)
            return append(log, *args)

        monkeypatch.setattr(StatusLog, "append", slow)
        with pytest.raises(NoTask):
            queue.claim("w1", ttl=5)
        monkeypatch.undo()
        assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)

    def test_an_unreadable_lock_does_not_block_other_tasks(self, tmp_path: Path) -> None:
        queue = TaskQueue(FileStore(str(tmp_path)))
        for name in "abcd":
            queue.add(name, "x")
        for name in "ab":
            (tmp_path / "locks" / f"{name}.lock").mkdir(parents=True)
        assert {queue.claim("w").task.id for _ in range(2)} == {"c", "d"}
        with pytest.raises(StoreError, match=r"/locks/[ab]\.lock: Is a directory"):
            queue.claim("w")

    def test_a_claim_whose_start_cannot_be_logged_is_undone(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        monkeypatch.setattr(
            StatusLog, "append", lambda *_: (_ for _ in ()).throw(RuntimeError("the log is gone"))
        )
        with pytest.raises(RuntimeError):
            queue.claim("w")
        monkeypatch.undo()
        assert not LockTable(store).status("a").exists
        assert queue.claim("w2").task.worker == "w2"


class TestKeeping:
    def test_keep_sends_heartbeats_and_does_not_release_the_claim_at_its_end(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w", ttl=60, bound=True)
        with queue.keep(claim) as lease:
            assert (lease.task_id, lease.worker, lease.token, lease.ttl) == (
                "a",
                "w",
                claim.token,
                60,
            )
            found = LockTable(store).status("a")
            assert found.lock is not None and found.lock.encode() == claim.lock.encode()
        assert queue.done("a", "w", claim.token).state == "done"

    def test_a_group_that_works_on_the_task_keeps_it_too(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w", ttl=60, bound=True)
        with queue.keep(claim, group=77):
            found = LockTable(store).status("a")
            assert found.lock is not None and found.lock.holder["group"] == 77
        found = LockTable(store).status("a")
        assert found.is_held

    def test_keep_reports_a_lost_lease(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        reported: list[LockLost] = []
        with queue.keep(queue.claim("w"), on_lost=reported.append) as lease:
            LockTable(store).break_lock("a")
            with pytest.raises(LockLost):
                lease.check()
        assert [lost.task_id for lost in reported] == ["a"]

    def test_keep_refuses_a_claim_that_a_worker_of_the_same_name_took_over(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        late = queue.claim("w", ttl=5)
        clock.pass_time(6)
        TaskQueue(store).claim("w")
        with pytest.raises(LockLost):
            queue.keep(late, group=77)

    def test_keep_gives_a_lock_without_end_the_usual_lease(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        LockTable(store).break_lock("a")
        lock = LockTable(store).acquire("a", "w", None)
        assert lock.token is not None
        with queue.keep(Claim(claim.task, "w", lock.token, lock)) as lease:
            assert lease.ttl == lock_ttl()


class TestWaiting:
    """Where waiting lets time pass, by both clocks, and is counted in `pauses`."""

    @pytest.fixture
    def pauses(
        self, queue: TaskQueue, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> list[float]:
        pauses: list[float] = []
        now = 1024.0  # a float that takes fractions exactly

        def wait(timeout: float) -> bool:
            nonlocal now
            now += timeout
            clock.pass_time(timeout)
            pauses.append(timeout)
            return False

        monkeypatch.setattr(queue, "wait", wait)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
        return pauses

    def test_a_claim_without_a_task_tries_again_until_its_time_is_over(
        self, queue: TaskQueue, pauses: list[float]
    ) -> None:
        with pytest.raises(NoTask):
            queue.claim("w", wait=1.25)
        assert pauses == [0.5, 0.5, 0.25]
        with pytest.raises(NoTask):
            queue.claim("w")
        assert len(pauses) == 3

    @pytest.mark.parametrize(("left", "pause"), [(0.25, 0.25), (0.004, 0.01), (3.0, 0.5)])
    def test_a_claim_waits_for_the_delay_of_a_task(
        self, queue: TaskQueue, clock: HandClock, pauses: list[float], left: float, pause: float
    ) -> None:
        queue.add("a", "x")
        queue.fail("a", "w", queue.claim("w").token, delay=10)
        clock.pass_time(10 - left)
        assert queue.claim("w", wait=10).task.id == "a"
        assert pauses[0] == pytest.approx(pause, abs=0.002)

    def test_a_named_task_that_is_not_there_is_not_waited_for(
        self, queue: TaskQueue, pauses: list[float]
    ) -> None:
        with pytest.raises(NoTask) as caught:
            queue.claim("w", "a", wait=60)
        assert caught.value.why == "unknown" and pauses == []

    def test_a_caller_that_is_asked_to_stop_tries_once(
        self, queue: TaskQueue, pauses: list[float]
    ) -> None:
        with pytest.raises(NoTask):
            queue.retry_claim(lambda: queue.claim("w"), 60, lambda: True)
        assert pauses == []

    @pytest.mark.parametrize("why", ["held", "waits"])
    def test_a_named_task_is_waited_for_while_it_is_held_or_waits(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch, why: str
    ) -> None:
        queue.add("first", "x")
        queue.add("a", "x", after=["first"] if why == "waits" else [])
        if why == "held":
            LockTable(store).acquire("a", "ada", 60)

        def wait(timeout: float) -> bool:
            if why == "held":
                LockTable(store).release("a", "ada")
            else:
                queue.done("first", "v", queue.claim("v", "first").token)
            return True

        monkeypatch.setattr(queue, "wait", wait)
        assert queue.claim("w", "a", wait=60).task.id == "a"


class TestUsing:
    def test_a_lost_claim_is_given_up_once_its_work_has_stopped(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        lost = queue.claim("w", ttl=5)
        queue.cancel("a", "ada")
        queue.give_up(lost)
        assert queue.holder("a") is None
        later = LockTable(store).acquire("a", "w", 60)
        queue.give_up(lost)
        assert LockTable(store).status("a").is_held_by("w", later.token)

    def test_the_holder_of_a_task_is_the_worker_whose_lock_counts(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        assert queue.holder("a") is None
        queue.claim("w", ttl=5)
        holder = queue.holder("a")
        assert holder is not None and holder.worker == "w"
        clock.pass_time(6)
        assert queue.holder("a") is None
        with pytest.raises(BadInput, match=r"^task_id '../a' is not a valid name"):
            queue.holder("../a")

    def test_an_error_that_may_have_cut_a_change_off_makes_the_queue_read_again(
        self, queue: TaskQueue
    ) -> None:
        queue.add("a", "x")
        before = queue._log()
        with pytest.raises(NoTask):
            queue.get("b")
        assert queue._log() is before
        with pytest.raises(ZeroDivisionError):
            queue._use(lambda log, claims: 1 // 0)
        assert queue._log() is not before

    def test_a_signal_handler_gets_a_queue_of_its_own(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        assert queue._use(lambda log, claims: queue._log() is not log)


@pytest.mark.parametrize(
    "call",
    [
        ("claim", "../w"),
        *((verb, "a", "../w") for verb in ("done", "fail", "release", "retry", "cancel")),
        *((verb, "a", "../w", 1) for verb in ("done", "fail", "release")),
    ],
)
def test_a_worker_without_a_proper_name_may_do_nothing(
    queue: TaskQueue, store: Store, call: tuple[Any, ...]
) -> None:
    queue.add("a", "x")
    with pytest.raises(BadInput, match=r"^worker '../w' is not a valid name"):
        getattr(queue, call[0])(*call[1:])
    assert len(store.read_log(LOG)[0]) == 1


class TestDirecting:
    def test_a_failed_task_can_be_tried_again_from_the_start(self, queue: TaskQueue) -> None:
        queue.add("a", "x", max_attempts=1)
        queue.fail("a", "w", queue.claim("w").token)
        assert queue.retry("a", "ada").state == "ready"
        assert queue.claim("w").task.attempts == 1

    def test_a_task_whose_worker_died_at_the_last_attempt_can_be_retried(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("a", "x", max_attempts=1)
        queue.claim("w", ttl=5)
        clock.pass_time(6)
        assert queue.retry("a", "ada").state == "ready"
        assert queue.claim("w").task.attempts == 1

    def test_two_retries_at_once_leave_the_task_without_a_worker(
        self, queue: TaskQueue, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x", max_attempts=1)
        queue.claim("w", ttl=5)
        clock.pass_time(6)
        judge = queue._log().effective_state

        def slow(entry: TaskState) -> str:
            state = judge(entry)
            TaskQueue(store).retry("a", "bob")
            return state

        ended: list[Ending] = []
        end = queue._claims().end

        def noted(one: Ending) -> Task:
            ended.append(one)
            return end(one)

        monkeypatch.setattr(queue._claims(), "end", noted)
        monkeypatch.setattr(queue._log(), "effective_state", slow)
        assert queue.retry("a", "ada").state == "ready"
        assert [one.token for one in ended] == [3]  # whoever has claimed the task meanwhile
        assert not LockTable(store).status("a").exists
        assert [record[:3] for record in records(store, "a")[1:]] == [
            ("ERROR", "swarm", "its worker w was gone, at the last of 1 attempts"),
            ("SKIP", "bob", "to be tried again"),
            ("START", "swarm", "taken over from w"),
            ("SKIP", "swarm", "released"),
        ]
        assert queue.claim("w").task.attempts == 1

    def test_a_process_killed_during_a_retry_does_not_block_the_next_retry(
        self, tmp_path: Path, clock: HandClock
    ) -> None:
        store = FileStore(str(tmp_path), clock=clock)
        queue = TaskQueue(store)
        queue.add("a", "x", max_attempts=1)
        queue.claim("w", ttl=5)
        clock.pass_time(6)

        def die() -> None:
            dying = TaskQueue(FileStore(str(tmp_path), clock=clock))
            dying._log().append = lambda line: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment, return-value]
            dying.retry("a", "ada")

        os.waitpid(fork(die), 0)
        found = LockTable(store).status("a")
        assert found.lock is not None and (found.lock.worker, found.lock.ttl) == ("swarm", 60)
        assert queue.retry("a", "ada").state == "ready"

    def test_only_failed_and_cancelled_tasks_can_be_retried(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        with pytest.raises(WrongState, match="a is ready: there is nothing to retry") as caught:
            queue.retry("a", "ada")
        assert caught.value.task_id == "a"
        queue.done("a", "w", queue.claim("w").token)
        with pytest.raises(WrongState, match="a is done"):
            queue.retry("a", "ada")

    def test_a_cancelled_task_is_not_done(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        assert queue.cancel("a", "ada", "not needed").state == "cancelled"
        assert logged(store, "a") == [("SKIP", "cancelled: not needed")]
        with pytest.raises(NoTask):
            queue.claim("w")
        with pytest.raises(WrongState, match="a is cancelled already") as caught:
            queue.cancel("a", "ada")
        assert caught.value.task_id == "a"
        written = store.read_log(LOG)
        with pytest.raises(NoTask, match="there is no task b"):
            queue.cancel("b", "ada")
        assert store.read_log(LOG) == written
        assert queue.retry("a", "ada").state == "ready"

    def test_a_worker_that_claims_during_a_cancel_loses_the_task(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        log = queue._log()
        append = log.append

        def slow(line: bytes) -> bool:
            TaskQueue(store).claim("w")
            return append(line)

        monkeypatch.setattr(log, "append", slow)
        assert queue.cancel("a", "ada").state == "cancelled"
        with pytest.raises(LockLost, match="a was cancelled"):
            LockTable(store).heartbeat("a", "w")

    def test_the_worker_of_a_cancelled_task_loses_it(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        queue.cancel("a", "ada")
        with pytest.raises(LockLost, match="a was cancelled"):
            LockTable(store).heartbeat("a", "w", claim.token)
        with queue.keep(claim) as lease, pytest.raises(LockLost, match="a was cancelled"):
            lease.check()
        with pytest.raises(LockLost, match="the task is cancelled"):
            queue.done("a", "w", claim.token)
        assert queue.get("a").state == "cancelled"
        state, worker, text, about = records(store, "a")[1]
        assert (state, worker, text) == ("SKIP", "ada", "cancelled")
        assert about["process"]["pid"] == os.getpid() and about["process"]["uid"] == os.getuid()

    def test_a_cancelled_task_is_free_once_its_worker_has_stopped(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        queue.cancel("a", "ada")
        lock = queue.holder("a")
        assert lock is not None and lock.belongs_to("w", claim.token)
        assert queue.retry("a", "ada").state == "ready"
        with pytest.raises(LockHeld):
            TaskQueue(store).claim("v", "a")
        with pytest.raises(NoTask) as caught:
            TaskQueue(store).claim("v")
        assert caught.value.holders == {"a": "w"}
        with pytest.raises(LockLost):
            queue.fail("a", "w", claim.token)
        assert queue.holder("a") is None
        assert TaskQueue(store).claim("v", "a").task.attempts == 1

    def test_a_cancelled_task_is_free_once_the_lease_of_its_worker_is_over(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w", ttl=60)
        clock.pass_time(50)
        queue.cancel("a", "ada")
        queue.retry("a", "ada")
        with pytest.raises(LockHeld):
            TaskQueue(store).claim("v", "a")
        with pytest.raises(LockLost):
            LockTable(store).heartbeat("a", "w", claim.token)
        clock.pass_time(11)
        assert TaskQueue(store).claim("v", "a").worker == "v"

    def test_a_repeated_cancel_asks_the_worker_again_to_stop(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        with monkeypatch.context() as broken:
            broken.setattr(LockTable, "ask_to_stop", _refuse)
            with pytest.raises(StoreError):
                queue.cancel("a", "ada")
        LockTable(store).heartbeat("a", "w", claim.token)
        with pytest.raises(WrongState, match="a is cancelled already"):
            queue.cancel("a", "ada")
        with pytest.raises(LockLost):
            LockTable(store).heartbeat("a", "w", claim.token)

    def test_a_refused_cancel_asks_no_worker_to_stop(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        monkeypatch.setattr(queue._log(), "release_quietly", lambda *_: None)
        queue.done("a", "w", claim.token)
        with pytest.raises(WrongState, match="a is done already"):
            queue.cancel("a", "ada")
        assert LockTable(store).heartbeat("a", "w", claim.token).token == claim.token

    def test_cancel_does_not_release_a_lock_without_a_claim(
        self, queue: TaskQueue, store: Store
    ) -> None:
        """It has the lock, and its claim is about to be written: it will be refused,
        and releases the lock itself.
        """
        queue.add("a", "x")
        queue.release("a", "w", queue.claim("w").token)
        lock = LockTable(store).acquire("a", "w", 60)
        queue.cancel("a", "ada")
        found = LockTable(store).status("a")
        assert found.lock is not None and found.lock.token == lock.token

    def test_tasks_after_a_failed_task_are_blocked_until_it_is_done(self, queue: TaskQueue) -> None:
        queue.add_all(
            [
                TaskSpec("a", "x", max_attempts=1),
                TaskSpec("b", "x", after=("a",)),
                TaskSpec("c", "x", after=("b",)),
            ]
        )
        queue.fail("a", "w", queue.claim("w").token)
        assert queue.blocked() == {"b": "a", "c": "a"}
        assert queue.is_finished()
        queue.retry("a", "ada")
        assert queue.blocked() == {} and not queue.is_finished()
        for name in "abc":
            queue.done(name, "w", queue.claim("w").token)
        assert queue.counts() == {"done": 3}


class TestReading:
    def test_a_process_that_starts_from_a_snapshot_sees_the_same_queue(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add_all([TaskSpec(f"t{number}", "x", priority=number % 3) for number in range(2500)])
        for _ in range(10):
            claim = queue.claim("w")
            queue.done(claim.task.id, "w", claim.token)
        assert store.cache_get(LOG) is not None
        fresh = TaskQueue(store)
        assert fresh.tasks() == queue.tasks()
        assert fresh.claim("w").task.id == "t32"

    def test_a_process_that_starts_from_a_snapshot_knows_the_workers_of_tasks(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_fold.LogFold, "SNAPSHOT_EVERY", 1)
        queue = TaskQueue(store)
        queue.add("a b", "x")
        queue.claim("w")
        queue.tasks()
        monkeypatch.setattr(
            QueueState, "apply", lambda *_: pytest.fail("the snapshot has all events")
        )
        fresh = TaskQueue(store)
        with pytest.raises(NoTask) as caught:
            fresh.claim("v")
        assert caught.value.holders == {"a b": "w"}

    def test_a_damaged_line_harms_no_other(self, store: Store, queue: TaskQueue) -> None:
        queue.add("a", "x")
        for line in (
            b"",
            b'{"op": "add", "id": "../../outside", "prompt": "x", "priority": 9}',
            b'{"op": "add", "id": "z", "prompt": "x", "priority": 1e999}',
            b"{",
            b"[]",
            b'"add"',
            b'{"op": "add"}',
            b'{"op": "add", "id": 5}',
            b'{"op": "claim", "id": "a"}',
            b"\xff",
        ):
            store.append(LOG, line)
        store.append(LOG, b'{"op": "claim", "id": "a", "token": "x", "worker": "w"}')
        store.append(LOG, b'{"op": "fly", "id": "a"}')
        queue.add("b", "x")
        assert [task.id for task in queue.tasks()] == ["a", "b"]
        assert queue.claim("w").task.id == "a"

    @pytest.mark.parametrize(
        "line",
        [
            b'{"op": "add", "id": "x", "prompt": "x", "priority": 1e999}',
            b'{"op": "add", "id": "x", "prompt": "x", "max_attempts": "3"}',
            b'{"op": "add", "id": "x", "prompt": 5}',
            b'{"op": "add", "id": "x", "prompt": "x", "meta": 5}',
            b'{"op": "add", "id": "x", "prompt": "x", "timeout": "long"}',
            b'{"op": "add", "id": "x", "command": {"make": 1}}',
            b'{"op": "add", "id": "x", "prompt": "x", "after": "ab"}',
            b'{"op": "add", "id": "x", "prompt": "x", "after": [5]}',
            b'{"op": "add", "id": "../x", "prompt": "x"}',
            b'{"op": "add", "id": "", "prompt": "x"}',
            b'{"op": "claim", "id": "a", "token": 1e999, "worker": "w"}',
            b'{"op": "claim", "id": "a", "token": 7, "worker": ["w"]}',
            b'{"op": "fail", "id": "b", "token": 1, "delay": 1%s}' % (b"0" * 400),
            b'{"op": "fail", "id": "b", "token": 1, "delay": "long"}',
        ],
    )
    def test_a_foreign_line_is_no_event_and_does_no_harm(self, store: Store, line: bytes) -> None:
        """Nor does it take the lines behind it along."""
        queue = TaskQueue(store)
        queue.add("b", "x", priority=1)
        assert queue.claim("w").token == 1
        queue.add("a", "x")
        store.append(LOG, line)
        queue.add("c", "x", priority=-1)
        assert [(task.id, task.state) for task in queue.tasks()] == [
            ("b", "running"),
            ("a", "ready"),
            ("c", "ready"),
        ]
        assert [queue.claim("w").task.id for _ in range(2)] == ["a", "c"]
        with pytest.raises(NoTask):
            queue.claim("w")
        assert TaskQueue(store).tasks() == queue.tasks()
        assert queue._log().state.damaged == 1

    @pytest.mark.parametrize(
        "damage",
        [b"", b"{", b"[]", b'{"version": 1, "cursor": "1:5", "state": [[1]]}', b"\0" * 100],
    )
    def test_a_damaged_snapshot_of_the_queue_is_ignored(
        self, tmp_path: Path, damage: bytes
    ) -> None:
        store = FileStore(str(tmp_path))
        TaskQueue(store).add("a", "x")
        store.cache_put(LOG, damage)
        assert [task.id for task in TaskQueue(FileStore(str(tmp_path))).tasks()] == ["a"]

    def test_a_snapshot_of_another_log_is_not_used(self, tmp_path: Path) -> None:
        store = FileStore(str(tmp_path / "one"))
        TaskQueue(store).add_all([TaskSpec(f"t{number}", "x") for number in range(2500)])
        saved = store.cache_get(LOG)
        assert saved is not None
        other = FileStore(str(tmp_path / "other"))
        TaskQueue(other).add("t1", "another")
        other.cache_put(LOG, saved)
        assert [task.spec.prompt for task in TaskQueue(other).tasks()] == ["another"]

    def test_a_worker_goes_on_when_the_state_directory_was_made_anew(self, tmp_path: Path) -> None:
        """The same tasks, imported again: they are new tasks, and the old ones being
        done says nothing about them.
        """
        queue = TaskQueue(FileStore(str(tmp_path / "s")))
        specs = [TaskSpec(f"t{number}", "x") for number in range(3)]
        queue.add_all(specs)
        for _ in specs:
            claim = queue.claim("w")
            queue.done(claim.task.id, "w", claim.token)
        shutil.rmtree(tmp_path / "s")
        assert queue.tasks() == []
        TaskQueue(FileStore(str(tmp_path / "s"))).add_all(specs)
        assert {queue.claim("w").task.id for _ in specs} == {"t0", "t1", "t2"}
        assert queue.counts() == {"running": 3}

    @pytest.mark.parametrize("end", ["done", "fail", "release"])
    def test_the_worker_of_a_task_whose_queue_was_removed_has_lost_it(
        self, tmp_path: Path, end: str
    ) -> None:
        queue = TaskQueue(FileStore(str(tmp_path / "s")))
        queue.add("a", "x")
        claim = queue.claim("w")
        shutil.rmtree(tmp_path / "s")
        with pytest.raises(
            LockLost, match="there is no task a any more: the queue was removed or replaced"
        ) as caught:
            getattr(queue, end)("a", "w", claim.token)
        assert caught.value.task_id == "a"

    @pytest.mark.parametrize("what", ["claim", "cancel", "retry"])
    def test_a_task_that_goes_with_the_state_directory_just_now_is_not_there(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        queue = TaskQueue(FileStore(str(tmp_path / "s")))
        queue.add("a", "x")
        if what == "retry":
            queue.cancel("a", "ada")
        append = queue._log().append

        def slow(line: bytes) -> bool:
            shutil.rmtree(tmp_path / "s")
            return append(line)

        monkeypatch.setattr(queue._log(), "append", slow)
        with pytest.raises(NoTask, match="there is no task a") as caught:
            getattr(queue, what)(*(("w", "a") if what == "claim" else ("a", "w")))
        assert caught.value.why == "unknown"

    def test_tasks_are_listed_by_states_that_there_are(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        assert [task.id for task in queue.tasks("ready")] == ["a"] and queue.tasks("done") == []
        with pytest.raises(BadInput) as caught:
            queue.tasks("x" * 50)
        states = "ready waiting running asking submitted done failed cancelled"
        assert str(caught.value) == f"{'x' * 40!r} is not a state of a task: use one of {states}."

    def test_waiting_ends_when_the_queue_has_changed(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        assert queue.wait(0.0) is False
        TaskQueue(store).add("b", "x")
        assert queue.wait(5.0) is True

    def test_seconds_until_due_returns_the_shortest_delay(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        queue.add("a", "x")
        assert queue.seconds_until_due() is None
        queue.fail("a", "w", queue.claim("w").token, delay=30)
        clock.pass_time(29.5)
        assert queue.seconds_until_due() == pytest.approx(0.5, abs=0.01)
        with pytest.raises(NoTask) as caught:
            queue.claim("w")
        assert caught.value.ready_in == pytest.approx(0.5, abs=0.01)
        clock.pass_time(5)
        assert queue.seconds_until_due() == 0.0

    def test_reading_creates_nothing(self, isolated_swarm_dir: Path) -> None:
        queue = TaskQueue()
        assert queue.tasks() == [] and queue.counts() == {} and queue.is_finished()
        with pytest.raises(NoTask):
            queue.claim("w")
        assert not isolated_swarm_dir.exists()


def test_a_worker_cannot_end_the_claim_of_another_with_its_token(queue: TaskQueue) -> None:
    queue.add("login", "x")
    claim = queue.claim("ada")
    with pytest.raises(LockLost, match="ada has the task"):
        queue.done("login", "bob", claim.token)
    assert queue.done("login", "ada", claim.token).state == "done"


def test_an_event_with_an_infinite_number_does_not_block_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_fold.LogFold, "SNAPSHOT_EVERY", 1)
    store = FileStore(str(tmp_path))
    queue = TaskQueue(store)
    queue.add("a", "x")
    claim = queue.claim("ada")
    line = (
        b'{"op": "fail", "at": "2026-02-02T10:30:10.123Z", "id": "a", "worker": "ada", '
        b'"token": %d, "delay": 1e999}'
    )
    store.append("tasks", line % claim.token)
    queue.add("b", "x")
    assert TaskQueue(store).claim("bob").task.id == "b"
