"""The store on files: records in directories, logs in files, under one state directory. See `swap` and `log` for how."""

from __future__ import annotations

from swarm.stores.file.state_dir import StateDir
from swarm.stores.file.syscalls import Filesystem
from swarm.system.clock import Clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Concatenate, ParamSpec, TypeVar

    from swarm.stores.cache import FileCache
    from swarm.stores.file.log import Journal
    from swarm.stores.file.swap import Handover
    from swarm.stores.file.tokens import Tickets
    from swarm.system.inotify import InotifyPool, Watch

    P = ParamSpec("P")
    R = TypeVar("R")

_PUBLIC_LOG = "status"  # people read it where it lies; the others are swarm's own
_LONGEST_WAIT = 1.0  # seconds; a watch is set up anew this often, in case its directory was replaced


def _spoken(verb: Callable[Concatenate[FileStore, P], R]) -> Callable[Concatenate[FileStore, P], R]:
    """Turns the system's errors into ones that say what to do. The verbs that every lock needs do it themselves: a call less."""

    def guarded(self: FileStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return verb(self, *args, **kwargs)
        except OSError as error:
            raise self._directory.explained(error) from error

    return guarded


class FileStore:
    """A state directory. Nothing is created before the first write. Threads and forked children may share the object.
    `durable`: whatever was confirmed is on disk, and survives a loss of power."""

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
        self._directory = StateDir(root, trusted=trusted)
        self.log_max_bytes = log_max_bytes
        self._filesystem = filesystem or Filesystem()
        self._ensure = self._directory.ensure
        self._settle: Callable[[str], None] | None = None
        self.durable = durable
        if durable:
            self._sync_changes()
        self._spaces: dict[str, Handover] = {}
        self._counters: dict[str, Tickets] = {}
        self._logs: dict[str, Journal] = {}
        self._inotify: InotifyPool | None = None
        self._directory.check()

    @_spoken
    def prepare(self, namespace: str = "") -> None:
        """Creates the state directory, and a namespace in it, before it is needed."""
        self._ensure(f"{self.root}/{namespace}" if namespace else self.root)

    def read(self, key: str) -> bytes | None:
        try:
            records, name = self._find(key)
            return records.read(name)
        except OSError as error:
            raise self._directory.explained(error) from error

    def create(self, key: str, data: bytes) -> bool:
        try:
            records, name = self._find(key)
            return records.create(name, data)
        except OSError as error:
            raise self._directory.explained(error) from error

    @_spoken
    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        records, name = self._find(key)
        return records.replace(name, old, new)

    def remove(self, key: str, old: bytes) -> bool:
        try:
            records, name = self._find(key)
            return records.remove(name, old)
        except OSError as error:
            raise self._directory.explained(error) from error

    @_spoken
    def keys(self, namespace: str, after: str = "", limit: int = 0) -> list[str]:
        keys = [f"{namespace}/{name}" for name in self._records(namespace).names()]
        later = [key for key in keys if key > after] if after else keys
        return later[:limit] if limit else later

    @_spoken
    def age(self, key: str) -> float:
        records, name = self._find(key)
        return records.age(name)

    def where(self, key: str) -> str:
        records, name = self._find(key)
        return records.path(name)

    @_spoken
    def watch(self, key: str, data: bytes | None, timeout: float) -> None:
        records, name = self._find(key)
        path = records.path(name)
        folder, _, file = path.rpartition("/")
        # The record itself, where there is one: what happens to all the others would wake everybody who waits.
        with self._watch(path if data is not None else folder) as watch:
            if records.read(name) == data:
                watch.wait(file if data is None else "", min(timeout, _LONGEST_WAIT))

    def next_token(self, key: str) -> int:
        try:
            tickets, name = self._find_tickets(key)
            return tickets.draw(name)
        except OSError as error:
            raise self._directory.explained(error) from error

    def token_bound(self, key: str) -> int:
        try:
            tickets, name = self._find_tickets(key)
            return tickets.last(name)
        except OSError as error:
            raise self._directory.explained(error) from error

    @_spoken
    def highest_token(self, namespace: str) -> int:
        return self._tickets(namespace).so_far()

    @_spoken
    def advance_tokens(self, namespace: str, past: int) -> None:
        self._tickets(namespace).skip(past)

    def append(self, log: str, line: bytes) -> str:
        try:
            return (self._logs.get(log) or self._log(log)).append(line)
        except OSError as error:
            raise self._directory.explained(error) from error

    @_spoken
    def read_log(self, log: str, cursor: str = "", limit: int = 1 << 20) -> tuple[list[bytes], str]:
        return self._log(log).read(cursor, limit)

    def blocks(self, log: str, cursor: str) -> Iterator[tuple[bytes, str]]:
        """All that is there now after the cursor: blocks of whole lines, each line with its newline, and the cursor after each
        block."""
        try:
            yield from self._log(log).blocks(cursor)
        except OSError as error:
            raise self._directory.explained(error) from error

    @_spoken
    def tail(self, log: str, count: int) -> tuple[list[bytes], str]:
        return self._log(log).tail(count)

    @_spoken
    def wait(self, log: str, cursor: str, timeout: float) -> bool:
        journal = self._log(log)
        deadline = self.clock.steady() + timeout
        while True:
            folder, _, file = _resolved(self._log_path(log)).rpartition("/")
            with self._watch(folder) as watch:
                if journal.has_more(cursor):
                    return True
                left = deadline - self.clock.steady()
                if left <= 0:
                    return False
                watch.wait(file, min(left, _LONGEST_WAIT))
                if journal.has_more(cursor):  # before the watch is set up anew, so that nobody waits for that
                    return True

    def continues(self, before: str, after: str) -> bool:
        from swarm.stores.file.log_cursor import continues

        return continues(before, after)

    def numbered(self, log: str) -> Iterator[tuple[str, bytes, bool]]:
        try:
            yield from self._log(log).numbered()
        except OSError as error:
            raise self._directory.explained(error) from error

    def search(self, log: str, *texts: bytes) -> Iterator[bytes]:
        try:
            yield from self._log(log).search(texts)
        except OSError as error:
            raise self._directory.explained(error) from error

    @_spoken
    def rotate(self, log: str) -> bool:
        return self._log(log).rotate()

    def cache_put(self, name: str, data: bytes) -> None:
        self._cache().put(name, data)

    def cache_get(self, name: str) -> bytes | None:
        return self._cache().get(name)

    def close(self) -> None:
        for records in self._spaces.values():
            records.close()
        for journal in self._logs.values():
            journal.close()
        if self._inotify is not None:
            self._inotify.close()

    def _sync_changes(self) -> None:
        from swarm.stores.file.durable import DurableFilesystem

        self._filesystem = syncing = DurableFilesystem(self.root)
        self._settle = syncing.settle

        def ensure(path: str) -> None:
            self._directory.ensure(path)
            syncing.settle(path)

        self._ensure = ensure

    def _find(self, key: str) -> tuple[Handover, str]:
        space, _, name = key.partition("/")
        return self._spaces.get(space) or self._records(space), name

    def _find_tickets(self, key: str) -> tuple[Tickets, str]:
        space, _, name = key.partition("/")
        return self._counters.get(space) or self._tickets(space), name

    def _records(self, space: str) -> Handover:
        if space not in self._spaces:
            from swarm.stores.file.swap import Handover  # here and below: a command pays only for what it uses

            live, private = f"{self.root}/{space}", f"{self.root}/.{space}"
            self._directory.refuse_links(live, private, *(f"{private}/{name}" for name in Handover.DIRECTORIES))
            self._spaces[space] = Handover(live, private, ensure=self._ensure, fs=self._filesystem)
        return self._spaces[space]

    def _tickets(self, space: str) -> Tickets:
        if space not in self._counters:
            from swarm.stores.file.tokens import Tickets

            private = f"{self.root}/.{space}"
            self._directory.refuse_links(private, *(f"{private}/{name}" for name in Tickets.DIRECTORIES))
            self._counters[space] = Tickets(private, boot=self.clock.boot, ensure=self._ensure, fs=self._filesystem)
        return self._counters[space]

    def _log(self, log: str) -> Journal:
        if log not in self._logs:
            from swarm.stores.file.log import Journal

            parts = f"{self.root}/.{log}"
            self._directory.refuse_links(parts)
            max_bytes = self.log_max_bytes if log == _PUBLIC_LOG else 0
            path, ensure = self._log_path(log), self._ensure
            self._logs[log] = Journal(path, parts, ensure=ensure, max_bytes=max_bytes, sync_dir=self._settle)
        return self._logs[log]

    def _log_path(self, log: str) -> str:
        return f"{self.root}/{log}.log" if log == _PUBLIC_LOG else f"{self.root}/.{log}/{log}.log"

    def _cache(self) -> FileCache:
        from swarm.stores.cache import FileCache

        return FileCache(self.root, self._directory)  # never synced: it can be found out again

    def _watch(self, path: str) -> Watch:
        if self._inotify is None:
            from swarm.system.inotify import InotifyPool

            self._inotify = InotifyPool()
        return self._inotify.watch(path)


def _resolved(path: str) -> str:
    """Where the file is; of the directories that lead to it, the system finds those that are links by itself."""
    from os.path import islink, realpath

    return realpath(path) if islink(path) else path
