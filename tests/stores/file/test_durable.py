"""With SWARM_DURABLE, what was confirmed is on disk: synced in the right order, and there after a loss of power."""

from __future__ import annotations

import errno
import os
import posix
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import BadInput, StoreError
from swarm.stores.contract import Store
from swarm.stores.default import DefaultStore
from swarm.stores.file.durable import DurableFilesystem
from swarm.stores.file.store import FileStore
from swarm.stores.file.swap import SwapDirectory
from swarm.stores.file.syscalls import make_dirs
from swarm.stores.registry import open_store
from swarm.testing import CHECKS
from tests.support.disks import loop_mounted, needs_root
from tests.support.meddling import Place, revoke_all
from tests.support.processes import fork

CALLS = (os, posix)  # some modules take their system calls from the one, some from the other


class Steps:
    """Notes what is written, named and synced, each with the path under the directory it began with."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._seen: list[str] = []
        real: dict[str, Callable[..., Any]] = {
            name: getattr(os, name) for name in ("write", "fsync", "fdatasync", "link", "rename")
        }

        def on_descriptor(name: str) -> Callable[..., Any]:
            def call(fd: int, *args: Any) -> Any:
                self._note(name, os.readlink(f"/proc/self/fd/{fd}"))
                return real[name](fd, *args)

            return call

        def on_paths(name: str) -> Callable[..., Any]:
            def call(source: str, target: str, **options: Any) -> Any:
                self._note(name, source if "/." in str(target).removeprefix(str(root)) else target)
                return real[name](source, target, **options)

            return call

        for module in CALLS:
            for name in ("write", "fsync", "fdatasync"):
                monkeypatch.setattr(module, name, on_descriptor(name))
            for name in ("link", "rename"):
                monkeypatch.setattr(module, name, on_paths(name))
            monkeypatch.setattr(module, "open", self._opening(module.open))

    def _opening(self, really: Callable[..., int]) -> Callable[..., int]:
        def call(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if "/intents/" in str(path) and flags & os.O_CREAT:
                self._seen.append("announce an intent")
            return really(path, flags, *args, **options)

        return call

    def _note(self, what: str, path: str) -> None:
        place = os.path.relpath(path, self._root)
        if place.startswith(".locks/scratch/"):
            place = "scratch"
        self._seen.append(f"{what} {place}")

    def taken(self) -> list[str]:
        seen, self._seen = self._seen, []
        return seen


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(tmp_path / "state", monkeypatch)


@pytest.fixture
def files(tmp_path: Path) -> FileStore:
    return FileStore(str(tmp_path / "state"), durable=True)


class TestLog:
    def test_a_line_is_on_disk_before_it_is_confirmed(self, files: FileStore, steps: Steps) -> None:
        files.append("status", b"one")
        assert steps.taken()[-2:] == ["write status.log", "fsync status.log"]
        files.append("status", b"two")
        assert steps.taken() == ["write status.log", "fsync status.log"], "and once is enough"

    def test_so_is_the_name_of_a_new_log(self, files: FileStore, steps: Steps) -> None:
        files.append("status", b"one")
        assert {"fsync .", "fsync .."} <= set(steps.taken())
        files.append("tasks", b"one")
        assert {"fsync .tasks", "fsync .", "fsync .."} <= set(steps.taken())

    def test_also_where_a_link_leads_to_the_state_directory(self, steps: Steps, tmp_path: Path) -> None:
        (tmp_path / "state").mkdir()
        (tmp_path / "link").symlink_to("state")
        FileStore(str(tmp_path / "link"), durable=True).append("status", b"one")
        assert {"fsync .", "fsync .."} <= set(steps.taken())

    def test_and_what_became_of_the_last_one(self, files: FileStore, steps: Steps, tmp_path: Path) -> None:
        files.append("status", b"one")
        steps.taken()
        assert files.rotate("status")
        (part,) = (tmp_path / "state" / ".status").iterdir()
        expected = {f"fsync .status/{part.name}", "fsync .status", "fsync ."}
        assert expected <= set(steps.taken())
        FileStore(files.root, durable=True).append("status", b"two")  # whoever rotated it may have been killed before
        assert expected <= set(steps.taken())

    def test_a_line_that_could_not_be_synced_is_not_confirmed(self, files: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
        files.append("status", b"one")

        def failing(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        for module in CALLS:
            monkeypatch.setattr(module, "fsync", failing)
        with pytest.raises(StoreError, match="Input/output error"):
            files.append("status", b"two")


class TestRecords:
    def test_a_record_and_its_name_are_on_disk_before_it_is_confirmed_and_one_that_replaces_before_it_does(
        self, files: FileStore, steps: Steps
    ) -> None:
        files.create("locks/first", b"x")
        assert {"fsync locks", "fsync .", "fsync .."} <= set(steps.taken())
        assert files.create("locks/a", b"one")
        assert steps.taken() == ["write scratch", "link locks/a.lock", "fsync locks/a.lock", "fsync locks"]
        assert files.replace("locks/a", b"one", b"two")
        steps.taken()
        assert files.replace("locks/a", b"two", b"three")
        intent = "announce an intent"  # which others respect only for so long
        assert steps.taken() == ["write scratch", "fsync scratch", intent, "rename locks/a.lock", "fsync locks"]

    def test_whose_hand_is_destroyed_after_it_has_made_a_record_has_made_it(self, tmp_path: Path) -> None:
        place = Place(tmp_path / "state")

        class Overtaken(DurableFilesystem):
            def sync_content(self, path: str) -> None:
                revoke_all(place)
                super().sync_content(path)

        process = SwapDirectory(str(place.live), str(place.private), make_dirs=make_dirs, fs=Overtaken(str(tmp_path / "state")))
        assert process.create("t", b"one") and place.record() == b"one"

    def test_it_is_gone_for_good_before_that_is_confirmed(self, files: FileStore, steps: Steps) -> None:
        files.create("locks/a", b"one")
        files.replace("locks/a", b"one", b"two")
        steps.taken()
        assert files.remove("locks/a", b"two")
        assert steps.taken()[-2:] == ["rename locks/a.lock", "fsync locks"]

    def test_directories_that_were_made_anew_are_synced_again(self, files: FileStore, steps: Steps, tmp_path: Path) -> None:
        files.create("locks/a", b"one")
        (tmp_path / "state").rename(tmp_path / "away")
        steps.taken()
        files.create("locks/a", b"one")
        assert {"fsync locks", "fsync .", "fsync .."} <= set(steps.taken())

    def test_also_where_a_person_made_them(self, files: FileStore, steps: Steps, tmp_path: Path) -> None:
        files.create("locks/a", b"one")
        files.create("locks/b", b"one")
        time.sleep(0.02)  # the clock of the filesystem ticks every few milliseconds
        shutil.rmtree(tmp_path / "state" / "locks")
        (tmp_path / "state" / "locks").mkdir()
        steps.taken()
        files.create("locks/a", b"one")
        assert steps.taken()[-3:] == ["fsync locks", "fsync .", "fsync .."]

    def test_a_state_directory_may_be_named_from_here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for root in ("state", "."):
            store = FileStore(root, durable=True)
            assert store.create("locks/a", b"one") and store.append("status", b"one")

    @needs_root
    def test_in_a_directory_that_may_not_be_listed_everything_is_synced(self) -> None:
        shared = Path(tempfile.mkdtemp(prefix="swarm-test-"))
        shared.chmod(0o733)
        store = FileStore(str(shared / "state"), durable=True)

        def child() -> None:
            os.setgroups([])
            os.setuid(65534)
            assert store.create("locks/a", b"one") and store.append("status", b"one")

        try:
            assert os.waitpid(fork(child), 0)[1] == 0
        finally:
            shutil.rmtree(shared)

    def test_what_can_be_found_out_again_is_not_synced(self, files: FileStore, steps: Steps) -> None:
        files.prepare()
        steps.taken()
        files.cache_put("status", b"x" * 100_000)
        assert not [step for step in steps.taken() if "sync" in step]


def test_without_it_nothing_is_synced(tmp_path: Path, steps: Steps) -> None:
    files = FileStore(str(tmp_path / "state"))
    files.append("status", b"one")
    files.rotate("status")
    files.append("status", b"one")
    files.create("locks/a", b"one")
    files.replace("locks/a", b"one", b"two")
    files.remove("locks/a", b"two")
    assert not [step for step in steps.taken() if "sync" in step]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(check: Callable[[Store], None], files: FileStore) -> None:
    check(files)


class TestChoosing:
    @pytest.mark.parametrize(("text", "chosen"), [("1", True), ("0", False), ("", False)])
    def test_the_environment_says_so(self, text: str, chosen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path))
        chosen_store = DefaultStore()
        assert isinstance(before := chosen_store.store(), FileStore) and not before.durable
        monkeypatch.setenv("SWARM_DURABLE", text)
        assert isinstance(after := chosen_store.store(), FileStore) and after.durable is chosen
        monkeypatch.setenv("SWARM_STORE", f"file://{tmp_path}")
        assert isinstance(named := DefaultStore().store(), FileStore) and named.durable is chosen

    def test_or_whoever_opens_a_store(self, tmp_path: Path) -> None:
        assert open_store(str(tmp_path), durable=True).durable  # type: ignore[attr-defined]
        assert not open_store(str(tmp_path)).durable  # type: ignore[attr-defined]

    @pytest.mark.parametrize("text", ["yes", "2", " 1"])
    def test_anything_else_is_refused(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWARM_DURABLE", text)
        with pytest.raises(BadInput, match="SWARM_DURABLE"):
            DefaultStore().store()


@needs_root
@pytest.mark.parametrize("durable", ["1", "0"])
def test_what_was_confirmed_is_there_after_a_loss_of_power(durable: str, tmp_path: Path) -> None:
    """What the disk holds at a moment is copied from under the mounted filesystem, and mounted as after a crash."""
    with loop_mounted(tmp_path / "disk", "24M") as disk:
        disk.environment["SWARM_DURABLE"] = durable
        for face, *call in (
            ("lock", "acquire", "kept", "w", "600"),
            ("lock", "acquire", "released", "w", "600"),
            ("lock", "release", "released", "w"),
            ("log", "append", "START", "w", "one"),
            ("log", "rotate"),
            ("log", "append", "DONE", "w", "two"),
        ):
            done = disk.run(face, *call)
            assert done.returncode == 0, done.stderr
        below, after = tmp_path / "disk-below", tmp_path / "after"
        after.mkdir()
        copied = disk.inside("sh", "-c", f"cp '{below}'/image-* '{below}/copy' && mount -o loop '{below}/copy' '{after}'")
        assert copied.returncode == 0, copied.stderr
        try:
            disk.environment["AI_SWARM_DIR"] = str(after / "state")
            lines = disk.run("log", "tail").stdout.splitlines()
            locks = disk.run("lock", "list").stdout
        finally:
            disk.inside("umount", str(after))
    if durable == "1":
        assert [('"task_id": "one"' in line, '"task_id": "two"' in line) for line in lines] == [(True, False), (False, True)]
        assert "kept" in locks and "released" not in locks
    else:
        assert lines == [] and "kept" not in locks, "then this test would see nothing"
