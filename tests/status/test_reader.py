"""A long status log is read by blocks, and by two processes where the program allows it: with the same outcome, whatever becomes
of the second."""

from __future__ import annotations

import gc
import json
import marshal
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.status import helper, reader
from swarm.status.helper import SecondReader
from swarm.status.log import LOG, STATES
from swarm.status.reader import StatusDigest
from swarm.status.summary import StatusPicture
from swarm.stores.file import log as journal
from swarm.stores.file.store import FileStore
from tests.support.processes import fork
from tests.support.servers.server import wait_until

LINES = 4000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    """Some forty blocks, of which the second process may read from the fourth on."""
    monkeypatch.setattr(reader, "_MUCH", 3)
    monkeypatch.setattr(journal, "_BLOCK", 16384)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    store = FileStore(str(tmp_path / "s"))
    store.prepare()
    with open(store.root + "/status.log", "wb") as file:
        file.writelines(_line(number) + b"\n" for number in range(LINES))
    return store


@pytest.fixture(autouse=True)
def no_child_is_left(store: FileStore) -> Iterator[None]:
    gc.collect()  # what tests before this one left open
    before = len(os.listdir("/proc/self/fd")), children()
    yield
    store.close()
    assert (len(os.listdir("/proc/self/fd")), children()) == before


def children() -> str:
    return "".join(found.read_text() for found in Path("/proc/self/task").glob("*/children"))


def test_two_processes_find_what_one_finds(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = watched(monkeypatch)
    assert known(StatusDigest(store, may_fork=True)) == expected(store)
    assert len(answers) > 10 and None not in answers


def test_a_program_that_does_not_allow_it_is_not_forked(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forked"))
    assert known(StatusDigest(store)) == expected(store)


def test_where_there_is_one_processor_there_is_one_process(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forked"))
    assert known(StatusDigest(store, may_fork=True)) == expected(store)


def test_where_there_can_be_no_second_process_the_first_reads_all(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    assert known(StatusDigest(store, may_fork=True)) == expected(store)


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_second_process_that_is_killed_costs_nothing(store: FileStore, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    answers = watched(monkeypatch, lambda second, count: os.kill(second._child, signal.SIGKILL) if count == after else None)
    assert known(StatusDigest(store, may_fork=True)) == expected(store)
    assert None in answers


def test_a_second_process_that_is_stopped_is_not_waited_for(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "_PATIENCE", 0.1)
    answers = watched(monkeypatch, lambda second, count: os.kill(second._child, signal.SIGSTOP) if count == 5 else None)
    assert known(StatusDigest(store, may_fork=True)) == expected(store)
    assert None in answers


def test_a_second_process_ends_with_the_first(store: FileStore, tmp_path: Path) -> None:
    def first() -> None:
        def work(block: bytes) -> bytes:
            return bytes(1 << 20)  # more than a pipe holds

        second = SecondReader(lambda: store.blocks(LOG, ""), work)
        (tmp_path / "child").write_text(str(second._child))
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(fork(first), 0)
    child = int((tmp_path / "child").read_text())
    try:
        wait_until(lambda: not Path(f"/proc/{child}").exists(), "it goes on for nobody")
    finally:
        if Path(f"/proc/{child}").exists():
            os.kill(child, signal.SIGKILL)


def test_a_log_that_was_removed_after_a_rotation_is_not_remembered(store: FileStore) -> None:
    store.rotate(LOG)
    assert known(StatusDigest(store)) != StatusPicture().dump()
    Path(store.root, "status.log").unlink(missing_ok=True)
    shutil.rmtree(store.root + "/.status")
    assert known(StatusDigest(store)) == StatusPicture().dump()


def test_a_log_that_was_replaced_and_then_rotated_counts_once(store: FileStore) -> None:
    digest = StatusDigest(store)
    digest.update()
    Path(store.root, "status.log").write_bytes(b"".join(_line(number) + b"\n" for number in range(77, 90)))
    store.rotate(LOG)
    store.append(LOG, _line(90))
    assert known(digest) == expected(store)


def test_a_second_process_that_fails_costs_nothing(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    parent, dumps = os.getpid(), marshal.dumps
    made: list[int] = []

    def failing(answer: Any) -> bytes:
        made.append(1)
        if os.getpid() != parent and len(made) > 3:
            raise MemoryError
        return dumps(answer)

    monkeypatch.setattr(marshal, "dumps", failing)
    answers = watched(monkeypatch)
    assert known(StatusDigest(store, may_fork=True)) == expected(store)
    assert None in answers


def test_an_answer_about_another_block_is_not_used(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as of a log that was replaced or rotated between the looks of the two."""
    blocks = store.blocks
    parent = os.getpid()

    def shifted(log: str, cursor: str) -> Iterator[tuple[bytes, str]]:
        found = blocks(log, cursor)
        if os.getpid() != parent:
            next(found)
        yield from found

    monkeypatch.setattr(store, "blocks", shifted)
    answers = watched(monkeypatch)
    assert known(StatusDigest(store, may_fork=True)) == expected(store)
    assert answers == [None], "and nothing else is asked"


def test_where_the_end_of_children_is_ignored_nobody_waits_for_it(store: FileStore) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert known(StatusDigest(store, may_fork=True)) == expected(store)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_second_process_that_ends_while_it_is_ended_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    waitpid, goes_on = os.waitpid, os.pipe()

    def looked(pid: int, how: int) -> tuple[int, int]:
        found = waitpid(pid, how)
        if how == os.WNOHANG:
            os.close(goes_on[1])  # now it ends
            while os.path.exists(f"/proc/{pid}"):
                pass
        return found

    def work(block: bytes) -> None:
        os.close(goes_on[1])
        os.read(goes_on[0], 1)

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        second = SecondReader(lambda: iter([(b"", "1:1")]), work)
        with monkeypatch.context() as patched:
            patched.setattr(os, "waitpid", looked)
            second.close()
    finally:
        signal.signal(signal.SIGCHLD, before)
        os.close(goes_on[0])


def test_whoever_stops_looking_leaves_no_second_process(store: FileStore) -> None:
    def enough(count: int) -> None:
        if count > LINES / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StatusDigest(store, may_fork=True).update(progress=enough)


def test_it_tells_how_far_it_is_and_keeps_what_it_found(store: FileStore) -> None:
    told: list[int] = []
    StatusDigest(store).update(progress=told.append)
    assert told == sorted(told) and len(told) > 10 and told[-1] == LINES
    told.clear()
    StatusDigest(store).update(progress=told.append)
    assert told == []


def test_a_log_for_which_patterns_would_have_to_be_compiled_again_is_kept(tmp_path: Path) -> None:
    short = FileStore(str(tmp_path / "short"))
    for number in range(199):
        short.append(LOG, _line(number))
    StatusDigest(short).update()
    assert short.kept(LOG) is None
    short.append(LOG, _line(199))
    StatusDigest(short).update()
    assert short.kept(LOG) is not None
    short.close()


def test_what_is_appended_and_rotated_meanwhile_is_taken_in_once(store: FileStore) -> None:
    more = [_line(LINES + number) for number in range(3)]

    def meddle(count: int) -> None:
        if more:
            store.append(LOG, more.pop())
            store.rotate(LOG)

    digest = StatusDigest(store, may_fork=True)
    digest.update(progress=meddle)
    assert digest.picture.records + digest.picture.damaged == LINES + 3
    assert known(digest) == expected(store)
    store.close()


def test_another_log_in_the_place_of_the_one_that_was_read_is_read_from_its_beginning(store: FileStore) -> None:
    digest = StatusDigest(store)
    digest.update()
    Path(store.root, "status.log").write_bytes(b"".join(_line(number) + b"\n" for number in range(77, LINES * 2)))
    assert known(digest) == expected(store)


def watched(monkeypatch: pytest.MonkeyPatch, before: Any = lambda second, count: None) -> list[Any]:
    """Every answer of second processes."""
    answers: list[Any] = []
    answer = SecondReader.answer

    def told(self: SecondReader, cursor: str) -> Any:
        before(self, len(answers))
        found = answer(self, cursor)
        answers.append(None if found is None else "an answer")
        return found

    monkeypatch.setattr(SecondReader, "answer", told)
    return answers


def known(digest: StatusDigest) -> Any:
    digest.update()
    return digest.picture.dump()


def expected(store: FileStore) -> Any:
    seen = StatusPicture()
    for _, line, _ in store.numbered(LOG):
        seen.fold(line)
    return seen.dump()


def _line(number: int) -> bytes:
    if number % 501 == 500:
        return b"no record"
    state = STATES[number * 7 % 6]
    record: dict[str, Any] = {"timestamp": f"2026-02-02T10:30:10.{number % 1000:03d}Z", "type": state, "state": state}
    record |= {"worker": f"worker-{number * 13 % 11}", "task_id": f"task-{number * 31 % 900}", "meta": {"token": number}}
    if number % 97 == 96:
        record["reason"] = record["message"] = 'say "yes"'
    return json.dumps(record).encode()
