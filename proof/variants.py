"""Lock code that is broken on purpose: a checker that cannot fail proves nothing.

The first five are known ways to take over a lock file, none of which works. The others are swarm's own code with one of
its rules left out. Each names the scenario in which the explorer must find it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from proof import scenarios
from proof.disk import PRIVATE
from proof.random_depth import CROWD
from proof.simulated_process import Code
from proof.world import Scenario
from swarm.errors import Busy
from swarm.locks import table
from swarm.locks.record import Lock, new_lock
from swarm.locks.table import LockTable
from swarm.stores.file import swap
from swarm.stores.file.swap import Handover
from swarm.stores.file.syscalls import listed


class Variant(NamedTuple):
    name: str
    code: Code
    scenario: Scenario


class _Plain(Handover):
    """No gates, no hands: compare, then act."""

    def create(self, name: str, data: bytes) -> bool:
        try:
            self._fs.write_new(self.path(name), data)
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        if self.read(name) != old:
            return False
        spare = self._spare(new)
        self._fs.rename(spare, self.path(name))
        return True

    def remove(self, name: str, old: bytes) -> bool:
        if self.read(name) != old:
            return False
        self._discard(self.path(name))
        return True

    def _spare(self, data: bytes) -> str:
        path = self._spare_path()
        self._fs.write_new(path, data)
        return path

    def _spare_path(self) -> str:
        return f"{PRIVATE}/spare/{_system().getpid()}-{next(self._fresh)}"


class _DeleteThenCreate(LockTable):
    """The pseudo-code of `003`: it has expired, so delete it, so create it."""

    def _write(self, task: str, judged: bytes | None, holder: str, lock: Lock) -> bool:
        key = f"locks/{task}"
        if judged is not None:
            self.store.remove(key, judged)
        return self.store.create(key, lock.encode())


class _RenameOverAndReadBack(_Plain):
    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        return super().replace(name, old, new) and self.read(name) == new


class _RenameAsideAndVerifyTheInode(_Plain):
    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        inode = self._inode(self.path(name))
        if inode < 0 or self.read(name) != old:
            return False
        spare, aside = self._spare(new), self._spare_path()
        try:
            self._fs.rename(self.path(name), aside)
        except FileNotFoundError:
            return False
        mine = self._inode(aside) == inode
        try:
            self._fs.link(spare if mine else aside, self.path(name))
        except FileExistsError:
            return False
        return mine

    def _inode(self, path: str) -> int:
        try:
            return int(self._fs.inode(path))  # type: ignore[attr-defined]
        except FileNotFoundError:
            return -1


class _BreakLockAroundTakeoverOnly(_Plain):
    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        breaking = f"{PRIVATE}/spare/break"
        try:
            self._fs.mkdir(breaking)
        except FileExistsError:
            if not _is_old(self, breaking, swap.PATIENCE):
                raise Busy("somebody is taking it over") from None
        done = super().replace(name, old, new)
        try:
            self._fs.rmdir(breaking)
        except FileNotFoundError:
            pass
        return done


class _SymlinkInThePath(Handover):
    """A hand is a symbolic link: it can be removed, but a rename that has walked it does not notice."""

    def _fresh_name(self) -> tuple[str, str]:
        hand, _ = super()._fresh_name()
        return hand, f"{self._hands}/{hand}/{hand}-{next(self._fresh)}"

    def _make_hand(self) -> str:
        hand: str = "h" + _system().urandom(8).hex()
        self._fs.symlink(f"{PRIVATE}/spare", f"{self._hands}/{hand}")
        self._hand = (_system().getpid(), hand)
        return hand

    def _kill(self, hand: str) -> None:
        self._discard(f"{self._hands}/{hand}")


class _KillDoesNothing(Handover):
    def _kill(self, hand: str) -> None:
        pass


class _GateNameUsedTwice(Handover):
    """One gate for all, which says in its content whose it is: whoever closes it may close another's."""

    def _try_to_change(self, name: str, old: bytes, new: bytes | None) -> bool:
        hand, mine = self._fresh_name()
        gate = f"{self._gates}/{name}"
        try:
            if new is not None:
                self._fs.write_new(mine, new)
            while True:
                try:
                    self._fs.symlink(hand, gate)
                    break
                except FileExistsError:
                    self._step_over(gate)
            changed = self.read(name) == old
            if changed:
                self._fs.rename(*((self.path(name), mine) if new is None else (mine, self.path(name))))
            self._tidy(gate)
        except FileNotFoundError:
            self._drop(hand)
            raise
        return changed

    def _step_over(self, gate: str) -> None:
        try:
            hand = self._fs.readlink(gate)
        except FileNotFoundError:
            return
        if not _is_old(self, gate, swap.PATIENCE) and self._fs.exists(f"{self._hands}/{hand}"):
            raise Busy("somebody else is changing it")
        self._kill(hand)
        self._tidy(gate)


class _HeartbeatOutsideTheGate(Handover):
    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        if b'"beat": 0' in new:
            return super().replace(name, old, new)
        hand, mine = self._fresh_name()
        try:
            self._fs.write_new(mine, new)
            if self.read(name) != old:
                return False
            self._fs.rename(mine, self.path(name))
        except FileNotFoundError:
            self._drop(hand)
            return False
        return True


class _VerifySkipped(Handover):
    """Believes what it should look at."""

    _believed: bytes | None = None

    def _try_to_change(self, name: str, old: bytes, new: bytes | None) -> bool:
        self._believed = old
        try:
            return super()._try_to_change(name, old, new)
        finally:
            self._believed = None

    def read(self, name: str) -> bytes | None:
        return super().read(name) if self._believed is None else self._believed


class _FreshWithoutTheLook(_VerifySkipped):
    def _try_to_change(self, name: str, old: bytes, new: bytes | None) -> bool:
        return Handover._try_to_change(self, name, old, new)

    def _try_to_create(self, name: str, data: bytes) -> bool:
        self._believed = data
        try:
            return super()._try_to_create(name, data)
        finally:
            self._believed = None


class _FreshWithoutClear(Handover):
    def _try_to_create(self, name: str, data: bytes) -> bool:
        hand, mine = self._fresh_name()
        try:
            self._fs.write_new(mine, data)
            self._fs.link(mine, self.path(name))
        except FileExistsError:
            return False
        except FileNotFoundError:
            self._drop(hand)
            raise
        return self.read(name) == data


class _ChangeWithoutClear(Handover):
    def _hold_off_others(self, name: str, hand: str, mine: str) -> None:
        pass


class _ClosesBeforeItKills(Handover):
    def _clear(self, gates: list[str]) -> None:
        for gate in gates:
            self._tidy(f"{self._gates}/{gate}")
            self._kill(_hand(gate))


class _LooksBeforeItKills(_VerifySkipped):
    """Compares first, and sees to the others then."""

    def _try_to_change(self, name: str, old: bytes, new: bytes | None) -> bool:
        return self.read(name) == old and super()._try_to_change(name, old, new)


class _ThreadsIgnoreEachOther(Handover):
    def _open(self, name: str, gate: str) -> None:
        try:
            self._fs.mark(self._anchor(name), f"{self._gates}/{gate}")
        except FileExistsError:
            pass


class _ThreadsOfOtherSecondsIgnoreEachOther(Handover):
    def _gates_of(self, name: str) -> list[str]:
        mine = str(self._fs.this_second())
        return [gate for gate in super()._gates_of(name) if _hand(gate) != self._hand[1] or gate.endswith(f"~{mine}")]

    def _are_all_gates(self, name: str, ours: int) -> bool:
        return False


class _TrustsInManners(Handover):
    """Does not kill who will give way to it."""

    def _clear(self, gates: list[str]) -> None:
        super()._clear([gate for gate in gates if _hand(gate) < self._hand[1]])


class _CountsBeforeItOpens(Handover):
    _alone = False

    def _try_to_change(self, name: str, old: bytes, new: bytes | None) -> bool:
        self._alone = self._are_all_gates(name, 0)
        return super()._try_to_change(name, old, new)

    def _are_all_gates(self, name: str, ours: int) -> bool:
        return self._alone if ours else super()._are_all_gates(name, ours)


class _CountsWhereAnchorsGo(Handover):
    """Although others clear the anchor away, with gates that are names of it."""

    def _are_all_gates(self, name: str, ours: int) -> bool:
        return self._fs.links(self._anchor(name)) == 1 + ours


class _CountsOneTooMany(Handover):
    """Takes somebody else's gate for its own, where it has none."""

    def _are_all_gates(self, name: str, ours: int) -> bool:
        return super()._are_all_gates(name, 1)


class _TokenDrawnTooEarly(LockTable):
    """Before looking at what is to be replaced; compared only after linking."""

    def _try_to_acquire(self, task: str, worker: str, ttl: float | None, who: dict[str, object] | None) -> Lock | None:
        key = f"locks/{task}"
        token = self.store.next_token(key)
        data = self.store.read(key)
        holder = ""
        if data is not None:
            status = self._judged(task, data)
            if status.is_held:
                raise table._held(task, status)
            holder = status.holder
        lock = new_lock(task, worker, ttl, token, self.clock, who)
        if not self._write(task, data, holder, lock):
            return None
        return self._settle_token(lock) if data is None else lock


class _TokenNotCompared(LockTable):
    def _settle_token(self, lock: Lock) -> Lock:
        return lock


class _HandSharedAcrossFork(Handover):
    def _fresh_name(self) -> tuple[str, str]:
        self._hand = (_system().getpid(), self._hand[1])
        return super()._fresh_name()


def _hand(gate: str) -> str:
    return swap._parts(gate)[1]


def _system() -> Any:
    """What `swap` takes for `os` at this moment."""
    return vars(swap)["os"]


def _is_old(records: Handover, path: str, age: float) -> bool:
    try:
        return records._fs.age(path) > age
    except FileNotFoundError:
        return False


def _sweep_without_killing(records: Handover) -> None:
    for gate in listed(records._fs.names, records._gates):
        if _hand(gate) and records._fs.since("0") > swap.SWEEP_AGE:
            records._discard(f"{records._gates}/{gate}")


ALL = [
    Variant("delete, then create (`003`)", Code(_Plain, _DeleteThenCreate), scenarios.TWO_TAKEOVERS_AND_RELEASE),
    Variant("rename over and read back", Code(_RenameOverAndReadBack), scenarios.TWO_TAKEOVERS_AND_RELEASE),
    Variant("rename aside and verify the inode", Code(_RenameAsideAndVerifyTheInode), scenarios.TWO_TAKEOVERS_AND_RELEASE),
    Variant("a break-lock around takeover only", Code(_BreakLockAroundTakeoverOnly), scenarios.HOLDER_AND_TAKEOVER),
    Variant("a symbolic link in the path", Code(_SymlinkInThePath), scenarios.HOLDER_AND_TAKEOVER),
    Variant("a kill that does nothing", Code(_KillDoesNothing), scenarios.HOLDER_AND_TAKEOVER),
    Variant("a gate name used twice", Code(_GateNameUsedTwice), scenarios.GATE_LEFT_OPEN),
    Variant("a heartbeat outside the gate", Code(_HeartbeatOutsideTheGate), scenarios.HOLDER_AND_TAKEOVER),
    Variant("verify skipped", Code(_VerifySkipped), scenarios.HOLDER_AND_TAKEOVER),
    Variant("fresh acquisition without clear", Code(_FreshWithoutClear), scenarios.PERSON_REMOVES),
    Variant("fresh acquisition without the look after it", Code(_FreshWithoutTheLook), scenarios.PERSON_REMOVES),
    Variant("a change without clear", Code(_ChangeWithoutClear), scenarios.HOLDER_AND_TAKEOVER),
    Variant("a gate closed before its hand is dead", Code(_ClosesBeforeItKills), scenarios.GATE_LEFT_OPEN),
    Variant("a look before the others are dead", Code(_LooksBeforeItKills), scenarios.HOLDER_AND_TAKEOVER),
    Variant("one that will give way is not killed", Code(_TrustsInManners), scenarios.HOLDER_AND_TAKEOVER),
    Variant("threads that ignore each other", Code(_ThreadsIgnoreEachOther), scenarios.THREADS),
    Variant(
        "threads that ignore gates of other seconds",
        Code(_ThreadsOfOtherSecondsIgnoreEachOther),
        scenarios.THREADS_OF_OTHER_SECONDS,
    ),
    Variant("gates counted before one's own is open", Code(_CountsBeforeItOpens), scenarios.HOLDER_AND_TAKEOVER),
    Variant("gates counted where anchors are cleared away", Code(_CountsWhereAnchorsGo), scenarios.VACATED),
    Variant("another's gate counted as one's own", Code(_CountsOneTooMany), scenarios.PERSON_REMOVES),
    Variant("a token drawn too early", Code(table=_TokenDrawnTooEarly), scenarios.TWO_FRESH),
    Variant("a token not compared after linking", Code(table=_TokenNotCompared), scenarios.TWO_TURNS),
    Variant("a sweeper that does not kill", Code(sweep=_sweep_without_killing), scenarios.SWEEPER_AND_PERSON),
    Variant("one hand shared across fork", Code(_HandSharedAcrossFork), scenarios.FORK),
]
IN_A_CROWD = Variant("a gate closed before its hand is dead, among 8", Code(_ClosesBeforeItKills), CROWD)
"""What the random runs must find too."""
