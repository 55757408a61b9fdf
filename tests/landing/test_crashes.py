"""A lander is killed, or stopped past its lease, before each of its git commands in turn.

A program named `git` stands before the real one. At the command of its turn, it kills or
stops the lander that called it; then it runs the real git, late.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.landing import lander_process
from tests.support.landing.project import Landing, git, make_repository, run_git, writes

_GIT = shutil.which("git") or "git"
_SCRIPT = """\
#!/bin/sh
n=$(cat {counter} 2>/dev/null || echo 0); n=$((n + 1)); echo $n > {counter}
if [ $n = {turn} ]; then
    echo "$*" > {hit}
    kill -{signal} $PPID
    {then}
fi
exec {git} "$@"
"""
_TTL = "2"
_LANDERS_COMMANDS = 60  # more than a lander of this test ever runs


def _program(folder: Path, turn: int, name: str, *, waits: bool) -> Path:
    """Make the program `git`; return its directory."""
    folder.mkdir()
    then = f"while [ ! -e {folder}/go ]; do sleep 0.02; done" if waits else ""
    text = _SCRIPT.format(
        counter=folder / "count", turn=turn, hit=folder / "hit", git=_GIT, signal=name, then=then
    )
    (folder / "git").write_text(text)
    (folder / "git").chmod(0o755)
    return folder


@contextmanager
def _lander(root: Path, name: str, path: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if path is not None:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    process = subprocess.Popen(
        [sys.executable, lander_process.__file__, str(root), name, _TTL],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _project(path: Path) -> Landing:
    landing = Landing(make_repository(path))
    landing.submit("a", writes(a__txt="a\n", base__txt="by a\n"))
    landing.submit("b", writes(b__txt="b\n"))
    writes(mine__txt="mine\n")(landing.root)
    return landing


def _finish(landing: Landing) -> None:
    """Land the rest, as the next landers do, until nothing waits."""
    while any(landing.state(name) != "done" for name in "ab"):
        with _lander(landing.root, "next") as process:
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said


def _check(landing: Landing) -> None:
    assert landing.log_subjects() == ["first", "a: do it", "b: do it"]
    assert [landing.done_records(name) for name in "ab"] == [1, 1]
    assert run_git(landing.root, "status", "--porcelain").stdout == "?? mine.txt\n"
    assert (landing.root / "mine.txt").read_text() == "mine\n"
    assert not (landing.root / ".git/index.lock").exists()
    assert git(landing.root, "fsck", "--no-dangling", "--no-progress", "--connectivity-only") == ""


def _turns(start: int, step: int) -> range:
    return range(start, _LANDERS_COMMANDS, step)


@pytest.mark.parametrize("start", [1, 2, 3, 4])
def test_a_lander_killed_before_any_git_command_is_succeeded(tmp_path: Path, start: int) -> None:
    for turn in _turns(start, 4):
        landing = _project(tmp_path / f"project{turn}")
        program = _program(tmp_path / f"bin{turn}", turn, "KILL", waits=False)
        with _lander(landing.root, "killed", program) as process:
            process.communicate(timeout=60)
        if not (program / "hit").exists():
            assert turn > 20, "the lander ran fewer commands than expected"
            assert process.returncode == 0
            _check(landing)
            return
        assert process.returncode == -signal.SIGKILL
        _finish(landing)
        _check(landing)
    pytest.fail("the lander never ended by itself")


@pytest.mark.parametrize("start", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_lander_stopped_past_its_lease_changes_nothing_later(tmp_path: Path, start: int) -> None:
    for turn in _turns(start, 8):
        landing = _project(tmp_path / f"project{turn}")
        program = _program(tmp_path / f"bin{turn}", turn, "STOP", waits=True)
        with _lander(landing.root, "stopped", program) as process:
            while process.poll() is None and not (program / "hit").exists():
                time.sleep(0.02)
            if not (program / "hit").exists():
                assert turn > 20, "the lander ran fewer commands than expected"
                _check(landing)
                return
            _finish(landing)  # waits until the lease of the stopped lander is over
            _check(landing)
            (program / "go").touch()
            os.kill(process.pid, signal.SIGCONT)
            process.communicate(timeout=60)
        _check(landing)
    pytest.fail("the lander never ended by itself")


def test_landers_at_once_land_each_task_once(tmp_path: Path) -> None:
    landing = Landing(make_repository(tmp_path / "project"))
    names = [f"t{number}" for number in range(8)]
    for name in names:
        landing.submit(name, writes(**{f"{name}__txt": name}))
    while any(landing.state(name) != "done" for name in names):
        with (
            _lander(landing.root, "one") as one,
            _lander(landing.root, "two") as two,
            _lander(landing.root, "three") as three,
        ):
            for process in (one, two, three):
                _, said = process.communicate(timeout=60)
                assert process.returncode == 0, said
    assert landing.log_subjects() == ["first", *(f"{name}: do it" for name in names)]
    assert [landing.done_records(name) for name in names] == [1] * len(names)
