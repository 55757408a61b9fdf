"""The board: what is a problem and what is not, who works on what, and the queue; on
every store, on a clock moved by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.board.board import KINDS, Board, Problem
from swarm.board.text import text
from swarm.board.viewer import Viewer
from swarm.errors import NoTask, WrongState
from swarm.formats import json_codec
from swarm.locks.slot_waits import Waiter
from swarm.locks.slots import Slots, SlotTable
from swarm.locks.table import LockTable
from swarm.project.creation import make_state_dir, plan
from swarm.queue.queue import TaskQueue
from swarm.queue.usage import Usage, UsageLog
from swarm.status.log import LOG, StatusLog
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore
from swarm.terminal.text import width
from swarm.workers.presence import report_end
from tests.conftest import ROOT, HandClock
from tests.support.lock_files import HOLDER


def look(store: Store) -> Board:
    return Viewer(store).look()


def problems(store: Store) -> list[tuple[str, str]]:
    return [(problem.kind, problem.task_id) for problem in look(store).problems]


def the_problem(store: Store) -> Problem:
    (problem,) = look(store).problems
    return problem


def say(
    store: Store, state: str, task: str = "t", text: str = "", worker: str = "w", **meta: Any
) -> None:
    StatusLog(store).append(state, worker, task, text, meta or None)


def queue_with(store: Store, *tasks: str, **options: Any) -> TaskQueue:
    queue = TaskQueue(store)
    for task in tasks:
        queue.add(task, "do it", **options)
    return queue


def test_an_empty_store_has_an_empty_board(store: Store, tmp_path: Path) -> None:
    board = look(store)
    assert board.is_empty and not board.problems and not board.workers
    assert not (tmp_path / "store").exists()


class TestWaitingForAPerson:
    def test_a_waiting_problem_has_its_worker_time_and_reason(
        self, store: Store, clock: HandClock
    ) -> None:
        say(store, "START")
        clock.pass_time(5)
        say(store, "WAIT", text="which database?")
        clock.pass_time(60)
        assert the_problem(store) == Problem(
            "waiting", "t", "w", "2026-02-02T02:40:05.000Z", "which database?", "swarm log query t"
        )

    def test_the_longest_waiting_comes_first(self, store: Store) -> None:
        for task in ("b", "a", "c"):
            say(store, "HELP", task)
        assert problems(store) == [("waiting", "b"), ("waiting", "a"), ("waiting", "c")]

    @pytest.mark.parametrize("state", ["START", "DONE", "SKIP"])
    def test_waiting_ends_when_the_task_is_started_done_or_skipped(
        self, store: Store, state: str
    ) -> None:
        say(store, "WAIT")
        say(store, state)
        assert not problems(store)

    def test_a_task_that_is_done_in_the_queue_is_not_shown_as_waiting(self, store: Store) -> None:
        queue = queue_with(store, "t")
        claim = queue.claim("w")
        queue.done("t", "w", claim.token)
        say(store, "WAIT")  # late, or by another program
        assert not problems(store)

    def test_a_task_of_the_queue_is_shown_by_the_queue(self, store: Store) -> None:
        queue_with(store, "a b").claim("w")
        say(store, "WAIT", "a b")
        assert the_problem(store).fix == "swarm task show 'a b'"


class TestErrors:
    def test_an_error_stands_until_the_task_is_started_again(self, store: Store) -> None:
        say(store, "ERROR", text="exit code 1")
        assert the_problem(store).text == "exit code 1"
        say(store, "START")
        assert not problems(store)

    @pytest.mark.parametrize("height", range(8, 14))
    def test_a_small_screen_names_the_only_problem_of_its_kind(
        self, store: Store, height: int
    ) -> None:
        for worker in ("w1", "w2", "w3"):
            queue = queue_with(store, f"busy-{worker}")
            queue.claim(worker)
        queue.add("bad", "x", max_attempts=1)
        queue.fail("bad", "w", queue.claim("w", "bad").token, "no database")
        lines = text(look(store), 60, height)
        assert any("bad" in line and "no database" in line for line in lines)

    def test_a_failed_attempt_says_that_the_queue_tries_again(self, store: Store) -> None:
        queue = queue_with(store, "t")
        claim = queue.claim("w")
        queue.fail("t", "w", claim.token, "no database")
        assert (the_problem(store).kind, the_problem(store).text) == (
            "error",
            "no database (attempt 1 of 3; it is tried again)",
        )

    def test_an_error_before_a_retry_or_a_cancel_is_no_problem_any_more(self, store: Store) -> None:
        queue = queue_with(store, "t", "u")
        for task in ("t", "u"):
            queue.fail(task, "w", queue.claim("w", task).token, "no", final=True)
        queue.retry("t", "ada")
        queue.retry("u", "ada")
        queue.cancel("u", "ada")
        assert not problems(store)

    def test_a_task_that_failed_is_one_problem_with_the_command_that_helps(
        self, store: Store
    ) -> None:
        queue = queue_with(store, "t", max_attempts=1)
        queue.fail("t", "w", queue.claim("w").token, "no database")
        problem = the_problem(store)
        assert (problem.kind, problem.text, problem.fix) == (
            "failed",
            "no database (attempt 1 of 1)",
            "swarm task retry t",
        )


class TestHolders:
    def test_the_holder_is_gone_as_soon_as_its_process_is(self, tmp_path: Path) -> None:
        root = str(tmp_path / "s")
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, root, "t", "w"],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        with holder:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            store = FileStore(root)
            assert not problems(store) and [work.worker for work in look(store).workers] == ["w"]
            holder.kill()
            holder.wait()
            problem = the_problem(store)
            assert (problem.kind, problem.worker, problem.fix) == ("gone", "w", "swarm lock why t")
            assert "its process has ended" in problem.text and "the lock is free" in problem.text
            assert not look(store).workers

    def test_the_holder_is_gone_when_its_lease_has_run_out(
        self, store: Store, clock: HandClock
    ) -> None:
        LockTable(store).acquire("t", "w", 60)
        clock.pass_time(100)
        assert "its lease ended 40 s ago" in the_problem(store).text

    def test_a_running_task_whose_lock_was_removed_is_shown_as_gone(self, store: Store) -> None:
        queue_with(store, "t").claim("w")
        LockTable(store).break_lock("t")
        assert ("gone", "t") in problems(store)
        assert look(store).queue == {
            "ready": 1,
            "waiting": 0,
            "running": 0,
            "asking": 0,
            "submitted": 0,
            "done": 0,
            "failed": 0,
            "cancelled": 0,
        }

    def test_a_claim_that_died_at_its_last_attempt_has_failed(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = queue_with(store, "t", max_attempts=1)
        queue.claim("w", ttl=10)
        clock.pass_time(20)
        assert problems(store) == [("failed", "t")]
        assert the_problem(store).text == "its worker w is gone (attempt 1 of 1)"
        assert look(store).queue["failed"] == queue.counts()["failed"] == 1

    def test_a_lock_left_behind_by_a_task_that_is_done_is_no_problem(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = queue_with(store, "t")
        queue.done("t", "w", queue.claim("w").token)
        LockTable(store).acquire("t", "w2", 10)
        clock.pass_time(20)
        assert not problems(store)

    def test_a_claim_that_ends_while_the_locks_are_read_is_not_taken_for_a_dead_one(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = queue_with(store, "t", "u")
        claim = queue.claim("w", "t")
        listing = LockTable.tasks

        def meanwhile(table: LockTable) -> Any:
            if table._namespace != "locks":
                return listing(table)
            queue.done("t", "w", claim.token)
            found = list(listing(table))
            queue.claim("w", "u")
            return iter(found)

        monkeypatch.setattr(LockTable, "tasks", meanwhile)
        board = look(store)
        assert not board.problems
        assert (board.queue["done"], board.queue["running"], board.queue["ready"]) == (1, 1, 0)


class TestLeases:
    @pytest.mark.parametrize(("ttl", "passed"), [(300, 271), (60, 49), (3, 2.5), (3600, 3571)])
    def test_a_lease_that_is_about_to_end_is_a_problem(
        self, store: Store, clock: HandClock, ttl: float, passed: float
    ) -> None:
        LockTable(store).acquire("t", "w", ttl)
        clock.pass_time(passed)
        problem = the_problem(store)
        assert problem.kind == "lease" and problem.text.startswith("its lease ends in")

    @pytest.mark.parametrize("ttl", [3, 30, 300, 3600])
    def test_a_lease_with_heartbeats_is_never_a_problem(
        self, store: Store, clock: HandClock, ttl: float
    ) -> None:
        table = LockTable(store)
        table.acquire("t", "w", ttl, bound=True)
        for _ in range(12):
            clock.pass_time(min(10, ttl / 3))
            assert not problems(store)
            table.heartbeat("t", "w")

    def test_stopped_heartbeats_are_a_problem_long_before_the_lease_ends(
        self, store: Store, clock: HandClock
    ) -> None:
        LockTable(store).acquire("t", "w", 3600, bound=True)
        clock.pass_time(120)
        assert the_problem(store).text == "no heartbeat for 2 min 0 s; its lease ends in 58 min 0 s"

    @pytest.mark.parametrize(
        ("ttl", "passed"), [(300, 265), (60, 45), (3600, 3500), (86400, 86300)]
    )
    def test_a_lease_with_time_left_is_no_problem(
        self, store: Store, clock: HandClock, ttl: float, passed: float
    ) -> None:
        LockTable(store).acquire("t", "w", ttl)
        clock.pass_time(passed)
        assert not problems(store)

    def test_missing_heartbeats_of_an_unbound_lock_are_no_problem(
        self, store: Store, clock: HandClock
    ) -> None:
        LockTable(store).acquire("t", "ada", 3600)
        LockTable(store).acquire("u", "ada", None)
        clock.pass_time(120)
        assert not problems(store)


class TestBlocked:
    def test_tasks_after_one_that_failed_are_one_problem_that_names_it(self, store: Store) -> None:
        queue = queue_with(store, "build", max_attempts=1)
        queue.add("test", "x", after=["build"])
        queue.add("ship", "x", after=["test"])
        queue.fail("build", "w", queue.claim("w").token, "no")
        board = look(store)
        blocked = [problem for problem in board.problems if problem.kind == "blocked"]
        assert [(one.task_id, one.text, one.fix) for one in blocked] == [
            ("test", "it and 1 more come after build, which failed", "swarm task retry build")
        ]
        assert board.blocked == 2

    def test_a_missing_task_blocks_the_tasks_after_it(self, store: Store) -> None:
        store.append(
            "tasks", b'{"op": "add", "at": "", "id": "t", "prompt": "x", "after": ["nowhere"]}'
        )
        assert the_problem(store).text == "it comes after nowhere, which does not exist"


def test_problems_stand_in_the_order_of_their_kinds(store: Store, clock: HandClock) -> None:
    queue = queue_with(store, "failed", max_attempts=1)
    queue.add("blocked", "x", after=["failed"])
    queue.fail("failed", "w", queue.claim("w").token, "no")
    queue.add("ready", "x")
    report_end(store, "w", "codex", "no program")
    queue.pause("the bill", "ana", label="web")
    queue.close_gate("codex", clock.now() + 3600, "a limit", "w")
    UsageLog(store).add("failed", 1, "w", Usage("codex", cost_usd=2.0))
    with pytest.raises(NoTask):
        queue.claim("w", agent="claude", budget=1.0)
    LockTable(store).acquire("gone", "w", 10)
    LockTable(store).acquire("lease", "w", 100)
    store.create("locks/unreadable", b"not a lock")
    say(store, "ERROR", "error")
    say(store, "HELP", "waiting")
    clock.pass_time(90)
    say(store, "ERROR", "denied", "denied: Bash(make). To allow it, use --permissions full")
    kinds = [kind for kind in KINDS if kind not in ("unserved", "namesake", "slots")]
    assert [kind for kind, _ in problems(store)] == kinds
    assert [kind for kind, task in problems(store) if task and kind != task] == []


class TestWork:
    def test_an_active_task_has_its_times_and_its_latest_record(
        self, store: Store, clock: HandClock
    ) -> None:
        table = LockTable(store)
        table.acquire("t", "w", 300)
        say(store, "START", text="reading the code")
        clock.pass_time(100)
        table.heartbeat("t", "w")
        clock.pass_time(20)
        (work,) = look(store).workers
        assert (work.worker, work.task_id, work.held_for, work.lease_left, work.ttl) == (
            "w",
            "t",
            120,
            280,
            300,
        )
        assert (work.state, work.text, work.said_at) == ("START", "reading the code", work.since)

    def test_the_worker_that_holds_its_task_longest_comes_first(
        self, store: Store, clock: HandClock
    ) -> None:
        for task in ("b", "a"):
            LockTable(store).acquire(task, "w", None)
            clock.pass_time(1)
        assert [(work.task_id, work.lease_left) for work in look(store).workers] == [
            ("b", None),
            ("a", None),
        ]


class TestLanding:
    def submit(self, queue: TaskQueue, task: str, **fields: Any) -> int:
        token = queue.claim("w", task).token
        queue.submit(task, "w", token, **{"work": "c0de", "branch": "main", **fields})
        return token

    def test_each_branch_has_its_line_in_the_order_of_submission(self, store: Store) -> None:
        queue = queue_with(store, "a", "b", "c", "d")
        self.submit(queue, "c")
        self.submit(queue, "b", branch="next")
        self.submit(queue, "a", review="codex")
        self.submit(queue, "d")
        board = look(store)
        assert [(row.branch, row.position, row.task_id) for row in board.landing] == [
            ("main", 1, "c"),
            ("main", 2, "a"),
            ("main", 3, "d"),
            ("next", 1, "b"),
        ]
        whys = [row.why for row in board.landing]
        assert whys[0] == whys[3] == "lands next" and "codex" in whys[1] and "a" in whys[2]
        assert board.queue["submitted"] == 4 and not board.problems and not board.workers
        assert board.fields()["landing"][0]["task_id"] == "c"

    def test_work_that_is_held_up_asks_a_user_to_act_and_says_why(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = queue_with(store, "a")
        token = self.submit(queue, "a")
        clock.pass_time(1)
        for _ in range(2):
            queue.held_up("a", token, "lander", "the checkout is dirty")
        assert look(store).landing[0].why == "the checkout is dirty"
        assert the_problem(store).kind == "waiting"
        assert [record["state"] for _, record in StatusLog(store).query("a")].count("WAIT") == 1
        queue.landed("a", token, "lander")
        assert look(store).landing == look(store).problems == ()
        with pytest.raises(WrongState):
            queue.held_up("a", token, "lander", "late")

    @pytest.mark.parametrize("state", ["WAIT", "HELP", "ERROR"])
    def test_words_of_an_agent_before_its_work_was_submitted_are_no_problem_any_more(
        self, store: Store, clock: HandClock, state: str
    ) -> None:
        queue = queue_with(store, "t")
        token = queue.claim("w", "t").token
        say(store, state, text="which one?", **{"from": "output"})
        assert the_problem(store).text.startswith("which one?")
        clock.pass_time(1)
        queue.submit("t", "w", token, work="c0de", branch="main")
        board = look(store)
        assert board.problems == () and board.landing[0].why == "lands next"

    def test_work_that_no_worker_lands_is_a_problem(self, store: Store) -> None:
        report_end(store, "w", "claude", "gone")
        queue = queue_with(store, "t")
        self.submit(queue, "t")
        (idle,) = [problem for problem in look(store).problems if problem.kind == "idle"]
        assert idle.fix == "swarm land" and "1 task waits to land" in idle.text

    @pytest.mark.parametrize("height", [None, 12, 40])
    def test_the_text_has_the_line_and_says_how_much_is_missing(
        self, store: Store, height: int | None
    ) -> None:
        names = [f"t{number:02}" for number in range(30)]
        queue = queue_with(store, *names)
        for name in names:
            self.submit(queue, name, branch="release/1.0")
        lines = text(look(store), 60, height)
        assert "To land" in lines and all(width(line) <= 60 for line in lines)
        assert any(line.split()[:4] == ["release/1.0", "1", "t00", "w"] for line in lines)
        assert any("more, see: swarm task list --state submitted" in line for line in lines)
        assert height is None or len(lines) <= height
        assert any("30 submitted" in line for line in lines)


def test_as_json_it_has_the_documented_keys(store: Store) -> None:
    queue_with(store, "t").claim("w")
    say(store, "WAIT", text="中文")
    fields = json.loads(json_codec.dumps(look(store).fields()))
    assert list(fields) == [
        "schema_version",
        "generated_at",
        "location",
        "questions",
        "problems",
        "workers",
        "locks",
        "queue",
        "seen",
        "log",
        "living",
        "gates",
        "usage",
        "landing",
        "hint",
        "slots",
        "slot_waits",
    ]
    assert list(fields["problems"][0]) == ["kind", "task_id", "worker", "since", "text", "fix"]
    assert fields["queue"]["running"] == fields["queue"]["total"] == 1
    assert fields["seen"][0]["state"] == "WAIT"
    assert fields["log"] == {"cursor": StatusLog(store).end(), "records": 2, "damaged": 0}


def test_a_viewer_that_looks_again_sees_what_a_new_one_sees(store: Store, clock: HandClock) -> None:
    viewer, queue = Viewer(store), queue_with(store, "a", "b")
    viewer.look()
    claim = queue.claim("w", "a")
    say(store, "WAIT", "a")
    assert viewer.look() == look(store)
    queue.done("a", "w", claim.token)
    clock.pass_time(3)
    assert viewer.look() == look(store)
    assert viewer.look().queue["done"] == 1


def test_a_viewer_is_woken_by_a_record(store: Store) -> None:
    viewer = Viewer(store)
    viewer.look()
    store.append(LOG, b"{}")
    assert viewer.wait(5)


def test_a_lock_that_may_not_be_read_is_a_problem_and_hides_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swarm.errors import StoreError

    table = LockTable(store)
    table.acquire("secret", "w", 60)
    table.acquire("open", "w", 60)
    reading = store.read

    def refuse(key: str) -> bytes | None:
        if key == "locks/secret":
            raise StoreError("permission denied")
        return reading(key)

    monkeypatch.setattr(store, "read", refuse)
    board = look(store)
    assert [(one.kind, one.task_id, one.fix) for one in board.problems] == [
        ("unreadable", "secret", "swarm doctor")
    ]
    assert [work.task_id for work in board.workers] == ["open"]
    assert {lock.task_id: lock.status for lock in board.locks} == {
        "secret": "Unknown",
        "open": "Active",
    }


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(
        [
            "w",
            "t",
            "u",
            "WAIT",
            "ERROR",
            "2026-02-02T10:30:10.123Z",
            "9999-12-31T23:59:59.999Z",
            "0001-01-01",
            "output",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
)


def objects(*keys: str) -> st.SearchStrategy[bytes]:
    made = st.dictionaries(st.sampled_from(keys), anything, max_size=len(keys)).map(
        lambda value: json.dumps(value).encode()
    )
    return made | st.binary(max_size=20).map(lambda data: data.replace(b"\n", b""))


@settings(max_examples=150)
@given(
    st.lists(
        objects(
            "timestamp",
            "type",
            "state",
            "worker",
            "worker_id",
            "task_id",
            "reason",
            "message",
            "meta",
        ),
        max_size=12,
    ),
    st.dictionaries(
        st.sampled_from(["t", "u", "任务"]),
        objects(
            "task_id",
            "worker",
            "acquired_at",
            "heartbeat_at",
            "ttl",
            "expires_at",
            "token",
            "holder",
        ),
        max_size=3,
    ),
    st.lists(
        objects(
            "op",
            "id",
            "at",
            "after",
            "token",
            "worker",
            "priority",
            "max_attempts",
            "reason",
            "delay",
        ),
        max_size=6,
    ),
)
def test_whatever_others_have_written_there_is_a_board_and_it_can_be_shown(
    records: list[bytes], locks: dict[str, bytes], tasks: list[bytes]
) -> None:
    store = MemoryStore(clock=HandClock())
    for line in records:
        store.append(LOG, line)
    for line in (
        b'{"op": "add", "id": "t", "prompt": "x"}',
        b'{"op": "claim", "id": "t", "token": 1, "worker": "w"}',
        *tasks,
    ):
        store.append("tasks", line)
    for task, data in locks.items():
        store.create(f"locks/{task}", data)
    board = look(store)
    assert json.loads(json_codec.dumps(board.fields()))["schema_version"] == 1
    assert all(line.isprintable() and width(line) <= 80 for line in text(board, 80, 24))


class TestQuestions:
    def test_an_open_question_is_on_the_board_once_and_not_as_a_problem(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = queue_with(store, "t")
        claim = queue.claim("w", "t")
        clock.pass_time(5)
        queue.ask("t", "w", claim.token, "which?", options=["a", "b"], default="a", after=60)
        board = look(store)
        (question,) = board.questions
        assert (question.id, question.task_id, question.worker) == ("q1", "t", "w")
        assert (question.text, question.options, question.default) == ("which?", ("a", "b"), "a")
        assert question.since == "2026-02-02T02:40:05.000Z"
        assert question.due == "2026-02-02T02:41:05.000Z"
        assert not question.is_parked and question.needs == "anyone"
        assert board.problems == () and board.queue["asking"] == 1 and board.queue["running"] == 0
        fields = json.loads(json_codec.dumps(board.fields()))
        assert fields["questions"][0]["options"] == ["a", "b"]
        queue.answer("q1", "b", "ada")
        assert look(store).questions == () and look(store).problems == ()

    def test_the_oldest_question_is_first_and_an_answer_changes_the_fingerprint(
        self, store: Store
    ) -> None:
        queue = queue_with(store, "t", "u")
        for task in ("t", "u"):
            queue.ask(task, "w", queue.claim("w", task).token, "which?")
        before = look(store)
        queue.answer("q1", "b", "ada")
        assert [each.id for each in before.questions] == ["q1", "q2"]
        assert before.fingerprint() != look(store).fingerprint()

    def test_a_question_of_a_dead_worker_is_not_shown_but_a_parked_one_is(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = queue_with(store, "t", "u")
        queue.ask("t", "w", queue.claim("w", "t", ttl=5).token, "held?")
        queue.park("u", "w", queue.claim("w", "u", ttl=5).token, "parked?")
        clock.pass_time(6)
        board = look(store)
        assert [each.text for each in board.questions] == ["parked?"]
        assert [problem.kind for problem in board.problems if problem.task_id == "u"] == []

    def test_a_call_for_help_beside_a_question_is_still_a_problem(self, store: Store) -> None:
        queue = queue_with(store, "t")
        queue.ask("t", "w", queue.claim("w", "t").token, "which?")
        say(store, "HELP", text="no output for an hour")
        assert problems(store) == [("waiting", "t")] and len(look(store).questions) == 1


def test_a_run_that_failed_stays_a_problem_until_the_next_run(
    store: Store, clock: HandClock
) -> None:
    queue = TaskQueue(store)
    queue.add("n", "x", every="1h", max_attempts=1)
    queue.fail("n", "w", queue.claim("w").token, "no disk")
    (problem,) = [each for each in look(store).problems if each.task_id == "n"]
    assert problem.kind == "error" and "no disk" in problem.text
    assert "the next may begin at" in problem.text
    assert look(store).queue["waiting"] == 1
    clock.pass_time(3600)
    viewer = Viewer(store)
    assert viewer.look().queue["ready"] == 1
    queue.done("n", "w", queue.claim("w").token)
    assert not [each for each in look(store).problems if each.task_id == "n"]


def test_the_board_shows_who_has_which_slot_and_who_waits(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_state_dir(plan(str(tmp_path)))
    (tmp_path / "swarm.toml").write_text("[slots]\nbuild = 1\ngpu = 1\n")
    queue = TaskQueue(store)
    for name in ("a", "b"):
        queue.add(name, "x", slots=["build"])
    queue.add("c", "x", slots=["gpu"])
    (tmp_path / "swarm.toml").write_text("[slots]\nbuild = 1\n")
    claim = queue.claim("w", "a")
    SlotTable(store).acquire_any(Slots("port", ("80",)), "ada", None)
    with Waiter(store, "port", "eve") as waiter:
        waiter.announce()
        board = look(store)
    rows = [(row.name, row.slot, row.status, row.worker, row.task_id) for row in board.slots]
    assert rows == [("build", "1", "Active", "w", "a"), ("port", "80", "Active", "ada", "")]
    assert [(w.name, w.worker, w.task_id) for w in board.slot_waits] == [
        ("port", "eve", ""),
        ("build", "", "b"),
    ]
    problems = [(each.task_id, each.text) for each in board.problems if each.kind == "slots"]
    assert [task for task, _ in problems] == ["c"] and "does not declare" in problems[0][1]
    queue.done("a", "w", claim.token)
    assert [row.name for row in look(store).slots] == ["port"]
