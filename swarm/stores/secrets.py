"""The secrets that swarm knows: the password of the store, the token of the page, and
the addresses and secrets of notifications.

`agent_environment` keeps these secrets from the programs that swarm starts for agents.
`known_secrets` and `scrub` remove the secrets from text that swarm copies into records.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from swarm import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PAGE_TOKEN = "SWARM_WEB_TOKEN"
STORE = "SWARM_STORE"
WITHHELD = "SWARM_STORE_WITHHELD"
NOTIFY_PREFIX = "SWARM_NOTIFY_"  # of variables with the address or secret of a channel
_HIDDEN = "…"
# Variables of the servers' own tools with a password, by the beginning of the scheme.
_PASSWORDS = {
    "postgres": ("PGPASSWORD",),
    "redis": ("REDISCLI_AUTH",),
    "valkey": ("REDISCLI_AUTH",),
    "etcd": ("ETCDCTL_PASSWORD", "ETCDCTL_USER"),
}


def scrub(text: str, secrets: Collection[str]) -> str:
    """Return the text with an ellipsis in place of each secret."""
    for secret in secrets:
        for form in dict.fromkeys((secret, quote(secret), quote(secret, safe=""))):
            # a secret of few letters occurs inside many words
            edge = r"\b" if len(form) < 4 and form.isalnum() else ""
            text = re.sub(edge + re.escape(form) + edge, _HIDDEN, text)
    return text


def known_secrets(variables: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the secrets in the environment of this process, with other values for some
    variables.
    """
    environment = {**settings.environment(), **(variables or {})}
    found = {environment.get(PAGE_TOKEN, ""), *_passwords(environment).values()}
    found |= {environment[name] for name in _of_notifications(environment)}
    url = environment.get(STORE, "")
    if "://" in url:
        from swarm.stores.address import Address

        found |= {*Address(url).secrets}
    return tuple(sorted(found - {""}, key=len, reverse=True))


def agent_environment(
    *, store_for_agent: bool, variables: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment for a program that works for an agent, with other values
    for some variables.

    The environment never has the token of the page, nor a variable of notifications. The
    environment has the password of the store only with `store_for_agent`; otherwise
    SWARM_STORE names the store without its password.
    """
    environment = {**settings.environment(), **(variables or {})}
    for name in (PAGE_TOKEN, *_of_notifications(environment)):
        environment.pop(name, None)
    url = environment.get(STORE, "")
    if store_for_agent or "://" not in url:
        return environment
    from swarm.stores.address import Address

    address = Address(url)
    passwords = _passwords(environment)
    for name in passwords:
        user, _, password = environment[name].partition(":")
        if name == "ETCDCTL_USER" and password:
            environment[name] = user
        else:
            del environment[name]
    if passwords or address.has_secret:
        environment[STORE] = address.public
        environment[WITHHELD] = "1"
    return environment


def _of_notifications(environment: Mapping[str, str]) -> list[str]:
    return [name for name in environment if name.startswith(NOTIFY_PREFIX)]


def _passwords(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords in the variables of the server's own tools, by variable."""
    scheme = environment.get(STORE, "").partition("://")[0]
    found = {}
    for name in next(
        (names for start, names in _PASSWORDS.items() if scheme.startswith(start)), ()
    ):
        value = environment.get(name, "")
        if name == "ETCDCTL_USER":
            value = value.partition(":")[2]
        if value:
            found[name] = value
    return found
