"""Lock files and log lines that are damaged in every way.

Whatever they contain: no error but swarm's own, no lock that is free although a worker
holds it, none that is held for ever without a known holder, and no record hidden by a
damaged neighbour. The meaning of a file is computed here once more, from the protocol,
with the standard library's JSON and dates.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from swarm.errors import LockHeld, NotYours
from swarm.locks.expiry import UNREADABLE_GRACE
from swarm.locks.table import LockTable
from swarm.status.log import StatusLog
from swarm.stores.file.store import FileStore
from swarm.system import process
from swarm.system.clock import Clock
from tests.conftest import HandClock
from tests.support.command_line import run, run_on
from tests.support.damage import DEEP, broken, records

MANY = settings(max_examples=4 * settings().max_examples)

NOW = 1_770_000_000.0  # 2026-02-02T02:40:00Z
STEADY = 5_000.0
BOOT, TIME_NS = Clock().identity()
FIELDS = {
    "task_id": "t",
    "worker": "w",
    "worker_id": "w",
    "acquired_at": "2026-02-02T02:30:00.000Z",
    "heartbeat_at": "2026-02-02T02:39:00.000Z",
    "ttl": 300,
    "expires_at": "2026-02-02T02:44:00.000Z",
    "token": 17,
}
COPIES = {"worker": "w", "heartbeat_at": FIELDS["heartbeat_at"], "ttl": 300}
STAMP = {"beat": 3, "boot": BOOT, "time_ns": TIME_NS, "at": STEADY - 60.0, **COPIES}
LOCKS: list[dict[str, Any]] = [
    {**FIELDS, "holder": STAMP},
    {**FIELDS, "holder": {**STAMP, "at": STEADY - 301.0}},
    {**FIELDS, "heartbeat_at": "2026-02-02T02:34:59.000Z", "holder": STAMP},
    {**FIELDS, "ttl": None, "expires_at": "", "holder": {**STAMP, "ttl": None}},
    {
        "task_id": "t",
        "worker": "w",
        "acquired_at": "2026-02-02T02:30:00Z",
        "expires_at": "2026-02-02T02:39:59Z",
    },
    {
        "worker_id": "w",
        "task_id": "t",
        "acquired_at": "2026-02-02T02:30:00Z",
        "heartbeat_at": "2026-02-02T02:40:00Z",
        "ttl": 300,
    },
    {"worker": "w"},
]


# The meaning of a lock file, computed once more ---------------------------------------


def meaning(data: bytes) -> str:
    """Return `held`, `over` or `unreadable` for a lock file at the time NOW, by
    docs/STATUS_PROTO.md.
    """
    try:
        record = json.loads(data.decode("utf-8-sig"), strict=False)
    except (ValueError, RecursionError):
        return "unreadable"
    if not isinstance(record, dict):
        return "unreadable"
    texts = {key: value for key, value in record.items() if isinstance(value, str)}
    stamp = record.get("holder")
    if not isinstance(stamp, dict) or any(
        isinstance(value, (list, dict)) or is_absurd(value) for value in stamp.values()
    ):
        stamp = {}
    worker = texts.get("worker", "")
    if not worker or worker == stamp.get("worker"):
        worker = texts.get("worker_id") or worker
    if not worker:
        return "unreadable"
    ttl = seconds(record.get("ttl"))
    begun = texts.get("heartbeat_at") or texts.get("acquired_at", "")
    if ttl is not None:
        vouched = (stamp.get("worker"), stamp.get("heartbeat_at"), stamp.get("ttl")) == (
            worker,
            begun,
            ttl,
        )
        here = BOOT and (stamp.get("boot"), stamp.get("time_ns")) == (BOOT, TIME_NS)
        at = stamp.get("at")
        if vouched and here and isinstance(at, float) and at <= STEADY:
            return "over" if at + ttl < STEADY else "held"
        for date in (begun, texts.get("acquired_at", "")):
            if moment(date) is not None:
                return "over" if moment(date) + ttl < NOW else "held"  # type: ignore[operator]
    end = moment(texts.get("expires_at", ""))
    return "over" if end is not None and end < NOW else "held"


def is_absurd(value: Any) -> bool:
    return isinstance(value, float) and (value != value or value in (float("inf"), float("-inf")))  # noqa: PLR0124


def seconds(value: Any) -> float | None:
    """Return a ttl, None if it is invalid or without an end."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or value != value  # noqa: PLR0124
        or value >= 1e12
    ):
        return None
    return max(value, -1e12)


def moment(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text.strip().upper())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


# Lock files ---------------------------------------------------------------------------


@contextmanager
def state_with(**files: bytes) -> Iterator[FileStore]:
    """Make a state directory with lock files by their tasks, on a clock that stands at
    NOW.
    """
    root = Path(tempfile.mkdtemp(prefix="swarm-test-"))
    try:
        (root / "locks").mkdir()
        for task, data in files.items():
            (root / "locks" / f"{task}.lock").write_bytes(data)
        with mock.patch.dict(os.environ, SWARM_STATE_DIR=str(root)):
            yield FileStore(str(root), clock=HandClock(NOW, STEADY))
    finally:
        shutil.rmtree(root)


def age(store: FileStore, task: str, by: float) -> None:
    path = store.where(f"locks/{task}")
    os.utime(path, (time.time() - by,) * 2)


def expect_the_right_answer(data: bytes) -> None:
    with state_with(t=data, whole=b'{"worker": "w"}') as store:
        table = LockTable(store)
        means = meaning(data)
        for old in (False, True):
            age(store, "t", UNREADABLE_GRACE + 1 if old else 0.0)
            active = means == "held" or (means == "unreadable" and not old)
            found = table.status("t")
            assert found.exists
            assert found.is_held is active, (means, old, str(found))
            assert (found.lock is None) is (means == "unreadable")
            if active:
                with pytest.raises(LockHeld):
                    table.acquire("t", "thief", 60)
                with pytest.raises(NotYours):
                    table.release("t", "thief")
                assert store.read("locks/t") == data
            rows = {row["task_id"]: row for row in run_on(store, "list", "--json").json["locks"]}
            assert rows["t"]["locked"] is active and rows["whole"]["locked"] is True
            for command in ("check", "why"):
                assert run_on(store, command, "t").code == 0
                assert run_on(store, command, "t", "--json").json["locked"] is active
            assert run("log", "validate").code in (0, 1)
        if found.lock is not None and found.lock.task_id == "t":
            before = found.lock.worker
            renewed = table.heartbeat("t", before)
            assert table.status("t").is_held and renewed.worker == before
            assert meaning(store.read("locks/t") or b"") == "held"
            assert table.release("t", before).worker == before
        elif active:
            assert run_on(store, "break", "t", "--yes").code == 0
        assert table.acquire("t", "successor", 60).worker == "successor"


@MANY
@given(broken(records(*LOCKS)))
@example(DEEP)
@example(b'{"worker": "w", "junk": "' + b"x" * 10_000_000 + b'"}')
@example(json.dumps({**FIELDS, "holder": {**STAMP, "x": float("nan")}}).encode())
@example(json.dumps({**FIELDS, "holder": {**STAMP, "at": float("-inf")}}).encode())
@example(
    json.dumps(
        {"worker": "w", "ttl": None, "holder": {**STAMP, "ttl": [None], "pid": 2**22 + 1}}
    ).encode()
)
def test_any_content_of_a_lock_file_is_held_or_free_as_the_protocol_says(data: bytes) -> None:
    expect_the_right_answer(data)


@pytest.mark.parametrize("wrong", ["", 1.5, None, [1], {}, -1, 0], ids=repr)
@pytest.mark.parametrize("key", ["pid", "start", "boot", "time_ns", "pid_ns", "host", "machine"])
def test_a_damaged_identity_does_not_prove_that_a_live_process_is_gone(
    key: str, wrong: Any
) -> None:
    holder = {**process.identity(), **STAMP, "ttl": None, key: wrong}
    data = json.dumps({**FIELDS, "ttl": None, "holder": holder}).encode()
    with state_with(t=data) as store:
        found = LockTable(store).status("t")
        assert found.is_held


def test_a_name_with_a_line_break_forges_no_line_of_validate() -> None:
    with state_with(**{"a\nb: forged": b"{"}):
        answer = run("log", "validate")
    assert answer.code == 1
    assert (
        answer.out.count(b"\n") == 1 + answer.out.count(b"is not a valid name")
        and b"\nb: forged" not in answer.out
    )


# Log lines ----------------------------------------------------------------------------

RECORD = {
    "timestamp": "2026-02-02T10:30:10.123Z",
    "type": "WAIT",
    "state": "WAIT",
    "worker": "w",
    "task_id": "x",
    "meta": {"n": 1},
}


def neighbour(number: int) -> bytes:
    return json.dumps({**RECORD, "task_id": "t", "meta": {"n": number}}).encode()


def is_record(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8-sig"), strict=False), dict)
    except (ValueError, RecursionError):
        return False


@MANY
@given(
    some.lists(broken(records(RECORD)), min_size=1, max_size=4), some.booleans(), some.booleans()
)
@example([DEEP, b"\x00" * 10_000_000], True, False)
@example([b"z" * 10_000_000], False, True)
def test_a_damaged_log_line_is_skipped_and_counted_and_hides_no_other(
    damage: list[bytes], rotated: bool, torn: bool
) -> None:
    whole = [neighbour(number) for number in range(len(damage) + 1)]
    data = (
        whole[0]
        + b"\n"
        + b"".join(bad + b"\n" + good + b"\n" for bad, good in zip(damage, whole[1:], strict=True))
    )
    lines = data.split(b"\n")[:-1]
    with state_with() as store:
        Path(store.root, "status.log").write_bytes(
            data + (damage[0].replace(b"\n", b"") if torn else b"")
        )
        assert not rotated or store.rotate("status")
        expected = [line for line in lines if is_record(line)]
        log = StatusLog(store)
        assert [line for line, _, _ in log.follow("", silence=0.0)] == expected
        assert log.damaged == sum(bool(line.strip()) and not is_record(line) for line in lines)
        assert log.tail(len(expected) + 1) == expected
        found = [line for line, _ in log.query("t")]
        assert [line for line in found if line in whole] == whole
        for command in (("query", "t"), ("tail", "1000"), ("tail", "1")):
            assert run("log", *command).code == 0
        assert run("log", "tail", "1000").out == b"".join(line + b"\n" for line in expected)
        assert (b"damaged line" in run("log", "tail", "1000").err) is bool(log.damaged)
        assert run("log", "validate").code == 1 or not log.damaged
        last = log.append("DONE", "w", "t")
        assert log.tail(1) == [last]
