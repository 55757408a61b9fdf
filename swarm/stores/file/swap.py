"""How a lock file changes hands: compare-and-swap on a directory of files.

Promised: `replace` and `remove` act on the very record that was compared, although the filesystem offers no such call and a
process may be stopped for any time between comparing and acting, even inside the system call. `create` never shows a half-written
record. A person may remove or write a record at any moment. Not promised: that what a person *writes* at the very moment between
somebody's comparing and acting stays; anything while somebody removes gates whose hands live, or their anchor, or where
directories are listed with other names than they were given; and one user per directory, since a stranger's hand cannot be
destroyed.

How: whoever acts, acts by a rename out of or into a directory of its own, its *hand*. The kernel refuses a rename from or to a
directory that is gone, also when the path was walked before. So whoever doubts a sleeping process destroys its hand, and the
sleeper, whenever it wakes, gets ENOENT and does nothing.

    <live>/<name><suffix>                 the record, the only truth
    <private>/hands/h<random>/            a process's hand; its name is never used again
    <private>/gates/<name>~<hand>~<when>  a gate: this hand is about to change this record, since this second
    <private>/anchors/<shard>             the file that the gates of some names are further names of

The rules, each of which is needed:

- Before acting on a record one opens a gate, then kills the hands of all other gates of this name, and only then looks
  whether the record is the one. So of any two, the one that opened its gate later has killed the other before it looked.
- After linking a new record one kills the hands of all gates of this name, and only then looks whether it is still there.
- A gate is closed by its own process when it will not act any more, or by others once its hand is dead. A gate names its hand,
  and hands do not return, so whoever closes one cannot be too late. Threads share a hand, which none of them can kill in
  another's stead: so whoever meets a gate of its own hand gives way.
- Gates need not be looked for while their anchor has no more names than its own and ours. So nobody may remove an anchor that
  has gates; and a filesystem is believed only once it has counted a gate of ours.
- Anybody may kill any hand at any time: it costs the owner a retry, never a record. Sweeping an old hand is killing
  it.
- Every file in a hand has a fresh name: after `link` the hand's file and the record are one inode, and must not be
  written.
- A forked child makes a hand of its own.

That is what makes it safe. That somebody always gets through is a matter of manners: of two who meet, the one whose hand's name
is smaller goes on and the other gives way (Busy), unless the gate is older than PATIENCE: then it is taken for a crash's. Two
threads may both give way. A gate whose hand is dead is in nobody's way.

What swarm did not make itself in <private> holds nobody up: a gate that names no hand is nobody's, and what cannot be cleared
away stays where it is. A hand that cannot be destroyed is an error, and so is an anchor that cannot have gates: going on without
it could give a task two holders.
"""

from __future__ import annotations

import errno
import posix as os  # its calls; importing os would cost a command a tenth of its time

from swarm.errors import Busy
from swarm.stores.file.syscalls import Filesystem, insist, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVarTuple

    Args = TypeVarTuple("Args")

SUFFIX = ".lock"
PATIENCE = 3.0  # seconds that an open gate is respected
SWEEP_AGE = 3600.0  # seconds after which residue is taken for a crash's
SWEEP_BATCH = 16  # entries looked at when a hand is made
ANCHORS = 16


class Handover:
    """Compare-and-swap for the files of one directory. Threads may share it, and a child may that is forked between two calls."""

    DIRECTORIES = ("hands", "gates", "anchors")

    def __init__(
        self,
        live: str,
        private: str,
        *,
        ensure: Callable[[str], None],
        fs: Filesystem,
        suffix: str = SUFFIX,
        vacated: bool = False,
    ) -> None:
        """`vacated`: somebody may call `vacate` there at any moment."""
        self._hand = (0, "")  # the process that made it, and its name: a forked child has none yet
        self._fs = fs
        self._live = live
        self._suffix = suffix
        self._private = private
        self._hands = private + "/hands"
        self._gates = private + "/gates"
        self._anchors = private + "/anchors"
        self._vacated = vacated
        self._counts = False  # whether an anchor's names were seen to be counted
        self._ensure = ensure
        self._fresh = iter(range(1 << 62))  # each number once, in any thread, without importing itertools

    def path(self, name: str) -> str:
        return f"{self._live}/{name}{self._suffix}"

    def read(self, name: str) -> bytes | None:
        try:
            return self._fs.read(self.path(name))
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        found = listed(self._fs.names, self._live)
        return sorted(name.removesuffix(self._suffix) for name in found if name.endswith(self._suffix) and name[0] != ".")

    def create(self, name: str, data: bytes) -> bool:
        return insist(self._lay_out, self._private, self._try_to_create, name, data)

    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        return insist(self._lay_out, self._private, self._try_to_change, name, old, new)

    def remove(self, name: str, old: bytes) -> bool:
        return insist(self._lay_out, self._private, self._try_to_change, name, old, None)

    def age(self, name: str) -> float:
        try:
            return self._fs.age(self.path(name))
        except FileNotFoundError:
            return 0.0

    def sweep(self, age: float = SWEEP_AGE, batch: int = SWEEP_BATCH) -> None:
        """Clears away what crashed processes left, if it is older than `age`."""
        for hand in _some(listed(self._fs.own_names, self._hands), batch):
            if hand != self._hand[1]:
                self._clear_away(self._sweep_hand, hand, age)
        for gate in _some(listed(self._fs.own_names, self._gates), batch):
            self._clear_away(self._sweep_gate, gate, age)

    def vacate(self) -> None:
        """Leaves nothing but the records behind. Whoever is at work here finds its hand destroyed, and tries again."""
        self.close()
        try:
            self.sweep(-1.0, 1_000_000)
            for anchor in listed(self._fs.own_names, self._anchors):
                self._clear_away(self._discard, f"{self._anchors}/{anchor}")
        except OSError:
            pass  # not even to be listed
        for path in (self._gates, self._anchors, self._hands, self._private):
            self._clear_away(self._fs.rmdir, path)

    def close(self) -> None:
        """Gives the hand back. The next change makes a new one."""
        owner, hand = self._hand
        if hand and owner == os.getpid():
            self._clear_away(self._kill, hand)
        self._hand = (0, "")

    def __del__(self) -> None:
        if os is not None:  # at interpreter exit modules go first
            self.close()

    def _try_to_create(self, name: str, data: bytes) -> bool:
        hand, mine = self._fresh_name()
        try:
            self._fs.write_new(mine, data)
            self._fs.link(mine, self.path(name))
        except FileExistsError:
            self._tidy(mine)
            return False
        except BaseException as error:
            self._leave(hand, mine, error)
            raise
        self._tidy(mine)
        if not self._are_all_gates(name, 0):
            self._clear(self._gates_of(name))
        return self.read(name) == data

    def _try_to_change(self, name: str, old: bytes, new: bytes | None) -> bool:
        """Changes record `old` into `new`, or removes it where `new` is None."""
        hand, mine = self._fresh_name()
        move = (self.path(name), mine) if new is None else (mine, self.path(name))
        try:
            if new is not None:
                self._fs.write_new(mine, new)
                self._fs.settle_content(mine)  # before the gate is open: a disk may take longer than others are patient
            gate = f"{name}~{hand}~{self._fs.this_second()}"
            self._open(name, gate)
            try:
                self._hold_off_others(name, hand, gate)
                changed = self.read(name) == old
                if changed:
                    self._fs.rename(*move)
            finally:
                self._tidy(f"{self._gates}/{gate}")
        except BaseException as error:
            self._leave(hand, mine, error)
            raise
        if new is None or not changed:
            self._tidy(mine)
        return changed

    def _open(self, name: str, gate: str) -> None:
        anchor, path = self._anchor(name), f"{self._gates}/{gate}"
        try:
            try:
                self._fs.mark(anchor, path)
            except (FileNotFoundError, PermissionError):
                self._lay_anchor(anchor)
                self._fs.mark(anchor, path)
        except FileExistsError:  # another thread's, or left by one that was interrupted
            self._give_way(gate)
            self._kill(_parts(gate)[1])  # with it we die too: the next try has another

    def _hold_off_others(self, name: str, hand: str, mine: str) -> None:
        if self._are_all_gates(name, 1):
            return
        gates = self._gates_of(name)
        if mine not in gates:  # closed by one who has killed us, or by a person: whoever looks now does not see us
            raise FileNotFoundError
        gates.remove(mine)
        for gate in gates:
            if _parts(gate)[1] <= hand:
                self._give_way(gate)
        self._clear(gates)

    def _are_all_gates(self, name: str, ours: int) -> bool:
        """Whether there are no gates for a record but ours, as far as that can be told without listing them."""
        if not self._counts and (self._vacated or not ours):
            return False
        names = self._fs.links(self._anchor(name))
        self._counts = self._counts or names > ours
        return names == 1 + ours

    def _lay_anchor(self, anchor: str) -> None:
        """Where there is none. Gates that one had before are counted by nobody: whoever opened them is not to act any more."""
        self._clear_away(self._fs.rmdir, anchor)  # planted: a directory can have no further names, and had none
        if self._fs.exists(anchor):
            return
        if not self._vacated:
            gates = listed(self._fs.names, self._gates)
            self._clear([gate for gate in gates if _parts(gate)[0] and self._anchor(_parts(gate)[0]) == anchor])
        self._fs.put(anchor)

    def _anchor(self, name: str) -> str:
        """One for all would tell everybody of everybody else's gates."""
        return f"{self._anchors}/{ord(name[-1]) % ANCHORS}"

    def _gates_of(self, name: str) -> list[str]:
        return [gate for gate in listed(self._fs.names, self._gates) if gate.startswith(name) and _parts(gate)[0] == name]

    def _give_way(self, gate: str) -> None:
        """Raises Busy, unless whoever opened the gate is dead, or done, or has taken too long."""
        name, hand, when = _parts(gate)
        young = self._fs.since(when) <= PATIENCE
        if young and self._fs.exists(f"{self._gates}/{gate}") and self._fs.exists(f"{self._hands}/{hand}"):
            raise Busy(f"somebody else is changing {name} right now. Try again in a moment.")

    def _clear(self, gates: list[str]) -> None:
        for gate in gates:
            self._kill(_parts(gate)[1])
            self._tidy(f"{self._gates}/{gate}")

    def _kill(self, hand: str) -> None:
        """Destroys a hand: from now on its owner's renames fail, also those that have already begun."""
        path = f"{self._hands}/{hand}"
        while True:
            try:
                for name in self._fs.own_names(path):
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

    def _discard(self, path: str) -> None:
        try:
            self._fs.unlink(path)
        except FileNotFoundError:
            pass

    def _tidy(self, path: str) -> None:
        """Removes what is of no more use. Where that fails, what was done is done all the same, and a sweep will see to it."""
        try:
            self._fs.unlink(path)
        except OSError:
            pass

    def _clear_away(self, clear: Callable[[*Args], None], *args: *Args) -> None:
        """Whoever clears away on its way must not fail for it."""
        try:
            clear(*args)
        except OSError:
            pass

    def _sweep_hand(self, hand: str, age: float) -> None:
        if _is_hand(hand) and self._fs.age(f"{self._hands}/{hand}") > age:
            self._kill(hand)

    def _sweep_gate(self, gate: str, age: float) -> None:
        path = f"{self._gates}/{gate}"
        _, hand, when = _parts(gate)
        if (self._fs.since(when) if hand else self._fs.age(path)) > age:
            if hand:
                self._kill(hand)
            self._discard(path)

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
        owner, faster = self._hand
        if faster and owner == os.getpid():  # another thread's; should it be gone by now, it is a hand all the same
            self._fs.rmdir(f"{self._hands}/{hand}")
            return faster
        self._hand = (os.getpid(), hand)
        return hand

    def _leave(self, hand: str, mine: str, error: BaseException) -> None:
        """After a failure: a hand that was destroyed is given up. Any other is good for the next try, also on a full disk, where
        it could not be made again."""
        if isinstance(error, FileNotFoundError):
            self._drop(hand)
        else:
            self._tidy(mine)

    def _drop(self, hand: str) -> None:
        if self._hand[1] == hand:
            self._hand = (0, "")
        self._clear_away(self._kill, hand)  # it is never used again

    def _lay_out(self) -> None:
        for path in (self._live, self._hands, self._gates, self._anchors):
            self._ensure(path)


def _parts(gate: str) -> tuple[str, str, str]:
    """What a gate says: the record's name, the hand and the second; all empty for what is none. Names come out of a directory
    that others can write to: only what swarm makes is used as a path."""
    rest, _, when = gate.rpartition("~")
    name, _, hand = rest.rpartition("~")  # a name may contain the separator
    return (name, hand, when) if _is_hand(hand) and when.isdecimal() and when.isascii() else ("", "", "")


def _is_hand(name: str) -> bool:
    return len(name) == 17 and name[0] == "h" and not name[1:].strip("0123456789abcdef")


def _some(names: list[str], count: int) -> list[str]:
    """A few of many, each time others."""
    start = int.from_bytes(os.urandom(2), "big") % max(1, len(names))
    return (names[start:] + names[:start])[:count]
