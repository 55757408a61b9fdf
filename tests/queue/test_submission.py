"""Finished work waits until it has landed: the task is done then, once, and not before."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import BadInput, LockHeld, LockLost, NoTask, WrongState
from swarm.queue import ending, outcomes
from swarm.queue.previous import REOPENED, Previous
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.queue.submission import Landed, Submission
from swarm.status.events import is_informational
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.default import default_store
from swarm.stores.registry import open_store
from tests.conftest import ROOT, HandClock, script_environment

WORK, BASE, TREE, COMMIT = "a1" * 20, "b2" * 20, "c3" * 20, "d4" * 20
CHECK = {"command": "make", "seconds": 1.5, "tree": TREE}


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    made = TaskQueue(store)
    made.add("a", "x", max_attempts=2)
    made.add("b", "x", after=["a"])
    return made


def submit(queue: TaskQueue, task: str = "a", **fields: Any) -> int:
    """Claim a task, submit it, and return the token."""
    token = queue.claim("w", task, agent="claude").token
    given = {"work": WORK, "branch": "main", "session": "s-1", **fields}
    assert queue.submit(task, "w", token, "did it", **given).state == "submitted"
    return token


def records(store: Store, task: str = "a") -> list[dict[str, Any]]:
    return [record for _, record in StatusLog(store).query(task)]


def states(store: Store, task: str = "a") -> list[str]:
    return [record["state"] for record in records(store, task)]


class TestSubmitting:
    def test_a_submission_ends_the_claim_but_not_the_task(
        self, queue: TaskQueue, store: Store, clock: HandClock
    ) -> None:
        token = submit(queue, base=BASE, tree=TREE, check=CHECK)
        at = clock.written(clock.now())
        expected = Submission(
            token, "w", at, "main", WORK, BASE, TREE, CHECK, review="", result="did it"
        )
        for each in (queue, TaskQueue(store)):
            task = each.get("a")
            assert (task.state, task.submission, task.landed) == ("submitted", expected, None)
            assert task.reason == "did it" and task.landed_token == 0
            assert each.holder("a") is None
            assert each.get("b").state == "waiting"
            assert not each.is_finished() and each.counts() == {"waiting": 1, "submitted": 1}
        assert queue.get("a").fields()["submission"]["check"] == CHECK

    def test_no_worker_claims_a_submitted_task(self, queue: TaskQueue) -> None:
        submit(queue)
        with pytest.raises(WrongState, match="waits to land"):
            queue.claim("v", "a")
        with pytest.raises(NoTask) as caught:
            queue.claim("v")
        assert caught.value.why == "busy"

    @pytest.mark.parametrize(("review", "words"), [("", "land on main"), ("codex", "its review")])
    def test_the_record_of_a_submission_informs(
        self, queue: TaskQueue, store: Store, review: str, words: str
    ) -> None:
        token = submit(queue, review=review, check=CHECK)
        record = records(store)[-1]
        assert record["state"] == "SKIP" and is_informational(record)
        assert record["message"].startswith("submitted: ") and words in record["message"]
        meta = record["meta"]
        assert (meta["submitted"], meta["token"], meta["check"]) == (WORK, token, CHECK)

    def test_a_worker_that_lost_the_claim_submits_nothing(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        token = queue.claim("w", "a", ttl=5).token
        clock.pass_time(6)
        queue.claim("v", "a")
        with pytest.raises(LockLost):
            queue.submit("a", "w", token, work=WORK)
        assert (queue.get("a").state, queue.get("a").worker) == ("running", "v")

    def test_a_submission_cut_off_before_its_record_is_completed_by_a_repeated_call(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = queue.claim("w", "a").token
        with monkeypatch.context() as patch:
            patch.setattr(ending.Endings, "_log_end", _killed)
            with pytest.raises(KeyboardInterrupt):
                queue.submit("a", "w", token, work=WORK)
        assert states(store) == ["START"]
        for _ in range(2):
            assert queue.submit("a", "w", token, work=WORK).state == "submitted"
            assert states(store) == ["START", "SKIP"]
        queue.send_back("a", token, "lander", "conflict")
        assert queue.submit("a", "w", token, work=WORK).state == "ready"
        assert states(store) == ["START", "SKIP", "ERROR"]

    @pytest.mark.parametrize(
        "fields",
        [
            {"work": ""},
            {"work": "--upload-pack=x"},
            {"base": "HEAD"},
            {"tree": "ABC"},
            {"branch": "../x"},
            {"review": "a b"},
            {"check": {"output": "x" * 70_000}},
        ],
    )
    def test_an_invalid_submission_changes_nothing(
        self, queue: TaskQueue, fields: dict[str, Any]
    ) -> None:
        token = queue.claim("w", "a").token
        with pytest.raises(BadInput):
            queue.submit("a", "w", token, **{"work": WORK, **fields})
        assert queue.get("a").state == "running"

    def test_submissions_are_listed_in_their_order_for_each_branch(
        self, queue: TaskQueue, store: Store
    ) -> None:
        for name in ("c", "d"):
            queue.add(name, "x")
        for task, branch in (("d", "main"), ("a", "next"), ("c", "main")):
            submit(queue, task, branch=branch)
        for each in (queue, TaskQueue(store)):
            assert [task.id for task in each.submissions()] == ["d", "a", "c"]
            assert [task.id for task in each.submissions("main")] == ["d", "c"]
            assert each.submissions("other") == []

    def test_the_order_survives_a_snapshot(self) -> None:
        state, fresh = QueueState(), QueueState()
        for name in ("a", "b"):
            assert state.apply(json.dumps({"op": "add", "id": name, "prompt": "x"}).encode())
        for name in ("b", "a"):
            for op in ("claim", "submit"):
                line = {"op": op, "id": name, "token": 1, "work": WORK}
                assert state.apply(json.dumps(line).encode())
        fresh.load(json.loads(json.dumps(state.dump())))
        assert list(fresh.submitted) == list(state.submitted) == ["b", "a"]


class TestLanding:
    def test_a_landing_makes_the_task_done_and_its_dependants_ready(
        self, queue: TaskQueue, store: Store
    ) -> None:
        token = submit(queue)
        task = queue.landed("a", token, "lander", commit=COMMIT, branch="main", check=CHECK)
        assert (task.state, task.reason, task.submission) == ("done", "did it", None)
        assert task.landed == Landed(token, "main", COMMIT) and task.landed_token == token
        assert queue.get("b").state == "ready" and queue.submissions() == []
        record = records(store)[-1]
        assert (record["state"], record["worker"], record["message"]) == (
            "DONE",
            "lander",
            "did it",
        )
        meta = record["meta"]
        assert (meta["commit"], meta["branch"], meta["token"]) == (COMMIT, "main", token)
        assert meta["check"] == CHECK and meta["work_of"] == "w"

    def test_a_landing_counts_once(self, queue: TaskQueue, store: Store) -> None:
        token = submit(queue)
        for _ in range(2):
            assert queue.landed("a", token, "lander", commit=COMMIT).state == "done"
        assert states(store).count("DONE") == 1
        with pytest.raises(WrongState):
            queue.send_back("a", token, "lander", "too late")
        assert queue.get("a").state == "done"

    def test_a_landing_cut_off_before_its_record_is_completed_by_another_process(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = submit(queue)
        with monkeypatch.context() as patch:
            patch.setattr(outcomes.Outcomes, "_record", _killed)
            with pytest.raises(KeyboardInterrupt):
                queue.landed("a", token, "lander", commit=COMMIT)
        assert queue.get("a").state == "done" and "DONE" not in states(store)
        for _ in range(2):
            TaskQueue(store).landed("a", token, "other", commit=COMMIT)
        assert states(store).count("DONE") == 1

    def test_of_many_that_tell_of_a_landing_at_once_one_writes_the_record(
        self, tmp_path: Path
    ) -> None:
        store = open_store(str(tmp_path / "swarm"))
        queue = TaskQueue(store)
        for number in range(8):
            task = f"t{number}"
            queue.add(task, "x")
            token = submit(queue, task)
            tell = partial(_tell, store, task, token)
            with ThreadPool(4) as pool:
                pool.map(tell, ["w1", "w2", "w3", "w4"])
            assert states(store, task).count("DONE") == 1
        store.close()

    @pytest.mark.parametrize("then", ["cancel", "send_back", "retry", "fail"])
    def test_facts_win_a_landing_counts_after_the_submission_was_ended_otherwise(
        self, queue: TaskQueue, then: str
    ) -> None:
        token = submit(queue)
        if then in ("cancel", "retry"):
            queue.cancel("a", "ada")
        if then == "retry":
            queue.retry("a", "ada")
        if then == "fail":
            queue.send_back("a", token, "lander", "one")
            token = submit(queue)
        if then in ("send_back", "fail"):
            assert queue.send_back("a", token, "lander", "no", delay=99).state in (
                "ready",
                "failed",
            )
        assert queue.landed("a", token, "lander", commit=COMMIT).state == "done"
        assert queue.get("b").state == "ready"
        queue.done("b", "w", queue.claim("w").token)
        assert queue.is_finished()

    def test_a_late_landing_does_not_count_after_the_next_claim(
        self, queue: TaskQueue, store: Store
    ) -> None:
        token = submit(queue)
        queue.send_back("a", token, "lander", "conflict")
        later = queue.claim("v", "a").token
        with pytest.raises(WrongState, match="running"):
            queue.landed("a", token, "lander", commit=COMMIT)
        assert queue.get("a").state == "running" and "DONE" not in states(store)
        queue.submit("a", "v", later, work=WORK)
        with pytest.raises(WrongState):
            queue.landed("a", token, "lander", commit=COMMIT)
        assert queue.landed("a", later, "lander").landed_token == later

    def test_a_worker_that_finds_its_work_in_the_branch_ends_its_claim(
        self, queue: TaskQueue, store: Store
    ) -> None:
        token = submit(queue)
        queue.cancel("a", "ada")
        queue.retry("a", "ada")
        claim = queue.claim("v", "a")
        task = queue.landed("a", token, "v", commit=COMMIT, branch="main", claim=claim.token)
        assert (task.state, task.landed_token) == ("done", token)
        assert queue.holder("a") is None and states(store).count("DONE") == 1
        with pytest.raises(LockLost):
            queue.done("a", "v", claim.token)

    def test_another_worker_cannot_end_a_claim_by_a_landing(self, queue: TaskQueue) -> None:
        token = submit(queue)
        queue.send_back("a", token, "lander", "conflict")
        claim = queue.claim("v", "a")
        with pytest.raises(LockLost):
            queue.landed("a", token, "lander", claim=claim.token)
        assert queue.get("a").state == "running"

    def test_the_work_of_a_done_task_may_land_later(self, queue: TaskQueue, store: Store) -> None:
        token = queue.claim("w", "a").token
        queue.done("a", "w", token, "did it", work=WORK)
        since = queue.get("a").since
        assert queue.get("a").previous.work == WORK
        for _ in range(2):
            task = queue.landed("a", token, "ada", commit=COMMIT, branch="main")
            assert (task.state, task.since, task.landed_token) == ("done", since, token)
        assert states(store) == ["START", "DONE", "SKIP"]
        assert is_informational(records(store)[-1])
        assert task.previous.work == ""

    def test_a_landing_of_an_unknown_task_is_refused(self, queue: TaskQueue) -> None:
        with pytest.raises(NoTask):
            queue.landed("x", 1, "lander")
        with pytest.raises(WrongState):
            queue.landed("a", 1, "lander")

    def test_a_process_at_work_on_the_record_is_waited_for(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = submit(queue)
        monkeypatch.setattr(outcomes, "_LOCK_WAIT", 0.0)
        queue._log().submission_locks.acquire("a", "other", 60.0)
        with pytest.raises(LockHeld):
            queue.landed("a", token, "lander")
        assert queue.get("a").state == "submitted"


class TestSendingBack:
    def test_the_next_attempt_learns_why_and_carries_the_work(
        self, queue: TaskQueue, store: Store
    ) -> None:
        token = submit(queue)
        task = queue.send_back("a", token, "lander", "2 tests failed", feedback="E1", delay=5)
        assert (task.state, task.attempts, task.reason) == ("ready", 1, "2 tests failed")
        assert task.ready_at
        for each in (task, TaskQueue(store).get("a")):
            assert each.previous == Previous("2 tests failed", "E1", "", "s-1", "claude", WORK)
        record = records(store)[-1]
        assert (record["state"], record["message"]) == ("ERROR", "2 tests failed")
        assert (record["meta"]["attempts_left"], record["meta"]["retry_in"]) == (1, 5)

    def test_the_last_attempt_that_is_sent_back_has_failed(
        self, queue: TaskQueue, store: Store
    ) -> None:
        queue.send_back("a", submit(queue), "lander", "one")
        token = submit(queue)
        task = queue.send_back("a", token, "lander", "two", work=COMMIT)
        assert (task.state, task.previous.work) == ("failed", COMMIT)
        assert records(store)[-1]["meta"]["attempts_left"] == 0
        assert queue.is_finished() and queue.blocked() == {"b": "a"}

    def test_work_is_sent_back_once(self, queue: TaskQueue, store: Store) -> None:
        token = submit(queue)
        for _ in range(2):
            assert queue.send_back("a", token, "lander", "conflict").attempts == 1
        assert states(store).count("ERROR") == 1
        queue.claim("v", "a")
        with pytest.raises(WrongState):
            queue.send_back("a", token, "lander", "conflict")
        assert queue.get("a").state == "running"

    def test_the_record_of_a_return_tells_of_it_although_the_next_attempt_has_begun(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token, other, append = submit(queue), TaskQueue(store), store.append

        def claimed_at_once(log: str, line: bytes) -> str:
            cursor = append(log, line)
            if b'"op": "return"' in line:
                other.claim("v", "a")
            return cursor

        monkeypatch.setattr(store, "append", claimed_at_once)
        queue.send_back("a", token, "lander", "conflict", work=COMMIT)
        assert queue.get("a").worker == "v"
        assert states(store)[-2:] == ["START", "SKIP"]
        record = records(store)[-1]
        assert record["message"] == "conflict" and is_informational(record)
        meta = record["meta"]
        assert (meta["returned"], meta["token"], meta["attempt"]) == (COMMIT, token, 1)
        assert (meta["attempts_left"], meta["work_of"]) == (1, "w")

    def test_a_return_cut_off_before_its_record_is_completed_by_a_repeated_call(
        self, queue: TaskQueue, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = submit(queue)
        with monkeypatch.context() as patch:
            patch.setattr(outcomes.Outcomes, "_record", _killed)
            with pytest.raises(KeyboardInterrupt):
                queue.send_back("a", token, "lander", "conflict")
        assert "ERROR" not in states(store)
        queue.send_back("a", token, "lander", "conflict")
        assert states(store).count("ERROR") == 1


class TestWork:
    """The saved work of an attempt goes to the next, until it has landed."""

    @pytest.mark.parametrize("how", ["fail", "release"])
    def test_the_next_attempt_finds_the_work_of_the_last(self, queue: TaskQueue, how: str) -> None:
        getattr(queue, how)("a", "w", queue.claim("w", "a").token, "no", work=WORK)
        claim = queue.claim("w", "a")
        assert claim.previous is not None and claim.previous.work == WORK
        getattr(queue, how)("a", "w", claim.token, "no")
        assert queue.get("a").previous.work == WORK, "an attempt without work loses none"

    def test_work_that_was_cancelled_while_it_waited_is_carried(self, queue: TaskQueue) -> None:
        submit(queue)
        queue.cancel("a", "ada")
        queue.retry("a", "ada")
        assert queue.claim("w", "a").task.previous.work == WORK

    def test_a_reopened_task_carries_no_work_that_has_landed(self, queue: TaskQueue) -> None:
        queue.landed("a", submit(queue), "lander", commit=COMMIT)
        task = queue.reopen("a", "ada", "again")
        assert task.previous == Previous(REOPENED, "did it", "again", "s-1", "claude", "")
        token = submit(queue)
        assert queue.landed("a", token, "lander").landed_token == token

    def test_a_reopened_task_carries_work_that_has_not_landed(self, queue: TaskQueue) -> None:
        queue.done("a", "w", queue.claim("w", "a").token, work=WORK)
        assert queue.reopen("a", "ada").previous.work == WORK

    def test_a_task_may_be_cancelled_while_its_work_waits(self, queue: TaskQueue) -> None:
        token = submit(queue)
        assert queue.cancel("a", "ada").state == "cancelled"
        assert queue.submissions() == [] and queue.is_finished()
        with pytest.raises(WrongState):
            queue.send_back("a", token, "lander", "late")


SUBMIT_AND_WAIT = (
    "import time; from swarm import TaskQueue; from swarm.queue import ending, outcomes;"
    " wait = lambda *_: (print('reached', flush=True), time.sleep(1000));"
    " {step} = wait; queue = TaskQueue();"
)


@pytest.mark.parametrize(
    ("step", "call", "state"),
    [
        ("ending.Endings._log_end", "submit('a', 'w', work='c0de')", "submitted"),
        ("outcomes.Outcomes._record", "landed('a', 1, 'w')", "done"),
        ("outcomes.Outcomes._record", "send_back('a', 1, 'w', 'no')", "ready"),
    ],
)
def test_a_process_killed_before_the_status_record_leaves_a_call_that_can_be_repeated(
    isolated_swarm_dir: Path, step: str, call: str, state: str
) -> None:
    queue = TaskQueue()
    queue.add("a", "x")
    token = queue.claim("w", "a").token
    if not call.startswith("submit"):
        queue.submit("a", "w", token, work="c0de")
    before = len(records(default_store()))
    code = f"{SUBMIT_AND_WAIT.format(step=step)} queue.{call}"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=script_environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "reached\n"
        process.send_signal(signal.SIGKILL)
    assert queue.get("a").state == state and len(records(default_store())) == before
    for _ in range(2):
        exec(f"queue.{call}", {"queue": queue})
        assert len(records(default_store())) == before + 1


def test_a_process_of_another_family_submits_nothing(isolated_swarm_dir: Path) -> None:
    hold = (
        "import time; from swarm import TaskQueue;"
        " TaskQueue().claim('w', 'a', bound=True); print(flush=True); time.sleep(1000)"
    )
    other = (
        "from swarm import NotYours, TaskQueue\n"
        "try: TaskQueue().submit('a', 'w', 1, work='c0de')\n"
        "except NotYours: print('refused')"
    )
    agent = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    environment = script_environment()
    queue = TaskQueue()
    queue.add("a", "x")
    with subprocess.Popen(
        [sys.executable, "-c", hold],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout and holder.stdout.readline() == "\n"
        said = subprocess.run(
            [sys.executable, "-c", agent, sys.executable, "-c", other],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert said.stdout == "refused\n"
        assert queue.get("a").state == "running"
        assert records(default_store())[-1]["meta"]["refused"] == "submit"
        holder.kill()


def _tell(store: Store, task: str, token: int, worker: str) -> None:
    TaskQueue(store).landed(task, token, worker, commit=COMMIT)


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
