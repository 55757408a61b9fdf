"""Hooks, MCP servers and shells that an agent starts agree on who it is."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

_ASK = f"{sys.executable} -c 'from swarm import agent_process as a; f = a.find(); print(f.pid, f.name, f.worker)'"


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """A program that the system calls `claude`: it tells its pid, then runs each of its arguments."""
    (tmp_path / "claude").symlink_to(sys.executable)
    script = tmp_path / "agent.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "print(os.getpid(), flush=True)\n"
        "for n, line in enumerate(sys.argv[1:]):\n"
        "    subprocess.run(['sh', '-c', line], check=True, start_new_session=n == 1)\n"
    )
    return tmp_path / "claude"


def test_whatever_an_agent_starts_names_the_same_agent(agent: Path) -> None:
    ways = [_ASK, f"bash -c {_quoted(_ASK + '; true')}; true", f"env timeout 60 {_ASK}"]
    done = subprocess.run([agent, agent.with_name("agent.py"), *ways], cwd=ROOT, capture_output=True, text=True, timeout=60)
    pid, *told = done.stdout.splitlines()
    assert told == [f"{pid} claude claude@{os.uname().nodename}-{pid}"] * 3, done


def test_a_shell_at_a_terminal_stands_for_whoever_sits_there() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvp("bash", ["bash", "-c", f"{_ASK}; true"])
    told = b""
    try:
        while part := os.read(terminal, 1000):
            told += part
    except OSError:  # how the end of a terminal is told
        pass
    os.close(terminal)
    os.waitpid(pid, 0)
    assert told.decode().split()[:2] == [str(pid), "bash"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
