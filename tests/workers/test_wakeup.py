"""A sleep ends by a wake-up, by a descriptor, or in time."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from swarm.workers.wakeup import Wakeup
from tests.conftest import open_descriptors


def slept(wakeup: Wakeup, seconds: float, *descriptors: int) -> tuple[bool, list[int]]:
    """Return whether the sleep took its whole time, and the readable descriptors."""
    begun = time.monotonic()
    ready = wakeup.sleep(seconds, *descriptors)
    return time.monotonic() - begun >= seconds, ready


def test_a_wake_up_ends_the_sleep_of_another_thread() -> None:
    with Wakeup() as wakeup:
        threading.Timer(0.05, wakeup.wake).start()
        assert slept(wakeup, 30.0) == (False, [])


def test_wake_ups_before_a_sleep_end_that_one_and_no_other() -> None:
    with Wakeup() as wakeup:
        for _ in range(200_000):  # more than the pipe takes
            wakeup.wake()
        assert slept(wakeup, 30.0) == (False, [])
        while not slept(wakeup, 0.01)[0]:
            pass
        assert slept(wakeup, 0.05) == (True, [])


def test_a_readable_descriptor_ends_the_sleep_and_is_returned() -> None:
    read_end, write_end = os.pipe()
    try:
        with Wakeup() as wakeup:
            assert slept(wakeup, 0.05, read_end, -1) == (True, [])
            os.write(write_end, b"x")
            assert slept(wakeup, 30.0, read_end, -1) == (False, [read_end])
    finally:
        os.close(read_end)
        os.close(write_end)


def test_a_wake_up_outside_its_block_writes_to_no_file(tmp_path: Path) -> None:
    before = open_descriptors()
    wakeup = Wakeup()
    wakeup.wake()
    with wakeup:
        pass
    assert open_descriptors() == before
    others = [os.open(tmp_path / str(number), os.O_CREAT | os.O_RDWR) for number in range(10)]
    wakeup.wake()
    assert all(os.fstat(fd).st_size == 0 for fd in others)
    for fd in others:
        os.close(fd)
