"""One task has one file, whatever the locales of the programs are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swarm import TaskLockManager
from swarm.errors import StoreError
from swarm.stores.file import syscalls
from tests.conftest import ROOT
from tests.support.locales import latin_1

TASK = "tâche-été-任務"
LOCALES = ("utf-8", "iso8859-1", "ascii")
Program = Callable[[str, str], Any]


@pytest.fixture
def run(tmp_path: Path, isolated_swarm_dir: Path) -> Program:
    """Run a program in a locale, which prints JSON of its variable `answer`."""
    locales = {
        "utf-8": {"LC_ALL": "C.UTF-8"},
        "iso8859-1": latin_1(tmp_path),
        "ascii": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    }
    head = f"import json, os, sys\nimport swarm\ntask = {TASK!a}\n"
    foot = "\nprint(json.dumps([sys.getfilesystemencoding(), answer]))"

    def run(locale: str, program: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", head + program + foot],
            env={**os.environ, "PYTHONPATH": str(ROOT), **locales[locale]},
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr.decode()
        encoding, answer = json.loads(done.stdout)
        assert encoding == locale
        return answer

    return run


@pytest.mark.parametrize("locale", LOCALES)
def test_a_lock_has_the_utf_8_name_of_its_task_in_any_locale(
    locale: str, run: Program, isolated_swarm_dir: Path
) -> None:
    acquire = "answer = swarm.TaskLockManager('a').acquire_lock(task, ttl=60)"
    assert run(locale, acquire) is True
    assert os.listdir(os.fsencode(isolated_swarm_dir / "locks")) == [f"{TASK}.lock".encode()]
    for other in LOCALES:
        assert run(other, acquire.replace("'a'", "'b'")) is False, "two workers hold the task"
        assert run(other, "answer = swarm.TaskLockManager('b').get_lock_info(task).task_id") == TASK
    for other in LOCALES:
        lock = "locks = swarm.TaskLockManager('a')\n"
        assert run(other, f"{lock}answer = locks.release_lock(task)") is True
        assert run(locale, f"{lock}answer = locks.acquire_lock(task, ttl=60)") is True


@pytest.mark.parametrize("locale", LOCALES)
def test_a_worker_waits_for_a_lock_in_any_locale(locale: str, run: Program) -> None:
    program = """
import threading
first, second = swarm.TaskLockManager("a"), swarm.TaskLockManager("b")
first.acquire_lock(task, ttl=60)
threading.Timer(0.1, first.release_lock, [task]).start()
with second.hold(task, wait=30) as lease:
    answer = lease.token
"""
    assert run(locale, program) == 2


@pytest.mark.parametrize("locale", LOCALES)
def test_records_have_the_same_names_in_any_locale(
    locale: str, run: Program, isolated_swarm_dir: Path
) -> None:
    program = """
from swarm.stores.default import default_store
store, keys = default_store(), [f"locks/{name}" for name in ("\\xe9", "z", "\\xdf", task)]
for key in keys:
    assert store.create(key, b"1") and store.replace(key, b"1", b"2") and store.read(key) == b"2"
    assert os.path.exists(store.where(key))
answer = store.keys("locks") == sorted(keys)
assert all(store.remove(key, b"2") for key in keys) and store.keys("locks") == []
"""
    assert run(locale, program) is True


def test_the_names_of_foreign_files_are_listed_in_any_locale(
    run: Program, isolated_swarm_dir: Path
) -> None:
    (isolated_swarm_dir / "locks").mkdir(parents=True)
    with open(os.fsencode(isolated_swarm_dir / "locks") + b"/\xff\xe9.lock", "wb"):
        pass
    program = (
        "from swarm.stores.default import default_store\nanswer = default_store().keys('locks')"
    )
    answers = [run(locale, program) for locale in LOCALES]
    assert answers == [["locks/\udcff\udce9"]] * 3


def test_a_state_directory_that_the_locale_cannot_name_is_an_error_with_advice(
    run: Program, tmp_path: Path
) -> None:
    program = """
from swarm.stores.registry import open_store
store = open_store("/tmp/\\xe9t\\xe9/nothing")
answer = []
for call in (lambda: store.read("locks/a"), lambda: list(store.search("status", b"x"))):
    try:
        call()
    except swarm.StoreError as error:
        answer.append(str(error))
"""
    answers = run("ascii", program)
    assert len(answers) == 2 and all("PYTHONUTF8=1" in answer for answer in answers)


def test_a_name_that_an_encoding_cannot_carry_is_refused(
    monkeypatch: pytest.MonkeyPatch, isolated_swarm_dir: Path
) -> None:
    """Some encodings of Asia decode two byte strings as one."""
    monkeypatch.setattr(syscalls, "_ENCODING", "utf-7")
    with pytest.raises(StoreError, match="PYTHONUTF8=1"):
        TaskLockManager("a").acquire_lock("+AGE-é", ttl=60)


@pytest.mark.parametrize("encoding", ["utf-8", "iso8859-1", "ascii"])
def test_names_are_those_of_the_files_and_sorted_as_names(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "_ENCODING", encoding)
    names = sorted(["plain", "tâche", "任務", "not UTF-8: \udcff"])
    files = sorted(map(syscalls.file_name, names))
    data = {file.encode(encoding, "surrogateescape") for file in files}
    assert data == {name.encode("utf-8", "surrogateescape") for name in names}
    assert syscalls.names_of(files) == names
