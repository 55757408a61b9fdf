"""swarm's MCP server in Codex's config.toml: a marked block at the end of it, every other byte as it was.

Codex writes this file anew when it adds another server; that may take the first marker away and put foreign tables before the
last. So the server is recognised by its table, and the markers tell only how much was put in. Whatever is done is checked by
reading the text: all but the server must mean what it meant before. What the table says, `plan` decides.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from swarm.agents.setup import marked_block
from swarm.agents.setup.marked_block import TOML
from swarm.errors import BadInput
from swarm.formats import json_codec
from swarm.system.own_command import is_own_server

_BOM = "\ufeff"
_TABLE = re.compile(r"^[ \t]*\[{1,2}[ \t]*(.*?)[ \t]*\]{1,2}", re.MULTILINE)
_OURS = re.compile(r"""["']?mcp_servers["']?[ \t]*\.[ \t]*["']?swarm["']?([ \t]*\..*)?""")


def put(text: str | None, server: Mapping[str, object], name: str) -> str:
    """The text with the server, None being a file that is not there yet; raises BadInput if there is another of that name."""
    before = _parsed(text or "", name)
    present = _server(before)
    if present is not None and not is_own_server(present):
        raise BadInput(
            f"{name} has an [mcp_servers.swarm] that swarm did not write. Nothing was changed; take it out, or rename it."
        )
    fields = {**(present or {}), **server, "env_vars": _both(server.get("env_vars"), (present or {}).get("env_vars"))}
    if text is not None and fields == present:
        return text
    rest = taken_out(text, name) if text else text
    body = "[mcp_servers.swarm]\n" + "".join(f"{key} = {_written(value)}\n" for key, value in fields.items())
    after = marked_block.put(rest, body, TOML, name)
    _check(before, after, name)
    return after


def taken_out(text: str, name: str) -> str | None:
    """The text without the server, if it is swarm's; None if the file was made for it, and has nothing else."""
    before = _parsed(text, name)
    present = _server(before)
    if present is None or not is_own_server(present):
        return text
    after = marked_block.taken_out(text, TOML, name) if _is_whole(text, name) else _cut(text)
    _check(before, after or "", name)
    return after


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(_BOM), parse_float=_Float)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{name} is not TOML: {error}. Nothing was changed.") from None
    except RecursionError:
        raise BadInput(f"{name} is nested too deeply. Nothing was changed.") from None


def _server(value: dict[str, Any]) -> Any:
    servers = value.get("mcp_servers")
    return servers.get("swarm") if isinstance(servers, dict) else None


class _Float(str):
    """A float as it is written, so that it stays so, and that nan is equal to itself."""

    __slots__ = ()


def _both(ours: object, present: object) -> list[object]:
    """Ours, and what somebody added."""
    first = list(ours) if isinstance(ours, list) else []
    return [*first, *(item for item in (present if isinstance(present, list) else []) if item not in first)]


def _written(value: object) -> str:
    """A value as TOML: what somebody added to the server may be a table."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json_codec.dumps(key)} = {_written(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return str(value) if isinstance(value, _Float) else json_codec.dumps(value)


def _is_whole(text: str, name: str) -> bool:
    """Whether the markers enclose the server and nothing else."""
    try:
        found = marked_block.find(text, TOML, name)
        body = tomllib.loads(found.body) if found else {}
    except (BadInput, tomllib.TOMLDecodeError):
        return False
    return list(body) == ["mcp_servers"] and list(body["mcp_servers"]) == ["swarm"]


def _cut(text: str) -> str:
    """The text without the server's tables and what is left of the markers."""
    heads = [*_TABLE.finditer(text), None]
    pieces = [text[: heads[0].start() if heads[0] else len(text)]]
    for head, following in pairwise(heads):
        assert head is not None
        piece = text[head.start() : following.start() if following else len(text)]
        if _OURS.fullmatch(head[1]):
            piece = "".join(line for line in piece.splitlines(keepends=True) if line.lstrip().startswith("#"))
        pieces.append(piece)
    marker = re.compile(rf"^{re.escape(TOML.begins)}[^\n]*\n?|^{re.escape(TOML.end)}\r?(\n|\Z)", re.MULTILINE)
    return marker.sub("", "".join(pieces))


def _check(before: dict[str, Any], after: str, name: str) -> None:
    """Raises BadInput if anything but the server would change."""
    try:
        value = tomllib.loads(after.removeprefix(_BOM), parse_float=_Float)
    except tomllib.TOMLDecodeError:
        value = {"": None}
    if _without_server(value) != _without_server(before):
        raise BadInput(
            f"the table [mcp_servers.swarm] cannot be put into {name}, or taken out, without changing something else. "
            "Nothing was changed; do it by hand."
        )


def _without_server(value: dict[str, Any]) -> dict[str, Any]:
    servers = value.get("mcp_servers")
    if not isinstance(servers, dict):
        return value
    rest = {key: server for key, server in servers.items() if key != "swarm"}
    return {**value, "mcp_servers": rest} if rest else {key: item for key, item in value.items() if key != "mcp_servers"}
