"""A home directory, a project, and a `swarm` on PATH, for tests of `swarm setup`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from swarm.agents.setup import agents
from swarm.cli import setup
from tests.conftest import ROOT


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of the test's own, and a `swarm` on PATH that is this one."""
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    variables = [agent.variable for agent in agents.TABLE if agent.variable]
    for name in (*variables, "SWARM_STATE_DIR", "AI_SWARM_DIR", "SWARM_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(setup, "check_server", lambda command: None)  # see test_mcp_check
    return directory


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, which is the working directory."""
    directory = tmp_path / "project"
    (directory / ".git").mkdir(parents=True)
    monkeypatch.chdir(directory)
    return directory


def install(directory: Path, *options: str) -> None:
    """Write a `swarm` that starts this checkout, with options for Python."""
    directory.mkdir()
    start = " ".join([f"'{sys.executable}'", *options, "-P", f"'{ROOT}/swarm/__main__.py'"])
    (directory / "swarm").write_text(f'#!/bin/sh\nexec {start} "$@"\n')
    (directory / "swarm").chmod(0o755)
