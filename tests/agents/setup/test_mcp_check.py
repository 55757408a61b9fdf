"""`swarm setup` starts the MCP server before it registers it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.agents.setup.mcp_check import check_server
from swarm.errors import SwarmError
from swarm.system.own_command import swarm_command
from tests.agents.setup.conftest import install
from tests.support.command_line import run


def test_a_server_that_answers_may_be_registered(tmp_path: Path) -> None:
    check_server(swarm_command())


@pytest.fixture
def without_sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `swarm` on PATH whose Python has no MCP SDK, and a project."""
    install(tmp_path / "bin", "-S")  # hides the packages of the environment
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    return project


def test_a_server_without_its_sdk_is_refused_with_the_command_that_installs_it(
    without_sdk: Path,
) -> None:
    with pytest.raises(SwarmError, match=r"pip install 'swarm-coordination\[mcp\]'.*--no-mcp"):
        check_server(("swarm",))
    answer = run("setup", "claude", "--yes")
    assert answer.code == 1 and b"pip install 'swarm-coordination[mcp]'" in answer.err
    assert [path.name for path in without_sdk.iterdir()] == [".git"]


def test_setup_without_the_server_needs_no_sdk(without_sdk: Path) -> None:
    assert run("setup", "claude", "--no-mcp", "--yes").code == 0
    assert not (without_sdk / ".mcp.json").exists()
    settings = (without_sdk / ".claude/settings.json").read_text()
    assert "Bash(swarm:*)" in settings and "mcp__swarm" not in settings


def test_a_program_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SwarmError, match="cannot be started"):
        check_server((str(tmp_path / "none"),))
