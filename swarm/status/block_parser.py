"""What the lines of a block of the status log say, each as a row, and what many rows amount to.

A record as swarm writes it, if nothing in it is escaped and its meta holds nothing but whole numbers, is *plain*: then its fields
stand where the groups of a pattern are, and nothing else in the line can change what it says. A block of plain records is read by
one search through all of it. Every other line is parsed, which takes several times as long and gives the same.

Nothing here depends on what stands before the block, so blocks can be read in any order, and by any process.
"""

from __future__ import annotations

from swarm.status.log import STATES, parse_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = tuple[str, str, str, str, str]  # timestamp, state, worker, task and text of a record
    # How many lines are records, and how many are damaged; how many rows of each of STATES there are; the last row of each worker
    # and of each task that is open after them, in order; all tasks that they change.
    BlockSummary = tuple[int, int, list[int], list[Row], list[Row], list[str]]

ENDING = ("DONE", "SKIP")
_NAME_LIMIT = 800  # characters; swarm's own names are shorter
_INFORMATIONAL_KEYS = ("held_by", "refused", "lost")
_PATTERN_MIN_BYTES = 1 << 15  # bytes that are parsed before the patterns could be compiled


class Rows:
    """The rows of some lines, in order. `informational`: the places of those that only tell, and change no task. `records` and
    `damaged` count lines; a record whose state or task makes no sense has no row."""

    __slots__ = ("damaged", "informational", "records", "rows")

    def __init__(self, plain: list[Row]) -> None:
        self.rows = plain
        self.records = len(plain)
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
        if not isinstance(task, str) or not task or not isinstance(state, str) or state not in STATES:
            return
        if _is_informational(state, record.get("meta")):
            self.informational.add(len(self.rows))
        worker = record.get("worker")
        at, text = _text(record.get("timestamp")), _text(record.get("message"))
        self.rows.append((at, state, _text(worker)[:_NAME_LIMIT], _text(task)[:_NAME_LIMIT], text))


def rows_of(block: bytes) -> Rows:
    """Every line of a block, which ends with a newline."""
    try:
        text = block.decode() if len(block) > _PATTERN_MIN_BYTES else ""
    except UnicodeDecodeError:
        text = ""
    found = Rows([])
    if not text:
        for line in block.split(b"\n"):
            found.parse(line)
        return found
    import re  # a look at a few new lines needs no pattern

    if "\\" not in text:
        plain = re.compile(_PLAIN, re.MULTILINE).findall(text)
        # Each ends with a newline: where there are no more newlines than that, none stands within quotes.
        if len(plain) == text.count("\n"):
            return Rows(plain)
    for at, state, worker, task, said, other in re.compile(_LINE, re.MULTILINE).findall(text):
        if task:
            found.add((at, state, worker, task, said))
        else:
            found.parse(other.encode())
    return found


def summary_of(read: Rows) -> BlockSummary:
    rows, informational = read.rows, read.informational
    changing = [row for place, row in enumerate(rows) if place not in informational] if informational else rows
    last = {row[3]: row for row in changing}
    opened = [row for row in changing if row[1] not in ENDING and last[row[3]] is row]
    return read.records, read.damaged, _counted([row[1] for row in rows]), _said_last(rows), opened, list(last)


def _counted(states: list[str]) -> list[int]:
    counts, left = [0] * len(STATES), len(states)
    for index, state in enumerate(STATES):
        if left:  # most blocks hold few of them
            counts[index] = states.count(state)
            left -= counts[index]
    return counts


def _said_last(rows: list[Row]) -> list[Row]:
    """The last row of each worker, in order."""
    last: dict[str, Row] = {}
    workers = len({row[2] for row in rows})
    for row in reversed(rows):
        if len(last) == workers:
            break  # most blocks are of few workers
        last.setdefault(row[2], row)
    last.pop("", None)
    return list(reversed(last.values()))


def _is_informational(state: str, meta: object) -> bool:
    if state not in ("START", "DONE", "SKIP") or not isinstance(meta, dict):
        return False
    return meta.get("from") == "output" or (state == "SKIP" and any(key in meta for key in _INFORMATIONAL_KEYS))


def _text(value: object) -> str:
    """Text as it can be kept: lone surrogates, which JSON can spell, cannot be written."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode(errors="replace").decode()


def _plain(inside: str, states: Sequence[str], key: str) -> str:
    """The pattern of a plain record; `inside`: what can stand within quotes. What may be missing is in `(?>…|)`, and every repeat
    is possessive: it would take twice as long if there were a way back to each of them."""
    name = f"({inside}{{1,{_NAME_LIMIT}}}+)"
    number = rf'"{key}": (?>[1-9][0-9]{{0,9}}+|0)'
    return (
        rf'^\{{"timestamp": "({inside}*+)", "type": "({"|".join(states)})", "state": "\2", '
        rf'"worker": "{name}", "task_id": "{name}"'
        rf'(?>, "reason": "({inside}*+)", "message": "\5"|)(?>, "meta": \{{{number}(?:, {number})*+\}}|)\}}' + "\n"
    )


# Of a text without a backslash: what it finds is plain, unless a newline stands within quotes. (What a SKIP means depends on its
# meta.)
_PLAIN = _plain('[^"]', STATES[:-1], '[^"]++')
_INSIDE = r'[^"\\\n]'
# Any line, plain or else as a whole.
_LINE = _plain(_INSIDE, STATES, rf'(?!(?:{"|".join(_INFORMATIONAL_KEYS)})"){_INSIDE}++') + "|^(.*)\n"
