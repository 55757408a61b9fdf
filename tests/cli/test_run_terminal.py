"""`swarm run` at a real terminal, under a real shell: the command can be talked to,
interrupted, stopped and continued as if it had been started directly.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator

import pytest

from tests.support.at_a_terminal import Terminal, environment, terminal, wait_until
from tests.support.wrapped_command import Place, is_alive, state_of

# What is typed is shown too: so what is waited for stands in files.
_FILES = {
    "listen": "import os, signal\n"
    "signal.signal(signal.SIGINT, lambda *_: os.write(1, b'heard SIGINT\\n'))\n"
    "print('is ready', flush=True)\n"
    "while line := os.read(0, 100):\n"
    "    print('got', line.decode().strip(), flush=True)\n"
    "raise SystemExit(7)\n",
    "count": "import sys, time\n"
    "print('is ready', flush=True)\n"
    "while True:\n"
    "    with open('counted', 'a') as file:\n"
    "        file.write('.')\n"
    "    time.sleep(0.02)\n",
    "wake": "import os, signal\n"
    "signal.signal(signal.SIGCONT, lambda *_: os.mkdir('continued'))\n"
    "print('is ready', flush=True)\n"
    "while True:\n"
    "    signal.pause()\n",
    "raw": "import os, signal, sys, termios, tty\n"
    "tty.setraw(0)\n"
    "os.write(1, b'is ready\\r\\n')\n"
    "os.read(0, 1)\n"
    "os.kill(os.getpid(), signal.SIGKILL)\n",
    "ask": "with open('/dev/tty') as tty:\n    print('got', tty.readline().strip())\n",
}


class Shell:
    """An interactive bash; `run` in it is `swarm run t`, and the files above are there."""

    def __init__(self, tty: Terminal, place: Place) -> None:
        self.tty, self.place = tty, place
        for name, text in _FILES.items():
            (place.root / f"{name}.py").write_text(text)
        run = f"alias run='{sys.executable} -m swarm run t --ttl 2 --worker me'\n"
        settings = (
            "PS1='prompt> '; PS2=; HISTFILE=; bind 'set enable-bracketed-paste off'; exec "
            ">/dev/tty; ulimit -c 0\n"
        )
        (place.root / "rc").write_text(settings + run)
        tty.start("bash", "--rcfile", "rc", "-i", cwd=place.root, place="leader", env=place.env)
        self.prompts = 0
        self.prompt()

    def type(self, text: str) -> None:
        self.tty.type(text)

    def prompt(self) -> None:
        """Until it asks for the next command."""
        self.prompts += 1
        self.shows("prompt> ", self.prompts)

    def shows(self, text: str, times: int = 1) -> None:
        self.tty.wait_for(text, times)

    def code(self) -> int:
        """The exit code of the last command."""
        self.type("echo code:$?:\n")
        self.prompt()
        return int(self.tty.shown.rpartition("\ncode:")[2].partition(":")[0])


@pytest.fixture
def shell(place: Place) -> Iterator[Shell]:
    with terminal() as tty:
        yield Shell(tty, place)


def python(name: str) -> str:
    return f"{sys.executable} -I -S {name}.py"


def test_typed_text_reaches_the_command_and_its_exit_code_the_shell(shell: Shell) -> None:
    shell.type(f"run -- {python('listen')}\n")
    shell.shows("is ready")
    shell.type("hello\n")
    shell.shows("got hello")
    shell.type("\x04")
    shell.prompt()
    assert shell.code() == 7
    assert shell.place.is_free


def test_ctrl_c_reaches_the_command_once_and_not_the_wrapper(shell: Shell) -> None:
    shell.type(f"run -- {python('listen')}\n")
    shell.shows("is ready")
    for count in (1, 2):
        shell.type("\x03")
        shell.shows("heard SIGINT", count)
    shell.type("on\n")
    shell.shows("got on")
    shell.type("\x04")
    shell.prompt()
    assert shell.tty.shown.count("heard SIGINT") == 2
    assert shell.code() == 7


def test_ctrl_c_ends_a_command_that_does_not_handle_it(shell: Shell) -> None:
    shell.type("run -- sh -c 'echo is ready; exec sleep 600'\n")
    shell.shows("is ready", 2)
    shell.type("\x03")
    shell.prompt()
    assert shell.code() == 130
    assert shell.place.records[-1][:2] == ("ERROR", "ended by SIGINT")
    assert shell.place.is_free


@pytest.mark.parametrize("how", ["typed", "in a script", "in a pipeline"])
def test_ctrl_c_ends_a_shell_loop_around_a_run(how: str, shell: Shell) -> None:
    run = f"{sys.executable} -m swarm run t"
    pipe = " | cat" if how == "in a pipeline" else ""
    loop = f"for n in 1 2 3; do {run} -- sh -c 'echo round >> rounds; exec sleep 600'{pipe}; done\n"
    (shell.place.root / "loop.sh").write_text(loop)
    shell.type(loop if how == "typed" else "bash loop.sh\n")
    rounds = shell.place.root / "rounds"
    wait_until(lambda: rounds.exists() and rounds.read_text())
    shell.type("\x03")
    shell.prompt()
    assert shell.code() == 130
    assert rounds.read_text() == "round\n"
    assert shell.place.is_free


def test_ctrl_z_stops_a_run_as_a_job_and_fg_continues_it_with_the_terminal(shell: Shell) -> None:
    shell.type(f"run -- {python('listen')}\n")
    shell.shows("is ready")
    holder = shell.place.lock["holder"]
    shell.type("\x1a")
    shell.prompt()
    assert "Stopped" in shell.tty.shown
    assert [state_of(holder[who])[:1] for who in ("pid", "group")] == ["T", "T"]
    shell.type("fg\n")
    wait_until(lambda: [state_of(holder[who])[:1] for who in ("pid", "group")] == ["S", "S"])
    shell.type("again\n")
    shell.shows("got again")
    shell.type("\x1a")
    shell.prompt()
    shell.type("fg\n")
    wait_until(lambda: state_of(holder["group"])[:1] == "S")
    shell.type("\x03")
    shell.shows("heard SIGINT")
    shell.type("\x04")
    shell.prompt()
    assert shell.code() == 7
    assert shell.place.is_free


def test_a_job_stopped_past_its_lease_is_ended_and_does_nothing_more(shell: Shell) -> None:
    shell.type(f"run -- {python('wake')}\n")
    shell.shows("is ready")
    command = shell.place.lock["holder"]["group"]
    shell.type("\x1a")
    shell.prompt()
    wait_until(lambda: shell.place.verdict == "t: Expired")
    assert shell.place.swarm("lock", "acquire", "t", "other").returncode == 0
    shell.type("fg\n")
    shell.prompt()
    assert shell.code() == 4
    assert not is_alive(command)
    assert not (shell.place.root / "continued").exists(), "SIGTERM was there when it was continued"
    assert shell.place.lock["worker"] == "other"
    assert "The command was stopped." in shell.tty.shown


def test_a_run_in_the_background_leaves_the_terminal_to_the_shell_until_fg(shell: Shell) -> None:
    shell.type(f"run -- {python('listen')} &\n")
    shell.prompt()
    wait_until(
        lambda: _locked(shell.place) and state_of(shell.place.lock["holder"]["group"])[:1] == "T"
    )
    assert shell.code() == 0, "the shell reads on, and it is stopped as it wants to"
    shell.type("fg\n")
    wait_until(lambda: state_of(shell.place.lock["holder"]["group"])[:1] == "S")
    shell.type("hello\n")
    shell.shows("got hello")
    shell.type("\x04")
    shell.prompt()
    assert shell.code() == 7


def test_bg_continues_a_stopped_run_without_the_terminal(shell: Shell) -> None:
    shell.type(f"run -- {python('count')}\n")
    shell.shows("is ready")
    command = shell.place.lock["holder"]["group"]
    shell.type("\x1a")
    shell.prompt()
    shell.type("bg\n")
    shell.prompt()
    wait_until(lambda: state_of(command)[:1] == "S")
    shell.type("kill %1; wait %1\n")
    shell.prompt()
    assert shell.code() == 143
    assert shell.place.is_free


def test_a_stop_signal_not_from_the_terminal_stops_only_the_command(shell: Shell) -> None:
    shell.type(f"run -- {python('count')} &\n")
    shell.prompt()
    wait_until((shell.place.root / "counted").exists)
    holder = shell.place.lock["holder"]
    os.kill(holder["group"], signal.SIGSTOP)
    wait_until(lambda: state_of(holder["group"])[:1] == "T")
    beat = shell.place.lock["holder"]["beat"]
    wait_until(lambda: shell.place.lock["holder"]["beat"] > beat)
    os.kill(holder["group"], signal.SIGCONT)
    wait_until(lambda: state_of(holder["group"])[:1] == "S")
    shell.type("kill %1; wait %1\n")
    shell.prompt()
    assert shell.code() == 143


def test_a_stopped_job_can_be_killed(shell: Shell) -> None:
    shell.type(f"run -- {python('count')}\n")
    shell.shows("is ready")
    shell.type("\x1a")
    shell.prompt()
    shell.type("kill %1\n")
    shell.prompt()
    wait_until(lambda: shell.place.is_free)
    assert shell.place.records[-1][:2] == ("ERROR", "ended by SIGTERM")


def test_a_run_in_a_pipeline_gets_the_terminal_when_it_asks(shell: Shell) -> None:
    shell.type(f"run -- {python('ask')} | cat\n")
    wait_until(lambda: _locked(shell.place))
    shell.type("an answer\n")
    shell.shows("got an answer")
    shell.prompt()
    assert shell.code() == 0


def test_another_program_in_the_pipeline_has_the_terminal_until_the_run_asks(shell: Shell) -> None:
    once_it_runs = "until [ -e running ]; do sleep 0.05; done; exec"
    shell.type(
        f"run -- sh -c '> running; sleep 600; exit 1' | sh -c '{once_it_runs} {python('ask')}'\n"
    )
    wait_until((shell.place.root / "running").exists)
    shell.type("an answer\n")
    shell.shows("got an answer")
    shell.type("\x03")
    shell.prompt()
    assert shell.place.is_free


def test_a_terminal_that_a_killed_command_left_raw_is_restored(shell: Shell) -> None:
    shell.type(f"stty -g > before; run -- {python('raw')}; stty -g > after\n")
    shell.shows("is ready")
    assert not shell.tty.current_modes()[3] & termios.ISIG  # type: ignore[operator]
    shell.type("x")
    shell.prompt()
    before, after = ((shell.place.root / name).read_text() for name in ("before", "after"))
    assert after == before


def test_a_lost_lease_returns_the_terminal_to_the_shell(shell: Shell) -> None:
    shell.type(f"run -- {python('listen')}\n")
    shell.shows("is ready")
    assert shell.place.swarm("lock", "break", "t", "--yes").returncode == 0
    shell.prompt()
    assert shell.code() == 4


def test_closing_the_terminal_window_ends_the_command(place: Place) -> None:
    with terminal() as tty:
        words = place.command("sh", "-c", "echo is ready >&2; exec sleep 600 <&1")
        tty.start(*words, cwd=place.root, place="leader", env=place.env)
        tty.wait_for("is ready\n")
        tty.hang_up()
        assert tty.wait().code == 128 + signal.SIGHUP
    assert place.is_free


def test_ctrl_z_does_nothing_where_no_shell_could_continue_the_run(place: Place) -> None:
    with terminal() as tty:
        words = place.command("sh", "-c", "echo is ready >&2; exec cat >&2")
        tty.start(
            "sh",
            "-c",
            'exec "$@" >/dev/tty',
            "sh",
            *words,
            cwd=place.root,
            place="leader",
            env=place.env,
        )
        tty.wait_for("is ready\n")
        tty.type("\x1a")
        tty.type("on\n")
        tty.wait_for("\non\n")
        tty.type("\x04")
        assert tty.wait().code == 0
    assert place.is_free


def test_a_run_without_a_terminal_behaves_the_same(place: Place) -> None:
    done = subprocess.run(
        ["setsid", "--wait", *place.command("cat")],
        input="in\n",
        capture_output=True,
        text=True,
        env=environment(**place.env),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "in\n", "")


def _locked(place: Place) -> bool:
    return (place.state / "locks" / "t.lock").exists()
