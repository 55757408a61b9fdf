"""The saved work of a task: what `swarm task show`, `swarm diff` and `swarm checkout`
read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from swarm.workspaces import refs
from swarm.workspaces.repository import Repository

_FORMAT = "%(refname) %(objectname) %(committerdate:unix)"


@dataclass(frozen=True)
class SavedWork:
    """The saved work of an attempt.

    `older` is "" for the last save of the attempt, 1, 2 … for an earlier save, and
    `dropped` for commits that the agent had dropped. `base` is the commit from which the
    attempt began, "" if it is unknown. `at` is a Unix time.
    """

    task: str
    token: int
    older: str
    ref: str
    commit: str
    at: int
    base: str = ""


def saved_work(repository: Repository, task: str) -> list[SavedWork]:
    """Return the saved work of a task: the last attempt first, of each the last save
    first.
    """
    prefix = refs.work_refs(task)
    found, bases = [], {}
    listed = repository.git("for-each-ref", f"--format={_FORMAT}", prefix).out
    for line in listed.splitlines():
        ref, commit, at = line.split(" ")
        token, _, older = ref.removeprefix(prefix).partition(".")
        if token.isdigit() and older == refs.BASE:
            bases[int(token)] = commit
        elif token.isdigit() and (not older or older.isdigit() or older == refs.DROPPED):
            found.append(SavedWork(task, int(token), older, ref, commit, int(at or 0)))
    found = [replace(work, base=bases.get(work.token, "")) for work in found]
    return sorted(found, key=_order)


def _order(work: SavedWork) -> tuple[int, int, int]:
    number = int(work.older) if work.older.isdigit() else 0
    return (-work.token, 0 if not work.older else 1 if number else 2, -number)
