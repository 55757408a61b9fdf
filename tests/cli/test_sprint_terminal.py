"""`swarm sprint acquire` in front of a person: what is asked, what counts as a yes, and
when no question is asked at all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from swarm.sprint import mutex
from tests.support.at_a_terminal import SWARM, TIMEOUT, Ended, Terminal, environment, terminal

NOBODY = 99_999_999  # no system has so many processes
MINE = ("sprint", "acquire", "--session-id", "mine", "--epic-spec", "epic6", "--json")

ZOMBIE_IN_CHINESE = """\
检测到僵尸锁：
- PID: 99999999 (进程状态: dead)
- Session: sprint-2026-02-07-001
- 启动时间: {started} (2.5h ago)
- Epic: epic5

是否覆盖此锁并启动新 Sprint? [y/N]"""

ZOMBIE_IN_ENGLISH = """\
Zombie lock detected:
- PID: 99999999 (process: dead)
- Session: sprint-2026-02-07-001
- Started: {started} (2.5h ago)
- Epic: epic5

Overwrite this lock and start a new sprint? [y/N]"""

RUNNING_IN_CHINESE = """\
警告: 检测到活跃的 Sprint 进程！
- PID: {pid} (进程状态: alive)
- Session: sprint-2026-02-07-001
- 启动时间: {started} (2.5h ago)
强制覆盖可能导致状态文件损坏。确认覆盖? [y/N]"""

RUNNING_IN_ENGLISH = """\
Warning: a sprint is running!
- PID: {pid} (process: alive)
- Session: sprint-2026-02-07-001
- Started: {started} (2.5h ago)
Overwriting its lock may damage its state files. Overwrite it? [y/N]"""

CHINESE = [
    {"LC_ALL": "zh_CN.UTF-8"},
    {"LANG": "zh_TW"},
    {"LC_MESSAGES": "zh_CN", "LANG": "en_US.UTF-8"},
    {"LC_ALL": "", "LANG": "zh"},
]
ENGLISH: list[dict[str, str]] = [
    {},
    {"LC_ALL": "C"},
    {"LC_ALL": "C", "LANG": "zh_CN.UTF-8"},
    {"LC_ALL": "en_US.UTF-8", "LC_MESSAGES": "zh_CN"},
    {"LC_MESSAGES": "C", "LANG": "zh_CN.UTF-8"},
    {"LANG": "de_DE.UTF-8"},
]

# The command with another time to answer in, since a test cannot wait for half a
# minute.
SHORT_TIMEOUT = (
    sys.executable,
    "-c",
    (
        "import sys, swarm.cli.main, swarm.sprint.mutex\n"
        "swarm.sprint.mutex.USER_CONFIRM_TIMEOUT_SECONDS = float(sys.argv[1])\n"
        "sys.exit(swarm.cli.main.main(sys.argv[2:]))"
    ),
)


class Project:
    """A project with a lock file as any program that follows the workflow writes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = root / ".sprint-running"
        self.started = (datetime.now(UTC) - timedelta(hours=2.5)).strftime("%Y-%m-%dT%H:%M:%SZ")

    def is_locked_by(self, pid: int, session: str = "sprint-2026-02-07-001") -> bytes:
        self.lock.write_text(
            "# .sprint-running\n"
            f"pid: {pid}                                    # 当前进程 PID\n"
            f'session_id: "{session}"           # Sprint 会话唯一标识\n'
            f'started_at: "{self.started}"\n'
            'epic_spec: "epic5"\n'
            "lock_version: 1\n"
        )
        return self.lock.read_bytes()

    def swarm(self, *args: str) -> Any:
        """Return what `swarm sprint` answers another process."""
        done = subprocess.run(
            [*SWARM, "sprint", *args, "--json"],
            cwd=self.root,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        return json.loads(done.stdout)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def tty() -> Iterator[Terminal]:
    with terminal() as made:
        yield made


def expect_acquired(project: Project, ended: Ended) -> None:
    assert (ended.code, json.loads(ended.out)["status"]) == (0, "acquired"), ended
    assert json.loads(ended.out)["lock_info"]["session_id"] == "mine"
    assert 'session_id: "mine"' in project.lock.read_text()
    assert os.listdir(project.root) == [".sprint-running"]


def expect_blocked(project: Project, ended: Ended, before: bytes) -> None:
    answer = json.loads(ended.out.splitlines()[0])
    assert (ended.code, answer["status"]) == (1, "blocked"), ended
    assert project.lock.read_bytes() == before
    assert os.listdir(project.root) == [".sprint-running"]
    assert "Traceback" not in ended.shown + ended.out
    assert (ended.shown + ended.out).count("Error: ") == 1


class TestQuestion:
    @pytest.mark.parametrize("locale", CHINESE, ids=str)
    def test_the_question_about_a_zombie_is_the_documents_in_a_chinese_locale(
        self, locale: dict[str, str], project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root, env=locale)
        tty.wait_for("[y/N] ")
        assert tty.shown == ZOMBIE_IN_CHINESE.format(started=project.started) + " "

    @pytest.mark.parametrize("locale", ENGLISH, ids=str)
    def test_the_question_about_a_zombie_is_english_in_any_other_locale(
        self, locale: dict[str, str], project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root, env=locale)
        tty.wait_for("[y/N] ")
        assert tty.shown == ZOMBIE_IN_ENGLISH.format(started=project.started) + " "

    @pytest.mark.parametrize(
        ("locale", "text"),
        [({"LANG": "zh_CN.UTF-8"}, RUNNING_IN_CHINESE), ({}, RUNNING_IN_ENGLISH)],
        ids=["Chinese", "English"],
    )
    def test_the_question_about_a_running_sprint_is_another_one(
        self, locale: dict[str, str], text: str, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(os.getpid())
        tty.start(*SWARM, *MINE, "--force", cwd=project.root, env=locale)
        tty.wait_for("[y/N] ")
        assert tty.shown == text.format(pid=os.getpid(), started=project.started) + " "

    def test_the_question_is_asked_about_an_invalid_file_too(
        self, project: Project, tty: Terminal
    ) -> None:
        project.lock.write_text("pid: [")
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        assert tty.shown.startswith(
            "Zombie lock detected:\n- PID: ? (process: dead)\n- Session: ?\n"
        )
        tty.type("y\n")
        expect_acquired(project, tty.wait())

    @pytest.mark.parametrize(
        "text",
        [
            "a\\u001b[2J\\u001b]0;title\\u0007b",
            "a\\u009b2Jb\\u0090c\\u007f",
            "a\\n- Epic: epic5\\n\\nOverwrite? [y/N] y\\r\\n",
            "a\\u2028b\\u2029c\\u0085d\\u000be\\u000cf",
            "a\\u202eb\\u200fc",
            "a\\u0000\\b\\b\\b",
        ],
        ids=[
            "escape sequences",
            "C1 controls",
            "newlines",
            "line separators",
            "direction marks",
            "NUL and backspaces",
        ],
    )
    def test_text_of_the_lock_file_moves_no_cursor_and_forges_no_line(
        self, text: str, project: Project, tty: Terminal
    ) -> None:
        project.lock.write_text(
            f'pid: {NOBODY}\nsession_id: "{text}"\nstarted_at: "{project.started}"\nepic_spec: '
            f'"{text}"\nlock_version: 1\n'
        )
        before = project.lock.read_bytes()
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("new sprint? [y/N] ")
        question = tty.shown
        assert all(character.isprintable() or character == "\n" for character in question)
        assert [line.partition(":")[0] for line in question.split("\n")][:5] == [
            "Zombie lock detected",
            "- PID",
            "- Session",
            "- Started",
            "- Epic",
        ]
        assert question.count("\n") == ZOMBIE_IN_ENGLISH.count("\n")
        tty.type("n\n")
        ended = tty.wait()
        expect_blocked(project, ended, before)
        assert all(character.isprintable() or character == "\n" for character in ended.shown)
        assert ended.shown.count("\n") == question.count("\n") + 2, (
            "the answer, and one line that says what came of it"
        )

    @pytest.mark.parametrize("form", ["yaml", "json"])
    def test_the_answer_on_a_terminal_moves_no_cursor_and_forges_no_line(
        self, form: str, project: Project, tty: Terminal
    ) -> None:
        text = "a\\u001b[2J\\u009b2Jb\\r\\nstatus: acquired\\n\\u007f\\u0085"
        project.lock.write_text(
            f'pid: {NOBODY}\nsession_id: "{text}"\nstarted_at: "{project.started}"\nepic_spec: '
            f'"{text}"\n'
        )
        call = [word for word in MINE if form == "json" or word != "--json"]
        tty.start("sh", "-c", 'exec "$@" >&2', "sh", *SWARM, *call, cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type("n\n")
        ended = tty.wait()
        assert ended.code == 1
        assert all(character.isprintable() or character == "\n" for character in ended.shown)
        assert "\nstatus: acquired" not in ended.shown

    def test_a_start_that_is_no_time_is_not_shown_in_the_question(
        self, project: Project, tty: Terminal
    ) -> None:
        project.lock.write_text(
            f'pid: {NOBODY}\nsession_id: "s"\nstarted_at: '
            f'"{project.started}\\n\\u001b[2J"\nepic_spec: "e"\nlock_version: 1\n'
        )
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        assert "- Started: ? (?h ago)\n" in tty.shown
        assert "\x1b" not in tty.shown


class TestAnswer:
    @pytest.mark.parametrize("answer", ["y\n", "Y\n", " y \n", "yes\x7f\x7f\n"], ids=repr)
    def test_the_answer_y_overwrites_the_lock(
        self, answer: str, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type(answer)
        ended = tty.wait()
        expect_acquired(project, ended)
        warning = (
            f"Overwrote a zombie lock (PID: {NOBODY}, session: sprint-2026-02-07-001, "
            f"started: {project.started})"
        )
        assert warning in json.loads(ended.out)["warnings"][0]
        assert f"\nWarning: {warning}" in ended.shown

    @pytest.mark.parametrize(
        "answer",
        ["n\n", "N\n", "\n", "yes\n", "yy\n", "y n\n", "n\ny\n", "是\n", "\x1b[Ay\n", "\x04"],
        ids=repr,
    )
    def test_any_answer_but_y_leaves_the_lock(
        self, answer: str, project: Project, tty: Terminal
    ) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type(answer)
        ended = tty.wait()
        expect_blocked(project, ended, before)
        assert "\nError: Zombie lock not overwritten" in ended.shown, "on a line of its own"
        assert "--force or --yes" in json.loads(ended.out)["message"]

    def test_an_interrupt_at_the_question_is_a_no(self, project: Project, tty: Terminal) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type("\x03")
        ended = tty.wait()
        expect_blocked(project, ended, before)
        assert "\nError: Zombie lock not overwritten" in ended.shown
        assert tty.current_modes() == tty.modes

    def test_an_interrupt_at_the_question_is_a_no_however_early_it_comes(
        self, project: Project
    ) -> None:
        before = project.is_locked_by(NOBODY)
        for _ in range(5):
            with terminal() as tty:
                tty.start(*SWARM, *MINE, cwd=project.root)
                tty.wait_for("[y/N] ")
                began = time.monotonic()
                tty.type("\x03")
                expect_blocked(project, tty.wait(), before)
                assert time.monotonic() - began < mutex.USER_CONFIRM_TIMEOUT_SECONDS / 2

    def test_a_terminal_that_closes_at_the_question_is_a_no(
        self, project: Project, tty: Terminal
    ) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start("env", "--ignore-signal=HUP", *SWARM, *MINE, cwd=project.root, place="leader")
        tty.wait_for("[y/N] ")
        tty.hang_up()
        ended = tty.wait()
        assert (ended.code, json.loads(ended.out)["status"]) == (1, "blocked")
        assert project.lock.read_bytes() == before

    def test_text_typed_before_the_question_is_no_answer(
        self, project: Project, tty: Terminal
    ) -> None:
        before = project.is_locked_by(NOBODY)
        tty.type("y\n")
        tty.wait_for("y\n")
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type("n\n")
        expect_blocked(project, tty.wait(), before)

    def test_the_question_leaves_the_terminal_as_it_was(
        self, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type("y\n")
        expect_acquired(project, tty.wait())
        assert tty.current_modes() == tty.modes

    def test_a_running_sprint_is_overwritten_with_force_and_a_yes(
        self, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(os.getpid())
        tty.start(*SWARM, *MINE, "--force", cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type("y\n")
        ended = tty.wait()
        expect_acquired(project, ended)
        assert "Overwrote a lock of a running sprint" in json.loads(ended.out)["warnings"][0]

    @pytest.mark.parametrize("answer", ["n\n", "\n", "\x04", "\x03"], ids=repr)
    def test_a_running_sprint_is_not_overwritten_with_force_and_a_no(
        self, answer: str, project: Project, tty: Terminal
    ) -> None:
        before = project.is_locked_by(os.getpid())
        tty.start(*SWARM, *MINE, "--force", cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type(answer)
        ended = tty.wait()
        expect_blocked(project, ended, before)
        assert "--force with --yes" in json.loads(ended.out)["message"]


class TestNoAnswer:
    def test_the_question_waits_half_a_minute_as_the_document_says(self) -> None:
        assert mutex.USER_CONFIRM_TIMEOUT_SECONDS == 30

    def test_no_answer_within_the_time_is_a_no(self, project: Project, tty: Terminal) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start(*SHORT_TIMEOUT, "0.3", *MINE, cwd=project.root)
        ended = tty.wait()
        expect_blocked(project, ended, before)
        assert "[y/N] \nError: Zombie lock not overwritten" in ended.shown

    def test_half_an_answer_is_a_no_and_does_not_reach_the_shell(
        self, project: Project, tty: Terminal
    ) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start(*SHORT_TIMEOUT, "2", *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        tty.type("y")
        expect_blocked(project, tty.wait(), before)
        tty.type("\n")
        assert tty.read_line() == "\n"

    def test_no_answer_to_the_second_question_is_a_no_too(
        self, project: Project, tty: Terminal
    ) -> None:
        before = project.is_locked_by(os.getpid())
        tty.start(*SHORT_TIMEOUT, "0.3", *MINE, "--force", cwd=project.root)
        ended = tty.wait()
        expect_blocked(project, ended, before)
        assert "Overwrite it? [y/N]" in ended.shown


class TestNoQuestion:
    @pytest.mark.parametrize(
        "options", [["--yes"], ["--force"], ["--force", "--yes"]], ids=" ".join
    )
    def test_no_question_about_a_zombie_where_an_option_answers_it(
        self, options: list[str], project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, *options, cwd=project.root)
        ended = tty.wait()
        expect_acquired(project, ended)
        assert "[y/N]" not in ended.shown

    @pytest.mark.parametrize("options", [[], ["--yes"]], ids=["no option", "--yes"])
    def test_no_question_about_a_running_sprint_without_force(
        self, options: list[str], project: Project, tty: Terminal
    ) -> None:
        before = project.is_locked_by(os.getpid())
        tty.start(*SWARM, *MINE, *options, cwd=project.root)
        ended = tty.wait()
        expect_blocked(project, ended, before)
        message = (
            f"Sprint already running (PID: {os.getpid()}, session: sprint-2026-02-07-001, "
            f"started: {project.started})"
        )
        assert json.loads(ended.out)["message"] == message
        assert ended.shown == f"Error: {message}\n"

    def test_no_question_about_a_running_sprint_with_force_and_yes(
        self, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(os.getpid())
        tty.start(*SWARM, *MINE, "--force", "--yes", cwd=project.root)
        ended = tty.wait()
        expect_acquired(project, ended)
        assert "[y/N]" not in ended.shown

    @pytest.mark.parametrize("lock", ["zombie", "running sprint"])
    @pytest.mark.parametrize(
        "circumstances",
        [
            {"stdin": False},
            {"stderr": False},
            {"stdin": False, "stderr": False},
            {"place": "detached"},
            {"place": "background"},
        ],
        ids=[
            "stdin is no terminal",
            "stderr is no terminal",
            "neither is",
            "no controlling terminal",
            "in the background",
        ],
    )
    def test_no_question_and_no_wait_where_no_user_could_answer(
        self, circumstances: dict[str, Any], lock: str, project: Project, tty: Terminal
    ) -> None:
        before = project.is_locked_by(NOBODY if lock == "zombie" else os.getpid())
        options = [] if lock == "zombie" else ["--force"]
        began = time.monotonic()
        tty.start(*SWARM, *MINE, *options, cwd=project.root, **circumstances)
        ended = tty.wait()
        assert time.monotonic() - began < mutex.USER_CONFIRM_TIMEOUT_SECONDS
        expect_blocked(project, ended, before)
        assert "[y/N]" not in ended.shown + ended.out
        answered = "use --force or --yes" if lock == "zombie" else "use --force with --yes"
        assert answered in json.loads(ended.out.splitlines()[0])["message"]
        assert f"{answered}\n" in (ended.shown if circumstances.get("stderr", True) else ended.out)

    @pytest.mark.parametrize("mode", ["release", "check"])
    def test_no_question_in_a_mode_that_overwrites_nothing(
        self, mode: str, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, "sprint", mode, "--json", cwd=project.root)
        ended = tty.wait()
        assert ended.code == {"release": 0, "check": 1}[mode]
        assert ended.shown == ""


class TestTheJudgedFileIsTheReplacedFile:
    """The lock changes while the user thinks about the answer."""

    def test_a_sprint_that_began_during_the_question_keeps_its_lock(
        self, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        theirs = ["--session-id", "theirs", "--epic-spec", "e", "--pid", str(os.getpid())]
        assert project.swarm("acquire", *theirs, "--force")["status"] == "acquired"
        before = project.lock.read_bytes()
        tty.type("y\n")
        ended = tty.wait()
        expect_blocked(project, ended, before)
        answer = json.loads(ended.out)
        assert (answer["lock_info"]["session_id"], answer["lock_info"]["pid"]) == (
            "theirs",
            os.getpid(),
        )
        assert answer["message"].startswith(
            f"Sprint already running (PID: {os.getpid()}, session: theirs, "
        )
        assert ended.shown.count("[y/N]") == 1

    def test_force_asks_about_a_sprint_that_began_during_the_question(
        self, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(os.getpid(), "first")
        tty.start(*SWARM, *MINE, "--force", cwd=project.root)
        tty.wait_for("- Session: first\n")
        tty.wait_for("[y/N] ")
        before = project.is_locked_by(os.getpid(), "second")
        tty.type("y\n")
        tty.wait_for("- Session: second\n")
        tty.type("n\n")
        ended = tty.wait()
        expect_blocked(project, ended, before)
        assert json.loads(ended.out)["lock_info"]["session_id"] == "second"

    def test_a_lock_removed_during_the_question_is_acquired(
        self, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        assert project.swarm("release")["status"] == "released"
        tty.type("y\n")
        ended = tty.wait()
        expect_acquired(project, ended)
        assert json.loads(ended.out)["warnings"] == []
        assert ended.shown.count("[y/N]") == 1

    def test_a_lock_edited_to_be_alive_during_the_question_is_left_alone(
        self, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        before = project.is_locked_by(os.getpid())
        tty.type("y\n")
        ended = tty.wait()
        expect_blocked(project, ended, before)
        assert json.loads(ended.out)["lock_info"]["pid"] == os.getpid()

    def test_another_zombie_needs_another_yes(self, project: Project, tty: Terminal) -> None:
        project.is_locked_by(NOBODY, "first")
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("- Session: first\n")
        tty.wait_for("[y/N] ")
        before = project.is_locked_by(NOBODY, "second")
        tty.type("y\ny\n")
        tty.wait_for("- Session: second\n")
        tty.type("n\n")
        ended = tty.wait()
        expect_blocked(project, ended, before)
        assert ended.shown.count("[y/N]") == 2

    def test_a_no_acquires_nothing_although_the_lock_was_removed_meanwhile(
        self, project: Project, tty: Terminal
    ) -> None:
        project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        project.lock.unlink()
        tty.type("n\n")
        ended = tty.wait()
        assert (ended.code, json.loads(ended.out)["status"]) == (1, "blocked")
        assert os.listdir(project.root) == []

    def test_a_process_killed_at_the_question_leaves_nothing(
        self, project: Project, tty: Terminal
    ) -> None:
        before = project.is_locked_by(NOBODY)
        tty.start(*SWARM, *MINE, cwd=project.root)
        tty.wait_for("[y/N] ")
        os.kill(tty.pid, 9)
        assert tty.wait().code == -9
        assert project.lock.read_bytes() == before
        assert os.listdir(project.root) == [".sprint-running"]
