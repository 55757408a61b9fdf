"""The scripts, as their users call them: the checks of the source documents as written,
and every command's answer.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from swarm.cli import main
from swarm.cli.arguments import Command
from swarm.terminal import output
from tests.conftest import ROOT, Run, script_environment
from tests.support.command_line import run
from tests.support.projects import checkout, git, project

GROUPS = ("gate", "lock", "log", "sprint", "task")


def commands_of(group: str) -> dict[str, Command]:
    found = main._find(group)
    assert isinstance(found, dict)
    return found


NINE_CHECKS = r"""
# Clean slate
rm -rf /tmp/ai_swarm/locks

# Test 1: Acquire creates lock
echo "Test 1: Acquire lock"
./scripts/swarm_lock.sh acquire task-001 worker-0
[ -f /tmp/ai_swarm/locks/task-001.lock ] && echo "PASS: Lock created" || echo "FAIL: Lock not created"

# Test 2: Acquire same task fails
echo "Test 2: Acquire existing lock (should fail)"
./scripts/swarm_lock.sh acquire task-001 worker-0
[ $? -ne 0 ] && echo "PASS: Acquire failed as expected" || echo "FAIL: Should have failed"

# Test 3: Check shows active
echo "Test 3: Check lock status"
./scripts/swarm_lock.sh check task-001 | grep -q "Active" && echo "PASS: Shows active" || echo "FAIL: Not active"

# Test 4: Release with correct worker
echo "Test 4: Release with correct worker"
./scripts/swarm_lock.sh release task-001 worker-0
[ ! -f /tmp/ai_swarm/locks/task-001.lock ] && echo "PASS: Lock deleted" || echo "FAIL: Lock not deleted"

# Test 5: Re-acquire after release
echo "Test 5: Re-acquire after release"
./scripts/swarm_lock.sh acquire task-001 worker-0
[ -f /tmp/ai_swarm/locks/task-001.lock ] && echo "PASS: Re-acquire succeeded" || echo "FAIL: Re-acquire failed"

# Test 6: Release with wrong worker fails
echo "Test 6: Release with wrong worker (should fail)"
./scripts/swarm_lock.sh release task-001 wrong-worker
[ $? -ne 0 ] && echo "PASS: Release failed as expected" || echo "FAIL: Should have failed"

# Test 7: List shows locks
echo "Test 7: List locks"
./scripts/swarm_lock.sh list | grep -q "task-001" && echo "PASS: List shows task" || echo "FAIL: List missing task"

# Test 8: TTL behavior
echo "Test 8: TTL with expiry"
rm -rf /tmp/ai_swarm/locks
./scripts/swarm_lock.sh acquire task-002 worker-0 1  # 1 second TTL
sleep 2
./scripts/swarm_lock.sh check task-002 | grep -q "Expired" && echo "PASS: Lock expired" || echo "FAIL: Lock not expired"

# Test 9: Expired lock can be re-acquired
echo "Test 9: Re-acquire expired lock"
./scripts/swarm_lock.sh acquire task-002 worker-0
[ -f /tmp/ai_swarm/locks/task-002.lock ] && echo "PASS: Expired lock replaced" || echo "FAIL: Could not replace"

# Cleanup
rm -rf /tmp/ai_swarm/locks

echo "Verification complete"
"""


def test_the_nine_checks_of_000_pass_as_written() -> None:
    """In a mount namespace, so that the real default directory is not touched."""
    default = Path("/tmp/ai_swarm")
    made = not default.exists()
    default.mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            [
                "unshare",
                "-m" if os.geteuid() == 0 else "-rm",
                "bash",
                "-c",
                f"mount -t tmpfs -o mode=700 none /tmp/ai_swarm\n{NINE_CHECKS}",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
            env=script_environment(),
        )
    finally:
        if made:
            default.rmdir()
    assert done.stdout.count("PASS") == 9, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert done.stdout.endswith("Verification complete\n")


class TestMustHaves:
    """The table of `001`, row by row."""

    def test_row_1_append_adds_valid_json(self, log: Run, isolated_swarm_dir: Path) -> None:
        done = log("append", "START", "worker-0", "task-001")
        assert done.returncode == 0
        assert (isolated_swarm_dir / "status.log").read_text() == done.stdout
        assert json.loads(done.stdout)["type"] == "START"

    def test_row_2_tail_gives_the_last_records(self, log: Run) -> None:
        for number in range(12):
            log("append", "START", "worker-0", f"task-{number}")
        lines = log("tail", "10").stdout.splitlines()
        assert [json.loads(line)["task_id"] for line in lines] == [
            f"task-{number}" for number in range(2, 12)
        ]
        assert log("tail").stdout.splitlines() == lines

    def test_row_3_query_gives_a_tasks_records(self, log: Run) -> None:
        for state, task in (("START", "task-001"), ("START", "task-0010"), ("DONE", "task-001")):
            log("append", state, "worker-0", task)
        assert [
            json.loads(line)["type"] for line in log("query", "task-001").stdout.splitlines()
        ] == ["START", "DONE"]

    def test_rows_4_to_7_the_life_of_a_lock(self, lock: Run, isolated_swarm_dir: Path) -> None:
        taken = lock("acquire", "task-001", "worker-0")
        assert taken.returncode == 0
        assert taken.stdout.startswith("Lock acquired: task-001\n")
        assert all(
            field in taken.stdout for field in ("worker-0", "acquired_at", "expires_at", "token")
        )
        again = lock("acquire", "task-001", "worker-0")
        assert again.returncode == 1 and again.stdout == ""
        assert again.stderr.startswith(
            "Error: Lock already exists for task-001: held by worker-0 since 2"
        )
        assert lock("release", "task-001", "worker-0").stdout == "Lock released: task-001\n"
        assert os.listdir(isolated_swarm_dir / "locks") == []
        assert lock("acquire", "task-001", "worker-0").returncode == 0

    def test_row_8_the_directory_is_a_variable(self, lock: Run, log: Run, tmp_path: Path) -> None:
        custom = tmp_path / "custom" / "path"
        environment = script_environment(SWARM_STATE_DIR=str(custom))
        del environment["AI_SWARM_DIR"]
        assert lock("acquire", "task-001", "worker-0", env=environment).returncode == 0
        assert log("append", "START", "worker-0", "task-001", env=environment).returncode == 0
        assert (custom / "locks" / "task-001.lock").exists() and (custom / "status.log").exists()

    def test_row_9_running_the_scripts_changes_nothing_in_the_checkout(
        self, lock: Run, log: Run
    ) -> None:
        def status() -> str:
            return subprocess.run(
                ["git", "status", "--porcelain"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=True,
            ).stdout

        before = status()
        lock("acquire", "task-001", "worker-0")
        log("append", "START", "worker-0", "task-001")
        log("validate")
        assert status() == before


def test_the_end_to_end_run_passes() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "swarm_e2e_test.sh"],
        capture_output=True,
        text=True,
        timeout=60,
        env=script_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASS") == 10 and done.stdout.endswith("End-to-end test passed\n")


@pytest.mark.parametrize("script", ["swarm_lock.sh", "swarm_status_log.sh"])
def test_a_script_works_from_any_directory_and_imports_nothing_from_it(
    script: str, tmp_path: Path, isolated_swarm_dir: Path
) -> None:
    trap = tmp_path / "trap"
    (trap / "swarm").mkdir(parents=True)
    for name in ("json", "os", "swarm/__init__", "errno", "_json", "time", "cli"):
        (trap / f"{name}.py").write_text("raise SystemExit('imported from the working directory')")
    for link in (trap / "direct", trap / "twice"):
        link.symlink_to(ROOT / "scripts" / script if link.name == "direct" else "direct")
    for link in (trap / "scripts", trap / "tools"):
        link.symlink_to(ROOT / "scripts")
    command = "list" if "lock" in script else "tail"
    files = (
        ROOT / "scripts" / script,
        "./direct",
        "./twice",
        trap / "twice",
        f"scripts/{script}",
        trap / "tools" / script,
    )
    for call in (
        [str(file)]
        for file in (*files, f"./tools/{script}", os.path.relpath(ROOT / "scripts" / script, trap))
    ):
        done = subprocess.run(
            [*call, command],
            cwd=trap,
            capture_output=True,
            text=True,
            timeout=30,
            env=script_environment(PYTHONPATH=str(trap)),
        )
        assert (done.returncode, done.stderr) == (0, "")
    by_path = subprocess.run(
        [script, command],
        cwd=trap,
        capture_output=True,
        text=True,
        timeout=30,
        env={**script_environment(), "PATH": f"{ROOT / 'scripts'}:{script_environment()['PATH']}"},
    )
    assert by_path.returncode == 0, by_path.stderr


def test_the_module_and_the_scripts_give_the_same_results(
    isolated_swarm_dir: Path, lock: Run
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "swarm", "lock", "acquire", "t", "w"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0
    assert "worker: w" in lock("list").stdout
    version = subprocess.run(
        [sys.executable, "-m", "swarm", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert re.fullmatch(r"swarm \d+\.\d+\.\d+\n", version.stdout)


class TestLockCommands:
    def test_a_ttl_is_written_in_both_vocabularies(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        lock("acquire", "t", "w", "300")
        record = json.loads((isolated_swarm_dir / "locks" / "t.lock").read_text())
        assert record["ttl"] == 300 and record["expires_at"] > record["heartbeat_at"]

    def test_acquire_with_wait_gets_a_lock_that_is_released(self, lock: Run) -> None:
        lock("acquire", "t", "first")
        with subprocess.Popen(
            [ROOT / "scripts" / "swarm_lock.sh", "acquire", "t", "second", "--wait", "30"],
            stdout=subprocess.PIPE,
            text=True,
            env=script_environment(),
        ) as waiting:
            time.sleep(0.3)
            assert waiting.poll() is None
            assert lock("release", "t", "first").returncode == 0
            assert waiting.wait(20) == 0
        assert "worker: second" in lock("list").stdout

    def test_acquire_with_wait_gets_a_lock_that_expires(self, lock: Run) -> None:
        lock("acquire", "t", "first", "1")
        assert lock("acquire", "t", "second", "--wait=20").returncode == 0

    def test_acquire_with_wait_fails_when_the_time_is_over(self, lock: Run) -> None:
        lock("acquire", "t", "first")
        begun = time.monotonic()
        assert lock("acquire", "t", "second", "--wait", "0.5").returncode == 1
        assert time.monotonic() - begun >= 0.5

    def test_a_lock_whose_answer_cannot_be_written_is_released(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        script = ROOT / "scripts" / "swarm_lock.sh"
        done = subprocess.run(
            ["bash", "-c", f"'{script}' acquire t w >/dev/full"],
            capture_output=True,
            timeout=30,
            env=script_environment(),
        )
        assert done.returncode == 3
        assert lock("check", "t").stdout == "No lock for t\n"
        assert os.listdir(isolated_swarm_dir / ".locks" / "scratch") == []

    def test_a_worker_that_holds_the_lock_already_learns_how_to_renew_it(self, lock: Run) -> None:
        lock("acquire", "t", "w")
        again = lock("acquire", "t", "w")
        assert again.returncode == 1
        assert again.stderr.startswith("Error: Lock already exists for t: held by w since 2")
        assert again.stderr.endswith("To renew the lease: swarm lock heartbeat t w\n")
        assert "--wait" not in again.stderr

    def test_a_worker_that_waited_in_vain_is_not_told_to_wait(self, lock: Run) -> None:
        lock("acquire", "t", "w")
        late = lock("acquire", "t", "x", "--wait", "0.2")
        assert late.returncode == 1 and "Waited 0.2 seconds." in late.stderr
        assert "--wait" not in late.stderr and late.stderr.endswith("See: swarm lock why t\n")

    def test_a_refused_release_says_why(self, lock: Run) -> None:
        none = lock("release", "t", "w").stderr
        assert "no lock for t" in none and none.endswith("See: swarm lock list\n")
        lock("acquire", "t", "w")
        other = lock("release", "t", "x").stderr
        assert "w holds it, not x" in other and other.endswith("See: swarm lock why t\n")
        late = lock("release", "t", "w", "--token", "99")
        assert late.returncode == 1 and "it has token 1, not 99" in late.stderr
        assert "any more" not in late.stderr, "token 99 was never issued"
        assert lock("release", "t", "w", "--token", "1").returncode == 0

    def test_heartbeat_prints_the_new_end_or_tells_the_worker_to_stop(self, lock: Run) -> None:
        lock("acquire", "t", "w", "60")
        beat = lock("heartbeat", "t", "w", "--token=1")
        assert beat.returncode == 0 and re.fullmatch(
            r"Heartbeat: t expires_at 2\S+Z\n", beat.stdout
        )
        for args in (("t", "x"), ("t", "w", "--token", "7"), ("other", "w")):
            lost = lock("heartbeat", *args)
            assert (
                lost.returncode == 4
                and lost.stderr.startswith("Error: ")
                and "Stop working" in lost.stderr
            )

    def test_check_and_list_show_the_state_of_locks(self, lock: Run) -> None:
        assert lock("check", "t").stdout == "No lock for t\n"
        assert lock("list").stdout == "No locks\n"
        lock("acquire", "t", "w")
        lock("acquire", "任务 😀", "w", "60")
        shown = lock("check", "t").stdout
        assert (
            shown.startswith("t: Active\n")
            and "worker:       w" in shown
            and "expires_at:   never" in shown
            and "token:" in shown
        )
        lines = lock("list").stdout.splitlines()
        assert [re.sub(r"acquired: \S+Z", "acquired: T", line) for line in lines] == [
            "t: Active (worker: w, acquired: T)",
            "任务 😀: Active (worker: w, acquired: T)",
        ]

    def test_release_all_releases_only_its_workers_locks(self, lock: Run) -> None:
        for task, worker in (("a", "w"), ("b", "x"), ("c", "w")):
            lock("acquire", task, worker)
        assert lock("release-all", "w").stdout == "Lock released: a\nLock released: c\n"
        assert lock("release-all", "w").stdout == "No locks held by w\n"
        assert (
            lock("release-all", env=script_environment(SWARM_WORKER="x")).stdout
            == "Lock released: b\n"
        )
        assert lock("release-all").returncode == 2

    def test_break_frees_a_lock_and_logs_who_did_it(self, lock: Run, log: Run) -> None:
        lock("acquire", "t", "w")
        assert lock("break", "t").returncode == 2
        assert "worker: w" in lock("list").stdout
        broken = lock("break", "t", "--yes", env=script_environment(SWARM_WORKER="boss"))
        assert (broken.returncode, broken.stdout) == (0, "Lock broken: t (was held by w)\n")
        record = json.loads(log("query", "t").stdout)
        assert (record["worker"], record["meta"]["event"], record["meta"]["worker"]) == (
            "boss",
            "lock-broken",
            "w",
        )
        assert lock("break", "t", "--yes").returncode == 1
        assert lock("heartbeat", "t", "w").returncode == 4

    def test_break_refuses_a_bad_name_before_it_breaks(self, lock: Run) -> None:
        lock("acquire", "t", "w")
        assert (
            lock("break", "t", "--yes", env=script_environment(SWARM_WORKER="team/a")).returncode
            == 2
        )
        assert "worker: w" in lock("list").stdout

    def test_printed_commands_can_be_pasted(self, lock: Run) -> None:
        task = "my task; echo 'hi'"
        lock("acquire", task, "w")
        printed = re.search(r"swarm lock break (.*) --yes", lock("why", task).stdout)
        assert printed is not None
        pasted = subprocess.run(
            ["bash", "-c", f"printf '<%s>' {printed[1]}"],
            capture_output=True,
            text=True,
            timeout=10,
        )
        assert pasted.stdout == f"<{task}>"

    def test_why_explains_what_frees_a_lock(self, lock: Run, isolated_swarm_dir: Path) -> None:
        assert "there is no lock" in lock("why", "t").stdout
        lock("acquire", "t", "w", "90")
        text = lock("why", "t").stdout
        assert "w holds t (token 1)." in text and "last heartbeat" in text
        assert (
            re.search(r"lease ends in 1 min \d+ s, at 2\S+Z", text)
            and "swarm lock break t --yes" in text
        )
        lock("acquire", "u", "w")
        assert "Its lease never ends." in lock("why", "u").stdout
        (isolated_swarm_dir / "locks" / "v.lock").write_text("?")
        assert "is invalid" in lock("why", "v").stdout

    def test_text_written_by_others_cannot_forge_output(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        (isolated_swarm_dir / "locks").mkdir(parents=True)
        forged = {
            "task_id": "t",
            "worker": "w\x1b[2J\nu: Active (worker: x",
            "acquired_at": "\x07now",
        }
        (isolated_swarm_dir / "locks" / "t.lock").write_text(json.dumps(forged))
        (isolated_swarm_dir / "locks" / "a\nb.lock").write_text(json.dumps(forged))
        for command in (
            ["list"],
            ["check", "t"],
            ["why", "t"],
            ["acquire", "t", "x"],
            ["break", "t", "--yes"],
        ):
            done = lock(*command)
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)
            assert not re.search(r"^(u|b): ", done.stdout + done.stderr, re.MULTILINE)

    def test_every_json_answer_is_one_object_with_a_version(self, lock: Run) -> None:
        answers = [
            lock("check", "t", "--json"),
            lock("acquire", "t", "w", "60", "--json"),
            lock("acquire", "t", "x", "--json"),
            lock("check", "t", "--json"),
            lock("list", "--json"),
            lock("why", "t", "--json"),
            lock("heartbeat", "t", "w", "--json"),
            lock("heartbeat", "t", "x", "--json"),
            lock("release", "t", "x", "--json"),
            lock("release", "t", "w", "--json"),
            lock("release-all", "w", "--json"),
        ]
        found = [json.loads(answer.stdout) for answer in answers]
        assert all(answer["schema_version"] == 1 for answer in found)
        assert [answer.returncode for answer in answers] == [0, 0, 1, 0, 0, 0, 0, 4, 1, 0, 0]
        absent, taken, refused, checked, listed, reasons = found[:6]
        assert (absent["locked"], absent["lock"]) == (False, None)
        assert taken["acquired"] is True and taken["lock"]["token"] == 1
        assert refused["acquired"] is False and refused["lock"]["worker"] == "w"
        assert checked["locked"] is True and 0 < checked["seconds_left"] <= 60
        assert [row["task_id"] for row in listed["locks"]] == ["t"]
        assert reasons["frees"]
        assert found[7]["exit_code"] == 4 and found[8]["exit_code"] == 1


class TestLogCommands:
    def test_append_reads_a_reason_from_standard_input(self, log: Run) -> None:
        text = 'line one\n  "two"\u2028' + "x" * (1024 * 1024)
        done = log(
            "append", "ERROR", "w", "t", "-", "--meta", '{"a": [1, null]}', input=text + "\n"
        )
        assert done.returncode == 0
        record = json.loads(log("tail", "1").stdout)
        assert record["reason"] == record["message"] == text and record["meta"] == {"a": [1, None]}

    def test_bytes_that_are_not_utf_8_are_stored_as_escapes(
        self, log: Run, isolated_swarm_dir: Path
    ) -> None:
        done = log("append", "ERROR", "w", "t", "-", input=b"\xff\x00ok", text=False)
        assert done.returncode == 0
        assert (
            json.loads((isolated_swarm_dir / "status.log").read_bytes())["reason"] == "\udcff\x00ok"
        )

    def test_damaged_lines_of_the_log_are_counted(self, log: Run, isolated_swarm_dir: Path) -> None:
        log("append", "START", "w", "t")
        with (isolated_swarm_dir / "status.log").open("ab") as file:
            file.write(b'{"torn\nrubbish\n\n')
        log("append", "DONE", "w", "t")
        done = log("tail", "5")
        assert len(done.stdout.splitlines()) == 2
        assert done.stderr == "Warning: 2 damaged lines were skipped. See: swarm log validate\n"

    def test_rotate_prints_what_it_did(self, log: Run) -> None:
        assert log("rotate").stdout == "Nothing to rotate\n"
        log("append", "START", "w", "t")
        assert json.loads(log("rotate", "--json").stdout) == {"schema_version": 1, "rotated": True}
        assert len(log("tail").stdout.splitlines()) == 1

    def test_follow_prints_cursors_from_which_reading_can_continue(self, log: Run) -> None:
        for number in range(3):
            log("append", "START", "w", f"t{number}")
        with subprocess.Popen(
            [ROOT / "scripts" / "swarm_status_log.sh", "follow", "--since", "0:0", "--cursor"],
            stdout=subprocess.PIPE,
            text=True,
            env=script_environment(),
        ) as follower:
            assert follower.stdout is not None
            cursor = follower.stdout.readline().partition(" ")[0]
            follower.terminate()
        with subprocess.Popen(
            [ROOT / "scripts" / "swarm_status_log.sh", "follow", "--since", cursor, "--task", "t2"],
            stdout=subprocess.PIPE,
            text=True,
            env=script_environment(),
        ) as follower:
            assert follower.stdout is not None
            assert json.loads(follower.stdout.readline())["task_id"] == "t2"
            follower.terminate()


@pytest.mark.parametrize(
    "args",
    [
        [],
        *(
            [name, "--help"]
            for group in main._COMMANDS.values()
            for name in group
            if name not in ("help", "version")
        ),
        *([group, name, "--help"] for group in GROUPS for name in commands_of(group)),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_help_fits_a_terminal_of_any_width(
    args: list[str], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    written: list[str] = []
    with mock.patch.object(output, "out", written.append):
        main.main(args)
    lines = "".join(written).splitlines()
    assert lines[0].startswith("Usage: swarm") and any("xample" in line for line in lines)
    assert max(map(len, lines)) <= columns


def test_help_for_a_wide_terminal_has_longer_and_fewer_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = {}
    for columns in (60, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        shown[columns] = run("run", "--help").out.decode().splitlines()
    assert len(shown[120]) < len(shown[60]) and max(map(len, shown[120])) > 100


def test_help_fits_80_columns_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", mock.Mock(side_effect=OSError))
    widest = max(map(len, run("run", "--help").out.decode().splitlines()))
    assert 70 < widest <= 80


COMMON = (
    "cli cli.arguments cli.main cli.start errors formats formats.json_codec inputs settings "
    "stores stores.default stores.file "
    "stores.file.state_dir stores.file.store stores.file.syscalls system system.clock terminal "
    "terminal.output terminal.text"
)
LOCK = (
    f"{COMMON} cli.lock locks locks.expiry locks.record locks.table stores.busy stores.file.swap "
    "system.process"
)
LOG = (
    f"{COMMON} cli.log status status.log stores.file.line_reader stores.file.log "
    f"stores.file.log_parts stores.file.log_writer"
)
HOT = {
    "lock acquire t w 60": f"{LOCK} stores.file.tokens",
    "lock acquire held w 60": LOCK,
    "lock heartbeat held w": LOCK,
    "lock release held w": LOCK,
    "lock check held": LOCK,
    "lock check t": LOCK,
    "lock list": LOCK,
    "log append START w t": LOG,
    "log tail 3": f"{LOG} stores.file.log_cursor stores.file.log_reader",
}
STANDARD = "__future__ _json _stat errno gc stat"


@pytest.mark.parametrize("command", HOT)
def test_hot_commands_import_only_what_they_use(command: str, isolated_swarm_dir: Path) -> None:
    """Agents call these hundreds of times, and every module costs them a third of a
    millisecond.
    """
    main.main(["lock", "acquire", "held", "w"])  # only once are there directories to make
    main.main(["log", "append", "START", "w", "held"])
    _expect_modules(command, HOT[command], ROOT)


@pytest.mark.parametrize("command", ["lock check t", "log tail 3"])
def test_the_search_for_a_project_imports_only_what_it_uses(command: str, tmp_path: Path) -> None:
    root = project(checkout(tmp_path / "p"))
    git(root, "worktree", "add", "-q", str(tmp_path / "wt"))
    searching = f"{HOT[command]} project project.location"
    _expect_modules(command, searching, root)
    _expect_modules(command, f"{searching} project.worktree", tmp_path / "wt")


def _expect_modules(command: str, modules: str, directory: Path) -> None:
    run = (
        f"from swarm.cli import start; sys.argv[1:] = {command.split()!r}; start._run(); "
        f"print(*set(sys.modules) - before)"
    )
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules); {run}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=30,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    ours = {name for name in loaded if name.startswith("swarm")}
    assert ours == {"swarm", *(f"swarm.{name}" for name in modules.split())}, done.stderr
    assert loaded - ours <= set(STANDARD.split())


def test_a_second_status_imports_none_of_the_slow_modules(isolated_swarm_dir: Path) -> None:
    run = (
        "from swarm.cli import start; sys.argv[1:] = ['status', '--json']; start._run(); "
        "print(); print(*sys.modules)"
    )
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {run}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=30
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "swarm.cli.status" in loaded, done.stderr
    slow = (
        "json re datetime typing dataclasses enum argparse threading ctypes inspect "
        "collections hashlib"
    )
    own = "swarm.status.plain_records swarm.board.text swarm.system.inotify"
    assert loaded & set(f"{slow} {own}".split()) == set()
