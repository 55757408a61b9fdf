"""`swarm inbox`: show the messages for a worker, or those that it has sent."""

from __future__ import annotations

from swarm.agents.messages.sender import this_reader
from swarm.cli.arguments import Call, Command, Option
from swarm.cli.messages.recipient import recipient
from swarm.errors import BadInput
from swarm.messages import text
from swarm.messages.inbox import Inbox
from swarm.messages.outbox import Outbox
from swarm.stores.default import default_store
from swarm.terminal import output
from swarm.terminal.text import foreign_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from swarm.messages.message import Delivery, Message

_VIEWS = ("--peek", "--all", "--sent")
_WAIT = 5.0  # seconds for another process that shows messages of this worker


def inbox(call: Call) -> int:
    worker = this_reader(call.options.get("--worker"))
    found = Inbox(default_store(), worker)
    views = [name for name in _VIEWS if name in call.options]
    if len(views) > 1:
        raise BadInput(f"{' and '.join(views)} exclude each other. Give only one option.")
    if "--sent" in call.options:
        _show_sent(call, worker)
        return 0
    if "--all" in call.options:
        _show(call, worker, found.all())
        return 0
    if "--peek" in call.options:
        _show(call, worker, found.unread())
        return 0
    received = found.receive(wait=_WAIT)
    if received is None:
        _show(call, worker, [])
        return 0
    with received:
        _show(call, worker, received.messages)
        received.confirm()  # after the output: a killed reader gets them again
    return 0


def _show(call: Call, worker: str, messages: Sequence[Message]) -> None:
    fields = {
        "worker": worker,
        "messages": [
            {**message.fields(), "read_by_you": _is_read(message, worker)} for message in messages
        ],
    }
    if call.answer(fields):
        return
    if not messages:
        output.out(f"No messages for {foreign_name(worker)}\n")
    for message in messages:
        head, *lines = text.message_lines(message)
        process = text.process(message)
        output.out("\n".join([head, *([f"  ({process})"] if process else []), *lines]) + "\n")


def _show_sent(call: Call, worker: str) -> None:
    outbox = Outbox(default_store())
    messages = outbox.sent(worker)
    rows = [
        {
            **message.fields(),
            "read": message.is_read,
            "deliveries": [each.fields() for each in message.deliveries],
        }
        for message in messages
    ]
    if call.answer({"worker": worker, "messages": rows}):
        return
    if not messages:
        output.out(f"No messages of {foreign_name(worker)}\n")
    for message in messages:
        head = f"{message.id} to {foreign_name(message.to)}, {foreign_name(message.at)}:"
        states = [f"  {_state(each, message, outbox)}" for each in message.deliveries]
        output.out("\n".join([head, *states, *text.text_lines(message.text)]) + "\n")


def _state(delivery: Delivery, message: Message, outbox: Outbox) -> str:
    if delivery.is_read:
        return f"read by {foreign_name(delivery.reader)}, {foreign_name(delivery.read_at)}"
    until = foreign_name(message.until)
    return f"not read yet by {recipient(delivery, outbox)}; waits until {until}"


def _is_read(message: Message, worker: str) -> bool:
    return any(each.reader == worker for each in message.deliveries)


COMMAND = Command(
    inbox,
    "Show the messages for a worker, and mark them as read.",
    "swarm inbox --worker worker-1",
    options=(
        Option(
            "--worker",
            "W",
            "the worker; default: SWARM_WORKER, else the agent or the user that runs this command",
        ),
        Option("--peek", text="do not mark them as read"),
        Option("--all", text="also show those that were read; mark none"),
        Option("--sent", text="show those that the worker has sent, and who has read them"),
    ),
    details=(
        (
            "Lines that begin with | are the words of the sender. Each message is shown once. If "
            "this command is killed while it prints, the messages come again, with the same ids."
        ),
    ),
)
