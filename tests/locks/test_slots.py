"""Slots: never more holders than slots, and no value twice."""

from __future__ import annotations

import threading
import time

import pytest

from swarm.errors import BadInput, LockHeld, LockLost, NeedHeld, NotYours
from swarm.inputs import MAX_SLOTS, slot_names
from swarm.locks import slot_waits
from swarm.locks.companions import companions_of, text_of
from swarm.locks.manager import TaskLockManager
from swarm.locks.slot_waits import Waiter, waiters
from swarm.locks.slots import NAMESPACE, Slots, SlotTable, parts_of
from swarm.locks.table import LockTable
from swarm.stores.contract import Store
from tests.conftest import HandClock

TWO = Slots("build", ("1", "2"))


class TestAcquiring:
    def test_each_holder_has_a_slot_of_its_own_and_no_more_than_n_hold(self, store: Store) -> None:
        table = SlotTable(store)
        taken = [table.acquire_any(TWO, f"w{number}", 60) for number in range(2)]
        assert [lock.task_id for lock in taken] == ["build#1", "build#2"]
        with pytest.raises(NeedHeld) as refused:
            table.acquire_any(TWO, "w2", 60)
        assert dict(refused.value.holders) == {"build#1": "w0", "build#2": "w1"}
        table.release("build#1", "w0", taken[0].token)
        assert table.acquire_any(TWO, "w2", 60).task_id == "build#1"

    def test_a_slot_whose_lease_is_over_is_taken_over(self, store: Store, clock: HandClock) -> None:
        table = SlotTable(store)
        first = table.acquire_any(TWO, "w0", 10)
        table.acquire_any(TWO, "w1", 60)
        clock.pass_time(11)
        second = table.acquire_any(TWO, "w2", 60)
        assert second.task_id == first.task_id == "build#1"
        assert (second.token or 0) > (first.token or 0)
        with pytest.raises(LockLost):
            table.heartbeat("build#1", "w0", first.token)

    def test_no_two_holders_have_one_value_whatever_lists_they_give(self, store: Store) -> None:
        table = SlotTable(store)
        lists = (("8000", "8001"), ("8001", "8002"), ("8002", "8000"), ("8000", "8001"))
        found = []
        for number, values in enumerate(lists):
            try:
                found.append(table.acquire_any(Slots("port", values), f"w{number}", 60).task_id)
            except LockHeld:
                pass
        assert sorted(found) == ["port#8000", "port#8001", "port#8002"]

    def test_a_name_with_the_sign_of_slots_is_another_name(self, store: Store) -> None:
        table = SlotTable(store)
        inner = table.acquire_any(Slots("a#1", ("1",)), "w", 60)
        assert parts_of(inner.task_id) == ("a#1", "1")
        assert table.keys_of("a") == [] and table.keys_of("a#1") == ["1"]
        assert table.acquire_any(Slots("a", ("1",)), "w", 60).task_id == "a#1"

    def test_slots_are_no_locks(self, store: Store) -> None:
        SlotTable(store).acquire_any(TWO, "w", 60)
        assert list(LockTable(store).tasks()) == []
        assert not LockTable(store).status("build#1").exists

    def test_the_only_slot_of_a_worker_is_found_and_several_are_refused(self, store: Store) -> None:
        table = SlotTable(store)
        with pytest.raises(NotYours):
            table.held_by("build", "w")
        table.acquire_any(TWO, "w", 60)
        assert table.held_by("build", "w") == "1"
        table.acquire_any(TWO, "w", 60)
        with pytest.raises(BadInput, match="--slot"):
            table.held_by("build", "w")


class TestHolding:
    def test_a_lease_tells_its_slot_and_releases_it(self, live_store: Store) -> None:
        manager = TaskLockManager("w", store=live_store)
        with manager.hold("build", slots=2) as one, manager.hold("build", slots=2) as two:
            one.check()
            assert (one.slot, two.slot, one.task_id, two.key) == ("1", "2", "build", "build#2")
            with pytest.raises(LockHeld), manager.hold("build", slots=2):
                pass
        assert list(SlotTable(live_store).tasks()) == []
        with manager.hold("port", values="8000-8001,x") as lease:
            assert lease.slot == "8000"
        with manager.hold("lock") as lease:
            assert lease.slot == ""

    def test_a_slot_that_is_broken_is_a_lost_lease(self, live_store: Store) -> None:
        manager = TaskLockManager("w", store=live_store)
        lost: list[LockLost] = []
        with manager.hold("build", slots=1, on_lost=lost.append) as lease:
            SlotTable(live_store).break_lock("build#1")
            with pytest.raises(LockLost):
                lease.check()
        assert len(lost) == 1


class TestWaiting:
    def test_a_release_wakes_the_process_that_has_waited_longest(
        self, live_store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The interval is so long that only the wake can end the wait in time."""
        monkeypatch.setattr("swarm.locks.slots._POLL_INTERVAL", 30.0)
        table = SlotTable(live_store)
        held = [table.acquire_any(TWO, f"w{number}", 60) for number in range(2)]
        got: list[str] = []

        def wait(worker: str) -> None:
            lock = SlotTable(live_store).acquire_any(TWO, worker, 60, wait=60)
            got.append(f"{worker} {lock.task_id}")

        threads = []
        for number, worker in enumerate(("first", "second")):
            threads.append(threading.Thread(target=wait, args=(worker,)))
            threads[-1].start()
            while len(waiters(live_store)) != number + 1:
                time.sleep(0.01)
        assert [each.worker for each in waiters(live_store)] == ["first", "second"]
        begun = time.monotonic()
        table.release("build#2", "w1", held[1].token)
        threads[0].join(20)
        assert got == ["first build#2"]
        table.break_lock("build#1")
        threads[1].join(20)
        assert got == ["first build#2", "second build#1"] and time.monotonic() - begun < 20
        assert waiters(live_store) == []

    def test_a_wait_ends_with_the_last_error_and_leaves_no_record(self, live_store: Store) -> None:
        table = SlotTable(live_store)
        table.acquire_any(Slots("build", ("1",)), "w", 60)
        with pytest.raises(NeedHeld, match="The only slot of build is held: 1 by w"):
            table.acquire_any(Slots("build", ("1",)), "w2", 60, wait=0.2)
        assert live_store.keys(slot_waits.NAMESPACE) == []

    def test_a_waiter_that_was_woken_in_vain_announces_itself_again(self, store: Store) -> None:
        with Waiter(store, "build", "w") as waiter:
            waiter.announce()
            slot_waits.wake_first(store, "build")
            assert waiters(store) == []
            waiter.announce()
            assert [each.name for each in waiters(store)] == ["build"]
        assert waiters(store) == []

    def test_a_dead_waiter_is_passed_over(self, store: Store, clock: HandClock) -> None:
        dead = Waiter(store, "build", "dead")
        dead.announce()
        clock.pass_time(31)
        with Waiter(store, "build", "alive") as alive:
            alive.announce()
            assert [each.worker for each in waiters(store)] == ["alive"]
            slot_waits.wake_first(store, "build")
            assert store.keys(slot_waits.NAMESPACE) == []


class TestCompanions:
    def test_heartbeat_and_release_of_a_lock_reach_its_companions(
        self, store: Store, clock: HandClock
    ) -> None:
        table, slots = LockTable(store), SlotTable(store)
        slot = slots.acquire_any(TWO, "w", 10)
        other = table.acquire("migrations", "w", 10)
        text = text_of([(NAMESPACE, slot), ("locks", other)])
        lock = table.acquire("t", "w", 10, companions=text)
        assert [each.key for each in companions_of(lock)] == ["build#1", "migrations"]
        for _ in range(3):
            clock.pass_time(8)
            lock = table.heartbeat("t", "w", lock.token, known=lock)
        assert slots.status("build#1").is_held and table.status("migrations").is_held
        table.release("t", "w", lock.token)
        assert list(slots.tasks()) == [] and list(table.tasks()) == []

    def test_a_lost_companion_is_a_lost_lock(self, store: Store) -> None:
        table, slots = LockTable(store), SlotTable(store)
        slot = slots.acquire_any(TWO, "w", 10)
        lock = table.acquire("t", "w", 10, companions=text_of([(NAMESPACE, slot)]))
        slots.break_lock("build#1")
        with pytest.raises(LockLost, match="slot 1 of build") as lost:
            table.heartbeat("t", "w", lock.token)
        assert lost.value.task_id == "t"

    def test_a_broken_lock_of_no_process_frees_its_companions(self, store: Store) -> None:
        table, slots = LockTable(store), SlotTable(store)
        slot = slots.acquire_any(TWO, "w", 10)
        table.acquire("t", "w", 10, companions=text_of([(NAMESPACE, slot)]))
        table.break_lock("t")
        assert list(slots.tasks()) == []

    def test_a_damaged_list_of_companions_is_ignored(self, store: Store) -> None:
        table = LockTable(store)
        for text in ("x", "//", "slots/build#1", "slots/build#1/x", "slots//7", "a/b/c/d"):
            lock = table.acquire("t", "w", 10, companions=text)
            assert companions_of(lock) == []
            table.release("t", "w", table.heartbeat("t", "w").token)


class TestNames:
    @pytest.mark.parametrize(
        ("count", "values", "found"),
        [
            (3, None, ("1", "2", "3")),
            (None, "8000-8002", ("8000", "8001", "8002")),
            (None, "a, b,c-1", ("a", "b", "c-1")),
            (2, ["x", "y"], ("x", "y")),
            (None, [8000, 9000], ("8000", "9000")),
        ],
    )
    def test_slots_are_numbers_or_values(
        self, count: int | None, values: object, found: tuple[str, ...]
    ) -> None:
        assert slot_names(count, values) == found

    @pytest.mark.parametrize(
        ("count", "values"),
        [
            (0, None),
            (MAX_SLOTS + 1, None),
            (True, None),
            (None, None),
            (None, ""),
            (None, "a,a"),
            (None, "2-1"),
            (None, f"1-{MAX_SLOTS + 1}"),
            (None, "a b"),
            (None, "a#1"),
            (None, "a,,b"),
            (2, "a,b,c"),
            (None, 5),
        ],
    )
    def test_other_slots_are_refused(self, count: int | None, values: object) -> None:
        with pytest.raises(BadInput):
            slot_names(count, values)

    def test_a_slot_has_no_longer_name_than_a_lock(self) -> None:
        with pytest.raises(BadInput, match="bytes"):
            Slots("n" * 199, ("10",))
        Slots("n" * 198, ("1",))
