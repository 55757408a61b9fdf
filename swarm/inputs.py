"""The rule for names of tasks and workers. A name that passes is safe as a file name and on one line of any output."""

from swarm.errors import BadInput

MAX_NAME_BYTES = 200

# C0, DEL, C1, and the two Unicode line separators: each ends a line for some reader.
_CONTROL = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))


def check_name(name: object, what: str) -> str:
    """Returns `name` if it may name a task or a worker; raises BadInput that says which rule it breaks."""
    rule = _broken_rule(name)
    if rule:
        shown = ascii(name) if len(str(name)) <= 80 else ascii(str(name)[:60]) + "…"
        raise BadInput(f"{what} {shown} is not a valid name: {rule}.")
    return str(name)


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
