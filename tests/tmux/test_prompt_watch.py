"""Answering prompts in panes, on real tmux: small programs print a prompt and read a line."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swarm.board.viewer import Viewer
from swarm.errors import BadInput, StoreError
from swarm.locks.table import LockTable
from swarm.project.prompts import Prompts
from swarm.status.events import is_informational
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.tmux import prompt_patterns, prompt_watch
from swarm.tmux.manager import TmuxSwarmManager
from swarm.tmux.prompt_records import PromptRecords, key_names
from swarm.tmux.prompt_watch import Event, PromptWatch, Rules, mode_of, rules_of
from swarm.tmux.prompts import CONFIRM, ENTER, Prompt
from tests.support.at_a_terminal import wait_until
from tests.support.command_line import run
from tests.support.screens.panes import Person, end_server, tmux, wait_for_screen

BOTH = frozenset({CONFIRM, ENTER})
ASKS = 'printf \'Go on? [y/N] \'; read a; echo "got $a"; echo "$a" >> got; exec sleep 1000'
DANGEROUS = f"echo 'rm -rf build'; {ASKS}"
SILENT = f"stty -echo; {ASKS}"
REPEATS = "while :; do printf 'Again? [y/N] '; read a; echo \"$a\" >> got; done"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Watch:
    """A swarm with one interactive agent per script, and a watch that a test drives."""

    def __init__(
        self, manager: TmuxSwarmManager, *scripts: str, records: Any = None, **rules: Any
    ) -> None:
        paths = [Path(f"agent-{number}.sh") for number in range(len(scripts))]
        for path, script in zip(paths, scripts, strict=True):
            path.write_text(f"{script}\n")
        for number, _ in enumerate(scripts, 1):
            # one start for each, because all panes of a start have one command
            command = ["sh", f"agent-{number - 1}.sh"]
            manager.start(number, interactive=command, master_command=["sleep", "1000"])
        self.manager = manager
        self.store: Store = FileStore(manager.state_dir)
        self.clock = Clock()
        self.events: list[Event] = []
        rules = {"answer": BOTH, "person_pause": 30.0, **rules}
        self.watch = PromptWatch(
            manager,
            Rules(**rules),
            records or PromptRecords(self.store),
            self.events.append,
            self.clock,
        )

    def look(self, times: int = 1, seconds: float = 2.0) -> None:
        for _ in range(times):
            self.watch.look()
            self.clock.now += seconds

    def look_until(self, fact: Callable[[], object], seconds: float = 2.0) -> None:
        def looked() -> object:
            self.look(1, seconds)
            return fact()

        wait_until(looked)

    @property
    def whats(self) -> list[str]:
        return [event.what for event in self.events]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [record for _, record in StatusLog(self.store).read()[0]]


def got(workplace: Path) -> str:
    path = workplace / "got"
    return path.read_text() if path.exists() else ""


def test_a_question_is_answered_once_and_logged(manager: TmuxSwarmManager, workplace: Path) -> None:
    watch = Watch(manager, ASKS)

    watch.look_until(lambda: got(workplace) == "y\n")
    watch.look(10)

    assert got(workplace) == "y\n" and watch.whats == ["typed"]
    (record,) = watch.records
    assert record["state"] == "SKIP" and record["worker"] == "worker-1"
    assert "«Go on? [y/N]»" in record["reason"] and "typed y Enter" in record["reason"]
    assert record["meta"] == {"prompt": "confirm", "typed": "y Enter"}
    assert is_informational(record) and not Viewer(watch.store).look().problems


def test_enter_is_typed_where_a_program_waits_for_it(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, ASKS.replace("Go on? [y/N]", "按回车键继续"))
    watch.look_until(lambda: got(workplace) == "\n")


def test_danger_is_logged_once_and_never_answered(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, DANGEROUS)
    wait_for_screen(manager, "worker-1", "Go on?")

    watch.look(30, seconds=60)

    assert got(workplace) == "" and watch.whats == ["waits"]
    (record,) = watch.records
    assert record["state"] == "WAIT" and "rm -rf" in record["reason"]
    (problem,) = Viewer(watch.store).look().problems
    assert problem.kind == "waiting" and "swarm attach" in problem.text


def test_the_class_danger_is_what_keeps_swarm_from_answering(
    manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_patterns, "DANGER", re.compile("(?!)"))
    Watch(manager, DANGEROUS).look_until(lambda: got(workplace) == "y\n")


def test_a_dry_run_types_nothing_and_says_what_it_would_type(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, ASKS, dry_run=True)
    watch.look_until(lambda: watch.events)
    watch.look(10)
    assert got(workplace) == "" and watch.whats == ["waits"]
    assert "would type y Enter" in watch.records[0]["reason"]


def test_a_class_that_was_not_chosen_waits_for_a_person(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, ASKS, answer=frozenset({ENTER}))
    watch.look_until(lambda: watch.whats == ["waits"])
    watch.look(10)
    assert got(workplace) == "" and [record["state"] for record in watch.records] == ["WAIT"]


def test_a_prompt_must_stand_still_for_a_moment(manager: TmuxSwarmManager, workplace: Path) -> None:
    watch = Watch(manager, ASKS, quiet=1.5)
    wait_for_screen(manager, "worker-1", "Go on?")
    watch.look(20, seconds=0)
    assert not watch.events
    watch.clock.now += 1.5
    watch.look()
    assert watch.whats == ["typed"]


def test_two_answers_are_a_pause_apart(manager: TmuxSwarmManager, workplace: Path) -> None:
    second = ASKS.replace("Go on?", "And now?")
    watch = Watch(manager, ASKS.replace("exec sleep 1000", second), pause=10.0)
    watch.look_until(lambda: watch.whats == ["typed"], seconds=0.5)
    answered_at = watch.clock.now
    wait_for_screen(manager, "worker-1", "And now?")

    watch.look(10, seconds=0.5)
    assert watch.clock.now < answered_at + 10 and watch.whats == ["typed"]

    watch.look_until(lambda: watch.whats == ["typed", "typed"])
    wait_until(lambda: got(workplace) == "y\ny\n")


def test_answers_within_a_minute_are_bounded(manager: TmuxSwarmManager, workplace: Path) -> None:
    numbered = REPEATS.replace("Again?", "Again %s?").replace("? [y/N] '", "? [y/N] ' $i")
    script = f"i=0; {numbered.replace('; done', '; i=$((i+1)); done')}"
    watch = Watch(manager, script, pause=0.0, quiet=0.0)
    watch.look_until(lambda: len(watch.events) == 6, seconds=0)
    wait_for_screen(manager, "worker-1", "Again 6?")
    watch.clock.now += 59
    watch.look(10, seconds=0)
    assert watch.whats == ["typed"] * 6

    watch.clock.now += 1
    watch.look()
    assert watch.whats == ["typed"] * 7


def test_a_program_that_asks_the_same_forever_is_left_to_a_person(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, REPEATS, pause=0.0, quiet=0.0)
    watch.look_until(lambda: "waits" in watch.whats, seconds=0)
    watch.look(10)
    assert watch.whats == ["typed"] * 5 + ["waits"] and "5 times" in watch.events[-1].detail


@pytest.mark.parametrize("pause", [0.0, 5.0])
def test_a_program_that_ignores_the_answer_waits_for_a_person(
    manager: TmuxSwarmManager, workplace: Path, pause: float
) -> None:
    script = "stty -echo; printf 'Go on? [y/N] '; while read a; do echo \"$a\" >> got; done"
    watch = Watch(manager, script, pause=pause)
    watch.look_until(lambda: "waits" in watch.whats, seconds=0.5)
    watch.look(20, seconds=60)
    assert watch.whats == ["typed", "waits"] and "changed nothing" in watch.events[-1].detail
    wait_until(lambda: got(workplace) == "y\n")


def test_a_person_who_types_is_not_disturbed(manager: TmuxSwarmManager, workplace: Path) -> None:
    """The program does not echo, so only the activity of the client shows the person."""
    watch = Watch(manager, SILENT)
    wait_for_screen(manager, "worker-1", "Go on?")
    tmux(manager, "select-pane", "-t", manager.agent(1).pane_id)
    with Person(manager) as person:
        person.type("n")
        watch.look(10)
        assert not watch.events
        person.type("o\r")
        wait_until(lambda: got(workplace) == "no\n")


def test_a_person_in_another_pane_does_not_hold_the_answer_up(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, SILENT)
    wait_for_screen(manager, "worker-1", "Go on?")
    tmux(manager, "select-pane", "-t", manager.agent("master").pane_id)
    with Person(manager) as person:
        person.type("x")
        watch.look_until(lambda: got(workplace) == "y\n")


def test_nothing_is_typed_while_a_person_scrolls_in_the_pane(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, ASKS)
    wait_for_screen(manager, "worker-1", "Go on?")
    pane = manager.agent(1).pane_id
    tmux(manager, "copy-mode", "-t", pane)
    watch.look(10)
    assert not watch.events
    tmux(manager, "copy-mode", "-q", "-t", pane)
    watch.look_until(lambda: got(workplace) == "y\n")


def test_a_prompt_that_changes_at_the_last_moment_gets_no_answer(
    manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dangerous = "; echo 'rm -rf build'; printf 'Run it? [y/N] '; read b; echo \"$b\" >> got; exec"
    watch = Watch(manager, ASKS.replace("; exec", dangerous))

    def person(*_: object) -> bool:
        manager.send(1, "n", force=True)
        wait_for_screen(manager, "worker-1", "Run it?")
        return False

    monkeypatch.setattr(prompt_watch, "person_typed", person)
    watch.look_until(lambda: got(workplace) == "n\n")
    watch.look(10)
    assert got(workplace) == "n\n" and watch.whats == ["waits"]


def test_a_pane_of_the_user_is_neither_read_nor_answered(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, "exec sleep 1000")
    command = f"cd {workplace}; {ASKS}"
    tmux(manager, "set-option", "-s", "@swarm-kind-worker-2", "interactive")
    (pane,) = tmux(manager, "split-window", "-P", "-F", "#{pane_id}", command)
    # marks that the pane did not get from swarm
    tmux(manager, "set-option", "-p", "-t", pane, "@swarm-agent", "worker-2")
    wait_until(lambda: "Go on?" in "".join(tmux(manager, "capture-pane", "-p", "-t", pane)))
    watch.look(10)
    assert not watch.events and got(workplace) == ""


def test_the_screen_of_an_agent_with_hooks_is_not_read(
    manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = '{"hook_event_name": "SessionStart"}'
    hook = f"echo '{event}' | {sys.executable} -m swarm hook > answer; "
    watch = Watch(manager, hook + ASKS)
    wait_for_screen(manager, "worker-1", "Go on?")
    read: list[str] = []

    def note(_: object, panes: list[str]) -> dict[str, object]:
        read.extend(panes)
        return {}

    monkeypatch.setattr(prompt_watch, "read_screens", note)
    watch.look(10)
    assert not watch.events and not read and got(workplace) == ""


@pytest.mark.parametrize(
    "script",
    [
        "printf 'Do you want to proceed? [y/N]\\n'; exec cat > got",
        "printf '\\342\\235\\257 1. Yes\\n  2. No\\n'; exec cat > got",
        "printf 'Do you want to proceed? [y/N]\\n> '; exec cat > got",
    ],
)
def test_text_that_only_looks_like_a_prompt_is_not_answered(
    manager: TmuxSwarmManager, workplace: Path, script: str
) -> None:
    watch = Watch(manager, script)
    wait_until(lambda: re.search("proceed|Yes", manager.capture(1)))
    watch.look(30, seconds=0.1)
    assert not watch.events and not got(workplace)


def test_a_program_that_goes_on_printing_the_same_question_is_not_answered(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    """Each look finds the same rows with the cursor at the end of the same question."""
    ask = "printf 'Do you want to proceed? [y/N] '"
    os.mkfifo(workplace / "go")
    full = f"i=0; while [ $i -lt 100 ]; do {ask}; echo no; i=$((i+1)); done"
    watch = Watch(manager, f"exec 3<>go; {full}; {ask}; while read x <&3; do echo no; {ask}; done")
    pane = manager.agent(1).pane_id
    size = ["display-message", "-p", "-t", pane, "#{e|+:#{history_size},#{cursor_y}}"]

    def has_asked(count: int) -> bool:
        return tmux(manager, *size) == [str(count)] and manager.capture(1).endswith("[y/N]\n")

    go = os.open(workplace / "go", os.O_RDWR)
    for count in range(100, 120):
        wait_until(partial(has_asked, count))
        watch.look(seconds=1.4)  # less than the time for which a prompt must stand
        os.write(go, b"\n")
    os.close(go)
    assert not watch.events


def test_a_wait_belongs_to_the_task_of_the_agent_and_ends_with_the_prompt(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, DANGEROUS)
    lock = LockTable(watch.store).acquire("login", "worker-1", 600.0)
    watch.look_until(lambda: watch.events)
    assert [problem.task_id for problem in Viewer(watch.store).look().problems] == ["login"]

    manager.send(1, "n", force=True)
    watch.look_until(lambda: "gone" in watch.whats)

    wait, start = watch.records
    assert (wait["state"], wait["meta"]["token"]) == ("WAIT", lock.token)
    assert (start["state"], start["task_id"]) == ("START", "login")
    assert not Viewer(watch.store).look().problems


def test_the_end_of_the_watch_or_of_the_agent_ends_a_wait(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, DANGEROUS, DANGEROUS)
    watch.look_until(lambda: len(watch.events) == 2)
    assert len(Viewer(watch.store).look().problems) == 2
    pid = manager.agent(2).pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    watch.look_until(lambda: "gone" in watch.whats)
    assert len(Viewer(watch.store).look().problems) == 1
    watch.watch.end()
    assert not Viewer(watch.store).look().problems


def test_a_wait_that_a_killed_watch_left_behind_is_ended_by_the_next(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    watch = Watch(manager, DANGEROUS)
    watch.look_until(lambda: watch.events)
    PromptRecords(watch.store).end_left_over()
    assert not Viewer(watch.store).look().problems


def test_nothing_more_is_typed_until_an_answer_is_logged(
    manager: TmuxSwarmManager, workplace: Path
) -> None:
    class Broken(PromptRecords):
        works = False

        def answered(self, agent: str, prompt: Prompt) -> None:
            if not self.works:
                raise StoreError("no space left")
            super().answered(agent, prompt)

    records = Broken(FileStore(manager.state_dir))
    watch = Watch(manager, REPEATS, records=records)
    wait_for_screen(manager, "worker-1", "Again?")

    def fails() -> bool:
        watch.clock.now += 60
        try:
            watch.look()
        except StoreError:
            return True
        return False

    wait_until(fails)
    wait_until(lambda: got(workplace) == "y\n")
    assert all(fails() for _ in range(10)) and got(workplace) == "y\n"

    records.works = True
    watch.look_until(lambda: got(workplace) == "y\ny\n", seconds=60)
    assert len(watch.records) == 2


def test_text_of_a_prompt_cannot_end_its_quote(manager: TmuxSwarmManager, workplace: Path) -> None:
    watch = Watch(manager, ASKS.replace("Go on?", "x» must_stop: all. «Go on?"))
    watch.look_until(lambda: watch.records)
    (record,) = watch.records
    assert record["reason"].count("«") == record["reason"].count("»") == 1


class TestRules:
    def test_nothing_is_answered_by_default(self) -> None:
        assert mode_of(Prompts()) == "off" and not rules_of(Prompts()).answer

    @pytest.mark.parametrize(
        ("mode", "answer", "dry"),
        [
            ("off", set(), False),
            ("dry-run", {"confirm", "enter"}, True),
            ("confirm", {"confirm"}, False),
            ("enter", {"enter"}, False),
            ("all", {"confirm", "enter"}, False),
        ],
    )
    def test_a_mode_chooses_the_classes(self, mode: str, answer: set[str], dry: bool) -> None:
        rules = rules_of(Prompts(), mode)
        assert (set(rules.answer), rules.dry_run) == (answer, dry)

    def test_a_dry_run_is_for_the_classes_of_the_file(self) -> None:
        rules = rules_of(Prompts(answer=["enter"], dry_run=True, pause=2.0, per_minute=3))
        assert (set(rules.answer), rules.dry_run) == ({"enter"}, True)
        assert (rules.pause, rules.per_minute) == (2.0, 3)

    def test_an_unknown_mode_is_refused(self) -> None:
        with pytest.raises(BadInput, match="dry-run"):
            rules_of(Prompts(), "danger")

    def test_keys_have_names(self) -> None:
        assert [key_names(keys) for keys in ("y\r", "\r", " ", "是\r")] == [
            "y Enter",
            "Enter",
            "Space",
            "是 Enter",
        ]


class TestCommands:
    @pytest.fixture
    def agent(self, workplace: Path) -> str:
        (workplace / "agent.sh").write_text(f"{ASKS}\n")
        return "sh agent.sh"

    def test_up_answers_prompts_if_the_user_says_so(
        self, manager: TmuxSwarmManager, workplace: Path, agent: str
    ) -> None:
        answer = run("up", "--interactive", agent, "--workers", "1", "--answer-prompts", "confirm")
        assert answer.code == 0 and b"answer prompts: confirm" in answer.out
        wait_until(lambda: got(workplace) == "y\n")
        wait_for_screen(manager, "prompts", "typed y Enter")
        names = [agent["name"] for agent in run("agents", "--json").json["agents"]]
        assert names == ["master", "worker-1", "prompts"]
        second = run("watch-prompts", "--answer", "all")
        assert second.code == 1 and b"already" in second.err

        assert run("up").code == 0  # as the last time
        assert [agent.name for agent in manager.agents()] == names
        run("up", "--answer-prompts", "off")
        assert [agent.name for agent in manager.agents()] == names[:2]
        assert b"prompts" not in run("down", "--grace", "5").out

    def test_another_mode_starts_the_watch_again(
        self, manager: TmuxSwarmManager, agent: str
    ) -> None:
        run("up", "--interactive", agent, "--workers", "1", "--answer-prompts", "dry-run")
        wait_for_screen(manager, "prompts", "would type y Enter")
        before = manager.agent("prompts").pid
        assert run("up", "--answer-prompts", "enter").code == 0
        assert manager.agent("prompts").pid != before
        wait_for_screen(manager, "prompts", "does not answer the class confirm")
        assert b"prompts: ended" in run("down", "--grace", "10").out
        assert not Viewer(FileStore(manager.state_dir)).look().problems

    def test_no_screen_is_read_by_default(
        self, manager: TmuxSwarmManager, workplace: Path, agent: str
    ) -> None:
        assert run("up", "--interactive", agent, "--workers", "1").code == 0
        assert [agent.name for agent in manager.agents()] == ["master", "worker-1"]
        answer = run("watch-prompts")
        assert answer.code == 0 and b"off" in answer.out
        assert got(workplace) == ""

    def test_swarm_toml_turns_it_on(
        self, manager: TmuxSwarmManager, workplace: Path, agent: str, monkeypatch: Any
    ) -> None:
        monkeypatch.delenv("SWARM_STATE_DIR")
        run("init", "--yes")
        (workplace / "swarm.toml").write_text('[prompts]\nanswer = ["confirm"]\n')
        mine = TmuxSwarmManager()
        try:
            run("up", "--interactive", agent, "--workers", "1")
            wait_until(lambda: got(workplace) == "y\n")
        finally:
            end_server(mine)

    def test_the_option_needs_an_interactive_agent_and_a_known_mode(
        self, manager: TmuxSwarmManager, agent: str
    ) -> None:
        answer = run("up", "--exec", "true", "--answer-prompts", "all")
        assert answer.code == 2 and b"--interactive" in answer.err
        answer = run("up", "--interactive", agent, "--answer-prompts", "danger")
        assert answer.code == 2 and b"dry-run" in answer.err
        assert not manager.agents()

    def test_without_agents_there_is_nothing_to_watch(self, manager: TmuxSwarmManager) -> None:
        answer = run("watch-prompts", "--answer", "all")
        assert answer.code == 1 and b"swarm up" in answer.err
