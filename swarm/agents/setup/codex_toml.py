"""Add swarm's MCP server to Codex's config.toml, as a marked block at the end of the
file.

Every other byte of the file stays. When Codex adds a server, it rewrites the file. This
may remove the first marker of the block and put other tables before the last marker. So
swarm recognises its server by the TOML table. The markers only show how much text swarm
added. swarm parses each new text again: everything except its server must mean the same
as before. The module `plan` decides what the server's table contains.
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
_OWN_TABLE = re.compile(r"""["']?mcp_servers["']?[ \t]*\.[ \t]*["']?swarm["']?([ \t]*\..*)?""")


def put(text: str | None, server: Mapping[str, object], name: str) -> str:
    """Return the text of config.toml with swarm's server.

    The text None stands for a file that does not exist.

    Raise BadInput if the file has another server with the name of swarm's server.
    """
    before = _parse(text or "", name)
    present = _server(before)
    if present is not None and not is_own_server(present):
        raise BadInput(
            f"{name} has an [mcp_servers.swarm] that swarm did not write. Nothing was changed. Remove or rename this table."
        )
    fields = {
        **(present or {}),
        **server,
        "env_vars": _merged(server.get("env_vars"), (present or {}).get("env_vars")),
    }
    if text is not None and fields == present:
        return text
    rest = remove(text, name) if text else text
    body = "[mcp_servers.swarm]\n" + "".join(
        f"{key} = {_as_toml(value)}\n" for key, value in fields.items()
    )
    after = marked_block.put(rest, body, TOML, name)
    _check(before, after, name)
    return after


def remove(text: str, name: str) -> str | None:
    """Return the text without swarm's server.

    Return None if swarm made the file and the file has no other content.
    """
    before = _parse(text, name)
    present = _server(before)
    if present is None or not is_own_server(present):
        return text
    after = marked_block.remove(text, TOML, name) if _is_whole(text, name) else _cut(text)
    _check(before, after or "", name)
    return after


def _parse(text: str, name: str) -> dict[str, Any]:
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
    """A TOML float that is kept as its text, so that it is written as it was read, and
    nan equals itself.
    """

    __slots__ = ()


def _merged(ours: object, present: object) -> list[object]:
    """Return swarm's values and the values that the user added."""
    first = list(ours) if isinstance(ours, list) else []
    return [
        *first,
        *(item for item in (present if isinstance(present, list) else []) if item not in first),
    ]


def _as_toml(value: object) -> str:
    """Return a value as TOML. The user may have added a table to the server."""
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(
                f"{json_codec.dumps(key)} = {_as_toml(item)}" for key, item in value.items()
            )
            + " }"
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_as_toml, value))}]"
    return str(value) if isinstance(value, _Float) else json_codec.dumps(value)


def _is_whole(text: str, name: str) -> bool:
    """Return whether the markers enclose the server and nothing else."""
    try:
        found = marked_block.find(text, TOML, name)
        body = tomllib.loads(found.body) if found else {}
    except (BadInput, tomllib.TOMLDecodeError):
        return False
    return list(body) == ["mcp_servers"] and list(body["mcp_servers"]) == ["swarm"]


def _cut(text: str) -> str:
    """Return the text without the server's tables and without remaining markers."""
    heads = [*_TABLE.finditer(text), None]
    pieces = [text[: heads[0].start() if heads[0] else len(text)]]
    for head, following in pairwise(heads):
        assert head is not None
        piece = text[head.start() : following.start() if following else len(text)]
        if _OWN_TABLE.fullmatch(head[1]):
            piece = "".join(
                line for line in piece.splitlines(keepends=True) if line.lstrip().startswith("#")
            )
        pieces.append(piece)
    marker = re.compile(
        rf"^{re.escape(TOML.begins)}[^\n]*\n?|^{re.escape(TOML.end)}\r?(\n|\Z)", re.MULTILINE
    )
    return marker.sub("", "".join(pieces))


def _check(before: dict[str, Any], after: str, name: str) -> None:
    """Raise BadInput if anything but the server would change."""
    try:
        value = tomllib.loads(after.removeprefix(_BOM), parse_float=_Float)
    except tomllib.TOMLDecodeError:
        value = {"": None}
    if _without_server(value) != _without_server(before):
        raise BadInput(
            f"the table [mcp_servers.swarm] cannot be added to {name}, or removed, without "
            f"changing something else. "
            "Nothing was changed; edit the file by hand."
        )


def _without_server(value: dict[str, Any]) -> dict[str, Any]:
    servers = value.get("mcp_servers")
    if not isinstance(servers, dict):
        return value
    rest = {key: server for key, server in servers.items() if key != "swarm"}
    return (
        {**value, "mcp_servers": rest}
        if rest
        else {key: item for key, item in value.items() if key != "mcp_servers"}
    )
