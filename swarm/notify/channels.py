"""The channels of a swarm: those in its store, and those of `swarm.toml`.

`swarm notify add` puts a channel in the store. A name is used once: a channel of the
store hides one of `swarm.toml` with the same name. An invalid channel of `swarm.toml`
does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable

from swarm.errors import BadInput, StoreError
from swarm.formats import json_codec
from swarm.notify.channel import Channel, channel_from, checked
from swarm.notify.event import USUAL
from swarm.project.config import Config
from swarm.project.notify_table import NotifyTable
from swarm.queue.events import nonce
from swarm.stores.busy import retry_while_busy
from swarm.stores.contract import Store
from swarm.terminal.text import foreign_name

NAMESPACE = "notify"
MAX_CHANNELS = 20
BUSY_TIMEOUT = 10.0  # seconds
_KEY = f"{NAMESPACE}/channels"


def all_channels(store: Store, config: Config) -> list[Channel]:
    """Return all valid channels, by name."""
    wrong = invalid_channels(config)
    found = {
        name: _shared(name, table) for name, table in config.notify.items() if name not in wrong
    }
    found |= {each.name: each for each in stored_channels(store)}
    return [found[name] for name in sorted(found)]


def invalid_channels(config: Config) -> dict[str, str]:
    """Return the error of each channel of swarm.toml that is invalid."""
    found: dict[str, str] = {}
    for name, table in config.notify.items():
        try:
            checked(_shared(name, table))
        except BadInput as error:
            found[name] = str(error)
    return found


def stored_channels(store: Store) -> list[Channel]:
    """Return the channels in the store. Raise StoreError if they cannot be read."""
    return _decode(store, store.read(_KEY))


def add_channel(store: Store, channel: Channel) -> None:
    """Add a channel. Raise BadInput if the name is in use, or if there are too many."""

    def changed(known: list[Channel]) -> list[Channel]:
        if any(each.name == channel.name for each in known):
            name = foreign_name(channel.name)
            raise BadInput(
                f"there is a channel {name} already. Remove it first: swarm notify remove {name}. "
                "Or choose another name: --name"
            )
        if len(known) >= MAX_CHANNELS:
            raise BadInput(f"there are {MAX_CHANNELS} channels already. Remove one first.")
        return [*known, channel]

    _change(store, changed)


def remove_channel(store: Store, name: str) -> Channel:
    """Remove a channel of the store, and return it. Raise BadInput if there is none."""
    removed: list[Channel] = []

    def changed(known: list[Channel]) -> list[Channel]:
        removed[:] = [each for each in known if each.name == name]
        if not removed:
            raise BadInput(f"the store has no channel {foreign_name(name)}. See: swarm notify list")
        return [each for each in known if each.name != name]

    _change(store, changed)
    return removed[0]


def _shared(name: str, table: NotifyTable) -> Channel:
    return Channel(
        name,
        table.kind,
        url=table.url,
        url_env=table.url_env,
        secret_env=table.secret_env,
        command=tuple(table.command),
        format=table.format,
        on=tuple(table.on) or USUAL,
        always=tuple(table.always),
        quiet=table.quiet,
        again=table.again,
        allow_http=table.allow_http,
        is_shared=True,
    )


def _change(store: Store, change: Callable[[list[Channel]], list[Channel]]) -> None:
    def attempt() -> bool:
        data = store.read(_KEY)
        if data is None:
            # `create` may return False for a record that it wrote. A channel in this
            # record would then be found as one of another process.
            store.create(_KEY, _encode([]))
            return False
        return store.replace(_KEY, data, _encode(change(_decode(store, data))))

    while not retry_while_busy(store.clock, BUSY_TIMEOUT, attempt):
        pass  # another process has changed it meanwhile


def _encode(channels: list[Channel]) -> bytes:
    stored = [each.stored() for each in channels]
    return json_codec.dumps({"version": 1, "nonce": nonce(), "channels": stored}).encode()


def _decode(store: Store, data: bytes | None) -> list[Channel]:
    if data is None:
        return []
    try:
        return [channel_from(each) for each in json_codec.loads(data)["channels"]]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise StoreError(
            f"the record of channels, at {store.where(_KEY)}, is not valid. Remove it, then add "
            "the channels again: swarm notify add"
        ) from None
