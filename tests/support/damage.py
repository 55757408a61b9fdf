"""Damage of every kind to files: to their bytes, and to the values in them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as some

DATES = (
    *(
        "2026-02-02T10:30:00.000Z",
        "2026-02-02T10:30:00Z",
        "2026-02-02t10:30:00z",
        "2026-02-02 10:30:00",
        "20260202T103000Z",
    ),
    *(
        "2026-02-02",
        "2026-W06-1",
        "2026-02-02T10:30:00+08:00",
        "2026-02-02T10:30:00.123456789Z",
        " 2026-02-02 ",
        "2099-12-31",
    ),
    *(
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "0000-00-00T00:00:00.000Z",
        "2026-02-30T00:00:00.000Z",
    ),
    *(
        "2026-13-01",
        "2026-02-02T24:00:00Z",
        "2026-02-02T99:99:99.999Z",
        "٢٠٢٦-02-02T10:30:00.000Z",
        "-2026-02-02",
        "+10000-01-01",
    ),
    *("1770000000", "tomorrow", "never", "", " ", "\x00", "\ud800", "2026-02-02T10:30:00\ud800"),
)

# Values that may be in a file. Not all of them are JSON.
RAW = some.sampled_from(
    [
        *(
            "null",
            "true",
            "false",
            "0",
            "-0",
            "1",
            "-1",
            "1.5",
            "300",
            "1e3",
            "1e12",
            "1e400",
            "-1e400",
            "NaN",
            "Infinity",
            "-Infinity",
        ),
        *(
            "9" * 400,
            "-" + "9" * 400,
            "9" * 5000,
            "01",
            "0x10",
            "+1",
            ".5",
            "nul",
            "'w'",
            "w",
            "",
            ",",
        ),
        *(
            "[]",
            "{}",
            '{"a": {"b": [null]}}',
            "[" * 50 + "]" * 50,
            "[" * 2000 + "]" * 2000,
            '{"a":' * 2000 + "1" + "}" * 2000,
        ),
        *(
            '"300"',
            '"1e400"',
            '"nan"',
            '" 5 "',
            '"٣"',
            '"a\nb"',
            '"a\\nb"',
            '"\\ud800"',
            '"\\u0000"',
            '"\x1b[31m"',
            '"w" "w"',
        ),
        *(json.dumps(date) for date in DATES),
    ]
)
PIECES = some.sampled_from(
    [
        b"",
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\r\n",
        b"\n",
        b"\\",
        b'"',
        b"{",
        b"}",
        b",",
        b"\x80",
        b" ",
    ]
)
DEEP = b'{"worker": "w", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@some.composite
def records(draw: some.DrawFn, *bases: dict[str, Any]) -> bytes:
    """A record with keys left out, repeated, renamed and added, and values replaced; as
    JSON, or nearly.
    """
    base = draw(some.sampled_from(bases))
    pairs = [(key, json.dumps(value)) for key, value in base.items()]
    for at, (key, _) in enumerate(pairs):
        if isinstance(base[key], dict) and draw(some.booleans()):
            pairs[at] = (
                key,
                _as_text(
                    _changed(draw, [(name, json.dumps(item)) for name, item in base[key].items()])
                ),
            )
    return _as_text(_changed(draw, pairs)).encode(errors="surrogatepass")


def _changed(draw: some.DrawFn, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    for _ in range(draw(some.integers(0, 3))):
        at = draw(some.integers(0, len(pairs) - 1)) if pairs else 0
        how = draw(some.sampled_from(["replace", "replace", "drop", "repeat", "rename", "add"]))
        if how == "add" or not pairs:
            pairs.insert(
                at, (draw(some.sampled_from(["ttl", "worker", "x", "", "pid"])), draw(RAW))
            )
        elif how == "replace":
            pairs[at] = pairs[at][0], draw(RAW)
        elif how == "drop":
            del pairs[at]
        elif how == "repeat":
            pairs.append((pairs[at][0], draw(RAW)))
        else:
            pairs[at] = pairs[at][0].upper(), pairs[at][1]
    return pairs


def _as_text(pairs: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{json.dumps(key)}: {value}" for key, value in pairs) + "}"


@some.composite
def broken(draw: some.DrawFn, whole: some.SearchStrategy[bytes]) -> bytes:
    """The same bytes, or some of them: cut, flipped, overwritten, or in another
    encoding.
    """
    data = draw(whole)
    for _ in range(draw(some.sampled_from([0, 0, 1, 1, 2, 3]))):
        at = draw(some.integers(0, len(data)))
        how = draw(
            some.sampled_from(
                ["cut", "behead", "flip", "insert", "prepend", "append", "utf-16", "double", "zero"]
            )
        )
        piece = draw(PIECES)
        if how == "flip" and at < len(data):
            piece = bytes([data[at] ^ 1 << draw(some.integers(0, 7))])
        data = {
            "cut": data[:at],
            "behead": data[at:],
            "flip": data[:at] + piece + data[at + 1 :],
            "insert": data[:at] + piece + data[at:],
            "prepend": piece + data,
            "append": data + piece,
            "utf-16": data.decode(errors="replace").encode("utf-16"),
            "double": data + data,
            "zero": data[:at] + b"\x00" * (len(data) - at),
        }[how]
    return data
