"""Which store a program uses: the one it was given, or the one that the environment names, asked anew at each call."""

from __future__ import annotations

from swarm import settings
from swarm.errors import BadInput
from swarm.inputs import absolute_path
from swarm.stores.file.store import FileStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.contract import Cache, Store


class Home:
    """Find the store.

    Opening creates nothing. `prepare` creates the state directory, and a namespace in it,
    if the state directory is the store.
    """

    def __init__(self, given: Store | None = None) -> None:
        self._given = given
        self._own: FileStore | None = None
        self._named: tuple[tuple[str, int, bool], Store] | None = None

    def store(self) -> Store:
        if self._given is not None:
            return self._given
        url = store_url()
        return self._named_store(url) if url else self._file_store()

    def prepare(self, namespace: str = "") -> None:
        if self._given is None and not store_url():
            self._file_store().prepare(namespace)

    def _named_store(self, url: str) -> Store:
        if url.startswith("memory:"):
            raise BadInput("SWARM_STORE is a store in memory, which ends with each process. Name a directory or a server.")
        limit, durable = settings.log_max_bytes(), settings.durable()
        if self._named is None or self._named[0] != (url, limit, durable):
            from swarm.stores.registry import open_store

            self._named = ((url, limit, durable), open_store(url, log_max_bytes=limit, durable=durable, cache=_file_cache))
        return self._named[1]

    def _file_store(self) -> FileStore:
        path, chosen = settings.state_dir()
        limit, durable = settings.log_max_bytes(), settings.durable()
        if self._own is None or (self._own.root, self._own.log_max_bytes, self._own.durable) != (path, limit, durable):
            self._own = FileStore(path, trusted=chosen, log_max_bytes=limit, durable=durable)
        return self._own


def store_url() -> str:
    """The store that SWARM_STORE names, a directory as an absolute path; "" if the state directory is the store."""
    url = settings.store()
    return parse_store(url, "SWARM_STORE") if url else ""


def parse_store(text: str, what: str) -> str:
    """The address of a store as a person types it; a directory as an absolute path. A server's address that lacks something must
    not be taken for a directory: each machine would have a swarm of its own."""
    if "://" in text:
        return text
    first, slash, _ = text.partition("/")
    if not slash or any(sign in first for sign in ":=@ "):
        raise BadInput(f"{what} names neither a server, such as redis://host/0, nor a directory: write that with a /, as ./here.")
    return absolute_path(text)


def choose_store(url: str) -> None:
    """What --store says: from now on for this process, and for every one that it starts."""
    from os import environ

    from swarm.stores.address import refuse_secret

    refuse_secret(url, "--store")
    environ["SWARM_STORE"] = url
    environ["SWARM_STORE"] = store_url()  # also for what is started in another directory


def _file_cache(store: str) -> Cache:
    """Where this machine keeps what it found out about a store on a server."""
    from swarm.stores.cache import FileCache
    from swarm.stores.file.state_dir import StateDir

    path, chosen = settings.state_dir()
    return FileCache(path, StateDir(path, trusted=chosen), whose=store)
