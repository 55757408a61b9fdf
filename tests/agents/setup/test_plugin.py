"""The plugin for Claude Code and Codex: generated from one table, and not doubled."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from swarm.agents.setup import plugin
from tests.conftest import ROOT
from tests.support.command_line import run


@pytest.mark.parametrize("path", plugin.files())
def test_a_file_of_the_plugin_is_as_generated(path: str) -> None:
    """To write them again: python -m swarm.agents.setup.plugin"""
    assert (ROOT / path).read_text() == plugin.files()[path]


def test_the_plugin_has_the_hooks_and_the_server_of_a_setup(project: Path) -> None:
    run("setup", "claude", "--yes")
    inside = Path(plugin.ROOT)
    written = json.loads((project / ".claude/settings.json").read_text())["hooks"]
    hooks = json.loads((inside / "hooks/hooks.json").read_text())["hooks"]
    assert hooks == written
    assert json.loads((inside / ".mcp.json").read_text()) == {
        "mcpServers": {"swarm": {"command": "swarm", "args": ["mcp"]}}
    }


def install_for_claude(where: Path, *, enabled: bool = True) -> None:
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps({"enabledPlugins": {"swarm@swarm": enabled}}))


@pytest.mark.parametrize("place", ["user", "project", "local"])
def test_setup_adds_no_hooks_and_no_server_beside_the_plugin_of_claude_code(
    place: str, project: Path, home: Path
) -> None:
    files = {
        "user": home / ".claude/settings.json",
        "project": project / ".claude/settings.json",
        "local": project / ".claude/settings.local.json",
    }
    install_for_claude(files[place])
    before = files[place].read_bytes()
    answer = run("setup", "claude", "--yes")
    assert answer.code == 0 and b"plugin" in answer.err
    settings = json.loads((project / ".claude/settings.json").read_text())
    assert "hooks" not in settings and not (project / ".mcp.json").exists()
    assert settings["permissions"]["allow"][1] == "mcp__plugin_swarm_swarm__*"
    assert "swarm prime" in (project / "CLAUDE.md").read_text()
    assert run("setup", "claude").out.startswith(b"Nothing to do")
    run("setup", "claude", "--remove", "--yes")
    assert files[place].read_bytes() == before and not (project / "CLAUDE.md").exists()


def test_a_plugin_that_was_installed_later_replaces_the_entries_of_a_setup(
    project: Path, home: Path
) -> None:
    run("setup", "claude", "--skill", "--yes")
    install_for_claude(home / ".claude/settings.json")
    run("setup", "claude", "--yes")
    settings = json.loads((project / ".claude/settings.json").read_text())
    assert list(settings) == ["permissions"] and not (project / ".mcp.json").exists()
    assert not (project / ".claude/skills").exists()


def test_a_disabled_plugin_does_not_count(project: Path, home: Path) -> None:
    install_for_claude(home / ".claude/settings.json", enabled=False)
    run("setup", "claude", "--yes")
    assert (project / ".mcp.json").exists()


def test_setup_adds_no_hooks_and_no_server_beside_the_plugin_of_codex(
    project: Path, home: Path
) -> None:
    (home / ".codex").mkdir(parents=True)
    (home / ".codex/config.toml").write_text('[plugins."swarm@swarm"]\nenabled = true\n')
    run("setup", "codex", "--yes")
    assert not (project / ".codex/hooks.json").exists()
    config = tomllib.loads((project / ".codex/config.toml").read_text())
    assert config == {"sandbox_workspace_write": {"writable_roots": ["../.swarm"]}}
    run("setup", "codex", "--remove", "--yes")
    assert [path.name for path in project.iterdir()] == [".git"]
