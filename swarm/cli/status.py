"""`swarm status`: show questions, problems, each worker with its task, and the queue; once, or
live.
"""

from __future__ import annotations

import os

from swarm import settings
from swarm.board.viewer import Viewer
from swarm.cli.arguments import Command, Option
from swarm.errors import Unreachable
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.board.board import Board
    from swarm.cli.arguments import Call
    from swarm.stores.contract import Store

_PROGRESS_AFTER = 50_000  # records; reading fewer is fast enough without a word
_REFRESH_INTERVAL = 1.0  # seconds


def status(call: Call) -> int:
    store = default_store()
    if "--forget-dead" in call.options:
        return _forget_dead(call, store)
    viewer = Viewer(store)
    board = _first_look(viewer)
    if "--watch" not in call.options:
        _print(call, board)
        return 0
    try:
        if call.json or not os.isatty(1) or not settings.terminal_draws():
            _watch_changes(call, viewer)
        else:
            from swarm.cli.watch.live import watch

            watch(store, viewer, board, rings="--no-bell" not in call.options)
    except KeyboardInterrupt:
        pass  # users end it with Ctrl-C
    return 0


def _forget_dead(call: Call, store: Store) -> int:
    """Forget the workers that died, so that no view reports them any more."""
    from swarm.locks.presence import forget_dead

    forgotten = forget_dead(store)
    if not call.answer({"forgotten": forgotten}):
        names = ", ".join(map(shown, forgotten))
        output.out(f"Forgotten: {names}\n" if names else "No worker has died.\n")
    return 0


def _first_look(viewer: Viewer) -> Board:
    seen = 0

    def show_progress(count: int) -> None:
        nonlocal seen
        seen = count
        if seen > _PROGRESS_AFTER:
            output.transient(f"{seen:,} records read")

    board = viewer.look(show_progress)
    if seen > _PROGRESS_AFTER:
        output.transient("")
    return board


def _watch_changes(call: Call, viewer: Viewer) -> None:
    """Print the board after each change, when standard output is not a terminal."""
    last: object = None
    away = output.warn_every_minute()
    while True:
        try:
            board = viewer.look()
            if (now := board.fingerprint()) != last:
                if last is not None and not call.json:
                    output.out("\n")
                _print(call, board)
                last = now
            viewer.wait(_REFRESH_INTERVAL)
        except Unreachable as error:
            away(error)


def _print(call: Call, board: Board) -> None:
    if call.answer(board.fields()):
        return
    from swarm.board.text import text

    columns, height = _size()
    output.out("".join(f"{line}\n" for line in text(board, columns, height, output.paint)))


def _size() -> tuple[int, int | None]:
    """Return the columns and lines of the terminal, less one line for the next prompt.

    The number of lines is None without a terminal.
    """
    try:
        columns, lines = os.get_terminal_size(1)
        if columns > 0 and lines > 0:
            return columns, max(8, lines - 1)
    except OSError:
        pass
    return min(output.columns(), 1000), None


COMMAND = Command(
    status,
    "Show on one screen the questions and problems, and which worker has which task.",
    "swarm status --watch",
    options=(
        Option(
            "--watch",
            text="draw the screen again at each event and each second; keys answer questions, "
            "retry and cancel (? lists them); q or Ctrl-C ends it (exit 0). Without a terminal, "
            "print it again after each change (with --json: one object a line)",
        ),
        Option(
            "--no-bell",
            text="with --watch: do not ring the bell of the terminal at a new question or failure",
        ),
        Option(
            "--forget-dead",
            text="forget the workers that died, so that no view reports them any more",
        ),
    ),
    details=(
        (
            "Open questions of agents come first. Then come problems, each with the command that "
            "fixes it: tasks that wait for a "
            "user, tasks without a worker, workers that died, closed gates, holders that are "
            "gone, failures, leases about to end, tasks that cannot start. Below the problems "
            "are the workers with their tasks, then the queue by state, then the cost."
        ),
    ),
    notes=(
        (
            "The exit code is 0 even if there are problems. docs/reference/view.md has the keys of "
            "--json."
        ),
    ),
)
