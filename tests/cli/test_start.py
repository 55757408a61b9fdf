"""How the command starts and ends: quickly, and otherwise as Python itself would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run

Done = subprocess.CompletedProcess[str]


def run(place: Path, *args: str, before: str = "", how: tuple[str, ...] = ("-I", "-S")) -> Done:
    """`swarm ARGS` of the checkout at a place, as the scripts start it; `before`: what
    the process does before that.
    """
    program = (
        f"import sys; sys.path.insert(0, {str(place)!r}); {before or 'pass'}\nfrom "
        f"swarm.cli.start import start; start()"
    )
    return subprocess.run(
        [sys.executable, *how, "-c", program, *args], capture_output=True, text=True, timeout=30
    )


def test_the_error_on_windows_says_what_to_use() -> None:
    done = run(ROOT, "--help", before="sys.platform = 'win32'; sys.modules['posix'] = None")
    assert done.returncode == 1 and "Use WSL" in done.stderr and "Traceback" not in done.stderr


class TestExit:
    @pytest.mark.parametrize(
        ("args", "code"), [(["--version"], 0), (["lock"], 2), (["lock", "release", "t", "w"], 1)]
    )
    def test_the_process_ends_with_the_exit_code_of_the_command(
        self, isolated_swarm_dir: Path, args: list[str], code: int
    ) -> None:
        assert run(ROOT, *args).returncode == code

    @pytest.mark.parametrize(
        "before",
        [
            "import atexit; atexit.register(print, 'the end')",
            (
                "import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), "
                "print('the end'))).start()"
            ),
            "print('the end')",
        ],
        ids=["at exit", "thread", "printed"],
    )
    def test_the_end_waits_for_threads_exit_handlers_and_output_of_other_code(
        self, before: str
    ) -> None:
        assert "the end" in run(ROOT, "--version", before=before).stdout

    def test_a_profiler_sees_the_end_of_the_command(self) -> None:
        command = [sys.executable, "-m", "cProfile", "-m", "swarm", "--version"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith("swarm 0") and "function calls" in done.stdout

    def test_a_command_leaves_no_scratch_directory_behind(
        self, lock: Run, isolated_swarm_dir: Path
    ) -> None:
        acts = (
            "acquire t w 60",
            "heartbeat t w",
            "acquire t other",
            "release t w",
            "acquire t w",
            "break t --yes",
            "list",
            "release-all w",
        )
        for act in acts:
            lock(*act.split())
            assert os.listdir(isolated_swarm_dir / ".locks" / "scratch") == [], act


@pytest.mark.parametrize("how", ["swarm", "swarm/__main__.py", str(ROOT / "swarm" / "__main__.py")])
def test_folders_beside_the_started_file_do_not_hide_the_standard_library(how: str) -> None:
    done = subprocess.run(
        [sys.executable, "-i", how, "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        input="import queue; print(queue.Queue)",
    )
    assert "<class 'queue.Queue'>" in done.stdout, done.stderr


def test_the_error_on_an_old_python_names_the_version() -> None:
    done = run(ROOT, "--version", before="sys.version_info = (3, 10, 4)")
    assert done.returncode == 1
    assert done.stderr == (
        "Error: swarm needs Python 3.11 or newer; this is 3.10. Put a newer python3 first in "
        "PATH.\n"
    )
