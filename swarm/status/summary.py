"""What the lines of the status log amount to: which tasks are open, and what was last said of them.

    START            the task is worked on; ends what was waited for and what had gone wrong
    WAIT, HELP       a person is waited for
    ERROR            something has gone wrong, until the task is started again, done or skipped
    DONE, SKIP       the task is not open any more, and is dropped

Some records only tell, and change none of that: START, DONE and SKIP that an agent printed (`meta.from` is "output": only its
exit decides), and the SKIP of a bystander (`held_by`, `refused` or `lost` in `meta`: the task was not its own).

The state is bounded, whatever the log holds: of open tasks and of workers it knows the latest `LIMIT`, of a text its beginning.
`dropped` counts the open tasks that did not fit. Lines of other programs may say anything; what makes no sense is counted and
passed over.
"""

from __future__ import annotations

from swarm.status.block_parser import ENDING, Rows, rows_of, summary_of
from swarm.status.log import STATES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from swarm.status.block_parser import Row

    LastMessage = tuple[str, str, str, str]  # what counts of a task, or of a worker: state, worker (or task), timestamp, text

LIMIT = 10_000  # open tasks of each kind, and workers
TEXT_LIMIT = 400  # characters of what was said
_AT_LIMIT = 40


class StatusSummary:
    """The open tasks by what they are: `started`, `waiting` for a person, `errors`; the one whose record is oldest comes first.
    `workers`: what each said last. `records` and `damaged` count lines, `states` counts records by state."""

    VERSION = 2

    def __init__(self) -> None:
        self.started: dict[str, LastMessage] = {}
        self.waiting: dict[str, LastMessage] = {}
        self.errors: dict[str, LastMessage] = {}
        self.workers: dict[str, LastMessage] = {}
        self.states = dict.fromkeys(STATES, 0)
        self.records = 0
        self.damaged = 0
        self.dropped = 0
        self._by_state = {"START": self.started, "WAIT": self.waiting, "HELP": self.waiting, "ERROR": self.errors}

    def __len__(self) -> int:
        return len(self.started) + len(self.waiting) + len(self.errors) + len(self.workers)

    def apply(self, line: bytes) -> bool:
        read = Rows([])
        read.parse(line)
        self._take_rows(read)
        return bool(read.rows)

    def apply_block(self, block: bytes) -> None:
        """Take in whole lines, in a fraction of the time that one after the other takes."""
        read = rows_of(block)
        if self._has_room(len(read.rows)):
            self._take_summary(*summary_of(read))
        else:
            self._take_rows(read)

    def latest(self, task: str) -> LastMessage | None:
        """What counts of a task, None if it is not open."""
        return self.waiting.get(task) or self.errors.get(task) or self.started.get(task)

    # What is kept ----------------------------------------------------------------------------------------------

    def dump(self) -> Any:
        """Column by column, since that is read several times faster than task by task."""
        homes = (self.started, self.waiting, self.errors, self.workers)
        columns = [[list(home), *([said[field] for said in home.values()] for field in range(4))] for home in homes]
        return [*columns, self.states, [self.records, self.damaged, self.dropped]]

    def load(self, data: Any) -> None:
        *homes, states, (self.records, self.damaged, self.dropped) = data
        for home, columns in zip((self.started, self.waiting, self.errors, self.workers), homes, strict=True):
            names, *said = columns
            if len(said) != 4 or any(set(map(type, column)) - {str} for column in columns):
                raise TypeError
            home.update(zip(names, zip(*said, strict=True), strict=True))
        counts = [*states.values(), self.records, self.damaged, self.dropped]
        if set(states) != set(STATES) or {type(count) for count in counts} != {int}:
            raise TypeError
        self.states.update(states)

    # The fold --------------------------------------------------------------------------------------------------

    def _has_room(self, rows: int) -> bool:
        """Whether so many rows cannot make it forget a task: then only the last of each counts."""
        return max(len(self.started), len(self.waiting), len(self.errors)) + rows <= LIMIT

    def _take_summary(
        self, records: int, damaged: int, states: list[int], said: list[Row], opened: list[Row], touched: list[str]
    ) -> None:
        self.records += records
        self.damaged += damaged
        for state, count in zip(STATES, states, strict=True):
            self.states[state] += count
        for row in said:
            self._note_worker(row)
        for home in (self.started, self.waiting, self.errors):
            if home:
                for task in home.keys() & touched:
                    del home[task]
        for at, state, worker, task, text in opened:
            self._by_state[state][task] = (state, worker, at[:_AT_LIMIT], text[:TEXT_LIMIT])

    def _take_rows(self, read: Rows) -> None:
        """One after the other."""
        self.records += read.records
        self.damaged += read.damaged
        for place, row in enumerate(read.rows):
            at, state, worker, task, text = row
            self.states[state] += 1
            if worker:
                self._note_worker(row)
            if place in read.informational:
                continue
            self.started.pop(task, None)
            self.waiting.pop(task, None)
            self.errors.pop(task, None)
            if state in ENDING:
                continue
            home = self._by_state[state]
            home[task] = (state, worker, at[:_AT_LIMIT], text[:TEXT_LIMIT])
            if len(home) > LIMIT:
                del home[next(iter(home))]
                self.dropped += 1

    def _note_worker(self, row: Row) -> None:
        at, state, worker, task, text = row
        self.workers.pop(worker, None)  # so that it becomes the last
        self.workers[worker] = (state, task, at[:_AT_LIMIT], text[:TEXT_LIMIT])
        if len(self.workers) > LIMIT:
            del self.workers[next(iter(self.workers))]
