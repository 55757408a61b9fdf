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
from swarm import handover, lock_table
from swarm.errors import Busy
from swarm.handover import Handover
from swarm.lock_record import Lock, new_lock
from swarm.lock_table import LockTable


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

    def _write(self, task: str, judged: bytes | None, found: Lock | None, lock: Lock) -> bool:
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
            if not self._older(breaking, handover.PATIENCE):
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
    def _open_gate(self, name: str, mark: str, hand: str) -> list[str]:
        gate = f"{name}~{mark}~0"
        while True:
            try:
                self._fs.symlink(hand, f"{self._gates}/{gate}")
                return [gate]
            except FileExistsError:
                pass
            rival = self._hand_of(gate)
            if self._fs.exists(f"{self._hands}/{rival}") and not self._older(f"{self._gates}/{gate}", handover.PATIENCE):
                raise Busy(f"somebody else is changing {name}")
            self._kill(rival)
            self._close([gate])


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
    def _clear(self, name: str, own: list[str]) -> list[str]:
        return super()._clear(name, own) if own else []


class _ChangeWithoutClear(Handover):
    def _clear(self, name: str, own: list[str]) -> list[str]:
        return [] if own else super()._clear(name, own)


class _LostComparisonClosesAllGates(Handover):
    def _try_to_change(self, name: str, old: bytes, new: bytes | None) -> bool:
        changed = super()._try_to_change(name, old, new)
        if not changed:
            self._close(self._clear(name, []))
        return changed


class _TokenDrawnTooEarly(LockTable):
    """Before looking at what is to be replaced; compared only after linking."""

    def _try_to_acquire(self, task: str, worker: str, ttl: float | None, who: dict[str, object] | None) -> Lock | None:
        key = f"locks/{task}"
        token = self.store.ticket(key)
        data = self.store.read(key)
        found = None
        if data is not None:
            found, verdict = self._judged(task, data)
            if verdict.active:
                raise lock_table._held(task, found, verdict)
        lock = new_lock(task, worker, ttl, token, self.clock, who)
        if not self._write(task, data, found, lock):
            return None
        return self._settle_token(lock) if data is None else lock


class _TokenNotCompared(LockTable):
    def _settle_token(self, lock: Lock) -> Lock:
        return lock


class _HandSharedAcrossFork(Handover):
    def _fresh_name(self) -> tuple[str, str]:
        self._hand = (_system().getpid(), self._hand[1])
        return super()._fresh_name()


def _system() -> Any:
    """What `handover` takes for `os` at this moment."""
    return vars(handover)["os"]


def _sweep_without_killing(records: Handover) -> None:
    for gate in records._listed(records._gates):
        name, mark = handover._parse_gate(gate)
        record = records.read(name)
        if records._older(f"{records._gates}/{gate}", handover.SWEEP_AGE) and (record is None or handover._mark(record) != mark):
            records._close([gate])


def _sweep_any_gate(records: Handover) -> None:
    for gate in records._listed(records._gates):
        if records._older(f"{records._gates}/{gate}", handover.SWEEP_AGE):
            records._kill(records._hand_of(gate))
            records._close([gate])


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
    Variant("a change without clear", Code(_ChangeWithoutClear), scenarios.PERSON_WRITES),
    Variant("a token drawn too early", Code(table=_TokenDrawnTooEarly), scenarios.TWO_FRESH),
    Variant("a token not compared after linking", Code(table=_TokenNotCompared), scenarios.TWO_TURNS),
    Variant("a sweeper that does not kill", Code(sweep=_sweep_without_killing), scenarios.SWEEPER_AND_PERSON),
    Variant("a sweeper that removes any gate", Code(sweep=_sweep_any_gate), scenarios.SWEEPER),
    Variant("one hand shared across fork", Code(_HandSharedAcrossFork), scenarios.FORK),
]
IN_A_CROWD = Variant("a lost comparison closes all gates", Code(_LostComparisonClosesAllGates), CROWD)
"""It takes four processes, more than the explorer goes through to the end: random runs must find it."""
