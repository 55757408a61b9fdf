"""`swarm status --watch` at a terminal: the board, drawn again at each change, and keys.

A thread reads the store. The main thread draws, reads keys and handles signals, so keys
work even while the store does not answer.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from threading import Thread

from swarm.agents.identity import answer_source, whoami
from swarm.board.board import Board
from swarm.board.text import text
from swarm.board.viewer import Viewer
from swarm.cli.watch.panel import Panel
from swarm.errors import Unreachable
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from swarm.system.threads import start_without_signals
from swarm.terminal import output
from swarm.terminal.keyboard import Key, Keyboard, is_in_foreground
from swarm.terminal.screen import LiveScreen
from swarm.terminal.text import cut, foreign, foreign_name, shown

_REFRESH_INTERVAL = 1.0  # seconds
_BELL = "\a"
# Problems that ring the bell: a user must act, or a task has failed.
_BELL_KINDS = ("waiting", "budget", "died", "denied", "failed")


def watch(store: Store, viewer: Viewer, first: Board, *, rings: bool) -> None:
    """Show the board until the user quits. Raise what reading the store raises."""
    boards = _Boards(viewer, first)
    keyboard, panel = Keyboard(), Panel(_StoreActs(store))
    known = _news(first)
    with LiveScreen(keyboard) as screen:
        boards.start()
        while True:
            board, away = boards.latest()
            if rings and _news(board) - known:
                output.out(_BELL)
            known = _news(board)
            columns, height = screen.size
            trouble = [output.paint(cut(shown(away), columns), "red"), ""] if away else []
            room = height - len(trouble)
            if keyboard.is_active:
                lines = panel.screen(board, columns, room)
            else:
                lines = text(board, columns, room, output.paint)
            screen.draw([*trouble, *lines])
            screen.pause(_until_news(boards, keyboard), _REFRESH_INTERVAL)
            for key in _pressed(keyboard):
                if not panel.press(key, board):
                    return
                if panel.has_acted:
                    keyboard.drop()  # the rest of a pasted text must not be taken for keys
                    break


def _until_news(boards: _Boards, keyboard: Keyboard) -> Callable[[float], object]:
    keyboard.enter()  # the process may have come to the foreground
    fds = [boards.fileno(), *([0] if keyboard.is_active else [])]
    return lambda timeout: select.select(fds, [], [], timeout)


def _pressed(keyboard: Keyboard) -> list[Key]:
    if not keyboard.is_active or not select.select([0], [], [], 0)[0]:
        return []
    if not is_in_foreground():
        keyboard.leave()  # a read would stop the process
        return []
    return keyboard.read()


def _news(board: Board) -> set[object]:
    """Return names of what rings the bell when it appears."""
    problems = (each for each in board.problems if each.kind in _BELL_KINDS)
    return {
        *(each.id for each in board.questions),
        *((each.kind, each.task_id, each.worker, each.since) for each in problems),
    }


class _Boards:
    """The boards of a store, read in a thread."""

    def __init__(self, viewer: Viewer, first: Board) -> None:
        self._viewer = viewer
        self._board, self._away = first, ""
        self._error: BaseException | None = None
        self._news, self._signal = os.pipe()
        os.set_blocking(self._news, False)
        os.set_blocking(self._signal, False)

    def start(self) -> None:
        start_without_signals(Thread(target=self._run, name="swarm-watch", daemon=True))

    def fileno(self) -> int:
        """Return a file descriptor that is readable when there is a new board."""
        return self._news

    def latest(self) -> tuple[Board, str]:
        """Return the latest board, and why the store cannot be reached, "" if it can.
        Raise the error that ended the thread.
        """
        try:
            os.read(self._news, 4096)
        except BlockingIOError:
            pass
        if self._error is not None:
            raise self._error
        return self._board, self._away

    def _run(self) -> None:
        while self._error is None:
            try:
                self._viewer.wait(_REFRESH_INTERVAL)
                self._board, self._away = self._viewer.look(), ""
            except Unreachable as error:
                self._away = f"as of {self._board.generated_at}: {error}"
            except BaseException as error:  # the main thread reports it
                self._error = error
            try:
                os.write(self._signal, b"!")
            except BlockingIOError:
                pass  # the main thread has not looked yet


class _StoreActs:
    """The actions of a user, logged as for the same command in a shell."""

    def __init__(self, store: Store) -> None:
        self._queue = TaskQueue(store)

    def answer(self, question: str, text: str) -> str:
        found = self._queue.answer(question, text, self._person(), answer_source())
        return f"{found.id} is answered: {foreign(found.answer)}"

    def retry(self, task: str) -> str:
        self._queue.retry(task, self._person())
        return f"{foreign_name(task)} is tried again."

    def cancel(self, task: str) -> str:
        self._queue.cancel(task, self._person())
        return f"{foreign_name(task)} is cancelled."

    def output(self, task: str) -> list[str]:
        from swarm.web.task_output import read_output

        found = read_output(task, self._queue.get(task).token, 0)
        if not found["files"]:
            return ["There is no output on this machine."]
        return found["text"].splitlines()

    def _person(self) -> str:
        return whoami(fallback="user")
