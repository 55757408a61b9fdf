"""Records at a terminal: another program may have written raw escape sequences."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.stores.default import default_store
from tests.conftest import ROOT

RAW = b'{"type": "WAIT", "worker": "w", "task_id": "t", "message": "\x1b]0;owned\x07\xc2\x9b2J"}'


def printed_at_a_terminal(*args: str) -> bytes:
    """Return what a command writes to a terminal."""
    terminal, end = pty.openpty()
    done = subprocess.run([sys.executable, "-m", "swarm", *args], cwd=ROOT, stdout=end, timeout=60)
    os.close(end)
    assert done.returncode == 0
    found = b""
    try:
        while block := os.read(terminal, 4096):
            found += block
    except OSError:
        pass  # Linux reports the end so
    os.close(terminal)
    return found


def piped(*args: str) -> bytes:
    command = [sys.executable, "-m", "swarm", *args]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60).stdout


@pytest.mark.parametrize("args", [("log", "tail"), ("log", "query", "t")])
def test_records_cannot_send_escape_sequences_to_a_terminal(
    args: tuple[str, ...], isolated_swarm_dir: Path
) -> None:
    default_store().append("status", RAW)
    shown = printed_at_a_terminal(*args)
    assert b"owned" in shown and not {0x1B, 0x07, 0x9B} & set(shown)


@pytest.mark.parametrize("args", [("log", "tail"), ("log", "query", "t")])
def test_records_are_piped_as_they_are(args: tuple[str, ...], isolated_swarm_dir: Path) -> None:
    default_store().append("status", RAW)
    assert piped(*args) == RAW + b"\n"
