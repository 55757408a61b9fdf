"""A swarm of its own for each test, on a tmux server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.tmux.manager import TmuxSwarmManager
from tests.conftest import ROOT
from tests.support.screens.panes import end_server


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that a swarm is started from; its state directory is beside it."""
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.delenv("TMUX_PANE", raising=False)
    monkeypatch.setenv("SWARM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def manager(workplace: Path) -> Iterator[TmuxSwarmManager]:
    made = TmuxSwarmManager()
    yield made
    end_server(made)
