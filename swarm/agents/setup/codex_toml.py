"""Add swarm's MCP server, and what Codex's sandbox must allow, to config.toml, as a
marked block at the end of the file.

Every other byte of the file stays. When Codex adds a server, it rewrites the file. This
may remove the first marker of the block and put other tables before the last marker. So
swarm recognises its server by the TOML table. The markers only show how much text swarm
added. swarm parses each new text again: everything except its tables must mean the same
as before. The module `plan` decides what the tables contain.

The table of the sandbox is swarm's if it stands in the block. TOML allows a table only
once, so swarm adds nothing to a table of the user: see `missing_from_sandbox`.
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


Sandbox = Mapping[str, object]  # the fields of Codex's table [sandbox_workspace_write]
_SANDBOX = "sandbox_workspace_write"
_PROFILES = ("default_permissions", "permissions")  # they replace the table


def put(
    text: str | None, server: Mapping[str, object] | None, name: str, sandbox: Sandbox | None = None
) -> str | None:
    """Return the text of config.toml with swarm's server and sandbox.

    The text None stands for a file that does not exist. Without a server, swarm's
    server is removed; a sandbox of the user stays as it is.

    Raise BadInput if the file has another server with the name of swarm's server.
    """
    before = _parse(text or "", name)
    own_sandbox = _own_sandbox(text or "", name)
    wanted = sandbox if sandbox and (own_sandbox or not _has_sandbox(before)) else None
    if server is None and _server(before) is None and not wanted and not own_sandbox:
        return text
    present = _server(before)
    if present is not None and not is_own_server(present):
        raise BadInput(
            f"{name} has an [mcp_servers.swarm] that swarm did not write. Nothing was changed. Remove or rename this table."
        )
    fields: dict[str, object] | None = None
    if server is not None:
        fields = {
            **(present or {}),
            **server,
            "env_vars": _merged(server.get("env_vars"), (present or {}).get("env_vars")),
        }
    if text is not None and fields == present and dict(wanted or {}) == (own_sandbox or {}):
        return text
    rest = remove(text, name) if text else text
    tables = {"mcp_servers.swarm": fields, _SANDBOX: wanted}
    body = "\n".join(_table(head, table) for head, table in tables.items() if table)
    if not body:
        return rest
    after = marked_block.put(rest, body, TOML, name)
    _check(before, after, name, sandbox=bool(own_sandbox or wanted))
    return after


def remove(text: str, name: str) -> str | None:
    """Return the text without swarm's server and sandbox.

    Return None if swarm made the file and the file has no other content.
    """
    before = _parse(text, name)
    present, own_sandbox = _server(before), _own_sandbox(text, name)
    if not own_sandbox and (present is None or not is_own_server(present)):
        return text
    if _is_whole(text, name):
        after = marked_block.remove(text, TOML, name)
    else:
        after = _cut(text, sandbox=own_sandbox is not None)
    _check(before, after or "", name, sandbox=bool(own_sandbox))
    return after


def missing_from_sandbox(text: str | None, sandbox: Sandbox, name: str) -> Sandbox:
    """Return the part of `sandbox` that a table of the user's own does not allow.

    The result is empty if swarm may write the table itself.
    """
    value = _parse(text or "", name)
    if not _has_sandbox(value) or _own_sandbox(text or "", name):
        return {}
    present = value.get(_SANDBOX)
    present = present if isinstance(present, dict) else {}
    missing: dict[str, object] = {}
    for key, wanted in sandbox.items():
        found = present.get(key)
        if isinstance(wanted, list):
            left = [item for item in wanted if not isinstance(found, list) or item not in found]
            missing.update({key: left} if left else {})
        elif found != wanted:
            missing[key] = wanted
    return missing


def as_line(fields: Sandbox) -> str:
    """Return fields as a user would type them in TOML."""
    return ", ".join(f"{key} = {_as_toml(value)}" for key, value in fields.items())


def _has_sandbox(value: dict[str, Any]) -> bool:
    return any(key in value for key in (_SANDBOX, *_PROFILES))


def _own_sandbox(text: str, name: str) -> dict[str, Any] | None:
    """Return the table of the sandbox in swarm's block, None if there is none."""
    try:
        found = marked_block.find(text, TOML, name)
        body = tomllib.loads(found.body) if found else {}
    except (BadInput, tomllib.TOMLDecodeError):
        return None
    table = body.get(_SANDBOX)
    return table if isinstance(table, dict) else None


def _table(head: str, fields: Mapping[str, object]) -> str:
    return f"[{head}]\n" + "".join(f"{key} = {_as_toml(value)}\n" for key, value in fields.items())


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
    """Return whether the markers enclose swarm's tables and nothing else."""
    try:
        found = marked_block.find(text, TOML, name)
        body = tomllib.loads(found.body) if found else {}
    except (BadInput, tomllib.TOMLDecodeError):
        return False
    servers = body.get("mcp_servers", {"swarm": None})
    return bool(body) and set(body) <= {"mcp_servers", _SANDBOX} and list(servers) == ["swarm"]


def _cut(text: str, *, sandbox: bool) -> str:
    """Return the text without swarm's tables and without remaining markers."""
    heads = [*_TABLE.finditer(text), None]
    pieces = [text[: heads[0].start() if heads[0] else len(text)]]
    for head, following in pairwise(heads):
        assert head is not None
        piece = text[head.start() : following.start() if following else len(text)]
        if _OWN_TABLE.fullmatch(head[1]) or (sandbox and head[1] == _SANDBOX):
            piece = "".join(
                line for line in piece.splitlines(keepends=True) if line.lstrip().startswith("#")
            )
        pieces.append(piece)
    marker = re.compile(
        rf"^{re.escape(TOML.begins)}[^\n]*\n?|^{re.escape(TOML.end)}\r?(\n|\Z)", re.MULTILINE
    )
    return marker.sub("", "".join(pieces))


def _check(before: dict[str, Any], after: str, name: str, *, sandbox: bool) -> None:
    """Raise BadInput if anything but the server would change, and the table of the
    sandbox if it is swarm's.
    """
    try:
        value = tomllib.loads(after.removeprefix(_BOM), parse_float=_Float)
    except tomllib.TOMLDecodeError:
        value = {"": None}
    if _others(value, sandbox=sandbox) != _others(before, sandbox=sandbox):
        raise BadInput(
            f"the table [mcp_servers.swarm] cannot be added to {name}, or removed, without "
            f"changing something else. "
            "Nothing was changed; edit the file by hand."
        )


def _others(value: dict[str, Any], *, sandbox: bool) -> dict[str, Any]:
    """Return the settings that are not swarm's."""
    if sandbox:
        value = {key: item for key, item in value.items() if key != _SANDBOX}
    servers = value.get("mcp_servers")
    if not isinstance(servers, dict):
        return value
    rest = {key: server for key, server in servers.items() if key != "swarm"}
    return (
        {**value, "mcp_servers": rest}
        if rest
        else {key: item for key, item in value.items() if key != "mcp_servers"}
    )
