"""TLS between this machine and PostgreSQL: verified, unless the user chose otherwise.

libpq's own default, `sslmode=prefer`, accepts every certificate, and a server without
TLS. With this default, a false server gets the password. So a connection to another
machine uses `sslmode=verify-full`. The `sslmode` of the address, of PGSSLMODE or of the
service file takes precedence. Sockets and loopback addresses keep libpq's default.
"""

from __future__ import annotations

import os
import ssl

from psycopg import pq
from psycopg.abc import ConnDict
from psycopg.conninfo import make_conninfo

from swarm import settings
from swarm.stores.address import is_loopback

_LIBPQ_DEFAULT = "prefer"
_VERIFY = "verify-full"
_VERIFYING = ("verify-ca", _VERIFY)
ERRORS = (  # parts of libpq's messages
    "certificate verify failed",
    "server certificate for",
    "root certificate file",
    "server does not support SSL",
)
ADVICE = (
    "swarm verifies the certificate of a PostgreSQL server on another machine. Name the "
    "authority that signed it with ?sslrootcert=FILE in the address, or in PGSSLROOTCERT. "
    "Only on a network that you trust, disable this: ?sslmode=disable, or PGSSLMODE."
)


def effective_options(given: ConnDict) -> dict[str, str]:
    """Return all options of a connection, including those from variables and service
    file.

    One option is invalid on purpose: libpq fills in all options, then refuses to
    connect, and sends no packet.
    """
    text = make_conninfo("", **{**given, "channel_binding": "none"})
    unconnected = pq.PGconn.connect_start(text.encode())
    try:
        return {
            option.keyword.decode(): option.val.decode()
            for option in unconnected.info
            if option.val and option.keyword != b"channel_binding"
        }
    finally:
        unconnected.finish()


def secured(attempt: ConnDict, *, chosen: bool) -> ConnDict:
    """Return the options of a connection to one host, with TLS verified if it is needed.

    `chosen` says that the user chose an sslmode.
    """
    if chosen or is_on_this_machine(attempt):
        return attempt
    return {**_trusted_authorities(), **attempt, "sslmode": _VERIFY}


def is_chosen(given: ConnDict, options: dict[str, str]) -> bool:
    """Return whether the user chose an sslmode in address, variable or service file."""
    return (
        "sslmode" in given
        or bool(settings.variable("PGSSLMODE"))
        or options.get("sslmode", _LIBPQ_DEFAULT) != _LIBPQ_DEFAULT
    )


def is_on_this_machine(attempt: ConnDict) -> bool:
    """Return whether one host is a socket or a loopback address.

    libpq connects to `hostaddr`, and uses `host` only to verify the certificate.
    """
    address = str(attempt.get("hostaddr") or attempt.get("host") or "")
    return not address or address[0] in "/@" or is_loopback(address)


def state_of(connection: pq.abc.PGconn) -> str:
    """Return how a connection is protected: "local", "none", "unverified", "verified"."""
    options: ConnDict = {
        option.keyword.decode(): (option.val or b"").decode() for option in connection.info
    }
    if is_on_this_machine(options):
        return "local"
    if not connection.ssl_in_use:
        return "none"
    return "verified" if options["sslmode"] in _VERIFYING else "unverified"


def _trusted_authorities() -> dict[str, str]:
    """Return the option for the authorities that Python trusts.

    Return no option if the user has the file of authorities that libpq reads. The
    OpenSSL in the wheels of psycopg does not know where this machine keeps its
    authorities.
    """
    if os.path.exists(os.path.expanduser("~/.postgresql/root.crt")):
        return {}
    return {"sslrootcert": ssl.get_default_verify_paths().cafile or "system"}
