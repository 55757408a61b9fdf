"""Tasks for `swarm worker --agent` at a desk: what the model does, what becomes of them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.programs.agents import CLAUDE, TIMEOUT, Desk, Program
from tests.support.programs.model_apis import Refuse, Say

PROMPT = "Please write new.txt."
PRICE = 0.006  # that Claude Code calculates for one answer of the scripted model


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


def until(what: Callable[[], Any], timeout: float = TIMEOUT) -> Any:
    """Wait for a fact, and return it."""
    deadline = time.monotonic() + timeout
    while not (found := what()):
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.05)
    return found


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
