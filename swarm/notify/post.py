"""Send one HTTP request, and say in a short text why it failed.

- Certificates are checked. A redirect is not followed: the address and the signature
  are for one server.
- The whole request ends after `LIMIT` seconds, also if the server answers byte by byte.
  Of an answer, only the beginning is read.
- No error names more of the URL than its host. Errors have no words of the server: many
  servers repeat the path, which may be a secret.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping

from swarm.notify.channel import Undelivered, check_url, public_url

LIMIT = 20.0  # seconds for a request
_QUIET = 10.0  # seconds without a byte
_MAX_ANSWER = 4096  # bytes


def post(url: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a POST request. Raise Undelivered unless the server confirms it (2xx)."""
    parts = check_url(url, "the channel", allow_http=True)
    host, path = parts.hostname or "", parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, parts.port, timeout=_QUIET, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=_QUIET)
    is_cut = threading.Event()
    watch = threading.Timer(LIMIT, _cut, [connection, is_cut])
    watch.daemon = True
    try:
        watch.start()
        connection.request("POST", target, body, {**headers, "Connection": "close"})
        answer = connection.getresponse()
        status = answer.status
        answer.read(_MAX_ANSWER)
    except TimeoutError:
        raise Undelivered(f"{public_url(url)} does not answer in time") from None
    except ssl.SSLCertVerificationError as error:
        raise Undelivered(
            f"the certificate of {public_url(url)} is not valid: {error.verify_message}"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "strerror", "") or type(error).__name__
        raise Undelivered(f"{public_url(url)} cannot be reached: {why}") from None
    except RuntimeError as error:  # the system allows no more threads
        raise Undelivered(str(error)) from None
    finally:
        watch.cancel()
        connection.close()
    if is_cut.is_set():  # the end that we made looks like the end of the answer
        raise Undelivered(f"{public_url(url)} does not answer in time")
    if 300 <= status < 400:
        raise Undelivered(
            f"{public_url(url)} redirects (HTTP {status}). Give the address it redirects to"
        )
    if not 200 <= status < 300:
        meaning = http.client.responses.get(status, "")  # the server's own words may be any text
        raise Undelivered(f"{public_url(url)} answers HTTP {status} {meaning}".rstrip())


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the header that lets a receiver check sender, time and content."""
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"v1={signed.hexdigest()}"


def _cut(connection: http.client.HTTPConnection, is_cut: threading.Event) -> None:
    """End a request from another thread: its next read or write fails."""
    is_cut.set()
    try:
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it has just ended
