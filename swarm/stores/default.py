"""The store that a program was given, or the store that the environment names.

The environment is read at each call, so a change of a SWARM_* variable takes effect in
a running process.
"""

from __future__ import annotations

from swarm import settings
from swarm.errors import BadInput
from swarm.inputs import absolute_path
from swarm.stores.file.store import FileStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.contract import Cache, Store


class DefaultStore:
    """The store `given`. Without `given`, this is the store that the environment names
    at each call.

    Opening a store creates nothing. `prepare` creates the state directory, if the store
    is in the state directory.
    """

    def __init__(self, given: Store | None = None) -> None:
        self._given = given
        self._in_state_dir: FileStore | None = None
        self._named: tuple[tuple[str, int, bool], Store] | None = None

    def store(self) -> Store:
        """Return the store.

        Return the same store object until the settings change.
        """
        if self._given is not None:
            return self._given
        url = store_url()
        return self._named_store(url) if url else self._file_store()

    def prepare(self, namespace: str = "") -> None:
        """Open the store, and load the modules that later calls need.

        Create a namespace in the state directory, if the state directory is the store.
        """
        _load_modules()
        self.store()
        if self._given is None and not store_url():
            self._file_store().prepare(namespace)

    def _named_store(self, url: str) -> Store:
        if url.startswith("memory:"):
            raise BadInput(
                "SWARM_STORE names a store in memory, which ends with each process. "
                "Set SWARM_STORE to a directory or to the URL of a server."
            )
        chosen = (url, settings.log_max_bytes(), settings.durable())
        if self._named is None or self._named[0] != chosen:
            from swarm.stores.registry import open_store

            url, limit, durable = chosen
            store = open_store(url, log_max_bytes=limit, durable=durable, cache=_file_cache)
            self._named = (chosen, store)
        return self._named[1]

    def _file_store(self) -> FileStore:
        path, trusted = settings.state_dir()
        limit, durable = settings.log_max_bytes(), settings.durable()
        store = self._in_state_dir
        if store is None or (store.root, store.log_max_bytes, store.durable) != (
            path,
            limit,
            durable,
        ):
            store = FileStore(path, trusted=trusted, log_max_bytes=limit, durable=durable)
            self._in_state_dir = store
        return store


def default_store() -> Store:
    """Return the store that the environment names now."""
    return DefaultStore().store()


def store_url() -> str:
    """Return the URL in SWARM_STORE. If SWARM_STORE names a directory, return its
    absolute path.

    Return "" if SWARM_STORE is not set: the state directory is then the store.
    """
    url = settings.store()
    return parse_store(url, "SWARM_STORE") if url else ""


def parse_store(text: str, what: str) -> str:
    """Return a URL unchanged, and a directory as an absolute path.

    Raise BadInput for a string that is neither. An incomplete server address is
    refused: as a directory, it would give each machine a store of its own.
    """
    if "://" in text:
        return text
    first, slash, _ = text.partition("/")
    if not slash or any(sign in first for sign in ":=@ "):
        raise BadInput(
            f"{what} is neither the URL of a server, such as redis://host/0, nor a directory. "
            "Write a directory with a /, such as ./state."
        )
    return absolute_path(text)


def choose_store(url: str) -> None:
    """Use the store of --store in this process, and in all processes that it starts."""
    from os import environ

    from swarm.stores.address import refuse_secret

    refuse_secret(url, "--store")
    # The path is absolute, because a started process may have another working directory.
    environ["SWARM_STORE"] = parse_store(url, "--store")


def _load_modules() -> None:
    """Import the modules that a file store imports at the first call of a method.

    A signal handler that interrupts an import would see a half-loaded module.
    """
    from swarm.stores import cache
    from swarm.stores.file import layout, log, log_reader, log_rotation, swap, tokens
    from swarm.system import inotify, process

    del cache, layout, log, log_reader, log_rotation, swap, tokens, inotify, process


def _file_cache(store: str) -> Cache:
    """Return the cache for a store on a server: files in the state directory, if it can
    be trusted.
    """
    from swarm.stores.cache import FileCache

    return FileCache.given(whose=store)
