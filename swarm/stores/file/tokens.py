"""Numbers that only grow, drawn from files: what a lock's token is made of.

Promised: whoever draws later for the same name gets a larger number, however many draw at once, and across restarts and losses of
power; also after somebody has removed all counters. Not promised: no gaps.

    <private>/tickets/<shard>             a counter: one byte a ticket
    <private>/epochs/<n>                  a symlink to a boot's identity: tickets of a later epoch are larger than all before
    <private>/epochs/<n>.synced           that it is on disk for good

A counter that cannot be used is an error: going on without it could give a late writer a token that counts.
"""

from __future__ import annotations

import errno

from swarm.errors import StoreError
from swarm.stores.file.syscalls import Filesystem, insist, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SHARDS = 251  # a file a task would cost a disk block each
PER_EPOCH = 1_000_000_000
EPOCHS = 1_000_000_000  # so that a ticket fits into 64 bits


class Tickets:
    """The counters of one directory. Threads and forked children may share it."""

    DIRECTORIES = ("tickets", "epochs")

    def __init__(self, private: str, *, boot: Callable[[], str], ensure: Callable[[str], None], fs: Filesystem) -> None:
        self._fs = fs
        self._private = private
        self._tickets = private + "/tickets"
        self._epochs = private + "/epochs"
        self._boot = boot
        self._ensure = ensure
        self._epoch: int | None = None

    def draw(self, name: str) -> int:
        return insist(self._lay_out, self._private, self._try_to_draw, name)

    def last(self, name: str) -> int:
        """The largest that was drawn for this name, 0 if none was."""
        try:
            while True:
                epoch = self._current_epoch()
                size = self._fs.size(self._counter(name))
                if not self._is_over(epoch):
                    return epoch * PER_EPOCH + size
        except FileNotFoundError:
            return 0

    def so_far(self) -> int:
        """The largest that was drawn for any name, or one that is larger still."""
        counters = listed(self._fs.names, self._tickets)
        most = max((self._fs.size(f"{self._tickets}/{name}") for name in counters), default=0)
        return max(0, self._last_epoch()) * PER_EPOCH + most

    def skip(self, number: int) -> None:
        """From now on all that are drawn are larger than `number`."""
        insist(self._lay_out, self._private, self._try_to_skip, number)

    def _try_to_skip(self, number: int) -> None:
        last, wanted = self._last_epoch(), number // PER_EPOCH + 1
        for epoch in {last + 1, wanted} if wanted > last else ():  # the one after the last tells everybody that it is over
            self._begin_epoch(epoch)
        self._epoch = None

    def _try_to_draw(self, name: str) -> int:
        while True:
            epoch = self._current_epoch()
            try:
                drawn = self._fs.draw(self._counter(name), sync=not self._boot())
            except FileNotFoundError:
                self._epoch = None
                raise
            if not self._is_over(epoch):
                return epoch * PER_EPOCH + drawn

    def _counter(self, name: str) -> str:
        return f"{self._tickets}/{int.from_bytes(name.encode(), 'big') % SHARDS}"

    def _current_epoch(self) -> int:
        """A number that grows with every boot, and when the counters were removed. It is on disk, for good, before its first
        ticket is given."""
        while (epoch := self._epoch) is None:  # another thread may forget it at any moment
            last = self._last_epoch()
            if last < 0 or self._identity(last) != (self._boot() or "-"):
                self._begin_epoch(last + 1)
            elif self._fs.exists(f"{self._epochs}/{last}.synced"):
                self._epoch = last
            else:
                for path in (self._epochs, self._private, self._private.rpartition("/")[0]):
                    self._fs.sync_dir(path)
                self._mark_epoch(f"{last}.synced", "-")
        return epoch

    def _last_epoch(self) -> int:
        return max((int(name) for name in listed(self._fs.names, self._epochs) if _is_epoch(name)), default=-1)

    def _identity(self, epoch: int) -> str:
        """Of the boot that an epoch is for, "" if that cannot be told."""
        try:
            return self._fs.readlink(f"{self._epochs}/{epoch}")
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.errno == errno.EINVAL:
                return ""
            raise

    def _begin_epoch(self, number: int) -> None:
        if number >= EPOCHS:
            raise StoreError(f"{self._epochs}/{number - 1} was not made by swarm: so many boots nobody has seen. Remove it.")
        self._mark_epoch(str(number), self._boot() or "-")

    def _mark_epoch(self, name: str, text: str) -> None:
        try:
            self._fs.symlink(text, f"{self._epochs}/{name}")
        except FileExistsError:
            pass

    def _is_over(self, epoch: int) -> bool:
        """Whether somebody has begun the next epoch: one who sees another boot, or no counters."""
        if epoch + 1 == EPOCHS or not self._fs.exists(f"{self._epochs}/{epoch + 1}"):  # after the last there is none to wait for
            return False
        self._epoch = None
        return True

    def _lay_out(self) -> None:
        last = self._last_epoch()
        if last >= 0 and not self._fs.exists(self._tickets):
            self._begin_epoch(last + 1)  # before there are counters again: they will begin anew
        for path in (self._tickets, self._epochs):
            self._ensure(path)


def _is_epoch(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 10 and str(int(name)) == name and int(name) < EPOCHS
