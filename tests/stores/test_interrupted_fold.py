"""An exception at any bytecode leaves a log fold as the log says, or makes it read
again; and no process ever saves another state than that of the log.
"""

from __future__ import annotations

import gc
import inspect
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from swarm.board.viewer import Viewer
from swarm.errors import SwarmError
from swarm.queue.events import LOG as TASKS
from swarm.queue.queue import TaskQueue
from swarm.queue.state import QueueState
from swarm.queue.task import TaskSpec
from swarm.status.log import LOG as STATUS
from swarm.status.log import StatusLog
from swarm.status.reader import StatusReader
from swarm.stores import log_fold
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.stores.log_fold import LogFold
from tests.conftest import HandClock
from tests.support.interrupts import Per, interrupted

FOLD = ("stores/log_fold.py",)
FOLDING = ("stores/log_fold.py", "queue/state.py", "queue/ready.py", "queue/queue.py")
CLAIMING = (
    "queue/claims.py",
    "queue/ending.py",
    "queue/log.py",
    "queue/choice.py",
    "queue/events.py",
    *FOLDING,
)
SUMMARISING = ("stores/log_fold.py", "status/reader.py", "status/summary.py")


@pytest.fixture(autouse=True)
def snapshot_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_fold.LogFold, "SNAPSHOT_EVERY", 3)
    monkeypatch.setattr(StatusReader, "SNAPSHOT_EVERY", 3)


def filled(path: Path) -> Store:
    """A queue with tasks in every state, and their status records."""
    store = FileStore(str(path))
    queue = TaskQueue(store)
    queue.add_all(
        [TaskSpec(name, "x", priority=int(name == "c"), max_attempts=2) for name in "abcdef"]
    )
    queue.add("g", "x", after=["a", "b"])
    ends: list[Callable[..., object]] = [queue.done, queue.fail, queue.release, queue.fail]
    for end in ends:
        claim = queue.claim("w")
        end(claim.task.id, "w", claim.token)
    claim = queue.claim("w")
    queue.fail(claim.task.id, "w", claim.token, delay=0.001)
    queue.cancel("e", "user")
    queue.retry("e", "user")
    queue.claim("v")
    StatusLog(store).append("WAIT", "v", "a", "which one?")
    return store


def folded(store: Store, log: str, make: Callable[[], Any]) -> Any:
    """The state of a log, read from its beginning."""
    state, cursor = make(), ""
    while True:
        lines, cursor = store.read_log(log, cursor)
        if not lines:
            return state.dump()
        for line in lines:
            state.apply(line)


def forget_snapshots(store: Store) -> None:
    store.cache_put(TASKS, b"none")
    store.cache_put(STATUS, b"none")


def seen(queue: TaskQueue) -> Any:
    return (
        [(task.fields(), queue.get(task.id).state) for task in queue.tasks()],
        queue.counts(),
        queue.blocked(),
        queue.is_finished(),
    )


@pytest.mark.parametrize(("within", "per"), [(FOLD, "opcode"), (FOLDING, "line")])
def test_an_interrupted_read_of_a_queue_changes_no_answer(
    tmp_path: Path, within: tuple[str, ...], per: Per
) -> None:
    store = filled(tmp_path)
    truth, wanted = folded(store, TASKS, QueueState), seen(TaskQueue(store))
    points = 0
    for at in count(1):
        forget_snapshots(store)
        queue = TaskQueue(store)
        if not interrupted(queue.counts, at=at, within=within, per=per):
            break
        points = at
        assert seen(queue) == wanted, at
        mine = LogFold(FileStore(str(tmp_path)), TASKS, QueueState)
        mine.read()
        assert mine.state.dump() == truth, at
    assert points > 200


def test_an_interrupted_claim_costs_no_attempt_and_keeps_no_lock(tmp_path: Path) -> None:
    """At every line: of its worker, which is not told that it has the task."""
    points = 0
    for at in count(1):
        store = FileStore(str(tmp_path / str(at)))
        queue = TaskQueue(store)
        queue.add("a", "x", max_attempts=1)
        if not interrupted(partial(queue.claim, "w"), at=at, within=CLAIMING, per="line"):
            break
        points = at
        task = TaskQueue(FileStore(str(tmp_path / str(at)))).get("a")
        assert (task.state, task.attempts) == ("ready", 0), at
        assert queue.holder("a") is None, at
        assert queue.claim("w").task.attempts == 1
    assert points > 50


@pytest.mark.parametrize("what", ["add", "claim", "done", "cancel"])
def test_an_interrupted_change_of_a_queue_leaves_what_its_log_says(
    tmp_path: Path, what: str
) -> None:
    """At every line. The call may have taken effect, or not."""
    store = filled(tmp_path / "0")
    points = 0
    for at in count(1):
        store = filled(tmp_path / str(at))
        queue = TaskQueue(store)
        held = queue.claim("mine")
        calls: dict[str, Callable[[], object]] = {
            "add": partial(queue.add, "new", "x"),
            "claim": partial(queue.claim, "mine"),
            "done": partial(queue.done, held.task.id, "mine", held.token),
            "cancel": partial(queue.cancel, "d", "user"),
        }
        if not interrupted(calls[what], at=at, within=FOLDING, per="line"):
            break
        points = at
        truth = folded(store, TASKS, QueueState)
        fresh = LogFold(FileStore(str(tmp_path / str(at))), TASKS, QueueState)
        fresh.read()
        assert fresh.state.dump() == truth, at
        assert seen(queue) == seen(TaskQueue(FileStore(str(tmp_path / str(at))))), at
        try:
            queue.claim("next")  # the object goes on, and finds what a new one finds
        except SwarmError:
            with pytest.raises(SwarmError):
                TaskQueue(store).claim("next")
    assert points > 20


@pytest.mark.parametrize(("within", "per"), [(FOLD, "opcode"), (SUMMARISING, "line")])
def test_an_interrupted_read_of_the_status_log_changes_no_answer(
    tmp_path: Path, within: tuple[str, ...], per: Per
) -> None:
    store = filled(tmp_path)
    reader = StatusReader(store)
    reader.read()
    truth, points = reader.state.dump(), 0
    for at in count(1):
        forget_snapshots(store)
        mine = StatusReader(store)
        if not interrupted(mine.read, at=at, within=within, per=per):
            break
        points = at
        mine.read()
        assert mine.state.dump() == truth, at
        fresh = StatusReader(FileStore(str(tmp_path)))
        fresh.read()
        assert fresh.state.dump() == truth, at
        gc.enable()
    assert points > 50


def test_a_reader_near_the_end_of_its_stack_reads_what_the_log_says(tmp_path: Path) -> None:
    store = filled(tmp_path)
    truth = folded(store, TASKS, QueueState)

    def read_below(depth: int, fold: LogFold[QueueState]) -> None:
        if depth:
            read_below(depth - 1, fold)
        else:
            fold.read()

    failed = 0
    here = len(inspect.stack(0))
    for room in range(1, 60):
        forget_snapshots(store)
        mine = LogFold(store, TASKS, QueueState)
        try:
            read_below(sys.getrecursionlimit() - here - room, mine)
        except RecursionError:
            failed += 1
        mine.read()
        assert mine.state.dump() == truth, room
    assert failed


def test_a_signal_handler_that_reads_the_queue_reads_what_the_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs in the middle of a read by the same thread."""
    store = filled(tmp_path)
    forget_snapshots(store)
    queue = TaskQueue(store)
    wanted = seen(TaskQueue(store))
    forget_snapshots(store)
    answers = []
    apply = QueueState.apply
    lines = 0

    def signalled(state: QueueState, line: bytes) -> bool:
        nonlocal lines
        lines += 1
        if lines == 5:
            signal.raise_signal(signal.SIGUSR1)
        return apply(state, line)

    before = signal.signal(signal.SIGUSR1, lambda *_: answers.append(seen(queue)))
    try:
        monkeypatch.setattr(QueueState, "apply", signalled)
        queue.counts()
        monkeypatch.undo()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert answers == [wanted] and seen(queue) == wanted


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_in_a_snapshot_changes_no_answer(tmp_path: Path, bit: int) -> None:
    wanted = seen(TaskQueue(filled(tmp_path)))
    path = tmp_path / ".cache" / TASKS
    saved = path.read_bytes()
    for at in range(len(saved)):
        damaged = bytearray(saved)
        damaged[at] ^= 1 << bit
        path.write_bytes(damaged)
        assert FileStore(str(tmp_path)).cache_get(TASKS) is None, at
    path.write_bytes(damaged)
    assert seen(TaskQueue(FileStore(str(tmp_path)))) == wanted
    path.write_bytes(saved[:-1])
    assert FileStore(str(tmp_path)).cache_get(TASKS) is None
    path.write_bytes(saved)
    assert FileStore(str(tmp_path)).cache_get(TASKS) is not None


def test_a_snapshot_under_another_name_is_not_used(tmp_path: Path) -> None:
    store = filled(tmp_path)
    cache = tmp_path / ".cache"
    (cache / STATUS).write_bytes((cache / TASKS).read_bytes())
    assert store.cache_get(STATUS) is None


def test_a_look_that_was_interrupted_leaves_no_task_in_a_wrong_state(
    store: Store, clock: HandClock
) -> None:
    """The worker was dead in the look before; another worker is at work now."""
    queue = TaskQueue(store)
    queue.add("a", "x")
    points = 0
    for at in count(1):
        queue.claim("dead", "a", ttl=5)
        viewer = Viewer(store)
        clock.pass_time(6)
        viewer.look()
        assert viewer.state_of(viewer.queue.entries["a"]) == "ready"
        claim = queue.claim("alive", "a", ttl=60)
        cut = interrupted(viewer.look, at=at, within=("board/viewer.py",), per="line")
        entry = viewer.queue.entries["a"]
        assert entry.token < claim.token or viewer.state_of(entry) == "running", at
        queue.release("a", "alive", claim.token)
        queue.cancel("a", "ada")
        queue.retry("a", "ada")
        if not cut:
            break
        points = at
    assert points > 20
