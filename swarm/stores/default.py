"""The store that a program was given, or the store that the environment names.

A program gives a store, its URL, or its directory.  Without one, SWARM_STORE names the
store; else it is in the state directory, see `stores.file.state_dir`.  Environment and
working directory are read at each call, so a change takes effect in a running process.
"""

from __future__ import annotations

from swarm import settings
from swarm.errors import BadInput, StoreError
from swarm.inputs import absolute_path
from swarm.stores.file import state_dir
from swarm.stores.file.store import FileStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike

    from swarm.stores.contract import Cache, Store, StoreLike
    from swarm.stores.file.state_dir import StateDir


class DefaultStore:
    """The store `given`. Without `given`, this is the store that the environment names
    at each call.

    Opening a store creates nothing. `prepare` creates the state directory, if the store
    is in the state directory.
    """

    def __init__(self, given: StoreLike = None) -> None:
        self._given: Store | None = None
        self._url = ""
        if given is not None:
            from os import PathLike  # only programs give a store

            if isinstance(given, str | PathLike):
                self._url = _url_of(given)
            else:
                self._given = given
        self._in_state_dir: FileStore | None = None
        self._named: tuple[tuple[str, int, bool], Store] | None = None

    def store(self) -> Store:
        """Return the store.

        Return the same store object until the settings change.
        """
        if self._given is not None:
            return self._given
        url = self._url or store_url()
        return self._named_store(url) if url else self._file_store()

    def prepare(self, namespace: str = "") -> None:
        """Open the store, and load the modules that later calls need.

        Create a namespace in the state directory, if the state directory is the store.
        """
        _load_modules()
        self.store()
        if self._given is None and not (self._url or store_url()):
            self._file_store().prepare(namespace)

    def state_dir(self) -> StateDir:
        """Return the directory for results and lock files: that of the store, if a
        program gave a directory; else the state directory of this call.
        """
        if self._url.startswith("/"):
            return state_dir.StateDir(self._url, trusted=True)
        return state_dir.given()

    def variables(self) -> dict[str, str]:
        """Return the variables that name this store for a process that is started.

        Return none if the environment names the store already, and for a store object,
        which no other process can have.
        """
        if self._url.startswith("/"):
            return {"SWARM_STORE": "", "SWARM_STATE_DIR": self._url, "AI_SWARM_DIR": self._url}
        return {"SWARM_STORE": self._url} if self._url else {}

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
        directory = state_dir.named()
        limit, durable = settings.log_max_bytes(), settings.durable()
        store = self._in_state_dir
        if store is None or (store.root, store.log_max_bytes, store.durable) != (
            directory.path,
            limit,
            durable,
        ):
            store = FileStore(
                directory.path, trusted=directory.trusted, log_max_bytes=limit, durable=durable
            )
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


def choose_state_dir(path: str) -> None:
    """Use the swarm in the directory of --state-dir in this process, and in all
    processes that it starts.
    """
    from os import environ

    environ["SWARM_STATE_DIR"] = environ["AI_SWARM_DIR"] = path
    # absolute: a started process may have another working directory
    environ["SWARM_STATE_DIR"] = environ["AI_SWARM_DIR"] = settings.named_state_dir()
    environ.pop("SWARM_STORE", None)


def keep_state_dir() -> None:
    """Use the state directory of now until this process ends.

    A command that runs long must not change to another swarm in the middle of a task,
    if a project is made around it or its working directory is removed.
    """
    from os import environ

    try:
        path = state_dir.named().path
    except StoreError:
        return  # the command says so, if it needs the directory
    environ["SWARM_STATE_DIR"] = environ["AI_SWARM_DIR"] = path


def choose_store(url: str) -> None:
    """Use the store of --store in this process, and in all processes that it starts."""
    from os import environ

    from swarm.stores.address import refuse_secret

    refuse_secret(url, "--store")
    # The path is absolute, because a started process may have another working directory.
    environ["SWARM_STORE"] = parse_store(url, "--store")


def _url_of(given: str | PathLike[str]) -> str:
    """Return the URL or the absolute path that a program gave.

    Unlike on the command line, a word is a directory, and a URL may have a password: no
    other user can read it. Raise BadInput for a text that is neither.
    """
    if isinstance(given, str):
        if given.startswith("memory:"):
            raise BadInput(
                "memory:// would be another store for each object. Make one "
                "swarm.stores.memory.MemoryStore(), and pass it to each object."
            )
        if "://" in given and not given.startswith("file://"):
            return given
        path = given.removeprefix("file://")
        could_be_address = any(sign in path.partition("/")[0] for sign in ":=@")
    else:
        path, could_be_address = given.__fspath__(), False
    if not isinstance(path, str) or not path or "\0" in path or could_be_address:
        raise BadInput(
            f"the store {path[:80]!a} is neither the URL of a server, such as redis://host/0, nor "
            "a directory. Write a directory as './name' or as a pathlib.Path."
        )
    return absolute_path(path)


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
