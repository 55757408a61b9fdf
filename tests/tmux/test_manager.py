"""A swarm in tmux panes, on real tmux: every test has a server of its own, which ends with it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import swarm
from swarm.board.viewer import Viewer
from swarm.errors import AgentUnavailable, BadInput, TmuxSwarmError
from swarm.locks.presence import living, presences
from swarm.stores.file.store import FileStore
from swarm.system import process
from swarm.system.own_command import swarm_command
from swarm.tmux import manager as tmux_manager
from swarm.tmux.manager import AgentPane, AgentStatus, TmuxSwarmManager
from swarm.tmux.server import TmuxServer
from tests.conftest import ROOT
from tests.support.at_a_terminal import environment, wait_until
from tests.support.command_line import run

IDLE = ["sleep", "1000"]
TMUX = shutil.which("tmux") or "tmux"  # also where a test has changed PATH


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that a swarm is started from; its state directory is beside it."""
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("TMUX_PANE", raising=False)
    monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path / "state"))
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def manager(workplace: Path) -> Iterator[TmuxSwarmManager]:
    made = TmuxSwarmManager()
    yield made
    _end_server(made.socket)


def _end_server(at: str) -> None:
    subprocess.run([TMUX, "-S", at, "kill-server"], capture_output=True)
    for path in (at, f"{at}.guard"):
        Path(path).unlink(missing_ok=True)


def start(manager: TmuxSwarmManager, *workers: str) -> None:
    """Starts a worker for each shell script, and a master that does nothing."""
    manager.start(
        len(workers),
        worker_command=lambda number: ["sh", "-c", workers[number - 1]],
        master_command=IDLE,
    )


def tmux(manager: TmuxSwarmManager, *args: str) -> list[str]:
    """What a person can do on the swarm's server."""
    done = subprocess.run(
        [TMUX, "-u", "-S", manager.socket, *args], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def status(manager: TmuxSwarmManager) -> dict[str, str]:
    return {agent.name: str(agent.status) for agent in manager.agents()}


def places(manager: TmuxSwarmManager) -> list[tuple[str, str, int | None]]:
    """Which process is where; what a pane's command is called may still change, as a
    shell becomes what it starts.
    """
    return [(agent.name, agent.pane_id, agent.pid) for agent in manager.agents()]


def wait_for_end(manager: TmuxSwarmManager, name: str | int) -> AgentPane:
    wait_until(lambda: manager.agent(name).status is not AgentStatus.RUNNING)
    return manager.agent(name)


def wait_for_screen(manager: TmuxSwarmManager, name: str, text: str) -> None:
    wait_until(lambda: text in manager.capture(name))


def wait_for_file(path: Path, wanted: bytes) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() or path.read_bytes() != wanted:
        assert time.monotonic() < deadline, (
            path.read_bytes()[-300:] if path.exists() else "it was never made"
        )
        time.sleep(0.01)


class TestStarting:
    def test_a_master_and_workers_run_each_in_a_pane(self, manager: TmuxSwarmManager) -> None:
        start(manager, "exec sleep 1000", "exec sleep 1000")

        master, first, second = manager.agents()
        assert (master.name, master.role, master.worker_id) == ("master", "master", None)
        assert (first.name, first.role, first.worker_id) == ("worker-1", "worker", 1)
        assert second.worker_id == 2
        assert len({agent.pane_id for agent in (master, first, second)}) == 3
        for agent in (master, first, second):
            assert agent.status is AgentStatus.RUNNING
            assert agent.pid is not None
            os.kill(agent.pid, 0)

    def test_no_agents_are_listed_before_the_first_start(self, manager: TmuxSwarmManager) -> None:
        assert manager.agents() == []

    def test_a_pane_knows_its_swarm_and_its_worker_and_begins_where_it_was_started(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_WORKER", "of the caller")
        script = (
            'printf "%s|%s|%s|" "$SWARM_STATE_DIR" "$AI_SWARM_DIR" "$SWARM_WORKER" > $0; '
            "exec sleep 1000"
        )

        manager.start(
            1,
            worker_command=lambda _: ["sh", "-c", script, "worker"],
            master_command=["sh", "-c", script, "master"],
        )

        wait_for_file(
            workplace / "worker", f"{manager.state_dir}|{manager.state_dir}|worker-1|".encode()
        )
        wait_for_file(workplace / "master", f"{manager.state_dir}|{manager.state_dir}||".encode())

    def test_every_pane_has_the_store_of_the_caller_and_no_command_line_shows_it(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may hold a password, and everybody may read command lines."""
        seen: list[Sequence[str]] = []
        call = TmuxServer._call

        def noted(tmux: TmuxServer, *commands: Sequence[str]) -> Any:
            seen.extend(commands)
            return call(tmux, *commands)

        monkeypatch.setattr(TmuxServer, "_call", noted)
        script = 'printf %s "$SWARM_STORE" > $SWARM_WORKER; exec sleep 1000'
        for workers, store in enumerate(("redis://:a\"$b'c\\\\d@h/0", "redis://:other@h/0", ""), 1):
            monkeypatch.setenv("SWARM_STORE", store)
            manager.start(
                workers, worker_command=lambda _: ["sh", "-c", script], master_command=IDLE
            )
            wait_for_file(workplace / f"worker-{workers}", store.encode())
        assert seen and not [word for command in seen for word in command if "redis://" in word]

    def test_tmux_itself_keeps_no_secret(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_STORE", "redis://u:S3cret@h/0")
        monkeypatch.setenv("REDISCLI_AUTH", "S3cret-too")
        monkeypatch.setenv("SWARM_WEB_TOKEN", "S3cret-of-the-page")
        script = 'env | grep S3cret | sort > "$SWARM_WORKER.part"; mv "$SWARM_WORKER.part" '
        script += '"$SWARM_WORKER"; exec sleep 1000'
        wanted = b"REDISCLI_AUTH=S3cret-too\nSWARM_STORE=redis://u:S3cret@h/0\n"
        for workers in (1, 2):  # the first starts the server
            manager.start(
                workers, worker_command=lambda _: ["sh", "-c", script], master_command=IDLE
            )
            wait_for_file(workplace / f"worker-{workers}", wanted)
        tmux = TmuxServer(manager.state_dir)
        (server,) = tmux.run(["display-message", "-p", "#{pid}"])
        shown = [*tmux.run(["show-environment", "-g"]), *tmux.run(["show-environment"])]
        assert "SWARM_STORE=redis://u@h/0" in shown and "S3cret" not in str(shown)
        assert b"S3cret" not in Path(f"/proc/{server}/environ").read_bytes()

    def test_the_state_directory_is_there_before_anybody_begins(
        self, manager: TmuxSwarmManager
    ) -> None:
        start(manager, 'ls -d "$SWARM_STATE_DIR"')

        assert wait_for_end(manager, "worker-1").exit_code == 0

    def test_words_of_a_command_arrive_as_they_are(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        words = ["a b", "it's;", ";", "\\;", "#{pane_id}", "$HOME", "-t", "任务", ""]
        code = "import sys; open('words', 'w').write('\\n'.join(sys.argv[1:]))"

        manager.start(
            1, worker_command=lambda _: [sys.executable, "-c", code, *words], master_command=IDLE
        )

        wait_for_file(workplace / "words", "\n".join(words).encode())

    def test_a_command_of_one_word_is_not_read_by_a_shell(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        program = workplace / "my program; touch bad"
        program.write_text("#!/bin/sh\ntouch good\n")
        program.chmod(0o755)

        manager.start(1, worker_command=lambda _: [str(program)], master_command=IDLE)

        assert wait_for_end(manager, "worker-1").exit_code == 0
        assert (workplace / "good").exists() and not (workplace / "bad").exists()

    def test_swarms_own_commands_run_from_any_directory(self, manager: TmuxSwarmManager) -> None:
        manager.start(1, worker_command=lambda _: swarm_command("--version"), master_command=IDLE)

        assert wait_for_end(manager, "worker-1").exit_code == 0
        assert manager.capture("worker-1") == f"swarm {swarm.__version__}\n"

    def test_starting_again_leaves_those_that_run_alone(self, manager: TmuxSwarmManager) -> None:
        start(manager, "exec sleep 1000", "exec sleep 1000")
        before = places(manager)

        report = manager.start(2, worker_command=lambda _: ["false"], master_command=["false"])

        assert (report.started, report.restarted) == ((), ())
        assert report.running == ("master", "worker-1", "worker-2")
        assert places(manager) == before

    def test_starting_with_more_workers_adds_the_missing_and_starts_the_ended_again(
        self, manager: TmuxSwarmManager
    ) -> None:
        start(manager, "exec sleep 1000", "exit 3")
        wait_for_end(manager, "worker-2")

        report = manager.start(4, worker_command=lambda _: IDLE, master_command=IDLE)

        assert (report.started, report.restarted) == (("worker-3", "worker-4"), ("worker-2",))
        assert set(status(manager).values()) == {"running"} and len(manager.agents()) == 5

    def test_two_that_start_it_at_once_start_each_worker_once(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        code = (
            "from swarm import TmuxSwarmManager; idle = ['sleep', '1000']\n"
            "TmuxSwarmManager().start(4, worker_command=lambda _: idle, master_command=idle)"
        )
        both = [subprocess.Popen([sys.executable, "-c", code], env=environment()) for _ in range(2)]

        assert [one.wait(60) for one in both] == [0, 0]
        assert len(manager.agents()) == len(tmux(manager, "list-panes", "-a")) == 5

    def test_twenty_workers_fit_and_none_is_too_small_to_read(
        self, manager: TmuxSwarmManager
    ) -> None:
        manager.start(20, worker_command=lambda _: IDLE, master_command=IDLE)

        assert set(status(manager).values()) == {"running"} and len(manager.agents()) == 21
        sizes = [
            line.split()
            for line in tmux(manager, "list-panes", "-a", "-F", "#{pane_width} #{pane_height}")
        ]
        assert all(int(width) >= 60 and int(height) >= 10 for width, height in sizes)

    @pytest.mark.parametrize("workers", [0, 65, -1, True, 1.5, "3"])
    def test_an_invalid_number_of_workers_is_refused(
        self, manager: TmuxSwarmManager, workers: int
    ) -> None:
        with pytest.raises(BadInput, match="from 1 to 64"):
            manager.start(workers)


class TestStatus:
    @pytest.mark.parametrize(
        ("script", "expected"),
        [
            ("exit 0", (AgentStatus.EXITED, 0, None)),
            ("exit 3", (AgentStatus.DEAD, 3, None)),
            ("kill -KILL $$", (AgentStatus.DEAD, None, int(signal.SIGKILL))),
        ],
    )
    def test_the_status_shows_how_an_agent_ended(
        self,
        manager: TmuxSwarmManager,
        script: str,
        expected: tuple[AgentStatus, int | None, int | None],
    ) -> None:
        start(manager, script)

        ended = wait_for_end(manager, "worker-1")

        assert (ended.status, ended.exit_code, ended.signal) == expected

    def test_an_agent_that_has_closed_its_terminal_and_lives_is_running(
        self, manager: TmuxSwarmManager
    ) -> None:
        start(manager, "trap '' HUP; exec sleep 1000 <&- >&- 2>&-")
        wait_until(
            lambda: tmux(manager, "display-message", "-p", "-t", "%1", "#{pane_dead}") == ["1"]
        )

        assert manager.agent(1).status is AgentStatus.RUNNING
        assert [one.killed for one in manager.stop()] == [False, False]

    def test_an_agent_whose_pane_was_closed_is_gone_and_can_be_started_again(
        self, manager: TmuxSwarmManager
    ) -> None:
        start(manager, "exec sleep 1000", "exec sleep 1000")
        tmux(manager, "kill-pane", "-t", manager.agent(1).pane_id)

        assert status(manager) == {"master": "running", "worker-1": "gone", "worker-2": "running"}
        with pytest.raises(AgentUnavailable, match="swarm restart worker-1"):
            manager.send(1, "hello")
        with pytest.raises(AgentUnavailable, match="swarm restart worker-1"):
            manager.capture(1)
        assert manager.restart(1).status is AgentStatus.RUNNING
        assert status(manager) == {
            "master": "running",
            "worker-1": "running",
            "worker-2": "running",
        }

    @pytest.mark.parametrize("name", ["3", "worker-3"])
    def test_a_worker_that_was_not_started_is_unknown(
        self, manager: TmuxSwarmManager, name: str
    ) -> None:
        with pytest.raises(AgentUnavailable, match="swarm up"):
            manager.agent(name)
        start(manager, "exec sleep 1000")
        with pytest.raises(AgentUnavailable, match="agents: master worker-1"):
            manager.agent(name)

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "%0",
            "swarm:0.0",
            "worker-",
            "worker-0",
            "-1",
            "worker-1\n",
            "１",
            "master;kill-server",
        ],
    )
    def test_nothing_but_the_name_of_an_agent_addresses_a_pane(
        self, manager: TmuxSwarmManager, name: str
    ) -> None:
        start(manager, "exec sleep 1000")

        with pytest.raises(BadInput, match="is not the name of an agent"):
            manager.send(name, "hello")


class TestOnlyItsOwnPanes:
    @pytest.fixture
    def strangers(self, manager: TmuxSwarmManager) -> set[str]:
        """Panes that a person has made on the swarm's server: beside a worker, in a
        window and in a session of their own.
        """
        start(manager, "exec sleep 1000", "exec sleep 1000")
        made = ["-d", "-P", "-F", "#{pane_id}"]
        beside = tmux(manager, "split-window", "-t", manager.agent(1).pane_id, *made, "sleep 1000")
        window = tmux(manager, "new-window", "-t", "swarm:", *made, "sleep 1000")
        session = tmux(manager, "new-session", "-s", "mine", *made, "sleep 1000")
        return {*beside, *window, *session}

    def test_a_users_own_pane_is_not_listed_and_survives_the_end_of_the_swarm(
        self, manager: TmuxSwarmManager, strangers: set[str]
    ) -> None:
        assert [agent.name for agent in manager.agents()] == ["master", "worker-1", "worker-2"]

        manager.stop()

        assert set(tmux(manager, "list-panes", "-a", "-F", "#{pane_id}")) == strangers
        assert set(tmux(manager, "list-panes", "-a", "-F", "#{pane_dead}")) == {"0"}
        assert manager.agents() == []
        assert not [line for line in tmux(manager, "show-options", "-s") if "worker" in line]

    def test_a_swarm_can_be_started_beside_strangers_that_were_left(
        self, manager: TmuxSwarmManager, strangers: set[str]
    ) -> None:
        manager.stop()

        start(manager, "exec sleep 1000")

        assert status(manager) == {"master": "running", "worker-1": "running"}
        assert strangers < set(tmux(manager, "list-panes", "-a", "-F", "#{pane_id}"))

    def test_a_window_with_a_stranger_gets_no_more_workers(
        self, manager: TmuxSwarmManager, strangers: set[str]
    ) -> None:
        layout = tmux(
            manager, "display-message", "-p", "-t", manager.agent(1).pane_id, "#{window_layout}"
        )

        manager.start(4, worker_command=lambda _: IDLE, master_command=IDLE)

        assert (
            tmux(
                manager, "display-message", "-p", "-t", manager.agent(1).pane_id, "#{window_layout}"
            )
            == layout
        )
        assert len(manager.agents()) == 5

    def test_an_attached_user_stays_at_the_same_pane_while_workers_are_added(
        self, manager: TmuxSwarmManager
    ) -> None:
        start(manager, "exec sleep 1000", "exec sleep 1000")
        tmux(manager, "select-pane", "-t", manager.agent(1).pane_id)

        manager.start(9, worker_command=lambda _: IDLE, master_command=IDLE)

        assert tmux(manager, "display-message", "-p", "-t", "swarm:", "#{pane_id}") == [
            manager.agent(1).pane_id
        ]

    def test_a_window_that_a_person_shows_in_another_session_counts_once(
        self, manager: TmuxSwarmManager
    ) -> None:
        start(manager, "exec sleep 1000")
        for name in ("a", "z"):
            tmux(manager, "new-session", "-d", "-s", name, "sleep 1000")
            tmux(manager, "link-window", "-s", "swarm:swarm", "-t", f"{name}:")

        manager.start(2, worker_command=lambda _: IDLE, master_command=IDLE)

        assert status(manager) == {
            "master": "running",
            "worker-1": "running",
            "worker-2": "running",
        }

    def test_a_mark_that_a_pane_has_inherited_does_not_make_it_the_swarms(
        self, manager: TmuxSwarmManager, strangers: set[str]
    ) -> None:
        tmux(manager, "set-option", "-gw", "@swarm-agent", "worker-9")
        tmux(manager, "set-option", "-gw", "@swarm-pane", manager.agent(1).pane_id)

        assert [agent.name for agent in manager.agents()] == ["master", "worker-1", "worker-2"]
        assert manager.agent(1).pane_id not in strangers

    def test_an_agent_is_found_wherever_a_person_moves_its_pane(
        self, manager: TmuxSwarmManager, strangers: set[str]
    ) -> None:
        before = manager.agent(1)
        tmux(manager, "break-pane", "-d", "-s", before.pane_id, "-t", "mine:")

        after = manager.agent(1)
        assert (after.pane_id, after.pid) == (before.pane_id, before.pid)
        assert after.window_id != before.window_id

    def test_text_reaches_one_pane_also_where_panes_are_synchronized_or_scrolled(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        start(manager, "exec cat > one", "exec cat > two")
        tmux(manager, "set-option", "-w", "-t", "swarm:", "synchronize-panes", "on")
        tmux(manager, "copy-mode", "-t", manager.agent(1).pane_id)

        manager.send(1, "only here")

        wait_for_file(workplace / "one", b"only here\n")
        assert (workplace / "two").read_bytes() == b""


class TestSending:
    @pytest.mark.parametrize(
        "text",
        [
            "plain",
            'it\'s "quoted" `x` $(touch bad) $HOME \\n',
            "one; two;",
            ";",
            "-t %0 --help",
            "#{pane_id} #(touch bad) %H",
            "任务 – “été” 🦆",
            "C-c Enter",
            "first\n\n  third\tafter a tab",
        ],
    )
    def test_text_arrives_exactly_and_is_followed_by_one_enter(
        self, manager: TmuxSwarmManager, workplace: Path, text: str
    ) -> None:
        start(manager, "exec cat > typed")

        manager.send("worker-1", text)

        wait_for_file(workplace / "typed", f"{text}\n".encode())
        assert sorted(os.listdir(workplace)) == ["typed"]

    def test_newlines_at_the_end_are_left_to_the_enter(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        start(manager, "exec cat > typed")

        manager.send(1, "one\n\n")
        manager.send(1, "")
        manager.send(1, "two", enter=False)
        manager.send(1, " words")

        wait_for_file(workplace / "typed", b"one\n\ntwo words\n")

    @pytest.mark.parametrize("scrolled", [False, True])
    def test_an_agent_that_asks_for_pastes_gets_many_lines_as_one(
        self, manager: TmuxSwarmManager, workplace: Path, scrolled: bool
    ) -> None:
        start(manager, r"stty raw -echo; printf '\033[?2004hready'; exec cat > typed")
        wait_for_screen(manager, "worker-1", "ready")
        if scrolled:
            tmux(manager, "copy-mode", "-t", manager.agent(1).pane_id)

        manager.send(1, "one\ntwo")

        wait_for_file(workplace / "typed", b"\x1b[200~one\rtwo\x1b[201~\r")

    def test_a_long_text_arrives_whole(self, manager: TmuxSwarmManager, workplace: Path) -> None:
        text = "".join(f"line {number} 任务 " for number in range(6_000))
        assert len(text.encode()) > 100_000
        start(manager, "stty raw -echo; printf ready; exec cat > typed")
        wait_for_screen(manager, "worker-1", "ready")

        manager.send(1, text)

        wait_for_file(workplace / "typed", text.encode() + b"\r")
        assert tmux(manager, "list-buffers") == []
        assert not list(Path(manager.socket).parent.glob(f"{Path(manager.socket).name}.[0-9]*"))

    @pytest.mark.parametrize("text", ["a\x1b[A", "a\x03", "a\rb", "\0", "\x7f", "\x9b1A", "\ud800"])
    def test_text_that_would_not_arrive_as_it_is_is_refused(
        self, manager: TmuxSwarmManager, text: str
    ) -> None:
        with pytest.raises(BadInput):
            manager.send(1, text)

    def test_text_that_is_far_too_long_is_refused(self, manager: TmuxSwarmManager) -> None:
        with pytest.raises(BadInput, match="at most 1048576"):
            manager.send(1, "x" * 1_048_577)

    def test_an_agent_that_has_ended_is_not_written_to(self, manager: TmuxSwarmManager) -> None:
        start(manager, "exit 3")
        wait_for_end(manager, "worker-1")

        with pytest.raises(
            AgentUnavailable,
            match=r"dead, exit code 3\. Start the agent with: swarm restart worker-1",
        ):
            manager.send(1, "hello")

    def test_a_pane_that_takes_no_input_is_not_silently_written_to(
        self, manager: TmuxSwarmManager
    ) -> None:
        start(manager, "exec cat")
        tmux(manager, "select-pane", "-d", "-t", manager.agent(1).pane_id)

        with pytest.raises(AgentUnavailable, match="takes no input"):
            manager.send(1, "hello")


class TestCapturing:
    def test_capture_returns_what_a_pane_shows(self, manager: TmuxSwarmManager) -> None:
        start(manager, r"printf '\033[31mred 任务\033[0m\n\n  indented\n'; exec cat")
        wait_for_screen(manager, "worker-1", "indented")

        assert manager.capture("worker-1") == "red 任务\n\n  indented\n"

    def test_the_locale_of_the_caller_does_not_matter(
        self, manager: TmuxSwarmManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start(manager, "echo 任务; exec cat")
        monkeypatch.setenv("LC_ALL", "C")

        wait_for_screen(manager, "worker-1", "任务")
        assert TmuxServer(manager.state_dir).run(["display-message", "-p", "任务"]) == ["任务"]

    def test_lines_that_scrolled_away_are_captured_too(self, manager: TmuxSwarmManager) -> None:
        start(manager, "seq 1 500; exec cat")
        wait_for_screen(manager, "worker-1", "500")

        assert manager.capture(1, lines=200) == "".join(f"{number}\n" for number in range(301, 501))
        assert "\n301\n" not in manager.capture(1)

    def test_a_long_line_is_one_line(self, manager: TmuxSwarmManager) -> None:
        start(manager, "printf '%01000d\\n' 7; exec cat")
        wait_for_screen(manager, "worker-1", "7")

        assert manager.capture(1) == f"{7:01000d}\n"

    def test_the_last_output_of_a_dead_agent_can_be_captured(
        self, manager: TmuxSwarmManager
    ) -> None:
        start(manager, "echo no such model; exit 3")
        wait_for_end(manager, "worker-1")

        assert manager.capture(1) == manager.capture(1, lines=9) == "no such model\n"

    @pytest.mark.parametrize("lines", [0, -1, True, 1.5])
    def test_an_invalid_number_of_lines_is_refused(
        self, manager: TmuxSwarmManager, lines: int
    ) -> None:
        with pytest.raises(BadInput, match="1 or more"):
            manager.capture(1, lines)


class TestRestarting:
    def test_a_dead_worker_is_restarted_in_its_pane(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        start(manager, 'echo "$SWARM_WORKER" >> starts; [ -e fixed ] || exit 3; exec sleep 1000')
        dead = wait_for_end(manager, "worker-1")
        (workplace / "fixed").touch()

        again = manager.restart(1)

        assert (again.pane_id, again.window_id, again.status) == (
            dead.pane_id,
            dead.window_id,
            AgentStatus.RUNNING,
        )
        assert again.pid != dead.pid
        wait_for_file(workplace / "starts", b"worker-1\nworker-1\n")

    def test_a_running_agent_is_not_restarted(self, manager: TmuxSwarmManager) -> None:
        start(manager, "exec sleep 1000")
        before = places(manager)

        with pytest.raises(AgentUnavailable, match="--force"):
            manager.restart(1)
        assert places(manager) == before

    def test_restart_with_force_ends_a_running_agent_gracefully_first(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        start(
            manager,
            (
                "trap 'echo released >> log; exit 0' TERM; echo begun >> log; while :; do sleep "
                "0.05; done"
            ),
        )
        wait_for_file(workplace / "log", b"begun\n")

        manager.restart(1, force=True)

        wait_for_file(workplace / "log", b"begun\nreleased\nbegun\n")


class TestStopping:
    def test_stop_sends_sigterm_to_workers_and_waits_for_them(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        start(
            manager,
            (
                "trap 'sleep 0.5; touch given-back; exit 0' TERM; touch begun; while :; do sleep "
                "0.05; done"
            ),
        )
        wait_until((workplace / "begun").exists)

        master, worker = manager.stop()

        assert (workplace / "given-back").exists()
        assert (worker.agent.status, worker.killed) == (AgentStatus.EXITED, False)
        assert (master.agent.status, master.agent.signal, master.killed) == (
            AgentStatus.DEAD,
            int(signal.SIGTERM),
            False,
        )

    def test_a_swarm_worker_releases_its_task_when_it_is_stopped(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        assert run("task", "add", "task-1", "--prompt", "begun").code == 0
        manager.start(1, agent="sh -c 'touch $SWARM_PROMPT; exec sleep 1000'", master_command=IDLE)
        wait_until((workplace / "begun").exists)
        assert b"task-1: Active (worker: worker-1" in run("lock", "list").out

        manager.stop()

        assert run("lock", "list").out == b"No locks\n"
        assert run("task", "claim", "--worker", "worker-2", "--json").json["task_id"] == "task-1"

    def test_an_agent_that_ignores_sigterm_is_killed_after_the_grace(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        start(
            manager,
            (
                "trap '' TERM HUP; sleep 1000 & echo $! > agent; mv agent begun; while :; do sleep "
                "0.05; done"
            ),
        )
        wait_until((workplace / "begun").exists)
        pids = [manager.agent(1).pid or 0, int((workplace / "begun").read_text())]

        begun = time.monotonic()
        _, worker = manager.stop(grace=0.5)

        assert 0.5 <= time.monotonic() - begun < 10
        assert worker.killed and worker.agent.signal == signal.SIGKILL
        wait_until(lambda: all(process.probe({"pid": pid}, "", "") == process.GONE for pid in pids))

    def test_stop_reports_an_agent_that_had_ended_before(self, manager: TmuxSwarmManager) -> None:
        start(manager, "exit 3")
        wait_for_end(manager, "worker-1")

        assert [(one.agent.name, one.agent.exit_code, one.killed) for one in manager.stop()][1] == (
            "worker-1",
            3,
            False,
        )

    def test_after_stop_no_server_is_left_and_a_new_swarm_can_start_at_once(
        self, manager: TmuxSwarmManager
    ) -> None:
        for _ in range(3):
            start(manager, "exec sleep 1000")
            manager.stop()
            assert manager.agents() == []
            assert (
                subprocess.run([TMUX, "-S", manager.socket, "ls"], capture_output=True).returncode
                == 1
            )

    def test_stopping_what_is_not_up_does_nothing(self, manager: TmuxSwarmManager) -> None:
        assert manager.stop() == []

    def test_an_invalid_grace_is_refused_before_any_agent_ends(
        self, manager: TmuxSwarmManager
    ) -> None:
        start(manager, "exec sleep 1000")

        with pytest.raises(BadInput, match="grace"):
            manager.stop(grace=-1)
        assert set(status(manager).values()) == {"running"}


class TestItsServer:
    def test_one_directory_under_two_spellings_is_one_swarm_and_two_directories_are_two(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "link").symlink_to(tmp_path / "state")
        direct = TmuxSwarmManager(str(tmp_path / "state")).socket

        assert TmuxSwarmManager(str(tmp_path / "link")).socket == direct
        assert TmuxSwarmManager(f"{tmp_path}/x/../state/").socket == direct
        assert TmuxSwarmManager(str(tmp_path / "other")).socket != direct

    def test_a_deep_state_directory_does_not_make_the_socket_too_long(self, tmp_path: Path) -> None:
        assert len(TmuxSwarmManager(str(tmp_path / ("deep/" * 100))).socket) < 100

    def test_the_tmux_of_the_caller_does_not_matter(
        self, manager: TmuxSwarmManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start(manager, "exec sleep 1000")
        other = TmuxSwarmManager(f"{manager.state_dir}-of-another-user")
        try:
            start(other, "exec sleep 1000")
            theirs = places(other)
            monkeypatch.setenv("TMUX", f"{other.socket},1,0")
            monkeypatch.setenv("TMUX_PANE", "%0")
            monkeypatch.setenv("TMUX_TMPDIR", "/nowhere")

            manager.start(2, worker_command=lambda _: IDLE, master_command=IDLE)
            assert len(manager.agents()) == 3
            manager.stop()
            assert places(other) == theirs
        finally:
            _end_server(other.socket)

    def test_a_swarm_can_be_managed_from_one_of_its_own_panes(
        self, manager: TmuxSwarmManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start(manager, "exec sleep 1000")
        before = places(manager)
        monkeypatch.setenv("TMUX", f"{manager.socket},1,0")
        monkeypatch.setenv("TMUX_PANE", manager.agent(1).pane_id)

        manager.start(8, worker_command=lambda _: IDLE, master_command=IDLE)

        assert places(manager)[:2] == before and len(manager.agents()) == 9

    def test_a_persons_settings_do_not_matter(
        self, manager: TmuxSwarmManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / ".tmux.conf").write_text(
            "set -g base-index 5\nset -g remain-on-exit off\nset-hook -g session-created "
            "kill-server\n"
        )
        monkeypatch.setenv("HOME", str(tmp_path))

        start(manager, "exit 3")

        assert wait_for_end(manager, "worker-1").exit_code == 3

    def test_the_name_of_a_directory_is_not_run(self, tmp_path: Path, workplace: Path) -> None:
        manager = TmuxSwarmManager(str(tmp_path / "#(touch bad) #{pane_id};"))
        try:
            start(manager, 'printf %s "$SWARM_STATE_DIR" > dir; exec sleep 1000')
            wait_for_file(workplace / "dir", manager.state_dir.encode())
            assert os.listdir(workplace) == ["dir"]
        finally:
            _end_server(manager.socket)

    def test_an_attached_user_sees_the_name_of_each_agent_and_which_has_ended(
        self, manager: TmuxSwarmManager, tmp_path: Path
    ) -> None:
        """The picture is that of a client in a pane of another tmux, as a person has it."""
        start(
            manager,
            "echo hello from one; exec cat",
            "echo last words; exit 3",
            "kill -KILL $$",
            "true",
        )
        for number in (2, 3, 4):
            wait_for_end(manager, number)
        outer = str(tmp_path / "outer")
        swarm_attach = [sys.executable, str(ROOT / "swarm" / "__main__.py"), "attach"]
        inside = [TMUX, "-u", "-f/dev/null", "-S", outer]
        try:
            subprocess.run(
                [*inside, "new-session", "-d", "-x", "120", "-y", "40", *swarm_attach],
                check=True,
                env=environment(),
            )

            def screen() -> str:
                return subprocess.run(
                    [*inside, "capture-pane", "-p"], capture_output=True, text=True, check=True
                ).stdout

            wait_until(lambda: "hello from one" in screen() and "worker-2 ended with 3" in screen())
            assert "last words" in screen()
            names = re.findall(r"─ ([a-z][^─]*) ─", screen())
            assert names == [
                "master",
                "worker-1",
                "worker-2 ended with 3",
                "worker-3 ended by signal 9",
                "worker-4 ended",
            ]
            assert f"swarm {manager.state_dir}"[:60] in screen()
        finally:
            subprocess.run([*inside, "kill-server"], check=True)


class TestTrouble:
    def test_the_tmux_names_can_be_imported_without_tmux(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        code = (
            "import swarm; print(swarm.TmuxSwarmManager, swarm.AgentStatus, swarm.AgentPane, "
            "swarm.TmuxSwarmError)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
        )

        assert done.returncode == 0, done.stderr

    def test_a_tmux_that_cannot_be_executed_is_an_error(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = workplace / "tmux"
        fake.write_text("#!/no/such/interpreter\n")
        fake.chmod(0o644)
        monkeypatch.setenv("PATH", str(workplace))

        with pytest.raises(TmuxSwarmError, match=r"cannot be run.*tmux -V"):
            manager.agents()

    def test_a_tmux_that_hangs_is_killed_when_time_is_up(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = workplace / "tmux"
        fake.write_text(f"#!/bin/sh\necho $$ > {workplace}/pid\nexec sleep 1000\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{workplace}:{os.environ['PATH']}")

        with pytest.raises(TmuxSwarmError, match="does not answer"):
            TmuxServer(manager.state_dir, timeout=0.3).run(["-V"])
        pid = int((workplace / "pid").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_without_tmux_the_error_names_its_installation(
        self, manager: TmuxSwarmManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", "/nowhere")

        with pytest.raises(TmuxSwarmError, match=r"no tmux in PATH\. Install tmux"):
            manager.agents()
        with pytest.raises(TmuxSwarmError, match=r"no tmux in PATH\. Install tmux"):
            start(manager, "true")

    @pytest.mark.parametrize(
        ("version", "fits"),
        [("3.1c", False), ("2.9", False), ("next-3.7", True), ("master", True), ("10.0", True)],
    )
    def test_a_tmux_that_is_too_old_is_refused(
        self,
        manager: TmuxSwarmManager,
        workplace: Path,
        monkeypatch: pytest.MonkeyPatch,
        version: str,
        fits: bool,
    ) -> None:
        fake = workplace / "tmux"
        fake.write_text(f"#!/bin/sh\necho tmux {version}\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PATH", f"{workplace}:{os.environ['PATH']}")

        server = TmuxServer(manager.state_dir)
        if fits:
            server.prepare()
        else:
            with pytest.raises(
                TmuxSwarmError, match=f"this is tmux {version}, but swarm needs tmux 3.2 or newer"
            ):
                server.prepare()

    def test_a_server_that_does_not_answer_is_not_one_without_panes(
        self, manager: TmuxSwarmManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start(manager, "exec sleep 1000")
        pid = int(tmux(manager, "display-message", "-p", "#{pid}")[0])
        server = TmuxServer(manager.state_dir, timeout=0.3)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(TmuxSwarmError, match="tmux does not answer"):
                server.ask(["list-panes", "-a"])
        finally:
            os.kill(pid, signal.SIGCONT)
        assert len(manager.agents()) == 2

    def test_a_socket_that_is_not_of_tmux_is_an_error_and_not_a_swarm_that_is_down(
        self, manager: TmuxSwarmManager
    ) -> None:
        TmuxServer(manager.state_dir).prepare()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(manager.socket)
            listener.listen()

            def hang_up() -> None:
                while True:
                    try:
                        listener.accept()[0].close()
                    except OSError:
                        return

            thread = threading.Thread(target=hang_up)
            thread.start()
            try:
                with pytest.raises(TmuxSwarmError, match="tmux list-panes failed"):
                    manager.agents()
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()

    @pytest.mark.parametrize("place", ["open to others", "a link"])
    def test_a_socket_that_another_user_may_have_planted_is_not_used(
        self, tmp_path: Path, place: str
    ) -> None:
        folder = tmp_path / f"tmux-{os.getuid()}"
        if place == "a link":
            (tmp_path / "elsewhere").mkdir(mode=0o700)
            folder.symlink_to(tmp_path / "elsewhere")
        else:
            folder.mkdir()
            folder.chmod(0o755)
        server = TmuxServer("/state", base=str(tmp_path))

        with pytest.raises(TmuxSwarmError, match=r"only you may enter.*chmod 700"):
            server.ask(["list-panes", "-a"])
        with pytest.raises(TmuxSwarmError, match=r"only you may enter.*chmod 700"):
            server.prepare()

    def test_the_directory_of_the_socket_is_created_for_its_user_alone(
        self, tmp_path: Path
    ) -> None:
        TmuxServer("/state", base=str(tmp_path)).prepare()

        assert stat.S_IMODE((tmp_path / f"tmux-{os.getuid()}").stat().st_mode) == 0o700

    def test_an_error_of_tmux_is_reported_in_its_words(self, manager: TmuxSwarmManager) -> None:
        start(manager, "exec sleep 1000")

        with pytest.raises(TmuxSwarmError, match="can't find pane: %99"):
            TmuxServer(manager.state_dir).run(["kill-pane", "-t", "%99"])

    def test_a_swarm_in_another_container_is_not_signalled(self, manager: TmuxSwarmManager) -> None:
        start(manager, "exec sleep 1000")
        tmux(manager, "set-option", "-s", "@swarm-pid-namespace", "pid:[1]")

        with pytest.raises(TmuxSwarmError, match="another container"):
            manager.stop()
        assert set(status(manager).values()) == {"running"}


AGENT = """
import json, subprocess, sys
def hook(name, **fields):
    event = json.dumps({"hook_event_name": name, **fields})
    subprocess.run([sys.executable, "-m", "swarm", "hook"], input=event, text=True, check=True)
hook("SessionStart")
print("ready", flush=True)
for line in sys.stdin:
    hook("UserPromptSubmit", prompt=line)
    print("working on", line.strip(), flush=True)
    if line.strip() == "ask":
        hook("PermissionRequest", tool_name="Bash")
        print("may I?", flush=True)
        sys.stdin.readline()
    if line.strip() == "wait":
        sys.stdin.readline()
    hook("Stop")
    print("done with", line.strip(), flush=True)
"""


class TestInteractive:
    """An agent that talks with a person in its pane, and with swarm by its hooks."""

    @pytest.fixture
    def agent(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> str:
        (workplace / "agent.py").write_text(AGENT)
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        command = f"{sys.executable} agent.py"
        answer = run("up", "--interactive", command, "--workers", "1")
        assert answer.code == 0 and b"1 pane with the interactive agent" in answer.out
        wait_for_screen(manager, "worker-1", "ready")
        return command

    def test_text_is_typed_where_an_agent_waits_for_input(
        self, manager: TmuxSwarmManager, agent: str
    ) -> None:
        answer = run("send", "1", "one")

        assert answer.out == b"Typed into the pane of worker-1. The agent has begun with it.\n"
        wait_for_screen(manager, "worker-1", "done with one")
        (_, worker) = run("agents", "--json").json["agents"]
        assert (worker["kind"], worker["activity"]) == ("interactive", "input")
        assert b"waits for input" in run("agents").out

    @pytest.mark.parametrize(
        ("prompt", "screen", "why"),
        [("wait", "working on wait", b"is busy"), ("ask", "may I?", b"asks for a permission")],
    )
    def test_nothing_is_typed_while_an_agent_works_or_asks(
        self, manager: TmuxSwarmManager, agent: str, prompt: str, screen: str, why: bytes
    ) -> None:
        run("send", "1", prompt)
        wait_for_screen(manager, "worker-1", screen)

        answer = run("send", "1", "more")

        assert answer.code == 1 and why in answer.err and b"--force" in answer.err
        assert "more" not in manager.capture(1)
        assert run("send", "1", "more", "--force").code == 0
        wait_for_screen(manager, "worker-1", f"done with {prompt}")

    def test_an_interactive_agent_is_a_worker_of_the_swarm(
        self, manager: TmuxSwarmManager, agent: str
    ) -> None:
        store = FileStore(manager.state_dir)
        (presence,) = living(store)
        assert (presence.worker, presence.in_pane) == ("worker-1", True)
        assert presence.pid == manager.agent(1).pid
        os.kill(presence.pid, signal.SIGKILL)
        wait_for_end(manager, 1)
        assert not living(store)
        (problem,) = Viewer(store).look().problems
        assert (problem.kind, problem.fix) == ("died", "swarm restart worker-1")

        run("restart", "1")

        wait_until(lambda: bool(living(store)))
        assert not Viewer(store).look().problems
        assert run("send", "1", "again").code == 0
        wait_for_screen(manager, "worker-1", "done with again")

    def test_an_agent_that_down_has_killed_is_not_reported_as_dead(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (workplace / "agent.py").write_text(
            f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN){AGENT}"
        )
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        run("up", "--interactive", f"{sys.executable} agent.py", "--workers", "1")
        wait_for_screen(manager, "worker-1", "ready")

        assert b"worker-1: killed" in run("down", "--grace", "0").out

        assert not presences(FileStore(manager.state_dir))

    def test_up_alone_starts_interactive_agents_again(
        self, manager: TmuxSwarmManager, agent: str
    ) -> None:
        run("down")
        assert run("up").code == 0
        wait_for_screen(manager, "worker-1", "ready")

    def test_an_agent_without_hooks_is_not_typed_to(self, manager: TmuxSwarmManager) -> None:
        assert run("up", "--interactive", "cat", "--workers", "1").code == 0
        answer = run("send", "1", "hello")
        assert answer.code == 1 and b"swarm setup" in answer.err

    def test_an_interactive_agent_gets_no_password_of_the_store(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_STORE", "redis://:hidden@127.0.0.1:1/0")
        script = workplace / "agent.sh"
        script.write_text('#!/bin/sh\nprintf "%s\\n" "$SWARM_STORE" > seen; exec sleep 1000\n')
        script.chmod(0o755)
        run("up", "--interactive", str(script), "--workers", "1")
        wait_until(lambda: (workplace / "seen").exists() and (workplace / "seen").read_text())
        assert "hidden" not in (workplace / "seen").read_text()


class TestCommands:
    @pytest.fixture(autouse=True)
    def stand_ins(self, manager: TmuxSwarmManager, monkeypatch: pytest.MonkeyPatch) -> None:
        """In place of swarm's own commands in the panes, one that says what it was
        started as and then repeats what it reads.
        """

        def stand_in(*args: str) -> list[str]:
            return [
                "sh",
                "-c",
                'echo "$@"; case "$*" in *bad*) exit 3;; esac; exec cat',
                "stand-in",
                *args,
            ]

        monkeypatch.setattr(tmux_manager, "swarm_command", stand_in)

    def test_up_starts_a_view_and_workers_and_says_what_to_do_next(
        self, manager: TmuxSwarmManager
    ) -> None:
        answer = run("up", "--workers", "2", "--allow-commands", "--exec", "claude -p {prompt}")

        assert answer.code == 0
        first, second, *_ = answer.out.splitlines()
        assert first == b"2 workers with agent: claude -p {prompt}, --allow-commands"
        assert second.startswith(b"Started: master ")
        assert b"swarm attach" in answer.out and b"swarm down" in answer.out
        wait_for_screen(manager, "master", "status --watch")
        wait_for_screen(
            manager, "worker-2", "worker --id 2 --exec claude -p {prompt} --allow-commands"
        )

    def test_up_again_says_what_was_there(self) -> None:
        run("up", "--workers", "1")

        answer = run("up", "--workers", "2", "--until-empty", "--json")

        assert (answer.code, answer.json["schema_version"]) == (0, 1)
        assert (answer.json["started"], answer.json["running"]) == (
            ["worker-2"],
            ["master", "worker-1"],
        )

    def test_up_says_so_when_a_worker_ends_at_once(self) -> None:
        answer = run("up", "--workers", "1", "--exec", "bad")

        assert answer.code == 1
        assert b"ended at once: worker-1." in answer.err and b"swarm capture worker-1" in answer.err

    @pytest.mark.parametrize(
        "args",
        [(), ("--workers", "0"), ("--workers", "65"), ("--workers", "two"), ("--worker", "2")],
    )
    def test_up_wants_a_number_of_workers(
        self, manager: TmuxSwarmManager, args: Sequence[str]
    ) -> None:
        assert run("up", *args).code == 2
        assert manager.agents() == []

    def test_agents_are_listed(self, manager: TmuxSwarmManager) -> None:
        assert b"swarm up --workers N" in run("agents").out
        assert run("agents", "--json").json == {"schema_version": 1, "agents": []}
        start(manager, "exit 3")
        dead = wait_for_end(manager, "worker-1")

        lines = run("agents").out.decode().splitlines()
        assert lines[0].startswith("master    running (pid ")
        assert lines[1] == "worker-1  dead, exit code 3"
        master, worker = run("agents", "--json").json["agents"]
        assert (master["role"], master["status"], master["worker_id"]) == (
            "master",
            "running",
            None,
        )
        assert worker == {
            "name": "worker-1",
            "role": "worker",
            "worker_id": 1,
            "status": "dead",
            "pid": dead.pid,
            "pane_id": dead.pane_id,
            "command": None,
            "exit_code": 3,
            "signal": None,
            "kind": "program",
            "activity": None,
        }

    def test_all_screens_are_captured_together(self, manager: TmuxSwarmManager) -> None:
        assert run("capture", "--all", "--json").json == {"schema_version": 1, "agents": []}
        assert b"No agents are running" in run("capture", "--all").out
        forged = r"printf 'worker-9  running\nred \033[31mtext\n'; exit 3"
        start(manager, forged)
        dead = wait_for_end(manager, "worker-1")
        shown = run("capture", "--all").out.decode()
        assert "\nworker-1  dead, exit code 3\n  | worker-9  running\n  | red text\n" in shown
        assert shown.startswith("master  running\n")
        master, worker = run("capture", "--all", "--lines", "1", "--json").json["agents"]
        assert (master["name"], worker["name"]) == ("master", "worker-1")
        assert (worker["text"], worker["error"]) == ("red text\n", None)
        tmux(manager, "kill-pane", "-t", dead.pane_id)
        worker = run("capture", "--all", "--json").json["agents"][1]
        assert worker["text"] is None and "was closed" in worker["error"]
        assert b"  the pane of worker-1 was closed" in run("capture", "--all").out
        assert run("capture").code == run("capture", "1", "--all").code == 2

    def test_text_is_sent_and_the_answer_captured(self, manager: TmuxSwarmManager) -> None:
        start(manager, 'read -r line; echo "answer to: $line"; exec cat')

        answer = run("send", "1", "--", "--what now?")
        assert answer.out == b"Typed into the pane of worker-1.\n"

        wait_for_screen(manager, "worker-1", "answer to: --what now?")
        assert run("capture", "worker-1").out.endswith(b"answer to: --what now?\n")
        assert run("capture", "1", "--lines", "1").out == b"answer to: --what now?\n"
        captured = run("capture", "1", "--lines=1", "--json").json
        assert (captured["name"], captured["text"]) == ("worker-1", "answer to: --what now?\n")
        assert run("send", "1", "x", "--json").json == {
            "schema_version": 1,
            "name": "worker-1",
            "sent": True,
            "taken": None,
        }
        assert run("send", "2", "x").code == 1
        assert run("send", "1", "\x1b").code == 2

    def test_a_dead_one_is_restarted_and_a_running_one_is_not(
        self, manager: TmuxSwarmManager, workplace: Path
    ) -> None:
        start(manager, "[ -e fixed ] || exit 3; exec sleep 1000")
        wait_for_end(manager, "worker-1")
        (workplace / "fixed").touch()

        assert run("restart", "1").out.startswith(b"Restarted: worker-1 (pid ")
        assert run("restart", "1").code == 1
        assert run("restart", "1", "--force", "--json").json["status"] == "running"

    def test_down_ends_everything_and_says_how(self, manager: TmuxSwarmManager) -> None:
        start(manager, "exit 3")
        wait_for_end(manager, "worker-1")

        answer = run("down")

        assert answer.out == b"master: ended\nworker-1: dead, exit code 3\n"
        assert (run("down").code, run("down").out) == (0, b"No agents are running.\n")
        assert run("down", "--json").json == {"schema_version": 1, "agents": []}

    def test_attach_needs_a_swarm_and_a_terminal(self, manager: TmuxSwarmManager) -> None:
        assert run("attach").code == 2  # the tests have no terminal
        assert run("attach", "--json").code == 1
        start(manager, "exec sleep 1000")
        assert run("attach", "--json").json["command"][:6] == [
            "tmux",
            "-u",
            "-f",
            "/dev/null",
            "-S",
            manager.socket,
        ]

    def test_up_alone_starts_the_same_again(self, manager: TmuxSwarmManager) -> None:
        refused = run("up")
        assert refused.code == 2 and b"swarm up --agent claude" in refused.err
        run("up", "--workers", "2", "--exec", "my agent", "--allow-commands")
        wait_for_screen(manager, "worker-1", "worker --id 1 --exec my agent --allow-commands")
        run("down")

        answer = run("up")

        first, second, *_ = answer.out.splitlines()
        assert first == b"2 workers with agent: my agent, --allow-commands"
        assert second == b"Started: master worker-1 worker-2"
        wait_for_screen(manager, "worker-2", "worker --id 2 --exec my agent --allow-commands")
        assert run("up", "--workers", "3", "--json").json["started"] == ["worker-3"]
        wait_for_screen(manager, "worker-3", "worker --id 3 --exec my agent --allow-commands")
        mode = (Path(manager.state_dir) / ".last-start.json").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600

    def test_up_keeps_the_agent_of_the_last_start_when_other_options_are_given(
        self, manager: TmuxSwarmManager
    ) -> None:
        run("up", "--workers", "2", "--exec", "my agent")

        answer = run("up", "--workers", "3", "--budget", "5")

        first, *lines = answer.out.decode().splitlines()
        assert answer.code == 0 and first == "Wanted: 3 workers with agent: my agent, budget 5"
        assert "Started: worker-3" in lines and "Already running: master" in lines
        assert "Already running with other options, and unchanged: worker-1 worker-2" in lines
        assert any("swarm down, then swarm up" in line for line in lines)
        wait_for_screen(manager, "worker-3", "worker --id 3 --exec my agent --budget 5")
        run("down")
        answer = run("up")
        assert answer.out.startswith(b"3 workers with agent: my agent, budget 5\nStarted: master")
        wait_for_screen(manager, "worker-1", "worker --id 1 --exec my agent --budget 5")
        assert b"unchanged" not in run("up").out

    def test_up_with_fewer_workers_says_that_the_others_go_on(self) -> None:
        run("up", "--workers", "3", "--exec", "my agent")

        answer = run("up", "--workers", "1")

        assert answer.out.startswith(b"1 worker with agent: my agent\n")
        assert b"These workers go on too: worker-2 worker-3\n" in answer.out
        again = run("up", "--workers", "1", "--json").json
        assert (again["others"], again["differing"]) == (["worker-2", "worker-3"], [])

    def test_up_remembers_only_options_of_users_so_a_change_of_swarm_toml_counts(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SWARM_STATE_DIR")
        assert run("init", "--yes").code == 0
        own = '[agents.mine]\ncommand = "cat"\n[agents.other]\ncommand = "cat"\n'
        config = workplace / "swarm.toml"
        config.write_text(f'agent = "mine"\nworkers = 1\nbudget = 7.5\n{own}')
        project = TmuxSwarmManager()
        try:
            run("up", "--permissions", "full")
            config.write_text(f'agent = "other"\nworkers = 2\nmodel = "m"\n{own}')

            answer = run("up")

            assert answer.out.startswith(
                b"Wanted: 2 workers with agent: other, permissions full, model m\n"
            )
            assert b"unchanged: worker-1\n" in answer.out
            wait_for_screen(
                project, "worker-2", "worker --id 2 --agent other --permissions full --model m"
            )
            assert run("up", "--agent", "none").out.startswith(b"Wanted: 2 workers without an ")
            assert b"permissions" not in run("up").out
        finally:
            _end_server(project.socket)

    @pytest.mark.parametrize("agent", [(), ("--agent", "none"), ("--exec", "my agent")])
    @pytest.mark.parametrize("option", [("--model", "m"), ("--permissions", "full")])
    def test_up_refuses_options_of_an_agent_without_one(
        self, manager: TmuxSwarmManager, agent: Sequence[str], option: Sequence[str]
    ) -> None:
        answer = run("up", "--workers", "1", *agent, *option)

        assert answer.code == 2 and b"--agent" in answer.err
        assert run("up", "--workers", "1", "--budget", "much").code == 2
        assert manager.agents() == []

    def test_up_takes_its_defaults_from_the_project(
        self, manager: TmuxSwarmManager, workplace: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SWARM_STATE_DIR")
        assert run("init", "--yes").code == 0
        (workplace / "swarm.toml").write_text(
            'agent = "mine"\nworkers = 2\n[agents.mine]\ncommand = "cat"\n'
        )

        answer = run("up")

        project = TmuxSwarmManager()
        try:
            assert answer.out.startswith(b"2 workers with agent: mine\n")
            wait_for_screen(project, "worker-2", "worker --id 2 --agent mine")
        finally:
            _end_server(project.socket)

    def test_up_refuses_an_agent_that_cannot_run_and_two_agents(
        self, manager: TmuxSwarmManager
    ) -> None:
        for args in (
            ("--agent", "no-such"),
            ("--interactive", "no-such-program"),
            ("--agent", "claude", "--exec", "cat"),
            ("--interactive", "cat", "--until-empty"),
        ):
            assert run("up", "--workers", "1", *args).code == 2
        assert manager.agents() == []

    def test_a_worker_and_the_view_read_no_input(self, manager: TmuxSwarmManager) -> None:
        run("up", "--workers", "1", "--exec", "true")
        wait_for_screen(manager, "worker-1", "worker --id 1")

        answer = run("send", "1", "go on")
        assert answer.code == 1 and b"runs a worker, which reads no input" in answer.err
        assert b"reads no input" in run("send", "master", "q").err
        assert "go on" not in manager.capture(1)
        assert run("send", "1", "go on", "--force").code == 0
        wait_for_screen(manager, "worker-1", "go on")
        kinds = [agent["kind"] for agent in run("agents", "--json").json["agents"]]
        assert kinds == ["view", "worker"]

    @pytest.mark.parametrize(
        "command", ["up", "attach", "down", "agents", "send", "capture", "restart"]
    )
    def test_each_command_explains_itself(self, command: str) -> None:
        answer = run(command, "--help")

        assert answer.code == 0 and answer.out.startswith(f"Usage: swarm {command}".encode())
