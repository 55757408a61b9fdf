"""Senders and readers of messages that are killed at random, two readers for each
worker: no message is lost, and none is shown twice unless its reader was killed before
its receipt, on any store.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.messages.inbox import Inbox
from swarm.messages.state import LOG
from swarm.queue.queue import TaskQueue
from swarm.stores.registry import open_store
from tests.conftest import ROOT, script_environment, store_address
from tests.support.agents.message_actor import MESSAGES
from tests.support.selection import SERVERS

SENDERS = 10  # one after the other, two at a time
WORKERS = ("w1", "w1", "w2", "w2")  # each has two readers


@pytest.fixture(params=["file", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return store_address(request, tmp_path)


def violations(
    notes: list[dict[str, Any]], lines: list[dict[str, Any]], killed: set[int]
) -> Iterator[str]:
    """Yield what breaks the promise.

    Each message of the log must be shown at each of its addresses. All but the last
    process that showed it there must have been killed before its receipt.
    """
    told = [line for line in lines if line["op"] == "tell"]
    shown: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for note in notes:
        if "shown" in note:
            shown[note["text"], note["worker"]].append((note["shown"], note["pid"]))
    confirmed = {(note["confirmed"], note["pid"]) for note in notes if "confirmed" in note}
    wanted = {(line["text"], worker) for line in told for worker in _readers(line)}
    for text, worker in wanted - shown.keys():
        yield f"{worker} has not seen {text}"
    for text, worker in shown.keys() - wanted:
        yield f"{worker} has seen {text}, which is not for it"
    for what, times in shown.items():
        if any(each in confirmed or each[1] not in killed for each in times[:-1]):
            yield f"{what} was shown twice, by {times}"
        if len({name for name, _ in times}) > 1:
            yield f"{what} has several ids: {times}"
    texts = [line["text"] for line in told]
    if len(texts) != len(set(texts)):
        yield "a message is in the log twice"
    sent = {note["sent"] for note in notes if "sent" in note}
    if len(sent) > len(told):
        yield "a message that was sent is not in the log"


def _readers(line: dict[str, Any]) -> set[str]:
    """Return the workers that a message is for: w1 holds the task t."""
    return {each.get("worker", "w1") for each in line["for"]}


def test_no_message_is_lost_or_shown_twice_by_living_readers(url: str, tmp_path: Path) -> None:
    path, store = tmp_path / "notes", open_store(url)
    queue = TaskQueue(store)
    queue.add("t", "x", labels=["l"])
    queue.add("u", "x")
    queue.claim("w1", "t", ttl=3600)
    queue.claim("w2", "u", ttl=3600)
    chance = random.Random(7)
    started: list[subprocess.Popen[bytes]] = []
    killed: set[int] = set()

    def start(what: str, name: str) -> subprocess.Popen[bytes]:
        words = ["-m", "tests.support.agents.message_actor", what, url, name, str(path)]
        process = subprocess.Popen([sys.executable, *words], cwd=ROOT, env=script_environment())
        started.append(process)
        return process

    def kill(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.kill()
            process.wait()
            killed.add(process.pid)

    def notes() -> list[dict[str, Any]]:
        text = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in text.splitlines()]

    deadline = time.monotonic() + 100
    try:
        readers = [start("read", worker) for worker in WORKERS]
        senders = [start("send", f"s{number}") for number in range(2)]
        number = len(senders)
        while any(sender.poll() is None for sender in senders):
            assert time.monotonic() < deadline
            time.sleep(0.05)
            begun = {note["pid"] for note in notes() if "shown" in note or "sent" in note}
            victim = chance.randrange(len(readers))
            if readers[victim].pid in begun:  # a process that was killed at its start proves little
                kill(readers[victim])
                readers[victim] = start("read", WORKERS[victim])
            victim = chance.randrange(len(senders))
            if senders[victim].pid in begun and chance.random() < 0.4:
                kill(senders[victim])
            if senders[victim].poll() is not None and number < SENDERS:
                senders[victim] = start("send", f"s{number}")
                number += 1
        while any(Inbox(store, worker).unread() for worker in set(WORKERS)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        Path(f"{path}.stop").touch()
        assert [reader.wait(60) for reader in readers] == [0] * len(readers)
    finally:
        for process in started:
            process.kill()
            process.wait()
    lines = [json.loads(line) for line in store.read_log(LOG, limit=1 << 30)[0]]
    assert list(violations(notes(), lines, killed)) == []
    told = sum(line["op"] == "tell" for line in lines)
    assert told > MESSAGES * 3 and len(killed) > 3
    store.close()


def test_the_check_finds_losses_and_doubles() -> None:
    line = {"op": "tell", "text": "a", "for": [{"worker": "w2"}, {"task": "t"}]}
    first = {"shown": "m1", "text": "a", "worker": "w2", "pid": 1}
    second = {"shown": "m1", "text": "a", "worker": "w1", "pid": 2}
    assert not list(violations([first, second], [line], set()))
    assert list(violations([first], [line], set()))
    assert list(violations([first, second], [], set()))
    again = {**first, "pid": 3}
    assert list(violations([first, again, second], [line], {3}))
    assert not list(violations([first, again, second], [line], {1}))
    confirmed = {"confirmed": "m1", "pid": 1}
    assert list(violations([first, again, second, confirmed], [line], {1}))
    assert list(violations([first, {**again, "shown": "m2"}, second], [line], {1}))
    assert list(violations([first, second], [line, line], set()))
    assert list(violations([first, second, {"sent": "m1"}, {"sent": "m2"}], [line], set()))
