"""A log whose beginning is folded: the state replaces the lines that led to it.

    {"op": "fold", "fold": F, …}                      the fold F is the state after this line
    {"op": "fold", "fold": F, "part": 1, "text": …}   the state, in parts: JSON documents,
    …                                                 one a line
    {"op": "folded", "fold": F, "parts": …, …}        the fold is complete

A fold is in the log itself, so the log stays the only truth: a copy of the log has its
fold, and no step of folding can separate them. Other lines may stand between the lines
of a fold. A fold whose process was killed stays incomplete, and counts for nothing.

`fold` writes a fold. `trim_folded` forgets the lines before a complete fold, but only
after it has read the whole fold from the store, and not before the fold is
`TRIM_AFTER` seconds old: a process that has appended a line needs a moment to read this
line again.

A reader that begins with the oldest line applies each line. At the end of a complete
fold it goes on with the state in the fold, and the lines since its first line. In a log
that was never trimmed both states are the same. In a trimmed log only the second is
right, and without a complete fold there is no state: StoreError.
"""

from __future__ import annotations

from swarm.errors import BadInput, LogTrimmed, StoreError
from swarm.formats import json_codec
from swarm.stores.log_fold import Fold, LogFold, Position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Protocol, TypeVar

    from swarm.stores.contract import Store

    F = TypeVar("F", bound="Foldable")
else:
    Protocol, F = object, None

TRIM_AFTER = 60.0  # seconds from the end of a fold to the trim
MAX_PART = 128 * 1024  # characters of the state in one line
_FOLD = b'{"op": "fold'


class Foldable(Fold, Protocol):
    """A state that can be written into its log."""

    @property
    def folded(self) -> dict[str, Any]:
        """The last line of the last complete fold, {} without one."""

    def kept(self) -> Iterable[dict[str, Any]]:
        """Return the whole state as JSON objects with named fields, which later versions
        can read.
        """

    def restore(self, documents: Iterator[dict[str, Any]]) -> None:
        """Set the state of a new object to the state that `kept` returned. Raise any
        error but a SwarmError for anything else.
        """


class FoldedLog(LogFold[F]):
    """The state of a log whose beginning may be folded."""

    def fold(self, at: str, **facts: Any) -> None:
        """Write the state into the log. `at` is the time, `facts` go to the last line.

        Another process may do the same at the same time: both folds are right.
        """
        self.read()
        self._store.rotate(self._log)  # a store on files forgets whole parts
        name = _nonce()
        texts: list[str] = []

        def keep(state: F) -> None:
            texts.extend(json_codec.dumps(each) for each in state.kept())

        begin = _line(op="fold", fold=name, at=at)
        cursor = self._store.append(self._log, begin)
        self._read_to(begin, keep)
        parts = list(_cut(texts))
        for number, text in enumerate(parts, 1):
            self._store.append(self._log, _line(op="fold", fold=name, part=number, text=text))
        end = {"parts": len(parts), "checksum": _checksum(parts), "before": cursor, **facts}
        self.append(_line(op="folded", fold=name, at=at, **end))

    def trim_folded(self) -> bool:
        """Forget the lines before the last complete fold, if the fold can be read. Return
        whether it could.
        """
        folded = self.state.folded
        try:
            cursor = folded["before"]
            found = _read_fold(self._store, self._log, cursor, folded["fold"])
        except (KeyError, BadInput, LogTrimmed):
            return False  # no fold, or a fold that was copied from another store
        if found is None:
            return False
        self._store.trim(self._log, cursor)
        return True

    def _fresh(self) -> Position[F]:
        at = super()._fresh()
        at.rebuilt = _Rebuilt()
        return at

    def _next_lines(self, at: Position[F]) -> list[bytes]:
        lines = super()._next_lines(at)
        rebuilt: _Rebuilt | None = at.rebuilt
        if rebuilt is not None and not rebuilt.has_begun:
            rebuilt.has_begun, rebuilt.is_trimmed = True, self._store.is_trimmed(self._log)
        if rebuilt is not None and not lines:
            if rebuilt.is_trimmed:
                raise StoreError(
                    f"the log of {self._log} was trimmed, and the state in place of its oldest "
                    "lines is missing or damaged. Restore the store from a copy."
                )
            at.rebuilt = None
        return lines

    def _put_back(self, at: Position[F]) -> None:
        rebuilt: _Rebuilt | None = at.rebuilt
        if rebuilt is None or not rebuilt.may_lack_lines:
            super()._put_back(at)

    def _save(self, at: Position[F]) -> None:
        if at.rebuilt is None:
            super()._save(at)

    def _apply_one(self, at: Position[F], line: bytes) -> bool:
        changed = at.state.apply(line)
        if at.rebuilt is not None and (found := at.rebuilt.add(line)) is not None:
            state = self._make()
            try:
                state.restore(found.documents())
            except Exception:
                return changed  # no fold of this version: its end shows whether one is missing
            for each in found.since:
                state.apply(each)
            at.state, at.rebuilt = state, None
        return changed


class _Rebuilt:
    """The folds in the lines from the oldest line of a log on, as far as they were read."""

    def __init__(self) -> None:
        self.has_begun = False
        self.is_trimmed = False
        self._open: dict[str, _OpenFold] = {}

    @property
    def may_lack_lines(self) -> bool:
        """Whether the state so far may be without what a fold has, which was not read."""
        return self.is_trimmed or bool(self._open)

    def add(self, line: bytes) -> _OpenFold | None:
        """Add the next line of the log. Return the fold that is complete with it."""
        record = _fold_line(line)
        name = str(record.get("fold"))
        if record.get("op") == "fold" and "part" not in record:
            self._open[name] = _OpenFold()
            return None
        for each in self._open.values():
            each.since.append(line)
        found = self._open.get(name)
        if found is None:
            return None
        if record["op"] == "fold":
            found.since.pop()
            found.parts.append(str(record.get("text")))
            return None
        return found if found.is_whole(record) else None


class _OpenFold:
    """A fold of which the first line was read: its parts, and the other lines `since`."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.since: list[bytes] = []

    def is_whole(self, last: dict[str, Any]) -> bool:
        return last.get("op") == "folded" and (len(self.parts), _checksum(self.parts)) == (
            last.get("parts"),
            last.get("checksum"),
        )

    def documents(self) -> Iterator[dict[str, Any]]:
        for text in "".join(self.parts).split("\n"):
            if text:
                yield json_codec.loads(text)


def _read_fold(store: Store, log: str, cursor: str, name: str) -> _OpenFold | None:
    """Read the fold whose first line ends at a cursor. Return None if it is not there, or
    damaged.
    """
    found = _OpenFold()
    while True:
        lines, after = store.read_log(log, cursor)
        if not lines or not store.continues(cursor, after):
            return None
        cursor = after
        for record in map(_fold_line, lines):
            if record.get("fold") == name and "part" in record:
                found.parts.append(str(record.get("text")))
            elif record.get("fold") == name:
                return found if found.is_whole(record) else None


def _fold_line(line: bytes) -> dict[str, Any]:
    """Return the line of a fold as a dict, {} for any other line."""
    if not line.startswith(_FOLD):
        return {}
    try:
        record = json_codec.loads(line)
    except ValueError:
        return {}
    return record if isinstance(record, dict) and "fold" in record else {}


def _cut(texts: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a text in parts that fit a line of every store."""
    part: list[str] = []
    size = 0
    for text in texts:
        for start in range(0, len(text) + 1, MAX_PART):
            piece = f"{text}\n"[start : start + MAX_PART]
            if size + len(piece) > MAX_PART:
                yield "".join(part)
                part, size = [], 0
            part.append(piece)
            size += len(piece)
    if part:
        yield "".join(part)


def _checksum(parts: Sequence[str]) -> int:
    from binascii import crc32

    found = 0
    for part in parts:
        found = crc32(part.encode(), found)
    return found


def _line(**fields: Any) -> bytes:
    return json_codec.dumps(fields).encode()


def _nonce() -> str:
    from os import urandom

    return urandom(8).hex()
