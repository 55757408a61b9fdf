"""A client for etcd's JSON gateway, with the standard library alone.

The gateway offers the v3 API over HTTP/1.1. The gateway sends keys and values as
base64, and 64-bit numbers as strings. The gateway leaves out fields that are false,
zero or empty.

If a member is down, silent or without a leader, ConnectionLost is raised, and the next
connection tries another member. A StoreError with advice is raised for a refusal that
every member would repeat.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from email.utils import mktime_tz, parsedate_tz
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple

from swarm import settings
from swarm.errors import BadInput, StoreError
from swarm.stores.address import Address
from swarm.stores.server.session_pool import ConnectionLost

PORT = 2379
_PATHS = {
    "request_range": "kv/range",
    "request_put": "kv/put",
    "request_delete_range": "kv/deleterange",
    "request_txn": "kv/txn",
    "request_status": "maintenance/status",
}
_FILES = {"cacert": "ETCDCTL_CACERT", "cert": "ETCDCTL_CERT", "key": "ETCDCTL_KEY"}
# gRPC codes of refusals that a retry would repeat: invalid argument, not found, already
# exists, permission denied, resource exhausted, failed precondition, out of range,
# unimplemented, unauthenticated.
_PERMANENT = {3, 5, 6, 7, 8, 9, 11, 12, 16}
_TEMPORARY = "too many requests"  # a retry may succeed, although the code says otherwise
_AUTH_OFF = "authentication is not enabled"
# errors for a login token that is missing or too old
_TOKEN_ERRORS = ("invalid auth token", "auth store is old", "user name is empty")
_TOO_LARGE = (
    "A record or line is larger than etcd takes, which is about 1.5 MB: shorten it, or "
    "raise its --max-request-bytes"
)
_CHECK_LOGIN = "Check user, password and rights, also in ETCDCTL_USER and ETCDCTL_PASSWORD"
_NO_GATEWAY = (
    "It must be etcd 3.4 or newer with its JSON gateway on. If it uses TLS, write etcds://"
)
_ADVICE = {  # by a part of the error's text
    "too large": _TOO_LARGE,
    "larger than max": _TOO_LARGE,
    "space exceeded": "Its database is full: compact and defragment it, then run etcdctl alarm "
    "disarm. "
    "With --auto-compaction-retention it does not fill up",
    "permission denied": _CHECK_LOGIN,
    "user": _CHECK_LOGIN,
    "auth token": _CHECK_LOGIN,
    "HTTP 4": _NO_GATEWAY,
    "Not Found": _NO_GATEWAY,
}

Json = dict[str, Any]


class Entry(NamedTuple):
    """A key with its value."""

    key: str
    value: bytes
    revision: int
    version: int
    """The number of puts since the key was created."""


class Gateway:
    """The members of an etcd cluster that an address names, and the login of swarm."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.members = address.hosts_and_ports(PORT)
        self.user, self.password = _login(address)
        self.tls = _tls(address)
        self.token = ""
        self._first = 0  # the member to try first

    def connect(self, timeout: float, handshake: Callable[[Connection], object]) -> Connection:
        """Connect to the first member with which `handshake` succeeds.

        Begin with the member that answered last. Raise ConnectionLost if no member
        answers.
        """
        reasons = []
        first, count = self._first, len(self.members)
        for step in range(count):
            connection = Connection(self, (first + step) % count, timeout / count)
            try:
                connection.open()
                handshake(connection)
                self._first = connection.member
                return connection
            except ConnectionLost as lost:
                connection.abort()
                reasons.append(str(lost))
            except BaseException:
                connection.abort()
                raise
        raise ConnectionLost("; ".join(reasons))

    def avoid(self, member: int) -> None:
        """Make the next connection try another member first."""
        self._first = (member + 1) % len(self.members)

    def scrubbed(self, text: str) -> str:
        return self.address.scrubbed(text.replace(self.password, "…") if self.password else text)


class Connection:
    """A connection to one member. An answer takes at most `limit` seconds."""

    def __init__(self, gateway: Gateway, member: int, limit: float) -> None:
        self.member = member
        self.date = 0.0  # the member's clock at its last answer, in whole seconds
        self._gateway = gateway
        host, port = gateway.members[member]
        self._member_name = f"{host}:{port}"
        self._http = (
            HTTPSConnection(host, port, timeout=limit, context=gateway.tls)
            if gateway.tls
            else HTTPConnection(host, port, timeout=limit)
        )
        self._http.auto_open = 0  # a lost connection must not open again without a handshake
        self._socket: socket.socket | None = None
        self._stream: HTTPResponse | None = None

    def open(self) -> None:
        """Connect to a member and log in. Raise ConnectionLost or StoreError if this
        fails.
        """
        try:
            self._http.connect()
            self._socket = self._http.sock
        except ssl.SSLCertVerificationError as error:
            raise StoreError(
                f"the certificate of {self._member_name} cannot be trusted: "
                f"{error.verify_message}. Name the authority that signed the certificate with "
                "?cacert=FILE in the address, or in ETCDCTL_CACERT."
            ) from None
        except OSError as error:
            raise self._lost(error) from None
        if self._gateway.user and not self._gateway.token:
            self._log_in()

    def ask(self, request: Json) -> Json:
        """Return the answer to a `get`, `put`, `delete`, `transaction` or `status`.

        Log in again if the login token has expired.
        """
        ((kind, question),) = request.items()
        try:
            return self._answer(_PATHS[kind], question)
        except _NotAuthenticated:  # the member has changed nothing
            self._log_in()
        try:
            return self._answer(_PATHS[kind], question)
        except _NotAuthenticated as still:
            raise self._lost(str(still)) from None

    def watch(self, key: str) -> None:
        """Ask etcd to send a message whenever the key changes.

        After this call the connection can only wait for events.
        """
        self._stream = self._send("watch", {"create_request": _keys(key)})
        try:
            result = json.loads(self._stream.readline())["result"]
        except (OSError, HTTPException, ValueError, KeyError) as error:
            raise self._lost(error) from None
        if result.get("canceled"):  # not logged in: the next connection logs in or raises
            raise self._lost(result.get("cancel_reason", "canceled"))

    def wait_event(self, seconds: float) -> bool:
        """Wait for an event of a watch. Return False if the connection is lost."""
        assert self._socket is not None, "only after `watch`"
        self._socket.settimeout(seconds)
        try:
            return bool(self._socket.recv(1 << 16))
        except TimeoutError:
            return True
        except OSError:
            return False

    def abort(self) -> None:
        """Close the connection at once, so that unsent data never arrive."""
        try:
            if self._socket is not None:
                self._socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            if self._stream is not None:
                self._stream.close()
            self._http.close()
        except OSError:
            pass

    def _log_in(self) -> None:
        login = {"name": self._gateway.user, "password": self._gateway.password}
        self._gateway.token = ""  # etcd 3.4 refuses a login that carries an old token
        try:
            self._gateway.token = self._answer("auth/authenticate", login)["token"]
        except _AuthOff:
            self._gateway.token = ""

    def _answer(self, path: str, question: Json) -> Json:
        response = self._send(path, question)
        try:
            body = response.read()
        except (OSError, HTTPException) as error:
            raise self._lost(error) from None
        try:
            answer: Json = dict(json.loads(body))
        except (ValueError, TypeError):
            text = " ".join(body[:200].decode(errors="replace").split())
            code = 12 if response.status < 500 else 14
            raise self._translated(code, f"HTTP {response.status}, {text}") from None
        if response.status != 200:
            raise self._translated(answer.get("code", 0), str(answer.get("message", "")))
        moment = parsedate_tz(response.headers.get("Date", ""))
        if moment is None:
            raise StoreError(
                f"the answer of {self._member_name} has no Date header, which swarm needs for the "
                f"time. "
                "A proxy may have removed this header: use an address without the proxy."
            )
        self.date = float(mktime_tz(moment))
        return answer

    def _send(self, path: str, question: Json) -> HTTPResponse:
        headers = {"Authorization": self._gateway.token} if self._gateway.token else {}
        try:
            self._http.request("POST", f"/v3/{path}", json.dumps(question).encode(), headers)
            return self._http.getresponse()
        except ConnectionError:  # while the question was sent, or before the answer
            hint = "" if self._gateway.tls or self.date else "; if it uses TLS, write etcds://"
            raise self._lost(f"it closed the connection{hint}") from None
        except (OSError, HTTPException) as error:
            raise self._lost(error) from None

    def _translated(self, code: int, text: str) -> Exception:
        """Return the exception for an error that a member of the cluster sent."""
        if self._gateway.user and any(sign in text for sign in _TOKEN_ERRORS):
            return _NotAuthenticated(text)
        if _AUTH_OFF in text:
            return _AuthOff(text)
        if code not in _PERMANENT or _TEMPORARY in text:
            return self._lost(text)
        advice = next(
            (advice for sign, advice in _ADVICE.items() if sign in text),
            "To check the server, run: swarm doctor",
        )
        shown = self._gateway.address.shown
        return StoreError(f"{shown} refuses: {self._gateway.scrubbed(text)}. {advice}.")

    def _lost(self, why: Exception | str) -> ConnectionLost:
        self._gateway.avoid(self.member)
        reason = self._gateway.scrubbed(str(why)) or type(why).__name__
        return ConnectionLost(f"{self._member_name}: {reason}")


class _NotAuthenticated(Exception):
    """The member does not accept the login token."""


class _AuthOff(Exception):
    """The cluster does not use logins."""


def _login(address: Address) -> tuple[str, str]:
    user, _, password = settings.variable("ETCDCTL_USER").partition(":")
    user, password = (
        address.user or user,
        address.password or (password if address.user in ("", user) else ""),
    )
    return user, password or settings.variable("ETCDCTL_PASSWORD")


def _tls(address: Address) -> ssl.SSLContext | None:
    """Return the TLS settings; None without TLS.

    Raise BadInput if the address is invalid or a certificate file cannot be used.
    """
    unknown = set(address.options) - set(_FILES)
    if unknown or address.path not in ("", "/"):
        what = f"the option {min(unknown)!r}" if unknown else f"the path {address.path!r}"
        raise BadInput(
            f"{address.shown} is invalid: {what} is unknown for etcd. The options are "
            f"swarm, timeout, {', '.join(_FILES)}."
        )
    if address.scheme != "etcds":
        return None
    cacert, cert, key = (
        address.options.get(name) or settings.variable(variable) or None
        for name, variable in _FILES.items()
    )
    try:
        context = ssl.create_default_context(cafile=cacert)
        if cert:
            context.load_cert_chain(cert, key)
    except OSError as error:
        raise BadInput(
            f"a certificate for {address.shown} cannot be read: {error}. "
            f"Check {', '.join(_FILES)} in the address, and {', '.join(_FILES.values())}."
        ) from None
    return context


# Requests and answers -----------------------------------------------------------------


def get(key: str, end: str = "", **options: object) -> Json:
    return {"request_range": {**_keys(key, end), **options}}


def put(key: str, value: bytes) -> Json:
    return {"request_put": {**_keys(key), "value": _encoded(value)}}


def delete(key: str, end: str = "") -> Json:
    return {"request_delete_range": _keys(key, end)}


def transaction(compare: list[Json], then: list[Json], otherwise: list[Json]) -> Json:
    """Return a transaction, which can be sent or become part of another transaction."""
    return {"request_txn": {"compare": compare, "success": then, "failure": otherwise}}


def status() -> Json:
    return {"request_status": {}}


def is_absent(key: str) -> Json:
    return {**_keys(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}


def is_value(key: str, value: bytes) -> Json:
    return {**_keys(key), "target": "VALUE", "result": "EQUAL", "value": _encoded(value)}


def is_revision(key: str, revision: int) -> Json:
    return {**_keys(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def always_false(key: str) -> Json:
    return {**_keys(key), "target": "CREATE", "result": "LESS", "create_revision": "0"}


def entries(answer: Json) -> list[Entry]:
    """Return the entries in the answer to a `get`, which may be part of a transaction."""
    kvs = answer.get("response_range", answer).get("kvs", ())
    return [
        Entry(
            b64decode(kv["key"]).decode(),
            b64decode(kv.get("value", "")),
            int(kv["mod_revision"]),
            int(kv["version"]),
        )
        for kv in kvs
    ]


def value(answer: Json) -> bytes | None:
    """Return the value in the answer to a `get` of one key, None if the key does not
    exist.
    """
    return next((entry.value for entry in entries(answer)), None)


def _keys(key: str, end: str = "") -> Json:
    return {"key": _encoded(key.encode()), **({"range_end": _encoded(end.encode())} if end else {})}


def _encoded(data: bytes) -> str:
    return b64encode(data).decode()
