"""`swarm wait`: it sleeps until it is so, knows when it never will be, and is woken
instead of looking again and again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from swarm.board import waiting
from swarm.board.waiting import CONDITIONS, Answer, wait_for
from swarm.board.waiting_for_all import wait_for_each, wait_for_queue
from swarm.errors import BadInput
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.log import STATES, StatusLog
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT
from tests.support.command_line import run
from tests.support.lock_files import HOLDER


@pytest.fixture
def store(live_store: Store) -> Store:
    """Use the real clock: the tests check that a waiting process wakes up."""
    return live_store


def say(store: Store, state: str, task: str = "t", **meta: Any) -> None:
    StatusLog(store).append(state, "w", task, "", meta or None)


def now(store: Store, what: str = "done", task: str = "t") -> Answer:
    """The answer without waiting."""
    return wait_for(store, task, what, 0)


def after_a_while(do: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(0.2, do)
    timer.start()
    return timer


def woken(store: Store, what: str, do: Callable[[], object]) -> Answer:
    """The answer to one who waits while something is done, and who looks by himself
    only once a minute.
    """
    with (
        mock.patch.object(waiting, "_POLL_INTERVAL", 60.0),
        mock.patch.object(sys.modules[type(store).__module__], "_WATCH_RENEWAL", 60.0, create=True),
    ):
        begun = time.monotonic()
        timer = after_a_while(do)
        answer = wait_for(store, "t", what, 60)
        assert 0.15 < time.monotonic() - begun < 30
        timer.join()
        return answer


class TestDone:
    def test_a_task_of_the_queue_is_done_when_the_queue_says_so(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add("t", "x")
        claim = queue.claim("w")
        say(store, "DONE")  # by whomever: the queue decides
        assert now(store) == Answer(False, "t is running, by w")
        answer = woken(
            store, "done", lambda: TaskQueue(store).done("t", "w", claim.token, "all well")
        )
        assert answer == Answer(True, "t is done («all well»)")

    def test_a_task_that_is_not_in_the_queue_is_done_when_its_log_says_so(
        self, store: Store
    ) -> None:
        say(store, "START")
        assert not now(store).met
        assert woken(store, "done", lambda: say(store, "DONE")).met

    def test_a_task_that_was_started_again_is_not_done(self, store: Store) -> None:
        say(store, "DONE")
        assert now(store).met
        say(store, "START")
        assert not now(store).met

    @pytest.mark.parametrize("what", ["done", "DONE"])
    def test_a_task_is_not_done_because_its_agent_printed_done(
        self, store: Store, what: str
    ) -> None:
        say(store, "START")
        say(store, "DONE", **{"from": "output"})
        assert now(store, what) == Answer(False, "the latest record of t is START, by w")

    def test_a_task_id_that_another_program_escaped_is_the_same_task(self, store: Store) -> None:
        store.append("status", b'{"state": "DONE", "task_id": "\\u0074"}')
        assert now(store).met

    @pytest.mark.parametrize(
        "line",
        [
            b"nonsense",
            b"[]",
            b'{"task_id": "t"}',
            b'{"task_id": "t", "state": ["DONE"]}',
            b'{"task_id": ["t"], "state": "DONE"}',
        ],
    )
    def test_invalid_lines_are_skipped(self, store: Store, line: bytes) -> None:
        store.append("status", line)
        assert not now(store).met


class TestNever:
    def test_a_task_that_failed_or_was_cancelled_will_not_be_done(self, store: Store) -> None:
        queue = TaskQueue(store)
        for task in ("t", "u"):
            queue.add(task, "x")
        queue.fail("t", "w", queue.claim("w", "t").token, "no database", final=True)
        queue.cancel("u", "ada")
        assert wait_for(store, "t") == Answer(False, "t is failed («no database»)", never=True)
        assert wait_for(store, "u").never
        assert now(store, "failed").met and now(store, "cancelled", "u").met

    def test_a_task_after_a_failed_or_cancelled_one_will_not_be_done(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add("build", "x", max_attempts=1)
        queue.add("t", "x", after=["build"])
        assert now(store) == Answer(False, "t is waiting")
        queue.fail("build", "w", queue.claim("w").token)
        assert wait_for(store, "t") == Answer(
            False, "t comes after build, which will not be done", never=True
        )

    def test_a_task_that_is_done_will_not_be_in_another_state(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add("t", "x")
        queue.done("t", "w", queue.claim("w").token)
        assert wait_for(store, "t", "running").never

    def test_a_worker_that_dies_at_the_last_attempt_ends_the_waiting(self, tmp_path: Path) -> None:
        store = FileStore(str(tmp_path / "s"))
        queue = TaskQueue(store)
        queue.add("t", "x", max_attempts=1)
        queue.claim("w", ttl=1)
        begun = time.monotonic()
        assert wait_for(store, "t", timeout=20).never
        assert 0.9 < time.monotonic() - begun < 15


class TestFree:
    def test_a_task_without_a_lock_is_free(self, store: Store) -> None:
        assert wait_for(store, "t", "free") == Answer(True, "t is free")

    def test_a_release_ends_the_wait_at_once(self, store: Store) -> None:
        LockTable(store).acquire("t", "w", None)
        assert now(store, "free") == Answer(False, "t is held by w")
        assert woken(store, "free", lambda: LockTable(store).release("t", "w")).met

    def test_the_end_of_a_lease_ends_the_wait(self, store: Store) -> None:
        LockTable(store).acquire("t", "w", 1)
        assert wait_for(store, "t", "free", 20).text == "t is free (its lease is over)"

    def test_the_end_of_the_holders_process_ends_the_wait(self, tmp_path: Path) -> None:
        root = str(tmp_path / "s")
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, root, "t", "w"],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        ) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            store = FileStore(root)
            assert not now(store, "free").met
            timer = after_a_while(holder.kill)
            begun = time.monotonic()
            assert wait_for(store, "t", "free", 20).text == "t is free (holder gone)"
            assert time.monotonic() - begun < 15
            timer.join()


class TestStates:
    @pytest.mark.parametrize("state", STATES)
    def test_wait_ends_when_the_latest_record_has_the_state_now_or_later(
        self, store: Store, state: str
    ) -> None:
        say(store, "START" if state != "START" else "DONE")
        assert not now(store, state).met
        assert woken(store, state, lambda: say(store, state)).met
        assert now(store, state).met

    def test_wait_for_record_done_looks_at_the_latest_record_only(self, store: Store) -> None:
        say(store, "DONE")
        say(store, "ERROR")
        assert not now(store, "DONE").met and now(store, "done").met

    def test_wait_sees_a_state_that_did_not_last(self, store: Store) -> None:
        say(store, "START")

        def wait_and_go_on(*_: object) -> None:
            for state in ("WAIT", "START", "DONE"):
                say(store, state)

        with mock.patch.object(store, "wait", wait_and_go_on):  # all of it between two looks
            assert wait_for(store, "t", "WAIT", 20).met

    def test_wait_for_a_state_of_the_queue(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add("t", "x")
        assert now(store, "ready").met
        assert woken(store, "running", lambda: TaskQueue(store).claim("w")).met

    def test_records_of_other_tasks_do_not_count(self, store: Store) -> None:
        say(store, "WAIT", "other")
        assert now(store, "WAIT") == Answer(False, "t has no status record yet")


class TestUnknown:
    def test_a_task_that_does_not_exist_is_waited_for_with_one_warning(self, store: Store) -> None:
        calls: list[int] = []
        timer = after_a_while(lambda: say(store, "DONE"))
        assert wait_for(store, "t", timeout=20, unknown=lambda: calls.append(1)).met
        timer.join()
        assert calls == [1]

    def test_wait_notices_an_unknown_task_that_is_added(self, store: Store) -> None:
        timer = after_a_while(lambda: TaskQueue(store).add("t", "x"))
        assert wait_for(store, "t", "ready", 20).met
        timer.join()

    def test_wait_refuses_an_unknown_condition(self, store: Store) -> None:
        with pytest.raises(BadInput, match=r"free .* queue .ready.* log .START"):
            wait_for(store, "t", "Done")
        with pytest.raises(BadInput):
            wait_for(store, "../t")


class TestCommand:
    def test_wait_exits_0_if_the_condition_holds_and_1_if_the_time_is_over(
        self, isolated_swarm_dir: Path
    ) -> None:
        say(FileStore(str(isolated_swarm_dir)), "WAIT")
        answer = run("wait", "t", "--for", "WAIT")
        assert answer.code == 0 and answer.out == b"the latest record of t is WAIT, by w\n"
        answer = run("wait", "t", "--timeout", "0.01")
        assert answer.code == 1 and answer.out == b""
        assert (
            b"t is WAIT, by w" in answer.err
            and b"0.01 s" in answer.err
            and b"swarm status" in answer.err
        )

    def test_wait_for_a_condition_that_can_never_hold_ends_at_once(
        self, isolated_swarm_dir: Path
    ) -> None:
        queue = TaskQueue(FileStore(str(isolated_swarm_dir)))
        queue.add("t", "x")
        queue.cancel("t", "ada")
        answer = run("wait", "t", "--json")
        assert answer.code == 1 and answer.json == {
            "schema_version": 1,
            "task_id": "t",
            "for": "done",
            "met": False,
            "never": True,
            "text": "t is cancelled",
        }
        assert b"Only a user can change this" in answer.err

    def test_waiting_for_a_task_that_does_not_exist_warns_on_standard_error(
        self, isolated_swarm_dir: Path
    ) -> None:
        answer = run("wait", "unknown", "--timeout", "0.05", "--json")
        assert answer.code == 1 and answer.json["met"] is False
        assert b"no task unknown yet: waiting for it.\n" in answer.err
        assert not isolated_swarm_dir.exists()

    @pytest.mark.parametrize(
        "args",
        [
            (),
            ("t", "--for", "dnoe"),
            ("t", "--timeout", "soon"),
            ("a/b",),
            ("t", "--all"),
            ("t", "--for"),
        ],
    )
    def test_bad_input_of_wait_is_exit_2(
        self, isolated_swarm_dir: Path, args: tuple[str, ...]
    ) -> None:
        assert run("wait", *args).code == 2

    def test_help_of_wait_names_every_condition(self) -> None:
        text = run("wait", "--help").out.decode()
        assert all(word in text for word in CONDITIONS)


class TestSeveral:
    def test_all_of_them_must_be_so(self, store: Store) -> None:
        queue = TaskQueue(store)
        for name in "ab":
            queue.add(name, "x")
        queue.done("a", "w", queue.claim("w", "a").token)
        found = wait_for_each(store, ["a", "b"], timeout=0)
        assert (found.met, found.never, found.text) == (False, [], "b is ready")
        token = queue.claim("w", "b").token
        timer = after_a_while(lambda: TaskQueue(store).done("b", "w", token))
        found = wait_for_each(store, ["a", "b"], timeout=60)
        assert found.met and set(found.by_task) == {"a", "b"}
        timer.join()

    def test_one_that_never_can_be_ends_the_wait_and_is_named(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add("a", "x")
        queue.add("b", "x", after=["a"])
        queue.add("c", "x")
        queue.cancel("a", "u")
        assert wait_for_each(store, ["c", "b", "a"]).never == ["b", "a"]

    def test_locks_and_log_and_tasks_that_do_not_exist(self, store: Store) -> None:
        LockTable(store).acquire("a", "w", 60)
        assert not wait_for_each(store, ["a", "b"], "free", timeout=0).met
        LockTable(store).release("a", "w")
        assert wait_for_each(store, ["a", "b"], "free", timeout=0).met
        say(store, "DONE", "a")
        unknown: list[str] = []
        timer = after_a_while(lambda: say(store, "DONE", "b"))
        assert wait_for_each(store, ["a", "b"], timeout=60, unknown=unknown.append).met
        assert unknown in ([], ["b"])
        timer.join()
        with pytest.raises(BadInput):
            wait_for_each(store, ["a"], "nonsense")


class TestTheQueue:
    def test_it_ends_when_nothing_is_left_to_do_and_says_why(self, store: Store) -> None:
        queue = TaskQueue(store)
        assert wait_for_queue(store).text == "the queue is empty"
        for name in ("done", "failed", "cancelled", "asking"):
            queue.add(name, "x")
        queue.add("blocked", "x", after=["failed"])
        queue.add("early", "x", not_before="2100-01-01")
        queue.add("nightly", "x", every="@yearly UTC")
        assert not wait_for_queue(store, 0).ended
        queue.fail("failed", "w", queue.claim("w", "failed").token, final=True)
        queue.cancel("cancelled", "u")
        queue.park("asking", "w", queue.claim("w", "asking").token, "which?")
        token = queue.claim("w", "done").token
        timer = after_a_while(lambda: TaskQueue(store).done("done", "w", token))
        end = wait_for_queue(store, 60)
        timer.join()
        assert (end.ended, end.met, end.left) == (True, False, [])
        assert (end.failed, end.cancelled) == (["failed"], ["cancelled"])
        assert (end.blocked, end.asking) == (["blocked"], ["asking"])
        assert end.early == ["early", "nightly"]
        assert end.text.startswith("1 of 7 tasks are done; failed: failed")

    def test_it_is_well_if_all_are_done_or_wait_for_their_time(self, store: Store) -> None:
        queue = TaskQueue(store)
        queue.add("a", "x")
        queue.add("nightly", "x", every="@yearly UTC")
        queue.done("a", "w", queue.claim("w").token)
        assert wait_for_queue(store).met


def test_several_tasks_and_all_from_a_shell(isolated_swarm_dir: Path) -> None:
    queue = TaskQueue()
    for name in "ab":
        queue.add(name, "x")
    assert run("wait").code == 2 and run("wait", "a", "--all").code == 2
    assert run("wait", "--all", "--for", "free").code == 2
    answer = run("wait", "a", "b", "--timeout", "0", "--json")
    fields = json.loads(answer.out)
    assert answer.code == 1 and not fields["met"] and fields["never"] == []
    assert [row["task_id"] for row in fields["tasks"]] == ["a", "b"]
    assert b"time of 0 s is over" in answer.err
    queue.done("a", "w", queue.claim("w", "a").token)
    queue.fail("b", "w", queue.claim("w", "b").token, final=True)
    answer = run("wait", "a", "b")
    assert answer.code == 1 and b"b is failed" in answer.err and b"Only a user" in answer.err
    answer = run("wait", "--all", "--json")
    assert answer.code == 1 and json.loads(answer.out)["failed"] == ["b"]
    queue.retry("b", "u")
    queue.done("b", "w", queue.claim("w", "b").token)
    assert run("wait", "a", "b").code == run("wait", "--all").code == 0
