"""Entries of any kind in swarm's own directories, left by a crash, a backup, a person
or another program.

Whatever they are: a held lock stays held, a free task can be acquired, every whole
record is read, and nothing outside the state directory is touched. Where that is
impossible, the error names the entry, and removing it is the fix.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from swarm.errors import LockHeld, StoreError
from swarm.locks.table import LockTable
from swarm.status.log import StatusLog
from swarm.stores.file import swap, tokens
from swarm.stores.file.store import FileStore
from tests.support.command_line import run

T = TypeVar("T")
MANY = settings(max_examples=4 * settings().max_examples)
SCRATCH = "s" + "0" * 16
EXPIRED = b'{"worker": "gone", "expires_at": "2020-01-01"}'


def socket_at(path: str) -> None:
    # the path of a socket has at most 108 bytes
    short = f"{tempfile.gettempdir()}/swarm-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(short)
    os.rename(short, path)


def file_with(data: bytes) -> Callable[[str], None]:
    def make(path: str) -> None:
        Path(path).write_bytes(data)

    return make


def directory_with(*names: str) -> Callable[[str], None]:
    def make(path: str) -> None:
        os.mkdir(path)
        for name in names:
            Path(path, name).write_bytes(b'{"task_id": "foreign"}\n')

    return make


def nested(path: str) -> None:
    os.makedirs(f"{path}/inner/most")


def link_to(target: str) -> Callable[[str], None]:
    return lambda path: os.symlink(target, path)


KINDS: dict[str, Callable[[str], None]] = {
    "file": file_with(b"not what belongs here"),
    "empty file": file_with(b""),
    "directory": os.mkdir,
    "directory with a file": directory_with("junk"),
    "directory with a part": directory_with("part"),
    "directory in a directory": nested,
    "fifo": os.mkfifo,
    "socket": socket_at,
    "link to itself": lambda path: os.symlink(os.path.basename(path), path),
    "link to a scratch": link_to(SCRATCH),
    "link out": link_to("../../../treasure"),
    "link out by a file": link_to("../../../treasure/gold"),
    "link to the root": link_to("/"),
    "dangling link": link_to("nowhere"),
    "long link": link_to("x" * 300),
    "longest link": link_to("9" * 4000),
    "strange link": link_to(os.fsdecode(b"a\nb\xff\x1b[31m")),
    "number": link_to("7"),
    "negative number": link_to("-5"),
    "strange number": link_to("²"),
}


SHARDS = {
    task: str(int.from_bytes(task.encode(), "big") % tokens.SHARDS)
    for task in ("held", "old", "free", "torn")
}
ENTRIES = {
    "intents": [
        *(f"old~{SCRATCH}~{number}" for number in (0, "9" * 200)),
        f"old~s{'f' * 16}~0",
        f"held~{SCRATCH}~0",
        f"free~s{'1' * 16}~0",
        f"torn~~{SCRATCH}~0",
        f"torn~{SCRATCH}~0",
        f"old~{SCRATCH}",
        f"old~{SCRATCH}~x",
        f"old~{SCRATCH}~²",
        "old~",
        "old~x",
        "~~",
        "²",
        "a\nb",
        "x" * 250,
        "x" * 226 + f"~{SCRATCH}~0",
        os.fsdecode(b"\xff~\xff"),
    ],
    "scratch": [SCRATCH, "s" + "f" * 16, "scratch", "²", "a\nb", os.fsdecode(b"\xff"), "x" * 255],
    "generations": [
        "0",
        "1",
        "7",
        "007",
        "-1",
        "²",
        "٣",
        "0.synced",
        "1.synced",
        "999999998",
        "1000000000",
        "9" * 200,
        "x",
    ],
    "tokens": [*SHARDS.values(), "x", "²", "a\nb"],
}
PLANTED = some.sampled_from(sorted(ENTRIES)).flatmap(
    lambda folder: some.tuples(
        some.just(folder), some.sampled_from(ENTRIES[folder]), some.sampled_from(sorted(KINDS))
    )
)
AGES = some.sampled_from([0.0, 10.0, 10_000.0, -10_000.0])


@contextmanager
def around(treasure: str = "gold") -> Iterator[Path]:
    """Make a state directory beside a treasure of other files.

    Fail if the treasure was touched.
    """
    root = Path(tempfile.mkdtemp(prefix="swarm-test-"))
    try:
        (root / "treasure").mkdir()
        (root / "treasure" / treasure).write_text("gold")
        (root / "state").mkdir()
        before = os.stat(root / "treasure").st_mtime_ns
        with (
            mock.patch.dict(os.environ, SWARM_STATE_DIR=str(root / "state")),
            mock.patch.object(swap, "INTENT_TIMEOUT", 0.0),
        ):
            yield root / "state"
        assert (
            os.listdir(root / "treasure") == [treasure]
            and os.stat(root / "treasure").st_mtime_ns == before
        )
        assert (root / "treasure" / treasure).read_text() == "gold"
    finally:
        shutil.rmtree(root)


def plant(path: str, kind: str, age: float) -> None:
    if os.path.lexists(path):
        remove(path)
    KINDS[kind](path)
    os.utime(path, (time.time() - age,) * 2, follow_symlinks=False)


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def cured(work: Callable[[], T], excuses: list[str]) -> T:
    """Return the result of `work`, after removing every entry that its errors name.

    Only excuses may be named.
    """
    while True:
        try:
            return work()
        except StoreError as error:
            message = str(error)
        named = [
            path
            for path in excuses
            if f"{path}:" in message or f"{path} " in message or f"{path}/" in message
        ]
        assert len(named) == 1, message
        remove(named[0])
        excuses.remove(named[0])


def is_excuse(folder: str, name: str, kind: str, plants: list[Any]) -> bool:
    """Return whether this is a counter that cannot grow, or a scratch directory of an
    intent that cannot be removed.
    """
    if folder == "scratch":
        has_intent = any(
            intent == "intents" and f"~{name}~" in entry for (intent, entry, _), _ in plants
        )
        return kind == "directory in a directory" and has_intent
    return (
        folder == "tokens" and name in SHARDS.values() and kind not in ("file", "empty file")
    ) or name == "999999999"


@MANY
@given(some.lists(some.tuples(PLANTED, AGES), min_size=1, max_size=6))
@example(
    [
        (("scratch", SCRATCH, "directory in a directory"), 10_000.0),
        (("intents", f"old~{SCRATCH}~0", "link to a scratch"), 0.0),
    ]
)
@example(
    [
        (("intents", f"old~s{'f' * 16}~0", "dangling link"), 0.0),
        (("scratch", "s" + "f" * 16, "directory in a directory"), 0.0),
    ]
)
@example([(("generations", "999999999", "dangling link"), 0.0)])
def test_planted_private_entries_neither_free_a_held_lock_nor_block_a_free_one(
    plants: list[Any],
) -> None:
    with around() as state:
        mine = LockTable(FileStore(str(state)))
        lock = mine.acquire("held", "owner", 10_000)
        for task, data in (("old", EXPIRED), ("torn", b"{")):
            (state / "locks" / f"{task}.lock").write_bytes(data)
            os.utime(state / "locks" / f"{task}.lock", (1, 1))
        planted, excuses = [], []
        for (folder, name, kind), age in plants:
            path = f"{state}/.locks/{folder}/{name}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            # a lost counter cannot be restored
            if path not in planted and not (folder == "tokens" and os.path.exists(path)):
                plant(path, kind, age)
                planted.append(path)
                excuses += [path] if is_excuse(folder, name, kind, plants) else []

        record = (state / "locks" / "held.lock").read_bytes()
        assert run("lock", "list").code == 0
        assert run("lock", "acquire", "held", "thief").code == 1
        table = LockTable(FileStore(str(state)))
        with pytest.raises(LockHeld):
            table.acquire("held", "thief", 60)
        assert (state / "locks" / "held.lock").read_bytes() == record

        for task in ("old", "free", "torn"):
            assert run("lock", "acquire", task, "v").code in ((0, 3) if excuses else (0,))
            if not table.status(task).is_held:
                assert cured(lambda task=task: table.acquire(task, "v", 60), excuses).worker == "v"  # type: ignore[misc]
            with pytest.raises(LockHeld):
                LockTable(FileStore(str(state))).acquire(task, "thief", 60)
        table.store._records_of("locks").collect_garbage(age=-1.0, batch=1000)  # type: ignore[attr-defined]
        assert (
            cured(lambda: table.heartbeat("held", "owner", lock.token), excuses).token == lock.token
        )
        assert (
            cured(lambda: table.release("held", "owner", lock.token), excuses).token == lock.token
        )
        again = cured(lambda: table.acquire("held", "successor", 60), excuses)
        assert again.token is not None and lock.token is not None and again.token > lock.token


@pytest.mark.parametrize("age", [10.0, -10.0, 100_000.0])
def test_an_intent_of_a_live_process_is_respected_until_it_times_out(age: float) -> None:
    with around() as state, mock.patch.object(swap, "INTENT_TIMEOUT", 3.0):
        table = LockTable(FileStore(str(state)))
        table.acquire("other", "w", 60)
        (state / "locks" / "old.lock").write_bytes(EXPIRED)
        (state / ".locks" / "scratch" / SCRATCH).mkdir()
        intent = f"{state}/.locks/intents/old~{SCRATCH}~0"
        plant(intent, "empty file", 0.0)
        with pytest.raises(LockHeld):
            table.acquire("old", "v", 60)
        remove(intent)
        plant(intent, "empty file", age)
        assert table.acquire("old", "v", 60).worker == "v"


OWN = [
    "locks",
    ".locks",
    ".locks/scratch",
    ".locks/intents",
    ".locks/tokens",
    ".locks/generations",
    ".status",
]


@pytest.mark.parametrize("name", OWN)
def test_a_symlink_in_place_of_a_private_directory_is_refused(name: str) -> None:
    with around() as state:
        store = FileStore(str(state))
        LockTable(store).acquire("t", "w", 60)
        StatusLog(store).append("START", "w", "t")
        assert store.rotate("status")
        StatusLog(store).append("START", "w", "t")
        store.close()
        shutil.rmtree(state / name)
        (state / name).symlink_to("../" * (1 + name.count("/")) + "treasure")
        command = ("log", "rotate") if name == ".status" else ("lock", "acquire", "u", "w")
        answer = run(*command)
        assert answer.code == 3 and f"{name} is a symbolic link".encode() in answer.err


# The parts of the log -----------------------------------------------------------------

ENDS = ["abc", "-5", "0x10", "1e2", " 5", "²", "٣", "1000000", "9" * 4000, "+5"]
NAMES = [
    "0000000001-x",
    "0000000003-x",
    "0000000050-x",
    "0000000000-x",
    "²-x",
    "٣-x",
    "9" * 19 + "-x",
    "x",
    "a\nb",
    os.fsdecode(b"\xff-x"),
    "-",
]


def lines(found: Any) -> list[int]:
    return [json.loads(line)["meta"]["n"] for line in found]


def read_all(state: Path) -> list[int]:
    return lines(line for line, _, _ in StatusLog(FileStore(str(state))).follow("", silence=0.0))


@contextmanager
def log_of_four() -> Iterator[tuple[Path, list[Path]]]:
    """Write records 1 to 4. The first three were put aside one by one."""
    with around("part") as state:
        for number in range(1, 5):
            store = FileStore(str(state))
            StatusLog(store).append("START", "w", "t", meta={"n": number})
            store.close()
            assert number == 4 or store.rotate("status")
        yield state, sorted((state / ".status").glob("[0-9]*"))


def expect_records(state: Path, expected: list[int]) -> None:
    """Check every way of reading, also after more records and another rotation."""
    for number in (5, 6):
        log = StatusLog(FileStore(str(state)))
        assert (
            read_all(state)
            == lines(log.tail(100))
            == lines(line for line, _ in log.query("t"))
            == expected
        )
        assert lines(run("log", "query", "t").out.splitlines()) == expected
        assert run("log", "validate").code == 0
        log.append("START", "w", "t", meta={"n": number})
        expected = [*expected, number]
        assert log.store.rotate("status"), "residue does not keep the log from being rotated"
        assert read_all(state) == expected


@MANY
@given(
    some.lists(
        some.tuples(some.sampled_from(NAMES), some.sampled_from(sorted(KINDS))),
        min_size=1,
        max_size=4,
    ),
    AGES,
)
def test_planted_log_parts_hide_no_record(plants: list[tuple[str, str]], age: float) -> None:
    with log_of_four() as (state, _):
        for name, kind in plants:
            holds_a_part = (
                kind == "directory with a part"
                and name.partition("-")[0].isascii()
                and name[0].isdigit()
            )
            if not holds_a_part or len(name) > 18:  # otherwise it is a valid part
                plant(f"{state}/.status/{name}", kind, age)
        expect_records(state, [1, 2, 3, 4])


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("end", ENDS)
def test_an_impossible_end_of_a_log_part_counts_as_the_file_size(end: str, at: int) -> None:
    with log_of_four() as (state, parts):
        (parts[at] / "end").unlink()
        (parts[at] / "end").symlink_to(end)
        expect_records(state, [1, 2, 3, 4])


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(
    "kind", ["file", "directory", "fifo", "socket", "link to itself", "link out", "long link"]
)
def test_an_end_of_a_log_part_that_is_not_a_number_counts_as_the_file_size(
    kind: str, at: int
) -> None:
    with log_of_four() as (state, parts):
        plant(str(parts[at] / "end"), kind, 0.0)
        expect_records(state, [1, 2, 3, 4])


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(
    "harm", ["part removed", "part and end removed", "emptied", "cut short", "end within the line"]
)
def test_a_missing_or_torn_log_part_hides_no_other(harm: str, at: int) -> None:
    with log_of_four() as (state, parts):
        if harm in ("part removed", "part and end removed"):
            (parts[at] / "part").unlink()
        if harm in ("part and end removed", "end within the line"):
            (parts[at] / "end").unlink()
        if harm in ("emptied", "cut short"):
            os.truncate(parts[at] / "part", 0 if harm == "emptied" else 10)
        if harm == "end within the line":
            (parts[at] / "end").symlink_to("10")
        expect_records(state, [number for number in (1, 2, 3, 4) if number != at + 1])


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(
    "kind", ["directory", "fifo", "link to itself", "link out by a file", "socket"]
)
def test_a_log_part_that_is_not_a_file_is_an_error_that_names_it(kind: str, at: int) -> None:
    with log_of_four() as (state, parts):
        plant(str(parts[at] / "part"), kind, 0.0)
        planted = [str(parts[at] / "part")]
        assert run("log", "query", "t").code == run("log", "validate").code == 3
        StatusLog(FileStore(str(state))).append(
            "START", "w", "t", meta={"n": 5}
        ) if at < 2 else None
        expected = [number for number in (1, 2, 3, 4) if number != at + 1] + ([5] if at < 2 else [])
        assert cured(lambda: read_all(state), planted) == expected
        assert planted == []


def test_a_dangling_log_symlink_is_an_error_and_no_endless_loop() -> None:
    with around() as state:
        (state / "status.log").symlink_to("nowhere/at/all")
        assert run("log", "append", "START", "w", "t").code == 3
