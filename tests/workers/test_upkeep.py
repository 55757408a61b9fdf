"""Workers keep a swarm small: they fold the queue's log, and remove old output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from swarm.project.config import Config
from swarm.queue.events import LOG
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from swarm.workers.upkeep import queue_log, upkeep
from swarm.workers.upkeep.upkeep import Upkeep
from swarm.workers.worker import SmartWorker
from tests.conftest import HandClock


def test_a_worker_folds_a_long_log_while_it_works(
    live_store: Store, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_log, "FOLD_AFTER", 6)
    monkeypatch.setattr(queue_log, "FOLD_RATIO", 1)
    monkeypatch.setattr(queue_log, "TRIM_AFTER", 0.0)
    monkeypatch.setattr(upkeep, "_LOG_INTERVAL", 0.0)
    queue = TaskQueue(live_store)
    for number in range(6):
        queue.add(f"t{number}", command="true")
    worker = SmartWorker("w", store=live_store)
    worker.run(until_empty=True)
    assert worker.tally.done == 6 and live_store.is_trimmed(LOG)
    assert TaskQueue(live_store).counts() == {"done": 6}


def test_old_output_is_removed_after_the_time_that_the_project_says(
    store: Store, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, keep = TaskQueue(store), [""]
    monkeypatch.setattr(upkeep, "load", lambda: Config(keep_results=keep[0]))
    queue.add("a", "x")
    queue.done("a", "w", queue.claim("w", "a").token)
    clock.pass_time(2 * 86400)
    output = tmp_path / "a.1.out"
    output.write_text("output")
    os.utime(output, (0, 0))
    for keep[0], stays in (("", True), ("3d", True), ("1d", False)):
        Upkeep(store, queue, str(tmp_path)).run()
        assert output.exists() == stays


def test_a_fault_of_the_upkeep_does_not_stop_a_worker(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "load", lambda: Config(keep_results="1d"))
    (tmp_path / "file").write_text("no directory")
    Upkeep(store, TaskQueue(store), str(tmp_path / "file")).run()
