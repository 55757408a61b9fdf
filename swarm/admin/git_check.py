"""Checks of git, as far as the project's workspaces need it."""

from __future__ import annotations

from collections.abc import Iterator

from swarm.admin.check import FAULT, OK, WARNING, Check
from swarm.errors import BadInput, GitError
from swarm.landing.context import COPY, NONE, work_context
from swarm.project import location
from swarm.project.config import load
from swarm.project.location import Project
from swarm.stores.location import Location
from swarm.terminal.text import quoted
from swarm.workspaces.workspaces import Entry


def check_git(where: Location) -> Iterator[Check]:
    """Check git and the workspaces of the project in use. A project without git needs
    no git.
    """
    if not where.project:
        return
    project = Project(where.project, where.state_dir)
    try:
        config = load(project)
    except BadInput:
        return  # another check reports it
    try:
        found = work_context(project=project, config=config)
        if found.repository and config.land and found.mode != NONE:
            found.repository.tip(config.land)
    except (BadInput, GitError) as error:
        fix = "git --version" if " git " in str(error) else f"git -C {quoted(project.root)} branch"
        yield Check("git", FAULT, str(error), fix)
        return
    if found.workspaces is None:
        if location.checkout(project.root):
            yield Check("git", OK, "the workspace is none: agents share one directory")
        return
    entries = found.workspaces.list()
    about = f"git {'.'.join(map(str, found.repository.version))}" if found.repository else "no git"
    made = "copies" if found.mode == COPY else "worktrees"
    yield Check("git", OK, f"{about}; workspaces are {made}, {len(entries)} now")
    yield from map(_staying, (entry for entry in entries if entry.kept_because))


def _staying(entry: Entry) -> Check:
    text = f"{entry.path} stays: {entry.kept_because}"
    return Check("git", WARNING, text, f"ls -la {quoted(entry.path)}")
