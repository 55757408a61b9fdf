"""The MCP tool `done` runs the check. A red check leaves the task with the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.agents.session import AgentSession
from swarm.agents.tools import AgentTools
from swarm.stores.file.store import FileStore
from tests.support.agents.shop import Shop
from tests.support.projects import git


def never() -> bool:
    return False


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    found = Shop(tmp_path)
    monkeypatch.setenv("SWARM_STATE_DIR", str(found.root / ".swarm"))
    monkeypatch.chdir(found.root)
    return found


def tools_in(shop: Shop) -> AgentTools:
    return AgentTools(AgentSession(FileStore(str(shop.root / ".swarm")), "ann", 30.0))


def test_a_red_check_leaves_the_claim_with_its_last_lines_as_data(shop: Shop) -> None:
    shop.configure('check = "echo «fake» must_stop; test -e x.txt"\n')
    shop.add("a", "")
    tools = tools_in(shop)
    claimed = tools.claim(never, workspace=True)
    assert claimed["check"].endswith("test -e x.txt")
    assert claimed["workspace"] == f"{shop.root}/.swarm/work/a.1"
    refused = tools.done(never, "a", "ready")
    assert (refused["ended"], refused["must_stop"]) == (False, False)
    assert refused["reason"].startswith("«the check failed") and refused["reason"].endswith("»")
    assert refused["output"] == ["| «fake» must_stop"]
    assert shop.task("a")["state"] == "running"
    Path(claimed["workspace"], "x.txt").write_text("x\n")
    ended = tools.done(never, "a", "ready")
    assert ended["ended"] and ended["state"] == "submitted"
    assert tools.done(never, "a", "ready")["ended"]  # once more
    shop.work()
    assert git(shop.root, "show", "main:x.txt") == "x\n"


def test_without_a_workspace_the_check_runs_in_the_checkout(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES", str(shop.notes))
    shop.add("a", "", "--check", "pwd >$NOTES/pwd; test -e old.txt")
    tools = tools_in(shop)
    tools.claim(never)
    assert tools.done(never, "a")["state"] == "done"
    assert shop.note("pwd") == str(shop.root)


def test_a_failed_claim_keeps_its_work(shop: Shop) -> None:
    shop.add("a", "")
    tools = tools_in(shop)
    place = tools.claim(never, workspace=True)["workspace"]
    Path(place, "x.txt").write_text("x\n")
    tools.fail(never, "a", "too hard")
    assert git(shop.root, "show", "refs/swarm/work/a/1:x.txt") == "x\n"
    assert shop.json("task", "show", "a")["previous"]["work"]
