"""`swarm sprint run`: the command is the sprint.

It has the lock while it runs, and the lock is gone afterwards, however it ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.at_a_terminal import SWARM, TIMEOUT, Terminal, environment, terminal, wait_until
from tests.support.wrapped_command import (
    LISTENER,
    PYTHON,
    child_of,
    finish,
    line,
    started,
    state_of,
)

SPRINT = ("--session-id", "mine", "--epic-spec", "epic6")
NOBODY = 99_999_999  # no system has so many processes


class Project:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = root / ".sprint-running"
        (root / "notes.txt").write_text("of the user\n")

    def command(self, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        return [
            *SWARM,
            "sprint",
            "run",
            *SPRINT,
            "--project-root",
            str(self.root),
            *options,
            "--",
            *command,
        ]

    def run(
        self, *command: str, options: tuple[str, ...] = (), **settings: Any
    ) -> subprocess.CompletedProcess[str]:
        usual = {
            "capture_output": True,
            "text": True,
            "timeout": TIMEOUT,
            "env": environment(),
            "stdin": subprocess.DEVNULL,
        }
        if "input" in settings:
            del usual["stdin"]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            self.command(*command, options=options), **{**usual, **settings}
        )
        return done

    def swarm(self, *args: str) -> Any:
        """Return what `swarm sprint` answers another process."""
        call = [*SWARM, "sprint", *args, "--json", "--project-root", str(self.root)]
        return json.loads(
            subprocess.run(
                call, env=environment(), capture_output=True, text=True, timeout=TIMEOUT
            ).stdout
        )

    def is_locked_by(self, pid: int, session: str = "theirs") -> bytes:
        self.lock.write_text(
            f'pid: {pid}\nsession_id: "{session}"\nstarted_at: '
            f'"2026-02-07T22:30:00Z"\nepic_spec: '
            f'"epic5"\nlock_version: 1\n'
        )
        return self.lock.read_bytes()

    def is_as_it_was(self) -> bool:
        return os.listdir(self.root) == ["notes.txt"]

    @property
    def locked_pid(self) -> int:
        found = yaml.safe_load(self.lock.read_text())["pid"]
        assert isinstance(found, int)
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "project"
    root.mkdir()
    return Project(root)


@pytest.fixture
def tty() -> Iterator[Terminal]:
    with terminal() as made:
        yield made


class TestCommand:
    @pytest.mark.parametrize("code", [0, 1, 7, 255])
    def test_the_exit_code_of_a_sprint_command_is_passed_on_and_the_lock_is_gone(
        self, code: int, project: Project
    ) -> None:
        done = project.run("sh", "-c", f"exit {code}")
        assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
        assert project.is_as_it_was()

    @pytest.mark.parametrize(
        "number",
        [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGPIPE],
        ids=lambda number: number.name,
    )
    def test_a_signal_that_ends_a_sprint_command_gives_128_plus_the_signal(
        self, number: signal.Signals, project: Project
    ) -> None:
        done = project.run("sh", "-c", f"kill -{number.value} $$")
        assert (done.returncode, done.stderr) == (128 + number, "")
        assert project.is_as_it_was()

    def test_a_sprint_command_has_the_lock_while_it_runs(self, project: Project) -> None:
        done = project.run(
            "sh", "-c", f"cat '{project.lock}'; echo shell: $$; ls -A '{project.root}' >&2"
        )
        found = yaml.safe_load(done.stdout)
        assert found["pid"] == found["shell"]
        assert (found["session_id"], found["epic_spec"], found["lock_version"]) == (
            "mine",
            "epic6",
            1,
        )
        assert done.stderr.split() == [".sprint-running", "notes.txt"]
        assert project.is_as_it_was()

    def test_a_sprint_command_blocks_another_sprint_while_it_runs(self, project: Project) -> None:
        with started(*project.command("cat")) as wrapper:
            wait_until(project.lock.exists)
            found = project.swarm("check")
            assert (found["status"], found["lock_info"]["session_id"]) == ("blocked", "mine")
            assert finish(wrapper) == (0, "", "")
        assert project.swarm("check")["status"] == "clean"

    def test_a_sprint_command_has_the_streams_environment_and_directory_of_the_caller(
        self, project: Project, tmp_path: Path
    ) -> None:
        done = project.run(
            "sh",
            "-c",
            'cat; pwd; echo "$WORD"; echo oops >&2',
            input="typed\n",
            cwd=tmp_path,
            env=environment(WORD="任务"),
        )
        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            f"typed\n{tmp_path}\n任务\n",
            "oops\n",
        )

    def test_a_sprint_command_gets_its_arguments_unchanged(self, project: Project) -> None:
        words = [
            "--help",
            "-h",
            "--json",
            "",
            "--",
            "--session-id",
            "x",
            "--no-such=1",
            "任务 🐝",
            "a b",
            "$HOME",
            "*",
            "\n",
            os.fsdecode(b"\xff"),
        ]
        done = project.run(*PYTHON, "import sys; print(ascii(sys.argv[1:]))", *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, ascii(words) + "\n", "")

    def test_a_pipe_without_a_reader_ends_a_sprint_command_quietly(self, project: Project) -> None:
        done = project.run("bash", "-c", 'yes | head -n 1; echo "${PIPESTATUS[0]}"')
        assert (done.returncode, done.stdout, done.stderr) == (
            0,
            f"y\n{128 + signal.SIGPIPE}\n",
            "",
        )

    def test_no_signal_is_blocked_in_a_sprint_command(self, project: Project) -> None:
        done = project.run(
            *PYTHON, "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
        )
        assert done.stdout == "set()\n"

    def test_no_file_of_the_wrapper_is_open_in_a_sprint_command(self, project: Project) -> None:
        done = project.run("ls", "/dev/fd")
        assert done.stdout.split() == ["0", "1", "2", "3"], "the last is that of ls"

    def test_a_sprint_command_that_is_not_found_is_127_as_in_a_shell(
        self, project: Project
    ) -> None:
        done = project.run("no-such-command-anywhere", "--json")
        assert (done.returncode, done.stdout) == (127, "")
        assert done.stderr.startswith(
            "Error: cannot run no-such-command-anywhere: No such file or directory. Check its name"
        )
        assert project.is_as_it_was()

    def test_a_sprint_command_that_cannot_be_executed_is_126_as_in_a_shell(
        self, project: Project
    ) -> None:
        for path in (project.root / "notes.txt", project.root):
            done = project.run(str(path))
            assert (done.returncode, done.stdout) == (126, "")
            assert done.stderr.startswith(
                f"Error: cannot run {path}: Permission denied. Check that it is a program"
            )
        assert project.is_as_it_was()

    def test_a_sprint_command_with_an_empty_name_is_not_found(self, project: Project) -> None:
        done = project.run("")
        assert done.returncode == 127 and done.stderr.startswith(
            "Error: cannot run '': No such file or directory."
        )
        assert project.is_as_it_was()

    def test_a_sprint_command_below_a_file_is_127(self, project: Project) -> None:
        path = f"{environment()['PATH']}:{project.root / 'notes.txt'}"
        assert project.run("no-such-command-anywhere", env=environment(PATH=path)).returncode == 127

    @pytest.mark.parametrize(
        "number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name
    )
    def test_a_sprint_command_ended_before_its_start_is_no_success(
        self, number: signal.Signals, project: Project, tty: Terminal, tmp_path: Path
    ) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start(*project.command("touch", str(tmp_path / "ran")), cwd=tmp_path)
        tty.wait_for("[y/N] ")
        waiting = child_of(tty.pid)
        os.kill(waiting, number)
        wait_until(lambda: state_of(waiting).startswith("Z"))
        tty.type("y\n")
        ended = tty.wait()
        assert ended.code == 128 + number
        assert not (tmp_path / "ran").exists()
        assert project.lock.read_bytes() == before


class TestSignals:
    @pytest.mark.parametrize(
        "number",
        [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT],
        ids=lambda number: number.name,
    )
    def test_a_signal_to_the_sprint_wrapper_reaches_the_command_and_ends_both(
        self, number: signal.Signals, project: Project
    ) -> None:
        with started(*project.command("sh", "-c", "ulimit -c 0; echo ready; exec cat")) as wrapper:
            assert line(wrapper) == "ready"
            wrapper.send_signal(number)
            assert wrapper.wait(TIMEOUT) == 128 + number
            assert project.is_as_it_was()

    @pytest.mark.parametrize(
        "number",
        [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT],
        ids=lambda number: number.name,
    )
    def test_the_sprint_lock_is_kept_while_a_command_takes_its_time_to_end(
        self, number: signal.Signals, project: Project
    ) -> None:
        with started(*project.command(*LISTENER)) as wrapper:
            assert line(wrapper) == "ready"
            wrapper.send_signal(number)
            assert line(wrapper) == number.name
            assert project.swarm("check")["status"] == "blocked"
            assert finish(wrapper) == (5, "", "")
        assert project.is_as_it_was()

    def test_each_signal_is_passed_on_as_often_as_it_comes(self, project: Project) -> None:
        with started(*project.command(*LISTENER, "9")) as wrapper:
            assert line(wrapper) == "ready"
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
                wrapper.send_signal(number)
                assert line(wrapper) == number.name
            assert wrapper.wait(TIMEOUT) == 9
            assert project.is_as_it_was()

    def test_ctrl_c_reaches_the_command_once(self, project: Project, tty: Terminal) -> None:
        tty.start(
            *project.command("sh", "-c", 'exec "$@" >&2', "sh", *LISTENER, "9"), cwd=project.root
        )
        tty.wait_for("ready\n")
        tty.type("\x03")
        tty.wait_for("SIGINT\n")
        os.kill(tty.pid, signal.SIGTERM)  # passed on after whatever came before it
        ended = tty.wait()
        assert ended.code == 9
        assert ended.shown == "ready\n^CSIGINT\nSIGTERM\n"
        assert project.is_as_it_was()

    def test_ctrl_c_ends_a_sprint_command_that_does_not_handle_it(
        self, project: Project, tty: Terminal
    ) -> None:
        tty.start(*project.command("sh", "-c", "echo ready >&2; exec cat"), cwd=project.root)
        tty.wait_for("ready\n")
        tty.type("\x03")
        ended = tty.wait()
        assert (ended.code, ended.shown) == (130, "ready\n^C")
        assert project.is_as_it_was()

    @pytest.mark.parametrize(
        ("command", "code"),
        [(("sh", "-c", "exit 7"), 7), (("/nonexistent",), 127), (("sh", "-c", "kill -9 $$"), 137)],
    )
    def test_the_end_of_the_command_is_seen_also_where_sigchld_is_ignored(
        self, command: tuple[str, ...], code: int, project: Project
    ) -> None:
        with started(*project.command(*command), signals="--ignore-signal=CHLD") as wrapper:
            assert finish(wrapper)[0] == code
        assert project.is_as_it_was()

    @pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
    def test_a_user_signal_reaches_the_sprint_command(
        self, number: signal.Signals, project: Project
    ) -> None:
        with started(*project.command(*LISTENER)) as wrapper:
            assert line(wrapper) == "ready"
            wrapper.send_signal(number)
            assert line(wrapper) == number.name
            assert finish(wrapper)[0] == 5
        assert project.is_as_it_was()

    def test_signals_during_the_end_of_a_sprint_change_nothing(self, project: Project) -> None:
        everything = (
            "trap '' HUP INT QUIT TERM; kill -HUP $PPID; kill -INT $PPID; kill -QUIT "
            "$PPID; kill -TERM $PPID; exit 3"
        )
        for _ in range(10):
            done = project.run("sh", "-c", everything)
            assert (done.returncode, done.stderr) == (3, "")
            assert project.is_as_it_was()

    def test_closing_the_terminal_window_ends_a_sprint_command(
        self, project: Project, tty: Terminal
    ) -> None:
        tty.start(
            *project.command("sh", "-c", "echo ready >&2; exec sleep 600 <&1"),
            cwd=project.root,
            place="leader",
        )
        tty.wait_for("ready\n")
        tty.hang_up()
        assert tty.wait().code == 128 + signal.SIGHUP
        assert project.is_as_it_was()

    def test_an_ignored_signal_stays_ignored_in_a_sprint(self, project: Project) -> None:
        with started(
            *project.command("sh", "-c", "echo ready; exec cat"), signals="--ignore-signal=HUP"
        ) as wrapper:
            assert line(wrapper) == "ready"
            wrapper.send_signal(signal.SIGHUP)
            assert finish(wrapper) == (0, "", "")
        assert project.is_as_it_was()

    def test_ctrl_z_stops_sprint_wrapper_and_command_and_fg_continues_both(
        self, project: Project, tty: Terminal
    ) -> None:
        tty.start(*project.command("sh", "-c", "echo ready >&2; exec cat"), cwd=project.root)
        tty.wait_for("ready\n")
        command = project.locked_pid
        tty.type("\x1a")
        assert tty.reported() == "stopped"
        wait_until(lambda: state_of(command).startswith("T"))
        assert project.swarm("check")["status"] == "blocked"
        os.killpg(tty.pid, signal.SIGCONT)
        wait_until(lambda: state_of(command).startswith("S"))
        tty.type("on\n\x04")
        ended = tty.wait()
        assert (ended.code, ended.out) == (0, "on\n")
        assert project.is_as_it_was()

    @pytest.mark.parametrize(
        "numbers", [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGTERM, signal.SIGHUP]], ids=str
    )
    def test_a_signal_at_the_question_acquires_no_lock_and_runs_nothing(
        self, numbers: list[signal.Signals], project: Project, tty: Terminal, tmp_path: Path
    ) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start(*project.command("touch", str(tmp_path / "ran")), cwd=project.root)
        tty.wait_for("[y/N] ")
        for number in numbers:
            os.kill(tty.pid, number)
        ended = tty.wait()
        assert ended.code in [128 + number for number in numbers]
        assert "Traceback" not in ended.shown
        assert project.lock.read_bytes() == before
        assert not (tmp_path / "ran").exists()

    def test_ctrl_c_at_the_question_of_a_sprint_is_a_no(
        self, project: Project, tty: Terminal, tmp_path: Path
    ) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start(
            *project.command("touch", str(tmp_path / "ran"), options=("--json",)), cwd=project.root
        )
        tty.wait_for("[y/N] ")
        tty.type("\x03")
        ended = tty.wait()
        assert (ended.code, json.loads(ended.out)["status"]) == (1, "blocked")
        assert "Traceback" not in ended.shown
        assert project.lock.read_bytes() == before
        assert not (tmp_path / "ran").exists()


class TestTheLock:
    def test_the_sprint_lock_stays_until_a_command_that_outlives_its_wrapper_ends(
        self, project: Project
    ) -> None:
        with started(*project.command("sh", "-c", "echo ready; exec cat")) as wrapper:
            assert line(wrapper) == "ready"
            wrapper.kill()
            wrapper.wait(TIMEOUT)
            found = project.swarm("check")
            assert (
                found["status"],
                found["lock_info"]["is_zombie"],
                found["lock_info"]["pid_alive"],
            ) == ("blocked", False, True)
            assert wrapper.stdin is not None
            wrapper.stdin.close()
            wait_until(lambda: project.swarm("check")["status"] == "zombie-detected")

    def test_the_sprint_lock_is_taken_over_after_wrapper_and_command_were_killed(
        self, project: Project
    ) -> None:
        with started(*project.command("sh", "-c", "echo ready; exec cat")) as wrapper:
            assert line(wrapper) == "ready"
            command = project.locked_pid
            wrapper.kill()
            os.kill(command, signal.SIGKILL)
            wait_until(lambda: project.swarm("check")["status"] == "zombie-detected")
        done = project.run("true", options=("--yes",))
        assert done.returncode == 0
        assert done.stderr.startswith(
            f"Warning: Overwrote a zombie lock (PID: {command}, session: mine, "
        )
        assert project.is_as_it_was()

    def test_a_command_whose_wrapper_was_killed_before_it_began_never_runs(
        self, project: Project, tty: Terminal, tmp_path: Path
    ) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start(*project.command("touch", str(tmp_path / "ran")), cwd=project.root)
        tty.wait_for("[y/N] ")
        os.kill(tty.pid, signal.SIGKILL)
        assert tty.wait().code == -signal.SIGKILL, (
            "and every process with standard output open is gone"
        )
        assert not (tmp_path / "ran").exists()
        assert project.lock.read_bytes() == before

    def test_the_lock_of_a_sprint_that_overwrote_ours_is_left_alone(self, project: Project) -> None:
        with started(*project.command("sh", "-c", "echo ready; cat; exit 3")) as wrapper:
            assert line(wrapper) == "ready"
            theirs = ("--session-id", "theirs", "--epic-spec", "e", "--pid", str(os.getpid()))
            assert project.swarm("acquire", *theirs, "--force", "--yes")["status"] == "acquired"
            before = project.lock.read_bytes()
            code, out, err = finish(wrapper)
        assert (code, out) == (3, "")
        assert err.startswith(
            "Warning: the lock was not released: another sprint has overwritten it"
        )
        assert project.lock.read_bytes() == before

    def test_a_sprint_lock_released_meanwhile_is_reported(self, project: Project) -> None:
        with started(*project.command("sh", "-c", "echo ready; exec cat")) as wrapper:
            assert line(wrapper) == "ready"
            project.swarm("release")
            code, _, err = finish(wrapper)
        assert code == 0
        assert err.startswith("Warning: the lock was not released: ")
        assert project.is_as_it_was()

    def test_the_lock_of_a_running_sprint_stops_the_command_from_running(
        self, project: Project, tmp_path: Path
    ) -> None:
        with started(*project.command("sh", "-c", "echo ready; exec cat")) as wrapper:
            assert line(wrapper) == "ready"
            before = project.lock.read_bytes()
            done = project.run("touch", str(tmp_path / "ran"))
            assert done.returncode == 1
            answer = yaml.safe_load(done.stdout)
            assert (answer["status"], answer["mode"], answer["lock_info"]["session_id"]) == (
                "blocked",
                "acquire",
                "mine",
            )
            assert done.stderr == f"Error: {answer['message']}\n"
            done = project.run("touch", str(tmp_path / "ran"), options=("--json",))
            assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "blocked")
            assert not (tmp_path / "ran").exists()
            assert project.lock.read_bytes() == before
            assert finish(wrapper)[0] == 0

    @pytest.mark.parametrize("mode", ["acquire", "run"])
    def test_a_sprint_lock_blocks_also_where_the_reader_of_the_answer_is_gone(
        self, mode: str, project: Project, tmp_path: Path
    ) -> None:
        before = project.is_locked_by(os.getpid())
        command = ["--", "touch", str(tmp_path / "ran")] if mode == "run" else []
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(
            [*SWARM, "sprint", mode, *SPRINT, *command],
            cwd=project.root,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
        )
        os.close(writer)
        assert done.returncode == 1
        assert done.stderr.startswith("Error: Zombie lock not overwritten")
        assert not (tmp_path / "ran").exists()
        assert project.lock.read_bytes() == before

    def test_a_zombie_sprint_lock_is_overwritten_after_a_yes(
        self, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*project.command("sh", "-c", "echo done; exit 4"), cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type("y\n")
        ended = tty.wait()
        assert (ended.code, ended.out) == (4, "done\n")
        assert project.is_as_it_was()

    def test_the_sprint_lock_file_has_the_given_name(self, project: Project) -> None:
        done = project.run("ls", "-A", str(project.root), options=("--lock-file-name", ".busy"))
        assert done.stdout.split() == [".busy", "notes.txt"]
        assert project.is_as_it_was()


class TestInput:
    @pytest.mark.parametrize(
        "arguments",
        [
            [*SPRINT],
            [*SPRINT, "--"],
            [*SPRINT, "touch", "RAN"],
            [*SPRINT, "touch", "--", "RAN"],
            [*SPRINT, "--pid", "1", "--", "touch", "RAN"],
            [*SPRINT, "--no-such-option", "--", "touch", "RAN"],
        ],
        ids=lambda arguments: " ".join(arguments[4:]) or "nothing",
    )
    def test_sprint_run_without_two_dashes_and_a_command_is_refused_with_usage(
        self, arguments: list[str], project: Project, tmp_path: Path
    ) -> None:
        words = [word.replace("RAN", str(tmp_path / "ran")) for word in arguments]
        done = subprocess.run(
            [*SWARM, "sprint", "run", *words],
            cwd=project.root,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "Usage: swarm sprint run --session-id S --epic-spec E " in done.stderr
        assert not (tmp_path / "ran").exists()
        assert project.is_as_it_was()

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ([], "session_id required for acquire mode"),
            (["--session-id", "s"], "epic_spec required for acquire mode"),
            (["--session-id", " ", "--epic-spec", "e"], "session_id required for acquire mode"),
            (
                [*SPRINT, "--lock-file-name", "a/b"],
                "lock_file_name must be the plain name of a file",
            ),
        ],
        ids=["no session", "no epic", "blank session", "lock file elsewhere"],
    )
    def test_invalid_input_of_a_sprint_is_answered_and_runs_nothing(
        self, options: list[str], error: str, project: Project, tmp_path: Path
    ) -> None:
        done = subprocess.run(
            [*SWARM, "sprint", "run", *options, "--", "touch", str(tmp_path / "ran")],
            cwd=project.root,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert done.returncode == 2
        answer = yaml.safe_load(done.stdout)
        assert (answer["status"], answer["errors"]) == ("failure", [error])
        if "required" in error:
            option = error.split(maxsplit=1)[0].replace("_", "-")
            assert done.stderr == f"Error: {error}: give it with --{option}\n"
        assert not (tmp_path / "ran").exists()
        assert project.is_as_it_was()

    def test_a_missing_project_directory_is_a_failure_and_runs_nothing(
        self, project: Project, tmp_path: Path
    ) -> None:
        done = project.run(
            "touch", str(tmp_path / "ran"), options=("--project-root", str(tmp_path / "none"))
        )
        assert (done.returncode, yaml.safe_load(done.stdout)["errors"]) == (
            3,
            ["Project root not accessible"],
        )
        assert not (tmp_path / "ran").exists()

    def test_help_after_the_two_dashes_belongs_to_the_command(self, project: Project) -> None:
        done = project.run("true", options=("--help",))
        assert done.stdout.startswith("Usage: swarm sprint run ")
        assert project.run("sh", "-c", 'echo "$1"', "sh", "--help").stdout == "--help\n"
