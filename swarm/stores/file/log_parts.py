"""The files of a log: the live file, and the parts into which it was rotated.

    <parts_dir>/<number>-<random>/   made by one rotation; empty until its rename
        part                         the file that was the live file
        end                          a symlink; its target is the offset at which the
                                     part ends, behind a whole line
    <parts_dir>/.<number>/           empty; the number of the last part, which stays
                                     when a user removes the parts
    <parts_dir>/trimmed-<number>-<end>-<fingerprint>/
                                     empty; this part and all parts before it were
                                     forgotten, see `log_trim`

`log_rotation` makes these files. Readers ignore all bytes of `part` behind its end. The
number of a part is used once, unless a user removes `.<number>` too. Entries that swarm
did not make do not hide lines of the log:

- a part that was removed is skipped;
- if `end` is invalid, the part ends with its file;
- anything but a real directory is ignored.

A part that exists and cannot be read is an error.
"""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import stat

from swarm.stores.file.line_reader import last_newline
from swarm.stores.file.syscalls import DIR_MODE

_MAX_DIGITS = 18  # of a part's number; swarm writes 10
_DIGITS_OF_LAST = 10
TRIMMED = "trimmed"


class OpenFile:
    """A descriptor, which only this object closes.

    In a forked child the object closes nothing: the number may belong to another file
    by now.
    """

    __slots__ = ("fd", "pid")

    def __init__(self, fd: int) -> None:
        self.pid = os.getpid()
        self.fd = fd

    def close(self) -> None:
        # Forget the number first.  An interrupt after the system call would leave it, and
        # the program may open another file with this number.
        fd, self.fd = self.fd, -1
        # `os` is None once the interpreter has cleared the module.
        if fd >= 0 and os is not None and self.pid == os.getpid():
            os.close(fd)


class Trimmed:
    """The last part that was forgotten, its end and its fingerprint. The number is 0 if no
    part was.
    """

    __slots__ = ("directory", "end", "fingerprint", "number")

    def __init__(
        self, number: int = 0, end: int = 0, fingerprint: str = "", directory: str = ""
    ) -> None:
        self.number = number
        self.end = end
        self.fingerprint = fingerprint
        self.directory = directory


class Parts:
    """The parts of a log in `parts_dir`: `directories` by number, the `last` number in
    use so far, and which parts were `trimmed`.
    """

    __slots__ = ("directories", "last", "parts_dir", "trimmed")

    def __init__(
        self, parts_dir: str, directories: dict[int, str], last: int, trimmed: Trimmed
    ) -> None:
        self.parts_dir = parts_dir
        self.directories = directories
        self.last = max((*directories, last, trimmed.number))
        self.trimmed = trimmed

    def newest(self) -> str:
        """Return the directory of the newest part, "" if there is no part."""
        return self.directories[max(self.directories)] if self.directories else ""


def find_live(path: str) -> tuple[tuple[int, int] | None, int]:
    """Return the identity and the size of the live file; (None, 0) if there is no live
    file.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """Return the identity of a file: device and inode. No other existing file has the
    same identity.
    """
    return found.st_dev, found.st_ino


def find_parts(parts_dir: str) -> Parts:
    """Find the parts of a log."""
    by_number: dict[int, list[str]] = {}
    names = _list_directories(parts_dir)
    trimmed = _trimmed(names)
    for number, path in _rotations(parts_dir, names):
        if number > trimmed.number:
            by_number.setdefault(number, []).append(path)
    last = max(by_number, default=0)
    directories = {}
    for number, paths in by_number.items():
        # A rotation removes the empty directories of other rotations.  So only the last
        # directory, or one of several with the same number, can be empty.
        may_be_empty = number == last or len(paths) > 1
        filled = [path for path in paths if has_part_file(path)] if may_be_empty else paths
        if filled:
            directories[number] = min(filled)  # more than one only where a user copied a part
    return Parts(parts_dir, directories, max(_last_numbers(names), default=0), trimmed)


def find_trimmed(parts_dir: str) -> Trimmed:
    """Find which parts were forgotten."""
    return _trimmed(_list_directories(parts_dir))


def note_last_number(parts_dir: str, number: int) -> None:
    """Store the number of a new part, so that no later part gets the same number.

    Ignore errors. If a part is removed and its number is not stored, readers read from
    the oldest part again.
    """
    try:
        os.mkdir(f"{parts_dir}/.{number:0{_DIGITS_OF_LAST}d}", DIR_MODE)
        for earlier in _last_numbers(_list_directories(parts_dir)):
            if earlier < number:
                os.rmdir(f"{parts_dir}/.{earlier:0{_DIGITS_OF_LAST}d}")
    except OSError:
        pass


def open_part(part: str) -> tuple[OpenFile, int] | None:
    """Open a part, and return its file and the offset at which the part ends.

    If no process has decided this offset yet, decide it. Return None if the part was
    removed.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        file = OpenFile(os.open(f"{part}/part", flags))
    except FileNotFoundError:
        return None
    try:
        size = stat_regular_file(file.fd, f"{part}/part").st_size
        while (end := _read_end(part)) is None:
            if not has_part_file(part):  # a trim removes the part before its end
                file.close()
                return None
            try:
                os.symlink(str(last_newline(file.fd, size)), f"{part}/end")
            except (FileExistsError, FileNotFoundError):
                pass
        size = os.fstat(file.fd).st_size  # another process may have decided for a later end
        return file, last_newline(file.fd, min(int(end), size) if _is_number(end) else size)
    except BaseException:
        file.close()
        raise


def decide_end(part: str) -> int:
    """Return the offset at which a part ends. Readers ignore all bytes behind this
    offset.

    If no process has decided this offset yet, decide it.
    """
    opened = open_part(part)
    if opened is None:
        return 0
    file, end = opened
    file.close()
    return end


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
    return _rotations(parts_dir, _list_directories(parts_dir))


def list_trims(parts_dir: str) -> list[tuple[int, str]]:
    """Return the number and path of each directory that a trim made."""
    found = _trims(_list_directories(parts_dir))
    return [(each.number, f"{parts_dir}/{each.directory}") for each in found]


def _rotations(parts_dir: str, names: list[str]) -> list[tuple[int, str]]:
    numbered = ((name.partition("-")[0], f"{parts_dir}/{name}") for name in names)
    return [
        (int(number), path)
        for number, path in numbered
        if _is_number(number) and len(number) <= _MAX_DIGITS
    ]


def _trimmed(names: list[str]) -> Trimmed:
    return max(_trims(names), key=lambda each: each.number, default=Trimmed())


def _trims(names: list[str]) -> list[Trimmed]:
    found = []
    for name in names:
        word, *fields = name.split("-")
        is_trim = word == TRIMMED and len(fields) == 3 and all(map(_is_number, fields[:2]))
        if is_trim and len(fields[0]) <= _MAX_DIGITS and len(fields[1]) <= _MAX_DIGITS:
            found.append(Trimmed(int(fields[0]), int(fields[1]), fields[2], name))
    return found


def _last_numbers(names: list[str]) -> list[int]:
    """Return the numbers that `note_last_number` stored: one, or two during a change."""
    return [
        int(name[1:])
        for name in names
        if name[0] == "." and _is_number(name[1:]) and len(name) == 1 + _DIGITS_OF_LAST
    ]


def _list_directories(parts_dir: str) -> list[str]:
    try:
        with os.scandir(parts_dir) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _read_end(part: str) -> str | None:
    """Return the content of the symlink `end` of a part, None if there is no such
    symlink yet.
    """
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
