"""Asks one member of a cluster everything that there is to ask, when it cannot know the answer: it must not give one.

A process of its own, that has spoken to the member before, so that it is known and its wires are open.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Self

from proof.server_controls import forget_the_others
from proof.worker import is_away
from swarm.errors import StoreError, SwarmError
from swarm.locks.table import LockTable
from swarm.status.log import LOG
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from tests.support.processes import fork

TIMEOUT = 1.0  # seconds that a question is tried for
LATE = 2 * TIMEOUT + 2  # seconds after which there must be an end, on a machine that has much else to do
_QUESTIONS: dict[str, Callable[[Store, str], object]] = {
    "read": lambda store, known: store.read("locks/t0"),
    "keys": lambda store, known: store.keys("locks"),
    "token_bound": lambda store, known: store.token_bound("locks/t0"),
    "highest_token": lambda store, known: store.highest_token("locks"),
    "read_log": lambda store, known: store.read_log(LOG, known),
    "tail": lambda store, known: store.tail(LOG, 1),
    "wait": lambda store, known: store.wait(LOG, known, 5),
    "numbered": lambda store, known: next(store.numbered(LOG), None),
    "next_token": lambda store, known: store.next_token("asked/t"),
    "create": lambda store, known: store.create("asked/t", b"1"),
    "append": lambda store, known: store.append("asked", b"1"),
    "acquire": lambda store, known: LockTable(store).acquire("asked", "witness", 1.0),
    "look": lambda store, known: LockTable(store).status("t0"),
}


class Outcome(NamedTuple):
    """`answer` is None if there was none."""

    verb: str
    seconds: float
    answer: str | None


class Witness:
    """For the length of a block; ready when that begins."""

    def __init__(self, url: str, control: str = "") -> None:
        self._told, told = os.pipe()
        heard, self._go = os.pipe()

        def serve() -> None:
            forget_the_others(control)
            stores = [open_store(f"{url}&timeout={TIMEOUT}") for _ in _QUESTIONS]
            _, known = max(store.tail(LOG, 0) for store in stores)
            os.write(told, b".")
            os.read(heard, 1)
            with ThreadPoolExecutor(len(_QUESTIONS)) as pool:
                outcomes = list(pool.map(_ask, _QUESTIONS, stores, [known] * len(stores)))
            os.write(told, json.dumps(outcomes).encode())

        self._pid = fork(serve)
        os.close(told)
        os.close(heard)

    def __enter__(self) -> Self:
        assert os.read(self._told, 1) == b".", "it could not speak to the member before"
        return self

    def ask(self) -> None:
        os.write(self._go, b".")

    @property
    def has_ended(self) -> bool:
        return bool(select.select([self._told], [], [], 0)[0])

    def outcomes(self) -> list[Outcome]:
        """When it has ended."""
        with os.fdopen(os.dup(self._told)) as told:
            return [Outcome(*outcome) for outcome in json.loads(told.read())]

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._told)
        os.close(self._go)


def wrong_with(outcomes: list[Outcome], who: str) -> list[str]:
    """In words. `who` was asked."""
    answered = [f"{who} answered {verb}: {answer}" for verb, _, answer in outcomes if answer is not None]
    late = [f"{who} was asked {verb} for {seconds:.1f} s" for verb, seconds, _ in outcomes if seconds > LATE]
    return answered + late


def _ask(verb: str, store: Store, known: str) -> Outcome:
    begun = time.monotonic()
    answer: str | None = None
    try:
        answer = repr(_QUESTIONS[verb](store, known))[:200]
    except SwarmError as error:
        if not (isinstance(error, StoreError) and is_away(error)):
            answer = str(error)
    return Outcome(verb, time.monotonic() - begun, answer)
