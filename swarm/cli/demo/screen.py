"""What somebody who watches the demo sees: the live view with the newest records below it, or, where there is no terminal, a line
for everything that happens. When the view is over, what happened is printed too, so that it stays.
"""

from __future__ import annotations

import os
import time
from typing import Any, Protocol, Self

from swarm import settings
from swarm.board.text import text as board_lines
from swarm.board.viewer import Viewer
from swarm.status.log import LOG
from swarm.stores.contract import Store
from swarm.terminal import output
from swarm.terminal.screen import LiveScreen
from swarm.terminal.text import shown

_MARKS = {"START": ("▶", "bold"), "DONE": ("✔", "green"), "WAIT": ("?", "yellow"), "SKIP": ("·", "dim"), "ERROR": ("✘", "red")}
_TICK = 0.2  # seconds between drawings where nothing happens
_NEWEST = 7  # lines below the view
_ROOM = 18, 60  # lines and columns that the live view needs


class DemoScreen(Protocol):
    """What the demo tells."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def record(self, record: dict[str, Any]) -> None: ...
    def note(self, text: str, *, bad: bool = False) -> None: ...
    def pause(self, cursor: str, *, last: bool = False) -> None:
        """Until there is more in the log, or it is time to look at the workers."""

    def summary(self, checks: list[tuple[str, bool]], seconds: float) -> None: ...


def open_screen(store: Store, *, plain: bool) -> DemoScreen:
    """The live view where there is a terminal with room for it, else lines."""
    if not plain and os.isatty(1) and settings.terminal_draws():
        columns, lines = os.get_terminal_size(1)
        if lines >= _ROOM[0] and columns >= _ROOM[1]:
            return Live(store)
    return Lines(store)


class Lines:
    """A line for everything that happens, with the time since the beginning."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def record(self, record: dict[str, Any]) -> None:
        mark, colour = _MARKS.get(record["state"], ("·", "dim"))
        message = record.get("message", "")
        told = f"  {message}" if message else ""
        state = output.paint(f"{mark} {record['state']:5}", colour)
        self._add(f"{record['worker']}  {state}  {shown(record['task_id'])}{shown(told)}")

    def note(self, text: str, *, bad: bool = False) -> None:
        self._add(output.paint(f"{'✘' if bad else '*'} {text}", "red" if bad else "bold"))

    def pause(self, cursor: str, *, last: bool = False) -> None:
        if not last:
            self._store.wait(LOG, cursor, _TICK)

    def summary(self, checks: list[tuple[str, bool]], seconds: float) -> None:
        output.out("\n")
        for text, holds in checks:
            output.out(f"  {output.paint('✔' if holds else '✘', 'green' if holds else 'red')} {text}\n")
        output.out(f"\n{seconds:.1f} seconds. Next: docs/guide/getting-started.md, or python3 -m swarm --help\n")

    def _add(self, text: str) -> None:
        output.out(f"{time.monotonic() - self._begun:5.1f} s  {text}\n")


class Live(Lines):
    """The view of `swarm status --watch`, and the newest lines below it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._screen = LiveScreen()
        self._viewer = Viewer(store)
        self._told: list[str] = []

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._screen.__exit__()
        output.out("".join(f"{line}\n" for line in self._told))

    def pause(self, cursor: str, *, last: bool = False) -> None:
        self._draw()
        self._screen.pause(
            lambda timeout: time.sleep(timeout) if last else self._store.wait(LOG, cursor, timeout), 1.5 if last else _TICK
        )

    def _add(self, text: str) -> None:
        self._told.append(f"{time.monotonic() - self._begun:5.1f} s  {text}")

    def _draw(self) -> None:
        columns, lines = self._screen.size
        newest = self._told[-_NEWEST:]
        room = max(0, lines - _NEWEST - 1)
        board = board_lines(self._viewer.look(), columns, room, output.paint)[:room]
        rule = output.paint("─" * columns, "dim")
        self._screen.draw([*board, *[""] * (room - len(board)), rule, *newest][:lines])


class Silence:
    """Nothing, for a program that only wants the summary."""

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
            time.sleep(_TICK)

    def summary(self, checks: list[tuple[str, bool]], seconds: float) -> None:
        pass
