"""etcd's JSON gateway: its v3 interface over HTTP/1.1, which the standard library can speak.

Its traits: keys and values are base64, 64-bit numbers are text, and a field that is false, zero or empty is left out. A member
that is down, silent or without a leader is Broken, and passed over for the next; what it refuses for good is a StoreError that
says what to do.
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
from swarm.stores.server.session_pool import Broken

PORT = 2379
_VERBS = {
    "request_range": "kv/range",
    "request_put": "kv/put",
    "request_delete_range": "kv/deleterange",
    "request_txn": "kv/txn",
    "request_status": "maintenance/status",
}
_FILES = {"cacert": "ETCDCTL_CACERT", "cert": "ETCDCTL_CERT", "key": "ETCDCTL_KEY"}
# gRPC codes of what stays refused however often it is asked: invalid argument, not found, already exists, permission denied,
# resource exhausted, failed precondition, out of range, unimplemented, unauthenticated.
_FOR_GOOD = {3, 5, 6, 7, 8, 9, 11, 12, 16}
_AGAIN = "too many requests"  # … but for this
_AUTH_OFF = "authentication is not enabled"
_LOG_IN = ("invalid auth token", "auth store is old", "user name is empty")  # too old a token, or none
_TOO_LARGE = "A record or line is larger than etcd takes, which is about 1.5 MB: shorten it, or raise its --max-request-bytes"
_LOGIN = "Check user, password and rights, also in ETCDCTL_USER and ETCDCTL_PASSWORD"
_NO_GATEWAY = "It must be etcd 3.4 or newer with its JSON gateway switched on; where it speaks TLS, write etcds://"
_CURES = {
    "too large": _TOO_LARGE,
    "larger than max": _TOO_LARGE,
    "space exceeded": "Its database is full: compact and defragment it, then run etcdctl alarm disarm; "
    "with --auto-compaction-retention it does not fill up",
    "permission denied": _LOGIN,
    "user": _LOGIN,
    "auth token": _LOGIN,
    "HTTP 4": _NO_GATEWAY,
    "Not Found": _NO_GATEWAY,
}

Json = dict[str, Any]


class Entry(NamedTuple):
    """A key that is there."""

    key: str
    value: bytes
    revision: int
    version: int
    """How often it was put."""


class Gateway:
    """The members of a cluster, as an address names them, and the login for them."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.places = address.places(PORT)
        self.user, self.password = _login(address)
        self.tls = _tls(address)
        self.token = ""
        self._first = 0

    def dial(self, timeout: float, greet: Callable[[Wire], object]) -> Wire:
        """A wire to the first member that lets itself be greeted, beginning with the one that did last."""
        troubles = []
        first, count = self._first, len(self.places)
        for step in range(count):
            wire = Wire(self, (first + step) % count, timeout / count)
            try:
                wire.open()
                greet(wire)
                self._first = wire.place
                return wire
            except Broken as broken:
                wire.hang_up()
                troubles.append(str(broken))
            except BaseException:
                wire.hang_up()
                raise
        raise Broken("; ".join(troubles))

    def broke(self, place: int) -> None:
        """The next wire is tried with another member first."""
        self._first = (place + 1) % len(self.places)

    def scrubbed(self, text: str) -> str:
        return self.address.scrubbed(text.replace(self.password, "…") if self.password else text)


class Wire:
    """A connection to one member, on which no answer takes longer than `limit` seconds."""

    def __init__(self, gateway: Gateway, place: int, limit: float) -> None:
        self.place = place
        self.date = 0.0  # the member's clock when it last answered, cut to the second
        self._gateway = gateway
        host, port = gateway.places[place]
        self._member = f"{host}:{port}"
        self._http = (
            HTTPSConnection(host, port, timeout=limit, context=gateway.tls)
            if gateway.tls
            else HTTPConnection(host, port, timeout=limit)
        )
        self._http.auto_open = 0  # only `dial` opens, and greets
        self._socket: socket.socket | None = None
        self._stream: HTTPResponse | None = None

    def open(self) -> None:
        try:
            self._http.connect()
            self._socket = self._http.sock
        except ssl.SSLCertVerificationError as error:
            raise StoreError(
                f"the certificate of {self._member} cannot be trusted: {error.verify_message}. Name the authority that signed "
                "it with ?cacert=FILE in the address, or in ETCDCTL_CACERT."
            ) from None
        except OSError as error:
            raise self._broken(error) from None
        if self._gateway.user and not self._gateway.token:
            self._log_in()

    def ask(self, request: Json) -> Json:
        """The answer to a `get`, `put`, `delete`, `either` or `status`."""
        ((kind, question),) = request.items()
        try:
            return self._answer(_VERBS[kind], question)
        except _Stranger:  # nothing was carried out
            self._log_in()
        try:
            return self._answer(_VERBS[kind], question)
        except _Stranger as still:
            raise self._broken(str(still)) from None

    def watch(self, key: str) -> None:
        """Has the member tell every change of a key from now on; the wire is of no other use then."""
        self._stream = self._send("watch", {"create_request": _keys(key)})
        try:
            told = json.loads(self._stream.readline())
            result = told["result"]
        except (OSError, HTTPException, ValueError, KeyError) as error:
            raise self._broken(error) from None
        if result.get("canceled"):  # for want of a login: whoever dials anew has that seen to, or is told
            raise self._broken(result.get("cancel_reason", "canceled"))

    def heard(self, seconds: float) -> bool:
        """Waits for a message; False when none can come any more."""
        assert self._socket is not None, "only after `watch`"
        self._socket.settimeout(seconds)
        try:
            return bool(self._socket.recv(1 << 16))
        except TimeoutError:
            return True
        except OSError:
            return False

    def hang_up(self) -> None:
        """At once: what has not been sent shall never arrive."""
        try:
            if self._socket is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if self._stream is not None:
                self._stream.close()
            self._http.close()
        except OSError:
            pass

    def _log_in(self) -> None:
        who = {"name": self._gateway.user, "password": self._gateway.password}
        self._gateway.token = ""  # etcd 3.4 lets nobody in who shows one that is too old
        try:
            self._gateway.token = self._answer("auth/authenticate", who)["token"]
        except _AuthOff:
            self._gateway.token = ""

    def _answer(self, verb: str, question: Json) -> Json:
        response = self._send(verb, question)
        try:
            body = response.read()
        except (OSError, HTTPException) as error:
            raise self._broken(error) from None
        try:
            answer: Json = dict(json.loads(body))
        except (ValueError, TypeError):
            text = " ".join(body[:200].decode(errors="replace").split())
            raise self._meaning(12 if response.status < 500 else 14, f"HTTP {response.status}, {text}") from None
        if response.status != 200:
            raise self._meaning(answer.get("code", 0), str(answer.get("message", "")))
        moment = parsedate_tz(response.headers.get("Date", ""))
        if moment is None:
            raise StoreError(f"{self._member} does not tell the time. Ask it directly: a proxy has removed Date from its answer.")
        self.date = float(mktime_tz(moment))
        return answer

    def _send(self, verb: str, question: Json) -> HTTPResponse:
        headers = {"Authorization": self._gateway.token} if self._gateway.token else {}
        try:
            self._http.request("POST", f"/v3/{verb}", json.dumps(question).encode(), headers)
            return self._http.getresponse()
        except ConnectionError:  # in the middle of the question, or instead of an answer
            hint = "" if self._gateway.tls or self.date else "; if it speaks TLS, write etcds://"
            raise self._broken(f"it has hung up{hint}") from None
        except (OSError, HTTPException) as error:
            raise self._broken(error) from None

    def _meaning(self, code: int, text: str) -> Exception:
        """What an error means that the member has sent."""
        if self._gateway.user and any(sign in text for sign in _LOG_IN):
            return _Stranger(text)
        if _AUTH_OFF in text:
            return _AuthOff(text)
        if code not in _FOR_GOOD or _AGAIN in text:
            return self._broken(text)
        cure = next((cure for sign, cure in _CURES.items() if sign in text), "Look at its settings with: swarm doctor")
        return StoreError(f"{self._gateway.address.shown} refuses: {self._gateway.scrubbed(text)}. {cure}.")

    def _broken(self, why: Exception | str) -> Broken:
        self._gateway.broke(self.place)
        return Broken(f"{self._member}: {self._gateway.scrubbed(str(why)) or type(why).__name__}")


class _Stranger(Exception):
    """The member does not know who is asking."""


class _AuthOff(Exception):
    """Users and passwords are not asked for."""


def _login(address: Address) -> tuple[str, str]:
    user, _, password = settings.variable("ETCDCTL_USER").partition(":")
    user, password = address.user or user, address.password or (password if address.user in ("", user) else "")
    return user, password or settings.variable("ETCDCTL_PASSWORD")


def _tls(address: Address) -> ssl.SSLContext | None:
    unknown = set(address.options) - set(_FILES)
    if unknown or address.path not in ("", "/"):
        what = f"the option {min(unknown)!r}" if unknown else f"the path {address.path!r}"
        raise BadInput(
            f"{address.shown} cannot be understood: etcd has no use for {what}; it knows namespace, timeout, {', '.join(_FILES)}."
        )
    if address.scheme != "etcds":
        return None
    cacert, cert, key = (address.options.get(name) or settings.variable(variable) or None for name, variable in _FILES.items())
    try:
        context = ssl.create_default_context(cafile=cacert)
        if cert:
            context.load_cert_chain(cert, key)
    except OSError as error:
        raise BadInput(
            f"a certificate for {address.shown} cannot be read: {error}. Check {', '.join(_FILES.values())}."
        ) from None
    return context


# How things are said -------------------------------------------------------------------------------------------------


def get(key: str, end: str = "", **options: object) -> Json:
    return {"request_range": {**_keys(key, end), **options}}


def put(key: str, value: bytes) -> Json:
    return {"request_put": {**_keys(key), "value": _encoded(value)}}


def delete(key: str, end: str = "") -> Json:
    return {"request_delete_range": _keys(key, end)}


def either(compare: list[Json], then: list[Json], otherwise: list[Json]) -> Json:
    """A transaction, to be sent or to be part of another."""
    return {"request_txn": {"compare": compare, "success": then, "failure": otherwise}}


def status() -> Json:
    return {"request_status": {}}


def is_absent(key: str) -> Json:
    return {**_keys(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}


def is_value(key: str, value: bytes) -> Json:
    return {**_keys(key), "target": "VALUE", "result": "EQUAL", "value": _encoded(value)}


def is_revision(key: str, revision: int) -> Json:
    return {**_keys(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def is_never(key: str) -> Json:
    return {**_keys(key), "target": "CREATE", "result": "LESS", "create_revision": "0"}


def entries(answer: Json) -> list[Entry]:
    """What a `get` has found, also as a part of a transaction."""
    kvs = answer.get("response_range", answer).get("kvs", ())
    return [
        Entry(b64decode(kv["key"]).decode(), b64decode(kv.get("value", "")), int(kv["mod_revision"]), int(kv["version"]))
        for kv in kvs
    ]


def value(answer: Json) -> bytes | None:
    """The value of the one key that a `get` was for."""
    return next((entry.value for entry in entries(answer)), None)


def _keys(key: str, end: str = "") -> Json:
    return {"key": _encoded(key.encode()), **({"range_end": _encoded(end.encode())} if end else {})}


def _encoded(data: bytes) -> str:
    return b64encode(data).decode()
