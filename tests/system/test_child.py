"""A GatedProcess starts its command when exec is called, and is ended with its whole group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swarm.errors import CannotRun
from swarm.system import child_side, process
from swarm.system.child import GatedProcess
from tests.support.at_a_terminal import wait_until
from tests.support.processes import fork
from tests.support.wrapped_command import state_of

Make = Callable[..., GatedProcess]


# Some of these tests run beside threads of the test runner. Only here may they fork then.
_FORKED = pytest.param(
    "forked", marks=pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
)


@pytest.fixture(params=[_FORKED, "spawned"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The child is forked, as in a program of one thread, or another interpreter, as in
    one of several.
    """
    monkeypatch.setattr(process, "has_one_thread", lambda: request.param == "forked")
    return str(request.param)


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes children, none of which outlives the test."""
    made: list[GatedProcess] = []

    def child(**how: bool | int) -> GatedProcess:
        made.append(GatedProcess(**how))  # type: ignore[arg-type]
        return made[-1]

    yield child
    for one in made:
        one.discard()
        assert one.end(0)


def code_of(child: GatedProcess) -> int:
    wait_until(lambda: child.poll() is not None)
    code = child.poll()
    assert code is not None
    return code


def said_by(make: Make, command: list[str], out: Path) -> str:
    with out.open("w") as file:
        child = make(group=True, die_with_parent=True, stdout=file.fileno())
    child.exec(command)
    assert code_of(child) == 0
    return out.read_text()


def lines_of(path: Path, count: int) -> list[str]:
    """Once so many are there."""
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= count)
    return path.read_text().splitlines()


class TestBeginning:
    def test_no_command_runs_before_exec(self, make: Make, tmp_path: Path) -> None:
        child = make()
        time.sleep(0.05)
        assert child.poll() is None
        child.exec(["touch", str(tmp_path / "ran")])
        assert code_of(child) == 0
        assert (tmp_path / "ran").exists()

    def test_a_discarded_process_never_runs_its_command(self, make: Make, tmp_path: Path) -> None:
        for stopped in (False, True):
            child = make(group=True)
            if stopped:
                os.kill(child.pid, signal.SIGSTOP)
            child.discard()
            with pytest.raises(ProcessLookupError):
                os.kill(child.pid, 0)
            assert child.is_over()

    def test_a_process_whose_parent_was_killed_during_exec_never_runs_the_command(
        self, tmp_path: Path
    ) -> None:
        """Half of the message is in the pipe."""
        ready, report = os.pipe()

        def half() -> None:
            child = GatedProcess()
            os.write(report, str(child.pid).encode())
            os.kill(child.pid, signal.SIGSTOP)  # so that it does not read
            child.exec(["touch", str(tmp_path / "ran")], {"X": "x" * 1_000_000})

        parent = fork(half)
        os.close(report)
        waiting = int(os.read(ready, 16))
        os.close(ready)
        wait_until(lambda: state_of(parent).startswith("S") and state_of(waiting).startswith("T"))
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        os.kill(waiting, signal.SIGCONT)
        wait_until(lambda: state_of(waiting)[:1] in ("", "Z"))
        assert not (tmp_path / "ran").exists()

    def test_the_environment_is_the_one_passed_or_ours(
        self, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("WORD", "ours")
        for environment, seen in (
            (None, "ours"),
            ({"WORD": "任务\n" + os.fsdecode(b"\xff"), "PATH": os.environ["PATH"]}, "任务\n\udcff"),
        ):
            with (tmp_path / "out").open("wb") as out:
                child = make(stdout=out.fileno())
                child.exec(["sh", "-c", 'printf %s "$WORD"'], environment)
            assert code_of(child) == 0
            assert os.fsdecode((tmp_path / "out").read_bytes()) == seen

    def test_the_command_is_looked_up_in_the_path_of_its_environment(
        self, make: Make, tmp_path: Path
    ) -> None:
        (tmp_path / "tool").write_text("#!/bin/sh\nexit 6\n")
        (tmp_path / "tool").chmod(0o755)
        child = make()
        child.exec(["tool"], {"PATH": str(tmp_path)})
        assert code_of(child) == 6

    def test_the_command_runs_in_the_directory_that_was_passed(
        self, make: Make, tmp_path: Path
    ) -> None:
        inside = tmp_path / os.fsdecode(b"a \xff")
        inside.mkdir()
        child = make()
        child.exec(["sh", "-c", 'test "$(pwd)" = "$PWD" && touch here'], None, str(inside))
        assert code_of(child) == 0
        assert (inside / "here").exists()

    def test_a_missing_directory_is_named_and_the_process_has_ended(
        self, make: Make, tmp_path: Path
    ) -> None:
        child = make(group=True)
        with pytest.raises(CannotRun, match="nowhere"):
            child.exec(["true"], None, str(tmp_path / "nowhere"))
        assert child.is_over()

    @pytest.mark.parametrize(("name", "code"), [("nowhere-at-all", 127), ("", 127), ("/", 126)])
    def test_a_command_that_cannot_be_run_raises_and_its_process_has_ended(
        self, name: str, code: int, make: Make
    ) -> None:
        child = make(group=True)
        with pytest.raises(CannotRun) as refused:
            child.exec([name])
        assert refused.value.exit_code == code
        assert child.is_over()

    def test_a_process_killed_before_exec_reports_it_in_its_exit_code(self, make: Make) -> None:
        child = make()
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        child.exec(["true"], {"X": "x" * 100_000})
        assert (code_of(child), child.ended_by) == (137, signal.SIGKILL)

    def test_a_failed_fork_raises_and_leaves_no_descriptor_open(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> int:
            raise BlockingIOError(11, "Resource temporarily unavailable")

        before = os.listdir("/dev/fd")
        monkeypatch.setattr(os, "fork", full)
        monkeypatch.setattr(os, "posix_spawn", full)
        with pytest.raises(
            CannotRun, match=r"cannot run another process: Resource temporarily unavailable\."
        ):
            make()
        assert os.listdir("/dev/fd") == before
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()

    def test_no_descriptor_stays_open_after_exec(self, make: Make) -> None:
        before = os.listdir("/dev/fd")
        make().exec(["true"])
        make().discard()
        assert os.listdir("/dev/fd") == before


class TestItself:
    def test_the_standard_streams_are_those_that_were_passed(
        self, make: Make, tmp_path: Path
    ) -> None:
        (tmp_path / "in").write_text("hello\n")
        with (
            (tmp_path / "in").open() as given,
            (tmp_path / "out").open("w") as out,
            (tmp_path / "err").open("w") as err,
        ):
            child = make(stdin=given.fileno(), stdout=out.fileno(), stderr=err.fileno())
        child.exec(["sh", "-c", "cat; echo oops >&2"])
        assert code_of(child) == 0
        assert (tmp_path / "out").read_text() == "hello\n"
        assert (tmp_path / "err").read_text() == "oops\n"

    def test_they_may_be_one_file_or_change_places(self, make: Make, tmp_path: Path) -> None:
        with (tmp_path / "both").open("w") as both:
            child = make(stdout=both.fileno(), stderr=both.fileno())
        child.exec(["sh", "-c", "echo one; echo two >&2"])
        assert code_of(child) == 0
        assert (tmp_path / "both").read_text() == "one\ntwo\n"
        swap = "from swarm.system.child import GatedProcess; c = GatedProcess(stdout=2, stderr=1)\n"
        swap += "c.exec(['sh', '-c', 'echo out; echo err >&2'])\n"
        swap += "while c.poll() is None: pass"
        done = subprocess.run([sys.executable, "-c", swap], capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("err\n", "out\n")

    def test_the_command_does_not_inherit_signal_handlers(self, make: Make, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        before = signal.signal(signal.SIGUSR1, lambda *_: heard.touch())
        try:
            child = make()
            os.kill(child.pid, signal.SIGUSR1)
            assert code_of(child) == 128 + signal.SIGUSR1
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert not heard.exists()

    def test_the_command_has_the_signal_state_of_any_child(
        self, make: Make, tmp_path: Path
    ) -> None:
        look = ["grep", "Sig[BIC]", "/proc/self/status"]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            usual = subprocess.run(look, capture_output=True, text=True).stdout
            found = said_by(make, look, tmp_path / "out")
        finally:
            signal.signal(signal.SIGHUP, ignored)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

        # but for 32 and 33, which the C library ignores in all that it spawns
        def masks(text: str) -> list[int]:
            return [int(word, 16) & 0x7FFF_FFFF for word in text.split()[1::2]]

        assert masks(found) == masks(usual) and masks(found)[0] and masks(found)[1]

    def test_the_command_has_the_descriptors_and_variables_of_any_child(
        self, make: Make, tmp_path: Path
    ) -> None:
        look = ["sh", "-c", "env | sort; cd /proc/$$/fd; echo *"]
        number = os.open(tmp_path, os.O_RDONLY)
        os.set_inheritable(number, True)
        try:
            usual = subprocess.run(look, capture_output=True, text=True, close_fds=False).stdout
            found = said_by(make, look, tmp_path / "out")
        finally:
            os.close(number)
        assert str(number) in found.split() and found == usual

    def test_a_waiting_process_holds_no_pipe_of_another(self, make: Make) -> None:
        """Else the other would wait for it."""
        first, second, third = make(), make(), make()
        second.exec(["true"])
        assert code_of(second) == 0
        third.discard()
        first.exec(["true"])
        assert code_of(first) == 0

    def test_the_process_group_exists_before_the_command_starts(self, make: Make) -> None:
        assert os.getpgid(make().pid) == os.getpgid(0)
        child = make(group=True)
        assert os.getpgid(child.pid) == child.pid

    def test_a_process_can_be_created_in_a_thread(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.undo()  # it sees for itself that there is another thread …
        monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked beside another thread"))
        codes = []

        def work() -> None:
            child = make(group=True, die_with_parent=True)
            child.exec(["sh", "-c", "exit 3"])
            codes.append(code_of(child))
            child = make(group=True)
            child.exec(["sleep", "600"])
            codes.append(child.end(5))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(30)
        assert codes == [3, True]

    def test_without_a_second_interpreter_the_process_is_forked(
        self, way: str, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in a program that has Python built in."""
        monkeypatch.setattr(sys, "executable", "")
        monkeypatch.setattr(
            os, "posix_spawn", lambda *_, **__: pytest.fail("spawned without an interpreter")
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = make()
        child.exec(["sh", "-c", "exit 5"])
        assert code_of(child) == 5

    def test_without_ctypes_a_process_is_not_bound_to_its_parent(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "ctypes", None)
        assert child_side.binding(os.getpid()) is None
        child = make(die_with_parent=True)
        child.exec(["sh", "-c", "exit 3"])
        assert code_of(child) == 3

    @pytest.mark.skipif(
        sys.platform != "linux", reason="only there a process can be bound to its parent"
    )
    def test_a_process_dies_with_its_parent_only_if_asked_to(self, tmp_path: Path) -> None:
        ready, report = os.pipe()

        def lead() -> None:
            for bound in (True, False):
                child = GatedProcess(group=True, die_with_parent=bound)
                child.exec(["sleep", "600"])
                os.write(report, f"{child.pid}\n".encode())
            signal.pause()

        parent = fork(lead)
        bound = survivor = 0
        with os.fdopen(ready) as pids:
            bound, survivor = int(pids.readline()), int(pids.readline())
        os.close(report)
        try:
            os.kill(parent, signal.SIGKILL)
            os.waitpid(parent, 0)
            wait_until(lambda: process.group_has_ended(bound))
            assert not process.group_has_ended(survivor)
        finally:
            os.kill(survivor, signal.SIGKILL)


class TestEnding:
    def test_end_sends_sigterm_and_lets_the_command_clean_up(
        self, make: Make, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        child = make(group=True)
        tidy = (
            f"trap 'echo tidy >> {out}; exit 9' TERM; echo ready >> {out}; while :; do sleep "
            f"0.02; done"
        )
        child.exec(["sh", "-c", tidy])
        lines_of(out, 1)
        assert child.end(10)
        assert (child.poll(), child.ended_by) == (9, 0)
        assert lines_of(out, 2) == ["ready", "tidy"]

    def test_a_command_that_ignores_sigterm_is_killed_earlier_if_less_time_is_left(
        self, make: Make, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        child = make(group=True)
        child.exec(["sh", "-c", f"trap '' TERM; echo ready >> {out}; while :; do sleep 0.05; done"])
        lines_of(out, 1)
        before = time.monotonic()
        assert child.end(60, lambda: before + 0.3 - time.monotonic())
        assert 0.3 <= time.monotonic() - before < 10

    def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(
        self, make: Make, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        child = make(group=True)
        child.exec(["sh", "-c", f"trap '' TERM; echo ready >> {out}; while :; do sleep 0.05; done"])
        lines_of(out, 1)
        before = time.monotonic()
        assert child.end(0.3)
        assert 0.3 <= time.monotonic() - before < 5
        assert child.ended_by == signal.SIGKILL

    def test_the_whole_group_is_ended(self, make: Make, tmp_path: Path) -> None:
        out = tmp_path / "out"
        child = make(group=True)
        child.exec(
            [
                "sh",
                "-c",
                (
                    f"(trap '' TERM; echo ready >> {out}; while :; do sleep 0.05; done) & sleep "
                    f"600 & "
                    f"wait"
                ),
            ]
        )
        lines_of(out, 1)
        assert not child.is_over()
        assert child.end(0.2)
        assert process.group_has_ended(child.pid)

    def test_the_rest_of_the_group_is_ended_after_its_leader_has_ended(self, make: Make) -> None:
        child = make(group=True)
        child.exec(["sh", "-c", "sleep 600 >/dev/null 2>&1 & exit 4"])
        assert code_of(child) == 4
        assert not child.is_over()
        assert child.end(10)
        assert child.poll() == 4

    def test_stopped_processes_of_the_group_are_ended(self, make: Make) -> None:
        child = make(group=True)
        child.exec(["sleep", "600"])
        child.send(signal.SIGSTOP)
        wait_until(lambda: child.poll() is None and child.stopped_by == signal.SIGSTOP)
        before = time.monotonic()
        assert child.end(10)
        assert (child.ended_by, time.monotonic() - before < 5) == (signal.SIGTERM, True)

    def test_a_process_without_a_group_is_ended_alone(self, make: Make, tmp_path: Path) -> None:
        out = tmp_path / "out"
        child = make()
        child.exec(["sh", "-c", f"sleep 600 >/dev/null 2>&1 & echo $! >> {out}; wait"])
        other = int(lines_of(out, 1)[0])
        assert child.end(10)
        assert not state_of(other).startswith("Z")
        os.kill(other, signal.SIGKILL)

    def test_no_signal_is_sent_to_a_process_that_is_over(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its number may be another's."""
        sent: list[int] = []
        for group in (True, False):
            child = make(group=group)
            child.exec(["true"])
            assert child.end(10)
            monkeypatch.setattr(os, "killpg", lambda pid, number: sent.append(pid))
            monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(pid))
            child.send(signal.SIGTERM)
            assert child.end(0)
            monkeypatch.undo()
        assert sent == []

    def test_end_returns_false_if_a_process_cannot_be_ended(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        child = make(group=True)
        child.exec(["sleep", "600"])
        monkeypatch.setattr("swarm.system.child._SIGKILL_TIMEOUT", 0.05)

        def denied(group: int, number: int) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "killpg", denied)
        assert not child.end(0.05)
        monkeypatch.undo()

    def test_the_exit_code_of_a_process_reaped_elsewhere_is_255(self, make: Make) -> None:
        child = make()
        child.exec(["true"])
        os.waitpid(child.pid, 0)
        assert child.poll() == 255
