"""The command `swarm` itself: help for every command, the version, and words that are
almost a command.
"""

from __future__ import annotations

import json

import pytest

from swarm import __version__
from tests.support.command_line import run


@pytest.mark.parametrize(
    "words", [["lock"], ["lock", "acquire"], ["worker"], ["up"], ["sprint", "run"]], ids=" ".join
)
def test_help_of_a_command_equals_its_help_option(words: list[str]) -> None:
    asked = run("help", *words)
    assert asked.code == 0 and asked.out.startswith(f"Usage: swarm {' '.join(words)}".encode())
    assert asked.out == run(*words, "--help").out


@pytest.mark.parametrize("word", ["help", "--help", "-h"])
def test_help_alone_lists_every_command(word: str) -> None:
    assert run(word).code == 0 and b"\n  doctor " in run(word).out


@pytest.mark.parametrize("word", ["version", "--version", "-V"])
def test_the_version_is_text_or_json(word: str) -> None:
    assert run(word).out == f"swarm {__version__}\n".encode()
    assert json.loads(run(word, "--json").out) == {"schema_version": 1, "version": __version__}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["lok"], "swarm lock"),
        (["task", "ad"], "swarm task add"),
        (["statsu"], "swarm status"),
        (["help", "lok"], "swarm lock"),
    ],
)
def test_a_misspelt_command_is_answered_with_a_suggestion(words: list[str], meant: str) -> None:
    answer = run(*words)
    assert answer.code == 2 and f"Did you mean: {meant}?".encode() in answer.err


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["worker", "--worker", "w1"], "(did you mean --id?)"),
        (["worker", "--name", "w1"], "(did you mean --id?)"),
        (["task", "claim", "--id", "w1"], "(did you mean --worker?)"),
        (["worker", "--workspce", "none"], "(did you mean --workspace?)"),
        (["ask", "-- dash"], "(put text that begins with -- after a --)"),
        (["ask", "--task or not?"], "(put text that begins with -- after a --)"),
        (["tell", "w", "-- dash"], "(put text that begins with -- after a --)"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_an_unknown_option_is_answered_with_what_the_user_meant(
    words: list[str], advice: str
) -> None:
    answer = run(*words)
    assert answer.code == 2 and advice.encode() in answer.err


def test_a_user_who_waits_for_a_lock_is_sent_to_the_command_that_waits() -> None:
    answer = run("lock", "wait", "t")
    assert answer.code == 2 and b"swarm wait TASK --for free" in answer.err


def test_an_unknown_command_gets_no_suggestion() -> None:
    answer = run("xyzzy")
    assert answer.code == 2 and b"Did you mean" not in answer.err and b"swarm --help" in answer.err


@pytest.mark.parametrize(
    "words", [["--store"], ["--store="], ["lock", "list", "--store="]], ids=" ".join
)
def test_a_store_option_without_a_value_is_wrong_usage(words: list[str]) -> None:
    answer = run(*words)
    assert answer.code == 2 and b"--store needs a value" in answer.err


@pytest.mark.parametrize(
    "words",
    [["hook", "--nonsense"], ["--store", "hook"], ["--store=nonsense", "hook"]],
    ids=" ".join,
)
def test_wrong_usage_of_a_hook_never_exits_with_2_which_would_block_the_agent(
    words: list[str],
) -> None:
    assert run(*words).code == 1


def test_the_help_says_what_a_newcomer_must_know() -> None:
    def words(*command: str) -> str:
        return " ".join(run("help", *command).out.decode().split())

    assert "no TTL: the lock never expires" in words("lock", "acquire")
    assert "Exit 0 even if" in words("lock", "check")
    assert "safe when the holder has ended" in words("lock", "break")
    assert "highest priority" in words("task", "claim")
    assert "even if attempts remain" in words("task", "fail")
    assert "default: wait for ever" in words("worker")
    assert words("worker").partition("Exit codes:")[2].count(" 0 ") == 1


def test_a_state_directory_that_cannot_be_created_is_named_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AI_SWARM_DIR", raising=False)
    monkeypatch.setenv("SWARM_STATE_DIR", "/proc/x")
    answer = run("lock", "acquire", "t", "w")
    assert answer.code == 3 and answer.err.count(b"/proc/x") == 1
    assert b"set SWARM_STATE_DIR" in answer.err


@pytest.mark.parametrize("options", [["--list"], ["--check", "f"]])
def test_a_pattern_that_reserve_does_not_take_is_named(options: list[str]) -> None:
    answer = run("reserve", *options, "src/**")
    assert answer.code == 2 and b"takes no patterns. Leave 'src/**' out" in answer.err
