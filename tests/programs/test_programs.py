"""The scripted model is good enough for the real programs, and they do what
`swarm.presets` relies on.
"""

from __future__ import annotations

import json
from typing import Any

from tests.support.model_server import Script, Server
from tests.support.programs.agents import CLAUDE, CODEX, Desk, Program
from tests.support.programs.model_apis import Refuse, Say

PROMPT = "Please write new.txt."


def lines(output: str) -> list[dict[str, Any]]:
    """The events that a program printed, each a line of JSON."""
    return [json.loads(line) for line in output.splitlines()]


def test_an_edit_of_the_scripted_model_lands_on_disk(
    desk: Desk, model: Server, program: Program
) -> None:
    model.scripts.append(
        Script([Say("I write it.", (program.write("new.txt", "new\n"),)), Say("It is written.")])
    )
    done = desk.run(*program.command, stdin=PROMPT)
    assert (desk.work / "new.txt").read_text() == "new\n"
    assert "It is written." in done.stdout


def test_the_model_sees_the_prompt_once(desk: Desk, model: Server, program: Program) -> None:
    model.scripts.append(Script([Say("Nothing to do.")]))
    desk.run(*program.command, stdin=PROMPT)
    assert [text.count(PROMPT) for text in model.turns[0].user_texts if PROMPT in text] == [1]


def test_a_program_without_permissions_writes_nothing_and_still_succeeds(
    desk: Desk, model: Server, program: Program
) -> None:
    model.scripts.append(Script([Say("", (program.write("new.txt", "new\n"),)), Say("Sorry.")]))
    done = desk.run(*program.careful, stdin=PROMPT)
    assert not (desk.work / "new.txt").exists()
    assert done.returncode == 0


def test_a_refused_request_ends_the_program_with_an_error(
    desk: Desk, model: Server, program: Program
) -> None:
    model.scripts.append(Script([Refuse(429, "Slow down.", "rate_limit_error")]))
    done = desk.run(*program.command, stdin=PROMPT, check=False)
    assert done.returncode == 1
    assert "429" in done.stdout


def test_a_cut_stream_is_continued(desk: Desk, model: Server) -> None:
    model.scripts.append(Script([Say("Half an ans", cut=True), Say("A whole answer.")]))
    done = desk.run(*CLAUDE.command, stdin=PROMPT)
    assert lines(done.stdout)[-1]["result"] == "A whole answer."


def test_claude_reports_a_denied_tool_and_its_cost(desk: Desk, model: Server) -> None:
    model.scripts.append(Script([Say("", (CLAUDE.write("new.txt", "new\n"),)), Say("Sorry.")]))
    result = lines(desk.run(*CLAUDE.careful, stdin=PROMPT).stdout)[-1]
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["Write"]
    assert result["total_cost_usd"] > 0


def test_codex_reports_a_denied_patch_on_standard_error_alone(desk: Desk, model: Server) -> None:
    model.scripts.append(Script([Say("", (CODEX.write("new.txt", "new\n"),)), Say("Sorry.")]))
    done = desk.run(*CODEX.careful, stdin=PROMPT)
    assert "patch rejected" in done.stderr
    assert "rejected" not in done.stdout
