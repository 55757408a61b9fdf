"""A check runs command by command, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from swarm.errors import CannotRun, StoreError
from swarm.system.process import group_has_ended
from swarm.workspaces.check import CheckRun, command_text, run_check
from tests.support.at_a_terminal import wait_until
from tests.support.processes import fork

# A process that ignores SIGTERM, and a child of it.
STUBBORN = "trap '' TERM; sleep 1000 & echo $$ >pids.new; mv pids.new pids; wait; sleep 1000"


def check(*commands: str, where: Path, **how: object) -> CheckRun:
    return run_check(commands, str(where), dict(os.environ), output=str(where / "log"), **how)  # type: ignore[arg-type]


def group_in(folder: Path) -> int:
    wait_until((folder / "pids").exists)
    return int((folder / "pids").read_text())


def test_a_check_is_green_if_all_commands_succeed(tmp_path: Path) -> None:
    found = check("echo one >a", "cat a", where=tmp_path)
    assert found.ok
    assert (found.exit_code, found.stopped, found.last_lines, found.reason) == (0, "", (), "")
    assert found.command == command_text(["echo one >a", "cat a"]) == "echo one >a && cat a"
    assert (tmp_path / "log").read_text() == "$ echo one >a\n$ cat a\none\n"
    evidence = found.evidence("abc")
    assert (evidence["command"], evidence["tree"]) == (found.command, "abc")
    assert evidence["seconds"] >= 0


def test_the_first_command_that_fails_ends_the_check_with_its_last_lines(tmp_path: Path) -> None:
    lines = "for n in $(seq 900); do echo line $n; done; echo broken >&2; exit 3"
    found = check("echo before", lines, "touch never", where=tmp_path)
    assert not found.ok
    assert (found.command, found.exit_code) == (lines, 3)
    assert found.last_lines[-2:] == ("line 900", "broken")
    assert 5 < len(found.last_lines) < 50
    assert "before" not in found.last_lines
    assert "exit code 3: broken" in found.reason
    assert not (tmp_path / "never").exists()


def test_a_check_runs_in_its_directory_with_an_empty_standard_input(tmp_path: Path) -> None:
    inside = tmp_path / "a b"
    inside.mkdir()
    assert check('test "$(pwd)" = "$PWD" && test "$(cat)" = "" && touch x', where=inside).ok
    assert (inside / "x").exists()


def test_a_check_that_takes_too_long_is_ended_with_its_group(tmp_path: Path) -> None:
    found = check("sleep 1000 & sleep 1000", where=tmp_path, timeout=0.3)
    assert not found.ok
    assert "timed out after 0.3 seconds" in found.stopped
    assert found.stopped in found.reason


def test_a_check_that_must_end_is_killed_in_time_though_it_ignores_sigterm(tmp_path: Path) -> None:
    groups: list[int] = []

    def must_end() -> str:
        return "the lease was lost" if (tmp_path / "pids").exists() else ""

    found = check(
        STUBBORN, where=tmp_path, must_end=must_end, on_group=groups.append, at_most=lambda: 0.0
    )
    assert found.stopped == "the lease was lost"
    assert groups == [group_in(tmp_path)]
    assert group_has_ended(groups[0])


def test_a_background_process_of_a_green_check_is_ended(tmp_path: Path) -> None:
    groups: list[int] = []
    assert check("sleep 1000 &", where=tmp_path, on_group=groups.append).ok
    assert group_has_ended(groups[0])


def test_no_command_runs_if_its_group_cannot_be_announced(tmp_path: Path) -> None:
    def refuse(group: int) -> None:
        raise StoreError("no")

    with pytest.raises(StoreError):
        check("touch ran", where=tmp_path, on_group=refuse)
    assert not (tmp_path / "ran").exists()


def test_an_interrupt_ends_the_check(tmp_path: Path) -> None:
    def must_end() -> str:
        if (tmp_path / "pids").exists():
            raise KeyboardInterrupt
        return ""

    with pytest.raises(KeyboardInterrupt):
        check(STUBBORN, where=tmp_path, must_end=must_end)
    assert group_has_ended(group_in(tmp_path))


def test_the_shell_of_a_check_dies_with_a_killed_worker(tmp_path: Path) -> None:
    worker = fork(
        lambda: check("echo $$ >pids.new; mv pids.new pids; exec sleep 1000", where=tmp_path)
    )
    group = group_in(tmp_path)
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    wait_until(lambda: group_has_ended(group))


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="nowhere"):
        run_check(["true"], str(tmp_path / "nowhere"), {}, output=str(tmp_path / "log"))


def test_an_output_that_cannot_be_written_is_an_error_of_the_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no/log"):
        run_check(["true"], str(tmp_path), {}, output=str(tmp_path / "no" / "log"))


def test_the_seconds_are_those_of_all_commands(tmp_path: Path) -> None:
    begun = time.monotonic()
    found = check("sleep 0.1", "sleep 0.1", where=tmp_path)
    assert 0.2 <= found.seconds <= time.monotonic() - begun
