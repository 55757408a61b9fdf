"""Check which agents are installed, and the agent that swarm.toml names."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

from swarm.admin.check import OK, WARNING, Check
from swarm.errors import BadInput
from swarm.presets.registry import NAMES, find
from swarm.project import config as project_config
from swarm.project.config import Config
from swarm.terminal.text import shorten, shown

_VERSION_TIMEOUT = 10.0  # seconds; an agent may start slowly
_MAX_VERSION = 60  # characters


def check_agents() -> Iterator[Check]:
    """List the agents that are installed. Warn if the project's agent is missing."""
    try:
        config = project_config.load()
    except BadInput:
        config = Config()  # reported by `check_project`
    programs: dict[str, str] = {}
    for name in dict.fromkeys((*NAMES, *config.agents)):
        try:
            preset = find(name, config)
        except BadInput:
            continue  # its table is invalid
        if path := shutil.which(preset.program):
            programs[name] = path
        elif name == config.agent:
            text = f"the agent of this project is {name}, but {preset.program} is not in PATH"
            yield Check("agents", WARNING, text, preset.install)
    versions = _versions(programs)
    if versions:
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield Check("agents", OK, f"in PATH: {found}")
    else:
        yield Check("agents", OK, f"none of {' '.join(NAMES)} is in PATH; --exec runs any program")


def _versions(programs: dict[str, str]) -> dict[str, str]:
    """Return the version of each program, as the program prints it."""
    started = {
        name: subprocess.Popen(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for name, path in programs.items()
        if name in NAMES  # a program of the user's own may not know the option
    }
    found = dict.fromkeys(programs, "(of this project)")
    for name, process in started.items():
        try:
            output, _ = process.communicate(timeout=_VERSION_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            found[name] = "(does not tell its version)"
            continue
        lines = output.decode(errors="replace").split("\n")
        version = shown(lines[0].strip()) if process.returncode == 0 else ""
        found[name] = shorten(version, _MAX_VERSION) or "(does not tell its version)"
    return found
