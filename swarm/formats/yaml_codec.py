"""Write YAML that all readers understand in the same way, and read YAML of other
writers.

Writing makes block mappings and lists. Each string is in double quotes and escaped as
in JSON. Without quotes, some YAML readers take a plain word for a number, a date or a
boolean. Reading returns all scalars as strings. This module reads plain lines of
`key: value`, as users and shell scripts write them. PyYAML (installed by the extra
`yaml`) reads all other YAML.
"""

from __future__ import annotations

from swarm.errors import StoreError
from swarm.formats import json_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# JSON may contain these characters, YAML may not
_NOT_IN_YAML = {0xFEFF: "\\ufeff", 0xFFFE: "\\ufffe", 0xFFFF: "\\uffff"}
_LINE_BREAKS = frozenset("\r\x85\u2028\u2029")  # the line breaks of YAML 1.1, beside the newline
_MAX_KEY = 1024  # characters, a limit of YAML
_MAPPING_SIGNS = frozenset(":?{")  # every mapping has one of these characters
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-: ")


class NotYaml(ValueError):
    """The text is not YAML, or not a mapping."""


def dumps(value: Mapping[str, object]) -> str:
    """Return a mapping as a YAML block.

    The values of the mapping are scalars, lists of scalars, or mappings of the same
    kind. Keys must be plain words, and floats must have no exponent.
    """
    return "".join(_block(value, ""))


def read_mapping(text: str) -> dict[str, str | None]:
    """Return a mapping with each scalar as a string, and with None for each value that
    is not a scalar.

    Raise NotYaml if the text is not YAML, or not a mapping.
    """
    if not all(map(_is_printable, text)):
        raise NotYaml("it contains characters that YAML does not have")
    if _MAPPING_SIGNS.isdisjoint(text):
        raise NotYaml("it is not a mapping")
    found = _read_flat(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    if found is None:
        return _read_any(text)
    if not found:
        raise NotYaml("it is not a mapping")
    return found


def pyyaml_missing(what: str, readable: str) -> StoreError:
    """Return the error for a user without PyYAML.

    The error says that `what` needs PyYAML, and how to install PyYAML. The error also
    says that `readable` can be read without PyYAML.
    """
    import sys

    command = f"{sys.executable} -m pip install PyYAML"
    return StoreError(
        f"{what} needs the package PyYAML; {readable} can be read without PyYAML. Run: {command}"
    )


def _block(value: Mapping[str, object], indent: str) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield f"{indent}{key}:\n"
            yield from _block(item, indent + "  ")
        elif isinstance(item, list | tuple) and item:
            yield f"{indent}{key}:\n"
            yield from (f"{indent}  - {_scalar(entry)}\n" for entry in item)
        else:
            yield f"{indent}{key}: {_scalar(item)}\n"


def _scalar(value: object) -> str:
    return json_codec.dumps(value).translate(_NOT_IN_YAML)


def _is_printable(character: str) -> bool:
    """Return whether YAML allows the character in a string."""
    return (
        " " <= character <= "~"
        or character in "\t\n\r\x85"
        or "\xa0" <= character <= "\ud7ff"
        or "\ue000" <= character <= "\ufffd"
        or character >= "\U00010000"
    )


def _read_flat(text: str) -> dict[str, str | None] | None:
    """Read lines of `key: value` and comments.

    Return None if only a full YAML reader can be sure of the meaning.
    """
    found: dict[str, str | None] = {}
    if not _LINE_BREAKS.isdisjoint(text):
        return None
    for line in text.split("\n"):
        if not line.strip(" ") or line.lstrip(" ").startswith("#"):
            continue
        key, colon, rest = line.partition(":")
        value = _read_scalar(rest.strip(" ")) if rest.startswith(" ") or not rest else None
        if not colon or not _is_plain_key(key) or key in found or value is None:
            return None
        found[key] = value
    return found


def _is_plain_key(text: str) -> bool:
    return text.isascii() and text.isidentifier() and len(text) <= _MAX_KEY


def _read_scalar(text: str) -> str | None:
    if not text:
        return ""
    quote = text[:1]
    if quote == "'":
        body, closed, rest = text[1:].replace("''", "\0").partition("'")
        return body.replace("\0", "'") if closed and _is_comment(rest) else None
    if quote == '"':
        return _read_double_quoted(text)
    plain = text.partition(" #")[0].rstrip(" ")
    simple = (
        plain.removeprefix("-")[:1].isalnum()
        and _PLAIN.issuperset(plain)
        and ": " not in plain
        and plain[-1] != ":"
    )
    return plain if simple else None


def _read_double_quoted(text: str) -> str | None:
    end = 1
    while end < len(text) and text[end] != '"':
        end += 1 + (text[end] == "\\")
    body = text[: end + 1]
    if not _is_comment(text[end + 1 :]) or "\\ud" in body.replace("\\\\", "").lower():
        return None  # \ud begins half a character, and readers differ in joining the halves
    try:
        return str(json_codec.loads(body))
    except ValueError:
        return None


def _is_comment(text: str) -> bool:
    return not text.strip(" ") or (text.lstrip(" ").startswith("#") and text.startswith(" "))


def _read_any(text: str) -> dict[str, str | None]:
    try:
        import yaml
    except ImportError:
        raise pyyaml_missing("reading it", "plain `key: value` lines") from None
    try:
        # BaseLoader makes only strings.
        found = yaml.load(text, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise NotYaml("it is not YAML") from error
    if not isinstance(found, dict):
        raise NotYaml("it is not a mapping")
    return {key: _whole(value) if isinstance(value, str) else None for key, value in found.items()}


def _whole(text: str) -> str:
    """Join the two escapes by which JSON writes a character beyond U+FFFF.

    JSON text is valid YAML, so YAML may contain the escapes of JSON.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
