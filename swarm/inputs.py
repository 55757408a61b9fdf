"""Checks of values that callers pass: names, numbers, TTLs, waits, tokens and paths.

Each check returns the value, or raises BadInput with the reason.
"""

from __future__ import annotations

from swarm.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAME_BYTES = 200
MAX_PLAIN_NAME = 64  # characters
MAX_TTL = 315_360_000  # seconds: ten years
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}  # seconds
MAX_RECORD_BYTES = 16 * 1024 * 1024
MAX_SLOTS = 10_000

# C0, DEL, C1 and the two Unicode line separators: some readers take each of them as a
# line break.
_CONTROL = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))


def check_name(name: object, what: str) -> str:
    """Return `name` if it may name a task or a worker.

    `what` is "task" or "worker", for messages. A valid name is safe as a file name, and
    on one line of any output. Raise BadInput if the name is invalid.
    """
    rule = _broken_rule(name)
    if rule:
        shown = ascii(name) if len(str(name)) <= 80 else ascii(str(name)[:60]) + "…"
        raise BadInput(f"{what} {shown} is not a valid name: {rule}.")
    return str(name)


def check_plain_name(name: object, what: str) -> str:
    """Return `name` if an agent may give it to a new task, lock or worker.

    A name that an agent may choose has no spaces, so that no reader can take it for a
    sentence. Raise BadInput if the name is invalid.
    """
    checked = check_name(name, what)
    if not is_plain_name(checked):
        raise BadInput(
            f"{what} {ascii(checked)[:80]} is not a name that an agent may choose: use at most "
            f"{MAX_PLAIN_NAME} letters, digits and . _ @ : - without spaces, and not must_stop."
        )
    return checked


def check_agent(name: object, what: str) -> str:
    """Return `name` if it may name an agent, such as claude.

    The names of gates that are not of an agent are reserved. Raise BadInput if the name
    is invalid.
    """
    checked = check_plain_name(name, what)
    if ":" in checked or checked == "budget":
        raise BadInput(f"{what} {checked!r} is not a name for an agent: it is reserved for gates.")
    return checked


def check_branch(name: object, what: str) -> str:
    """Return `name` if git takes it as the name of a branch.

    Raise BadInput if the name is invalid.
    """
    text = name if isinstance(name, str) else ""
    parts = text.split("/")
    is_valid = (
        0 < len(text.encode(errors="replace")) <= MAX_NAME_BYTES
        and all(part and part[0] != "." and not part.endswith((".", ".lock")) for part in parts)
        and not text.startswith("-")
        and not any(bad in text for bad in ("..", "@{"))
        and not _CONTROL & set(text)
        and not set(" ~^:?*[\\") & set(text)
        and text not in ("@", "HEAD")
    )
    if not is_valid:
        raise BadInput(f"{what} {ascii(name)[:80]} is not a name that git allows for a branch.")
    return text


def is_plain_name(name: str, more: str = "") -> bool:
    """Return whether no reader can take the name for a sentence or an order of swarm.

    A plain name has only letters of any script, digits, `._@:-` and the characters in
    `more`.
    """
    rest = name if name.isascii() and name.isalnum() else _without(name, "._@:-" + more)
    return (
        0 < len(name) <= MAX_PLAIN_NAME
        and f"_{rest}".isidentifier()
        and "must_stop" not in name.lower()
    )


def whole(text: str, what: str, least: int = 0, most: int | None = None, unit: str = "") -> int:
    """Return the whole number that a user typed.

    In messages, `what` names the number and `unit` its unit. Raise BadInput if the
    input is not a number from `least` to `most`. Without `most`, the number may have 18
    digits.
    """
    digits = text.removeprefix("-") if least < 0 else text
    if digits.isascii() and digits.isdigit() and len(digits) <= 18:
        number = int(text)
        if least <= number and (most is None or number <= most):
            return number
    kind = f"a whole number of {unit}" if unit else "a whole number"
    limits = f", {least} or more" if most is None else f" from {least} to {most}"
    raise BadInput(f"{what} is {text[:40]!r}, but must be {kind}{limits}.")


def slot_count(number: object, what: str) -> tuple[str, ...]:
    """Return the slots of a number of slots: 1 to N. Raise BadInput if it is invalid."""
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_SLOTS:
        raise BadInput(
            f"{what} is {str(number)[:40]!r}, but must be a whole number from 1 to {MAX_SLOTS}."
        )
    return tuple(map(str, range(1, number + 1)))


def slot_values(given: object, what: str) -> tuple[str, ...]:
    """Return the slots that a user lists: a text such as "8000-8099" or "a,b,c", or a
    list of texts. Raise BadInput if the values are invalid.
    """
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, (list, tuple)) or not parts:
        raise BadInput(f'{what} must be values such as "8000-8099" or "a,b,c".')
    found: dict[str, None] = {}
    for part in parts:
        value = part.strip() if isinstance(part, str) else str(part)
        for each in _range(value, what):
            if each in found:
                raise BadInput(f"{what} has the value {each} twice. Name each value once.")
            found[each] = None
    if len(found) > MAX_SLOTS:
        raise BadInput(f"{what} has {len(found)} values, at most {MAX_SLOTS} are allowed.")
    return tuple(found)


def slot_names(
    count: object, values: object, what: tuple[str, str] = ("slots", "values")
) -> tuple[str, ...]:
    """Return the slots that a caller asks for by their number, their values, or both.

    `what` names both in messages. Raise BadInput if they are invalid or do not agree.
    """
    if values is None:
        return slot_count(count, what[0])
    found = slot_values(values, what[1])
    if count is not None and len(slot_count(count, what[0])) != len(found):
        raise BadInput(
            f"{what[1]} has {len(found)} values, but {what[0]} is {count}. Leave out {what[0]}."
        )
    return found


def _range(value: str, what: str) -> Iterable[str]:
    first, dash, last = value.partition("-")
    numbers = (first, last)
    if dash and all(each.isascii() and each.isdigit() and len(each) <= 18 for each in numbers):
        if int(last) < int(first) or int(last) - int(first) >= MAX_SLOTS:
            raise BadInput(
                f"{what} has the range {value}, but a range has from 1 to {MAX_SLOTS} values, "
                "the smallest first."
            )
        return map(str, range(int(first), int(last) + 1))
    if not is_plain_name(value):
        raise BadInput(
            f"{what} has the value {ascii(value)[:80]}, but a value has at most "
            f"{MAX_PLAIN_NAME} letters, digits and . _ @ : - without spaces."
        )
    return (value,)


def parse_token(text: str, what: str = "--token") -> int:
    """Return the fencing token that a user typed.

    Raise BadInput if the text is not a whole number.
    """
    return whole(text, what)


def parse_ttl(text: str, what: str) -> int:
    """Return the TTL that a user typed, in whole seconds.

    Raise BadInput if the TTL is out of range.
    """
    return whole(text, what, 1, MAX_TTL, "seconds")


def parse_wait(text: str, what: str) -> float:
    """Return the number of seconds that a user typed, with or without a fraction.

    Raise BadInput if the input is invalid.
    """
    if not (text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= 20):
        raise BadInput(f"{what} is {text[:40]!r}, but must be a number of seconds, 0 or more.")
    return check_wait(float(text))


def seconds_in(text: str) -> float | None:
    """Return the seconds in a number with a unit, such as 30d, 1.5h, 45m or 90s. Return
    None for another text.
    """
    number, factor = text[:-1], _UNITS.get(text[-1:])
    is_number = number.isascii() and number.replace(".", "", 1).isdigit() and len(number) <= 12
    return float(number) * factor if factor and is_number else None


def parse_age(text: str, what: str) -> float:
    """Return the seconds in an age that a user typed, which has a unit.

    Raise BadInput if the input is invalid.
    """
    seconds = seconds_in(text)
    if seconds is None:
        raise BadInput(
            f"{what} is {text[:40]!r}, but must be an age, such as 30d, 12h, 45m or 90s."
        )
    return seconds


def parse_duration(text: str, what: str) -> float:
    """Return the seconds in a time that a user typed: with a unit, or in seconds. Raise
    BadInput if the input is invalid or 0.
    """
    seconds = seconds_in(text) or seconds_in(f"{text}s")
    if not seconds:
        raise BadInput(f"{what} is {text[:40]!r}, but must be a time such as 90, 30m, 2h or 1d.")
    return seconds


def check_ttl(ttl: float, *, fractions: bool = False) -> float:
    """Return the TTL that a program passes. Raise BadInput if the TTL is out of range."""
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 1 <= ttl <= MAX_TTL:
        raise BadInput(f"ttl is {ttl!r}, but must be a number of seconds from 1 to {MAX_TTL}.")
    if not fractions and ttl != int(ttl):
        raise BadInput(
            f"ttl is {ttl!r}, but this method takes whole seconds only; hold() also takes "
            "fractions."
        )
    return int(ttl) if ttl == int(ttl) else ttl


def check_wait(wait: float) -> float:
    """Return the number of seconds that a program passes.

    Raise BadInput if the number is out of range.
    """
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not 0 <= wait <= MAX_TTL:
        raise BadInput(f"wait is {wait!r}, but must be a number of seconds, 0 or more.")
    return wait


def absolute_path(path: str) -> str:
    """Return `os.path.abspath(path)`.

    Import `os.path` only for a path that is not absolute yet.
    """
    if path.startswith("/") and "//" not in path and "/." not in path and not path.endswith("/"):
        return path
    from os.path import abspath

    return abspath(path)


def _without(text: str, signs: str) -> str:
    return "".join(sign for sign in text if sign not in signs)


def _broken_rule(name: object) -> str:
    if not isinstance(name, str):
        return "it must be text"
    if not name:
        return "it must not be empty"
    try:
        size = len(name) if name.isascii() else len(name.encode())
    except UnicodeEncodeError:
        return "it must be valid UTF-8"
    if size > MAX_NAME_BYTES:
        return f"it has {size} bytes, at most {MAX_NAME_BYTES} are allowed"
    if "/" in name or "\\" in name:
        return "it must not contain a slash or a backslash"
    if not name.isprintable() and not _CONTROL.isdisjoint(name):
        return "it must not contain control characters or line breaks"
    if name[0] in ".-":
        return "it must not start with a dot or a dash"
    return ""
