"""A channel: where notifications go, for which events, and when.

A URL and a secret may be in the record of the channel, or in a variable of the sender's
environment. The name of such a variable begins with SWARM_NOTIFY_: swarm keeps these
variables from agents, and a `swarm.toml` cannot send another variable away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any
from urllib.parse import SplitResult, urlsplit

from swarm import settings
from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.inputs import MAX_PLAIN_NAME, MAX_TTL, is_plain_name
from swarm.notify.event import QUESTIONS, USUAL, check_kinds
from swarm.notify.quiet import QuietHours, parse_quiet
from swarm.stores.secrets import NOTIFY_PREFIX
from swarm.terminal.text import shown

COMMAND, WEBHOOK, NTFY, DESKTOP = "command", "webhook", "ntfy", "desktop"
CHANNEL_KINDS = (COMMAND, WEBHOOK, NTFY, DESKTOP)
JSON, SLACK = "json", "slack"
FORMATS = (JSON, SLACK)
HIDDEN = "***"
MIN_AGAIN = 60.0  # seconds
AGAIN_RULE = f"a number of seconds from {MIN_AGAIN:g} to {MAX_TTL}, or 0 for never"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Undelivered(Exception):
    """A notification did not reach its channel, or may not have. The text has no secrets."""


@dataclass(frozen=True)
class Channel:
    """`is_shared`: the channel is from `swarm.toml`. `checksum` changes with each of its
    other fields, except `added_at`.
    """

    name: str
    kind: str
    url: str = ""
    url_env: str = ""
    secret: str = ""
    secret_env: str = ""
    command: tuple[str, ...] = ()
    format: str = JSON
    on: tuple[str, ...] = USUAL
    always: tuple[str, ...] = ()
    quiet: str = ""
    again: float = 0.0
    allow_http: bool = False
    added_at: str = ""
    is_shared: bool = False

    @property
    def checksum(self) -> str:
        values = {**self.stored(), "added_at": ""}
        return sha256(json_codec.dumps(values, own=True).encode()).hexdigest()

    @property
    def needs_consent(self) -> bool:
        """Whether a user must allow this channel on each machine that is to send to it.

        Others may have written it: a command would run here, and a URL of a repository
        would receive the texts of tasks.
        """
        return self.is_shared or self.kind == COMMAND

    def quiet_hours(self) -> QuietHours | None:
        return parse_quiet(self.quiet, "quiet")

    def stored(self) -> dict[str, Any]:
        """Return the fields for the record of the channel, with its secrets."""
        kept = asdict(self)
        del kept["is_shared"]
        return {**kept, **{name: list(kept[name]) for name in ("command", "on", "always")}}

    def public(self) -> dict[str, Any]:
        """Return the fields without secrets, for views."""
        return {
            "name": self.name,
            "kind": self.kind,
            "target": self.target,
            "secret": HIDDEN if self.secret else self.secret_env or None,
            "format": self.format if self.kind == WEBHOOK else None,
            "on": list(self.on),
            "always": list(self.always),
            "quiet": self.quiet or None,
            "again": self.again or None,
            "from": "swarm.toml" if self.is_shared else "store",
        }

    @property
    def target(self) -> str:
        """Where it sends to, without secrets: of a command only the program, of a URL only
        scheme and host.
        """
        if self.kind == COMMAND:
            return shown(self.command[0]) + (f" {HIDDEN}" if self.command[1:] else "")
        if self.url_env:
            return f"${self.url_env}"
        return public_url(self.url) if self.url else self.kind

    def address(self) -> str:
        """Return the URL. Raise BadInput if its variable is not set or has no URL."""
        if not self.url_env:
            return self.url
        found = _from_variable(self.url_env)
        check_url(found, self.url_env, allow_http=self.allow_http)
        return found

    def key(self) -> str:
        """Return the secret, "" without one. Raise BadInput if its variable is not set."""
        return _from_variable(self.secret_env) if self.secret_env else self.secret


def checked(channel: Channel) -> Channel:
    """Return the channel. Raise BadInput if a field is invalid or does not fit its kind."""
    called = shown(channel.name)[:40]
    name = f"[notify.{called}] in swarm.toml" if channel.is_shared else f"the channel {called!r}"
    if len(channel.name) > MAX_PLAIN_NAME:
        raise BadInput(
            f"{name} has a name that is too long: it has {len(channel.name)} characters, at most "
            f"{MAX_PLAIN_NAME} are allowed."
        )
    if channel.name[:1] in (".", "-"):
        raise BadInput(f"{name} has no valid name: it must not start with a dot or a dash.")
    if not is_plain_name(channel.name):
        raise BadInput(
            f"{name} has no valid name: use letters, digits and . _ @ : - without spaces."
        )
    if channel.kind not in CHANNEL_KINDS:
        raise BadInput(
            f"{name} is of the kind {channel.kind[:40]!r}, but must be one of: "
            f"{', '.join(CHANNEL_KINDS)}."
        )
    has_url = channel.kind in (WEBHOOK, NTFY)
    if has_url == (not (channel.url or channel.url_env)) or (channel.url and channel.url_env):
        raise BadInput(
            f"{name} needs one address: a URL, or the name of a variable with a URL (url_env)."
            if has_url
            else f"{name} takes no URL: only webhook and ntfy do."
        )
    if channel.url:
        check_url(channel.url, name, allow_http=channel.allow_http)
    if (channel.kind == COMMAND) != bool(channel.command):
        raise BadInput(
            f"{name} needs a command: {'command = […]' if channel.is_shared else 'after --'}."
            if channel.kind == COMMAND
            else f"{name} takes no command: only the kind command does."
        )
    if any("\0" in word for word in channel.command) or channel.command[:1] == ("",):
        raise BadInput(f"{name} has a command that cannot be run.")
    if channel.secret and channel.secret_env:
        raise BadInput(f"{name} has two secrets. Leave one out.")
    if (channel.secret or channel.secret_env) and not has_url:
        raise BadInput(f"{name} takes no secret: only webhook and ntfy do.")
    if channel.secret and not (channel.secret.isascii() and channel.secret.isprintable()):
        raise BadInput(f"{name} has a secret with characters that are not printable ASCII.")
    for variable in (channel.url_env, channel.secret_env):
        if variable and not _is_variable(variable):
            raise BadInput(
                f"{name} names the variable {variable[:40]!r}, but its name must begin with "
                f"{NOTIFY_PREFIX}: swarm keeps such variables from agents."
            )
    if channel.format not in FORMATS or (channel.format == SLACK and channel.kind != WEBHOOK):
        raise BadInput(f"{name}: the format is {JSON}, or {SLACK} for a webhook.")
    check_kinds(channel.on, f"{name}: on")
    check_kinds(channel.always, f"{name}: always")
    if not channel.on:
        raise BadInput(f"{name} has no events. Leave `on` out for the usual ones.")
    parse_quiet(channel.quiet, f"{name}: quiet")
    if channel.again and not MIN_AGAIN <= channel.again <= MAX_TTL:
        raise BadInput(f"{name}: again is {channel.again:g}, but must be {AGAIN_RULE}.")
    if channel.again and QUESTIONS not in channel.on:
        raise BadInput(f"{name}: again is for questions, and {QUESTIONS} are not among its events.")
    return channel


def channel_from(stored: Mapping[str, Any]) -> Channel:
    """Return the channel in a record. Raise TypeError, KeyError or BadInput for another."""
    known = {each.name for each in fields(Channel)} - {"is_shared"}
    values = {name: value for name, value in stored.items() if name in known}
    for name in ("command", "on", "always"):
        values[name] = tuple(map(str, values.get(name, ())))
    found = Channel(**values)
    texts = (found.name, found.kind, found.url, found.url_env, found.secret, found.secret_env)
    if not all(isinstance(text, str) for text in (*texts, found.format, found.quiet)):
        raise TypeError
    return checked(found)


def check_url(text: str, what: str, *, allow_http: bool) -> SplitResult:
    """Return the parts of a URL. Raise BadInput, without the URL, if it is not one that
    swarm sends to.
    """
    if not text.isprintable() or " " in text:
        raise BadInput(f"{what} has a URL with a space or a control character.")
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError:  # such as [ without ]
        raise BadInput(f"{what} has a URL with an invalid host.") from None
    if parts.scheme not in ("http", "https"):
        raise BadInput(f"{what} needs a URL that begins with https://.")
    if not host:
        raise BadInput(
            f"{what} has a URL without a host, such as ntfy.sh in https://ntfy.sh/TOPIC."
        )
    if not host.isascii():
        raise BadInput(
            f"{what} has a URL with a host that is not ASCII. Write the host in its form xn--…."
        )
    if not text.isascii():
        raise BadInput(
            f"{what} has a URL with characters that are not ASCII. Write each as %XX, as a "
            "browser copies them."
        )
    try:
        is_port = parts.port != 0
    except ValueError:
        is_port = False
    if not is_port:
        raise BadInput(f"{what} has a URL with an invalid port: use 1 to 65535.")
    if parts.username is not None or parts.password is not None:
        raise BadInput(
            f"{what} has a URL with a user or a password. Give a secret instead, see: "
            "swarm notify add --help"
        )
    if parts.scheme == "http" and host not in _LOOPBACK and not allow_http:
        raise BadInput(
            f"{what} has a URL with http://, so that others on the way could read the texts of "
            "tasks. Use https://, or allow it: --allow-http (allow_http in swarm.toml)."
        )
    return parts


def public_url(text: str) -> str:
    """Return scheme and host of a URL. The rest may be a secret."""
    parts = urlsplit(text)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    where = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"
    return shown(f"{where}/{HIDDEN}" if parts.path.strip("/") or parts.query else where)


def _is_variable(name: str) -> bool:
    rest = name.removeprefix(NOTIFY_PREFIX)
    return rest not in (name, "") and f"_{rest}".isidentifier() and name.isascii()


def _from_variable(name: str) -> str:
    found = settings.variable(name).strip()
    if not found:
        raise BadInput(f"{name} is not set.")
    return found
