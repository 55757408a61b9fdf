"""`swarm run`: the command holds the task while it runs, and does not run without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from swarm.inputs import check_name
from tests.support.at_a_terminal import SWARM, TIMEOUT, environment, wait_until
from tests.support.wrapped_command import (
    LISTENER,
    PYTHON,
    Place,
    finish,
    is_alive,
    line,
    processes_with,
    state_of,
)

CAT = ("sh", "-c", "echo ready; exec cat")


class TestCommand:
    def test_a_command_that_succeeds_logs_start_and_done_and_frees_the_task(
        self, place: Place
    ) -> None:
        done = place.run("echo", "hello")
        assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
        token = place.records[0][2]["token"]
        assert place.records == [
            ("START", "", {"token": token}),
            ("DONE", "", {"exit_code": 0, "token": token}),
        ]
        assert place.is_free

    @pytest.mark.parametrize("code", [1, 4, 255])
    def test_a_command_that_fails_logs_error_and_its_exit_code_is_passed_on(
        self, code: int, place: Place
    ) -> None:
        done = place.run("sh", "-c", f"exit {code}")
        assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
        state, reason, meta = place.records[-1]
        assert (state, reason, meta["exit_code"]) == ("ERROR", f"exit code {code}", code)
        assert place.is_free

    @pytest.mark.parametrize(
        "number",
        [signal.SIGTERM, signal.SIGKILL, signal.SIGPIPE, signal.SIGINT],
        ids=lambda n: n.name,
    )
    def test_a_command_that_a_signal_ends_gives_128_plus_the_signal(
        self, number: signal.Signals, place: Place
    ) -> None:
        done = place.run("sh", "-c", f"kill -{number.value} $$")
        assert (done.returncode, done.stderr) == (128 + number, "")
        state, reason, meta = place.records[-1]
        assert (state, reason, meta["exit_code"]) == (
            "ERROR",
            f"ended by {number.name}",
            128 + number,
        )
        assert place.is_free

    @pytest.mark.parametrize(
        ("name", "code", "why"), [("nowhere", 127, "No such file"), ("/", 126, "Permission denied")]
    )
    def test_a_command_that_cannot_be_run_is_126_or_127_as_in_a_shell(
        self, name: str, code: int, why: str, place: Place
    ) -> None:
        done = place.run(name)
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith(f"Error: cannot run {name}: {why}")
        assert [(state, meta.get("exit_code")) for state, _, meta in place.records] == [
            ("START", None),
            ("ERROR", code),
        ]
        assert place.is_free
        answer = json.loads(place.run(name, options=("--json",)).stdout)
        assert (answer["schema_version"], answer["exit_code"], answer["error"]) == (
            1,
            code,
            done.stderr[7:].strip(),
        )

    def test_a_command_finds_its_task_worker_token_and_state_directory(self, place: Place) -> None:
        show = 'cat "$SWARM_STATE_DIR/locks/t.lock"; env'
        (place.root / "link").symlink_to(place.state)
        env = {
            "SWARM_STATE_DIR": "state",
            "AI_SWARM_DIR": "link",
            "SWARM_TOKEN": "99",
            "SWARM_TASK_ID": "x",
            "WORD": "任务",
        }
        done = place.call(place.command("sh", "-c", show, options=("--worker", "me")), **env)
        lock, _, rest = done.stdout.partition("\n")
        seen = dict(row.split("=", 1) for row in rest.splitlines() if "=" in row)
        assert (seen["SWARM_TASK_ID"], seen["SWARM_WORKER"], seen["WORD"]) == ("t", "me", "任务")
        assert seen["SWARM_TOKEN"] == str(json.loads(lock)["token"])
        assert seen["SWARM_STATE_DIR"] == seen["AI_SWARM_DIR"] == str(place.state)

    def test_a_run_within_a_run_finds_its_own_task_and_token(self, place: Place) -> None:
        inner = place.command(
            "sh", "-c", 'echo "$SWARM_TASK_ID $SWARM_TOKEN $SWARM_WORKER"', task="inner"
        )
        outer = place.run(
            "sh",
            "-c",
            'echo "$SWARM_TASK_ID $SWARM_TOKEN $SWARM_WORKER"; exec "$@"',
            "sh",
            *inner,
            options=("--worker", "me"),
        )
        mine, its = (row.split() for row in outer.stdout.splitlines())
        tokens = {
            json.loads(row)["task_id"]: json.loads(row)["meta"]["token"]
            for row in (place.state / "status.log").read_text().splitlines()
        }
        assert (mine, its) == (["t", str(tokens["t"]), "me"], ["inner", str(tokens["inner"]), "me"])

    def test_the_lock_of_a_run_names_the_wrapper_and_the_group_of_the_command(
        self, place: Place
    ) -> None:
        with place.started("sh", "-c", "echo $$ $(ps -o pgid= -p $$); exec cat") as wrapper:
            pid, group = map(int, line(wrapper).split())
            holder = place.lock["holder"]
            assert (holder["pid"], holder["group"]) == (wrapper.pid, pid)
            assert pid == group
            assert finish(wrapper)[0] == 0

    def test_a_command_gets_its_streams_and_arguments_unchanged(self, place: Place) -> None:
        words = [
            "--help",
            "--json",
            "",
            "--",
            "-h",
            "a b",
            "$HOME",
            "任务",
            "\n",
            os.fsdecode(b"\xff"),
        ]
        done = place.run(*PYTHON, "import sys; print(ascii(sys.argv[1:]))", *words)
        assert (done.returncode, done.stdout, done.stderr) == (0, ascii(words) + "\n", "")
        with place.started("sh", "-c", "cat; echo oops >&2") as wrapper:
            assert wrapper.stdin is not None
            wrapper.stdin.write("typed\n")
            assert finish(wrapper) == (0, "typed\n", "oops\n")

    def test_a_command_inherits_no_file_and_no_signal_mask_of_the_wrapper(
        self, place: Place
    ) -> None:
        show = (
            "import os, signal; print(sorted(os.listdir('/dev/fd')), "
            "signal.pthread_sigmask(signal.SIG_BLOCK, []))"
        )
        assert place.run(*PYTHON, show).stdout == "['0', '1', '2', '3'] set()\n", (
            "3 is that of listdir"
        )

    def test_a_command_inherits_an_open_file_of_the_caller(self, place: Place) -> None:
        shell = 'exec 7>"$0"; exec "$@"'
        done = place.call(
            [
                "sh",
                "-c",
                shell,
                str(place.root / "seven"),
                *place.command("sh", "-c", "echo here >&7"),
            ]
        )
        assert (done.returncode, (place.root / "seven").read_text()) == (0, "here\n")

    def test_a_command_gets_a_large_environment(self, place: Place) -> None:
        many = {f"VARIABLE_{number}": "x" * 1000 for number in range(500)}
        assert place.run_with(many, "sh", "-c", "env | grep -c ^VARIABLE_").stdout == "500\n"


class TestWorkerName:
    def test_the_worker_of_a_run_is_named_by_option_or_variable_or_after_the_user(
        self, place: Place
    ) -> None:
        show = ("sh", "-c", 'echo "$SWARM_WORKER"')
        assert place.run(*show, options=("--worker", "a b"), SWARM_WORKER="env").stdout == "a b\n"
        assert place.run(*show, SWARM_WORKER="env").stdout == "env\n"
        names = {place.run(*show).stdout.strip() for _ in range(2)}
        assert len(names) == 2, "each run is a worker of its own"
        for name in names:
            assert (
                check_name(name, "worker")
                .partition("-")[0]
                .endswith("@" + os.uname().nodename.partition("-")[0])
            )


class TestHeld:
    def test_a_run_of_a_held_task_runs_nothing_and_logs_skip(self, place: Place) -> None:
        place.swarm("lock", "acquire", "t", "other", "600")
        before = (place.state / "locks" / "t.lock").read_bytes()
        done = place.run("touch", "ran", options=("--worker", "me"))
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("Error: Lock already exists for t: held by other since ")
        assert done.stderr.endswith(". Wait with --wait SECONDS, or see: swarm lock why t\n")
        assert not place.ran
        ((state, reason, meta),) = place.records
        assert (state, meta) == ("SKIP", {"held_by": "other"})
        assert reason.startswith("Lock already exists for t: held by other since ")
        assert (place.state / "locks" / "t.lock").read_bytes() == before

    @pytest.mark.parametrize("code", [0, 75, 255])
    def test_the_exit_code_for_a_held_task_can_be_chosen(self, code: int, place: Place) -> None:
        place.swarm("lock", "acquire", "t", "other")
        assert place.run("touch", "ran", options=("--held-exit", str(code))).returncode == code
        assert not place.ran
        assert place.run("false", options=("--held-exit", str(code)), task="u").returncode == 1, (
            "and only for that"
        )

    def test_the_json_answer_for_a_held_task_names_the_holder(self, place: Place) -> None:
        place.swarm("lock", "acquire", "t", "other")
        done = place.run("touch", "ran", options=("--json",))
        answer = json.loads(done.stdout)
        assert list(answer) == ["schema_version", "acquired", "task_id", "reason", "lock"]
        assert (answer["acquired"], answer["task_id"], answer["lock"]["worker"]) == (
            False,
            "t",
            "other",
        )

    def test_a_held_task_is_exit_1_also_where_the_reader_of_the_answer_is_gone(
        self, place: Place
    ) -> None:
        place.swarm("lock", "acquire", "t", "other")
        words = place.command("touch", "ran", options=("--json",))
        done = place.call(["bash", "-c", '"$@" | true; exit "${PIPESTATUS[0]}"', "bash", *words])
        assert done.returncode == 1

    def test_a_task_is_held_also_against_a_run_with_the_same_worker_name(
        self, place: Place
    ) -> None:
        with place.started(*CAT, options=("--worker", "me")) as wrapper:
            assert line(wrapper) == "ready"
            assert place.run("touch", "ran", options=("--worker", "me")).returncode == 1
            assert finish(wrapper)[0] == 0
        assert not place.ran
        assert [state for state, _, _ in place.records] == ["START", "SKIP", "DONE"]

    def test_of_many_runs_of_one_task_never_two_run_at_once(self, place: Place) -> None:
        alone = "mkdir one || { echo two; exit 9; }; sleep 0.2; rmdir one"
        words = place.command("sh", "-c", alone)
        crowd = [
            subprocess.Popen(
                words,
                env=environment(**place.env),
                cwd=place.root,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(6)
        ]
        outs = [process.communicate(timeout=TIMEOUT)[0] for process in crowd]
        codes = [process.returncode for process in crowd]
        assert outs == [b""] * 6
        assert set(codes) == {0, 1}
        states = [state for state, _, _ in place.records]
        assert (states.count("DONE"), states.count("SKIP")) == (codes.count(0), codes.count(1))


class TestWaiting:
    def test_a_waiting_run_starts_when_the_other_has_ended(self, place: Place) -> None:
        with place.started(*CAT) as first:
            assert line(first) == "ready"
            with place.started("echo", "second", options=("--wait", "30")) as second:
                wait_until(lambda: len(processes_with(str(place.state))) >= 4)
                assert finish(first)[0] == 0
                assert finish(second) == (0, "second\n", "")
        assert [state for state, _, _ in place.records] == ["START", "DONE", "START", "DONE"]

    def test_a_waiting_run_gives_up_in_time(self, place: Place) -> None:
        place.swarm("lock", "acquire", "t", "other")
        before = time.monotonic()
        assert place.run("touch", "ran", options=("--wait", "0.4")).returncode == 1
        assert time.monotonic() - before >= 0.4
        assert not place.ran

    @pytest.mark.parametrize(
        "number",
        [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL],
        ids=lambda n: n.name,
    )
    def test_a_waiting_run_that_is_ended_runs_nothing_and_acquires_nothing(
        self, number: signal.Signals, place: Place
    ) -> None:
        place.swarm("lock", "acquire", "t", "other")
        with place.started("touch", str(place.root / "ran"), options=("--wait", "60")) as wrapper:
            wait_until(lambda: len(processes_with(str(place.state))) == 2)
            time.sleep(0.1)
            wrapper.send_signal(number)
            code = wrapper.wait(TIMEOUT)
            assert code == (-number if number == signal.SIGKILL else 128 + number)
        wait_until(lambda: not processes_with(str(place.state)))
        assert place.lock["worker"] == "other" and not place.ran


class TestSignals:
    @pytest.mark.parametrize(
        "number",
        [
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGINT,
            signal.SIGQUIT,
            signal.SIGUSR1,
            signal.SIGUSR2,
        ],
        ids=lambda number: number.name,
    )
    def test_a_signal_to_the_wrapper_reaches_the_command_which_keeps_the_task_meanwhile(
        self, number: signal.Signals, place: Place
    ) -> None:
        with place.started(*LISTENER) as wrapper:
            assert line(wrapper) == "ready"
            wrapper.send_signal(number)
            assert line(wrapper) == number.name
            assert place.lock["holder"]["pid"] == wrapper.pid
            assert finish(wrapper) == (5, "", "")
        assert place.is_free

    def test_a_signal_reaches_the_whole_process_group(self, place: Place) -> None:
        both = (
            "trap 'echo outer' USR1; (trap 'echo inner; exit' USR1; echo ready; while :; do "
            "sleep 0.02; done) & wait; wait"
        )
        with place.started("sh", "-c", both) as wrapper:
            assert line(wrapper) == "ready"
            wrapper.send_signal(signal.SIGUSR1)
            assert sorted([line(wrapper), line(wrapper)]) == ["inner", "outer"]
            assert finish(wrapper)[0] == 0

    @pytest.mark.parametrize(
        "number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name
    )
    def test_a_signal_that_ends_the_command_ends_the_wrapper(
        self, number: signal.Signals, place: Place
    ) -> None:
        with place.started(*CAT) as wrapper:
            assert line(wrapper) == "ready"
            wrapper.send_signal(number)
            assert wrapper.wait(TIMEOUT) == 128 + number
        assert place.records[-1][:2] == ("ERROR", f"ended by {number.name}")
        assert place.is_free

    def test_stop_and_continue_reach_the_command_and_the_task_stays_locked(
        self, place: Place
    ) -> None:
        with place.started(*CAT, options=("--ttl", "1")) as wrapper:
            assert line(wrapper) == "ready"
            command = place.lock["holder"]["group"]
            wrapper.send_signal(signal.SIGTSTP)
            wait_until(lambda: state_of(command).startswith("T"))
            time.sleep(1.3)
            assert place.verdict == "t: Active", (
                "there is no terminal, so only the command was stopped"
            )
            wrapper.send_signal(signal.SIGCONT)
            wait_until(lambda: state_of(command).startswith("S"))
            assert finish(wrapper)[0] == 0


class TestLost:
    def lose(self, how: str, place: Place) -> None:
        if how == "removed":
            (place.state / "locks" / "t.lock").unlink()
        else:
            assert place.swarm("lock", "break", "t", "--yes").returncode == 0
        if how == "taken":
            assert place.swarm("lock", "acquire", "t", "other").returncode == 0

    @pytest.mark.parametrize("how", ["removed", "broken", "taken"])
    def test_a_lost_lease_sends_sigterm_to_the_command_and_exits_with_4(
        self, how: str, place: Place
    ) -> None:
        with place.started(*LISTENER, "7", options=("--ttl", "1")) as wrapper:
            assert line(wrapper) == "ready"
            token = place.lock["token"]
            self.lose(how, place)
            assert line(wrapper) == "SIGTERM"
            assert wrapper.wait(TIMEOUT) == 4
            assert wrapper.stderr is not None
            message = wrapper.stderr.read()
        assert message.startswith("Error: the") and message.endswith(" The command was stopped.\n")
        state, reason, meta = place.records[-1]
        assert (state, meta) == ("SKIP", {"lost": True, "token": token})
        assert reason and reason in message
        assert place.lock["worker"] == "other" if how == "taken" else place.is_free

    def test_a_lost_lease_has_a_json_answer(self, place: Place) -> None:
        with place.started(
            "sh", "-c", "exec sleep 600", options=("--ttl", "1", "--json")
        ) as wrapper:
            wait_until((place.state / "locks" / "t.lock").exists)
            self.lose("removed", place)
            assert wrapper.wait(TIMEOUT) == 4
            assert wrapper.stdout is not None
            answer = json.loads(wrapper.stdout.read())
        assert answer["exit_code"] == 4 and answer["error"].endswith(" The command was stopped.")

    def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(self, place: Place) -> None:
        stubborn = (
            "trap 'echo terminated' TERM; echo ready; sleep 600 & echo $!; while :; do "
            "sleep 0.05; done"
        )
        with place.started("sh", "-c", stubborn, options=("--ttl", "6", "--grace", "2")) as wrapper:
            assert line(wrapper) == "ready"
            group, other = place.lock["holder"]["group"], int(line(wrapper))
            self.lose("taken", place)
            assert line(wrapper) == "terminated"
            terminated = time.monotonic()
            assert wrapper.wait(TIMEOUT) == 4
            assert time.monotonic() - terminated >= 1.0, (
                "the shell may have printed late, but the grace is two seconds"
            )
            assert not is_alive(group) and not is_alive(other)

    def test_a_command_whose_wrapper_was_stopped_past_its_lease_is_ended(
        self, place: Place
    ) -> None:
        with place.started(*LISTENER, "7", options=("--ttl", "1")) as wrapper:
            assert line(wrapper) == "ready"
            wrapper.send_signal(signal.SIGSTOP)
            wait_until(lambda: place.verdict == "t: Expired")
            assert place.swarm("lock", "acquire", "t", "other").returncode == 0
            wrapper.send_signal(signal.SIGCONT)
            assert line(wrapper) == "SIGTERM"
            assert wrapper.wait(TIMEOUT) == 4
        assert place.lock["worker"] == "other"

    def test_a_lease_found_lost_only_at_the_end_is_reported(self, place: Place) -> None:
        with place.started("sh", "-c", "echo ready; cat; exit 3") as wrapper:
            assert line(wrapper) == "ready"
            wait_until(lambda: waits_for_signals(wrapper.pid))  # it has read its lock before
            self.lose("taken", place)
            code, _, message = finish(wrapper)
        assert code == 4
        assert message.endswith(" The command had ended by then.\n")
        state, _, meta = place.records[-1]
        assert (state, meta["lost"], meta["exit_code"]) == ("SKIP", True, 3)
        assert place.lock["worker"] == "other"

    def test_heartbeats_of_a_run_keep_the_lock(self, place: Place) -> None:
        with place.started(*CAT, options=("--ttl", "1")) as wrapper:
            assert line(wrapper) == "ready"
            time.sleep(1.5)
            assert place.verdict == "t: Active" and place.lock["holder"]["beat"] >= 3
            assert finish(wrapper)[0] == 0


class TestKilled:
    """The wrapper is killed, and can do nothing any more."""

    def test_a_command_dies_with_its_killed_wrapper_and_the_task_is_free_at_once(
        self, place: Place
    ) -> None:
        with place.started(
            "sh", "-c", "trap '' TERM HUP INT; echo ready; while :; do sleep 600; done"
        ) as wrapper:
            assert line(wrapper) == "ready"
            command = place.lock["holder"]["group"]
            os.killpg(command, signal.SIGSTOP)  # also one who is stopped
            wrapper.kill()
            wrapper.wait(TIMEOUT)
            wait_until(lambda: not is_alive(command))
            for pid in processes_with(str(place.state)):  # the sleep, which was not ours to bind
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: place.verdict == "t: Expired (holder gone)")
        assert place.run("echo", "next").stdout == "next\n"

    def test_a_task_is_not_free_while_a_process_of_the_group_is_left(self, place: Place) -> None:
        with place.started("sh", "-c", "sleep 600 & echo $!; exec cat") as wrapper:
            left = int(line(wrapper))
            command = place.lock["holder"]["group"]
            wrapper.kill()
            wrapper.wait(TIMEOUT)
            wait_until(lambda: not is_alive(command))
            assert is_alive(left)
            assert place.verdict == "t: Active"
            assert (
                f"The end of its process and of every process of group {command} frees it"
                in place.swarm("lock", "why", "t").stdout
            )
            assert (
                f"(ended; its process group {command} still runs)"
                in place.swarm("lock", "why", "t").stdout
            )
            seen = place.swarm("status").stdout
            assert f"its process group {command}" in seen
            assert place.run("touch", "ran").returncode == 1
            os.kill(left, signal.SIGKILL)
            wait_until(lambda: place.verdict == "t: Expired (holder gone)")

    def test_a_task_is_free_at_the_end_of_the_lease_and_a_late_command_is_refused(
        self, place: Place
    ) -> None:
        fifo = place.root / "fifo"
        os.mkfifo(fifo)
        mine = '"$SWARM_TASK_ID" "$SWARM_WORKER" --token "$SWARM_TOKEN"'
        late = (
            f'read x < "{fifo}"; "$0" -m swarm lock heartbeat {mine}; echo $? > '
            f'"{place.root}/heartbeat"; '
            f'"$0" -m swarm lock release {mine}; echo $? > "{place.root}/release"'
        )
        words = ("sh", "-c", f"({late}) >/dev/null 2>&1 & echo ready; exec cat", SWARM[0])
        with place.started(*words, options=("--ttl", "1", "--worker", "me")) as wrapper:
            assert line(wrapper) == "ready"
            token = place.lock["token"]
            wrapper.kill()
            wrapper.wait(TIMEOUT)
            assert place.verdict == "t: Active"
            wait_until(lambda: place.verdict == "t: Expired")
            assert place.swarm("lock", "acquire", "t", "me", "600").returncode == 0, (
                "even under the same name"
            )
            assert place.lock["token"] > token
            before = (place.state / "locks" / "t.lock").read_bytes()
            fifo.write_text("\n")
            wait_until(
                lambda: (place.root / "release").exists() and (place.root / "release").read_text()
            )
            assert (place.root / "heartbeat").read_text() == "4\n"
            assert (place.root / "release").read_text() == "1\n"
            assert (place.state / "locks" / "t.lock").read_bytes() == before


class TestRemainingProcesses:
    def test_processes_left_in_the_group_are_ended_before_the_task_is_released(
        self, place: Place
    ) -> None:
        leftover = (
            "trap 'ls \"$SWARM_STATE_DIR/locks\" > seen; exit' TERM; echo ready >fifo; "
            "while :; do sleep 0.02; done"
        )
        script = f"({leftover}) >/dev/null 2>&1 & read x < fifo; exit 3"
        os.mkfifo(place.root / "fifo")
        done = place.run("sh", "-c", script)
        assert done.returncode == 3
        assert (place.root / "seen").read_text() == "t.lock\n"
        assert place.is_free

    def test_a_process_left_in_the_group_that_ignores_sigterm_is_killed(self, place: Place) -> None:
        os.mkfifo(place.root / "fifo")
        stubborn = "trap '' TERM; echo ready >fifo; while :; do sleep 600; done"
        before = time.monotonic()
        done = place.run(
            "sh",
            "-c",
            f"({stubborn}) >/dev/null 2>&1 & read x < fifo; echo $!",
            options=("--grace", "0.5"),
        )
        assert done.returncode == 0 and time.monotonic() - before >= 0.5
        assert not is_alive(int(done.stdout))
        assert place.is_free

    def test_a_process_left_in_a_session_of_its_own_is_not_touched(self, place: Place) -> None:
        os.mkfifo(place.root / "fifo")
        done = place.run(
            "sh", "-c", "setsid sh -c 'echo $$ > fifo; exec sleep 600' >/dev/null 2>&1 & cat fifo"
        )
        daemon = int(done.stdout)
        try:
            assert done.returncode == 0 and is_alive(daemon)
            assert place.is_free
        finally:
            os.kill(daemon, signal.SIGKILL)


class TestStore:
    def test_a_run_on_a_store_that_cannot_be_used_runs_nothing(self, place: Place) -> None:
        (place.root / "file").write_text("")
        done = place.call(place.command("touch", "ran"), SWARM_STATE_DIR=str(place.root / "file"))
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("Error: ")
        assert not place.ran

    def test_a_run_with_two_different_state_directories_runs_nothing(self, place: Place) -> None:
        done = place.call(place.command("touch", "ran"), AI_SWARM_DIR="/tmp/elsewhere")
        assert done.returncode == 2 and not place.ran

    def test_a_run_whose_start_cannot_be_logged_runs_nothing(self, place: Place) -> None:
        (place.state / "status.log").mkdir(parents=True)
        assert place.run("touch", "ran").returncode == 3
        assert not place.ran
        assert place.is_free

    @pytest.mark.parametrize(("code", "answer"), [(0, 3), (7, 7)])
    def test_a_run_whose_end_cannot_be_logged_reports_it_and_frees_the_task(
        self, code: int, answer: int, place: Place
    ) -> None:
        spoil = (
            f'rm "$SWARM_STATE_DIR/status.log"; mkdir "$SWARM_STATE_DIR/status.log"; exit {code}'
        )
        done = place.run("sh", "-c", spoil)
        assert done.returncode == answer
        assert done.stderr.startswith("Error: ")
        assert place.is_free


class TestInput:
    @pytest.mark.parametrize(
        ("words", "problem"),
        [
            ([], "needs TASK"),
            (["t"], "needs a command after --"),
            (["t", "--"], "needs a command after --"),
            (["t", "touch", "ran"], "needs a command after --"),
            (["--", "touch", "ran"], "needs TASK"),
            (["t", "touch", "--", "ran"], "has one argument too many"),
            (["t", "--no-such", "--", "touch", "ran"], "has no option --no-such"),
        ],
        ids=str,
    )
    def test_wrong_usage_of_run_is_refused_with_the_usage(
        self, words: list[str], problem: str, place: Place
    ) -> None:
        done = place.swarm("run", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            done.stderr.startswith(f"Error: swarm run {problem}")
            and "Usage: swarm run TASK [--worker W] " in done.stderr
        )
        assert not place.ran and not place.state.exists()

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            (("--worker", ".x"), "--worker '.x'"),
            (("--ttl", "0"), "--ttl is '0'"),
            (("--ttl", "1.5"), "--ttl is '1.5'"),
            (("--wait", "-1"), "--wait is '-1'"),
            (("--grace", "soon"), "--grace is 'soon'"),
            (("--held-exit", "256"), "--held-exit is '256'"),
            (("--held-exit", "x"), "--held-exit is 'x'"),
        ],
        ids=str,
    )
    def test_an_invalid_option_of_run_is_named_and_runs_nothing(
        self, options: tuple[str, ...], named: str, place: Place
    ) -> None:
        done = place.run("touch", "ran", options=options)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"Error: {named}")
        assert not place.ran and not place.state.exists()

    @pytest.mark.parametrize("task", ["", "../x", ".x", "a/b", "a\nb", "x" * 201])
    def test_a_task_with_a_bad_name_is_not_run(self, task: str, place: Place) -> None:
        done = place.run("touch", "ran", task=task)
        assert done.returncode == 2 and "is not a valid name" in done.stderr
        assert not place.ran and not place.state.exists()

    @pytest.mark.parametrize(
        ("name", "value"), [("SWARM_WORKER", "../x"), ("AI_SWARM_LOCK_TTL", "x")]
    )
    def test_an_invalid_variable_is_named_and_runs_nothing(
        self, name: str, value: str, place: Place
    ) -> None:
        done = place.run_with({name: value}, "touch", "ran")
        assert done.returncode == 2 and done.stderr.startswith(f"Error: {name}")
        assert not place.ran

    def test_the_lease_of_a_run_is_as_long_as_ttl_says(self, place: Place) -> None:
        show = ("sh", "-c", 'cat "$SWARM_STATE_DIR/locks/t.lock"')
        assert json.loads(place.run(*show).stdout)["ttl"] == 300
        assert json.loads(place.run(*show, AI_SWARM_LOCK_TTL="77").stdout)["ttl"] == 77
        assert (
            json.loads(place.run(*show, AI_SWARM_LOCK_TTL="77", options=("--ttl", "5")).stdout)[
                "ttl"
            ]
            == 5
        )

    def test_help_of_run_has_its_usage_and_its_exit_codes(self, place: Place) -> None:
        for words in (["--help"], ["-h"], ["t", "--help", "--", "touch", "ran"]):
            done = place.swarm("run", *words)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith("Usage: swarm run TASK [--worker W] ")
            text = " ".join(done.stdout.split())
            assert "126 or 127 if it cannot be run" in text and "4 the lease was lost" in text
        assert not place.ran
        assert "swarm run " in place.swarm("--help").stdout


def waits_for_signals(pid: int) -> bool:
    """Return whether a process sleeps until a signal comes. Without /proc return True."""
    sleeps_in = Path(f"/proc/{pid}/wchan")
    return not sleeps_in.exists() or "sigtimedwait" in sleeps_in.read_text()
