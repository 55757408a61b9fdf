"""Compare what a user has in a repository: files, index, refs, stash, config and hooks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from proof.landing.objects import git_dir
from tests.support.projects import git

USER_CHANGED = "something of the user's changed"


class Belongings(NamedTuple):
    """Everything of the user's in a checkout, by what it is."""

    parts: Mapping[str, str]


def belongings(
    checkout: Path, branch: str = "main", *, landed_elsewhere: bool = False
) -> Belongings:
    """Return what of the user's is in a checkout, in a form that can be compared.

    Left out: swarm's own refs, files that landings change, and the landing branch. With
    `landed_elsewhere`, the branch is the user's, and a fetch moves the remote's.
    """
    common = Path(git_dir(checkout))
    refs = git(checkout, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    moves = "refs/remotes/" if landed_elsewhere else f"refs/heads/{branch} "
    ours = ("refs/swarm/", "refs/heads/swarm/", "refs/stash ", moves)
    return Belongings(
        {
            "the config": _digest(common / "config"),
            "the current branch": (checkout / ".git" / "HEAD").read_text()
            if (checkout / ".git").is_dir()
            else git(checkout, "symbolic-ref", "HEAD"),
            "the stash": git(checkout, "stash", "list", "--format=%H %gs"),
            "the refs": "\n".join(ref for ref in refs if not ref.startswith(ours)),
            "the hooks": _digest(common / "hooks"),
            "the excludes": _digest(common / "info" / "exclude"),  # gc of the user writes others
            "the status": git(checkout, "status", "--porcelain=v2", "--untracked-files=all"),
            "the files": "".join(
                _digest(checkout / line[3:])
                for line in git(
                    checkout, "status", "--porcelain", "--untracked-files=all"
                ).splitlines()
            ),
        }
    )


def changed(checkout: Path, before: Belongings, after: Belongings) -> list[str]:
    """Return what of the user's in a checkout is not as it was."""
    return [
        f"{USER_CHANGED}: {part} of {checkout.name}: was {was!r}, is {after.parts[part]!r}"
        for part, was in before.parts.items()
        if after.parts[part] != was
    ]


def _digest(path: Path) -> str:
    """Return a hash of a file, or of all files in a directory."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    found = hashlib.sha256()
    for file in files:
        found.update(os.fsencode(file.name) + b"\0")
        found.update(file.read_bytes() if file.exists() else b"(absent)")
    return found.hexdigest()[:16]
