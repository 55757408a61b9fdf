"""What is written, every reader reads alike; what is read means what PyYAML says it
means, or is refused.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as some

from swarm.formats import yaml_codec
from swarm.formats.yaml_codec import NotYaml, read_mapping
from tests.conftest import ROOT
from tests.support.examples import SPRINT_LOCK

MANY = settings(max_examples=3 * settings().max_examples)
SIZE = 65536
LINE_BREAKS = ("\n", "\r\n", "\r", "\x85", "\u2028", "\u2029")

EXAMPLE_MEANS = {
    "pid": "12345",
    "session_id": "sprint-2026-02-07-001",
    "started_at": "2026-02-07T22:30:00Z",
    "epic_spec": "epic5",
    "lock_version": "1",
}


# Writing ------------------------------------------------------------------------------

WORDS = (
    *(
        "",
        " ",
        "no",
        "yes",
        "n",
        "y",
        "on",
        "Off",
        "true",
        "False",
        "null",
        "Null",
        "~",
        "=",
        "<<",
        "-",
        "?",
        ":",
        "---",
        "...",
    ),
    *(
        "0",
        "007",
        "0o7",
        "0x1F",
        "0b1",
        "1_000",
        "+1",
        "-1",
        ".5",
        "1.",
        "1e3",
        "1.5e+3",
        ".inf",
        "-.INF",
        ".nan",
        "12:30",
    ),
    *(
        "2026-01-01",
        "2026-01-01T00:00:00Z",
        "190:20:30",
        "a: b",
        "a #b",
        "# a",
        "- a",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "%a",
        "@a",
    ),
    *(
        "`a",
        "{a: 1}",
        "[a]",
        "a,b",
        "'",
        '"',
        "\\",
        "\\n",
        "\\ud83d",
        "\\\\ud83d",
        "a\nb",
        "a\r\nb",
        " a ",
        "\ta\t",
        "a\n",
    ),
)
ODD = (
    "\x00\t\n\r\x1b\x7f\x80\x85\x9f\xa0\u2028\u2029\ufeff\ufffd\ufffe\uffff\ud7ff\ue000"
    "\U0001f600\U0001fffe\U0010ffff\"'\\#: "
)
TEXTS = some.sampled_from(WORDS) | some.text() | some.text(some.sampled_from(ODD))
SCALARS = (
    TEXTS
    | some.integers()
    | some.integers(-(10**12), 10**12).map(lambda n: n / 10)
    | some.booleans()
    | some.none()
)
KEYS = some.from_regex("[a-z]{1,8}_[a-z0-9]{1,8}", fullmatch=True)
FLAT = some.dictionaries(KEYS, SCALARS, min_size=1, max_size=5)
MAPPINGS = some.dictionaries(
    KEYS, SCALARS | some.lists(TEXTS, max_size=4) | FLAT | some.just({}), min_size=1, max_size=5
)


def readers() -> dict[str, Callable[[str], Any]]:
    found: dict[str, Callable[[str], Any]] = {
        "SafeLoader": lambda text: yaml.load(text, Loader=yaml.SafeLoader),
        "CSafeLoader": lambda text: yaml.load(text, Loader=yaml.CSafeLoader),
    }
    try:
        found["ruamel.yaml"] = importlib.import_module("ruamel.yaml").YAML(typ="safe").load
    except ImportError:
        pass  # a reader of YAML 1.2, used where it is installed
    return found


def as_written(value: Any) -> Any:
    """What a reader finds that takes every scalar for text."""
    if isinstance(value, dict):
        return {key: as_written(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_written(item) for item in value]
    return value if isinstance(value, str) else json.dumps(value)


@pytest.mark.parametrize("reader", readers().values(), ids=readers())
@MANY
@given(MAPPINGS)
def test_written_yaml_is_read_as_the_same_value(
    reader: Callable[[str], Any], value: dict[str, Any]
) -> None:
    found = reader(yaml_codec.dumps(value))
    assert found == value
    assert repr(found) == repr(value), "also 1, 1.0 and true stay different"


@MANY
@given(MAPPINGS)
def test_a_reader_that_knows_only_text_finds_the_same_text(value: dict[str, Any]) -> None:
    assert yaml.load(yaml_codec.dumps(value), Loader=yaml.BaseLoader) == as_written(value)


@MANY
@given(FLAT)
def test_every_scalar_is_json_and_stands_on_a_line_of_its_own(value: dict[str, Any]) -> None:
    lines = yaml_codec.dumps(value).splitlines()
    assert {
        key: json.loads(text) for key, _, text in (line.partition(": ") for line in lines)
    } == value


@MANY
@given(FLAT)
def test_a_flat_mapping_is_read_as_it_was_written(value: dict[str, Any]) -> None:
    assert read_mapping(yaml_codec.dumps(value)) == as_written(value)


@MANY
@given(MAPPINGS)
def test_the_scalars_of_a_nested_mapping_are_read_as_they_were_written(
    value: dict[str, Any],
) -> None:
    depth = {
        key: None if isinstance(item, dict | list) else as_written(item)
        for key, item in value.items()
    }
    assert read_mapping(yaml_codec.dumps(value)) == depth


def test_blocks_and_lists_stand_indented_below_their_keys() -> None:
    value = {
        "status": "clean",
        "info": {"exists": False, "deep": {"n": 1.5}},
        "errors": [],
        "warnings": ["a", "b"],
        "none": {},
    }
    assert yaml_codec.dumps(value) == (
        'status: "clean"\ninfo:\n  exists: false\n  deep:\n    n: 1.5\nerrors: []\nwarnings:\n  '
        '- "a"\n  - "b"\nnone: {}\n'
    )


def test_half_a_character_does_not_keep_the_rest_from_being_written() -> None:
    written = yaml_codec.dumps({"a": "x\ud800", "b": "y"})
    assert written.encode() == b'a: "x\\ud800"\nb: "y"\n'
    assert read_mapping(written) == {"a": "x\ufffd", "b": "y"}


# Reading ------------------------------------------------------------------------------


def meaning(text: str) -> dict[str, str | None] | None:
    """The scalars of a mapping as PyYAML finds them, None where it finds no mapping."""
    try:
        found = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError):  # ValueError: a character beyond the last one
        return None
    if not isinstance(found, dict):
        return None
    return {
        key: whole(item) if isinstance(item, str) else None
        for key, item in found.items()
        if isinstance(key, str)
    }


def whole(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def expect_what_pyyaml_reads(text: str) -> None:
    expected = meaning(text)
    if expected is None:
        with pytest.raises(NotYaml):
            read_mapping(text)
    else:
        assert read_mapping(text) == expected


PIECES = some.sampled_from(
    [
        *(
            "a",
            "b",
            "1",
            "12:30",
            "-",
            "_",
            ".",
            "/",
            "+",
            ":",
            ": ",
            " :",
            " ",
            "  ",
            "\t",
            "#",
            " #",
            "# ",
            " # c",
            "'",
            "''",
        ),
        *(
            '"',
            "\\",
            "\\\\",
            '\\"',
            "\\/",
            "\\n",
            "\\x41",
            "\\e",
            "\\_",
            "\\N",
            "\\L",
            "\\0",
            "\\u0041",
            "\\ud83d",
            "\\ude00",
        ),
        *(
            "\\uD83D",
            "\\U0001f600",
            "\\U00110000",
            "\\u12",
            "\\ud",
            "\\ ",
            "&a",
            "&a ",
            "*a",
            "!t ",
            "!!str ",
            "!<x> ",
            "|",
            ">",
        ),
        *(
            "|-",
            "%",
            "@",
            "`",
            "?",
            "? ",
            "- ",
            ",",
            "[",
            "]",
            "{",
            "}",
            "[]",
            "{}",
            "<<",
            "=",
            "~",
            "---",
            "...",
            "é",
            "漢",
        ),
        *(
            "\U0001f600",
            "\xa0",
            "\ufeff",
            "\x7f",
            "\x00",
            "\x1b",
            "\ufffe",
            "\r",
            "\x85",
            "\u2028",
            "\u2029",
        ),
    ]
)
SCRAPS = some.lists(PIECES, max_size=6).map("".join)
VALUES = (
    SCRAPS
    | some.lists(some.sampled_from("ab1: #-./"), max_size=5).map("".join)
    | SCRAPS.map(lambda text: f'"{text}"')
    | SCRAPS.map(lambda text: f"'{text}'")
    | TEXTS.map(json.dumps)
)
SHAPED = some.tuples(
    some.sampled_from(
        [
            "a",
            "b",
            "pid",
            "_x",
            "key",
            "Key",
            "if",
            "k-k",
            "k k",
            "é",
            "1",
            "",
            '"a"',
            "'a'",
            " a",
            "\ta",
            "- a",
        ]
    ),
    some.sampled_from([":", ": ", ": ", ": ", ":  ", ":\t", " :", " : ", "", "=", "::", ": : "]),
    VALUES,
    some.sampled_from(
        ["", "", "", " ", "  ", "\t", " # c", "# c", "  #", " # c: d", "\t# c", " #'", ' #"', ","]
    ),
).map("".join)
ODD_LINES = some.sampled_from(
    [
        *(
            "",
            " ",
            "\t",
            "# c",
            "  # c",
            "\t# c",
            "#",
            "---",
            "--- ",
            "--- a",
            "...",
            "... a",
            "%YAML 1.1",
            "%YAML 9.9",
            "%TAG",
        ),
        *(
            "- x",
            "-",
            " x",
            "x",
            "  x: y",
            "? a",
            ": b",
            "{}",
            "{a: b}",
            "[a]",
            "a",
            "&a",
            "*a",
            "!t",
            "|",
            ">",
            "@",
            "`",
            "~",
        ),
    ]
)
DOCUMENTS = some.builds(
    lambda start, lines: start + "".join(line + end for line, end in lines),
    some.sampled_from(["", "", "", "\ufeff", "\ufeff\ufeff", "---\n", "%YAML 1.1\n---\n"]),
    some.lists(
        some.tuples(
            SHAPED | SHAPED | ODD_LINES | SCRAPS, some.sampled_from(["\n"] * 5 + [*LINE_BREAKS, ""])
        ),
        max_size=5,
    ),
)


@settings(max_examples=30 * settings().max_examples)
@given(DOCUMENTS)
def test_any_text_means_what_pyyaml_says_or_is_refused(text: str) -> None:
    expect_what_pyyaml_reads(text)


@settings(max_examples=30 * settings().max_examples)
@given(VALUES)
def test_any_value_means_what_pyyaml_says_or_is_refused(value: str) -> None:
    expect_what_pyyaml_reads(f"a: {value}\nb: 1")


@MANY
@given(some.text())
@example("\ufeff")
@example("\ufeffa: b")
@example("\ufeff\ufeffa: b")
@example("a: b\n\ufeffc: d")
def test_any_characters_mean_what_pyyaml_says_or_are_refused(text: str) -> None:
    expect_what_pyyaml_reads(text)


LINES = (
    *(
        "a: x{}y",
        "a: '{}'",
        'a: "{}"',
        "a: b # {}",
        "# {}\na: b",
        "a: {}",
        "a: b{}",
        "a:{}b",
        "{}a: b",
        "a: b{}c: d",
        "a{}: b",
    ),
    *(
        "a: 'x{}y' # c",
        'a: "x{}y" # c',
        "a: 'b'{}",
        'a: "b"{}',
        "a: 'b' {}",
        "a: -{}",
        "a: \\{}",
        'a: "\\{}"',
        "a: b {}c",
    ),
)


@pytest.mark.parametrize(
    "character",
    [*range(0x100), *map(ord, "\u2028\u2029\ud7ff\ue000\ufeff\ufffd\ufffe\uffff\U0010ffff")],
)
def test_every_character_anywhere_in_a_line_means_what_pyyaml_says(character: int) -> None:
    for line in LINES:
        expect_what_pyyaml_reads(line.format(chr(character)))
        expect_what_pyyaml_reads(f"first: 1\n{line.format(chr(character))}\nlast: 2")


@pytest.mark.parametrize("end", LINE_BREAKS)
@pytest.mark.parametrize(
    "line", ["# c{}a: b", "a: b # c{}d: e", "a: 'b{}c'", 'a: "b{}c"', "a: b{}", "a: b{}{}d: e"]
)
def test_whatever_ends_a_line_for_pyyaml_ends_it_here(line: str, end: str) -> None:
    expect_what_pyyaml_reads(line.replace("{}", end))


@pytest.mark.parametrize(
    "rest",
    [
        " # c",
        "# c",
        "\t# c",
        " \t# c",
        " \xa0# c",
        " X# c",
        " x",
        "x",
        " 'x'",
        " :",
        " #",
        "  ",
        ",",
        " \t",
    ],
)
@pytest.mark.parametrize("value", ["b", "'b'", '"b"', "''", '""', "'b", '"b', '"', "'", '"\\'])
def test_what_follows_a_value_is_a_comment_or_what_pyyaml_says(value: str, rest: str) -> None:
    expect_what_pyyaml_reads(f"a: {value}{rest}")
    expect_what_pyyaml_reads(f"a: {value}{rest}\nc: d")


@pytest.mark.parametrize("length", [1023, 1024, 1025, 5000])
def test_a_key_is_as_long_as_pyyaml_lets_it_be(length: int) -> None:
    expect_what_pyyaml_reads("k" * length + ": v")


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("a: b", {"a": "b"}),
        ("a:", {"a": ""}),
        ("a:   b  c  ", {"a": "b  c"}),
        ("a: b\r\nc: d\r\n", {"a": "b", "c": "d"}),
        ("\ufeffa: b", {"a": "b"}),
        ("a: 'it''s' # c", {"a": "it's"}),
        ("a: ''", {"a": ""}),
        ('a: "\\u0041\\n\\/\\"" # c', {"a": 'A\n/"'}),
        ('a: "\\\\ud800"', {"a": "\\ud800"}),
        ("a: 12:30\nb: http://x/y", {"a": "12:30", "b": "http://x/y"}),
        ("\n  \n  # c\na: b\n#", {"a": "b"}),
        (SPRINT_LOCK, EXAMPLE_MEANS),
        (SPRINT_LOCK.replace("\n", "\r\n"), EXAMPLE_MEANS),
    ],
)
def test_lines_that_users_write_are_read_without_pyyaml(
    text: str, means: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert read_mapping(text) == means


@MANY
@given(FLAT)
def test_a_flat_mapping_is_read_without_pyyaml(value: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "yaml", None)
        assert read_mapping(yaml_codec.dumps(value)) == as_written(value)


@pytest.mark.parametrize("text", ["", "\n", "  \n# c", "\ufeff", "#"])
def test_a_text_with_nothing_in_it_is_refused_also_without_pyyaml(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(NotYaml, match=r"^it is not a mapping$"):
        read_mapping(text)


@pytest.mark.parametrize("text", ["a: \x00", "a: \x7f", "a: \ufffe", "a: \ud800"])
def test_characters_that_yaml_does_not_have_are_refused_also_without_pyyaml(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(NotYaml, match=r"^it contains characters that YAML does not have$"):
        read_mapping(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [("a: [", "it is not YAML"), ("- a", "it is not a mapping"), ("a", "it is not a mapping")],
)
def test_the_reason_for_refusing_a_text_is_given(text: str, why: str) -> None:
    with pytest.raises(NotYaml, match=f"^{why}$"):
        read_mapping(text)


def test_a_value_that_is_no_scalar_is_there_without_its_content() -> None:
    assert read_mapping("a: [1]\nb: {c: d}\ne: f") == {"a": None, "b": None, "e": "f"}


def test_json_is_read_and_the_halves_of_a_character_put_together() -> None:
    text = json.dumps({"a": "\U0001f600", "b": 1, "c": None}) + "\n"
    assert "\\ud83d\\ude00" in text
    assert read_mapping(text) == {"a": "\U0001f600", "b": "1", "c": "null"}


WITHOUT_PYYAML = """
import json, sys
sys.modules["yaml"] = None
from swarm.errors import StoreError
from swarm.formats.yaml_codec import read_mapping
answers = []
for text in json.load(sys.stdin):
    try:
        answers.append(read_mapping(text))
    except StoreError as error:
        answers.append(str(error))
json.dump(answers, sys.stdout)
"""


def test_without_pyyaml_the_install_command_is_named_only_where_it_is_needed() -> None:
    own = yaml_codec.dumps({"pid": 1, "text": "a\u2028\\ud800\U0001f600 # 'x'", "empty": ""})
    more = [
        "a: [1]",
        "a: b\n c",
        "- a: b",
        "a: |\n  b",
        "'a': b",
        "a: b\na: c",
        'a: "\\x41"',
        "---\na: b",
        "a: *b",
        "a: # c",
        "{x}",
    ]
    command = [sys.executable, "-c", WITHOUT_PYYAML]
    done = subprocess.run(
        command,
        input=json.dumps([own, SPRINT_LOCK, *more]),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    read, example, *errors = json.loads(done.stdout)
    assert read == {"pid": "1", "text": "a\u2028\\ud800\U0001f600 # 'x'", "empty": ""}
    assert example == EXAMPLE_MEANS
    assert len(errors) == len(more)
    for error in errors:
        assert "plain `key: value` lines can be read without PyYAML" in error
        assert error.endswith(f"Run: {sys.executable} -m pip install PyYAML")


# Whatever it takes --------------------------------------------------------------------


def laughs(wide: int) -> str:
    """Lists of lists of lists, which take a name each to write and have more entries
    than there are atoms.
    """
    names = range(1, SIZE // (8 * wide + 16))
    return "\n".join(
        ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * wide)}]" for n in names)]
    )


REPEATED = (
    *(
        "[",
        "- ",
        "? ",
        "[a, ",
        "é: é\n",
        "'",
        '"',
        '"" ',
        "'a': ",
        'a: "',
        "a: '",
        "\\",
        "&a ",
        "*a ",
        "!",
    ),
    *("a: &a [*a, ", "a: |\n ", "a\n", "#\n", ": ", "\u2028", "---\n"),
)
HARD = {
    **{text: text * (SIZE // len(text)) for text in REPEATED},
    "brackets that are closed": "a: " + "[" * 32000 + "]" * 32000,
    "a quoted value": 'a: "' + "\\\\" * 32000 + '"',
    "a quoted value that never ends": "a: '" + "''" * 32000,
    "nested blocks": "".join(" " * depth + "a:\n" for depth in range(350)),
    "laughs, by two": laughs(2),
    "laughs, by nine": laughs(9),
    "an anchor in itself": "a: &a [*a]",
    "a version of many digits": "%YAML 1." + "9" * 60000 + "\n---\na: b",
}


@pytest.mark.parametrize("text", HARD.values(), ids=[repr(name) for name in HARD])
def test_the_slowest_text_of_64_kib_is_soon_read_or_refused(text: str) -> None:
    assert len(text) <= SIZE
    begun = time.process_time()
    try:
        assert isinstance(read_mapping(text), dict)
    except NotYaml:
        pass
    assert time.process_time() - begun < 20
