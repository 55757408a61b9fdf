"""A long status log is read by blocks, with the same outcome as line by line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from swarm.status.log import LOG, STATES
from swarm.status.reader import StatusReader
from swarm.status.summary import StatusSummary
from swarm.stores.file import log_reader
from swarm.stores.file.store import FileStore

LINES = 4000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    """Some forty blocks."""
    monkeypatch.setattr(log_reader, "_BLOCK_BYTES", 16384)
    store = FileStore(str(tmp_path / "s"))
    store.prepare()
    with open(store.root + "/status.log", "wb") as file:
        file.writelines(_line(number) + b"\n" for number in range(LINES))
    return store


def test_blocks_have_the_same_effect_as_their_lines(store: FileStore) -> None:
    assert known(StatusReader(store)) == expected(store)


def test_a_log_that_was_removed_after_a_rotation_is_not_remembered(store: FileStore) -> None:
    store.rotate(LOG)
    assert known(StatusReader(store)) != StatusSummary().dump()
    Path(store.root, "status.log").unlink(missing_ok=True)
    shutil.rmtree(store.root + "/.status")
    assert known(StatusReader(store)) == StatusSummary().dump()


def test_a_log_that_was_replaced_and_then_rotated_counts_once(store: FileStore) -> None:
    fold = StatusReader(store)
    fold.read()
    Path(store.root, "status.log").write_bytes(
        b"".join(_line(number) + b"\n" for number in range(77, 90))
    )
    store.rotate(LOG)
    store.append(LOG, _line(90))
    assert known(fold) == expected(store)


def test_reading_blocks_reports_progress_and_saves_a_snapshot(store: FileStore) -> None:
    reported: list[int] = []
    StatusReader(store).read(reported.append)
    assert reported == sorted(reported) and len(reported) > 10 and reported[-1] == LINES
    reported.clear()
    StatusReader(store).read(reported.append)
    assert reported == []


def test_a_status_log_of_200_lines_is_saved_as_a_snapshot(tmp_path: Path) -> None:
    short = FileStore(str(tmp_path / "short"))
    for number in range(199):
        short.append(LOG, _line(number))
    StatusReader(short).read()
    assert short.cache_get(LOG) is None
    short.append(LOG, _line(199))
    StatusReader(short).read()
    assert short.cache_get(LOG) is not None
    short.close()


def test_lines_appended_during_a_rotation_are_applied_once(store: FileStore) -> None:
    more = [_line(LINES + number) for number in range(3)]

    def meddle(count: int) -> None:
        if more:
            store.append(LOG, more.pop())
            store.rotate(LOG)

    fold = StatusReader(store)
    fold.read(meddle)
    assert fold.state.records + fold.state.damaged == LINES + 3
    assert known(fold) == expected(store)
    store.close()


def test_blocks_of_a_replaced_log_are_read_from_its_beginning(store: FileStore) -> None:
    fold = StatusReader(store)
    fold.read()
    Path(store.root, "status.log").write_bytes(
        b"".join(_line(number) + b"\n" for number in range(77, LINES * 2))
    )
    assert known(fold) == expected(store)


def known(fold: StatusReader) -> Any:
    fold.read()
    return fold.state.dump()


def expected(store: FileStore) -> Any:
    seen = StatusSummary()
    for _, line, _ in store.numbered(LOG):
        seen.apply(line)
    return seen.dump()


def _line(number: int) -> bytes:
    if number % 501 == 500:
        return b"no record"
    state = STATES[number * 7 % 6]
    record: dict[str, Any] = {
        "timestamp": f"2026-02-02T10:30:10.{number % 1000:03d}Z",
        "type": state,
        "state": state,
    }
    record |= {
        "worker": f"worker-{number * 13 % 11}",
        "task_id": f"task-{number * 31 % 900}",
        "meta": {"token": number},
    }
    if number % 97 == 96:
        record["reason"] = record["message"] = 'say "yes"'
    return json.dumps(record).encode()
