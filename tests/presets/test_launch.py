"""How presets start agents: the prompt once, the permissions that were asked for."""

from __future__ import annotations

import json

import pytest

from swarm.errors import BadInput
from swarm.presets.contract import PERMISSIONS, Request
from swarm.presets.registry import NAMES, find
from tests.presets.recorded import Config, Table

REQUEST = Request("--help\nDo it.", model="m1", check="make test", writable=("/state",))


@pytest.mark.parametrize("permissions", PERMISSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_the_prompt_is_on_standard_input_and_nowhere_else(name: str, permissions: str) -> None:
    preset = find(name, Config())
    request = Request("--help\nDo it.", permissions=permissions)
    for launch in (preset.new_attempt(request), preset.resume(request, "5f0f-11")):
        assert launch is not None and launch.stdin == b"--help\nDo it."
        assert launch.command[0] == preset.program == name
        words = " ".join((*launch.command, *launch.environment.values()))
        assert "Do it." not in words


@pytest.mark.parametrize("name", NAMES)
def test_each_permission_is_another_command(name: str) -> None:
    preset = find(name, Config())
    launches = [preset.new_attempt(Request("x", permissions=each)) for each in PERMISSIONS]
    assert len({json.dumps([each.command, dict(each.environment)]) for each in launches}) == 3


def test_claude_may_edit_and_run_the_check_git_and_swarm() -> None:
    request = Request("x", check="make test", swarm=("python3", "-m", "swarm"), extra=("--bare",))
    command = find("claude", Config()).new_attempt(request).command
    assert "--permission-mode=acceptEdits" in command and command[-1] == "--bare"
    for rule in ("Bash(git:*)", "Bash(python3 -m swarm:*)", "Bash(make test)", "mcp__swarm"):
        assert f"--allowedTools={rule}" in command


def test_codex_may_write_in_the_directories_that_swarm_needs() -> None:
    command = find("codex", Config()).new_attempt(REQUEST).command
    assert 'sandbox_workspace_write.writable_roots=["/state"]' in command
    assert 'model="m1"' in command


class TestOwnAgents:
    def test_the_prompt_is_on_standard_input_or_where_the_command_has_it(self) -> None:
        mine = find("mine", Config(mine=Table("my-agent run", resume="my-agent go {session}")))
        launch = mine.new_attempt(REQUEST)
        assert launch.command == ("my-agent", "run") and launch.stdin == b"--help\nDo it."
        resumed = mine.resume(REQUEST, "5f0f")
        assert resumed is not None and resumed.command == ("my-agent", "go", "5f0f")
        other = find("mine", Config(mine=Table("my-agent {prompt}")))
        assert other.new_attempt(REQUEST).command == ("my-agent", "Task: --help\nDo it.")
        assert other.new_attempt(REQUEST).stdin == b""
        assert other.resume(REQUEST, "5f0f") is None

    def test_a_table_comes_before_a_preset(self) -> None:
        mine = find("claude", Config(claude=Table("my-claude", output="claude")))
        assert mine.program == "my-claude"
        used = mine.reader()
        used.feed(json.dumps({"type": "result", "result": "Done.", "is_error": False}))
        assert used.report(0).result == "Done."

    @pytest.mark.parametrize(
        ("code", "line", "kind"),
        [
            (75, "come back later", "exit75"),
            (1, "quota exceeded, try again in 2 hours", "usage"),
            (1, "the network is down", None),
            (0, "quota exceeded", None),
        ],
    )
    def test_exit_code_75_and_the_own_mark_are_limits(
        self, code: int, line: str, kind: str | None
    ) -> None:
        used = find("mine", Config(mine=Table("x", limit="quota exceeded"))).reader()
        used.feed("at work")
        used.feed_error(line)
        report = used.report(code)
        assert (report.limit.kind if report.limit else None) == kind
        if kind == "usage":
            assert report.limit is not None and report.limit.until is not None

    @pytest.mark.parametrize(
        "table",
        [
            Table(""),
            Table("x 'y"),
            Table("x", limit="("),
            Table("sh -c 'x {prompt}'"),
            Table("x", resume="sh -c 'x {session}'"),
        ],
    )
    def test_an_invalid_table_is_refused(self, table: Table) -> None:
        with pytest.raises(BadInput, match=r"agents\.mine"):
            find("mine", Config(mine=table))

    def test_an_unknown_agent_is_refused_with_the_known_ones(self) -> None:
        with pytest.raises(BadInput, match="claude codex gemini opencode mine"):
            find("cluade", Config(mine=Table("x")))
