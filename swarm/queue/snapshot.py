"""The encoding of a snapshot of the queue: in compressed columns.

A snapshot in columns loads several times faster than a snapshot with one entry for each
task. A column whose values are all equal is stored as one value.
"""

from __future__ import annotations

from itertools import repeat

from swarm.formats import json_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

# Lines that are compressed together: unpacking all at once would need twice the memory.
_LINES_PER_CHUNK = 4096


def pack(lines: Sequence[bytes]) -> list[str]:
    return [
        _compress(b"\n".join(lines[start : start + _LINES_PER_CHUNK]))
        for start in range(0, len(lines), _LINES_PER_CHUNK)
    ]


def unpack(portions: list[str]) -> Iterator[bytes]:
    for portion in portions:
        yield from _decompress(portion).split(b"\n")


def encode_column(values: Sequence[Any]) -> list[Any] | str:
    same = all(value == values[0] and type(value) is type(values[0]) for value in values)
    if not same:
        return _compress(json_codec.dumps(values).encode())
    return [list(value) if isinstance(value, tuple) else value for value in values[:1]]


def expand(saved: list[Any] | str, count: int) -> Iterable[Any]:
    """Return the `count` values of a column.

    Raise ValueError if the column has another number of values.
    """
    if not isinstance(saved, str):
        return repeat(_fixed(saved[0]), count) if saved else ()
    values = json_codec.loads(_decompress(saved))
    if len(values) != count:
        raise ValueError
    # States and workers are few: equal strings share their memory.
    words: dict[str, str] = {}
    return [
        words.setdefault(value, value) if type(value) is str else _fixed(value) for value in values
    ]


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _compress(data: bytes) -> str:
    # Imported here and below: only a queue with a snapshot needs these modules.
    from binascii import b2a_base64

    try:
        from zlib import compress
    except ImportError:  # an interpreter without zlib saves more bytes
        return b2a_base64(data, newline=False).decode()
    return b2a_base64(compress(data, 1), newline=False).decode()


def _decompress(text: str) -> bytes:
    from binascii import a2b_base64

    data = a2b_base64(text, strict_mode=True)
    try:
        from zlib import decompress
    except ImportError:
        return data
    return decompress(data)
