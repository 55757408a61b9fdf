"""The keys of a table `[notify.NAME]` in `swarm.toml`: a channel for notifications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swarm.project.keys import REQUIRED, TextOrList, key, one_of


def words(values: Sequence[object]) -> None:
    if not all(isinstance(value, str) and value for value in values):
        raise ValueError("must be a list of texts in quotes")


@dataclass(frozen=True)
class NotifyTable:
    """A channel for notifications: a table `[notify.NAME]`."""

    kind: str = key(
        str,
        REQUIRED,
        "where notifications go: `ntfy`, `webhook`, `desktop` or `command`",
        '"ntfy"',
        one_of("ntfy", "webhook", "desktop", "command"),
    )
    url: str = key(str, "", "the address of `ntfy` or `webhook`", '"https://ntfy.sh/my-topic"')
    url_env: str = key(
        str, "", "a variable with the address; begins with `SWARM_NOTIFY_`", '"SWARM_NOTIFY_URL"'
    )
    secret_env: str = key(
        str,
        "",
        "a variable with the key of the signature, or with the token for ntfy",
        '"SWARM_NOTIFY_KEY"',
    )
    command: Sequence[str] = key(
        list, (), "the program and its arguments, without a shell", '["./tell.sh"]', words
    )
    format: str = key(
        str, "json", "what a webhook gets: `json` or `slack`", '"slack"', one_of("json", "slack")
    )
    on: Sequence[str] = key(
        TextOrList, (), "the events; empty for the usual ones", '["questions", "failures"]', words
    )
    always: Sequence[str] = key(
        TextOrList, (), "events that are sent also in quiet hours", '["questions"]', words
    )
    quiet: str = key(
        str, "", "hours without notifications, with or without a time zone", '"22:00-07:00"'
    )
    again: float = key(
        float,
        0.0,
        "the seconds, 60 or more, after which an open question is sent again; 0 for never",
        "600",
    )
    allow_http: bool = key(bool, False, "allow an address without encryption", "true")
