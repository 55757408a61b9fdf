"""`swarm tell`: send a message to workers."""

from __future__ import annotations

from swarm.agents.messages.sender import this_sender
from swarm.cli.arguments import Call, Command, Option
from swarm.cli.messages.recipient import recipient
from swarm.inputs import MAX_TTL
from swarm.messages.message import LIFETIME, MAX_TEXT_BYTES
from swarm.messages.outbox import Outbox
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import duration, foreign_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from swarm.messages.message import Delivery, Message
    from swarm.messages.outbox import Sent

_SHOWN = 8  # recipients in a text


def tell(call: Call) -> int:
    wait = call.seconds("--wait", 0.0)
    text = call.get(1)
    if text == "-":
        text = output.read_stdin(2 * MAX_TEXT_BYTES)
    outbox = Outbox(default_store())
    sent = outbox.tell(
        call.get(0),
        text,
        this_sender(call.options.get("--worker")),
        attempt="--attempt" in call.options,
        lifetime=call.seconds("--for", LIFETIME),
    )
    message = outbox.wait(sent.message, min(wait, MAX_TTL)) if wait else sent.message
    is_late = "--wait" in call.options and not message.is_read
    known = _known(message, outbox, wait if is_late else None)
    if not call.answer(_fields(message, sent)) and not is_late:
        output.out(f"{known}\n")
    for each in sent.left_out:
        output.err(f"{_full(each)}\n")
    if is_late:
        output.error(known)
    return int(is_late)


def _fields(message: Message, sent: Sent) -> dict[str, Any]:
    return {
        "sent": True,
        "read": message.is_read,
        "message": message.fields(),
        "deliveries": [each.fields() for each in message.deliveries],
        "left_out": [each.fields() for each in sent.left_out],
    }


def _known(message: Message, outbox: Outbox, waited: float | None) -> str:
    """Return what is known about a message."""
    read = [each for each in message.deliveries if each.is_read]
    unread = [each for each in message.deliveries if not each.is_read]
    if not unread:
        readers = ", ".join(foreign_name(each.reader) for each in read[:_SHOWN])
        return f"{message.id} was read by {readers}{_more(read)}"
    named = ", ".join(recipient(each, outbox) for each in unread[:_SHOWN])
    if waited is None:
        return f"{message.id} queued for {named}{_more(unread)}, not read yet"
    by = f" It was read by {len(read)} of {len(message.deliveries)}." if read else ""
    return (
        f"{message.id} was not read within {duration(waited)} by {named}{_more(unread)}.{by} It "
        f"waits until {message.until}."
    )


def _more(found: list[Delivery]) -> str:
    return f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""


def _full(delivery: Delivery) -> str:
    name = foreign_name(delivery.worker or delivery.task)
    return f"Warning: not sent to {name}: too many messages wait there."


COMMAND = Command(
    tell,
    "Send a message to workers. Exit 1: no worker would read it, or none did in time.",
    "swarm tell task:api 'The schema has changed'",
    positional=("TO", "TEXT"),
    options=(
        Option("--worker", "W", "the sender; default: SWARM_WORKER, else the agent or the user"),
        Option("--attempt", text="only for the worker that holds the task now; ends with it"),
        Option("--for", "S", f"the message expires after S seconds; default {LIFETIME:g}"),
        Option("--wait", "S", "wait up to S seconds until it was read; else exit 1"),
    ),
    details=(
        "TO is one of:",
        {
            "WORKER": "the worker of this name; also worker:WORKER",
            "task:TASK": "the worker that holds the task when it reads the message",
            "label:LABEL": "the same for each task with the label that has not ended",
            "all": "each other worker that runs or holds a task now",
        },
        (
            f"If TEXT is -, it is read from standard input. It has at most {MAX_TEXT_BYTES} "
            "bytes. Hooks, swarm prime, MCP and swarm inbox deliver each message once."
        ),
    ),
)
