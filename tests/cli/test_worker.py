"""`swarm worker --agent`, and `swarm task output`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from swarm.queue.queue import TaskQueue
from tests.conftest import ROOT, script_environment
from tests.presets.recorded import OUTPUT
from tests.support.command_line import run


@pytest.fixture(autouse=True)
def place(isolated_swarm_dir: Path) -> Path:
    return isolated_swarm_dir


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in PATH. Its `claude` prints what the real program printed."""
    directory = tmp_path / "bin"
    directory.mkdir()
    recorded = OUTPUT / "claude" / "success_edit.out"
    program = directory / "claude"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {directory}/words\ncat {recorded}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and nothing else that names a state directory."""
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    for name in ("SWARM_STATE_DIR", "AI_SWARM_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert run("init").code == 0
    return root


def swarm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "swarm", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )


def test_a_worker_runs_an_agent_by_its_name(programs: Path) -> None:
    TaskQueue().add("a", "Write new.txt.")
    done = swarm("worker", "--id", "1", "--agent", "claude", "--until-empty", "--", "--bare")
    assert done.returncode == 0, done
    assert "✔ done     a  Done: wrote new.txt." in done.stdout
    words = (programs / "words").read_text().splitlines()
    assert "--permission-mode=acceptEdits" in words and words[-1] == "--bare"


def test_the_defaults_are_in_swarm_toml(programs: Path, project: Path) -> None:
    (project / "swarm.toml").write_text('agent = "claude"\npermissions = "ask"\nmodel = "m1"\n')
    TaskQueue().add("a", "x")
    assert swarm("worker", "--id", "1", "--until-empty").returncode == 0
    words = (programs / "words").read_text().splitlines()
    assert "--permission-mode=default" in words and "--model=m1" in words


def test_an_own_agent_of_swarm_toml_is_run(programs: Path, project: Path) -> None:
    (project / "swarm.toml").write_text('[agents.mine]\ncommand = "sed s/^/did:/"\n')
    TaskQueue().add("a", "x")
    done = swarm("worker", "--id", "1", "--agent", "mine", "--until-empty")
    assert "✔ done     a  did:x" in done.stdout


def test_no_agent_can_be_chosen_where_swarm_toml_names_one(programs: Path, project: Path) -> None:
    (project / "swarm.toml").write_text('agent = "claude"\n')
    TaskQueue().add("a", "x")
    TaskQueue().add("b", command="true")
    done = swarm("worker", "--id", "1", "--agent", "none", "--until-empty")
    assert "1 done" in done.stdout and not (programs / "words").exists()


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--agent", "cluade"), "claude codex gemini opencode"),
        (("--agent", "gemini"), "npm install -g @google/gemini-cli"),
        (("--agent", "claude", "--exec", "cat"), "--exec or --agent"),
        (("--agent", "claude", "--permissions", "all"), "ask edit full"),
        (("--agent", "claude", "--budget", "much"), "--budget"),
        (("--agent", "claude", "--task-budget", "0"), "--task-budget"),
        (("--exec", "cat", "--permissions", "full"), "--permissions"),
        (("--exec", "cat", "--", "-v"), "--exec"),
    ],
)
def test_a_mistake_is_refused_before_a_task_is_claimed(
    programs: Path, words: tuple[str, ...], fact: str
) -> None:
    answer = run("worker", "--id", "1", "--until-empty", *words)
    assert answer.code == 2 and fact.encode() in answer.err


class TestOutput:
    @pytest.fixture(autouse=True)
    def done(self, programs: Path) -> None:
        TaskQueue().add("a", "Write new.txt.")
        assert swarm("worker", "--id", "1", "--agent", "claude", "--until-empty").returncode == 0

    def test_readable_lines_are_printed(self) -> None:
        assert run("task", "output", "a").out.decode() == (
            "I write it.\n→ Write new.txt\nDone: wrote new.txt.\n"
        )

    def test_the_raw_output_is_as_the_agent_wrote_it(self) -> None:
        recorded = (OUTPUT / "claude" / "success_edit.out").read_bytes()
        assert run("task", "output", "a", "--raw").out == recorded

    def test_json_has_the_lines_and_the_files(self, place: Path) -> None:
        found = run("task", "output", "a", "--json").json
        assert found["lines"][0] == "I write it." and found["token"] == 1
        assert found["files"] == [f"{place}/results/a.1.txt", f"{place}/results/a.1.out"]

    def test_control_characters_are_escaped(self, place: Path) -> None:
        (place / "results" / "a.1.txt").write_text("\x1b[2Jgone\n")
        assert run("task", "output", "a").out == b"\\x1b[2Jgone\n"

    def test_an_earlier_attempt_is_named_by_its_token(self, place: Path) -> None:
        (place / "results" / "a.7.out").write_text("later\n")
        assert run("task", "output", "a").out == b"later\n"
        assert run("task", "output", "a", "--token", "1").out.startswith(b"I write it.\n")

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("b",), 1),
            (("a", "--token", "9"), 1),
            (("a", "--follow", "--json"), 2),
            (("a", "--follow", "--raw"), 2),
        ],
    )
    def test_a_mistake_is_refused(self, words: tuple[str, ...], code: int) -> None:
        assert run("task", "output", *words).code == code

    def test_the_output_of_a_task_whose_name_begins_alike_is_another(self, place: Path) -> None:
        TaskQueue().add("a.1", "x")
        assert run("task", "output", "a.1").code == 1

    def test_following_an_ended_task_prints_all_of_it_and_ends(self) -> None:
        done = run("task", "output", "a", "--follow")
        assert done.out.endswith(b"Done: wrote new.txt.\n")


def test_lines_are_followed_while_the_agent_works(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line is written only after the first one was printed."""
    seen = tmp_path / "seen"
    script = f"echo first; while ! test -e {seen}; do sleep 0.05; done; echo second"
    queue = TaskQueue()
    queue.add("a", command=script)
    environment = {**script_environment(), "SWARM_STATE_DIR": str(place)}
    base = [sys.executable, "-m", "swarm"]
    worker = subprocess.Popen(
        [*base, "worker", "--id", "1", "--until-empty", "--quiet"], env=environment, cwd=ROOT
    )
    follower = subprocess.Popen(
        [*base, "task", "output", "a", "--follow"],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n"
        seen.touch()
        assert follower.stdout.read() == "second\n"
        assert follower.wait(30) == 0 and worker.wait(30) == 0
    finally:
        seen.touch()
        for process in (follower, worker):
            process.terminate()
            process.communicate()
    assert queue.get("a").state == "done"
