"""The queue: tasks are handed to one worker at a time, and what becomes of them is decided by the token."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proof.processes import fork
from swarm import task_queue
from swarm.clock import to_iso
from swarm.errors import BadInput, LockHeld, LockLost, NoTask, StoreError, TaskExists, WrongState
from swarm.lock_table import LockTable
from swarm.status_log import StatusLog
from swarm.store import Store
from swarm.store_file import FileStore
from swarm.task_picture import TaskPicture
from swarm.task_queue import TaskQueue
from swarm.task_record import LOG, TaskSpec
from tests.conftest import HandClock


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    return TaskQueue(store)


def told(store: Store, task: str) -> list[tuple[str, str]]:
    return [(record["state"], record.get("message", "")) for _, record in StatusLog(store).query(task)]


def _refuse(*_: Any, **__: Any) -> Any:
    raise StoreError("the disk is full")


class TestAdding:
    def test_a_task_is_as_it_was_asked_for(self, queue: TaskQueue) -> None:
        queue.add("a", "first")
        queue.add(
            "任务-1", "do it", command=["make", "x"], priority=7, after=["a"], max_attempts=5, timeout=9.5, meta={"owner": "ada"}
        )
        task = queue.get("任务-1")
        assert task.spec == TaskSpec("任务-1", "do it", ("make", "x"), 7, ("a",), 5, 9.5, {"owner": "ada"})
        assert (task.state, task.attempts, task.worker, task.token) == ("waiting", 0, "", None)

    def test_an_id_is_taken_once(self, queue: TaskQueue) -> None:
        queue.add("a", "one")
        with pytest.raises(TaskExists, match="There is a task a already"):
            queue.add("a", "one")
        with pytest.raises(TaskExists, match="it is another one"):
            queue.add("a", "two")
        assert queue.get("a").spec.prompt == "one"

    @pytest.mark.parametrize("one", ["the same", "another"])
    def test_of_two_who_add_the_same_id_one_is_told_that_it_was_there(
        self, store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch, one: str
    ) -> None:
        mine, other = TaskQueue(store), TaskQueue(store)
        check = task_queue._check_new

        def slow(specs: Sequence[TaskSpec], picture: TaskPicture) -> None:
            check(specs, picture)
            monkeypatch.undo()
            assert mine.add_all([TaskSpec("a", "mine"), TaskSpec("b", "same")]) == (["a", "b"], [])
            clock.pass_time(1)

        monkeypatch.setattr(task_queue, "_check_new", slow)
        if one == "another":
            with pytest.raises(TaskExists, match="a already, and it is another one"):
                other.add_all([TaskSpec("a", "other")])
        else:
            assert other.add_all([TaskSpec("b", "same"), TaskSpec("c", "other")]) == (["c"], ["b"])
        assert [task.spec.prompt for task in TaskQueue(store).tasks()][:2] == ["mine", "same"]

    def test_a_task_cannot_come_after_one_that_is_not_there(self, queue: TaskQueue) -> None:
        with pytest.raises(BadInput, match="b comes after a, but there is no such task"):
            queue.add("b", "x", after=["a"])
        assert queue.tasks() == []

    def test_many_may_come_after_each_other_in_any_order(self, queue: TaskQueue) -> None:
        specs = [TaskSpec("c", "x", after=("b",)), TaskSpec("b", "x", after=("a",)), TaskSpec("a", "x")]
        assert queue.add_all(specs) == (["c", "b", "a"], [])
        assert [task.state for task in queue.tasks()] == ["waiting", "waiting", "ready"]
        assert queue.add_all(specs) == ([], ["c", "b", "a"])

    @pytest.mark.parametrize(
        ("after", "circle"),
        [
            ({"a": ("a",)}, "a after a"),
            ({"a": ("b",), "b": ("a",)}, "a after b after a"),
            ({"x": (), "a": ("x", "b"), "b": ("c",), "c": ("x", "a")}, "a after b after c after a"),
        ],
    )
    def test_a_circle_is_refused_and_named(self, queue: TaskQueue, after: dict[str, tuple[str, ...]], circle: str) -> None:
        with pytest.raises(BadInput, match=f"in a circle: {circle}"):
            queue.add_all([TaskSpec(name, "x", after=names) for name, names in after.items()])
        assert queue.tasks() == []

    def test_many_tasks_are_checked_in_one_go(self, queue: TaskQueue) -> None:
        """Looking at all others for each would take minutes."""
        chain = [TaskSpec(f"t{number}", "x", after=(f"t{number + 1}",)) for number in range(30_000)]
        with pytest.raises(BadInput, match=r"in a circle: t0 after t1 .* after … after .* after t30000 after t0\."):
            queue.add_all([*chain, TaskSpec("t30000", "x", after=("t0",))])
        with pytest.raises(BadInput, match="the task t0 is given twice"):
            queue.add_all([*chain, TaskSpec("t30000", "x"), chain[0]])
        assert queue.tasks() == []

    def test_a_circle_through_what_is_there_is_found(self, store: Store, queue: TaskQueue) -> None:
        store.append(LOG, b'{"op": "add", "id": "a", "prompt": "x", "after": ["b"]}')  # an import that was cut off
        with pytest.raises(BadInput, match="in a circle: b after a after b"):
            queue.add("b", "x", after=["a"])

    def test_a_long_chain_is_no_circle(self, queue: TaskQueue) -> None:
        names = [f"t{number}" for number in range(2000)]
        queue.add_all([TaskSpec(name, "x", after=tuple(names[at + 1 : at + 2])) for at, name in enumerate(names)])
        assert queue.claim("w").task.id == "t1999"

    def test_two_who_import_at_once_cannot_make_a_circle(self, store: Store) -> None:
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
    def test_what_breaks_a_rule_is_refused_and_nothing_is_written(
        self, queue: TaskQueue, fields: dict[str, object], rule: str
    ) -> None:
        with pytest.raises(BadInput, match=rule):
            queue.add(**fields)  # type: ignore[arg-type]
        assert queue.tasks() == []


class TestClaiming:
    def test_a_claim_is_the_lock_and_start(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "do it")
        claim = queue.claim("w", ttl=60)
        lock = LockTable(store).look("a")
        assert lock is not None and lock[0] is not None and lock[1].active
        assert (lock[0].worker, lock[0].token, lock[0].ttl) == ("w", claim.token, 60)
        assert told(store, "a") == [("START", "")]
        assert (claim.task.state, claim.task.worker, claim.task.attempts) == ("running", "w", 1)

    def test_a_task_has_one_claim(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        queue.claim("w1")
        with pytest.raises(NoTask, match="Nothing is free now") as caught:
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

    def test_a_task_waits_until_what_it_comes_after_is_done(self, queue: TaskQueue) -> None:
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

    def test_one_that_a_person_holds_is_passed_over(self, queue: TaskQueue, store: Store, clock: HandClock) -> None:
        queue.add("a", "x")
        queue.add("b", "x")
        locks = LockTable(store)
        held = locks.acquire("a", "ada", None)
        assert queue.claim("w").task.id == "b"
        with pytest.raises(NoTask, match="held by others") as caught:
            queue.claim("w")
        assert caught.value.holders == {"a": "ada", "b": "w"}
        locks.release("a", "ada", held.token)
        clock.pass_time(2)
        assert queue.claim("w").task.id == "a"

    def test_what_there_is_to_say_when_there_is_nothing(self, queue: TaskQueue) -> None:
        with pytest.raises(NoTask, match="nothing was ever added"):
            queue.claim("w")
        with pytest.raises(NoTask, match="There is no task a"):
            queue.claim("w", "a")
        queue.add("a", "x")
        queue.done("a", "w", queue.claim("w").token)
        with pytest.raises(NoTask, match="Nothing is left to do") as caught:
            queue.claim("w")
        assert caught.value.why == "finished"
        with pytest.raises(WrongState, match="a is done: there is nothing to do"):
            queue.claim("w", "a")

    def test_one_claim_of_many_that_go_for_it_at_once(self, tmp_path: Path) -> None:
        TaskQueue(FileStore(str(tmp_path))).add_all([TaskSpec(f"t{number}", "x") for number in range(40)])

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

    def test_a_claim_that_was_slower_than_its_successor_is_refused(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        """It took the lock, slept past its lease, and wrote its line only when another had claimed the task."""
        queue.add("a", "x")
        append = queue._ledger().append
        new = []

        def slow(line: bytes) -> bool:
            clock.pass_time(6)
            new.append(TaskQueue(store).claim("w2"))
            return append(line)

        queue._ledger().append = slow  # type: ignore[method-assign]
        with pytest.raises(NoTask):
            queue.claim("w1", ttl=5)
        assert (queue.get("a").worker, queue.get("a").token) == ("w2", new[0].token)
        assert [state for state, _ in told(store, "a")] == ["START"]


class TestEnding:
    def test_done_is_logged_and_gives_the_lock_back(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        task = queue.done("a", "w", claim.token, "12 tests pass")
        assert (task.state, task.reason) == ("done", "12 tests pass")
        assert told(store, "a") == [("START", ""), ("DONE", "12 tests pass")]
        assert LockTable(store).look("a") is None
        assert queue.done("a", "w", claim.token).state == "done"  # said twice
        assert len(told(store, "a")) == 2

    def test_a_failure_is_tried_again_until_the_attempts_are_used_up(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x", max_attempts=2)
        assert queue.fail("a", "w", queue.claim("w").token, "boom").state == "ready"
        assert queue.fail("a", "w", queue.claim("w").token, "boom again").state == "failed"
        assert told(store, "a")[-1] == ("ERROR", "boom again")
        with pytest.raises(NoTask, match="Nothing is left to do"):
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

    def test_a_clock_set_back_does_not_keep_a_failed_task(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.add("a", "x")
        queue.fail("a", "w", queue.claim("w").token, delay=30)
        clock.jump(-3600)
        assert queue.claim("w").task.id == "a"

    def test_what_is_given_back_is_next_and_the_attempt_does_not_count(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        queue.add("b", "x")
        queue.release("a", "w", queue.claim("w").token, "stopped")
        claim = queue.claim("w")
        assert (claim.task.id, claim.task.attempts) == ("a", 1)
        assert told(store, "a") == [("START", ""), ("SKIP", "given back: stopped"), ("START", "")]

    def test_without_a_token_the_claim_of_the_worker_counts(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        queue.claim("w1")
        with pytest.raises(LockLost, match=r"a is not w2's any more \(no token\): it is being worked on by w1"):
            queue.done("a", "w2")
        assert told(store, "a")[-1][0] == "SKIP"  # a refusal is logged in any case
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
        with pytest.raises(LockLost, match=r"not w1's any more \(token 1\)"):
            getattr(queue, end)("a", "w1", late.token)
        state, message = told(store, "a")[-1]
        assert state == "SKIP" and "with token 1 was refused" in message
        assert queue.get("a").worker == "w2"
        assert other.done("a", "w2", new.token).state == "done"
        with pytest.raises(LockLost):
            getattr(queue, end)("a", "w1", late.token)
        assert queue.get("a").state == "done"

    def test_a_late_worker_is_refused_by_the_log_alone(self, queue: TaskQueue, store: Store, clock: HandClock) -> None:
        """It looked at the lock, slept, and wrote its line only when another had claimed the task and given it back."""
        queue.add("a", "x")
        late = queue.claim("w1", ttl=5)
        clock.pass_time(6)
        other = TaskQueue(store)
        other.release("a", "w2", other.claim("w2").token)
        queue._claims()._why_lost = lambda *_: ""  # type: ignore[method-assign]
        with pytest.raises(LockLost, match="it is ready"):
            queue.done("a", "w1", late.token)
        assert queue.get("a").state == "ready"

    def test_a_worker_whose_lease_ended_unnoticed_may_still_finish(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.add("a", "x")
        claim = queue.claim("w", ttl=5)
        clock.pass_time(6)
        assert queue.done("a", "w", claim.token).state == "done"

    def test_who_took_the_lock_but_finds_the_task_done_gets_nothing(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        """Between the successor's lock and its claim, the late worker says that it is done: it was, and once."""
        queue.add("a", "x")
        late = queue.claim("w1", ttl=5)
        clock.pass_time(6)
        other = TaskQueue(store)
        append = other._ledger().append
        done = []

        def slow(line: bytes) -> bool:
            queue._claims()._why_lost = lambda *_: ""  # type: ignore[method-assign]  # it looked before the successor came
            done.append(queue.done("a", "w1", late.token).state)
            return append(line)

        other._ledger().append = slow  # type: ignore[method-assign]
        with pytest.raises(NoTask, match="Nothing is left to do"):
            other.claim("w2")
        assert done == ["done"]
        assert [state for state, _ in told(store, "a")] == ["START", "DONE"]
        assert LockTable(store).look("a") is None

    @pytest.mark.parametrize("end", ["done", "fail", "release"])
    def test_what_was_cut_off_is_completed_by_saying_it_again(
        self, queue: TaskQueue, store: Store, end: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The line is in the log, and then the disk was full: no record, and the lock still there."""
        queue.add("a", "x", max_attempts=1)
        claim = queue.claim("w")
        with monkeypatch.context() as patch:
            patch.setattr(StatusLog, "append", _refuse)
            patch.setattr(LockTable, "release", _refuse)
            with pytest.raises(StoreError):
                getattr(queue, end)("a", "w", claim.token)
        assert LockTable(store).look("a") is not None and len(told(store, "a")) == 1
        for _ in range(2):
            getattr(queue, end)("a", "w", claim.token)
            assert LockTable(store).look("a") is None and len(told(store, "a")) == 2

    def test_a_text_that_the_status_log_would_not_take_changes_nothing(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        with pytest.raises(BadInput, match="Put it in a file"):
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

    def test_a_queue_that_was_removed_has_no_task_to_end(self, tmp_path: Path) -> None:
        queue = TaskQueue(FileStore(str(tmp_path / "s")))
        queue.add("a", "x")
        claim = queue.claim("w")
        shutil.rmtree(tmp_path / "s")
        with pytest.raises(LockLost, match=r"There is no task a\..* The queue was removed, or replaced"):
            queue.done("a", "w", claim.token)


class TestDying:
    def test_a_claim_whose_lease_ends_comes_back(self, queue: TaskQueue, store: Store, clock: HandClock) -> None:
        queue.add("a", "x")
        queue.claim("w1", ttl=5)
        clock.pass_time(6)
        assert queue.get("a").state == "ready" and queue.counts() == {"ready": 1}
        claim = TaskQueue(store).claim("w2")
        assert (claim.task.id, claim.task.attempts, claim.task.worker) == ("a", 2, "w2")
        assert told(store, "a")[-1] == ("START", "taken over from w1")

    def test_a_claim_of_a_killed_process_comes_back_at_once(self, tmp_path: Path) -> None:
        queue = TaskQueue(FileStore(str(tmp_path)))
        queue.add("a", "x")

        def die() -> None:
            TaskQueue(FileStore(str(tmp_path))).claim("w1", bound=True, ttl=300)
            os.kill(os.getpid(), signal.SIGKILL)

        os.waitpid(fork(die), 0)
        assert queue.claim("w2").task.attempts == 2

    def test_a_claim_whose_lock_a_person_removed_comes_back(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        queue.claim("w1")
        LockTable(store).break_lock("a")
        assert queue.claim("w2").task.id == "a"

    def test_a_dead_claim_of_higher_priority_goes_before_what_is_ready(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.add("a", "x", priority=5)
        queue.add("b", "x")
        queue.claim("w1", ttl=5)
        clock.pass_time(6)
        assert queue.claim("w2").task.id == "a"

    def test_a_task_that_kills_its_workers_ends_as_failed(self, queue: TaskQueue, store: Store, clock: HandClock) -> None:
        queue.add("a", "x", max_attempts=2)
        for worker in ("w1", "w2"):
            queue.claim(worker, ttl=5)
            clock.pass_time(6)
        assert queue.get("a").state == "failed"  # nobody has found it yet
        with pytest.raises(NoTask) as caught:
            queue.claim("w3")
        assert caught.value.why == "finished"
        assert queue.get("a").reason == "its worker w2 was gone, at the last of 2 attempts"
        assert told(store, "a")[-1] == ("ERROR", "its worker w2 was gone, at the last of 2 attempts")
        assert LockTable(store).look("a") is None

    def test_killed_between_lock_and_claim_it_was_nobodys(self, tmp_path: Path) -> None:
        queue = TaskQueue(FileStore(str(tmp_path)))
        queue.add("a", "x")

        def die() -> None:
            dying = TaskQueue(FileStore(str(tmp_path)))
            dying._ledger().append = lambda line: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign, assignment, return-value]
            dying.claim("w1", bound=True)

        os.waitpid(fork(die), 0)
        assert (tmp_path / "locks" / "a.lock").exists()
        assert queue.claim("w2").task.attempts == 1

    def test_killed_between_done_and_giving_back_it_is_done(self, tmp_path: Path) -> None:
        queue = TaskQueue(FileStore(str(tmp_path)))
        queue.add("a", "x")

        def die() -> None:
            dying = TaskQueue(FileStore(str(tmp_path)))
            claim = dying.claim("w1", bound=True)
            dying._claims()._tell = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
            dying.done("a", "w1", claim.token)

        os.waitpid(fork(die), 0)
        assert queue.get("a").state == "done"
        with pytest.raises(NoTask, match="Nothing is left"):
            queue.claim("w2")

    def test_a_claim_that_cannot_be_told_costs_no_attempt(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x", max_attempts=1)
        for _ in range(4):
            with monkeypatch.context() as patch:
                patch.setattr(StatusLog, "append", _refuse)
                with pytest.raises(StoreError):
                    queue.claim("w")
        assert (queue.get("a").state, queue.get("a").attempts) == ("ready", 0)

    def test_a_claim_whose_lease_was_over_before_it_was_told_is_nobodys(
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

    def test_a_lock_that_cannot_be_read_keeps_nobody_from_the_others(self, tmp_path: Path) -> None:
        queue = TaskQueue(FileStore(str(tmp_path)))
        for name in "abcd":
            queue.add(name, "x")
        for name in "ab":
            (tmp_path / "locks" / f"{name}.lock").mkdir(parents=True)
        assert {queue.claim("w").task.id for _ in range(2)} == {"c", "d"}
        with pytest.raises(StoreError, match=r"/locks/[ab]\.lock: Is a directory"):
            queue.claim("w")

    def test_a_claim_that_cannot_be_started_is_not_kept(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        monkeypatch.setattr(StatusLog, "append", lambda *_: (_ for _ in ()).throw(RuntimeError("the log is gone")))
        with pytest.raises(RuntimeError):
            queue.claim("w")
        monkeypatch.undo()
        assert LockTable(store).look("a") is None
        assert queue.claim("w2").task.worker == "w2"


class TestDirecting:
    def test_a_failed_task_can_be_tried_again_from_the_start(self, queue: TaskQueue) -> None:
        queue.add("a", "x", max_attempts=1)
        queue.fail("a", "w", queue.claim("w").token)
        assert queue.retry("a", "ada").state == "ready"
        assert queue.claim("w").task.attempts == 1

    def test_one_that_died_with_its_last_attempt_can_be_tried_again(self, queue: TaskQueue, clock: HandClock) -> None:
        queue.add("a", "x", max_attempts=1)
        queue.claim("w", ttl=5)
        clock.pass_time(6)
        assert queue.retry("a", "ada").state == "ready"
        assert queue.claim("w").task.attempts == 1

    def test_only_what_has_failed_can_be_tried_again(self, queue: TaskQueue) -> None:
        queue.add("a", "x")
        with pytest.raises(WrongState, match="a is ready: only a failed or cancelled task"):
            queue.retry("a", "ada")
        queue.done("a", "w", queue.claim("w").token)
        with pytest.raises(WrongState, match="a is done"):
            queue.retry("a", "ada")

    def test_a_cancelled_task_is_not_done(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        assert queue.cancel("a", "ada", "not needed").state == "cancelled"
        assert told(store, "a") == [("SKIP", "cancelled: not needed")]
        with pytest.raises(NoTask):
            queue.claim("w")
        with pytest.raises(WrongState, match="a is cancelled already"):
            queue.cancel("a", "ada")
        assert queue.retry("a", "ada").state == "ready"

    def test_who_claimed_it_just_before_it_was_cancelled_loses_it_too(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue.add("a", "x")
        ledger = queue._ledger()
        append = ledger.append

        def slow(line: bytes) -> bool:
            TaskQueue(store).claim("w")
            return append(line)

        monkeypatch.setattr(ledger, "append", slow)
        assert queue.cancel("a", "ada").state == "cancelled"
        assert LockTable(store).look("a") is None

    def test_who_works_on_a_cancelled_task_loses_it(self, queue: TaskQueue, store: Store) -> None:
        queue.add("a", "x")
        claim = queue.claim("w")
        queue.cancel("a", "ada")
        with pytest.raises(LockLost):
            LockTable(store).heartbeat("a", "w", claim.token)
        with pytest.raises(LockLost, match="it is cancelled"):
            queue.done("a", "w", claim.token)
        assert queue.get("a").state == "cancelled"

    def test_what_comes_after_a_failed_task_is_blocked_until_that_is_done(self, queue: TaskQueue) -> None:
        queue.add_all([TaskSpec("a", "x", max_attempts=1), TaskSpec("b", "x", after=("a",)), TaskSpec("c", "x", after=("b",))])
        queue.fail("a", "w", queue.claim("w").token)
        assert queue.blocked() == {"b": "a", "c": "a"}
        assert queue.is_finished()
        queue.retry("a", "ada")
        assert queue.blocked() == {} and not queue.is_finished()
        for name in "abc":
            queue.done(name, "w", queue.claim("w").token)
        assert queue.counts() == {"done": 3}


class TestReading:
    def test_what_is_kept_and_what_is_read_are_the_same(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add_all([TaskSpec(f"t{number}", "x", priority=number % 3) for number in range(2500)])
        for _ in range(10):
            claim = queue.claim("w")
            queue.done(claim.task.id, "w", claim.token)
        assert store.kept(LOG) is not None
        fresh = TaskQueue(store)
        assert fresh.tasks() == queue.tasks()
        assert fresh.claim("w").task.id == "t32"

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

    @pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 1, "cursor": "1:5", "picture": [[1]]}', b"\0" * 100])
    def test_what_is_kept_may_be_damaged(self, tmp_path: Path, damage: bytes) -> None:
        store = FileStore(str(tmp_path))
        TaskQueue(store).add("a", "x")
        store.keep(LOG, damage)
        assert [task.id for task in TaskQueue(FileStore(str(tmp_path))).tasks()] == ["a"]

    def test_what_is_kept_of_another_log_is_not_used(self, tmp_path: Path) -> None:
        store = FileStore(str(tmp_path / "one"))
        TaskQueue(store).add_all([TaskSpec(f"t{number}", "x") for number in range(2500)])
        kept = store.kept(LOG)
        assert kept is not None
        other = FileStore(str(tmp_path / "other"))
        TaskQueue(other).add("t1", "another")
        other.keep(LOG, kept)
        assert [task.spec.prompt for task in TaskQueue(other).tasks()] == ["another"]

    def test_a_worker_goes_on_when_the_state_directory_was_made_anew(self, tmp_path: Path) -> None:
        """The same tasks, imported again: they are new tasks, and the old ones being done says nothing about them."""
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

    def test_reading_creates_nothing(self, isolated_swarm_dir: Path) -> None:
        queue = TaskQueue()
        assert queue.tasks() == [] and queue.counts() == {} and queue.is_finished()
        with pytest.raises(NoTask):
            queue.claim("w")
        assert not isolated_swarm_dir.exists()
