"""Operations that are interrupted before a line, and proof that each check can fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proof.every_line import OPERATIONS, TASK, WORKER, Operation, World, run, run_at

_FEW = 15  # of all lines, one in so many; `make prove` interrupts at every line


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_interrupted_operation_was_made_or_was_not(operation: Operation) -> None:
    lines, faults = run(operation, step=_FEW)
    assert lines > 1 and not faults


def test_a_lock_that_is_kept_is_noticed(tmp_path: Path) -> None:
    (held,) = (each for each in OPERATIONS if each.name == "a block that holds a lock")
    kept = Operation("kept", lambda world: world.locks.acquire(TASK, WORKER, 60), check=held.check)
    assert "still held" in only_fault(kept, tmp_path)


def test_a_record_that_is_written_twice_is_noticed(tmp_path: Path) -> None:
    def append_twice(world: World) -> None:
        for _ in range(2):
            world.log.append("WAIT", WORKER, TASK, "interrupted")

    assert "twice" in only_fault(Operation("twice", append_twice), tmp_path)


def test_a_record_that_is_lost_is_noticed(tmp_path: Path) -> None:
    lost = Operation("lost", lambda world: world.appended.append("never written"))
    assert "0 times" in only_fault(lost, tmp_path)


def test_a_torn_line_is_noticed(tmp_path: Path) -> None:
    def tear(world: World) -> None:
        world.append("whole")
        Path(world.store.root, "status.log").write_bytes(b'{"half\n')

    assert "the log has the line" in run_at(Operation("torn", tear), 10**9, str(tmp_path))[0]


def test_a_descriptor_that_is_closed_and_not_forgotten_is_noticed(tmp_path: Path) -> None:
    def close_behind_its_back(world: World) -> None:
        world.append("before")
        for fd in Path("/proc/self/fd").iterdir():
            if fd.is_symlink() and os.readlink(fd).endswith("status.log"):
                os.close(int(fd.name))

    found = run_at(Operation("closed", close_behind_its_back), 10**9, str(tmp_path))
    assert any("a file of the program was" in fault for fault in found)


def test_a_queue_that_has_skipped_an_event_is_noticed(tmp_path: Path) -> None:
    def forget_a_task(world: World) -> None:
        world.queue.add(TASK, "do it")
        world.queue._open()[0].state.entries.clear()

    assert "another queue" in only_fault(Operation("skipped", forget_a_task), tmp_path)


def only_fault(operation: Operation, directory: Path) -> str:
    """Run an operation to its end, and return the one fault that the checks find."""
    (fault,) = run_at(operation, 10**9, str(directory))
    return fault
