"""Read many objects of a repository with one git process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.projects import environment, git


def git_dir(repository: Path) -> str:
    shown = git(repository, "rev-parse", "--git-common-dir").strip()
    return str((repository / shown).resolve())


def object_names(repository: Path, names: Iterable[str]) -> list[str]:
    asked = "".join(f"{name}\n" for name in names)
    done = subprocess.run(
        ["git", "cat-file", "--batch-check=%(objectname)"],
        cwd=repository,
        input=asked,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def contents_of(repository: Path, names: Sequence[str]) -> list[bytes]:
    """Return the content of each object; empty for an object that does not exist."""
    asked = "".join(f"{name}\n" for name in names)
    out = subprocess.run(
        ["git", "cat-file", "--batch"],
        cwd=repository,
        input=asked.encode(),
        env=environment(),
        capture_output=True,
        check=True,
    ).stdout
    found, at = [], 0
    for _ in names:
        end = out.index(b"\n", at)
        head = out[at:end].split(b" ")
        if head[-1] == b"missing":
            found.append(b"")
            at = end + 1
        else:
            size = int(head[-1])
            found.append(out[end + 1 : end + 1 + size])
            at = end + 1 + size + 1
    return found
