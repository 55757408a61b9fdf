"""`swarm doctor` finds the agents in PATH, and the agent of swarm.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.admin.doctor import FAULT, OK, WARNING, Check, examine
from tests.support.command_line import run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and a PATH with one program that tells its version."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    programs = tmp_path / "bin"
    programs.mkdir()
    program(programs / "claude", "[ $1 = --version ] && echo '2.1.197 (Claude Code)'")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    assert run("init", "--yes").code == 0
    return place


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def found(name: str) -> list[Check]:
    return [check for check in examine() if check.name == name]


def test_agents_in_path_are_listed_with_their_versions(project: Path) -> None:
    (check,) = found("agents")
    assert (check.state, check.text) == (OK, "in PATH: claude 2.1.197 (Claude Code)")


def test_an_agent_that_tells_no_version_is_listed(project: Path) -> None:
    program(project.parent / "bin" / "codex", "exit 1")
    (check,) = found("agents")
    assert check.state == OK and "codex (does not tell its version)" in check.text


def test_a_missing_agent_of_the_project_is_a_warning_with_the_cure(project: Path) -> None:
    (project / "swarm.toml").write_text('agent = "gemini"\n')
    warning, _ = found("agents")
    assert (warning.state, warning.fix) == (WARNING, "npm install -g @google/gemini-cli")


def test_an_agent_of_the_project_that_does_not_exist_is_a_fault(project: Path) -> None:
    (project / "swarm.toml").write_text('agent = "no-such"\n')
    (fault,) = found("swarm.toml")
    assert fault.state == FAULT and "no-such" in fault.text


def test_an_invalid_swarm_toml_does_not_hide_the_agents(project: Path) -> None:
    (project / "swarm.toml").write_text('agnet = "claude"\n')
    assert found("swarm.toml")[0].state == FAULT
    (check,) = found("agents")
    assert check.state == OK


def test_without_a_project_and_agents_nothing_is_wrong(
    tmp_path: Path, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    (check,) = found("agents")
    assert check.state == OK and "--exec" in check.text
