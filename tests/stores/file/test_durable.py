"""With SWARM_DURABLE, confirmed changes are synced in the right order and survive a
loss of power.
"""

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
from tests.support.processes import fork
from tests.support.record_directory import RecordDirectory, revoke_all

CALLS = (os, posix)  # modules take their system calls from either


class Steps:
    """Records writes, renames and syncs, each with its path relative to the state directory."""

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
        name = os.path.relpath(path, self._root)
        if name.startswith(".locks/scratch/"):
            name = "scratch"
        self._seen.append(f"{what} {name}")

    def take(self) -> list[str]:
        seen, self._seen = self._seen, []
        return seen


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(tmp_path / "state", monkeypatch)


@pytest.fixture
def files(tmp_path: Path) -> FileStore:
    return FileStore(str(tmp_path / "state"), durable=True)


class TestLog:
    def test_a_log_line_is_synced_before_append_returns(
        self, files: FileStore, steps: Steps
    ) -> None:
        files.append("status", b"one")
        assert steps.take()[-2:] == ["write status.log", "fsync status.log"]
        files.append("status", b"two")
        assert steps.take() == ["write status.log", "fsync status.log"], (
            "the name is synced only once"
        )

    def test_the_name_of_a_new_log_is_synced(self, files: FileStore, steps: Steps) -> None:
        files.append("status", b"one")
        assert {"fsync .", "fsync .."} <= set(steps.take())
        files.append("tasks", b"one")
        assert {"fsync .tasks", "fsync .", "fsync .."} <= set(steps.take())

    def test_a_new_directory_is_synced_before_anything_is_in_it(
        self, files: FileStore, steps: Steps
    ) -> None:
        files.prepare("locks")
        assert {"fsync locks", "fsync .", "fsync .."} <= set(steps.take())

    def test_a_log_in_a_symlinked_state_directory_is_synced(
        self, steps: Steps, tmp_path: Path
    ) -> None:
        (tmp_path / "state").mkdir()
        (tmp_path / "link").symlink_to("state")
        FileStore(str(tmp_path / "link"), durable=True).append("status", b"one")
        assert {"fsync .", "fsync .."} <= set(steps.take())

    def test_the_directory_of_a_symlinked_log_is_synced(
        self, files: FileStore, steps: Steps, tmp_path: Path
    ) -> None:
        files.prepare()
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "state" / "status.log").symlink_to(tmp_path / "elsewhere" / "real.log")
        steps.take()
        files.append("status", b"one")
        assert "fsync ../elsewhere" in steps.take()

    def test_a_rotated_part_and_its_name_are_synced(
        self, files: FileStore, steps: Steps, tmp_path: Path
    ) -> None:
        files.append("status", b"one")
        steps.take()
        assert files.rotate("status")
        (part,) = (tmp_path / "state" / ".status").glob("[0-9]*")
        expected = {f"fsync .status/{part.name}", "fsync .status", "fsync ."}
        assert expected <= set(steps.take())
        # The process that rotated may have been killed before it synced.
        FileStore(files.root, durable=True).append("status", b"two")
        assert expected <= set(steps.take())

    def test_an_append_whose_sync_fails_raises(
        self, files: FileStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files.append("status", b"one")

        def failing(fd: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        for module in CALLS:
            monkeypatch.setattr(module, "fsync", failing)
        with pytest.raises(StoreError, match="Input/output error"):
            files.append("status", b"two")


class TestRecords:
    def test_records_are_synced_before_a_change_is_confirmed_and_before_they_replace_others(
        self, files: FileStore, steps: Steps
    ) -> None:
        files.create("locks/first", b"x")
        assert {"fsync locks", "fsync .", "fsync .."} <= set(steps.take())
        assert files.create("locks/a", b"one")
        assert steps.take() == [
            "write scratch",
            "link locks/a.lock",
            "fsync locks/a.lock",
            "fsync locks",
        ]
        assert files.replace("locks/a", b"one", b"two")
        steps.take()
        assert files.replace("locks/a", b"two", b"three")
        # after the slow sync: others respect an intent for a limited time
        intent = "announce an intent"
        assert steps.take() == [
            "write scratch",
            "fsync scratch",
            intent,
            "rename locks/a.lock",
            "fsync locks",
        ]

    def test_a_create_is_confirmed_if_its_scratch_directory_is_revoked_before_the_sync(
        self, tmp_path: Path
    ) -> None:
        records = RecordDirectory(tmp_path / "state")

        class RevokedBeforeSync(DurableFilesystem):
            def sync_content(self, path: str) -> None:
                revoke_all(records)
                super().sync_content(path)

        process = SwapDirectory(
            str(records.live),
            str(records.private),
            make_dirs=make_dirs,
            fs=RevokedBeforeSync(str(tmp_path / "state")),
        )
        assert process.create("t", b"one") and records.record() == b"one"

    def test_a_removal_is_synced_before_it_is_confirmed(
        self, files: FileStore, steps: Steps
    ) -> None:
        files.create("locks/a", b"one")
        files.replace("locks/a", b"one", b"two")
        steps.take()
        assert files.remove("locks/a", b"two")
        assert steps.take()[-2:] == ["rename locks/a.lock", "fsync locks"]

    def test_directories_that_swarm_made_again_are_synced_again(
        self, files: FileStore, steps: Steps, tmp_path: Path
    ) -> None:
        files.create("locks/a", b"one")
        (tmp_path / "state").rename(tmp_path / "away")
        steps.take()
        files.create("locks/a", b"one")
        assert {"fsync locks", "fsync .", "fsync .."} <= set(steps.take())

    def test_directories_that_a_user_made_again_are_synced_again(
        self, files: FileStore, steps: Steps, tmp_path: Path
    ) -> None:
        files.create("locks/a", b"one")
        files.create("locks/b", b"one")
        time.sleep(0.02)  # the clock of the filesystem ticks every few milliseconds
        shutil.rmtree(tmp_path / "state" / "locks")
        (tmp_path / "state" / "locks").mkdir()
        steps.take()
        files.create("locks/a", b"one")
        assert steps.take()[-3:] == ["fsync locks", "fsync .", "fsync .."]

    def test_a_durable_state_directory_may_have_a_relative_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        for root in ("state", "."):
            store = FileStore(root, durable=True)
            assert store.create("locks/a", b"one") and store.append("status", b"one")

    @needs_root
    def test_below_a_directory_that_may_not_be_read_the_whole_disk_is_synced(self) -> None:
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

    def test_cached_data_is_not_synced(self, files: FileStore, steps: Steps) -> None:
        files.prepare()
        steps.take()
        files.cache_put("status", b"x" * 100_000)
        assert not [step for step in steps.take() if "sync" in step]


def test_a_store_that_is_not_durable_syncs_nothing(tmp_path: Path, steps: Steps) -> None:
    files = FileStore(str(tmp_path / "state"))
    files.append("status", b"one")
    files.rotate("status")
    files.append("status", b"one")
    files.create("locks/a", b"one")
    files.replace("locks/a", b"one", b"two")
    files.remove("locks/a", b"two")
    assert not [step for step in steps.take() if "sync" in step]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_durable_store_fulfils_the_contract(
    check: Callable[[Store], None], files: FileStore
) -> None:
    check(files)


class TestSetting:
    @pytest.mark.parametrize(("text", "chosen"), [("1", True), ("0", False), ("", False)])
    def test_swarm_durable_makes_the_default_store_durable(
        self, text: str, chosen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path))
        chosen_store = DefaultStore()
        assert isinstance(before := chosen_store.store(), FileStore) and not before.durable
        monkeypatch.setenv("SWARM_DURABLE", text)
        assert isinstance(after := chosen_store.store(), FileStore) and after.durable is chosen
        monkeypatch.setenv("SWARM_STORE", f"file://{tmp_path}")
        assert isinstance(named := DefaultStore().store(), FileStore) and named.durable is chosen

    def test_open_store_makes_a_durable_store_on_request(self, tmp_path: Path) -> None:
        assert open_store(str(tmp_path), durable=True).durable  # type: ignore[attr-defined]
        assert not open_store(str(tmp_path)).durable  # type: ignore[attr-defined]

    @pytest.mark.parametrize("text", ["yes", "2", " 1"])
    def test_an_invalid_swarm_durable_is_refused(
        self, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_DURABLE", text)
        with pytest.raises(BadInput, match="SWARM_DURABLE"):
            DefaultStore().store()


@needs_root
@pytest.mark.parametrize("durable", ["1", "0"])
def test_a_durable_store_survives_a_loss_of_power(durable: str, tmp_path: Path) -> None:
    """The content of the disk is copied from below the mounted filesystem and mounted
    as after a crash.
    """
    with loop_mounted(tmp_path / "disk", "24M") as disk:
        disk.environment["SWARM_DURABLE"] = durable
        for command, *call in (
            ("lock", "acquire", "kept", "w", "600"),
            ("lock", "acquire", "released", "w", "600"),
            ("lock", "release", "released", "w"),
            ("log", "append", "START", "w", "one"),
            ("log", "rotate"),
            ("log", "append", "DONE", "w", "two"),
        ):
            done = disk.run(command, *call)
            assert done.returncode == 0, done.stderr
        below, after = tmp_path / "disk-below", tmp_path / "after"
        after.mkdir()
        copied = disk.inside(
            "sh",
            "-c",
            f"cp '{below}'/image-* '{below}/copy' && mount -o loop '{below}/copy' '{after}'",
        )
        assert copied.returncode == 0, copied.stderr
        try:
            disk.environment["AI_SWARM_DIR"] = str(after / "state")
            lines = disk.run("log", "tail").stdout.splitlines()
            locks = disk.run("lock", "list").stdout
        finally:
            disk.inside("umount", str(after))
    if durable == "1":
        assert [('"task_id": "one"' in line, '"task_id": "two"' in line) for line in lines] == [
            (True, False),
            (False, True),
        ]
        assert "kept" in locks and "released" not in locks
    else:
        assert lines == [] and "kept" not in locks, (
            "the test shows nothing if the data is on disk without syncs"
        )
