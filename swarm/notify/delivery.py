"""Deliver one event to one channel: the form in which each kind of channel gets it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.notify import program
from swarm.notify.channel import COMMAND, DESKTOP, NTFY, SLACK, Channel, Undelivered
from swarm.notify.event import QUESTIONS, Event, kind_of
from swarm.terminal.text import shorten, shown

LIMIT = 25.0  # seconds that a delivery may take; that of requests and programs is less
_MAX_TITLE = 200  # characters
_MAX_OPTIONS = 9
_MAX_OPTION = 80  # characters of an option in a text for people
_NO_DESKTOP = "there is no desktop, or notify-send or osascript is missing"
_NTFY_PRIORITY = {"low": "2", "default": "3", "high": "4"}

Deliver = Callable[[Channel, Event, float], None]


class Delivery:
    """Delivers for one swarm.

    `swarm` is its name for receivers; `directory` is where commands run, "" for the
    working directory.
    """

    def __init__(self, swarm: str, directory: str = "") -> None:
        self._swarm = swarm
        self._directory = directory

    def deliver(self, channel: Channel, event: Event, now: float) -> None:
        """Deliver an event. Raise Undelivered if it did not arrive, or may not have."""
        body = json_codec.dumps(event.payload(self._swarm)).encode()
        try:
            if channel.kind == COMMAND:
                text = shorten(_plain(f"{self._prefix}{event.line}"), 500)
                program.run(channel.command, body, text, self._directory)
            elif channel.kind == DESKTOP:
                self._show(event)
            elif channel.kind == NTFY:
                self._publish(channel, event)
            else:
                self._call(channel, event, body, now)
        except BadInput as error:  # a variable is not set
            raise Undelivered(str(error)) from None

    @property
    def _prefix(self) -> str:
        return f"[{self._swarm}] " if self._swarm else ""

    def _title(self, event: Event) -> str:
        return shorten(_plain(f"{self._prefix}{event.title}"), _MAX_TITLE)

    def _show(self, event: Event) -> None:
        urgent = event.priority == "high"
        words = program.desktop_command(self._title(event), _plain(event.text), urgent=urgent)
        if words is None:
            raise Undelivered(_NO_DESKTOP)
        program.run(words, b"", event.line)

    def _publish(self, channel: Channel, event: Event) -> None:
        from swarm.notify.post import post  # most workers never need the modules of HTTP

        token = channel.key()
        headers = {
            **_headers(event, "text/plain; charset=utf-8"),
            "Title": _header_text(self._title(event)),
            "Priority": _NTFY_PRIORITY[event.priority],
            "Tags": kind_of(event.kind).tag,
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        text = _body(event) or event.title
        post(channel.address(), text.encode(errors="replace"), headers)

    def _call(self, channel: Channel, event: Event, body: bytes, now: float) -> None:
        from swarm.notify.post import post, signature

        if channel.format == SLACK:
            words = f"*{_for_slack(self._title(event))}*\n{_for_slack(_body(event))}".strip()
            body = json_codec.dumps({"text": words}).encode()
        secret, timestamp = channel.key(), str(int(now))
        headers = {**_headers(event, "application/json"), "Swarm-Timestamp": timestamp}
        if secret:
            headers["Swarm-Signature"] = signature(secret, timestamp, body)
        post(channel.address(), body, headers)


def missing_for(channel: Channel) -> str:
    """Return what this machine lacks for a channel, such as a variable, "" for nothing."""
    if channel.kind == DESKTOP:
        has_desktop = program.desktop_command("", "", urgent=False) is not None
        return "" if has_desktop else _NO_DESKTOP
    try:
        if channel.kind != COMMAND:
            channel.address()
            channel.key()
    except BadInput as error:
        return str(error).removesuffix(".")
    return ""


def _body(event: Event) -> str:
    """Return the text for people: of a question also its options, and how to answer it."""
    lines = list(map(shown, event.text.splitlines()))
    name = event.facts.get("question")
    if event.kind == QUESTIONS and isinstance(name, str):
        options = event.facts.get("options") or ()
        for number, option in enumerate(options[:_MAX_OPTIONS], 1):
            lines.append(f"{number}. {shorten(_plain(str(option)), _MAX_OPTION)}")
        if len(options) > _MAX_OPTIONS:
            lines.append(f"and {len(options) - _MAX_OPTIONS} more: swarm questions")
        lines.append(f"swarm answer {_plain(name)} {'NUMBER' if options else 'TEXT'}")
    return "\n".join(lines)


def _headers(event: Event, content: str) -> dict[str, str]:
    return {
        "Content-Type": content,
        "User-Agent": "swarm",
        "Swarm-Event": event.kind,
        "Swarm-Id": event.id,
    }


def _header_text(text: str) -> str:
    """Return a text for a header, in the form of RFC 2047 unless it is ASCII."""
    if text.isascii() and text.isprintable():
        return text
    return f"=?UTF-8?B?{b64encode(text.encode(errors='replace')).decode()}?="


def _plain(text: str) -> str:
    """Return a text on one line, without control characters."""
    return shown(" ".join(text.split()))


def _for_slack(text: str) -> str:
    """Return a text in which Slack finds no link and no mention."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
