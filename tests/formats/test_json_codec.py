"""JSON as swarm writes and reads it: with the private half of `json`, and the same
without it.
"""

from __future__ import annotations

import _json
import builtins
import importlib.util
import json
import os
import subprocess
import sys
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from swarm.errors import BadInput
from swarm.formats import json_codec
from tests.conftest import ROOT

# The private part as it may be one day ------------------------------------------------


def _made_of(**changes: object) -> types.ModuleType:
    changed = types.ModuleType("_json")
    vars(changed).update(vars(_json), **changes)
    return changed


def _raises(error: type[Exception]) -> Callable[..., Any]:
    def make(*_: object) -> None:
        raise error("not like this any more")

    return make


def _wants_more(context: object) -> object:
    return getattr(context, "hook_of_the_future")  # noqa: B009


OTHERS: dict[str, Callable[[], types.ModuleType | None]] = {
    "missing": lambda: None,
    "emptied": lambda: types.ModuleType("_json"),
    "wants another attribute": lambda: _made_of(make_scanner=_wants_more),
    "takes other arguments": lambda: _made_of(
        make_scanner=_raises(TypeError), make_encoder=_raises(TypeError)
    ),
    "fails": lambda: _made_of(make_scanner=_raises(SystemError), make_encoder=_raises(SystemError)),
    "gives other results": lambda: _made_of(
        make_scanner=lambda _: lambda text, start: text,
        make_encoder=lambda *_: lambda value, level: (b"",),
    ),
}


@cache
def codec(private: str) -> types.ModuleType:
    """Return a copy of the codec that was imported while `_json` was so; where it is
    missing, `json` goes without it, too.
    """
    if private == "as it is":
        return json_codec
    with mock.patch.dict(sys.modules):
        sys.modules["_json"] = OTHERS[private]()  # type: ignore[assignment]
        if private == "missing":
            for name in [name for name in sys.modules if name.split(".")[0] == "json"]:
                del sys.modules[name]
        spec = importlib.util.spec_from_file_location("codec_copy", json_codec.__file__)
        assert spec and spec.loader
        copy = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(copy)
    return copy


everywhere = pytest.mark.parametrize("private", ["as it is", *OTHERS])


# Every way gives the same -------------------------------------------------------------


@pytest.mark.skipif(hasattr(sys, "gettotalrefcount"), reason="a debug build takes the public way")
def test_the_fast_path_is_taken_on_this_python() -> None:
    assert type(json_codec._scan).__module__ == type(json_codec._scan_strict).__module__ == "_json"
    assert type(json_codec._encode).__module__ == "_json"


@pytest.mark.parametrize(
    "private", ["missing", "emptied", "takes other arguments", "fails", "gives other results"]
)
def test_without_the_private_module_the_public_one_does_all_the_work(private: str) -> None:
    made = codec(private)
    for way in (made._scan, made._scan_strict, made._encode):
        assert isinstance(way, types.FunctionType), way


def test_a_scanner_that_wants_another_attribute_is_not_used() -> None:
    assert isinstance(codec("wants another attribute")._scan, types.FunctionType)


VALUES: list[Any] = [
    None,
    True,
    [],
    {},
    0,
    -1.5e300,
    10**30,
    "",
    {"a": [1, {"b": (2, None)}], "é": "锁 🔒", "a b": False},
    '"\\/\b\f\n\r\t\x00\x1f',
    "\x7f\x85\x9f\u2028\u2029",
    "\ud800 alone, \udc00 too",
]


@everywhere
@pytest.mark.parametrize("value", VALUES, ids=ascii)
def test_a_value_is_one_line_of_utf8_that_any_reader_understands(
    private: str, value: object
) -> None:
    written = codec(private).dumps(value)
    assert written == json_codec.dumps(value)
    assert len(written.splitlines()) == 1 and written.encode()
    read = json.loads(json.dumps(value))  # tuples are lists
    assert (
        json.loads(written)
        == codec(private).loads(written)
        == codec(private).loads(written.encode(), strict=True)
        == read
    )


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@everywhere
@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [float("-inf")],
        {1, 2},
        {"a": object()},
        {1: 2},
        [{"a": {None: 1}}],
        b"bytes",
        CYCLE,
        10**5000,
    ],
    ids=lambda value: (
        repr(value)[:12] if value is not CYCLE and not isinstance(value, int) else str(type(value))
    ),
)
def test_a_value_that_json_does_not_have_is_bad_input(private: str, value: object) -> None:
    with pytest.raises(BadInput) as usual:
        json_codec.dumps(value)
    with pytest.raises(BadInput) as refused:
        codec(private).dumps(value)
    # then the interpreter's own words
    assert str(refused.value).partition(":")[0] == str(usual.value).partition(":")[0]


@everywhere
@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", '"a\tb"', '{"a": "\x00"}', "[Infinity]"], ids=ascii
)
def test_constants_and_control_characters_are_read_unless_strict(private: str, text: str) -> None:
    assert repr(codec(private).loads(text)) == repr(json_codec.loads(text))
    assert refused(codec(private), text, True)


NOT_JSON = [
    "",
    " ",
    "x",
    '"',
    '"\\',
    '"\\x"',
    "{",
    "[1",
    "[1,]",
    '{"a":1,}',
    "{1:2}",
    "1 2",
    "01",
    "-",
    "1.",
    "+1",
    "nul",
    "'a'",
]
NOT_JSON += [
    "1٣",
    "[1٣]",
    "[1.5٣]",
    r'"\u12"',
    r'"\u+123"',
    r'"\u1_2a"',
    r'"\u 12a"',
    r'"\u٣٣٣٣"',
    "\x00",
    "1" * 5000,
]
NOT_JSON += ["[" * 200_000, '{"a":' * 200_000]


@everywhere
@pytest.mark.parametrize("text", NOT_JSON, ids=lambda text: ascii(text[:12]))
@pytest.mark.parametrize("strict", [False, True])
def test_a_text_that_is_not_json_is_a_value_error(private: str, text: str, strict: bool) -> None:
    usual = refused(json_codec, text, strict)
    other = refused(codec(private), text, strict)
    for words in ("not a JSON value", "nested too deeply"):
        assert (other == words) == (usual == words)


def refused(module: types.ModuleType, text: str, strict: bool) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011  (each says something else)
        module.loads(text, strict=strict)
    return str(error.value)


@everywhere
def test_bytes_that_are_not_utf8_are_a_value_error(private: str) -> None:
    with pytest.raises(ValueError, match="utf-8"):
        codec(private).loads(b'"\xff"')


@everywhere
def test_the_last_of_two_equal_keys_counts_and_a_byte_order_mark_does_not(private: str) -> None:
    assert codec(private).loads('\ufeff {"a": 1, "b": 2, "a": 3}\r\n') == {"a": 3, "b": 2}


@everywhere
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a": ', "}")])
def test_two_hundred_levels_are_read_and_written(private: str, opened: str, closed: str) -> None:
    text = opened * 200 + "1" + closed * 200
    assert codec(private).dumps(codec(private).loads(text)) == text


@everywhere
def test_a_value_nested_too_deeply_is_bad_input(private: str) -> None:
    value: list[Any] = []
    for _ in range(50_000):
        value = [value]
    with pytest.raises(BadInput, match="nested too deeply"):
        codec(private).dumps(value)


@everywhere
# new in Python 3.15
@pytest.mark.parametrize("kind", dict.fromkeys([dict, getattr(builtins, "frozendict", dict)]))
def test_the_keys_of_an_object_are_text(private: str, kind: Callable[..., object]) -> None:
    assert codec(private).dumps([kind(a=1)]) == '[{"a": 1}]'
    with pytest.raises(BadInput, match="keys must be strings"):
        codec(private).dumps([kind({1: 2})])


_anything = st.recursive(
    # lone surrogates, too
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)
_pieces = st.sampled_from(
    [
        *'{}[]",:\\u019aeE+-._ \t\n\x00\x1f\x7f\u2028٣é',
        "true",
        "null",
        "NaN",
        '"a": ',
        '"b"',
        r"\u",
        r"\ud83d",
    ]
)


def outcome(call: Callable[..., Any], *args: object, **options: object) -> str:
    try:
        return repr(call(*args, **options))
    except (BadInput, ValueError) as error:
        return type(error).__name__.replace("JSONDecodeError", "ValueError")


def same_outcome(call: str, *args: object, **options: object) -> bool:
    usual, *others = (
        outcome(getattr(codec(p), call), *args, **options)
        for p in ("as it is", "missing", "emptied")
    )
    return others == [usual, usual]


@given(_anything)
def test_all_encoders_write_the_same(value: object) -> None:
    assert same_outcome("dumps", value)


@given(st.lists(_pieces, max_size=12).map("".join), st.booleans())
@example('{"a": "\\\\u"}', False)
@example('"\\\\\\u00e9"', False)
def test_all_scanners_read_the_same(text: str, strict: bool) -> None:
    assert same_outcome("loads", text, strict=strict)


@given(_anything, st.booleans(), st.data())
def test_all_scanners_read_a_damaged_record_the_same(
    value: object, strict: bool, data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    place = data.draw(st.integers(0, len(text)))
    text = text[:place] + data.draw(_pieces) + text[place + data.draw(st.integers(0, 2)) :]
    assert same_outcome("loads", text, strict=strict)


# Commands -----------------------------------------------------------------------------

_TAKEN_AWAY = {
    "missing": "sys.modules['_json'] = None",
    "wants another attribute": (
        "import json, _json; _json.make_scanner = lambda context: context.hook_of_the_future"
    ),
}


@pytest.mark.parametrize("private", _TAKEN_AWAY)
def test_commands_run_without_the_private_module(private: str, tmp_path: Path) -> None:
    program = (
        f"import sys; {_TAKEN_AWAY[private]}; sys.path.insert(0, {str(ROOT)!r}); from "
        f"swarm.cli.start import start; start()"
    )

    environment = {**os.environ, "AI_SWARM_DIR": str(tmp_path / "swarm")}

    def swarm(*args: str) -> str:
        run = [sys.executable, "-W", "error", "-c", program, *args]
        done = subprocess.run(run, capture_output=True, text=True, timeout=60, env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    swarm("lock", "acquire", "t", "w", "60")
    swarm("log", "append", "START", "w", "t", "--meta", '{"e": "\u2028"}')
    swarm("task", "add", "later", "--prompt", "x")
    assert json.loads(swarm("lock", "check", "t", "--json"))["lock"]["worker"] == "w"
    assert json.loads(swarm("log", "tail", "1"))["meta"] == {"e": "\u2028"}
    assert json.loads(swarm("status", "--json"))["queue"]["total"] == 1


def test_a_flat_value_is_valid_however_deep_the_stack_of_its_reader_is() -> None:
    def read_below(depth: int) -> object:
        return read_below(depth - 1) if depth else json_codec.loads('{"a": [1]}')

    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        try:
            assert read_below(depth) == {"a": [1]}
        except RecursionError:
            return
    pytest.fail("no depth was too deep")
