"""A path or URL in place of a store, in each class that takes a store."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm import FileStore, SmartWorker, StatusBroadcaster, TaskLockManager, TaskQueue
from swarm.errors import BadInput
from swarm.stores.contract import StoreLike
from swarm.stores.default import DefaultStore
from swarm.stores.memory import MemoryStore
from swarm.stores.secrets import known_secrets
from swarm.workers.command import task_environment
from tests.support.servers.server import Server

CLASSES: dict[str, Callable[[StoreLike], object]] = {
    "queue": TaskQueue,
    "locks": lambda store: TaskLockManager("w", store=store),
    "log": lambda store: StatusBroadcaster("w", store=store),
    "worker": lambda store: SmartWorker("w", store=store),
}


def root(given: StoreLike) -> str:
    store = DefaultStore(given).store()
    assert isinstance(store, FileStore)
    return store.root


@pytest.mark.parametrize(
    "given", [".swarm", "./.swarm", "word", "a b/ü", Path("x"), pathlib.PurePosixPath("a:b@c/d")]
)
def test_a_word_or_a_path_is_a_directory_below_the_working_directory(
    given: StoreLike, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert root(given) == os.path.abspath(str(given))
    chosen = DefaultStore(given)
    monkeypatch.chdir("/")
    store = chosen.store()
    assert isinstance(store, FileStore) and store.root == f"{tmp_path}/{Path(str(given))}"


@pytest.mark.parametrize("make", CLASSES.values(), ids=CLASSES)
@pytest.mark.parametrize(
    "given",
    ["", "db.example:6379", "host=db user=x", "user@host/0", "memory://", "a\0b", "redisx://h"],
)
def test_other_texts_are_refused(make: Callable[[StoreLike], object], given: str) -> None:
    with pytest.raises(BadInput):
        _use(make(given))


def _use(made: object) -> None:
    """Open the store, for a class that opens it at the first call."""
    if isinstance(made, TaskQueue):
        made.counts()
    elif isinstance(made, SmartWorker):
        made.queue.counts()


def test_a_file_url_is_a_directory(tmp_path: Path) -> None:
    assert root(f"file://{tmp_path}/x") == f"{tmp_path}/x"


def test_all_classes_share_the_swarm_in_a_directory(
    tmp_path: Path, isolated_swarm_dir: Path
) -> None:
    path = tmp_path / "here"
    locks = TaskLockManager("w", store=str(path))
    assert locks.acquire_lock("t")
    assert locks._get_lock_path("t") == f"{path}/locks/t.lock"
    assert not TaskLockManager("x", store=path).acquire_lock("t")
    StatusBroadcaster("w", store=path).broadcast_start("t")
    TaskQueue(path).add("t", prompt="x")
    assert FileStore(str(path)).keys("locks") == ["locks/t"]
    assert len(StatusBroadcaster("x", FileStore(str(path))).tail(9)) == 1
    assert not isolated_swarm_dir.exists(), "the directory of the environment is another swarm"


def test_settings_of_the_environment_apply_to_a_given_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = DefaultStore(tmp_path / "s")
    store = chosen.store()
    assert store is chosen.store()
    monkeypatch.setenv("SWARM_DURABLE", "1")
    durable = chosen.store()
    assert isinstance(durable, FileStore) and durable.durable and durable is not store


def test_a_store_object_is_used_as_it_is() -> None:
    store = MemoryStore()
    assert DefaultStore(store).store() is store


def test_a_url_names_a_server(redis: Server) -> None:
    url = redis.url("given")
    locks = TaskLockManager("w", store=url)
    assert locks.acquire_lock("t")
    assert not TaskLockManager("x", store=url).acquire_lock("t")


AGENT = """
echo "$SWARM_STATE_DIR|$AI_SWARM_DIR|$SWARM_STORE|$SWARM_STORE_WITHHELD"
"""


def test_agents_of_a_worker_with_a_directory_use_the_same_swarm(
    tmp_path: Path, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWARM_STORE", f"{tmp_path}/another")
    path = tmp_path / "here"
    TaskQueue(path).add("t", prompt="x")
    tally = SmartWorker("w", ["sh", "-c", AGENT], store=path).run(until_empty=True)
    assert tally.done == 1
    (out,) = (path / "results").glob("t.*.out")
    assert out.read_text() == f"{path}|{path}||\n"
    assert not isolated_swarm_dir.exists() and not (tmp_path / "another").exists()


def test_agents_of_a_worker_with_a_url_use_the_same_server(
    redis: Server, isolated_swarm_dir: Path
) -> None:
    url = redis.url("given_to_a_worker")
    TaskQueue(url).add("t", prompt="x")
    assert SmartWorker("w", ["sh", "-c", AGENT], store=url).run(until_empty=True).done == 1
    (out,) = (isolated_swarm_dir / "results").glob("t.*.out")
    assert out.read_text() == f"{isolated_swarm_dir}|{isolated_swarm_dir}|{url}|\n"


def test_agents_of_a_worker_with_a_url_get_its_password_only_on_request(
    isolated_swarm_dir: Path,
) -> None:
    secret = "redis://default:hunter2@db.example/0"
    variables = DefaultStore(secret).variables()
    kept = task_environment("t", "w", 1, variables=variables)
    assert kept["SWARM_STORE"] == "redis://default@db.example/0"
    assert kept["SWARM_STORE_WITHHELD"] == "1" and "hunter2" not in "".join(kept.values())
    given = task_environment("t", "w", 1, variables=variables, store_for_agent=True)
    assert given["SWARM_STORE"] == secret
    assert "hunter2" in known_secrets(variables)
