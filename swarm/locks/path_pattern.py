"""Path patterns: which files a pattern names, and whether two patterns overlap.

In a pattern, `**` matches any number of directories, `*` any characters within a name,
and `?` one character of a name. Every other character matches itself, even a bracket,
since brackets are common in file names. A pattern names the paths that it matches and
everything below these paths. So `src/api` and `src/api/**` name the same files.

A path starts at the root of its project, so that agents in different checkouts mean the
same file. A path in another checkout starts at the root of the other checkout. A path
outside of every checkout is absolute.
"""

from __future__ import annotations

import os

from swarm.errors import BadInput
from swarm.inputs import MAX_NAME_BYTES, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_ANY_DEPTH = "**"
_ROOT_MARKER = ".git"  # in a project's root: a directory, or a file in a worktree


def project_root(start: str) -> str:
    """Return the root of the project that a directory is in.

    Return the directory itself if it is in no project.
    """
    start = os.path.abspath(start)
    return next(_projects_around(start), start)


def in_project(path: str, root: str, directory: str) -> str:
    """Take a path or pattern that is relative to `directory`, and return it relative to
    the project's root.
    """
    whole = os.path.normpath(os.path.join(directory, path)).replace("//", "/")
    root = os.path.normpath(root)
    if whole == root:
        return _ANY_DEPTH
    inside = whole.startswith(root.rstrip("/") + "/")
    return _composed(whole[len(root.rstrip("/")) + 1 :] if inside else whole)


def names_of(path: str, root: str, directory: str) -> list[str]:
    """Return all paths that name a file, each relative to the root of a project.

    A file has the path that the user wrote, and the path after its symlinks are
    resolved. Return each path relative to `root`, and relative to the root of every
    project that contains `root`. A worker of such an outer project may have reserved
    the file.
    """
    path = os.path.join(directory, os.path.expanduser(path))
    real = os.path.realpath(path)
    names = [in_project(path, root, directory), in_project(real, os.path.realpath(root), directory)]
    for found in (os.path.abspath(path), real):
        names += [
            in_project(found, around, directory)
            for around in _projects_around(os.path.dirname(found))
        ]
    return list(dict.fromkeys(names))


def checked_pattern(text: str, root: str, directory: str) -> str:
    """Return the stored form of a pattern that a user typed.

    Raise BadInput for an invalid pattern.
    """
    if not text.strip():
        raise BadInput("a pattern is empty. Name one or more files, such as 'src/api/**'.")
    if "\0" in text:
        raise BadInput("a pattern contains a NUL character. No path can contain a NUL character.")
    opening, closing = text.find("{"), text.rfind("}")
    if 0 <= opening < text.find(",") < closing and not os.path.lexists(
        os.path.join(directory, text)
    ):
        raise BadInput(
            f"{text[:80]!r} is not a pattern: braces are not supported. Pass each pattern as "
            f"an "
            f"argument of its own."
        )
    pattern = _real(text, root, directory)
    while pattern.endswith("/**"):
        pattern = pattern.removesuffix("/**")
    pattern = pattern or _ANY_DEPTH
    try:
        size = len(_as_name(pattern).encode())
    except UnicodeEncodeError:
        raise BadInput(f"the pattern {text[:80]!a} is not valid UTF-8.") from None
    if size > MAX_NAME_BYTES:
        raise BadInput(
            f"the pattern {text[:60]!r}… is too long. Reserve a directory above this path, or "
            "use * for a part of the path."
        )
    return pattern


def _real(text: str, root: str, directory: str) -> str:
    """Return a pattern relative to the project's root, with its symlinks resolved.

    With unresolved symlinks, one file would have two names.
    """
    names = os.path.join(directory, text).split("/")
    plain = next((at for at, name in enumerate(names) if "*" in name or "?" in name), len(names))
    fixed = os.path.realpath("/".join(names[:plain]) or "/")
    pattern, root = os.path.join(fixed, *names[plain:]), os.path.realpath(root)
    if not f"{pattern}/".startswith(root.rstrip("/") + "/"):
        root = next(_projects_around(os.path.dirname(fixed)), root)
    return in_project(pattern, root, directory)


def _projects_around(directory: str) -> Iterator[str]:
    """Iterate over the roots of the projects that a directory is in, nearest first."""
    while True:
        if os.path.lexists(os.path.join(directory, _ROOT_MARKER)):
            yield directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent


def lock_name(pattern: str) -> str:
    """Return the name under which a store has the reservation of a path pattern.

    `pattern_of` is the inverse function.
    """
    return check_name(_as_name(pattern), "pattern")


def pattern_of(name: str) -> str:
    """Return the pattern that belongs to the name of a record. A name without escapes
    is the pattern itself.
    """
    from urllib.parse import unquote

    return unquote(name)


def overlap(one: str, other: str) -> bool:
    """Return whether there can be a file that both patterns name.

    Each argument may be a plain path, because a path is a pattern too.
    """
    if one.startswith("/") != other.startswith("/"):
        return False  # one pattern is in the project, the other is outside
    return _meet(
        _parts(one),
        _parts(other),
        _ANY_DEPTH,
        lambda a, b: a == b or _meet(a, b, "*", _same_character),
    )


def _parts(pattern: str) -> tuple[str, ...]:
    """Split a pattern at its slashes, and append `**`, because a pattern covers
    everything below its path.

    For an absolute path, the first part is an empty string.
    """
    return (*pattern.split("/"), _ANY_DEPTH)


def _same_character(one: str, other: str) -> bool:
    return one == other or "?" in (one, other)


def _meet(
    one: Sequence[str], other: Sequence[str], gap: str, same: Callable[[str, str], bool]
) -> bool:
    """Return whether two sequences can be equal. A `gap` in a sequence matches any
    number of elements.

    During the loop, `reached` holds each number N such that the first N elements of
    `other` can equal the elements of `one` that were read.
    """
    reached = _past_gaps({0}, other, gap)
    for element in one:
        if not reached:
            return False
        if element == gap:
            reached = set(range(min(reached), len(other) + 1))
        else:
            steps = {
                at + 1
                for at in reached
                if at < len(other) and other[at] != gap and same(element, other[at])
            }
            stays = {at for at in reached if at < len(other) and other[at] == gap}
            reached = _past_gaps(steps | stays, other, gap)
    return len(other) in reached


def _past_gaps(reached: set[int], other: Sequence[str], gap: str) -> set[int]:
    """Add the indexes behind gaps, because a gap may match no element at all."""
    found = set(reached)
    for start in reached:
        end = start
        while end < len(other) and other[end] == gap:
            end += 1
            found.add(end)
    return found


def _as_name(pattern: str) -> str:
    """Return the pattern as a valid name: characters that a name forbids are escaped as
    in a URL.
    """
    name = "".join(
        each
        if each.isprintable() and each not in "%/\\"
        else "".join(f"%{byte:02X}" for byte in each.encode())
        for each in pattern
    )
    return f"%{ord(name[0]):02X}{name[1:]}" if name[0] in ".-" else name


def _composed(path: str) -> str:
    """Return the path in Unicode form NFC.

    Some systems write an accented letter as two characters.
    """
    if path.isascii():
        return path
    from unicodedata import normalize

    return normalize("NFC", path)
