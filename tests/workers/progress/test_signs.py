"""What counts as a sign of work, and what as a reason to wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from swarm.locks import waits
from swarm.system import cpu_time
from swarm.workers.progress import signs
from swarm.workers.progress.signs import newest
from tests.support.at_a_terminal import wait_until

WAITER = """
import sys
from swarm.locks.waits import Waiting
with Waiting("the lock of db"):
    print("waits", flush=True)
    sys.stdin.read()
print("goes on", flush=True)
sys.stdin.close()
time.sleep(600)
"""


class TestNewest:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        for name in ("old.txt", "src/a.py", "src/deep/b.py", ".git/index"):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        for path in [*tmp_path.rglob("*"), tmp_path]:
            os.utime(path, (1000, 1000))
        return tmp_path

    def test_the_file_that_was_changed_last_is_found_in_any_depth(self, tree: Path) -> None:
        os.utime(tree / "src/deep/b.py", (2000, 2000))
        assert (newest(str(tree)).path, newest(str(tree)).at) == (str(tree / "src/deep/b.py"), 2000)

    def test_git_does_not_count(self, tree: Path) -> None:
        os.utime(tree / ".git/index", (2000, 2000))
        os.utime(tree / ".git", (2000, 2000))
        assert newest(str(tree)).at == 1000

    def test_a_removed_file_counts_by_its_directory(self, tree: Path) -> None:
        (tree / "src/a.py").unlink()
        assert newest(str(tree)).path == str(tree / "src")

    def test_a_symlink_is_not_followed(
        self, tree: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        other = tmp_path_factory.mktemp("other")
        (other / "new.txt").write_text("x")
        (tree / "link").symlink_to(other)
        os.utime(tree / "link", (1500, 1500), follow_symlinks=False)
        os.utime(tree, (1000, 1000))
        assert newest(str(tree)).at == 1500

    def test_a_look_at_many_files_ends(self, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(signs, "_MAX_FILES", 2)
        os.utime(tree / "src/deep/b.py", (2000, 2000))
        assert newest(str(tree)).at == 1000

    def test_a_directory_that_is_gone_has_no_sign(self, tmp_path: Path) -> None:
        assert newest(str(tmp_path / "gone")).at == 0.0


class TestCpuTime:
    def test_a_command_in_a_session_of_its_own_counts(self) -> None:
        inner = [sys.executable, "-c", "while True: pass"]
        code = f"import subprocess; subprocess.run({inner!r}, start_new_session=True)"
        leader = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        try:

            def busy() -> bool:
                used = cpu_time.of_tree(leader.pid)
                return used is not None and used.is_running and used.seconds > 0.3

            wait_until(busy)
        finally:
            for pid in _children(leader.pid):
                os.kill(pid, signal.SIGKILL)
            leader.kill()
            leader.wait()

    def test_a_process_that_sleeps_uses_none(self) -> None:
        leader = subprocess.Popen(["sleep", "600"], start_new_session=True)
        try:
            wait_until(lambda: (used := cpu_time.of_tree(leader.pid)) and not used.is_running)
            before, after = cpu_time.of_tree(leader.pid), cpu_time.of_tree(leader.pid)
            assert before is not None and after is not None
            assert after.seconds - before.seconds < 0.05
        finally:
            leader.kill()
            leader.wait()


class TestWaits:
    @pytest.fixture
    def waiter(self, isolated_swarm_dir: Path) -> Iterator[subprocess.Popen[str]]:
        environment = {
            **os.environ,
            "SWARM_TASK_ID": "a",
            "SWARM_TOKEN": "7",
            "SWARM_STATE_DIR": str(isolated_swarm_dir),
        }
        with subprocess.Popen(
            [sys.executable, "-c", WAITER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "waits\n"
            yield process
            process.kill()

    @pytest.fixture
    def path(self, isolated_swarm_dir: Path) -> str:
        return waits.path_in(str(isolated_swarm_dir / "results"), "a", 7)

    def test_an_attempt_waits_while_its_process_waits(
        self, waiter: subprocess.Popen[str], path: str
    ) -> None:
        assert waits.reason(path) == "the lock of db"
        assert waiter.stdin is not None and waiter.stdout is not None
        waiter.stdin.close()
        assert waiter.stdout.readline() == "goes on\n"
        assert waits.reason(path) == ""

    def test_a_killed_process_does_not_wait(self, waiter: subprocess.Popen[str], path: str) -> None:
        waiter.kill()
        waiter.wait()
        assert waits.reason(path) == ""

    def test_outside_of_an_attempt_there_is_no_file(
        self, isolated_swarm_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SWARM_TASK_ID", raising=False)
        with waits.Waiting("x"):
            assert not (isolated_swarm_dir / "results").exists()

    def test_an_attempt_that_never_waited_has_no_file(self, path: str) -> None:
        assert waits.reason(path) == ""
        waits.remove(path)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]
