"""Symbolic links planted in the state directory: nothing outside is changed or removed,
and every answer is true.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from swarm.errors import StoreError
from swarm.stores.file.swap import GARBAGE_AGE
from tests.support.lock_files import table
from tests.support.processes import Refusal, Worker

PATHS = (
    "locks",
    ".locks",
    ".locks/scratch",
    ".locks/intents",
    ".locks/tokens",
    ".locks/tokens/116",
    ".locks/generations",
    ".locks/generations/0",
    ".status",
    ".status/0000000001-planted",
    ".status/0000000009-planted",
    ".status/{part}/part",
    ".status/{part}/end",
)
TREASURE = (
    *("gold", "t.lock", "n.lock", "part", "0", "0.synced", "t~0123~0", "h0123456789abcdef/gold"),
    *("116", "110"),  # the counters of the tasks t and n
    *(
        "tokens/116",
        "tokens/110",
        "scratch/s0123456789abcdef/gold",
        "intents/t~s0123456789abcdef~1",
        "4",
    ),
)


@pytest.mark.parametrize("directory", [False, True], ids=["to-a-file", "to-a-directory"])
@pytest.mark.parametrize("below", PATHS)
def test_a_planted_symlink_harms_nothing_outside_the_state_directory(
    below: str, directory: bool, tmp_path: Path
) -> None:
    treasure, state = tmp_path / "treasure", tmp_path / "state"
    make_treasure(treasure)
    before = contents(treasure)
    locks = table(state)
    token = locks.acquire("t", "w", 60).token
    locks.store.append("status", b"one")
    locks.store.rotate("status")
    locks.store.append("status", b"two")
    (part,) = (name for name in os.listdir(state / ".status") if name[0] != ".")
    with Worker(table(state)) as worker:
        go_on_around(
            state / below.format(part=part),
            treasure if directory else treasure / "gold",
            token,
            worker,
        )
    assert {name: contents(treasure).get(name, "gone") for name in before} == before


def go_on_around(link: Path, target: Path, token: int | None, worker: Worker) -> None:
    """Plant a link, let a newcomer do what it can, remove the link, and check that all
    is well again.
    """
    saved = link.with_name(".saved")
    if link.is_symlink() or link.exists():
        link.rename(saved)
    link.symlink_to(target)

    for verb, *args in (
        ("heartbeat", "t", "w", token),
        ("acquire", "t", "other", 60),
        ("acquire", "n", "w", 60),
        ("release", "n", "w"),
        ("store.keys", "locks"),
        ("store.append", "status", b"three"),
        ("store.rotate", "status"),
        ("store.read_log", "status"),
        ("store.tail", "status", 5),
    ):
        answer = worker(verb, *args)
        expected = {"acquire t": "LockHeld", "release n": "NotYours"}.get(f"{verb} {args[0]}")
        assert not isinstance(answer, Refusal) or answer.kind in ("StoreError", expected), (
            f"{verb} {args}: {answer}"
        )
        assert expected != "LockHeld" or isinstance(answer, Refusal), "it was held"
    assert isinstance(worker("store.read", "locks/n"), Refusal | None), (
        "a refused worker has the lock"
    )
    link.unlink()
    if saved.is_symlink() or saved.exists():
        saved.rename(link)
    assert worker("heartbeat", "t", "w", token).token == token
    assert worker("acquire", "n", "w", 60).token >= 1
    assert worker("release", "n", "w").task_id == "n"
    assert worker("store.append", "status", b"last")
    lines = worker("store.read_log", "status")[0]
    assert (lines[:2], lines[-1]) == ([b"one", b"two"], b"last")


def make_treasure(path: Path) -> None:
    """Make old files of another user, with names that swarm could take for its own."""
    for name in TREASURE:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"gold\n")
    for name in ("2026", "0000000007-empty", "scratch/sfedcba9876543210"):
        (path / name).mkdir()
    old = time.time() - 10 * GARBAGE_AGE
    for entry in path.rglob("*"):
        os.utime(entry, (old, old))


def contents(path: Path) -> dict[str, bytes | None]:
    """Return the content of all files; None for a directory."""
    return {
        str(entry.relative_to(path)): entry.read_bytes() if entry.is_file() else None
        for entry in path.rglob("*")
        if not entry.is_symlink()
    }


def test_a_symlink_planted_during_work_costs_no_file_outside(tmp_path: Path) -> None:
    locks = table(tmp_path / "state")
    locks.acquire("t", "w", 60)
    intents, outside = tmp_path / "state" / ".locks" / "intents", tmp_path / "outside"
    outside.mkdir()
    (outside / "thesis").touch()
    os.utime(outside / "thesis", (1, 1))
    intents.rmdir()
    intents.symlink_to(outside)
    locks.store.close()  # so that it needs a new scratch directory, and collects garbage
    with contextlib.suppress(StoreError):
        locks.acquire("u", "w", 60)
    assert (outside / "thesis").exists()
