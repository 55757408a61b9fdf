"""Where the state of a swarm is: its project, its directory, its server.

Every view shows it, so that a user sees of which swarm it is.
"""

from __future__ import annotations

from swarm.errors import SwarmError
from swarm.formats.frozen_record import FrozenRecord
from swarm.project.location import STATE_DIR, is_marked
from swarm.stores.file import state_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from swarm.stores.contract import Store


class Location(FrozenRecord):
    """The location of a swarm.

    `project` is the root of its project, None without a project. `state_dir` has the
    results, and without a `store` on a server also locks, log and queue. It is "" if it
    is unknown.
    """

    project: str | None = None
    state_dir: str = ""
    store: str | None = None

    @property
    def text(self) -> str:
        """One line for a user, "" for an unknown location."""
        if not (self.store or self.state_dir):
            return ""
        if self.store:
            state = f"store {self.store}"
        elif self.project:
            state = f"state in {STATE_DIR}"
        else:
            state = f"state in {self.state_dir}"
        return f"project {self.project}, {state}" if self.project else f"no project, {state}"


def location_of(store: Store) -> Location:
    """Return where the state of a store is. Its address is without secrets."""
    root = getattr(store, "root", "")
    if root:
        return Location(_project_of(root), root)
    address = getattr(store, "address", None)
    try:
        path = state_dir.named().path
    except SwarmError:
        path = ""
    return Location(_project_of(path), path, address.shown if address else "memory://")


def _project_of(path: str) -> str | None:
    root, _, name = path.rpartition("/")
    try:
        return (root or "/") if name == STATE_DIR and is_marked(path) else None
    except SwarmError:
        return None  # the view of the store says what is wrong
