"""The environment, read without `os`, which no command of the hot path imports: the
answers are those of `os`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from swarm import settings
from tests.conftest import ROOT
from tests.support.locales import latin_1

PATHS = [
    "/",
    "/a",
    "/a/",
    "//a",
    "/a//b",
    "/a/./b",
    "/a/../b",
    "/a/..",
    "/a/.b",
    "/a/b.",
    "a",
    "./a",
    "..",
    "a/../b",
    "/a b/ü",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_state_directory_is_made_absolute_as_os_does_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AI_SWARM_DIR", raising=False)
    monkeypatch.setenv("SWARM_STATE_DIR", path)
    assert settings.named_state_dir() == os.path.abspath(path)


def test_a_variable_that_a_program_sets_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWARM_WORKER", "ü-\udcff")
    assert settings.worker() == "ü-\udcff"
    monkeypatch.delenv("SWARM_WORKER")
    assert settings.worker() == ""


def test_a_name_is_decoded_as_the_system_encodes_it(tmp_path: Path) -> None:
    """A program that imports swarm may run in any locale; the command itself runs in UTF-8."""
    program = (
        "import os, sys; from swarm import settings; assert sys.getfilesystemencoding() == "
        "'iso8859-1'\n"
    )
    program += "assert settings.named_state_dir() == os.environ['SWARM_STATE_DIR'] == '/tmp/\\xe9'"
    environment = {
        **os.environ,
        **latin_1(tmp_path),
        "SWARM_STATE_DIR": os.fsdecode(b"/tmp/\xe9"),
        "AI_SWARM_DIR": "",
    }
    command = [sys.executable, "-X", "utf8=0", "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr


def test_an_environ_that_a_program_replaced_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"SWARM_WORKER": "other"})
    assert settings.worker() == "other"
