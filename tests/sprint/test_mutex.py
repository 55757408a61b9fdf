"""The sprint mutex, row by row of the workflow that defines it: each class is a table
or a step of it, each name says the row.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from swarm import SprintMutex
from swarm.cli import main
from swarm.errors import BadInput, Busy, StoreError
from swarm.sprint import mutex as sprint
from swarm.sprint.mutex import concurrency_control
from swarm.stores.file import single_record
from swarm.stores.file.syscalls import Filesystem
from swarm.terminal import prompt
from tests.conftest import ROOT, HandClock
from tests.support.command_line import run
from tests.support.processes import fork
from tests.support.schemas import SCHEMAS

FIVE_KEYS = """\
# .sprint-running
pid: {pid}                                    # 当前进程 PID
session_id: "sprint-2026-02-07-001"           # Sprint 会话唯一标识
started_at: "{started_at}"           # 锁创建时间（ISO 8601 UTC）
epic_spec: "epic5"                            # 正在执行的 Epic 标识
lock_version: 1                               # 锁文件格式版本（向后兼容）
"""
NOW = "2026-02-02T02:40:00Z"  # what the clock of these tests says


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


@pytest.fixture
def shared() -> Iterator[Path]:
    """A project that every user can reach."""
    path = Path(tempfile.mkdtemp(prefix="swarm-test-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def lock_file(project: Path) -> Path:
    return project / ".sprint-running"


@pytest.fixture
def mutex(project: Path, clock: HandClock) -> SprintMutex:
    return SprintMutex(project, clock=clock, ask=lambda question: pytest.fail(f"asked: {question}"))


def dead_pid() -> int:
    pid = fork(lambda: None)
    os.waitpid(pid, 0)
    return pid


def write(lock_file: Path, *, pid: int | None = None, started_at: str = NOW) -> bytes:
    """A lock file as another program writes it, by default of a living process that has
    just begun.
    """
    data = FIVE_KEYS.format(pid=pid or os.getppid(), started_at=started_at).encode()
    lock_file.write_bytes(data)
    return data


def zombie(lock_file: Path) -> bytes:
    return write(lock_file, pid=dead_pid())


def answering(project: Path, clock: HandClock, answer: bool) -> tuple[SprintMutex, list[str]]:
    asked: list[str] = []

    def ask(question: str) -> bool:
        asked.append(question)
        return answer

    return SprintMutex(project, clock=clock, ask=ask), asked


def take(mutex: SprintMutex, session: str = "mine", **options: Any) -> dict[str, Any]:
    return mutex.acquire(session, "epic", **options)


class TestInputs:
    """`inputs`, and the table of their validation."""

    def test_they_are_taken_under_the_names_of_the_document(self, project: Path) -> None:
        inputs = {"session_id": "s", "epic_spec": "e", "force": False, "lock_file_name": ".other"}
        assert (
            concurrency_control(mode="acquire", project_root=str(project), **inputs)["status"]
            == "acquired"
        )
        assert (project / ".other").exists()
        assert (
            concurrency_control(mode="check", project_root=project, lock_file_name=".other")[
                "status"
            ]
            == "blocked"
        )
        assert concurrency_control(
            mode="release", project_root=str(project), session_id="s", lock_file_name=".other"
        )["status"] == ("released")
        assert os.listdir(project) == []

    @pytest.mark.parametrize("mode", ["", "ACQUIRE", "lock", None, 7])
    def test_row_mode(self, mode: object, project: Path) -> None:
        answer = concurrency_control(mode=mode, project_root=project)
        assert (answer["status"], answer["errors"]) == ("failure", ["Invalid mode"])

    @pytest.mark.parametrize("mode", ["acquire", "release", "check"])
    @pytest.mark.parametrize("root", ["missing", "a file", "not writable"])
    def test_row_project_root(self, root: str, mode: str, shared: Path) -> None:
        place = shared / "place"
        if root == "a file":
            place.touch()
        elif root == "not writable":
            place.mkdir()
            place.chmod(0o555)
        answer = as_nobody(mode=mode, project_root=str(place), session_id="s", epic_spec="e")
        assert (answer["status"], answer["errors"]) == ("failure", ["Project root not accessible"])
        if root == "not writable":
            place.chmod(0o777)
            assert as_nobody(mode="check", project_root=str(place))["status"] == "clean"

    @pytest.mark.parametrize("root", ["", "\0", "/proc/nothing", "x" * 5000])
    def test_row_project_root_that_no_directory_can_have(self, root: str) -> None:
        assert concurrency_control(mode="check", project_root=root)["errors"] == [
            "Project root not accessible"
        ]
        assert concurrency_control(mode="check")["errors"] == ["Project root not accessible"], (
            "it is required"
        )

    def test_row_project_root_where_the_working_directory_is_gone(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(project)
        project.rmdir()
        assert concurrency_control(mode="check", project_root=".")["errors"] == [
            "Project root not accessible"
        ]

    @pytest.mark.parametrize(
        "given",
        [{}, {"session_id": ""}, {"session_id": None}, {"session_id": " \t"}, {"session_id": 7}],
    )
    def test_row_session_id(self, given: dict[str, Any], project: Path) -> None:
        answer = concurrency_control(mode="acquire", project_root=project, epic_spec="e", **given)
        assert (answer["status"], answer["errors"]) == (
            "failure",
            ["session_id required for acquire mode"],
        )
        assert os.listdir(project) == []

    @pytest.mark.parametrize("given", [{}, {"epic_spec": ""}, {"epic_spec": None}])
    def test_row_epic_spec(self, given: dict[str, Any], project: Path) -> None:
        answer = concurrency_control(mode="acquire", project_root=project, session_id="s", **given)
        assert (answer["status"], answer["errors"]) == (
            "failure",
            ["epic_spec required for acquire mode"],
        )

    @pytest.mark.parametrize(
        "name",
        [
            "",
            ".",
            "..",
            "a/b",
            "../up",
            "a\nb",
            "a\0b",
            "x" * 201,
            None,
            7,
            "a\ud800",
            "x.tmp",
            "x.work",
        ],
    )
    def test_a_lock_file_has_a_plain_name(self, name: Any, project: Path) -> None:
        answer = concurrency_control(mode="check", project_root=project, lock_file_name=name)
        assert answer["status"] == "failure" and answer["errors"][0].startswith("lock_file_name ")
        with pytest.raises(BadInput):
            SprintMutex(project, name)

    def test_the_longest_name_works(self, project: Path) -> None:
        answer = concurrency_control(
            mode="acquire",
            project_root=project,
            lock_file_name="x" * 200,
            session_id="s",
            epic_spec="e",
        )
        assert answer["status"] == "acquired" and os.listdir(project) == ["x" * 200]

    def test_an_input_that_the_document_does_not_know_is_an_error(self, project: Path) -> None:
        answer = concurrency_control(mode="check", project_root=project, sesion_id="s")
        assert (answer["status"], answer["errors"]) == ("failure", ["Unknown input: sesion_id"])

    @pytest.mark.parametrize("text", ["x" * 1001, "a\ud800b"])
    def test_texts_that_cannot_be_written_are_refused(
        self, text: str, mutex: SprintMutex, project: Path
    ) -> None:
        for inputs in ((text, "e"), ("s", text)):
            with pytest.raises(BadInput):
                mutex.acquire(*inputs)
        assert os.listdir(project) == []

    @pytest.mark.parametrize(
        "text",
        [
            "x" * 1000,
            "a\nb: c",
            "\x00\x1b[31m",
            "'",
            '"',
            "no",
            "12:30",
            "锁 🔒",
            "\ufeff\u2028\ufffe",
        ],
    )
    def test_any_other_text_comes_back_as_it_was(
        self, text: str, mutex: SprintMutex, lock_file: Path
    ) -> None:
        assert mutex.acquire(text, text)["status"] == "acquired"
        info = mutex.check()["lock_info"]
        assert (info["session_id"], info["epic_spec"]) == (text, text)
        assert yaml.safe_load(lock_file.read_bytes())["session_id"] == text

    @pytest.mark.parametrize("name", ["force", "yes"])
    @pytest.mark.parametrize("value", ["false", 1, None])
    def test_force_is_true_or_false(self, value: Any, name: str, project: Path) -> None:
        inputs = {"session_id": "s", "epic_spec": "e", name: value}
        answer = concurrency_control(mode="acquire", project_root=project, **inputs)
        assert (answer["status"], answer["errors"]) == (
            "failure",
            ["force and yes must be true or false"],
        )

    @pytest.mark.parametrize("pid", [0, -1, True, 2**40, "1", 1.5, 10**5000], ids=range(7))
    def test_a_pid_is_that_of_a_running_process(
        self, pid: Any, mutex: SprintMutex, project: Path
    ) -> None:
        with pytest.raises(BadInput, match="running process"):
            take(mutex, pid=pid)
        with pytest.raises(BadInput, match="running process"):
            take(mutex, pid=dead_pid())
        assert os.listdir(project) == []


class TestOutput:
    """`return`, and the table of its statuses."""

    def test_status_acquired(self, mutex: SprintMutex) -> None:
        assert take(mutex) == {
            "status": "acquired",
            "mode": "acquire",
            "lock_info": {
                "exists": True,
                "pid": os.getpid(),
                "session_id": "mine",
                "started_at": NOW,
                "epic_spec": "epic",
                "age_hours": 0.0,
                "pid_alive": True,
                "is_zombie": False,
                "why": "it has just begun",
            },
            "message": "Lock acquired successfully for session mine",
            "errors": [],
            "warnings": [],
        }

    def test_status_released(self, mutex: SprintMutex) -> None:
        take(mutex)
        assert mutex.release() == {
            "status": "released",
            "mode": "release",
            "lock_info": {"exists": False},
            "message": "Lock released successfully",
            "errors": [],
            "warnings": [],
        }

    def test_status_blocked(self, mutex: SprintMutex, clock: HandClock) -> None:
        take(mutex)
        clock.pass_time(2.5 * 3600)
        answer = take(mutex, "another")
        info = {
            "pid": os.getpid(),
            "session_id": "mine",
            "started_at": NOW,
            "epic_spec": "epic",
            "age_hours": 2.5,
        }
        assert answer["status"] == "blocked" and answer["lock_info"].items() >= info.items()
        assert (
            answer["message"]
            == f"Sprint already running (PID: {os.getpid()}, session: mine, started: {NOW})"
        )
        assert mutex.check() == {**answer, "mode": "check"}

    def test_status_zombie_detected(self, mutex: SprintMutex, lock_file: Path) -> None:
        zombie(lock_file)
        answer = mutex.check()
        assert (answer["status"], answer["mode"]) == ("zombie-detected", "check")
        assert (answer["lock_info"]["pid_alive"], answer["lock_info"]["is_zombie"]) == (False, True)

    def test_status_clean(self, mutex: SprintMutex) -> None:
        answer = mutex.check()
        assert (answer["status"], answer["mode"], answer["lock_info"]) == (
            "clean",
            "check",
            {"exists": False},
        )

    def test_status_failure(self, mutex: SprintMutex, lock_file: Path) -> None:
        lock_file.mkdir()
        answer = mutex.check()
        assert (answer["status"], answer["errors"]) == ("failure", ["Cannot read lock file"])

    def test_every_answer_fits_the_schema(
        self, mutex: SprintMutex, lock_file: Path, project: Path
    ) -> None:
        schema = SCHEMAS["sprint-return"]
        jsonschema.Draft202012Validator.check_schema(schema)
        answers = [mutex.check(), mutex.release(), take(mutex), take(mutex), mutex.check()]
        lock_file.write_bytes(b"[]")
        answers += [
            mutex.check(),
            take(mutex, force=True),
            concurrency_control(mode=7, project_root=project),
        ]
        assert len({answer["status"] for answer in answers}) == 6
        for answer in answers:
            jsonschema.validate(answer, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**answers[0], "status": "free"}, schema)


class TestLockFile:
    """Its format and its place."""

    def test_the_lock_file_starts_with_the_five_keys_of_the_document(
        self, mutex: SprintMutex, lock_file: Path
    ) -> None:
        take(mutex)
        found = yaml.safe_load(lock_file.read_bytes())
        assert list(found)[:5] == ["pid", "session_id", "started_at", "epic_spec", "lock_version"]
        assert (found["pid"], found["lock_version"], found["started_at"]) == (os.getpid(), 1, NOW)
        assert lock_file.read_text().splitlines()[1] == 'session_id: "mine"', (
            "quoted, so that every reader agrees"
        )

    def test_the_lock_file_names_the_identity_of_the_process(
        self, mutex: SprintMutex, lock_file: Path
    ) -> None:
        take(mutex)
        found = yaml.safe_load(lock_file.read_bytes())
        assert found["start"] == int(
            Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        )
        assert found["boot"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert found["pid_ns"] == os.readlink("/proc/self/ns/pid")

    def test_the_lock_file_is_the_only_file_that_is_left(
        self, mutex: SprintMutex, project: Path
    ) -> None:
        (project / "mine.txt").touch()
        take(mutex)
        assert sorted(os.listdir(project)) == [".sprint-running", "mine.txt"]
        take(mutex, "another", force=True, yes=True)
        assert sorted(os.listdir(project)) == [".sprint-running", "mine.txt"]
        mutex.release()
        assert os.listdir(project) == ["mine.txt"]

    def test_no_two_are_the_same(self, mutex: SprintMutex, lock_file: Path) -> None:
        seen = set()
        for _ in range(3):
            take(mutex)
            seen.add(lock_file.read_bytes())
            mutex.release()
        assert len(seen) == 3

    def test_the_lock_file_can_be_read_by_other_users(
        self, mutex: SprintMutex, lock_file: Path
    ) -> None:
        take(mutex)
        assert stat.S_IMODE(lock_file.stat().st_mode) == 0o644


class TestStep1Detection:
    def test_none_there_and_acquire(self, mutex: SprintMutex, lock_file: Path) -> None:
        assert take(mutex)["status"] == "acquired" and lock_file.exists()

    def test_none_there_and_release(self, mutex: SprintMutex) -> None:
        answer = mutex.release("s")
        assert (answer["status"], answer["lock_info"], answer["warnings"]) == (
            "released",
            {"exists": False},
            [],
        )

    def test_none_there_and_check(self, mutex: SprintMutex) -> None:
        assert mutex.check()["status"] == "clean"

    def test_the_example_of_the_document_is_read_with_its_comments(
        self, mutex: SprintMutex, lock_file: Path
    ) -> None:
        write(lock_file)
        info = mutex.check()["lock_info"]
        assert (info["pid"], info["session_id"], info["epic_spec"]) == (
            os.getppid(),
            "sprint-2026-02-07-001",
            "epic5",
        )

    @pytest.mark.parametrize(
        "data",
        [b"", b"\0\xff", b"- a\n", b"pid: {}\n", b"pid: 1\n", b"x" * 10_000_000],
        ids=range(6),
    )
    def test_a_broken_one_is_a_zombie_and_warns(
        self, data: bytes, mutex: SprintMutex, lock_file: Path
    ) -> None:
        lock_file.write_bytes(data)
        answer = mutex.check()
        assert answer["status"] == "zombie-detected" and answer["lock_info"]["is_zombie"] is True
        assert answer["warnings"] == ["Lock file exists but has invalid format"]
        assert lock_file.read_bytes() == data
        taken = take(mutex, force=True)
        assert (
            taken["status"] == "acquired"
            and "Lock file exists but has invalid format" in taken["warnings"]
        )

    @pytest.mark.parametrize("mode", ["acquire", "release", "check"])
    def test_a_lock_file_that_cannot_be_read_is_a_failure(self, mode: str, shared: Path) -> None:
        write(shared / ".sprint-running")
        (shared / ".sprint-running").chmod(0)
        answer = as_nobody(mode=mode, project_root=str(shared), session_id="s", epic_spec="e")
        assert (answer["status"], answer["errors"]) == ("failure", ["Cannot read lock file"])
        assert answer["lock_info"] == {"exists": True} and "Permission denied" in answer["message"]

    def test_a_link_in_place_of_the_lock_file_is_not_followed(
        self, mutex: SprintMutex, lock_file: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").write_text("precious")
        lock_file.symlink_to(tmp_path / "elsewhere")
        for answer in (mutex.check(), take(mutex, force=True, yes=True), mutex.release()):
            assert (answer["status"], answer["errors"]) == ("failure", ["Cannot read lock file"])
        assert (tmp_path / "elsewhere").read_text() == "precious"

    @pytest.mark.parametrize("place", ["", "intents", "scratch"])
    def test_a_link_in_the_repository_does_not_lead_to_files_of_others(
        self, mutex: SprintMutex, lock_file: Path, tmp_path: Path, place: str
    ) -> None:
        for folder in ("", "intents", "scratch/s0123456789abcdef"):
            (tmp_path / "elsewhere" / folder).mkdir(parents=True, exist_ok=True)
            (tmp_path / "elsewhere" / folder / "thesis").write_text("precious")
        link = Path(f"{lock_file}.work", place)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(tmp_path / "elsewhere")
        take(mutex)
        mutex.release()
        assert len(list((tmp_path / "elsewhere").rglob("thesis"))) == 3


class TestStep2ZombieDetection:
    """Cases A to D.

    What cannot be probed, and more ways to be gone, stand in test_sprint_record.
    """

    def test_case_a_the_process_does_not_exist(self, mutex: SprintMutex, lock_file: Path) -> None:
        zombie(lock_file)
        info = mutex.check()["lock_info"]
        assert (info["pid_alive"], info["is_zombie"], info["age_hours"]) == (False, True, 0.0)

    def test_case_b_it_exists_but_is_older_than_24_hours(
        self, mutex: SprintMutex, lock_file: Path
    ) -> None:
        write(lock_file, started_at="2026-02-01T02:39:59Z")
        info = mutex.check()["lock_info"]
        assert (info["pid_alive"], info["is_zombie"], info["age_hours"]) == (True, True, 24.0)

    def test_case_c_it_exists_and_is_not_too_old(self, mutex: SprintMutex, lock_file: Path) -> None:
        write(lock_file, started_at="2026-02-01T02:40:00Z")
        info = mutex.check()["lock_info"]
        assert (info["pid_alive"], info["is_zombie"], info["age_hours"]) == (True, False, 24.0)

    def test_case_d_the_file_is_broken(self, mutex: SprintMutex, lock_file: Path) -> None:
        lock_file.write_bytes(b"{")
        info = mutex.check()["lock_info"]
        assert (info["pid"], info["age_hours"], info["is_zombie"]) == (None, None, True)

    def test_release_does_not_care(self, mutex: SprintMutex, lock_file: Path) -> None:
        for make in (zombie, write):
            make(lock_file)
            assert mutex.release()["status"] == "released" and not lock_file.exists()


class TestStep3AcquireDecision:
    def test_zombie_and_force(self, mutex: SprintMutex, lock_file: Path) -> None:
        zombie(lock_file)
        answer = take(mutex, force=True)
        assert answer["status"] == "acquired" and answer["lock_info"]["session_id"] == "mine"
        assert (
            "Overwrote a zombie lock" in answer["warnings"][-1]
            and "sprint-2026-02-07-001" in answer["warnings"][-1]
        )

    def test_zombie_and_a_yes(self, project: Path, lock_file: Path, clock: HandClock) -> None:
        zombie(lock_file)
        mutex, asked = answering(project, clock, True)
        assert take(mutex)["status"] == "acquired" and len(asked) == 1

    def test_zombie_and_a_no(self, project: Path, lock_file: Path, clock: HandClock) -> None:
        data = zombie(lock_file)
        mutex, asked = answering(project, clock, False)
        answer = take(mutex)
        assert answer["status"] == "blocked" and len(asked) == 1 and lock_file.read_bytes() == data
        assert answer["lock_info"]["is_zombie"] is True
        assert "--force" in answer["message"] and "--yes" in answer["message"]

    def test_zombie_and_yes_beforehand(self, mutex: SprintMutex, lock_file: Path) -> None:
        zombie(lock_file)
        assert take(mutex, yes=True)["status"] == "acquired"

    def test_active_without_force(self, mutex: SprintMutex, lock_file: Path) -> None:
        data = write(lock_file)
        for yes in (False, True):
            answer = take(mutex, yes=yes)
            started = f"PID: {os.getppid()}, session: sprint-2026-02-07-001, started: {NOW}"
            assert (answer["status"], answer["message"]) == (
                "blocked",
                f"Sprint already running ({started})",
            )
        assert lock_file.read_bytes() == data

    def test_active_with_force_and_a_second_yes(
        self, project: Path, lock_file: Path, clock: HandClock
    ) -> None:
        write(lock_file)
        mutex, asked = answering(project, clock, True)
        answer = take(mutex, force=True)
        assert answer["status"] == "acquired" and len(asked) == 1
        assert "Overwrote a lock of a running sprint" in answer["warnings"][-1]

    def test_active_with_force_and_a_no(
        self, project: Path, lock_file: Path, clock: HandClock
    ) -> None:
        data = write(lock_file)
        mutex, asked = answering(project, clock, False)
        answer = take(mutex, force=True)
        assert answer["status"] == "blocked" and len(asked) == 1 and lock_file.read_bytes() == data
        assert "--yes" in answer["message"] and answer["message"].startswith(
            "Sprint already running (PID: "
        )

    def test_active_with_force_and_yes_beforehand(
        self, mutex: SprintMutex, lock_file: Path
    ) -> None:
        write(lock_file)
        assert take(mutex, force=True, yes=True)["status"] == "acquired"

    def test_concurrency_control_calls_the_ask_that_is_passed(
        self, project: Path, lock_file: Path
    ) -> None:
        data = zombie(lock_file)
        asked: list[str] = []

        def ask(question: str) -> bool:
            asked.append(question)
            return len(asked) > 1

        inputs: dict[str, Any] = {
            "mode": "acquire",
            "project_root": project,
            "session_id": "s",
            "epic_spec": "e",
        }
        assert (
            concurrency_control(**inputs, ask=ask)["status"] == "blocked"
            and lock_file.read_bytes() == data
        )
        assert concurrency_control(**inputs, ask=ask)["status"] == "acquired" and len(asked) == 2

    def test_only_the_lock_that_was_judged_is_overwritten(
        self, project: Path, lock_file: Path, clock: HandClock
    ) -> None:
        """During the question about a zombie another sprint starts: the yes is not for that one."""
        other = SprintMutex(project, clock=clock)

        def thinks(question: str) -> bool:
            assert take(other, "faster", force=True)["status"] == "acquired"
            return True

        zombie(lock_file)
        answer = take(SprintMutex(project, clock=clock, ask=thinks))
        assert answer["status"] == "blocked" and answer["lock_info"]["session_id"] == "faster"
        assert other.check()["lock_info"]["session_id"] == "faster"

    def test_each_zombie_is_asked_about_by_itself(
        self, project: Path, lock_file: Path, clock: HandClock
    ) -> None:
        asked: list[str] = []

        def thinks(question: str) -> bool:
            asked.append(question)
            if len(asked) == 1:
                lock_file.write_bytes(b"broken")
            return True

        zombie(lock_file)
        assert take(SprintMutex(project, clock=clock, ask=thinks))["status"] == "acquired"
        assert len(asked) == 2 and "sprint-2026-02-07-001" in asked[0] and "PID: ?" in asked[1]


class TestStep4Write:
    def test_the_pid_is_that_of_the_sprint(self, mutex: SprintMutex) -> None:
        assert take(mutex)["lock_info"]["pid"] == os.getpid()
        assert mutex.release()["status"] == "released"
        assert take(mutex, pid=os.getppid())["lock_info"]["pid"] == os.getppid()

    def test_the_lock_file_appears_complete_or_not_at_all(
        self, project: Path, lock_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[bytes | None] = []

        class Watched(Filesystem):
            def write_new(self, path: str, data: bytes) -> None:
                super().write_new(path, data[:10])
                if data:
                    seen.append(lock_file.read_bytes() if lock_file.exists() else None)
                with open(path, "ab") as file:
                    file.write(data[10:])

        monkeypatch.setattr(single_record, "_ReportsLastStep", Watched)
        assert take(SprintMutex(project))["status"] == "acquired"
        assert seen == [None]

    def test_an_interrupt_after_the_write_leaves_no_lock(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C after the lock was written: the answer was not returned, so no sprint has it."""

        class Interrupted(Filesystem):
            def link(self, source: str, target: str) -> None:
                os.link(source, target)
                raise KeyboardInterrupt

        monkeypatch.setattr(single_record, "_ReportsLastStep", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            take(SprintMutex(project))
        assert os.listdir(project) == []


class TestStep5Release:
    def test_a_matching_session(self, mutex: SprintMutex, lock_file: Path) -> None:
        take(mutex)
        answer = mutex.release("mine")
        assert (answer["status"], answer["warnings"]) == ("released", []) and not lock_file.exists()

    def test_release_without_a_lock_is_released(self, mutex: SprintMutex) -> None:
        take(mutex)
        assert [mutex.release("mine")["status"] for _ in range(3)] == ["released"] * 3

    def test_without_a_session(self, mutex: SprintMutex, lock_file: Path) -> None:
        take(mutex)
        assert mutex.release()["warnings"] == [] and not lock_file.exists()

    def test_the_session_directory_stays(self, mutex: SprintMutex, project: Path) -> None:
        (project / ".sprint-session").mkdir()
        (project / ".sprint-session" / "report").touch()
        take(mutex)
        mutex.release()
        assert (project / ".sprint-session" / "report").exists() and os.listdir(project) == [
            ".sprint-session"
        ]

    def test_a_temporary_file_of_another_program_goes(
        self, mutex: SprintMutex, project: Path
    ) -> None:
        (project / ".sprint-running.tmp").write_text("pid: 1")
        take(mutex)
        mutex.release()
        assert os.listdir(project) == []

    def test_another_lock_that_came_meanwhile_stays(
        self, project: Path, lock_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is released is the lock that was there."""

        class Overtaken(Filesystem):
            def write_new(self, path: str, data: bytes) -> None:
                if "/intents/" in path and not lock_file.read_bytes().startswith(b"#"):
                    write(lock_file)
                super().write_new(path, data)

        take(SprintMutex(project))
        monkeypatch.setattr(single_record, "_ReportsLastStep", Overtaken)
        answer = SprintMutex(project).release()
        assert (
            answer["status"] == "released"
            and "Another sprint has acquired the lock" in answer["warnings"][0]
        )
        assert lock_file.read_bytes().startswith(b"#")

    def test_a_released_lock_is_not_held_any_more(
        self, mutex: SprintMutex, project: Path, clock: HandClock
    ) -> None:
        take(mutex)
        SprintMutex(project, clock=clock).release()
        assert mutex.holds, "which it cannot know"
        assert mutex.release_own() is False
        take(mutex)
        mutex.release()
        assert not mutex.holds

    def test_release_own_does_not_remove_the_lock_of_another_sprint(
        self, mutex: SprintMutex, project: Path, clock: HandClock
    ) -> None:
        assert (mutex.release_own(), mutex.holds) == (False, False)
        take(mutex)
        assert (mutex.holds, "mine") == (True, mutex.check()["lock_info"]["session_id"])
        other = SprintMutex(project, clock=clock)
        assert take(other, "other", force=True, yes=True)["status"] == "acquired"
        assert (mutex.release_own(), mutex.holds) == (False, False)
        assert other.check()["lock_info"]["session_id"] == "other"
        assert other.release_own() is True and os.listdir(project) == []


class TestErrorMatrix:
    """Its ten rows."""

    def test_row_1_project_root_not_writable(self, shared: Path) -> None:
        shared.chmod(0o555)
        answer = as_nobody(mode="acquire", project_root=str(shared), session_id="s", epic_spec="e")
        assert (answer["status"], answer["errors"]) == ("failure", ["Project root not accessible"])

    def test_row_2_broken_yaml(self, mutex: SprintMutex, lock_file: Path) -> None:
        lock_file.write_bytes(b"\xff")
        assert mutex.check()["status"] == "zombie-detected"
        assert take(mutex, force=True)["status"] == "acquired"

    def test_row_3_the_pid_check_fails(self, mutex: SprintMutex, lock_file: Path) -> None:
        write(lock_file, pid=2**50)
        answer = mutex.check()
        assert (answer["status"], answer["lock_info"]["pid_alive"]) == ("zombie-detected", False)
        assert answer["warnings"] == [f"PID check failed for PID {2**50}"]

    def test_row_4_an_active_lock(self, mutex: SprintMutex, lock_file: Path) -> None:
        write(lock_file)
        answer = take(mutex)
        assert (answer["status"], answer["lock_info"]["exists"]) == ("blocked", True)

    def test_row_5_the_person_declines(
        self, project: Path, lock_file: Path, clock: HandClock
    ) -> None:
        zombie(lock_file)
        assert take(answering(project, clock, False)[0])["status"] == "blocked"

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
    @pytest.mark.parametrize("over", ["nothing", "a zombie"])
    def test_row_6_the_file_cannot_be_written(
        self,
        over: str,
        number: int,
        project: Path,
        lock_file: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        before = zombie(lock_file) if over == "a zombie" else None

        class Full(Filesystem):
            def write_new(self, path: str, data: bytes) -> None:
                super().write_new(path, data[:5])
                raise OSError(number, os.strerror(number), path)

        monkeypatch.setattr(single_record, "_ReportsLastStep", Full)
        answer = take(SprintMutex(project), force=True)
        assert (answer["status"], answer["errors"]) == ("failure", ["Failed to write lock file"])
        assert os.strerror(number) in answer["message"]
        assert (lock_file.read_bytes() if lock_file.exists() else None) == before
        assert os.listdir(project) == ([".sprint-running"] if before else []), (
            "nothing half-written stays"
        )

    @pytest.mark.parametrize("over", ["nothing", "a zombie"])
    def test_row_7_the_rename_fails(
        self, over: str, project: Path, lock_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = zombie(lock_file) if over == "a zombie" else None

        def failing(*args: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(single_record, "link", failing)
            patch.setattr(os, "rename", failing)
            answer = take(SprintMutex(project), force=True)
        assert (answer["status"], answer["errors"]) == ("failure", ["Atomic rename failed"])
        assert (lock_file.read_bytes() if lock_file.exists() else None) == before
        assert os.listdir(project) == ([".sprint-running"] if before else [])

    def test_row_8_what_was_written_is_not_what_is_there(
        self, project: Path, lock_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another program overwrites it at once: that file is not ours to remove."""

        class Overwritten(Filesystem):
            reads = 0

            def read(self, path: str) -> bytes:
                Overwritten.reads += 1
                # whether there is one; whether it was put there; and this
                if Overwritten.reads == 3:
                    write(lock_file)
                return super().read(path)

        monkeypatch.setattr(single_record, "_ReportsLastStep", Overwritten)
        answer = take(SprintMutex(project))
        assert (answer["status"], answer["errors"]) == (
            "failure",
            ["Lock file verification failed"],
        )
        assert lock_file.read_bytes().startswith(b"# .sprint-running")

    def test_row_8_what_was_written_cannot_be_read_back(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Unreadable(Filesystem):
            reads = 0

            def read(self, path: str) -> bytes:
                Unreadable.reads += 1
                if Unreadable.reads == 3:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                return super().read(path)

        monkeypatch.setattr(single_record, "_ReportsLastStep", Unreadable)
        assert take(SprintMutex(project))["status"] == "failure"
        assert os.listdir(project) == [], "it was ours, and goes"

    def test_row_9_the_file_may_not_be_deleted(self, shared: Path) -> None:
        """In a directory with the sticky bit, only its owner may delete a file."""
        data = write(shared / ".sprint-running")
        shared.chmod(0o1777)
        answer = as_nobody(mode="release", project_root=str(shared))
        assert (answer["status"], answer["errors"]) == (
            "failure",
            ["Cannot delete lock file: permission denied"],
        )
        assert (shared / ".sprint-running").read_bytes() == data and os.listdir(shared) == [
            ".sprint-running"
        ]

    def test_row_10_another_session_is_released_with_a_warning(
        self, mutex: SprintMutex, lock_file: Path
    ) -> None:
        take(mutex)
        answer = mutex.release("other")
        assert (answer["status"], answer["errors"]) == ("released", [])
        assert (
            answer["warnings"] == ["Lock session mismatch (expected: other, actual: mine)"]
            and not lock_file.exists()
        )

    def test_row_10_also_where_the_file_cannot_be_understood(
        self, mutex: SprintMutex, lock_file: Path
    ) -> None:
        lock_file.write_bytes(b"{")
        warnings = [
            "Lock file exists but has invalid format",
            "Lock session mismatch (expected: other, actual: unknown)",
        ]
        assert mutex.release("other")["warnings"] == warnings


class TestWords:
    """What is said, exactly: people and programs go by it."""

    @pytest.mark.parametrize("mode", ["acquire", "release", "check"])
    def test_a_failure_names_its_mode_and_the_path(
        self, mode: str, tmp_path: Path, project: Path, lock_file: Path
    ) -> None:
        inputs = {"session_id": "s", "epic_spec": "e"}
        answer = concurrency_control(mode=mode, project_root=tmp_path / "missing", **inputs)
        assert (answer["mode"], answer["message"]) == (
            mode,
            f"Project root not accessible: {tmp_path}/missing",
        )
        lock_file.symlink_to("elsewhere")
        answer = concurrency_control(mode=mode, project_root=project, **inputs)
        assert (answer["mode"], answer["message"]) == (
            mode,
            "Cannot read lock file: the lock file is a symbolic link",
        )
        assert answer["lock_info"] == {"exists": True}
        answer = concurrency_control(mode=mode, project_root=project, one=1, two=2)
        assert (answer["mode"], answer["message"]) == (mode, "Unknown input: one, two")

    def test_the_message_of_a_check(self, mutex: SprintMutex, lock_file: Path) -> None:
        assert mutex.check()["message"] == "No sprint is running"
        zombie(lock_file)
        pid = yaml.safe_load(lock_file.read_bytes())["pid"]
        named = f"PID: {pid}, session: sprint-2026-02-07-001, started: {NOW}"
        assert mutex.check()["message"] == f"Zombie lock detected: its process is gone ({named})"

    def test_the_message_for_a_zombie_that_is_not_overwritten(
        self, project: Path, lock_file: Path, clock: HandClock
    ) -> None:
        lock_file.write_bytes(b"")
        mutex, asked = answering(project, clock, False)
        answer = take(mutex)
        unknown = "PID: unknown, session: unknown, started: unknown"
        assert answer["message"].startswith(
            f"Zombie lock not overwritten ({unknown}): the lock file is invalid."
        )
        assert "--force or --yes" in answer["message"]
        assert answer["warnings"] == ["Lock file exists but has invalid format"]
        assert asked[0].startswith("Zombie lock detected:\n- PID: ?")

    def test_the_message_for_a_running_sprint_that_is_not_overwritten(
        self, project: Path, lock_file: Path, clock: HandClock
    ) -> None:
        write(lock_file)
        mutex, asked = answering(project, clock, False)
        named = f"PID: {os.getppid()}, session: sprint-2026-02-07-001, started: {NOW}"
        cure = "To overwrite the lock of a running sprint, use --force with --yes"
        assert take(mutex, force=True)["message"] == f"Sprint already running ({named}). {cure}"
        assert asked[0].startswith(f"Warning: a sprint is running!\n- PID: {os.getppid()} ")

    def test_the_message_of_a_release(self, mutex: SprintMutex, lock_file: Path) -> None:
        assert mutex.release()["message"] == "There is no lock to release"
        write(lock_file)
        assert mutex.release()["message"] == "Lock released successfully"

    @pytest.mark.parametrize(
        ("number", "error", "detail"),
        [
            (errno.EPERM, "Cannot delete lock file: permission denied", ""),
            (errno.EACCES, "Cannot delete lock file: permission denied", ""),
            (errno.EIO, "Cannot delete lock file", "Input/output error"),
            (
                errno.ENOSPC,
                "Cannot delete lock file",
                "No space left on device. Free some space, or remove {} yourself",
            ),
        ],
    )
    def test_the_message_for_a_file_that_cannot_be_deleted(
        self,
        number: int,
        error: str,
        detail: str,
        mutex: SprintMutex,
        lock_file: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def failing(source: str, target: str) -> None:
            raise OSError(number, os.strerror(number))

        write(lock_file)
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", failing)
            answer = mutex.release()
        assert (answer["status"], answer["errors"], answer["lock_info"]) == (
            "failure",
            [error],
            {"exists": True},
        )
        assert answer["message"] == error + (detail and ": " + detail.format(lock_file))

    def test_the_message_for_a_file_that_changes_all_the_time(
        self, mutex: SprintMutex, lock_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(lock_file)
        monkeypatch.setattr(single_record.SingleRecord, "replace", lambda *args: False)
        answer = take(mutex, force=True, yes=True)
        assert (
            answer["message"]
            == "Failed to write lock file: the file changes faster than swarm can read it"
        )
        assert answer["errors"] == ["Failed to write lock file"]

    def test_the_message_for_a_project_that_is_removed_meanwhile(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Removed(Filesystem):
            def mkdir(self, path: str) -> None:
                if project.exists():
                    shutil.rmtree(project)
                os.mkdir(path)

        monkeypatch.setattr(single_record, "_ReportsLastStep", Removed)
        answer = take(SprintMutex(project))
        assert (
            answer["message"] == f"Failed to write lock file: is no longer a directory: {project}"
        )
        assert not project.exists() and answer["lock_info"] == {"exists": False}

    def test_the_message_for_a_directory_in_place_of_the_lock(
        self, project: Path, mutex: SprintMutex
    ) -> None:
        (project / ".sprint-running.work").write_text("a file")
        answer = take(mutex)
        assert (
            answer["message"].startswith("Failed to write lock file: ")
            and ".sprint-running.work" in answer["message"]
        )

    @pytest.mark.parametrize("root", [None, 7, b"bytes"])
    def test_the_message_for_a_root_that_is_no_path(self, root: object) -> None:
        answer = concurrency_control(mode="check", project_root=root)
        assert answer["errors"] == ["project_root must be the path of a directory"]

    def test_the_message_for_a_session_that_is_no_text(self, project: Path) -> None:
        answer = concurrency_control(mode="release", project_root=project, session_id=7)
        assert answer["errors"] == ["session_id must be a string"]

    def test_a_session_to_release_is_taken_under_the_name_of_the_document(
        self, project: Path
    ) -> None:
        write(project / ".sprint-running")
        answer = concurrency_control(mode="release", project_root=project, session_id="other")
        assert answer["warnings"] == [
            "Lock session mismatch (expected: other, actual: sprint-2026-02-07-001)"
        ]

    def test_no_primitive_asks_at_the_terminal(
        self, project: Path, lock_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = zombie(lock_file)
        monkeypatch.setattr(prompt, "is_possible", lambda: True)
        monkeypatch.setattr(prompt, "ask", lambda question, seconds: pytest.fail("it asked"))
        assert take(SprintMutex(project))["status"] == "blocked"
        answer = concurrency_control(
            mode="acquire", project_root=project, session_id="s", epic_spec="e"
        )
        assert answer["status"] == "blocked" and "--force or --yes" in answer["message"]
        assert lock_file.read_bytes() == data

    def test_the_command_asks_at_a_terminal_for_as_long_as_the_document_says(
        self, project: Path, lock_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[tuple[str, float]] = []

        def ask(question: str, seconds: float) -> bool:
            asked.append((question, seconds))
            return True

        zombie(lock_file)
        monkeypatch.setattr(prompt, "ask", ask)
        monkeypatch.setattr(prompt, "is_possible", lambda: False)
        command = (
            "sprint",
            "acquire",
            "--session-id",
            "s",
            "--epic-spec",
            "e",
            "--project-root",
            str(project),
        )
        assert run(*command).code == 1 and asked == []
        monkeypatch.setattr(prompt, "is_possible", lambda: True)
        assert run(*command).code == 0
        assert asked[0][0].startswith("Zombie lock detected:") and asked[0][1] == 30


class TestWhatIsKept:
    """Whatever fails, nothing goes that was there before."""

    def test_a_held_lock_stays_if_it_cannot_be_overwritten(
        self, mutex: SprintMutex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        take(mutex, "first")

        def failing(*args: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", failing)
            answer = take(mutex, "second", force=True, yes=True)
        assert answer["errors"] == ["Atomic rename failed"] and answer["lock_info"] == {
            "exists": True
        }
        assert mutex.holds and mutex.check()["lock_info"]["session_id"] == "first"
        assert mutex.release_own() is True

    def test_an_empty_file_while_nothing_could_be_written(
        self, mutex: SprintMutex, lock_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def failing(*args: object) -> None:
            raise StoreError("the identity of this boot cannot be read")

        lock_file.touch()
        monkeypatch.setattr(sprint, "new_sprint", failing)
        assert take(mutex, force=True)["errors"] == ["Failed to write lock file"]
        assert lock_file.exists()

    def test_check_removes_nothing_that_a_crash_left_and_release_does(self, project: Path) -> None:
        (project / ".sprint-running.work" / "scratch").mkdir(parents=True)
        command = [sys.executable, "-m", "swarm", "sprint", "check"]
        with open("/dev/full", "wb") as full:
            subprocess.run(
                command,
                cwd=project,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=full,
                check=False,
            )
        assert os.listdir(project) == [".sprint-running.work"]
        assert (
            run("sprint", "release", "--project-root", str(project)).code == 0
            and os.listdir(project) == []
        )

    def test_a_sprint_whose_process_ends_during_the_question_is_refused(
        self, project: Path, lock_file: Path, clock: HandClock
    ) -> None:
        data = zombie(lock_file)
        child = subprocess.Popen(["sleep", "100"])

        def thinks(question: str) -> bool:
            child.kill()
            child.wait()
            return True

        with pytest.raises(BadInput, match="running process"):
            take(SprintMutex(project, clock=clock, ask=thinks), pid=child.pid)
        assert lock_file.read_bytes() == data

    def test_the_project_that_a_link_leads_to(self, tmp_path: Path) -> None:
        (tmp_path / "other" / "sub").mkdir(parents=True)
        (tmp_path / "link").symlink_to(tmp_path / "other" / "sub")
        assert concurrency_control(
            mode="acquire", project_root=f"{tmp_path}/link/..", session_id="s", epic_spec="e"
        )["status"] == ("acquired")
        assert sorted(os.listdir(tmp_path / "other")) == [".sprint-running", "sub"]

    def test_an_invalid_lock_file_gives_a_warning(self, project: Path) -> None:
        (project / "Makefile").write_text("all:\n\ttrue\n")
        answer = concurrency_control(
            mode="release", project_root=project, lock_file_name="Makefile"
        )
        assert answer["warnings"] == ["Lock file exists but has invalid format"]

    def test_an_interrupt_before_the_answer_leaves_no_lock(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*args: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("swarm.cli.sprint._print", interrupted)
        assert (
            main.main(
                [
                    "sprint",
                    "acquire",
                    "--project-root",
                    str(project),
                    "--session-id",
                    "s",
                    "--epic-spec",
                    "e",
                ]
            )
            == 130
        )
        assert os.listdir(project) == []


class TestConstants:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("ZOMBIE_THRESHOLD_HOURS", 24),
            ("LOCK_FILE_NAME", ".sprint-running"),
            ("LOCK_VERSION", 1),
            ("USER_CONFIRM_TIMEOUT_SECONDS", 30),
            ("WRITE_TIMEOUT_SECONDS", 10),
        ],
    )
    def test_they_are_the_documents(self, name: str, value: object) -> None:
        assert getattr(sprint, name) == value

    def test_a_write_waits_so_long_for_others_and_no_longer(
        self, project: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def busy(*args: object) -> bool:
            clock.pass_time(1.0)
            raise Busy("another process is changing it")

        monkeypatch.setattr(single_record.SingleRecord, "create", busy)
        begun = clock.steady()
        answer = take(SprintMutex(project, clock=clock))
        assert (answer["status"], answer["errors"]) == ("failure", ["Failed to write lock file"])
        assert 10 < clock.steady() - begun < 30


class TestCommand:
    """`swarm sprint`: what it prints, and its exit codes."""

    def sprint(
        self, *args: str, project: Path, options: tuple[str, ...] = ("--json",)
    ) -> tuple[int, dict[str, Any]]:
        answer = run("sprint", args[0], "--project-root", str(project), *args[1:], *options)
        return answer.code, json.loads(answer.out) if "--json" in options else yaml.safe_load(
            answer.out
        )

    @pytest.mark.parametrize("options", [(), ("--json",)])
    def test_the_way_of_a_sprint(self, options: tuple[str, ...], project: Path) -> None:
        names = ("--session-id", "s", "--epic-spec", "e", "--pid", str(os.getpid()))
        ways = [
            (("check",), 0, "clean"),
            (("acquire", *names), 0, "acquired"),
            (("acquire", *names), 1, "blocked"),
            (("check",), 1, "blocked"),
            (("release", "--session-id", "s"), 0, "released"),
            (("release",), 0, "released"),
        ]
        for args, code, status in ways:
            result = self.sprint(*args, project=project, options=options)
            assert (result[0], result[1]["status"], result[1]["mode"]) == (code, status, args[0])
            assert result[1].get("schema_version") == (1 if options else None)

    def test_yaml_and_json_say_the_same(self, project: Path) -> None:
        run(
            "sprint",
            "acquire",
            "--project-root",
            str(project),
            "--session-id",
            "no",
            "--epic-spec",
            "12:30",
            "--pid",
            "1",
        )
        as_yaml, as_json = (
            self.sprint("check", project=project, options=options)[1]
            for options in ((), ("--json",))
        )
        assert as_json == {"schema_version": 1, **as_yaml}
        assert (
            as_yaml["lock_info"]["session_id"] == "no"
            and as_yaml["lock_info"]["epic_spec"] == "12:30"
        )

    def test_exit_1_for_a_zombie(self, project: Path, lock_file: Path) -> None:
        zombie(lock_file)
        assert self.sprint("check", project=project)[0] == 1
        code, answer = self.sprint(
            "acquire", "--session-id", "s", "--epic-spec", "e", project=project
        )
        assert (code, answer["status"]) == (1, "blocked")
        code, answer = self.sprint(
            "acquire", "--session-id", "s", "--epic-spec", "e", "--force", project=project
        )
        assert (code, answer["status"]) == (0, "acquired")

    @pytest.mark.parametrize(
        "args",
        [
            ("acquire", "--epic-spec", "e"),
            ("acquire", "--session-id", "s"),
            ("acquire", "--session-id", "", "--epic-spec", "e"),
            ("acquire", "--session-id", "s", "--epic-spec", "e", "--pid", "x"),
            ("acquire", "--session-id", "s", "--epic-spec", "e", "--pid", "0"),
            ("acquire", "--session-id", "s", "--epic-spec", "e", "--pid", "9" * 30),
            ("check", "--lock-file-name", "a/b"),
            ("release", "--lock-file-name", ""),
        ],
    )
    def test_exit_2_for_input_that_breaks_a_rule(
        self, args: tuple[str, ...], project: Path
    ) -> None:
        code, answer = self.sprint(*args, project=project)
        assert (code, answer["status"], answer["mode"]) == (2, "failure", args[0]) and len(
            answer["errors"]
        ) == 1
        assert os.listdir(project) == []

    @pytest.mark.parametrize(
        "args", [("check", "--force"), ("check", "x"), ("acquire", "--pid"), ("nothing",), ()]
    )
    def test_exit_2_for_wrong_usage(self, args: tuple[str, ...]) -> None:
        assert run("sprint", *args).code == 2 if args else run("sprint", "--help").code == 0

    def test_exit_3_for_a_failure(self, project: Path, lock_file: Path) -> None:
        assert self.sprint("check", project=project / "missing")[0] == 3
        lock_file.mkdir()
        assert self.sprint("check", project=project)[0] == 3

    def test_the_pid_is_the_calling_shells_and_the_message_names_the_option(
        self, project: Path
    ) -> None:
        code, answer = self.sprint(
            "acquire", "--session-id", "s", "--epic-spec", "e", project=project
        )
        assert code == 0 and answer["lock_info"]["pid"] == os.getppid()
        assert (
            answer["message"].startswith("Lock acquired successfully for session s")
            and f"PID {os.getppid()}" in answer["message"]
        )
        assert "--pid" in answer["message"]

    def test_the_shell_that_calls_is_the_sprint(self, project: Path) -> None:
        script = (
            "python3 -m swarm sprint acquire --session-id s --epic-spec e >/dev/null; echo "
            "$$; python3 -m swarm sprint check"
        )
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            check=False,
        )
        shell, _, said = done.stdout.decode().partition("\n")
        assert (
            yaml.safe_load(said)["lock_info"]["pid"] == int(shell)
            and yaml.safe_load(said)["status"] == "blocked"
        )
        assert self.sprint("check", project=project)[1]["status"] == "zombie-detected", (
            "the shell is gone"
        )

    def test_the_project_is_the_working_directory_by_default(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(project)
        assert run("sprint", "acquire", "--session-id", "s", "--epic-spec", "e").code == 0
        assert os.listdir(project) == [".sprint-running"]

    def test_warnings_stand_in_the_answer_and_on_standard_error(self, project: Path) -> None:
        run(
            "sprint",
            "acquire",
            "--project-root",
            str(project),
            "--session-id",
            "s",
            "--epic-spec",
            "e",
        )
        answer = run(
            "sprint", "release", "--project-root", str(project), "--session-id", "x\x1b[31m"
        )
        assert answer.err == b"Warning: Lock session mismatch (expected: x\\x1b[31m, actual: s)\n"
        assert yaml.safe_load(answer.out)["warnings"] == [
            "Lock session mismatch (expected: x\x1b[31m, actual: s)"
        ]

    def test_a_project_in_git_that_does_not_ignore_the_file_gets_a_hint(
        self, project: Path
    ) -> None:
        acquire = (
            "sprint",
            "acquire",
            "--project-root",
            str(project / "sub"),
            "--session-id",
            "s",
            "--epic-spec",
            "e",
        )
        (project / "sub").mkdir()
        assert b"git" not in run(*acquire).err
        subprocess.run(["git", "init", "--quiet", str(project)], check=True)
        before = sorted(os.listdir(project))
        assert (
            b"Hint: .sprint-running is not ignored by git." in run(*acquire, "--force", "--yes").err
        )
        (project / ".gitignore").write_text(".sprint-running\n")
        assert b"git" not in run(*acquire, "--force", "--yes").err
        assert sorted(os.listdir(project)) == sorted([*before, ".gitignore"])

    def test_check_changes_nothing_and_is_allowed_to_be_called_often(
        self, project: Path, lock_file: Path
    ) -> None:
        for make in (zombie, write, lambda path: path.write_bytes(b"")):
            make(lock_file)
            before = (os.listdir(project), lock_file.stat(), project.stat().st_mtime_ns)
            for _ in range(3):
                self.sprint("check", project=project)
            assert (
                os.listdir(project),
                lock_file.stat().st_mtime_ns,
                project.stat().st_mtime_ns,
            ) == (
                before[0],
                before[1].st_mtime_ns,
                before[2],
            )

    def test_an_answer_that_cannot_be_written_is_no_lock(self, project: Path) -> None:
        command = [
            "python3",
            "-m",
            "swarm",
            "sprint",
            "acquire",
            "--session-id",
            "s",
            "--epic-spec",
            "e",
        ]
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                command,
                cwd=project,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=full,
                check=False,
            )
        assert done.returncode == 3 and os.listdir(project) == []


class TestFromPython:
    def test_a_lock_is_seen_by_every_reader(self, mutex: SprintMutex, lock_file: Path) -> None:
        take(mutex)
        assert yaml.safe_load(lock_file.read_bytes()) == yaml.load(
            lock_file.read_bytes(), Loader=yaml.CSafeLoader
        )

    def test_a_path_object_will_do_and_nothing_else(self, project: Path) -> None:
        assert SprintMutex(project).check()["status"] == "clean"
        for root in (None, 7, b"bytes"):
            with pytest.raises(BadInput):
                SprintMutex(root)  # type: ignore[arg-type]

    def test_without_a_reader_of_yaml_an_unusual_file_is_an_error_that_names_it(
        self, mutex: SprintMutex, lock_file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lock_file.write_bytes(b"{pid: 1, session_id: s, started_at: 2026-01-01, epic_spec: e}")
        monkeypatch.setitem(sys.modules, "yaml", None)
        answer = take(mutex, force=True, yes=True)
        assert (answer["status"], answer["errors"]) == ("failure", ["Cannot read lock file"])
        assert "-m pip install PyYAML" in answer["message"]
        assert mutex.release("s")["status"] == "released", (
            "which can be done without understanding it"
        )


def as_nobody(**inputs: Any) -> dict[str, Any]:
    """What a user without rights is answered."""
    reading, writing = os.pipe()

    def child() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        os.write(writing, json.dumps(concurrency_control(**inputs)).encode())

    pid = fork(child)
    os.close(writing)
    data = os.read(reading, 65536)
    os.close(reading)
    assert os.waitpid(pid, 0)[1] == 0
    answer: dict[str, Any] = json.loads(data)
    return answer
