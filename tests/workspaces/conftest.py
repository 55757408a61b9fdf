"""A repository of each test's own, independent of the configuration of who runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.workspaces.repositories import TestRepository


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


@pytest.fixture
def repo(tmp_path: Path) -> TestRepository:
    """A repository with three files on main."""
    made = TestRepository(tmp_path / "repo")
    made.commit("first", one="1\n", two="2\n", three="3\n")
    return made
