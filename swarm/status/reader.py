"""The picture of the status log, which may hold a million records when somebody looks for the first time.

What a store can give in blocks is taken in by blocks. Where that is much and the program allows it, a second process reads every
other block; its answers only save work: a block whose answer does not come, or is of another block, is read here.
"""

from __future__ import annotations

import gc
import os

from swarm.status.block_parser import rows_of, summary_of
from swarm.status.log import LOG
from swarm.status.summary import StatusPicture
from swarm.stores.log_fold import Digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from swarm.status.helper import SecondReader
    from swarm.stores.contract import Store

_MUCH = 16  # blocks, after which a second process pays


class StatusDigest(Digest[StatusPicture]):
    """`may_fork`: the program has a single thread, and does not mind a child for a moment."""

    WORTH_KEEPING = 200  # lines; for more of them patterns are compiled, which takes as long as all the rest of a look

    def __init__(self, store: Store, *, may_fork: bool = False) -> None:
        super().__init__(store, LOG, StatusPicture)
        self._may_fork = may_fork

    def update(self, mine: bytes | None = None, progress: Callable[[int], object] = lambda count: None) -> bool:
        self._begin()
        count, reading = 0, self._read_blocks()
        collecting = gc.isenabled()
        gc.disable()  # many new objects, and none that refers back to itself
        try:
            for count in reading:
                progress(count)
        finally:
            reading.close()
            if collecting:
                gc.enable()
        self._unkept += count
        self._lines += count
        return super().update(mine, lambda more: progress(count + more))

    def _fold(self, lines: Sequence[bytes]) -> None:
        self.picture.fold_block(b"\n".join([*lines, b""]))

    def _read_blocks(self) -> Generator[int, None, None]:
        """Takes in what there is; how many lines so far. What is left is for `update`, and all of another log in its place."""
        blocks = getattr(self._store, "blocks", None)
        if blocks is None:
            return
        second: SecondReader | None = None
        picture, before = self.picture, self.picture.records + self.picture.damaged
        try:
            for number, (block, after) in enumerate(blocks(LOG, self.cursor)):
                if not self._store.resumes(self.cursor, after):
                    self._begin_anew()
                    return
                if number == _MUCH and self._may_fork:
                    second = _second(blocks, after)
                summary = None
                if second and (number - _MUCH) % 2:
                    summary = second.answer(after)
                    if summary is None:
                        second.close()
                        second = None
                picture.fold_block(block, summary)
                self.cursor = after
                yield picture.records + picture.damaged - before
        finally:
            if second:
                second.close()


def _second(blocks: Callable[[str, str], Iterator[tuple[bytes, str]]], cursor: str) -> SecondReader | None:
    """Reads on from the cursor, where there is a processor for it."""
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        return None
    from swarm.status.helper import SecondReader

    try:
        return SecondReader(lambda: blocks(LOG, cursor), lambda block: summary_of(rows_of(block)))
    except OSError:
        return None
