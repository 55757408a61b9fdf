"""The panes on a swarm's tmux server: which are there, which are its own, making one and running a command in it.

A new pane is empty at first. It gets the marks of its agent and stays when its command ends; only then does the command begin.
All of that is one tmux command line, so nothing is left half done. At most six panes share a window, and a window in which
somebody else has a pane gets no more.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from swarm.errors import BadInput
from swarm.system import process
from swarm.tmux.server import TmuxServer

SESSION = "swarm"
PANES_A_WINDOW = 6
MAX_TEXT_BYTES = 1_048_576
PID_NAMESPACE = "@swarm-pid-namespace"

_MARKS = ("@swarm-agent", "@swarm-pane")
_NUDGES = 10
_IDLE = ["tail", "-f", "/dev/null"]  # what is in a window for the moment before its pane is marked
_SHOWN = (
    "#{pid}:#{session_id}:#{session_name}:#{window_id}:#{pane_id}:#{pane_pid}:#{pane_dead}:#{pane_dead_status}:#{pane_dead_signal}:"
    "#{@swarm-pane}:#{@swarm-agent}:#{pane_current_command}"
)


class Pane(NamedTuple):
    """A pane as tmux tells it; `agent` is "" where it is not the swarm's."""

    session_id: str
    session: str
    window_id: str
    pane_id: str
    pid: int
    dead: bool
    dead_status: str
    dead_signal: str
    agent: str
    command: str


def list_panes(tmux: TmuxServer) -> list[Pane]:
    """Every pane there is, each once."""
    for _ in range(_NUDGES):
        server, panes = _read(tmux)
        if not any(pane.dead and not pane.dead_status and not pane.dead_signal for pane in panes):
            break
        # Before 3.5 tmux may miss that a child has ended (libutempter catches the signal): a second one makes it look.
        _nudge(server)
        time.sleep(0.01)
    return panes


def new_pane(
    tmux: TmuxServer,
    name: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    settings: str,
    options: Sequence[Sequence[str]],
) -> None:
    """Makes a pane for an agent and runs its command there; on a fresh server under these options. `settings`: a file of tmux
    commands to run before."""
    panes = list_panes(tmux)
    make: list[Sequence[str]]
    at: list[str] = []  # without a target, tmux means the pane that it has just made
    if beside := _last_where_there_is_room(panes):
        make = [["source-file", settings], ["split-window", "-t", beside, ""]]
        after = [["select-layout", "tiled"], ["last-pane"]]
    elif any(pane.session == SESSION for pane in panes):
        make = [["source-file", settings], ["new-window", "-t", f"={SESSION}:", "-n", "workers", *_IDLE]]
        after = [["last-window"]]
    else:
        session = ["new-session", "-d", "-s", SESSION, "-n", SESSION, *_given(environment, without="SWARM_WORKER"), *_IDLE]
        make = [["start-server"], ["source-file", settings], *options, session]
        at, after = ["-t", f"={SESSION}:"], []
    mark, proof = _MARKS
    tmux.run(
        *make,
        ["set-option", "-p", *at, "remain-on-exit", "on"],
        ["set-option", "-qp", *at, "remain-on-exit-format", ""],  # from 3.3 on; it would scroll a line away to say what we show
        ["set-option", "-p", *at, mark, name],
        ["set-option", "-pF", *at, proof, "#{pane_id}"],
        ["respawn-pane", "-k", *at, *_given(environment), "--", *command],
        *after,
    )


def rerun(tmux: TmuxServer, pane_id: str, command: Sequence[str], environment: Mapping[str, str], settings: str) -> None:
    """Runs a command in a pane whose command has ended; tmux refuses where it has not."""
    tmux.run(["source-file", settings], ["respawn-pane", "-t", pane_id, *_given(environment), "--", *command])


def setting(name: str, value: str) -> bytes:
    """The tmux command that gives a variable to all panes from now on, or takes it from them. Where it may hold a secret, it is
    not for a command line, which others can read."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return (f'set-environment -g {name} "{quoted}"\n' if value else f"set-environment -gu {name}\n").encode()


def start_options(state_dir: str) -> list[list[str]]:
    """How a swarm's server looks and behaves."""
    name = "#{?@swarm-agent,#{@swarm-agent},#{pane_index}}"
    how = "#{?pane_dead_signal, by signal #{pane_dead_signal},#{?pane_dead_status, with #{pane_dead_status},}}"
    ended = f"#{{?pane_dead,#[fg=red] ended{how}#[default],}}"
    # The directory's name stands in an option of its own, which formats show as it is: it may look like a format itself.
    wanted = {
        "-s": {"escape-time": "10", "@swarm-dir": state_dir, PID_NAMESPACE: process.namespace("pid")},
        "-g": {
            "history-limit": "10000",
            "default-size": "200x50",
            "mouse": "on",
            "status-left": "#[bold] swarm #[default]#{@swarm-dir}  ",
            "status-left-length": "80",
            "status-right": " C-b d leaves, C-b n is the next window ",
            "status-right-length": "60",
        },
        "-gw": {"pane-border-status": "top", "pane-border-format": f" {name}{ended} "},
    }
    return [["set-option", scope, key, value] for scope, options in wanted.items() for key, value in options.items()]


def sent(text: str) -> bytes:
    """Text as it goes to a pane. Raises BadInput for what would not arrive as text."""
    if found := re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        raise BadInput(f"the text has the control character {found[0]!a}, but only newlines and tabs may be in it.")
    try:
        data = text.rstrip("\n").encode()
    except UnicodeEncodeError:
        raise BadInput("the text is not valid UTF-8.") from None
    if len(data) > MAX_TEXT_BYTES:
        raise BadInput(
            f"the text has {len(data)} bytes, but at most {MAX_TEXT_BYTES} are sent. Put it in a file, and send its name."
        )
    return data


def _read(tmux: TmuxServer) -> tuple[int, list[Pane]]:
    server = 0
    panes: dict[str, Pane] = {}
    for line in tmux.ask(["list-panes", "-a", "-F", _SHOWN]) or []:
        if line.count(":") < 11:
            continue  # the rest of a command's name that has a line break in it
        its, session_id, session, window, pane_id, pid, dead, status, number, own, agent, command = line.split(":", 11)
        server = int(its)
        # Options are inherited from window and session: only the pane's own id proves that the mark is the pane's own.
        name = agent if own == pane_id else ""
        if pane_id not in panes or session == SESSION:  # a window may be linked into several sessions
            panes[pane_id] = Pane(session_id, session, window, pane_id, int(pid), dead == "1", status, number, name, command)
    return server, list(panes.values())


def _nudge(server: int) -> None:
    try:
        os.kill(server, signal.SIGCHLD)
    except OSError:
        pass


def _last_where_there_is_room(panes: Sequence[Pane]) -> str:
    """The pane that another can be put behind, "" if there is none."""
    windows: dict[str, list[Pane]] = {}
    for pane in panes:
        if pane.session == SESSION:
            windows.setdefault(pane.window_id, []).append(pane)
    for inside in windows.values():
        if len(inside) < PANES_A_WINDOW and all(pane.agent for pane in inside):
            return inside[-1].pane_id
    return ""


def _given(environment: Mapping[str, str], *, without: str = "") -> list[str]:
    return [word for key, value in environment.items() if key != without for word in ("-e", f"{key}={value}")]
