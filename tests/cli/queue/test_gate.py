"""`swarm gate` and `swarm cost`: who may not work until when, and what it cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.queue.queue import TaskQueue
from swarm.queue.usage import Usage, UsageLog
from swarm.stores.file.store import FileStore
from swarm.workers.presence import announce
from tests.support.command_line import run


@pytest.fixture(autouse=True)
def place(isolated_swarm_dir: Path) -> Path:
    return isolated_swarm_dir


def swarm(*args: str) -> str:
    answer = run(*args)
    assert answer.code == 0, answer
    return answer.out.decode()


class TestGate:
    def test_the_list_of_tasks_says_which_tasks_wait_for_a_gate(self, place: Path) -> None:
        swarm("task", "add", "a", "--prompt", "x", "--agent", "claude")
        swarm("task", "add", "b", "--prompt", "x", "--agent", "codex")
        swarm("task", "add", "c", "--prompt", "x")
        swarm("task", "add", "d", "--", "true")
        swarm("gate", "close", "claude", "the account is used up", "--for", "600")
        with announce(FileStore(str(place)), "w", agent="claude", accepts_commands=False):
            lines = swarm("task", "list").splitlines()
        gated = [line.split()[1] for line in lines if "waits for the gate claude" in line]
        assert gated == ["a", "c"] and " UTC (in " in lines[0]
        assert swarm("task", "list").count("gate claude") == 1, "no worker could do c anyway"
        swarm("gate", "open", "claude")
        assert "gate" not in swarm("task", "list")

    def test_a_gate_is_closed_listed_and_opened(self) -> None:
        assert swarm("gate", "list") == "All gates are open\n"
        closed = swarm("gate", "close", "claude", "the account is used up", "--for", "3600")
        assert closed.startswith("Gate closed: claude  until 20")
        (line,) = swarm("gate", "list").splitlines()
        assert line.startswith("claude  until 20") and "«the account is used up»" in line
        swarm("task", "add", "a", "--prompt", "x")
        refused = run("task", "claim", "--worker", "w", "--agent", "claude", "--json")
        assert refused.code == 1
        assert refused.json["why"] == "gate" and refused.json["must_stop"] is True
        assert 3590 < refused.json["ready_in"] <= 3600
        assert "--wait 36" in refused.json["next"] and "gate open claude" in refused.json["reason"]
        assert swarm("gate", "open", "claude") == "Gate opened: claude\n"
        assert swarm("gate", "open", "claude") == "Gate was open already: claude\n"
        assert "Claimed: a" in swarm("task", "claim", "--worker", "w", "--agent", "claude")

    def test_a_gate_without_a_time_waits_for_a_user(self) -> None:
        gate = run("gate", "close", "*", "--json").json["gate"]
        assert (gate["agent"], gate["until"], gate["reason"]) == ("*", None, None)
        assert gate["open"] == "swarm gate open '*'"
        assert run("gate", "list", "--json").json["gates"] == [gate]
        assert "*  until a user opens it, by " in swarm("gate", "list")
        swarm("task", "add", "a", "--prompt", "x")
        refused = run("task", "claim", "--worker", "w", "--json").json
        assert (refused["why"], refused["ready_in"]) == ("paused", None)
        assert run("gate", "open", "*", "--json").json["opened"] is True

    def test_a_gate_is_closed_until_a_time(self) -> None:
        until = "2099-02-02T15:00:00.000Z"
        swarm("gate", "close", "claude", "--until", until)
        assert run("gate", "list", "--json").json["gates"][0]["until"] == until

    @pytest.mark.parametrize(
        ("args", "text"),
        [
            (("close",), "needs AGENT"),
            (("close", "claude", "--until", "soon"), "--until is 'soon'"),
            (("close", "claude", "--until", "2020-01-01T00:00:00Z"), "is over"),
            (("close", "claude", "--until", "2099-01-01T00:00:00Z", "--for", "5"), "exclude"),
            (("close", "claude", "--for", "x"), "--for is 'x'"),
            (("close", "a/b"), "slash"),
            (("open", "-x"), "dash"),
        ],
    )
    def test_bad_input_closes_no_gate(self, args: tuple[str, ...], text: str) -> None:
        answer = run("gate", *args)
        assert answer.code == 2 and text in answer.err.decode()
        assert swarm("gate", "list") == "All gates are open\n"

    def test_the_words_of_a_worker_cannot_forge_a_line(self) -> None:
        swarm("gate", "close", "claude", "x\nAll gates are open\x1b[2J")
        (line,) = swarm("gate", "list").splitlines()
        assert "\x1b" not in line


class TestCost:
    @pytest.fixture
    def usage(self, place: Path) -> UsageLog:
        log = UsageLog(FileStore(str(place)))
        log.add("login", 1, "w", Usage("claude", "s", 7, 1200, 340, 0.421))
        log.add("login", 2, "w", Usage("claude", "s", 1, 1, 1, 1.0))
        log.add("任务", 1, "w", Usage("", "", 2, 10, 20, 0.0))
        return log

    def test_nothing_was_reported(self) -> None:
        assert swarm("cost") == "No cost was reported yet\n"
        answer = run("cost", "--json").json
        assert answer["rows"] == [] and answer["total"]["cost_usd"] is None

    def test_costs_are_shown_by_task_with_a_total_and_as_an_estimate(self, usage: UsageLog) -> None:
        shown = swarm("cost").splitlines()
        assert [line.split()[0] for line in shown] == ["task", "login", "任务", "total", "These"]
        assert shown[1].split() == ["login", "1.42", "8", "1201", "341"]
        assert shown[2].split() == ["任务", "not", "reported", "2", "10", "20"]
        assert shown[3].split() == ["total", "1.42", "10", "1211", "361"]
        assert "estimates" in shown[-1]

    @pytest.mark.parametrize(
        ("by", "names"), [("agent", ["claude", None]), ("task", ["login", "任务"])]
    )
    def test_costs_are_added_up_as_asked(
        self, usage: UsageLog, by: str, names: list[str | None]
    ) -> None:
        answer = run("cost", "--by", by, "--json").json
        assert answer["estimate"] is True and answer["by"] == by
        assert [row[by] for row in answer["rows"]] == names
        assert answer["rows"][0]["cost_usd"] == 1.421
        assert "(unknown)" in swarm("cost", "--by", "agent")

    def test_costs_by_day(self, usage: UsageLog) -> None:
        (row,) = run("cost", "--by", "day", "--json").json["rows"]
        assert row["day"].startswith("20") and row["turns"] == 10

    def test_an_unknown_way_is_refused(self) -> None:
        answer = run("cost", "--by", "week")
        assert answer.code == 2 and b"task or agent or day" in answer.err

    def test_lists_of_tasks_have_the_cost(self, usage: UsageLog) -> None:
        swarm("task", "add", "login", "--prompt", "x")
        swarm("task", "add", "other", "--prompt", "x")
        assert swarm("task", "list") == "ready      login  about 1.42 USD\nready      other\n"
        rows = run("task", "list", "--json").json["tasks"]
        assert [row["cost_usd"] for row in rows] == [1.421, None]
        assert "cost:        about 1.42 USD, 8 turns" in swarm("task", "show", "login")
        assert run("task", "show", "login", "--json").json["usage"]["turns"] == 8
        assert "cost:" not in swarm("task", "show", "other")


class TestNotes:
    def test_a_note_and_the_last_failure_are_shown_and_reach_the_next_claim(
        self, place: Path
    ) -> None:
        queue = TaskQueue(FileStore(str(place)))
        queue.add("a", "x", max_attempts=1)
        token = queue.claim("w", agent="claude").token
        queue.fail("a", "w", token, "2 tests\nfailed", feedback="E1\nE2»", session="s-1")
        assert swarm("task", "list") == "failed     a (2 tests failed)\n"
        out = swarm("task", "retry", "a", "--note", "Use the index")
        assert out == "Task ready again: a\n"
        shown = swarm("task", "show", "a")
        assert "failure:     2 tests failed\n" in shown
        assert "note:        Use the index\n" in shown and "session:     s-1\n" in shown
        assert "\nFeedback of the last attempt:\n  E1\n  E2»\n" in shown
        previous = {
            "reason": "2 tests\nfailed",
            "feedback": "E1\nE2»",
            "note": "Use the index",
            "session": "s-1",
            "agent": "claude",
            "work": "",
            "answers": [],
        }
        assert run("task", "show", "a", "--json").json["previous"] == previous
        claimed = swarm("task", "claim", "--worker", "w")
        assert "«2 tests failed»" in claimed and "«Use the index»" in claimed
        assert "    | E1\n    | E2»\n" in claimed
        assert "attempt 1 of 1; before: 2 tests failed)" in swarm("task", "list")
        swarm("task", "release", "a", "--worker", "w")
        claim = run("task", "claim", "--worker", "w", "--json").json
        assert claim["previous"] == previous

    def test_a_done_task_is_reopened(self) -> None:
        swarm("task", "add", "a", "--prompt", "x")
        swarm("task", "add", "b", "--prompt", "x", "--after", "a")
        swarm("task", "claim", "a", "--worker", "w")
        swarm("task", "done", "a", "all well", "--worker", "w")
        assert swarm("task", "reopen", "a", "--note", "not all") == "Task ready again: a\n"
        assert "waiting    b (waits for a)\n" in swarm("task", "list")
        assert "«not all»" in swarm("task", "claim", "--worker", "w")
        again = run("task", "reopen", "a")
        assert again.code == 1 and b"only a task that is done" in again.err

    def test_a_task_is_for_an_agent(self, tmp_path: Path) -> None:
        swarm("task", "add", "a", "--prompt", "x", "--agent", "codex")
        file = tmp_path / "tasks.jsonl"
        file.write_text('{"id": "b", "prompt": "x", "agent": "codex"}\n')
        swarm("task", "import", str(file))
        assert "agent:       codex\n" in swarm("task", "show", "a")
        rows = run("task", "list", "--json").json["tasks"]
        assert [row["agent"] for row in rows] == ["codex", "codex"]
        refused = run("task", "claim", "--worker", "w", "--json").json
        assert refused["why"] == "finished" and "--agent codex" in refused["reason"]
        assert "Claimed: a" in swarm("task", "claim", "--worker", "w", "--agent", "codex")
        bad = run("task", "add", "c", "--prompt", "x", "--agent", "a b")
        assert bad.code == 2 and b"agent" in bad.err
