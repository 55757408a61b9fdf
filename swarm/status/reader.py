"""Read the status log, and compute its state.

The first read may have to parse a million records, so the log is read in blocks if the
store offers blocks.
"""

from __future__ import annotations

import gc

from swarm.status.log import LOG
from swarm.status.summary import StatusSummary
from swarm.stores.log_fold import LogFold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from swarm.stores.contract import Store
    from swarm.stores.log_fold import Position


class StatusReader(LogFold[StatusSummary]):
    """The summary of the status log, up to the last line that was read."""

    SNAPSHOT_EVERY = 200  # lines

    def __init__(self, store: Store) -> None:
        super().__init__(store, LOG, StatusSummary)

    def read(self, progress: Callable[[int], object] = lambda count: None) -> None:
        collecting = gc.isenabled()
        try:
            gc.disable()  # reading makes many objects and no cycles
            super().read(progress)
        finally:
            if collecting:
                gc.enable()

    def _apply_new(self, at: Position[StatusSummary]) -> Iterator[int]:
        yield from self._apply_blocks(at)
        yield from super()._apply_new(at)

    def _apply(self, at: Position[StatusSummary], lines: Sequence[bytes]) -> None:
        at.state.apply_block(b"\n".join([*lines, b""]))

    def _apply_blocks(self, at: Position[StatusSummary]) -> Iterator[int]:
        """Apply whole blocks if the store offers them.

        Yield the number of lines in each block.
        """
        for block, after in self._store.blocks(LOG, at.cursor) or ():
            if not self._store.continues(at.cursor, after):
                self._restart(at)
                return
            before = at.state.records + at.state.damaged
            at.state.apply_block(block)
            at.move(after, len(block), len(block) - 1 - block.rfind(b"\n", 0, -1))
            yield at.state.records + at.state.damaged - before
