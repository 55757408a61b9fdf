"""Task locks in Python: taking, keeping, losing and giving back, on every store; and
what a lock file says.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from swarm import LockInfo, TaskLockManager
from swarm.locks import manager as task_lock
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from tests.conftest import HandClock, Run
from tests.support.processes import race


def lock_file(path: Path, task: str = "task-001") -> Path:
    return path / "locks" / f"{task}.lock"


def write_lock(path: Path, task: str = "task-001", **fields: Any) -> None:
    (path / "locks").mkdir(parents=True, exist_ok=True)
    lock_file(path, task).write_text(json.dumps({"task_id": task, **fields}))


def iso(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


class TestTaskLock:
    """What `002` asks for, under the names it gives."""

    def test_acquire_lock_creates_lock_file(self, isolated_swarm_dir: Path) -> None:
        TaskLockManager("worker-1").acquire_lock("task-001")
        assert lock_file(isolated_swarm_dir).is_file()
        assert os.listdir(isolated_swarm_dir / "locks") == ["task-001.lock"]

    def test_acquire_lock_returns_true_on_success(self, isolated_swarm_dir: Path) -> None:
        assert TaskLockManager("worker-1").acquire_lock("task-001") is True

    def test_acquire_lock_returns_false_if_locked(self, isolated_swarm_dir: Path) -> None:
        first = TaskLockManager("worker-1")
        assert first.acquire_lock("task-001")
        assert TaskLockManager("worker-2").acquire_lock("task-001") is False
        assert first.acquire_lock("task-001") is False

    def test_acquire_lock_allows抢占_expired(self, store: Store, clock: HandClock) -> None:  # noqa: N802, PLC2401
        TaskLockManager("worker-1", store=store).acquire_lock("task-001", ttl=60)
        clock.pass_time(61)
        second = TaskLockManager("worker-2", store=store)
        assert second.acquire_lock("task-001") is True
        info = second.get_lock_info("task-001")
        assert info is not None and info.worker_id == "worker-2"

    def test_release_lock_deletes_file(self, isolated_swarm_dir: Path) -> None:
        manager = TaskLockManager("worker-1")
        manager.acquire_lock("task-001")
        assert manager.release_lock("task-001") is True
        assert not lock_file(isolated_swarm_dir).exists()
        assert manager.release_lock("task-001") is False

    def test_release_lock_returns_false_if_not_owned(self, store: Store) -> None:
        TaskLockManager("worker-1", store=store).acquire_lock("task-001")
        other = TaskLockManager("worker-2", store=store)
        assert other.release_lock("task-001") is False
        assert other.is_locked("task-001")

    def test_update_heartbeat(self, store: Store, clock: HandClock) -> None:
        manager = TaskLockManager("worker-1", store=store)
        manager.acquire_lock("task-001")
        before = manager.get_lock_info("task-001")
        clock.pass_time(10)
        assert manager.update_heartbeat("task-001") is True
        after = manager.get_lock_info("task-001")
        assert before is not None and after is not None
        assert after.heartbeat_at > before.heartbeat_at and after.expires_at > before.expires_at
        assert (after.acquired_at, after.token, after.ttl) == (
            before.acquired_at,
            before.token,
            before.ttl,
        )

    def test_update_heartbeat_fails_if_not_owned(self, store: Store) -> None:
        TaskLockManager("worker-1", store=store).acquire_lock("task-001")
        other = TaskLockManager("worker-2", store=store)
        before = other.get_lock_info("task-001")
        assert other.update_heartbeat("task-001") is False
        assert other.update_heartbeat("nothing") is False
        assert other.get_lock_info("task-001") == before

    def test_is_locked(self, store: Store, clock: HandClock) -> None:
        manager = TaskLockManager("worker-1", store=store)
        assert manager.is_locked("task-001") is False
        manager.acquire_lock("task-001", ttl=60)
        assert manager.is_locked("task-001") is True
        clock.pass_time(61)
        assert manager.is_locked("task-001") is False
        assert manager.get_lock_info("task-001") is not None

    def test_get_lock_info(self, store: Store) -> None:
        manager = TaskLockManager("worker-1", store=store)
        assert manager.get_lock_info("task-001") is None
        manager.acquire_lock("task-001", ttl=60)
        info = manager.get_lock_info("task-001")
        assert isinstance(info, LockInfo)
        assert (info.worker_id, info.worker, info.task_id, info.ttl) == (
            "worker-1",
            "worker-1",
            "task-001",
            60,
        )
        assert info.acquired_at == info.heartbeat_at and info.token == manager.token("task-001")

    def test_is_expired_within_ttl(self, isolated_swarm_dir: Path) -> None:
        now = time.time()
        info = LockInfo("worker-1", "task-001", iso(now - 400), iso(now - 200), 300)
        assert TaskLockManager("worker-1").is_expired(info) is False

    def test_is_expired_past_ttl(
        self, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = time.time()
        manager = TaskLockManager("worker-1")
        assert (
            manager.is_expired(LockInfo("worker-1", "task-001", iso(now), iso(now - 302), 300))
            is True
        )
        fresh = LockInfo("worker-1", "task-001", iso(now), iso(now), 300)
        monkeypatch.setattr(time, "time", lambda: now + 302)
        assert manager.is_expired(fresh) is True

    def test_lock_content_json_format(self, isolated_swarm_dir: Path) -> None:
        TaskLockManager("worker-1").acquire_lock("task-001")
        text = lock_file(isolated_swarm_dir).read_text()
        record = json.loads(text)
        keys = [
            "task_id",
            "worker",
            "worker_id",
            "acquired_at",
            "heartbeat_at",
            "ttl",
            "expires_at",
            "token",
            "holder",
        ]
        assert list(record) == keys
        assert text.startswith(
            '{"task_id": "task-001", "worker": "worker-1", "worker_id": "worker-1", '
            '"acquired_at": "2'
        )
        assert (record["ttl"], record["token"]) == (300, 1)
        assert LockInfo(**record).token == 1

    def test_heartbeat_interval_default(self) -> None:
        assert task_lock.HEARTBEAT_INTERVAL == TaskLockManager.HEARTBEAT_INTERVAL == 10
        assert task_lock.DEFAULT_TTL == TaskLockManager.DEFAULT_TTL == 300

    def test_ttl_env_override(
        self, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = TaskLockManager("worker-1")
        assert manager._get_ttl() == 300
        monkeypatch.setenv("AI_SWARM_LOCK_TTL", "42")
        assert manager._get_ttl() == 42
        manager.acquire_lock("task-001")
        assert json.loads(lock_file(isolated_swarm_dir).read_text())["ttl"] == 42
        monkeypatch.setenv("AI_SWARM_LOCK_TTL", "soon")
        with pytest.raises(ValueError, match="AI_SWARM_LOCK_TTL"):
            manager.acquire_lock("task-002")

    def test_convenience_methods(self, isolated_swarm_dir: Path) -> None:
        manager = TaskLockManager("worker-1")
        assert manager._get_locks_dir() == str(isolated_swarm_dir / "locks")
        assert manager._get_lock_path("task-001") == str(lock_file(isolated_swarm_dir))
        assert (
            manager.acquire_lock("task-001")
            and manager.release_lock("task-001")
            and manager.acquire_lock("task-001")
        )

    def test_two_processes_cannot_both_acquire(self, isolated_swarm_dir: Path) -> None:
        winners = race(2, 100, lambda me, n: TaskLockManager(f"w{me}").acquire_lock(f"task-{n}"))
        assert [len(names) for names in winners] == [1] * 100


class TestOwnership:
    """A lock is changed only by who holds it now."""

    def test_a_worker_that_slept_past_its_lease_cannot_change_the_successors_lock(
        self, store: Store, clock: HandClock
    ) -> None:
        sleeper, successor = TaskLockManager("w", store=store), TaskLockManager("w", store=store)
        sleeper.acquire_lock("t", ttl=10)
        clock.pass_time(11)
        assert successor.acquire_lock("t", ttl=10)
        assert not sleeper.update_heartbeat("t")
        assert not sleeper.release_lock("t")
        assert successor.update_heartbeat("t")
        assert successor.release_lock("t")

    def test_an_expired_lock_that_was_not_taken_over_is_still_its_workers(
        self, store: Store, clock: HandClock
    ) -> None:
        manager = TaskLockManager("w", store=store)
        manager.acquire_lock("t", ttl=10)
        clock.pass_time(11)
        assert manager.update_heartbeat("t")
        assert manager.is_locked("t")
        clock.pass_time(11)
        assert manager.release_lock("t")

    def test_an_object_without_a_token_goes_by_the_workers_name(self, store: Store) -> None:
        TaskLockManager("w", store=store).acquire_lock("t")
        assert TaskLockManager("w", store=store).update_heartbeat("t")
        assert TaskLockManager("w", store=store).release_lock("t")

    def test_tokens_grow_over_release_takeover_and_removal_by_hand(
        self, store: Store, clock: HandClock
    ) -> None:
        tokens = []
        for step in range(9):
            manager = TaskLockManager(f"w{step}", store=store)
            assert manager.acquire_lock("t", ttl=10)
            tokens.append(manager.token("t"))
            if step % 3 == 0:
                manager.release_lock("t")
            elif step % 3 == 1:
                clock.pass_time(11)
                clock.jump(-86400)
            else:
                data = store.read("locks/t")
                assert data is not None and store.remove("locks/t", data)
        assert tokens == sorted(set(tokens))  # type: ignore[type-var]

    def test_a_token_that_was_taken_too_early_is_taken_again(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between drawing and creating, another takes the lock with a later token and
        gives it back.
        """
        slow, quick = TaskLockManager("slow", store=store), TaskLockManager("quick", store=store)
        real = type(store).create
        seen: list[int | None] = []

        def overtaken(self: Store, key: str, data: bytes) -> bool:
            monkeypatch.undo()
            assert quick.acquire_lock("t")
            seen.append(quick.token("t"))
            assert quick.release_lock("t")
            return real(self, key, data)

        monkeypatch.setattr(type(store), "create", overtaken)
        assert slow.acquire_lock("t")
        (before,), after = seen, slow.token("t")
        assert before is not None and after is not None and after > before
        info = slow.get_lock_info("t")
        assert info is not None and info.token == after

    def test_tokens_grow_over_a_restart_of_the_machine(self, tmp_path: Path) -> None:
        class Boot(HandClock):
            def __init__(self, name: str) -> None:
                super().__init__()
                self.name = name

            def identity(self) -> tuple[str, str]:
                return self.name, "time:[1]"

        tokens: list[int | None] = []
        for boot in ("one", "two", "two", "three"):
            manager = TaskLockManager("w", store=FileStore(str(tmp_path), clock=Boot(boot)))
            assert manager.acquire_lock("t")
            tokens.append(manager.token("t"))
            manager.release_lock("t")
            (counter,) = (tmp_path / ".locks" / "tokens").glob("[0-9]*")
            # what was on disk when the power failed
            os.truncate(counter, 10 if boot == "two" else 0)
        assert tokens == sorted(set(tokens))  # type: ignore[type-var]


class TestVocabularies:
    """A lock written in either form, by hand or by another program, counts."""

    FORMS = pytest.mark.parametrize("form", ["four", "five"])

    def write(
        self, path: Path, form: str, age: float, ttl: int | None = 300, worker: str = "worker-9"
    ) -> None:
        moment = time.time() - age
        if form == "four":
            expires = {} if ttl is None else {"expires_at": iso(moment + ttl)}
            write_lock(path, worker=worker, acquired_at=iso(moment), **expires)
        else:
            write_lock(
                path,
                worker_id=worker,
                acquired_at=iso(moment - 50),
                heartbeat_at=iso(moment),
                ttl=ttl,
            )

    @FORMS
    def test_a_lock_of_an_older_form_blocks_every_worker(
        self, form: str, isolated_swarm_dir: Path, lock: Run
    ) -> None:
        self.write(isolated_swarm_dir, form, age=0)
        manager = TaskLockManager("worker-1")
        assert manager.is_locked("task-001") and not manager.acquire_lock("task-001")
        assert not manager.release_lock("task-001") and not manager.update_heartbeat("task-001")
        info = manager.get_lock_info("task-001")
        assert info is not None and (info.worker_id, info.token) == ("worker-9", None)
        held = lock("acquire", "task-001", "worker-1")
        assert held.returncode == 1 and "held by worker-9" in held.stderr
        assert "Active" in lock("check", "task-001").stdout
        assert lock("list").stdout.startswith("task-001: Active (worker: worker-9, acquired: 2")
        assert lock("release", "task-001", "worker-1").returncode == 1

    @FORMS
    def test_the_worker_of_an_older_form_refreshes_and_releases_it(
        self, form: str, isolated_swarm_dir: Path, lock: Run
    ) -> None:
        self.write(isolated_swarm_dir, form, age=290)
        assert TaskLockManager("worker-9").update_heartbeat("task-001")
        info = TaskLockManager("worker-9").get_lock_info("task-001")
        assert info is not None and info.ttl == 300
        assert lock("heartbeat", "task-001", "worker-9").returncode == 0
        assert lock("release", "task-001", "worker-9").stdout == "Lock released: task-001\n"

    @FORMS
    def test_an_expired_lock_of_an_older_form_is_taken_over(
        self, form: str, isolated_swarm_dir: Path, lock: Run
    ) -> None:
        self.write(isolated_swarm_dir, form, age=302)
        assert not TaskLockManager("worker-1").is_locked("task-001")
        assert "Expired" in lock("check", "task-001").stdout
        assert lock("acquire", "task-001", "worker-1").returncode == 0
        assert "worker-1" in lock_file(isolated_swarm_dir).read_text()

    @FORMS
    def test_a_lock_of_an_older_form_without_an_end_never_expires(
        self, form: str, isolated_swarm_dir: Path
    ) -> None:
        self.write(isolated_swarm_dir, form, age=10**8, ttl=None)
        assert TaskLockManager("worker-1").is_locked("task-001")

    def test_a_script_blocks_python_and_the_other_way_round(
        self, isolated_swarm_dir: Path, lock: Run
    ) -> None:
        manager = TaskLockManager("worker-1")
        assert lock("acquire", "a", "worker-0").returncode == 0
        assert manager.acquire_lock("b")
        assert not manager.acquire_lock("a")
        assert lock("acquire", "b", "worker-0").returncode == 1

    def test_the_scripts_lock_never_expires_unless_asked(
        self, isolated_swarm_dir: Path, lock: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AI_SWARM_LOCK_TTL", "1")
        lock("acquire", "task-001", "worker-0", env={**os.environ})
        record = json.loads(lock_file(isolated_swarm_dir).read_text())
        assert (record["ttl"], record["expires_at"]) == (None, "")

    def test_a_heartbeat_set_back_by_hand_counts_as_expired(self, isolated_swarm_dir: Path) -> None:
        manager = TaskLockManager("worker-1")
        manager.acquire_lock("task-001", ttl=300)
        record = json.loads(lock_file(isolated_swarm_dir).read_text())
        record["heartbeat_at"] = iso(time.time() - 400)
        lock_file(isolated_swarm_dir).write_text(json.dumps(record))
        assert not manager.is_locked("task-001")
        assert TaskLockManager("worker-2").acquire_lock("task-001")

    def test_a_ttl_changed_by_hand_counts(self, store: Store, clock: HandClock) -> None:
        manager = TaskLockManager("worker-1", store=store)
        manager.acquire_lock("task-001", ttl=60)
        data = store.read("locks/task-001")
        assert data is not None
        store.replace(
            "locks/task-001",
            data,
            data.replace(b'"ttl": 60, "expires_at"', b'"ttl": 5, "expires_at"'),
        )
        clock.pass_time(6)
        assert not manager.is_locked("task-001")

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"acquired_at": "2026-02-02T10:00:00Z", "expires_at": "9999-12-31T00:00:00Z"},
            {"heartbeat_at": "2026-02-02T10:00:00Z", "ttl": 1e11},
            {"ttl": -5},
            {"expires_at": "2099-01-01T00:00:00Z"},
            {"holder": {"beat": 10**4000}},
        ],
    )
    def test_refreshing_what_a_person_wrote_gives_a_valid_lock(
        self, fields: dict[str, Any], isolated_swarm_dir: Path, lock: Run, log: Run
    ) -> None:
        write_lock(isolated_swarm_dir, worker="alice", **fields)
        assert lock("heartbeat", "task-001", "alice").returncode == 0
        assert log("validate").returncode == 0, lock_file(isolated_swarm_dir).read_text()
        assert TaskLockManager("bob").is_locked("task-001")

    def test_ttl_counts_where_the_two_ends_disagree(self, isolated_swarm_dir: Path) -> None:
        now = time.time()
        write_lock(
            isolated_swarm_dir,
            worker="w",
            worker_id="w",
            heartbeat_at=iso(now),
            ttl=300,
            expires_at=iso(now - 50),
        )
        assert TaskLockManager("x").is_locked("task-001")

    def test_a_lock_edited_to_another_worker_is_that_workers(
        self, isolated_swarm_dir: Path
    ) -> None:
        for key in ("worker", "worker_id"):
            manager = TaskLockManager("worker-1")
            assert manager.acquire_lock("task-001")
            record = json.loads(lock_file(isolated_swarm_dir).read_text())
            record[key] = "worker-2"
            lock_file(isolated_swarm_dir).write_text(json.dumps(record))
            assert not manager.release_lock("task-001")
            assert TaskLockManager("worker-2").release_lock("task-001")

    @pytest.mark.parametrize(
        "stamp",
        [
            "2026-02-02T10:30:00",
            "20260202T103000Z",
            "2026-02-02 10:30:00,5+01:00",
            "2026-W06-1T10:30Z",
        ],
    )
    def test_times_in_any_iso_form_are_read(self, stamp: str, isolated_swarm_dir: Path) -> None:
        write_lock(isolated_swarm_dir, worker_id="w", acquired_at=stamp, heartbeat_at=stamp, ttl=60)
        assert not TaskLockManager("x").is_locked("task-001")
        write_lock(
            isolated_swarm_dir,
            worker_id="w",
            acquired_at=stamp,
            heartbeat_at=stamp.replace("2026", "2096"),
            ttl=60,
        )
        assert TaskLockManager("x").is_locked("task-001")

    def test_a_lock_that_names_another_task_is_not_released(self, isolated_swarm_dir: Path) -> None:
        write_lock(isolated_swarm_dir, worker="w", acquired_at=iso(time.time()))
        lock_file(isolated_swarm_dir).rename(lock_file(isolated_swarm_dir, "task-002"))
        assert not TaskLockManager("w").release_lock("task-002")


class TestUnreadable:
    """A lock that makes no sense may still be being written; later it is nobody's."""

    KINDS = pytest.mark.parametrize(
        "content",
        [
            b"",
            b"{",
            b'{"task_id": "task-0',
            b"[]",
            b"null",
            b'{"task_id": "task-001"}',
            b"\xff\x00",
            b'{"worker": 5}',
            b"[" * 9999,
        ],
    )

    @KINDS
    def test_an_invalid_record_is_held_at_first_and_then_free(
        self, content: bytes, isolated_swarm_dir: Path, lock: Run
    ) -> None:
        path = lock_file(isolated_swarm_dir)
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        manager = TaskLockManager("worker-1")
        assert manager.is_locked("task-001") and not manager.acquire_lock("task-001")
        assert manager.get_lock_info("task-001") is None
        os.utime(path, (time.time() - 6, time.time() - 6))
        assert not manager.is_locked("task-001")
        assert "task-001: Expired (unreadable)" in lock("check", "task-001").stdout
        assert "task-001: Expired (unreadable)" in lock("list").stdout
        assert manager.acquire_lock("task-001")

    def test_an_invalid_record_from_the_future_is_not_held_for_ever(
        self, isolated_swarm_dir: Path
    ) -> None:
        path = lock_file(isolated_swarm_dir)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")
        os.utime(path, (time.time() + 86400, time.time() + 86400))
        assert TaskLockManager("worker-1").acquire_lock("task-001")

    @pytest.mark.parametrize(
        "fields",
        [
            {"ttl": "soon"},
            {"ttl": [1]},
            {"ttl": True},
            {"expires_at": "tomorrow"},
            {"ttl": float("inf")},
            {"ttl": 10**400},
            {"ttl": "nan"},
        ],
    )
    def test_an_invalid_end_is_no_end(
        self, fields: dict[str, Any], isolated_swarm_dir: Path
    ) -> None:
        write_lock(isolated_swarm_dir, worker="w", acquired_at="2020-01-01T00:00:00Z", **fields)
        assert TaskLockManager("x").is_locked("task-001")


@pytest.mark.parametrize("at", [1e18, float("nan"), "soon", None, True, -1e30, 10**400])
def test_a_forged_stamp_neither_frees_nor_keeps_a_lock(
    at: Any, store: Store, clock: HandClock
) -> None:
    manager = TaskLockManager("w", store=store)
    manager.acquire_lock("t", ttl=60)
    data = store.read("locks/t")
    assert data is not None
    record = json.loads(data)
    record["holder"]["at"] = at
    store.replace("locks/t", data, json.dumps(record).encode())
    if at != -1e30:  # that one says, in swarm's own words, that it is very old
        assert manager.is_locked("t")
    clock.pass_time(61)
    assert not manager.is_locked("t")


@pytest.mark.parametrize("ttl", [0, -1, 0.5, 315_360_001, float("nan"), float("inf"), True, "60"])
def test_a_ttl_out_of_range_is_refused_and_nothing_written(
    ttl: Any, isolated_swarm_dir: Path
) -> None:
    manager = TaskLockManager("worker-1")
    with pytest.raises(ValueError, match="ttl"):
        manager.acquire_lock("task-001", ttl=ttl)
    with pytest.raises(ValueError, match="ttl"):
        manager.hold("task-001", ttl=ttl)
    assert os.listdir(isolated_swarm_dir / "locks") == []


def test_removing_all_locks_is_a_clean_slate(isolated_swarm_dir: Path) -> None:
    manager = TaskLockManager("worker-1")
    assert manager.acquire_lock("task-001")
    before = manager.token("task-001")
    lock_file(isolated_swarm_dir).unlink()
    (isolated_swarm_dir / "locks").rmdir()
    assert not manager.is_locked("task-001") and not manager.update_heartbeat("task-001")
    assert manager.acquire_lock("task-001")
    after = manager.token("task-001")
    assert before is not None and after is not None and after > before


def test_the_manager_creates_its_directory(isolated_swarm_dir: Path) -> None:
    TaskLockManager("worker-1")
    assert (isolated_swarm_dir / "locks").is_dir()


def test_no_residue_is_left_behind(isolated_swarm_dir: Path) -> None:
    manager = TaskLockManager("worker-1")
    for number in range(20):
        manager.acquire_lock(f"t{number}")
        manager.update_heartbeat(f"t{number}")
        manager.release_lock(f"t{number}")
    assert os.listdir(isolated_swarm_dir / ".locks" / "intents") == []
    (hand,) = (isolated_swarm_dir / ".locks" / "scratch").iterdir()
    assert os.listdir(hand) == []
    del manager
    assert os.listdir(isolated_swarm_dir / ".locks" / "scratch") == []


def test_a_late_heartbeat_does_not_remember_a_lock_that_another_thread_released(
    tmp_path: Path,
) -> None:
    replaced, go_on = threading.Event(), threading.Event()

    class Slow(FileStore):
        def replace(self, key: str, old: bytes, new: bytes) -> bool:
            answer = super().replace(key, old, new)
            replaced.set()
            go_on.wait(30.0)
            return answer

    locks = TaskLockManager("w", store=Slow(str(tmp_path)))
    locks.acquire_lock("t")
    heart = threading.Thread(target=locks.update_heartbeat, args=("t",))
    heart.start()
    assert replaced.wait(30.0) and locks.release_lock("t") and locks.acquire_lock("t")
    go_on.set()
    heart.join()
    info = locks.get_lock_info("t")
    assert info is not None and locks.token("t") == info.token and locks.release_lock("t")
