"""The context in which the attempts of a project work: its settings, its repository, and
its workspaces.

    worktree    each attempt has a git worktree of its own (default in a git checkout)
    copy        each attempt has a copy of the project's directory
    none        agents work where their worker was started (default without git)

Only a project has workspaces. A state directory that is no project's has none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from swarm.errors import BadInput
from swarm.project import location
from swarm.project.config import Config, load
from swarm.project.location import Project
from swarm.workspaces.copies import CopyWorkspaces
from swarm.workspaces.repository import Repository, open_repository
from swarm.workspaces.workspaces import Workspaces

WORKTREE, COPY, NONE = MODES = ("worktree", "copy", "none")


@dataclass(frozen=True)
class WorkContext:
    """Where the attempts of a worker work.

    `project` is None outside of a project, `repository` without a git checkout,
    `workspaces` in the mode `none`.
    """

    mode: str = NONE
    config: Config = Config()  # noqa: RUF009
    project: Project | None = None
    repository: Repository | None = None
    workspaces: Workspaces | CopyWorkspaces | None = None

    @property
    def state_dir(self) -> str:
        return self.project.state_dir if self.project else ""

    def directory_in(self, workspace: str) -> str:
        """Return the project's directory in a workspace, which has the whole repository."""
        prefix = self.repository.prefix if self.repository and self.mode == WORKTREE else ""
        found = os.path.join(workspace, prefix) if prefix else workspace
        return found if os.path.isdir(found) else workspace


def context_of(state_dir: str, mode: str = "") -> WorkContext:
    """Return the context of the project with this state directory."""
    root, _, name = state_dir.rpartition("/")
    if name == location.STATE_DIR and location.is_marked(state_dir):
        return work_context(mode, Project(root or "/", state_dir))
    if mode not in ("", NONE):
        raise _no_project(mode)
    return WorkContext()


def work_context(
    mode: str = "", project: Project | None = None, config: Config | None = None
) -> WorkContext:
    """Return the context of a project, by default of the current one.

    `mode` replaces the key `workspace` of swarm.toml. Raise BadInput if the mode is
    impossible here, if git is missing or too old, or if swarm.toml is invalid.
    """
    if mode and mode not in MODES:
        raise BadInput(f"the workspace is {mode[:40]!r}, but must be one of: {', '.join(MODES)}.")
    project = project or location.current()
    if project is None:
        if mode not in ("", NONE):
            raise _no_project(mode)
        return WorkContext()
    config = config or load(project)
    mode = mode or config.workspace
    if mode == NONE and not config.land:
        return WorkContext(NONE, config, project)  # git is not needed
    repository = open_repository(project.root)
    if mode == WORKTREE and repository is None:
        raise BadInput(
            f"the workspace worktree needs git, but {project.root} is no git checkout. Run git "
            'init and commit something, or set workspace = "none" in swarm.toml.'
        )
    mode = mode or (WORKTREE if repository else NONE)
    made: Workspaces | CopyWorkspaces | None = None
    if mode == WORKTREE and repository is not None:
        made = Workspaces(repository, project.state_dir)
    elif mode == COPY:
        made = CopyWorkspaces(project.root, project.state_dir)
    return WorkContext(mode, config, project, repository, made)


def _no_project(mode: str) -> BadInput:
    return BadInput(f"the workspace {mode} needs a project, and this is none. Make one: swarm init")
