"""`swarm setup`: what it writes, that it writes nothing else, and that taking it back
leaves every byte as it was.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import stat
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm import __version__
from swarm.agents.setup import agents, codex_toml, file_changes, hook_entries, plan
from swarm.agents.setup.file_changes import Change
from swarm.agents.setup.instructions import skill_text
from swarm.cli import lock as cli_lock
from swarm.cli import log, setup
from swarm.cli.queue import task
from swarm.system import own_command
from tests.conftest import ROOT, script_environment
from tests.support.at_a_terminal import SWARM, terminal
from tests.support.command_line import run
from tests.support.disks import fill, mounted, needs_root

SWARM_IS = ("swarm",)
AGENTS = agents.AGENTS


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of the test's own, and a `swarm` on PATH that is this one."""
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    for agent in agents.TABLE:
        if agent.variable:
            monkeypatch.delenv(agent.variable, raising=False)
    install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(setup, "check_server", lambda command: None)  # see test_mcp_check
    return directory


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout, which is the working directory."""
    directory = tmp_path / "project"
    (directory / ".git").mkdir(parents=True)
    monkeypatch.chdir(directory)
    return directory


def install(directory: Path, version: str = __version__) -> None:
    directory.mkdir(exist_ok=True)
    run_it = f"exec '{sys.executable}' -P '{ROOT}/swarm/__main__.py' \"$@\""
    (directory / "swarm").write_text(
        f"#!/bin/sh\n[ \"$1\" = --version ] && echo 'swarm {version}' && exit\n{run_it}\n"
    )
    (directory / "swarm").chmod(0o755)


def tree(directory: Path) -> dict[str, bytes | None]:
    """Everything below, directories as None."""
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in directory.rglob("*")
    }


# What it writes -----------------------------------------------------------------------


def test_setup_changes_the_project_files_of_claude_code(project: Path) -> None:
    assert run("setup", "claude", "--yes").code == 0
    settings = json.loads((project / ".claude/settings.json").read_text())
    assert list(settings["hooks"]) == [entry.event for entry in agents.CLAUDE.hooks]
    assert settings["permissions"] == {"allow": ["Bash(swarm:*)", "mcp__swarm__*"]}
    handler = {"type": "command", "command": "swarm hook || exit 1", "timeout": 10}
    assert settings["hooks"]["PreToolUse"] == [
        {"matcher": "Edit|Write|MultiEdit|NotebookEdit", "hooks": [handler]}
    ]
    assert settings["hooks"]["SessionEnd"] == [{"hooks": [{**handler, "timeout": 3}]}]
    assert json.loads((project / ".mcp.json").read_text()) == {
        "mcpServers": {"swarm": {"command": "swarm", "args": ["mcp"]}}
    }
    assert "Run `swarm prime`" in (project / "CLAUDE.md").read_text()


def test_a_hook_does_not_block_when_swarm_is_gone(tmp_path: Path) -> None:
    """A Python that is given a file that is not there exits with 2, which agents read as: block."""
    command = hook_entries.command_line(
        (sys.executable, "-P", str(tmp_path / "swarm" / "__main__.py"))
    )
    assert subprocess.run(["sh", "-c", command], input=b"{}", capture_output=True).returncode == 1


def test_setup_changes_the_project_files_of_codex(project: Path) -> None:
    assert run("setup", "codex", "--yes").code == 0
    hooks = json.loads((project / ".codex/hooks.json").read_text())
    assert list(hooks) == ["hooks"], "Codex refuses a file with any other key"
    assert hooks["hooks"]["PreToolUse"][0]["matcher"] == "apply_patch|Edit|Write"
    server = tomllib.loads((project / ".codex/config.toml").read_text())["mcp_servers"]["swarm"]
    assert (server["command"], server["args"]) == ("swarm", ["mcp"])
    assert "SWARM_STORE" in server["env_vars"], "Codex passes on nothing that is not named"
    assert server["default_tools_approval_mode"] == "approve"
    assert "Run `swarm prime`" in (project / "AGENTS.md").read_text()


@pytest.mark.parametrize("agent", AGENTS)
def test_setup_with_user_changes_the_files_of_the_user(
    agent: str, project: Path, home: Path
) -> None:
    skill = ["--skill"] if agent != "cursor" else []
    run("setup", agent, "--user", *skill, "--yes")
    expected = {
        "claude": {
            ".claude/settings.json",
            ".claude.json",
            ".claude/CLAUDE.md",
            ".claude/skills/swarm/SKILL.md",
        },
        "codex": {
            ".codex/hooks.json",
            ".codex/config.toml",
            ".codex/AGENTS.md",
            ".agents/skills/swarm/SKILL.md",
        },
        "gemini": {
            ".gemini/settings.json",
            ".gemini/GEMINI.md",
            ".agents/skills/swarm/SKILL.md",
        },
        "opencode": {
            ".config/opencode/opencode.json",
            ".config/opencode/AGENTS.md",
            ".agents/skills/swarm/SKILL.md",
        },
        "copilot": {
            ".copilot/hooks/swarm.json",
            ".copilot/mcp-config.json",
            ".copilot/copilot-instructions.md",
            ".agents/skills/swarm/SKILL.md",
        },
        "cursor": {".cursor/mcp.json"},
    }
    assert {path for path, content in tree(home).items() if content is not None} == expected[agent]
    assert set(tree(project)) == {".git"}
    run("setup", agent, "--user", "--remove", "--yes")
    assert tree(home) == {}


@pytest.mark.parametrize(
    ("agent", "variable"), [(row.name, row.variable) for row in agents.TABLE if row.variable]
)
def test_setup_respects_a_moved_directory_of_user_settings(
    agent: str, variable: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    run("setup", agent, "--user", "--yes")
    assert len(tree(tmp_path / "elsewhere")) >= 3
    run("setup", agent, "--user", "--remove", "--yes")
    assert not any(tree(tmp_path / "elsewhere").values())


def test_the_project_is_the_checkout_around_the_working_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "src/deep").mkdir(parents=True)
    monkeypatch.chdir(project / "src/deep")
    run("setup", "codex", "--yes")
    assert (project / "AGENTS.md").exists()


def test_setup_changes_the_project_that_is_named(project: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    run("setup", "codex", "--project", str(tmp_path / "other"), "--yes")
    assert (tmp_path / "other/AGENTS.md").exists() and not (project / "AGENTS.md").exists()


@pytest.mark.parametrize("agent", AGENTS)
def test_a_second_setup_changes_nothing(agent: str, project: Path) -> None:
    skill = ["--skill"] if agent != "cursor" else []
    run("setup", agent, *skill, "--yes")
    before = tree(project)
    answer = run("setup", agent, *skill, "--json")
    assert (answer.code, answer.json["changed"], answer.json["files"]) == (0, False, [])
    assert tree(project) == before


@pytest.mark.parametrize("agent", AGENTS)
def test_setup_updates_what_an_older_setup_wrote(agent: str, project: Path) -> None:
    where = agents.agent_files(agent, project=str(project))
    command = ("/old/python3", "-P", "/old/swarm/__main__.py")
    old = plan.changes(agent, where, command, plan.Parts(skill=bool(where.skill)))
    file_changes.make(old, where.root)
    run("setup", agent, "--yes")
    assert not any(b"/old/" in content for content in tree(project).values() if content)
    run("setup", agent, "--remove", "--yes")
    assert set(tree(project)) == {".git"}


# What it leaves alone -----------------------------------------------------------------


def test_setup_leaves_the_rest_of_a_file_unchanged(project: Path) -> None:
    theirs: dict[str, Any] = {
        "model": "größer",
        "hooks": {
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "audit"}]}],
            "Stop": [1],
        },
    }
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text(
        json.dumps(theirs, indent="\t", ensure_ascii=False)
    )
    (project / ".mcp.json").write_text('{"mcpServers": {"db": {"command": "db"}}}')
    (project / "CLAUDE.md").write_bytes(b"# Rules\r\n\r\nBe kind.")
    before = tree(project)
    run("setup", "claude", "--yes")
    text = (project / ".claude/settings.json").read_text()
    settings = json.loads(text)
    assert text.startswith(
        '{\n\t"model": "größer",\n\t"hooks": {\n\t\t"PreToolUse": '
        '[\n\t\t\t{\n\t\t\t\t"matcher": '
        '"Bash"'
    )
    assert (
        settings["hooks"]["PreToolUse"][0] == theirs["hooks"]["PreToolUse"][0]
        and len(settings["hooks"]["PreToolUse"]) == 2
    )
    assert list(json.loads((project / ".mcp.json").read_text())["mcpServers"]) == ["db", "swarm"]
    assert (
        (project / "CLAUDE.md")
        .read_bytes()
        .startswith(b"# Rules\r\n\r\nBe kind.\r\n\r\n<!-- swarm:begin")
    )
    run("setup", "claude", "--remove", "--yes")
    assert tree(project) == before


def test_a_hook_of_the_user_in_the_same_group_stays(project: Path) -> None:
    run("setup", "claude", "--yes")
    path = project / ".claude/settings.json"
    settings = json.loads(path.read_text())
    settings["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "say done"})
    path.write_text(json.dumps(settings))
    run("setup", "claude", "--remove", "--yes")
    assert json.loads(path.read_text()) == {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}
    }


@pytest.mark.parametrize(
    ("agent", "name", "content"),
    [
        ("claude", ".mcp.json", '{"mcpServers": {"swarm": {"command": "bees"}}}'),
        ("codex", ".codex/config.toml", '[mcp_servers.swarm]\ncommand = "bees"\n'),
        ("codex", ".codex/config.toml", 'mcp_servers = { swarm = { url = "http://bees" } }\n'),
        # cannot be added to
        ("codex", ".codex/config.toml", 'mcp_servers = { other = { command = "x" } }\n'),
        ("claude", ".claude/skills/swarm/SKILL.md", "---\nname: swarm\n---\nAbout bees.\n"),
    ],
)
def test_an_entry_named_swarm_that_swarm_did_not_write_is_refused_and_never_removed(
    agent: str, name: str, content: str, project: Path
) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(content)
    before = tree(project)
    answer = run("setup", agent, "--yes")
    assert answer.code == 2 and name.encode() in answer.err and b"Nothing was changed" in answer.err
    assert run("setup", agent, "--remove", "--yes").code == 0
    assert tree(project) == before


# There and back: file by file in test_setup_texts -------------------------------------


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("content", ["some", "empty", "none"])
def test_after_a_removal_every_file_is_as_it_was_before_setup(
    agent: str, content: str, project: Path
) -> None:
    """An empty JSON object is the exception: see test_texts."""
    files = agents.agent_files(agent, project=str(project))
    for path in {files.hooks, files.servers, files.instructions} - {""}:
        if content == "some" or (content == "empty" and not path.endswith(".json")):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            text = '{"a": []}' if path.endswith(".json") else "# Own"
            Path(path).write_text(text if content == "some" else "")
    before = tree(project)
    run("setup", agent, *(["--skill"] if files.skill else []), "--yes")
    assert tree(project) != before
    run("setup", agent, "--remove", "--yes")
    assert tree(project) == before


# Asking -------------------------------------------------------------------------------


def test_setup_without_a_terminal_changes_nothing(project: Path) -> None:
    answer = run("setup", "claude")
    assert (
        answer.code == 1 and b"--yes" in answer.err and b"+++ .claude/settings.json" in answer.out
    )
    assert set(tree(project)) == {".git"}


def test_a_dry_run_of_setup_changes_nothing(project: Path) -> None:
    answer = run("setup", "codex", "--dry-run")
    assert (
        answer.code == 0
        and b"+[mcp_servers.swarm]" in answer.out
        and b"nothing was changed" in answer.out
    )
    assert set(tree(project)) == {".git"}


def test_setup_with_json_lists_every_change(project: Path) -> None:
    answer = run("setup", "codex", "--yes", "--json").json
    assert [(Path(file["path"]).name, file["change"]) for file in answer["files"]] == [
        ("hooks.json", "created"),
        ("config.toml", "created"),
        ("AGENTS.md", "created"),
    ]
    assert answer["changed"] and answer["files"][2]["diff"].startswith(
        "--- /dev/null\n+++ AGENTS.md\n"
    )


@pytest.mark.parametrize(
    ("typed", "changed"), [("y\n", True), ("n\n", False), ("\n", False), ("\x03", False)]
)
def test_setup_asks_and_accepts_only_y(typed: str, changed: bool, project: Path) -> None:
    with terminal() as at:
        at.start(*SWARM, "setup", "claude", cwd=project)
        at.wait_for("Change these 3 files? [y/N]")
        at.type(typed)
        ended = at.wait()
    assert (ended.code, (project / "CLAUDE.md").exists()) == (0 if changed else 1, changed)
    assert ("nothing was changed" in ended.shown) != changed


def test_setup_with_json_does_not_ask(project: Path) -> None:
    with terminal() as at:
        at.start(*SWARM, "setup", "claude", "--json", cwd=project)
        ended = at.wait()
    assert (ended.code, json.loads(ended.out)["exit_code"]) == (1, 1) and "[y/N]" not in ended.shown


def test_the_diff_shows_text_of_the_user_between_the_markers(project: Path) -> None:
    run("setup", "claude", "--yes")
    path = project / "CLAUDE.md"
    path.write_text(path.read_text().replace("<!-- swarm:end", "My own rule.\n<!-- swarm:end"))
    assert b"\n-My own rule.\n" in run("setup", "claude", "--dry-run").out


def test_the_diff_of_setup_has_colours_at_a_terminal(project: Path) -> None:
    (project / "AGENTS.md").write_text("a\n")
    screen, side = os.openpty()
    try:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        command = [*SWARM, "setup", "codex", "--dry-run"]
        subprocess.run(command, cwd=project, env=environment, stdout=side, timeout=60, check=True)
        shown = b""
        while b"nothing was changed" not in shown:
            shown += os.read(screen, 65536)
    finally:
        os.close(screen)
        os.close(side)
    assert (
        b"\x1b[1m+++ AGENTS.md\x1b[0m\r\n\x1b[2m@@ -1 +1,11 @@\x1b[0m\r\n a\r\n\x1b[32m+\x1b[0m\r\n"
        in shown
    )


def test_control_characters_of_a_file_do_not_reach_the_terminal(project: Path) -> None:
    (project / "CLAUDE.md").write_text("a\x1b[31mb\tc")
    out = run("setup", "claude", "--dry-run").out
    assert b"\x1b" not in out and b"-a\\x1b[31mb\tc\n" in out


# What can go wrong --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["aider"], "claude codex"),
        (["claude", "--project", "/no/such"], "no such directory"),
        (["claude", "--user", "--project", "."], "exclude each other"),
        (["claude", "--remove", "--skill"], "--skill"),
        ([], "needs claude|codex"),
        (["cursor", "--skill"], "no skill for Cursor"),
        (["claude", "--remove", "--no-mcp"], "--no-mcp"),
    ],
)
def test_wrong_usage_of_setup_is_an_error(args: list[str], error: str, project: Path) -> None:
    answer = run("setup", *args)
    assert answer.code == 2 and error in answer.err.decode()


def test_setup_in_a_removed_working_directory_is_an_error(project: Path) -> None:
    (project / "gone").mkdir()
    os.chdir(project / "gone")
    (project / "gone").rmdir()
    answer = run("setup", "codex", "--yes")
    assert answer.code == 2 and b"--project" in answer.err
    assert run("setup", "codex", "--yes", "--project", str(project)).code == 0


def test_setup_refuses_the_home_directory_as_a_project(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    answer = run("setup", "claude", "--yes")
    assert answer.code == 2 and b"--user" in answer.err and tree(home) == {}


BROKEN = {
    "comment": ('{\n  // mine\n  "a": 1}', "line 2"),
    "trailing comma": ('{\n  "a": 1,\n}', "line "),
    "empty": ("", "empty"),
    "a list": ("[]", "not an object"),
    "twice": ('{"hooks": {}, "hooks": {}}', "twice"),
    "wrong kind": ('{\n"hooks": []}', "line 2"),
    "wrong kind below": ('{"hooks": {"Stop": {}}}', "a list"),
    "a word": ('{"hooks": "no"}', "an object"),
    "too deep": ('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}", "too deeply"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_setup_refuses_an_invalid_settings_file(kind: str, project: Path) -> None:
    content, error = BROKEN[kind]
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").write_text(content)
    before = tree(project)
    answer = run("setup", "claude", "--yes")
    assert answer.code == 2 and error in answer.err.decode() and b"settings.json" in answer.err
    assert tree(project) == before


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("AGENTS.md", b"<!-- swarm:begin -->\nx\n", "once each"),
        ("AGENTS.md", b"a\n<!-- swarm:end -->\n<!-- swarm:begin -->\n", "line 2"),
        ("AGENTS.md", b"\xff", "not UTF-8"),
        (".codex/config.toml", b"a = \n", "not TOML"),
        (".codex/config.toml", b"a = [" + b"[" * 5000, "TOML|deeply"),
    ],
)
def test_setup_refuses_other_invalid_files(
    name: str, content: bytes, error: str, project: Path
) -> None:
    (project / ".codex").mkdir()
    (project / name).write_bytes(content)
    before = tree(project)
    answer = run("setup", "codex", "--yes")
    assert answer.code == 2 and any(word in answer.err.decode() for word in error.split("|"))
    run("setup", "codex", "--yes", "--remove")
    assert tree(project) == before


def test_a_removal_ignores_invalid_files_without_an_entry_of_swarm(project: Path) -> None:
    run("setup", "claude", "--yes")
    (project / ".mcp.json").write_text("{ // theirs, and not JSON\n}")
    (project / "CLAUDE.md").write_text("")
    before = tree(project)
    assert run("setup", "claude", "--remove", "--yes").code == 0
    del before[".claude"], before[".claude/settings.json"]
    assert tree(project) == before


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nothing-there")


@pytest.mark.parametrize(
    "plant", [loop, dangling, Path.mkdir, os.mkfifo], ids=["loop", "dangling", "directory", "fifo"]
)
def test_setup_refuses_paths_that_are_not_files(
    plant: Callable[[Path], None], project: Path
) -> None:
    plant(project / "CLAUDE.md")
    answer = run("setup", "claude", "--yes")
    assert answer.code == 2 and b"CLAUDE.md is" in answer.err
    assert not (project / ".claude").exists()


def test_setup_keeps_symbolic_links_and_modes(project: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfiles.json").write_text("{}")
    (tmp_path / "dotfiles.json").chmod(0o640)
    (project / ".claude").mkdir()
    (project / ".claude/settings.json").symlink_to(tmp_path / "dotfiles.json")
    answer = run("setup", "claude", "--yes")
    assert (
        f"+++ {project}/.claude/settings.json -> {tmp_path}/dotfiles.json\n".encode() in answer.out
    )
    assert (project / ".claude/settings.json").is_symlink()
    assert "swarm hook" in (tmp_path / "dotfiles.json").read_text()
    assert stat.S_IMODE((tmp_path / "dotfiles.json").stat().st_mode) == 0o640
    run("setup", "claude", "--remove", "--yes")
    assert (
        json.loads((tmp_path / "dotfiles.json").read_text()) == {}
        and (project / ".claude/settings.json").is_symlink()
    )


def test_one_file_for_both_agents_gets_one_block(project: Path) -> None:
    run("setup", "codex", "--yes")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")
    run("setup", "claude", "--yes")
    assert (project / "AGENTS.md").read_text().count("swarm:begin") == 1
    run("setup", "claude", "--remove", "--yes")
    assert (project / "CLAUDE.md").read_text() == ""


def test_setup_refuses_a_read_only_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "CLAUDE.md").write_text("x")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    answer = run("setup", "claude", "--yes")
    assert answer.code == 3 and b"read-only" in answer.err and not (project / ".claude").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such a file")
def test_setup_names_the_file_that_cannot_be_read(project: Path) -> None:
    (project / "CLAUDE.md").symlink_to("/proc/self/mem")
    answer = run("setup", "claude", "--yes")
    assert answer.code == 3 and b"CLAUDE.md cannot be read" in answer.err
    assert b"standard input" not in answer.err and not (project / ".claude").exists()


def test_setup_changes_nothing_if_a_file_changed_after_the_diff(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "CLAUDE.md").write_text("old")
    monkeypatch.setattr(
        setup, "_confirm", lambda made, call: (project / "CLAUDE.md").write_text("new")
    )
    answer = run("setup", "claude")
    assert answer.code == 1 and b"CLAUDE.md was changed" in answer.err
    assert {name: content for name, content in tree(project).items() if name != ".git"} == {
        "CLAUDE.md": b"new"
    }


@pytest.mark.parametrize("call", ["fsync", "rename", "mkdir", "fchmod"])
def test_setup_changes_nothing_if_a_system_call_fails(
    call: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "CLAUDE.md").write_text("old")
    before = tree(project)

    def fail(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "there")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        assert run("setup", "claude", "--yes").code == 3
    assert tree(project) == before


@needs_root
def test_setup_on_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        (disk.seen / "project").mkdir()
        (disk.seen / "project/CLAUDE.md").write_text("old")
        fill(disk.seen / "ballast")
        before = tree(disk.seen / "project")
        swarm = (sys.executable, "-P", f"{ROOT}/swarm/__main__.py")
        directory = str(disk.path / "project")
        done = disk.inside(
            *swarm, "setup", "claude", "--yes", "--project", directory, env=script_environment()
        )
        assert done.returncode == 3 and "No space left" in done.stderr
        assert tree(disk.seen / "project") == before


def test_two_setups_at_once_are_like_one_after_the_other(project: Path) -> None:
    command = [*SWARM, "setup", "claude", "--yes"]
    environment = script_environment(PYTHONPATH=str(ROOT), PATH=os.environ["PATH"])
    running = [
        subprocess.Popen(
            command,
            cwd=project,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in running:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0 or "changed by another program" in error
    before = tree(project)
    assert run("setup", "claude", "--yes").code == 0
    assert tree(project) == before
    assert not [name for name in before if ".swarm-" in name]


def test_setup_waits_for_another_setup_of_the_same_project(project: Path) -> None:
    lock = os.open(project, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    thread = threading.Thread(
        target=file_changes.make, args=([Change(str(project / "a"), None, b"x")], str(project))
    )
    thread.start()
    thread.join(0.2)
    assert thread.is_alive() and not (project / "a").exists()
    os.close(lock)
    thread.join(10)
    assert (project / "a").read_bytes() == b"x"


# Which command ------------------------------------------------------------------------


def test_without_swarm_on_path_the_written_command_works_from_anywhere(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    answer = run("setup", "claude", "--yes")
    assert b"Warning: there is no `swarm` on PATH" in answer.err
    command = json.loads((project / ".claude/settings.json").read_text())["hooks"]["Stop"][0][
        "hooks"
    ][0]["command"]
    version = command.removesuffix("hook || exit 1") + "--version"
    done = subprocess.run(
        ["sh", "-c", version],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"swarm {__version__}\n"
    assert f"{command.removesuffix(' hook || exit 1')} prime" in (project / "CLAUDE.md").read_text()
    run("setup", "claude", "--remove", "--yes")
    assert set(tree(project)) == {".git"}


def test_another_program_named_swarm_is_recognised_as_another(tmp_path: Path) -> None:
    install(tmp_path / "bin", version="0.0.0")
    found = own_command.own_command(__version__, shared=True)
    assert len(found.words) == 3 and "another program or version" in found.warning


def test_a_virtual_environment_is_written_for_the_user_and_a_warning_for_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert own_command.own_command(__version__, shared=False) == (
        (str(tmp_path / "bin/swarm"),),
        "",
    )
    words, warning = own_command.own_command(__version__, shared=True)
    assert words == ("swarm",) and "virtual environment" in warning


@pytest.mark.parametrize(
    "words",
    [("swarm",), ("/x y/bin/swarm",), ("/usr/bin/python3", "-P", "/it's here/swarm/__main__.py")],
)
def test_every_form_of_the_command_is_recognised(words: tuple[str, ...]) -> None:
    text = hook_entries.put("", hook_entries.groups(agents.CODEX, words), "x")
    assert hook_entries.remove(text, "x") == ""
    server = {"command": words[0], "args": [*words[1:], "mcp"]}
    assert own_command.is_own_server(server)
    assert codex_toml.remove(codex_toml.put(None, server, "x") or "", "x") is None


# The skill ----------------------------------------------------------------------------


def test_the_skill_has_the_form_that_agents_require() -> None:
    head, _, body = skill_text().removeprefix("---\n").partition("\n---\n")
    fields = dict(
        line.split(": ", 1)
        for line in head.splitlines()
        if ": " in line and not line.startswith(" ")
    )
    assert fields["name"] == "swarm" and len(fields["description"]) <= 1024
    assert "swarm prime" in body and "must_stop" in body
    assert len(body.splitlines()) < 100


def test_the_commands_that_the_skill_names_exist() -> None:
    text = skill_text()
    known = {"lock": cli_lock.COMMANDS, "log": log.COMMANDS, "task": task.COMMANDS}
    for face, name in re.findall(r"swarm (lock|log|task) ([a-z-]+)", text):
        assert name in known[face]
