"""The state of the status log.

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


class StatusReader(LogFold[StatusSummary]):
    """The state of the status log, as far as the log was read."""

    SNAPSHOT_EVERY = 200  # lines

    def __init__(self, store: Store) -> None:
        super().__init__(store, LOG, StatusSummary)

    def read(self, progress: Callable[[int], object] = lambda count: None) -> None:
        collecting = gc.isenabled()
        gc.disable()  # reading makes many objects and no cycles
        try:
            super().read(progress)
        finally:
            if collecting:
                gc.enable()

    def _apply_new(self) -> Iterator[int]:
        yield from self._apply_blocks()
        yield from super()._apply_new()

    def _apply(self, lines: Sequence[bytes]) -> None:
        self.state.apply_block(b"\n".join([*lines, b""]))

    def _apply_blocks(self) -> Iterator[int]:
        """Apply whole blocks if the store offers them.

        Yield the number of lines in each.
        """
        for block, after in self._store.blocks(LOG, self.cursor) or ():
            if not self._store.continues(self.cursor, after):
                self._restart()
                return
            before = self.state.records + self.state.damaged
            self.state.apply_block(block)
            self.cursor = after
            yield self.state.records + self.state.damaged - before
