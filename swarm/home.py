"""Which store a program uses: the one it was given, or the one that the environment names, asked anew at each call."""

from __future__ import annotations

from swarm import settings
from swarm.store_file import FileStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.store import Store


class Home:
    """Finds the store. Opening creates nothing; `prepare` creates the directory (and a space in it) if it is a directory."""

    def __init__(self, given: Store | None = None) -> None:
        self._given = given
        self._own: FileStore | None = None

    def store(self) -> Store:
        return self._given or self._file_store()

    def prepare(self, space: str = "") -> None:
        if self._given is None:
            self._file_store().prepare(space)

    def _file_store(self) -> FileStore:
        path, chosen = settings.state_dir()
        limit = settings.log_max_bytes()
        if self._own is None or (self._own.root, self._own.log_max_bytes) != (path, limit):
            self._own = FileStore(path, trusted=chosen, log_max_bytes=limit)
        return self._own
