"""The state of the status log: which tasks are open, and the latest record of each.

    START            the task is worked on; ends a wait and an error
    WAIT, HELP       the task waits for a user
    ERROR            something went wrong, until a START, DONE or SKIP
    DONE, SKIP       the task is not open any more

Informational records (`status.events`) do not change the state. The size of the state
is limited: `LIMIT` open tasks of each kind, `LIMIT` workers (in each case the latest),
and the beginning of each text. `dropped` is the number of open tasks that were left
out. Invalid lines of other programs are counted and skipped.
"""

from __future__ import annotations

from swarm.formats.frozen_record import FrozenRecord
from swarm.status.block_parser import ENDING, BlockSummary, Rows, parse_block, summarise
from swarm.status.log import STATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from swarm.status.block_parser import Row

LIMIT = 10_000  # open tasks of each kind, and workers
TEXT_LIMIT = 400  # characters of a text
_TIMESTAMP_LIMIT = 40


class LastMessage(FrozenRecord):
    """The latest record of a task or of a worker."""

    state: str
    worker: str
    task_id: str
    at: str
    text: str


class StatusSummary:
    """The open tasks by kind: `started`, `waiting` for a user, and `errors`. The task
    with the oldest record comes first.

    `workers` has the latest record of each worker. `records` and `damaged` count lines,
    `states` counts records by state.
    """

    VERSION = 3

    def __init__(self) -> None:
        self.started: dict[str, LastMessage] = {}
        self.waiting: dict[str, LastMessage] = {}
        self.errors: dict[str, LastMessage] = {}
        self.workers: dict[str, LastMessage] = {}
        self.states = dict.fromkeys(STATES, 0)
        self.records = 0
        self.damaged = 0
        self.dropped = 0
        self._by_state = {
            "START": self.started,
            "WAIT": self.waiting,
            "HELP": self.waiting,
            "ERROR": self.errors,
        }

    def __len__(self) -> int:
        return len(self.started) + len(self.waiting) + len(self.errors) + len(self.workers)

    def apply(self, line: bytes) -> bool:
        parsed = Rows([])
        parsed.parse(line)
        self._apply_rows(parsed)
        return bool(parsed.rows)

    def apply_block(self, block: bytes) -> None:
        """Apply a block of whole lines, which is much faster than line by line."""
        parsed = parse_block(block)
        if self._has_room(len(parsed.rows)):
            self._apply_summary(summarise(parsed))
        else:
            self._apply_rows(parsed)

    def latest(self, task: str) -> LastMessage | None:
        """Return the latest record of an open task. Return None for a task that is not
        open.
        """
        return self.waiting.get(task) or self.errors.get(task) or self.started.get(task)

    # Snapshots ------------------------------------------------------------------------

    def dump(self) -> Any:
        """Return the state column by column.

        Columns load several times faster than rows.
        """
        tables = (self.started, self.waiting, self.errors, self.workers)
        names = LastMessage.field_names()
        columns = [
            [[getattr(message, name) for message in table.values()] for name in names]
            for table in tables
        ]
        return [*columns, self.states, [self.records, self.damaged, self.dropped]]

    def load(self, data: Any) -> None:
        *tables, states, (self.records, self.damaged, self.dropped) = data
        for table, columns in zip(
            (self.started, self.waiting, self.errors, self.workers), tables, strict=True
        ):
            if len(columns) != len(LastMessage.field_names()) or any(
                set(map(type, column)) - {str} for column in columns
            ):
                raise TypeError
            for values in zip(*columns, strict=True):
                message = LastMessage(*values)
                table[message.worker if table is self.workers else message.task_id] = message
        counts = [*states.values(), self.records, self.damaged, self.dropped]
        if set(states) != set(STATES) or {type(count) for count in counts} != {int}:
            raise TypeError
        self.states.update(states)

    # Applying -------------------------------------------------------------------------

    def _has_room(self, rows: int) -> bool:
        """Return whether `rows` more rows fit without dropping a task. If all rows fit,
        it is enough to apply the last row of each task.
        """
        return max(len(self.started), len(self.waiting), len(self.errors)) + rows <= LIMIT

    def _apply_summary(self, block: BlockSummary) -> None:
        self.records += block.records
        self.damaged += block.damaged
        for state, count in zip(STATES, block.states, strict=True):
            self.states[state] += count
        for row in block.workers:
            self._note_worker(_message(row))
        for table in (self.started, self.waiting, self.errors):
            if table:
                for task in table.keys() & block.touched:
                    del table[task]
        for row in block.opened:
            message = _message(row)
            self._by_state[message.state][message.task_id] = message

    def _apply_rows(self, parsed: Rows) -> None:
        """Apply the rows of a block one after the other."""
        self.records += parsed.records
        self.damaged += parsed.damaged
        for index, row in enumerate(parsed.rows):
            message = _message(row)
            task = message.task_id
            self.states[message.state] += 1
            if message.worker:
                self._note_worker(message)
            if index in parsed.informational:
                continue
            self.started.pop(task, None)
            self.waiting.pop(task, None)
            self.errors.pop(task, None)
            if message.state in ENDING:
                continue
            table = self._by_state[message.state]
            table[task] = message
            if len(table) > LIMIT:
                del table[next(iter(table))]
                self.dropped += 1

    def _note_worker(self, message: LastMessage) -> None:
        self.workers.pop(message.worker, None)  # so that the record becomes the last
        self.workers[message.worker] = message
        if len(self.workers) > LIMIT:
            del self.workers[next(iter(self.workers))]


def _message(row: Row) -> LastMessage:
    at, state, worker, task, text = row
    return LastMessage(state, worker, task, at[:_TIMESTAMP_LIMIT], text[:TEXT_LIMIT])
