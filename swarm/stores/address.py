"""The address of a store on a server: its parts, and its form without secrets.

    postgresql://user@host:5432/database?swarm=team_a&timeout=5
    redis://host:6379/0          etcd://h1:2379,h2:2379,h3:2379

swarm itself uses two options of an address. The option `swarm` is the name of a swarm:
several swarms can share one server. The option `timeout` is the number of seconds for
which a command tries to reach the server. All other options are for the client of the
server.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, unquote, urlencode

from swarm.errors import BadInput
from swarm.stores.secrets import scrub

DEFAULT_SWARM = "swarm"
DEFAULT_TIMEOUT = 10.0


class Address:
    """The parts of a store's URL. `shown` is the URL without secrets, for users."""

    def __init__(self, url: str) -> None:
        self.scheme, _, rest = url.partition("://")
        rest, _, query = rest.partition("?")
        login, at, host_and_path = rest.rpartition("@")
        self.hosts, slash, self.path = host_and_path.partition("/")
        self.path = slash + self.path
        self.user, _, self.password = (unquote(part) for part in login.partition(":"))
        if (
            "#" in url
            or "/" in login
            or (at and not self.hosts and not self.path)
            or (not at and "@" in query)
        ):
            raise BadInput(
                f"this {self.scheme}:// address is invalid. In a user name or password, "
                "write / ? # @ and : as %2F %3F %23 %40 %3A."
            )
        pairs = parse_qsl(query, keep_blank_values=True)
        self.options = dict(pairs)
        if len(self.options) < len(pairs):
            raise BadInput(
                f"this {self.scheme}:// address has an option twice. Write each option once."
            )
        self.swarm = self._own_swarm()
        self.timeout = self._own_timeout()

    @property
    def shown(self) -> str:
        user = f"{quote(self.user)}@" if self.user else ""
        options = {} if self.swarm == DEFAULT_SWARM else {"swarm": self.swarm}
        options |= {name: value for name, value in self.options.items() if not _is_secret(name)}
        query = f"?{urlencode(options, safe='/', quote_via=quote)}" if options else ""
        return f"{self.scheme}://{user}{self.hosts}{self.path}{query}"

    @property
    def public(self) -> str:
        """The URL without secrets, for a process that is to use the same store."""
        if self.timeout == DEFAULT_TIMEOUT:
            return self.shown
        return f"{self.shown}{'&' if '?' in self.shown else '?'}timeout={self.timeout:g}"

    @property
    def has_secret(self) -> bool:
        return bool(self.secrets)

    def url(self, scheme: str) -> str:
        """Return the URL for the server's own client: without swarm's own options."""
        login = (
            f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
            if self.password
            else quote(self.user, safe="")
        )
        query = f"?{urlencode(self.options, quote_via=quote)}" if self.options else ""
        return f"{scheme}://{f'{login}@' if login else ''}{self.hosts}{self.path}{query}"

    def hosts_and_ports(self, port: int) -> list[tuple[str, int]]:
        """Return every host with its port. A host without a port gets `port`.

        Raise BadInput if a port is invalid.
        """
        found = []
        for text in self.hosts.split(",") if self.hosts else ["localhost"]:
            host, colon, digits = text.rpartition(":") if not text.endswith("]") else (text, "", "")
            if not colon:
                host, digits = text, str(port)
            if not (digits.isascii() and digits.isdigit() and 0 < int(digits) < 65536) or not host:
                raise BadInput(
                    f"{text!r} in {self.shown} is not a host and port. Write a host and port "
                    f"like db.example:{port}."
                )
            found.append((host.strip("[]"), int(digits)))
        return found

    def scrubbed(self, text: str) -> str:
        """Return a message of the server without the secrets of this address."""
        return scrub(text, self.secrets)

    @property
    def secrets(self) -> list[str]:
        options = (value for name, value in self.options.items() if _is_secret(name))
        return [secret for secret in (self.password, *options) if secret]

    def _own_swarm(self) -> str:
        name = self.options.pop("swarm", DEFAULT_SWARM)
        if not re.fullmatch("(?!pg_)[a-z][a-z0-9_]{0,39}", name):
            raise BadInput(
                f"{name[:60]!r} is not a valid name of a swarm. Use 1 to 40 small letters, "
                "digits and _. "
                "The name must begin with a letter, and not with pg_."
            )
        return name

    def _own_timeout(self) -> float:
        text = self.options.pop("timeout", str(DEFAULT_TIMEOUT))
        if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) or not 0.1 <= float(text) <= 3600:
            raise BadInput(f"timeout is {text[:40]!r}. Use a number of seconds from 0.1 to 3600.")
        return float(text)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address certainly leads back to this machine."""
    import ipaddress

    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def refuse_secret(url: str, what: str) -> None:
    """Raise BadInput if a URL on the command line contains a password."""
    if "://" not in url or url.startswith("file://"):
        return
    if Address(url).has_secret:
        raise BadInput(
            f"{what} contains a password. All users of this machine can read the command line "
            "while the command runs (ps). Use a variable instead: the whole address in "
            "SWARM_STORE, or the "
            "password in "
            "the variable of the server's own tools (PGPASSWORD, REDISCLI_AUTH, ETCDCTL_PASSWORD)."
        )


def _is_secret(option: str) -> bool:
    return any(word in option.lower() for word in ("pass", "secret", "token"))
