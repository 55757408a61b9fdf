"""An agent that repeats itself is noticed, and one that edits and tests in turn is not."""

from __future__ import annotations

import pytest

from swarm.presets.contract import ToolCall
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.workers.progress.loops import CallLoops, again, failures_in_a_row

TEST = ToolCall("$ make test", "test")
READ = ToolCall("→ Read a.py", "read")


def edit(number: int) -> ToolCall:
    return ToolCall("→ Edit a.py", f"edit {number}")


def found(*calls: ToolCall, limit: int = 4) -> str:
    loops = CallLoops(limit)
    loops.add(calls)
    loop = loops.found()
    return loop.text if loop else ""


class TestCalls:
    def test_equal_calls_in_a_row_are_a_loop(self) -> None:
        assert not found(TEST, TEST, TEST)
        assert not found(TEST, TEST, TEST, edit(1))
        text = found(edit(1), TEST, TEST, TEST, TEST)
        assert text == 'loops: the same tool call 4 times in a row: "$ make test"'

    def test_the_count_grows_beyond_the_limit(self) -> None:
        loops = CallLoops(4)
        loops.add([TEST] * 30)
        loop = loops.found()
        assert loop is not None
        assert loop.evidence() == {"call": "$ make test", "count": 30, "of": 30}

    def test_calls_with_other_input_are_not_equal(self) -> None:
        assert not found(*(edit(number) for number in range(20)))

    def test_edits_and_tests_in_turn_are_no_loop(self) -> None:
        assert not found(*(call for number in range(20) for call in (edit(number), TEST)))

    def test_three_quarters_of_the_last_calls_are_a_loop(self) -> None:
        calls = [TEST, TEST, TEST, edit(1), TEST, TEST, TEST, edit(2)]
        text = found(*calls)
        assert text == 'loops: 6 of the last 8 tool calls are the same: "$ make test"'
        assert not found(*calls[:-2], edit(3), edit(2))

    def test_two_calls_in_turn_are_a_loop(self) -> None:
        assert not found(*[READ, TEST] * 3)
        text = found(*[READ, TEST] * 4)
        assert '"→ Read a.py" and "$ make test"' in text and "8 tool calls" in text

    def test_a_loop_ends_with_other_calls(self) -> None:
        loops = CallLoops(4)
        loops.add([TEST] * 4)
        assert loops.found()
        loops.add([edit(1)])
        assert not loops.found()

    @pytest.mark.parametrize(
        "line",
        [
            "$ swarm wait api --timeout 60",
            "$ /usr/bin/swarm ask 'Which?'",
            "→ mcp__swarm__wait api",
            "→ swarm.wait api",
            "→ BashOutput",
        ],
    )
    def test_calls_that_wait_are_left_out(self, line: str) -> None:
        waiting = ToolCall(line, line)
        assert not found(*[waiting] * 20)
        assert found(*[waiting, TEST] * 4)

    def test_a_refused_end_again_and_again_is_a_loop(self) -> None:
        assert found(*[ToolCall("$ swarm task done a", "done")] * 4)

    def test_a_limit_of_0_turns_it_off(self) -> None:
        assert not found(*[TEST] * 50, limit=0)


class TestFailures:
    REASON = "the check failed: make test: exit code 2: 1 failed in 0.1 s"

    def fail(self, store: Store, attempt: int, reason: str, *lines: str) -> None:
        meta = {"attempt": attempt, "last_lines": list(lines)}
        StatusLog(store).append("ERROR", "w", "a", reason, meta)

    def count(self, store: Store, *lines: str) -> int:
        return failures_in_a_row(StatusLog(store), "a", self.REASON, lines)

    def test_failures_that_differ_only_in_numbers_count(self, store: Store) -> None:
        assert self.count(store, "x failed in 3 s") == 1
        self.fail(store, 1, self.REASON, "x failed in 1 s")
        StatusLog(store).append("START", "w", "a", "", {"attempt": 2})
        StatusLog(store).append("SKIP", "w", "a", "released", {"token": 2})
        self.fail(store, 2, again(self.REASON.replace("0.1", "0.7"), 3), "x failed in 2 s")
        assert self.count(store, "x failed in 3 s") == 3

    def test_another_failure_ends_the_row(self, store: Store) -> None:
        self.fail(store, 1, self.REASON, "x failed")
        self.fail(store, 2, self.REASON, "y failed")
        self.fail(store, 3, self.REASON, "x failed")
        assert self.count(store, "x failed") == 2
        assert self.count(store, "y failed") == 1

    def test_an_end_as_done_ends_the_row(self, store: Store) -> None:
        self.fail(store, 1, self.REASON)
        StatusLog(store).append("DONE", "w", "a", "", {"attempt": 2})
        self.fail(store, 1, self.REASON)
        assert self.count(store) == 2
