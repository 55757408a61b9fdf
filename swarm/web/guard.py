"""Check every request before the application sees it, and add security headers to
answers.

A request must name a host of this server. Another host name that leads to this server
is an attack (DNS rebinding). A request must not come from a page of another site. If
the access policy has an access token, the request must carry it, as `Authorization:
Bearer` or in a cookie. A request whose address has `?token=` sets the cookie. Every
answer tells the browser to run this server's own files only.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
        "'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "
        "'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_MAX_QUERY = 8000


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach the address."""
    return ipaddress.ip_address(address).is_loopback


def authority(host: str, port: int) -> str:
    """Return host and port in the form that a URL needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class AccessPolicy:
    """The host names and the token that the server accepts.

    `host` is the name that the user gave, `address` the address that the socket is
    bound to. `token` is "" if no token is needed. `more` has further host names. A name
    without a port is accepted with any port.
    """

    def __init__(
        self, host: str, address: str, port: int, token: str = "", more: tuple[str, ...] = ()
    ) -> None:
        self.port = port
        self.token = token
        self.cookie = f"swarm_web_{port}"
        self._more = frozenset(name.lower() for name in more)
        self._names = {authority(name.lower(), 0).removesuffix(":0") for name in (host, address)}
        self._any_address = address in ("0.0.0.0", "::")
        if is_loopback(address) or self._any_address:
            self._names.update(_LOOPBACK)
        if self._any_address:
            name = socket.gethostname().lower()
            self._names |= {name, f"{name}.local"}

    def accepts_host(self, host: str) -> bool:
        """Return whether a Host header names this server."""
        host = host.lower()
        name, colon, port = host.rpartition(":")
        if not colon or host.endswith("]"):
            name, port = host, "80"
        if host in self._more or name in self._more:
            return True
        return port == str(self.port) and (
            name in self._names or (self._any_address and _is_address(name))
        )

    def accepts_token(self, token: str) -> bool:
        return bool(token) and hmac.compare_digest(
            token.encode(errors="replace"), self.token.encode()
        )


class Guard:
    """An ASGI application that checks requests before it passes them to another
    application.
    """

    def __init__(self, app: App, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                more = [
                    (n.encode(), v.encode())
                    for n, v in HEADERS.items()
                    if n.encode() not in present
                ]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        if (
            (refused := self._refusal(scope, headers)) is None
            and self._policy.token
            and scope["path"] != "/healthz"
        ):
            given = (
                parse_qs(scope["query_string"].decode("latin-1")).get("token")
                if scope["path"] == "/"
                else None
            )
            if given and self._policy.accepts_token(given[0]):
                await self._exchange(guarded)
                return
            if given:
                refused = 401, "The token is wrong. Open the address that swarm web printed."
            elif not any(map(self._policy.accepts_token, self._tokens(headers))):
                refused = 401, "A token is needed. Open the address that swarm web printed."
        if refused:
            await _answer(guarded, *refused)
        else:
            await self._app(scope, receive, guarded)

    def _refusal(self, scope: Scope, headers: dict[str, list[str]]) -> tuple[int, str] | None:
        if "content-length" in headers and "transfer-encoding" in headers:
            # a proxy in front may take the one, and this server the other
            return 400, "A request must not have both Content-Length and Transfer-Encoding."
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._policy.accepts_host(hosts[0]):
            return (
                403,
                (
                    "This server does not accept that host name. Use the address that swarm web "
                    "printed, or see --allow-host."
                ),
            )
        ours = f"{scope.get('scheme', 'http')}://{hosts[0]}".lower()
        origins = [origin.lower() for origin in headers.get("origin", [])]
        if (
            any(origin not in (ours, f"https://{hosts[0]}".lower()) for origin in origins)
            or len(origins) > 1
        ):
            return 403, "Requests from other sites are refused."
        if any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", [])):
            return (
                403,
                (
                    "Requests from other sites are refused. Paste the address into the browser's "
                    "address bar."
                ),
            )
        if len(scope["query_string"]) > _MAX_QUERY:
            return 414, "The query is too long."
        try:
            unquote_to_bytes(scope["raw_path"]).decode()
        except UnicodeDecodeError:
            return 404, "There is no such address: it is not valid UTF-8."
        return None

    def _tokens(self, headers: dict[str, list[str]]) -> list[str]:
        given = []
        for value in headers.get("authorization", []):
            kind, _, token = value.partition(" ")
            if kind.lower() == "bearer":
                given.append(token.strip())
        for line in headers.get("cookie", []):
            for pair in line.split(";"):
                name, _, value = pair.strip().partition("=")
                if name == self._policy.cookie:
                    given.append(value)
        return given

    async def _exchange(self, send: Send) -> None:
        """Set the cookie and redirect the browser, so that the token is gone from its
        address bar and its history.
        """
        cookie = f"{self._policy.cookie}={self._policy.token}; Path=/; HttpOnly; SameSite=Strict"
        headers = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


async def _answer(send: Send, status: int, text: str) -> None:
    body = json.dumps({"error": text, "exit_code": 2}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 400:
        headers.append((b"connection", b"close"))  # where the next request begins is not sure
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
