"""Turn a line of a client into a message of the protocol, or into an error answer.

A client waits for an answer to each of its requests. So a line that is no valid message
is answered as well, with the id of the request if the line shows one.
"""

from __future__ import annotations

import json
import re

import mcp_types as types
from mcp.shared.message import SessionMessage

from swarm.agents.stdio_pump import MAX_LINE, Line

_ESCAPES = re.compile(  # an escaped backslash, a surrogate pair, or half of a pair
    rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)"
)
# The id of a message that cannot be parsed as a whole: clients write it first or last.
_ID = rb'"id"\s*:\s*(?P<id>-?(?:0|[1-9]\d{0,17})|"[^"\\\x00-\x1f]{0,200}")'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_FIRST_ID = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb"\s*,\s*)?" + _ID + rb"\s*,")
_LAST_ID = re.compile(_ID + rb"\s*(?:,\s*" + _VERSION + rb"\s*)?\}\s*$")


def message_of(line: Line) -> SessionMessage | types.JSONRPCError | None:
    """Return the message in a line, or the error that answers the line.

    Return None for a line that needs no answer: a blank line, or an invalid answer to a
    request of this server.
    """
    if line.cut:
        return _error(
            types.INVALID_REQUEST,
            f"The message has more than {MAX_LINE} bytes.",
            _visible_id(line.text),
        )
    text = _without_half_characters(line.text)
    if not text.strip():
        return None
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
    except Exception:  # also a RecursionError
        return _refusal(text)


def _refusal(text: bytes) -> types.JSONRPCError | None:
    try:
        message = json.loads(text)
    except ValueError:
        # in half a line, the last id may be one of the parameters
        return _error(types.PARSE_ERROR, "The line is not valid JSON.", _id(_FIRST_ID.match(text)))
    except RecursionError:
        return _error(types.PARSE_ERROR, "The JSON is nested too deeply.", _visible_id(text))
    found = message.get("id") if isinstance(message, dict) else None
    if found is not None and "method" not in message:
        return None
    is_id = isinstance(found, str | int) and not isinstance(found, bool)
    return _error(
        types.INVALID_REQUEST, "The line is not a valid message.", found if is_id else None
    )


def _error(code: int, text: str, request: str | int | None) -> types.JSONRPCError:
    return types.JSONRPCError(
        jsonrpc="2.0", id=request, error=types.ErrorData(code=code, message=text)
    )


def _visible_id(text: bytes) -> str | int | None:
    return _id(_FIRST_ID.match(text) or _LAST_ID.search(text, max(0, len(text) - 512)))


def _id(found: re.Match[bytes] | None) -> str | int | None:
    request: str | int | None = json.loads(found["id"].decode(errors="replace")) if found else None
    return request


def _without_half_characters(text: bytes) -> bytes:
    """Replace lone surrogates, which some clients send when they cut a string.

    The SDK would never answer a call that contains a lone surrogate.
    """
    return _ESCAPES.sub(lambda found: b"\\ufffd" if found["half"] else found[0], text)
