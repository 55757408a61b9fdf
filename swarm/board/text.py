"""A board as lines of text for a screen: questions first, then problems, then each
worker with its task, then the queue. No line is wider than `columns`. If a height is
given, a section that does not fit is cut. The last line of a cut section says how much is
missing and which command shows the rest. Questions are the last section to be cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from swarm.board.board import ActiveTask, Board, LandingRow, Problem, QuestionRow, TotalUsage
from swarm.board.lines import Line, Paint, painted, wrapped
from swarm.board.question_text import question_lines
from swarm.system.clock import from_iso
from swarm.terminal.text import cut, duration, fill, money, shown, width

_SMALL_SCREEN = 14  # lines; below, the lines of the head are left to questions
_TEXT_ROWS = 3  # of the text of a problem, if there is room
_DEFAULT_ROWS = 20  # of each section, if there is no height
_LABELS = {
    "paused": ("PAUSED", "yellow"),
    "waiting": ("WAITS", "yellow"),
    "budget": ("BUDGET", "yellow"),
    "idle": ("NO WORKER", "red"),
    "died": ("DIED", "red"),
    "namesake": ("SAME NAME", "yellow"),
    "unserved": ("UNSERVED", "yellow"),
    "slots": ("NO SLOT", "yellow"),
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
    "paused": ("of pauses", "swarm gate list"),
    "waiting": ("waiting for a user", "swarm status --json"),
    "budget": ("of budgets that are reached", "swarm gate list"),
    "idle": ("without a worker", "swarm status --json"),
    "died": ("of workers that died", "swarm status --json"),
    "namesake": ("of workers with one name", "swarm status --json"),
    "unserved": ("that no worker takes", "swarm status --json"),
    "slots": ("whose slots are not declared", "swarm status --json"),
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
    "submitted": ("▟", "green"),
    "running": ("▓", "bold"),
    "asking": ("▞", "yellow"),
    "ready": ("▒", ""),
    "waiting": ("░", "dim"),
    "failed": ("▚", "red"),
}
_QUEUE = {
    "running": "bold",
    "asking": "yellow",
    "submitted": "green",
    "ready": "",
    "waiting": "",
    "done": "green",
    "failed": "red",
    "cancelled": "dim",
}


def text(
    board: Board,
    columns: int,
    height: int | None = None,
    paint: Paint = lambda text, colour: text,
    selected: QuestionRow | Problem | None = None,
) -> list[str]:
    """Return the lines of a board, without newlines.

    The selected question or problem has a mark.
    """
    lines = _Screen(board, max(20, columns), selected).lines(height)
    if height is not None and len(lines) > height:
        lines = lines[:height]
        while len(lines) > 1 and _says_nothing(lines[-1]):
            lines.pop()
    return [painted(line, columns, paint) for line in lines]


def _says_nothing(line: Line) -> bool:
    """Return whether a last line is empty, or a heading without its rows."""
    return not line or [colour for _, colour in line] == ["bold"]


class _Screen:
    def __init__(self, board: Board, columns: int, selected: QuestionRow | Problem | None) -> None:
        self._board = board
        self._columns = columns
        self._selected = selected
        self._now = from_iso(board.generated_at) or 0.0

    def lines(self, height: int | None) -> list[Line]:
        board = self._board
        if board.is_empty:
            return self._welcome()
        rows = _DEFAULT_ROWS if height is None else max(1, height // 6)
        foot = [*self._landing(rows), *self._slots(rows), *self._foot()]
        head = [self._title(), *self._location(), []]
        asked = self._questions(head, foot, height)
        if height is None:
            problem_rows, work_rows = 3 * _DEFAULT_ROWS, _DEFAULT_ROWS
        else:
            # Each section has a heading and a blank line.
            left = height - len(head) - len(asked) - len(foot) - 2 - (2 if board.problems else 0)
            work_rows = min(max(1, len(board.workers)), max(2, left // 3))
            problem_rows = left - work_rows
        problems = self._problems(problem_rows) if board.problems else []
        if height is not None:
            work_rows += problem_rows - len(problems)
        section: list[Line] = [[("Problems", "bold")], *problems, []] if problems else []
        work = [[("At work", "bold")], *self._work(work_rows), []]
        return [*head, *asked, *section, *work, *foot]

    def _questions(self, head: list[Line], foot: list[Line], height: int | None) -> list[Line]:
        """Return the section of the questions. On a small screen, first drop lines of the
        head, so that more of them fit.
        """
        board = self._board
        if not board.questions:
            return []
        if height is not None and height < _SMALL_SCREEN:
            del head[1:]
        others = len(foot) + 4 + (4 if board.problems else 0)  # at least a few of their rows
        most = 3 * _DEFAULT_ROWS if height is None else height - len(head)
        room = most if height is None else most - others
        lines = question_lines(
            board.questions, self._columns, self._now, room, most, self._selected
        )
        return [*lines, []]

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
        asked = len(board.questions)
        ask = f"{asked:,} question{'s' * (asked != 1)} · " if asked else ""
        gap = self._columns - width(f"swarm  {ask}{state[0]} · {work}") - len(time)
        clock: Line = [(" " * gap, ""), (time, "dim")] if gap > 1 else []
        return [("swarm", "bold"), ("  ", ""), (ask, "yellow"), state, (f" · {work}", ""), *clock]

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
            if not count and len(group) == 1:  # its text says more than "1 failed"
                lines += self._problem(group[0], indent, most=1)[:1]
                continue
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
        mark = "▸ " if problem is self._selected else "  "
        head: Line = [
            (fill(label, indent - 2) + mark, colour),
            (first, "bold"),
            (f"{others}{age}: " if names else "", ""),
        ]
        begin = width("".join(piece for piece, _ in head))
        text, *more = wrapped(
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

    # Work that waits to land ----------------------------------------------------------

    def _landing(self, rows: int) -> list[Line]:
        """Return the line of each branch, with a heading and a blank line."""
        line = self._board.landing
        if not line:
            return []
        shown_rows = line if len(line) <= rows else line[: max(1, rows - 1)]
        cells = [self._landing_cells(row) for row in shown_rows]
        widths = [max(width(row[column]) for row in cells) for column in range(4)]
        widths = [min(size, most) for size, most in zip(widths, (28, 24, 18, 13), strict=True)]
        lines: list[Line] = [[("To land", "bold")]]
        for row in cells:
            head = "  ".join(fill(cell, size) for cell, size in zip(row, widths, strict=False))
            lines.append([(f"  {head}  ", ""), (row[4], "dim")])
        if left := len(line) - len(shown_rows):
            more = f"… and {left} more, see: swarm task list --state submitted"
            lines.append([("  ", ""), (more, "dim")])
        return [*lines, []]

    def _landing_cells(self, row: LandingRow) -> tuple[str, str, str, str, str]:
        since = from_iso(row.since)
        age = "?" if since is None else duration(max(0.0, self._now - since))
        number = f"{shown(row.branch)} {row.position}" if row.branch else f"review {row.position}"
        return number, shown(row.task_id), shown(row.worker), age, shown(row.why)

    # Slots ----------------------------------------------------------------------------

    def _slots(self, rows: int) -> list[Line]:
        """Return a line for each name of slots: who has which, and who waits."""
        board, names = self._board, dict.fromkeys(row.name for row in self._board.slots)
        for wait in board.slot_waits:
            names.setdefault(wait.name)
        if not names:
            return []
        lines: list[Line] = [[("Slots", "bold")]]
        for name in list(names)[:rows]:
            held = [row for row in board.slots if row.name == name]
            text = ", ".join(
                f"{shown(row.slot)} {shown(row.worker)}"
                + (f" ({shown(row.task_id)})" if row.task_id else "")
                + ("" if row.status == "Active" else " (free)")
                for row in held
            )
            waits = [shown(w.worker or w.task_id) for w in board.slot_waits if w.name == name]
            more = f"; waiting: {', '.join(waits)}" if waits else ""
            lines.append([(f"  {shown(name)}  {text}", ""), (more, "yellow")])
        if len(names) > rows:
            more = f"… and {len(names) - rows} more, see: swarm lock list"
            lines.append([("  ", ""), (more, "dim")])
        return [*lines, []]

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
