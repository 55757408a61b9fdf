"""An answer says who gave it: the tree of processes decides, not the words of a call."""

from __future__ import annotations

import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from swarm import settings
from swarm.agents import person
from swarm.queue.queue import TaskQueue
from swarm.stores.registry import open_store
from tests.conftest import ROOT
from tests.support.agents.people import clean_environment, run_as_person, swarm

_WHY = (
    f"{shlex.quote(sys.executable)} -c 'from swarm.agents import person as p; print(p.why_agent())'"
)
# Runs its argument at a terminal of its own, with the environment of a user.
_AT_A_TERMINAL = (
    f"env {' '.join(f'-u {name}' for name in settings.AGENT_VARIABLES)} "
    f"{shlex.quote(sys.executable)} -c 'import pty, sys; "
    'pty.spawn(["bash", "-c", sys.argv[1]])\' '
)


def why_below(command: list[str], **variables: str) -> str:
    """Return what a process says about itself that `command` starts."""
    done = subprocess.run(
        command,
        env=clean_environment(PYTHONPATH=str(ROOT), **variables),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done
    return done.stdout.strip()


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """A folder with programs that the system calls by the names of agents."""
    for name in ("claude", "codex", "bwrap"):
        (tmp_path / name).symlink_to(sys.executable)
    return tmp_path


def test_a_person_at_a_terminal_counts_as_a_person(tmp_path: Path) -> None:
    ended = run_as_person(tmp_path / "ann", _WHY, PYTHONPATH=str(ROOT))
    assert (ended.code, ended.out, ended.err) == (0, "\n", "")


def test_a_person_may_use_any_number_of_shells_and_programs(tmp_path: Path) -> None:
    deep = f"sh -c {shlex.quote(f'timeout 60 bash -c {shlex.quote(_WHY)}; true')}; true"
    assert run_as_person(tmp_path / "ann", deep, PYTHONPATH=str(ROOT)).out == "\n"


def test_a_process_without_a_terminal_counts_as_an_agents(tmp_path: Path) -> None:
    ended = run_as_person(tmp_path / "ann", f"setsid -w {_WHY}", PYTHONPATH=str(ROOT))
    assert "no terminal" in ended.out


@pytest.mark.parametrize("name", ["claude", "codex", "bwrap"])
def test_a_terminal_that_an_agent_makes_does_not_make_it_a_person(name: str, named: Path) -> None:
    program = "import subprocess, sys; subprocess.run(['sh', '-c', sys.argv[1]], check=True)"
    command = f"{_AT_A_TERMINAL} {shlex.quote(_WHY)}; true"
    why = why_below([str(named / name), "-c", program, command])
    assert "sandbox" in why if name == "bwrap" else f"the agent {name}" in why


def test_an_agent_that_an_interpreter_runs_is_found_by_its_script(named: Path) -> None:
    script = named / "gemini-cli" / "index.py"
    script.parent.mkdir()
    script.write_text("import subprocess, sys; subprocess.run(['sh', '-c', sys.argv[1]])")
    command = f"{_AT_A_TERMINAL} {shlex.quote(_WHY)}; true"
    assert "the agent gemini-cli" in why_below([sys.executable, str(script), command])


def test_an_agent_cannot_hide_by_removing_its_variables() -> None:
    """Its own process was started with them."""
    command = f"{_AT_A_TERMINAL} {shlex.quote(_WHY)}; true"
    program = "import subprocess, sys; subprocess.run(['sh', '-c', sys.argv[1]], check=True)"
    why = why_below([sys.executable, "-c", program, command], SWARM_TOKEN="7")
    assert "was started with SWARM_TOKEN" in why


def test_a_variable_of_an_agent_in_the_own_environment_counts(tmp_path: Path) -> None:
    ended = run_as_person(tmp_path / "x", f"CLAUDECODE=1 {_WHY}", PYTHONPATH=str(ROOT))
    assert "CLAUDECODE" in ended.out


def test_an_agent_of_a_worker_that_replaces_itself_is_still_below_the_worker(
    tmp_path: Path,
) -> None:
    """`exec env -u` gives the agent's very process another environment."""
    state = tmp_path / "swarm"
    with closing(open_store(str(state))) as store:
        TaskQueue(store).add("a", "x")
    told = tmp_path / "told"
    command = f"exec {_AT_A_TERMINAL} {shlex.quote(f'{_WHY} >{told}')}"
    words = ["worker", "--id", "w", "--until-empty", "--exec", shlex.join(["bash", "-c", command])]
    done = run_as_person(
        tmp_path / "ann", swarm(*words), SWARM_STATE_DIR=str(state), PYTHONPATH=str(ROOT)
    )
    assert done.code == 0, done
    assert "is a worker of swarm" in told.read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["/usr/bin/python3", "/home/ann/bin/swarm", "worker"], True),
        (["python3", "-P", "/x/swarm/__main__.py", "--store", "s", "worker", "--once"], True),
        (["python3", "-m", "swarm", "worker"], True),
        (["python3", "/home/ann/bin/swarm", "status", "--watch"], False),
        (["vim", "worker"], False),
        (["worker"], False),
        ([], False),
    ],
)
def test_a_worker_is_known_by_its_command_line(words: list[str], expected: bool) -> None:
    assert person.is_worker(words) is expected


def test_a_question_for_a_person_refuses_an_agent_and_takes_a_person(tmp_path: Path) -> None:
    state = tmp_path / "swarm"
    with closing(open_store(str(state))) as store:
        queue = TaskQueue(store)
        queue.add("a", "x")
        claim = queue.claim("w", "a")
        queue.ask("a", "w", claim.token, "Delete it?", options=["yes", "no"], needs="person")
        answer = swarm("answer", "q1", "yes")
        env = clean_environment(SWARM_STATE_DIR=str(state))
        # without a terminal
        refused = subprocess.run(
            ["bash", "-c", answer],
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            start_new_session=True,
        )
        assert refused.returncode == 1 and "person" in refused.stderr, refused
        assert "counts as an agent's" in refused.stderr
        assert queue.questions()[0].is_open
        taken = run_as_person(tmp_path / "ann", answer, SWARM_STATE_DIR=str(state))
        assert taken.code == 0 and "Answered as a person" in taken.out, taken
        (found,) = queue.get("a").questions
        assert (found.answer, found.answered_as) == ("yes", "person")
        assert found.answered_by == settings.user()
