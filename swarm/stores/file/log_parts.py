"""The files of a log: the live file, and the parts into which it was rotated.

    <parts_dir>/<number>-<random>/   made by one rotation; empty until its rename
        part                         the file that was the live file
        end                          a symlink; its target is the number of bytes of
                                     `part` that count, up to the end of a whole line

`log_rotation` makes the parts.  Entries that swarm did not make hide no lines:

- a part that was removed is skipped;
- an invalid `end` counts as the end of the file;
- anything but a real directory is ignored.

A part that exists and cannot be read is an error.
"""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import stat

from swarm.stores.file.line_reader import last_newline

_MAX_DIGITS = 18  # of a part's number; swarm writes 10


def find_live(path: str) -> tuple[tuple[int, int] | None, int]:
    """Return the identity and the size of the live file, (None, 0) without a live file."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """Return the numbers that no other existing file has."""
    return found.st_dev, found.st_ino


def find_parts(parts_dir: str) -> dict[int, str]:
    """Return the directories of the parts by their numbers."""
    by_number: dict[int, list[str]] = {}
    for number, path in list_rotations(parts_dir):
        by_number.setdefault(number, []).append(path)
    last = max(by_number, default=0)
    parts = {}
    for number, paths in by_number.items():
        # A rotation removes the empty directories of other rotations.  So only the last
        # directory, or one of several with the same number, can be empty.
        may_be_empty = number == last or len(paths) > 1
        filled = [path for path in paths if has_part_file(path)] if may_be_empty else paths
        if filled:
            parts[number] = min(filled)  # more than one only where a user copied a part
    return parts


def open_part(part: str) -> tuple[int, int] | None:
    """Open a part. Return its descriptor and the number of bytes that count.

    Decide the number of bytes if it is not decided yet.  Return None if the part was
    removed.
    """
    try:
        fd = os.open(f"{part}/part", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        size = stat_regular_file(fd, f"{part}/part").st_size
        while (end := _read_end(part)) is None:
            try:
                os.symlink(str(last_newline(fd, size)), f"{part}/end")
            except FileExistsError:
                pass
        size = os.fstat(fd).st_size  # again: another process may have decided for more bytes
        return fd, last_newline(fd, min(int(end), size) if _is_number(end) else size)
    except BaseException:
        os.close(fd)
        raise


def decide_end(part: str) -> int:
    """Return the number of bytes of a part that count.

    Decide the number if it is not decided yet.
    """
    opened = open_part(part)
    if opened is None:
        return 0
    os.close(opened[0])
    return opened[1]


def stat_regular_file(fd: int, path: str) -> os.stat_result:
    """Return the status of an open file. Raise OSError if the file is not regular."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise not_a_regular_file(path)
    return found


def not_a_regular_file(path: str) -> OSError:
    return OSError(errno.EINVAL, "is not a regular file", path)


def list_rotations(parts_dir: str) -> list[tuple[int, str]]:
    """Return the number and path of each directory that a rotation made."""
    try:
        with os.scandir(parts_dir) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    numbered = ((name.partition("-")[0], f"{parts_dir}/{name}") for name in names)
    return [
        (int(number), path)
        for number, path in numbered
        if _is_number(number) and len(number) <= _MAX_DIGITS
    ]


def _read_end(part: str) -> str | None:
    """Return the content of a part's `end`, None if the end is not decided yet."""
    try:
        return os.readlink(f"{part}/end")
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return ""  # not a symlink: swarm did not make this `end`


def has_part_file(path: str) -> bool:
    try:
        os.lstat(f"{path}/part")
    except FileNotFoundError:
        return False
    return True


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()  # isdigit alone is true of "²"
