"""A sender and a reader of messages, for `test_message_chaos`.

    python -m tests.support.agents.message_actor send ADDRESS NAME FILE
    python -m tests.support.agents.message_actor read ADDRESS WORKER FILE

Each notes in FILE, one JSON object a line: which message was sent, shown, confirmed. A
reader ends when FILE has a neighbour FILE.stop.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swarm.errors import LockHeld
from swarm.messages.inbox import Inbox
from swarm.messages.message import Sender
from swarm.messages.outbox import Outbox
from swarm.stores.contract import Store
from swarm.stores.registry import open_store

ADDRESSES = ("w1", "w2", "task:t", "label:l", "all")
MESSAGES = 8  # of each sender

Note = Callable[..., None]


def send(store: Store, name: str, note: Note) -> None:
    outbox = Outbox(store)
    for number in range(MESSAGES):
        message = outbox.tell(ADDRESSES[number % len(ADDRESSES)], f"{name}-{number}", Sender(name))
        note(sent=message.message.id)


def read(store: Store, worker: str, note: Note, must_stop: Callable[[], bool]) -> None:
    inbox, chance = Inbox(store, worker), random.Random(os.getpid())
    while not must_stop():
        try:
            received = inbox.receive(chance.choice([None, 1, 20]))
        except LockHeld:
            time.sleep(0.002)
            continue
        if received is None:
            time.sleep(0.01)
            continue
        with received:
            for message in received.messages:
                note(shown=message.id, text=message.text, worker=worker)
            time.sleep(chance.random() * 0.01)  # the window in which a kill shows them again
            received.confirm()
            for message in received.messages:
                note(confirmed=message.id, worker=worker)


def main(what: str, address: str, name: str, path: str) -> None:
    notes = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(**facts: Any) -> None:
        os.write(notes, json.dumps({"pid": os.getpid(), **facts}).encode() + b"\n")

    note(started=True)
    store = open_store(address)
    if what == "send":
        send(store, name, note)
    else:
        read(store, name, note, Path(f"{path}.stop").exists)


if __name__ == "__main__":
    main(*sys.argv[1:])
