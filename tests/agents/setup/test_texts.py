"""Entries and blocks in files that belong to others: put in and taken out again, every byte is as it was."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from swarm.agents.setup import codex_toml, hook_entries, json_edit, marked_block, plan
from swarm.agents.setup.marked_block import MARKDOWN
from swarm.errors import BadInput, SwarmError

SWARM_IS = ("swarm",)

# There and back ---------------------------------------------------------------------------------------------

keys = some.sampled_from(["hooks", "Stop", "PreToolUse", "SessionStart", "mcpServers", "db", "ä\u2028", "matcher", ""])
leaves = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(max_size=5)
values = some.recursive(
    leaves, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(keys, inner, max_size=3), max_leaves=8
)
groups = some.fixed_dictionaries({"hooks": some.lists(some.fixed_dictionaries({"command": some.text(max_size=5)}), max_size=2)})
events = some.dictionaries(some.sampled_from(["Stop", "PreToolUse", "Own"]), some.lists(groups | values, max_size=3), max_size=3)
servers = some.dictionaries(some.sampled_from(["db", "web"]), values, max_size=2)
documents = some.tuples(
    some.dictionaries(some.sampled_from(["a", "ü", "env"]), values, max_size=3),
    some.fixed_dictionaries({}, optional={"hooks": events, "mcpServers": servers}),
    some.dictionaries(some.sampled_from(["z", "last"]), values, max_size=2),
).map(lambda parts: {**parts[0], **parts[1], **parts[2]})


@some.composite
def json_texts(draw: some.DrawFn) -> str:
    """JSON as people and programs write it, and as nobody would."""
    style: dict[str, Any] = draw(
        some.sampled_from([{"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"indent": 0}, {}, {"separators": (",", ":")}])
    )
    text = json.dumps(draw(documents), ensure_ascii=draw(some.booleans()), **style)
    if draw(some.booleans()):  # odd spaces, also inside what is empty
        gaps = some.sampled_from(["", "", " ", "\n", " \n ", "\r\n", "\t"])
        tokens = json_tokens(text)
        text = "".join(token + draw(gaps) for token in tokens) if len(tokens) < 200 else text
    text = text.replace("\n", draw(some.sampled_from(["\n", "\r\n"]))) if "\r" not in text else text
    return draw(some.sampled_from(["", "\ufeff", "\n "])) + text + draw(some.sampled_from(["", "\n", "\r\n", "\n\n  "]))


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


WANTED = plan._groups("claude", SWARM_IS)


@given(json_texts())
@example("{}")
@example("{ }\n")
@example('{"hooks": {}}')
@example('{\n  "hooks": {\n    "Stop": []\n  }\n}\n')
@example('{"hooks":{"Stop":[]}}')
@example('{\n  "hooks": {\n  }\n}')
def test_hooks_that_are_put_in_and_taken_out_leave_every_byte(text: str) -> None:
    before = json.loads(text.removeprefix("\ufeff"))
    after = hook_entries.put(text, WANTED, "x")
    value = json.loads(after.removeprefix("\ufeff"))
    assert list(value)[: len(before)] == list(before), "the order of what was there stays"
    assert all(value[key] == before[key] for key in before if key != "hooks")
    for event, group in WANTED.items():
        assert value["hooks"][event] == [*before.get("hooks", {}).get(event, []), group]
    assert hook_entries.put(after, WANTED, "x") == after
    assert hook_entries.taken_out(after, "x") == text


@given(json_texts())
@example("{}")
@example('{"mcpServers":{}}')
@example('{"mcpServers": {\n}}')
def test_a_server_that_is_put_in_and_taken_out_leaves_every_byte(text: str) -> None:
    after = put_claude(text)
    assert put_claude(after) == after
    assert plan._server_taken_out(after, "x") == text


def test_what_is_put_in_follows_the_files_own_style() -> None:
    put = json_edit.put
    assert put('{\r\n\t"a": {"b": 1}\r\n}\r\n', ("c",), {"d": [1]}, "x") == (
        '{\r\n\t"a": {"b": 1},\r\n\t"c": {\r\n\t\t"d": [\r\n\t\t\t1\r\n\t\t]\r\n\t}\r\n}\r\n'
    )
    assert put('{\r\n\t"a": {"b": 1}\r\n}\r\n', ("a", "c"), {"d": 1}, "x") == '{\r\n\t"a": {"b": 1, "c": {"d": 1}}\r\n}\r\n'
    assert put('{"a":1}', ("b",), 2, "x") == '{"a":1,"b": 2}'
    first = put("{}", ("a", "b"), 1, "x")
    assert first == '{ \n  "a": {\n    "b": 1\n  }\n}'
    assert put(first, ("c",), 2, "x") == '{ \n  "a": {\n    "b": 1\n  },\n  "c": 2\n}'


@given(json_texts())
def test_what_a_formatter_makes_of_it_can_still_be_taken_out(text: str) -> None:
    """All that may go with it is what was empty: whether that was there before, nobody can tell then."""
    formatted = json.dumps(json.loads(hook_entries.put(text, WANTED, "x").removeprefix("\ufeff")), indent=2)
    left = hook_entries.taken_out(formatted, "x")
    assert without_empty(json.loads(left or "{}")) == without_empty(json.loads(text.removeprefix("\ufeff")))


def without_empty(document: dict[str, Any]) -> dict[str, Any]:
    hooks = {event: entries for event, entries in document.get("hooks", {}).items() if entries}
    rest = {key: value for key, value in document.items() if key != "hooks"}
    return {**rest, "hooks": hooks} if hooks else rest


lines = some.lists(some.text(some.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n"), max_size=12), max_size=6)


@some.composite
def texts(draw: some.DrawFn) -> str | None:
    if draw(some.integers(0, 9)) == 0:
        return None
    ends = some.sampled_from(["\n", "\r\n"] if draw(some.booleans()) else ["\n"])
    text = "".join(line + draw(ends) for line in draw(lines))
    return text + draw(some.sampled_from(["", "", "# no line end", "\r", "\n\n"]))


@given(texts())
@example("")
@example(None)
@example("\n")
@example("\r")
@example("\ufeff")
@example("a\r\nb")
def test_a_block_that_is_put_in_and_taken_out_leaves_every_byte(text: str | None) -> None:
    after = marked_block.put(text, plan.instructions(SWARM_IS), MARKDOWN, "x")
    assert marked_block.put(after, plan.instructions(SWARM_IS), MARKDOWN, "x") == after
    assert marked_block.taken_out(after, MARKDOWN, "x") == text
    other = marked_block.put(after, "something else\nand more", MARKDOWN, "x")
    assert marked_block.taken_out(other, MARKDOWN, "x") == text


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


@given(some.lists(toml_lines, max_size=8), some.sampled_from(["\n", "\r\n"]), some.sampled_from(["", "\n", "\r\n"]))
@example([], "\n", "")
@example(["[mcp_servers]"], "\n", "")
def test_codexs_server_that_is_put_in_and_taken_out_leaves_every_byte(wanted: list[str], newline: str, ending: str) -> None:
    text = newline.join(wanted) + ending
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        with pytest.raises(BadInput):
            put_codex(text)
        return
    after = put_codex(text)
    assert tomllib.loads(after)["mcp_servers"]["swarm"] == {"command": "swarm", "args": ["mcp"], "env_vars": ["A"]}
    assert put_codex(after) == after
    assert codex_toml.taken_out(after, "x") == text


# What is whose ---------------------------------------------------------------------------------------------


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
def test_a_command_that_is_not_ours_is_nobodys_but_theirs(command: str) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    assert hook_entries.taken_out(text, "x") == text


@pytest.mark.parametrize(
    "command", ["swarm hook", "swarm hook || exit 1", "/usr/bin/python3 -P '/a b/swarm/__main__.py' hook || exit 1"]
)
def test_a_command_that_is_ours_is_taken_out_however_swarm_is_started(command: str) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    assert hook_entries.taken_out(text, "x") == ""


def test_what_somebody_added_to_the_server_stays_when_it_is_brought_up_to_date() -> None:
    for text, put, read in [
        ('{"mcpServers": {"swarm": {"command": "/old/swarm", "args": ["mcp"], "env": {"A": "b"}}}}', put_claude, json.loads),
        (
            '[mcp_servers.swarm]\ncommand = "/old/swarm"\nargs = ["mcp"]\n[mcp_servers.swarm.env]\nA = "b"\n',
            put_codex,
            tomllib.loads,
        ),
    ]:
        (server,) = (servers["swarm"] for servers in read(put(text)).values())
        assert (server["command"], server["env"]) == ("swarm", {"A": "b"})


def put_claude(text: str) -> str:
    return plan._put_server(text, {"command": "swarm", "args": ["mcp"]}, "x")


def put_codex(text: str | None) -> str:
    return codex_toml.put(text, {"command": "swarm", "args": ["mcp"], "env_vars": ["A"]}, "x")


def test_what_somebody_added_to_codexs_server_stays_as_it_was_written() -> None:
    text = put_codex(None).replace('["A"]', '["A", "PGSERVICE", { name = "B", source = "local" }]\nstartup_timeout_sec = 2.50')
    assert put_codex(text) == text
    moved = put_codex(text.replace('"swarm"', '"/old/swarm"'))
    assert tomllib.loads(moved) == tomllib.loads(text) and "startup_timeout_sec = 2.50\n" in moved


def test_codex_may_write_its_file_anew_around_the_server() -> None:
    """What `codex mcp add` of Codex 0.166 makes of the block: no first marker, and a foreign table before the last."""
    table = '[mcp_servers.swarm]\ncommand = "swarm"\nargs = ["mcp"]\nenv_vars = ["A"]\n'
    text = f'{table}\n[mcp_servers.other]\ncommand = "foo"\n# swarm: end\n'
    assert put_codex(text) == text
    assert codex_toml.taken_out(text, "x") == '[mcp_servers.other]\ncommand = "foo"\n'
    moved = put_codex(text.replace('"swarm"\n', '"/old/swarm"\n'))
    assert tomllib.loads(moved) == tomllib.loads(text) and moved.count("# swarm:") == 2


def test_a_foreign_table_between_the_markers_stays() -> None:
    text = put_codex("a = 1\n").replace("# swarm: end", "[hooks.state]\nx = 1\n# swarm: end")
    assert tomllib.loads(codex_toml.taken_out(text, "x") or "") == {"a": 1, "hooks": {"state": {"x": 1}}}


def test_a_path_that_is_there_already_is_never_put_twice() -> None:
    with pytest.raises(SwarmError, match=r"a\.b already"):
        json_edit.put('{"a": {"b": 1}}', ("a", "b"), 2, "x")
