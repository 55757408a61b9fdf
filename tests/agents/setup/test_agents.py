"""What `swarm setup` grants each agent, and the forms that only one agent has."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from swarm.agents.setup import agents, hook_entries
from tests.support.command_line import run


def read(path: Path) -> Any:
    return (
        json.loads(path.read_text()) if path.suffix == ".json" else tomllib.loads(path.read_text())
    )


# Codex's sandbox ----------------------------------------------------------------------


def sandbox(path: Path) -> Any:
    return read(path / ".codex/config.toml").get("sandbox_workspace_write")


def test_codex_may_write_the_state_directory_of_the_project(project: Path) -> None:
    run("setup", "codex", "--yes")
    assert sandbox(project) == {"writable_roots": ["../.swarm"]}


def test_codex_may_write_a_state_directory_elsewhere(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path / "state"))
    run("setup", "codex", "--yes")
    assert sandbox(project) == {"writable_roots": ["../.swarm", str(tmp_path / "state")]}
    run("setup", "codex", "--user", "--yes")
    assert sandbox(tmp_path / "home") == {"writable_roots": [str(tmp_path / "state")]}


def test_codex_gets_the_network_only_for_a_store_on_a_server(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWARM_STORE", "redis://127.0.0.1/0")
    run("setup", "codex", "--yes")
    assert sandbox(project)["network_access"] is True
    monkeypatch.delenv("SWARM_STORE")
    run("setup", "codex", "--yes")
    assert "network_access" not in sandbox(project)


@pytest.mark.parametrize(
    "own",
    [
        '[sandbox_workspace_write]\nwritable_roots = ["/x"]\n',
        'default_permissions = "mine"\n[permissions.mine]\n',
    ],
)
def test_a_sandbox_of_the_user_stays_and_the_user_reads_what_is_missing(
    own: str, project: Path
) -> None:
    (project / ".codex").mkdir()
    (project / ".codex/config.toml").write_text(own)
    answer = run("setup", "codex", "--yes")
    assert answer.code == 0 and b'writable_roots = ["../.swarm"]' in answer.err
    assert (project / ".codex/config.toml").read_text().startswith(own)
    assert len(read(project / ".codex/config.toml").get("sandbox_workspace_write", {})) <= 1
    run("setup", "codex", "--remove", "--yes")
    assert (project / ".codex/config.toml").read_text() == own


def test_a_sandbox_of_the_user_that_allows_enough_needs_no_warning(project: Path) -> None:
    (project / ".codex").mkdir()
    (project / ".codex/config.toml").write_text(
        '[sandbox_workspace_write]\nwritable_roots = ["../.swarm"]\n'
    )
    assert b"sandbox" not in run("setup", "codex", "--yes").err


# The MCP server left out ----------------------------------------------------------------


@pytest.mark.parametrize("agent", agents.AGENTS)
def test_a_setup_without_the_server_removes_an_earlier_one(agent: str, project: Path) -> None:
    files = agents.agent_files(agent, project=str(project))
    run("setup", agent, "--yes")
    assert '"mcp"' in Path(files.servers).read_text()
    run("setup", agent, "--no-mcp", "--yes")
    left = Path(files.servers).read_text() if Path(files.servers).exists() else ""
    assert '"mcp"]' not in left and "mcp__swarm" not in left and "swarm_*" not in left
    run("setup", agent, "--remove", "--yes")
    assert [path.name for path in project.iterdir()] == [".git"]


# The other agents -----------------------------------------------------------------------


def test_gemini_gets_hooks_server_and_permission_in_one_file(project: Path) -> None:
    run("setup", "gemini", "--yes")
    settings = read(project / ".gemini/settings.json")
    assert settings["mcpServers"]["swarm"]["trust"] is True
    assert settings["tools"] == {"allowed": ["run_shell_command(swarm)"]}
    handler = settings["hooks"]["BeforeTool"][0]["hooks"][0]
    assert handler["timeout"] == 10_000, "Gemini CLI counts milliseconds"
    assert "swarm prime" in (project / "GEMINI.md").read_text()


def test_opencode_gets_a_server_and_permissions(project: Path) -> None:
    run("setup", "opencode", "--yes")
    assert read(project / "opencode.json") == {
        "mcp": {"swarm": {"command": ["swarm", "mcp"], "type": "local"}},
        "permission": {"bash": {"swarm *": "allow"}, "swarm_*": "allow"},
    }


def test_permissions_of_the_user_of_opencode_stay(project: Path) -> None:
    own = '{"permission": {"bash": "ask", "swarm_*": "deny"}}'
    (project / "opencode.json").write_text(own)
    run("setup", "opencode", "--yes")
    assert read(project / "opencode.json")["permission"] == json.loads(own)["permission"]
    run("setup", "opencode", "--remove", "--yes")
    assert (project / "opencode.json").read_text() == own


def test_copilot_gets_a_file_of_hooks_that_never_fail(project: Path) -> None:
    """A hook before a tool that fails makes Copilot refuse the tool."""
    run("setup", "copilot", "--yes")
    hooks = read(project / ".github/hooks/swarm.json")
    assert hooks["version"] == 1
    (entry,) = hooks["hooks"]["PreToolUse"]
    assert entry["command"] == "swarm hook --agent copilot || exit 0"
    missing = hook_entries.command_line(("/no/such/swarm",), "copilot", never_fail=True)
    assert subprocess.run(["sh", "-c", missing], capture_output=True).returncode == 0
    run("setup", "copilot", "--remove", "--yes")
    assert [path.name for path in project.iterdir()] == [".git"]


def test_instructions_that_two_agents_share_stay_until_the_last_is_removed(project: Path) -> None:
    for agent in ("codex", "opencode"):
        run("setup", agent, "--skill", "--yes")
    run("setup", "codex", "--remove", "--yes")
    assert "swarm prime" in (project / "AGENTS.md").read_text()
    assert (project / ".agents/skills/swarm/SKILL.md").exists()
    run("setup", "opencode", "--remove", "--yes")
    assert [path.name for path in project.iterdir()] == [".git"]


def test_every_hook_that_is_registered_has_a_use() -> None:
    from swarm.agents import hook_event
    from swarm.cli import hook

    for agent in agents.TABLE:
        for entry in agent.hooks:
            event = hook_event.parse(json.dumps({"hook_event_name": entry.event}))
            assert event.name in hook._TIMEOUTS
            assert entry.timeout > hook._TIMEOUTS[event.name]
