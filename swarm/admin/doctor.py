"""All checks of a swarm: program, machine, state directory, store and its content.

A check changes nothing and does not wait for other processes. A check that raises an
error is reported as a fault. Every fault and every warning has a command that helps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from swarm.admin.agent_checks import check_agents
from swarm.admin.check import FAULT, OK, WARNING, Check
from swarm.admin.cleaner_check import check_cleaners
from swarm.admin.content_checks import CHECKS, Case
from swarm.admin.git_check import check_git
from swarm.admin.machine_checks import (
    check_clock,
    check_environment,
    check_optional_parts,
    check_python,
    check_waiting,
)
from swarm.admin.project_check import check_project
from swarm.admin.server_checks import check_server, reach_command
from swarm.admin.state_dir_check import check_state_dir
from swarm.errors import BadInput, SwarmError
from swarm.locks.table import LockTable
from swarm.stores.default import default_store, store_url
from swarm.stores.file import state_dir
from swarm.stores.file.store import FileStore
from swarm.stores.location import Location, location_of
from swarm.stores.server.base import ServerStore
from swarm.terminal.text import duration, quoted

__all__ = ["CHECKS", "FAULT", "OK", "WARNING", "Case", "Check", "examine"]


def examine() -> list[Check]:
    """Run every check of the swarm that the environment names, in order."""
    found = [
        *_guarded("python", check_python),
        *_guarded("environment", check_environment),
        *_guarded("clock", check_clock),
        *_guarded("waiting", check_waiting),
    ]
    try:
        directory = state_dir.named()
    except SwarmError as error:
        advised = str(error).partition(" run: ")[2] or "cd /"
        fix = "unset AI_SWARM_DIR" if isinstance(error, BadInput) else advised
        found.append(Check("state directory", FAULT, str(error), fix))
    else:
        root, chosen = directory.path, directory.trusted
        found += _guarded("project", lambda: check_project(_location(root)))
        found += _guarded("git", lambda: check_git(_location(root)))
        found += _guarded("state directory", lambda: check_state_dir(root, chosen=chosen))
        found += _guarded("cleaning", lambda: check_cleaners(root))
        if not any((check.name, check.state) == ("state directory", FAULT) for check in found):
            found += _guarded("store", lambda: _check_store(root, chosen=chosen))
    return [
        *found,
        *_guarded("agents", check_agents),
        *_guarded("optional parts", check_optional_parts),
    ]


def _check_store(root: str, *, chosen: bool) -> Iterator[Check]:
    try:
        store = default_store() if store_url() else FileStore(root, trusted=chosen)
    except SwarmError as error:
        yield Check(
            "store", FAULT, str(error), str(error).partition("Run: ")[2] or "unset SWARM_STORE"
        )
        return
    if isinstance(store, ServerStore):
        server: ServerStore[Any] = store
        try:
            yield _check_answer(server)
        except SwarmError as error:
            yield Check("store", FAULT, str(error), reach_command(server.address))
            return
        yield from _guarded("store", lambda: check_server(server))
    case = Case(root, store, LockTable(store))
    for name, check in CHECKS:
        yield from _guarded(name, lambda check=check: check(case))  # type: ignore[misc]


def _location(root: str) -> Location:
    try:
        return location_of(default_store())
    except SwarmError:
        return Location(state_dir=root)  # another check reports the store


def _check_answer(store: ServerStore[Any]) -> Check:
    """Measure how fast a server answers, and how far its clock differs from this
    machine's clock.
    """
    begun = time.perf_counter()
    ahead = store.clock.now() - time.time()
    took = (time.perf_counter() - begun) * 1000
    apart = (
        f"is {duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'}"
        if abs(ahead) >= 1
        else "agrees with"
    )
    text = (
        f"{store.address.shown} answers in {took:.1f} ms; leases follow its clock, which "
        f"{apart} this machine's"
    )
    return Check("store", OK, text)


def _guarded(name: str, check: Callable[[], Iterator[Check]]) -> list[Check]:
    """Run a check, and return an error that stops the check as a result."""
    found: list[Check] = []
    try:
        found.extend(check())
    except SwarmError as error:
        found.append(Check(name, FAULT, str(error), f"ls -la {_shown_root()}"))
    except OSError as error:
        found.append(
            Check(name, FAULT, f"this cannot be checked: {error}", f"ls -la {_shown_root()}")
        )
    except Exception as error:
        found.append(
            Check(
                name, FAULT, f"this cannot be checked: {error!r}", "python3 -X dev -m swarm doctor"
            )
        )
    return found


def _shown_root() -> str:
    try:
        return quoted(state_dir.named().path)
    except SwarmError:
        return "."
