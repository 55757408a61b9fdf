"""How the command starts and ends: quickly, and otherwise as Python itself would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

from tests.conftest import ROOT, Run

Done = subprocess.CompletedProcess[str]


def run(place: Path, *args: str, before: str = "", how: tuple[str, ...] = ("-I", "-S")) -> Done:
    """`swarm ARGS` of the checkout at a place, as the scripts start it; `before`: what the process does before that."""
    program = f"import sys; sys.path.insert(0, {str(place)!r}); {before or 'pass'}\nfrom swarm.start import start; start()"
    return subprocess.run([sys.executable, *how, "-c", program, *args], capture_output=True, text=True, timeout=30)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the package, already compiled."""
    shutil.copytree(ROOT / "swarm", tmp_path / "swarm", ignore=shutil.ignore_patterns("__pycache__", "web", "skills"))
    assert run(tmp_path, "--help").stdout.startswith("Usage: swarm COMMAND")
    return tmp_path


def compiled(checkout: Path) -> Path:
    return checkout / "swarm" / "__pycache__" / f"cli.{sys.implementation.cache_tag}.pyc"


def loader_of_cli(checkout: Path, *how: str) -> str:
    """Which loader brought `swarm.cli`."""
    said = "import atexit; atexit.register(lambda: print(type(sys.modules['swarm.cli'].__loader__).__name__))"
    return run(checkout, "--version", before=said, how=(*how, "-I", "-S")).stdout.splitlines()[-1]


class TestCompiledModules:
    def test_are_found_where_python_put_them(self, checkout: Path) -> None:
        assert loader_of_cli(checkout) == "_Compiled"

    @pytest.mark.parametrize("seconds", [10, -10])
    def test_a_changed_source_is_what_runs(self, checkout: Path, seconds: int) -> None:
        source = checkout / "swarm" / "cli.py"
        written = source.stat().st_mtime
        source.write_text(source.read_text().replace("Usage: swarm COMMAND", "Usage: SWARM COMMAND"))
        os.utime(source, (written + seconds, written + seconds))
        assert run(checkout, "--help").stdout.startswith("Usage: SWARM COMMAND")
        assert loader_of_cli(checkout) == "_Compiled"  # Python has compiled it anew

    def test_a_source_of_another_size_is_what_runs(self, checkout: Path) -> None:
        source = checkout / "swarm" / "cli.py"
        written = source.stat()
        source.write_text(source.read_text().replace("Usage: swarm COMMAND", "Usage: a swarm COMMAND"))
        os.utime(source, ns=(written.st_atime_ns, written.st_mtime_ns))
        assert run(checkout, "--help").stdout.startswith("Usage: a swarm COMMAND")

    @pytest.mark.parametrize(
        "begins", [b"\0\0\0\0", MAGIC_NUMBER + b"\3\0\0\0"], ids=["another version", "to be compared by its hash"]
    )
    def test_what_was_compiled_otherwise_is_not_used(self, checkout: Path, begins: bytes) -> None:
        file = compiled(checkout)
        file.write_bytes(begins + file.read_bytes().replace(b"Usage: swarm", b"Usage: other")[len(begins) :])
        assert run(checkout, "--help").stdout.startswith("Usage: swarm COMMAND")

    def test_what_nobody_finished_writing_is_not_used(self, checkout: Path) -> None:
        os.truncate(compiled(checkout), 0)
        assert run(checkout, "--help").stdout.startswith("Usage: swarm COMMAND")

    def test_nothing_is_compiled_where_nothing_can_be_written(self, checkout: Path) -> None:
        shutil.rmtree(checkout / "swarm" / "__pycache__")
        (checkout / "swarm" / "__pycache__").touch()
        done = run(checkout, "--help")
        assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Usage: swarm COMMAND")
        assert loader_of_cli(checkout) == "SourceFileLoader"

    def test_a_source_that_is_gone_is_gone(self, checkout: Path) -> None:
        (checkout / "swarm" / "cli.py").unlink()
        assert "No module named 'swarm.cli'" in run(checkout, "--help").stderr

    def test_moved_modules_know_where_they_are(self, checkout: Path) -> None:
        moved = checkout / "moved"
        moved.mkdir()
        (checkout / "swarm").rename(moved / "swarm")
        said = "import atexit; atexit.register(lambda: print(sys.modules['swarm.cli'].main.__code__.co_filename))"
        assert run(moved, "--version", before=said).stdout.splitlines()[-1] == str(moved / "swarm" / "cli.py")

    def test_a_source_from_before_1970_is_one_like_any_other(self, checkout: Path) -> None:
        os.utime(checkout / "swarm" / "cli.py", (-86400, -86400))
        assert [run(checkout, "--help").returncode for _ in range(2)] == [0, 0]

    @pytest.mark.parametrize("how", ["-O", "-Xpycache_prefix={}/elsewhere"])
    def test_other_compiled_files_are_left_to_python(self, checkout: Path, how: str) -> None:
        assert loader_of_cli(checkout, how.format(checkout)) == "SourceFileLoader"

    def test_a_program_that_imports_swarm_keeps_its_own_import(self) -> None:
        program = "import sys; before = sys.meta_path[:]; import swarm.start, swarm.cli; assert sys.meta_path == before"
        assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=30).returncode == 0


def test_windows_is_told_what_to_use() -> None:
    done = run(ROOT, "--help", before="sys.platform = 'win32'; sys.modules['posix'] = None")
    assert done.returncode == 1 and "Use WSL" in done.stderr and "Traceback" not in done.stderr


class TestTheEnd:
    @pytest.mark.parametrize(("args", "code"), [(["--version"], 0), (["lock"], 2), (["lock", "release", "t", "w"], 1)])
    def test_gives_the_commands_exit_code(self, isolated_swarm_dir: Path, args: list[str], code: int) -> None:
        assert run(ROOT, *args).returncode == code

    @pytest.mark.parametrize(
        "before",
        [
            "import atexit; atexit.register(print, 'the end')",
            "import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), print('the end'))).start()",
            "print('the end')",
        ],
        ids=["at exit", "thread", "printed"],
    )
    def test_waits_for_whoever_is_in_the_same_process(self, before: str) -> None:
        assert "the end" in run(ROOT, "--version", before=before).stdout

    def test_a_profiler_sees_it_all(self) -> None:
        command = [sys.executable, "-m", "cProfile", "-m", "swarm", "--version"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith("swarm 0") and "function calls" in done.stdout

    def test_leaves_no_hand_behind(self, lock: Run, isolated_swarm_dir: Path) -> None:
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
            assert os.listdir(isolated_swarm_dir / ".locks" / "hands") == [], act


def test_an_old_python_is_told_so() -> None:
    done = run(ROOT, "--version", before="sys.version_info = (3, 10, 4)")
    assert done.returncode == 1
    assert done.stderr == "Error: swarm needs Python 3.11 or newer; this is 3.10. Put a newer python3 first in PATH.\n"
