"""Every store keeps the contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.errors import BadInput
from swarm.stores.contract import Store
from swarm.stores.file.store import FileStore
from swarm.stores.memory import MemoryStore
from swarm.stores.registry import open_store
from swarm.system.clock import Clock
from swarm.testing import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_store_keeps_the_contract(check: Callable[[Store], None], live_store: Store) -> None:
    check(live_store)


def test_the_checks_catch_a_store_that_overwrites() -> None:
    class Overwriting(MemoryStore):
        def create(self, key: str, data: bytes) -> bool:
            return self._swap(key, self.read(key), data)

    failed = [check.__name__ for check in CHECKS if _fails(check, Overwriting())]
    assert {"create_only_if_absent", "one_of_many_threads_creates"} <= set(failed)


def test_the_checks_catch_a_store_that_swaps_blindly() -> None:
    class Blind(MemoryStore):
        def replace(self, key: str, old: bytes, new: bytes) -> bool:
            return self._swap(key, self.read(key), new)

    failed = [check.__name__ for check in CHECKS if _fails(check, Blind())]
    assert {"replace_only_what_was_compared", "one_of_many_threads_replaces"} <= set(failed)


def test_a_url_opens_its_store(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), FileStore)
    assert isinstance(open_store(f"file://{tmp_path}"), FileStore)
    assert isinstance(open_store("memory://"), MemoryStore)
    assert isinstance(open_store("memory://").clock, Clock)
    with pytest.raises(BadInput, match="redis://…, postgresql://…, etcd://…"):
        open_store("carrier-pigeon://coop")


def _fails(check: Callable[[Store], None], store: Store) -> bool:
    try:
        check(store)
    except AssertionError:
        return True
    return False
