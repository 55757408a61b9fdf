"""JSON as swarm writes and reads it, without importing `json` (which doubles the start-up time of a command).

Written: separators ", " and ": ", text as it is, but everything that could end a line for some reader is escaped, and lone
surrogates, so that a record is one line of valid UTF-8. Read: any JSON; `NaN` and raw control characters in strings are
tolerated unless `strict`.
"""

from __future__ import annotations

import sys

from swarm.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Encoder = Callable[[object, int], Iterable[str]]

    Scanner = Callable[[str, int], tuple[Any, int]]

try:
    from _json import make_scanner
except ImportError:  # an interpreter without the accelerator
    from json.scanner import py_make_scanner as make_scanner  # type: ignore[attr-defined, no-redef, unused-ignore]

if hasattr(sys, "gettotalrefcount"):  # a debug build aborts where others raise the SystemError that `loads` expects
    import json.decoder  # noqa: F401

_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
_SPACE = " \t\n\r"
_NESTED = (dict, list, tuple)


def dumps(value: object, *, own: bool = False) -> str:
    """The value as one line of JSON; raises BadInput for what JSON cannot say (NaN, sets, keys that are not text …). `own`: swarm
    has put it together itself, and its keys are text."""
    try:
        if not own:
            _check_keys(value)
        text = "".join(_encode(value, 0))
    except RecursionError:
        raise BadInput("the value is nested too deeply, or contains itself, and cannot be written as JSON.") from None
    except BadInput:
        raise
    except ValueError as error:  # NaN, or a number of too many digits
        raise BadInput(f"the value cannot be written as JSON: {error}.") from None
    if text.isascii() and "\x7f" not in text:
        return text
    text = text.translate(_ESCAPED)
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def loads(data: bytes | str, *, strict: bool = False) -> Any:
    """The value of one JSON text; raises ValueError when it is not one, whatever is wrong with it."""
    text = data if isinstance(data, str) else data.decode()
    text = text.removeprefix("\ufeff").strip(_SPACE)
    scan = _scan_strict if strict else _scan
    try:
        try:
            value, end = scan(text, 0)
        except SystemError:  # to complain, the scanner needs json.decoder, and does not import it itself
            import json.decoder  # noqa: F401

            value, end = scan(text, 0)
    except StopIteration:
        raise ValueError("not a JSON value") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(text):
        raise ValueError("something follows the JSON value")
    return value


def _check_keys(value: object) -> None:
    """JSON's keys are text; the encoder would make text of a number."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadInput(f"the key {key!r} cannot be written as JSON: keys must be text.")
            if isinstance(item, _NESTED):
                _check_keys(item)
    elif isinstance(value, _NESTED):
        for item in value:
            _check_keys(item)


def _refuse(value: object) -> None:
    raise BadInput(f"a value of type {type(value).__name__} cannot be written as JSON.")


def _make_encoder() -> Encoder:
    try:
        from _json import encode_basestring, make_encoder
    except ImportError:
        from json import JSONEncoder

        encoder = JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, default=_refuse)
        return lambda value, _: encoder.iterencode(value)
    encode: Encoder = make_encoder(None, _refuse, encode_basestring, None, ": ", ", ", False, False, False)
    return encode


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


class _Lenient:
    """What the C scanner asks its context for."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_object = None
    parse_array = None
    parse_string = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012  (the scanner's own cache of keys, emptied by it after each text)


class _Strict(_Lenient):
    strict = True
    parse_constant = staticmethod(_no_constant)  # type: ignore[assignment]


_scan: Scanner = make_scanner(_Lenient())  # type: ignore[arg-type]  # the C scanner takes any object with these attributes
_scan_strict: Scanner = make_scanner(_Strict())  # type: ignore[arg-type]
_encode = _make_encoder()
