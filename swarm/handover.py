"""How a lock file changes hands: compare-and-swap on a directory of files.

Promised: `replace` and `remove` act on the very record that was compared, although the filesystem offers no such call and a
process may be stopped for any time between comparing and acting, even inside the system call. `create` never shows a half-written
record. A person may `rm` a record at any moment. Not promised: anything to a person who *writes* a record at the very moment
between somebody's comparing and acting; nor, so far, to one who writes a record, removes it and writes *the very same bytes*
again, since a gate's name then serves twice; and one user per directory, since a stranger's hand cannot be destroyed.

How: whoever acts, acts by a rename out of or into a directory of its own, its *hand*. The kernel refuses a rename from or to a
directory that is gone, also when the path was walked before. So whoever doubts a sleeping process destroys its hand, and the
sleeper, whenever it wakes, gets ENOENT and does nothing.

    <live>/<name>.lock                    the record, the only truth
    <private>/hands/h<random>/            a process's hand; its name is never used again
    <private>/gates/<name>~<mark>~<k>     a symlink to a hand's name: its owner is about to change the record with this mark
    <private>/tickets/<shard>             one byte a ticket
    <private>/epochs/<n>                  a symlink to a boot's identity: tickets of a later epoch are larger than all before

The rules, each of which is needed:

- Before acting on record R one opens a gate of R. If there is one already, its hand must be dead before the next is
  opened: gone, or killed because the gate is older than PATIENCE. While it is alive and young the answer is Busy.
- After opening one's gate, and after linking a new record, one kills the hands of all other gates of this name, and
  only then looks whether the record is (still) the one.
- A gate of R is removed only when the record is known not to be R: since no record returns, that stays so. (Only a
  person can make one return, by writing the very same bytes again; swarm's own carry a token and count their beats.)
- Anybody may kill any hand at any time: it costs the owner a retry, never a record. Sweeping an old hand is killing
  it.
- Every file in a hand has a fresh name: after `link` the hand's file and the record are one inode, and must not be
  written.
- A forked child makes a hand of its own.

What swarm did not make itself in <private> holds nobody up: a gate that names no hand is nobody's, and what cannot be cleared
away stays where it is. A counter that cannot be used, or a hand that cannot be destroyed, is an error: going on without it could
give a task two holders.
"""

from __future__ import annotations

import errno
import os
from itertools import count

from swarm.errors import Busy, StoreError
from swarm.filesystem import Filesystem

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar, TypeVarTuple

    Args = TypeVarTuple("Args")
    Answer = TypeVar("Answer")

SUFFIX = ".lock"
PATIENCE = 3.0  # seconds that an open gate is respected
SWEEP_AGE = 3600.0  # seconds after which residue is taken for a crash's
SWEEP_BATCH = 16  # entries looked at when a hand is made
TICKET_SHARDS = 251  # a file a task would cost a disk block each
TICKETS_PER_EPOCH = 1_000_000_000
EPOCHS = 1_000_000_000  # so that a token fits into 64 bits
ATTEMPTS = 1000  # a hand destroyed this often in a row is not bad luck


class Handover:
    """Compare-and-swap for the files of one directory. Threads may share it; a forked child may too."""

    DIRECTORIES = ("hands", "gates", "tickets", "epochs")

    def __init__(
        self, live: str, private: str, *, boot: Callable[[], str], ensure: Callable[[str], None], fs: Filesystem
    ) -> None:
        self._fs = fs
        self._live = live
        self._hand = (0, "")  # the process that made it, and its name: a forked child has none yet
        self._private = private
        self._hands = private + "/hands"
        self._gates = private + "/gates"
        self._tickets = private + "/tickets"
        self._epochs = private + "/epochs"
        self._boot = boot
        self._ensure = ensure
        self._epoch: int | None = None
        self._fresh = count()

    def path(self, name: str) -> str:
        return f"{self._live}/{name}{SUFFIX}"

    def read(self, name: str) -> bytes | None:
        try:
            return self._fs.read(self.path(name))
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        try:
            found = self._fs.names(self._live)
        except FileNotFoundError:
            return []
        return sorted(name[: -len(SUFFIX)] for name in found if name.endswith(SUFFIX) and not name.startswith("."))

    def create(self, name: str, data: bytes) -> bool:
        return self._insist(self._try_to_create, name, data)

    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        return self._insist(self._try_to_change, name, old, new)

    def remove(self, name: str, old: bytes) -> bool:
        return self._insist(self._try_to_change, name, old, None)

    def ticket(self, name: str) -> int:
        return self._insist(self._try_to_draw, name)

    def last_ticket(self, name: str) -> int:
        try:
            while True:
                epoch = self._current_epoch()
                size = self._fs.size(self._ticket_path(name))
                if not self._is_over(epoch):
                    return epoch * TICKETS_PER_EPOCH + size
        except FileNotFoundError:
            return 0

    def age(self, name: str) -> float:
        try:
            return self._fs.age(self.path(name))
        except FileNotFoundError:
            return 0.0

    def sweep(self, age: float = SWEEP_AGE, batch: int = SWEEP_BATCH) -> None:
        """Clears away what crashed processes left, if it is older than `age`."""
        for hand in _some(self._listed(self._hands), batch):
            if hand != self._hand[1]:
                self._clear_away(self._sweep_hand, hand, age)
        for gate in _some(self._listed(self._gates), batch):
            self._clear_away(self._sweep_gate, gate, age)

    def close(self) -> None:
        """Gives the hand back. The next change makes a new one."""
        owner, hand = self._hand
        if hand and owner == os.getpid():
            try:
                self._fs.rmdir(f"{self._hands}/{hand}")
            except OSError:
                pass  # not empty or gone: a sweep will see to it
        self._hand = (0, "")

    def __del__(self) -> None:
        if os is not None:  # at interpreter exit modules go first
            self.close()

    def _insist(self, attempt: Callable[[*Args], Answer], *args: *Args) -> Answer:
        """Does it, again if what it needs was destroyed under it: a hand by somebody who doubted us, a directory by a person."""
        for _ in range(ATTEMPTS):
            try:
                return attempt(*args)
            except FileNotFoundError:
                self._lay_out()
        raise StoreError(f"the working directories under {self._private} keep disappearing. Stop what removes them.")

    def _try_to_create(self, name: str, data: bytes) -> bool:
        hand, mine = self._fresh_name()
        try:
            self._fs.write_new(mine, data)
            self._fs.link(mine, self.path(name))
        except FileExistsError:
            self._tidy(mine)
            return False
        except BaseException:
            self._drop(hand)
            raise
        self._tidy(mine)
        others = self._clear(name, [])
        if self.read(name) != data:
            return False
        self._close([gate for gate in others if _parse_gate(gate)[1] != _mark(data)])
        return True

    def _try_to_change(self, name: str, old: bytes, new: bytes | None) -> bool:
        """Changes record `old` into `new`, or removes it where `new` is None."""
        hand, mine = self._fresh_name()
        try:
            if new is not None:
                self._fs.write_new(mine, new)
            gates = self._open_gate(name, _mark(old), hand)
            others = self._clear(name, gates)
            if self.read(name) != old:
                self._close(gates)  # not the others: one of them may be for the record that is there now
                self._tidy(mine)
                return False
            if new is None:
                self._fs.rename(self.path(name), mine)
            else:
                self._fs.rename(mine, self.path(name))
        except Busy:
            self._tidy(mine)
            raise
        except BaseException:
            self._drop(hand)
            raise
        self._close(gates + others)
        if new is None:
            self._tidy(mine)
        return True

    def _try_to_draw(self, name: str) -> int:
        while True:
            epoch = self._current_epoch()
            try:
                drawn = self._fs.draw(self._ticket_path(name), sync=not self._boot())
            except FileNotFoundError:
                self._epoch = None
                raise
            if not self._is_over(epoch):
                return epoch * TICKETS_PER_EPOCH + drawn

    def _open_gate(self, name: str, mark: str, hand: str) -> list[str]:
        """Opens a gate for the record with this mark; all its gates up to that one, of which only the last has a living hand."""
        passed: list[str] = []
        while True:
            gate = f"{name}~{mark}~{len(passed)}"
            try:
                self._fs.symlink(hand, f"{self._gates}/{gate}")
                return [*passed, gate]
            except FileExistsError:
                pass
            rival = self._hand_of(gate)
            if self._fs.exists(f"{self._hands}/{rival}") and not self._older(f"{self._gates}/{gate}", PATIENCE):
                raise Busy(f"somebody else is changing {name} right now. Try again in a moment.")
            self._kill(rival)
            passed.append(gate)

    def _clear(self, name: str, own: list[str]) -> list[str]:
        """Kills the hands of this name's gates but one's own; those gates, to be closed once the record is known."""
        others = [gate for gate in self._listed(self._gates) if _parse_gate(gate)[0] == name and gate not in own]
        for gate in others:
            self._kill(self._hand_of(gate))
        return others

    def _close(self, gates: list[str]) -> None:
        for gate in gates:
            self._tidy(f"{self._gates}/{gate}")  # one that stays costs the next a look, never a record

    def _kill(self, hand: str) -> None:
        """Destroys a hand: from now on its owner's renames fail, also those that have already begun."""
        if not _is_hand(hand):
            return
        path = f"{self._hands}/{hand}"
        while True:
            try:
                for name in self._fs.names(path):
                    self._discard(f"{path}/{name}")
                self._fs.rmdir(path)
                return
            except FileNotFoundError:
                return
            except NotADirectoryError:
                self._discard(path)  # planted: no hand, and nothing that a rename could go through
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def _hand_of(self, gate: str) -> str:
        hand = self._target(f"{self._gates}/{gate}")
        return hand if _is_hand(hand) else "?"  # closed meanwhile, or planted: either way nobody acts through it

    def _target(self, path: str) -> str:
        """Where a link leads, "" for anything else."""
        try:
            return self._fs.readlink(path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or error.errno == errno.EINVAL:
                return ""
            raise

    def _older(self, path: str, age: float) -> bool:
        try:
            return self._fs.age(path) > age
        except FileNotFoundError:
            return False

    def _listed(self, path: str) -> list[str]:
        try:
            return self._fs.names(path)
        except FileNotFoundError:
            return []

    def _discard(self, path: str) -> None:
        try:
            self._fs.unlink(path)
        except FileNotFoundError:
            pass

    def _tidy(self, path: str) -> None:
        """Removes what is of no more use. Where that fails, what was done is done all the same, and a sweep will see to it."""
        self._clear_away(self._discard, path)

    def _clear_away(self, clear: Callable[[*Args], None], *args: *Args) -> None:
        """Whoever clears away on its way must not fail for it."""
        try:
            clear(*args)
        except OSError:
            pass

    def _sweep_hand(self, hand: str, age: float) -> None:
        if self._older(f"{self._hands}/{hand}", age):
            self._kill(hand)

    def _sweep_gate(self, gate: str, age: float) -> None:
        if not self._older(f"{self._gates}/{gate}", age):
            return
        self._kill(self._hand_of(gate))
        name, mark = _parse_gate(gate)
        record = self.read(name) if mark else None
        if record is None or _mark(record) != mark:
            self._close([gate])

    def _fresh_name(self) -> tuple[str, str]:
        """This process's hand, and a path in it that was never used. The two go together: another thread may change hands."""
        owner, hand = self._hand
        if not hand or owner != os.getpid():
            hand = self._make_hand()
            self.sweep()
        return hand, f"{self._hands}/{hand}/{next(self._fresh):x}"

    def _make_hand(self) -> str:
        hand = "h" + os.urandom(8).hex()
        self._fs.mkdir(f"{self._hands}/{hand}")
        if self._hand[1] and self._hand[0] == os.getpid():  # another thread was faster
            self._fs.rmdir(f"{self._hands}/{hand}")
            return self._hand[1]
        self._hand = (os.getpid(), hand)
        return hand

    def _drop(self, hand: str) -> None:
        """Gives up a hand of this process that failed: whatever it had begun is over, and nobody need wait for it."""
        if self._hand[1] == hand:
            self._hand = (0, "")
        self._clear_away(self._kill, hand)  # it is never used again; and what failed before this is what is to be told

    def _lay_out(self) -> None:
        """Makes every directory that is missing."""
        last = self._last_epoch()
        if last >= 0 and not self._fs.exists(self._tickets):
            self._begin_epoch(last + 1)  # before there are counters again: they will begin anew
        for path in (self._live, self._hands, self._gates, self._tickets, self._epochs):
            self._ensure(path)

    def _ticket_path(self, name: str) -> str:
        return f"{self._tickets}/{int.from_bytes(name.encode(), 'big') % TICKET_SHARDS}"

    def _current_epoch(self) -> int:
        """A number that grows with every boot, and when the counters were removed. It is on disk, for good, before its first
        ticket is given."""
        while self._epoch is None:
            last = self._last_epoch()
            if last < 0 or self._target(f"{self._epochs}/{last}") != (self._boot() or "-"):
                self._begin_epoch(last + 1)
            elif self._fs.exists(f"{self._epochs}/{last}.synced"):
                self._epoch = last
            else:
                for path in (self._epochs, self._private, os.path.dirname(self._private)):
                    self._fs.sync_dir(path)
                self._mark_epoch(f"{last}.synced", "-")
        return self._epoch

    def _last_epoch(self) -> int:
        return max((int(name) for name in self._listed(self._epochs) if _is_epoch(name)), default=-1)

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
        if not self._fs.exists(f"{self._epochs}/{epoch + 1}"):
            return False
        self._epoch = None
        return True


def _is_hand(name: str) -> bool:
    """Names come out of a directory that others can write to: only what swarm makes is used as a path."""
    return len(name) == 17 and name[0] == "h" and not set(name[1:]) - set("0123456789abcdef")


def _is_epoch(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 10 and str(int(name)) == name and int(name) < EPOCHS


def _some(names: list[str], count: int) -> list[str]:
    """A few of many, each time others."""
    start = int.from_bytes(os.urandom(2), "big") % max(1, len(names))
    return (names[start:] + names[:start])[:count]


def _parse_gate(gate: str) -> tuple[str, str]:
    """Name and mark of the record that a gate is for; from the right, because a name may contain the separator."""
    parts = gate.rsplit("~", 2)
    return (parts[0], parts[1]) if len(parts) == 3 else (gate, "")


def _mark(data: bytes) -> str:
    from _blake2 import blake2b  # hashlib would load OpenSSL

    return blake2b(data, digest_size=16).hexdigest()
