"""The fast tests: what they leave out, and that nothing is left out in silence; and the
script that tests other Pythons.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.selection import MARKS, PATHS

SCRIPT = ROOT / "tests" / "pythons.sh"


@pytest.mark.parametrize(
    ("mark", "entry"), [(mark, entry) for mark, entries in PATHS.items() for entry in entries]
)
def test_every_path_with_a_mark_exists(mark: str, entry: str) -> None:
    """Otherwise a renamed slow test would be among the fast ones."""
    file, _, name = entry.partition("::")
    assert mark in MARKS and (ROOT / file).exists()
    if name:
        assert any(known.startswith(name.partition("[")[0]) for known in names_in(ROOT / file))


def names_in(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
            if isinstance(node, ast.ClassDef):
                yield from (
                    f"{node.name}::{inner.name}"
                    for inner in node.body
                    if isinstance(inner, ast.FunctionDef)
                )


def collect(*args: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *args,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_fast_ones_need_no_server_and_no_other_program() -> None:
    found = collect(
        "-q",
        "--fast",
        "tests/stores/test_contract.py",
        "tests/stores/test_redis.py",
        "tests/tmux",
        "tests/cli/queue/test_task.py",
    )
    assert "tests/cli/queue/test_task.py::" in found and "[file" in found and "[memory" in found
    assert not any(name in found for name in ("redis", "postgres", "etcd", "tests/tmux/"))
    assert "deselected" in found


def test_marks_choose_also_without_the_option() -> None:
    found = collect("-q", "-m", "servers", "tests/stores/test_contract.py")
    assert "[redis" in found and "[file" not in found


def test_a_file_that_needs_a_missing_module_is_left_out_and_listed() -> None:
    found = collect(
        "--without=yaml", "--without=jsonschema", "tests/formats", "tests/queue/test_task.py"
    )
    assert "left out, without yaml, jsonschema: tests/formats/test_yaml_codec.py" in found
    assert "<Module test_task.py>" in found and "<Module test_yaml_codec.py>" not in found


class TestOtherPythons:
    @pytest.mark.parametrize(
        "args",
        [[], ["run"], ["run", "3.15"], ["test"], ["test", "--", "-q"], ["nonsense"]],
        ids=" ".join,
    )
    def test_wrong_usage_is_told_and_changes_nothing(self, args: list[str]) -> None:
        done = subprocess.run([str(SCRIPT), *args], capture_output=True, text=True, timeout=30)
        assert done.returncode == 2 and "Usage: tests/pythons.sh" in done.stderr

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere that is what it says")
    def test_where_there_is_no_apt_it_says_what_is_missing(self, tmp_path: Path) -> None:
        for name in ("bash", "dirname", "uname"):
            (tmp_path / name).symlink_to(shutil.which(name) or name)
        done = subprocess.run(
            [str(tmp_path / "bash"), str(SCRIPT), "run", "3.15", "true"],
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 1 and "there is no apt-get" in done.stderr

    def test_the_mirror_of_this_machine_is_not_written_down(self) -> None:
        assert "://" not in SCRIPT.read_text()
