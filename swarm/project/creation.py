"""Make a project: its state directory, and `swarm.toml`.

Each of the two appears whole or not at all.  A second call changes nothing, and so does
a call at the same time.  No file of the user is changed.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from swarm.errors import BadInput, StoreError, SwarmError
from swarm.project import config, location
from swarm.project.ignore_file import foreign_entries, mark

_STATE_DIR_MODE = 0o700
_CONFIG_MODE = 0o666  # less the umask, as for any file of the user


@dataclass(frozen=True)
class Plan:
    """The paths of a project, and which of them are to be made."""

    root: str
    state_dir: str
    config: str
    makes_state_dir: bool
    makes_config: bool


def root_for(start: str, *, chosen: bool, adopt: bool = False) -> str:
    """Return the root of the project for a directory.

    It is the root of the git checkout around the directory. Without a checkout, it is
    the directory, or the root of its project if the user has not `chosen` the
    directory. Raise BadInput for a directory that should not be a project. With
    `adopt`, the user's home directory may be one.
    """
    root = location.checkout(start) or (start if chosen else _project_around(start))
    if why := _why_not(root, adopt):
        raise BadInput(
            f"{root} cannot be a project: {why}. "
            "Change to the directory of a project, or name it: swarm init DIR"
        )
    return root


def plan(root: str, *, adopt: bool = False) -> Plan:
    """Return what is to be made in a directory.

    Raise SwarmError if there is a `.swarm` that swarm must not use. With `adopt`, take
    one that `swarm init` did not make.
    """
    state_dir = location.below(root, location.STATE_DIR)
    path = location.below(root, location.CONFIG)
    return Plan(
        root,
        state_dir,
        path,
        makes_state_dir=not _is_there(root, state_dir, adopt),
        makes_config=not os.path.lexists(path),
    )


def make_state_dir(plan: Plan) -> None:
    """Make the state directory. Raise StoreError if it cannot be made."""
    try:
        try:
            os.mkdir(plan.state_dir, _STATE_DIR_MODE)
        except FileExistsError:
            pass  # empty, or adopted, or just made by another process
        if not location.is_marked(plan.state_dir):
            mark(plan.state_dir)
    except OSError as error:
        raise StoreError(
            f"{plan.state_dir} cannot be made: {error.strerror}. "
            f"Check the owner and mode of {plan.root}."
        ) from None


def write_config(plan: Plan, land: str = "") -> bool:
    """Write `swarm.toml`, with the branch `land`, and return whether it was written.

    Return False if there is one meanwhile. Raise StoreError if it cannot be written.
    """
    draft = f"{plan.state_dir}/{location.CONFIG}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, _CONFIG_MODE), "w", encoding="utf-8") as file:
            file.write(config.template(land))
        try:
            os.link(draft, plan.config, follow_symlinks=False)
            return True
        except FileExistsError:
            return False
        finally:
            os.unlink(draft)
    except OSError as error:
        raise StoreError(
            f"{plan.config} cannot be written: {error.strerror}. "
            f"Check the owner and mode of {plan.root}."
        ) from None


def _project_around(start: str) -> str:
    if os.path.lexists(location.below(start, location.STATE_DIR)):
        return start
    try:
        found = location.find(start)
    except StoreError:
        return start  # around it is a project that this user must not use
    return found.root if found else start


def _is_there(root: str, state_dir: str, adopt: bool) -> bool:
    """Return whether the state directory is there and marked.

    Raise SwarmError if there is something else.
    """
    try:
        found = os.lstat(state_dir)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(
            f"{state_dir} cannot be examined: {error.strerror}. Check the owner and mode of {root}."
        ) from None
    if not stat.S_ISDIR(found.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "not a directory"
        raise SwarmError(f"{state_dir} is {kind}. Move it away, then run this again.")
    if found.st_uid != os.geteuid():
        raise StoreError(f"{state_dir} belongs to another user. Run swarm as its owner.")
    if location.is_marked(state_dir):
        return True
    if not adopt and foreign_entries(state_dir):
        raise SwarmError(
            f"{state_dir} is there already, and `swarm init` did not make it: it may belong to "
            "another program, or have come with a repository. Move it away, or if it is the "
            "state of your swarm, run: swarm init --adopt"
        )
    return False


def _why_not(root: str, adopt: bool) -> str:
    """Return why a directory cannot be a project, "" if it can."""
    if root == "/" or (not adopt and root == os.path.realpath(os.path.expanduser("~"))):
        return "directories of other projects are below it"
    if location.is_shared(root):
        return "all users make files in it"
    if f"/{location.STATE_DIR}/" in f"{root}/":
        return "it is inside a state directory"
    if any(_is_repository(folder) for folder in location.upward(root)):
        return "it is a git repository and not a checkout"
    return ""


def _is_repository(folder: str) -> bool:
    """Return whether a directory is a git repository itself, such as a bare one."""
    return os.path.isfile(f"{folder}/HEAD") and all(
        os.path.isdir(f"{folder}/{name}") for name in ("objects", "refs")
    )
