"""A task never has two holders: many processes on one lock, stopped or killed at every
call.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from swarm.errors import LockHeld
from swarm.locks.table import LockTable
from swarm.stores.file import swap
from swarm.stores.file.syscalls import Filesystem
from tests.support.lock_files import table, write_expired
from tests.support.processes import Counting, Stopped, race
from tests.support.record_directory import FIRST, LAST

PROCESSES = 8


def attempts(path: Path) -> Callable[[int, int], bool]:
    """Acquire the lock of a round with swarm."""
    tables: dict[int, LockTable] = {}

    def attempt(me: int, number: int) -> bool:
        if me not in tables:
            tables[me] = table(path)
        try:
            tables[me].acquire(f"t{number}", f"w{me}", 300)
        except LockHeld:
            return False
        return True

    return attempt


def test_one_of_many_takes_over_an_expired_lock(tmp_path: Path) -> None:
    rounds = 2000
    write_expired(tmp_path, rounds)
    winners = race(PROCESSES, rounds, attempts(tmp_path))
    assert [len(won) for won in winners] == [1] * rounds
    for number, (winner,) in enumerate(winners):
        assert (
            json.loads((tmp_path / "locks" / f"t{number}.lock").read_text())["worker"]
            == f"w{winner}"
        )
    assert len({winner for (winner,) in winners}) > 1, (
        "one process always won: the processes did not compete"
    )
    assert os.listdir(tmp_path / ".locks" / "intents") == []


def test_one_of_many_takes_a_free_lock(tmp_path: Path) -> None:
    rounds = 2000
    winners = race(PROCESSES, rounds, attempts(tmp_path))
    assert [len(won) for won in winners] == [1] * rounds


def test_the_race_test_catches_the_pseudo_code_of_document_003(tmp_path: Path) -> None:
    """Delete an expired lock, then create one: the race must see two winners, or it
    proves nothing.
    """
    rounds = 2000
    write_expired(tmp_path, rounds)

    def acquire_lock(me: int, number: int) -> bool:
        path = tmp_path / "locks" / f"t{number}.lock"
        try:
            lock = json.loads(path.read_text())
            if lock["worker_id"] != "dead":
                return False
            os.unlink(path)
        except (FileNotFoundError, ValueError):
            pass
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        os.write(fd, json.dumps({"worker_id": f"w{me}"}).encode())
        os.close(fd)
        return True

    winners = race(PROCESSES, rounds, acquire_lock)
    assert max(len(won) for won in winners) >= 2


def test_tokens_grow_in_the_order_of_holding(tmp_path: Path) -> None:
    """Each holder appends its token while it holds the lock: the file is in the order
    of the tokens.
    """
    order = tmp_path / "order"

    def work(me: int, number: int) -> bool:
        mine = table(tmp_path)
        lock = mine.acquire("t", f"w{me}", 300, wait=60)
        fd = os.open(order, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(fd, f"{lock.token}\n".encode())
        os.close(fd)
        mine.release("t", f"w{me}", lock.token)
        mine.store.close()
        return True

    race(PROCESSES, 40, work)
    tokens = [int(line) for line in order.read_text().split()]
    assert len(tokens) == PROCESSES * 40
    assert tokens == sorted(set(tokens))


Operation = Callable[[LockTable], object]
OPERATIONS: dict[str, Operation] = {
    "acquire": lambda locks: locks.acquire("t", "sleeper", 60).token,
    "takeover": lambda locks: locks.acquire("t", "sleeper", 60).token,
    "heartbeat": lambda locks: locks.heartbeat("t", "sleeper").token,
    "release": lambda locks: locks.release("t", "sleeper").token,
}


def prepare(path: Path, operation: str) -> None:
    if operation == "takeover":
        write_expired(path, 1)
        (path / "locks" / "t0.lock").rename(path / "locks" / "t.lock")
    elif operation != "acquire":
        table(path).acquire("t", "sleeper", 60)


def stopped_everywhere(tmp_path: Path, operation: str) -> Iterator[tuple[Path, Stopped]]:
    """Stop the operation, in a process of its own, before its first filesystem call,
    its second, and so on.
    """
    for at in range(1, 100):
        path = tmp_path / str(at)
        prepare(path, operation)

        def work(step: Callable[[], None], path: Path = path) -> object:
            return OPERATIONS[operation](counted(path, step))

        child = Stopped(work, at)
        if child.finished:
            assert at > 5, "hardly a call was counted"
            return
        yield path, child
    pytest.fail("it never came to an end")


def leave(lock: Path) -> None:
    """Leave the lock alone."""


def remove(lock: Path) -> None:
    lock.unlink(missing_ok=True)


def rewrite(lock: Path) -> None:
    """Write another lock in its place as a person would. It is expired."""
    lock.write_text(
        '{"task_id": "t", "worker": "person", "acquired_at": "2026-01-31", "expires_at": '
        '"2026-01-31T12:00:00Z"}'
    )


INTERVENTIONS = pytest.mark.parametrize(
    "intervene", [leave, remove, rewrite], ids=lambda by_hand: by_hand.__name__
)


@INTERVENTIONS
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_stopped_past_its_lease_cannot_touch_its_successors_lock(
    operation: str,
    intervene: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the worst case: every intent counts as left by a crash
    monkeypatch.setattr(swap, "INTENT_TIMEOUT", 0.0)
    for path, sleeper in stopped_everywhere(tmp_path, operation):
        lock = path / "locks" / "t.lock"
        if lock.parent.exists():
            intervene(lock)
        successor = table(path, later=1000.0)
        taken = successor.acquire("t", "successor", 10_000)
        record = lock.read_bytes()
        answer = sleeper.go_on()
        assert lock.read_bytes() == record, (
            f"{operation} of a stopped process changed its successor's lock"
        )
        assert answer in ("LockHeld", "LockLost", "NotYours") or (
            isinstance(answer, int) and answer < (taken.token or 0)
        )
        successor.release("t", "successor", taken.token)
        assert os.listdir(path / "locks") == []


@INTERVENTIONS
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_killed_anywhere_leaves_a_lock_that_can_be_acquired(
    operation: str,
    intervene: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(swap, "INTENT_TIMEOUT", 0.0)
    for path, victim in stopped_everywhere(tmp_path, operation):
        victim.kill()
        if (path / "locks").exists():
            intervene(path / "locks" / "t.lock")
        heir = table(path, later=1000.0)
        taken = heir.acquire("t", "heir", 10_000)
        assert heir.heartbeat("t", "heir", taken.token).token == taken.token
        heir.release("t", "heir", taken.token)
        assert os.listdir(path / "locks") == []
        heir.store._records_of("locks").collect_garbage(age=-1.0, batch=100)  # type: ignore[attr-defined]
        heir.store.close()
        residue = os.listdir(path / ".locks" / "scratch") + os.listdir(path / ".locks" / "intents")
        assert residue == [], "garbage was left behind"


@pytest.mark.parametrize("operation", ["takeover", "heartbeat", "release"])
def test_a_newcomer_stopped_anywhere_knows_whether_it_has_the_lock(
    operation: str, tmp_path: Path
) -> None:
    """Stop one process anywhere in a change, remove the lock as a person, and stop a
    newcomer anywhere in `acquire`.

    Then the first goes on, then the newcomer. The newcomer's answer must equal the
    file.
    """
    # forks a thousand times
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as small:
        found = small.submit(answers_and_files, operation, tmp_path).result()
    assert [answer for answer, written in found if answer != written] == []
    assert any(isinstance(answer, int) for answer, _ in found) and len(found) > 60


def answers_and_files(operation: str, tmp_path: Path) -> list[tuple[object, object]]:
    """Return the newcomer's answer and the content of the file, for every third pair
    of calls.
    """
    swap.INTENT_TIMEOUT = 0.0
    for path, sleeper in stopped_everywhere(tmp_path / "counting", operation):
        sleeper.kill()
        first_calls = int(path.name)
    found: list[tuple[object, object]] = []
    for at in range(1, first_calls + 1):
        for newcomer_at in range(1 + at % 3, 100, 3):
            path = tmp_path / f"{at}-{newcomer_at}"
            lock = path / "locks" / "t.lock"
            prepare(path, operation)
            sleeper = Stopped(
                lambda step, path=path: OPERATIONS[operation](counted(path, step)),  # type: ignore[misc]
                at,
            )
            lock.unlink(missing_ok=True)
            newcomer = Stopped(
                lambda step, path=path: counted(path, step).acquire("t", "newcomer", 60).token,  # type: ignore[misc]
                newcomer_at,
            )
            sleeper.go_on()
            if newcomer.finished:
                break
            answer = newcomer.go_on()
            record = json.loads(lock.read_text()) if lock.exists() else {}
            found.append(
                (answer, record.get("token") if record.get("worker") == "newcomer" else "LockHeld")
            )
    return found


def counted(path: Path, step: Callable[[], None]) -> LockTable:
    return table(path, filesystem=Counting(Filesystem(), step))  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", ["heartbeat", "release"])
@pytest.mark.parametrize("scratch", [FIRST, LAST])
def test_of_two_processes_that_meet_one_goes_on_and_the_other_retries(
    scratch: str, operation: str, tmp_path: Path
) -> None:
    """While an intent is young its owner may still be at work.

    The process with the later scratch name does not revoke it.
    """
    for path, busy in stopped_everywhere(tmp_path, operation):
        if os.listdir(path / ".locks" / "intents") and (path / "locks" / "t.lock").exists():
            thief = table(path, later=1000.0)
            (path / ".locks" / "scratch" / scratch).mkdir()
            thief.store._records_of("locks")._own = (os.getpid(), scratch)  # type: ignore[attr-defined]
            if scratch == LAST:
                with pytest.raises(LockHeld, match="another worker is taking it over now"):
                    thief.acquire("t", "thief", 60)
                assert isinstance(busy.go_on(), int)
            else:
                assert thief.acquire("t", "thief", 60).worker == "thief"
                assert busy.go_on() in ("LockLost", "NotYours")
            return
        busy.go_on()
    pytest.fail("no intent was ever seen open")


def test_an_intent_left_by_a_crash_delays_others_only_briefly(tmp_path: Path) -> None:
    for path, victim in stopped_everywhere(tmp_path, "release"):
        victim.kill()
        if os.listdir(path / ".locks" / "intents") and (path / "locks" / "t.lock").exists():
            begun = time.monotonic()
            table(path).heartbeat("t", "sleeper")
            assert time.monotonic() - begun < 2 * swap.INTENT_TIMEOUT
            return
    pytest.fail("no intent was ever left open")


def test_planted_intents_and_scratch_directories_do_no_harm(tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").write_text("gold")
    path = tmp_path / "state"
    locks = table(path)
    lock = locks.acquire("t", "w", 60)
    intents, scratches = path / ".locks" / "intents", path / ".locks" / "scratch"
    now = int(time.time())
    os.symlink("../../../treasure", intents / f"t~s{'1' * 16}~{now}")
    os.symlink("../../../treasure", intents / "t~other")
    (intents / f"t~s{'2' * 16}~{now}").write_text("not a link")
    (intents / "t~").write_text("")
    (intents / "unrelated").write_text("")
    planted = "s" + "0" * 16
    os.symlink(treasure, scratches / planted)
    os.symlink(planted, intents / f"t~{planted}~{now - 10}")
    (scratches / "stranger").mkdir()
    time.sleep(0.01)
    old = time.time() - 10 * swap.GARBAGE_AGE
    for intent in intents.iterdir():
        os.utime(intent, (old, old), follow_symlinks=False)
    locks.heartbeat("t", "w", lock.token)
    locks.release("t", "w", lock.token)
    assert locks.acquire("t", "w", 60).token != lock.token
    locks.store._records_of("locks").collect_garbage(age=-1.0, batch=100)  # type: ignore[attr-defined]
    assert (treasure / "gold").read_text() == "gold"


def test_threads_share_a_scratch_directory_and_survive_its_loss(tmp_path: Path) -> None:
    locks = table(tmp_path)
    locks.acquire("first", "w", 60)
    scratches = tmp_path / ".locks" / "scratch"
    stop = time.monotonic() + 1.5
    failed: list[BaseException] = []

    def work(me: int) -> None:
        try:
            while time.monotonic() < stop:
                lock = locks.acquire(f"t{me}", "w", 60)
                locks.release(f"t{me}", "w", lock.token)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    while time.monotonic() < stop - 0.3:
        for scratch in scratches.iterdir():
            locks.store._records_of("locks")._revoke(scratch.name)  # type: ignore[attr-defined]
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(os.listdir(scratches)) <= 2, "scratches were made and left behind"


def test_a_forked_child_makes_a_scratch_directory_of_its_own(tmp_path: Path) -> None:
    locks = table(tmp_path)
    locks.acquire("parent", "w", 60)
    scratches = tmp_path / ".locks" / "scratch"
    before = set(os.listdir(scratches))

    def child(me: int, number: int) -> bool:
        locks.acquire(f"child-{me}", "w", 60)
        return len(set(os.listdir(scratches)) - before) >= 1

    assert race(2, 1, child) == [[0, 1]]
    assert before <= set(os.listdir(scratches)), "a child took its parent's scratch away"
    locks.release("parent", "w")
