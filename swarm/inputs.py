"""What callers may pass: names, TTLs, waits, tokens and paths. Each check returns the value, or raises BadInput that says why."""

from swarm.errors import BadInput

MAX_NAME_BYTES = 200
MAX_TTL = 315_360_000  # seconds: ten years
MAX_RECORD_BYTES = 16 * 1024 * 1024

# C0, DEL, C1, and the two Unicode line separators: each ends a line for some reader.
_CONTROL = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))


def check_name(name: object, what: str) -> str:
    """Return `name` if it may name a task or a worker: it is then safe as a file name and on one line of any output."""
    rule = _broken_rule(name)
    if rule:
        shown = ascii(name) if len(str(name)) <= 80 else ascii(str(name)[:60]) + "…"
        raise BadInput(f"{what} {shown} is not a valid name: {rule}.")
    return str(name)


def parse_token(text: str) -> int:
    """A fencing token as a person types it."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise BadInput(f"--token is {text[:40]!r}, but must be a whole number.")
    return int(text)


def parse_ttl(text: str, what: str) -> int:
    """A TTL as a person types it: whole seconds."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9) or not 1 <= int(text) <= MAX_TTL:
        raise BadInput(f"{what} is {text[:40]!r}, but must be a whole number of seconds from 1 to {MAX_TTL}.")
    return int(text)


def parse_wait(text: str, what: str) -> float:
    """A duration as a person types it: seconds, also fractions."""
    if not (text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= 20):
        raise BadInput(f"{what} is {text[:40]!r}, but must be a number of seconds, 0 or more.")
    return check_wait(float(text))


def check_ttl(ttl: float, *, fractions: bool = False) -> float:
    """A TTL as a program passes it."""
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)) or not 1 <= ttl <= MAX_TTL:
        raise BadInput(f"ttl is {ttl!r}, but must be a number of seconds from 1 to {MAX_TTL}.")
    if not fractions and ttl != int(ttl):
        raise BadInput(f"ttl is {ttl!r}, but must be whole seconds here; only hold() takes fractions.")
    return int(ttl) if ttl == int(ttl) else ttl


def check_wait(wait: float) -> float:
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not 0 <= wait <= MAX_TTL:
        raise BadInput(f"wait is {wait!r}, but must be a number of seconds, 0 or more.")
    return wait


def absolute_path(path: str) -> str:
    """As os.path has it, which is imported only for a path that is to be changed."""
    if path.startswith("/") and "//" not in path and "/." not in path and not path.endswith("/"):
        return path
    from os.path import abspath

    return abspath(path)


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
