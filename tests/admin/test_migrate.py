"""Moving a swarm from one store to another: nothing is lost, nothing mixed, and no
token comes twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.admin.migrate import migrate
from swarm.errors import LockHeld, StoreError
from swarm.locks.table import LockTable
from swarm.queue.queue import TaskQueue
from swarm.queue.usage import Usage, UsageLog
from swarm.status.log import StatusLog
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore
from swarm.stores.registry import open_store
from swarm.workers.upkeep.queue_log import LogUpkeep
from tests.conftest import HandClock
from tests.support.command_line import run
from tests.support.servers.server import Server


@pytest.fixture
def old(tmp_path: Path) -> Iterator[FileStore]:
    """A swarm that has done something: records, tasks in several states, tokens that were given."""
    store = FileStore(str(tmp_path / "old"))
    queue = TaskQueue(store)
    for name in "abcd":
        queue.add(name, f"do {name} 任务")
    for name in "ab":
        queue.claim("w", name)
        queue.done(name, "w") if name == "a" else queue.fail(name, "w", reason="no")
    queue.close_gate("claude", None, "usage limit", "w")
    queue.reopen("a", "ada", "again")
    UsageLog(store).add("a", 1, "w", Usage("claude", cost_usd=1.5))
    StatusLog(store).append("HELP", "w", "other", "lonely")
    store.rotate("status")
    StatusLog(store).append("DONE", "w", "other", "helped")
    yield store
    store.close()


def every_line(store: Store, log: str) -> list[bytes]:
    return store.read_log(log)[0]


def states(store: Store) -> dict[str, str]:
    return {task.id: task.state for task in TaskQueue(store).tasks()}


def test_log_and_queue_are_copied_and_tokens_continue(
    old: FileStore, live_store: Store, tmp_path: Path
) -> None:
    new = live_store if not isinstance(live_store, FileStore) else FileStore(str(tmp_path / "new"))
    last = old.highest_token("locks")
    moved = migrate(old, new)
    for log in ("status", "tasks", "usage"):
        lines = every_line(old, log)
        assert len(lines) == getattr(moved, log) > 0
        assert every_line(new, log) == lines
    assert states(new) == states(old)
    assert TaskQueue(new).gates() == TaskQueue(old).gates() != []
    assert TaskQueue(new).get("a").previous == TaskQueue(old).get("a").previous
    assert UsageLog(new).totals() == UsageLog(old).totals()
    assert LockTable(new).acquire("a", "w", 60).token > last  # type: ignore[operator]
    LockTable(new).release("a", "w")
    back = FileStore(str(tmp_path / "back"))
    migrate(new, back)
    assert states(back) == states(old)
    assert LockTable(back).acquire("c", "w", 60).token > last + 1  # type: ignore[operator]


def test_a_parked_question_is_open_on_the_new_store_and_can_be_answered_there(
    old: FileStore, live_store: Store, tmp_path: Path
) -> None:
    new = live_store if not isinstance(live_store, FileStore) else FileStore(str(tmp_path / "new"))
    queue = TaskQueue(old)
    queue.add("after", "x", after=["d"])
    claim = queue.claim("w", "d")
    queue.park("d", "w", claim.token, "Which?", options=["a", "b"], session="s-1", work="a1" * 20)
    migrate(old, new)
    moved = TaskQueue(new)
    assert moved.questions() == queue.questions() != []
    assert (states(new)["d"], states(new)["after"]) == ("asking", "waiting")
    moved.answer("d", "b", "ann")
    again = moved.claim("w2", "d")
    assert again.token > claim.token and again.previous is not None
    assert again.previous.answers == (("Which?", "b", "person"),)
    assert (again.previous.session, again.previous.work) == ("s-1", "a1" * 20)
    moved.done("d", "w2", again.token)
    assert states(new)["after"] == "ready"


def test_a_late_token_of_the_old_store_is_refused_on_the_new_one(
    old: FileStore, tmp_path: Path
) -> None:
    claim = TaskQueue(old).claim("late", "c")
    LockTable(old).break_lock("c")
    new = FileStore(str(tmp_path / "new"))
    migrate(old, new)
    fresh = TaskQueue(new).claim("w", "c")
    assert fresh.token > claim.token


@pytest.mark.parametrize("where", ["old", "new"])
def test_a_migration_is_refused_while_a_lock_is_held_and_copies_nothing(
    where: str, old: FileStore
) -> None:
    new = MemoryStore()
    LockTable(old if where == "old" else new).acquire("busy", "other", 60)
    with pytest.raises(LockHeld, match=r"busy is held by other, at .*busy.* Stop all workers"):
        migrate(old, new)
    assert every_line(new, "status") == []


def test_expired_locks_are_not_copied(clock: HandClock, tmp_path: Path) -> None:
    early = FileStore(str(tmp_path / "early"), clock=clock)
    LockTable(early).acquire("t", "w", 5)
    clock.pass_time(6)
    new = MemoryStore()
    migrate(early, new)
    assert new.keys("locks") == []


def test_an_interrupted_migration_is_continued(old: FileStore, tmp_path: Path) -> None:
    new = FileStore(str(tmp_path / "new"))

    def interrupt(log: str, count: int) -> None:
        if (log, count) == ("tasks", 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(old, new, interrupt)
    assert len(every_line(new, "tasks")) == 3
    migrate(old, new)
    migrate(old, new)
    for log in ("status", "tasks"):
        assert every_line(new, log) == every_line(old, log)


@pytest.mark.parametrize("extra", [b"another", b""])
def test_a_new_store_with_a_log_of_its_own_is_refused(extra: bytes, old: FileStore) -> None:
    new = MemoryStore()
    if extra:
        new.append("tasks", extra)
    else:
        migrate(old, new)
        new.append("status", b"later")
    before = every_line(new, "tasks")
    with pytest.raises(StoreError, match="of its own: its line"):
        migrate(old, new)
    assert every_line(new, "tasks") == before


def test_a_write_to_the_old_store_during_the_copy_is_noticed(old: FileStore) -> None:
    def write(log: str, count: int) -> None:
        if (log, count) == ("tasks", 1):
            old.append("status", b"{}")

    with pytest.raises(StoreError, match="the log status of the old store during the copy"):
        migrate(old, MemoryStore(), write)


def test_a_second_migration_at_the_same_time_is_refused(old: FileStore, tmp_path: Path) -> None:
    refused: list[str] = []

    def another(log: str, count: int) -> None:
        if (log, count) == ("status", 2):
            with pytest.raises(LockHeld) as caught:
                migrate(old, FileStore(str(tmp_path / "new")))
            refused.append(str(caught.value))

    new = FileStore(str(tmp_path / "new"))
    migrate(old, new, another)
    assert len(refused) == 1
    assert every_line(new, "status") == every_line(old, "status") and new.keys("locks") == []


def test_the_token_of_a_lock_that_was_released_during_the_copy_is_exceeded(old: FileStore) -> None:
    def briefly(log: str, count: int) -> None:
        for _ in range(5):
            LockTable(old).acquire("t", "w", 60)
            LockTable(old).release("t", "w")

    new = MemoryStore()
    migrate(old, new, briefly)
    assert new.next_token("locks/t") > old.highest_token("locks")


class TestCommand:
    def test_migrate_from_a_directory_to_a_server_and_back(
        self, old: FileStore, redis: Server, tmp_path: Path
    ) -> None:
        url = redis.url("moved")
        done = run("migrate", old.root, url, "--json")
        assert done.code == 0, done.err
        told = done.json
        assert (
            told["migrated"]
            and told["tasks"] == len(every_line(old, "tasks"))
            and told["to"] == url
        )
        assert states(open_store(url)) == states(old)
        done = run("migrate", url, str(tmp_path / "back"))
        assert done.code == 0 and b"export SWARM_STORE=" in done.out
        assert states(FileStore(str(tmp_path / "back"))) == states(old)

    def test_held_locks_are_exit_1_and_name_the_holder(
        self, old: FileStore, tmp_path: Path
    ) -> None:
        LockTable(old).acquire("busy", "other", 60)
        done = run("migrate", old.root, str(tmp_path / "new"))
        assert done.code == 1 and b"busy is held by other" in done.err
        assert not (tmp_path / "new").exists()

    def test_invalid_arguments_of_migrate_are_refused(
        self, old: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("NOTHING", raising=False)
        for args, text in (
            ((old.root, old.root + "/."), "the same store"),
            ((old.root, "redis://:geheim@h/0"), "contains a password"),
            ((str(tmp_path / "absent"), old.root), "no such directory"),
            ((old.root, "env:NOTHING"), "env:VARIABLE"),
            ((old.root,), "needs TO"),
            ((old.root, "redis:u:geheim@h"), "redis://host/0"),
            ((old.root, "password=geheim"), "redis://host/0"),
        ):
            done = run("migrate", *args)
            assert done.code == 2 and text.encode() in done.err, done.err
            assert b"geheim" not in done.err

    def test_an_address_of_migrate_can_come_from_a_variable(
        self, old: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NEW_HOME", str(tmp_path / "new"))
        assert run("migrate", old.root, "env:NEW_HOME").code == 0
        assert states(FileStore(str(tmp_path / "new"))) == states(old)


def test_a_folded_and_trimmed_queue_can_be_moved(
    old: FileStore, live_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new = live_store if not isinstance(live_store, FileStore) else FileStore(str(tmp_path / "new"))
    before, upkeep, queue = states(old), LogUpkeep(old), TaskQueue(old)
    queue.counts()
    assert upkeep.run(queue.state(), fold=True)
    monkeypatch.setattr("swarm.workers.upkeep.queue_log.TRIM_AFTER", 0.0)
    queue.counts()
    upkeep.run(queue.state())
    assert old.is_trimmed("tasks")
    migrate(old, new)
    assert states(new) == states(old) == before
    TaskQueue(new).add("later", "x")
    assert states(new) == {**before, "later": "ready"}
    moved = TaskQueue(new)
    moved.counts()
    LogUpkeep(new).run(moved.state())  # the cursor in the fold is of the other store
    assert states(new) == {**before, "later": "ready"}
