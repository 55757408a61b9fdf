"""What the tests of `swarm run` start from."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.wrapped_command import Place, processes_with


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Nothing that a test starts in it may outlive the test."""
    made = Place(tmp_path)
    yield made
    deadline = time.monotonic() + 2
    while (left := processes_with(str(made.state))) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "left behind"
