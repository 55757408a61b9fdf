"""`TaskLockManager`, method by method: what it refuses, what it passes on, and which
token it remembers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm import LockInfo, TaskLockManager
from swarm.errors import BadInput, LockLost
from swarm.stores.contract import Store
from swarm.system.clock import to_iso
from tests.conftest import HandClock

BY_NAME: dict[str, Callable[[TaskLockManager, str], object]] = {
    "acquire_lock": lambda manager, task: manager.acquire_lock(task),
    "release_lock": lambda manager, task: manager.release_lock(task),
    "update_heartbeat": lambda manager, task: manager.update_heartbeat(task),
    "is_locked": lambda manager, task: manager.is_locked(task),
    "get_lock_info": lambda manager, task: manager.get_lock_info(task),
    "hold": lambda manager, task: manager.hold(task),
    "_get_lock_path": lambda manager, task: manager._get_lock_path(task),
}


class TestRefusing:
    @pytest.mark.parametrize("method", BY_NAME)
    def test_a_bad_name_of_a_task_is_named(self, method: str, store: Store) -> None:
        with pytest.raises(
            BadInput, match=r"^task_id 'a/b' is not a valid name: it must not contain a slash"
        ):
            BY_NAME[method](TaskLockManager("w", store=store), "a/b")

    def test_a_bad_name_of_a_worker_is_named(self, store: Store) -> None:
        with pytest.raises(
            BadInput, match=r"^worker_id '' is not a valid name: it must not be empty\.$"
        ):
            TaskLockManager("", store=store)

    def test_fractions_are_for_hold_alone(self, store: Store) -> None:
        manager = TaskLockManager("w", store=store)
        with pytest.raises(BadInput, match="whole seconds only"):
            manager.acquire_lock("t", ttl=1.5)
        assert manager.hold("t", ttl=1.5).ttl == 1.5
        with pytest.raises(BadInput, match=r"^wait is -1"):
            manager.hold("t", wait=-1)


class TestTokens:
    def test_a_manager_remembers_the_token_of_a_lock_until_it_is_released(
        self, store: Store
    ) -> None:
        manager = TaskLockManager("w", store=store)
        assert manager.token("t") is None
        assert manager.acquire_lock("t")
        assert manager.token("t") == 1
        assert manager.release_lock("t")
        assert manager.token("t") is None

    def test_a_manager_remembers_the_token_of_a_lost_lock_so_that_no_other_lock_counts_as_its_own(
        self, store: Store, clock: HandClock
    ) -> None:
        sleeper, successor = TaskLockManager("w", store=store), TaskLockManager("w", store=store)
        sleeper.acquire_lock("t", ttl=1)
        clock.pass_time(2)
        assert successor.acquire_lock("t")
        assert not sleeper.release_lock("t") and not sleeper.update_heartbeat("t")
        assert sleeper.token("t") == 1 and successor.token("t") == 2

    def test_hold_forgets_the_token_of_an_acquisition_before_it(self, store: Store) -> None:
        """Else the manager could not release a lock of its own name that it was
        reported of later.
        """
        manager = TaskLockManager("w", store=store)
        assert manager.acquire_lock("t")
        data = store.read("locks/t")
        assert data is not None and store.remove("locks/t", data)
        with manager.hold("t", ttl=60):
            assert manager.token("t") is None
        assert TaskLockManager("w", store=store).acquire_lock("t")
        assert manager.release_lock("t")
        manager.hold("never acquired")

    def test_a_manager_changes_a_lock_of_its_own_without_reading_it(self, store: Store) -> None:
        """The record is as the manager wrote it last."""
        manager = TaskLockManager("w", store=store)
        manager.acquire_lock("t")
        read: list[str] = []
        store.read = read.append  # type: ignore[assignment]
        try:
            assert manager.update_heartbeat("t") and manager.update_heartbeat("t")
            assert manager.release_lock("t")
        finally:
            del store.read
        assert read == []

    def test_a_manager_uses_the_table_of_its_store_again(self, store: Store) -> None:
        manager = TaskLockManager("w", store=store)
        assert manager._table() is manager._table()


class TestHolding:
    def test_hold_passes_its_arguments_to_the_lease(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AI_SWARM_LOCK_TTL", "77")
        reported: list[LockLost] = []
        manager = TaskLockManager("w", store=store)
        lease = manager.hold("t", wait=3, on_lost=reported.append)
        assert (lease.task_id, lease.worker, lease.ttl, lease._wait) == ("t", "w", 77, 3)
        with lease:
            data = store.read("locks/t")
            assert data is not None and store.remove("locks/t", data)
        assert len(reported) == 1
        assert manager.hold("t")._wait == 0


class TestInfo:
    def test_lock_info_has_the_fields_of_the_record(self, store: Store, clock: HandClock) -> None:
        manager = TaskLockManager("w", store=store)
        manager.acquire_lock("t", ttl=60)
        clock.pass_time(5)
        manager.update_heartbeat("t")
        data = store.read("locks/t")
        info = manager.get_lock_info("t")
        assert data is not None and info == LockInfo(**json.loads(data))
        assert info.acquired_at != info.heartbeat_at

    def test_an_invalid_record_has_no_lock_info(self, store: Store) -> None:
        store.create("locks/t", b"{}")
        assert TaskLockManager("w", store=store).get_lock_info("t") is None
        assert TaskLockManager("w", store=store).get_lock_info("u") is None

    def test_is_expired_follows_the_rules_for_records(self, store: Store, clock: HandClock) -> None:
        manager = TaskLockManager("w", store=store)

        def expired(**fields: Any) -> bool:
            return manager.is_expired(LockInfo(**{**MINIMAL, **fields}))

        earlier, soon = to_iso(clock.now() - 50), to_iso(clock.now() + 50)
        assert expired() is False
        assert expired(heartbeat_at=earlier, ttl=40) is True
        assert expired(heartbeat_at=earlier, ttl=60) is False
        assert expired(acquired_at=earlier, ttl=40) is True, (
            "without a heartbeat it counts from its beginning"
        )
        assert expired(expires_at=earlier) is True
        assert expired(expires_at=soon) is False

    def test_is_expired_uses_the_steady_clock_if_the_stamp_fits(
        self, store: Store, clock: HandClock
    ) -> None:
        manager = TaskLockManager("w", store=store)
        manager.acquire_lock("t", ttl=60)
        info = manager.get_lock_info("t")
        assert info is not None
        clock.jump(1000)
        assert manager.is_expired(info) is False
        info.worker_id = "another"
        assert manager.is_expired(info) is True, "then the stamp no longer vouches"


MINIMAL = {"worker_id": "w", "task_id": "t", "acquired_at": "", "heartbeat_at": "", "ttl": None}


def test_paths_are_those_of_the_state_directory(isolated_swarm_dir: Path) -> None:
    manager = TaskLockManager("w")
    assert manager._get_locks_dir() == str(isolated_swarm_dir / "locks")
    assert manager._get_lock_path("t") == str(isolated_swarm_dir / "locks" / "t.lock")
    assert (isolated_swarm_dir / "locks").is_dir(), "a manager makes its directory"
