"""What an agent has lives as long as its session, and no longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.agents.session import AgentSession
from swarm.errors import LockHeld, LockLost, NotYours, StoreError, WrongState
from swarm.locks.reservations import Reservations
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from tests.conftest import HandClock
from tests.support.servers.server import wait_until


@pytest.fixture
def session(live_store: Store) -> Iterator[AgentSession]:
    made = AgentSession(live_store, "agent", 1.0)
    yield made
    made.close()


def test_a_session_keeps_leases_beyond_their_ttl_and_releases_them_at_its_end(
    session: AgentSession, live_store: Store
) -> None:
    queue, locks = TaskQueue(live_store), LockTable(live_store)
    queue.add("login", "Fix it")
    claim, lease = session.claim(None), session.lock("README")
    time.sleep(2.0)
    for name, token in (("login", claim.token), ("README", lease.token)):
        found = locks.status(name)
        assert found.lock and found.is_held and found.lock.token == token
    assert [holding.name for holding in session.holds()] == [
        "login",
        "README",
    ] and not session.news()
    assert session.close(10)
    assert not locks.status("login").exists and not locks.status("README").exists
    task = queue.get("login")
    assert (task.state, task.attempts) == ("ready", 0)


def test_a_lock_that_another_worker_took_is_reported_once_and_cannot_be_ended(
    session: AgentSession, live_store: Store
) -> None:
    queue, locks = TaskQueue(live_store), LockTable(live_store)
    queue.add("login", "Fix it")
    session.claim("login")
    session.lock("README")
    locks.break_lock("login")
    locks.break_lock("README")
    queue.claim("other", "login")
    locks.acquire("README", "other", 60)
    wait_until(lambda: not session.holds(), "the loss is noticed at the next heartbeat")
    assert sorted(holding.name for holding in session.news()) == ["README", "login"]
    assert session.news() == []
    with pytest.raises(LockLost, match="other"):
        session.end("done", "login", "too late")
    with pytest.raises(LockLost, match="other"):
        session.unlock("README")
    assert queue.get("login").worker == "other"
    found = locks.status("README")
    assert found.lock and found.lock.worker == "other"


def test_a_task_can_be_ended_only_by_the_session_that_claimed_it_and_twice_does_no_harm(
    session: AgentSession,
) -> None:
    queue = session.queue
    queue.add("a", "x")
    queue.add("b", "x")
    queue.claim(session.worker, "b")  # by the same worker, but not here
    with pytest.raises(NotYours, match="call claim first"):
        session.end("done", "b")
    session.claim("a")
    assert session.end("fail", "a", "no luck").state == "ready"
    assert session.end("fail", "a", "no luck").attempts == 1
    assert not session.holds()
    session.lock("c")
    with pytest.raises(NotYours, match="Call unlock"):
        session.end("done", "c")
    session.claim("a")
    with pytest.raises(NotYours, match="Call done or fail"):
        session.unlock("a")


def test_a_waiting_session_gets_a_lock_that_becomes_free_and_gives_up_when_stopped(
    session: AgentSession, live_store: Store
) -> None:
    other = AgentSession(live_store, "other", 60.0)
    other.lock("README")
    threading.Timer(0.3, other.unlock, ["README"]).start()
    assert session.lock("README", wait=20).token
    begun = time.monotonic()
    with pytest.raises(LockHeld):
        other.lock("README", wait=20, stopped=lambda: time.monotonic() - begun > 0.2)
    assert time.monotonic() - begun < 5


def test_files_are_reserved_for_the_task_and_without_one_until_the_session_ends(
    session: AgentSession, live_store: Store
) -> None:
    queue, files = TaskQueue(live_store), Reservations(live_store)
    queue.add("login", "Fix it")
    session.claim("login")
    session.reserve(["src/login"])
    assert [(each.pattern, each.task_id) for each in files.all()] == [("src/login", "login")]
    session.end("done", "login")
    assert files.all() == []
    session.reserve(["docs", "README.md"])
    session.reserve(["docs"])
    time.sleep(1.5)  # longer than the lease
    assert [each.pattern for each in files.all()] == ["README.md", "docs"]
    session.unreserve(["README.md", "never had"])
    assert [each.pattern for each in files.all()] == ["docs"] and [
        it.name for it in session.holds()
    ] == ["files of agent"]
    session.unreserve(["docs"])
    assert session.holds() == [], "no lock is held without a reservation"
    session.reserve(["docs"])
    session.close(10)
    assert files.all() == []


def test_files_are_reserved_all_or_none(session: AgentSession, live_store: Store) -> None:
    files = Reservations(live_store)
    files.reserve("docs", "other", 60)
    session.reserve(["mine"])
    with pytest.raises(LockHeld, match="docs"):
        session.reserve(["mine", "src", "docs/x"])
    assert [each.pattern for each in files.all() if each.worker == "agent"] == ["mine"]


def test_a_session_cannot_end_its_assigned_task(live_store: Store) -> None:
    queue = TaskQueue(live_store)
    queue.add("a", "x")
    queue.add("b", "x")
    claim = queue.claim("worker-1", "a")
    session = AgentSession(live_store, "worker-1", 60, assigned_task=("a", claim.token))
    assert session.assigned_task() == "a"
    with pytest.raises(WrongState, match="your exit ends"):
        session.claim("b")
    with pytest.raises(WrongState, match="your exit ends"):
        session.end("done", "a")
    queue.release("a", "worker-1", claim.token)
    assert session.assigned_task() == ""
    assert session.claim(None).task.id in ("a", "b")
    session.close()


def test_a_lease_that_ran_out_during_a_pause_is_lost_before_any_heartbeat(
    store: Store, clock: HandClock
) -> None:
    session = AgentSession(store, "agent", 300)
    session.lock("README")
    clock.pass_time(400)
    assert session.holds() == [] and session.has("README") is None
    assert "ran out" in session.why_lost("README")
    assert [holding.name for holding in session.news()] == ["README"]
    session.close()


class _Stuck(FileStore):
    """A store that does not answer for a while."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.answers = threading.Event()
        self.answers.set()
        self.asked = threading.Event()

    def create(self, key: str, data: bytes) -> bool:
        self.asked.set()
        self.answers.wait()
        return super().create(key, data)

    def remove(self, key: str, old: bytes) -> bool:
        self.answers.wait()
        return super().remove(key, old)


def test_a_store_that_does_not_answer_does_not_delay_the_end_of_a_session_beyond_its_timeout(
    tmp_path: Path,
) -> None:
    store = _Stuck(tmp_path / "swarm")
    session = AgentSession(store, "agent", 60.0)
    session.lock("README")
    store.answers.clear()
    begun = time.monotonic()
    assert not session.close(0.3)
    assert time.monotonic() - begun < 20
    store.answers.set()
    wait_until(lambda: not LockTable(store).status("README").exists, "it was only late")


def test_a_lock_that_is_acquired_while_the_session_ends_is_released(tmp_path: Path) -> None:
    store = _Stuck(tmp_path / "swarm")
    session = AgentSession(store, "agent", 60.0)
    store.answers.clear()
    taking = threading.Thread(target=session.lock, args=("README",))
    taking.start()
    assert store.asked.wait(10)
    ending = threading.Thread(target=session.close, args=(10,))
    ending.start()
    ending.join(0.2)
    store.answers.set()
    ending.join()
    taking.join()
    assert list(LockTable(store).tasks()) == []


def test_an_ended_session_takes_nothing(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "swarm"))
    TaskQueue(store).add("a", "x")
    session = AgentSession(store, "agent", 60.0)
    session.close()
    for begin in (lambda: session.lock("README"), lambda: session.claim("a")):
        with pytest.raises(StoreError, match="has ended"):
            begin()
    assert list(LockTable(store).tasks()) == []
    assert TaskQueue(store).get("a").attempts == 0


def test_a_late_done_is_accepted_while_no_other_worker_has_the_task(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "swarm"))
    queue = TaskQueue(store)
    queue.add("a", "x")
    session = AgentSession(store, "agent", 1.0)
    session.claim("a")
    LockTable(store).break_lock("a")
    wait_until(lambda: bool(session.news()), "the loss is noticed")
    assert session.end("done", "a", "late, but done").state == "done"
    assert [record["state"] for _, record in StatusLog(store).query("a")] == ["START", "DONE"]


def test_a_session_ends_its_locks_though_no_thread_can_be_started(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, locks = TaskQueue(live_store), LockTable(live_store)
    queue.add("login", "Fix it")
    queue.add("signup", "Fix it")
    session = AgentSession(live_store, "agent", 30.0)
    session.claim("login")
    session.claim("signup")
    session.lock("README")
    session.lock("CHANGELOG")
    monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    assert session.end("done", "login").state == "done"
    session.unlock("README")
    assert session.close(10)
    assert queue.get("signup").attempts == 0
    for name in ("login", "signup", "README", "CHANGELOG"):
        assert not locks.status(name).exists


def test_nothing_is_locked_if_no_thread_can_be_started(
    live_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = AgentSession(live_store, "agent", 30.0)
    monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    with pytest.raises(StoreError, match="thread"):
        session.lock("README")
    assert not LockTable(live_store).status("README").exists


def refuse_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
