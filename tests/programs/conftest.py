"""The programs are installed once, each test has a scripted model and a desk of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.model_server import Server, serving
from tests.support.programs.agents import PROGRAMS, Desk, Program


@pytest.fixture
def model() -> Iterator[Server]:
    """A model without a script: a test appends to `model.scripts`."""
    with serving() as server:
        yield server


@pytest.fixture
def desk(tmp_path: Path, model: Server) -> Desk:
    return Desk(tmp_path / "desk", model)


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    found: Program = request.param
    return found


@pytest.fixture
def project(desk: Desk) -> None:
    """Make the desk a project of swarm."""
    desk.run("swarm", "init", "--yes")
