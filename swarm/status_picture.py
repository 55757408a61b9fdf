"""What the lines of the status log amount to: which tasks are open, and what was last said of them.

    START            the task is worked on; ends what was waited for and what had gone wrong
    WAIT, HELP       a person is waited for
    ERROR            something has gone wrong, until the task is started again, done or skipped
    DONE, SKIP       the task is not open any more, and is forgotten

Some records only tell, and change none of that: START, DONE and SKIP that an agent printed (`meta.from` is "output": only its
exit decides), and the SKIP of a bystander (`held_by`, `refused` or `lost` in `meta`: the task was not its own).

The picture is bounded, whatever the log holds: of open tasks and of workers it knows the latest `LIMIT`, of a text its beginning.
`forgotten` counts the open tasks that did not fit. Lines of other programs may say anything; what makes no sense is counted and
passed over.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from swarm.status_log import STATES, parse_record

LIMIT = 10_000  # open tasks of each kind, and workers
TEXT_LIMIT = 400  # characters of what was said
_NAME_LIMIT = 800  # characters; swarm's own names are shorter
_BYSTANDER = ("held_by", "refused", "lost")

# A record as swarm writes it, if nothing in it is escaped and its meta holds nothing but whole numbers: then its fields stand
# where the groups are, and nothing else in the line can change what it says. Every other line is parsed, which takes three times
# as long.
_PLAIN = re.compile(
    r'\{"timestamp": "([^"\\]*)", "type": "(START|DONE|WAIT|ERROR|HELP|SKIP)", "state": "\2", '
    r'"worker": "([^"\\]+)", "task_id": "([^"\\]+)"(?:, "reason": "([^"\\]*)", "message": "\5")?'
    r'(?:, "meta": \{(?:"(?!refused|lost|held_by)[a-z_]+": (?:0|[1-9][0-9]{0,9})(?:, (?=")|(?=\})))*\})?\}'
)

Row = tuple[str, str, str, str]  # a Said that is not made into one before somebody asks: there are a million


class Said(NamedTuple):
    """The record that counts of a task, or of a worker: `about` is the worker, or the task."""

    state: str
    about: str
    at: str
    text: str


class StatusPicture:
    """The open tasks by what they are: `started`, `waiting` for a person, `errors`; the one whose record is oldest comes first.
    `workers`: what each said last. `records` and `damaged` count lines, `states` counts records by state."""

    VERSION = 1

    def __init__(self) -> None:
        self.started: dict[str, Row] = {}
        self.waiting: dict[str, Row] = {}
        self.errors: dict[str, Row] = {}
        self.workers: dict[str, Row] = {}
        self.states = dict.fromkeys(STATES, 0)
        self.records = 0
        self.damaged = 0
        self.forgotten = 0
        self._homes = {"START": self.started, "WAIT": self.waiting, "HELP": self.waiting, "ERROR": self.errors}

    def __len__(self) -> int:
        return len(self.started) + len(self.waiting) + len(self.errors) + len(self.workers)

    def fold(self, line: bytes) -> bool:
        try:
            found = _PLAIN.fullmatch(line.decode())
        except UnicodeDecodeError:
            self.damaged += 1
            return False
        if found is None:
            return self._fold_any(line)
        at, state, worker, task, text = found.groups("")
        self.records += 1
        self._take(task, worker, state, at, text, tells=False)
        return True

    def said_of(self, task: str) -> Said | None:
        """What counts of a task, None if it is not open."""
        row = self.waiting.get(task) or self.errors.get(task) or self.started.get(task)
        return Said(*row) if row else None

    # What is kept ----------------------------------------------------------------------------------------------

    def dump(self) -> Any:
        return [
            [[name, *said] for name, said in self.started.items()],
            [[name, *said] for name, said in self.waiting.items()],
            [[name, *said] for name, said in self.errors.items()],
            [[name, *said] for name, said in self.workers.items()],
            self.states,
            [self.records, self.damaged, self.forgotten],
        ]

    def load(self, data: Any) -> None:
        *homes, states, (self.records, self.damaged, self.forgotten) = data
        for home, rows in zip((self.started, self.waiting, self.errors, self.workers), homes, strict=True):
            for name, state, about, at, text in rows:
                if {type(value) for value in (name, state, about, at, text)} != {str}:
                    raise TypeError
                home[name] = (state, about, at, text)
        counts = [*states.values(), self.records, self.damaged, self.forgotten]
        if set(states) != set(STATES) or {type(count) for count in counts} != {int}:
            raise TypeError
        self.states.update(states)

    # The fold --------------------------------------------------------------------------------------------------

    def _fold_any(self, line: bytes) -> bool:
        record = parse_record(line)
        if record is None:
            self.damaged += bool(line.strip())
            return False
        self.records += 1
        worker = record.get("worker", record.get("worker_id"))
        task, state, at, text = (record.get(key) for key in ("task_id", "state", "timestamp", "message"))
        if not isinstance(task, str) or not task or not isinstance(state, str) or state not in self.states:
            return False
        meta = record.get("meta")
        tells = state in ("START", "DONE", "SKIP") and isinstance(meta, dict) and meta.get("from") == "output"
        if state == "SKIP" and isinstance(meta, dict) and any(key in meta for key in _BYSTANDER):
            tells = True
        self._take(_text(task), _text(worker), state, _text(at), _text(text), tells=tells)
        return True

    def _take(self, task: str, worker: str, state: str, at: str, text: str, *, tells: bool) -> None:
        self.states[state] += 1
        task, worker, at, text = task[:_NAME_LIMIT], worker[:_NAME_LIMIT], at[:40], text[:TEXT_LIMIT]
        if worker:
            self.workers.pop(worker, None)  # so that it becomes the last
            self.workers[worker] = (state, task, at, text)
            if len(self.workers) > LIMIT:
                del self.workers[next(iter(self.workers))]
        if tells:
            return
        self.started.pop(task, None)
        self.waiting.pop(task, None)
        self.errors.pop(task, None)
        home = self._homes.get(state)
        if home is not None:
            home[task] = (state, worker, at, text)
            if len(home) > LIMIT:
                del home[next(iter(home))]
                self.forgotten += 1


def _text(value: object) -> str:
    """Text as it can be kept: lone surrogates, which JSON can spell, cannot be written."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode(errors="replace").decode()
