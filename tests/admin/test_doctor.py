"""`swarm doctor` in good and broken state directories: what it finds, and that it
changes nothing and does not hang.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm import settings
from swarm.admin import cleaner_check, doctor, machine_checks, state_dir_check
from swarm.admin.doctor import FAULT, OK, WARNING, Check, examine
from swarm.admin.server_checks import reach_command
from swarm.admin.state_dir_check import checked_directories, filesystem_of
from swarm.locks.reservations import Reservations
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.address import Address
from swarm.stores.file.layout import INTENTS, SCRATCH, scratch_directories
from swarm.stores.file.store import FileStore
from swarm.system import process
from swarm.system.clock import to_iso
from swarm.system.inotify import InotifyPool
from swarm.workers.worker import SmartWorker
from tests.conftest import ROOT
from tests.support.command_line import run
from tests.support.disks import exhaust_inodes, fill, mounted, needs_root
from tests.support.lock_files import HOLDER


@pytest.fixture(autouse=True)
def no_cleaners(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state directories of tests are in /tmp, which is a warning."""
    monkeypatch.setattr(cleaner_check, "TEMPORARY_DIRECTORIES", ())
    monkeypatch.setattr(cleaner_check, "RULE_DIRECTORIES", ())
    monkeypatch.setattr(cleaner_check, "filesystem_of", lambda path: "ext4")


@pytest.fixture
def home(isolated_swarm_dir: Path) -> Path:
    """A state directory with a lock, a record and a task in it, where nothing is wrong."""
    store = FileStore(str(isolated_swarm_dir))
    LockTable(store).acquire("mine", "w", 300)
    StatusLog(store).append("START", "w", "mine")
    TaskQueue(store).add("todo", "x")
    store.close()
    return isolated_swarm_dir


def found(name: str, state: str = "") -> list[Check]:
    return [
        check for check in examine() if check.name == name and (not state or check.state == state)
    ]


def the(name: str) -> Check:
    (check,) = found(name)
    return check


def everything(path: Path) -> list[str]:
    return sorted(str(one) for one in path.rglob("*"))


class TestGoodStateDirectory:
    def test_doctor_finds_nothing_and_changes_nothing_in_a_good_state_directory(
        self, home: Path
    ) -> None:
        before = everything(home)
        checks = examine()
        assert {check.state for check in checks} == {OK}
        assert everything(home) == before
        names = [
            "python",
            "environment",
            "clock",
            "permissions",
            "filesystem",
            "free space",
            "log",
            "queue",
            "locks",
            "leftovers",
        ]
        assert set(names) < {check.name for check in checks}
        answer = run("doctor")
        assert answer.code == 0 and answer.out.endswith(b"No faults found.\n")

    def test_doctor_does_not_create_a_missing_state_directory(
        self, isolated_swarm_dir: Path
    ) -> None:
        before = everything(isolated_swarm_dir.parent)
        assert run("doctor").code == 0
        assert "does not exist yet" in the("state directory").text
        assert everything(isolated_swarm_dir.parent) == before

    def test_a_state_directory_that_cannot_be_created_is_a_fault(
        self, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        assert the("permissions").state == FAULT

    def test_doctor_prints_one_object_as_json(self, home: Path) -> None:
        answer = run("doctor", "--json").json
        assert (answer["ok"], answer["faults"], answer["warnings"]) == (True, 0, 0)
        assert list(answer["checks"][0]) == ["name", "state", "text", "fix"]


class TestDirectory:
    @pytest.mark.parametrize(("mode", "who"), [(0o770, "its group"), (0o777, "all users")])
    def test_a_state_directory_that_other_users_may_write_to_is_a_warning(
        self, home: Path, mode: int, who: str
    ) -> None:
        home.chmod(mode)
        check = the("state directory")
        assert check.state == WARNING and who in check.text and check.fix == f"chmod go-w '{home}'"
        assert run("doctor").code == 0  # a warning is none to fail for

    def test_a_file_in_place_of_the_state_directory_is_a_fault(
        self, isolated_swarm_dir: Path
    ) -> None:
        isolated_swarm_dir.write_text("x")
        answer = run("doctor")
        assert (
            answer.code == 1
            and b"fault    state directory" in answer.out
            and b"1 fault" in answer.err
        )

    def test_a_state_directory_that_is_a_dangling_link_is_a_fault(
        self, isolated_swarm_dir: Path
    ) -> None:
        isolated_swarm_dir.symlink_to("nowhere")
        assert the("state directory").fix == f"rm '{isolated_swarm_dir}'"

    def test_a_pipe_in_the_path_of_the_state_directory_is_a_fault(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        os.mkfifo(tmp_path / "pipe")
        monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path / "pipe" / "state"))
        assert the("state directory").state == FAULT

    def test_the_default_state_directory_is_refused_if_it_is_a_link(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "default").symlink_to("real")
        monkeypatch.setattr(settings, "DEFAULT_STATE_DIR", str(tmp_path / "default"))
        check = the("state directory")
        assert (
            check.state == FAULT
            and "symbolic link" in check.text
            and check.fix.startswith("export SWARM_STATE_DIR=")
        )

    def test_the_default_state_directory_is_refused_if_it_is_another_users(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "default").mkdir()
        monkeypatch.setattr(settings, "DEFAULT_STATE_DIR", str(tmp_path / "default"))
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        assert "belongs to" in the("state directory").text and the("state directory").state == FAULT

    @pytest.mark.parametrize(("mode", "who"), [(0o750, "its group"), (0o755, "all users")])
    def test_a_state_directory_that_other_users_may_look_into_is_a_warning(
        self, home: Path, mode: int, who: str
    ) -> None:
        home.chmod(mode)
        check = the("state directory")
        assert check.state == WARNING and who in check.text
        subprocess.run(check.fix, shell=True, check=True)
        assert the("state directory").state == OK

    def test_a_default_state_directory_that_other_users_may_write_to_is_a_fault(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "default").mkdir()
        (tmp_path / "default").chmod(0o777)
        monkeypatch.setattr(settings, "DEFAULT_STATE_DIR", str(tmp_path / "default"))
        check = the("state directory")
        assert check.state == FAULT and check.fix.startswith("chmod go-w ")

    def test_files_that_other_users_may_read_are_a_warning(self, home: Path) -> None:
        assert the("modes").state == OK
        (home / "status.log").chmod(0o644)
        (home / "locks" / "mine.lock").chmod(0o620)
        check = the("modes")
        assert check.state == WARNING and "2 files" in check.text
        subprocess.run(check.fix, shell=True, check=True)
        assert the("modes").state == OK


class TestCleaning:
    """The system removes files in /tmp, or all of them at a restart."""

    def test_locks_and_a_queue_in_a_temporary_directory_are_a_warning(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert the("cleaning").state == OK
        monkeypatch.setattr(cleaner_check, "TEMPORARY_DIRECTORIES", (str(home.parent),))
        check = the("cleaning")
        assert check.state == WARNING and "SWARM_STATE_DIR" in check.fix

    def test_an_empty_state_directory_in_a_temporary_directory_is_no_finding(
        self, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            cleaner_check, "TEMPORARY_DIRECTORIES", (str(isolated_swarm_dir.parent),)
        )
        isolated_swarm_dir.mkdir(mode=0o700)
        (isolated_swarm_dir / "locks").mkdir(mode=0o700)
        assert found("cleaning") == []

    def test_locks_and_a_queue_in_memory_are_a_warning(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cleaner_check, "filesystem_of", lambda path: "tmpfs")
        assert the("cleaning").state == WARNING and "restart" in the("cleaning").text

    @pytest.mark.parametrize(
        ("lines", "age"),
        [
            ("q /tmp 1777 root root 10d\n", "10d"),
            ("D! /tmp/ 1777 root root 30d -\n", "30d"),
            ("# q /tmp 1777 root root 10d\n\nq /tmp 1777 root root -\nq /tmp\nbroken\n", ""),
            ("q /tmp 1777 root root 10d\nd /tmp/ours 0700 - - -\n", ""),
            ("q /tmp 1777 root root 10d\nx /tmp/our*\n", ""),
            ("q /tmpfiles 1777 root root 10d\nr /tmp 0 0 0 1d\n", ""),
            ('q "/tmp" 1777 root root 5d\n', "5d"),
        ],
    )
    def test_a_rule_that_removes_old_files_is_found(
        self, lines: str, age: str, tmp_path: Path
    ) -> None:
        (tmp_path / "tmp.conf").write_text(lines)
        rules = cleaner_check._rules([str(tmp_path / "missing"), str(tmp_path)])
        rule = cleaner_check.aging_rule("/tmp/ours/state", rules)
        assert (rule.age if rule else "") == age

    def test_a_file_of_rules_hides_one_of_the_same_name_in_a_later_directory(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folders = [tmp_path / "etc", tmp_path / "usr"]
        monkeypatch.setattr(cleaner_check, "RULE_DIRECTORIES", tuple(map(str, folders)))
        for folder in folders:
            folder.mkdir()
        (folders[1] / "tmp.conf").write_text(f"q {home.parent} 1777 root root 10d\n")
        check = the("cleaning")
        assert check.state == WARNING and "10d" in check.text and str(folders[1]) in check.text
        (folders[0] / "tmp.conf").write_text("")
        assert the("cleaning").state == OK


class TestFilesystem:
    @pytest.mark.parametrize(
        ("call", "number", "said"),
        [
            ("link", errno.EPERM, "making a hard link does not work"),
            ("symlink", errno.EPERM, "making a symbolic link does not work"),
            ("rename", errno.EXDEV, "renaming a file does not work"),
        ],
    )
    def test_a_system_call_that_locks_need_and_that_fails_is_a_fault(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, said: str
    ) -> None:
        def refuse(*args: object, **options: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, call, refuse)
        faults = found("permissions", FAULT)
        assert any(said in check.text for check in faults)
        assert not list(home.glob(".doctor-*"))

    @pytest.mark.parametrize(
        "place", ["status.log", ".tasks/tasks.log", "locks", ".locks", ".tasks"]
    )
    def test_a_path_that_we_may_not_write_to_is_a_fault(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        """As after one `sudo swarm`; the root that runs the tests may write everywhere."""
        access = os.access
        monkeypatch.setattr(
            os, "access", lambda path, mode: str(path) != f"{home}/{place}" and access(path, mode)
        )
        (check,) = found("permissions", FAULT)
        assert (
            check.text == f"{home}/{place} may not be written to"
            and f"chown -R $(id -un) '{home}/{place}'" in check.fix
        )

    def test_results_that_are_not_a_directory_are_a_fault(self, home: Path) -> None:
        (home / "results").write_text("")
        (check,) = found("permissions", FAULT)
        assert check.text == f"{home}/results is not a directory"
        subprocess.run(check.fix, shell=True, check=True)
        assert the("permissions").state == OK

    def test_hard_links_that_replace_files_are_a_fault(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "link", lambda source, target, **_: None)
        assert any(
            "hard link replaces an existing file" in check.text
            for check in found("permissions", FAULT)
        )

    @pytest.mark.parametrize(
        ("path", "kind"),
        [
            ("/", "ext4"),
            ("/home/ada", "nfs4"),
            ("/homes", "ext4"),
            ("/home/with space/x", "fuse.sshfs"),
            ("/mnt", "overlay"),
        ],
    )
    def test_the_filesystem_of_a_path_is_that_of_the_deepest_mount(
        self, tmp_path: Path, path: str, kind: str
    ) -> None:
        mounts = tmp_path / "mountinfo"
        mounts.write_text(
            "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
            "28 27 0:1 / /home rw shared:1 master:2 - nfs4 server:/home rw\n"
            "29 27 0:2 / /home/with\\040space rw - fuse.sshfs x rw\n"
            "broken line\n"
            "30 27 0:3 / /mnt rw - tmpfs x rw\n"
            "31 30 0:4 / /mnt rw - overlay x rw\n"
        )
        assert filesystem_of(path, str(mounts)) == kind

    @pytest.mark.parametrize(
        ("kind", "state"),
        [
            ("nfs4", WARNING),
            ("cifs", WARNING),
            ("fuse.sshfs", WARNING),
            ("9p", WARNING),
            ("overlay", OK),
            ("ext4", OK),
            ("", OK),
        ],
    )
    def test_a_filesystem_that_machines_share_is_a_warning(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, kind: str, state: str
    ) -> None:
        monkeypatch.setattr(state_dir_check, "filesystem_of", lambda path: kind)
        assert the("filesystem").state == state
        assert kind in the("filesystem").text

    @pytest.mark.parametrize(
        ("free", "inodes", "state"),
        [(10**6, 10**6, FAULT), (10**8, 10**6, WARNING), (10**12, 3, FAULT)],
    )
    def test_little_free_space_is_a_warning_or_a_fault(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, free: int, inodes: int, state: str
    ) -> None:
        fake = SimpleNamespace(f_bavail=free, f_frsize=1, f_favail=inodes, f_files=10**6)
        monkeypatch.setattr(os, "statvfs", lambda path: fake)
        assert the("free space").state == state


@needs_root
@pytest.mark.parametrize("full", ["bytes", "inodes"])
def test_a_full_disk_is_a_fault(tmp_path: Path, full: str) -> None:
    with mounted(tmp_path / "disk", "size=1m,nr_inodes=300") as disk:
        disk.run("lock", "acquire", "t", "w")
        if full == "bytes":
            fill(disk.seen / "ballast")
        else:
            exhaust_inodes(disk.seen / "many")
        env = {**disk.environment, "PYTHONPATH": str(ROOT)}
        answer = disk.inside(sys.executable, "-m", "swarm", "doctor", env=env)
        assert answer.returncode == 1 and "Traceback" not in answer.stderr
        assert (
            "fault    permissions" in answer.stdout and "No space left on device" in answer.stdout
        )
        assert "fault    free space" in answer.stdout
        assert not list((disk.seen / "state").glob(".doctor-*"))


class TestDirectories:
    """One table names every directory of a state directory, for all checks."""

    @pytest.fixture
    def used(self, home: Path) -> Path:
        """A state directory in which every feature was used that makes directories."""
        store = FileStore(str(home))
        Reservations(store).reserve("src", "w", ttl=60)
        store.rotate("status")
        store.cache_put("status", b"x")
        store.create("future/record", b"x")  # a namespace that a later version may add
        store.next_token("future/record")
        queue = TaskQueue(store)
        queue.add("run", command="echo x", priority=9)
        SmartWorker("w", store=store).work_on(queue.claim("w"))
        store.close()
        return home

    def test_the_table_has_every_directory_on_disk(self, used: Path) -> None:
        # of a rotated log: parts, which are only read, and the number of the last part
        part = re.compile(r"\.(status|tasks)/([0-9]{10}-[0-9a-f]{8}|\.[0-9]{10})")
        on_disk = [str(path.relative_to(used)) for path in used.rglob("*") if path.is_dir()]
        made = {
            path
            for path in on_disk
            if not part.fullmatch(path) and os.path.dirname(path) not in scratch_parents(used)
        }
        assert {"locks", "paths", "future", ".status", ".tasks", ".cache", "results"} < made
        assert made <= set(checked_directories(str(used)))

    def test_every_directory_on_disk_is_checked_for_write_permission(
        self, used: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        access = os.access
        for name in checked_directories(str(used)):
            if (used / name).is_dir():
                with monkeypatch.context() as patch:
                    patch.setattr(
                        os,
                        "access",
                        lambda path, mode, name=name: (
                            str(path) != f"{used}/{name}" and access(path, mode)
                        ),
                    )
                    assert [check.text for check in found("permissions", FAULT)] == [
                        f"{used}/{name} may not be written to"
                    ]

    @pytest.mark.parametrize("namespace", ["locks", "paths", "future"])
    def test_leftovers_of_every_namespace_are_counted(self, used: Path, namespace: str) -> None:
        assert "left nothing" in the("leftovers").text
        old = used / f".{namespace}" / SCRATCH / "s0000000000000001"
        old.mkdir()
        os.utime(old, (1, 1))
        intent = used / f".{namespace}" / INTENTS / "t~s0000000000000001~0"
        intent.touch()
        os.utime(intent, (1, 1))
        assert "2 leftovers" in the("leftovers").text

    def test_an_unfinished_cache_entry_is_a_leftover(self, used: Path) -> None:
        draft = used / ".cache" / "status.draft"
        draft.touch()
        os.utime(draft, (1, 1))
        assert "1 leftover " in the("leftovers").text


def scratch_parents(home: Path) -> set[str]:
    return {os.path.relpath(path, home) for path in scratch_directories(str(home))}


class TestEnvironment:
    def test_two_variables_that_name_different_state_directories_are_a_fault(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path / "other"))
        assert the("state directory").fix == "unset AI_SWARM_DIR"
        assert run("doctor").code == 1

    @pytest.mark.parametrize("name", ["AI_SWARM_LOCK_TTL", "SWARM_LOG_MAX_BYTES"])
    def test_an_invalid_variable_is_a_fault(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv(name, "soon")
        assert [(check.state, check.fix) for check in found("environment")] == [
            (FAULT, f"unset {name}")
        ]
        assert found("locks") and found("log")  # the rest is looked at all the same

    def test_a_system_without_a_boot_id_is_a_warning(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process, "boot_id", lambda: "")
        assert the("clock").state == WARNING

    def test_a_clock_that_is_surely_wrong_is_a_fault(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(time, "time", lambda: 86400.0)
        assert the("clock").state == FAULT

    @pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
    def test_too_few_inotify_instances_for_those_who_wait_are_a_warning(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with InotifyPool() as pool, pool.watch(str(tmp_path)):
            monkeypatch.setattr(machine_checks, "_BUSY_SHARE", 100.0)
            assert the("waiting").state == OK
            monkeypatch.setattr(machine_checks, "_BUSY_SHARE", 0.001)  # the one here is too many
            assert the("waiting").state == WARNING
            assert "max_user_instances" in the("waiting").fix

    def test_missing_optional_parts_are_no_fault(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setitem(sys.modules, "yaml", None)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        check = the("optional parts")
        assert (
            check.state == OK
            and "missing" in check.text
            and "PyYAML (for YAML files of tasks" in check.text
            and "tmux (for `swarm up`)" in check.text
            and "mcp (for `swarm mcp`)" in check.text
            and "starlette (for `swarm web`)" in check.text
        )

    def test_optional_parts_are_listed_with_their_versions(self, home: Path) -> None:
        text = the("optional parts").text
        for name in ("PyYAML", "mcp", "starlette", "uvicorn"):
            assert f"{name} {version(name)}" in text

    def test_doctor_says_how_to_go_back_to_a_snapshot(self, home: Path) -> None:
        check = the("tokens")
        before = LockTable(FileStore(str(home))).acquire("a", "w", 60).token or 0
        subprocess.run(check.text.partition("starts: ")[2], shell=True, check=True)
        assert (LockTable(FileStore(str(home))).acquire("b", "w", 60).token or 0) > before + 10**12


class TestContents:
    def test_a_lock_whose_process_is_gone_is_a_warning_with_the_command_that_frees_it(
        self, home: Path
    ) -> None:
        command = [sys.executable, "-c", HOLDER, str(home), "a b", "w9"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as holder:
            assert holder.stdout is not None and holder.stdout.readline() == "held\n"
            assert the("locks").state == OK
            holder.kill()
        check = the("locks")
        assert (check.state, check.fix) == (WARNING, "swarm lock break 'a b' --yes")
        assert run("lock", "break", "a b", "--yes").code == 0
        assert the("locks").state == OK

    def test_a_lease_that_ended_long_ago_is_a_warning_and_one_that_just_ended_is_not(
        self, home: Path
    ) -> None:
        now = time.time()
        for task, age in (("old", 9000), ("new", 700)):
            at = to_iso(now - age)
            (home / "locks" / f"{task}.lock").write_text(
                f'{{"worker": "w", "acquired_at": "{at}", "ttl": 60}}'
            )
        assert "the lock of old is left over: the lease of w ended 2 h" in the("locks").text

    def test_an_invalid_lock_is_a_warning_once_it_is_old(self, home: Path) -> None:
        path = home / "locks" / "broken.lock"
        path.write_text("{")
        assert the("locks").state == OK
        os.utime(path, (time.time() - 60, time.time() - 60))
        assert the("locks").state == WARNING

    def test_a_task_that_ends_during_the_check_is_no_finding(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = TaskQueue()
        queue.add("last", "x", max_attempts=1, priority=9)
        claim = queue.claim("w")
        status = LockTable.status
        looks: list[str] = []

        def slow(table: LockTable, task: str) -> Any:
            looks.append(task)
            if looks.count("last") == 1:
                queue.done("last", "w", claim.token)
            return status(table, task)

        monkeypatch.setattr(LockTable, "status", slow)
        assert [check for check in examine() if check.state != OK] == [] and "last" in looks

    def test_the_lock_of_a_done_task_is_a_warning(self, home: Path) -> None:
        queue = TaskQueue(FileStore(str(home)))
        queue.done("todo", "w", queue.claim("w").token)
        LockTable(FileStore(str(home))).acquire("todo", "late", 300)
        assert the("locks").text == "todo is done, but late still holds its lock"

    def test_times_in_the_future_are_warnings(self, home: Path) -> None:
        at = to_iso(time.time() + 7200)
        (home / "locks" / "ahead.lock").write_text(
            f'{{"worker": "w", "acquired_at": "{at}", "ttl": 60}}'
        )
        with (home / "status.log").open("a") as log:
            log.write(f'{{"timestamp": "{at}"}}\n{{"timestamp": ["x"]}}\n')
        assert "in the future" in the("locks").text and "in the future" in the("log").text

    def test_damaged_lines_of_both_logs_are_warnings(self, home: Path) -> None:
        for path in (home / "status.log", home / ".tasks" / "tasks.log"):
            with path.open("ab") as log:
                log.write(b"nonsense\n\xff\xfe\n\n")
        assert (the("log").state, the("log").fix) == (WARNING, "swarm log validate")
        assert the("queue").state == WARNING and "2 lines" in the("queue").text

    def test_blocked_tasks_and_tasks_whose_worker_died_are_warnings(self, home: Path) -> None:
        queue = TaskQueue(FileStore(str(home)))
        queue.add("build", "x")
        queue.add("ship", "x", after=["build"])
        queue.cancel("build", "ada")
        queue.add("fatal", "x", max_attempts=1)
        queue.claim("w", "fatal")
        LockTable(FileStore(str(home))).break_lock("fatal")
        assert [check.fix for check in found("queue", WARNING)] == [
            "swarm task retry build",
            "swarm task retry fatal",
        ]

    def test_many_leftovers_of_crashes_are_a_warning_whose_fix_removes_them(
        self, home: Path
    ) -> None:
        scratch = home / ".locks" / SCRATCH
        for number in range(250):
            (scratch / f"s{number:016x}").mkdir()
        assert the("leftovers").state == OK  # they are young
        for one in scratch.iterdir():
            os.utime(one, (1, 1))
        check = the("leftovers")
        assert check.state == WARNING
        subprocess.run(check.fix, shell=True, check=True)
        assert the("leftovers").state == OK

    def test_old_intents_count_as_leftovers(self, home: Path) -> None:
        intents = home / ".locks" / INTENTS
        for number in range(5):
            for age in (0, 10_000):
                intent = intents / f"t~s{number:016x}~{age}"
                intent.touch()
                os.utime(intent, (time.time() - age,) * 2)
        assert "5 leftovers of crashed processes" in the("leftovers").text


class TestBrokenStateDirectory:
    @pytest.mark.parametrize(
        "place",
        [
            "status.log",
            ".tasks/tasks.log",
            "locks/t.lock",
            "locks",
            f".locks/{SCRATCH}",
            ".cache",
            ".status",
        ],
    )
    @pytest.mark.parametrize("thing", ["fifo", "directory", "file", "loop"])
    def test_doctor_reaches_its_last_check_whatever_a_path_is(
        self, home: Path, place: str, thing: str
    ) -> None:
        path = home / place
        if path.exists():
            subprocess.run(["rm", "-rf", str(path)], check=True)
        make: dict[str, Any] = {
            "fifo": lambda: os.mkfifo(path),
            "directory": path.mkdir,
            "file": lambda: path.write_bytes(b"\0\xff"),
            "loop": lambda: path.symlink_to(path.name),
        }
        make[thing]()
        answer = run("doctor")
        assert answer.code in (0, 1)
        assert b"optional parts" in answer.out  # the last one: it came that far

    @pytest.mark.parametrize("place", ["status.log", ".tasks/tasks.log", "locks/t.lock"])
    def test_a_pipe_in_place_of_a_file_is_a_finding(self, home: Path, place: str) -> None:
        (home / place).unlink(missing_ok=True)
        os.mkfifo(home / place)
        if place.startswith("locks"):
            os.utime(home / place, (1, 1))  # an invalid lock may be young
        checks = [check for check in examine() if check.state != OK]
        assert checks and all(check.fix for check in checks)

    def test_an_unexpected_error_of_a_check_is_a_fault(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(case: doctor.Case) -> Any:
            raise RecursionError("deep")

        monkeypatch.setattr(doctor, "CHECKS", [("odd", broken), *doctor.CHECKS])
        assert the("odd").state == FAULT
        assert found("log")

    def test_every_finding_has_a_fix(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home.chmod(0o777)
        (home / "status.log").write_bytes(b"nonsense\n")
        (home / "status.log").chmod(0o600)
        monkeypatch.setenv("AI_SWARM_LOCK_TTL", "x")
        wrong = [check for check in examine() if check.state != OK]
        assert len(wrong) == 3 and all(check.fix for check in wrong)

    def test_many_findings_of_one_kind_are_summed_up(self, home: Path) -> None:
        for number in range(30):
            path = home / "locks" / f"t{number}.lock"
            path.write_text("x")
            path.chmod(0o600)
            os.utime(path, (1, 1))
        answer = run("doctor")
        assert "… and 22 more, see: swarm doctor --json" in answer.out.decode()
        assert run("doctor", "--json").json["warnings"] == 30


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("postgresql://u@db.example:5433,other/x", "pg_isready -h db.example -p 5433"),
        ("postgresql://db.example/x", "pg_isready -h db.example"),
        ("postgresql:///x?host=/run/pg&port=6000", "pg_isready -h /run/pg -p 6000"),
        ("postgresql:///x", "pg_isready"),
        ("redis://h:1/0", "redis-cli -h h -p 1 ping"),
        ("redis+unix:///run/redis.sock", "redis-cli -s /run/redis.sock ping"),
        ("valkeys://h/0", "redis-cli -h h -p 6379 ping"),
        ("etcds://a,b:1", "etcdctl --endpoints=https://a:2379,https://b:1 endpoint health"),
    ],
)
def test_the_fix_for_an_unreachable_server_is_its_own_tool(url: str, command: str) -> None:
    assert reach_command(Address(url)) == command
