"""Wires to a server: opened when they are needed, kept for the next use, opened anew when they break.

A call whose answer never came may have been carried out, or may yet be. So every change is sent as a numbered *turn* of a
*session*; the server notes the last turn of each with its answer, in the same atomic step. Sent again, a turn that was carried
out is only answered, and one that arrives late, after the next, does nothing: it is safe to try again until there is an
answer, and what was found out is the truth.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from swarm.errors import Unreachable
from swarm.stores.address import Address

W = TypeVar("W")  # a wire: the connection of a client library
R = TypeVar("R")

FORGOTTEN = 3600  # seconds after which a server may forget a session that has fallen silent
_PAUSES = (0.02, 0.5)  # seconds between tries: at first, and at most
_TRIES = 2  # so many fit into the time that a call has: what is silent for longer is given up, and tried anew


class Broken(Exception):
    """The wire is of no use any more, and whether the last call was carried out is not known; the text says why."""


class Slot(Generic[W]):
    """One user's place at the server: a session, and the wire that it has now. A session outlives its wires."""

    def __init__(self) -> None:
        self.session = os.urandom(12).hex()
        self.turn = 0
        self.noted = b""  # for a driver that has it compared: what the server is known to have noted last
        self._wire: W | None = None

    @property
    def wire(self) -> W:
        assert self._wire is not None, "only while a call is made"
        return self._wire


class Link(Generic[W]):
    """As many wires as there are threads that use it at one time; a forked child opens its own.

    `dial` opens a wire on which no answer takes longer than the seconds it is given, `hang_up` closes one and does not raise.
    `dial`, and the work that is called, raise Broken where trying again may help.
    """

    def __init__(self, address: Address, dial: Callable[[float], W], hang_up: Callable[[W], object]) -> None:
        self.address = address
        self._dial = dial
        self._hang_up = hang_up
        self._idle: deque[Slot[W]] = deque()  # its pop and append need no lock, which a fork could find taken
        self._pid = os.getpid()

    def call(self, work: Callable[[Slot[W]], R]) -> R:
        """What `work` answers; while that is Broken and there is time, it is called again with another wire."""
        deadline = time.monotonic() + self.address.timeout
        pause = _PAUSES[0]
        sent = False
        slot = self._take()
        slot.turn += 1
        try:
            while True:
                try:
                    if slot._wire is None:
                        slot._wire = self._dial(self.address.timeout / _TRIES)
                    sent = True
                    return work(slot)
                except Broken as broken:
                    self._drop(slot)
                    if time.monotonic() + pause >= deadline:
                        raise self._unreachable(broken, sent) from None
                    time.sleep(pause)
                    pause = min(pause * 2, _PAUSES[1])
        except BaseException:
            self._drop(slot)
            raise
        finally:
            self._idle.append(slot)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        idle = []
        try:
            while True:
                idle.append(self._idle.pop())  # others may take and give back meanwhile
        except IndexError:
            pass
        for slot in idle:
            self._drop(slot)
        self._idle.extend(idle)

    def _take(self) -> Slot[W]:
        if self._pid != os.getpid():
            self._idle, self._pid = deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return Slot()

    def _drop(self, slot: Slot[W]) -> None:
        wire, slot._wire = slot._wire, None
        if wire is not None and self._pid == os.getpid():
            self._hang_up(wire)

    def _unreachable(self, broken: Broken, sent: bool) -> Unreachable:
        why = self.address.scrubbed(" ".join(str(broken).split())).rstrip(".")
        cure = "If this was a change, it may have been made: look before you repeat it." if sent else "Is the server running?"
        return Unreachable(
            f"the store {self.address.shown} cannot be reached: {why}. It was tried for {self.address.timeout:g} seconds. {cure}"
        )
