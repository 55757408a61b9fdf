"""The session file of Codex tells about commands that its output leaves out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swarm.presets.codex import CodexReader
from swarm.presets.codex_session import Ran, commands

SESSION = "01a1ec87-16a7-7221-b7a5-8ea9ad75e0a1"
NOON, ONE = "2026-11-18T12:00:00.000Z", "2026-11-18T13:00:00.000Z"
NOON_SECONDS = 1795003200.0
STOPPED = "Process exited with code 128\nOutput:\nfatal: index.lock: Read-only file system\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path))
    made = tmp_path / f"sessions/2026/11/18/rollout-2026-11-18T12-00-00-{SESSION}.jsonl"
    made.parent.mkdir(parents=True)
    return made


def ran(at: str, call: str, command: str, output: str) -> str:
    """The two lines about a command, as Codex 0.169.0 writes them."""
    arguments = json.dumps({"cmd": command})
    payloads = (
        {"type": "function_call", "call_id": call, "name": "exec_command", "arguments": arguments},
        {"type": "function_call_output", "call_id": call, "output": output},
    )
    return "".join(
        json.dumps({"timestamp": at, "type": "response_item", "payload": payload}) + "\n"
        for payload in payloads
    )


def test_a_stopped_command_is_denied_though_no_event_told_of_it(file: Path) -> None:
    file.write_text(ran(ONE, "c1", "git add a.txt", STOPPED))
    reader = CodexReader(lambda: NOON_SECONDS)
    reader.feed(json.dumps({"type": "thread.started", "thread_id": SESSION}))
    reader.feed(json.dumps({"type": "turn.completed", "usage": {}}))
    (denial,) = reader.report(0).denials
    assert denial.what.startswith("git add a.txt")


def test_a_command_that_worked_later_is_not_denied(file: Path) -> None:
    works = "Process exited with code 0\nOutput:\n"
    file.write_text(
        ran(ONE, "c1", "git add a.txt", STOPPED) + ran(ONE, "c2", "git add a.txt", works)
    )
    reader = CodexReader(lambda: NOON_SECONDS)
    reader.feed(json.dumps({"type": "thread.started", "thread_id": SESSION}))
    assert reader.report(0).denials == ()


def test_commands_of_an_attempt_before_do_not_count(file: Path) -> None:
    file.write_text(
        ran(NOON, "c1", "old", STOPPED) + ran("2026-11-18T12:00:00.250Z", "c2", "new", STOPPED)
    )
    assert list(commands(SESSION, NOON_SECONDS + 0.25)) == [Ran("new", 128, STOPPED)]
    assert list(commands(SESSION, NOON_SECONDS + 0.5)) == [], "in the same second"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not JSON function_call\n",
        '{"function_call": 1}\n',
        '{"timestamp": 5, "payload": {"type": "function_call", "arguments": "["}}\n',
        ran(ONE, "c1", "true", "no exit code").splitlines()[1] + "\n",
        "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
    ],
)
def test_a_line_of_another_form_is_ignored(file: Path, text: str) -> None:
    file.write_text(text)
    assert list(commands(SESSION, NOON_SECONDS)) == []


@pytest.mark.parametrize("session", ["", "../../etc/passwd", "*", "gone"])
def test_a_session_without_a_file_has_no_commands(file: Path, session: str) -> None:
    file.write_text(ran(ONE, "c1", "x", STOPPED))
    assert list(commands(session, NOON_SECONDS)) == []
