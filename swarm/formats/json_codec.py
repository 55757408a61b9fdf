"""JSON as swarm writes and reads it, without importing `json`, which doubles a
command's start-up time.

Writing uses the separators ", " and ": ", and escapes lone surrogates and all
characters that some readers take as a line break. So a record is one line of valid
UTF-8. Reading accepts any JSON. Without `strict`, reading also accepts `NaN` and raw
control characters in strings.

The fast path uses `_json`, the part of `json` that is written in C. `_json` is private
to the interpreter and changes between versions. If `_json` is missing or behaves in
another way, the public module `json` does the work, with the same values and errors.
Only the limit for nested values depends on the interpreter.
"""

from __future__ import annotations

import builtins
import sys

from swarm.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Encoder = Callable[[object, int], Iterable[str]]

    Scanner = Callable[[str, int], tuple[Any, int]]

SCHEMA_VERSION = 1  # of the JSON objects that commands, the board and the page answer with

_ESCAPED = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}
_SPACE = " \t\n\r"
_FLAT = 50  # brackets: a value with fewer is not nested too deeply for any interpreter
# Python 3.15 writes a frozendict as an object, too
_OBJECTS = (dict, getattr(builtins, "frozendict", dict))
_NESTED = (*_OBJECTS, list, tuple)


def dumps(value: object, *, own: bool = False) -> str:
    """Return the value as one line of JSON.

    `own` says that swarm made the value: its keys are strings and need no check.

    Raise BadInput for a value that JSON does not have: NaN, a set, a key that is not
    a string.
    """
    try:
        if not own:
            _check_keys(value)
        text = "".join(_encode(value, 0))
    except RecursionError:
        raise BadInput(
            "the value is nested too deeply, or contains itself, and cannot be written as JSON."
        ) from None
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
    """Return the value of one JSON text. Raise ValueError for a string that is not
    JSON.

    Raise RecursionError if the caller's stack has no room even for a value with few
    brackets.
    """
    text = data if isinstance(data, str) else data.decode()
    text = text.removeprefix("\ufeff").strip(_SPACE)
    scan = _scan_strict if strict else _scan
    try:
        try:
            value, end = scan(text, 0)
        # to report an error, the C scanner of 3.11 needs json.decoder, and does not
        # import it
        except SystemError:
            import json.decoder  # noqa: F401

            value, end = scan(text, 0)
    except StopIteration:
        raise ValueError("not a JSON value") from None
    except RecursionError:
        if text.count("[") + text.count("{") < _FLAT:
            raise
        raise ValueError("nested too deeply") from None
    if end != len(text):
        raise ValueError("something follows the JSON value")
    return value


def _check_keys(value: object) -> None:
    """Raise BadInput for a key that is not a string.

    The JSON encoder would turn a key that is a number into a string.
    """
    if isinstance(value, _OBJECTS):
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadInput(f"the key {key!r} cannot be written as JSON: keys must be strings.")
            if isinstance(item, _NESTED):
                _check_keys(item)
    elif isinstance(value, _NESTED):
        for item in value:
            _check_keys(item)


def _refuse(value: object) -> None:
    raise BadInput(f"a value of type {type(value).__name__} cannot be written as JSON.")


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


class _Lenient:
    """The attributes that the scanner written in C reads from its context."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    array_hook = None  # the scanner reads it from Python 3.15 on
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


def _make_scanner(context: _Lenient) -> Scanner:
    """Return the C scanner if it understands the context and a small example.

    Return a scanner made of public parts of `json` if the C scanner cannot be used.
    """
    # a debug build aborts where others raise the SystemError that `loads` expects
    if hasattr(sys, "gettotalrefcount"):
        return _make_public_scanner(context)
    try:
        from _json import make_scanner

        # the C scanner takes any object with these attributes
        scan: Scanner = make_scanner(context)  # type: ignore[arg-type]
        if scan('[{"a": 1.5}]', 0) != ([{"a": 1.5}], 12):
            raise ValueError("another result than expected")
    except Exception:  # a future version may fail in any way
        return _make_public_scanner(context)
    return scan


def _make_public_scanner(context: _Lenient) -> Scanner:
    import re
    from json import JSONDecodeError, JSONDecoder

    # Without `_json`, the decoders of Python 3.11 and 3.12 accept digits of other
    # scripts, and take `\u 1_2` for an escape.
    def number(convert: Callable[[str], float]) -> Callable[[str], float]:
        def parse(text: str) -> float:
            if not text.isascii():
                raise ValueError(f"{text} is not a number of JSON")
            return convert(text)

        return parse

    no_escape = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9A-Fa-f]{4})")
    decoder = JSONDecoder(
        strict=context.strict,
        parse_float=number(context.parse_float),
        parse_int=number(context.parse_int),
        parse_constant=context.parse_constant,
    )

    def scan(text: str, start: int) -> tuple[Any, int]:
        if no_escape.search(text):
            raise ValueError("Invalid \\uXXXX escape")
        try:
            return decoder.raw_decode(text, start)
        except JSONDecodeError as error:
            if error.msg == "Expecting value":
                raise StopIteration(error.pos) from None  # as the C scanner does
            raise

    return scan


def _make_encoder() -> Encoder:
    """Return the C encoder if it writes a small example as expected.

    Return the encoder of the public module `json` if the C encoder cannot be used.
    """
    try:
        from _json import encode_basestring, make_encoder

        encode: Encoder = make_encoder(
            None, _refuse, encode_basestring, None, ": ", ", ", False, False, False
        )
        if "".join(encode({"a": ["é", 1.5]}, 0)) != '{"a": ["é", 1.5]}':
            raise ValueError("another result than expected")
    except Exception:  # a future version may fail in any way
        return _make_public_encoder()
    return encode


def _make_public_encoder() -> Encoder:
    from json import JSONEncoder

    encoder = JSONEncoder(
        ensure_ascii=False, check_circular=False, allow_nan=False, default=_refuse
    )
    return lambda value, _: (encoder.encode(value),)


_scan = _make_scanner(_Lenient())
_scan_strict = _make_scanner(_Strict())
_encode = _make_encoder()
