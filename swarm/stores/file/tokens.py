"""Token counters: numbers that only grow, kept in files.

Promised: each number is larger than all numbers given for the same name before.  This
promise holds for any number of processes at once, across restarts and loss of power,
and after all counters were removed.  Not promised: numbers without gaps.

    <private>/tokens/<shard>            a counter: its value is its size in bytes
    <private>/generations/<n>           generation n: a symlink that names its boot
    <private>/generations/<n>.synced    generation n survives a loss of power

A token is `generation * PER_GENERATION + size of the counter`.  Counters are not
synced, so a loss of power may set them back.  Therefore each boot begins a generation,
and so does the first process that finds the counters removed.  A generation is synced
before its first token is used.  A process that got a token checks that the token's
generation is still the last generation.  If not, the process gets another token.

A counter that cannot be used is an error: otherwise a token could be used twice.
"""

from __future__ import annotations

import errno

from swarm.errors import StoreError
from swarm.stores.file.syscalls import Filesystem, list_if_there, retry_if_removed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SHARDS = 251  # a file for each task would cost a disk block for each task
PER_GENERATION = 1_000_000_000
GENERATIONS = 1_000_000_000  # so that a token fits into 64 bits


class TokenCounters:
    """The counters of one directory.

    Threads and forked children may share the object.
    """

    DIRECTORIES = ("tokens", "generations")

    def __init__(
        self,
        private: str,
        *,
        boot: Callable[[], str],
        make_dirs: Callable[[str], None],
        fs: Filesystem,
    ) -> None:
        self._private = private
        self._tokens = private + "/tokens"
        self._generations = private + "/generations"
        self._boot = boot
        self._make_dirs = make_dirs
        self._fs = fs
        self._known: int | None = None  # the current generation

    def next(self, name: str) -> int:
        """Return a token larger than all tokens given for `name` before."""
        return retry_if_removed(lambda: self._next(name), self._lay_out, self._private)

    def upper_bound(self, name: str) -> int:
        """Return the last token of `name` or a larger number; 0 if `name` had no token."""
        try:
            while True:
                generation = self._current()
                size = self._fs.size(self._counter(name))
                if self._is_last(generation):
                    return generation * PER_GENERATION + size
        except FileNotFoundError:
            return 0

    def highest(self) -> int:
        """Return a number that no token given so far exceeds."""
        counters = list_if_there(self._fs.names, self._tokens)
        sizes = (self._fs.size(f"{self._tokens}/{counter}") for counter in counters)
        return max(0, self._last()) * PER_GENERATION + max(sizes, default=0)

    def advance_past(self, number: int) -> None:
        """Make every later token larger than `number`."""
        retry_if_removed(lambda: self._advance_past(number), self._lay_out, self._private)

    def _next(self, name: str) -> int:
        while True:
            generation = self._current()
            try:
                size = self._fs.grow(self._counter(name), sync=not self._boot())
            except FileNotFoundError:
                self._known = None
                raise
            if self._is_last(generation):
                return generation * PER_GENERATION + size

    def _advance_past(self, number: int) -> None:
        last, wanted = self._last(), number // PER_GENERATION + 1
        if wanted > last:
            self._begin(last + 1)  # other processes look for the generation after theirs
            self._begin(wanted)
        self._known = None

    def _counter(self, name: str) -> str:
        return f"{self._tokens}/{int.from_bytes(name.encode(), 'big') % SHARDS}"

    def _current(self) -> int:
        """Return the generation of this boot. Begin and sync it if needed."""
        while (generation := self._known) is None:  # another thread may reset it
            last = self._last()
            if last < 0 or self._boot_of(last) != (self._boot() or "-"):
                self._begin(last + 1)
            elif self._fs.exists(f"{self._generations}/{last}.synced"):
                self._known = last
            else:
                parent = self._private.rpartition("/")[0]
                for path in (self._generations, self._private, parent):
                    self._fs.sync_dir(path)
                self._symlink_once("-", f"{last}.synced")
        return generation

    def _is_last(self, generation: int) -> bool:
        after = f"{self._generations}/{generation + 1}"
        if generation + 1 == GENERATIONS or not self._fs.exists(after):
            return True
        self._known = None
        return False

    def _last(self) -> int:
        names = list_if_there(self._fs.names, self._generations)
        return max((int(name) for name in names if _is_generation(name)), default=-1)

    def _boot_of(self, generation: int) -> str:
        """Return the boot in which a generation began, "" if its file is not a symlink."""
        try:
            return self._fs.readlink(f"{self._generations}/{generation}")
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.errno == errno.EINVAL:
                return ""
            raise

    def _begin(self, generation: int) -> None:
        if generation >= GENERATIONS:
            path = f"{self._generations}/{generation - 1}"
            raise StoreError(f"{path} is not a valid generation. Remove that file.")
        self._symlink_once(self._boot() or "-", str(generation))

    def _symlink_once(self, text: str, name: str) -> None:
        try:
            self._fs.symlink(text, f"{self._generations}/{name}")
        except FileExistsError:
            pass

    def _lay_out(self) -> None:
        last = self._last()
        if last >= 0 and not self._fs.exists(self._tokens):
            self._begin(last + 1)  # before there are counters: they start again at 0
        for path in (self._tokens, self._generations):
            self._make_dirs(path)


def _is_generation(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 9 and str(int(name)) == name
