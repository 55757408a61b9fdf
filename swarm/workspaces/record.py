"""The record beside each workspace, and the lock of a workspace.

    STATE_DIR/work/NAME             the workspace
    STATE_DIR/work/NAME.json        its record, written before the workspace is made
    STATE_DIR/work/NAME.lock        held by a process that makes, saves or removes it
    STATE_DIR/work/NAME.index       a temporary index
    STATE_DIR/work/NAME.removing    a workspace that is being removed

NAME is `refs.workspace_name`. Nothing is read out of a name: the record has the task and
the token. The kernel releases a lock when its process ends, so a killed process never
blocks another. A directory without a record is not swarm's, and stays as it is.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace

from swarm.errors import StoreError
from swarm.formats import json_codec
from swarm.system import process
from swarm.terminal.text import quoted

MAKING, READY, SAVED = "making", "ready", "saved"
RECORD, LOCK, INDEX, REMOVING = ".json", ".lock", ".index", ".removing"
NEW = ".new"  # a record that is being written
_TEMPORARY = (NEW, f"{INDEX}.lock", INDEX, LOCK)
_MAX_BYTES = 1 << 20


@dataclass(frozen=True)
class Record:
    """What swarm knows about a workspace.

    `start` is the commit that was checked out, `branch` the full ref of its branch, ""
    if there is none. `admin` is the name of its directory in `.git/worktrees`. `saved`
    is the commit of the last save, `reason` why the workspace must stay. `stays` says that
    only a person can change that.
    """

    task: str
    token: int
    base: str
    start: str
    branch: str = ""
    admin: str = ""
    state: str = MAKING
    conflicts: tuple[str, ...] = ()
    message: str = ""
    saved: str = ""
    reason: str = ""
    stays: bool = False
    pid: int = 0
    host: str = ""
    machine: str = ""
    pid_ns: str = ""

    @property
    def is_of_this_machine(self) -> bool:
        """Whether this process can see the processes that may use the workspace."""
        here = process.identity()
        return (self.host, self.machine, self.pid_ns) == (
            here["host"],
            here["machine"],
            here["pid_ns"],
        )


def new_record(task: str, token: int, base: str, start: str) -> Record:
    """Return the record of a workspace that this process makes."""
    here = process.identity()
    return Record(
        task,
        token,
        base,
        start,
        pid=os.getpid(),
        host=str(here["host"]),
        machine=str(here["machine"]),
        pid_ns=str(here["pid_ns"]),
    )


class WorkDirectory:
    """The directory `work` of a state directory, with workspaces and their records."""

    def __init__(self, state_dir: str) -> None:
        self.path = os.path.join(os.path.realpath(state_dir), "work")

    def file(self, name: str, kind: str = "") -> str:
        return os.path.join(self.path, name + kind)

    def create(self) -> None:
        """Create the directory. Raise StoreError if it is a link, or of another user."""
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            self.exists()
        except OSError as error:
            raise _failed("make", self.path, error) from error

    def exists(self) -> bool:
        """Return whether the directory exists.

        Raise StoreError if it is a link, or belongs to another user.
        """
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise StoreError(
                f"{self.path} is not used: it is no directory of this user. "
                f"Look at it, then move it away: ls -ld {quoted(self.path)}"
            )
        return True

    def names(self) -> list[str]:
        """Return the names of all workspaces with a record."""
        if not self.exists():
            return []
        return sorted(
            entry.removesuffix(RECORD) for entry in os.listdir(self.path) if entry.endswith(RECORD)
        )

    def leftovers(self) -> list[str]:
        """Return the names with files of a killed process, and without a record."""
        if not self.exists():
            return []
        with os.scandir(self.path) as entries:
            files = {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
        names = {
            file.removesuffix(kind) for file in files for kind in _TEMPORARY if file.endswith(kind)
        }
        return sorted(name for name in names if name + RECORD not in files)

    def read(self, name: str) -> Record | None:
        """Return the record of a workspace, None if it has none.

        Raise StoreError if the record cannot be read.
        """
        path = self.file(name, RECORD)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed("read", path, error) from error
        with open(fd, "rb") as file:
            data = file.read(_MAX_BYTES)
        try:
            return _record(json_codec.loads(data))
        except (ValueError, TypeError, KeyError):
            raise StoreError(
                f"{path} is damaged. The workspace beside it stays as it is: save what you need, "
                f"then remove both."
            ) from None

    def write(self, name: str, record: Record) -> None:
        """Write a record in one step. Raise StoreError if the disk is full."""
        path, scratch = self.file(name, RECORD), self.file(name, NEW)
        values = {**asdict(record), "conflicts": list(record.conflicts)}
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(scratch, flags, 0o600), "wb") as file:
                file.write(json_codec.dumps(values, own=True).encode() + b"\n")
            os.replace(scratch, path)
        except OSError as error:
            _unlink(scratch)
            raise _failed("write", path, error) from error

    def note(self, name: str, record: Record, **changes: object) -> Record:
        """Write changes of a record that only inform. A full disk does not matter."""
        changed = replace(record, **changes)  # type: ignore[arg-type]
        if changed != record:
            try:
                self.write(name, changed)
            except StoreError:
                return record
        return changed

    def forget(self, name: str) -> None:
        """Remove the record and the temporary files of a workspace.

        `locked` removes the lock.
        """
        for kind in (*_TEMPORARY[:-1], RECORD):
            _unlink(self.file(name, kind))

    @contextmanager
    def locked(self, name: str, *, wait: bool = True) -> Iterator[bool]:
        """Hold the lock of a workspace.

        Yield False if another process holds the lock and `wait` is false. At the end,
        remove the lock file if there is no record.
        """
        fd = self._lock(name, wait=wait)
        try:
            yield fd >= 0
        finally:
            if fd >= 0:
                if not os.path.lexists(self.file(name, RECORD)):
                    _unlink(self.file(name, LOCK))
                os.close(fd)

    def _lock(self, name: str, *, wait: bool) -> int:
        path = self.file(name, LOCK)
        while True:
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise _failed("make", path, error) from error
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                if _is_same(fd, path):
                    return fd
            except BlockingIOError:
                os.close(fd)
                return -1
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # the last holder has removed the file


def _record(values: object) -> Record:
    if not isinstance(values, dict):
        raise TypeError("not an object")
    known = {field.name for field in fields(Record)}
    record = Record(**{name: value for name, value in values.items() if name in known})
    texts = (record.task, record.base, record.start, record.branch, record.admin, record.state)
    if not all(isinstance(text, str) for text in texts) or type(record.token) is not int:
        raise ValueError("a field of another kind")
    return replace(record, conflicts=tuple(map(str, record.conflicts)))


def _is_same(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _failed(verb: str, path: str, error: OSError) -> StoreError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    advice = "Free some space; nothing is lost." if full else f"Look at it: ls -ld {quoted(path)}"
    return StoreError(f"cannot {verb} {path}: {error.strerror}. {advice}")
