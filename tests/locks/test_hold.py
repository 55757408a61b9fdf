"""`hold()`: a lock that keeps itself alive while a block runs, and says so when it is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from swarm import TaskLockManager
from swarm.errors import LockHeld, LockLost, StoreError
from swarm.locks.table import LockTable
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT, HandClock, Run
from tests.support.processes import fork


def eventually(condition: object, timeout: float = 20.0) -> bool:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.01)
    return False


def _lose_and_fail(path: Path) -> None:
    (path / "locks" / "t.lock").unlink()
    _ = 1 / 0


def beat(manager: TaskLockManager) -> int:
    info = manager.get_lock_info("t")
    assert info is not None
    return int(info.holder["beat"])


def test_the_block_holds_the_task_and_gives_it_back(store: Store) -> None:
    manager, other = TaskLockManager("w", store=store), TaskLockManager("other", store=store)
    with manager.hold("t", ttl=60) as lease:
        assert lease.token > 0
        lease.check()
        assert not other.acquire_lock("t")
        with pytest.raises(LockHeld) as held:
            other.hold("t").start()
        assert (held.value.task_id, held.value.holder) == ("t", "w")
    assert other.acquire_lock("t")


def test_hold_sends_heartbeats_until_the_block_ends(isolated_swarm_dir: Path) -> None:
    manager = TaskLockManager("w")
    with manager.hold("t", ttl=1) as lease:
        assert eventually(lambda: beat(manager) >= 4)
        lease.check()
        assert manager.is_locked("t")
    assert not [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith(("lease", "heartbeat", "look"))
    ]
    assert manager.get_lock_info("t") is None


def test_hold_releases_the_lock_also_when_the_block_fails(store: Store) -> None:
    manager = TaskLockManager("w", store=store)
    with pytest.raises(ZeroDivisionError), manager.hold("t"):
        _ = 1 / 0
    assert not manager.is_locked("t")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease")]


def test_a_fraction_of_a_second_is_a_ttl_too(store: Store) -> None:
    with TaskLockManager("w", store=store).hold("t", ttl=1.5) as lease:
        assert lease.ttl == 1.5


def test_a_lost_lock_is_reported_by_check_and_by_on_lost(isolated_swarm_dir: Path) -> None:
    reported: list[LockLost] = []
    manager = TaskLockManager("w")
    with manager.hold("t", ttl=1, on_lost=reported.append) as lease:
        (isolated_swarm_dir / "locks" / "t.lock").unlink()
        assert TaskLockManager("thief").acquire_lock("t")
        with pytest.raises(LockLost):
            lease.check()
        assert eventually(lambda: reported)
    assert len(reported) == 1
    info = manager.get_lock_info("t")
    assert info is not None and info.worker == "thief"


def test_a_lost_lock_is_noticed_at_the_next_heartbeat_without_check(
    isolated_swarm_dir: Path,
) -> None:
    lost = threading.Event()
    with TaskLockManager("w").hold("t", ttl=1.2, on_lost=lambda error: lost.set()) as lease:
        (isolated_swarm_dir / "locks" / "t.lock").unlink()
        assert lost.wait(10)
        assert lease.seconds_left == 0
        with pytest.raises(LockLost):
            lease.check()


def test_a_loss_that_was_not_reported_is_raised_at_the_end_of_the_block(
    isolated_swarm_dir: Path,
) -> None:
    with pytest.raises(LockLost), TaskLockManager("w").hold("t", ttl=60):
        (isolated_swarm_dir / "locks" / "t.lock").unlink()


def test_an_error_of_the_block_is_not_hidden_by_the_loss(isolated_swarm_dir: Path) -> None:
    lease = TaskLockManager("w").hold("t", ttl=60)
    with pytest.raises(ZeroDivisionError), lease:
        _lose_and_fail(isolated_swarm_dir)


def test_a_lease_is_lost_before_others_may_take_over(store: Store, clock: HandClock) -> None:
    manager = TaskLockManager("w", store=store)
    with manager.hold("t", ttl=100) as lease:
        clock.pass_time(98.5)
        lease.check()
        clock.pass_time(1.0)
        assert manager.is_locked("t")
        with pytest.raises(LockLost, match="ran out"):
            lease.check()
        assert not TaskLockManager("other", store=store).acquire_lock("t")


def test_a_lease_is_lost_in_time_also_while_the_store_fails(
    isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: object, **kwargs: object) -> object:
        raise StoreError("the disk is on fire")

    lost = threading.Event()
    manager = TaskLockManager("w")
    with manager.hold("t", ttl=1, on_lost=lambda error: lost.set()) as lease:
        monkeypatch.setattr(FileStore, "replace", broken)
        monkeypatch.setattr(LockTable, "status", broken)
        lease.check()  # no other worker can have taken it yet
        assert lost.wait(10)
        with pytest.raises(LockLost):
            lease.check()
        monkeypatch.undo()
        monkeypatch.setenv("AI_SWARM_DIR", str(isolated_swarm_dir))
    assert not manager.is_locked("t"), "it was still ours, so it was released"


def test_a_short_failure_of_the_store_is_survived(
    isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 3
    real = FileStore.replace

    def failing(self: FileStore, key: str, old: bytes, new: bytes) -> bool:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreError("not now")
        return real(self, key, old, new)

    monkeypatch.setattr(FileStore, "replace", failing)
    manager = TaskLockManager("w")
    with manager.hold("t", ttl=1.5) as lease:
        assert eventually(lambda: failures < -1)
        lease.check()


def test_a_waiting_hold_acquires_the_lock_as_soon_as_it_is_released(store: Store) -> None:
    manager, other = TaskLockManager("w", store=store), TaskLockManager("other", store=store)
    assert other.acquire_lock("t", ttl=300)
    threading.Timer(0.2, other.release_lock, ("t",)).start()
    begun = time.monotonic()
    store.clock.steady = time.monotonic  # type: ignore[method-assign]
    with manager.hold("t", wait=60) as lease:
        assert time.monotonic() - begun < 30
        lease.check()


def test_waiting_ends_when_time_is_up(isolated_swarm_dir: Path) -> None:
    TaskLockManager("other").acquire_lock("t")
    begun = time.monotonic()
    with pytest.raises(LockHeld), TaskLockManager("w").hold("t", wait=0.3):
        pytest.fail("it is taken")
    assert time.monotonic() - begun >= 0.3


def test_a_forked_child_holds_nothing(isolated_swarm_dir: Path) -> None:
    manager = TaskLockManager("w")
    with manager.hold("t", ttl=60) as lease:

        def child() -> None:
            with pytest.raises(LockLost, match="forked"):
                lease.check()
            lease.stop()

        assert os.waitpid(fork(child), 0)[1] == 0
        lease.check()
        assert manager.is_locked("t")


PROGRAM = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from swarm import TaskLockManager
lease = TaskLockManager("w").hold("t", ttl=600)
lease.start()
print("held", flush=True)
"""


def test_a_holder_that_is_killed_frees_the_task_at_once(
    isolated_swarm_dir: Path, lock: Run
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + "time.sleep(600)"], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    manager = TaskLockManager("heir")
    assert not manager.acquire_lock("t")
    holder.send_signal(signal.SIGKILL)
    assert eventually(lambda: "Expired (holder gone)" in lock("check", "t").stdout), (
        "a dead process counts as alive until it is reaped"
    )
    holder.communicate()
    assert "t: Expired (holder gone; worker: w" in lock("list").stdout
    assert manager.acquire_lock("t")


def test_nothing_hangs_at_interpreter_exit(isolated_swarm_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert TaskLockManager("heir").acquire_lock("t"), "the process is gone, so the task is free"


def test_a_lease_is_used_once(store: Store) -> None:
    lease = TaskLockManager("w", store=store).hold("t")
    with pytest.raises(RuntimeError, match="not begun"):
        _ = lease.token
    with lease:
        pass
    with pytest.raises(RuntimeError, match="once"):
        lease.start()


def test_many_threads_wait_through_one_object(isolated_swarm_dir: Path) -> None:
    waiting, owner = TaskLockManager("w"), TaskLockManager("owner")
    for number in range(12):
        owner.acquire_lock(f"t{number}")
    failed: list[BaseException] = []

    def wait(number: int) -> None:
        try:
            with waiting.hold(f"t{number}", wait=30):
                pass
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    for number in range(12):
        owner.release_lock(f"t{number}")
    for thread in threads:
        thread.join(20)
    assert failed == [] and not any(thread.is_alive() for thread in threads)


def test_an_interrupt_while_a_lease_begins_leaves_nothing(
    isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = threading.Thread.start

    def interrupted(self: threading.Thread) -> None:
        real(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    manager = TaskLockManager("w")
    with pytest.raises(KeyboardInterrupt):
        manager.hold("t", ttl=1).start()
    assert not manager.is_locked("t")
    assert eventually(
        lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("lease")]
    )


def test_an_interrupt_while_a_lease_ends_still_releases_the_lock(
    isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FileStore.remove
    main = threading.current_thread()

    def interrupted(*args: object) -> object:
        if threading.current_thread() is main:
            raise KeyboardInterrupt
        return real(*args)  # type: ignore[arg-type]

    manager = TaskLockManager("w")
    monkeypatch.setattr(FileStore, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt), manager.hold("t", ttl=300):
        pass
    assert not manager.is_locked("t")


@pytest.mark.parametrize("verb", ["next_token", "token_bound", "create", "replace"])
@pytest.mark.parametrize("expired", [False, True], ids=["free", "expired"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_acquire_that_fails_holds_nothing(
    verb: str,
    expired: bool,
    after: bool,
    store: Store,
    clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if expired:
        TaskLockManager("old", store=store).acquire_lock("t", ttl=1)
        clock.pass_time(2)
    real = getattr(type(store), verb)
    calls = 0

    def failing(self: Store, *args: object) -> object:
        nonlocal calls
        calls += 1
        if not after:
            raise StoreError("the disk is full")
        result = real(self, *args)
        if calls == 1:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(type(store), verb, failing)
    manager = TaskLockManager("w", store=store)
    acquired = False
    try:
        acquired = manager.acquire_lock("t")
    except (StoreError, KeyboardInterrupt):
        pass
    monkeypatch.undo()
    assert manager.is_locked("t") == acquired


def test_a_ttl_shortened_by_hand_is_seen_by_check(store: Store, clock: HandClock) -> None:
    manager = TaskLockManager("w", store=store)
    with manager.hold("t", ttl=60) as lease:
        data = store.read("locks/t")
        assert data is not None
        store.replace(
            "locks/t", data, data.replace(b'"ttl": 60, "expires_at"', b'"ttl": 2, "expires_at"')
        )
        clock.pass_time(3)
        with pytest.raises(LockLost, match="edited"):
            lease.check()


def test_a_callback_that_fails_does_not_hide_the_loss(isolated_swarm_dir: Path) -> None:
    def broken(error: LockLost) -> None:
        raise ZeroDivisionError

    lease = TaskLockManager("w").hold("t", ttl=60, on_lost=broken)
    with pytest.raises(LockLost) as lost, lease:
        (isolated_swarm_dir / "locks" / "t.lock").unlink()
    assert "ZeroDivisionError" in lost.value.__notes__[0]
