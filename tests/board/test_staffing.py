"""Problems about workers: no worker runs, a worker died, no worker takes these tasks, a
gate is closed. And no false alarm.
"""

from __future__ import annotations

from typing import Any

import pytest

from swarm.board.board import Board, Problem
from swarm.board.text import text
from swarm.board.viewer import Viewer
from swarm.errors import NoTask
from swarm.locks.presence import REPORTED_FOR, forget_dead
from swarm.queue.queue import TaskQueue
from swarm.queue.usage import Usage, UsageLog
from swarm.stores.contract import Store
from swarm.workers.presence import announce, report_end
from tests.conftest import HandClock


def look(store: Store) -> Board:
    return Viewer(store).look()


def problems(store: Store) -> list[tuple[str, str]]:
    return [(problem.kind, problem.task_id) for problem in look(store).problems]


def the_problem(store: Store) -> Problem:
    (problem,) = look(store).problems
    return problem


def screen(store: Store) -> str:
    return "\n".join(text(look(store), 100))


def add(store: Store, *tasks: str, **fields: Any) -> TaskQueue:
    queue = TaskQueue(store)
    for task in tasks:
        queue.add(task, None if "command" in fields else "do it", **fields)
    return queue


def work_once(store: Store) -> None:
    with announce(store, "worker-1", agent="claude", accepts_commands=False):
        pass


class TestNoWorker:
    def test_ready_tasks_without_a_worker_are_a_problem(self, store: Store) -> None:
        work_once(store)
        add(store, "a", "b")
        problem = the_problem(store)
        assert (problem.kind, problem.text) == ("idle", "2 tasks are ready, and no worker runs")
        assert problem.fix == "swarm up --agent claude"
        assert "NO WORKER  2 tasks are ready, and no worker runs\n" in screen(store)

    def test_the_advice_fits_the_tasks(self, store: Store) -> None:
        work_once(store)
        add(store, "a", agent="codex")
        assert the_problem(store).fix == "swarm up --agent codex"

    def test_tasks_with_commands_need_no_agent(self, store: Store) -> None:
        work_once(store)
        add(store, "a", command=["true"])
        assert the_problem(store).fix == "swarm up --workers 3"

    def test_before_the_first_worker_there_is_a_hint_and_no_problem(self, store: Store) -> None:
        assert look(store).hint == ""
        add(store, "a")
        board = look(store)
        assert not board.problems
        assert board.hint == "no worker has started yet; to start some: swarm up --agent claude"
        assert board.hint in screen(store)

    def test_a_living_worker_is_no_problem_and_listed(self, store: Store) -> None:
        add(store, "a")
        with announce(store, "w", agent="claude", accepts_commands=False):
            board = look(store)
            assert not board.problems and not board.hint
            (worker,) = board.living
            assert (worker.worker, worker.agent) == ("w", "claude")
            assert board.fields()["living"][0]["agent"] == "claude"
            assert "1 worker waits for a task" in screen(store)

    def test_an_agent_that_claims_by_itself_is_no_worker_but_at_work(self, store: Store) -> None:
        work_once(store)
        queue = add(store, "a", "b")
        claim = queue.claim("an agent")
        assert not problems(store)
        queue.release("a", "an agent", claim.token)
        assert problems(store) == [("idle", "")]

    def test_a_dead_worker_is_reported_even_when_all_is_done(self, store: Store) -> None:
        queue = add(store, "a")
        report_end(store, "w", "claude", "the disk is full")
        assert [kind for kind, _ in problems(store)] == ["idle", "died"]
        queue.done("a", "x", queue.claim("x").token)
        assert problems(store) == [("died", "")] and "no problems" not in screen(store)

    def test_an_empty_swarm_is_empty(self, store: Store) -> None:
        assert look(store).is_empty
        work_once(store)
        assert not problems(store)


class TestDied:
    def test_a_worker_that_ended_with_an_error_is_reported_with_the_reason(
        self, store: Store
    ) -> None:
        report_end(store, "worker-3", "claude", "--exec names 'nope', which cannot be run")
        problem = the_problem(store)
        assert (problem.kind, problem.worker) == ("died", "worker-3")
        assert "'nope'" in problem.text
        assert problem.fix.startswith("swarm worker --id worker-3 --agent claude")
        assert "DIED  worker-3 · 0 s: it ended with an error: --exec names 'nope'" in screen(store)

    def test_a_worker_of_a_pane_is_restarted_there(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_PANE", "worker-3")
        report_end(store, "worker-3", "claude", "no program")
        assert the_problem(store).fix.startswith("swarm restart worker-3")

    def test_it_goes_away(self, store: Store, clock: HandClock) -> None:
        report_end(store, "w", "", "no program")
        with announce(store, "w"):
            assert not problems(store)
        report_end(store, "w", "", "no program")
        assert forget_dead(store) == ["w"] and not problems(store)
        report_end(store, "w", "", "no program")
        clock.pass_time(REPORTED_FOR + 1)
        assert not problems(store)


def test_two_living_workers_with_one_name_are_a_problem(store: Store) -> None:
    with announce(store, "w"):
        assert not problems(store)
        with announce(store, "w"):
            problem = the_problem(store)
            assert (problem.kind, problem.worker) == ("namesake", "w")
            assert "2 workers have this name" in problem.text
            assert "SAME NAME  w" in screen(store)
    assert not problems(store)


class TestUnserved:
    def test_tasks_for_another_agent_need_a_worker_with_it(self, store: Store) -> None:
        add(store, "a", "b", agent="codex")
        add(store, "c")
        with announce(store, "w", agent="claude", accepts_commands=False):
            problem = the_problem(store)
            assert (problem.kind, problem.task_id) == ("unserved", "a")
            assert problem.text == "2 tasks need agent codex, and no such worker runs"
            assert problem.fix == "swarm worker --id codex-1 --agent codex"
            with announce(store, "x", agent="codex", accepts_commands=False):
                assert not problems(store)

    def test_prompts_need_a_worker_with_an_agent(self, store: Store) -> None:
        add(store, "a")
        with announce(store, "w"):
            assert the_problem(store).text == "it needs an agent, and no such worker runs"

    def test_commands_need_a_worker_that_runs_them(self, store: Store) -> None:
        add(store, "a", command=["true"])
        with announce(store, "w", agent="claude", accepts_commands=False):
            assert "it has a command" in the_problem(store).text
        with announce(store, "w", agent="claude", accepts_commands=True):
            assert not problems(store)

    def test_a_label_that_no_living_worker_takes_is_a_problem_with_its_reason(
        self, store: Store
    ) -> None:
        add(store, "a", "b", labels=["web"])
        add(store, "c", labels=["api"])
        add(store, "d")
        with announce(store, "w", agent="claude", labels=["api"]):
            web, plain = look(store).problems
            assert (web.kind, web.task_id) == (plain.kind, "a") == ("unserved", "a")
            assert "2 tasks have the label web" in web.text
            assert web.fix == "swarm worker --id web-1 --agent claude --label web"
            assert plain.task_id == "d" and "it has no label" in plain.text
            with announce(store, "any", agent="claude"):
                assert not problems(store)
        with announce(store, "w", agent="codex", labels=["web", "api"]):
            assert [name for _, name in problems(store)] == ["d"]

    def test_an_agent_that_is_missing_comes_before_its_label(self, store: Store) -> None:
        add(store, "a", labels=["web"], agent="codex")
        with announce(store, "w", agent="claude", labels=["api"]):
            assert the_problem(store).text == "it needs agent codex, and no such worker runs"


class TestPauses:
    def test_a_pause_is_the_first_problem_and_says_who_and_how_to_resume(
        self, store: Store
    ) -> None:
        queue = add(store, "a", max_attempts=1)
        add(store, "b", labels=["web"], agent="codex")
        queue.claim("w", "a")
        queue.fail("a", "w", final=True)
        queue.pause("the «bill»", "ana")
        queue.pause("", "bob", label="web")
        first, second, *_ = look(store).problems
        assert (first.kind, first.fix) == ("paused", "swarm resume")
        assert first.text.startswith("all tasks are paused by ana, until a user resumes it: «the")
        assert (second.kind, second.fix) == ("paused", "swarm resume --label web")
        assert "PAUSED" in screen(store)
        queue.resume("ana")
        queue.resume("ana", label="web")
        assert "PAUSED" not in screen(store)

    def test_it_says_how_many_halted_attempts_have_not_ended(self, store: Store) -> None:
        queue = add(store, "a", "b")
        claim = queue.claim("w", "a")
        queue.pause("", "ana", halt=True)
        assert "1 halted attempt has not ended yet" in look(store).problems[0].text
        queue.release("a", "w", claim.token)
        assert "halted" not in look(store).problems[0].text


class TestGates:
    def test_a_closed_gate_says_who_until_when_and_why(
        self, store: Store, clock: HandClock
    ) -> None:
        queue = add(store, "a")
        queue.close_gate("claude", clock.now() + 3600, "usage limit reached", "worker-1")
        problem = the_problem(store)
        assert (problem.kind, problem.fix) == ("gate", "swarm gate open claude")
        when = "until 2026-02-02 03:40 UTC (in 1 h 0 min)"
        assert problem.text == f"claude is stopped {when}: usage limit reached"
        clock.pass_time(3557.5)
        assert "until 03:40:00 UTC (in 42 s)" in the_problem(store).text
        clock.pass_time(-3557.5)
        assert "GATE  claude is stopped until" in screen(store)
        assert look(store).fields()["gates"][0]["agent"] == "claude"
        clock.pass_time(3601)
        assert not problems(store) and not look(store).gates

    def test_a_budget_that_is_reached_asks(self, store: Store) -> None:
        queue = add(store, "a")
        UsageLog(store).add("a", 1, "w", Usage("claude", turns=3, cost_usd=2.5, input_tokens=7))
        with pytest.raises(NoTask):
            queue.claim("w", agent="claude", budget=2.0)
        problem = the_problem(store)
        assert problem.kind == "budget" and "2.50" in problem.text
        assert problem.fix == "swarm gate open budget"


def test_a_denied_tool_call_says_how_to_allow_it(store: Store) -> None:
    queue = add(store, "a", max_attempts=1)
    reason = "denied: Bash(make). To allow it, use --permissions full."
    queue.fail("a", "w", queue.claim("w").token, reason)
    problem = the_problem(store)
    assert (problem.kind, problem.fix) == ("denied", "swarm task retry a --note '…'")
    assert f"DENIED  a · w · 0 s: {reason}" in screen(store)


def test_a_task_that_failed_with_a_question_is_tried_again_with_an_answer(store: Store) -> None:
    queue = add(store, "a", max_attempts=1)
    queue.fail("a", "w", queue.claim("w").token, "Which database? SQLite or Postgres")
    assert the_problem(store).fix == "swarm task retry a --note '…'"


def test_a_long_text_of_a_problem_goes_on_in_the_next_lines(store: Store) -> None:
    queue = add(store, "a", max_attempts=1)
    cure = "use --permissions full, or add Bash(make) to permissions.allow in settings.json."
    queue.fail("a", "w", queue.claim("w").token, f"denied: Bash(make test). To allow it, {cure}")
    lines = text(look(store), 80)
    assert max(map(len, lines)) <= 80
    words = " ".join(" ".join(lines).split())
    assert cure in words and "swarm task retry a" in words
    assert len(text(look(store), 80, 10)) <= 10


def test_the_board_has_what_all_attempts_cost(store: Store) -> None:
    add(store, "a", "b")
    assert "Cost" not in screen(store)
    usage = UsageLog(store)
    usage.add("a", 1, "w", Usage("claude", "s", 2, 1000, 200, 0.25))
    usage.add("b", 1, "w", Usage("codex", "s", 1, 10, 2, 1.0))
    viewer = Viewer(store)
    board = viewer.look()
    assert board.fields()["usage"] == {
        "turns": 3,
        "input_tokens": 1010,
        "output_tokens": 202,
        "cost_usd": 1.25,
    }
    assert "Cost   $1.25 · 3 turns · 1,212 tokens, as the agents report it" in screen(store)
    assert viewer.cost_of_tasks["a"].cost_usd == 0.25


def test_a_board_changes_when_a_worker_comes_a_gate_closes_or_money_is_spent(
    store: Store,
) -> None:
    queue = add(store, "a")
    seen = [look(store).fingerprint()]
    with announce(store, "w", agent="claude"):
        seen.append(look(store).fingerprint())
        queue.close_gate("claude", None, "a limit", "w")
        seen.append(look(store).fingerprint())
        UsageLog(store).add("a", 1, "w", Usage("claude", cost_usd=1.0))
        seen.append(look(store).fingerprint())
        assert look(store).fingerprint() == seen[-1]
    assert len({repr(each) for each in seen}) == 4
