"""The file store: the paths of its files, how long it waits, and how it reports system errors."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path
from typing import Any, Self

import pytest

from swarm.errors import Busy, StoreError
from swarm.stores.file import store as store_file
from swarm.stores.file.store import FileStore
from swarm.stores.file.swap import SwapDirectory
from swarm.stores.file.syscalls import Filesystem
from swarm.stores.file.tokens import TokenCounters
from swarm.system.clock import Clock
from tests.conftest import HandClock, open_descriptors


@pytest.fixture
def files(tmp_path: Path, clock: HandClock) -> FileStore:
    return FileStore(str(tmp_path / "state"), clock=clock)


class Watches:
    """A fake of inotify: records what is watched and for how long, and moves the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: HandClock) -> None:
        self.seen: list[tuple[str, str, float]] = []
        self.meanwhile: list[Any] = []
        watches = self

        class Watch:
            def __init__(self, path: str) -> None:
                self.path = path

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *exception: object) -> None:
                pass

            def wait(self, name: str, timeout: float) -> None:
                watches.seen.append((self.path, name, timeout))
                clock.pass_time(timeout)
                if watches.meanwhile:
                    watches.meanwhile.pop(0)()

        monkeypatch.setattr(FileStore, "_watch", lambda self, path: Watch(path))


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch, clock: HandClock) -> Watches:
    return Watches(monkeypatch, clock)


class TestPaths:
    def test_reading_an_empty_store_creates_nothing(self, files: FileStore) -> None:
        assert (
            files.read("locks/a") is None
            and files.keys("locks") == []
            and files.token_bound("locks/a") == 0
        )
        assert (
            files.tail("status", 5)[0] == []
            and list(files.numbered("status")) == []
            and files.rotate("status") is False
        )
        assert files.age("locks/a") == 0.0
        files.close()
        assert not os.path.exists(files.root)

    def test_records_logs_and_private_files_have_their_paths(self, files: FileStore) -> None:
        root = Path(files.root)
        assert files.create("locks/a", b"x") and files.append("status", b"line")
        assert (root / "locks" / "a.lock").read_bytes() == b"x" and (
            root / "status.log"
        ).read_bytes() == b"line\n"
        assert files.where("locks/a") == str(root / "locks" / "a.lock")
        assert files.rotate("status") is True
        assert sorted(os.listdir(root)) == [".locks", ".status", "locks"]

    def test_namespaces_and_logs_do_not_mix(self, files: FileStore) -> None:
        assert files.create("locks/a", b"x") and files.create("other/a", b"y")
        assert (files.read("locks/a"), files.read("other/a")) == (b"x", b"y")
        assert (files.keys("locks"), files.keys("other")) == (["locks/a"], ["other/a"])
        assert [
            files.next_token("locks/a"),
            files.next_token("other/a"),
            files.next_token("locks/a"),
        ] == [1, 1, 2]
        files.append("status", b"one")
        files.append("other", b"two")
        assert (files.tail("status", 5)[0], files.tail("other", 5)[0]) == ([b"one"], [b"two"])

    def test_prepare_creates_the_state_directory_and_a_namespace(self, files: FileStore) -> None:
        files.prepare()
        assert os.listdir(files.root) == []
        files.prepare("locks")
        assert os.listdir(files.root) == ["locks"]

    def test_a_symlink_is_accepted_as_a_chosen_path_and_refused_as_the_default(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        assert FileStore(f"{tmp_path}/link").create("locks/a", b"") is True
        assert FileStore(f"{tmp_path}/real", trusted=False).create("locks/b", b"") is True
        with pytest.raises(StoreError, match="is a symbolic link and is not used"):
            FileStore(f"{tmp_path}/link", trusted=False)

    @pytest.mark.parametrize(
        "name",
        ["locks", ".locks", *(f".locks/{name}" for name in SwapDirectory.DIRECTORIES), ".status"],
    )
    def test_a_symlink_at_the_path_of_a_directory_of_swarm_is_refused(
        self, name: str, files: FileStore, tmp_path: Path
    ) -> None:
        (tmp_path / "treasure").mkdir()
        link = tmp_path / "state" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(tmp_path / "treasure")
        with pytest.raises(StoreError) as refused:
            files.append("status", b"") if name == ".status" else files.read("locks/a")
        assert f"{link} is a symbolic link" in str(refused.value)

    @pytest.mark.parametrize(
        "name", [".locks", *(f".locks/{name}" for name in TokenCounters.DIRECTORIES)]
    )
    @pytest.mark.parametrize("verb", ["next_token", "token_bound"])
    def test_a_symlink_at_the_path_of_token_counters_is_refused(
        self, verb: str, name: str, files: FileStore, tmp_path: Path
    ) -> None:
        (tmp_path / "treasure").mkdir()
        link = tmp_path / "state" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(tmp_path / "treasure")
        with pytest.raises(StoreError) as refused:
            getattr(files, verb)("locks/a")
        assert f"{link} is a symbolic link" in str(refused.value)

    def test_keys_can_be_read_in_pages(self, files: FileStore) -> None:
        for name in "cab":
            files.create(f"locks/{name}", b"")
        assert files.keys("locks") == ["locks/a", "locks/b", "locks/c"]
        assert files.keys("locks", limit=2) == ["locks/a", "locks/b"]
        assert files.keys("locks", after="locks/a") == ["locks/b", "locks/c"]
        assert files.keys("locks", after="locks/aa", limit=1) == ["locks/b"]
        assert files.create("LOCKS/a", b"") and files.keys("LOCKS") == ["LOCKS/a"]

    def test_the_age_of_a_record_is_the_age_of_its_file(self, files: FileStore) -> None:
        files.create("locks/a", b"")
        os.utime(files.where("locks/a"), (0, 0))
        assert files.age("locks/a") > 1e9

    def test_a_store_makes_a_clock_unless_it_gets_one(
        self, files: FileStore, clock: HandClock, tmp_path: Path
    ) -> None:
        assert files.clock is clock and type(FileStore(str(tmp_path)).clock) is Clock

    def test_the_status_log_rotates_at_log_max_bytes(self, tmp_path: Path) -> None:
        store = FileStore(str(tmp_path / "state"), log_max_bytes=6)
        store.append("status", b"12")
        assert not (tmp_path / "state" / ".status").exists()
        store.append("status", b"34")
        assert len(list((tmp_path / "state" / ".status").glob("*/part"))) == 1

    def test_no_other_log_rotates_by_itself(self, tmp_path: Path) -> None:
        store = FileStore(str(tmp_path / "state"), log_max_bytes=6)
        store.append("tasks", b"123456")
        assert os.listdir(tmp_path / "state" / ".tasks") == ["tasks.log"]

    def test_a_closed_store_watches_nothing(self, tmp_path: Path) -> None:
        before = open_descriptors()
        files = FileStore(str(tmp_path / "state"))
        files.append("status", b"one")
        files.wait("status", files.tail("status", 0)[1], 0.01)
        files.close()
        assert open_descriptors() == before

    def test_read_log_reads_up_to_its_limit_or_a_mebibyte(self, files: FileStore) -> None:
        for _ in range(30):
            files.append("status", b"x" * 65_535)
        assert len(files.read_log("status")[0]) == 16
        assert len(files.read_log("status", "", 65_536 * 3)[0]) == 3
        assert len(files.read_log("status", files.read_log("status", "", 0)[1])[0]) == 16


class TestErrors:
    class Broken(Filesystem):
        def __getattribute__(self, name: str) -> Any:
            if name.startswith("_"):
                return super().__getattribute__(name)

            def failing(*args: object, **options: object) -> None:
                raise OSError(errno.EIO, "Input/output error", "/the/disk")

            return failing

    @pytest.mark.parametrize(
        ("verb", "args"),
        [
            ("read", ("locks/a",)),
            ("create", ("locks/a", b"")),
            ("replace", ("locks/a", b"", b"")),
            ("remove", ("locks/a", b"")),
            ("keys", ("locks",)),
            ("age", ("locks/a",)),
            ("watch", ("locks/a", b"", 0.0)),
            ("next_token", ("locks/a",)),
            ("token_bound", ("locks/a",)),
        ],
    )
    def test_a_system_error_of_a_record_becomes_a_store_error(
        self, verb: str, args: tuple[Any, ...], tmp_path: Path
    ) -> None:
        store = FileStore(str(tmp_path), filesystem=self.Broken())
        with pytest.raises(StoreError, match="/the/disk") as error:
            getattr(store, verb)(*args)
        assert isinstance(error.value.__cause__, OSError)

    @pytest.mark.parametrize(
        ("verb", "args"),
        [
            ("append", ("status", b"")),
            ("read_log", ("status",)),
            ("tail", ("status", 1)),
            ("wait", ("status", "", 0.0)),
            ("rotate", ("status",)),
            ("numbered", ("status",)),
        ],
    )
    def test_a_system_error_of_a_log_becomes_a_store_error(
        self, verb: str, args: tuple[Any, ...], tmp_path: Path
    ) -> None:
        (tmp_path / "status.log").mkdir()
        with pytest.raises(StoreError, match=r"status\.log"):
            list(getattr(FileStore(str(tmp_path)), verb)(*args) or [])

    def test_a_directory_that_cannot_be_made_is_a_store_error(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreError):
            FileStore(str(tmp_path / "file" / "state")).prepare("locks")

    def test_busy_is_raised_unchanged(
        self, files: FileStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files.create("locks/a", b"x")
        monkeypatch.setattr(
            "swarm.stores.file.swap.SwapDirectory._next_file",
            lambda self: (_ for _ in ()).throw(Busy("at work")),
        )
        with pytest.raises(Busy, match=r"^at work$"):
            files.replace("locks/a", b"x", b"y")


class TestWatching:
    def test_watch_waits_only_while_the_record_is_unchanged(
        self, files: FileStore, watches: Watches
    ) -> None:
        files.create("locks/a", b"x")
        files.watch("locks/a", b"x", 0.5)
        files.watch("locks/a", b"x", 7.0)
        files.watch("locks/a", b"y", 7.0)
        files.watch("locks/a", None, 7.0)
        files.watch("locks/absent", None, 0.25)
        folder = f"{files.root}/locks"
        longest = store_file._WATCH_RENEWAL
        assert watches.seen == [
            (f"{folder}/a.lock", "", 0.5),
            (f"{folder}/a.lock", "", longest),
            (folder, "absent.lock", 0.25),
        ]

    def test_wait_returns_when_a_line_is_appended(self, files: FileStore, watches: Watches) -> None:
        cursor = files.append("status", b"one")
        watches.meanwhile = [lambda: None, lambda: files.append("status", b"two")]
        assert files.wait("status", cursor, 30.0) is True
        assert watches.seen == [(os.path.realpath(files.root), "status.log", 1.0)] * 2

    def test_wait_returns_false_after_its_timeout(self, files: FileStore, watches: Watches) -> None:
        assert files.wait("status", "", 2.5) is False
        assert [timeout for _, _, timeout in watches.seen] == [1.0, 1.0, 0.5]
        watches.seen.clear()
        assert files.wait("status", "", 0.0) is False and watches.seen == []

    def test_wait_returns_at_once_if_there_is_a_line(
        self, files: FileStore, watches: Watches
    ) -> None:
        files.append("status", b"one")
        assert files.wait("status", "", 30.0) is True and watches.seen == []

    def test_wait_watches_the_target_of_a_symlinked_log(
        self, files: FileStore, watches: Watches, tmp_path: Path
    ) -> None:
        files.prepare()
        (tmp_path / "elsewhere").mkdir()
        os.symlink(tmp_path / "elsewhere" / "real.log", f"{files.root}/status.log")
        assert files.wait("status", "", 0.5) is False
        assert watches.seen == [(os.path.realpath(tmp_path / "elsewhere"), "real.log", 0.5)]


def test_a_closed_store_has_no_open_files_and_no_scratch_directory(files: FileStore) -> None:
    gc.collect()  # close what earlier tests left open
    before = open_descriptors()
    files.create("locks/a", b"x")
    files.append("status", b"line")
    assert len(os.listdir(f"{files.root}/.locks/scratch")) == 1
    files.close()
    assert os.listdir(f"{files.root}/.locks/scratch") == [] and open_descriptors() == before
    assert files.replace("locks/a", b"x", b"y") and files.append("status", b"again")
