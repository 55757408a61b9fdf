"""Acquire, keep and release locks while the store is slow, busy, or changed by other
processes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from swarm.errors import Busy, LockHeld, LockLost, NotYours, StoreError
from swarm.locks import table
from swarm.locks.record import Lock
from swarm.locks.table import LockTable
from swarm.stores.memory import MemoryStore
from swarm.system import family
from tests.conftest import HandClock

KEY = "locks/t"


class Meddled(MemoryStore):
    """A store on which another process acts just before chosen calls, and waiting takes
    no time.
    """

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock=clock)
        self.manual_clock = clock
        self.acts: dict[str, list[Callable[[], object]]] = {}
        self.watched: list[float] = []
        self.record_age = 0.0

    def before(self, verb: str, *acts: Callable[[], object]) -> None:
        """Call these acts before the next calls of this method, one each."""
        self.acts.setdefault(verb, []).extend(acts)

    def busy(self, verb: str, times: int, *, seconds: float = 0.0) -> None:
        def failing() -> None:
            self.manual_clock.pass_time(seconds)
            raise Busy("another process is changing it")

        self.before(verb, *[failing] * times)

    def write(self, **fields: Any) -> None:
        """Write a lock as a person would."""
        self.write_bytes(json.dumps({"task_id": "t", **fields}).encode())

    def write_bytes(self, data: bytes) -> None:
        assert self._swap(KEY, super().read(KEY), data)

    def read(self, key: str) -> bytes | None:
        self._act("read")
        return super().read(key)

    def create(self, key: str, data: bytes) -> bool:
        self._act("create")
        return super().create(key, data)

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        self._act("replace")
        return super().replace(key, old, new)

    def remove(self, key: str, old: bytes) -> bool:
        self._act("remove")
        return super().remove(key, old)

    def age(self, key: str) -> float:
        assert key == KEY
        return self.record_age

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        assert key == KEY and data == super().read(KEY)
        self.watched.append(timeout)
        self.manual_clock.pass_time(timeout)
        self._act("watch")

    def _act(self, verb: str) -> None:
        if self.acts.get(verb):
            self.acts[verb].pop(0)()


@pytest.fixture
def shared(clock: HandClock) -> Meddled:
    return Meddled(clock)


@pytest.fixture
def locks(shared: Meddled) -> LockTable:
    return LockTable(shared)


class TestAcquire:
    def test_lock_held_names_the_holder_since_when_and_until_when(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        locks.acquire("t", "alice", 60)
        with pytest.raises(LockHeld) as held:
            locks.acquire("t", "bob", 60)
        assert (held.value.task_id, held.value.holder) == ("t", "alice")
        since, until = "2026-02-02T02:40:00.000Z", "2026-02-02T02:41:00.000Z"
        text = str(held.value)
        assert text.startswith("Lock already exists for t:")
        assert [fact for fact in ("alice", since, until) if fact not in text] == []

    @pytest.mark.parametrize(
        ("fields", "facts"),
        [
            ({"worker": "alice"}, ("alice", "unknown time", "never expires")),
            (
                {"worker": "alice", "acquired_at": "2026-02-02T02:39:59Z", "ttl": 60},
                ("alice", "since 2026-02-02T02:39:59Z", "its lease ends"),
            ),
            ({}, ("half-written",)),
        ],
    )
    def test_fields_missing_from_an_edited_lock_are_not_invented(
        self, fields: dict[str, Any], facts: tuple[str, ...], locks: LockTable, shared: Meddled
    ) -> None:
        shared.write(**fields)
        with pytest.raises(LockHeld) as held:
            locks.acquire("t", "bob", 60)
        assert [fact for fact in facts if fact not in str(held.value)] == []
        assert (held.value.task_id, held.value.holder) == ("t", fields.get("worker", ""))

    def test_an_unreadable_lock_is_free_once_it_is_old(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        shared.write()
        shared.record_age = 6.0
        assert locks.acquire("t", "bob", 60).worker == "bob"

    @pytest.mark.parametrize(
        ("fields", "holder"),
        [({"worker": "alice", "ttl": 1, "acquired_at": "2026-01-01"}, "alice"), ({}, "")],
    )
    def test_acquire_yields_to_a_process_that_takes_the_expired_lock(
        self, fields: dict[str, Any], holder: str, locks: LockTable, shared: Meddled
    ) -> None:
        shared.write(**fields)
        shared.record_age = 6.0
        shared.busy("replace", 1)
        with pytest.raises(LockHeld) as held:
            locks.acquire("t", "bob", 60)
        text = str(held.value)
        assert text.startswith("Lock already exists for t:") and "another worker" in text
        assert (held.value.task_id, held.value.holder) == ("t", holder)

    def test_acquire_that_yields_does_not_wait(self, locks: LockTable, shared: Meddled) -> None:
        shared.write(worker="alice", ttl=1, acquired_at="2026-01-01")
        shared.busy("replace", 1)
        shared.busy("remove", 1, seconds=5.0)
        before = shared.manual_clock.steady()
        with pytest.raises(LockHeld):
            locks.acquire("t", "bob", 60)
        assert shared.manual_clock.steady() == before

    def test_a_lock_is_created_with_its_token(self, locks: LockTable, shared: Meddled) -> None:
        """A lock is never written without a token."""

        def fail() -> None:
            pytest.fail("it was written again")

        shared.before("replace", fail)
        assert locks.acquire("t", "bob", 60).token == 1

    def test_acquire_sees_a_process_that_was_faster(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        shared.before("create", lambda: LockTable(shared).acquire("t", "alice", 60))
        with pytest.raises(LockHeld, match="held by alice"):
            locks.acquire("t", "bob", 60)
        found = locks.status("t")
        assert found.lock is not None and found.lock.worker == "alice"

    def test_a_lock_that_changes_at_every_look_is_an_error(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        def flicker() -> None:
            shared.write(
                worker="x", ttl=1, acquired_at="2026-01-01", beat=len(shared.acts["replace"])
            )

        shared.before("replace", *[flicker] * 1000)
        flicker()
        with pytest.raises(StoreError, match="the lock for t changes all the time"):
            locks.acquire("t", "bob", 60)

    def test_a_lock_lost_while_its_token_is_corrected_is_reported_as_held(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        """Another process takes a token after ours and before our lock.

        While our token is corrected, a person gives the lock to alice.
        """
        shared.before("create", lambda: shared.next_token(KEY))
        shared.before("replace", lambda: shared.write(worker="alice"))
        with pytest.raises(LockHeld) as held:
            locks.acquire("t", "bob", 60)
        assert "for t: it was removed by hand" in str(held.value)
        assert (held.value.task_id, held.value.holder) == ("t", "")
        found = locks.status("t")
        assert found.lock is not None and found.lock.worker == "alice"

    def test_a_lock_whose_token_cannot_be_corrected_is_released(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        def broken() -> None:
            raise StoreError("the disk is on fire")

        shared.before("create", lambda: shared.next_token(KEY))
        shared.before("replace", broken)
        with pytest.raises(StoreError, match="fire"):
            locks.acquire("t", "bob", 60)
        assert not locks.status("t").exists

    def test_an_interrupt_after_the_corrected_token_was_written_releases_the_lock(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        real = shared.replace

        def interrupted(key: str, old: bytes, new: bytes) -> bool:
            real(key, old, new)
            raise KeyboardInterrupt

        shared.before("create", lambda: shared.next_token(KEY))
        shared.replace = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            locks.acquire("t", "bob", 60)
        assert not locks.status("t").exists

    def test_the_first_error_is_raised_when_undoing_fails_too(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        """The lock cannot be removed either: it ends with its lease."""

        def broken() -> None:
            raise StoreError("the disk is on fire")

        def worse() -> None:
            raise StoreError("the disk is gone")

        shared.before("create", broken)
        shared.before("remove", worse)
        with pytest.raises(StoreError, match="fire"):
            locks.acquire("t", "bob", 60)


class TestWaiting:
    def test_waiting_looks_again_when_the_lease_ends_and_not_before(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        locks.acquire("t", "alice", 60)
        assert locks.acquire("t", "bob", 60, wait=1000).worker == "bob"
        assert shared.watched == [pytest.approx(60.001)]

    def test_waiting_lasts_no_longer_than_its_timeout(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        locks.acquire("t", "alice", 60)
        with pytest.raises(LockHeld):
            locks.acquire("t", "bob", 60, wait=7)
        assert shared.watched == [7]

    def test_a_timeout_of_zero_does_not_wait(self, locks: LockTable, shared: Meddled) -> None:
        locks.acquire("t", "alice", None)
        with pytest.raises(LockHeld):
            locks.acquire("t", "bob", 60)
        assert shared.watched == []

    def test_a_lock_without_ttl_is_waited_for_until_it_changes(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        locks.acquire("t", "alice", None)
        shared.before("watch", lambda: None, lambda: locks.release("t", "alice"))
        with pytest.raises(LockHeld):
            locks.acquire("t", "bob", 60, wait=50)
        assert locks.acquire("t", "bob", 60, wait=50).worker == "bob"
        assert shared.watched == [50, 50]

    def test_a_holder_process_that_may_be_gone_is_polled(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        locks.acquire("t", "alice", 600, bound=True)
        with pytest.raises(LockHeld):
            locks.acquire("t", "bob", 60, wait=2)
        assert shared.watched == [0.5, 0.5, 0.5, 0.5]

    def test_an_unreadable_lock_is_polled(self, locks: LockTable, shared: Meddled) -> None:
        shared.write()
        with pytest.raises(LockHeld):
            locks.acquire("t", "bob", 60, wait=1)
        assert shared.watched == [0.5, 0.5]

    def test_a_lock_that_ended_meanwhile_is_not_waited_for(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        """Between the refused attempt and the look before waiting, the lease ends or
        the lock is released.
        """
        locks.acquire("t", "alice", 60)
        shared.before("read", lambda: None, lambda: shared.manual_clock.pass_time(100))
        assert locks.acquire("t", "bob", 60, wait=500).worker == "bob"
        assert shared.watched == [0.001]
        shared.before("read", lambda: None, shared._records.clear)
        assert locks.acquire("t", "carol", 60, wait=500).worker == "carol"
        assert shared.watched == [0.001]

    def test_a_lock_that_its_holder_keeps_is_waited_for_at_once(
        self, locks: LockTable, shared: Meddled, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it slept"))
        locks.acquire("t", "alice", 60, bound=True)
        shared.manual_clock.pass_time(0.01)
        with pytest.raises(LockHeld):
            locks.acquire("t", "bob", 60, wait=1)
        assert shared.watched == [0.5] * 2


class TestKnownRecord:
    """A table remembers the record it wrote.

    It reads only if another process has changed it.
    """

    def test_release_and_heartbeat_of_a_known_lock_read_nothing(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        lock = locks.acquire("t", "alice", 60)

        def reading() -> None:
            raise AssertionError

        shared.before("read", reading)
        again = locks.heartbeat("t", "alice", lock.token, known=lock)
        assert again.holder["beat"] == 1
        assert locks.release("t", "alice", lock.token, known=again) is again
        shared.acts.clear()
        assert shared.read(KEY) is None

    def test_release_and_heartbeat_read_a_lock_that_was_changed_meanwhile(
        self, locks: LockTable
    ) -> None:
        lock = locks.acquire("t", "alice", 60)
        locks.heartbeat("t", "alice")
        assert locks.heartbeat("t", "alice", lock.token, known=lock).holder["beat"] == 2
        assert locks.release("t", "alice", lock.token, known=lock).holder["beat"] == 2

    def test_the_lock_of_another_worker_is_neither_released_nor_refreshed(
        self, locks: LockTable
    ) -> None:
        lock = locks.acquire("t", "alice", 60)
        locks.break_lock("t")
        other = locks.acquire("t", "alice", 60)
        with pytest.raises(LockLost):
            locks.heartbeat("t", "alice", lock.token, known=lock)
        with pytest.raises(NotYours):
            locks.release("t", "alice", lock.token, known=lock)
        found = locks.status("t")
        assert found.lock is not None and found.lock.token == other.token


class TestBound:
    def test_a_bound_lock_names_this_process_and_an_unbound_lock_none(
        self, locks: LockTable
    ) -> None:
        assert locks.acquire("t", "alice", 60, bound=True).holder["pid"] == os.getpid()
        locks.release("t", "alice")
        assert "pid" not in locks.acquire("t", "alice", 60).holder

    def test_a_bound_lock_names_the_process_group_of_its_command(self, locks: LockTable) -> None:
        assert locks.acquire("t", "alice", 60, bound=True, group=77).holder["group"] == 77
        assert locks.heartbeat("t", "alice").holder["group"] == 77
        assert "group" not in locks.acquire("u", "alice", 60, bound=True).holder
        assert "group" not in locks.acquire("v", "alice", 60, group=77).holder, (
            "an unbound lock names no group"
        )


class TestHeartbeatAndRelease:
    OWNERS = pytest.mark.parametrize(
        ("verb", "error"), [("release", NotYours), ("heartbeat", LockLost)]
    )

    @OWNERS
    def test_not_yours_says_why(
        self, verb: str, error: type[NotYours | LockLost], locks: LockTable, shared: Meddled
    ) -> None:
        def reason(**fields: Any) -> str:
            if fields:
                shared.write(**fields)
            with pytest.raises(error) as refused:
                getattr(locks, verb)("t", "bob", 7)
            assert getattr(refused.value, "task_id", "") == "t"
            text, advice = (
                str(refused.value),
                " Stop working on the task." if verb == "heartbeat" else "",
            )
            assert text.endswith(advice)
            return text.removesuffix(advice)

        assert "no lock for t" in reason()
        assert "unreadable" in reason(beat=1)
        assert "not yours: alice holds it" in reason(worker="alice")
        assert "token 8, not 7" in reason(worker="bob", token=8)
        assert "names the task u" in reason(worker="bob", task_id="u")

    @pytest.mark.parametrize("verb", ["release", "heartbeat", "status"])
    def test_a_lock_without_task_id_belongs_to_the_task_of_its_key(
        self, verb: str, locks: LockTable, shared: Meddled
    ) -> None:
        shared.write(task_id=None, worker="bob")
        found = getattr(locks, verb)(*(("t",) if verb == "status" else ("t", "bob")))
        assert (found.lock if verb == "status" else found).task_id == "t"

    def test_release_returns_the_released_lock_and_heartbeat_the_new_one(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        taken = locks.acquire("t", "alice", 60)
        shared.manual_clock.pass_time(10)
        beaten = locks.heartbeat("t", "alice", taken.token)
        assert beaten.encode() == shared.read(KEY) != taken.encode()
        assert locks.release("t", "alice", taken.token).encode() == beaten.encode()
        assert not locks.status("t").exists

    def test_a_heartbeat_may_name_the_process_group_of_a_command(self, locks: LockTable) -> None:
        locks.acquire("t", "alice", 60, bound=True)
        assert "group" not in locks.heartbeat("t", "alice").holder
        assert locks.heartbeat("t", "alice", group=77).holder["group"] == 77
        assert locks.heartbeat("t", "alice").holder["group"] == 77
        assert locks.heartbeat("t", "alice", group=78).holder["group"] == 78

    @pytest.mark.parametrize("verb", ["release", "heartbeat"])
    def test_a_lock_that_changes_before_a_heartbeat_is_read_again(
        self, verb: str, locks: LockTable, shared: Meddled
    ) -> None:
        locks.acquire("t", "alice", 60)
        shared.before(
            "remove" if verb == "release" else "replace", lambda: locks.heartbeat("t", "alice")
        )
        result = getattr(locks, verb)("t", "alice")
        assert result.holder["beat"] == (1 if verb == "release" else 2)
        assert (not locks.status("t").exists) == (verb == "release")

    @pytest.mark.parametrize("verb", ["release", "heartbeat"])
    def test_release_and_heartbeat_retry_while_another_process_changes_the_lock(
        self, verb: str, locks: LockTable, shared: Meddled
    ) -> None:
        locks.acquire("t", "alice", 60)
        shared.busy("remove" if verb == "release" else "replace", 5, seconds=2.0)
        assert getattr(locks, verb)("t", "alice").holder["beat"] == (0 if verb == "release" else 1)
        assert (not locks.status("t").exists) == (verb == "release")

    @pytest.mark.parametrize("verb", ["release", "heartbeat"])
    def test_release_and_heartbeat_do_not_retry_forever(
        self, verb: str, locks: LockTable, shared: Meddled
    ) -> None:
        locks.acquire("t", "alice", 60)
        shared.busy(
            "remove" if verb == "release" else "replace", 50, seconds=table._BUSY_TIMEOUT / 2
        )
        with pytest.raises(Busy, match="is changing it"):
            getattr(locks, verb)("t", "alice")
        assert shared.manual_clock.steady() < 5_000 + 2.1 * table._BUSY_TIMEOUT


class TestBreaking:
    def test_break_lock_frees_the_task_and_returns_the_broken_lock(self, locks: LockTable) -> None:
        locks.acquire("t", "alice", 60)
        broken = locks.break_lock("t")
        assert broken is not None and (broken.worker, broken.task_id) == ("alice", "t")
        assert not locks.status("t").exists

    def test_break_lock_frees_an_unreadable_lock(self, locks: LockTable, shared: Meddled) -> None:
        shared.write()
        assert locks.break_lock("t") is None and not locks.status("t").exists

    def test_break_lock_without_a_lock_is_an_error(self, locks: LockTable) -> None:
        with pytest.raises(NotYours, match=r"^there is no lock for t\.$") as refused:
            locks.break_lock("t")
        assert refused.value.task_id == "t"

    def test_break_lock_breaks_a_lock_that_changed_meanwhile(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        shared.write(worker="alice")
        shared.before("remove", lambda: shared.write(task_id="", worker="bob"))
        broken = locks.break_lock("t")
        assert broken is not None and (broken.worker, broken.task_id) == ("bob", "t")


class TestBreakingASeenLock:
    def test_breaking_a_seen_lock_frees_the_task_and_returns_the_lock(
        self, locks: LockTable
    ) -> None:
        seen = locks.acquire("t", "alice", 60)
        broken = locks.break_lock("t", ("alice", seen.token))
        assert broken is not None and (broken.worker, broken.token) == ("alice", seen.token)
        assert not locks.status("t").exists

    def test_breaking_a_seen_lock_ignores_a_heartbeat_meanwhile(self, locks: LockTable) -> None:
        seen = locks.acquire("t", "alice", 60)
        locks.heartbeat("t", "alice")
        locks.break_lock("t", ("alice", seen.token))
        assert not locks.status("t").exists

    @pytest.mark.parametrize("successor", ["alice", "bob"])
    def test_breaking_a_seen_lock_leaves_its_successor_alone(
        self, locks: LockTable, successor: str
    ) -> None:
        seen = locks.acquire("t", "alice", 60)
        locks.release("t", "alice")
        later = locks.acquire("t", successor, 60)
        with pytest.raises(NotYours, match=rf"{successor} with token {later.token}") as refused:
            locks.break_lock("t", ("alice", seen.token))
        assert refused.value.task_id == "t" and locks.status("t").exists

    def test_breaking_a_seen_lock_leaves_a_successor_that_comes_meanwhile_alone(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        shared.write(worker="alice", token=1)
        shared.before("remove", lambda: shared.write(worker="alice", token=2))
        with pytest.raises(NotYours, match="held by alice with token 2 now"):
            locks.break_lock("t", ("alice", 1))
        assert locks.status("t").exists

    def test_breaking_a_seen_lock_leaves_another_worker_with_its_token_alone(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        shared.write(worker="bob")
        with pytest.raises(NotYours, match="held by bob with token None now"):
            locks.break_lock("t", ("alice", None))

    def test_breaking_an_unreadable_lock_that_was_seen_frees_the_task(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        shared.write()
        with pytest.raises(NotYours, match="unreadable now"):
            locks.break_lock("t", ("alice", 1))
        assert locks.break_lock("t", ("", None)) is None and not locks.status("t").exists

    def test_breaking_a_seen_lock_that_is_gone_is_an_error(self, locks: LockTable) -> None:
        with pytest.raises(NotYours, match="no lock for t") as refused:
            locks.break_lock("t", ("alice", 1))
        assert refused.value.task_id == "t"


class TestAskToStop:
    def test_the_holder_keeps_its_lock_and_sends_no_more_heartbeats(self, locks: LockTable) -> None:
        lock = locks.acquire("t", "w", 60)
        assert lock.token is not None
        locks.ask_to_stop("t", "w", lock.token, "cancelled")
        locks.ask_to_stop("t", "w", lock.token, "asked again")
        with pytest.raises(LockLost, match=r"t was cancelled\. Stop working") as caught:
            locks.heartbeat("t", "w", lock.token)
        assert caught.value.task_id == "t"
        assert locks.status("t").is_held_by("w", lock.token)
        assert locks.release("t", "w", lock.token).must_stop == "cancelled"

    def test_a_heartbeat_meanwhile_does_not_undo_it(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        lock = locks.acquire("t", "w", 60)
        shared.before("replace", lambda: locks.heartbeat("t", "w"))
        locks.ask_to_stop("t", "w", lock.token or 0, "cancelled")
        with pytest.raises(LockLost):
            locks.heartbeat("t", "w")

    def test_a_lock_without_task_id_belongs_to_the_task_of_its_key(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        shared.write_bytes(b'{"worker": "w", "token": 7, "ttl": 60}')
        locks.ask_to_stop("t", "w", 7, "cancelled")
        with pytest.raises(LockLost, match="t was cancelled"):
            locks.heartbeat("t", "w", 7)

    @pytest.mark.parametrize(("worker", "more"), [("v", 0), ("w", 1)])
    def test_another_claim_is_left_alone(self, locks: LockTable, worker: str, more: int) -> None:
        lock = locks.acquire("t", "w", 60)
        locks.ask_to_stop("t", worker, (lock.token or 0) + more, "cancelled")
        assert locks.release("t", "w").must_stop == ""

    def test_a_lock_that_is_gone_or_unreadable_is_left_alone(
        self, locks: LockTable, shared: Meddled
    ) -> None:
        locks.ask_to_stop("t", "w", 1, "cancelled")
        assert not locks.status("t").exists
        shared.write_bytes(b"\0")
        locks.ask_to_stop("t", "w", 1, "cancelled")
        assert shared.read(KEY) == b"\0"


class TestForeign:
    @pytest.fixture(autouse=True)
    def foreign(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(family, "may_speak_for", lambda holder: False)

    def test_a_lock_of_another_family_is_not_released_while_it_counts(
        self, locks: LockTable, clock: HandClock
    ) -> None:
        locks.acquire("t", "w", 60, bound=True)
        expected = f"t was not released: process {os.getpid()} .*swarm lock break t --yes"
        with pytest.raises(NotYours, match=expected) as caught:
            locks.release("t", "w")
        assert caught.value.task_id == "t" and locks.status("t").is_held
        clock.pass_time(61)
        assert locks.release("t", "w").worker == "w"

    def test_the_process_that_wrote_the_lock_may_release_it(self, locks: LockTable) -> None:
        lock = locks.acquire("t", "w", 60, bound=True)
        assert locks.release("t", "w", known=lock) is lock

    def test_a_lock_of_no_process_is_released_by_name(self, locks: LockTable) -> None:
        locks.acquire("t", "w", 60)
        assert locks.release("t", "w").worker == "w"


def test_a_token_is_larger_than_any_that_the_caller_knows(locks: LockTable) -> None:
    seen: list[Lock] = []
    assert locks.acquire("t", "w", 60, above=50, before_write=seen.append).token == 51
    assert [one.token for one in seen] == [51]
    assert locks.acquire("u", "w", 60, above=51).token == 52
    ignored = locks.acquire("v", "w", 60, above=10**30)  # a user wrote it
    assert (ignored.token or 0) < 100
    largest = locks.acquire("x", "w", 60, above=table.MAX_TOKEN)
    assert largest.token == table.MAX_TOKEN + 1


def test_a_caller_learns_of_a_lock_before_it_is_written(locks: LockTable, shared: Meddled) -> None:
    seen: list[Lock] = []
    shared.before("create", lambda: seen[0])
    lock = locks.acquire("t", "w", 60, before_write=seen.append)
    assert [one.encode() for one in seen] == [lock.encode()]


def test_a_caller_learns_of_a_corrected_token_before_it_is_written(
    locks: LockTable, shared: Meddled
) -> None:
    seen: list[Lock] = []
    shared.before("create", lambda: shared.next_token(KEY))
    shared.before("replace", lambda: seen[1])
    lock = locks.acquire("t", "w", 60, before_write=seen.append)
    assert [one.token for one in seen] == [1, 3] and lock.token == 3


def test_the_first_token_after_an_unreadable_lock_is_the_next_one(
    locks: LockTable, shared: Meddled
) -> None:
    shared.write_bytes(b"\0")
    shared.record_age = 1e6
    assert locks.acquire("t", "w", 60).token == 1


def test_every_lock_is_listed(locks: LockTable) -> None:
    for task in ("b", "a"):
        locks.acquire(task, "w", 60)
    locks.store.create("elsewhere/c", b"")
    assert list(locks.tasks()) == ["a", "b"]


def test_status_returns_the_lock_and_whether_it_is_held(locks: LockTable, shared: Meddled) -> None:
    assert not locks.status("t").exists
    locks.acquire("t", "alice", 60)
    shared.manual_clock.pass_time(20)
    found = locks.status("t")
    assert found.lock is not None
    assert (found.lock.worker, found.is_held, found.seconds_left) == ("alice", True, 40)
    shared.write()
    shared.record_age = 4
    found = locks.status("t")
    assert found.exists and found.lock is None
    assert (found.is_held, found.reason, found.seconds_left) == (True, "unreadable", 1)
