"""Tasks done by the real programs, end to end through `swarm worker --agent`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import INPUT_TOKENS, Call, Refuse, Say, Script, Server
from tests.support.programs.agents import CLAUDE, CODEX, TIMEOUT, Desk, Program

PROMPT = "Please write new.txt."
PRICE = 0.006  # that Claude Code calculates for one answer of the scripted model


@pytest.fixture(autouse=True)
def project(desk: Desk) -> None:
    desk.run("swarm", "init", "--yes")


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
        assert "--help" in model.turns[0].user_texts
        assert task(desk)["state"] == "done"

    def test_cost_and_tokens_are_recorded(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([write(program), Say("It is written.")]))
        add(desk)
        work(desk, program)
        total = answer(desk, "cost")["total"]
        assert total["input_tokens"] == 2 * INPUT_TOKENS
        assert total["cost_usd"] == pytest.approx(2 * PRICE if program is CLAUDE else 0.0)


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

    def test_no_command_that_the_sandbox_of_codex_stops_is_overlooked(
        self, desk: Desk, model: Server
    ) -> None:
        """Codex prints no event about most of such commands."""
        names = [f"outside-{number}" for number in range(5)]
        calls = [Say("", (CODEX.shell(f"touch ../{name}"),)) for name in names]
        model.scripts.append(Script([*calls, Say("It is done.")]))
        add(desk, "--max-attempts", "1")
        work(desk, CODEX)
        assert task(desk)["state"] == "failed"
        shown = json.dumps(answer(desk, "task", "show", "t1")["history"])
        assert [name for name in names if name not in shown] == []


class TestLimits:
    def test_a_usage_limit_closes_the_gate_and_uses_no_attempt(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        subscribe(desk)
        model.scripts.append(
            Script([usage_limit(program, time.time() + 3600), write(program), Say("Done.")])
        )
        add(desk)
        with worker(desk, program) as process:
            gate = until(lambda: gates(desk))[0]
            assert gate["agent"] == program.name
            assert gate["until"]
            assert task(desk)["attempts"] == 0
            desk.run("swarm", "gate", "open", program.name)
            assert process.wait(TIMEOUT) == 0
        assert task(desk)["state"] == "done"
        assert task(desk)["attempts"] == 1
        assert (desk.work / "new.txt").exists()

    def test_the_gate_opens_at_the_time_that_claude_named(self, desk: Desk, model: Server) -> None:
        refused_at: list[float] = []

        def refuse() -> Refuse:
            refused_at.append(time.time())
            return usage_limit(CLAUDE, refused_at[-1] + 8)

        subscribe(desk)
        model.scripts.append(Script([refuse, write(CLAUDE), Say("Done.")]))
        add(desk)
        work(desk, CLAUDE)
        assert task(desk)["state"] == "done"
        assert task(desk)["attempts"] == 1
        history = answer(desk, "task", "show", "t1")["history"]
        starts = [record["timestamp"] for record in history if record["type"] == "START"]
        assert starts[-1] >= time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(int(refused_at[0] + 8)))

    @pytest.mark.parametrize(
        "refusal",
        [
            Refuse(429, "Slow down.", "rate_limit_error"),
            Refuse(529, "Overloaded", "overloaded_error"),
            Refuse(401, "The key is invalid.", "authentication_error"),
        ],
        ids=lambda refusal: str(refusal.status),
    )
    def test_a_refusal_of_the_model_is_no_failure_of_the_task(
        self, desk: Desk, model: Server, program: Program, refusal: Refuse
    ) -> None:
        model.scripts.append(Script([refusal]))
        add(desk)
        with worker(desk, program) as process:
            assert until(lambda: gates(desk))[0]["agent"] == program.name
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)
        assert task(desk)["state"] == "ready"
        assert task(desk)["attempts"] == 0
        assert len(model.turns) == 1


class TestAgain:
    def test_the_next_attempt_resumes_the_session_and_knows_the_reason(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([*denied(desk, program), Say("It is complete.")]))
        add(desk)
        work(desk, program)
        assert task(desk)["state"] == "done"
        assert task(desk)["attempts"] == 2
        first, last = model.turns[0], model.turns[-1]
        assert "I gave up." in json.dumps(last.body["messages" if program is CLAUDE else "input"])
        assert len(last.user_texts) > len(first.user_texts)
        assert "denied" in last.user_texts[-1]

    def test_a_resumed_session_is_not_paid_twice(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([*denied(desk, program), Say("It is complete.")]))
        add(desk)
        work(desk, program)
        total = answer(desk, "cost")["total"]
        assert total["input_tokens"] == 3 * INPUT_TOKENS
        assert total["cost_usd"] == pytest.approx(3 * PRICE if program is CLAUDE else 0.0)

    def test_a_question_is_answered_by_a_note_in_the_same_session(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([Say("Which colour do you want?"), Say("It is green.")]))
        add(desk)
        work(desk, program)
        desk.run("swarm", "task", "reopen", "t1", "--note", "Take green, please.")
        work(desk, program)
        assert task(desk)["reason"] == "It is green."
        last = model.turns[-1]
        assert "Which colour do you want?" in json.dumps(last.body)
        assert "Take green, please." in last.user_texts[-1]

    def test_a_killed_program_has_failed_and_is_started_again(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        model.scripts.append(Script([Say("I think.", hold=True), write(program), Say("Done.")]))
        add(desk)
        with worker(desk, program) as process:
            assert model.held.acquire(timeout=TIMEOUT)
            for pid in processes_of(desk, program):
                os.kill(pid, signal.SIGKILL)
            assert process.wait(TIMEOUT) == 0
        assert task(desk)["state"] == "done"
        assert task(desk)["attempts"] == 2
        assert (desk.work / "new.txt").exists()


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


def test_five_workers_do_five_tasks_with_a_limit_a_denial_and_a_crash(
    desk: Desk, model: Server
) -> None:
    def script(name: str, *first: Say | Refuse) -> Script:
        written = Say("", (CLAUDE.write(f"{name}.txt", f"{name}\n"),))
        return Script([*first, written, Say("Done.")], prompt=f"Write {name}.txt.")

    subscribe(desk)
    model.scripts += [
        script("plain"),
        script("other"),
        script("limited", usage_limit(CLAUDE, time.time() + 3600)),
        script("crashed", Say("I think.", hold=True)),
        Script(denied(desk, CLAUDE) * 2, prompt="Write denied.txt."),
    ]
    names = ["plain", "other", "limited", "crashed", "denied"]
    for name in names:
        add(desk, "--max-attempts", "2", name=name, prompt=f"Write {name}.txt.")
    workers = [start(desk, CLAUDE, str(number)) for number in range(5)]
    try:
        assert model.held.acquire(timeout=TIMEOUT)
        until(lambda: gates(desk))
        crashed = until(lambda: task(desk, "crashed")["worker"])
        for pid in processes_of(desk, CLAUDE, SWARM_WORKER=crashed):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(state == "running" for state in states(desk).values()))
        desk.run("swarm", "gate", "open", "claude")
        assert [process.wait(TIMEOUT) for process in workers] == [0] * 5
    finally:
        for process in workers:
            end(process)
    assert states(desk) == {**dict.fromkeys(names, "done"), "denied": "failed"}
    for name in names[:4]:
        assert (desk.work / f"{name}.txt").read_text() == f"{name}\n"
    attempts = {name: task(desk, name)["attempts"] for name in names}
    assert attempts == {"plain": 1, "other": 1, "limited": 1, "crashed": 2, "denied": 2}
    assert answer(desk, "cost")["total"]["cost_usd"] > 0


def write(program: Program) -> Say:
    return Say("I write it.", (program.write("new.txt", "new\n"),))


def denied(desk: Desk, program: Program) -> list[Say]:
    """A command that writes outside of the workspace, which no agent may do by default."""
    command = program.shell(f"touch {desk.directory}/outside")
    return [Say("I go outside.", (command,)), Say("I gave up.")]


def subscribe(desk: Desk) -> None:
    """Use Claude Code with a subscription, which alone has usage limits."""
    desk.environment["ANTHROPIC_API_KEY"] = ""
    desk.environment["CLAUDE_CODE_OAUTH_TOKEN"] = "sk-ant-oat01-test"


def usage_limit(program: Program, opens: float) -> Refuse:
    """How each maker refuses a subscriber who has used everything up."""
    if program is CLAUDE:
        unified = "anthropic-ratelimit-unified"
        headers = {
            f"{unified}-status": "rejected",
            f"{unified}-reset": str(int(opens)),
            f"{unified}-representative-claim": "five_hour",
        }
        return Refuse(429, "The limit is reached.", "rate_limit_error", headers)
    more = {"plan_type": "plus", "resets_at": int(opens)}
    return Refuse(429, "The usage limit has been reached", "usage_limit_reached", more=more)


def trust_and_wait(desk: Desk) -> None:
    """Trust the project, as a user of Codex does once. Have Codex wait for its MCP servers:
    otherwise it starts them in the background, and the script would be faster.
    """
    config = desk.home / ".codex/config.toml"
    config.write_text(f'{config.read_text()}\n[projects."{desk.work}"]\ntrust_level = "trusted"\n')
    config = desk.work / ".codex/config.toml"
    server = "[mcp_servers.swarm]\n"
    config.write_text(config.read_text().replace(server, f"{server}required = true\n"))


def add(desk: Desk, *options: str, name: str = "t1", prompt: str = PROMPT) -> None:
    desk.run("swarm", "task", "add", name, "--prompt", "-", *options, stdin=prompt)


def work(desk: Desk, program: Program, *options: str) -> None:
    """Run a worker until it has nothing to do."""
    desk.run(*command(program, "1"), *options)


def command(program: Program, number: str) -> tuple[str, ...]:
    run = ("swarm", "worker", "--id", number, "--agent", program.name)
    return (*run, "--until-empty", "--backoff", "0", "--grace", "5")


def start(desk: Desk, program: Program, number: str) -> subprocess.Popen[bytes]:
    with (desk.directory / f"worker-{number}").open("wb") as output:
        return subprocess.Popen(
            command(program, number),
            cwd=desk.work,
            env=desk.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait(TIMEOUT)


@contextmanager
def worker(desk: Desk, program: Program) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that ends with the block at the latest."""
    process = start(desk, program, "1")
    try:
        yield process
    finally:
        end(process)


def answer(desk: Desk, *command: str) -> Any:
    return json.loads(desk.run("swarm", *command, "--json").stdout)


def task(desk: Desk, name: str = "t1") -> dict[str, Any]:
    found: dict[str, Any] = answer(desk, "task", "show", name)["task"]
    return found


def states(desk: Desk) -> dict[str, str]:
    return {found["id"]: found["state"] for found in answer(desk, "task", "list")["tasks"]}


def gates(desk: Desk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer(desk, "gate", "list")["gates"]
    return found


def processes_of(desk: Desk, program: Program, **variables: str) -> list[int]:
    """The processes of this program that a worker of this desk started."""
    wanted = {f"{name}={value}" for name, value in {"HOME": str(desk.home), **variables}.items()}
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            environment = set((directory / "environ").read_text(errors="replace").split("\0"))
            words = (directory / "cmdline").read_text(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if wanted <= environment and any(Path(word).name == program.name for word in words[:2]):
            found.append(int(directory.name))
    return found


def until(what: Callable[[], Any]) -> Any:
    """Wait for a fact, and return it."""
    deadline = time.monotonic() + TIMEOUT
    while not (found := what()):
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.05)
    return found
