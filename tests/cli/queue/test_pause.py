"""`swarm pause` and `swarm resume`, and the labels of workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run


@pytest.fixture(autouse=True)
def place(isolated_swarm_dir: Path) -> Path:
    return isolated_swarm_dir


def swarm(*args: str) -> str:
    answer = run(*args)
    assert answer.code == 0, answer
    return answer.out.decode()


class TestPause:
    def test_a_claim_says_by_whom_why_and_what_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SWARM_WORKER", "ana")
        swarm("task", "add", "a", "--prompt", "x")
        paused = run("pause", "the bill", "--for", "2h", "--json").json
        assert (paused["paused"], paused["by"], paused["why"]) == (True, "ana", "the bill")
        refused = run("task", "claim", "--worker", "w", "--json")
        assert refused.code == 1
        answer = refused.json
        assert (answer["claimed"], answer["must_stop"], answer["why"]) == (False, True, "paused")
        assert answer["paused"]["by"] == "ana" and answer["paused"]["resume"] == "swarm resume"
        assert "do not claim again and again" in answer["next"]
        assert "paused by ana" in swarm("task", "list")
        assert "PAUSED" in swarm("status") and "swarm resume" in swarm("status")
        assert "PAUSED: all tasks are paused" in swarm("prime", "--worker", "w")
        assert "swarm task claim" not in swarm("prime", "--worker", "w")
        assert run("resume", "--json").json["resumed"] is True
        assert "Not paused" in swarm("resume")
        swarm("task", "claim", "--worker", "w")

    def test_a_label_is_paused_and_resumed_alone(self) -> None:
        swarm("task", "add", "a", "--prompt", "x", "--label", "web")
        swarm("task", "add", "b", "--prompt", "x")
        swarm("pause", "--label", "web")
        assert swarm("task", "list").count("paused") == 1
        assert run("task", "claim", "a", "--worker", "w").code == 1
        swarm("task", "claim", "--worker", "w")
        left = run("resume", "--json").json
        assert left["resumed"] is False and left["paused"][0]["label"] == "web"
        assert "Resumed" in swarm("resume", "--label", "web")

    def test_a_halt_says_what_has_not_ended(self) -> None:
        swarm("task", "add", "a", "--prompt", "x")
        swarm("task", "add", "b", "--prompt", "x")
        swarm("task", "claim", "a", "--worker", "w")
        goes_on = run("pause", "--json").json
        assert (goes_on["halted"], goes_on["running"][0]["task_id"]) == (False, "a")
        halted = run("pause", "--halt", "--wait", "0", "--json")
        assert halted.code == 1 and halted.json["running"] == goes_on["running"]
        refused = run("lock", "heartbeat", "a", "w")
        assert refused.code == 4 and b"halted" in refused.err
        swarm("task", "release", "a", "--worker", "w")
        again = run("pause", "--halt", "--json")
        assert (again.code, again.json["running"], again.json["new"]) == (0, [], False)

    @pytest.mark.parametrize(
        "words",
        [
            ("--label", ""),
            ("--label", "two words"),
            ("--for", "2x"),
            ("--for", "0"),
            ("--until", "soon"),
            ("--until", "2001-02-02T15:00:00Z"),
            ("--for", "2h", "--until", "2099-02-02T15:00:00Z"),
            ("--wait", "3"),
        ],
    )
    def test_wrong_options_pause_nothing(self, words: tuple[str, ...]) -> None:
        refused = run("pause", *words)
        assert refused.code == 2 and refused.err.startswith(b"Error: ")
        assert run("gate", "list", "--json").json["gates"] == []


class TestLabels:
    def test_a_worker_with_labels_does_only_their_tasks(self) -> None:
        for name, label in (("a", "web"), ("b", "api"), ("c", "docs")):
            swarm("task", "add", name, "--label", label, "--", "true")
        swarm("worker", "--id", "1", "--label", "web,api", "--until-empty", "--quiet")
        states = {task["id"]: task["state"] for task in run("task", "list", "--json").json["tasks"]}
        assert states == {"a": "done", "b": "done", "c": "ready"}
        assert run("task", "claim", "--worker", "w", "--label", "web").code == 1
        swarm("task", "claim", "--worker", "w", "--label", "web", "--label", "docs")
        assert run("worker", "--id", "1", "--label", "two words").code == 2
