"""Claude Code and Codex as a user would start them, in a home of their own and with the
scripted model instead of their maker's.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ROOT
from tests.support.model_server import Server
from tests.support.programs.install import install
from tests.support.programs.model_apis import Call

TIMEOUT = 60.0  # seconds for one run of a program


@dataclass
class Desk:
    """A git repository to work in, beside a home directory with settings for each program.

    `environment` has nothing from the environment of the tests. `swarm` is a command in its
    PATH.
    """

    directory: Path
    server: Server
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work = self.directory / "work"
        self.home = self.directory / "home"
        commands = self.directory / "bin"
        scratch = self.directory / "tmp"
        for made in (self.work, self.home / ".codex", commands, scratch):
            made.mkdir(parents=True)
        swarm = commands / "swarm"
        swarm.write_text(
            f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m swarm "$@"\n'
        )
        swarm.chmod(0o755)
        self.environment = {
            "PATH": f"{commands}:{install()}:/usr/bin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(scratch),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "GIT_CONFIG_GLOBAL": str(self.home / ".gitconfig"),
            "GIT_CONFIG_NOSYSTEM": "1",
            **_claude_environment(self.server.url),
            **_codex_environment(self.home, self.server.url),
        }
        self.run("git", "config", "--global", "user.name", "Test")
        self.run("git", "config", "--global", "user.email", "test@example.com")
        self.run("git", "init", "--quiet", "--initial-branch=main")
        (self.work / "old.txt").write_text("old\n")
        self.run("git", "add", ".")
        self.run("git", "commit", "--quiet", "--message=start")

    def commit(self) -> None:
        """Commit all files, so that the workspaces of agents have them."""
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message=all files")

    def run(
        self, *command: str, stdin: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the repository. Fail if it fails, unless `check` is false."""
        done = subprocess.run(
            command,
            cwd=self.work,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert not check or done.returncode == 0, (
            command,
            done.returncode,
            done.stdout,
            done.stderr,
        )
        return done


def _claude_environment(url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-test",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",  # instead of ten within three minutes
    }


def _codex_environment(home: Path, url: str) -> dict[str, str]:
    (home / ".codex/config.toml").write_text(f"""\
model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
plugins = false  # it looks for them on the network

[sandbox_workspace_write]  # as in a home directory, although the tests work below /tmp
exclude_slash_tmp = true
exclude_tmpdir_env_var = true

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 0
stream_max_retries = 0
""")
    return {"OPENAI_API_KEY": "sk-test"}


@dataclass(frozen=True)
class Program:
    """How to reach one program without swarm, and the tools that it offers to a model."""

    name: str
    command: tuple[str, ...]  # may edit files, takes the prompt on standard input
    careful: tuple[str, ...]  # the same, as it is without options: may edit nothing

    def write(self, path: str, text: str) -> Call:
        """The call of the tool that makes a file."""
        if self.name == "claude":
            return Call("Write", {"file_path": path, "content": text})
        lines = "".join(f"+{line}\n" for line in text.splitlines())
        return Call(
            "apply_patch", text=f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"
        )

    def shell(self, command: str) -> Call:
        """The call of the tool that runs a command."""
        if self.name == "claude":
            return Call("Bash", {"command": command, "description": "a command of the test"})
        return Call("exec_command", {"cmd": command})


CLAUDE = Program(
    "claude",
    (
        "claude",
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--permission-mode",
        "acceptEdits",
    ),
    ("claude", "-p", "--output-format", "stream-json", "--verbose"),
)
CODEX = Program(
    "codex",
    ("codex", "exec", "--json", "--sandbox", "workspace-write"),
    ("codex", "exec", "--json"),
)
PROGRAMS: Sequence[Program] = (CLAUDE, CODEX)
