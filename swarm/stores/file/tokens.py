"""Token counters: numbers that only grow, kept in files.

Promised: each number is larger than all numbers given for the same name before. This
promise holds for any number of processes at once, and after a restart or a loss of
power. The promise also holds after counters or generations were removed, and in a copy
of the directory. Not promised: numbers without gaps.

    <private>/tokens/<shard>            a counter: its value is its size in bytes
    <private>/tokens/created            the shards whose counters were created, a line each
    <private>/generations/<n>           generation n: a symlink that names its boot
    <private>/generations/<n>.synced    generation n survives a loss of power; names the
                                        time at which the symlink <n> was made

A token is `generation * PER_GENERATION + size of the counter`. Counters are not synced,
so a loss of power may set them back. Therefore a generation begins at each boot, and
when a process finds that a counter is missing. A generation is synced before its first
token is used. A process that got a token checks that the token's generation is still
the last generation. If there is a later generation, the process takes another token.

A directory that was restored from a copy holds old counters and old generations. The
copy of a symlink is made later than the symlink. A process that finds a copied symlink
begins a generation *by the clock*, above all numbers of the original. So does a process
that finds no generation, although tokens were given. A generation by the clock begins
at the number of microseconds since 1970. Two cases are not noticed: a snapshot of a
disk, which keeps all times, and counters whose files a program overwrites.

If a counter cannot be used, an error is raised, because otherwise a token could be used
twice.
"""

from __future__ import annotations

import errno

from swarm.errors import StoreError
from swarm.stores.file.syscalls import Filesystem, list_if_there, retry_if_removed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SHARDS = 251  # counters for all tasks: a counter for each task would cost a disk block each
PER_GENERATION = 1_000_000_000
GENERATIONS = 1_000_000_000  # so that a token fits into 64 bits


class TokenCounters:
    """The counters of one directory.

    `were_given` tells whether there are traces of tokens outside of `private`.  Threads
    and forked children may share the object.
    """

    DIRECTORIES = ("tokens", "generations")

    def __init__(
        self,
        private: str,
        *,
        boot: Callable[[], str],
        now: Callable[[], float],
        were_given: Callable[[], bool],
        make_dirs: Callable[[str], None],
        fs: Filesystem,
    ) -> None:
        self._private = private
        self._tokens = private + "/tokens"
        self._list = private + "/tokens/created"
        self._generations = private + "/generations"
        self._boot = boot
        self._now = now
        self._were_given = were_given
        self._make_dirs = make_dirs
        self._fs = fs
        self._known: Generation | None = None  # the current generation
        self._latest = -1  # the largest number of a generation that this object used

    def next(self, name: str) -> int:
        """Return a token larger than all tokens given for `name` before."""
        return retry_if_removed(lambda: self._next(name), self._lay_out, self._private)

    def upper_bound(self, name: str) -> int:
        """Return a number at least as large as every token of `name`; 0 if it never had
        a token.
        """
        try:
            while True:
                generation = self._current()
                size = self._fs.size(self._counter(name))
                if self._is_last(generation):
                    return generation.base + size
        except FileNotFoundError:
            return 0

    def highest(self) -> int:
        """Return a number at least as large as every token given so far."""
        last, counters = self._last(), self._counters()
        size = max((self._fs.size(f"{self._tokens}/{name}") for name in counters), default=0)
        if last < 0 and not size:
            return 0
        if self._is_set_back(last, self._synced(last), self._made_at(last)):
            return self._start_by_the_clock(last) + size
        if not self._fs.exists(self._list) or not self._created() <= counters:
            return (last + 1) * PER_GENERATION  # a removed counter may have been larger
        return last * PER_GENERATION + self._read(last)[1] + size

    def advance_past(self, number: int) -> None:
        """Make every later token larger than `number`."""
        retry_if_removed(lambda: self._advance_past(number), self._lay_out, self._private)

    def _next(self, name: str) -> int:
        while True:
            generation = self._current()
            counter = self._counter(name)
            try:
                size = self._fs.grow(counter, sync=not self._boot())
            except FileNotFoundError:
                self._known = None
                self._create(counter)
                raise
            if self._is_last(generation):
                return generation.base + size

    def _advance_past(self, number: int) -> None:
        wanted = number // PER_GENERATION + 1
        if wanted > self._last():
            self._begin(wanted)
        self._known = None
        self._current()  # so that no process uses an earlier generation any more

    def _create(self, counter: str) -> None:
        """Create a counter. Raise FileNotFoundError if the list of counters is missing."""
        shard = counter.rpartition("/")[2]
        if shard in self._created():  # begin a generation first: the new counter starts at 0
            self._begin(self._last() + 1)
        self._write_once(counter)
        # List the shard after its counter was made: a process that finds a shard in the
        # list expects its counter.
        self._fs.append(self._list, f"{shard}\n".encode())

    def _counter(self, name: str) -> str:
        return f"{self._tokens}/{int.from_bytes(name.encode(), 'big') % SHARDS}"

    def _current(self) -> Generation:
        """Return the generation of this boot. Begin and sync this generation if needed."""
        while (generation := self._known) is None:  # another thread may reset `_known`
            last = self._last()
            synced, made_at = self._synced(last), self._made_at(last)
            if self._is_set_back(last, synced, made_at):
                start = self._start_by_the_clock(last)
                self._begin(start // PER_GENERATION, start % PER_GENERATION)
                continue
            boot, offset = self._read(last)
            if boot != (self._boot() or "-"):
                self._begin(last + 1)
            elif synced:
                self._latest = max(self._latest, last)
                self._known = Generation(last, last * PER_GENERATION + offset, made_at)
            else:
                self._end_earlier(last)
                parent = self._private.rpartition("/")[0]
                for path in (self._generations, self._private, parent):
                    self._fs.sync_dir(path)
                self._symlink_once(str(made_at), f"{last}.synced")
        return generation

    def _is_last(self, generation: Generation) -> bool:
        after = generation.number + 1
        if self._made_at(generation.number) == generation.made_at and (
            after == GENERATIONS or not self._fs.exists(f"{self._generations}/{after}")
        ):
            return True
        self._known = None
        return False

    def _last(self) -> int:
        return max(self._numbers(), default=-1)

    def _numbers(self) -> set[int]:
        names = list_if_there(self._fs.names, self._generations)
        return {int(name) for name in names if _is_generation(name)}

    def _is_set_back(self, last: int, synced: str, made_at: int) -> bool:
        """Return whether an earlier token may be larger than the files in `private`
        show.
        """
        if last < 0:
            return self._latest >= 0 or bool(self._counters()) or self._were_given()
        return last < self._latest or (synced != "" and synced != str(made_at))

    def _synced(self, generation: int) -> str:
        """Return the time at which the synced symlink of this generation was made, "" if
        the generation was never synced.
        """
        try:
            return self._fs.readlink(f"{self._generations}/{generation}.synced")
        except FileNotFoundError:
            return ""
        except OSError as error:
            if error.errno == errno.EINVAL:
                return "not a symlink"
            raise

    def _counters(self) -> set[str]:
        """Return the shards that have a counter."""
        return set(filter(str.isdecimal, list_if_there(self._fs.names, self._tokens)))

    def _created(self) -> set[str]:
        return set(self._fs.read(self._list).decode(errors="replace").split())

    def _start_by_the_clock(self, last: int) -> int:
        """Return the first number of a generation by the clock, which is later than
        `last`.

        The offset stays below half a generation, so the next generation is larger.
        """
        number = max((last + 1) * PER_GENERATION, int(self._now() * 1_000_000))
        return number - number % PER_GENERATION + number % PER_GENERATION // 2

    def _made_at(self, generation: int) -> int:
        """Return when a generation's symlink was made, in nanoseconds; -1 if it is missing."""
        try:
            return self._fs.changed_at(f"{self._generations}/{generation}")
        except FileNotFoundError:
            return -1

    def _read(self, generation: int) -> tuple[str, int]:
        """Return the boot in which a generation began, and the offset of its tokens.

        The boot is "" if the generation's file is not a symlink.
        """
        try:
            text = self._fs.readlink(f"{self._generations}/{generation}")
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.errno == errno.EINVAL:
                return "", 0
            raise
        boot, _, offset = text.partition("+")
        return boot, int(offset) if offset.isascii() and offset.isdigit() else 0

    def _begin(self, generation: int, offset: int = 0) -> None:
        if generation >= GENERATIONS:
            path = f"{self._generations}/{generation - 1}"
            raise StoreError(f"{path} is not a valid generation. Remove that file.")
        boot = self._boot() or "-"
        self._symlink_once(f"{boot}+{offset}" if offset else boot, str(generation))

    def _end_earlier(self, last: int) -> None:
        """Begin the generation that follows each earlier generation.

        A process that uses an earlier generation looks for the generation that follows,
        and so learns that its own has ended. No process uses a generation that
        `_end_earlier` makes, since `last` is larger.
        """
        numbers = self._numbers()
        for number in numbers:
            if number < last and number + 1 not in numbers:
                self._begin(number + 1)

    def _symlink_once(self, text: str, name: str) -> None:
        try:
            self._fs.symlink(text, f"{self._generations}/{name}")
        except FileExistsError:
            pass

    def _lay_out(self) -> None:
        last, missing = self._last(), not self._fs.exists(self._list)
        if last >= 0 and missing:
            self._begin(last + 1)  # before new counters are made: they start at 0
        self._make_dirs(self._tokens)
        if missing:
            self._write_once(self._list)
            for shard in self._counters():
                self._fs.append(self._list, f"{shard}\n".encode())
        self._make_dirs(self._generations)  # made last, so that no generation begins earlier

    def _write_once(self, path: str) -> None:
        try:
            self._fs.write_new(path, b"")
        except FileExistsError:
            pass


class Generation:
    """A generation in use: its number, the number before its first token, and when it
    was made.
    """

    __slots__ = ("base", "made_at", "number")

    def __init__(self, number: int, base: int, made_at: int) -> None:
        self.number = number
        self.base = base
        self.made_at = made_at


def _is_generation(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 9 and str(int(name)) == name
