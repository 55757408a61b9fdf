"""Compare-and-swap for the files of one directory.

A filesystem can create a file only if the file does not exist. No system call replaces
or removes a file only if the file is unchanged since it was compared. A process may be
stopped between comparing and acting for any length of time, even inside the system
call. This module adds a compare-and-swap for files.

    <live>/<name><suffix>                    a record, the only truth
    <private>/scratch/s<random>/             the scratch directory of a process
    <private>/intents/<name>~<scratch>~<n>   this process is about to change this record

A process changes a record by one rename: out of its scratch directory (`replace`) or
into it (`remove`). The kernel refuses a rename through a directory that is gone, even
if the kernel had resolved the path before. So removing a scratch directory *revokes*
every change that its owner has in flight. The owner of a revoked change gets ENOENT and
starts again.

The protocol has five rules. If one rule is left out, the proof finds two holders of a
lock.

1. To change a record: announce an intent; revoke the scratch directories of all other
   intents for the record; compare; rename; remove the intent.
2. To create a record: write it in the scratch directory; `link` it to its name; revoke
   the scratch directories of all its intents; read it back.
3. The owner of an intent removes the intent after its last rename.  Another process may
   remove the intent after it has revoked the scratch directory that the intent names.
4. If a process finds another intent with its own scratch directory, it raises Busy and
   changes nothing. The other intent belongs to another thread, or to code that a signal
   handler interrupted.
5. Names of scratch directories, and of the files in them, are never used twice.  A
   forked child makes a scratch directory of its own.

Why this is safe: of two processes that change one record, one process announced its
intent later. The later process listed the intents when both intents were there. Before
it compared, the later process revoked the scratch directory of the earlier process. If
the earlier process had renamed before, the comparison sees the new record. If not, the
rename of the earlier process fails.

Revoking is always safe: it costs the owner a retry and never a record. A further rule
lets every process finish. Of two processes that change one record, the process with the
smaller scratch name goes on. The process with the larger scratch name raises Busy,
unless the other intent is older than INTENT_TIMEOUT.

Promised: `replace` and `remove` change exactly the record that was compared.  `create`
never shows a half-written record.  A person may remove or write a record at any moment.

Not promised:

- A record that a person writes between a process's comparison and its rename may be
  lost.
- No promise holds while another program deletes intents of live processes.
- No promise holds on a filesystem that lists names in another form than they were
  given: changes fail.
- No promise holds for processes of several users: a process cannot revoke the scratch
  directory of another user. A scratch directory that cannot be removed is an error.
"""

from __future__ import annotations

import errno
import posix as os  # importing os would cost a command a tenth of its time

from swarm.errors import Busy
from swarm.stores.file.syscalls import Filesystem, list_if_there, retry_if_removed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SUFFIX = ".lock"
INTENT_TIMEOUT = 3.0  # seconds after which an intent counts as left by a crash
GARBAGE_AGE = 3600.0  # seconds after which any file in <private> counts as left by a crash
GARBAGE_BATCH = 16  # entries examined when a scratch directory is made


class SwapDirectory:
    """Compare-and-swap for the files of `live`, with its own files in `private`.

    Threads may share the object, and so may a child that is forked between two calls.
    """

    DIRECTORIES = ("scratch", "intents")

    def __init__(
        self,
        live: str,
        private: str,
        *,
        make_dirs: Callable[[str], None],
        fs: Filesystem,
        suffix: str = SUFFIX,
    ) -> None:
        self._live = live
        self._suffix = suffix
        self._private = private
        self._scratches = private + "/scratch"
        self._intents = private + "/intents"
        self._make_dirs = make_dirs
        self._fs = fs
        self._own = (0, "")  # the pid of the scratch directory's maker, and its name
        self._numbers = iter(range(1 << 62))  # each number once, in any thread, without itertools

    def path(self, name: str) -> str:
        return f"{self._live}/{name}{self._suffix}"

    def read(self, name: str) -> bytes | None:
        try:
            return self._fs.read(self.path(name))
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        found = list_if_there(self._fs.names, self._live)
        records = (name for name in found if name.endswith(self._suffix) and name[0] != ".")
        return sorted(name.removesuffix(self._suffix) for name in records)

    def age(self, name: str) -> float:
        """Return the seconds since the record was written, 0 if there is no record."""
        try:
            return self._fs.age(self.path(name))
        except FileNotFoundError:
            return 0.0

    def create(self, name: str, data: bytes) -> bool:
        """Create the record.

        Return False if a record exists, or if the new record is gone already.
        """
        return retry_if_removed(lambda: self._create(name, data), self._lay_out, self._private)

    def replace(self, name: str, old: bytes, new: bytes) -> bool:
        """Replace the record. Return False if the record does not equal `old`. Raise
        Busy if another process is changing the record.
        """
        return retry_if_removed(lambda: self._change(name, old, new), self._lay_out, self._private)

    def remove(self, name: str, old: bytes) -> bool:
        """Remove the record. Return False if the record does not equal `old`. Raise
        Busy if another process is changing the record.
        """
        return retry_if_removed(lambda: self._change(name, old, None), self._lay_out, self._private)

    def close(self) -> None:
        """Remove this process's scratch directory.

        The next change makes another scratch directory.
        """
        owner, scratch = self._own
        if scratch and owner == os.getpid():
            self._quietly(self._revoke, scratch)
        self._own = (0, "")

    def __del__(self) -> None:
        # `os` is None once the interpreter has cleared the module.  An interrupt may have
        # ended `__init__`.
        if os is not None and hasattr(self, "_own"):
            self.close()  # only tidies up: without `close` the directory becomes garbage

    def collect_garbage(self, age: float = GARBAGE_AGE, batch: int = GARBAGE_BATCH) -> None:
        """Remove up to `batch` entries of each kind that are older than `age`."""
        for scratch in _sample(list_if_there(self._fs.own_names, self._scratches), batch):
            if scratch != self._own[1] and _is_scratch(scratch):
                self._quietly(self._collect, f"{self._scratches}/{scratch}", age, scratch)
        for intent in _sample(list_if_there(self._fs.own_names, self._intents), batch):
            self._quietly(self._collect, f"{self._intents}/{intent}", age, _scratch_of(intent))

    def remove_private(self) -> None:
        """Remove everything but the records. Processes that are changing a record start
        their change again.
        """
        self.close()
        self._quietly(self.collect_garbage, -1.0, 1_000_000)
        for path in (self._intents, self._scratches, self._private):
            self._quietly(self._fs.rmdir, path)

    def _create(self, name: str, data: bytes) -> bool:
        scratch, number = self._next_file()
        draft = f"{self._scratches}/{scratch}/{number}"
        created = False
        try:
            self._fs.write_new(draft, data)
            self._fs.link(draft, self.path(name))
            created = True
        except FileExistsError:
            pass
        except BaseException as error:
            self._clean_up(scratch, draft, error)
            raise
        self._quietly(self._fs.unlink, draft)
        if not created:
            return False
        self._revoke_all(self._intents_for(name))
        return self.read(name) == data

    def _change(self, name: str, old: bytes, new: bytes | None) -> bool:
        """Replace the record `old` by `new`, or remove the record if `new` is None."""
        scratch, number = self._next_file()
        draft = f"{self._scratches}/{scratch}/{number}"
        move = (self.path(name), draft) if new is None else (draft, self.path(name))
        intent = f"{name}~{scratch}~{number}"
        try:
            if new is not None:
                self._fs.write_new(draft, new)
                self._fs.sync_content(draft)  # before the intent: a disk may be slow
            self._fs.write_new(f"{self._intents}/{intent}", b"")
            try:
                self._revoke_rivals(name, intent, scratch)
                changed = self.read(name) == old
                if changed:
                    self._fs.rename(*move)
            finally:
                self._quietly(self._fs.unlink, f"{self._intents}/{intent}")
        except BaseException as error:
            self._clean_up(scratch, draft, error)
            raise
        if new is None or not changed:
            self._quietly(self._fs.unlink, draft)
        return changed

    def _clean_up(self, scratch: str, draft: str, error: BaseException) -> None:
        """Give up the scratch directory if another process has revoked it.

        If no process has revoked the scratch directory, keep it for the next change: a
        full disk may have no room for a new directory.
        """
        if not isinstance(error, FileNotFoundError):
            self._quietly(self._fs.unlink, draft)
            return
        if self._own[1] == scratch:
            self._own = (0, "")
        self._quietly(self._revoke, scratch)

    def _revoke_rivals(self, name: str, mine: str, scratch: str) -> None:
        rivals = self._intents_for(name)
        if (
            mine not in rivals
        ):  # other processes cannot see the intent: it was removed, or has another name
            raise FileNotFoundError(errno.ENOENT, "is not listed", f"{self._intents}/{mine}")
        rivals.remove(mine)
        for rival in rivals:
            if _scratch_of(rival) <= scratch and self._is_active(rival):
                raise Busy(f"another process is changing {name} right now. Try again.")
        self._revoke_all(rivals)

    def _is_active(self, intent: str) -> bool:
        try:
            young = self._fs.age(f"{self._intents}/{intent}") <= INTENT_TIMEOUT
        except FileNotFoundError:
            return False
        return young and self._fs.exists(f"{self._scratches}/{_scratch_of(intent)}")

    def _intents_for(self, name: str) -> list[str]:
        found = list_if_there(self._fs.names, self._intents)
        return [entry for entry in found if _scratch_of(entry) and entry.rsplit("~", 2)[0] == name]

    def _revoke_all(self, intents: list[str]) -> None:
        for intent in intents:
            self._revoke(_scratch_of(intent))
            self._quietly(self._fs.unlink, f"{self._intents}/{intent}")

    def _revoke(self, scratch: str) -> None:
        """Remove a scratch directory, so that renames by its owner fail."""
        path = f"{self._scratches}/{scratch}"
        while True:
            try:
                for name in self._fs.own_names(path):
                    self._unlink_if_there(f"{path}/{name}")
                self._fs.rmdir(path)
                return
            except FileNotFoundError:
                return
            except NotADirectoryError:  # a file of another program: no rename goes through it
                self._unlink_if_there(path)
                return
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def _collect(self, path: str, age: float, scratch: str) -> None:
        if self._fs.age(path) > age:
            if scratch:
                self._revoke(scratch)
            self._unlink_if_there(path)

    def _next_file(self) -> tuple[str, str]:
        """Return the scratch directory of this process and a new name for a file in it."""
        owner, scratch = self._own
        if not scratch or owner != os.getpid():
            scratch = self._make_scratch()
            self.collect_garbage()
        return scratch, f"{next(self._numbers):x}"

    def _make_scratch(self) -> str:
        scratch = "s" + os.urandom(8).hex()
        self._fs.mkdir(f"{self._scratches}/{scratch}")
        owner, other = self._own
        if other and owner == os.getpid():  # another thread was faster
            self._fs.rmdir(f"{self._scratches}/{scratch}")
            return other
        self._own = (os.getpid(), scratch)
        return scratch

    def _unlink_if_there(self, path: str) -> None:
        try:
            self._fs.unlink(path)
        except FileNotFoundError:
            pass

    def _quietly(self, remove: Callable[..., None], *args: object) -> None:
        """Remove files that are not needed any more, and ignore errors.

        A file that cannot be removed stays until a later garbage collection.
        """
        try:
            remove(*args)
        except OSError:
            pass

    def _lay_out(self) -> None:
        for path in (self._live, self._scratches, self._intents):
            self._make_dirs(path)


def _scratch_of(intent: str) -> str:
    """Return the scratch directory that an intent names, "" for any other name.

    Other programs can write to the directory of intents, so only a valid name is used
    as a path.
    """
    parts = intent.rsplit("~", 2)  # a record's name may contain the separator
    return parts[1] if len(parts) == 3 and _is_scratch(parts[1]) else ""


def _is_scratch(name: str) -> bool:
    return len(name) == 17 and name[0] == "s" and not name[1:].strip("0123456789abcdef")


def _sample(names: list[str], count: int) -> list[str]:
    """Return some names of a long list, and other names at the next call."""
    start = int.from_bytes(os.urandom(2), "big") % max(1, len(names))
    return (names[start:] + names[:start])[:count]
