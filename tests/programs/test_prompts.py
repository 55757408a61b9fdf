"""`swarm up --answer-prompts` with the real programs, which have no hooks of swarm here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from swarm.status.log import StatusLog
from swarm.stores.file.store import FileStore
from swarm.tmux.manager import TmuxSwarmManager
from tests.support.at_a_terminal import wait_until
from tests.support.model_server import Script, Server
from tests.support.programs.agents import CLAUDE, Desk, Program
from tests.support.programs.model_apis import Call, Say
from tests.support.screens.panes import end_server
from tests.support.screens.record import OPTIONS, escalated, settle


@pytest.fixture
def swarm_dir(desk: Desk, project: None) -> Iterator[str]:
    settle(desk)
    directory = str(desk.work / ".swarm")
    yield directory
    desk.run("swarm", "down", "--grace", "5")
    end_server(TmuxSwarmManager(directory))


def start(desk: Desk, program: Program) -> None:
    command = shlex.join([program.name, *OPTIONS[program.name], "Please do it."])
    options = ["--workers", "1", "--answer-prompts", "confirm"]
    desk.run("swarm", "up", "--interactive", command, *options)


def call(program: Program, command: str) -> Call:
    return program.shell(command) if program is CLAUDE else escalated(command)


def records(directory: str) -> list[dict[str, Any]]:
    return [record for _, record in StatusLog(FileStore(directory)).read()[0]]


def test_the_permission_prompt_of_a_real_agent_is_answered(
    desk: Desk, model: Server, swarm_dir: str, program: Program
) -> None:
    asked = call(program, "touch new.txt")
    model.scripts.append(Script([Say("", (asked,)), Say("It is done.")]))
    start(desk, program)
    wait_until((desk.work / "new.txt").exists)
    wait_until(lambda: records(swarm_dir))
    (record,) = records(swarm_dir)
    assert record["meta"] == {"prompt": "confirm", "typed": "Enter"}
    assert "touch new.txt" in record["reason"]
    manager = TmuxSwarmManager(swarm_dir)
    wait_until(lambda: "It is done." in manager.capture(1))


def test_a_dangerous_command_of_a_real_agent_waits_for_a_person(
    desk: Desk, model: Server, swarm_dir: str, program: Program
) -> None:
    asked = call(program, "rm -rf old.txt")
    model.scripts.append(Script([Say("", (asked,)), Say("It is done.")]))
    start(desk, program)
    wait_until(lambda: records(swarm_dir))
    (record,) = records(swarm_dir)
    assert record["state"] == "WAIT" and "rm -rf" in record["reason"]
    assert (desk.work / "old.txt").exists()
