"""The password of the store and the token of the page stay with swarm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swarm.queue.queue import TaskQueue
from swarm.status.log import StatusLog
from swarm.stores.memory import MemoryStore
from swarm.stores.secrets import agent_environment, known_secrets, scrub
from swarm.workers.worker import SmartWorker
from tests.conftest import ROOT, script_environment

PASSWORD = "V4lkey/S3cret"
TOKEN = "the-token-of-the-page-0123456789"


@pytest.mark.parametrize(
    ("variables", "left"),
    [
        (
            {"SWARM_STORE": "redis://swarm:V4lkey%2FS3cret@h:1/0?swarm=a&timeout=3.5"},
            {"SWARM_STORE": "redis://swarm@h:1/0?swarm=a&timeout=3.5"},
        ),
        (
            {"SWARM_STORE": "redis://h:1/0?timeout=3&password=V4lkey%2FS3cret"},
            {"SWARM_STORE": "redis://h:1/0?timeout=3"},
        ),
        (
            {"SWARM_STORE": "postgresql://u@h/d", "PGPASSWORD": PASSWORD},
            {"SWARM_STORE": "postgresql://u@h/d"},
        ),
        ({"SWARM_STORE": "valkey://h", "REDISCLI_AUTH": PASSWORD}, {"SWARM_STORE": "valkey://h"}),
        (
            {"SWARM_STORE": "etcd://h", "ETCDCTL_USER": f"u:{PASSWORD}"},
            {"SWARM_STORE": "etcd://h", "ETCDCTL_USER": "u"},
        ),
        (
            {"SWARM_STORE": "etcds://h", "ETCDCTL_USER": "u", "ETCDCTL_PASSWORD": PASSWORD},
            {"SWARM_STORE": "etcds://h", "ETCDCTL_USER": "u"},
        ),
    ],
)
def test_an_agent_gets_the_store_without_its_password(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], left: dict[str, str]
) -> None:
    for name, value in {**variables, "SWARM_WEB_TOKEN": TOKEN}.items():
        monkeypatch.setenv(name, value)
    found = agent_environment(store_for_agent=False)
    names = {*variables, "SWARM_WEB_TOKEN", "SWARM_STORE_WITHHELD"}
    assert {name: found[name] for name in names if name in found} == {
        **left,
        "SWARM_STORE_WITHHELD": "1",
    }
    assert PASSWORD in known_secrets() and TOKEN in known_secrets()
    asked = agent_environment(store_for_agent=True)
    assert {name: asked[name] for name in names if name in asked} == variables


def test_a_store_without_a_password_and_variables_of_other_servers_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SWARM_STORE", "redis://h:1/0?timeout=3")
    monkeypatch.setenv("PGPASSWORD", "of the agent's own database")
    assert agent_environment(store_for_agent=False) == dict(os.environ)


def test_secrets_are_scrubbed_in_every_form() -> None:
    text = f"redis://u:V4lkey%2FS3cret@h and {PASSWORD}, not V4lkey"
    assert scrub(text, [PASSWORD]) == "redis://u:…@h and …, not V4lkey"


class TestOutputOfAgents:
    @pytest.fixture
    def log(self, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """What the log says of an agent that prints all secrets it can find."""
        monkeypatch.setenv("SWARM_STORE", "redis://swarm:V4lkey%2FS3cret@127.0.0.1:1/0")
        monkeypatch.setenv("SWARM_WEB_TOKEN", TOKEN)
        store = MemoryStore()
        queue = TaskQueue(store)
        queue.add("good", "x")
        queue.add("bad", "x", max_attempts=1)
        show = (
            f"echo [WAIT] {PASSWORD}; echo {TOKEN}; env; echo last {TOKEN};"
            " [ $SWARM_TASK_ID = good ]"
        )
        lines: list[str] = []
        worker = SmartWorker("w", ["sh", "-c", show], store=store, on_line=lines.append)
        worker.run(until_empty=True)
        assert (worker.tally.done, worker.tally.failed) == (1, 1)
        tasks: list[Any] = [task.fields() for task in queue.tasks()]
        records = b"".join(StatusLog(store).tail(100)).decode()
        return f"{records}{lines}{tasks}"

    def test_known_secrets_are_in_no_record_and_in_no_result(self, log: str) -> None:
        assert "last …" in log and "SWARM_WEB_TOKEN" not in log
        for secret in (PASSWORD, TOKEN, "V4lkey"):
            assert secret not in log


def test_an_agent_without_the_password_is_told_why_it_cannot_use_the_store(
    isolated_swarm_dir: Path,
) -> None:
    environment = script_environment(
        SWARM_STORE="redis://swarm:V4lkey%2FS3cret@127.0.0.1:1/0?timeout=0.1"
    )
    told = subprocess.run(
        [sys.executable, "-m", "swarm", "status"],
        cwd=ROOT,
        env={**environment, "SWARM_STORE_WITHHELD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.returncode == 3 and "--store-for-agent" in told.stderr
