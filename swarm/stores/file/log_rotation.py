"""How a log is rotated: the live file is renamed, and becomes a part of the log.

`log_parts` describes the files. `rotate` makes a directory and renames the live file
into that directory. Writers may have the file open during the rename, so three rules
apply.

1. A part has an end. The first process that creates the file `end` decides the end
   (`log_parts.decide_end`). Readers ignore bytes that a late writer adds behind the
   end. The late writer notices that the live path is another file than the file it
   wrote to. After that, the late writer appends its line again.
2. A process decides the end of the last part before it writes to a new live file.  So
   all lines of a part come before all lines of later files.
3. A rotation removes the empty directories of other rotations before its own rename. So
   the kernel refuses the rename of another rotation, however long its process was
   stopped. So the numbers of parts follow the order in which the parts were filled.

`log_writer` obeys rules 1 and 2, and this module obeys rule 3.  Promised: a rotation
neither loses nor reorders a line.
"""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time
import stat

from swarm.errors import StoreError
from swarm.stores.file.log_parts import (
    decide_end,
    find_parts,
    has_part_file,
    list_rotations,
    not_a_regular_file,
    note_last_number,
)
from swarm.stores.file.syscalls import DIR_MODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def rotate(
    path: str, parts_dir: str, *, min_bytes: int, make_dirs: Callable[[str], None]
) -> str | None:
    """Rotate the log if its live file has `min_bytes` bytes. Return the part's
    directory.

    Return None if the live file is smaller, or if another process rotated the log just
    now.  Raise StoreError if the live file is a symbolic link.
    """
    try:
        live = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(live.st_mode):
        raise StoreError(
            f"{path} is a symbolic link and is not rotated. Rotate the target of the link yourself."
        )
    if not stat.S_ISREG(live.st_mode):
        raise not_a_regular_file(path)
    if live.st_size < min_bytes:
        return None
    make_dirs(parts_dir)
    number = find_parts(parts_dir).last + 1
    part = f"{parts_dir}/{number:010d}-{os.urandom(4).hex()}"
    os.mkdir(part, DIR_MODE)
    try:
        if not _stop_other_rotations(parts_dir, part, number):
            _remove_if_empty(part)
            return None
        os.rename(path, f"{part}/part")
    except FileNotFoundError:  # another process stopped this rotation, or removed the file
        _remove_if_empty(part)
        return None
    except BaseException:
        _remove_if_empty(part)
        raise
    decide_end(part)
    note_last_number(parts_dir, number)
    return part


def _stop_other_rotations(parts_dir: str, own: str, number: int) -> bool:
    """Remove the empty directories of other rotations, so that their renames fail.

    Return False if another rotation has made a part with this number or a later number.
    """
    others = [
        (other, path)
        for other, path in list_rotations(parts_dir)
        if path != own and not _remove_if_empty(path)
    ]
    return not any(other >= number and has_part_file(path) for other, path in others)


def _remove_if_empty(path: str) -> bool:
    """Remove a directory. Return False if the directory is not empty."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True
