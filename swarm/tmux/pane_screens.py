"""Read the screens of panes, type an answer into a pane, and see whether a person types.

One tmux command line reads the screens and cursors of all panes, so a cursor belongs to
the screen that was read with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from swarm.tmux.prompts import Screen
from swarm.tmux.server import TmuxServer

_HISTORY = 40  # rows that have scrolled away, and are read too
_FIELDS = (
    "#{pane_id} #{@swarm-pane} #{pane_pid} #{pane_width} #{pane_height} #{cursor_x} #{cursor_y} "
    "#{cursor_flag} #{alternate_on} #{history_size} "
    "#{pane_in_mode}#{pane_input_off}#{pane_synchronized}"
)


@dataclass(frozen=True)
class PaneScreen:
    """A pane at one moment.

    `takes_keys` is False while the user scrolls in the pane, has turned its input off, or
    types into all panes of the window at once.
    """

    pid: int
    screen: Screen
    takes_keys: bool


def read_screens(tmux: TmuxServer, pane_ids: Iterable[str]) -> Mapping[str, PaneScreen]:
    """Return the screens of panes that swarm made, by the pane's id."""
    mark = os.urandom(16).hex()  # no screen can contain it
    commands = [
        command
        for pane in pane_ids
        for command in (
            ["display-message", "-p", "-t", pane, f"{mark} {_FIELDS}"],
            ["capture-pane", "-p", "-S", str(-_HISTORY), "-t", pane],
        )
    ]
    if not commands:
        return {}
    lines = tmux.run(*commands, ["display-message", "-p", mark])
    begins = [index for index, line in enumerate(lines) if line.startswith(mark)]
    found = {}
    for begin, end in pairwise(begins):
        fields = lines[begin].split(" ")[1:]
        if fields[0] == fields[1]:  # else the user made the pane
            found[fields[0]] = _pane_screen(fields[2:], lines[begin + 1 : end])
    return found


def _pane_screen(fields: list[str], rows: list[str]) -> PaneScreen:
    pid, columns, height, x, y, flag, alternate, scrolled = map(int, fields[:8])
    if alternate:
        rows = rows[-height:]  # what has scrolled away is of another program
    screen = Screen(tuple(rows), columns, len(rows) - height + y, x, bool(flag), scrolled)
    return PaneScreen(pid, screen, fields[8] == "000")


def type_keys(tmux: TmuxServer, pane_id: str, keys: str) -> None:
    """Type keys into a pane, as bytes: send-keys would look for names of keys in them."""
    buffer = f"swarm-prompt-{os.getpid()}"
    tmux.run(
        ["set-buffer", "-b", buffer, keys],
        ["paste-buffer", "-d", "-b", buffer, "-t", pane_id],
    )


def person_typed(tmux: TmuxServer, pane_id: str, within: float) -> bool:
    """Return whether a person has pressed a key in a pane within the last seconds.

    The pane of a client is the one that gets its keys. tmux counts in whole seconds.
    """
    since = time.time() - within - 1
    lines = tmux.run(["list-clients", "-F", "#{client_activity} #{pane_id}"])
    return any(
        int(at) >= since and pane == pane_id for at, _, pane in (s.partition(" ") for s in lines)
    )
