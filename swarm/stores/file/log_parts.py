"""The parts that a log was rotated into, each a directory of its own; see `log` for how they come about.

    <parts>/<number>-<random>/      made by one rotation; empty until the live file has been renamed into it
        part                        the file
        end                         a symlink whose target is the number of bytes of `part` that count; only whole lines do

What swarm did not make itself there hides nothing: a part that somebody removed is passed over, an `end` that makes no sense
counts as the file's own, and only real directories are looked at. What is there and cannot be read is an error.
"""

from __future__ import annotations

import errno
import posix as os  # its calls; importing os would cost a command a tenth of its time
import stat

from swarm.stores.file.line_reader import last_newline


def filled(parts: str) -> dict[int, str]:
    """The parts of a log by their numbers."""
    claims: dict[int, list[str]] = {}
    for number, path in _rotations(parts):
        claims.setdefault(number, []).append(path)
    last = max(claims, default=0)
    found = {}
    for number, paths in claims.items():
        # Only the last can be empty, or one of two that claim the same number: each rotation removes all others.
        holding = paths if number < last and len(paths) == 1 else [path for path in paths if _holds_a_part(path)]
        if holding:
            found[number] = min(holding)  # two only where somebody has copied one
    return found


def open_part(part: str) -> tuple[int, int] | None:
    """A part, opened, and how many bytes of it count, which is decided if nobody has; None if somebody removed it."""
    try:
        fd = os.open(f"{part}/part", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = regular(fd, f"{part}/part").st_size
        while (said := _end_of(part)) is None:
            try:
                os.symlink(str(last_newline(fd, size)), f"{part}/end")
            except FileExistsError:
                pass
        size = os.fstat(fd).st_size  # after `end` was settled: it may have been settled for more
        return fd, last_newline(fd, min(int(said), size) if said.isascii() and said.isdigit() else size)
    except BaseException:
        os.close(fd)
        raise


def settle(part: str) -> int:
    """How many bytes of a part count; decides it if nobody has."""
    opened = open_part(part)
    if opened is None:
        return 0
    os.close(opened[0])
    return opened[1]


def outrun(parts: str, mine: str, number: int) -> bool:
    """Makes sure that no other rotation can fill a directory any more; False if one was faster."""
    others = [(other, path) for other, path in _rotations(parts) if path != mine and not remove_if_empty(path)]
    return not any(other >= number and _holds_a_part(path) for other, path in others)


def remove_if_empty(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def regular(fd: int, path: str) -> os.stat_result:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise not_a_file(path)
    return found


def not_a_file(path: str) -> OSError:
    return OSError(errno.EINVAL, "is not a regular file", path)


def _rotations(parts: str) -> list[tuple[int, str]]:
    try:
        with os.scandir(parts) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    numbered = ((name.partition("-")[0], f"{parts}/{name}") for name in names)
    return [(int(number), path) for number, path in numbered if number.isascii() and number.isdigit() and len(number) <= 18]


def _end_of(part: str) -> str | None:
    """What a part's `end` says, None if it is not settled."""
    try:
        return os.readlink(f"{part}/end")
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return ""  # not a link: swarm did not make it


def _holds_a_part(path: str) -> bool:
    try:
        os.lstat(f"{path}/part")
    except FileNotFoundError:
        return False
    return True
