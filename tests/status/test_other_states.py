"""Records with a state of another program, such as ASSIGNED, are read by every reader, and
change no task. On every store.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from swarm import StatusBroadcaster
from swarm.board.viewer import Viewer
from swarm.notify.status_events import StatusEvents
from swarm.queue.queue import TaskQueue
from swarm.status.block_parser import parse_block, parse_lines
from swarm.status.log import LOG, StatusLog
from swarm.status.reader import StatusReader
from swarm.stores.contract import Store
from tests.conftest import Run
from tests.support.web_server import Swarm


def line(state: str, task: str = "t", **more: Any) -> bytes:
    record = {"timestamp": "2026-02-02T10:30:00Z", "state": state, "task_id": task, "worker": "w"}
    return json.dumps({**record, **more}).encode()


@pytest.fixture
def mixed(store: Store) -> StatusLog:
    """A log of two programs. Only the wait of `a` is open."""
    for state, task in (("START", "a"), ("ASSIGNED", "a"), ("WAIT", "a"), ("ASSIGNED", "a")):
        store.append(LOG, line(state, task, message=f"{state} of {task}"))
    store.append(LOG, line("REVIEWED", "b", meta={"question": "q1", "held_by": "x"}))
    return StatusLog(store)


STATES = ["START", "ASSIGNED", "WAIT", "ASSIGNED", "REVIEWED"]


def states(lines: list[bytes]) -> list[str]:
    return [json.loads(each)["state"] for each in lines]


def test_tail_query_read_and_follow_give_them_as_they_stand(mixed: StatusLog) -> None:
    assert states(mixed.tail(10)) == STATES
    assert [record["type"] for _, record in mixed.query("a")] == STATES[:4]
    assert [record["state"] for _, record in mixed.read()[0]] == STATES
    followed = [record["state"] for _, record, _ in mixed.follow("", silence=0.0)]
    assert followed == STATES
    assert mixed.damaged == 0


def test_a_reader_may_follow_a_state_of_another_program(mixed: StatusLog, store: Store) -> None:
    follower = StatusBroadcaster("w", store).follow("", state="ASSIGNED", timeout=0.0)
    assert [record["message"] for record in follower] == ["ASSIGNED of a"] * 2
    with pytest.raises(ValueError, match="state is ''"):
        StatusBroadcaster("w", store).follow("", state="")


def test_they_count_as_records_and_change_no_task(mixed: StatusLog) -> None:
    summary = StatusReader(mixed.store)
    summary.read()
    seen = summary.state
    assert (seen.records, seen.damaged) == (5, 0)
    assert list(seen.waiting) == ["a"] and seen.waiting["a"].text == "WAIT of a"
    assert not seen.started and not seen.errors


def test_both_parsers_of_blocks_agree_about_them() -> None:
    block = b"".join(line(state, f"t{at}") + b"\n" for at in range(500) for state in STATES)
    fast, slow = parse_block(block), parse_lines(block)
    assert len(block) > 1 << 15
    assert (fast.rows, fast.records, fast.damaged) == (slow.rows, slow.records, slow.damaged)
    assert fast.records == 2500 and len(fast.rows) == 1000


def test_the_board_shows_the_wait_that_stands_before_them(mixed: StatusLog) -> None:
    board = Viewer(mixed.store).look()
    assert [(problem.task_id, problem.text) for problem in board.problems] == [("a", "WAIT of a")]


def test_a_claimed_task_stays_at_work(store: Store) -> None:
    queue = TaskQueue(store)
    queue.add("t", "x")
    queue.claim("w", "t")
    store.append(LOG, line("ASSIGNED"))
    board = Viewer(store).look()
    assert (board.queue["running"], board.problems) == (1, ())


def test_they_notify_nobody() -> None:
    events = StatusEvents()
    assert not events.apply(line("AWAITING", message="WAIT"))


def test_commands_print_them_and_write_only_states_of_swarm(
    log: Run, isolated_swarm_dir: Path
) -> None:
    isolated_swarm_dir.mkdir()
    lines = b"".join(line(state) + b"\n" for state in STATES)
    (isolated_swarm_dir / "status.log").write_bytes(lines)
    for command in (("tail",), ("query", "t")):
        done = log(*command)
        assert (done.stdout.encode(), done.stderr) == (lines, "")
    assert log("follow", "--type", "").returncode == 2
    assert log("append", "ASSIGNED", "w", "t").returncode == 2, "swarm writes its own states"


def test_the_page_gets_them(tmp_path: Path) -> None:
    swarm = Swarm(tmp_path / "swarm")
    for state in STATES:
        swarm.store.append(LOG, line(state, "t", message=f"says {state}"))
    with swarm.server:
        found = swarm.server.get("/api/log?q=says")["records"]
        assert [record["type"] for record in found] == STATES
        task = swarm.server.get("/api/log?task=t")["records"]
        assert [record["type"] for record in task] == STATES
