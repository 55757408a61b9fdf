"""Parse a block of the status log into rows, and summarise the rows of a block.

The rows of a block do not depend on the lines before the block.
"""

from __future__ import annotations

from swarm.formats.frozen_record import FrozenRecord
from swarm.status.events import is_informational
from swarm.status.log import NAME_LIMIT, STATES, parse_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Timestamp, state, worker, task and text of a record.
    Row = tuple[str, str, str, str, str]

# The positions in a row. Rows are plain tuples, because there may be a million of them.
AT, STATE, WORKER, TASK, TEXT = range(5)
ENDING = ("DONE", "SKIP")

# Parsing a smaller block takes less time than compiling the patterns of the fast path.
_FAST_PATH_BYTES = 1 << 15


class Rows:
    """The rows parsed from a block of status-log lines, in the order of the lines.

    `informational` has the indexes of the rows that change no task. `records` and
    `damaged` count lines. A record without a task, or with an unknown state, has no
    row.
    """

    __slots__ = ("damaged", "informational", "records", "rows")

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.records = len(rows)
        self.damaged = 0
        self.informational: set[int] = set()

    def add(self, row: Row) -> None:
        self.records += 1
        self.rows.append(row)

    def parse(self, line: bytes) -> None:
        record = parse_record(line)
        if record is None:
            self.damaged += bool(line.strip())
            return
        self.records += 1
        task, state = record.get("task_id"), record.get("state")
        if (
            not isinstance(task, str)
            or not task
            or not isinstance(state, str)
            or state not in STATES
        ):
            return
        if is_informational(record):
            self.informational.add(len(self.rows))
        worker, text = _text(record.get("worker"))[:NAME_LIMIT], _text(record.get("message"))
        self.rows.append(
            (_text(record.get("timestamp")), state, worker, _text(task)[:NAME_LIMIT], text)
        )


class BlockSummary(FrozenRecord):
    """The effect of all rows of a block, the same as if the rows were applied one by
    one.
    """

    records: int
    damaged: int
    states: list[int]
    """The number of rows in each of STATES."""
    workers: list[Row]
    """The last row of each worker, in order."""
    opened: list[Row]
    """The last row of each task that is open after the block, in order."""
    touched: list[str]
    """All tasks that the block changes."""


def parse_block(block: bytes) -> Rows:
    """Return the rows of a block. The block must end with a newline."""
    if len(block) > _FAST_PATH_BYTES:
        try:
            return _parse_fast(block.decode())
        except UnicodeDecodeError:
            pass
    return parse_lines(block)


def parse_lines(block: bytes) -> Rows:
    """Parse each line of a block as JSON, and return the rows.

    The fast path in `plain_records` must return the same rows.
    """
    found = Rows([])
    for line in block.split(b"\n"):
        found.parse(line)
    return found


def _parse_fast(text: str) -> Rows:
    # Imported here: reading a few new lines needs no `re`.
    from swarm.status.plain_records import plain_rows, split_rows

    rows = plain_rows(text)
    if rows is not None:
        return Rows(rows)
    found = Rows([])
    for row, line in split_rows(text):
        if row is not None:
            found.add(row)
        else:
            found.parse(line.encode())
    return found


def summarise(parsed: Rows) -> BlockSummary:
    rows, informational = parsed.rows, parsed.informational
    changing = (
        [row for index, row in enumerate(rows) if index not in informational]
        if informational
        else rows
    )
    last = {row[TASK]: row for row in changing}
    return BlockSummary(
        records=parsed.records,
        damaged=parsed.damaged,
        states=_count([row[STATE] for row in rows]),
        workers=_last_of_workers(rows),
        opened=[row for row in changing if row[STATE] not in ENDING and last[row[TASK]] is row],
        touched=list(last),
    )


def _count(states: list[str]) -> list[int]:
    counts, left = [0] * len(STATES), len(states)
    for index, state in enumerate(STATES):
        if left:  # most blocks have few states
            counts[index] = states.count(state)
            left -= counts[index]
    return counts


def _last_of_workers(rows: list[Row]) -> list[Row]:
    """Return the last row of each worker, in order."""
    last: dict[str, Row] = {}
    workers = len({row[WORKER] for row in rows})
    for row in reversed(rows):
        if len(last) == workers:
            break  # most blocks are of few workers
        last.setdefault(row[WORKER], row)
    last.pop("", None)
    return list(reversed(last.values()))


def _text(value: object) -> str:
    """Return a string that can be written as UTF-8: replace lone surrogates, which JSON
    can contain.
    """
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode(errors="replace").decode()
