"""`swarm migrate`: copy log, queue, usage and messages from one store to another."""

from __future__ import annotations

import os

from swarm import settings
from swarm.admin.migrate import migrate
from swarm.cli.arguments import Call, Command
from swarm.errors import BadInput
from swarm.stores.address import refuse_secret
from swarm.stores.contract import Store
from swarm.stores.default import parse_store
from swarm.stores.registry import open_store
from swarm.terminal import output
from swarm.terminal.text import quoted

_PROGRESS_EVERY = 1000  # lines


def move(call: Call) -> int:
    old, new = (_opened(call.get(index), name) for index, name in ((0, "FROM"), (1, "TO")))
    if _name(old) == _name(new):
        raise BadInput(f"FROM and TO are the same store, {_name(old)}. Name another store.")
    try:
        moved = migrate(old, new, _show_progress)
    finally:
        old.close()
        new.close()
    if not call.answer({"migrated": True, "from": _name(old), "to": _name(new), **moved._asdict()}):
        output.out(
            f"Copied {moved.status} records of the log, {moved.tasks} of the queue, "
            f"{moved.usage} of the usage and {moved.messages} of the messages to {_name(new)}.\n"
            f"The next token there is later than {moved.token}. The old store is as it was. Use "
            f"the new one with:\n"
            f"  export SWARM_STORE={quoted(_name(new))}\n"
        )
    return 0


def _opened(text: str, what: str) -> Store:
    url = settings.variable(text[4:]) if text.startswith("env:") else text
    if not url:
        raise BadInput(
            f"{what} is {text[:80]!r}, but must be a directory, the address of a server, or "
            f"env:VARIABLE."
        )
    if url == text:
        refuse_secret(url, what)
    url = parse_store(url, what)
    if "://" not in url and what == "FROM" and not os.path.isdir(url):
        raise BadInput(f"FROM is {url[:200]!r}, but there is no such directory.")
    return open_store(url)


def _name(store: Store) -> str:
    """Return a store's address without its password, or the store's directory."""
    address = getattr(store, "address", None)
    return address.shown if address else os.path.realpath(getattr(store, "root", ""))


def _show_progress(log: str, count: int) -> None:
    if count % _PROGRESS_EVERY == 0:
        output.transient(f"{count} lines of the log of {log} copied")


COMMAND = Command(
    move,
    "Copy log, queue, usage and messages from one store to another.",
    "swarm migrate /tmp/ai_swarm redis://db.example/0",
    positional=("FROM", "TO"),
    details=(
        (
            "FROM and TO are directories, or addresses of servers. env:VARIABLE stands for an "
            "address in an environment variable, for an address with a password."
        ),
        (
            "FROM is only read. The command refuses to start while a lock is held. No worker "
            "may run during the copy. The command also refuses a TO that has a log or queue of "
            "its own. Repeat an interrupted command: it continues where it stopped."
        ),
        (
            "Tokens continue to grow, so that the new store refuses late workers too. Cursors "
            "(--since) start again. The files in results/ are not copied."
        ),
    ),
)
