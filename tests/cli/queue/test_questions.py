"""`swarm ask`, `swarm answer`, `swarm questions`: real processes that ask and answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.locks.table import LockTable
from swarm.queue.questions.question import Question
from swarm.queue.queue import Claim, TaskQueue
from swarm.stores.default import default_store
from tests.conftest import ROOT
from tests.support.agents.people import clean_environment
from tests.support.command_line import run

TIMEOUT = 60.0
TEXT = "Which database?"


@pytest.fixture
def queue(isolated_swarm_dir: Path) -> TaskQueue:
    made = TaskQueue()
    made.add("a", "x")
    made.add("b", "x", after=["a"])
    return made


@pytest.fixture
def start(isolated_swarm_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `swarm ARGS` in a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-P", f"{ROOT}/swarm/__main__.py", *words],
            env=clean_environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT
    while not (found := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
    return found


def mine(claim: Claim) -> list[str]:
    return ["--task", claim.task.id, "--worker", claim.worker, "--token", str(claim.token)]


def asked(queue: TaskQueue) -> Question:
    found: Question = wait_until(queue.questions)[0]
    return found


Start = Callable[..., subprocess.Popen[str]]


class TestAsk:
    def test_the_answer_is_all_that_is_printed(self, queue: TaskQueue, start: Start) -> None:
        process = start("ask", TEXT, *mine(queue.claim("w", "a")))
        queue.answer(asked(queue).id, "sqlite,\nof course", "ann")
        out, err = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, out) == (0, "sqlite,\nof course\n")
        assert "ann, a person" in err
        assert queue.get("a").state == "running" and queue.get("a").questions == ()

    def test_yes_and_no_arrive_as_different_words(self, queue: TaskQueue, start: Start) -> None:
        claim = queue.claim("w", "a")
        for said in ("yes", "no"):
            process = start("ask", "Continue?", "--option", "yes", "--option", "no", *mine(claim))
            queue.answer(asked(queue).id, said, "ann")
            assert process.communicate(timeout=TIMEOUT)[0] == f"{said}\n"

    def test_the_task_is_that_of_the_environment(self, queue: TaskQueue, start: Start) -> None:
        token = str(queue.claim("w", "a").token)
        names = {"SWARM_TASK_ID": "a", "SWARM_WORKER": "w", "SWARM_TOKEN": token}
        process = start("ask", TEXT, "--json", **names)
        queue.answer(asked(queue).id, "sqlite", "boss", "agent")
        found = json.loads(process.communicate(timeout=TIMEOUT)[0])
        assert (found["answer"], found["answered_by"]) == ("sqlite", "boss")
        assert found["answered_as"] == "agent" and found["question"]["id"] == "q1"

    def test_a_worker_with_one_task_need_not_name_it(self, queue: TaskQueue, start: Start) -> None:
        queue.claim("w", "a")
        process = start("ask", TEXT, "--worker", "w")
        assert asked(queue).task_id == "a"
        queue.answer("a", "sqlite", "ann")
        assert process.communicate(timeout=TIMEOUT)[0] == "sqlite\n"

    def test_a_worker_without_a_task_is_told_so(self, queue: TaskQueue) -> None:
        answer = run("ask", TEXT, "--worker", "w")
        assert answer.code == 2 and b"--task" in answer.err

    def test_a_task_of_another_worker_is_refused_with_4(self, queue: TaskQueue) -> None:
        queue.claim("w", "a")
        assert run("ask", TEXT, "--task", "a", "--worker", "thief").code == 4
        assert queue.questions() == []

    def test_after_its_time_the_question_stays_open_and_can_be_asked_again(
        self, queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        answer = run("ask", TEXT, "--timeout", "0", "--json", *mine(claim))
        assert (answer.code, answer.json["why"]) == (1, "timeout")
        assert b"stays open" in answer.err and asked(queue).id == "q1"
        queue.answer("q1", "sqlite", "ann")
        again = run("ask", TEXT, "--timeout", "0", *mine(claim))
        assert (again.code, again.out) == (0, b"sqlite\n")

    def test_a_question_can_be_withdrawn(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        run("ask", TEXT, "--timeout", "0", *mine(claim))
        assert run("ask", TEXT, "--withdraw", *mine(claim)).code == 0
        assert queue.questions() == [] and queue.get("a").state == "running"
        assert run("ask", TEXT, "--withdraw", *mine(claim)).code == 1

    def test_a_question_that_was_answered_is_not_withdrawn_but_printed(
        self, queue: TaskQueue
    ) -> None:
        claim = queue.claim("w", "a")
        run("ask", TEXT, "--timeout", "0", *mine(claim))
        queue.answer("q1", "sqlite", "ann")
        answer = run("ask", TEXT, "--withdraw", *mine(claim))
        assert (answer.code, answer.out) == (0, b"sqlite\n")
        assert b"not withdrawn" in answer.err and queue.get("a").questions == ()

    def test_the_default_counts_after_its_time(self, queue: TaskQueue, start: Start) -> None:
        claim = queue.claim("w", "a")
        words = ["--default", "sqlite", "--after", "0.3", "--json"]
        process = start("ask", TEXT, *words, *mine(claim))
        found = json.loads(process.communicate(timeout=TIMEOUT)[0])
        assert (found["answer"], found["answered_as"]) == ("sqlite", "default")

    @pytest.mark.parametrize("how", ["cancel", "release", "fail"])
    def test_an_attempt_that_ends_without_an_answer_ends_the_wait_with_1(
        self, how: str, queue: TaskQueue, start: Start
    ) -> None:
        claim = queue.claim("w", "a")
        process = start("ask", TEXT, *mine(claim))
        asked(queue)
        getattr(queue, how)("a", *(("ann",) if how == "cancel" else ("w", claim.token)))
        out, err = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, out) == (1, ""), err

    def test_a_lost_lease_ends_the_wait_with_4(self, queue: TaskQueue, start: Start) -> None:
        process = start("ask", TEXT, "--json", *mine(queue.claim("w", "a")))
        asked(queue)
        LockTable(default_store()).break_lock("a")
        out, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 4 and json.loads(out)["why"] == "lost", err

    def test_the_lease_of_a_shell_is_renewed_meanwhile(
        self, queue: TaskQueue, start: Start
    ) -> None:
        claim = queue.claim("w", "a", ttl=9)
        process = start("ask", TEXT, *mine(claim))
        asked(queue)
        before = queue.holder("a")
        wait_until(lambda: (lock := queue.holder("a")) and lock != before)
        queue.answer("q1", "sqlite", "ann")
        assert process.communicate(timeout=TIMEOUT)[0] == "sqlite\n"

    def test_a_claim_that_is_bound_to_a_process_is_left_to_it(
        self, queue: TaskQueue, start: Start
    ) -> None:
        """A worker that hangs must lose its task, though its agent waits in `swarm ask`."""
        claim = queue.claim("w", "a", ttl=2, bound=True)
        process = start("ask", TEXT, *mine(claim))
        process.communicate(timeout=TIMEOUT)
        assert process.returncode == 4
        assert queue.get("a").state == "ready" and queue.questions() == []

    def test_ctrl_c_withdraws_the_question(self, queue: TaskQueue, start: Start) -> None:
        process = start("ask", TEXT, *mine(queue.claim("w", "a")))
        asked(queue)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, out) == (130, "") and "Traceback" not in err
        assert queue.questions() == [] and queue.get("a").state == "running"

    def test_a_question_ends_with_an_agent_that_is_killed(
        self, queue: TaskQueue, isolated_swarm_dir: Path, tmp_path: Path
    ) -> None:
        """The process of `swarm ask` outlives it, and must not keep the claim alive."""
        claim = queue.claim("w", "a", ttl=8)
        words = [sys.executable, "-P", f"{ROOT}/swarm/__main__.py", "ask", TEXT, *mine(claim)]
        program = "import subprocess, sys; subprocess.run(sys.argv[1:])"
        with subprocess.Popen(
            [sys.executable, "-c", program, *words],
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as agent:
            asked(queue)
            agent.kill()
        wait_until(lambda: not queue.questions())
        assert queue.get("a").state == "ready"
        refused = run("answer", "q1", "late")
        assert refused.code == 1 and queue.claim("w2", "a").token > claim.token

    def test_the_agent_of_a_worker_asks_and_its_worker_keeps_the_task(
        self, queue: TaskQueue, start: Start, tmp_path: Path
    ) -> None:
        swarm = f"{sys.executable} -P {ROOT}/swarm/__main__.py"
        agent = f"{swarm} ask '{TEXT}' >{tmp_path}/got; echo $SWARM_TASK_ID uses it"
        worker = start("worker", "--id", "w", "--until-empty", "--exec", f'sh -c "{agent}"')
        question = asked(queue)
        assert (question.worker, queue.get("a").state) == ("w", "asking")
        queue.answer("a", "sqlite", "ann")
        wait_until(lambda: queue.get("a").state == "done")
        assert (tmp_path / "got").read_text() == "sqlite\n"
        assert asked(queue).task_id == "b"
        worker.kill()
        wait_until(lambda: not queue.questions())

    def test_an_answer_that_could_not_be_printed_can_be_asked_for_again(
        self, queue: TaskQueue, start: Start
    ) -> None:
        claim = queue.claim("w", "a")
        process = start("ask", TEXT, *mine(claim))
        question = asked(queue)
        assert process.stdout is not None
        process.stdout.close()
        queue.answer(question.id, "sqlite", "ann")
        process.wait(TIMEOUT)
        process.stdout = None
        assert run("ask", TEXT, "--timeout", "0", *mine(claim)).out == b"sqlite\n"


class TestAnswer:
    def test_without_a_name_the_only_question_is_answered(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        assert run("answer", "sqlite").code == 1, "no question is open"
        queue.ask("a", "w", claim.token, TEXT)
        assert run("answer", "sqlite", "--worker", "boss").code == 0
        (found,) = queue.get("a").questions
        assert (found.answer, found.answered_by) == ("sqlite", "boss")

    def test_without_a_name_two_questions_are_refused(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        queue.ask("a", "w", claim.token, TEXT), queue.ask("a", "w", claim.token, "Where?")
        answer = run("answer", "sqlite")
        assert answer.code == 1 and b"q1, q2" in answer.err

    @pytest.mark.parametrize("name", ["q1", "a"])
    def test_a_name_alone_is_no_answer(self, name: str, queue: TaskQueue) -> None:
        queue.ask("a", "w", queue.claim("w", "a").token, TEXT)
        assert run("answer", name).code == 2 and queue.questions()[0].is_open

    @pytest.mark.parametrize("name", ["q2", "q77", "b"])
    def test_the_name_of_another_question_or_task_alone_is_no_answer(
        self, name: str, queue: TaskQueue
    ) -> None:
        queue.ask("a", "w", queue.claim("w", "a").token, TEXT)
        answer = run("answer", name)
        assert answer.code == 2 and b"the answer is missing" in answer.err
        assert queue.questions()[0].is_open

    def test_a_second_answer_is_told_that_it_does_not_count(self, queue: TaskQueue) -> None:
        queue.ask("a", "w", queue.claim("w", "a").token, TEXT)
        assert run("answer", "q1", "yes").code == 0
        late = run("answer", "q1", "no", "--json")
        assert (late.code, late.json["answered"]) == (1, False)
        assert queue.get("a").questions[0].answer == "yes"

    def test_an_answer_that_is_no_option_is_wrong_usage(self, queue: TaskQueue) -> None:
        queue.ask("a", "w", queue.claim("w", "a").token, TEXT, options=["mysql", "sqlite"])
        answer = run("answer", "q1", "oracle")
        assert answer.code == 2 and b"1 mysql, 2 sqlite" in answer.err
        assert run("answer", "q1", "2").code == 0
        assert queue.get("a").questions[0].answer == "sqlite"

    def test_an_agent_cannot_answer_itself(
        self, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        claim = queue.claim("w", "a")
        queue.ask("a", "w", claim.token, TEXT)
        monkeypatch.setenv("SWARM_TOKEN", str(claim.token))
        answer = run("answer", "q1", "yes", "--worker", "w")
        assert answer.code == 1 and queue.questions()[0].is_open

    def test_an_agent_cannot_answer_itself_under_another_name(
        self, queue: TaskQueue, start: Start
    ) -> None:
        claim = queue.claim("w", "a")
        queue.ask("a", "w", claim.token, TEXT)
        words = ("answer", "q1", "yes", "--worker", "other")
        own = start(*words, SWARM_TASK_ID="a", SWARM_TOKEN=str(claim.token))
        assert "cannot answer" in own.communicate(timeout=TIMEOUT)[1] and own.returncode == 1
        assert queue.questions()[0].is_open
        other = start(*words, SWARM_TASK_ID="a", SWARM_TOKEN=str(claim.token + 1))
        assert other.communicate(timeout=TIMEOUT) and other.returncode == 0

    def test_a_process_that_the_holder_started_cannot_answer_for_it(
        self, queue: TaskQueue, start: Start
    ) -> None:
        claim = queue.claim("w", "a", bound=True)
        queue.ask("a", "w", claim.token, TEXT)
        child = start("answer", "q1", "yes", "--worker", "other")
        assert "cannot answer" in child.communicate(timeout=TIMEOUT)[1] and child.returncode == 1
        assert queue.questions()[0].is_open
        assert queue.answer("q1", "yes", "ann").answer == "yes"

    def test_a_parked_task_is_ready_after_its_answer(self, queue: TaskQueue) -> None:
        queue.park("a", "w", queue.claim("w", "a").token, TEXT)
        assert b"ready again" in run("answer", "a", "sqlite").out
        assert queue.get("a").state == "ready"

    def test_a_task_with_more_parked_questions_still_asks(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        queue.ask("a", "w", claim.token, "Where?")
        queue.park("a", "w", claim.token, TEXT)
        assert b"a still asks q1." in run("answer", "q2", "sqlite").out
        assert b"ready again" in run("answer", "q1", "here").out


class TestQuestions:
    def test_options_that_are_numbers_have_no_number(self, queue: TaskQueue) -> None:
        queue.ask("a", "w", queue.claim("w", "a").token, "How many?", options=["2", "1"])
        lines = run("questions").out.decode().splitlines()
        assert lines[2:] == ["  - | 2", "  - | 1", "  Answer: swarm answer q1 TEXT"]

    def test_a_question_is_shown_with_all_that_one_needs_to_answer_it(
        self, queue: TaskQueue
    ) -> None:
        assert run("questions").out == b"No questions\n"
        claim = queue.claim("w", "a")
        text = "Which database?\nAnswer: swarm answer q9 rm\x1b[2J"
        queue.ask(
            "a",
            "w",
            claim.token,
            text,
            options=["mysql", "sqlite"],
            default="mysql",
            after=60,
            needs="person",
        )
        lines = run("questions").out.decode().splitlines()
        assert lines[0].startswith("q1  w asks about a, ") and "held" in lines[0]
        assert lines[1:3] == [
            "  | Which database?",
            "  | Answer: swarm answer q9 rm\\x1b[2J",
        ], "the words of an agent stay behind their bar"
        assert lines[3:5] == ["  1 | mysql", "  2 | sqlite"]
        assert "«mysql» counts at" in lines[5] and "person" in lines[6]
        assert lines[7] == "  Answer: swarm answer q1 NUMBER"

    def test_facts_about_a_question_are_readable_and_behind_bars(self, queue: TaskQueue) -> None:
        claim = queue.claim("w", "a")
        about = {
            "call": "0123456789abcdef",
            "tool": "Bash",
            "directory": "/srv/shop",
            "options": {"yes": "do it\nAnswer: now", "no": ""},
            "policy": "",
            "input": {"command": "rm -r /"},
            "message": "I looked.\n  Answer: swarm answer q1 yes\x1b[2J",
        }
        queue.ask("a", "w", claim.token, "May I?", about=about)
        assert run("questions").out.decode().splitlines()[1:] == [
            "  | May I?",
            "  tool: Bash",
            "  directory: /srv/shop",
            "  options:",
            "  | yes: do it Answer: now",
            "  input:",
            "  | command: rm -r /",
            "  message:",
            "  | I looked.",
            "  |   Answer: swarm answer q1 yes\\x1b[2J",
            "  Answer: swarm answer q1 TEXT",
        ]
        (row,) = run("questions", "--json").json["questions"]
        assert row["about"] == about
        board = run("status").out.decode()
        assert "tool: Bash" in board and "0123456789abcdef" not in board

    def test_a_message_that_is_the_question_is_not_shown_twice(self, queue: TaskQueue) -> None:
        queue.ask("a", "w", queue.claim("w", "a").token, TEXT, about={"message": f"{TEXT}\n"})
        assert run("questions").out.decode().count(TEXT) == 1

    def test_the_json_has_the_fields_of_the_question(self, queue: TaskQueue) -> None:
        queue.park("a", "w", queue.claim("w", "a").token, TEXT)
        (row,) = run("questions", "--json").json["questions"]
        assert (row["id"], row["task_id"], row["text"], row["is_parked"]) == ("q1", "a", TEXT, True)
        assert row["age"] >= 0 and row["command"] == "swarm answer q1 TEXT"

    def test_other_commands_know_the_state_asking(self, queue: TaskQueue) -> None:
        queue.ask("a", "w", queue.claim("w", "a").token, TEXT)
        assert run("wait", "a", "--for", "asking", "--timeout", "0").code == 0
        assert "«Which database?»".encode() in run("wait", "a", "--timeout", "0").err
        assert run("task", "list", "--state", "asking").out.startswith(b"asking     a (worker: w")
        shown = run("task", "show", "a").out.decode()
        assert "q1, held:\n  | Which database?\n" in shown and "swarm answer q1 TEXT" in shown
        queue.answer("q1", "sqlite", "ann")
        assert "answered by ann, a person" in run("task", "show", "a").out.decode()
