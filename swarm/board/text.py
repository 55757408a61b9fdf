"""A board as lines of text for a screen: problems first, then each worker with its
task, then the queue. No line is wider than `columns`. If a height is given, a section
that does not fit is cut. The last line of a cut section says how much is missing and
which command shows the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swarm.board.board import ActiveTask, Board, Problem, TotalUsage
from swarm.system.clock import from_iso
from swarm.terminal.text import cut, duration, fill, money, shown, width

Paint = Callable[[str, str], str]
Line = list[tuple[str, str]]  # pieces of text, each with its colour, "" for none

_TEXT_ROWS = 3  # of the text of a problem, if there is room
_DEFAULT_ROWS = 20  # of each section, if there is no height
_LABELS = {
    "waiting": ("WAITS", "yellow"),
    "budget": ("BUDGET", "yellow"),
    "idle": ("NO WORKER", "red"),
    "died": ("DIED", "red"),
    "namesake": ("SAME NAME", "yellow"),
    "unserved": ("NO AGENT", "yellow"),
    "gate": ("GATE", "yellow"),
    "denied": ("DENIED", "red"),
    "gone": ("GONE", "red"),
    "failed": ("FAILED", "red"),
    "error": ("ERROR", "red"),
    "unreadable": ("UNREADABLE", "red"),
    "lease": ("LEASE", "yellow"),
    "blocked": ("BLOCKED", "yellow"),
}
_MORE = {
    "waiting": ("waiting for a user", "swarm status --json"),
    "budget": ("of budgets that are reached", "swarm gate list"),
    "idle": ("without a worker", "swarm status --json"),
    "died": ("of workers that died", "swarm status --json"),
    "namesake": ("of workers with one name", "swarm status --json"),
    "unserved": ("without an agent", "swarm status --json"),
    "gate": ("of closed gates", "swarm gate list"),
    "denied": ("with a denied tool call", "swarm task list --state failed"),
    "gone": ("whose holder is gone", "swarm lock list"),
    "failed": ("failed", "swarm task list --state failed"),
    "error": ("with an error", "swarm status --json"),
    "unreadable": ("unreadable", "swarm lock list"),
    "lease": ("whose lease ends", "swarm lock list"),
    "blocked": ("blocked", "swarm task list --state waiting"),
}
_BARS = {
    "done": ("█", "green"),
    "running": ("▓", "bold"),
    "ready": ("▒", ""),
    "waiting": ("░", "dim"),
    "failed": ("▚", "red"),
}
_QUEUE = {
    "running": "bold",
    "ready": "",
    "waiting": "",
    "done": "green",
    "failed": "red",
    "cancelled": "dim",
}


def text(
    board: Board, columns: int, height: int | None = None, paint: Paint = lambda text, colour: text
) -> list[str]:
    """Return the lines of a board, without newlines."""
    lines = _Screen(board, max(20, columns)).lines(height)
    return [_painted(line, columns, paint) for line in lines[:height]]


class _Screen:
    def __init__(self, board: Board, columns: int) -> None:
        self._board = board
        self._columns = columns
        self._now = from_iso(board.generated_at) or 0.0

    def lines(self, height: int | None) -> list[Line]:
        board = self._board
        if board.is_empty:
            return self._welcome()
        foot = self._foot()
        head = [self._title(), *self._location(), []]
        if height is None:
            problem_rows, work_rows = 3 * _DEFAULT_ROWS, _DEFAULT_ROWS
        else:
            # Each section has a heading and a blank line.
            left = height - len(head) - len(foot) - 2 - (2 if board.problems else 0)
            work_rows = min(max(1, len(board.workers)), max(2, left // 3))
            problem_rows = left - work_rows
        problems = self._problems(problem_rows) if board.problems else []
        if height is not None:
            work_rows += problem_rows - len(problems)
        section: list[Line] = [[("Problems", "bold")], *problems, []] if problems else []
        return [*head, *section, [("At work", "bold")], *self._work(work_rows), [], *foot]

    def _welcome(self) -> list[Line]:
        return [
            [("Nothing has happened here yet: no records, no locks, no tasks.", "bold")],
            *self._location(),
            [],
            [("  swarm task add hello --prompt 'Say hello'   adds a task to the queue", "")],
            [("  swarm lock acquire hello worker-1 300       locks a task without a queue", "")],
            [("  swarm demo                                  shows how it all works", "")],
        ]

    def _title(self) -> Line:
        board = self._board
        time = board.generated_at[11:19] + " UTC"
        count = len(board.problems)
        state = (
            (f"{count:,} problem{'s' * (count != 1)}", "red") if count else ("no problems", "green")
        )
        work = f"{len(board.workers):,} at work"
        gap = self._columns - width(f"swarm  {state[0]} · {work}") - len(time)
        clock: Line = [(" " * gap, ""), (time, "dim")] if gap > 1 else []
        return [("swarm", "bold"), ("  ", ""), state, (f" · {work}", ""), *clock]

    def _location(self) -> list[Line]:
        text = shown(self._board.location.text)
        return [[(f"{text[:1].upper()}{text[1:]}", "dim")]] if text else []

    # Problems -------------------------------------------------------------------------

    def _problems(self, rows: int) -> list[Line]:
        groups: dict[str, list[Problem]] = {}
        for problem in self._board.problems:
            groups.setdefault(problem.kind, []).append(problem)
        indent = max(width(_LABELS[kind][0]) for kind in groups) + 2
        drawn = [self._problem(problem, indent) for problem in self._board.problems]
        if sum(map(len, drawn)) <= rows:
            return [line for problem in drawn for line in problem]
        counts = _shares([len(group) for group in groups.values()], rows)
        lines: list[Line] = []
        for (kind, group), count in zip(groups.items(), counts, strict=True):
            for problem in group[:count]:
                lines += self._problem(problem, indent, most=1)
            if count < len(group):
                what, see = _MORE[kind]
                more = f"{len(group) - count} more {what}" if count else f"{len(group)} {what}"
                label, colour = ("", "") if count else _LABELS[kind]
                lines.append(
                    [
                        (fill(label, indent), colour),
                        (f"… {'and ' if count else ''}{more}, see: {see}", "dim"),
                    ]
                )
        return lines

    def _problem(self, problem: Problem, indent: int, most: int = _TEXT_ROWS) -> list[Line]:
        """Return the lines of a problem: its text on at most `most` lines, and its fix."""
        label, colour = _LABELS[problem.kind]
        since = from_iso(problem.since)
        age = "" if since is None else f" · {duration(max(0.0, self._now - since))}"
        names = [name for name in (problem.task_id, problem.worker) if name]
        first = cut(shown(names[0]), 32) if names else ""
        others = "".join(f" · {cut(shown(name), 24)}" for name in names[1:])
        head: Line = [
            (fill(label, indent), colour),
            (first, "bold"),
            (f"{others}{age}: " if names else "", ""),
        ]
        begin = width("".join(piece for piece, _ in head))
        text, *more = _wrapped(
            shown(problem.text), self._columns - begin, self._columns - indent, most
        )
        return [
            [*head, (text, "")],
            *([(" " * indent, ""), (line, "")] for line in more),
            [(" " * indent, ""), (shown(problem.fix), "dim")],
        ]

    # Active tasks ---------------------------------------------------------------------

    def _work(self, rows: int) -> list[Line]:
        work = self._board.workers
        if not work:
            return [[(f"  {self._when_idle()}", "dim")]]
        count = len(work) if len(work) <= rows else max(0, rows - 1)
        cells = [self._cells(one) for one in work[:count]]
        widths = [max((width(row[column]) for row in cells), default=0) for column in range(4)]
        widths = [min(size, most) for size, most in zip(widths, (18, 24, 13, 20), strict=True)]
        lines: list[Line] = []
        for row in cells:
            head = "  ".join(fill(cell, size) for cell, size in zip(row, widths, strict=False))
            lines.append([(f"  {head}  ", ""), (row[4], "dim")])
        if count < len(work):
            more = f"{len(work) - count} more" if count else f"{len(work)} at work"
            lines.append(
                [("  ", ""), (f"… {'and ' if count else ''}{more}, see: swarm lock list", "dim")]
            )
        return lines

    def _when_idle(self) -> str:
        if self._board.hint:
            return shown(self._board.hint)
        count = len(self._board.living)
        if not count:
            return "no worker"
        return f"{count:,} workers wait for tasks" if count > 1 else "1 worker waits for a task"

    def _cells(self, work: ActiveTask) -> tuple[str, str, str, str, str]:
        held = "?" if work.held_for is None else duration(work.held_for)
        lease = "no end" if work.lease_left is None else f"lease {duration(work.lease_left)}"
        message = work.text or ("" if work.state == "START" else work.state)
        return shown(work.worker), shown(work.task_id), held, lease, shown(message)

    # The queue and the log ------------------------------------------------------------

    def _foot(self) -> list[Line]:
        board = self._board
        lines: list[Line] = []
        if total := sum(board.queue.values()):
            line: Line = [("Queue", "bold"), (f"  {total:,} task{'s' * (total != 1)}", "")]
            for state, colour in _QUEUE.items():
                if board.queue.get(state):
                    line += [(" · ", "dim"), (f"{board.queue[state]:,} {state}", colour)]
            lines += [line, self._bar(total)]
        if usage := cost_line(board.usage):
            lines.append([("Cost", "bold"), (f"   {usage}", "")])
        damaged = f", {board.damaged} damaged (swarm log validate)" if board.damaged else ""
        lines.append(
            [
                ("Log", "bold"),
                (f"    {board.records:,} record{'s' * (board.records != 1)}{damaged}", ""),
            ]
        )
        return lines

    def _bar(self, total: int) -> Line:
        room = min(self._columns - 9, 100)
        counts = [self._board.queue.get(state, 0) for state in _BARS]
        line: Line = [("       ", "")]
        for size, (mark, colour) in zip(
            _portions(counts, total, room), _BARS.values(), strict=True
        ):
            line.append((mark * size, colour))
        return line


def cost_line(usage: TotalUsage) -> str:
    """Return what the agents report as their cost, "" if they report nothing."""
    if not (usage.turns or usage.tokens or usage.cost_usd):
        return ""
    cost = f"${money(usage.cost_usd)} · " if usage.cost_usd else ""
    return (
        f"{cost}{usage.turns:,} turn{'s' * (usage.turns != 1)} · "
        f"{usage.tokens:,} tokens, as the agents report it"
    )


def _wrapped(text: str, first: int, columns: int, most: int) -> list[str]:
    """Return a text as at most `most` lines, broken between words.

    `first` is the width of the first line. The last line may be too long.
    """
    lines: list[str] = []
    room = first
    while len(lines) < most - 1 and width(text) > room:
        fits = cut(text, room).removesuffix("…")
        end = len(fits) if text[len(fits) : len(fits) + 1] == " " else fits.rfind(" ")
        if end < len(fits) // 2:
            end = len(fits)  # a word that is longer than half a line
        if not end:
            break
        lines.append(text[:end])
        text, room = text[end:].lstrip(), columns
    return [*lines, text]


def _shares(sizes: Sequence[int], rows: int) -> list[int]:
    """Return how many problems of each kind fit into `rows`. The first kinds in the
    list get more rows.

    A problem takes two rows. A kind of which some problems are left out takes one more
    row.
    """
    shares = [0] * len(sizes)
    while True:
        grown = False
        for index, size in enumerate(sizes):
            larger = [*shares[:index], shares[index] + 1, *shares[index + 1 :]]
            if (
                shares[index] < size
                and sum(2 * n + (n < most) for n, most in zip(larger, sizes, strict=True)) <= rows
            ):
                shares, grown = larger, True
        if not grown:
            return shares


def _portions(counts: Sequence[int], total: int, room: int) -> list[int]:
    """Return the widths of the parts of a bar, in proportion.

    Each count above 0 gets at least one column.
    """
    sizes = [max(1, count * room // total) if count else 0 for count in counts]
    largest = sizes.index(max(sizes))
    sizes[largest] -= max(0, sum(sizes) - room)
    return sizes


def _painted(line: Line, columns: int, paint: Paint) -> str:
    """Return a line with its colours.

    The line is cut to the width of the screen before the colours are added.
    """
    while line and not line[-1][0].strip():
        line = line[:-1]
    done, left = [], columns
    for index, (piece, colour) in enumerate(line):
        if index == len(line) - 1:
            piece = piece.rstrip()  # noqa: PLW2901
        fits = cut(piece, left)
        if fits == piece and width(fits) == left and any(more for more, _ in line[index + 1 :]):
            fits = cut(piece + "…", left)
        left -= width(fits)
        done.append(paint(fits, colour) if colour and fits.strip() else fits)
        if fits != piece:
            break
    return "".join(done)
