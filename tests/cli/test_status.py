"""`swarm status` as a person sees it: on a screen of any size, in a pipe, as JSON, and
live in a real terminal.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.board.board import ActiveTask, Board, LockRow, Problem, QuestionRow
from swarm.board.text import text
from swarm.board.viewer import Viewer
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.log import LOG, StatusLog
from swarm.stores.file.store import FileStore
from swarm.terminal import output
from swarm.terminal.screen import LiveScreen
from swarm.terminal.text import cut, duration, fill, width
from tests.support.at_a_terminal import SWARM, Tmux, environment, wait_until
from tests.support.command_line import run

AT = "2026-02-02T10:30:00.000Z"


def a_board(
    problems: int = 0,
    workers: int = 0,
    kinds: tuple[str, ...] = ("failed",),
    words: str = "text",
    questions: int = 0,
) -> Board:
    return Board(
        generated_at="2026-02-02T10:34:00.000Z",
        problems=tuple(
            Problem(kind, f"{kind}-{n}", "w", AT, words, f"swarm fix {n}")
            for kind in kinds
            for n in range(problems)
        ),
        workers=tuple(
            ActiveTask(f"worker-{n}", f"task-{n}", AT, 240, 60, 300, n, "START", words, AT)
            for n in range(workers)
        ),
        locks=(LockRow("t", "Active", "", "w", AT, AT, 1, 1, 1),),
        queue={"ready": 3, "waiting": 0, "running": 2, "done": 5, "failed": 1, "cancelled": 0},
        blocked=0,
        seen=(),
        records=1_234_567,
        damaged=0,
        cursor="1:0",
        questions=tuple(
            a_question(f"q{n}", f"asks-{n}", words, options=("yes", words) if n % 2 else ())
            for n in range(questions)
        ),
    )


def a_question(name: str, task: str, words: str, **fields: Any) -> QuestionRow:
    made = QuestionRow(
        name, task, "w", words, (), "", "", AT, "question", "anyone", False, False, {}
    )
    return made.replace(**fields)


class TestLayout:
    def test_problems_come_first_then_work_then_the_queue(self) -> None:
        assert text(a_board(problems=1, workers=1), 80, 24) == [
            "swarm  1 problem · 1 at work                                        10:34:00 UTC",
            "",
            "Problems",
            "FAILED  failed-0 · w · 4 min 0 s: text",
            "        swarm fix 0",
            "",
            "At work",
            "  worker-0  task-0  4 min 0 s  lease 1 min 0 s  text",
            "",
            "Queue  11 tasks · 2 running · 3 ready · 5 done · 1 failed",
            "       " + "█" * 32 + "▓" * 12 + "▒" * 19 + "▚" * 6,
            "Log    1,234,567 records",
        ]

    def test_lines_that_do_not_fit_are_counted_with_the_command_that_shows_them(self) -> None:
        lines = text(a_board(problems=40, workers=9, kinds=("waiting", "failed")), 80, 24)
        assert len(lines) == 24
        assert "        … and 38 more waiting for a user, see: swarm status --json" in lines
        assert "        … and 38 more failed, see: swarm task list --state failed" in lines
        assert "  … and 5 more, see: swarm lock list" in lines
        assert lines[-1].startswith("Log")

    def test_questions_come_before_problems_with_options_and_the_command(self) -> None:
        due = "2026-02-02T10:36:00.000Z"
        asked = a_question(
            "q7", "api", "Which\ndatabase?", options=("mysql", "sqlite"), default="mysql", due=due
        )
        lines = text(a_board(problems=1).replace(questions=(asked,)), 80, 30)
        assert lines[0].startswith("swarm  1 question · 1 problem · 0 at work")
        assert lines[2:8] == [
            "Questions",
            "q7  api · w · 4 min 0 s · «mysql» counts in 2 min 0 s",
            "    «Which database?»",
            "    1 «mysql»   2 «sqlite»",
            "    swarm answer q7 '…'",
            "",
        ]
        assert lines.index("Problems") > 7

    @pytest.mark.parametrize("height", [4, 6, 10, 14, 24])
    @pytest.mark.parametrize("count", [1, 2])
    def test_a_small_screen_shows_the_questions_before_all_else(
        self, height: int, count: int
    ) -> None:
        board = a_board(40, 40, ("waiting", "failed"), "text", questions=count)
        lines = text(board, 40, height)
        for number in range(count):
            assert any(f"asks-{number}" in line for line in lines)
        assert any("swarm answer q0 '…'" in line for line in lines)

    def test_the_selected_question_is_not_left_out(self) -> None:
        board = a_board(questions=30)
        for question in board.questions:
            lines = text(board, 80, 10, selected=question)
            assert any(f"▸ {question.task_id}" in line for line in lines)
            assert any("and 23 more, see: swarm questions" in line for line in lines)

    def test_a_board_without_problems_says_so(self) -> None:
        lines = text(a_board(), 80, 24)
        assert (
            lines[0].startswith("swarm  no problems · 0 at work")
            and "Problems" not in lines
            and "  no worker" in lines
        )

    @given(
        st.integers(0, 60),
        st.integers(0, 60),
        st.lists(
            st.sampled_from(["waiting", "gone", "failed", "error", "lease", "blocked"]),
            min_size=1,
            unique=True,
        ),
        st.text(max_size=200)
        | st.sampled_from(["中文" * 60, "🙂" * 100, "e\u0301" * 200, "\x1b[2J\n\r"]),
        st.integers(20, 200),
        st.integers(5, 60) | st.none(),
        st.integers(0, 60),
    )
    def test_no_line_is_wider_or_higher_than_the_screen_and_none_moves_the_cursor(
        self,
        problems: int,
        workers: int,
        kinds: list[str],
        words: str,
        columns: int,
        height: int | None,
        questions: int,
    ) -> None:
        board = a_board(problems, workers, tuple(kinds), words, questions)
        lines = text(board, columns, height)
        assert all(width(line) <= columns for line in lines)
        assert all(line.isprintable() for line in lines)
        assert height is None or len(lines) <= height
        assert len(lines) < 190

    def test_colour_never_changes_what_is_cut(self) -> None:
        board = a_board(30, 30, ("waiting", "failed"), "中文" * 50)
        plain = text(board, 80, 24)
        painted = text(board, 80, 24, lambda words, colour: f"<{colour}>{words}</>")
        for colour in ("bold", "dim", "red", "green", "yellow"):
            painted = [line.replace(f"<{colour}>", "") for line in painted]
        assert [line.replace("</>", "") for line in painted] == plain


class TestColumns:
    @pytest.mark.parametrize(
        ("text", "columns"), [("abc", 3), ("中文", 4), ("🙂", 2), ("e\u0301", 1), ("", 0)]
    )
    def test_text_is_as_wide_as_a_terminal_shows_it(self, text: str, columns: int) -> None:
        assert width(text) == columns

    @given(st.text(), st.integers(0, 30))
    def test_cut_text_fits_and_text_that_fits_is_not_cut(self, text: str, columns: int) -> None:
        assert width(cut(text, columns)) <= columns
        assert cut(text, width(text)) == text
        assert width(fill(text, columns)) == columns

    def test_a_wide_character_is_not_cut_in_half(self) -> None:
        assert [cut("中文字", n) for n in range(7)] == [
            "",
            "…",
            "…",
            "中…",
            "中…",
            "中文…",
            "中文字",
        ]

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(0, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (7260, "2 h 1 min"), (90000, "1 d 1 h")],
    )
    def test_a_duration_has_at_most_two_units(self, seconds: float, text: str) -> None:
        assert duration(seconds) == text


class TestCommand:
    def test_status_of_an_empty_store_says_so_and_creates_nothing(
        self, isolated_swarm_dir: Path
    ) -> None:
        answer = run("status")
        assert answer.code == 0 and answer.out.startswith(b"Nothing has happened here yet")
        assert run("status", "--json").json["problems"] == []
        assert not isolated_swarm_dir.exists()

    def test_status_exits_with_0_where_there_are_problems(self, isolated_swarm_dir: Path) -> None:
        StatusLog(FileStore(str(isolated_swarm_dir))).append("HELP", "w", "t", "who?")
        answer = run("status")
        assert answer.code == 0 and b"WAITS  t \xc2\xb7 w" in answer.out
        assert run("status", "--json").json["problems"][0]["text"] == "who?"

    def test_a_store_that_cannot_be_read_is_exit_3(self, isolated_swarm_dir: Path) -> None:
        isolated_swarm_dir.write_text("a file")
        assert run("status").code == 3
        assert run("status", "--json").json["exit_code"] == 3

    def test_a_log_that_is_a_pipe_is_exit_3_and_not_waited_for(
        self, isolated_swarm_dir: Path
    ) -> None:
        isolated_swarm_dir.mkdir()
        os.mkfifo(isolated_swarm_dir / "status.log")
        assert run("status").code == 3

    def test_status_takes_no_arguments(self, isolated_swarm_dir: Path) -> None:
        assert run("status", "task-1").code == 2

    def test_damaged_lines_are_counted(self, isolated_swarm_dir: Path) -> None:
        isolated_swarm_dir.mkdir()
        (isolated_swarm_dir / "status.log").write_bytes(b'nonsense\n{"a": 1}\n[]\n')
        assert b"1 record, 2 damaged (swarm log validate)" in run("status").out

    def test_status_is_as_wide_as_columns_says(
        self, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        StatusLog(FileStore(str(isolated_swarm_dir))).append("HELP", "w", "t", "x" * 300)
        assert max(map(len, run("status").out.decode().splitlines())) == 80
        monkeypatch.setenv("COLUMNS", "133")
        assert max(map(len, run("status").out.decode().splitlines())) == 133
        monkeypatch.setenv("COLUMNS", "wide")
        assert max(map(len, run("status").out.decode().splitlines())) == 80


@pytest.fixture
def tmux(tmp_path: Path, isolated_swarm_dir: Path) -> Iterator[Tmux]:
    made = Tmux(tmp_path / "tmux")
    shell = f"trap : INT; {shlex.join(SWARM)} status --watch; echo ended with $?; exec cat"
    made(
        "new-session",
        "-d",
        "-x",
        "80",
        "-y",
        "24",
        "env",
        f"AI_SWARM_DIR={isolated_swarm_dir}",
        "sh",
        "-c",
        shell,
    )
    yield made
    made("kill-server")


@pytest.mark.usefixtures("isolated_swarm_dir")
def test_a_killed_worker_is_shown_until_it_is_forgotten_even_when_all_is_done() -> None:
    run("task", "add", "a", "--", "true")
    worker = subprocess.Popen(
        [*SWARM, "worker", "--id", "7", "--quiet"], env=environment(), stderr=subprocess.DEVNULL
    )
    try:
        assert run("wait", "a", "--timeout", "60").code == 0
    finally:
        worker.kill()
        worker.wait()

    shown = run("status").out.decode()

    assert "1 problem" in shown and "DIED  worker-7" in shown
    assert "swarm worker --id 7" in shown or "swarm worker --id worker-7" in shown
    assert "swarm status --forget-dead" in " ".join(shown.split())
    run("status", "--forget-dead")
    assert b"no problems" in run("status").out


class TestWatch:
    def test_watch_is_live_and_fits_the_terminal_and_ctrl_c_restores_the_screen(
        self, tmux: Tmux, isolated_swarm_dir: Path
    ) -> None:
        tmux.wait_for(lambda screen: screen[0].startswith("Nothing has happened"))
        store = FileStore(str(isolated_swarm_dir))
        queue = TaskQueue(store)
        queue.add("登录-1", "fix it")
        queue.claim("worker-1")
        StatusLog(store).append("WAIT", "worker-1", "登录-1", "哪个数据库? " + "很长的问题" * 20)
        screen = tmux.wait_for(lambda screen: any(line.startswith("WAITS") for line in screen))
        assert screen[0].startswith("swarm  1 problem · 1 at work") and screen[0].endswith(" UTC")
        assert screen[1].startswith("No project, state in ") and screen[2:4] == ["", "Problems"]
        assert screen[4].startswith("WAITS  登录-1 · worker-1 · ") and screen[6].endswith("…")
        assert screen[7] == "       swarm task show '登录-1'"
        assert screen[9] == "At work" and screen[10].startswith("  worker-1  登录-1  ")
        assert screen[12] == "Queue  1 task · 1 running" and screen[14] == "Log    2 records"
        assert not any(screen[15:23]) and screen[23] == "↑↓ select · ? keys · q quit"
        assert 77 <= width(screen[4]) <= 79

        tmux("resize-window", "-x", "40", "-y", "12")
        screen = tmux.wait_for(
            lambda screen: screen[0] == "swarm  1 problem · 1 at work" and width(screen[4]) < 40
        )
        assert screen[4].endswith("…") and max(map(width, screen)) <= 39

        StatusLog(store).append("START", "worker-1", "登录-1", "goes on")
        tmux.wait_for(lambda screen: screen[0].startswith("swarm  no problems · 1 at work"))

        tmux("send-keys", "C-c")
        screen = tmux.wait_for(lambda screen: "ended with 0" in screen)
        assert not any("At work" in line for line in screen)
        assert tmux(
            "display-message", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}"
        ).split() == ["0", "1", "1"]

    def test_watch_updates_ages_while_nothing_happens(
        self, tmux: Tmux, isolated_swarm_dir: Path
    ) -> None:
        LockTable(FileStore(str(isolated_swarm_dir))).acquire("t", "w", None)
        tmux.wait_for(lambda screen: "  w  t  1 s  no end" in screen)
        tmux.wait_for(lambda screen: "  w  t  2 s  no end" in screen)

    def test_watch_stopped_by_ctrl_z_restores_the_screen_until_it_goes_on(self, tmux: Tmux) -> None:
        tmux.wait_for(lambda screen: screen[0].startswith("Nothing has happened"))
        shell = tmux("display-message", "-p", "#{pane_pid}").strip()
        pid = int(Path(f"/proc/{shell}/task/{shell}/children").read_text())
        os.kill(pid, signal.SIGTSTP)
        wait_until(lambda: tmux("display-message", "-p", "#{alternate_on}").strip() == "0")
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: tmux("display-message", "-p", "#{alternate_on}").strip() == "1")
        tmux.wait_for(lambda screen: screen[0].startswith("Nothing has happened"))


def read_until(fd: int, wanted: bytes, seen: bytes = b"") -> bytes:
    deadline = time.monotonic() + 30
    while wanted not in seen:
        assert select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0], seen
        seen += os.read(fd, 65536)
    return seen


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)]
)
def test_the_terminal_is_as_before_however_watch_ends(
    isolated_swarm_dir: Path, number: signal.Signals, code: int
) -> None:
    person, tty = pty.openpty()
    watch = subprocess.Popen(
        [*SWARM, "status", "--watch"],
        stdin=tty,
        stdout=tty,
        stderr=tty,
        env=environment(),
        process_group=0,
    )
    try:
        seen = read_until(person, b"\x1b[J")
        assert seen.startswith(b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[HNothing")
        watch.send_signal(number)
        assert watch.wait(30) == code
        seen = read_until(person, b"\x1b[?1049l", seen)
        assert seen.endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l")
        assert b"\x1b[2J" not in seen  # which would flicker
    finally:
        watch.kill()
        watch.wait()
        os.close(person)
        os.close(tty)


def test_a_signal_whose_exception_gets_lost_still_ends_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "out", lambda text: None)
    with LiveScreen() as screen:
        with pytest.raises(SystemExit):  # and no caller sees it, as in a finalizer
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            screen.pause(time.sleep, 20)
    assert ended.value.code == 143


def test_another_size_of_the_terminal_ends_the_pause_and_interrupts_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "out", lambda text: None)
    before = signal.getsignal(signal.SIGWINCH)
    with LiveScreen() as screen:
        os.kill(os.getpid(), signal.SIGWINCH)
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGWINCH))
        timer.start()
        begun = time.monotonic()
        screen.pause(time.sleep, 20)
        assert 0.1 < time.monotonic() - begun < 10
        timer.join()
    assert signal.getsignal(signal.SIGWINCH) == before


def test_a_store_error_during_watch_is_printed_after_the_screen_is_restored(
    isolated_swarm_dir: Path,
) -> None:
    isolated_swarm_dir.mkdir()
    person, tty = pty.openpty()
    watch = subprocess.Popen(
        [*SWARM, "status", "--watch"],
        stdin=tty,
        stdout=tty,
        stderr=tty,
        env=environment(),
        process_group=0,
    )
    try:
        seen = read_until(person, b"\x1b[J")
        os.mkfifo(isolated_swarm_dir / "status.log")
        assert watch.wait(30) == 3
        seen = read_until(person, b"Error: the state directory", seen)
        assert seen.index(b"\x1b[?1049l") < seen.index(b"Error: the state directory")
    finally:
        watch.kill()
        watch.wait()
        os.close(person)
        os.close(tty)


class TestWatchWithoutATerminal:
    @contextmanager
    def started(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        command = [*SWARM, "status", "--watch", *options]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment()
        ) as watch:
            try:
                yield watch
            finally:
                watch.kill()

    def test_watch_without_a_terminal_prints_again_only_after_a_change(
        self, isolated_swarm_dir: Path
    ) -> None:
        store = FileStore(str(isolated_swarm_dir))
        LockTable(store).acquire("t", "w", 300)
        with self.started("--json") as watch:
            assert watch.stdout is not None
            assert json.loads(watch.stdout.readline())["problems"] == []
            assert not select.select([watch.stdout], [], [], 2.2)[0]
            StatusLog(store).append("HELP", "w", "t", "who?")
            assert json.loads(watch.stdout.readline())["problems"][0]["text"] == "who?"
            watch.send_signal(signal.SIGINT)
            assert watch.wait(30) == 0

    def test_screens_without_a_terminal_are_separated_and_have_no_colour(
        self, isolated_swarm_dir: Path
    ) -> None:
        store = FileStore(str(isolated_swarm_dir))
        store.append(LOG, b"{}")
        with self.started() as watch:
            assert watch.stdout is not None
            first = [watch.stdout.readline() for _ in range(7)]
            assert first[0].startswith("swarm  no problems") and first[-1] == "Log    1 record\n"
            StatusLog(store).append("HELP", "w", "t", "who?")
            assert watch.stdout.readline() == "\n"
            assert watch.stdout.readline().startswith("swarm  1 problem")
            assert "\x1b" not in "".join(first)
            watch.send_signal(signal.SIGINT)
            assert watch.wait(30) == 0


def test_status_of_a_long_log_is_fast_the_second_time(isolated_swarm_dir: Path) -> None:
    """Counted, not timed: the second look takes in no line."""
    store = FileStore(str(isolated_swarm_dir))
    for number in range(3000):
        store.append(LOG, b'{"state": "WAIT", "task_id": "t%d"}' % (number % 10))
    assert len(Viewer(store).look().problems) == 10
    unread = (
        "from swarm.status import summary as status_picture; "
        "status_picture.StatusSummary.apply = None"
    )
    program = (
        f"import sys; {unread}; from swarm.cli.main import main; sys.exit(main(['status', "
        f"'--json']))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment(), text=True
    )
    assert answer.returncode == 0, answer.stderr
    assert len(json.loads(answer.stdout)["problems"]) == 10
