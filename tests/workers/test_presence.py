"""A worker says that it runs; every reader knows at once when it was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import StoreError
from swarm.locks.presence import (
    NAMESPACE,
    PRESENCE_TTL,
    REPORTED_FOR,
    forget_dead,
    has_ever_run,
    presences,
)
from swarm.queue.queue import TaskQueue
from swarm.stores.contract import Store
from swarm.stores.registry import open_store
from swarm.workers.presence import announce, living, report_end
from swarm.workers.worker import SmartWorker
from tests.conftest import ROOT, HandClock, script_environment, store_address
from tests.support.selection import SERVERS


def until(what: Callable[[], Any], seconds: float = 20.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.01)
    return found


def names(store: Store) -> list[str]:
    return [presence.worker for presence in living(store)]


def dead(store: Store) -> list[str]:
    return [presence.worker for presence in presences(store) if not presence.is_alive]


def test_a_worker_is_there_while_its_block_runs(store: Store) -> None:
    assert not living(store) and not has_ever_run(store)
    with announce(store, "worker-1", agent="claude", accepts_commands=False):
        (presence,) = living(store)
        assert (presence.worker, presence.agent) == ("worker-1", "claude")
        assert not presence.accepts_commands
        assert (presence.pid, presence.host) == (os.getpid(), os.uname().nodename)
        assert presence.since == "2026-02-02T02:40:00.000Z"
    assert not presences(store) and has_ever_run(store)


def test_a_reader_creates_nothing(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "swarm"))
    assert not living(store) and not presences(store) and not has_ever_run(store)
    assert not (tmp_path / "swarm").exists()


def test_a_worker_that_is_told_to_stop_leaves_nothing(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt), announce(store, "w"):
        raise KeyboardInterrupt
    assert not presences(store)


def test_a_worker_that_ends_with_an_error_leaves_the_reason(store: Store) -> None:
    with pytest.raises(StoreError), announce(store, "w", agent="claude"):
        raise StoreError("the disk\nis full")
    assert not living(store), "although its process lives on"
    (presence,) = presences(store)
    assert (presence.worker, presence.agent, presence.why) == ("w", "claude", "the disk is full")


def test_a_worker_that_could_not_start_is_reported(store: Store) -> None:
    report_end(store, "w", "nope", "--exec names 'nope'")
    (presence,) = presences(store)
    assert not presence.is_alive and presence.why == "--exec names 'nope'"


def test_a_worker_that_starts_again_is_not_dead_any_more(store: Store) -> None:
    report_end(store, "w", "nope", "no program")
    report_end(store, "other", "nope", "no program")
    with announce(store, "w"):
        assert (names(store), dead(store)) == (["w"], ["other"])
    assert dead(store) == ["other"]


def test_two_workers_of_one_name_are_both_there(store: Store) -> None:
    with announce(store, "w") as first:
        with announce(store, "w") as second:
            assert names(store) == ["w", "w"]
            assert not first.namesake
            assert f"process {os.getpid()}" in second.namesake and "--id" in second.namesake
        assert names(store) == ["w"]
    assert not presences(store)


def test_a_dead_namesake_of_a_living_worker_is_not_reported(store: Store) -> None:
    with announce(store, "w"):
        report_end(store, "w", "", "twice the same name")
        assert (names(store), dead(store)) == (["w"], [])


def test_a_dead_worker_is_forgotten_on_demand_and_after_a_day(
    store: Store, clock: HandClock
) -> None:
    report_end(store, "a", "", "no program")
    with announce(store, "b"):
        assert forget_dead(store) == ["a"]
        assert (names(store), dead(store)) == (["b"], [])
    report_end(store, "a", "", "no program")
    clock.pass_time(REPORTED_FOR - 1)
    assert dead(store) == ["a"]
    clock.pass_time(2)
    assert not presences(store) and store.keys(NAMESPACE)
    with announce(store, "b"):
        assert store.keys(NAMESPACE) == [f"{NAMESPACE}/b"], "the next worker removes the record"


def test_a_worker_whose_heartbeats_stop_is_dead(store: Store, clock: HandClock) -> None:
    """As readers on other machines see it, which cannot look at the process."""
    announced = announce(store, "w")
    with announced:
        assert announced._lease is not None
        announced._lease._refresher.stop()
        clock.pass_time(PRESENCE_TTL + 1)
        assert (names(store), dead(store)) == ([], ["w"])


def test_a_worker_whose_record_was_removed_announces_itself_again(live_store: Store) -> None:
    store = live_store
    with announce(store, "w", agent="claude") as announced:
        (key,) = store.keys(NAMESPACE)
        data = store.read(key)
        assert data is not None and store.remove(key, data)
        assert not living(store)
        assert announced._lease is not None
        announced._lease._refresher.lose("the record was removed")  # as the heartbeat finds out
        assert until(lambda: living(store))[0].agent == "claude"
    assert not presences(store)


def test_a_heartbeat_keeps_what_is_known_of_the_worker(live_store: Store) -> None:
    with announce(live_store, "w", agent="codex", accepts_commands=True) as announced:
        (before,) = living(live_store)
        assert announced._lease is not None
        record = live_store.read(f"{NAMESPACE}/w")
        announced._lease._refresher._send_heartbeat()
        assert live_store.read(f"{NAMESPACE}/w") != record
        (after,) = living(live_store)
        assert after.replace(last_seen="") == before.replace(last_seen="")


# Real processes -----------------------------------------------------------------------


@pytest.fixture(params=["file", *SERVERS])
def address(request: pytest.FixtureRequest, tmp_path: Path, isolated_swarm_dir: Path) -> str:
    return store_address(request, tmp_path)


@pytest.fixture
def shared(address: str) -> Iterator[Store]:
    store = open_store(address)
    yield store
    store.close()


def start_worker(address: str, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "swarm", "worker", "--id", "3", *args],
        cwd=ROOT,
        env=script_environment(SWARM_STORE=address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_killed_worker_is_gone_at_once(address: str, shared: Store) -> None:
    with start_worker(address, "--exec", "true") as worker:
        (presence,) = until(lambda: living(shared))
        assert (presence.worker, presence.agent, presence.pid) == ("worker-3", "true", worker.pid)
        assert not presence.accepts_commands
        worker.kill()
        worker.wait()
        assert (names(shared), dead(shared)) == ([], ["worker-3"])
    with start_worker(address) as worker:
        assert until(lambda: names(shared)) == ["worker-3"]
        assert not dead(shared)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 128 + signal.SIGTERM
    assert not presences(shared)


def test_a_second_worker_of_the_same_name_runs_with_a_warning(store: Store, tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []
    with announce(store, "w"):
        worker = SmartWorker(
            "w",
            store=store,
            results=str(tmp_path),
            on_event=lambda what, task, text: heard.append((what, text)),
        )
        worker.queue.add("t", command=["true"])
        assert worker.run(until_empty=True).done == 1
    (text,) = [text for what, text in heard if what == "trouble"]
    assert "another worker is named w" in text


def test_a_worker_whose_agent_is_missing_is_reported(address: str, shared: Store) -> None:
    with start_worker(address, "--exec", "/no/such") as worker:
        assert worker.wait() == 2
    assert not presences(shared), "as there is no task"
    TaskQueue(shared).add("t", "do it")
    with start_worker(address, "--exec", "/no/such") as worker:
        assert worker.wait() == 2
    (presence,) = presences(shared)
    assert presence.worker == "worker-3" and "'/no/such'" in presence.why
