"""Lock code that is broken on purpose: a checker that cannot fail proves nothing.

The first five variants are known ways to take over a lock file that do not work. The
others are swarm's own code with one rule left out. Each variant names the scenario in
which the explorer must find its fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from proof import scenarios
from proof.disk import PRIVATE
from proof.random_depth import CROWD
from proof.simulated_process import Code
from proof.world import Scenario
from swarm.errors import Busy
from swarm.locks import table
from swarm.locks.expiry import new_lock
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.stores.file import swap
from swarm.stores.file.swap import SwapDirectory
from swarm.stores.file.syscalls import list_if_there


class Variant(NamedTuple):
    name: str
    code: Code
    scenario: Scenario


class _Plain(SwapDirectory):
    """Use neither intents nor scratch directories: compare, then act."""

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
        self._unlink_if_there(self.path(name))
        return True

    def _spare(self, data: bytes) -> str:
        path = self._spare_path()
        self._fs.write_new(path, data)
        return path

    def _spare_path(self) -> str:
        return f"{PRIVATE}/spare/{_system().getpid()}-{next(self._numbers)}"


class _DeleteThenCreate(LockTable):
    """The pseudo-code of `003`: delete an expired lock, then create one."""

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
            if not _is_old(self, breaking, swap.INTENT_TIMEOUT):
                raise Busy("another process is taking it over") from None
        done = super().replace(name, old, new)
        try:
            self._fs.rmdir(breaking)
        except FileNotFoundError:
            pass
        return done


class _SymlinkInThePath(SwapDirectory):
    """Make each scratch directory a symlink.

    The symlink can be removed, but a rename that has resolved it does not notice the
    removal.
    """

    def _next_file(self) -> tuple[str, str]:
        scratch, number = super()._next_file()
        return scratch, f"{scratch}-{number}"

    def _make_scratch(self) -> str:
        scratch: str = "s" + _system().urandom(8).hex()
        self._fs.symlink(f"{PRIVATE}/spare", f"{self._scratches}/{scratch}")
        self._own = (_system().getpid(), scratch)
        return scratch

    def _revoke(self, scratch: str) -> None:
        self._unlink_if_there(f"{self._scratches}/{scratch}")


class _RevokeDoesNothing(SwapDirectory):
    def _revoke(self, scratch: str) -> None:
        pass


class _IntentNameUsedTwice(SwapDirectory):
    """Use one intent name for all processes, with the owner in its content.

    A process may remove the intent of another process.
    """

    def _change(self, name: str, old: bytes, new: bytes | None) -> bool:
        scratch, number = self._next_file()
        draft, intent = f"{self._scratches}/{scratch}/{number}", f"{self._intents}/{name}"
        try:
            if new is not None:
                self._fs.write_new(draft, new)
            while True:
                try:
                    self._fs.symlink(scratch, intent)
                    break
                except FileExistsError:
                    self._step_over(intent)
            changed = self.read(name) == old
            if changed:
                self._fs.rename(
                    *((self.path(name), draft) if new is None else (draft, self.path(name)))
                )
            self._quietly(self._fs.unlink, intent)
        except FileNotFoundError as error:
            self._clean_up(scratch, draft, error)
            raise
        return changed

    def _step_over(self, intent: str) -> None:
        try:
            scratch = self._fs.readlink(intent)
        except FileNotFoundError:
            return
        if not _is_old(self, intent, swap.INTENT_TIMEOUT) and self._fs.exists(
            f"{self._scratches}/{scratch}"
        ):
            raise Busy("another process is changing it")
        self._revoke(scratch)
        self._quietly(self._fs.unlink, intent)


class _HeartbeatWithoutIntent(SwapDirectory):
    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        if b'"beat": 0' in new:
            return super().replace(name, old, new)
        scratch, number = self._next_file()
        draft = f"{self._scratches}/{scratch}/{number}"
        try:
            self._fs.write_new(draft, new)
            if self.read(name) != old:
                return False
            self._fs.rename(draft, self.path(name))
        except FileNotFoundError as error:
            self._clean_up(scratch, draft, error)
            return False
        return True


class _ComparesNothing(SwapDirectory):
    """Assume that the record is the expected record, without reading it."""

    _expected: bytes | None = None

    def _change(self, name: str, old: bytes, new: bytes | None) -> bool:
        self._expected = old
        try:
            return super()._change(name, old, new)
        finally:
            self._expected = None

    def read(self, name: str) -> bytes | None:
        return super().read(name) if self._expected is None else self._expected


class _CreatesWithoutReadingBack(_ComparesNothing):
    def _change(self, name: str, old: bytes, new: bytes | None) -> bool:
        return SwapDirectory._change(self, name, old, new)

    def _create(self, name: str, data: bytes) -> bool:
        self._expected = data
        try:
            return super()._create(name, data)
        finally:
            self._expected = None


class _CreatesWithoutRevoking(SwapDirectory):
    def _create(self, name: str, data: bytes) -> bool:
        scratch, number = self._next_file()
        draft = f"{self._scratches}/{scratch}/{number}"
        try:
            self._fs.write_new(draft, data)
            self._fs.link(draft, self.path(name))
        except FileExistsError:
            return False
        except FileNotFoundError as error:
            self._clean_up(scratch, draft, error)
            raise
        return self.read(name) == data


class _CreatesAndRevokesOnlyTheFirst(SwapDirectory):
    """Revoke only one of several intents after linking."""

    _creating = False

    def _create(self, name: str, data: bytes) -> bool:
        self._creating = True
        try:
            return super()._create(name, data)
        finally:
            self._creating = False

    def _revoke_all(self, intents: list[str]) -> None:
        super()._revoke_all(intents[:1] if self._creating else intents)


class _ChangesWithoutRevoking(SwapDirectory):
    def _revoke_rivals(self, name: str, mine: str, scratch: str) -> None:
        pass


class _RemovesIntentBeforeRevoking(SwapDirectory):
    def _revoke_all(self, intents: list[str]) -> None:
        for intent in intents:
            self._quietly(self._fs.unlink, f"{self._intents}/{intent}")
            self._revoke(swap._scratch_of(intent))


class _ComparesBeforeRevoking(_ComparesNothing):
    def _change(self, name: str, old: bytes, new: bytes | None) -> bool:
        return self.read(name) == old and super()._change(name, old, new)


class _ThreadsIgnoreEachOther(SwapDirectory):
    def _is_active(self, intent: str) -> bool:
        return swap._scratch_of(intent) != self._own[1] and super()._is_active(intent)

    def _revoke_all(self, intents: list[str]) -> None:
        super()._revoke_all(
            [intent for intent in intents if swap._scratch_of(intent) != self._own[1]]
        )


class _RevokesOnlyThePolite(SwapDirectory):
    """Do not revoke a rival that will raise Busy when it sees this process."""

    def _revoke_all(self, intents: list[str]) -> None:
        super()._revoke_all(
            [intent for intent in intents if swap._scratch_of(intent) < self._own[1]]
        )


class _ListsBeforeItAnnounces(SwapDirectory):
    _listed: list[str] | None = None

    def _change(self, name: str, old: bytes, new: bytes | None) -> bool:
        self._listed = self._intents_for(name)
        try:
            return super()._change(name, old, new)
        finally:
            self._listed = None

    def _revoke_rivals(self, name: str, mine: str, scratch: str) -> None:
        self._listed = [*(self._listed or []), mine]
        super()._revoke_rivals(name, mine, scratch)

    def _intents_for(self, name: str) -> list[str]:
        return super()._intents_for(name) if self._listed is None else list(self._listed)


class _TokenTakenTooEarly(LockTable):
    """Take the token before reading the record to replace.

    Compare the token only after linking.
    """

    def _try_to_acquire(
        self,
        task: str,
        worker: str,
        ttl: float | None,
        who: dict[str, object] | None,
        above: int,
        before_write: Callable[[Lock], object],
    ) -> Lock | None:
        key = f"locks/{task}"
        token = self.store.next_token(key)
        data = self.store.read(key)
        holder = ""
        if data is not None:
            status = self._judged(task, data)
            if status.is_held:
                raise table.held_error(task, status)
            holder = status.holder
        lock = new_lock(task, worker, ttl, token, self.clock, who)
        if not self._write(task, data, holder, lock):
            return None
        return self._settle_token(lock, before_write) if data is None else lock


class _TokenNotCompared(LockTable):
    def _settle_token(self, lock: Lock, before_write: Callable[[Lock], object]) -> Lock:
        return lock


class _ScratchSharedAcrossFork(SwapDirectory):
    def _next_file(self) -> tuple[str, str]:
        self._own = (_system().getpid(), self._own[1])
        return super()._next_file()


def _system() -> Any:
    """Return the module that `swap` uses as `os` at this moment."""
    return vars(swap)["os"]


def _is_old(records: SwapDirectory, path: str, age: float) -> bool:
    try:
        return records._fs.age(path) > age
    except FileNotFoundError:
        return False


def _collect_without_revoking(records: SwapDirectory) -> None:
    for intent in list_if_there(records._fs.names, records._intents):
        if swap._scratch_of(intent) and _is_old(
            records, f"{records._intents}/{intent}", swap.GARBAGE_AGE
        ):
            records._unlink_if_there(f"{records._intents}/{intent}")


def _listed(order: str, scenario: Scenario) -> Scenario:
    """Return a part of a scenario, so that a variant is found sooner."""
    return scenario._replace(rules=scenario.rules._replace(orders=order))


ALL = [
    Variant(
        "delete, then create (`003`)",
        Code(_Plain, _DeleteThenCreate),
        scenarios.TWO_TAKEOVERS_AND_RELEASE,
    ),
    Variant(
        "rename over and read back",
        Code(_RenameOverAndReadBack),
        scenarios.TWO_TAKEOVERS_AND_RELEASE,
    ),
    Variant(
        "rename aside and verify the inode",
        Code(_RenameAsideAndVerifyTheInode),
        scenarios.TWO_TAKEOVERS_AND_RELEASE,
    ),
    Variant(
        "a break-lock around takeover only",
        Code(_BreakLockAroundTakeoverOnly),
        scenarios.HOLDER_AND_TAKEOVER,
    ),
    Variant("a symbolic link in the path", Code(_SymlinkInThePath), scenarios.HOLDER_AND_TAKEOVER),
    Variant(
        "a revocation that does nothing", Code(_RevokeDoesNothing), scenarios.HOLDER_AND_TAKEOVER
    ),
    Variant("an intent name used twice", Code(_IntentNameUsedTwice), scenarios.INTENT_LEFT),
    Variant(
        "a heartbeat without an intent",
        Code(_HeartbeatWithoutIntent),
        scenarios.HOLDER_AND_TAKEOVER,
    ),
    Variant("a change without comparing", Code(_ComparesNothing), scenarios.HOLDER_AND_TAKEOVER),
    Variant("a creation without revoking", Code(_CreatesWithoutRevoking), scenarios.PERSON_REMOVES),
    Variant(
        "a creation without reading back",
        Code(_CreatesWithoutReadingBack),
        scenarios.PERSON_REMOVES,
    ),
    Variant(
        "a creation that revokes only one of several",
        Code(_CreatesAndRevokesOnlyTheFirst),
        _listed("backwards", scenarios.TWO_TAKEOVERS_AND_PERSON),
    ),
    Variant(
        "a change without revoking", Code(_ChangesWithoutRevoking), scenarios.HOLDER_AND_TAKEOVER
    ),
    Variant(
        "an intent removed before its owner is revoked",
        Code(_RemovesIntentBeforeRevoking),
        _listed("sorted", scenarios.INTENT_LEFT),
    ),
    Variant(
        "a comparison before the others are revoked",
        Code(_ComparesBeforeRevoking),
        scenarios.HOLDER_AND_TAKEOVER,
    ),
    Variant(
        "a rival that will be polite is not revoked",
        Code(_RevokesOnlyThePolite),
        scenarios.HOLDER_AND_TAKEOVER,
    ),
    Variant("threads that ignore each other", Code(_ThreadsIgnoreEachOther), scenarios.THREADS),
    Variant(
        "intents listed before the own one is announced",
        Code(_ListsBeforeItAnnounces),
        scenarios.HOLDER_AND_TAKEOVER,
    ),
    Variant("a token taken too early", Code(table=_TokenTakenTooEarly), scenarios.TWO_FRESH),
    Variant(
        "a token not compared after linking", Code(table=_TokenNotCompared), scenarios.TWO_ROUNDS
    ),
    Variant(
        "a garbage collector that does not revoke",
        Code(collect_garbage=_collect_without_revoking),
        scenarios.COLLECTOR_AND_PERSON,
    ),
    Variant(
        "one scratch directory shared across fork", Code(_ScratchSharedAcrossFork), scenarios.FORK
    ),
]
IN_A_CROWD = Variant(
    "an intent removed before its owner is revoked, among 8",
    Code(_RemovesIntentBeforeRevoking),
    CROWD,
)
"""The random runs must find the fault of this variant too."""
