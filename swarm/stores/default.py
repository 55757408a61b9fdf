"""Which store a program uses: the one it was given, or the one that the environment names, asked anew at each call."""

from __future__ import annotations

from swarm import settings
from swarm.errors import BadInput
from swarm.stores.file.store import FileStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.contract import Kept, Store


class Home:
    """Finds the store. Opening creates nothing; `prepare` creates the state directory (and a space in it) if it is the store."""

    def __init__(self, given: Store | None = None) -> None:
        self._given = given
        self._own: FileStore | None = None
        self._named: tuple[tuple[str, int, bool], Store] | None = None

    def store(self) -> Store:
        if self._given is not None:
            return self._given
        url = settings.store_url()
        return self._named_store(url) if url else self._file_store()

    def prepare(self, space: str = "") -> None:
        if self._given is None and not settings.store_url():
            self._file_store().prepare(space)

    def _named_store(self, url: str) -> Store:
        if url.startswith("memory:"):
            raise BadInput("SWARM_STORE is a store in memory, which ends with each process. Name a directory or a server.")
        limit, durable = settings.log_max_bytes(), settings.durable()
        if self._named is None or self._named[0] != (url, limit, durable):
            from swarm.stores.contract import open_store

            self._named = ((url, limit, durable), open_store(url, log_max_bytes=limit, durable=durable, kept=_kept))
        return self._named[1]

    def _file_store(self) -> FileStore:
        path, chosen = settings.state_dir()
        limit, durable = settings.log_max_bytes(), settings.durable()
        if self._own is None or (self._own.root, self._own.log_max_bytes, self._own.durable) != (path, limit, durable):
            self._own = FileStore(path, trusted=chosen, log_max_bytes=limit, durable=durable)
        return self._own


def _kept(store: str) -> Kept:
    """Where this machine keeps what it found out about a store on a server."""
    from swarm.stores.cache import KeptFiles
    from swarm.stores.file.state_dir import StateDir

    path, chosen = settings.state_dir()
    return KeptFiles(path, StateDir(path, trusted=chosen), whose=store)
