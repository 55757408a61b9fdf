"""Which files of a project a pattern names, and whether two patterns name one in common.

In a pattern `**` stands for any number of directories, `*` for any text within a name and `?` for one character of it; everything
else stands for itself (also brackets, which are common in names). A pattern names what it matches and all that is below:
`src/api` and `src/api/**` are the same.

Paths are those of the project, from its root on, so that agents in different checkouts of it mean the same file. What lies in
another checkout counts from that one's root; what lies in none has its whole path.
"""

from __future__ import annotations

import os

from swarm.errors import BadInput
from swarm.inputs import MAX_NAME_BYTES, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ANY_DEPTH = "**"
_ROOT_MARKER = ".git"  # which a project's root has: a directory, or a file in a worktree
_BRACES = "braces are not understood: give each pattern by itself"


def project_root(start: str) -> str:
    """The root of the project that a directory is in; the directory itself if it is in none."""
    start = os.path.abspath(start)
    return next(_projects_around(start), start)


def in_project(path: str, root: str, directory: str) -> str:
    """A path (or a pattern) as somebody in a directory names it, from the project's root on."""
    whole = os.path.normpath(os.path.join(directory, path)).replace("//", "/")
    root = os.path.normpath(root)
    if whole == root:
        return _ANY_DEPTH
    inside = whole.startswith(root.rstrip("/") + "/")
    return _composed(whole[len(root.rstrip("/")) + 1 :] if inside else whole)


def names_of(path: str, root: str, directory: str) -> list[str]:
    """All that a file is called: as it was named, and where links lead to; from this root, and from that of every project that it
    is in itself, since whoever works elsewhere may name it from there."""
    path = os.path.join(directory, os.path.expanduser(path))
    real = os.path.realpath(path)
    names = [in_project(path, root, directory), in_project(real, os.path.realpath(root), directory)]
    for place in (os.path.abspath(path), real):
        names += [in_project(place, around, directory) for around in _projects_around(os.path.dirname(place))]
    return list(dict.fromkeys(names))


def checked_pattern(text: str, root: str, directory: str) -> str:
    """A pattern as a person types it, in the one form in which it is kept. Raises BadInput."""
    if not text.strip():
        raise BadInput("a pattern is empty. Name a file, or several, such as 'src/api/**'.")
    if "\0" in text:
        raise BadInput("a pattern contains a NUL character, which no path has.")
    opening, closing = text.find("{"), text.rfind("}")
    if 0 <= opening < text.find(",") < closing and not os.path.lexists(os.path.join(directory, text)):
        raise BadInput(f"{text[:80]!r} is not a pattern: {_BRACES}.")
    pattern = _real(text, root, directory)
    while pattern.endswith("/**"):
        pattern = pattern.removesuffix("/**")
    pattern = pattern or _ANY_DEPTH
    try:
        size = len(_as_name(pattern).encode())
    except UnicodeEncodeError:
        raise BadInput(f"the pattern {text[:80]!a} is not valid UTF-8.") from None
    if size > MAX_NAME_BYTES:
        raise BadInput(f"the pattern {text[:60]!r}… is too long. Reserve a directory above, or use * for a part of it.")
    return pattern


def _real(text: str, root: str, directory: str) -> str:
    """A pattern from the project's root on, without the links that it leads through: one file must not have two names."""
    names = os.path.join(directory, text).split("/")
    plain = next((at for at, name in enumerate(names) if "*" in name or "?" in name), len(names))
    place = os.path.realpath("/".join(names[:plain]) or "/")
    pattern, root = os.path.join(place, *names[plain:]), os.path.realpath(root)
    if not f"{pattern}/".startswith(root.rstrip("/") + "/"):
        root = next(_projects_around(os.path.dirname(place)), root)
    return in_project(pattern, root, directory)


def _projects_around(place: str) -> Iterator[str]:
    """The roots of the projects that a directory is in, the nearest first."""
    while True:
        if os.path.lexists(os.path.join(place, _ROOT_MARKER)):
            yield place
        above = os.path.dirname(place)
        if above == place:
            return
        place = above


def lock_name(pattern: str) -> str:
    """A pattern as the name of a lock. Nothing is lost: `pattern_of` gives it back."""
    return check_name(_as_name(pattern), "pattern")


def pattern_of(name: str) -> str:
    """The pattern that a lock's name stands for. A name that nobody gave stands for itself."""
    from urllib.parse import unquote

    return unquote(name)


def overlap(one: str, other: str) -> bool:
    """Whether there can be a file that both patterns name. A path is a pattern too."""
    if one.startswith("/") != other.startswith("/"):
        return False  # in the project, and outside
    return _meet(_parts(one), _parts(other), _ANY_DEPTH, lambda a, b: a == b or _meet(a, b, "*", _same_sign))


def _parts(pattern: str) -> tuple[str, ...]:
    """The names in a pattern; those of a whole path begin with an empty one. All that is below comes with it."""
    return (*pattern.split("/"), _ANY_DEPTH)


def _same_sign(one: str, other: str) -> bool:
    return one == other or "?" in (one, other)


def _meet(one: Sequence[str], other: Sequence[str], gap: str, same: Callable[[str, str], bool]) -> bool:
    """Whether two sequences can be the same, where a `gap` stands for any number of elements. Row by row: `reached` are the
    places in `other` up to which it can be like what was seen of `one`."""
    reached = _behind_gaps({0}, other, gap)
    for element in one:
        if not reached:
            return False
        if element == gap:
            reached = set(range(min(reached), len(other) + 1))
        else:
            steps = {at + 1 for at in reached if at < len(other) and other[at] != gap and same(element, other[at])}
            stays = {at for at in reached if at < len(other) and other[at] == gap}
            reached = _behind_gaps(steps | stays, other, gap)
    return len(other) in reached


def _behind_gaps(places: set[int], other: Sequence[str], gap: str) -> set[int]:
    """A gap may also stand for nothing."""
    found = set(places)
    for place in places:
        behind = place
        while behind < len(other) and other[behind] == gap:
            behind += 1
            found.add(behind)
    return found


def _as_name(pattern: str) -> str:
    """What may not stand in a name, or not at its beginning, is written as in a URL."""
    name = "".join(
        sign if sign.isprintable() and sign not in "%/\\" else "".join(f"%{byte:02X}" for byte in sign.encode())
        for sign in pattern
    )
    return f"%{ord(name[0]):02X}{name[1:]}" if name[0] in ".-" else name


def _composed(path: str) -> str:
    """Some systems write an accented letter in two characters."""
    if path.isascii():
        return path
    from unicodedata import normalize

    return normalize("NFC", path)
