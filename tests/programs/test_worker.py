"""Tasks done by the real programs, end to end through `swarm worker --agent`."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.support.model_server import Script, Server
from tests.support.programs.agents import CLAUDE, CODEX, TIMEOUT, Desk, Program
from tests.support.programs.model_apis import INPUT_TOKENS, Call, Say
from tests.support.programs.tasks import (
    PRICE,
    PROMPT,
    add,
    answer,
    command,
    denied,
    processes_of,
    task,
    work,
    worker,
    write,
)

pytestmark = pytest.mark.usefixtures("project")


class TestDone:
    def test_edits_land_on_disk_before_a_task_is_done(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([write(program), Say("It is written.")]))
        add(desk)
        work(desk, program)
        assert (desk.work / "new.txt").read_text() == "new\n"
        assert task(desk)["state"] == "done"
        assert task(desk)["reason"] == "It is written."

    def test_the_agent_may_commit_and_use_swarm(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        commands = "git add new.txt && git commit --quiet --message=new", "swarm task list"
        calls = [Say("", (program.shell(command),)) for command in commands]
        model.scripts.append(Script([write(program), *calls, Say("It is committed.")]))
        add(desk)
        work(desk, program)
        assert task(desk)["state"] == "done"
        assert desk.run("git", "show", "HEAD:new.txt").stdout == "new\n"
        assert "t1" in model.turns[-1].tool_results[-1]

    def test_the_prompt_arrives_once(self, desk: Desk, model: Server, program: Program) -> None:
        model.scripts.append(Script([Say("Nothing to do.")]))
        add(desk)
        work(desk, program)
        texts = model.turns[0].user_texts
        assert sum(text.count(PROMPT) for text in texts) == 1

    def test_a_prompt_that_looks_like_an_option_is_a_prompt(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([Say("Nothing to do.")]))
        add(desk, prompt="--help")
        work(desk, program)
        assert any(text.startswith("--help") for text in model.turns[0].user_texts)
        assert task(desk)["state"] == "done"

    def test_cost_and_tokens_are_recorded(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([write(program), Say("It is written.")]))
        add(desk)
        work(desk, program)
        total = answer(desk, "cost")["total"]
        assert total["input_tokens"] == 2 * INPUT_TOKENS
        assert total["cost_usd"] == (pytest.approx(2 * PRICE) if program is CLAUDE else None)


class TestRefused:
    """A worker that cannot work with its set-up does not begin a task."""

    @pytest.mark.skipif(os.geteuid() != 0, reason="Claude Code refuses it only to root")
    def test_root_with_all_permissions_is_refused_before_a_task_begins(
        self, desk: Desk, model: Server
    ) -> None:
        add(desk)
        refused = desk.run(*command(CLAUDE, "1"), "--permissions", "full", check=False)
        assert refused.returncode == 2
        assert "IS_SANDBOX=1" in refused.stderr
        assert (task(desk)["state"], task(desk)["attempts"]) == ("ready", 0)
        desk.environment["IS_SANDBOX"] = "1"
        model.scripts.append(Script([write(CLAUDE), Say("It is written.")]))
        work(desk, CLAUDE, "--permissions", "full")
        assert task(desk)["state"] == "done"

    def test_words_that_change_the_output_are_refused(self, desk: Desk) -> None:
        refused = desk.run(*command(CLAUDE, "1"), "--", "--output-format=text", check=False)
        assert refused.returncode == 2
        assert "changes the output of claude" in refused.stderr

    def test_a_budget_that_cannot_act_is_a_warning(self, desk: Desk) -> None:
        done = desk.run(*command(CODEX, "1"), "--budget", "5")
        assert "codex reports no cost in money, so --budget cannot stop it" in done.stderr
        done = desk.run(*command(CLAUDE, "1"), "--budget", "5", "--task-budget", "1")
        assert done.stderr == ""


class TestDenied:
    def test_a_denied_edit_is_reported_and_the_task_is_not_done(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([write(program), Say("It is written.")]))
        add(desk, "--max-attempts", "1")
        work(desk, program, "--permissions", "ask")
        assert not (desk.work / "new.txt").exists()
        assert task(desk)["state"] == "failed"
        assert "denied" in task(desk)["reason"].lower()
        history = answer(desk, "task", "show", "t1")["history"]
        (report,) = (record for record in history if record.get("reason", "").startswith("DENIED"))
        assert "new.txt" in report["reason"] or "patch" in report["reason"]
        assert "--permissions" in report["reason"]  # the cure

    def test_a_denied_command_is_reported_and_the_task_is_not_done(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script(denied(desk, program)))
        add(desk, "--max-attempts", "1")
        work(desk, program)
        assert not (desk.directory / "outside").exists()
        assert task(desk)["state"] == "failed"
        assert "denied" in task(desk)["reason"].lower()

    def test_the_printed_cure_works_in_a_project_without_trust(
        self, desk: Desk, model: Server
    ) -> None:
        command = 'git status && python3 -c \'open("made.txt", "w")\' 2>&1 | tail -1'
        run = Say("", (CLAUDE.shell(command),))
        model.scripts.append(Script([run, Say("I gave up."), run, Say("It is made.")]))
        add(desk, "--max-attempts", "1")
        work(desk, CLAUDE)
        assert 'add "python3" to allow in swarm.toml' in task(desk)["reason"]
        (desk.work / "swarm.toml").write_text('land = "main"\nallow = ["python3"]\n')
        desk.run("swarm", "task", "retry", "t1")
        work(desk, CLAUDE)
        assert task(desk)["state"] == "done"
        assert (desk.work / "made.txt").exists()

    @pytest.mark.parametrize("command", ["FOO=1 make x", "cd sub && git status"])
    def test_every_command_may_be_allowed(self, desk: Desk, model: Server, command: str) -> None:
        (desk.work / "sub").mkdir()
        (desk.work / "Makefile").write_text("x:\n\techo $(FOO)\n")
        run = Say("", (CLAUDE.shell(command),))
        model.scripts.append(Script([run, Say("I gave up."), run, Say("It is run.")]))
        add(desk, "--max-attempts", "1")
        work(desk, CLAUDE)
        assert 'add "*", every command, to allow' in task(desk)["reason"]
        desk.run("swarm", "task", "retry", "t1")
        work(desk, CLAUDE, "--allow", "*")
        assert task(desk)["state"] == "done"

    def test_no_command_that_the_sandbox_of_codex_stops_is_overlooked(
        self, desk: Desk, model: Server
    ) -> None:
        """Codex prints no event about most of such commands."""
        names = [f"outside-{number}" for number in range(5)]
        calls = [Say("", (CODEX.shell(f"touch {desk.directory}/{name}"),)) for name in names]
        model.scripts.append(Script([*calls, Say("It is done.")]))
        add(desk, "--max-attempts", "1")
        work(desk, CODEX)
        assert task(desk)["state"] == "failed"
        shown = json.dumps(answer(desk, "task", "show", "t1")["history"])
        assert [name for name in names if name not in shown] == []


def test_sigterm_in_the_middle_gives_the_task_back(
    desk: Desk, model: Server, program: Program
) -> None:
    model.scripts.append(Script([Say("I think.", hold=True)]))
    add(desk)
    with worker(desk, program) as process:
        assert model.held.acquire(timeout=TIMEOUT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 128 + signal.SIGTERM
    assert task(desk)["state"] == "ready"
    assert task(desk)["attempts"] == 0
    assert processes_of(desk, program) == []


class TestSetup:
    def test_the_agent_itself_uses_hooks_mcp_and_the_command(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        desk.run("swarm", "setup", program.name, "--yes")
        board = Call("mcp__swarm__board")
        search = Say("", (Call("ToolSearch", {"query": "swarm board"}),))
        options: tuple[str, ...] = ()
        if program is not CLAUDE:
            trust_and_wait(desk)
            board = Call("board", namespace="mcp__swarm")
            search = Say("", (Call("tool_search", {"query": "swarm board"}),))
            options = ("--", "--dangerously-bypass-hook-trust")  # else a person must look at them
        desk.commit()  # so that each workspace has hooks and MCP server
        model.scripts.append(
            Script(
                [search, Say("", (board,)), Say("", (program.shell("swarm prime"),)), Say("Done.")]
            )
        )
        add(desk)
        work(desk, program, *options)
        assert task(desk)["state"] == "done"
        of_board, of_prime = model.turns[-1].tool_results[-2:]
        assert '"you":"worker-1"' in of_board
        assert "worker-1" in of_prime and "t1" in of_prime
        assert "You are worker" in json.dumps(model.turns[0].body)  # from SessionStart


def trust_and_wait(desk: Desk) -> None:
    """Trust the project, as a user of Codex does once. Have Codex wait for its MCP servers:
    otherwise it starts them in the background, and the script would be faster.
    """
    config = desk.home / ".codex/config.toml"
    config.write_text(f'{config.read_text()}\n[projects."{desk.work}"]\ntrust_level = "trusted"\n')
    config = desk.work / ".codex/config.toml"
    server = "[mcp_servers.swarm]\n"
    config.write_text(config.read_text().replace(server, f"{server}required = true\n"))
