"""A prompt is a prompt, wherever a command line has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swarm.errors import BadInput
from swarm.queue.queue import Claim, TaskQueue
from swarm.stores.memory import MemoryStore
from swarm.workers import command
from tests.support.command_line import run


def claimed(prompt: str) -> Claim:
    queue = TaskQueue(MemoryStore())
    queue.add("a", prompt)
    return queue.claim("worker-1")


@pytest.mark.parametrize("prompt", ["-h", "--permission-mode=bypassPermissions", "-", "--"])
def test_a_prompt_that_begins_with_a_dash_is_not_an_option(prompt: str) -> None:
    agent = ["agent", "-p", "{prompt}", "--text={prompt}", "{prompt}{task_id}"]
    words = command.filled(claimed(prompt), agent, prompt)
    assert words == [
        "agent",
        "-p",
        f"Task: {prompt}",
        f"--text={prompt}",
        f"Task: {prompt}a",
    ]


def test_any_other_prompt_is_filled_in_unchanged() -> None:
    prompt = "Fix - or --remove - the bug\n-x"
    filled = command.filled(claimed(prompt), ["agent", "{prompt}"], prompt)
    assert filled == ["agent", prompt]


def test_a_prompt_arrives_once() -> None:
    assert command.stdin_for(["agent"], "Fix it") == b"Fix it"
    assert command.stdin_for(["agent", "-p", "{prompt}"], "Fix it") == b""
    assert command.stdin_for(["agent", "--text={prompt}"], "Fix it") == b""


@pytest.mark.parametrize(
    "agent",
    [
        "sh -c 'agent {prompt}'",
        "/bin/bash -lc 'agent \"{prompt}\"'",
        "bash -ce 'agent {prompt}'",
        "bash -o pipefail -c 'agent {prompt}'",
        "env X=1 timeout 60 dash -c 'agent {task_id}'",
        "sh -c 'agent {worker}'",
        "fish --command='agent {prompt}'",
        "su nobody -c 'agent {prompt}'",
        "python3 -c 'run(\"{prompt}\")'",
        "python3.11 -u -c 'run(\"{prompt}\")'",
        "perl -ne 'run(\"{prompt}\")'",
        "node --eval 'run(\"{prompt}\")'",
        "ssh host agent {prompt}",
        "{prompt}",
        "./{prompt}.sh",
    ],
)
def test_no_program_may_read_a_prompt_or_a_name_as_code(agent: str) -> None:
    with pytest.raises(BadInput, match="standard input"):
        command.split(agent)


@pytest.mark.parametrize(
    "agent",
    [
        "claude -p {prompt}",
        "claude -c -p {prompt}",
        "sh -c 'agent --attempt {attempt} --token {token}'",
        "sh -c 'agent \"$1\"' sh {prompt}",
        "sh agent.sh -c {prompt}",
        "python3 agent.py -c {prompt}",
        "bash -x agent.sh --exec {prompt}",
        "./agent-{worker} {prompt}",
    ],
)
def test_a_command_line_in_which_no_program_reads_the_prompt_as_code_is_allowed(
    agent: str,
) -> None:
    assert command.split(agent)


@pytest.mark.parametrize("words", [("worker", "--id", "1"), ("up", "--workers", "1")])
def test_the_commands_refuse_a_prompt_in_a_shell(
    isolated_swarm_dir: Path, words: tuple[str, ...]
) -> None:
    done = run(*words, "--exec", "sh -c 'echo {prompt}'")
    assert done.code == 2 and b"SWARM_PROMPT" in done.err
