"""The panes of a swarm's tmux server: list panes, create a pane, run a command in it.

A new pane is empty at first. swarm marks the pane as its agent's, and sets the pane to
stay when its command ends. After these settings, the command of the pane starts. One
tmux command line makes all these steps, so no step is left out. At most six panes share
a window. swarm adds no pane to a window in which the user has opened a pane.
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
MAX_PANES_PER_WINDOW = 6
MAX_TEXT_BYTES = 1_048_576
PID_NAMESPACE = "@swarm-pid-namespace"

_MARKS = ("@swarm-agent", "@swarm-pane")
_MAX_NUDGES = 10
_IDLE = ["tail", "-f", "/dev/null"]  # runs in a window until its pane is marked
_SHOWN = (
    "#{pid}:#{session_id}:#{session_name}:#{window_id}:#{pane_id}:#{pane_pid}:#{pane_dead}:#{pane_dead_status}:#{pane_dead_signal}:"
    "#{@swarm-pane}:#{@swarm-agent}:#{pane_current_command}"
)


class Pane(NamedTuple):
    """A pane as tmux lists it. `agent` is "" for a pane that the user made."""

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
    """Return every pane of the tmux server, each pane once."""
    for _ in range(_MAX_NUDGES):
        server, panes = _read(tmux)
        if not any(pane.dead and not pane.dead_status and not pane.dead_signal for pane in panes):
            break
        # tmux before 3.5 may miss the end of a child, because libutempter catches the
        # signal. A second signal makes tmux check its children.
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
    """Create a pane for an agent and run its command there.

    `settings` is a file of tmux commands to run first. `options` are the tmux commands
    for a new server.
    """
    panes = list_panes(tmux)
    make: list[Sequence[str]]
    at: list[str] = []  # without a target, tmux uses the pane that it has just created
    if beside := _last_pane_with_space(panes):
        make = [["source-file", settings], ["split-window", "-t", beside, ""]]
        after = [["select-layout", "tiled"], ["last-pane"]]
    elif any(pane.session == SESSION for pane in panes):
        make = [
            ["source-file", settings],
            ["new-window", "-t", f"={SESSION}:", "-n", "workers", *_IDLE],
        ]
        after = [["last-window"]]
    else:
        variables = _environment_options(environment, without="SWARM_WORKER")
        session = ["new-session", "-d", "-s", SESSION, "-n", SESSION, *variables, *_IDLE]
        make = [["start-server"], ["source-file", settings], *options, session]
        at, after = ["-t", f"={SESSION}:"], []
    mark, proof = _MARKS
    tmux.run(
        *make,
        ["set-option", "-p", *at, "remain-on-exit", "on"],
        # from tmux 3.3 on; tmux's own message would scroll a line away
        ["set-option", "-qp", *at, "remain-on-exit-format", ""],
        ["set-option", "-p", *at, mark, name],
        ["set-option", "-pF", *at, proof, "#{pane_id}"],
        ["respawn-pane", "-k", *at, *_environment_options(environment), "--", *command],
        *after,
    )


def rerun(
    tmux: TmuxServer,
    pane_id: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    settings: str,
) -> None:
    """Run a command in a pane. tmux refuses while the previous command of the pane
    still runs.
    """
    tmux.run(
        ["source-file", settings],
        ["respawn-pane", "-t", pane_id, *_environment_options(environment), "--", *command],
    )


def setting(name: str, value: str) -> bytes:
    """Return the tmux command that sets or unsets an environment variable for all later
    panes.

    Put this command in a file: other users can read a command line, and the value may
    be secret.
    """
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return (
        f'set-environment -g {name} "{quoted}"\n' if value else f"set-environment -gu {name}\n"
    ).encode()


def start_options(state_dir: str) -> list[list[str]]:
    """Return the tmux commands that set how a swarm's server looks and behaves."""
    name = "#{?@swarm-agent,#{@swarm-agent},#{pane_index}}"
    how = (
        "#{?pane_dead_signal, by signal #{pane_dead_signal},#{?pane_dead_status, with "
        "#{pane_dead_status},}}"
    )
    ended = f"#{{?pane_dead,#[fg=red] ended{how}#[default],}}"
    # The directory is in an option of its own: its name may look like a format, and
    # formats show an option as it is.
    wanted = {
        "-s": {
            "escape-time": "10",
            "@swarm-dir": state_dir,
            PID_NAMESPACE: process.namespace("pid"),
        },
        "-g": {
            "history-limit": "10000",
            "default-size": "200x50",
            "mouse": "on",
            "status-left": "#[bold] swarm #[default]#{@swarm-dir}  ",
            "status-left-length": "80",
            "status-right": " C-b d: detach, C-b n: next window ",
            "status-right-length": "60",
        },
        "-gw": {"pane-border-status": "top", "pane-border-format": f" {name}{ended} "},
    }
    return [
        ["set-option", scope, key, value]
        for scope, options in wanted.items()
        for key, value in options.items()
    ]


def encode_input(text: str) -> bytes:
    """Encode text for a pane.

    Raise BadInput for text that would not arrive unchanged.
    """
    if found := re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        raise BadInput(
            f"the text contains the control character {found[0]!a}. Only newlines and tabs are "
            f"allowed."
        )
    try:
        data = text.rstrip("\n").encode()
    except UnicodeEncodeError:
        raise BadInput("the text is not valid UTF-8.") from None
    if len(data) > MAX_TEXT_BYTES:
        raise BadInput(
            f"the text has {len(data)} bytes, but at most {MAX_TEXT_BYTES} are allowed. Put "
            "the text in a file, and send the name of the file."
        )
    return data


def _read(tmux: TmuxServer) -> tuple[int, list[Pane]]:
    server = 0
    panes: dict[str, Pane] = {}
    for line in tmux.ask(["list-panes", "-a", "-F", _SHOWN]) or []:
        if line.count(":") < 11:
            continue  # the rest of a command name with a line break
        (
            its,
            session_id,
            session,
            window,
            pane_id,
            pid,
            dead,
            status,
            number,
            own,
            agent,
            command,
        ) = line.split(":", 11)
        server = int(its)
        # A pane inherits options of its window and session. Its own id proves that the
        # mark is its own.
        name = agent if own == pane_id else ""
        # a window may be linked into several sessions
        if pane_id not in panes or session == SESSION:
            panes[pane_id] = Pane(
                session_id,
                session,
                window,
                pane_id,
                int(pid),
                dead == "1",
                status,
                number,
                name,
                command,
            )
    return server, list(panes.values())


def _nudge(server: int) -> None:
    try:
        os.kill(server, signal.SIGCHLD)
    except OSError:
        pass


def _last_pane_with_space(panes: Sequence[Pane]) -> str:
    """Return a pane whose window has space for another pane, "" if no window has space."""
    windows: dict[str, list[Pane]] = {}
    for pane in panes:
        if pane.session == SESSION:
            windows.setdefault(pane.window_id, []).append(pane)
    for inside in windows.values():
        if len(inside) < MAX_PANES_PER_WINDOW and all(pane.agent for pane in inside):
            return inside[-1].pane_id
    return ""


def _environment_options(environment: Mapping[str, str], *, without: str = "") -> list[str]:
    return [
        word
        for key, value in environment.items()
        if key != without
        for word in ("-e", f"{key}={value}")
    ]
