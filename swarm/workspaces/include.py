"""Copy into a new workspace what git does not have: `.env`, `node_modules` …

The file `.worktreeinclude` in the root of the main checkout names these files, in the
syntax of `.gitignore`. A file is copied if it matches, if git ignores it, and if it is
not in the state directory.
"""

from __future__ import annotations

import os

from swarm.workspaces.copying import copy_below
from swarm.workspaces.repository import Repository

FILE = ".worktreeinclude"


def include(repository: Repository, path: str, state_dir: str) -> list[str]:
    """Copy the files that `.worktreeinclude` names into the workspace at `path`.

    Return the paths that were copied. Raise StoreError if a file cannot be copied.
    """
    rules = f"{repository.root}/{FILE}"
    if not os.path.isfile(rules):
        return []
    state_dir = os.path.realpath(state_dir)

    def skip(source: str) -> bool:
        return source == state_dir or os.path.basename(source) == ".swarm"

    named = repository.git(
        "ls-files", "--others", "--ignored", "--directory", "-z", f"--exclude-from={rules}"
    ).out.split("\0")
    wanted = [each.rstrip("/") for each in named if each.rstrip("/")]
    wanted = [each for each in wanted if not skip(f"{repository.root}/{each}")]
    if not wanted:
        return []
    ignored = repository.git(
        "check-ignore", "-z", "--stdin", stdin="".join(f"{each}\0" for each in wanted), check=False
    ).out.split("\0")
    return [each for each in ignored if each and copy_below(repository.root, each, path, skip)]
