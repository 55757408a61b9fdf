"""A witness: a process that asks a cluster member everything that a store can be asked.

The witness asks when the member cannot know the answer, so the member must not answer.
Before this, the witness has talked to the member, so that its connections are open.
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

from proof.server_controls import accept_single_member_reads
from proof.worker import is_unreachable
from swarm.errors import StoreError, SwarmError
from swarm.locks.table import LockTable
from swarm.status.log import LOG
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from tests.support.processes import fork

TIMEOUT = 1.0  # seconds that a question is tried for
LATE = 2 * TIMEOUT + 2  # seconds after which a question must have ended, on a busy machine
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
    """`answer` is None if the member did not answer."""

    verb: str
    seconds: float
    answer: str | None


class Witness:
    """A witness that is ready at the beginning of its block, and killed at the end."""

    def __init__(self, url: str, control: str = "") -> None:
        self._output, output = os.pipe()
        start, self._go = os.pipe()

        def serve() -> None:
            accept_single_member_reads(control)
            stores = [open_store(f"{url}&timeout={TIMEOUT}") for _ in _QUESTIONS]
            _, known = max(store.tail(LOG, 0) for store in stores)
            os.write(output, b".")
            os.read(start, 1)
            with ThreadPoolExecutor(len(_QUESTIONS)) as pool:
                outcomes = list(pool.map(_ask, _QUESTIONS, stores, [known] * len(stores)))
            os.write(output, json.dumps(outcomes).encode())

        self._pid = fork(serve)
        os.close(output)
        os.close(start)

    def __enter__(self) -> Self:
        assert os.read(self._output, 1) == b".", "the witness could not reach the member"
        return self

    def ask(self) -> None:
        os.write(self._go, b".")

    @property
    def has_ended(self) -> bool:
        return bool(select.select([self._output], [], [], 0)[0])

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes, once all questions have ended."""
        with os.fdopen(os.dup(self._output)) as output:
            return [Outcome(*outcome) for outcome in json.loads(output.read())]

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._output)
        os.close(self._go)


def wrong_with(outcomes: list[Outcome], who: str) -> list[str]:
    """Return the violations in the outcomes of a member."""
    answered = [
        f"{who} answered {verb}: {answer}" for verb, _, answer in outcomes if answer is not None
    ]
    late = [
        f"{who} was asked {verb} for {seconds:.1f} s"
        for verb, seconds, _ in outcomes
        if seconds > LATE
    ]
    return answered + late


def _ask(verb: str, store: Store, known: str) -> Outcome:
    begun = time.monotonic()
    answer: str | None = None
    try:
        answer = repr(_QUESTIONS[verb](store, known))[:200]
    except SwarmError as error:
        if not (isinstance(error, StoreError) and is_unreachable(error)):
            answer = str(error)
    return Outcome(verb, time.monotonic() - begun, answer)
