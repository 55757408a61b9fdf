"""Workspaces without git: copies of the project's directory."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from swarm.errors import StoreError
from swarm.workspaces import copies
from swarm.workspaces.copies import STAYS, CopyWorkspaces
from tests.support.processes import fork


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".swarm").mkdir(parents=True)
    (root / ".swarm" / "state").write_text("x")
    (root / "src").mkdir()
    (root / "src" / "code").write_text("1\n")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "link").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    return root


def of(root: Path) -> CopyWorkspaces:
    return CopyWorkspaces(str(root), str(root / ".swarm"))


def test_a_copy_has_everything_but_the_state(root: Path) -> None:
    workspace = of(root).make("T", 1)
    path = Path(workspace.path)
    assert sorted(os.listdir(path)) == ["link", "run", "src"]
    assert (path / "src" / "code").read_text() == "1\n"
    assert os.readlink(path / "link") == "/etc/passwd"
    assert os.access(path / "run", os.X_OK)
    assert of(root).make("T", 1) == workspace == of(root).find("T", 1)


def test_changes_are_seen_and_the_copy_stays(root: Path) -> None:
    workspace = of(root).make("T", 1)
    assert not of(root).save(workspace, "x").changed
    (Path(workspace.path) / "src" / "code").write_text("2\n")
    saved = of(root).save(workspace, "x")
    assert (saved.changed, saved.kept_because, saved.commit) == (True, STAYS, "")
    assert not of(root).remove(workspace)
    assert of(root).sweep(lambda task, token: True) == []
    (entry,) = of(root).list()
    assert (entry.task, entry.token, entry.kept_because) == ("T", 1, STAYS)
    assert (root / "src" / "code").read_text() == "1\n"
    of(root).discard(workspace)
    assert not os.listdir(root / ".swarm" / "work")


def test_any_change_changes_the_hash(root: Path) -> None:
    workspace = of(root).make("T", 1)
    path = Path(workspace.path)
    seen = {of(root).tree(workspace)}

    def differs() -> bool:
        before = len(seen)
        seen.add(of(root).tree(workspace))
        return len(seen) > before

    (path / "new").touch()
    assert differs()
    (path / "new").chmod(0o755)
    assert differs()
    (path / "new").rename(path / "newer")
    assert differs()
    (path / "link").unlink()
    (path / "link").symlink_to("elsewhere")
    assert differs()


def test_a_copy_that_was_never_finished_is_removed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def make() -> None:
        copies.content_hash = killed  # type: ignore[assignment]
        of(root).make("T", 1)

    _, status = os.waitpid(fork(make), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert of(root).find("T", 1) is None
    (line,) = of(root).sweep(lambda task, token: False)
    assert "removed the rest" in line
    assert not os.listdir(root / ".swarm" / "work")
    os.waitpid(fork(make), 0)
    assert (Path(of(root).make("T", 1).path) / "run").exists()


def test_a_file_of_others_is_not_taken(root: Path, tmp_path: Path) -> None:
    (root / ".swarm" / "work").mkdir()
    (root / ".swarm" / "work" / "T.1").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="swarm did not make it"):
        of(root).make("T", 1)
