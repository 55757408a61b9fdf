"""Questions: one answer counts, it reaches the attempt that asked, and no other."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import BadInput, LockLost, NoQuestion, NoTask, WrongState
from swarm.queue.questions.question import MAX_OPEN, Question
from swarm.queue.queue import Claim, TaskQueue
from swarm.queue.state import QueueState
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from tests.conftest import ROOT, HandClock, script_environment

TEXT = "Which database?"


@pytest.fixture
def queue(store: Store) -> TaskQueue:
    made = TaskQueue(store)
    made.add("a", "x", max_attempts=2)
    made.add("b", "x", after=["a"])
    return made


def ask(queue: TaskQueue, claim: Claim, text: str = TEXT, **fields: Any) -> Question:
    return queue.ask(claim.task.id, claim.worker, claim.token, text, **fields)


def park(queue: TaskQueue, claim: Claim, text: str = TEXT, **fields: Any) -> Question:
    task = queue.park(claim.task.id, claim.worker, claim.token, text, **fields)
    assert task.state == "asking"
    return queue.questions()[-1]


def states(store: Store, task: str = "a") -> list[str]:
    return [str(record["state"]) for _, record in StatusLog(store).query(task)]


class TestHold:
    def test_the_task_is_asking_while_its_worker_keeps_it(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        question = ask(queue, claim, options=["mysql", "sqlite"])
        task = queue.get("a")
        assert (task.state, task.is_claimed, task.token) == ("asking", True, claim.token)
        assert (question.id, question.token, question.is_open) == ("q1", claim.token, True)
        assert queue.questions() == [question]
        assert queue.counts() == {"asking": 1, "waiting": 1}
        with pytest.raises(NoTask):
            queue.claim("other")

    def test_the_answer_reaches_the_asker_and_the_claim_goes_on(
        self, queue: TaskQueue, store: Store
    ) -> None:
        claim = queue.claim("w", "a")
        question = ask(queue, claim)
        queue.answer("q1", "sqlite", "ann")
        found = ask(queue, claim)
        assert (found.id, found.answer, found.answered_by) == ("q1", "sqlite", "ann")
        queue.dismiss(found, "w")
        assert queue.get("a").state == "running"
        assert queue.done("a", "w", claim.token).state == "done"
        assert states(store) == ["START", "WAIT", "SKIP", "START", "DONE"]
        assert question.is_open

    def test_the_same_question_is_new_after_its_answer_was_taken(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        queue.answer(ask(queue, claim).id, "yes", "ann")
        queue.dismiss(ask(queue, claim), "w")
        assert ask(queue, claim).id == "q2"

    @pytest.mark.parametrize(
        "fields",
        [
            {"needs": "person"},
            {"options": ["x"]},
            {"options": ["x", "z"]},
            {"options": ["x", "y"], "free": True},
            {"options": ["x", "y"], "default": "x", "after": 60},
            {"options": ["x", "y"], "kind": "permission", "needs": "anyone"},
        ],
    )
    def test_the_same_question_with_other_settings_is_refused(
        self, fields: dict[str, Any], queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        first = ask(queue, claim, options=["x", "y"])
        with pytest.raises(BadInput, match="other settings"):
            ask(queue, claim, **fields)
        assert ask(queue, claim, options=["x", "y"]) == first
        queue.answer("q1", "x", "boss", "agent")
        with pytest.raises(BadInput, match="other settings"):
            ask(queue, claim, options=["x", "y"], needs="person")

    def test_the_time_of_the_default_is_a_setting(self, queue: TaskQueue, clock: HandClock) -> None:
        claim = queue.claim("w", "a", ttl=600)
        first = ask(queue, claim, default="x", after=60)
        clock.pass_time(20)
        assert ask(queue, claim, default="x", after=60) == first
        with pytest.raises(BadInput, match=r"\(after\)"):
            ask(queue, claim, default="x", after=600)

    def test_a_question_can_be_withdrawn(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        queue.dismiss(ask(queue, claim), "w")
        assert queue.questions() == []
        with pytest.raises(NoQuestion):
            queue.answer("q1", "late", "ann")

    @pytest.mark.parametrize("how", ["done", "fail", "release", "cancel"])
    def test_a_question_ends_with_its_claim(self, how: str, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        ask(queue, claim)
        getattr(queue, how)(*(("a", "ann") if how == "cancel" else ("a", "w", claim.token)))
        assert queue.questions() == [] and queue.get("a").questions == ()
        with pytest.raises(NoQuestion, match="swarm questions"):
            queue.answer("q1", "late", "ann")

    def test_no_answer_reaches_the_attempt_of_another_worker(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        ask(queue, queue.claim("w", "a", ttl=5))
        clock.pass_time(6)
        assert queue.get("a").state == "ready" and queue.get("a").questions == ()
        second = queue.claim("other", "a")
        with pytest.raises(NoQuestion):
            queue.answer("q1", "late", "ann")
        assert ask(queue, second).id == "q2"
        with pytest.raises(LockLost):
            queue.ask("a", "w", second.token - 1, "and now?")

    def test_only_the_worker_that_has_a_task_can_ask_about_it(self, queue: TaskQueue) -> None:
        with pytest.raises(LockLost):
            queue.ask("a", "w", None, TEXT)
        claim = queue.claim("w", "a")
        with pytest.raises(LockLost):
            queue.ask("a", "other", None, TEXT)
        with pytest.raises(LockLost):
            queue.ask("a", "w", claim.token + 1, TEXT)

    def test_a_claim_can_ask_only_so_many_questions(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        for number in range(MAX_OPEN):
            ask(queue, claim, f"number {number}?")
        with pytest.raises(NoQuestion):
            ask(queue, claim, "one more?")


class TestPark:
    def test_no_worker_holds_a_parked_task_and_its_dependants_wait(
        self, queue: TaskQueue, store: Store
    ) -> None:
        claim = queue.claim("w", "a")
        park(queue, claim)
        task = queue.get("a")
        assert (task.state, task.is_claimed, task.attempts) == ("asking", False, 0)
        assert queue.get("b").state == "waiting" and queue.holder("a") is None
        assert states(store) == ["START", "WAIT"]
        with pytest.raises(WrongState, match="swarm questions"):
            queue.claim("other", "a")
        with pytest.raises(NoTask):
            queue.claim("other")

    def test_the_answer_makes_it_ready_and_the_next_attempt_knows_both(
        self, queue: TaskQueue
    ) -> None:
        park(queue, queue.claim("w", "a", agent="claude"), session="s-1", work="a1" * 20)
        queue.answer("a", "sqlite", "ann")
        claim = queue.claim("other", "a", agent="claude")
        assert claim.previous and claim.previous.answers == ((TEXT, "sqlite", "person"),)
        assert (claim.previous.session, claim.previous.work) == ("s-1", "a1" * 20)
        assert claim.task.attempts == 1
        queue.fail("a", "other", claim.token, "no", session="s-1")
        again = queue.claim("w", "a")
        assert again.previous and again.previous.answers == ((TEXT, "sqlite", "person"),)

    def test_a_worker_without_other_tasks_does_not_wait_for_a_person(
        self, queue: TaskQueue
    ) -> None:
        park(queue, queue.claim("w", "a"))
        assert queue.is_finished()

    def test_a_parked_question_can_be_repeated_after_a_lost_connection(
        self, queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        park(queue, claim)
        assert queue.park("a", "w", claim.token, TEXT).state == "asking"
        assert len(queue.questions()) == 1

    def test_a_cancelled_task_asks_no_more(self, queue: TaskQueue) -> None:
        park(queue, queue.claim("w", "a"))
        queue.cancel("a", "ann")
        assert queue.questions() == []
        with pytest.raises(NoQuestion):
            queue.answer("q1", "late", "ann")


class TestAnswers:
    def test_only_the_first_answer_counts_and_the_second_is_told_so(self, queue: TaskQueue) -> None:
        ask(queue, queue.claim("w", "a"))
        assert queue.answer("q1", "yes", "ann").answer == "yes"
        with pytest.raises(NoQuestion):
            queue.answer("q1", "no", "bob")
        assert queue.get("a").questions[0].answer == "yes"

    def test_a_late_answer_is_told_who_answered_first(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        ask(queue, claim)
        queue.answer("q1", "yes", "eve")
        for name in ("q1", "a"):
            with pytest.raises(NoQuestion, match="eve answered first: «yes»"):
                queue.answer(name, "no", "bob")
        queue.dismiss(ask(queue, claim), "w")
        with pytest.raises(NoQuestion, match="eve answered first: «yes»"):
            queue.answer("q1", "no", "bob")
        with pytest.raises(NoQuestion, match="a asks nothing: it is running"):
            queue.answer("a", "no", "bob")

    @pytest.mark.parametrize(
        ("text", "meant"), [("2", "sqlite"), ("SQL", "sqlite"), ("sqlite", "sqlite")]
    )
    def test_an_option_is_chosen_by_its_number_or_its_beginning(
        self, text: str, meant: str, queue: TaskQueue
    ) -> None:
        ask(queue, queue.claim("w", "a"), options=["mysql", "sqlite"])
        assert queue.answer("q1", text, "ann").answer == meant

    @pytest.mark.parametrize("text", ["oracle", "3", "0", "", " ", "x" * 20_000])
    def test_what_is_no_answer_is_refused_and_the_question_stays_open(
        self, text: str, queue: TaskQueue
    ) -> None:
        ask(queue, queue.claim("w", "a"), options=["mysql", "sqlite"])
        with pytest.raises(BadInput):
            queue.answer("q1", text, "ann")
        assert queue.questions()[0].is_open

    def test_other_words_count_where_the_question_allows_them(self, queue: TaskQueue) -> None:
        ask(queue, queue.claim("w", "a"), options=["mysql", "sqlite"], free=True)
        assert queue.answer("q1", "none of them", "ann").answer == "none of them"

    @pytest.mark.parametrize("text", ["2", "1"])
    def test_an_option_that_is_a_number_is_chosen_by_its_words_alone(
        self, text: str, queue: TaskQueue
    ) -> None:
        ask(queue, queue.claim("w", "a"), options=["2", "1", "10"])
        assert queue.answer("q1", text, "ann").answer == text

    def test_no_number_stands_for_an_option_that_is_another_number(self, queue: TaskQueue) -> None:
        ask(queue, queue.claim("w", "a"), options=["20", "30"])
        for text in ("1", "2", "3"):
            with pytest.raises(BadInput):
                queue.answer("q1", text, "ann")

    @pytest.mark.parametrize(
        ("text", "meant"), [("SQLite", "sqlite"), ("sql", "sql"), ("1", "mysql")]
    )
    def test_with_other_words_only_a_whole_option_is_one(
        self, text: str, meant: str, queue: TaskQueue
    ) -> None:
        ask(queue, queue.claim("w", "a"), options=["mysql", "sqlite"], free=True)
        assert queue.answer("q1", text, "ann").answer == meant

    def test_words_that_fit_several_options_are_told_so(self, queue: TaskQueue) -> None:
        ask(queue, queue.claim("w", "a"), options=["sqlite", "sqlserver"])
        with pytest.raises(BadInput, match="fits several options"):
            queue.answer("q1", "sql", "ann")

    @pytest.mark.parametrize(
        ("text", "meant"),
        [
            ("Yes", "allow"),
            ("OK.", "allow"),
            ("1", "allow"),
            ("no", "deny"),
            ("No, use git mv", "No, use git mv"),
            ("that file is needed", "that file is needed"),
        ],
    )
    def test_a_permission_is_answered_by_clear_words_or_a_reason(
        self, text: str, meant: str, queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        ask(queue, claim, options=["allow", "deny"], kind="permission", free=True)
        assert queue.answer("q1", text, "ann").answer == meant

    @pytest.mark.parametrize("text", ["alow", "sure", "yes, but only this once", "3", "later on"])
    def test_an_unclear_answer_to_a_permission_is_refused(
        self, text: str, queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        ask(queue, claim, options=["allow", "deny"], kind="permission", free=True)
        with pytest.raises(BadInput, match="1 allow, 2 deny"):
            queue.answer("q1", text, "ann")
        assert queue.questions()[0].is_open

    def test_an_agent_cannot_answer_a_question_that_needs_a_person(self, queue: TaskQueue) -> None:
        ask(queue, queue.claim("w", "a"), needs="person")
        with pytest.raises(NoQuestion, match="person"):
            queue.answer("q1", "yes", "boss", "agent")
        assert queue.answer("q1", "yes", "ann").answered_as == "person"

    def test_a_permission_needs_a_person_by_default(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        assert ask(queue, claim, kind="permission").needs == "person"
        assert ask(queue, claim, "And this?", kind="permission", needs="anyone").needs == "anyone"

    def test_an_agent_cannot_answer_its_own_question(self, queue: TaskQueue) -> None:
        ask(queue, queue.claim("w", "a"))
        with pytest.raises(NoQuestion, match="cannot answer"):
            queue.answer("q1", "yes", "w", "agent")

    def test_an_answer_to_a_worker_that_is_gone_is_refused(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        ask(queue, queue.claim("w", "a", ttl=5))
        clock.pass_time(6)
        assert queue.questions() == []
        with pytest.raises(NoQuestion):
            queue.answer("q1", "late", "ann")

    def test_an_answer_of_an_agent_says_so(self, queue: TaskQueue) -> None:
        ask(queue, queue.claim("w", "a"))
        assert queue.answer("q1", "yes", "boss", "agent").answered_as == "agent"
        assert queue.get("a").questions[0].answered_as == "agent"

    def test_a_task_with_two_questions_must_be_answered_by_their_ids(
        self, queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        ask(queue, claim), ask(queue, claim, "And where?")
        with pytest.raises(NoQuestion, match="q1, q2"):
            queue.answer("a", "yes", "ann")

    @pytest.mark.parametrize(
        "fields",
        [
            {"text": ""},
            {"text": "x" * 20_000},
            {"options": ["a", "A"]},
            {"options": [""]},
            {"options": ["two\nlines"]},
            {"options": list(map(str, range(21)))},
            {"default": "x"},
            {"after": 5},
            {"default": "x", "after": -1},
            {"options": ["a"], "default": "b", "after": 1},
            {"kind": "joke"},
            {"needs": "somebody"},
        ],
    )
    def test_a_question_that_is_none_is_refused(
        self, fields: dict[str, Any], queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        with pytest.raises(BadInput):
            ask(queue, claim, **{"text": TEXT, **fields})
        assert queue.get("a").state == "running"


class TestDefaults:
    def test_the_default_counts_after_its_time(self, queue: TaskQueue, clock: HandClock) -> None:
        park(queue, queue.claim("w", "a"), default="sqlite", after=10)
        assert not queue.is_finished()
        clock.pass_time(9)
        with pytest.raises(NoTask):
            queue.claim("w")
        clock.pass_time(1.1)
        claim = queue.claim("w")
        assert claim.previous and claim.previous.answers == ((TEXT, "sqlite", "default"),)

    def test_an_answer_in_time_comes_before_the_default(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        ask(queue, queue.claim("w", "a"), default="sqlite", after=10)
        queue.answer("q1", "mysql", "ann")
        clock.pass_time(11)
        queue.answer_due()
        assert queue.get("a").questions[0].answer == "mysql"

    def test_a_default_counts_for_a_held_question_for_which_no_process_waits(
        self, queue: TaskQueue, clock: HandClock
    ) -> None:
        claim = queue.claim("w", "a", ttl=600)
        ask(queue, claim, default="sqlite", after=10)
        clock.pass_time(11)
        with pytest.raises(NoQuestion, match="the default counted"):
            queue.answer("q1", "mysql", "ann")
        assert queue.get("a").questions[0].answered_as == "default"

    @pytest.mark.parametrize("reader", ["questions", "ask"])
    def test_a_reader_of_questions_lets_defaults_count(
        self, reader: str, queue: TaskQueue, clock: HandClock
    ) -> None:
        claim = queue.claim("w", "a", ttl=600)
        ask(queue, claim, default="sqlite", after=10)
        clock.pass_time(11)
        if reader == "questions":
            assert queue.questions() == []
        else:
            assert ask(queue, claim, default="sqlite", after=10).answer == "sqlite"
        assert queue.get("a").questions[0].answered_as == "default"


def test_questions_survive_a_snapshot(queue: TaskQueue, store: Store) -> None:
    claim = queue.claim("w", "a")
    ask(queue, claim, options=["x", "y"], about={"tool": "Bash"})
    state = queue._log().state
    data = json.loads(json.dumps(state.dump()))
    fresh = QueueState()
    fresh.load(data)
    assert fresh.open_questions() == state.open_questions()
    assert fresh.dump() == state.dump()
    for line in (
        b'{"op": "answer", "id": "a", "question": "q1", "answer": "x", "source": "ghost"}',
        b'{"op": "answer", "id": "a", "question": "q2", "answer": "x", "source": "person"}',
        b'{"op": "answer", "id": "b", "question": "q1", "answer": "x", "source": "person"}',
    ):
        assert fresh.apply(line) is False
    assert len(fresh.open_questions()) == 1


def test_of_many_answers_at_once_exactly_one_counts(live_store: Store) -> None:
    queue = TaskQueue(live_store)
    rounds, rivals = 12, 6
    for number in range(rounds):
        queue.add(f"t{number}", "x")
        claim = queue.claim("w", f"t{number}", ttl=60)
        question = ask(queue, claim)
        queues = [TaskQueue(live_store) for _ in range(rivals)]

        def answer(each: int) -> int:
            try:
                queues[each].answer(question.id, f"answer {each}", f"p{each}")  # noqa: B023
            except NoQuestion:
                return -1
            return each

        with ThreadPool(rivals) as pool:
            told = [each for each in pool.map(answer, range(rivals)) if each >= 0]
        assert len(told) == 1
        assert queue.get(f"t{number}").questions[0].answer == f"answer {told[0]}"


_ANSWERER = """
import sys
from swarm.queue.queue import TaskQueue
from swarm.errors import NoQuestion
store, name = sys.argv[1:]
queue = TaskQueue(store)
print("ready", flush=True)
for line in sys.stdin:
    try:
        queue.answer(line.strip(), name, name)
        print("yes", flush=True)
    except NoQuestion:
        print("no", flush=True)
"""


def test_an_answerer_that_is_killed_leaves_one_answer_or_none(tmp_path: Path) -> None:
    address = str(tmp_path / "swarm")
    with closing(open_store(address)) as store:
        queue = TaskQueue(store)
        for number in range(8):
            queue.add(f"t{number}", "x")
            question = ask(queue, queue.claim("w", f"t{number}", ttl=60))
            with subprocess.Popen(
                [sys.executable, "-c", _ANSWERER, address, "killed"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=script_environment() | {"PYTHONPATH": str(ROOT)},
            ) as process:
                assert process.stdin and process.stdout
                assert process.stdout.readline() == "ready\n"
                process.stdin.write(f"{question.id}\n")
                process.stdin.flush()
                process.send_signal(signal.SIGKILL)
            try:
                queue.answer(question.id, "mine", "ann")
                expected = "mine"
            except NoQuestion:
                expected = "killed"
            assert queue.get(f"t{number}").questions[0].answer == expected
