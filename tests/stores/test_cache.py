"""The cache: an entry is what was stored under its name, or it is missing."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import StoreError
from swarm.stores.cache import FileCache, MemoryCache
from swarm.stores.file import state_dir
from swarm.stores.file.state_dir import StateDir
from swarm.stores.file.syscalls import Filesystem


def made(path: Path, whose: str = "", filesystem: Filesystem | None = None) -> FileCache:
    return FileCache(str(path), StateDir(str(path), trusted=True), filesystem, whose=whose)


@pytest.fixture(params=["file", "memory"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> FileCache | MemoryCache:
    return made(tmp_path) if request.param == "file" else MemoryCache()


def test_an_entry_is_what_was_stored_last_until_it_is_dropped(
    cache: FileCache | MemoryCache,
) -> None:
    assert cache.get("status") is None
    for data in (b"one\ntwo\n", b"", b"three"):
        cache.put("status", data)
        assert cache.get("status") == data
    assert cache.get("tasks") is None
    cache.drop("tasks")
    cache.drop("status")
    assert cache.get("status") is None


def test_each_store_has_cache_entries_of_its_own(tmp_path: Path) -> None:
    for whose in ("redis://a", "redis://b", ""):
        made(tmp_path, whose).put("status", whose.encode())
    for whose in ("redis://a", "redis://b", ""):
        assert made(tmp_path, whose).get("status") == whose.encode()
    names = sorted(path.name for path in (tmp_path / ".cache").iterdir())
    assert names[-1] == "status" and len(names) == 3
    assert all(len(name.removesuffix(".status")) == 12 for name in names[:2])


@pytest.mark.parametrize("damage", ["data", "length", "checksum", "cut", "name", "empty"])
def test_a_damaged_entry_counts_as_missing(tmp_path: Path, damage: str) -> None:
    cache = made(tmp_path)
    cache.put("status", b"1" * 10)
    path = tmp_path / ".cache" / "status"
    content = path.read_bytes()
    assert content.startswith(b"swarm-cache-1 10 ") and content.endswith(b"\n" + b"1" * 10)
    asked = "status"
    if damage == "name":
        path.rename(path.with_name("tasks"))
        asked = "tasks"
    else:
        path.write_bytes(
            {
                "data": content[:-1] + b"2",
                "length": content.replace(b" 10 ", b" 11 "),
                "checksum": content.replace(content.split()[2], b"00000000"),
                "cut": content[:-1],
                "empty": b"",
            }[damage]
        )
    assert cache.get(asked) is None


def test_an_entry_of_another_store_counts_as_missing(tmp_path: Path) -> None:
    made(tmp_path, "redis://a").put("status", b"1")
    (entry,) = (tmp_path / ".cache").iterdir()
    entry.rename(entry.with_name("status"))
    assert made(tmp_path).get("status") is None


def test_a_cache_that_cannot_be_used_is_an_error_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / ".cache").write_text("in the way")
    cache = made(tmp_path, "x")
    calls: tuple[Callable[[], object], ...] = (
        lambda: cache.put("status", b"1"),
        lambda: cache.get("status"),
        lambda: cache.drop("status"),
    )
    for call in calls:
        with pytest.raises(StoreError, match=r"cannot be used: .*/\.cache"):
            call()


def test_a_draft_of_another_process_is_left_alone_until_it_is_old(tmp_path: Path) -> None:
    cache = made(tmp_path)
    cache.put("status", b"1")
    draft = tmp_path / ".cache" / "status.draft"
    draft.write_bytes(b"of another process")
    cache.put("status", b"2")
    assert draft.exists() and cache.get("status") == b"1"
    old = time.time() - 61
    os.utime(draft, (old, old))
    cache.put("status", b"3")
    assert not draft.exists() and cache.get("status") == b"1"
    cache.put("status", b"4")
    assert not draft.exists() and cache.get("status") == b"4"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_an_entry_that_was_cut_off_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    filesystem = Filesystem()
    cache = made(tmp_path, filesystem=filesystem)
    cache.put("status", b"1")

    def cut_off(path: str, data: bytes) -> None:
        Path(path).write_bytes(data[:5])
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(filesystem, "write_new", cut_off)
        with pytest.raises(StoreError if isinstance(error, OSError) else KeyboardInterrupt):
            cache.put("status", b"2")
    assert [path.name for path in (tmp_path / ".cache").iterdir()] == ["status"]
    assert cache.get("status") == b"1"


def test_an_entry_that_was_never_begun_leaves_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem = Filesystem()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(filesystem, "write_new", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, filesystem=filesystem).put("status", b"1")


def test_a_cache_behind_a_symbolic_link_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".cache").symlink_to("elsewhere")
    cache = made(tmp_path)
    calls: tuple[Callable[[], object], ...] = (
        lambda: cache.put("a", b""),
        lambda: cache.get("a"),
        lambda: cache.drop("a"),
    )
    for call in calls:
        with pytest.raises(StoreError, match="symbolic link"):
            call()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_root_removes_no_entry_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = made(tmp_path)
    cache.put("status", b"1")

    def refuse(*_: Any) -> None:
        raise StoreError("this is the directory of another user")

    monkeypatch.setattr(StateDir, "refuse_root", refuse)
    with pytest.raises(StoreError, match="another user"):
        cache.drop("status")
    assert cache.get("status") == b"1"


def test_the_cache_of_a_server_is_in_the_state_directory_that_the_environment_names(
    isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FileCache.given("redis://a")
    cache.put("status", b"1")
    directory = StateDir(state_dir.given().path, trusted=True)
    assert FileCache(directory.path, directory, whose="redis://a").get("status") == b"1"

    def refuse() -> StateDir:
        raise StoreError("this directory may be under another user's control")

    FileCache.given().put("status", b"2")
    assert FileCache(directory.path, directory).get("status") == b"2"
    monkeypatch.setattr("swarm.stores.file.state_dir.given", refuse)
    assert isinstance(FileCache.given("redis://a"), MemoryCache)


def test_an_untrusted_directory_is_not_read(tmp_path: Path) -> None:
    made(tmp_path).put("status", b"1")
    tmp_path.chmod(0o777)
    untrusted = FileCache(str(tmp_path), StateDir(str(tmp_path), trusted=False))
    with pytest.raises(StoreError, match="may be written to by other users"):
        untrusted.get("status")
