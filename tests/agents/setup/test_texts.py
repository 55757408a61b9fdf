"""Entries and blocks in a user's files: added and removed again, every byte is as it was."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from swarm.agents.setup import (
    codex_toml,
    grants,
    hook_entries,
    json_edit,
    marked_block,
    server_entries,
)
from swarm.agents.setup.agents import CLAUDE, GEMINI, Agent
from swarm.agents.setup.instructions import instructions
from swarm.agents.setup.marked_block import MARKDOWN
from swarm.errors import BadInput, SwarmError

SWARM_IS = ("swarm",)

# There and back -----------------------------------------------------------------------

keys = some.sampled_from(
    ["hooks", "Stop", "PreToolUse", "SessionStart", "mcpServers", "db", "ä\u2028", "matcher", ""]
)
leaves = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats(allow_nan=False)
    | some.text(max_size=5)
)
values = some.recursive(
    leaves,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
groups = some.fixed_dictionaries(
    {"hooks": some.lists(some.fixed_dictionaries({"command": some.text(max_size=5)}), max_size=2)}
)
events = some.dictionaries(
    some.sampled_from(["Stop", "PreToolUse", "Own"]),
    some.lists(groups | values, max_size=3),
    max_size=3,
)
servers = some.dictionaries(some.sampled_from(["db", "web"]), values, max_size=2)
documents = some.tuples(
    some.dictionaries(some.sampled_from(["a", "ü", "env"]), values, max_size=3),
    some.fixed_dictionaries({}, optional={"hooks": events, "mcpServers": servers}),
    some.dictionaries(some.sampled_from(["z", "last"]), values, max_size=2),
).map(lambda parts: {**parts[0], **parts[1], **parts[2]})


@some.composite
def json_texts(draw: some.DrawFn) -> str:
    """JSON in usual and unusual styles."""
    style: dict[str, Any] = draw(
        some.sampled_from(
            [
                {"indent": 2},
                {"indent": 4},
                {"indent": "\t"},
                {"indent": 0},
                {},
                {"separators": (",", ":")},
            ]
        )
    )
    text = json.dumps(draw(documents), ensure_ascii=draw(some.booleans()), **style)
    if draw(some.booleans()):  # odd spaces, also inside what is empty
        gaps = some.sampled_from(["", "", " ", "\n", " \n ", "\r\n", "\t"])
        tokens = json_tokens(text)
        text = "".join(token + draw(gaps) for token in tokens) if len(tokens) < 200 else text
    text = text.replace("\n", draw(some.sampled_from(["\n", "\r\n"]))) if "\r" not in text else text
    return (
        draw(some.sampled_from(["", "\ufeff", "\n "]))
        + text
        + draw(some.sampled_from(["", "\n", "\r\n", "\n\n  "]))
    )


def json_tokens(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        if text[at] in "{}[],:":
            end = at + 1
        elif text[at] in " \n\t\r":
            at += 1
            continue
        else:
            _, end = json.JSONDecoder().raw_decode(text, at)
        tokens.append(text[at:end])
        at = end
    return tokens


WANTED = hook_entries.groups(CLAUDE, SWARM_IS)


@given(json_texts())
@example("{}")
@example("{ }\n")
@example('{"hooks": {}}')
@example('{\n  "hooks": {\n    "Stop": []\n  }\n}\n')
@example('{"hooks":{"Stop":[]}}')
@example('{\n  "hooks": {\n  }\n}')
def test_hooks_that_are_added_and_removed_leave_every_byte_of_what_was_not_empty(text: str) -> None:
    before = json.loads(text.removeprefix("\ufeff"))
    after = hook_entries.put(text, WANTED, "x")
    value = json.loads(after.removeprefix("\ufeff"))
    assert list(value)[: len(before)] == list(before), "the order of what was there stays"
    assert all(value[key] == before[key] for key in before if key != "hooks")
    for event, group in WANTED.items():
        assert value["hooks"][event] == [*before.get("hooks", {}).get(event, []), group]
    assert hook_entries.put(after, WANTED, "x") == after
    left = hook_entries.remove(after, "x")
    if has_empty_hooks(before):
        assert without_empty(json.loads(left.removeprefix("\ufeff") or "{}")) == without_empty(
            before
        )
    else:
        assert left == text


def has_empty_hooks(document: dict[str, Any]) -> bool:
    """Whether swarm's hooks become the first entry of something that was empty."""
    hooks = document.get("hooks", {None: None})
    return not document or not hooks or any(hooks.get(event) == [] for event in WANTED)


@given(json_texts())
@example("{}")
@example('{"mcpServers":{}}')
@example('{"mcpServers": {\n}}')
def test_a_server_that_is_added_and_removed_leaves_every_byte_of_what_was_not_empty(
    text: str,
) -> None:
    before = json.loads(text.removeprefix("\ufeff"))
    after = put_claude(text)
    assert put_claude(after) == after
    left = server_entries.remove(after, CLAUDE, "x")
    if before and before.get("mcpServers") != {}:
        assert left == text
    else:
        before.pop("mcpServers", None)
        assert json.loads((left or "{}").removeprefix("\ufeff")) == before


def test_an_inserted_entry_follows_the_style_of_the_file() -> None:
    insert = json_edit.insert
    assert insert('{\r\n\t"a": {"b": 1}\r\n}\r\n', ("c",), {"d": [1]}, "x") == (
        '{\r\n\t"a": {"b": 1},\r\n\t"c": {\r\n\t\t"d": [\r\n\t\t\t1\r\n\t\t]\r\n\t}\r\n}\r\n'
    )
    assert (
        insert('{\r\n\t"a": {"b": 1}\r\n}\r\n', ("a", "c"), {"d": 1}, "x")
        == '{\r\n\t"a": {"b": 1, "c": {"d": 1}}\r\n}\r\n'
    )
    assert insert('{"a":1}', ("b",), 2, "x") == '{"a":1,"b": 2}'
    assert insert('{"a":{ }}', ("a", "b"), 2, "x") == '{"a":{"b": 2}}'
    first = insert("{ }", ("a", "b"), 1, "x")
    assert first == '{\n  "a": {\n    "b": 1\n  }\n}'
    assert insert(first, ("c",), 2, "x") == '{\n  "a": {\n    "b": 1\n  },\n  "c": 2\n}'


def test_lists_and_objects_that_are_empty_without_an_entry_go_with_it() -> None:
    text = '{"a": {"b": [1]}, "c": {}}'
    assert json_edit.remove(text, ("a", "b", 0), "x") == '{"c": {}}'
    assert json_edit.remove('{"a": {"b": [1]}}', ("a", "b", 0), "x") == ""
    assert (
        json_edit.remove('{"a": {"b": [1, 2], "d": 3}}', ("a", "b", 0), "x")
        == '{"a": {"b": [2], "d": 3}}'
    )


@given(json_texts())
def test_hooks_can_be_removed_after_a_formatter_changed_the_file(text: str) -> None:
    formatted = json.dumps(
        json.loads(hook_entries.put(text, WANTED, "x").removeprefix("\ufeff")), indent=2
    )
    left = hook_entries.remove(formatted, "x")
    assert without_empty(json.loads(left or "{}")) == without_empty(
        json.loads(text.removeprefix("\ufeff"))
    )


def without_empty(document: dict[str, Any]) -> dict[str, Any]:
    hooks = {event: entries for event, entries in document.get("hooks", {}).items() if entries}
    rest = {key: value for key, value in document.items() if key != "hooks"}
    return {**rest, "hooks": hooks} if hooks else rest


lines = some.lists(
    some.text(
        some.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n"), max_size=12
    ),
    max_size=6,
)


@some.composite
def texts(draw: some.DrawFn) -> str | None:
    if draw(some.integers(0, 9)) == 0:
        return None
    ends = some.sampled_from(["\n", "\r\n"] if draw(some.booleans()) else ["\n"])
    text = "".join(line + draw(ends) for line in draw(lines))
    return text + draw(some.sampled_from(["", "", "# no line end", "\r", "\n\n"]))


user_grants = some.lists(
    some.sampled_from(
        ["Bash(ls:*)", "Bash(swarm:*)", "Bash(swarm *)", "mcp__swarm__*", "mcp__swarm", "Read"]
    )
    | values,
    min_size=1,
    max_size=4,
)


@given(user_grants, some.booleans(), some.sampled_from([2, None]))
@example(["Bash(swarm:*)"], True, 2)
@example(["mcp__swarm__*"], True, 2)
@example(["mcp__swarm__*", "mcp__swarm"], True, 2)
@example(["Bash(swarm:*)", "Read", "Bash(swarm *)"], True, 2)
def test_grants_that_are_added_and_removed_leave_every_byte(
    present: list[Any], mcp: bool, indent: int | None
) -> None:
    text = json.dumps({"permissions": {"allow": present}}, indent=indent)
    tools = CLAUDE.mcp_grants if mcp else ()
    if grants.remove(text, CLAUDE, "x") != text:
        return  # the user's own entries have the form of an earlier setup
    after = grants.put(text, CLAUDE, SWARM_IS, tools, "x")
    allowed = json.loads(after)["permissions"]["allow"]
    assert allowed[: len(present)] == present
    added = allowed[len(present) :]
    if not all(grant in present for grant in CLAUDE.shell_grants(SWARM_IS)):
        assert not [grant for grant in added if grant in present], "nothing stands twice"
    assert {"Bash(swarm:*)", "Bash(swarm *)"} & {item for item in allowed if type(item) is str}
    assert not mcp or set(CLAUDE.mcp_grants) & {item for item in allowed if type(item) is str}
    assert grants.put(after, CLAUDE, SWARM_IS, tools, "x") == after
    assert grants.remove(after, CLAUDE, "x") == text


@pytest.mark.parametrize("agent", [CLAUDE, GEMINI])
def test_grants_of_an_earlier_setup_are_replaced(agent: Agent) -> None:
    old = ("/old/python3", "-P", "/old/swarm/__main__.py")
    before = grants.put('{"a": 1}', agent, old, agent.mcp_grants, "x")
    assert "/old/" in before
    after = grants.put(before, agent, SWARM_IS, agent.mcp_grants, "x")
    assert "/old/" not in after and agent.shell_grants(SWARM_IS)[0] in after
    assert grants.remove(after, agent, "x") == '{"a": 1}'


@given(texts())
@example("")
@example(None)
@example("\n")
@example("\r")
@example("\ufeff")
@example("a\r\nb")
def test_a_block_that_is_added_and_removed_leaves_every_byte(text: str | None) -> None:
    after = marked_block.put(text, instructions(SWARM_IS), MARKDOWN, "x")
    assert marked_block.put(after, instructions(SWARM_IS), MARKDOWN, "x") == after
    assert marked_block.remove(after, MARKDOWN, "x") == text
    other = marked_block.put(after, "something else\nand more", MARKDOWN, "x")
    assert marked_block.remove(other, MARKDOWN, "x") == text


toml_lines = some.sampled_from(
    [
        "a = 1",
        "[table]",
        "[mcp_servers.db]",
        'command = "x"',
        "# a comment",
        "",
        "[[list]]",
        's = """',
        '"""',
        "x = nan",
        "[mcp_servers]",
    ]
)


@given(
    some.lists(toml_lines, max_size=8),
    some.sampled_from(["\n", "\r\n"]),
    some.sampled_from(["", "\n", "\r\n"]),
)
@example([], "\n", "")
@example(["[mcp_servers]"], "\n", "")
def test_a_codex_server_that_is_added_and_removed_leaves_every_byte(
    wanted: list[str], newline: str, ending: str
) -> None:
    text = newline.join(wanted) + ending
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(BadInput):
            put_codex(text)
        return
    after = put_codex(text)
    assert tomllib.loads(after)["mcp_servers"]["swarm"] == {
        "command": "swarm",
        "args": ["mcp"],
        "env_vars": ["A"],
    }
    assert put_codex(after) == after
    assert codex_toml.remove(after, "x") == text


# What is whose ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "FOO=1 swarm hook",
        "python3 -I /x/swarm/__main__.py hook",
        "swarm hook | tee log",
        "swarm hook || exit 2",
        "my-swarm hook",
        "swarm hook '",
        "swarm hooks",
    ],
)
def test_a_hook_of_another_program_is_not_removed(command: str) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    assert hook_entries.remove(text, "x") == text


@pytest.mark.parametrize(
    "command",
    [
        "swarm hook",
        "swarm hook || exit 1",
        "/usr/bin/python3 -P '/a b/swarm/__main__.py' hook || exit 1",
    ],
)
def test_a_hook_of_swarm_is_removed_however_swarm_is_started(command: str) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    assert hook_entries.remove(text, "x") == ""


def test_fields_that_the_user_added_to_the_server_survive_an_update() -> None:
    for text, put, read in [
        (
            (
                '{"mcpServers": {"swarm": {"command": "/old/swarm", "args": ["mcp"], "env": {"A": '
                '"b"}}}}'
            ),
            put_claude,
            json.loads,
        ),
        (
            (
                '[mcp_servers.swarm]\ncommand = "/old/swarm"\nargs = '
                '["mcp"]\n[mcp_servers.swarm.env]\nA = "b"\n'
            ),
            put_codex,
            tomllib.loads,
        ),
    ]:
        (server,) = (servers["swarm"] for servers in read(put(text)).values())
        assert (server["command"], server["env"]) == ("swarm", {"A": "b"})


def put_claude(text: str) -> str:
    return server_entries.put(text, CLAUDE, SWARM_IS, "x")


def put_codex(text: str | None) -> str:
    server = {"command": "swarm", "args": ["mcp"], "env_vars": ["A"]}
    return codex_toml.put(text, server, "x") or ""


def test_fields_that_the_user_added_to_the_codex_server_stay_as_written() -> None:
    text = put_codex(None).replace(
        '["A"]', '["A", "PGSERVICE", { name = "B", source = "local" }]\nstartup_timeout_sec = 2.50'
    )
    assert put_codex(text) == text
    moved = put_codex(text.replace('"swarm"', '"/old/swarm"'))
    assert tomllib.loads(moved) == tomllib.loads(text) and "startup_timeout_sec = 2.50\n" in moved


def test_the_server_is_recognised_after_codex_rewrote_its_file() -> None:
    """What `codex mcp add` of Codex 0.166 makes of the block: no first marker, and a
    foreign table before the last.
    """
    table = '[mcp_servers.swarm]\ncommand = "swarm"\nargs = ["mcp"]\nenv_vars = ["A"]\n'
    text = f'{table}\n[mcp_servers.other]\ncommand = "foo"\n# swarm: end\n'
    assert put_codex(text) == text
    assert codex_toml.remove(text, "x") == '[mcp_servers.other]\ncommand = "foo"\n'
    moved = put_codex(text.replace('"swarm"\n', '"/old/swarm"\n'))
    assert tomllib.loads(moved) == tomllib.loads(text) and moved.count("# swarm:") == 2


def test_a_foreign_table_between_the_markers_stays() -> None:
    text = put_codex("a = 1\n").replace("# swarm: end", "[hooks.state]\nx = 1\n# swarm: end")
    assert tomllib.loads(codex_toml.remove(text, "x") or "") == {
        "a": 1,
        "hooks": {"state": {"x": 1}},
    }


def test_an_existing_path_is_never_inserted_twice() -> None:
    with pytest.raises(SwarmError, match=r"a\.b already"):
        json_edit.insert('{"a": {"b": 1}}', ("a", "b"), 2, "x")
