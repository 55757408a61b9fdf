"""The store on files: records, tokens, logs and caches under one state directory.

The module `swap` changes records, `tokens` counts tokens, and `log` appends lines. This
module combines these modules into the methods of `stores.contract.Store`. Every OSError
becomes a StoreError that says what to do.
"""

from __future__ import annotations

from swarm.errors import StoreError
from swarm.stores.file.state_dir import StateDir
from swarm.stores.file.syscalls import Filesystem, file_name, names_of
from swarm.system.clock import Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from swarm.stores.cache import FileCache
    from swarm.stores.file.log import FileLog
    from swarm.stores.file.swap import SwapDirectory
    from swarm.stores.file.tokens import TokenCounters
    from swarm.system.inotify import InotifyPool, Watch

_PUBLIC_LOG = "status"  # users read this log, so it is not in a directory with a dot
_WATCH_RENEWAL = 1.0  # seconds; the watched directory may have been replaced meanwhile


def _explains_errors(*names: str, writes: bool) -> Callable[[type[FileStore]], type[FileStore]]:
    """Make the named methods raise StoreError with advice in place of OSError.

    With `writes`, refuse root in the directory of another user.
    """

    def explaining(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: FileStore, /, *args: Any, **kwargs: Any) -> Any:
            try:
                if writes:
                    self._directory.refuse_root()
                return method(self, *args, **kwargs)
            except OSError as error:
                raise self._directory.as_store_error(error) from error
            except UnicodeEncodeError as error:
                raise self._unnamed(error) from error

        call.__doc__ = method.__doc__
        return call

    def decorate(kind: type[FileStore]) -> type[FileStore]:
        for name in names:
            setattr(kind, name, explaining(getattr(kind, name)))
        return kind

    return decorate


@_explains_errors(
    *("prepare", "create", "replace", "remove", "next_token", "advance_tokens"),
    *("append", "rotate", "trim", "cache_put"),
    writes=True,
)
@_explains_errors(
    *("read", "keys", "age", "watch", "token_bound", "highest_token"),
    *("read_log", "tail", "wait", "is_trimmed"),
    writes=False,
)
class FileStore:
    """The store in a state directory. Nothing is created before the first write.

    Threads and forked children may share the object. With `durable`, every confirmed
    change is on disk and survives a loss of power.
    """

    def __init__(
        self,
        root: str,
        *,
        clock: Clock | None = None,
        trusted: bool = True,
        log_max_bytes: int = 0,
        durable: bool = False,
        filesystem: Filesystem | None = None,
    ) -> None:
        self.root = root
        self.clock = clock or Clock()
        self.log_max_bytes = log_max_bytes
        self.durable = durable
        self._directory = StateDir(root, trusted=trusted)
        self._filesystem = filesystem or Filesystem()
        self._make_dirs = self._directory.make
        self._sync_dir: Callable[[str], None] | None = None
        if durable:
            self._sync_changes()
        self._records: dict[str, SwapDirectory] = {}
        self._counters: dict[str, TokenCounters] = {}
        self._logs: dict[str, FileLog] = {}
        self._inotify: InotifyPool | None = None
        self._directory.refuse_untrusted()

    def prepare(self, namespace: str = "") -> None:
        """Create the state directory, and a namespace in it, before the first write."""
        self._make_dirs(f"{self.root}/{namespace}" if namespace else self.root)

    def read(self, key: str) -> bytes | None:
        records, name = self._find(key)
        return records.read(name)

    def create(self, key: str, data: bytes) -> bool:
        records, name = self._find(key)
        return records.create(name, data)

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        records, name = self._find(key)
        return records.replace(name, old, new)

    def remove(self, key: str, old: bytes) -> bool:
        records, name = self._find(key)
        return records.remove(name, old)

    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        names = names_of(self._records_of(namespace).names())
        keys = [f"{namespace}/{name}" for name in names]
        later = [key for key in keys if key > after] if after else keys
        return later[:limit] if limit else later

    def age(self, key: str) -> float:
        records, name = self._find(key)
        return records.age(name)

    def where(self, key: str) -> str:
        records, name = self._find(key)
        return records.path(name)

    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        records, name = self._find(key)
        folder, _, file = records.path(name).rpartition("/")
        # Watch the record itself if it exists: other locks must not wake the caller.
        with self._watch(records.path(name) if data is not None else folder) as watch:
            if records.read(name) == data:
                watch.wait(file if data is None else "", min(timeout, _WATCH_RENEWAL))

    def next_token(self, key: str) -> int:
        namespace, _, name = key.partition("/")
        return self._counters_of(namespace).next(name)

    def token_bound(self, key: str) -> int:
        namespace, _, name = key.partition("/")
        return self._counters_of(namespace).upper_bound(name)

    def highest_token(self, namespace: str) -> int:
        return self._counters_of(namespace).highest()

    def advance_tokens(self, namespace: str, past: int) -> None:
        self._counters_of(namespace).advance_past(past)

    def append(self, log: str, line: bytes) -> str:
        return self._log(log).append(line)

    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        return self._log(log).read(cursor, limit)

    def tail(self, log: str, count: int, limit: int = 1 << 62) -> tuple[list[bytes], str]:
        return self._log(log).tail(count, limit)

    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        file_log = self._log(log)
        deadline = self.clock.steady() + timeout
        while True:
            folder, _, file = _resolved(self._log_path(log)).rpartition("/")
            with self._watch(folder) as watch:
                if file_log.has_more(cursor):
                    return True
                left = deadline - self.clock.steady()
                if left <= 0:
                    return False
                watch.wait(file, min(left, _WATCH_RENEWAL))
                if file_log.has_more(cursor):  # before the slower renewal of the watch
                    return True

    def continues(self, before: str, after: str) -> bool:
        from swarm.stores.file.log_cursor import continues

        return continues(before, after)

    def blocks(self, log: str, cursor: str) -> Iterator[tuple[bytes, str]]:
        return self._explained(self._log(log).blocks(cursor))

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        return self._explained(self._log(log).numbered())

    def search(self, log: str, *texts: bytes) -> Iterator[bytes]:
        return self._explained(self._log(log).search(texts))

    def rotate(self, log: str) -> bool:
        return self._log(log).rotate()

    def trim(self, log: str, cursor: str) -> None:
        self._log(log).trim(cursor)

    def is_trimmed(self, log: str) -> bool:
        return self._log(log).is_trimmed()

    def cache_put(self, name: str, data: bytes) -> None:
        self._cache().put(name, data)

    def cache_get(self, name: str) -> bytes | None:
        return self._cache().get(name)

    def close(self) -> None:
        for records in tuple(self._records.values()):  # another thread may add an entry
            records.close()
        for file_log in tuple(self._logs.values()):
            file_log.close()
        if self._inotify is not None:
            self._inotify.close()

    def _sync_changes(self) -> None:
        from swarm.stores.file.durable import DurableFilesystem

        self._filesystem = syncing = DurableFilesystem(self.root)
        self._sync_dir = syncing.sync_path

        def make_dirs(path: str) -> None:
            self._directory.make(path)
            syncing.sync_path(path)

        self._make_dirs = make_dirs

    def _find(self, key: str) -> tuple[SwapDirectory, str]:
        namespace, _, name = key.partition("/")
        return self._records_of(namespace), file_name(name)

    def _records_of(self, namespace: str) -> SwapDirectory:
        if namespace not in self._records:
            from swarm.stores.file.swap import SwapDirectory  # a command loads what it uses

            live = f"{self.root}/{namespace}"
            private = self._private(namespace, SwapDirectory.DIRECTORIES)
            self._directory.refuse_links(live)
            self._records[namespace] = SwapDirectory(
                live, private, make_dirs=self._make_dirs, fs=self._filesystem
            )
        return self._records[namespace]

    def _counters_of(self, namespace: str) -> TokenCounters:
        if namespace not in self._counters:
            from swarm.stores.file.tokens import TokenCounters

            root = self.root  # `self` in the lambda would be a reference cycle
            private = self._private(namespace, TokenCounters.DIRECTORIES)
            self._counters[namespace] = TokenCounters(
                private,
                boot=self.clock.boot,
                now=self.clock.now,
                were_given=lambda: _names_tokens(root, namespace),
                make_dirs=self._make_dirs,
                fs=self._filesystem,
            )
        return self._counters[namespace]

    def _private(self, namespace: str, directories: tuple[str, ...]) -> str:
        private = f"{self.root}/.{namespace}"
        self._directory.refuse_links(private, *(f"{private}/{name}" for name in directories))
        return private

    def _log(self, log: str) -> FileLog:
        if log not in self._logs:
            from swarm.stores.file.log import FileLog

            parts = f"{self.root}/.{log}"
            self._directory.refuse_links(parts)
            self._logs[log] = FileLog(
                self._log_path(log),
                parts,
                make_dirs=self._make_dirs,
                max_bytes=self.log_max_bytes if log == _PUBLIC_LOG else 0,
                sync_dir=self._sync_dir,
            )
        return self._logs[log]

    def _log_path(self, log: str) -> str:
        return f"{self.root}/{log}.log" if log == _PUBLIC_LOG else f"{self.root}/.{log}/{log}.log"

    def _cache(self) -> FileCache:
        from swarm.stores.cache import FileCache

        return FileCache(self.root, self._directory)

    def _watch(self, path: str) -> Watch:
        if self._inotify is None:
            from swarm.system.inotify import InotifyPool

            self._inotify = InotifyPool()
        return self._inotify.watch(path)

    def _explained(self, items: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from items
        except OSError as error:
            raise self._directory.as_store_error(error) from error
        except UnicodeEncodeError as error:
            raise self._unnamed(error) from error

    def _unnamed(self, error: UnicodeEncodeError) -> StoreError:
        return StoreError(
            f"the locale's encoding {error.encoding} cannot name the state directory "
            f"{self.root!a}. Set PYTHONUTF8=1."
        )


def _names_tokens(root: str, namespace: str) -> bool:
    from swarm.stores.file.layout import names_tokens  # needed once in the life of a directory

    return names_tokens(root, namespace)


def _resolved(path: str) -> str:
    """Return the path of the log file with symlinks resolved, because inotify watches
    the directory of the file.
    """
    from os.path import islink, realpath

    return realpath(path) if islink(path) else path
