"""A board in an answer to an agent: bounded, with the words of others as quotes."""

from __future__ import annotations

from typing import Any

from swarm.board.board import Board
from swarm.terminal.text import duration, foreign

_MAX_TEXT = 200  # characters of a text on the board
# Problems whose text an agent or a user wrote, or a part of it.
_FOREIGN_KINDS = ("waiting", "died", "gate", "denied", "error", "failed")


def fields(board: Board, rows: int) -> dict[str, Any]:
    """Return the questions, problems, workers and queue of a board, at most `rows` of each
    list.
    """
    questions = [
        {
            "id": it.id,
            "task": it.task_id,
            "worker": it.worker,
            "text": foreign(it.text, _MAX_TEXT),
            "options": [foreign(option, _MAX_TEXT) for option in it.options],
            "needs": it.needs,
        }
        for it in board.questions[:rows]
    ]
    problems = [
        {
            "kind": it.kind,
            "task": it.task_id,
            "worker": it.worker,
            "text": foreign(it.text, _MAX_TEXT) if it.kind in _FOREIGN_KINDS else it.text,
        }
        for it in board.problems[:rows]
    ]
    workers = [
        {
            "worker": it.worker,
            "task": it.task_id,
            "for": duration(it.held_for or 0.0),
            "state": it.state,
            "text": foreign(it.text, _MAX_TEXT) if it.text else "",
        }
        for it in board.workers[:rows]
    ]
    counts = {**board.queue, "blocked": board.blocked}
    lists = ((board.questions, questions), (board.problems, problems), (board.workers, workers))
    return {
        "questions": questions,
        "problems": problems,
        "workers": workers,
        "left_out": sum(len(whole) - len(part) for whole, part in lists),
        "queue": {state: count for state, count in counts.items() if count},
    }
