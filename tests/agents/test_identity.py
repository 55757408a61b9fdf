"""Hooks, MCP servers and shells that an agent starts agree on who it is."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarm import settings
from swarm.agents import identity
from swarm.errors import BadInput
from swarm.inputs import is_plain_name
from tests.conftest import ROOT

_ASK = (
    f"{sys.executable} -c 'from swarm.agents import identity as a; f = a.find(); print(f.pid, "
    f"f.name, f.worker)'"
)


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """A program that the system calls `claude`: it tells its pid, then runs each of its
    arguments.
    """
    (tmp_path / "claude").symlink_to(sys.executable)
    script = tmp_path / "agent.py"
    script.write_text(
        "import os, subprocess, sys\n"
        "print(os.getpid(), flush=True)\n"
        "for n, line in enumerate(sys.argv[1:]):\n"
        "    subprocess.run(['sh', '-c', line], check=True, start_new_session=n == 1)\n"
    )
    return tmp_path / "claude"


def test_all_processes_of_an_agent_find_the_same_agent(agent: Path) -> None:
    ways = [_ASK, f"bash -c {_quoted(_ASK + '; true')}; true", f"env timeout 60 {_ASK}"]
    done = subprocess.run(
        [agent, agent.with_name("agent.py"), *ways],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    pid, *found = done.stdout.splitlines()
    assert found == [f"{pid} claude claude@{os.uname().nodename}-{pid}"] * 3, done


def test_a_shell_at_a_terminal_stands_for_its_user() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvp("bash", ["bash", "-c", f"{_ASK}; true"])
    found = b""
    try:
        while part := os.read(terminal, 1000):
            found += part
    except OSError:  # the end of a terminal
        pass
    os.close(terminal)
    os.waitpid(pid, 0)
    assert found.decode().split()[:2] == [str(pid), "bash"]


def test_a_terminal_that_an_agent_gives_a_command_has_no_user(agent: Path) -> None:
    """Codex does so if its model asks for it."""
    program = (
        "import os, pty, sys; print(os.getpid(), flush=True); pty.spawn(['bash', '-lc', "
        "sys.argv[1]])"
    )
    codex = agent.with_name("codex")
    codex.symlink_to(sys.executable)
    done = subprocess.run(
        [codex, "-c", program, f"{_ASK}; true"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    pid, found, *_ = done.stdout.splitlines()
    assert found.split()[:2] == [pid, "codex"], done


def test_orphaned_scripts_are_different_workers(tmp_path: Path) -> None:
    """They all have the same parent then: the process that adopts orphans."""
    for name in "ab":
        late = (
            f"sleep 0.3; {_ASK} > {tmp_path}/{name}.new; mv {tmp_path}/{name}.new {tmp_path}/{name}"
        )
        subprocess.run(["sh", "-c", f"sh -c {_quoted(late)} & true"], cwd=ROOT, check=True)
    deadline = time.monotonic() + 30
    while len(list(tmp_path.glob("?"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    one, other = ((tmp_path / name).read_text().split() for name in "ab")
    assert one[1] == other[1] == "sh" and one[2] != other[2]


@pytest.mark.parametrize("proc", [["--mount-proc"], []])
def test_an_agent_hidden_by_a_sandbox_is_not_guessed(proc: list[str]) -> None:
    """All sandboxes look alike from within: the agents in them would be one worker."""
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        *proc,
        "sh",
        "-c",
        f"{sys.executable} swarm prime; true",
    ]
    env = {name: value for name, value in os.environ.items() if name != "SWARM_WORKER"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=env)
    assert done.stdout == "" and "--worker NAME" in done.stderr and "SWARM_WORKER" in done.stderr


def test_agents_in_containers_with_one_name_are_different_workers(agent: Path) -> None:
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        str(agent),
        str(agent.with_name("agent.py")),
        _ASK,
    ]
    running = [
        subprocess.Popen([*command, "sleep 0.5"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    one, other = (each.communicate(timeout=60)[0].splitlines() for each in running)
    assert (
        one[0] == other[0] == "1" and one[1].startswith("1 claude claude@") and one[1] != other[1]
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def test_a_name_made_from_a_long_host_name_is_plain_and_differs_from_that_of_another_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = set()
    for host in ("pod-" + "x" * 59 + "1", "pod-" + "x" * 59 + "2", "my host"):
        monkeypatch.setattr(os, "uname", lambda host=host: SimpleNamespace(nodename=host))
        names.add(identity.AgentProcess(4711, "claude").worker)
    assert len(names) == 3 and all(map(is_plain_name, names))


class TestWhoami:
    def test_a_given_name_counts_more_than_the_variable_and_that_more_than_the_fallback(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_WORKER", "from-environment")
        assert identity.whoami("given") == "given"
        assert identity.whoami(fallback="user") == "from-environment"
        monkeypatch.delenv("SWARM_WORKER")
        assert identity.whoami() == identity.find().worker
        assert identity.whoami(fallback="user") == settings.user()
        assert identity.whoami(fallback="user", pid=7).startswith(f"{settings.user()}@")
        assert identity.whoami(fallback="user", pid=7).endswith("-7")

    def test_without_a_fallback_the_worker_must_be_named(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SWARM_WORKER", raising=False)
        with pytest.raises(BadInput, match=r"Give --id N, or set SWARM_WORKER"):
            identity.whoami(fallback=None, option="--id N")

    def test_an_invalid_name_is_refused_with_where_it_comes_from(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SWARM_WORKER", "a/b")
        with pytest.raises(BadInput, match="SWARM_WORKER"):
            identity.whoami()
        with pytest.raises(BadInput, match=r"^--id ''"):
            identity.whoami("", option="--id N")
