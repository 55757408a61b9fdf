"""The keys of `swarm status --watch`, in a shell with job control on a real terminal."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.board.text import text
from swarm.board.viewer import Viewer
from swarm.queue.questions.question import Question
from swarm.queue.queue import TaskQueue
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT
from tests.support.at_a_terminal import SWARM, Tmux, wait_until

PROMPT = "ready>"


class Watched(Tmux):
    """A swarm, and a shell in which its board is watched."""

    def __init__(self, folder: Path, state: Path) -> None:
        super().__init__(folder / "tmux")
        self.folder = folder
        self.queue = TaskQueue(FileStore(str(state)))

    def ask(self, task: str, text: str = "which one?", **fields: object) -> Question:
        self.queue.add(task, "x")
        token = self.queue.claim("w", task, ttl=600).token
        return self.queue.ask(task, "w", token, text, **fields)  # type: ignore[arg-type]

    def fail(self, task: str) -> None:
        self.queue.add(task, "x", max_attempts=1)
        self.queue.fail(task, "w", self.queue.claim("w", task).token, "no luck")

    def run(self, line: str) -> None:
        self("send-keys", "-l", line)
        self("send-keys", "Enter")

    def watch(self, *options: str) -> None:
        self.run(f"clear; {shlex.join([*SWARM, 'status', '--watch', *options])}")
        self.shows("q quit")

    def keys(self, *names: str) -> None:
        for name in names:
            self("send-keys", name)

    def type(self, text: str) -> None:
        self("send-keys", "-l", text)

    def shows(self, words: str) -> list[str]:
        return self.wait_for(lambda screen: any(words in line for line in screen))

    def modes(self, name: str) -> str:
        """Return the modes of the terminal as the shell's programs see them."""
        file = self.folder / name
        self.run(f"stty -g > {shlex.quote(str(file))}; echo modes of {name}")
        self.shows(f"modes of {name}")
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
        return file.read_text()

    def pid(self) -> int:
        """Return the process of the watch: the child of the shell."""
        shell = self("display-message", "-p", "#{pane_pid}").strip()
        (child,) = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        return int(child)


@pytest.fixture
def shell(tmp_path: Path, isolated_swarm_dir: Path) -> Iterator[Watched]:
    made = Watched(tmp_path, isolated_swarm_dir)
    given = [f"AI_SWARM_DIR={isolated_swarm_dir}", f"PS1={PROMPT}", f"PYTHONPATH={ROOT}"]
    program = ["bash", "--norc", "--noprofile", "-i"]
    made("new-session", "-d", "-x", "90", "-y", "30", "env", *given, *program)
    made.shows(PROMPT)
    yield made
    made("kill-server")


def answered(shell: Watched, task: str) -> str:
    (question,) = shell.queue.get(task).questions
    return question.answer


def test_a_question_is_selected_and_answered_by_number_and_by_text(shell: Watched) -> None:
    shell.ask("first", "which one?", options=["mysql", "sqlite"])
    shell.ask("second", "why?")
    shell.watch()
    shell.keys("j")
    shell.shows("q1▸ first")
    shell.keys("a")
    shell.shows("Answer q1: ▏")
    shell.type("3")
    shell.keys("Enter")
    shell.shows("is not an answer to q1")
    shell.keys("BSpace")
    shell.type("2")
    shell.keys("Enter")
    shell.shows("q1 is answered: «sqlite»")
    assert answered(shell, "first") == "sqlite"
    shell.wait_for(lambda screen: screen[0].startswith("swarm  1 question"))
    shell.keys("Down", "Enter")
    shell.shows("Answer q2: ▏")
    shell.type("weil q 中文 j?")
    shell.shows("Answer q2: weil q 中文 j?▏")
    shell.keys("Enter")
    shell.shows("q2 is answered")
    assert answered(shell, "second") == "weil q 中文 j?"


def test_the_typed_answer_stays_if_another_answers_first(shell: Watched) -> None:
    shell.ask("race")
    shell.watch()
    shell.keys("a")
    shell.shows("Answer q1: ▏")
    shell.type("my long thoughts")
    shell.queue.answer("q1", "theirs", "carol")
    shell.shows("q1 is not open any more: my long thoughts▏")
    shell.keys("Enter")
    shell.shows("carol answered first")
    shell.shows("my long thoughts▏")
    assert answered(shell, "race") == "theirs"
    shell.keys("Escape")
    shell.shows("q quit")


def test_a_pasted_text_is_no_command(shell: Watched) -> None:
    shell.ask("pasted")
    shell.watch()
    shell.keys("j")
    shell.shows("q1▸")
    shell("set-buffer", "c\ny\nq\n")
    shell("paste-buffer", "-p", "-r")
    shell.keys("a")
    shell.shows("Answer q1: ▏")
    shell("paste-buffer", "-p", "-r")
    shell.shows("Answer q1: c\\ny\\nq\\n▏")
    shell.keys("Enter")
    shell.shows("q1 is answered")
    assert answered(shell, "pasted") == "c\ny\nq"


def test_a_failed_task_is_tried_again_and_cancel_asks_first(shell: Watched) -> None:
    shell.fail("broken")
    shell.watch()
    shell.keys("c")
    shell.shows("Select a question or a problem")
    shell.keys("j", "r")
    shell.shows("broken is tried again.")
    assert shell.queue.get("broken").state == "ready"
    shell.ask("asks")
    shell.shows("q1  asks")
    shell.keys("k", "k", "c")
    shell.shows("Cancel asks? Its worker stops. y/n")
    shell.keys("n")
    shell.shows("Not cancelled.")
    assert shell.queue.get("asks").state == "asking"
    shell.keys("c")
    shell.shows("y/n")
    shell.keys("y")
    shell.shows("asks is cancelled.")
    assert shell.queue.get("asks").state == "cancelled"


def test_the_output_of_a_task_and_the_keys_can_be_shown(
    shell: Watched, isolated_swarm_dir: Path
) -> None:
    asked = shell.ask("prints")
    results = isolated_swarm_dir / "results"
    results.mkdir()
    lines = "".join(f"line {number}\n" for number in range(100))
    (results / f"prints.{asked.token}.txt").write_text(lines + "evil \x1b[2J\n")
    shell.watch()
    shell.keys("j", "o")
    screen = shell.shows("line 99")
    assert screen[0] == "Output of prints" and any("evil \\x1b[2J" in line for line in screen)
    shell.keys("x", "?")
    shell.shows("select a question or a problem")
    shell.keys("Escape", "q")
    shell.wait_for(lambda screen: screen[-1:] == [PROMPT] or PROMPT in screen)


@pytest.mark.parametrize("how", ["q", "ctrl-c", "term", "error"])
def test_the_terminal_is_as_before_however_it_ends(
    shell: Watched, isolated_swarm_dir: Path, how: str
) -> None:
    shell.ask("asks")
    before = shell.modes("before")
    shell.watch()
    shell.keys("a")
    shell.shows("Answer q1")
    if how == "q":
        shell.keys("Escape")
        shell.shows("q quit")
        shell.keys("q")
    elif how == "ctrl-c":
        shell.keys("C-c")
    elif how == "term":
        os.kill(shell.pid(), signal.SIGTERM)
    else:
        (isolated_swarm_dir / "status.log").unlink()
        os.mkfifo(isolated_swarm_dir / "status.log")
        shell.shows("Error: ")
    wait_until(lambda: shell("display-message", "-p", "#{alternate_on}").strip() == "0")
    assert shell.modes("after") == before
    assert shell("display-message", "-p", "#{cursor_flag}").strip() == "1"


def test_ctrl_z_gives_the_terminal_back_and_keys_work_again_after_fg(shell: Watched) -> None:
    shell.ask("asks")
    before = shell.modes("before")
    shell.watch()
    shell.keys("C-z")
    shell.shows("Stopped")
    assert shell.modes("stopped") == before
    shell.run("fg")
    shell.shows("q quit")
    shell.keys("j")
    shell.shows("q1▸ asks")
    shell.keys("q")
    shell.shows("modes of stopped")
    assert shell.modes("after") == before


def test_the_bell_rings_once_for_each_new_question_or_failure(shell: Watched) -> None:
    shell.ask("old")
    sent = shell.folder / "sent"
    shell("pipe-pane", "-o", f"cat > {shlex.quote(str(sent))}")
    shell.watch()
    shell.ask("new", "and now?")
    shell.shows("and now?")
    wait_until(lambda: sent.read_bytes().count(b"\a") == 1)
    shell.fail("broken")
    shell.shows("no luck")
    wait_until(lambda: sent.read_bytes().count(b"\a") == 2)
    shell.queue.answer("q2", "x", "carol")
    shell.wait_for(lambda screen: screen[0].startswith("swarm  1 question · 1 problem"))
    assert sent.read_bytes().count(b"\a") == 2


def test_without_the_bell_nothing_rings(shell: Watched) -> None:
    sent = shell.folder / "sent"
    shell("pipe-pane", "-o", f"cat > {shlex.quote(str(sent))}")
    shell.watch("--no-bell")
    shell.ask("new", "and now?")
    shell.shows("and now?")
    shell.keys("q")
    wait_until(lambda: b"\x1b[?1049l" in sent.read_bytes())
    assert b"\a" not in sent.read_bytes()


def test_a_small_pane_shows_the_questions_and_takes_keys(shell: Watched) -> None:
    for number in range(3):
        shell.fail(f"broken-{number}")
    shell.ask("asks", "which one?")
    shell.watch()
    shell("resize-window", "-x", "40", "-y", "5")
    screen = shell.wait_for(lambda screen: max(map(len, screen)) <= 40 and len(screen) <= 5)
    screen = shell.shows("q1  asks: «which one?»")
    shell.keys("a")
    shell.shows("Answer q1: ▏")
    shell.type("yes")
    shell.keys("Enter")
    shell.shows("q1 is answered")
    assert answered(shell, "asks") == "yes" and screen


def test_a_small_pane_gives_its_lines_to_the_selected_question(shell: Watched) -> None:
    shell.fail("broken")
    shell.ask("other", "another one?")
    words = "May the migration drop the old table, or must its rows be kept for the audit first?"
    shell.ask("asks", words, options=["drop the table", "keep the rows for a year", "ask again"])
    shell.watch()
    shell("resize-window", "-x", "40", "-y", "10")
    shell.wait_for(lambda screen: max(map(len, screen)) <= 40 and len(screen) <= 10)
    shell.keys("j", "j")

    def shows_all(screen: list[str]) -> bool:
        drawn = " ".join(" ".join(screen).split())
        options = "1 «drop the table» 2 «keep the rows for a year» 3 «ask again»"
        return f"«{words}» {options}" in drawn

    shell.wait_for(shows_all)
    shell.keys("a")
    shell.type("2")
    shell.shows("Answer q2: 2▏")
    screen = shell.wait_for(shows_all)
    assert screen[0].startswith("swarm  2 questions")
    shell.keys("Enter")
    shell.shows("q2 is answered")
    assert answered(shell, "asks") == "keep the rows for a year"


def test_a_narrow_pane_shows_all_of_the_help(shell: Watched) -> None:
    shell.watch()
    shell("resize-window", "-x", "40", "-y", "20")
    shell.keys("?")

    def shows_all(screen: list[str]) -> bool:
        words = " ".join(" ".join(screen).split())
        return "select a question or a problem" in words and "…" not in words

    shell.wait_for(shows_all)


def test_a_low_screen_has_no_heading_without_rows(isolated_swarm_dir: Path) -> None:
    store = FileStore(str(isolated_swarm_dir))
    queue = TaskQueue(store)
    queue.add("broken", "x", max_attempts=1)
    queue.fail("broken", "w", queue.claim("w", "broken").token, "no luck")
    board = Viewer(store).look()
    for height in range(1, 14):
        last = text(board, 40, height)[-1]
        assert last not in ("", "Problems", "At work"), height
