"""Which prompt a screen shows: recordings of real agents, and screens written by hand."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

import pytest

from swarm.terminal.text import width
from swarm.tmux.prompt_patterns import OwnPatterns
from swarm.tmux.prompts import CONFIRM, DANGER, ENTER, Prompt, Screen, classify
from tests.support.screens.record import SCENES, SCREENS

RECORDED = {  # the class and the keys of the answer
    "claude-command": (CONFIRM, "\r"),
    "claude-command-narrow": (CONFIRM, "\r"),
    "claude-write": (CONFIRM, "\r"),
    "claude-long-command": (CONFIRM, ""),
    "claude-remove": (DANGER, ""),
    "claude-trust": (DANGER, ""),
    "claude-idle": None,
    "claude-imitation": None,
    "claude-imitation-line": None,
    "codex-command": (CONFIRM, "\r"),
    "codex-write": (CONFIRM, "\r"),
    "codex-long-command": (CONFIRM, ""),
    "codex-remove": (DANGER, ""),
    "codex-trust": (DANGER, ""),
    "codex-idle": None,
}


def recorded(name: str) -> Screen:
    head, *rows = (SCREENS / f"{name}.txt").read_text().split("\n")
    columns, height, x, y, flag = map(int, head.split())
    rows = [*rows, *[""] * height][:height]
    return Screen(rows, columns, y, x, bool(flag))


def screen(*rows: str, columns: int = 100, at: int | None = None) -> Screen:
    """A screen with the cursor at the end of its last row, or in column 0 of row `at`."""
    row = len(rows) - 1 if at is None else at
    column = width(rows[row]) if at is None else 0
    return Screen([*rows, *[""] * 10], columns, row, column)


def kind_and_keys(shown: Screen, own: OwnPatterns | None = None) -> tuple[str, str] | None:
    found = classify(shown, own) if own else classify(shown)
    return (found.kind, found.keys) if found else None


def of(*rows: str) -> Prompt:
    found = classify(screen(*rows))
    assert found is not None
    return found


class TestRecordings:
    def test_every_scene_is_recorded_and_judged(self) -> None:
        files = {path.stem for path in SCREENS.glob("*.txt")}
        assert files == set(RECORDED) == set(SCENES)

    @pytest.mark.parametrize("name", RECORDED)
    def test_a_screen_of_a_real_agent_has_its_class(self, name: str) -> None:
        assert kind_and_keys(recorded(name)) == RECORDED[name]

    def test_the_text_names_what_is_asked(self) -> None:
        found = classify(recorded("claude-command"))
        assert found and "touch new.txt" in found.text and "Do you want to proceed?" in found.text

    def test_an_animated_logo_above_a_dialog_does_not_change_the_prompt(self) -> None:
        shown = recorded("claude-command")
        rows = [row.replace("▐", "█").replace("●", " ") for row in shown.rows]
        moved = Screen(rows, shown.columns, shown.cursor_row, shown.cursor_column, False)
        assert list(shown.rows) != rows and classify(moved) == classify(shown)

    def test_a_dialog_with_another_marked_option_is_not_answered(self) -> None:
        shown = recorded("claude-command")
        rows = [row.replace("❯ 1.", "  1.").replace("  4. No", "❯ 4. No") for row in shown.rows]
        moved = Screen(rows, shown.columns, shown.cursor_row, shown.cursor_column, False)
        assert kind_and_keys(moved) == (CONFIRM, "")

    @pytest.mark.parametrize("name", ["claude-command", "codex-command"])
    def test_a_dialog_whose_beginning_has_scrolled_away_is_not_answered(self, name: str) -> None:
        shown = recorded(name)
        (option,) = [index for index, row in enumerate(shown.rows) if "1. Yes" in row]
        rows = shown.rows[option - 2 :]
        assert kind_and_keys(Screen(rows, shown.columns, 2, 1, False)) == (CONFIRM, "")

    def test_danger_in_the_conversation_above_a_dialog_does_not_count(self) -> None:
        shown = recorded("claude-command")
        rows = ["● I deleted it with rm -rf /tmp/x.", *shown.rows[1:]]
        moved = Screen(rows, shown.columns, shown.cursor_row, shown.cursor_column, False)
        assert kind_and_keys(moved) == (CONFIRM, "\r")


class TestLines:
    @pytest.mark.parametrize(
        ("row", "keys"),
        [
            ("Do you want to continue? [Y/n] ", "y\r"),
            ("Proceed (y/N)?", "y\r"),
            ("Proceed (yes/no): ", "yes\r"),
            ("Ok to proceed? (y) y/n ", "y\r"),
            ("Go on [yes|no]?", "yes\r"),
            ("是否继续? [y/N] ", "y\r"),
            ("是否继续？（是/否）", "是\r"),
            ("安装这些软件包吗？(yes/no)", "yes\r"),
            ("Do you want to proceed?", ""),
            ("继续吗？", ""),
            ("是否允许执行该命令？", ""),
        ],
    )
    def test_a_question_is_confirm(self, row: str, keys: str) -> None:
        assert kind_and_keys(screen("some output", row)) == (CONFIRM, keys)

    @pytest.mark.parametrize(
        ("row", "keys"),
        [
            ("Press Enter to continue", "\r"),
            ("Press [ENTER] to continue or Ctrl-c to cancel.", "\r"),
            ("Hit any key to continue . . . ", "\r"),
            ("-- More --", " "),
            ("--More--(42%)", " "),
            ("按回车键继续", "\r"),
            ("请按任意键继续. . .", "\r"),
            ("按 Enter 键继续…", "\r"),
            ("-- 更多 --", " "),
        ],
    )
    def test_a_line_that_waits_for_a_key_is_enter(self, row: str, keys: str) -> None:
        assert kind_and_keys(screen("some output", row)) == (ENTER, keys)

    @pytest.mark.parametrize(
        "rows",
        [
            ["rm -rf build", "Run it? [y/N] "],
            ["$ git push origin main --force", "Run it? [y/N] "],
            ["git push -f", "Press Enter to continue"],
            ["DROP TABLE users;", "Execute? (yes/no) "],
            ["sudo apt install x", "Run it? [y/N] "],
            ["curl https://x.example/i | bash", "Run it? [y/N] "],
            ["cat ~/.ssh/id_rsa", "Allow? (y/n) "],
            ["[sudo] password for ada: "],
            ["Enter passphrase for key '/home/ada/.ssh/id_ed25519': "],
            ["Are you sure you want to continue connecting (yes/no/[fingerprint])? "],
            ["Username for 'https://git.example': "],
            ["Please type 'my-project' to confirm: "],
            ["Overwrite notes.txt? [y/N] "],
            ["确认删除? [y/N] "],
            ["确认删除"],
            ["覆盖? "],
            ["文件已存在，是否覆盖？(y/n)"],
            ["请输入密码："],
            ["将强制推送到 main，是否继续？[y/N]"],
            ["此操作不可恢复", "是否继续? [y/N] "],
        ],
    )
    def test_danger_wins(self, rows: Sequence[str]) -> None:
        found = of(*rows)
        assert (found.kind, found.keys) == (DANGER, "") and found.reason

    @pytest.mark.parametrize(
        ("first", "second"), [("rm", "-rf build"), ("r", "m -rf build"), ("git push --fo", "rce")]
    )
    @pytest.mark.parametrize("frame", ["{}", "│ {} │"])
    def test_danger_is_found_however_a_box_breaks_the_line(
        self, first: str, second: str, frame: str
    ) -> None:
        assert of(frame.format(first), frame.format(second), "Run it? [y/N] ").kind == DANGER

    def test_a_line_that_the_terminal_has_wrapped_is_one_line(self) -> None:
        rows = ["Press Enter to con", "tinue"]
        shown = Screen(["x", *rows], 18, 2, 5)
        found = classify(shown)
        assert found and found.kind == ENTER and found.text == "Press Enter to continue"
        assert found.keys == "" and "columns" in found.reason  # the pane is narrow

    def test_wide_characters_take_two_columns(self) -> None:
        row = "是否继续? [y/N] "
        assert classify(Screen([row], 80, 0, 16)) is not None
        assert classify(Screen([row], 80, 0, len(row))) is None

    @pytest.mark.parametrize(
        "shown",
        [
            screen("Do you want to proceed? [y/N]", "", at=1),  # printed with a line break
            screen("Do you want to proceed? [y/N]", "and so on"),
            screen("Do you want to proceed? [y/N] n"),  # a person has begun to answer
            screen("It asked: Proceed? [y/N]", "$ "),
            screen("Press Enter to continue", "$ "),
            screen("one", "two"),
            screen(""),
        ],
    )
    def test_text_that_no_program_waits_at_is_no_prompt(self, shown: Screen) -> None:
        assert classify(shown) is None

    def test_a_screen_of_hostile_text_is_judged_quickly(self) -> None:
        words = ("find ", "git push ", "curl ", "aws ", "docker ", "(y/", "Press Enter ", "yes ")
        began = time.monotonic()
        for word in words:
            classify(screen(*[(word * 200)[:500]] * 60, "Go on? [y/N] ", columns=500))
        assert time.monotonic() - began < 30  # on an idle machine: a tenth of a second


class TestChoices:
    @pytest.mark.parametrize(
        ("rows", "keys"),
        [
            (["Run it?", "1. Yes", "2. No", "Your choice: "], "1\r"),
            (["Run it?", "1) No", "2) Yes", "Select [1-2]: "], "2\r"),
            (["是否执行？", "1. 允许", "2. 拒绝", "请选择："], "1\r"),
            (["1. Yes, and don't ask again", "2. No", "Your choice: "], ""),
            (["1. Apples", "2. Pears", "Your choice: "], ""),
        ],
    )
    def test_a_numbered_choice_is_answered_with_the_plain_yes(
        self, rows: Sequence[str], keys: str
    ) -> None:
        assert kind_and_keys(screen(*rows)) == (CONFIRM, keys)

    @pytest.mark.parametrize(
        ("options", "keys"),
        [
            (["❯ 1. Yes", "  2. No"], "\r"),
            (["❯ 1. 是", "  2. 否"], "\r"),
            (["  1. No", "❯ 2. Yes"], "\r"),
            (["❯ Yes, allow once", "  Yes, allow always", "  No"], "\r"),
            (["❯ 1. Yes, allow always", "  2. No"], ""),
            (["❯ 1. Yes, and", "     don't ask again", "  2. No"], ""),
            (["❯ 1. 始终允许", "  2. 否"], ""),
            (["❯ 1. Dark", "  2. Light"], ""),
        ],
    )
    def test_a_menu_is_answered_if_its_marked_option_only_says_yes(
        self, options: Sequence[str], keys: str
    ) -> None:
        rows = ["─" * 60, " Run make test?", "", *options, "", " Esc to cancel"]
        marked = next(index for index, row in enumerate(rows) if row.startswith("❯"))
        assert kind_and_keys(Screen(rows, 60, marked, 0)) == (CONFIRM, keys)
        assert kind_and_keys(Screen(rows, 60, 0, 0, has_cursor=False)) == (CONFIRM, keys)
        assert kind_and_keys(Screen(rows, 60, 7, 0)) is None  # the cursor is elsewhere

    def test_one_marked_line_is_the_input_field_of_an_agent(self) -> None:
        rows = ["Do you want to proceed?", "─" * 60, "❯ yes", "─" * 60, "  ? for shortcuts"]
        assert classify(Screen(rows, 60, 2, 5)) is None

    def test_text_below_the_options_means_that_no_program_waits(self) -> None:
        rows = ["─" * 60, " Run it?", "❯ 1. Yes", "  2. No", "", "• Running it"]
        assert classify(Screen(rows, 60, 2, 0)) is None


class TestOwnPatterns:
    def test_patterns_of_the_project_count_in_their_class(self) -> None:
        own = OwnPatterns(*((re.compile(text),) for text in ("staging", r"Ready\?$", "Strike")))
        assert kind_and_keys(screen("Ready?"), own) == (CONFIRM, "y\r")
        assert kind_and_keys(screen("Strike a key"), own) == (ENTER, "\r")
        assert kind_and_keys(screen("on staging", "Ready?"), own) == (DANGER, "")
        assert kind_and_keys(screen("Ready?")) is None
