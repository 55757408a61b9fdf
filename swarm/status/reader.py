"""The state of the status log, which may hold a million records at the first look.

A store that can give a log in blocks is read by blocks, each with one regular expression.
"""

from __future__ import annotations

import gc

from swarm.status.log import LOG
from swarm.status.summary import StatusSummary
from swarm.stores.log_fold import LogFold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from swarm.stores.contract import Store


class StatusReader(LogFold[StatusSummary]):
    """The status log, as far as it was read."""

    SNAPSHOT_EVERY = 200  # lines; for more of them patterns are compiled, which takes as long as all the rest of a look

    def __init__(self, store: Store) -> None:
        super().__init__(store, LOG, StatusSummary)

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
        self.state.apply_block(b"\n".join([*lines, b""]))

    def _read_blocks(self) -> Generator[int, None, None]:
        """Takes in what there is; how many lines so far. What is left is for `update`, and all of another log in its place."""
        blocks = self._store.blocks(LOG, self.cursor)
        if blocks is None:
            return
        state, before = self.state, self.state.records + self.state.damaged
        for block, after in blocks:
            if not self._store.continues(self.cursor, after):
                self._begin_anew()
                return
            state.apply_block(block)
            self.cursor = after
            yield state.records + state.damaged - before
