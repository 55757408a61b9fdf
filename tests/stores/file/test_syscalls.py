"""The system calls of the file store, also on files that another user planted."""

from __future__ import annotations

import ast
import errno
import gc
import os
import posix
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.stores.file import syscalls
from swarm.stores.file.syscalls import Filesystem, make_dirs
from tests.conftest import ROOT, open_descriptors

FS = Filesystem()


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    gc.collect()  # close what earlier tests left open
    before = open_descriptors()
    yield
    assert open_descriptors() <= before  # files of earlier tests may be closed meanwhile


class TestFiles:
    @pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3_000_000])
    def test_a_file_is_read_as_it_was_written(self, size: int, tmp_path: Path) -> None:
        data = os.urandom(size)
        FS.write_new(f"{tmp_path}/a", data)
        assert FS.read(f"{tmp_path}/a") == data and FS.size(f"{tmp_path}/a") == size
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600

    def test_a_write_that_takes_several_calls_is_complete(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.write
        monkeypatch.setattr(posix, "write", lambda fd, data: real(fd, data[:3]))
        FS.write_new(f"{tmp_path}/a", b"0123456789")
        assert (tmp_path / "a").read_bytes() == b"0123456789"

    def test_reading_a_directory_raises_an_error_that_names_it(self, tmp_path: Path) -> None:
        with pytest.raises(IsADirectoryError) as error:
            FS.read(str(tmp_path))
        facts = (error.value.errno, error.value.strerror, error.value.filename)
        assert facts == (errno.EISDIR, os.strerror(errno.EISDIR), str(tmp_path))

    def test_write_new_does_not_overwrite_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"old")
        with pytest.raises(FileExistsError):
            FS.write_new(f"{tmp_path}/a", b"new")
        assert (tmp_path / "a").read_bytes() == b"old"

    def test_a_symlink_is_neither_read_nor_grown(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"x")
        (tmp_path / "link").symlink_to("a")
        for call in (
            lambda: FS.read(f"{tmp_path}/link"),
            lambda: FS.grow(f"{tmp_path}/link", sync=False),
        ):
            with pytest.raises(OSError, match="symbolic links") as refused:
                call()
            assert refused.value.errno == errno.ELOOP
        assert FS.size(f"{tmp_path}/link") == 1 and (tmp_path / "a").read_bytes() == b"x"

    def test_a_planted_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        assert FS.read(f"{tmp_path}/pipe") == b""
        with pytest.raises(OSError, match="No such device or address"):
            FS.grow(f"{tmp_path}/pipe", sync=False)

    def test_each_grow_returns_another_number(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        assert [FS.grow(f"{tmp_path}/a", sync=False) for _ in range(3)] == [1, 2, 3]
        assert FS.size(f"{tmp_path}/a") == 3

    def test_grow_creates_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            FS.grow(f"{tmp_path}/a", sync=False)
        assert not (tmp_path / "a").exists()

    def test_bytes_are_appended_only_to_a_file_that_exists(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            FS.append(f"{tmp_path}/a", b"one")
        (tmp_path / "a").write_bytes(b"one")
        FS.append(f"{tmp_path}/a", b"two")
        assert (tmp_path / "a").read_bytes() == b"onetwo"

    @pytest.mark.parametrize("sync", [False, True])
    def test_grow_syncs_on_request(
        self, sync: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[int] = []
        monkeypatch.setattr(posix, "fsync", synced.append)
        (tmp_path / "a").touch()
        FS.grow(f"{tmp_path}/a", sync=sync)
        assert len(synced) == sync

    def test_an_age_is_positive_for_a_time_in_the_future_too(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        for offset in (-100, 100):
            os.utime(tmp_path / "a", (time.time() + offset, time.time() + offset))
            assert 90 < FS.age(f"{tmp_path}/a") < 110

    def test_no_program_can_set_the_time_of_a_change(self, tmp_path: Path) -> None:
        (tmp_path / "a").symlink_to("text")
        before = FS.changed_at(f"{tmp_path}/a")
        os.utime(tmp_path / "a", (1, 1), follow_symlinks=False)
        assert FS.changed_at(f"{tmp_path}/a") >= before > 10**18

    def test_exists_is_true_for_a_dangling_symlink(self, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to("nothing")
        assert FS.exists(f"{tmp_path}/link") is True and FS.exists(f"{tmp_path}/nothing") is False
        (tmp_path / "file").touch()
        with pytest.raises(NotADirectoryError):
            FS.exists(f"{tmp_path}/file/below")


class TestDirectories:
    def test_directories_are_made_with_mode_700(self, tmp_path: Path) -> None:
        FS.mkdir(f"{tmp_path}/a")
        make_dirs(f"{tmp_path}/b/c/d")
        for name in ("a", "b", "b/c", "b/c/d"):
            assert (tmp_path / name).stat().st_mode & 0o777 == syscalls.DIR_MODE == 0o700

    def test_names_and_own_names_list_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        (tmp_path / "b").mkdir()
        assert sorted(FS.names(str(tmp_path))) == ["a", "b"]
        assert sorted(FS.own_names(str(tmp_path))) == ["a", "b"]
        for names in (FS.names, FS.own_names):
            with pytest.raises(NotADirectoryError):
                names(f"{tmp_path}/a")
            with pytest.raises(FileNotFoundError):
                names(f"{tmp_path}/nothing")

    def test_own_names_refuses_a_symlink(self, tmp_path: Path) -> None:
        (tmp_path / "b").mkdir()
        (tmp_path / "link").symlink_to("b")
        with pytest.raises(NotADirectoryError) as refused:
            FS.own_names(f"{tmp_path}/link")
        assert refused.value.args == (errno.ENOTDIR, "Not a directory")
        assert refused.value.filename == f"{tmp_path}/link"

    def test_sync_dir_follows_a_symlink(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[str] = []
        monkeypatch.setattr(
            posix, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        )
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        (tmp_path / "file").touch()
        FS.sync_dir(f"{tmp_path}/link")
        assert synced == [str(tmp_path / "real")]
        with pytest.raises(NotADirectoryError):
            FS.sync_dir(f"{tmp_path}/file")

    def test_make_dirs_does_not_change_a_directory_that_exists(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir(mode=0o755)
        (tmp_path / "link").symlink_to("a")
        for name in ("a", "link"):
            make_dirs(f"{tmp_path}/{name}")
        assert (tmp_path / "a").stat().st_mode & 0o777 == 0o755

    def test_make_dirs_raises_an_error_that_names_a_file_at_its_path(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        with pytest.raises(NotADirectoryError, match="is a file, not a directory") as refused:
            make_dirs(f"{tmp_path}/a")
        assert refused.value.args == (errno.ENOTDIR, "is a file, not a directory")
        assert refused.value.filename == f"{tmp_path}/a"
        assert refused.value.__suppress_context__

    def test_make_dirs_accepts_a_directory_that_another_process_makes_meanwhile(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, calls = os.mkdir, []

        def meanwhile(path: str, mode: int) -> None:
            calls.append(path)
            if len(calls) == 3:
                real(path, mode)
            real(path, mode)

        monkeypatch.setattr(posix, "mkdir", meanwhile)
        make_dirs(f"{tmp_path}/a/b")
        assert calls == [f"{tmp_path}/a/b", f"{tmp_path}/a", f"{tmp_path}/a/b"]

    def test_make_dirs_raises_where_not_even_the_root_can_be_made(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def failing(path: str, mode: int) -> None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

        monkeypatch.setattr(posix, "mkdir", failing)
        with pytest.raises(FileNotFoundError) as error:
            make_dirs("/a/b")
        assert error.value.filename == "/"

    @pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs the /proc of Linux")
    def test_make_dirs_gives_up_in_proc(self) -> None:
        with pytest.raises(
            FileNotFoundError, match="cannot create this directory: '/proc/nope'"
        ) as error:
            make_dirs("/proc/nope/results")
        assert error.value.errno == errno.ENOENT

    def test_make_dirs_makes_a_directory_again_that_is_removed_meanwhile(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refused = [FileExistsError(errno.EEXIST, "it was there a moment ago")]
        mkdir = os.mkdir

        def removed_meanwhile(path: str, mode: int) -> None:
            if refused:
                raise refused.pop()
            mkdir(path, mode)

        monkeypatch.setattr(posix, "mkdir", removed_meanwhile)
        make_dirs(f"{tmp_path}/a")
        assert (tmp_path / "a").is_dir() and not refused


@pytest.mark.parametrize("target", ["nowhere", "directory", "treasure"])
def test_linking_a_symlink_does_not_follow_it(target: str, tmp_path: Path) -> None:
    """Python 3.14 follows it by default."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "treasure").write_text("gold")
    (tmp_path / "link").symlink_to(target)
    FS.link(f"{tmp_path}/link", f"{tmp_path}/further")
    assert (tmp_path / "further").is_symlink() and os.readlink(tmp_path / "further") == target
    assert (tmp_path / "treasure").stat().st_nlink == 1


def test_every_call_of_os_link_says_that_it_follows_no_symlink() -> None:
    for path in (ROOT / "swarm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name("os" | "posix"), attr="link")):
                    keywords = {word.arg: ast.unparse(word.value) for word in node.keywords}
                    assert keywords == {"follow_symlinks": "False"}, f"{path}:{node.lineno}"
