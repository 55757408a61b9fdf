"""`swarm setup` and the plugin with the real programs: they accept what swarm writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.agents.setup import plugin
from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.file.store import FileStore
from tests.conftest import ROOT
from tests.support.at_a_terminal import wait_until
from tests.support.model_server import Script, Server
from tests.support.programs.agents import CLAUDE, CODEX, Desk
from tests.support.programs.model_apis import Call, Refuse, Say, Turn

PROMPT = "Please look."


def state(desk: Desk) -> Path:
    """The state directory, which the agent finds by a variable."""
    directory = desk.work / ".swarm"
    directory.mkdir(exist_ok=True)
    desk.environment["SWARM_STATE_DIR"] = str(directory)
    return directory


def trust(desk: Desk) -> None:
    """Do what a person does in the dialogs of both programs."""
    (desk.home / ".claude.json").write_text(
        json.dumps({"projects": {str(desk.work): {"hasTrustDialogAccepted": True}}})
    )
    with (desk.home / ".codex/config.toml").open("a") as file:
        file.write(f'[projects."{desk.work}"]\ntrust_level = "trusted"\n')
    # Codex starts a login shell, which forgets PATH
    (desk.home / ".profile").write_text(f"PATH={desk.environment['PATH']}\n")


@pytest.mark.parametrize("path", [".", "swarm/agents/plugin"])
def test_claude_code_finds_no_fault_in_the_plugin(path: str, desk: Desk) -> None:
    done = desk.run("claude", "plugin", "validate", "--strict", str(ROOT / path))
    assert "Validation passed" in done.stdout


def test_claude_code_uses_swarm_without_asking_after_setup(desk: Desk, model: Server) -> None:
    directory = state(desk)
    trust(desk)
    desk.run("swarm", "task", "add", "login", "--prompt", "x")
    desk.run("swarm", "setup", "claude", "--yes")
    # without a task, no person is asked
    calls = (CLAUDE.shell("swarm prime"), CLAUDE.shell("touch other"), Call("mcp__swarm__claim"))
    model.scripts.append(Script([*(Say("", (call,)) for call in calls), Say("Done.")]))
    done = desk.run(*CLAUDE.careful, stdin=PROMPT)
    prime, other, claim = model.turns[-1].tool_results
    assert "You are worker claude@" in prime and '"claimed":true' in claim.replace(" ", "")
    assert "approval" in other and not (desk.work / "other").exists()
    (result,) = [line for line in lines(done.stdout) if line["type"] == "result"]
    assert [denied["tool_input"]["command"] for denied in result["permission_denials"]] == [
        "touch other"
    ]
    task = TaskQueue(FileStore(str(directory))).get("login")
    assert (task.state, task.reason) == ("ready", "its agent's session ended")


def test_codex_uses_swarm_in_its_sandbox_after_setup(desk: Desk, model: Server) -> None:
    """Codex starts below the project's root, so that the state directory is no part of
    its workspace.
    """
    directory = state(desk)
    trust(desk)
    desk.run("swarm", "task", "add", "login", "--prompt", "x")
    desk.run("swarm", "setup", "codex", "--yes")
    (desk.work / "below").mkdir()
    config = desk.work / ".codex/config.toml"
    # else Codex starts the server in the background
    config.write_text(
        config.read_text().replace(
            "[mcp_servers.swarm]\n", "[mcp_servers.swarm]\nrequired = true\n"
        )
    )
    calls = (
        CODEX.shell("swarm log append HELP me login hello; touch ../other"),
        Call("claim", namespace="mcp__swarm"),
    )
    model.scripts.append(Script([*(Say("", (call,)) for call in calls), Say("Done.")]))
    done = desk.run(*CODEX.command, "--cd", "below", stdin=PROMPT)
    assert '"claimed": true' in done.stdout.replace("\\", "") or '"claimed":true' in done.stdout
    assert "hello" in (directory / "status.log").read_text()
    assert not (desk.work / "other").exists()


def test_claude_code_installs_the_plugin_and_setup_does_not_double_it(desk: Desk) -> None:
    desk.run("claude", "plugin", "marketplace", "add", str(ROOT))
    desk.run("claude", "plugin", "install", "swarm@swarm")
    listed = desk.run("claude", "plugin", "details", "swarm").stdout
    assert "StopFailure" in listed and "Skills (1)" in listed
    desk.run("swarm", "setup", "claude", "--yes")
    assert not (desk.work / ".mcp.json").exists()
    settings = json.loads((desk.work / ".claude/settings.json").read_text())
    assert list(settings) == ["permissions"]


def test_codex_installs_the_plugin_and_setup_does_not_double_it(desk: Desk) -> None:
    config = desk.home / ".codex/config.toml"
    config.write_text(config.read_text().replace("plugins = false", "plugins = true"))
    desk.run("codex", "plugin", "marketplace", "add", str(ROOT))
    desk.run("codex", "plugin", "add", "swarm@swarm")
    assert "swarm" in desk.run("codex", "mcp", "list").stdout
    desk.run("swarm", "setup", "codex", "--yes")
    assert not (desk.work / ".codex/hooks.json").exists()
    assert "mcp_servers" not in (desk.work / ".codex/config.toml").read_text()


def test_a_request_that_failed_for_good_fails_the_task_that_claude_code_claimed(
    desk: Desk, model: Server, prepared: Path
) -> None:
    # Headless, the session ends at once, and its hook may be the first to end the claim.
    settings = desk.work / ".claude/settings.json"
    hooks = json.loads(settings.read_text())
    del hooks["hooks"]["SessionEnd"]
    settings.write_text(json.dumps(hooks))
    turns: list[Turn] = [
        Say("", (CLAUDE.shell("swarm task claim login"),)),
        Refuse(400, "bad request", "invalid_request_error"),
    ]
    model.scripts.append(Script(turns))
    desk.run(*CLAUDE.careful, stdin=PROMPT, check=False)
    queue = TaskQueue(FileStore(str(prepared)))
    wait_until(lambda: queue.get("login").state == "ready")
    task = queue.get("login")
    assert task.attempts == 1
    assert "the agent stopped" in task.reason and "bad request" in task.reason


@pytest.fixture
def pane(desk: Desk, prepared: Path) -> Iterator[Callable[..., str]]:
    """tmux with one window, in which Claude Code runs interactively."""
    settings = json.loads((desk.home / ".claude.json").read_text())
    settings |= {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": ["sk-test"]}}
    settings["projects"][str(desk.work)]["enabledMcpjsonServers"] = ["swarm"]
    (desk.home / ".claude.json").write_text(json.dumps(settings))
    desk.environment["TERM"] = "xterm-256color"

    def tmux(*command: str) -> str:
        return desk.run("tmux", "-S", str(desk.directory / "tmux"), *command).stdout

    tmux("new-session", "-d", "-x", "120", "-y", "40", "claude", "--permission-mode", "default")
    yield tmux
    tmux("kill-server")


@pytest.fixture
def prepared(desk: Desk) -> Path:
    """A trusted project that is set up for Claude Code, with a task."""
    directory = state(desk)
    trust(desk)
    desk.environment["SWARM_WORKER"] = "me"
    desk.run("swarm", "task", "add", "login", "--prompt", "x")
    desk.run("swarm", "setup", "claude", "--yes")
    return directory


def test_the_task_of_an_interactive_claude_code_waits_goes_on_and_fails_with_it(
    prepared: Path, pane: Callable[..., str], model: Server
) -> None:
    turns: list[Turn] = [
        Say("", (Call("mcp__swarm__claim"),)),
        Say("", (CLAUDE.shell("touch other"),)),
        Refuse(400, "bad request", "invalid_request_error"),
    ]
    model.scripts.append(Script(turns))
    log = StatusLog(FileStore(str(prepared)))

    def records() -> list[tuple[str, str]]:
        return [(found["state"], found.get("reason", "")) for _, found in log.query("login")]

    wait_until(lambda: "❯" in pane("capture-pane", "-p"))
    pane("send-keys", PROMPT)
    wait_until(lambda: PROMPT in pane("capture-pane", "-p"))
    pane("send-keys", "Enter")
    wait_until(lambda: len(records()) == 2)
    assert records()[1] == ("WAIT", "May I use Bash? touch other")
    wait_until(lambda: "❯ 1. Yes" in pane("capture-pane", "-p"))
    # the answer in the prompt withdraws the question; the prompt ignores an early key
    wait_until(lambda: pane("send-keys", "Enter") or len(records()) == 4)
    assert records()[2] == ("START", "goes on")
    assert records()[3][0] == "ERROR" and "bad request" in records()[3][1]
    task = TaskQueue(FileStore(str(prepared))).get("login")
    assert (task.state, task.attempts) == ("ready", 1)


def lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_the_plugin_is_where_the_marketplace_says() -> None:
    marketplace = json.loads((ROOT / ".claude-plugin/marketplace.json").read_text())
    assert (ROOT / marketplace["plugins"][0]["source"]).resolve() == Path(plugin.ROOT).resolve()
