"""The output of the demo: the live view with the newest records below it, or plain
lines.

Without a terminal, the demo prints lines. After the live view, the demo prints the
lines too, so that they stay on the screen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

from swarm import settings
from swarm.board.text import text as board_lines
from swarm.board.viewer import Viewer
from swarm.status.log import LOG
from swarm.stores.contract import Store
from swarm.stores.location import location_of
from swarm.terminal import output
from swarm.terminal.screen import LiveScreen
from swarm.terminal.text import cut, shown


class Check(NamedTuple):
    """A sentence of the summary, and whether it is true."""

    text: str
    holds: bool


_MARKS = {
    "START": ("▶", "bold"),
    "DONE": ("✔", "green"),
    "WAIT": ("?", "yellow"),
    "SKIP": ("·", "dim"),
    "ERROR": ("✘", "red"),
}
_REFRESH_INTERVAL = 0.2  # seconds
_LINES_BELOW = 7  # the newest lines, below the view
_MIN_LINES, _MIN_COLUMNS = 18, 60  # of a terminal for the live view


class DemoScreen(Protocol):
    """Shows the events of the demo."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def record(self, record: dict[str, Any]) -> None: ...
    def note(self, text: str, *, bad: bool = False) -> None: ...
    def pause(self, cursor: str, *, last: bool = False) -> None:
        """Wait until the log has a new record, or a moment has passed."""

    def summary(self, checks: Sequence[Check]) -> None: ...
    def listing(self, title: str, lines: Sequence[str]) -> None: ...
    def end(self, seconds: float, note: str = "") -> None: ...


def open_screen(store: Store, *, plain: bool) -> DemoScreen:
    """Return the live view if the terminal has room for it, else plain lines."""
    if not plain and os.isatty(1) and settings.terminal_draws():
        columns, lines = os.get_terminal_size(1)
        if lines >= _MIN_LINES and columns >= _MIN_COLUMNS:
            return Live(store)
    return Lines(store)


class Lines:
    """Prints a line for each event, with the seconds since the start."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        where = cut(shown(f"Demo: {location_of(self._store).text}"), output.columns())
        output.out(f"{output.paint(where, 'dim')}\n")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def record(self, record: dict[str, Any]) -> None:
        mark, colour = _MARKS.get(record["state"], ("·", "dim"))
        message = record.get("message", "")
        text = f"  {message}" if message else ""
        plain = f"{mark} {record['state']:5}"
        about = f"{shown(record['task_id'])}{shown(text)}"
        room = output.columns() - len(f"{' ' * 9}{record['worker']}  {plain}  ")
        self._add(f"{record['worker']}  {output.paint(plain, colour)}  {cut(about, room)}")

    def note(self, text: str, *, bad: bool = False) -> None:
        self._add(output.paint(f"{'✘' if bad else '*'} {text}", "red" if bad else "bold"))

    def pause(self, cursor: str, *, last: bool = False) -> None:
        if not last:
            self._store.wait(LOG, cursor, _REFRESH_INTERVAL)

    def summary(self, checks: Sequence[Check]) -> None:
        output.out("\n")
        for text, holds in checks:
            mark = output.paint("✔", "green") if holds else output.paint("✘", "red")
            output.out(f"  {mark} {text}\n")
        output.out("\n")

    def listing(self, title: str, lines: Sequence[str]) -> None:
        output.out(f"{output.paint(title, 'dim')}\n")
        output.out("".join(f"  {cut(shown(line), output.columns() - 2)}\n" for line in lines))

    def end(self, seconds: float, note: str = "") -> None:
        if note:
            output.out(f"{note}\n")
        output.out(
            f"\n{seconds:.1f} seconds. Next: docs/guide/getting-started.md, or python3 -m swarm "
            f"--help\n"
        )

    def _add(self, text: str) -> None:
        output.out(f"{time.monotonic() - self._begun:5.1f} s  {text}\n")


class Live(Lines):
    """Draws the view of `swarm status --watch`, and the newest lines below it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._screen = LiveScreen()
        self._viewer = Viewer(store)
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._screen.__exit__()
        output.out("".join(f"{line}\n" for line in self._lines))

    def pause(self, cursor: str, *, last: bool = False) -> None:
        self._draw()
        self._screen.pause(
            lambda timeout: time.sleep(timeout) if last else self._store.wait(LOG, cursor, timeout),
            1.5 if last else _REFRESH_INTERVAL,
        )

    def _add(self, text: str) -> None:
        self._lines.append(f"{time.monotonic() - self._begun:5.1f} s  {text}")

    def _draw(self) -> None:
        columns, lines = self._screen.size
        newest = self._lines[-_LINES_BELOW:]
        room = max(0, lines - _LINES_BELOW - 1)
        board = board_lines(self._viewer.look(), columns, room, output.paint)[:room]
        rule = output.paint("─" * columns, "dim")
        self._screen.draw([*board, *[""] * (room - len(board)), rule, *newest][:lines])


class Silence:
    """Prints nothing, for a program that reads only the summary."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def record(self, record: dict[str, Any]) -> None:
        pass

    def note(self, text: str, *, bad: bool = False) -> None:
        pass

    def pause(self, cursor: str, *, last: bool = False) -> None:
        if not last:
            time.sleep(_REFRESH_INTERVAL)

    def summary(self, checks: Sequence[Check]) -> None:
        pass

    def listing(self, title: str, lines: Sequence[str]) -> None:
        pass

    def end(self, seconds: float, note: str = "") -> None:
        pass
