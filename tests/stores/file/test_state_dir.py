"""The state directory: what is created and when, with which modes, and errors if it
cannot be used.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm import StatusBroadcaster, TaskLockManager
from swarm.errors import StoreError
from tests.conftest import ROOT, Run, script_environment
from tests.support.disks import Disk, Done, exhaust_inodes, fill, mounted, needs_root
from tests.support.processes import AS_ROOT, NOBODY, identity, shared_python

pytestmark = pytest.mark.usefixtures("isolated_swarm_dir")  # never the machine's own /tmp/ai_swarm


def expect_unusable(done: Done, *words: str) -> None:
    """Expect exit code 3 and one line that says what is wrong."""
    assert "Traceback" not in done.stderr
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def snapshot(path: Path) -> dict[str, bytes | str]:
    """Return every file below a directory with its content, every symlink with its target.

    Counters are left out: an attempt that fails may use up a token.
    """
    found: dict[str, bytes | str] = {}
    for entry in sorted(path.rglob("*")):
        if entry.parent.name == "tokens":
            continue
        if entry.is_symlink():
            found[str(entry.relative_to(path))] = os.readlink(entry)
        elif entry.is_file():
            found[str(entry.relative_to(path))] = entry.read_bytes()
    return found


class TestMissing:
    @pytest.mark.parametrize(
        ("args", "answer"),
        [
            (("check", "t"), "No lock for t\n"),
            (("list",), "No locks\n"),
            (("why", "t"), "No worker holds t: there is no lock.\n"),
        ],
    )
    def test_lock_commands_find_no_locks_without_a_state_directory(
        self, args: tuple[str, ...], answer: str, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        done = lock(*args)
        assert (done.returncode, done.stdout, done.stderr) == (0, answer, "")
        assert not isolated_swarm_dir.exists()

    @pytest.mark.parametrize("args", [("tail",), ("tail", "5"), ("query", "t"), ("validate",)])
    def test_log_commands_find_no_records_without_a_state_directory(
        self, args: tuple[str, ...], log: Run, isolated_swarm_dir: Path
    ) -> None:
        done = log(*args)
        assert (done.returncode, done.stdout) == (0, "")
        assert "Error" not in done.stderr
        assert not isolated_swarm_dir.exists()

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            (("release", "t", "w"), 1),
            (("heartbeat", "t", "w"), 4),
            (("break", "t", "--yes"), 1),
            (("release-all", "w"), 0),
        ],
    )
    def test_releasing_a_missing_lock_creates_no_state_directory(
        self, args: tuple[str, ...], code: int, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        assert lock(*args).returncode == code
        assert not isolated_swarm_dir.exists()

    def test_rotating_a_missing_log_creates_no_state_directory(
        self, log: Run, isolated_swarm_dir: Path
    ) -> None:
        assert log("rotate").stdout == "Nothing to rotate\n"
        assert not isolated_swarm_dir.exists()

    def test_constructing_the_python_classes_creates_the_state_directory(
        self, isolated_swarm_dir: Path
    ) -> None:
        StatusBroadcaster("w")
        assert os.listdir(isolated_swarm_dir) == []
        TaskLockManager("w")
        assert os.listdir(isolated_swarm_dir) == ["locks"]
        assert os.listdir(isolated_swarm_dir / "locks") == []

    def test_importing_creates_nothing_and_the_environment_is_read_at_each_call(
        self, isolated_swarm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        locks = TaskLockManager("w")
        assert locks.acquire_lock("t")
        monkeypatch.setenv("AI_SWARM_DIR", str(tmp_path / "elsewhere"))
        assert not locks.is_locked("t")
        assert not (tmp_path / "elsewhere").exists()
        assert locks.acquire_lock("t")
        assert (tmp_path / "elsewhere" / "locks" / "t.lock").exists()

    def test_a_symlink_that_the_user_chose_as_state_directory_is_used(
        self, lock: Run, log: Run, tmp_path: Path
    ) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        env = script_environment(AI_SWARM_DIR=str(tmp_path / "link"))
        assert log("append", "START", "w", "t", env=env).returncode == 0
        done = lock("acquire", "t", "w", env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert (tmp_path / "real" / "locks" / "t.lock").exists()


class TestModes:
    @pytest.mark.parametrize("umask", [0o022, 0o077, 0o027, 0o000])
    def test_files_and_directories_have_modes_less_the_umask(
        self, umask: int, lock: Run, log: Run, tmp_path: Path
    ) -> None:
        env = script_environment(AI_SWARM_DIR=str(tmp_path / "new" / "deep" / "state"))
        assert lock("acquire", "t", "w", "60", env=env, umask=umask).returncode == 0
        assert lock("heartbeat", "t", "w", env=env, umask=umask).returncode == 0
        assert log("append", "START", "w", "t", env=env, umask=umask).returncode == 0
        assert log("rotate", env=env, umask=umask).returncode == 0
        assert log("append", "DONE", "w", "t", env=env, umask=umask).returncode == 0
        found = {
            path: stat.S_IMODE(path.lstat().st_mode)
            for path in tmp_path.rglob("*")
            if not path.is_symlink()
        }
        wanted = {path: (0o700 if path.is_dir() else 0o600) & ~umask for path in found}
        assert found == wanted
        assert {"new", "deep", "state", "locks", "t.lock", "status.log", "part"} <= {
            path.name for path in found
        }

    def test_files_that_exist_keep_their_modes(
        self, lock: Run, log: Run, isolated_swarm_dir: Path
    ) -> None:
        for path, mode in ((isolated_swarm_dir, 0o755), (isolated_swarm_dir / "locks", 0o777)):
            path.mkdir()
            path.chmod(mode)
        (isolated_swarm_dir / "status.log").touch()
        (isolated_swarm_dir / "status.log").chmod(0o600)
        assert lock("acquire", "t", "w").returncode == 0
        assert log("append", "START", "w", "t").returncode == 0
        TaskLockManager("w")
        StatusBroadcaster("w")
        assert stat.S_IMODE(isolated_swarm_dir.stat().st_mode) == 0o755
        assert stat.S_IMODE((isolated_swarm_dir / "locks").stat().st_mode) == 0o777
        assert stat.S_IMODE((isolated_swarm_dir / "status.log").stat().st_mode) == 0o600


class TestWrongKind:
    """Something else has the path of a file or directory of swarm."""

    WRITING = (
        ("lock", "acquire", "n", "w"),
        ("log", "append", "START", "w", "t"),
    )

    def test_a_file_at_the_path_of_the_state_directory_is_an_error(
        self, lock: Run, log: Run, isolated_swarm_dir: Path
    ) -> None:
        isolated_swarm_dir.write_text("precious")
        for command, *args in (
            *self.WRITING,
            ("lock", "check", "t"),
            ("lock", "list"),
            ("lock", "release", "t", "w"),
            ("log", "tail"),
        ):
            expect_unusable((lock if command == "lock" else log)(*args), str(isolated_swarm_dir))
        for make in (TaskLockManager, StatusBroadcaster):
            with pytest.raises(StoreError, match="not a directory"):
                make("w")
        assert isolated_swarm_dir.read_text() == "precious"

    def test_a_file_above_the_state_directory_is_an_error(self, lock: Run, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("precious")
        env = script_environment(AI_SWARM_DIR=str(tmp_path / "file" / "state"))
        expect_unusable(lock("acquire", "t", "w", env=env), str(tmp_path / "file"))
        assert (tmp_path / "file").read_text() == "precious"

    def test_a_path_that_is_too_long_is_an_error(self, lock: Run) -> None:
        expect_unusable(
            lock("acquire", "t", "w", env=script_environment(AI_SWARM_DIR="/tmp/" + "x" * 300)),
            "shorter path",
        )

    def test_a_file_at_the_path_of_the_locks_is_an_error(
        self, lock: Run, log: Run, isolated_swarm_dir: Path
    ) -> None:
        isolated_swarm_dir.mkdir()
        (isolated_swarm_dir / "locks").write_text("precious")
        for args in (
            ("acquire", "t", "w"),
            ("check", "t"),
            ("list",),
            ("release", "t", "w"),
            ("heartbeat", "t", "w"),
            ("why", "t"),
        ):
            expect_unusable(lock(*args), str(isolated_swarm_dir / "locks"))
        with pytest.raises(StoreError, match="locks"):
            TaskLockManager("w")
        assert (isolated_swarm_dir / "locks").read_text() == "precious"
        assert log("append", "START", "w", "t").returncode == 0, "the log does not need locks/"

    @pytest.mark.parametrize(
        "args",
        [("append", "START", "w", "t"), ("tail",), ("query", "t"), ("validate",), ("rotate",)],
        ids=" ".join,
    )
    def test_a_directory_at_the_path_of_the_log_is_an_error(
        self, args: tuple[str, ...], log: Run, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        (isolated_swarm_dir / "status.log").mkdir(parents=True)
        (isolated_swarm_dir / "status.log" / "precious").touch()
        expect_unusable(log(*args), str(isolated_swarm_dir))
        assert (isolated_swarm_dir / "status.log" / "precious").exists()
        assert lock("acquire", "t", "w").returncode == 0, "locks do not need the log"

    @pytest.mark.parametrize(
        "args",
        [("append", "START", "w", "t"), ("tail",), ("query", "t"), ("validate",)],
        ids=" ".join,
    )
    def test_a_log_that_is_a_fifo_is_an_error_and_does_not_block(
        self, args: tuple[str, ...], log: Run, isolated_swarm_dir: Path
    ) -> None:
        isolated_swarm_dir.mkdir()
        os.mkfifo(isolated_swarm_dir / "status.log")
        try:
            expect_unusable(log(*args, timeout=3), str(isolated_swarm_dir))
        except subprocess.TimeoutExpired:
            pytest.fail("it waits for another process to open the fifo")

    def test_a_lock_that_is_a_directory_cannot_be_used_and_is_not_free(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        (isolated_swarm_dir / "locks" / "t.lock").mkdir(parents=True)
        for args in (
            ("check", "t"),
            ("acquire", "t", "w"),
            ("release", "t", "w"),
            ("heartbeat", "t", "w"),
            ("why", "t"),
        ):
            expect_unusable(lock(*args), "Remove that directory")
        expect_others_listed(lock)
        with pytest.raises(StoreError):
            TaskLockManager("w").is_locked("t")
        assert (isolated_swarm_dir / "locks" / "t.lock").is_dir()

    def test_a_lock_that_is_a_symlink_is_not_followed_and_is_not_free(
        self, lock: Run, isolated_swarm_dir: Path, tmp_path: Path
    ) -> None:
        (isolated_swarm_dir / "locks").mkdir(parents=True)
        target = tmp_path / "precious"
        target.write_text('{"worker": "w", "task_id": "t"}')
        (isolated_swarm_dir / "locks" / "t.lock").symlink_to(target)
        for args in (
            ("check", "t"),
            ("acquire", "t", "w"),
            ("release", "t", "w"),
            ("heartbeat", "t", "w"),
            ("why", "t"),
        ):
            expect_unusable(lock(*args), "symbolic link")
        expect_others_listed(lock)
        assert target.read_text() == '{"worker": "w", "task_id": "t"}'
        assert (isolated_swarm_dir / "locks" / "t.lock").is_symlink()

    def test_a_lock_that_is_a_dangling_symlink_is_not_free(
        self, lock: Run, isolated_swarm_dir: Path, tmp_path: Path
    ) -> None:
        (isolated_swarm_dir / "locks").mkdir(parents=True)
        (isolated_swarm_dir / "locks" / "t.lock").symlink_to(tmp_path / "nowhere")
        expect_unusable(lock("acquire", "t", "w"), "symbolic link")
        assert not (tmp_path / "nowhere").exists()

    def test_a_lock_that_is_a_fifo_counts_as_unreadable(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        """It does not block. It counts as held while it is young, then it can be taken over."""
        (isolated_swarm_dir / "locks").mkdir(parents=True)
        path = isolated_swarm_dir / "locks" / "t.lock"
        os.mkfifo(path)
        assert lock("acquire", "t", "w", timeout=5).returncode == 1
        os.utime(path, (path.stat().st_mtime - 60,) * 2)
        assert "Expired (unreadable)" in lock("check", "t", timeout=5).stdout
        assert lock("acquire", "t", "w", timeout=5).returncode == 0
        assert json.loads(path.read_text())["worker"] == "w"


def expect_others_listed(lock: Run) -> None:
    assert lock("acquire", "a-good-one", "w").returncode == 0
    assert lock("acquire", "z-good-one", "w").returncode == 0
    done = lock("list")
    expect_unusable(done)
    assert "a-good-one: Active" in done.stdout
    assert "z-good-one: Active" in done.stdout
    assert "\nt: Unknown" in done.stdout


class TestRemoved:
    """A user removes files while programs use them."""

    def test_removing_all_locks_frees_the_tasks_and_tokens_continue_to_grow(
        self, isolated_swarm_dir: Path
    ) -> None:
        locks, other = TaskLockManager("w"), TaskLockManager("other")
        tokens = []
        for holder in (locks, other, locks):
            assert holder.acquire_lock("t")
            tokens.append(holder.token("t"))
            shutil.rmtree(isolated_swarm_dir / "locks")
            assert not holder.is_locked("t")
            assert not holder.update_heartbeat("t")
            assert not holder.release_lock("t")
        assert None not in tokens
        assert tokens == sorted(set(tokens), key=lambda token: token or 0)
        assert locks.acquire_lock("another")
        assert locks.release_lock("another")
        assert os.listdir(isolated_swarm_dir / "locks") == []

    def test_removing_locks_between_two_commands_does_not_reset_tokens(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        tokens = []
        for _ in range(3):
            tokens.append(json.loads(lock("acquire", "t", "w", "--json").stdout)["lock"]["token"])
            shutil.rmtree(isolated_swarm_dir / "locks")
        assert tokens == sorted(set(tokens))

    def test_a_lock_manager_survives_the_removal_of_the_state_directory(
        self, isolated_swarm_dir: Path
    ) -> None:
        locks = TaskLockManager("w")
        for _ in range(3):
            assert locks.acquire_lock("t")
            assert locks.update_heartbeat("t")
            shutil.rmtree(isolated_swarm_dir)
            assert not locks.is_locked("t")
            assert not locks.update_heartbeat("t")
            assert locks.acquire_lock("t")
            assert locks.release_lock("t")

    def test_a_broadcaster_survives_the_removal_of_the_state_directory(
        self, isolated_swarm_dir: Path
    ) -> None:
        log = StatusBroadcaster("w")
        for round_ in range(3):
            log.broadcast_start(f"t{round_}")
            shutil.rmtree(isolated_swarm_dir)
            assert log.tail() == []
            log.broadcast_done(f"t{round_}")
            assert [record["state"] for record in log.query(f"t{round_}")] == ["DONE"]

    def test_a_broadcaster_survives_the_removal_of_the_log(self, isolated_swarm_dir: Path) -> None:
        log = StatusBroadcaster("w")
        log.broadcast_start("t")
        (isolated_swarm_dir / "status.log").unlink()
        log.broadcast_done("t")
        assert [record["state"] for record in log.tail()] == ["DONE"]
        assert (isolated_swarm_dir / "status.log").read_bytes().count(b"\n") == 1


class TestPermission:
    """As a user without privileges: permissions do not bind root."""

    @pytest.fixture
    def parent(self) -> Iterator[Path]:
        """A directory that another user can enter. Those of pytest are private."""
        path = Path(tempfile.mkdtemp(prefix="swarm-test-"))
        path.chmod(0o755)
        yield path
        for entry in path.rglob("*"):
            if entry.is_dir() and not entry.is_symlink():
                entry.chmod(0o700)
        shutil.rmtree(path)

    @pytest.fixture
    def state(self, parent: Path) -> Path:
        """A state directory that belongs to the other user."""
        path = parent / "state"
        path.mkdir(mode=0o700)
        give_to_nobody(path)
        return path

    def test_a_state_directory_that_cannot_be_made_is_an_error(self, parent: Path) -> None:
        (parent / "closed").mkdir()
        (parent / "closed").chmod(0o555)
        for args in (("lock", "acquire", "t", "w"), ("log", "append", "START", "w", "t")):
            expect_unusable(
                as_nobody(parent / "closed" / "deep" / "state", *args),
                str(parent / "closed"),
                "SWARM_STATE_DIR",
            )
        done = as_nobody(parent / "closed" / "state", "lock", "check", "t")
        assert (done.returncode, done.stdout) == (0, "No lock for t\n"), (
            "the directory does not exist, and swarm can see that"
        )
        assert os.listdir(parent / "closed") == []

    def test_a_state_directory_without_write_permission_can_still_be_read(
        self, state: Path
    ) -> None:
        as_nobody(state, "lock", "acquire", "t", "w", "60")
        as_nobody(state, "log", "append", "START", "w", "t")
        before = snapshot(state)
        for path in (state, *(path for path in state.rglob("*") if path.is_dir())):
            path.chmod(0o555)
        (state / "status.log").chmod(0o444)
        for args in (
            ("acquire", "n", "w"),
            ("heartbeat", "t", "w"),
            ("release", "t", "w"),
            ("break", "t", "--yes"),
            ("release-all", "w"),
        ):
            expect_unusable(as_nobody(state, "lock", *args), "owner and mode")
        expect_unusable(as_nobody(state, "log", "append", "DONE", "w", "t"), "owner and mode")
        assert snapshot(state) == before
        assert "Active" in as_nobody(state, "lock", "check", "t").stdout
        assert as_nobody(state, "log", "tail").stdout.encode() == before["status.log"]

    def test_a_state_directory_that_may_not_be_entered_is_not_empty(self, state: Path) -> None:
        as_nobody(state, "lock", "acquire", "t", "w")
        as_nobody(state, "log", "append", "START", "w", "t")
        state.chmod(0o000)
        for args in (
            ("check", "t"),
            ("list",),
            ("why", "t"),
            ("acquire", "t", "v"),
            ("release", "t", "w"),
            ("heartbeat", "t", "w"),
        ):
            expect_unusable(as_nobody(state, "lock", *args))
        for args in (("tail",), ("query", "t"), ("validate",)):
            done = as_nobody(state, "log", *args)
            expect_unusable(done)
            assert done.stdout == ""

    @pytest.mark.parametrize(
        "args",
        [
            ("check", "t"),
            ("acquire", "t", "v"),
            ("release", "t", "w"),
            ("heartbeat", "t", "w"),
            ("why", "t"),
        ],
    )
    def test_a_lock_that_may_not_be_read_is_not_free(
        self, args: tuple[str, ...], state: Path
    ) -> None:
        as_nobody(state, "lock", "acquire", "t", "w")
        (state / "locks" / "t.lock").chmod(0o000)
        before = snapshot(state)["locks/t.lock"] if AS_ROOT else b""
        done = as_nobody(state, "lock", *args)
        expect_unusable(done, "t.lock")
        assert done.stdout == ""
        if AS_ROOT:
            assert snapshot(state)["locks/t.lock"] == before

    def test_the_locks_beside_one_that_may_not_be_read_are_listed(self, state: Path) -> None:
        for task in ("a", "t", "z"):
            as_nobody(state, "lock", "acquire", task, "w")
        (state / "locks" / "t.lock").chmod(0o000)
        done = as_nobody(state, "lock", "list")
        expect_unusable(done, "t.lock")
        assert [line.partition(" (")[0] for line in done.stdout.splitlines()] == [
            "a: Active",
            "t: Unknown",
            "z: Active",
        ]
        answer = json.loads(as_nobody(state, "lock", "list", "--json").stdout.splitlines()[0])
        assert [(row["task_id"], row["locked"]) for row in answer["locks"]] == [
            ("a", True),
            ("t", None),
            ("z", True),
        ]

    def test_list_with_json_is_one_object_also_when_a_lock_may_not_be_read(
        self, state: Path
    ) -> None:
        as_nobody(state, "lock", "acquire", "t", "w")
        (state / "locks" / "t.lock").chmod(0o000)
        done = as_nobody(state, "lock", "list", "--json")
        assert done.returncode == 3
        assert json.loads(done.stdout)["schema_version"] == 1

    def test_python_raises_for_a_lock_that_may_not_be_read(self, state: Path) -> None:
        as_nobody(state, "lock", "acquire", "t", "w")
        (state / "locks" / "t.lock").chmod(0o000)
        program = (
            "from swarm import TaskLockManager\n"
            "from swarm.errors import StoreError\n"
            "w = TaskLockManager('w')\n"
            "for call in (w.is_locked, w.get_lock_info, w.acquire_lock, w.release_lock, "
            "w.update_heartbeat):\n"
            "    try:\n"
            "        print(call.__name__, call('t'))\n"
            "    except StoreError:\n"
            "        print('StoreError')\n"
        )
        done = as_nobody_python(state, program)
        assert done.stderr == ""
        assert done.stdout.split("\n") == ["StoreError"] * 5 + [""]

    @pytest.mark.parametrize("args", [("tail", "5"), ("query", "t"), ("validate",)], ids=" ".join)
    def test_a_part_of_the_log_that_may_not_be_read_is_not_missing(
        self, args: tuple[str, ...], state: Path
    ) -> None:
        as_nobody(state, "log", "append", "START", "w", "t")
        as_nobody(state, "log", "rotate")
        as_nobody(state, "log", "append", "DONE", "w", "t")
        (part,) = (state / ".status").glob("[0-9]*")
        part.chmod(0o000)
        expect_unusable(as_nobody(state, "log", *args))


@needs_root
class TestMounts:
    """In a mount namespace and on a filesystem that only the test uses."""

    def test_a_read_only_filesystem_can_be_read_and_refuses_changes(self, tmp_path: Path) -> None:
        with mounted(tmp_path / "disk", "mode=755") as disk:
            disk.run("lock", "acquire", "t", "w", "60")
            disk.run("log", "append", "START", "w", "t")
            before = snapshot(disk.seen / "state")
            disk.inside("mount", "-o", "remount,ro", str(disk.path))
            for args in (
                ("acquire", "n", "w"),
                ("heartbeat", "t", "w"),
                ("release", "t", "w"),
                ("break", "t", "--yes"),
            ):
                expect_unusable(disk.run("lock", *args), "ead-only")
            expect_unusable(disk.run("log", "append", "DONE", "w", "t"), "ead-only")
            expect_unusable(disk.run("log", "rotate"), "ead-only")
            assert snapshot(disk.seen / "state") == before
            assert disk.run("lock", "check", "t").stdout.startswith("t: Active\n")
            assert disk.run("lock", "list").stdout.startswith("t: Active (worker: w, ")
            assert disk.run("lock", "why", "t").returncode == 0
            assert disk.run("log", "tail").stdout.encode() == before["status.log"]
            assert disk.run("log", "query", "t").stdout.encode() == before["status.log"]
            assert disk.run("log", "validate").returncode == 0

    def test_a_read_only_filesystem_without_state(self, tmp_path: Path) -> None:
        with mounted(tmp_path / "disk", "mode=755,ro") as disk:
            expect_unusable(disk.run("lock", "acquire", "n", "w"), "ead-only")
            expect_unusable(disk.run("log", "append", "START", "w", "t"), "ead-only")
            assert disk.run("lock", "list").stdout == "No locks\n"

    def test_a_full_disk_damages_nothing_and_work_continues_afterwards(
        self, tmp_path: Path
    ) -> None:
        with mounted(tmp_path / "disk", "size=256k") as disk:
            disk.run("lock", "acquire", "t", "w", "60")
            disk.run("log", "append", "START", "w", "t", "before")
            state = disk.seen / "state"
            before = snapshot(state)
            fill(disk.seen / "ballast")

            expect_unusable(disk.run("lock", "acquire", "n", "w"), "Free some space")
            expect_unusable(disk.run("lock", "heartbeat", "t", "w"), "Free some space")
            expect_unusable(
                disk.run("log", "append", "WAIT", "w", "t", "x" * 9000), "Free some space"
            )
            expect_unusable(
                disk.run("log", "append", "WAIT", "w", "t", "y" * 9000), "Free some space"
            )
            assert snapshot(state)["locks/t.lock"] == before["locks/t.lock"]
            assert os.listdir(state / "locks") == ["t.lock"]
            logged, after = before["status.log"], snapshot(state)["status.log"]
            assert isinstance(logged, bytes)
            assert isinstance(after, bytes)
            assert after.startswith(logged)
            assert os.listdir(state / ".locks" / "scratch") == []
            assert disk.run("lock", "check", "t").stdout.startswith("t: Active\n")
            assert disk.run("log", "tail").stdout.encode() == logged

            (disk.seen / "ballast").unlink()
            assert disk.run("lock", "heartbeat", "t", "w").returncode == 0
            assert disk.run("lock", "acquire", "n", "w").returncode == 0
            assert disk.run("log", "append", "DONE", "w", "t", "after").returncode == 0
            assert [
                json.loads(line)["reason"] for line in disk.run("log", "tail").stdout.splitlines()
            ] == ["before", "after"]
            after_torn = [
                line
                for line in (state / "status.log").read_bytes().splitlines()
                if b'"after"' in line
            ]
            assert [line[:1] + line[-1:] for line in after_torn] == [b"{}"], (
                "the line is there once, on a line of its own"
            )
            assert all(b"xxx" not in line and b"yyy" not in line for line in after_torn)
            assert disk.run("lock", "release", "t", "w").returncode == 0
            assert disk.run("lock", "release", "n", "w").returncode == 0
            assert os.listdir(state / ".locks" / "intents") == []

    def test_an_expired_lock_can_be_taken_over_after_a_full_disk(self, tmp_path: Path) -> None:
        with mounted(tmp_path / "disk", "size=256k") as disk:
            disk.run("lock", "acquire", "t", "w", "60")
            path = disk.seen / "state" / "locks" / "t.lock"
            path.write_text(
                '{"task_id": "t", "worker": "w", "acquired_at": "2026-02-02T10:30:00Z", "ttl": 1}'
            )
            before = path.read_bytes()
            fill(disk.seen / "ballast")
            expect_unusable(disk.run("lock", "acquire", "t", "v", "60"), "Free some space")
            assert path.read_bytes() == before
            (disk.seen / "ballast").unlink()
            assert disk.run("lock", "acquire", "t", "v", "60").returncode == 0
            assert json.loads(path.read_text())["worker"] == "v"

    def test_a_disk_without_inodes_damages_nothing_and_work_continues_afterwards(
        self, tmp_path: Path
    ) -> None:
        with mounted(tmp_path / "disk", "nr_inodes=100") as disk:
            disk.run("lock", "acquire", "t", "w", "60")
            disk.run("log", "append", "START", "w", "t", "before")
            state = disk.seen / "state"
            before = snapshot(state)
            exhaust_inodes(disk.seen / "ballast")

            for args in (
                ("acquire", "n", "w"),
                ("heartbeat", "t", "w"),
                ("release", "t", "w"),
                ("break", "t", "--yes"),
            ):
                expect_unusable(disk.run("lock", *args), "Free some space")
            expect_unusable(disk.run("log", "rotate"), "Free some space")
            assert {**snapshot(state), **before} == snapshot(state), "no file was changed"
            assert os.listdir(state / "locks") == ["t.lock"]

            shutil.rmtree(disk.seen / "ballast")
            for args in (
                ("heartbeat", "t", "w"),
                ("release", "t", "w"),
                ("acquire", "n", "w"),
                ("acquire", "t", "v"),
            ):
                assert disk.run("lock", *args).returncode == 0
            assert disk.run("log", "append", "DONE", "w", "t", "after").returncode == 0
            assert [
                json.loads(line)["reason"] for line in disk.run("log", "tail").stdout.splitlines()
            ] == ["before", "after"]

    def test_python_raises_on_a_full_disk(self, tmp_path: Path) -> None:
        program = (
            "from swarm import StatusBroadcaster, TaskLockManager\n"
            "from swarm.errors import StoreError\n"
            "locks, log = TaskLockManager, StatusBroadcaster\n"
            "for call in (lambda: locks('w').acquire_lock('t'), lambda: "
            "log('w').broadcast_start('t', 'x' * 9000)):\n"
            "    try:\n"
            "        print(call())\n"
            "    except StoreError as error:\n"
            "        print('Free some space' in str(error))\n"
        )
        with mounted(tmp_path / "disk", "size=64k") as disk:
            fill(disk.seen / "ballast")
            done = disk.inside(sys.executable, "-c", program, env=disk.environment, cwd=ROOT)
            assert (done.stdout, done.stderr) == ("True\nTrue\n", "")


@needs_root
class TestDefaultPath:
    """/tmp/ai_swarm, on a /tmp that only the test uses."""

    @pytest.fixture
    def machine(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
        with mounted(Path("/tmp"), "mode=1777", also=f"mount --bind '{ROOT}' /mnt &&") as disk:
            disk.environment = {
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "SWARM_PYTHON": shared_python(),
            }
            disk.scripts = Path("/mnt/scripts")
            yield disk

    COMMANDS = (
        ("lock", "acquire", "t", "w"),
        ("lock", "check", "t"),
        ("lock", "list"),
        ("lock", "release", "t", "w"),
        ("log", "append", "START", "w", "t"),
        ("log", "tail"),
    )

    def test_the_default_state_directory_is_made_and_used(self, machine: Disk) -> None:
        for _ in range(2):
            assert machine.run("lock", "acquire", "t", "w").returncode == 0
            assert machine.run("log", "append", "START", "w", "t").returncode == 0
            assert machine.run("lock", "release", "t", "w").returncode == 0
        assert stat.S_IMODE((machine.seen / "ai_swarm").stat().st_mode) == 0o700

    def test_a_default_state_directory_that_is_a_symlink_is_refused(self, machine: Disk) -> None:
        (machine.seen / "mine").mkdir()
        (machine.seen / "ai_swarm").symlink_to("/tmp/mine")
        for args in self.COMMANDS:
            expect_unusable(machine.run(*args), "/tmp/ai_swarm", "symbolic link", "SWARM_STATE_DIR")
        assert os.listdir(machine.seen / "mine") == []

    def test_a_default_state_directory_that_is_a_dangling_symlink_is_refused(
        self, machine: Disk
    ) -> None:
        (machine.seen / "ai_swarm").symlink_to("/tmp/trap")
        for args in self.COMMANDS:
            expect_unusable(machine.run(*args), "/tmp/ai_swarm", "symbolic link")
        assert os.listdir(machine.seen) == ["ai_swarm"]

    def test_a_default_state_directory_of_another_user_is_refused_for_root(
        self, machine: Disk
    ) -> None:
        (machine.seen / "ai_swarm").mkdir()
        os.chown(machine.seen / "ai_swarm", NOBODY, NOBODY)
        for args in self.COMMANDS:
            expect_unusable(machine.run(*args), "/tmp/ai_swarm", "another user", "SWARM_STATE_DIR")
        assert os.listdir(machine.seen / "ai_swarm") == []

    def test_a_default_state_directory_of_root_is_refused_for_others(self, machine: Disk) -> None:
        (machine.seen / "ai_swarm").mkdir()
        (machine.seen / "ai_swarm").chmod(0o777)
        machine.prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        for args in self.COMMANDS:
            expect_unusable(machine.run(*args), "/tmp/ai_swarm", "another user")
        assert os.listdir(machine.seen / "ai_swarm") == []

    def test_the_python_classes_refuse_a_symlink_as_default_state_directory(
        self, machine: Disk
    ) -> None:
        (machine.seen / "mine").mkdir()
        (machine.seen / "ai_swarm").symlink_to("/tmp/mine")
        program = (
            "import sys\n"
            "sys.path.insert(0, '/mnt')\n"
            "from swarm import StatusBroadcaster, TaskLockManager\n"
            "from swarm.errors import StoreError\n"
            "for make in (TaskLockManager, StatusBroadcaster):\n"
            "    try:\n"
            "        print(make('w'))\n"
            "    except StoreError as error:\n"
            "        print('symbolic link' in str(error))\n"
        )
        done = machine.inside(shared_python(), "-I", "-c", program, env=machine.environment)
        assert (done.stdout, done.stderr) == ("True\nTrue\n", "")
        assert os.listdir(machine.seen / "mine") == []

    def test_a_path_that_the_user_chose_is_trusted(self, machine: Disk) -> None:
        (machine.seen / "shared").mkdir()
        (machine.seen / "shared").chmod(0o777)
        (machine.seen / "link").symlink_to("/tmp/shared")
        machine.environment["SWARM_STATE_DIR"] = "/tmp/link"
        machine.prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        assert machine.run("lock", "acquire", "t", "w").returncode == 0
        assert (machine.seen / "shared" / "locks" / "t.lock").exists()

    def test_the_default_state_directory_is_checked_where_a_variable_names_it(
        self, machine: Disk
    ) -> None:
        """swarm names it so in the environment of every agent."""
        (machine.seen / "mine").mkdir()
        (machine.seen / "ai_swarm").symlink_to("/tmp/mine")
        machine.environment["SWARM_STATE_DIR"] = "/tmp/ai_swarm"
        for args in self.COMMANDS:
            expect_unusable(machine.run(*args), "/tmp/ai_swarm", "symbolic link")
        assert os.listdir(machine.seen / "mine") == []

    @pytest.mark.parametrize("mode", [0o720, 0o702, 0o1777])
    def test_a_default_state_directory_that_others_may_write_to_is_refused(
        self, mode: int, machine: Disk
    ) -> None:
        (machine.seen / "ai_swarm").mkdir()
        (machine.seen / "ai_swarm").chmod(mode)
        for args in self.COMMANDS:
            expect_unusable(machine.run(*args), "/tmp/ai_swarm", "chmod go-w")
        assert os.listdir(machine.seen / "ai_swarm") == []
        assert stat.S_IMODE((machine.seen / "ai_swarm").stat().st_mode) == mode


def give_to_nobody(path: Path) -> None:
    if AS_ROOT:
        os.chown(path, NOBODY, NOBODY)


def as_nobody(state: Path, command: str, *args: str) -> Done:
    """Run a script as a user without privileges: as another user if we are root."""
    script = ROOT / "scripts" / ("swarm_lock.sh" if command == "lock" else "swarm_status_log.sh")
    return unprivileged([str(script), *args], state)


def as_nobody_python(state: Path, program: str) -> Done:
    return unprivileged(
        [shared_python(), "-I", "-c", f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{program}"],
        state,
    )


def unprivileged(command: list[str], state: Path) -> Done:
    env = script_environment(AI_SWARM_DIR=str(state), SWARM_PYTHON=shared_python())
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30, env=env, cwd="/", **identity()
    )
