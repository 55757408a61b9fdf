"""Git repositories for tests of workspaces and landings, with what a person has in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from swarm.workspaces.repository import Repository, open_repository
from swarm.workspaces.workspaces import Workspace, Workspaces

_OWN = ("refs/swarm/", "refs/heads/swarm/", "refs/heads/swarm-work/")


class TestRepository:
    """A checkout with a project, and commands of its user."""

    __test__ = False  # pytest must not collect it

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self.state_dir = path / ".swarm"
        if path.exists():
            return  # another process has made it
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main", *options)
        self.git("config", "user.name", "Ada")
        self.git("config", "user.email", "ada@example.org")
        self.state_dir.mkdir()
        (self.state_dir / ".gitignore").write_text("*\n")

    def git(self, *words: str, cwd: Path | str | None = None, check: bool = True) -> str:
        """Run git as the user does, and return its output."""
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *words],
            cwd=cwd or self.path,
            capture_output=True,
            env={name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
            | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape")

    def commit(self, text: str = "a change", **files: str) -> str:
        """Write files, commit everything, and return the commit."""
        for name, content in files.items():
            (self.path / name).write_text(content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", text)
        return self.git("rev-parse", "HEAD").strip()

    def repository(self) -> Repository:
        found = open_repository(str(self.path))
        assert found is not None
        return found

    def workspaces(self) -> Workspaces:
        return Workspaces(self.repository(), str(self.state_dir))

    def make(self, task: str = "T", token: int = 1, *, carry: str = "") -> Workspace:
        """Make a workspace from the tip of main."""
        repository = self.repository()
        return self.workspaces().make(task, token, repository.tip("main"), carry=carry)

    def files(self, name: str) -> dict[str, str]:
        """Return the files of a commit with their contents, and `mode content` for
        everything that is not a plain file.
        """
        found = {}
        for line in self.git("ls-tree", "-r", "-z", name).split("\0"):
            about, _, path = line.partition("\t")
            if about:
                mode, kind, blob = about.split(" ")
                content = self.git("cat-file", "blob", blob) if kind == "blob" else blob
                found[path] = content if mode == "100644" else f"{mode} {content}"
        return found

    def refs(self) -> dict[str, str]:
        listed = self.git("for-each-ref", "--format=%(refname) %(objectname)")
        rows = (line.split(" ") for line in listed.splitlines())
        return {row[0]: row[1] for row in rows}

    def of_the_user(self) -> dict[str, object]:
        """Return everything that belongs to the user: to compare it later."""
        git_dir = Path(self.git("rev-parse", "--absolute-git-dir").strip())
        names = ("HEAD", "index", "config", "logs/refs/stash", "logs/HEAD", "MERGE_HEAD")
        found: dict[str, object] = {
            name: (git_dir / name).read_bytes() if (git_dir / name).exists() else None
            for name in names
        }
        found["refs"] = {
            ref: commit for ref, commit in self.refs().items() if not ref.startswith(_OWN)
        }
        found["files"] = {
            str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in sorted(self.path.rglob("*"))
            if ".git" not in path.relative_to(self.path).parts[:1]
            and ".swarm" not in path.relative_to(self.path).parts[:1]
        }
        return found
