"""Name this process as the sender or the reader of messages."""

from __future__ import annotations

from swarm.agents.identity import Fallback, answer_source, whoami
from swarm.messages.message import Sender
from swarm.queue.questions.question import PERSON
from swarm.system.family import this_process


def this_sender(given: str | None = None) -> Sender:
    """Return this process as a sender. `given` is the worker name that the caller chose.

    A person is named after the user, an agent after its process, unless SWARM_WORKER or
    `given` names them. Raise BadInput if the name is invalid.
    """
    source = answer_source()
    fallback: Fallback = "user" if source == PERSON else "agent"
    return Sender(whoami(given, fallback=fallback), source, this_process())


def this_reader(given: str | None = None) -> str:
    """Return the worker whose messages this process reads. Raise BadInput."""
    return this_sender(given).worker
