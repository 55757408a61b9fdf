"""A log is interrupted, used again or closed between any two bytecodes of a call."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.stores.file import log_cursor, log_reader, log_writer
from swarm.stores.file.log import FileLog
from swarm.stores.file.log_parts import OpenFile
from tests.conftest import ROOT
from tests.support.interrupts import Moments
from tests.support.log_directory import LogDirectory
from tests.support.log_writers import open_log, read_all
from tests.support.processes import fork

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogDirectory:
    return LogDirectory(tmp_path / "state", monkeypatch)


# The garbage collector may run a finalizer in the interrupted call, which swallows it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
class TestInterrupt:
    """KeyboardInterrupt, or the exception of a timeout."""

    @pytest.mark.parametrize("max_bytes", [0, 1], ids=["", "rotating"])
    def test_an_append_after_an_interrupted_append_writes_into_no_other_file(
        self, max_bytes: int, tmp_path: Path
    ) -> None:
        moments = Moments(log_writer, OpenFile)

        def interrupted(log: FileLog) -> bool:
            try:
                return moments.act_in(lambda: log.append(b"interrupted"), interrupt)
            except KeyboardInterrupt:
                return True

        expect_own_file_untouched(tmp_path, max_bytes, interrupted)

    def test_an_append_after_an_interrupted_close_writes_into_no_other_file(
        self, tmp_path: Path
    ) -> None:
        moments = Moments(log_writer, OpenFile)

        def interrupted(log: FileLog) -> bool:
            log.append(b"interrupted")
            try:
                return moments.act_in(log.close, interrupt)
            except KeyboardInterrupt:
                return True

        expect_own_file_untouched(tmp_path, 0, interrupted)

    def test_a_read_after_an_interrupted_read_reads_no_other_file(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        for number in range(2):
            log.append(b"%d" % number)
            log.rotate()
        log.append(b"2")
        moments = Moments(log_reader, log_cursor, OpenFile)
        precious = tmp_path / "precious"
        going = True
        while going:
            try:
                going = moments.act_in(lambda: log.read("", 1000), interrupt)
            except KeyboardInterrupt:
                pass
            with precious.open("w+b") as mine:
                mine.write(b"not a line of the log\n")
                mine.flush()
                assert read_all(log) == [b"0", b"1", b"2"]
                assert log.tail(2)[0] == [b"1", b"2"]
                mine.seek(0)
                assert mine.read() == b"not a line of the log\n"


def expect_own_file_untouched(
    tmp_path: Path, max_bytes: int, interrupted: Callable[[FileLog], bool]
) -> None:
    going = True
    number = 0
    while going:
        number += 1
        log = open_log(tmp_path / str(number), max_bytes=max_bytes)
        log.append(b"before")
        going = interrupted(log)
        precious = tmp_path / "precious"
        with precious.open("w+b", buffering=0) as mine:
            mine.write(b"precious\n")
            log.append(b"after")
            log.append(b"last")
            os.fstat(mine.fileno())  # it was not closed either
            assert precious.read_bytes() == b"precious\n"
        lines = read_all(log)
        assert lines.count(b"interrupted") <= 1
        assert [line for line in lines if line != b"interrupted"] == [b"before", b"after", b"last"]
        log.close()
    assert number > 20, "too few bytecodes were counted"


def interrupt() -> None:
    raise KeyboardInterrupt


class TestUseDuringACall:
    @pytest.mark.parametrize("max_bytes", [0, 1], ids=["", "rotating"])
    def test_an_append_during_an_append_of_the_same_thread_loses_and_repeats_no_line(
        self, max_bytes: int, tmp_path: Path
    ) -> None:
        """As in a signal handler, or in a finalizer that the garbage collector calls."""
        moments = Moments(log_writer)
        log = open_log(tmp_path, max_bytes=max_bytes)
        cursor = ""
        while moments.act_in(lambda: log.append(b"outer"), lambda: log.append(b"inner")):
            lines, cursor = log.read(cursor, 1000)
            assert sorted(lines) == [b"inner", b"outer"]
        assert moments.number > 50

    def test_an_append_beside_the_first_append_of_a_forked_child_repeats_no_line(
        self, directory: LogDirectory
    ) -> None:
        """As by two threads of the child. A thread of the parent is inside an append."""
        moments = Moments(log_writer)
        log = directory.open()
        log.append(b"parent")
        parent, codes = os.getpid(), [0]

        def child() -> None:
            going = moments.act_in(lambda: log.append(b"one"), lambda: log.append(b"two"))
            os._exit(0 if going else 9)

        def fork_child() -> None:
            if os.getpid() == parent:
                codes.append(os.waitstatus_to_exitcode(os.waitpid(fork(child), 0)[1]))
                moments.number += 1

        directory.before("write", *[fork_child] * 1000)
        while codes[-1] == 0:
            log.append(b"parent")
        count = len(codes) - 1
        assert codes[1:] == [0] * (count - 1) + [9] and count > 50
        found = Counter(directory.lines())
        assert found == {b"parent": count + 1, b"one": count, b"two": count - 1}

    @pytest.mark.parametrize("max_bytes", [0, 1], ids=["", "rotating"])
    def test_a_log_that_is_closed_during_an_append_loses_no_line(
        self, max_bytes: int, tmp_path: Path
    ) -> None:
        """As by another thread, whose next file gets the number of the closed one."""
        moments = Moments(log_writer, OpenFile)
        log = open_log(tmp_path / "state", max_bytes=max_bytes)
        opened: list[int] = []

        def close_and_open() -> None:
            log.close()
            opened.append(os.open(tmp_path / "precious", os.O_RDWR | os.O_CREAT))

        cursor = ""
        while moments.act_in(lambda: log.append(b"line"), close_and_open):
            lines, cursor = log.read(cursor, 1000)
            assert lines == [b"line"]
            os.close(opened.pop())
        assert (tmp_path / "precious").read_bytes() == b"" and moments.number > 50


PROGRAM = """
import random, signal
from swarm import StatusBroadcaster
log, handled, sent = StatusBroadcaster("w"), 0, 0
def handler(number, frame):
    global handled
    handled += 1
    log.broadcast_error(f"handler-{handled}", "told to stop")
signal.signal(signal.SIGALRM, handler)
while handled < 300:
    sent += 1
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.0003))
    log.broadcast_wait(f"main-{sent}", "progress")
signal.setitimer(signal.ITIMER_REAL, 0)
print(handled, sent)
"""


@pytest.mark.parametrize("max_bytes", ["", "2000"], ids=["", "rotating"])
def test_a_signal_handler_that_logs_neither_hangs_nor_loses_a_record(
    max_bytes: str, isolated_swarm_dir: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SWARM_LOG_MAX_BYTES": max_bytes}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    handled, sent = map(int, done.stdout.split())
    from swarm import StatusBroadcaster

    log, cursor, found = StatusBroadcaster("w"), "", Counter[str]()
    while records := log.read(cursor)[0]:
        cursor = log.read(cursor)[1]
        found.update(record["task_id"] for record in records)
    expected = [f"handler-{n + 1}" for n in range(handled)] + [f"main-{n + 1}" for n in range(sent)]
    assert found == Counter(expected)


def test_no_call_of_a_library_object_imports_a_module_of_swarm(isolated_swarm_dir: Path) -> None:
    """A signal handler that interrupts an import would find half a module."""
    program = """
import sys
from swarm import StatusBroadcaster, TaskLockManager
log, locks = StatusBroadcaster("w"), TaskLockManager("w")
before = set(sys.modules)
for _ in range(20):
    log.broadcast_wait("t", "x" * 100)
log.tail(1), log.read(), log.query("t"), list(log.follow("", timeout=0.01))
locks.acquire_lock("a"), locks.update_heartbeat("a"), locks.release_lock("a")
with locks.hold("b", ttl=30):
    pass
print(*sorted(name for name in set(sys.modules) - before if name.startswith("swarm")))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SWARM_LOG_MAX_BYTES": "1000"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
