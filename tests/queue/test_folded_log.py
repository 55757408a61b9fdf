"""The queue's log is folded and trimmed while workers work: no task is lost, and none is
done twice.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import LogTrimmed, StoreError
from swarm.formats import json_codec
from swarm.notify.queue_events import QueueEvents
from swarm.queue.events import LOG
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.stores import folded_log
from swarm.stores.contract import Store
from swarm.stores.folded_log import FoldedLog
from swarm.stores.log_fold import LogFold
from swarm.stores.memory import MemoryStore
from swarm.workers.upkeep import queue_log
from swarm.workers.upkeep.queue_log import LogUpkeep
from tests.conftest import HandClock
from tests.support.processes import fork
from tests.support.selection import SERVERS

WORKERS, TASKS, FOLDS = 3, 40, 36


def filled(store: Store, count: int = 6) -> TaskQueue:
    """A queue with tasks in many states."""
    queue = TaskQueue(store)
    for number in range(count):
        queue.add(f"t{number}", "x", after=[f"t{number - 1}"] if number % 3 == 1 else [])
    first = queue.claim("w", "t0")
    queue.done("t0", "w", first.token, "all tests pass")
    asking = queue.claim("w", "t2")
    queue.ask("t2", "w", asking.token, "Which one?", options=["a", "b"])
    queue.close_gate("claude", None, "a limit", "w")
    return queue


def folded(store: Store, clock: HandClock) -> None:
    """Fold the log, and forget what is before the fold."""
    upkeep, queue = LogUpkeep(store), TaskQueue(store)
    queue.counts()
    assert upkeep.run(queue.state(), fold=True)
    clock.pass_time(folded_log.TRIM_AFTER)
    queue.counts()
    assert not upkeep.run(queue.state())


def shown(store: Store) -> Any:
    """All that a process without a snapshot finds."""
    fold = FoldedLog(store, LOG, QueueState, snapshot="nothing")
    fold.read()
    state = fold.state
    order = [entry.id for entry in state.best(1e12, (), 100)]
    dump = state.dump()
    return json.loads(json.dumps(dump[:-2])), state.questions, state.gates.dump(), order


def test_a_process_that_begins_after_a_trim_finds_the_same_queue(
    store: Store, clock: HandClock
) -> None:
    filled(store)
    before = shown(store)
    folded(store, clock)
    assert store.is_trimmed(LOG)
    assert shown(store) == before
    assert b'"op": "add"' not in b"".join(store.read_log(LOG)[0]).replace(b'\\"', b"")


def test_a_reader_that_was_overtaken_goes_on_with_the_fold(store: Store, clock: HandClock) -> None:
    filled(store)
    late = FoldedLog(store, LOG, QueueState, snapshot="late")
    late.read()
    queue = TaskQueue(store)
    queue.add("more", "x")
    folded(store, clock)
    queue.add("last", "x")
    with pytest.raises(LogTrimmed):
        store.read_log(LOG, late.cursor)
    assert late.wait(0)
    late.read()
    assert list(late.state.entries) == [*(f"t{number}" for number in range(6)), "more", "last"]


def test_a_fold_whose_process_was_killed_counts_for_nothing(store: Store, clock: HandClock) -> None:
    filled(store)
    before = shown(store)
    log = FoldedLog(store, LOG, QueueEvents)
    log.read()
    steps = _appends_of_a_fold(log, store)
    for step in range(1, steps):
        with pytest.raises(KeyboardInterrupt):
            _fold_until(store, step)
        assert shown(store) == before
        log.read()
        assert not log.trim_folded() and not store.is_trimmed(LOG)
    folded(store, clock)
    assert shown(store) == before and store.is_trimmed(LOG)


def test_a_damaged_fold_is_never_trimmed_to(
    store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    append = store.append

    def damaging(log: str, line: bytes) -> str:
        return append(
            log, line.replace(b"tests pass", b"tests fail") if b'"part"' in line else line
        )

    monkeypatch.setattr(store, "append", damaging)
    queue = TaskQueue(store)
    queue.counts()
    assert LogUpkeep(store).run(queue.state(), fold=True)
    clock.pass_time(folded_log.TRIM_AFTER)
    queue.counts()
    LogUpkeep(store).run(queue.state())
    assert not store.is_trimmed(LOG)


def test_a_trimmed_log_without_a_fold_is_an_error_and_never_an_empty_queue(
    store: Store, clock: HandClock
) -> None:
    filled(store)
    store.rotate(LOG)
    cursor = store.append(LOG, b'{"op": "add", "id": "z", "prompt": "x"}')
    store.trim(LOG, cursor)
    with pytest.raises(StoreError, match="Restore"):
        TaskQueue(store).tasks()


def test_a_state_that_is_not_whole_yet_is_never_saved_or_shown(
    store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    monkeypatch.setattr(folded_log, "MAX_PART", 300)
    folded(store, clock)
    before, read_log = shown(store), store.read_log
    monkeypatch.setattr(FoldedLog, "SNAPSHOT_EVERY", 1)
    reads, failing = 0, True

    def one_line(log: str, cursor: str = "", limit: int = 0) -> tuple[list[bytes], str]:
        nonlocal reads
        reads += 1
        if failing and reads == 4:
            raise StoreError("the server does not answer")
        return read_log(log, cursor, 0)

    monkeypatch.setattr(store, "read_log", one_line)
    saved: list[int] = []
    monkeypatch.setattr(
        store, "cache_put", lambda name, data: saved.append(json.loads(data)["state"][0])
    )
    fold = FoldedLog(store, LOG, QueueState, snapshot="nothing")
    with pytest.raises(StoreError):
        fold.append(b'{"op": "fly"}')
    failing = False
    assert len(fold.state) == 6
    fresh = FoldedLog(store, LOG, QueueState, snapshot="nothing")
    fresh.append(b'{"op": "fly", "id": "a"}')
    assert set(saved) <= {6} and shown(store) == before


def test_a_long_queue_is_folded_in_parts(store: Store, clock: HandClock) -> None:
    queue = TaskQueue(store)
    text = 'ä\u2028"\\' * 40_000
    for number in range(3):
        queue.add(f"t{number}", text)
    before = shown(store)
    folded(store, clock)
    assert shown(store) == before
    assert queue.get("t2").spec.prompt == text


def test_the_numbers_of_notifications_go_on_after_a_trim(store: Store, clock: HandClock) -> None:
    queue = filled(store)
    whole = LogFold(store, LOG, QueueEvents, snapshot="whole")
    whole.read()
    folded(store, clock)
    again = FoldedLog(store, LOG, QueueEvents, snapshot="again")
    again.read()
    assert again.state.recent.dump() == whole.state.recent.dump()
    queue.answer("q1", "a", "user")
    claim = queue.claim("w", "t3")
    queue.fail("t3", "w", claim.token, "no", final=True)
    again.read()
    assert again.state.recent.total == whole.state.recent.total + 1


def test_the_log_is_folded_only_if_it_is_long(
    store: Store, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = filled(store)
    queue.counts()
    assert not LogUpkeep(store).run(queue.state())
    monkeypatch.setattr(queue_log, "FOLD_AFTER", 8)
    monkeypatch.setattr(queue_log, "FOLD_RATIO", 1)
    assert LogUpkeep(store).run(queue.state())
    queue.counts()
    assert queue.state().changes < 8
    assert not LogUpkeep(store).run(queue.state())


def test_a_log_is_not_trimmed_before_its_readers_had_time(store: Store, clock: HandClock) -> None:
    queue = filled(store)
    upkeep = LogUpkeep(store)
    queue.counts()
    assert upkeep.run(queue.state(), fold=True)
    clock.pass_time(folded_log.TRIM_AFTER - 1)
    queue.counts()
    upkeep.run(queue.state())
    assert not store.is_trimmed(LOG)


@pytest.mark.parametrize("live_store", ["file", *SERVERS], indirect=True)
def test_workers_lose_no_task_while_the_log_is_folded_and_folders_are_killed(
    live_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert _faults_of_a_run(live_store, monkeypatch, tmp_path) == []


def test_a_folder_that_trims_before_its_fold_is_complete_is_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: HandClock
) -> None:
    """The check of the test above, on a broken order of the steps."""
    store = MemoryStore(clock=clock)
    filled(store)
    before = shown(store)
    append = store.append

    def too_early(log: str, line: bytes) -> str:
        cursor = append(log, line)
        if b'"op": "fold"' in line and b'"part"' not in line:
            store.trim(log, cursor)
        return cursor

    monkeypatch.setattr(store, "append", too_early)
    log = FoldedLog(store, LOG, QueueEvents)
    log.read()
    with pytest.raises(KeyboardInterrupt):
        _fold_until(store, 2)
    with pytest.raises(StoreError, match="Restore"):
        assert shown(store) == before


def _fold_until(store: Store, step: int) -> None:
    """Fold, and be interrupted before the append number `step`."""
    append, count = store.append, 0

    def interrupted(log: str, line: bytes) -> str:
        nonlocal count
        count += 1
        if count > step:
            raise KeyboardInterrupt
        return append(log, line)

    store.append = interrupted  # type: ignore[method-assign]
    try:
        FoldedLog(store, LOG, QueueEvents).fold("2026-02-02T10:30:00.000Z")
    finally:
        del store.append


def _appends_of_a_fold(log: FoldedLog[QueueEvents], store: Store) -> int:
    texts = [json_codec.dumps(each) for each in log.state.kept()]
    return 2 + len(list(folded_log._cut(texts)))


def _faults_of_a_run(store: Store, monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    """Let workers do all tasks while the log is folded and trimmed again and again, each
    time by a process that is killed at another moment. Return what went wrong.
    """
    monkeypatch.setattr(folded_log, "TRIM_AFTER", 0.0)
    monkeypatch.setattr(queue_log, "TRIM_AFTER", 0.0)
    monkeypatch.setattr(queue_log, "FOLD_AFTER", 10)
    monkeypatch.setattr(queue_log, "FOLD_RATIO", 0)
    monkeypatch.setattr(folded_log, "MAX_PART", 300)
    queue = TaskQueue(store)
    for number in range(TASKS):
        queue.add(f"t{number:02d}", "x")

    def work(name: str) -> None:
        own, notes = TaskQueue(store), folder / name
        while True:
            try:
                claim = own.claim(name, ttl=60, bound=True)
            except Exception as error:
                if getattr(error, "why", "") in ("finished", "empty"):
                    return
                if getattr(error, "why", "") == "busy":
                    continue
                notes.write_text(f"fault {error!r}")
                raise
            own.done(claim.task.id, name, claim.token)
            with notes.open("a") as file:
                file.write(f"{claim.task.id}\n")

    workers = [fork(lambda name=f"w{number}": work(name)) for number in range(WORKERS)]
    left = set(workers)
    for number in range(FOLDS):
        step = number % 12

        def fold_and_die(step: int = step) -> None:
            _die_after(store, step)
            own = TaskQueue(store)
            own.counts()
            upkeep = LogUpkeep(store)
            upkeep.run(own.state(), fold=True)
            own.counts()
            upkeep.run(own.state())

        os.waitpid(fork(fold_and_die), 0)
        left = {pid for pid in left if os.waitpid(pid, os.WNOHANG) == (0, 0)}
    for pid in left:
        os.waitpid(pid, 0)
    done = [line for name in folder.glob("w*") for line in name.read_text().split("\n") if line]
    faults = [line for line in done if line.startswith("fault")]
    names = sorted(f"t{number:02d}" for number in range(TASKS))
    if sorted(done) != names:
        faults.append(f"done: {sorted(done)}")
    fresh = FoldedLog(store, LOG, QueueState, snapshot="nothing")
    fresh.read()
    if {entry.state for entry in fresh.state.entries.values()} != {"done"}:
        faults.append(f"states: {fresh.state.counts()}")
    if sorted(fresh.state.entries) != names:
        faults.append(f"tasks: {sorted(fresh.state.entries)}")
    return faults


def _die_after(store: Store, step: int) -> None:
    """Kill this process after so many changes of the store by a fold; 0 for never."""
    count = 0
    for name in ("append", "trim", "rotate", "cache_put"):
        change = getattr(store, name)

        def changed(*args: Any, change: Any = change) -> Any:
            nonlocal count
            found = change(*args)
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        setattr(store, name, changed)
