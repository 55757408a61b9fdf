"""The status log in Python: what a broadcast writes, and how records are read back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from swarm import BroadcastState, StatusBroadcaster
from swarm.stores.contract import Store
from tests.conftest import ROOT, HandClock, Run

STATES = ["START", "DONE", "WAIT", "ERROR", "HELP", "SKIP"]


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "status.log").read_text().splitlines()]


class TestBroadcast:
    """What `002` asks for, under the names it gives."""

    def expect_line(self, path: Path, state: str) -> None:
        line = (path / "status.log").read_text()
        assert line.endswith("\n")
        (record,) = records(path)
        assert record.pop("timestamp")
        assert record == {
            "type": state,
            "state": state,
            "worker": "worker-1",
            "task_id": "task-001",
        }

    def test_broadcast_start_creates_jsonl_line(self, isolated_swarm_dir: Path) -> None:
        StatusBroadcaster("worker-1").broadcast_start("task-001")
        self.expect_line(isolated_swarm_dir, "START")

    def test_broadcast_done_creates_jsonl_line(self, isolated_swarm_dir: Path) -> None:
        StatusBroadcaster("worker-1").broadcast_done("task-001")
        self.expect_line(isolated_swarm_dir, "DONE")

    def test_broadcast_wait_creates_jsonl_line(self, isolated_swarm_dir: Path) -> None:
        StatusBroadcaster("worker-1").broadcast_wait("task-001")
        self.expect_line(isolated_swarm_dir, "WAIT")

    def test_broadcast_error_creates_jsonl_line(self, isolated_swarm_dir: Path) -> None:
        StatusBroadcaster("worker-1").broadcast_error("task-001")
        self.expect_line(isolated_swarm_dir, "ERROR")

    def test_broadcast_help_creates_jsonl_line(self, isolated_swarm_dir: Path) -> None:
        StatusBroadcaster("worker-1").broadcast_help("task-001")
        self.expect_line(isolated_swarm_dir, "HELP")

    def test_broadcast_skip_creates_jsonl_line(self, isolated_swarm_dir: Path) -> None:
        StatusBroadcaster("worker-1").broadcast_skip("task-001")
        self.expect_line(isolated_swarm_dir, "SKIP")

    def test_broadcast_with_message(self, isolated_swarm_dir: Path) -> None:
        StatusBroadcaster("worker-1").broadcast(BroadcastState.START, "task-001", "开始执行")
        (record,) = records(isolated_swarm_dir)
        assert record["message"] == record["reason"] == "开始执行"
        assert "开始执行" in (isolated_swarm_dir / "status.log").read_text()

    def test_broadcast_with_meta(self, isolated_swarm_dir: Path) -> None:
        meta = {
            "error_type": "timeout",
            "retry_count": 1,
            "nested": {"list": [1, 2.5, None, True, "x"]},
        }
        StatusBroadcaster("worker-1").broadcast(BroadcastState.ERROR, "task-001", meta=meta)
        (record,) = records(isolated_swarm_dir)
        assert record["meta"] == meta

    def test_broadcast_timestamp_format(self, isolated_swarm_dir: Path) -> None:
        StatusBroadcaster("worker-1").broadcast_start("task-001")
        (record,) = records(isolated_swarm_dir)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["timestamp"])

    def test_broadcast_creates_directory(self, isolated_swarm_dir: Path) -> None:
        assert not isolated_swarm_dir.exists()
        broadcaster = StatusBroadcaster("worker-1")
        assert isolated_swarm_dir.is_dir()
        broadcaster.broadcast_start("task-001")
        assert (isolated_swarm_dir / "status.log").is_file()

    def test_broadcast_multiple_lines(self, isolated_swarm_dir: Path) -> None:
        broadcaster = StatusBroadcaster("worker-1")
        for number in range(5):
            broadcaster.broadcast_start(f"task-{number}")
        assert [record["task_id"] for record in records(isolated_swarm_dir)] == [
            f"task-{number}" for number in range(5)
        ]

    def test_convenience_methods(self, isolated_swarm_dir: Path) -> None:
        broadcaster = StatusBroadcaster("worker-1")
        for state in STATES:
            getattr(broadcaster, f"broadcast_{state.lower()}")("task-001", f"this is {state}")
        assert [(record["state"], record["message"]) for record in records(isolated_swarm_dir)] == [
            (state, f"this is {state}") for state in STATES
        ]


def test_a_line_stands_exactly_as_the_format_says(isolated_swarm_dir: Path) -> None:
    StatusBroadcaster("worker-1").broadcast(
        "WAIT", "task-002", "needs a person", {"retry_count": 1}
    )
    line = (isolated_swarm_dir / "status.log").read_text()
    assert re.sub(r'"2[^"]+Z"', '"T"', line) == (
        '{"timestamp": "T", "type": "WAIT", "state": "WAIT", "worker": "worker-1", "task_id": '
        '"task-002", '
        '"reason": "needs a person", "message": "needs a person", "meta": {"retry_count": 1}}\n'
    )


def test_members_equal_their_strings() -> None:
    assert [member.value for member in BroadcastState] == STATES
    assert BroadcastState.START == "START"
    assert f"{BroadcastState.DONE}" == str(BroadcastState.DONE) == "DONE"


def test_the_path_follows_the_environment_at_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI_SWARM_DIR", str(tmp_path / "one"))
    broadcaster = StatusBroadcaster("worker-1")
    broadcaster.broadcast_start("a")
    monkeypatch.setenv("AI_SWARM_DIR", str(tmp_path / "two"))
    broadcaster.broadcast_start("b")
    assert broadcaster._get_status_log_path() == os.path.join(tmp_path, "two", "status.log")
    assert [record["task_id"] for record in records(tmp_path / "one")] == ["a"]
    assert [record["task_id"] for record in records(tmp_path / "two")] == ["b"]


@pytest.mark.parametrize(
    "text",
    [
        'quotes " and \\ backslash',
        "two\nlines\r\n",
        "tab\tbell\a\x00",
        "\x7f\x85\x9b\u2028\u2029",
        "lone \ud800 surrogate",
        "😀 中文",
    ],
)
def test_any_text_is_one_line_for_every_reader_and_comes_back(
    text: str, isolated_swarm_dir: Path
) -> None:
    broadcaster = StatusBroadcaster("worker-1")
    broadcaster.broadcast("HELP", "task-001", text, {"also": text})
    data = (isolated_swarm_dir / "status.log").read_bytes()
    assert len(data.decode().splitlines()) == 1
    assert not any(
        ord(character) < 32 or 127 <= ord(character) < 160
        for character in data.decode().rstrip("\n")
    )
    assert json.loads(data)["message"] == json.loads(data)["meta"]["also"] == text
    assert broadcaster.tail()[0]["message"] == text


def test_a_mebibyte_of_text_is_one_record(isolated_swarm_dir: Path) -> None:
    broadcaster = StatusBroadcaster("worker-1")
    text = "ünïcode 😀\n" * (1024 * 1024 // 18)
    broadcaster.broadcast_help("big", text)
    broadcaster.broadcast_done("small")
    assert [record["task_id"] for record in broadcaster.tail()] == ["big", "small"]
    assert broadcaster.query("big")[0]["message"] == text


def test_a_record_that_is_too_large_is_refused_and_nothing_written(
    isolated_swarm_dir: Path,
) -> None:
    broadcaster = StatusBroadcaster("worker-1")
    with pytest.raises(ValueError, match="bytes"):
        broadcaster.broadcast_help("big", "x" * (17 * 1024 * 1024))
    assert not (isolated_swarm_dir / "status.log").exists()


@pytest.mark.parametrize(
    "meta", [{"a": float("nan")}, {"a": {1, 2}}, {1: "a"}, ["list"], "text", {"a": object()}]
)
def test_meta_that_json_cannot_say_is_refused_and_nothing_written(
    meta: Any, isolated_swarm_dir: Path
) -> None:
    broadcaster = StatusBroadcaster("worker-1")
    with pytest.raises(ValueError, match="JSON"):
        broadcaster.broadcast("START", "task-001", meta=meta)
    assert not (isolated_swarm_dir / "status.log").exists()


def test_meta_that_contains_itself_is_refused(isolated_swarm_dir: Path) -> None:
    meta: dict[str, Any] = {}
    meta["self"] = meta
    with pytest.raises(ValueError, match="contains itself"):
        StatusBroadcaster("worker-1").broadcast("START", "task-001", meta=meta)


def test_an_unknown_state_is_refused(isolated_swarm_dir: Path) -> None:
    with pytest.raises(ValueError, match="START DONE WAIT ERROR HELP SKIP"):
        StatusBroadcaster("worker-1").broadcast("start", "task-001")


def test_the_worker_is_a_public_attribute(isolated_swarm_dir: Path) -> None:
    assert StatusBroadcaster("worker-1").worker_id == "worker-1"


class TestReading:
    """On every store."""

    def test_tail_gives_the_last_records_in_order(self, store: Store) -> None:
        broadcaster = StatusBroadcaster("w", store=store)
        for number in range(30):
            broadcaster.broadcast_start(f"t{number}")
        assert [record["task_id"] for record in broadcaster.tail(3)] == ["t27", "t28", "t29"]
        assert len(broadcaster.tail()) == 10
        assert broadcaster.tail(0) == []

    def test_query_gives_exactly_one_tasks_records(self, store: Store) -> None:
        broadcaster = StatusBroadcaster("w", store=store)
        for task in ("a", "ab", "a b", "a", '"a"'):
            broadcaster.broadcast_start(task, 'task_id "a"')
        assert [record["task_id"] for record in broadcaster.query("a")] == ["a", "a"]
        assert len(broadcaster.query('"a"')) == 1
        assert broadcaster.query("nothing") == []

    def test_either_vocabulary_is_read(self, store: Store) -> None:
        store.append(
            "status",
            (
                b'{"timestamp": "2026-02-02T10:30:00Z", "type": "WAIT", "worker": "w0", "task_id": '
                b'"t", "reason": "r"}'
            ),
        )
        store.append(
            "status",
            (
                b'{"state": "DONE", "task_id": "t", "timestamp": "2026-01-31T12:00:05+08:00", '
                b'"message": "m", "x": 1}'
            ),
        )
        one, other = StatusBroadcaster("w", store=store).query("t")
        assert (one["state"], one["message"], one["worker"]) == ("WAIT", "r", "w0")
        assert (other["type"], other["reason"], other["x"]) == ("DONE", "m", 1)

    def test_a_task_written_with_escapes_is_found(self, store: Store) -> None:
        store.append(
            "status",
            json.dumps({"state": "DONE", "task_id": "任务-1", "timestamp": "2026-01-31"}).encode(),
        )
        assert len(StatusBroadcaster("w", store=store).query("任务-1")) == 1

    def test_damaged_lines_are_skipped(self, store: Store) -> None:
        broadcaster = StatusBroadcaster("w", store=store)
        broadcaster.broadcast_start("a")
        for damage in (b'{"torn', b"", b"[1]", b"not json", b"\xff\xfe", b"12", b"{" * 10000):
            store.append("status", damage)
        broadcaster.broadcast_done("a")
        assert [record["state"] for record in broadcaster.tail(2)] == ["START", "DONE"]
        assert [record["state"] for record in broadcaster.query("a")] == ["START", "DONE"]

    def test_follow_gives_what_comes_after_and_ends_with_silence(
        self, store: Store, clock: HandClock
    ) -> None:
        broadcaster = StatusBroadcaster("w", store=store)
        broadcaster.broadcast_start("before")
        follower = broadcaster.follow(timeout=0.0)
        for task in ("a", "b"):
            broadcaster.broadcast_start(task)
        broadcaster.broadcast_done("a")
        assert [(record["state"], record["task_id"]) for record in follower] == [
            ("START", "a"),
            ("START", "b"),
            ("DONE", "a"),
        ]
        assert [
            record["task_id"] for record in broadcaster.follow("", state="DONE", timeout=0.0)
        ] == ["a"]
        assert [
            record["task_id"] for record in broadcaster.follow("", task_id="before", timeout=0.0)
        ] == ["before"]

    def test_reading_by_cursor_goes_on_where_it_stopped(self, store: Store) -> None:
        broadcaster = StatusBroadcaster("w", store=store)
        broadcaster.broadcast_start("a")
        found, cursor = broadcaster.read()
        assert [record["task_id"] for record in found] == ["a"]
        assert broadcaster.read(cursor) == ([], cursor)
        broadcaster.broadcast_start("b")
        assert [record["task_id"] for record in broadcaster.read(cursor)[0]] == ["b"]


def test_follow_wakes_up_for_a_record_of_another_process(
    isolated_swarm_dir: Path, log: Run
) -> None:
    follower = subprocess.Popen(
        [sys.executable, "-m", "swarm", "log", "follow", "--since", "0:0", "--type", "DONE"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert follower.stdout is not None
        log("append", "START", "w", "task-1")
        log("append", "DONE", "w", "task-1", "finished")
        assert json.loads(follower.stdout.readline())["reason"] == "finished"
        log("rotate")
        log("append", "DONE", "w", "task-2")
        assert json.loads(follower.stdout.readline())["task_id"] == "task-2"
    finally:
        follower.terminate()
        follower.communicate()


def test_the_functional_verification_of_002_passes_as_written(tmp_path: Path) -> None:
    program = """
from swarm import StatusBroadcaster, TaskLockManager
import tempfile
import os

# Test StatusBroadcaster
with tempfile.TemporaryDirectory() as tmp:
    os.environ['AI_SWARM_DIR'] = tmp
    sb = StatusBroadcaster('worker-1')
    sb.broadcast_start('task-001', 'Test task')
    with open(os.path.join(tmp, 'status.log')) as f:
        content = f.read()
        assert 'START' in content
        assert 'task-001' in content
        print('StatusBroadcaster: OK')

# Test TaskLockManager
with tempfile.TemporaryDirectory() as tmp:
    os.environ['AI_SWARM_DIR'] = tmp
    tl = TaskLockManager('worker-1')
    acquired = tl.acquire_lock('task-001')
    assert acquired == True
    info = tl.get_lock_info('task-001')
    assert info is not None
    assert info.worker_id == 'worker-1'
    print('TaskLockManager: OK')
"""
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("StatusBroadcaster: OK\nTaskLockManager: OK\n", "")


def test_the_exports_need_nothing_installed(tmp_path: Path) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import swarm; "
        f"print(all(getattr(swarm, name) for name in swarm.__all__))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.stdout == "True\n", done.stderr
