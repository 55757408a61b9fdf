"""A state directory that is restored, or loses files: tokens never go back.

The programs that copy are those that people use for it. Not noticed, and so not tried: a
snapshot of the whole disk, and a copy over files that stay.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from swarm.queue.queue import TaskQueue
from swarm.stores.file.store import FileStore
from tests.conftest import Run
from tests.support.lock_files import table
from tests.support.processes import Worker


def token_of_the_next_holder(lock: Run) -> int:
    done = lock("acquire", "t", "w", "60", "--json")
    assert done.returncode == 0, done.stderr
    assert lock("release", "t", "w").returncode == 0
    token: int = json.loads(done.stdout)["lock"]["token"]
    return token


@pytest.mark.parametrize(
    "copy", ["cp -a {0} {1}", "mkdir {1} && tar c -C {0} . | tar x -C {1}"], ids=["cp", "tar"]
)
def test_tokens_of_a_restored_directory_are_larger_than_all_before(
    copy: str, lock: Run, isolated_swarm_dir: Path, tmp_path: Path
) -> None:
    """A process that works on while the directory is replaced gets larger ones too."""

    def copied(source: Path, target: Path) -> None:
        subprocess.run(copy.format(source, target), shell=True, check=True)

    def token_of_the_late_one() -> int:
        token: int = late("acquire", "t", "late", 60).token
        assert late("release", "t", "late")
        return token

    tokens = [token_of_the_next_holder(lock)]
    copied(isolated_swarm_dir, tmp_path / "backup")
    with Worker(table(isolated_swarm_dir)) as late:
        tokens += [token_of_the_late_one() for _ in range(5)]
        for _ in range(2):
            shutil.rmtree(isolated_swarm_dir)
            copied(tmp_path / "backup", isolated_swarm_dir)
            tokens += [token_of_the_next_holder(lock), token_of_the_late_one()]
    assert tokens == sorted(set(tokens))


def test_the_documented_step_after_a_snapshot_makes_tokens_larger(
    lock: Run, isolated_swarm_dir: Path
) -> None:
    before = token_of_the_next_holder(lock)
    shutil.rmtree(isolated_swarm_dir / ".locks" / "generations")
    after = token_of_the_next_holder(lock)
    assert after > before + 10**12, "larger than the tokens of a thousand boots"


def test_a_removed_counter_does_not_turn_tokens_back(lock: Run, isolated_swarm_dir: Path) -> None:
    tokens = [token_of_the_next_holder(lock) for _ in range(5)]
    for counter in (isolated_swarm_dir / ".locks" / "tokens").glob("[0-9]*"):
        counter.unlink()
    tokens += [token_of_the_next_holder(lock) for _ in range(2)]
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("known_to", ["lock", "queue", "status log"])
def test_without_its_counters_a_token_is_larger_than_one_that_is_still_named(
    known_to: str, isolated_swarm_dir: Path
) -> None:
    """All of `.locks` is removed."""
    queue = TaskQueue(FileStore(str(isolated_swarm_dir)))
    queue.add("t", "work", max_attempts=9)
    for _ in range(5):
        claim = queue.claim("w", task_id="t")
        queue.release("t", "w", claim.token)
    if known_to == "lock":
        queue.claim("w", task_id="t")
    for path in isolated_swarm_dir.iterdir():
        kept = {"lock": "locks", "queue": ".tasks", "status log": "status.log"}[known_to]
        if path.name != kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    later = 10.0**6
    again = table(isolated_swarm_dir, later=later).acquire("t", "other", 60)
    assert again.token is not None and again.token > claim.token


def test_a_task_whose_counter_was_set_back_can_be_claimed(isolated_swarm_dir: Path) -> None:
    """The queue accepts only a larger token than that of the last claim."""
    queue = TaskQueue(FileStore(str(isolated_swarm_dir)))
    queue.add("t", "work", max_attempts=9)
    for _ in range(5):
        before = queue.claim("w", task_id="t")
        queue.release("t", "w", before.token)
    for counter in (isolated_swarm_dir / ".locks" / "tokens").glob("[0-9]*"):
        counter.write_bytes(b"")
    assert queue.claim("w", task_id="t").token > before.token


def test_a_lock_is_taken_over_with_a_larger_token_than_its_record_has(
    isolated_swarm_dir: Path,
) -> None:
    locks = table(isolated_swarm_dir)
    for _ in range(5):
        before = locks.acquire("t", "w", 0.001)
        locks.await_change("t", 1.0)
    for counter in (isolated_swarm_dir / ".locks" / "tokens").glob("[0-9]*"):
        counter.write_bytes(b"")
    after = table(isolated_swarm_dir, later=60.0).acquire("t", "other", 60)
    assert (before.token, after.token) != (None, None)
    assert (after.token or 0) > (before.token or 0)


def test_a_token_that_no_store_can_count_to_does_not_block_a_lock(isolated_swarm_dir: Path) -> None:
    (isolated_swarm_dir / "locks").mkdir(parents=True)
    record = {"worker": "w", "acquired_at": "2026-01-31T12:00:00Z", "ttl": 1, "token": 10**30}
    (isolated_swarm_dir / "locks" / "t.lock").write_text(json.dumps(record))
    assert 0 < (table(isolated_swarm_dir).acquire("t", "w", 60).token or 0) < 10**16
