"""A limit of the real programs is nobody's failure, and closes their gate."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.support.model_server import Script, Server
from tests.support.programs.agents import CLAUDE, TIMEOUT, Desk, Program
from tests.support.programs.model_apis import Refuse, Say
from tests.support.programs.tasks import (
    add,
    answer,
    denied,
    end,
    gates,
    processes_of,
    start,
    states,
    subscribe,
    task,
    until,
    usage_limit,
    work,
    worker,
    write,
)

pytestmark = pytest.mark.usefixtures("project")


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

    def test_a_model_that_does_not_exist_closes_the_gate_and_uses_no_attempt(
        self, desk: Desk, model: Server, program: Program
    ) -> None:
        refusal = Refuse(404, "The model `m` does not exist.", "model_not_found")
        model.scripts.append(Script([refusal] * 2))  # Claude Code asks twice
        add(desk)
        with worker(desk, program) as process:
            gate = until(lambda: gates(desk))[0]
            assert gate["agent"] == program.name
            assert ". Choose a model that exists: --model, or model in swarm.toml" in gate["reason"]
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)
        assert (task(desk)["state"], task(desk)["attempts"]) == ("ready", 0)


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
