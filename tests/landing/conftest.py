from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.landing.project import Landing, make_repository


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(make_repository(tmp_path / "project"))
